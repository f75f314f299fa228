#!/usr/bin/env bash
# The lab and MPI on it: two sites, up, used and down, by root and without.
# Usage: lab.sh PREFIX ENVIRONMENT (that of mpi4py.sh)
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1 environment=$2
work=$(mktemp -d)
chmod 755 "$work"
export CANELE_LAB=t$$
as=()
trap '"${as[@]}" "$canele" lab down; rm -rf "$work"' EXIT

# A copy that another user can read too.
cp -r "$prefix" "$work/prefix"
for program in collectives exchange relay windows; do "$work/prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$work/$program" || exit 1; done
cp programs/datagrams.py "$work/"
chmod -R a+rX "$work"
canele=$work/prefix/bin/canele mpiexec=$work/prefix/bin/mpiexec
everywhere=site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2

lab() { timeout 60 "${as[@]}" "$canele" lab "$@"; }
grid() { timeout 120 "${as[@]}" "$mpiexec" -launcher-exec "$canele lab run" "$@"; }
hosts() { seq 0 1 | while read -r site; do seq 0 1 | sed "s/^/site$site-node/"; done; }
namespaces() { hosts | while read -r host; do lab run "$host" readlink /proc/self/ns/net; done; }
# Processes in one of the namespaces of the file, or with the lab in their environment.
left_behind() {
    local id
    for id in $(ls /proc | grep -E '^[0-9]+$'); do
        if grep -qxF "$(readlink "/proc/$id/ns/net" 2>/dev/null)" "$1" || tr '\0' '\n' 2>/dev/null <"/proc/$id/environ" | grep -q "^CANELE_LAB_MARK=$CANELE_LAB-"; then
            echo "$id $(tr '\0' ' ' <"/proc/$id/cmdline")"
        fi
    done 2>/dev/null
    ls /run/canele-lab /tmp/canele-lab-* "${XDG_RUNTIME_DIR:-/nonexistent}/canele-lab" 2>/dev/null | grep "^$CANELE_LAB\\."
    ip -o link | sed 's/^[0-9]*: //; s/[:@].*//' | sort | diff "$work/links" - | grep '^>'
}
ip -o link | sed 's/^[0-9]*: //; s/[:@].*//' | sort >"$work/links"

# Raises the lab and checks its report. A busy machine may disturb a link. The lab then has to report it by its words
# and its code.
raise() {
    lab up --name "$CANELE_LAB" >"$work/up" 2>"$work/err"
    local code=$?
    sed 's/^/    /' "$work/up" "$work/err"
    if [ $code = 0 ]; then
        check "the lab meets its description on both links" 2 "$(grep -c 'ok.* ok$' "$work/up")"
    else
        check "the lab reports its deviation" yes "$(grep -q OFF "$work/up" && grep -q 'not as asked' "$work/err" && echo yes)"
    fi
    read -r rtt_ms mbit <<<"$(sed -n 's|^ *wide area .* / \([0-9.]*\) ms .* / \([0-9]*\) Mb/s.*|\1 \2|p' "$work/up")"
    check "the wide area's round trip, $rtt_ms ms, is its delay" yes "$(awk -v t="${rtt_ms:-0}" 'BEGIN { if (t > 11 && t < 40) print "yes" }')"
    check "its goodput, $mbit Mb/s, is below its rate" yes "$(awk -v r="${mbit:-0}" 'BEGIN { if (r > 50 && r < 1000) print "yes" }')"
}

# Datagrams from a node to another's echo server: "SENT sent, CAME came, TWICE twice, OVERTAKEN overtaken".
datagrams() { timeout 30 "${as[@]}" "$canele" lab run "$1" python3 "$work/datagrams.py" count "$2" 7000 "$3" "$4" 0.001; }
echoes() { # nodes
    for node in "$@"; do
        rm -f "$work/echo-$node"
        "${as[@]}" "$canele" lab run "$node" python3 "$work/datagrams.py" echo 7000 600 >"$work/echo-$node" 2>/dev/null &
        disown
        until_true 10 '[ -s "$work/echo-$node" ]'
    done
}
among() { awk -v n="${1:-none}" -v least="$2" -v most="$3" 'BEGIN { if (n ~ /^[0-9]+$/ && n >= least && n <= most) print "yes" }'; }
# A count of the link from site 0 to site 1.
counted() { lab status --json | python3 -c 'import json, sys; print(next(link["counts"][sys.argv[1]] for link in json.load(sys.stdin)["links"] if (link["from"], link["to"]) == (0, 1)))' "$1"; }

