#!/usr/bin/env bash
# A wide area that is cut while ranks on both sides of it exchange checked data. A cut only costs time unless it
# outlasts CANELE_LINK_PATIENCE. Parts run beside each other, each on a lab of its own, since they mostly wait.
# Usage: cut.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
programs=$(mktemp -d)
canele=$prefix/bin/canele mpiexec=$prefix/bin/mpiexec
trap 'rm -rf "$programs"' EXIT
for program in exchange lost_site lost_strangers lost_members files_lost; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$programs/$program" || exit 1
done
cc -Wall -Werror -O1 -shared -fPIC programs/clock.c -o "$programs/clock.so" -ldl || exit 1

lab() { timeout 60 "$canele" lab "$@"; }
# Raises a lab of its own for a part.
raise() {
    work=$(mktemp -d)
    # Other tests have cached links between hosts of these addresses, at other rates.
    export CANELE_LAB=c$BASHPID CANELE_CACHE_DIR=$work/cache
    trap '"$canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
    lab up --nodes 2 >"$work/up" 2>&1 || true
    if lab status --json | grep -q '"delay_by": "netem"'; then
        skip "links that are cut: ${FUNCNAME[1]}" "the kernel makes the links here, which cannot be cut"
        exit 0
    fi
}

# Exchanges for some seconds. A cut of the given length and direction begins after two seconds. The rest are settings.
exchange() { # seconds, cut, direction, settings
    local seconds=$1 cut=$2 direction=$3
    shift 3
    rm -f "$work/begun"
    timeout 120 "$mpiexec" -genv EXCHANGE_BEGUN "$work/begun" -launcher-exec "$canele lab run" -hosts site0-node0:1,site1-node0:1 "$@" -n 2 "$programs/exchange" "$seconds" 0.5 >"$work/out" 2>"$work/err" &
    local job=$!
    until_true 30 '[ -e "$work/begun" ]'
    sleep 2
    lab cut 1 --for "$cut" --direction "$direction" >/dev/null
    wait "$job"
    code=$?
    sed 's/^/    /' "$work/out" "$work/err"
}

# Cuts in the given directions.
tcp() { # directions
    local direction cut
    for direction in "$@"; do
        for cut in 200ms 2s 5s; do
            exchange 8 "$cut" "$direction"
            check "a cut of $cut ($direction) in the middle: the job ends well" 0 "$code"
            check "and every byte is right" 1 "$(grep -c ' among 2 ranks: 0 failures$' "$work/out")"
        done
    done
    check "a link that was lost is back, and says so" yes "$(grep -q 'is gone, it is opened anew' "$work/err" && grep -q 'is back' "$work/err" && echo yes)"
}

# Over UDP the connection survives cuts shorter than five seconds.
udp() {
    for cut in 200ms 2s 7s; do
        exchange 10 "$cut" both -genv CANELE_RAILS quic
        check "a cut of $cut over UDP: the job ends well" 0 "$code"
        check "and every byte is right" 1 "$(grep -c ' among 2 ranks: 0 failures$' "$work/out")"
        check "the link was opened anew only after a long cut" "$([ "$cut" = 7s ] && echo yes)" "$(grep -q 'is gone, it is opened anew' "$work/err" && echo yes)"
    done
}

# The wall clock of all processes of a job jumps forth and back. Each time the link is lost and opened anew.
clock() {
    echo 3600 >"$work/off"
    jumped() { CLOCK_OFF=$work/off LD_PRELOAD=$programs/clock.so date +%s; }
    check "the clock can be shifted" yes "$([ $(($(jumped) - $(date +%s))) -gt 3000 ] && echo yes)"
    rm -f "$work/begun"
    echo 0 >"$work/off"
    CLOCK_OFF=$work/off LD_PRELOAD=$programs/clock.so timeout 120 "$mpiexec" -genv EXCHANGE_BEGUN "$work/begun" -launcher-exec "$canele lab run" -hosts site0-node0:1,site1-node0:1 -n 2 "$programs/exchange" 9 0.5 >"$work/out" 2>"$work/err" &
    job=$!
    until_true 30 '[ -e "$work/begun" ]'
    for off in 3600 -3600; do
        echo $off >"$work/off"
        lab cut 1 --for 2s >/dev/null
        sleep 4
    done
    wait $job
    check "the clock jumps: the job ends well" 0 $?
    sed 's/^/    /' "$work/out" "$work/err"
    check "and every byte is right" 1 "$(grep -c ' among 2 ranks: 0 failures$' "$work/out")"
    check "links that were lost are back" yes "$([ "$(grep -c 'is gone, it is opened anew' "$work/err")" -ge 2 ] && grep -q 'is back' "$work/err" && echo yes)"
}

