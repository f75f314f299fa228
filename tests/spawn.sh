#!/usr/bin/env bash
# Ranks that start others, with mpiexec and without. Usage: spawn.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
mpiexec=$prefix/bin/mpiexec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in spawn merged; do "$prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$work/$program" || exit 1; done
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
run -disable-auto-cleanup -n 1 "$work/asks" /bin/true 1 >"$work/said" 2>"$work/err"
check "also where failures are survived" 1 $?
# Two nodes, whose agents get the host first.
printf '#!/bin/sh\nhost=$1; shift; echo $host >>%s/started; LAB_HOST=$host exec "$@"\n' "$work" >"$work/launcher"
printf '#!/bin/sh\n[ "$PMI_SPAWNED" = 0 ] || echo "$PMI_RANK@$LAB_HOST"\nexec %s/asks "$@" >/dev/null\n' "$work" >"$work/tells"
chmod +x "$work/launcher" "$work/tells"
on_hosts() { rm -f "$work/started"; run -hosts one:2,two:2 -launcher-exec "$work/launcher" "$@"; }
check "free slots are taken first, by the agents that run" "0@one 1@two 2@two;one;two;" \
    "$(on_hosts -n 1 "$work/tells" "$work/tells" 3 | sort | tr '\n' ' ' | sed 's/ $/;/')$(sort "$work/started" | tr '\n' ';')"
check "a host may be named, and may be new" "0@three 1@three;one;three;" \
    "$(on_hosts -n 1 "$work/tells" "$work/tells" 2 host=three | sort | tr '\n' ' ' | sed 's/ $/;/')$(sort "$work/started" | tr '\n' ';')"
run -trace "$work/trace" -record "$work/record" -n 1 "$work/asks" "$work/asks" 1 >"$work/said" 2>"$work/err"
check "recordings have the first world, and say so" "mpiexec: -trace, -record: ranks that are spawned are not in the file" "$(grep spawned "$work/err")"
check "files of output have the world in their name" "0 1.0 1.1" "$(run -outfile-pattern "$work/out/%r" -n 1 "$work/asks" "$work/asks" 2 >/dev/null 2>&1; echo $(ls "$work/out"))"
check "exit codes of all are printed" "Exit codes: [one] 0,0;Exit codes: [two] 0,0;" "$(on_hosts -print-all-exitcodes -n 1 "$work/tells" "$work/tells" 3 | grep Exit | sorted)"

# MPI programs: over shared memory and TCP, from one rank and from several.
for rails in shm tcp; do
    for ranks in 1 3; do
        check "$ranks spawn and talk over $rails" "talk on $ranks: 0 failures" "$(run -genv CANELE_RAILS $rails -n $ranks "$work/spawn" talk 2 2>&1)"
    done
done
# Everything on a communicator of both.
for rails in shm tcp quic; do
    check "parents and children merge over $rails" "merged 5, 5 share memory: 0 failures" \
        "$(run -genv CANELE_RAILS $rails -n 2 "$work/merged" 3 "$work/file" 2>&1)"
done
check "children spawn, and theirs" "deeper on 2: 0 failures" "$(run -n 2 "$work/spawn" deeper 2>&1)"
check "several programs" "several on 2: 0 failures" "$(run -n 2 "$work/spawn" several 2>&1)"
check "words arrive as they are" "words on 1: 0 failures" "$(run -n 1 "$work/spawn" words 2>&1)"
check "a missing program is an error at all ranks" "missing on 3: 0 failures" "$(run -n 3 "$work/spawn" missing 2>"$work/err")"
check "with one line" "1 1" "$(wc -l <"$work/err") $(grep -c 'its spawn failed: .*no-such-program not found' "$work/err")"
check "hints of the start" "child 0 in /usr at -;where on 2: 0 failures;" "$(run -n 2 "$work/spawn" where - 1 wdir /usr pony 1 2>&1 | sorted)"
printf '# all\nwdir = /usr # there\nsoft = 1\n' >"$work/hints"
check "also from a file" "child 0 in /usr at -;where on 2: 0 failures;" "$(run -n 2 "$work/spawn" where - 1 file "$work/hints" 2>&1 | sorted)"
check "programs are looked for in the spawning rank's directory" "talk on 1: 0 failures" "$(run -n 1 sh -c "cd $work && ./spawn talk 1" 2>&1)"
check "parents may end first" "child 0 of 2 is last;child 1 of 2 is last;later on 1: 0 failures;0" "$(run -n 1 "$work/spawn" later 2 2 2>&1 | sorted; echo "${PIPESTATUS[0]}")"
run -n 2 "$work/spawn" fails - 2 >"$work/said" 2>"$work/err"
check "a child that fails ends all" "7 1" "$? $(grep -c 'rank 1\.[01] on localhost: exited with code 7; ending the job' "$work/err")"
run -n 2 "$work/spawn" aborts - 2 >"$work/said" 2>"$work/err"
check "and one that aborts" "9" "$?"

