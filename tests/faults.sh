#!/usr/bin/env bash
# Jobs that fail end in time, with the code and the name of the first failure, and leave nothing behind.
# Usage: faults.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
if [ "${2:-}" != apart ] && unshare -rnm true 2>/dev/null; then
    exec unshare -rnm "$PWD/faults.sh" "$1" apart
fi
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/fault.c -o "$work/fault" || exit 1

# Namespaces of its own show what is left behind: sockets, segments, files.
if [ "${2:-}" = apart ]; then
    ip link set lo up
    mount -t tmpfs tmpfs /dev/shm
else
    skip "sockets and /dev/shm after faults" "this machine does not permit namespaces"
fi
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

# Runs a job that fails on four ranks; sets code, ended_ms and usual_ms.
fail() { # rails, kind of failure...
    local rails=$1
    shift
    rm -f "$work/ids"
    timeout 20 "$prefix/bin/mpiexec" -genv CANELE_RAILS "$rails" -n 4 "$work/fault" "$@" "$work/ids" 2>"$work/err"
    code=$? ended_ms=$(since_ms "$work/ids")
    usual_ms=$(took_ms timeout 20 "$prefix/bin/mpiexec" -n 4 true)
    sed "s/^/    /" "$work/err"
}
for rails in shm,tcp tcp; do
    for one in "signal 9:137:was ended by signal 9 (SIGKILL" "signal 11:139:was ended by signal 11 (SIGSEGV" \
        "signal 6:134:was ended by signal 6 (SIGABRT" "exit 7:7:exited with code 7" "return:1:ended without MPI_Finalize"; do
        IFS=: read -r what expected text <<<"$one"
        # shellcheck disable=SC2086
        fail "$rails" $what
        check "$what over $rails gives the code of the first failure" "$expected" "$code"
        check "is named, with rank and host, once" 1 "$(grep -cF "mpiexec: rank 2 on localhost: $text" "$work/err")"
        check "and no other rank is blamed by mpiexec" 1 "$(grep -c '^mpiexec' "$work/err")"
        check "all is over soon after it ($ended_ms ms, where a job takes $usual_ms ms)" yes "$([ "$ended_ms" -lt $((2000 + 10 * usual_ms)) ] && echo yes)"
        check "all ranks and their children had begun" 8 "$(wc -l <"$work/ids")"
        check "and nothing runs any more" 0 "$(alive "$work/ids")"
    done
    fail "$rails" abort 42
    check "MPI_Abort over $rails gives its code" 42 "$code"
    check "and nothing runs any more" 0 "$(alive "$work/ids")"
done

# A rank dies unseen by its launcher.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/orphan.c -o "$work/orphan" || exit 1
for rails in shm tcp; do
    # shellcheck disable=SC2016
    output=$(timeout 20 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 3 sh -c '"$0"; [ "$PMI_RANK" = 0 ] || sleep 15' "$work/orphan" 2>"$work/err")
    check "peers that died unseen, over $rails" "the dead: 0 failures" "$output"
done

# Ranks die before their first message. Another is silent for long and lives.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/unspoken.c -o "$work/unspoken" || exit 1
for rails in shm tcp; do
    for ranks in 2 4; do
        # shellcheck disable=SC2016
        output=$(timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n $ranks sh -c '"$0"; [ "$PMI_RANK" = 0 ] || sleep 60' "$work/unspoken" 2>"$work/err")
        check "receives from $ranks ranks without earlier messages, over $rails" "$((ranks - 2)) dead of $ranks: 0 failures" "$output"
        grep ' class ' "$work/err"
    done
done

# A rank dies while it holds locks that others wait for.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/lost_holder.c -o "$work/lost_holder" || exit 1
for rails in shm tcp; do
    # shellcheck disable=SC2016
    output=$(timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 4 sh -c '"$0"; [ "$PMI_RANK" = 0 ] || sleep 60' "$work/lost_holder" 2>"$work/err")
    check "locks whose holder has died, over $rails" "locks of 4 windows: 0 failures" "$output"
    grep ' class ' "$work/err"
done

# Ranks die in the middle of collectives, which fail on all survivors.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/lost_members.c -o "$work/lost_members" || exit 1
for rails in shm tcp; do
    for one in "0 5" "1 0" "0 1 2 3" "1 0 2 4 6"; do
        read -r first lost <<<"$one"
        # shellcheck disable=SC2016,SC2086
        output=$(timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 8 sh -c 'first=$1; shift; "$0" "$@"; [ "$PMI_RANK" = "$first" ] || sleep 60' "$work/lost_members" $first $lost 2>"$work/err")
        check "collectives when ranks $lost are lost, over $rails, fail on all survivors" "$((8 - $(wc -w <<<"$lost"))) of 8 live: 0 failures" "$output"
        grep ' class ' "$work/err"
    done
