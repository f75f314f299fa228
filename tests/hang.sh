#!/usr/bin/env bash
# Reports on jobs that hang: canele stack, SIGUSR1 and -timeout, on 16 ranks of two emulated nodes. Usage: hang.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
mpiexec=$prefix/bin/mpiexec
canele=$prefix/bin/canele
work=$(mktemp -d)
trap '[ -z "${job:-}" ] || kill -9 $job 2>/dev/null; rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/hang.c -o "$work/hang" -lpthread || exit 1
# Two nodes: the ranks of each have agents of their own and cannot share memory with the other's.
printf '#!/bin/sh\nshift\nexec env CANELE_RAILS=tcp "$@"\n' >"$work/launcher"
chmod +x "$work/launcher"
hosts="-hosts one:8,two:8 -launcher-exec $work/launcher"
begin() { # way, number of ranks, options of mpiexec
    way=$1 ranks=$2
    shift 2
    rm -rf "$work/begun"
    mkdir "$work/begun"
    "$mpiexec" -timeout 120 "$@" -n "$ranks" "$work/hang" "$way" "$work/begun" >"$work/said" 2>&1 &
    job=$!
    until_true 60 '[ "$(ls "$work/begun" | wc -l)" -ge '"$ranks"' ]'
    # A wait is certain only after a while in which nothing has completed.
    sleep 1
}
finish() {
    kill -9 $job
    wait $job 2>/dev/null
    job=
}
stack() { timeout 20 "$canele" stack $job >"$work/report" 2>&1; }
has() { # name, pattern of a line
    check "$1" yes "$(grep -qE -- "$2" "$work/report" && echo yes || cat "$work/report")"
}

# shellcheck disable=SC2086
begin ring 16 $hosts
check "jobs are listed" "1 16 2 $work/hang ring" "$("$canele" jobs | awk -v job=$job '$1 == job { print 1, $2, $3, $5, $6 }')"
took=$(took_ms stack)
stack
check "16 ranks that hang answer in bounded time" yes "$([ "$took" -lt 10000 ] && echo yes || echo "$took ms")"
has "each with its call, peer, tag and communicator" "^rank 3 on one: waits in MPI_Recv for a message from rank 4 with tag 5 in MPI_COMM_WORLD; nothing completed for [0-9]+ s, called by .*hang"
has "and what is unmatched" "1 receive without a message: a message from rank 4 with tag 5 in MPI_COMM_WORLD"
has "a ring of receives is a deadlock" "^deadlock: ranks 0 -> 1 -> 2 -> .* -> 15 -> 0 wait for each other"
check "the job goes on" 0 "$(kill -0 $job; echo $?)"
kill -USR1 $job
until_true 20 'grep -q deadlock "$work/said"'
check "SIGUSR1 prints the same" "$(grep deadlock "$work/report")" "$(sed -n 's/^mpiexec: //p' "$work/said" | grep deadlock)"
ended=$job
finish
check "a job that has ended is none" 1 "$("$canele" stack $ended 2>&1 | grep -c "no job $ended of this user runs here")"
check "and is not listed" 0 "$("$canele" jobs | awk -v job=$ended '$1 == job' | wc -l)"

# shellcheck disable=SC2086
begin barrier 16 $hosts
stack
has "ranks in a collective name the one that is missing" "^ranks 0-14 wait for rank 15, which waits for nobody"
has "with their call" "waits in MPI_Barrier for .* in a collective of MPI_COMM_WORLD"
has "and the missing one computes" "^rank 15 on two: waits in no call: it computes, or polls"
check "which is no deadlock" 0 "$(grep -c deadlock "$work/report")"
touch "$work/begun/go"
until_true 30 '! kill -0 $job 2>/dev/null'
wait $job
check "the job ends once it comes" 0 $?

begin barrier 4
stack
has "also in a shared segment" "^ranks 0-2 wait for rank 3, which waits for nobody"
stopped=$(pgrep -f -x "$work/hang barrier $work/begun" | tail -1)
kill -STOP "$stopped"
stack
has "a stopped rank is told of" "is stopped by a signal"
finish

begin probe 4
stack
has "a probe for any rank" "waits in MPI_Probe for a message from any rank with tag 7 in pair"
has "is in a deadlock if no rank can send" "^deadlock: "
finish

begin lock 3
stack
has "a lock of a window" "waits in MPI_Win_(lock|flush) for rank 0 to answer an access to its window or lock"
has "is named to those who wait for its rank" "^rank 0 waits for rank 1, which waits in MPI_Win_"
check "and is no certain deadlock" 0 "$(grep -c deadlock "$work/report")"
finish

begin send 3
stack
has "a synchronous send" "^rank 0 on .*: waits in MPI_Ssend for rank 1 to receive a message with tag 9 in MPI_COMM_WORLD"
has "and the message that nobody receives" "1 message without a receive: 4 bytes from rank 0 with tag 9 in MPI_COMM_WORLD"
finish

begin threads 2
stack
has "each thread of a rank" "waits in MPI_Recv for a message from rank 1 with tag [12] "
finish

begin ring 4 -timeout 3
until_true 30 '! kill -0 $job 2>/dev/null'
wait $job
check "-timeout prints the report before it ends the job" "124 1 1" "$? $(grep -c '^mpiexec: deadlock: ranks 0 -> 1 -> 2 -> 3 -> 0 wait for each other' "$work/said") $(grep -c 'the time given by' "$work/said")"
job=

timeout 20 "$mpiexec" -timeout 2 -n 2 sleep 30 2>"$work/said"
check "and says of programs without MPI that they do not answer" "124 1" "$? $(grep -c 'ranks 0-1: does not answer' "$work/said")"
check "a job that is none is refused" 1 "$("$canele" stack 1 2>&1 | grep -c 'no job 1 of this user runs here')"
"$mpiexec" -n 1 sh -c 'trap "echo caught; exit 0" USR1; echo ready; while :; do sleep 0.05; done' >"$work/said" 2>/dev/null &
job=$!
until_true 20 'grep -q ready "$work/said"'
kill -USR1 $job
wait $job
check "a program that handles SIGUSR1 gets it" "ready caught " "$(tr '\n' ' ' <"$work/said")"
finish_checks
