#!/usr/bin/env bash
# Number of instructions per short message, counted by callgrind. A growth over 3 % fails: lower the bound with your
# savings. Receives into many posted receives vary by a tenth, depending on how they share the hash table. A sender
# runs fences for a while once the receiver has slept. The least of three runs therefore counts, and none may have a
# tenth more. Usage: instructions.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/instructions.c -o "$work/instructions" || exit 1
mkfifo "$work/fifo" || exit 1
runs="1 2 3"
for run in $runs; do
    "$prefix/bin/mpiexec" -timeout 120 -n 2 sh -c "exec valgrind -q --tool=callgrind --callgrind-out-file=$work/counts.$run.\$PMI_RANK $work/instructions $work/fifo" 2>"$work/err"
    check "the program runs under callgrind" 0 $?
done
counts() { # function, rank: instructions per call, of ten thousand, of each run, the least first
    for run in $runs; do
        callgrind_annotate --inclusive=yes --threshold=100 "$work/counts.$run.$2" 2>/dev/null |
            awk -v name=":P?$1( |\$)" '$0 ~ name { gsub(",", "", $1); if ($1 + 0 > most) most = $1 + 0 } END { print int(most / 10000) }'
    done | sort -n | paste -sd' '
}
within() { # name, bound, the counts
    read -r least _ most <<<"$3"
    check "$1: $least instructions, at most $2" yes "$([ "$least" -gt 0 ] && [ "$least" -le "$2" ] && echo yes)"
    check "and no run has a tenth more than that: $most" yes "$([ $((most * 10)) -le $(($2 * 11)) ] && echo yes)"
}
within "MPI_Send of 8 bytes" 497 "$(counts MPI_Send 0)"
within "MPI_Recv of 8 bytes that wait" 890 "$(counts MPI_Recv 1)"
within "MPI_Isend of 8 bytes" 576 "$(counts MPI_Isend 0)"
within "MPI_Waitall for one of them" 19 "$(counts MPI_Waitall 0)"
within "MPI_Irecv of 8 bytes to come" 556 "$(counts MPI_Irecv 1)"
within "MPI_Waitall that takes one in" 780 "$(counts MPI_Waitall 1)"
within "MPI_Reduce of 8 bytes by a rank that is not the root" 1428 "$(counts MPI_Reduce 1)"
within "MPI_Reduce of 8 bytes by the root, which comes last" 2384 "$(counts MPI_Reduce 0)"
within "MPI_Allreduce_init of 8 bytes, planned before" 1350 "$(counts MPI_Allreduce_init 0)"
within "MPI_Alltoall_init of 8 bytes a block, planned before" 1730 "$(counts MPI_Alltoall_init 0)"
within "MPI_Put of 8 bytes to memory of the node" 200 "$(counts MPI_Put 0)"
within "MPI_Fetch_and_op of 8 bytes there" 372 "$(counts MPI_Fetch_and_op 0)"
within "MPI_Win_flush of both" 84 "$(counts MPI_Win_flush 0)"
within "mad_pack of 16 bytes" 93 "$(counts mad_pack 0)"
within "mad_unpack of 16 bytes, EXPRESS, that are there" 131 "$(counts mad_unpack 1)"
[ "$failures" = 0 ] || cat "$work/err"
finish_checks