# Links that lose, duplicate, delay, are cut, block a protocol and reduce the MTU, under traffic.
badness() {
    if lab status --json | grep -q '"delay_by": "netem"'; then
        skip "links that lose, are cut and forbid" "the kernel makes the links here, which cannot be changed"
        return
    fi
    echoes site1-node0 site0-node1
    local said before
    before=$(counted packets)
    check "a link without impairments delivers everything" "500 sent, 500 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.1.10 500 100)"
    check "counts what it carries" yes "$(among $(($(counted packets) - before)) 500 520)"
    lab set --from 0 --to 1 --loss 10% --duplicate 5% --reorder 5% --reorder-delay 5ms >"$work/out"
    check "set prints the impairments" 1 "$(grep -c 'loses 10 %, doubles 5 %, holds back 5 %' "$work/out")"
    said=$(datagrams site0-node0 10.77.1.10 1000 100)
    echo "    $said"
    read -r _ _ came _ twice _ overtaken _ <<<"$said"
    check "a tenth is lost" yes "$(among "$came" 840 950)"
    check "and the loss counter agrees" "$(counted lost)" "$((1000 - came))"
    check "the duplicate counter agrees" "$(counted duplicated)" "$twice"
    check "some come late" yes "$(among "$overtaken" 15 "$(counted reordered)")"
    lab set --loss 0 --duplicate 0 --reorder 0 >/dev/null
    datagrams site0-node0 10.77.1.10 8000 100 >"$work/out" &
    until_true 10 '[ "$(counted packets)" -gt $((before + 2300)) ]'
    lab cut 1 --for 0.3s
    wait $!
    said=$(cat "$work/out")
    check "a cut of 0.3 s ends by itself: $said" yes "$(read -r _ _ came _ <<<"$said"; among "$came" 300 7900)"
    check "and the cut counter agrees" yes "$(among "$(counted cut_off)" 50 7700)"
    for direction in in out both; do
        lab cut 0:1 --direction $direction
        check "a node cut off ($direction)" "20 sent, 0 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.0.11 20 100)"
        lab heal
    done
    check "and healed" "20 sent, 20 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.0.11 20 100)"
    lab set --mtu 1280 --udp-forbidden=false >/dev/null
    check "a link with a small MTU carries short datagrams" "20 sent, 20 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.1.10 20 1200)"
    check "and drops long ones silently" "20 sent, 0 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.1.10 20 1400)"
    lab set --mtu 1500 --udp-forbidden >/dev/null
    check "a link that blocks UDP carries none" "20 sent, 0 came, 0 twice, 0 overtaken" "$(datagrams site0-node0 10.77.1.10 20 100)"
    said=$(lab flow --for 0.5s)
    check "but not TCP: $said" yes "$(awk '/^cubic site0-node1 to site1-node1: / { if ($5 > 20 && $5 < 1000) print "yes" }' <<<"$said")"
    lab set --udp-forbidden=false --rate 100Mbit >/dev/null
    said=$(lab flow --for 1s)
    check "a slower link: $said" yes "$(awk '/^cubic/ { if ($5 > 5 && $5 < 100) print "yes" }' <<<"$said")"
    lab set --rate 1Gbit >/dev/null
    for mistake in "set" "set --loss 2" "set --from 0 --to 0 --loss 1%" "cut 2" "cut 0:9" "cut x" "set --mtu 9000"; do
        # shellcheck disable=SC2086
        lab $mistake >/dev/null 2>"$work/err"
        check "refused in a line: $mistake" "yes 1" "$([ $? != 0 ] && echo yes) $(wc -l <"$work/err")"
    done
}