run -n 1 "$work/spawn" session - 2 >"$work/said" 2>"$work/err"
check "children with sessions alone fail the job" "1 mpiexec: rank 1.R on localhost: ended without MPI_Init, in which the spawning ranks meet it (sessions do not meet them); ending the job" \
    "$? $(sed 's/1\.[01]/1.R/' "$work/err")"

# Processes that have disconnected do not affect each other (MPI-5.0 §11.10.4).
for way in "exit 7" "abort 9" "signal 137"; do
    run -n 2 "$work/spawn" apart "${way% *}" 2 >"$work/said" 2>"$work/err"
    check "children that end by ${way% *} after a disconnect end alone" "${way#* } apart on 2: 0 failures" "$? $(cat "$work/said")"
    run -n 2 "$work/spawn" first "${way% *}" >"$work/said" 2>"$work/err"
    check "and so do parents" "${way#* } child 0 goes on;child 1 goes on;" "$? $(sorted <"$work/said")"
done
run -n 1 "$work/spawn" apart exit 1 >"$work/said" 2>"$work/err"
check "one line says which world ends" "1 rank 2.R on localhost: exited with code 7; ending world 2; the others are disconnected and go on" \
    "$(wc -l <"$work/err") $(sed 's/mpiexec: //; s/2\.[01]/2.R/' "$work/err")"
run -n 2 "$work/spawn" bound exit 1 >"$work/said" 2>"$work/err"
check "a communicator that is left keeps them together" "7  1" "$? $(cat "$work/said") $(grep -c 'exited with code 7; ending the job' "$work/err")"

# A program that was started without mpiexec starts one for its children.
check "a program alone spawns" "talk on 1: 0 failures" "$("$work/spawn" talk 2 2>&1)"
check "and its children do" "deeper on 1: 0 failures" "$("$work/spawn" deeper 2>&1)"
cp "$work/spawn" "$work/there/"
none=$(ldd "$work/spawn" | sed -n 's/.*libmpi_abi.so.1 => \([^ ]*\) .*/\1/p')
cp "$none" "$work/there/"
check "without mpiexec it says so" yes "$(PATH=/usr/bin:/bin LD_LIBRARY_PATH=$work/there "$work/there/spawn" talk 1 2>&1 | grep -q 'none of Canele.s is beside the library or in PATH' && echo yes)"
timeout 60 "$work/spawn" fails - 1 >"$work/said" 2>"$work/err"
check "its children that fail end it" "143 1" "$? $(grep -c 'rank 1.0 on .*: exited with code 7; ending the job' "$work/err")"
check "unless they have disconnected" "apart on 1: 0 failures 0" "$("$work/spawn" apart exit 1 2>"$work/err") $?"

# Nothing is left behind.
"$mpiexec" -timeout 50 -n 1 "$work/spawn" waits - 2 >"$work/said" 2>&1 &
job=$!
until_true 20 '[ "$(grep -c waits "$work/said")" = 2 ]'
sed -n 's/^waits //p' "$work/said" >"$work/ids"
kill -TERM $job
wait $job
check "a signal ends parents and children" "143 2 0" "$? $(wc -l <"$work/ids") $(alive "$work/ids")"
"$work/spawn" waits - 2 >"$work/said" 2>&1 &
job=$!
until_true 20 '[ "$(grep -c waits "$work/said")" = 2 ]'
sed -n 's/^waits //p' "$work/said" >"$work/ids"
kill -9 $job
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "the children of a program alone end with it" "2 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"

# 30 spawns one after the other: agents keep nothing of worlds that have ended.
cat >"$work/again.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    MPI_Comm parent, children;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
    } else {
        for (int i = 0; i < 30; i++) {
            MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE);
            MPI_Comm_disconnect(&children);
        }
        puts("30 times");
    }
    return MPI_Finalize();
}
C
"$prefix/bin/mpicc" -Wall -Werror -O1 "$work/again.c" -o "$work/again" || exit 1
check "a rank spawns again and again, with few open files" "30 times" "$(ulimit -n 64; run -n 1 "$work/again" 2>&1)"
finish_checks