# The other process fails when the time is over, and no process hangs.
impatience() {
    begin=$SECONDS
    exchange 60 60s both -genv CANELE_LINK_PATIENCE 3
    check "a cut beyond CANELE_LINK_PATIENCE ends the job" yes "$([ "$code" != 0 ] && [ "$code" != 124 ] && echo yes)"
    check "soon after that" yes "$([ $((SECONDS - begin)) -lt 40 ] && echo yes)"
    check "and says why" yes "$(grep -q 'no link has opened again in time' "$work/err" && echo yes)"
}

# A site that is lost for good: where errors return, each site continues alone.
lost_site() {
    for rails in shm,tcp shm,quic; do
        rm -f "$work/begun"
        timeout 120 "$mpiexec" -genv BEGUN "$work/begun" -genv CANELE_RAILS $rails -genv CANELE_LINK_PATIENCE 3 -launcher-exec "$canele lab run" -hosts site0-node0:2,site1-node0:2 -n 4 "$programs/lost_site" >"$work/out" 2>"$work/err" &
        job=$!
        until_true 30 '[ -e "$work/begun" ]'
        lab cut 1 >/dev/null
        wait $job
        check "a site is lost for good, over $rails: the job ends well" 0 $?
        sed 's/^/    /' "$work/out" "$work/err"
        check "and both sites continued" "site 0 is alone: 0 failures, site 1 is alone: 0 failures" "$(grep -h 'is alone' "$work/out" | sort | paste -sd, | sed 's/,/, /')"
        check "and liveness checks noticed it, on idle links as well" 0 "$(grep -c 'anew: timed out' "$work/err")"
        lab heal >/dev/null
    done
}

# Few ranks have exchanged messages with the other site. MPI_Finalize then does not wait for the end of all connection
# attempts, which takes 30 s. A cut is also noticed soon on a link without traffic in flight.
strangers() { # rails, seconds of silence before
    rm -f "$work/begun"
    timeout 120 "$mpiexec" -genv BEGUN "$work/begun" -genv CANELE_RAILS "$1" -genv CANELE_LINK_PATIENCE 3 -launcher-exec "$canele lab run" -hosts site0-node0:2,site1-node0:2 -n 4 "$programs/lost_strangers" >"$work/out" 2>"$work/err" &
    job=$!
    until_true 30 '[ -e "$work/begun" ]'
    sleep "$2"
    lab cut 1 >/dev/null
    cut=$SECONDS
    wait $job
    check "a site of strangers is lost after $2 s of silence, over $1: the job ends well" 0 $?
    sed 's/^/    /' "$work/out" "$work/err"
    check "and no rank was held in MPI_Finalize" "4 0" "$(awk '{ late += $3 >= 20 } END { print NR, late }' "$work/out")"
    check "nor in MPI_Recv" yes "$([ $((SECONDS - cut)) -lt 30 ] && echo yes)"
    lab heal >/dev/null
}