# All promises of a lab, for the user in `as`.
whole_life() {
    raise
    check "every node has a host name of its own" "$(hosts)" "$(hosts | while read -r host; do lab run "$host" hostname; done)"
    lab run site0-node0 sh -c 'echo x >/dev/shm/mine'
    check "and a /dev/shm" "mine:" "$(lab run site0-node0 ls /dev/shm):$(lab run site0-node1 ls /dev/shm)"
    check "and System V IPC" "$(printf '1\n0')" "$(lab run site0-node0 sh -c 'ipcmk -M 64 >/dev/null; ipcs -m | grep -c 0x'; lab run site0-node1 sh -c 'ipcs -m | grep -c 0x')"
    check "an exit code comes back" 7 "$(lab run site1-node0 sh -c 'exit 7'; echo $?)"
    lab run site9-node0 true 2>"$work/err"
    check "an unknown node is an error that names the known" 1 "$(grep -c 'no node .site9-node0.: there are site0-node0' "$work/err")"
    check "8 ranks on both sites" "collectives on 8 ranks: 0 failures" "$(grid -n 8 -hosts $everywhere "$work/collectives")"
    check "windows of nodes with two ranks and with one" "windows of 5 ranks: 0 failures" "$(grid -n 5 -hosts site0-node0:2,site0-node1:1,site1-node0:2 "$work/windows")"
    check "status" 1 "$(lab status | grep -c 'is up')"
    badness
    namespaces >"$work/before"
    check "four networks" 4 "$(sort -u "$work/before" | wc -l)"
    "${as[@]}" "$canele" lab run site1-node1 sh -c 'sleep 100 & sleep 100' 2>/dev/null &
    until_true 20 '[ "$(left_behind "$work/before" | grep -c "sleep 100")" -ge 2 ]'
    check "processes in the lab are visible" yes "$([ "$(left_behind "$work/before" | grep -c "sleep 100")" -ge 2 ] && echo yes)"
    lab down
    check "down succeeds" 0 $?
    wait
    check "and leaves nothing" "" "$(left_behind "$work/before")"
    lab down
    check "down of nothing succeeds" 0 $?
    lab status 2>"$work/err"
    check "status of nothing says so" 1 "$(grep -c 'raise it with' "$work/err")"
}

if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    skip "the lab" "this machine permits namespaces neither to root nor to users"
    exit 0
fi
whole_life

# The same for another user, who may not enter this directory.
if [ "$(id -u)" = 0 ]; then
    user=(setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR PATH=/usr/bin:/bin)
    if "${user[@]}" unshare -Urn true 2>/dev/null; then
        echo "without root:"
        as=("${user[@]}")
        tests=$PWD
        cd "$work" || exit 1
        whole_life
        cd "$tests" || exit 1
        as=()
    else
        skip "the lab without root" "user namespaces are not permitted here"
    fi
fi

# Nodes with several interfaces, each at its own rate, on a network of its own.
if lab up --name "$CANELE_LAB" --sites 1 --nics 2 >"$work/up" 2>"$work/err"; then
    check "two interfaces meet their description, also both at once" 3 "$(grep -c 'Mb/s ok$' "$work/up")"
else
    check "a lab of two interfaces reports its deviation" yes "$(grep -q OFF "$work/up" && grep -q 'not as asked' "$work/err" && echo yes)"
