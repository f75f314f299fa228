#!/usr/bin/env bash
# The library with MPICH's older ABI beside MPICH's own: symbols, constants, and C programs that are built with MPICH's
# header. Usage: mpich_abi.sh PREFIX REFERENCE (REFERENCE holds MPICH's include/mpi.h and lib/libmpi.so.12)
set -euo pipefail
prefix=$1 reference=$2
cd "$(dirname "$0")"
. ./check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$prefix/lib/canele/mpich
build() { # program, options
    # The header has no version of the standard ABI.
    gcc -Wall -Werror -O1 -I"$reference/include" -DMPI_ABI_VERSION=-1 -DMPI_ABI_SUBVERSION=-1 "programs/$1.c" -o "$work/$1" -L"$folder" -lmpi -ldl
}
go() { LD_LIBRARY_PATH=$folder timeout 300 "$prefix/bin/mpiexec" "$@"; }

# Every symbol of MPICH's library is there, or its absence has a reason.
symbols() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort -u; }
symbols "$folder/libmpi.so.12" >"$work/ours"
symbols "$reference/lib/libmpi.so.12" >"$work/theirs"
sed -nE 's/^([^# ]+) .*/^(\1)$/p' ../api/mpich_missing.txt >"$work/missing"
check "symbols" "" "$(comm -13 "$work/ours" "$work/theirs" | grep -vP "$(paste -sd'|' "$work/missing")" | paste -sd' ')"
check "and no others" "" "$(comm -23 "$work/ours" "$work/theirs" | paste -sd' ')"
check "symbols that are missing, and are not" "" "$(grep -P "$(paste -sd'|' "$work/missing")" "$work/ours" | paste -sd' ')"
check "the name of the library" 1 "$(objdump -p "$folder/libmpi.so.12" | grep -c 'SONAME *libmpi.so.12$')"

# Constants, as MPICH's header has them.
names=$(sed -nE 's/^(MPIX?_\w+) .*/\1/p' ../api/mpich.txt)
{
    echo '#include <mpi.h>'
    echo '#include <stdint.h>'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    for name in $names; do echo "printf(\"$name %lld\\n\", (long long)(intptr_t)$name);"; done
    echo 'printf("sizes %zu %zu %zu %zu\n", sizeof(MPI_Status), sizeof(MPI_Aint), sizeof(MPI_Count), sizeof(MPI_Comm));'
    echo 'return 0; }'
} >"$work/constants.c"
gcc -w -I"$reference/include" "$work/constants.c" -o "$work/constants" -L"$folder" -lmpi
LD_LIBRARY_PATH=$folder "$work/constants" >"$work/found"
{
    while read -r name value; do
        # Handles are signed integers.
        value=$((value))
        [ $value -lt $((1 << 31)) ] || value=$((value - (1 << 32)))
        echo "$name $value"
    done < <(grep -E '^MPIX?_' ../api/mpich.txt)
    echo "sizes 20 8 8 4"
} >"$work/expected"
check "constants" "" "$(diff "$work/expected" "$work/found")"

# Datatypes: one program prints the same with both libraries.
build types
LD_LIBRARY_PATH=$folder timeout 60 "$work/types" | sed -E 's/0xc[0-9a-f]{7}\b/dynamic/g' >"$work/types.ours"
LD_LIBRARY_PATH=$reference/lib timeout 60 "$work/types" | sed -E 's/0xc[0-9a-f]{7}\b/dynamic/g' >"$work/types.theirs"
check "datatypes" "" "$(diff "$work/types.theirs" "$work/types.ours" | head -5)"

runs() { # name, ranks, program, arguments
    check "$1" 0 "$(go -n "$2" "$work/$3" "${@:4}" >"$work/log" 2>&1 || { head -5 "$work/log"; echo failed; })$([ -s "$work/log" ] && echo 0)"
}
for program in mpich_abi collectives nonblocking large layouts point_to_point objects rare_functions tool topologies neighbours intercomms threads vcis refused outstanding cancelled generalized partitioned windows windows_threads files sessions ports spawn; do
    build $program
done
build mismatch
for ranks in 2 4; do runs "what differs, on $ranks ranks" $ranks mpich_abi; done
for program in collectives nonblocking layouts point_to_point objects rare_functions topologies neighbours intercomms outstanding generalized partitioned windows files; do
    runs $program 3 $program
done
runs "messages beyond 2 GiB" 2 large
runs "tool interface" 1 tool
runs VCIs 2 vcis
for part in alone beside; do runs "sessions, $part" 3 sessions $part; done
runs "groups that meet over a port" 4 ports within
runs "processes that start others" 3 spawn talk 2
runs "error codes of processes that cannot be started" 3 spawn missing
runs "bad calls, then good ones" 3 refused "${CANELE_SEED:-1}" 100
runs "cancelled sends" 2 cancelled "$work"
runs "threads" 3 threads "${CANELE_SEED:-1}" 4
runs "threads that share a window" 3 windows_threads 4 30

# What mpiexec says of these programs.
set +e
go -check -n 3 "$work/mismatch" >"$work/log" 2>&1
check "collectives are compared" 0 $?
for option in -trace -profile; do
    go $option "$work/recorded" -n 2 "$work/mpich_abi" >"$work/log" 2>"$work/err"
    check "$option leaves the program alone" "0 MPICH's ABI on 2 ranks: 0 failures" "$? $(cat "$work/log")"
    check "and says once that it has no calls" \
        "canele: -trace and -profile do not record the calls of a program of MPICH's ABI (libmpi.so.12): compile it with Canele's mpicc" \
        "$(grep canele: "$work/err")"
    check "its file is there" yes "$([ -s "$work/recorded" ] && echo yes)"
done
for command in "" "sh -c"; do
    LD_LIBRARY_PATH='' timeout 60 "$prefix/bin/mpiexec" -n 1 $command "$work/mpich_abi" 2>"$work/err"
    code=$?
    check "a library that is not found is named with its folder" \
        "127 mpiexec: rank 0 on localhost: exited with code 127: libmpi.so.12 was not found; export LD_LIBRARY_PATH=$(realpath "$folder")" \
        "$code $(grep mpiexec: "$work/err")"
done
timeout 60 "$prefix/bin/mpiexec" -n 1 sh -c 'exit 127' 2>"$work/err"
check "but not where another is missing" "mpiexec: rank 0 on localhost: exited with code 127" "$(cat "$work/err")"
finish_checks
