#!/usr/bin/env bash
# pshmem's own tests, over mpi4py: its locks are queues in a window, used by exclusive locks, puts, gets and flushes. The
# last line counts the tests run and failed; a test that fails on any rank has failed.
# Usage: pshmem.sh PREFIX ENVIRONMENT RANKS (ENVIRONMENT as for mpi4py.sh)
set -euo pipefail
prefix=$1 environment=$2 ranks=$3
version=1.3.5
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$environment/bin/python" -c "import pshmem; assert pshmem.__version__ == '$version'" 2>/dev/null ||
    "$environment/bin/pip" install -q --disable-pip-version-check --no-deps "pshmem==$version"
code=0
LD_LIBRARY_PATH=$prefix/lib "$prefix/bin/mpiexec" -timeout 550 -n "$ranks" \
    "$environment/bin/python" -c 'import pshmem.test; pshmem.test.run()' >"$log" 2>&1 </dev/null || code=$?
finished=$(grep -cE '^(OK|FAILED)' "$log" || true)
failed=$(sed -nE 's/^(FAIL|ERROR): (test_[a-z_]+).*/\2/p' "$log" | sort -u | wc -l)
if [ $code != 0 ] || [ "$finished" != "$ranks" ]; then
    tail -50 "$log" >&2
    echo "$finished of $ranks ranks came to the end of pshmem's tests (exit code $code)" >&2
    exit 1
fi
echo "$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log" | head -1) $failed"
[ "$failed" = 0 ]