fi
sed 's/^/    /' "$work/up" "$work/err"
read -r mbit <<<"$(sed -n 's|^ *by all .* / \([0-9]*\) Mb/s.*|\1|p' "$work/up")"
check "together they carry $mbit Mb/s" yes "$(awk -v r="${mbit:-0}" 'BEGIN { if (r > 100 && r < 2000) print "yes" }')"
check "status knows both addresses" "10.77.0.11 10.78.0.11" "$(lab status | awk '/site0-node1/ { print $2, $3 }')"
pair() { grid "$@" -n 4 -hosts site0-node0:2,site0-node1:2 "$work/collectives"; }
check "4 ranks on both networks" "collectives on 4 ranks: 0 failures" "$(pair)"
check "and on the second alone" "collectives on 4 ranks: 0 failures" "$(pair -iface eth1)"
# One cable is pulled in the middle of a run. The run continues over the other network.
rm -f "$work/begun"
grid -genv EXCHANGE_BEGUN "$work/begun" -n 4 -hosts site0-node0:2,site0-node1:2 "$work/exchange" 4 0 >"$work/out" 2>"$work/err" &
job=$!
until_true 30 '[ -e "$work/begun" ]'
sleep 1
lab run site0-node1 sh -c 'PATH=$PATH:/usr/sbin; ip link set eth1 down'
wait $job
code=$?
check "a run whose cable is pulled goes on: $(tail -1 "$work/out")" 0 $code
check "and was right" 1 "$(grep -c ': 0 failures$' "$work/out")"
check "it says that others go on: $(head -1 "$work/err")" yes "$(grep -qE 'to rank [0-9]+ is gone, others go on: ' "$work/err" && echo yes)"
check "and with its cable out" "collectives on 4 ranks: 0 failures" "$(pair)"
namespaces_of_one_site() { seq 0 1 | while read -r node; do lab run "site0-node$node" readlink /proc/self/ns/net; done; }
namespaces_of_one_site >"$work/before"
lab down
check "and down leaves nothing of them" "" "$(left_behind "$work/before")"

# Three sites at different distances, one of them private.
lab up --name "$CANELE_LAB" --sites 3 --pair 1-2=3ms --pair 0-2=60ms --private 1 >"$work/up" 2>"$work/err"
code=$?
sed 's/^/    /' "$work/up" "$work/err"
check "three sites are up, or report their deviation" yes "$([ $code = 0 ] || grep -q 'not as asked' "$work/err" && echo yes)"
check "each pair has its delay" "$(printf '1.500\n30.000\n5.800')" "$(lab status | awk '/^  site[12] to site2:|^  site0 to site[12]:/ { print $4 }' | sort -u)"
namespaces_of_three() { seq 0 2 | while read -r site; do lab run "site$site-node1" readlink /proc/self/ns/net; done; }
namespaces_of_three >"$work/before"
echoes site1-node0 site1-node1 site2-node1
reaches() { datagrams "$1" "$2" 5 100 | sed 's/.*sent, \([0-9]*\) came.*/\1/'; }
check "the gateway of a private site is reached" 5 "$(reaches site0-node0 10.77.1.10)"
check "another node of it is not" 0 "$(reaches site0-node0 10.77.1.11)"
check "but is reached from its own site" 5 "$(reaches site1-node0 10.77.1.11)"
check "and can connect to other sites" 5 "$(reaches site1-node1 10.77.2.11)"
timeout 5 "$canele" lab flow --for 0.2s --from site0-node0 --to site1-node1 >"$work/out" 2>/dev/null
check "no connection comes in" "yes" "$([ $? != 0 ] && echo yes)"
check "one comes out" 1 "$(lab flow --for 0.2s --from site1-node1 --to site0-node0 | grep -c 'Mb/s')"
# All nodes plan with the cached measurements of links. Jobs after the first relay around the longest path.
relay() {
    grid -n 3 -hosts site0-node0:1,site1-node0:1,site2-node0:1 sh -c 'CANELE_CACHE_DIR=$0/cache-$(hostname) exec "$0/relay"' "$work"
}
read -r first_us _ first <<<"$(relay)"
read -r second_us _ second <<<"$(relay)"
check "the first job on them" "relay on 3 ranks: 0 failures" "$first"
check "the second" "relay on 3 ranks: 0 failures" "$second"
check "the second job takes $second_us us where the first took $first_us" yes "$([ $((3 * ${second_us:-0})) -lt $((2 * ${first_us:-0})) ] && echo yes)"
lab up --name "$CANELE_LAB" --private 2 2>"$work/err"
check "a site that is not there cannot be private" 1 "$(grep -c 'no site 2' "$work/err")"
lab down
check "and down leaves nothing of three" "" "$(left_behind "$work/before")"

