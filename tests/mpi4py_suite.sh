#!/usr/bin/env bash
# mpi4py's own tests, without those in mpi4py.excluded. The last line counts the tests run, passed, skipped and
# failed, with dashes for unknown numbers. Usage: mpi4py_suite.sh PREFIX ENVIRONMENT SOURCE RANKS
# (ENVIRONMENT as for mpi4py.sh; SOURCE: the unpacked source of the same version)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 environment=$2 source=$3 ranks=$4
limit_s=900
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -E 's/ *(#.*)?$//; /^$/d' "$here/mpi4py.excluded" >"$work/excluded"
modules=$(awk '$1 ~ /\.py$/ {gsub(/\./, "\\.", $1); print $1}' "$work/excluded" | paste -sd'|')
awk '$1 !~ /\.py$/ {print $1}' "$work/excluded" >"$work/patterns"

# A rank that does not finish prints its position.
code=0
LD_LIBRARY_PATH=$prefix/lib timeout -k 10 $((limit_s + 30)) "$prefix/bin/mpiexec" -l -n "$ranks" \
    timeout --foreground -s ABRT $limit_s \
    "$environment/bin/python" -X faulthandler "$source/test/main.py" -v -e "^($modules)\$" --xfile "$work/patterns" \
    >"$work/log" 2>&1 </dev/null || code=$?

# Ranks run the same tests. A test that fails on any rank has failed.
{ grep -oE '\(test_[A-Za-z_0-9.]+\).* \.\.\. (FAIL|ERROR)$|\] (FAIL|ERROR): .*' "$work/log" || true; } |
    sed -E 's/^\] (FAIL|ERROR): //; s/.*\(([A-Za-z_0-9.]+)\).*/\1/' | sort -u >"$work/failed"
run=$(sed -nE 's/^\[[0-9]+\] Ran ([0-9]+) tests? in .*/\1/p' "$work/log" | head -1)
finished=$(grep -cE '^\[[0-9]+\] (OK|FAILED)( \(|$)' "$work/log" || true)
skipped=$(sed -nE 's/^\[[0-9]+\] (OK|FAILED) \(.*skipped=([0-9]+).*/\2/p' "$work/log" | head -1)
failed=$(wc -l <"$work/failed")
if [ "$finished" -lt "$ranks" ] && [ "$failed" = 0 ]; then
    tail -50 "$work/log" >&2
    echo "only $finished of $ranks ranks came to the end of mpi4py's tests (exit code $code)" >&2
    exit 1
elif [ "$failed" != 0 ] || [ $code != 0 ]; then
    grep -A25 -E '\] (FAIL|ERROR): ' "$work/log" | head -200 >&2 || tail -50 "$work/log" >&2
    sed 's/^/failed: /' "$work/failed" >&2
fi
{ sed -nE "s/^\[0\] .* skipped '(.*)'$/\1/p" "$work/log" || true; } | sort | uniq -c | sort -rn |
    awk '{count = $1; sub(/^ *[0-9]+ /, ""); printf "%s%d %s", (NR > 1 ? ", " : "skipped by mpi4py itself: "), count, $0} END {if (NR) print ""}'
if [ -n "$run" ]; then
    echo "$run $((run - ${skipped:-0} - failed)) ${skipped:-0} $failed"
else
    echo "- - - $failed"
fi
[ "$failed" = 0 ] && [ $code = 0 ]
