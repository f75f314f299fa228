#!/usr/bin/env bash
# Ranks under a launcher that speaks PMIx: what is said when its library or its server is unfit. The library is a stub for one
# process; tests/slurm.sh has a real one. Usage: pmix.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/starts.c -o "$work/starts" || exit 1
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/abort.c -o "$work/abort" || exit 1
mkdir "$work"/{stub,empty,lacking}
cc -Wall -Werror -O1 -shared -fPIC -Wl,-soname,libpmix.so.2 programs/pmix_stub.c -o "$work/stub/libpmix.so.2" || exit 1
echo 'const char *PMIx_Get_version(void) { return "OpenPMIx 4.2.2"; }' >"$work/lacking.c"
cc -shared -fPIC "$work/lacking.c" -o "$work/lacking/libpmix.so.2" || exit 1
: >"$work/empty/libpmix.so.2"
under() { # folder of the library, what is wrong, command...: prints output and code
    local folder=$1 stub=$2
    shift 2
    env -u PMI_FD -u PMI_PORT LD_LIBRARY_PATH="$work/$folder" STUB="$stub" PMIX_NAMESPACE="job" PMIX_RANK=0 timeout 30 "$@" 2>&1
    echo "code $?"
}
lines() { paste -sd'|'; }
tool="$work/starts tool"
check "a process joins, and leaves" "a 0 of 1|stub: finalized|code 0" "$(under stub none "$work/starts" a | lines)"
check "programs that it starts are alone" "a 0 of 1|tool 0 of 1|stub: finalized|tool 0 of 1|code 0" "$(under stub none "$work/starts" a "$tool" "$tool" | lines)"
check "programs in turn each join" "a 0 of 1|stub: finalized|b 0 of 1|stub: finalized|code 0" "$(under stub none sh -c "$work/starts a; $work/starts b" | lines)"
check "MPI_Abort passes its code" "stub: aborted with 7|code 7" "$(under stub none "$work/abort" 7 | grep -v "^canele: " | lines)"
check "mpiexec's ranks are its own" "a 0 of 2 a 1 of 2 code 0" "$(under stub refuse "$prefix/bin/mpiexec" -n 2 "$work/starts" a | sort | paste -sd' ')"
refused() { # name, folder, what is wrong, pattern: a process stops with one line
    check "$1" "1 1" "$(under "$2" "$3" "$work/starts" a | grep -v '^code 16$' | awk -v pattern="$4" '{ lines++ } $0 ~ pattern { said++ } END { print lines, said }')"
}
refused "a library that cannot be loaded" empty none 'speaks PMIx, whose library cannot be used: .*file too short; install it'
refused "a version before the interface" stub old 'libpmix.so.2 is version `PMIx 1.2.5`, not 2 or later; install'
refused "a library without a function" lacking none 'libpmix.so.2 lacks PMIx_Init; install'
refused "a server that does not answer" stub refuse 'PMIx server does not serve this process: PMIx_Init: UNREACHABLE; its step may have ended'
refused "a server of another job" stub other 'this process is rank 0 of `singleton.1` there'
refused "a job without ranks" stub big 'no size of the job'
check "variables that do not fit" 1 "$(PMIX_RANK=0 "$work/starts" a 2>&1 | grep -c 'PMIX_RANK is set but PMIX_NAMESPACE is not')"
finish_checks