# Nodes of unequal speed. Both do the same work, one after the other.
works() { lab run "$1" python3 -c 'import time; t = time.monotonic(); sum(range(6000000)); print(int(1e6 * (time.monotonic() - t)))'; }
groups() { find /sys/fs/cgroup -maxdepth 3 -name "canele-$CANELE_LAB-*" 2>/dev/null; }
for wrong in "1000 4000" "0 such.as"; do
    read -r speed word <<<"$wrong"
    lab up --name "$CANELE_LAB" --speed "$speed" 2>"$work/err"
    check "a speed of $speed is refused" 1 "$(grep -c "$word" "$work/err")"
done
if lab up --name "$CANELE_LAB" --nodes 1 --speed 0.5,0.1 >"$work/up" 2>"$work/err" || grep -q 'not as asked' "$work/err"; then
    read -r fast slow <<<"$(works site0-node0) $(works site1-node0)"
    check "a node with a fifth of the speed takes at least twice as long: $fast and $slow us" yes "$([ "${slow:-0}" -gt $((2 * ${fast:-0})) ] && echo yes)"
    check "each node has its group" 2 "$(groups | wc -l)"
    lab down
    check "no group is left" "" "$(groups)"
else
    sed 's/^/    /' "$work/err"
    skip "nodes of unequal speed" "$(tail -1 "$work/err")"
fi

# One lab after another, some of them killed.
raise
namespaces >"$work/before"
raise
namespaces >"$work/after"
check "a second up replaces the first" "" "$(left_behind "$work/before" | grep -v "^$CANELE_LAB\\." | grep -v -E 'sleep infinity|lab daemon')"
check "its networks are new, or made anew" 4 "$(sort -u "$work/after" | wc -l)"
check "and work" "collectives on 8 ranks: 0 failures" "$(grid -n 8 -hosts $everywhere "$work/collectives")"
for id in $(left_behind "$work/after" | awk '/sleep infinity|lab daemon/ { print $1 }'); do kill -9 "$id"; done
check "status knows that it was killed" 1 "$(lab status | grep -c broken)"
raise
check "an up after a kill works" "collectives on 8 ranks: 0 failures" "$(grid -n 8 -hosts $everywhere "$work/collectives")"

# The wide area is cut for a second in the middle of a run. Lost packets are sent again.
rm -f "$work/begun"
grid -genv EXCHANGE_BEGUN "$work/begun" -n 4 -hosts site0-node0:1,site0-node1:1,site1-node0:1,site1-node1:1 "$work/exchange" 4 0 >"$work/out" 2>&1 &
job=$!
until_true 30 '[ -e "$work/begun" ]'
sleep 1
lab cut 1 --for 1s
sleep 1
lost=$(counted cut_off)
wait $job
code=$?
check "the cut took packets: ${lost:-0}" yes "$([ "${lost:-0}" -gt 0 ] && echo yes)"
check "a run over a cut goes on: $(tail -1 "$work/out")" 0 $code

# Loss of links is measured and reported: the connection's loss as a share of the link's traffic.
lost_over() { # rail, loss, seconds
    local before rate sent took
    lab set --loss "$2" >/dev/null
    before=$(counted lost)
    grid -genv CANELE_RAILS "$1" -n 2 -hosts site0-node0:1,site1-node0:1 sh -c \
        'CANELE_CACHE_DIR=$0/$1-$2-$(hostname | tr / -) exec "$0/exchange" $3 0' "$work" "$1" "$2" "$3" >/dev/null
    read -r _ rate _ _ sent _ <<<"$(CANELE_CACHE_DIR=$work/$1-$2-site0-node0 "$canele" info --link | sed -n "/^$1 /,\$p" | grep '^  loss')"
    took=$(($(counted lost) - before))
    check "over $1, $2 lost: $rate % of $sent MiB, where the link has dropped $took packets" yes \
        "$(awk -v r="${rate:-x}" -v m="${sent:-0}" -v t=$took 'BEGIN { n = r * m * 7.3; if (r != "x" && n >= t / 2 - 1 && n <= t * 2 + 4) print "yes" }')"
}
for loss in 0 0.1% 1%; do lost_over tcp $loss 4; done
lost_over quic 1% 4
lab set --loss 0 >/dev/null