done

# The same with a shared segment for each half of the ranks, in sites in name only. One rank is lost, the leaders of
# both, or all but one of each.
for one in "0 5" "1 0 4" "2 0 1 3 4 5 6"; do
    read -r first lost <<<"$one"
    # shellcheck disable=SC2016,SC2086
    output=$(timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS shm -n 8 sh -c 'export CANELE_SITE=s$((PMI_RANK / 4)); first=$1; shift; "$0" "$@"; [ "$PMI_RANK" = "$first" ] || sleep 60' "$work/lost_members" $first $lost 2>"$work/err")
    check "collectives of two sites when ranks $lost are lost fail on all survivors" "$((8 - $(wc -w <<<"$lost"))) of 8 live: 0 failures" "$output"
    grep ' class ' "$work/err"
done

# Effects of the system on programs: children, cancelled threads, many threads that wait for a dead rank.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/disturbed.c -o "$work/disturbed" || exit 1
for rails in shm tcp; do
    output=$(timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 2 "$work/disturbed" fork 2>"$work/err")
    check "ranks that fork, over $rails" "fork: 0 failures" "$output"
    check "and a line for each child that calls MPI" "6 6" "$(grep -c "called in a forked process" "$work/err") $(wc -l <"$work/err")"
    output=$(timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 2 "$work/disturbed" cancel)
    check "threads cancelled inside a receive, over $rails" "cancel: 0 failures" "$output"
    output=$(timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 3 "$work/disturbed" pending | uniq -c | sed 's/^ *//')
    check "no call is a cancellation point, over $rails" "3 pending: 0 failures" "$output"
    timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 3 "$work/disturbed" abort 2>/dev/null
    check "nor MPI_Abort, over $rails" 42 $?
    # shellcheck disable=SC2016
    output=$(timeout 90 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 2 sh -c '"$0" waiters; [ "$PMI_RANK" = 0 ] || sleep 30' "$work/disturbed" 2>/dev/null)
    check "all threads that wait for a dead peer get the error, over $rails" "64 threads of 64 are told: 0 failures" "$output"
done

# Ranks that are stopped for a while, and ranks that lose all cores but one.
for program in exchange threads; do "$prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$work/$program" || exit 1; done
cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
disturb() { # stop, take or give
    local id
    while read -r id; do
        case $1 in
            stop) kill -STOP "$id"; sleep 0.4; kill -CONT "$id" ;;
            take) taskset -apc "${cores%%[-,]*}" "$id" >/dev/null ;;
            give) taskset -apc "$cores" "$id" >/dev/null ;;
        esac
    done <"$work/ids" 2>/dev/null
}
for rails in shm tcp; do
    for what in "exchange 5 0" "threads 1 3 40"; do
        rm -f "$work/ids"
        # shellcheck disable=SC2016,SC2086
        "$prefix/bin/mpiexec" -timeout 300 -genv CANELE_RAILS $rails -n 4 sh -c 'echo $$ >>"$0"; exec "$@"' "$work/ids" "$work"/$what >"$work/said" 2>"$work/err" &
        job=$!
        until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 4 ]'
        sleep 0.5
        disturb stop
        disturb take
        running=$(alive "$work/ids")
        sleep 1
        disturb give
        wait $job
        check "$what survives stopped ranks and one core, over $rails" 0 $?
        check "while they ran" 4 "$running"
        check "right results ($(cat "$work/said"))" 1 "$(grep -c ' 4 ranks: 0 failures' "$work/said")"
        check "and no error output" "" "$(cat "$work/err")"
    done
done

# A job that is to go on without its failed ranks.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/recovery.c -o "$work/recovery" || exit 1
for rails in shm,tcp tcp; do
    output=$(timeout 60 "$prefix/bin/mpiexec" -disable-auto-cleanup -genv CANELE_RAILS $rails -n 4 "$work/recovery" 2>"$work/err")
    check "a job goes on without a rank that a signal has ended, over $rails" "3 of 4 go on, 137" "$output, $?"
    check "and says so" 1 "$(grep -c '^mpiexec: rank 1 on localhost: was ended by signal 9 (SIGKILL: .*), as process [0-9]*; the job goes on (-disable-auto-cleanup)$' "$work/err")"
done
output=$(timeout 60 "$prefix/bin/mpiexec" --enable-recovery -n 4 "$work/recovery" leave 2>"$work/err")
check "or that has left without MPI_Finalize" "3 of 4 go on, 1" "$output, $?"
timeout 60 "$prefix/bin/mpiexec" -n 4 "$work/recovery" >"$work/out" 2>"$work/err"
check "others end" 137 $?