# Collectives on eight ranks of these hosts when some are lost.
lose() { # rails, hosts, the first survivor, the lost...
    local rails=$1 hosts=$2 first=$3
    shift 3
    # shellcheck disable=SC2016
    output=$(timeout 60 "$mpiexec" -genv CANELE_RAILS "$rails" -genv CANELE_LINK_PATIENCE 3 -launcher-exec "$canele lab run" -hosts "$hosts" -n 8 sh -c 'first=$1; shift; "$0" "$@"; [ "$PMI_RANK" = "$first" ] || sleep 60' "$programs/lost_members" "$first" "$@" 2>"$work/err")
    check "collectives on $hosts when ranks $* are lost, over $rails, fail on all survivors" "$((8 - $#)) of 8 live: 0 failures" "$output"
    grep ' class ' "$work/err"
}

# Collectives over two sites of two nodes with two ranks each fail on all survivors, for any lost ranks.
collectives() {
    hosts=site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2
    for rails in shm,tcp shm,quic; do
        rm -f "$work/begun"
        timeout 120 "$mpiexec" -genv BEGUN "$work/begun" -genv CANELE_RAILS $rails -genv CANELE_LINK_PATIENCE 3 -launcher-exec "$canele lab run" -hosts $hosts -n 8 "$programs/lost_members" half >"$work/out" 2>"$work/err" &
        job=$!
        until_true 30 '[ -e "$work/begun" ]'
        lab cut 1 >/dev/null
        wait $job
        check "collectives when a site is lost, over $rails: the job ends well" 0 $?
        check "and they have failed on all ranks of both" "4 of 8 live: 0 failures, 4 of 8 live: 0 failures" "$(grep ' live' "$work/out" | paste -sd, | sed 's/,/, /')"
        sed 's/^/    /' "$work/err"
        lab heal >/dev/null
        lose $rails $hosts 2 0 1
        lose $rails $hosts 0 4 5 6 7
    done
}

# The same on two nodes with a shared segment for four ranks each. One rank is lost, the leaders of both, or all but
# one of each.
shared_segments() {
    for rails in shm,tcp shm,quic; do
        lose $rails site0-node0:4,site0-node1:4 0 5
        lose $rails site0-node0:4,site0-node1:4 1 0 4
        lose $rails site0-node0:4,site0-node1:4 2 0 1 3 4 5 6
    done
}

# Collective writes to a file that one site sees. A short cut costs time alone. After a long one all ranks get an error, and what
# was synchronized is in the file.
files() {
    local cut ends
    for cut in 2s 12s; do
        for rails in shm,tcp shm,quic; do
            mkdir "$work/files"
            rm -f "$work/begun"
            # shellcheck disable=SC2016
            timeout 120 "$mpiexec" -genv BEGUN "$work/begun" -genv FILES_REAL "$work/files" -genv CANELE_RAILS $rails -genv CANELE_LINK_PATIENCE 5 -launcher-exec "$canele lab run" -hosts site0-node0:2,site1-node0:2 -n 4 sh -c '
                sees=$1; shift
                [ "$PMI_RANK" -lt 2 ] || sees=$sees/unseen
                exec "$0" "$sees" "$@"' "$programs/files_lost" "$work/files" -1 20000000 >"$work/out" 2>"$work/err" &
            job=$!
            until_true 30 '[ -e "$work/begun" ]'
            lab cut 1 --for "$cut" >/dev/null
            wait $job
            ends=$([ $cut = 12s ] || echo " to the end")
            check "files of one site, cut for $cut over $rails: what was synchronized is there" "$(for rank in 0 1 2 3; do echo "rank $rank: 0 failures$ends"; done)" "$(sort "$work/out")"
            grep '^rank .* line ' "$work/err"
            rm -r "$work/files"
        done
    done
}

# Parts, each of about a minute.
tcp_both_ways() { raise && tcp both in; }
tcp_one_way_and_udp() { raise && tcp out && udp; }
sites() {
    raise
    clock
    impatience
    lab heal >/dev/null
    lost_site
    strangers shm,tcp 0
    strangers shm,tcp 2
    strangers shm,quic 2
}
members() { raise && collectives && shared_segments; }
files_of_one_site() { raise && files; }
beside tcp_both_ways tcp_one_way_and_udp sites members files_of_one_site
finish_checks