# Instruments on a lab: messages over links that lose for a while, collectives and their traffic on links.
lab status | grep -E '^  site[01] to' | sed 's/, carried.*//' >"$work/links-before"
measured() { timeout 120 "$canele" bench "$@" --lab "$CANELE_LAB" --prefix "$prefix" --output "$work/bench" >"$work/table" 2>"$work/err"; }
mkdir -p "$work/bench"
measured wan --quick --rounds 1 --sizes 8,64k --silence 0,100000 --loss 0.1%
check "messages over links that lose" "0 1" "$? $(grep -c '0.1 % of packets lost' "$work/bench/slowstart-wan-loss0.1.txt")"
measured slowstart --messages 20 --place wan --flow cubic
check "and beside a flow, which keeps something" "0 1" "$? $(grep -c '^Canele: the flow beside it kept [1-9][0-9]* Mb/s, [0-9]* % of what' "$work/bench/slowstart-wan-flow-cubic.txt")"
check "and then lose no more" "" "$(lab status | grep -E '^  site[01] to' | sed 's/, carried.*//' | diff "$work/links-before" -)"
measured coll --ranks 4 --sizes 8,64k --seconds 0.02
check "collectives between sites" "0 1" "$? $(grep -c '^ *operation.* on the WAN' "$work/table")"
crossing() { # operation, bytes, counted quantity
    python3 -c 'import json, sys; print(next(int(row["cells"][0]["crossing_" + sys.argv[4]]) for row in json.load(open(sys.argv[1]))["rows"] if (row["operation"], row["bytes"], row["count"], row["statistic"]) == (sys.argv[2], int(sys.argv[3]), 0, "least")))' "$work/bench/coll-wan.json" "$@"
}
short=$(crossing bcast 8 bytes) long=$(crossing bcast 65536 bytes) packets=$(crossing bcast 65536 packets)
check "a short broadcast puts $short bytes on the link, at least a packet" yes "$(among "$short" 40 20000)"
check "a long one $long, at least all of it" yes "$(among "$long" 65536 1000000)"
check "in $packets packets, at least those that it fills" yes "$(among "$packets" 44 2000)"

# Ranks on the lab die with their mpiexec.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/fault.c -o "$work/fault" || exit 1
"$mpiexec" -timeout 60 -launcher-exec "$canele lab run" -n 8 -hosts $everywhere "$work/fault" hang "$work/ids" 2>/dev/null &
job=$!
disown
until_true 20 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 16 ]'
kill -9 $job
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "mpiexec killed: all 16 processes on four nodes end" "16 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
rm -f "$work/ids"
grid -n 8 -hosts $everywhere "$work/fault" signal 11 "$work/ids" 2>"$work/err"
code=$? ended_ms=$(since_ms "$work/ids")
usual_ms=$(took_ms grid -n 8 -hosts $everywhere true)
check "a rank that dies far away gives its code" 139 $code
check "is named, with its node" 1 "$(grep -c 'mpiexec: rank 4 on site1-node0: was ended by signal 11' "$work/err")"
check "soon ($ended_ms ms, where a job takes $usual_ms ms)" yes "$([ "$ended_ms" -lt $((2000 + 10 * usual_ms)) ] && echo yes)"
check "and nothing runs any more" 0 "$(alive "$work/ids")"

# mpi4py and NumPy over both sites.
if [ -e "$environment/done" ]; then
    said=$(grid -n 4 -hosts site0-node0:1,site0-node1:1,site1-node0:1,site1-node1:1 "$environment/bin/python" programs/numpy_client.py)
    check "$said" 0 $?
else
    check "mpi4py was built before" "$environment/done" "missing"
fi
namespaces >"$work/before"
lab down
check "the last lab leaves nothing" "" "$(left_behind "$work/before")"
finish_checks