# Unsupported launchers.
for variable in PRTE_LAUNCHED OMPI_COMM_WORLD_SIZE PALS_RANKID; do
    timeout 10 env $variable=1 "$work/fault" hang "$work/ids" 2>"$work/err"
    check "an unknown launcher ($variable) is refused" 16 $?
    check "and the message names it and a remedy" 1 "$(grep -c "$variable is set.*start the program with Canele's .mpiexec" "$work/err")"
done

# Exhausted resources. Shared memory has no names, and no temporary files are made.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/collectives.c -o "$work/collectives" || exit 1
right="collectives on 4 ranks: 0 failures"
if [ "${2:-}" = apart ]; then
    full() { mkdir -p "$2" && mount -t tmpfs -o size=8k "$1" "$2" && cat /dev/zero >"$2/filler"; }
    full shm /dev/shm 2>/dev/null
    full tmp "$work/full" 2>/dev/null
    check "with /dev/shm and the disk full" "$right" "$(TMPDIR=$work/full timeout 60 "$prefix/bin/mpiexec" -n 4 "$work/collectives")"
    umount /dev/shm "$work/full"
fi
timeout 20 "$prefix/bin/mpiexec" -n 2 echo lost >/dev/full 2>"$work/err"
check "output that cannot be written fails the job" 1 $?
check "that says why, once" "mpiexec: output of the ranks cannot be written: No space left on device (os error 28)" "$(cat "$work/err")"
check "few descriptors are enough" "$right" "$(ulimit -Sn 64; timeout 60 "$prefix/bin/mpiexec" -n 4 "$work/collectives")"
linked=$(CANELE_LOG=debug timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS tcp -n 2 "$work/collectives" 2>&1 >"$work/out")
check "a log of links changes nothing else" "$(timeout 60 "$prefix/bin/mpiexec" -n 2 "$work/collectives")" "$(cat "$work/out")"
check "it tells of each link that opens" "rank 0: tcp to 1, rank 1: tcp to 0" \
    "$(sed -n 's/^canele: \(rank [01]\):.* the link is open peer=rank \([01]\) rail="tcp"$/\1: tcp to \2/p' <<<"$linked" | sort -u | paste -sd, | sed 's/,/, /')"
check "a level that does not exist is named" 1 "$(CANELE_LOG=loud timeout 60 "$prefix/bin/mpiexec" -n 1 "$work/collectives" 2>&1 | grep -c 'CANELE_LOG=loud: one of off, error')"
check "64 ranks run with 256 descriptors and keep that limit" "64 256" "$(ulimit -Sn 256; timeout 60 "$prefix/bin/mpiexec" -n 64 sh -c 'ulimit -Sn' | uniq -c | sed 's/^ *//')"
(ulimit -n 24; timeout 20 "$prefix/bin/mpiexec" -n 16 true 2>"$work/err")
check "too few descriptors fail the job" 126 $?
check "and one line says so" "1 1" "$(wc -l <"$work/err") $(grep -c 'the limit of 24 open files is reached' "$work/err")"

# mpiexec is killed while ranks are blocked in a collective.
rm -f "$work/ids"
"$prefix/bin/mpiexec" -timeout 20 -n 4 "$work/fault" hang "$work/ids" 2>/dev/null &
job=$!
until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 8 ]'
kill -9 $job
wait $job 2>/dev/null
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "a killed mpiexec leaves nothing running" 0 "$(alive "$work/ids")"

# A signal to mpiexec ends the job with the signal's code.
for one in INT:130 TERM:143 HUP:129; do
    rm -f "$work/ids"
    # A shell's background jobs ignore SIGINT. Children of mpiexec would inherit that.
    env --default-signal=INT "$prefix/bin/mpiexec" -timeout 20 -n 4 "$work/fault" hang "$work/ids" 2>/dev/null &
    job=$!
    until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 8 ]'
    kill -"${one%:*}" $job
    wait $job 2>/dev/null
    check "SIG${one%:*} to mpiexec gives its code" "${one#*:}" $?
    check "and nothing runs any more" 0 "$(alive "$work/ids")"
done
check "no temporary file is left" "" "$(ls -A "$TMPDIR")"
if [ "${2:-}" = apart ]; then
    check "no segment is left" "" "$(ls -A /dev/shm)"
    check "no socket listens any more" 0 "$(awk '$4 == "0A"' /proc/net/tcp /proc/net/tcp6 | wc -l)"
fi

finish_checks
