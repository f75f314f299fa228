#!/usr/bin/env bash
# Ranks that have mpiexec start others. Usage: spawn.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
mpiexec=$prefix/bin/mpiexec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\nexec python3 %s/programs/pmi_spawn.py "$@"\n' "$PWD" >"$work/asks"
chmod +x "$work/asks"
run() { timeout 60 "$mpiexec" "$@"; }
sorted() { sort | tr '\n' ';'; }

# mpiexec as any client of PMI-1 sees it.
check "a rank starts others" "child 0 of 2 program 0 hello x y;child 1 of 2 program 0 hello x y;spawn 0;" \
    "$(run -n 1 "$work/asks" "$work/asks" 2 -- x y | sorted)"
check "two programs are one world" "child 0 of 2 program 0 hello;child 1 of 2 program 1 hello;spawn 0;" \
    "$(run -n 2 "$work/asks" "$work/asks,$work/asks" 1 | sorted)"
check "labels name the world" "[0] spawn 0;[1.0] child 0 of 1 program 0 hello;" "$(run -l -n 1 "$work/asks" "$work/asks" 1 | sorted)"
check "soft gives the largest number that will do" "child 0 of 3 program 0 hello;child 1 of 3 program 0 hello;child 2 of 3 program 0 hello;spawn 0;" \
    "$(run -n 1 "$work/asks" "$work/asks" 4 soft=1:9:2 | sorted)"
mkdir "$work/there"
cp "$work/asks" "$work/there/other"
check "path and directory, and unknown hints" "child 0 of 1 program 0 hello;spawn 0;" "$(run -n 1 "$work/asks" other 1 "path=$work/there" wdir=/usr pony=1 | sorted)"
check "a missing program fails the spawn only" "spawn -1;0" "$(run -n 1 "$work/asks" "$work/none" 2 2>"$work/err" | sorted; echo "${PIPESTATUS[0]}")"
check "in one line" "mpiexec: rank 0 on localhost: its spawn failed: rank 1.0 on localhost: program $work/none not found" "$(cat "$work/err")"
check "and what runs already ends" "spawn -1;" "$(run -n 1 "$work/asks" "$work/asks,$work/none" 1 2>"$work/err" | grep -v child | sorted)"
for hint in "arch=vax:only hosts of" "soft=9:no number of ranks up to" "site=moon:no such host in the grid" "bind=pony:not one of"; do
    check "the hint ${hint%%:*} is refused with a reason" "spawn -1; yes" "$(run -n 1 "$work/asks" "$work/asks" 2 "${hint%%:*}" 2>"$work/err" | sorted) $(grep -q "its spawn failed: .*${hint#*:}" "$work/err" && echo yes)"
done
run -n 1 "$work/asks" /bin/true 1 >"$work/said" 2>"$work/err"
check "a program that never joins fails the job" "1 mpiexec: rank 1.0 on localhost: ended without MPI_Init, in which the spawning ranks meet it; ending the job" "$? $(cat "$work/err")"
# Two nodes, whose agents get the host first.
printf '#!/bin/sh\nhost=$1; shift; echo $host >>%s/started; LAB_HOST=$host exec "$@"\n' "$work" >"$work/launcher"
printf '#!/bin/sh\n[ "$PMI_SPAWNED" = 0 ] || echo "$PMI_RANK@$LAB_HOST"\nexec %s/asks "$@" >/dev/null\n' "$work" >"$work/tells"
chmod +x "$work/launcher" "$work/tells"
on_hosts() { rm -f "$work/started"; run -hosts one:2,two:2 -launcher-exec "$work/launcher" "$@"; }
check "free slots are taken first, by the agents that run" "0@one 1@two 2@two;one;two;" \
    "$(on_hosts -n 1 "$work/tells" "$work/tells" 3 | sort | tr '\n' ' ' | sed 's/ $/;/')$(sort "$work/started" | tr '\n' ';')"
check "a host may be named, and may be new" "0@three 1@three;one;three;" \
    "$(on_hosts -n 1 "$work/tells" "$work/tells" 2 host=three | sort | tr '\n' ' ' | sed 's/ $/;/')$(sort "$work/started" | tr '\n' ';')"
check "exit codes of all are printed" "Exit codes: [one] 0,0;Exit codes: [two] 0,0;" "$(on_hosts -print-all-exitcodes -n 1 "$work/tells" "$work/tells" 3 | grep Exit | sorted)"

finish_checks
