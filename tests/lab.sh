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
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/collectives.c -o "$work/collectives" || exit 1
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/exchange.c -o "$work/exchange" || exit 1

# A copy that another user can read too.
cp -r "$prefix" "$work/prefix"
chmod -R a+rX "$work"
canele=$work/prefix/bin/canele mpiexec=$work/prefix/bin/mpiexec
everywhere=site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2

lab() { timeout 60 "${as[@]}" "$canele" lab "$@"; }
grid() { timeout 120 "${as[@]}" "$mpiexec" -launcher-exec "$canele lab run" "$@"; }
hosts() { seq 0 1 | while read -r site; do seq 0 1 | sed "s/^/site$site-node/"; done; }
namespaces() { hosts | while read -r host; do lab run "$host" readlink /proc/self/ns/net; done; }
# Processes that are in one of the namespaces of the file, or known as the lab's by their environment.
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

# Raises the lab and looks at what it says of itself. A busy machine may put a link off: then it has to
# say so, by its words and its code.
raise() {
    lab up --name "$CANELE_LAB" >"$work/up" 2>"$work/err"
    local code=$?
    sed 's/^/    /' "$work/up" "$work/err"
    if [ $code = 0 ]; then
        check "the lab is as asked: both links are" 2 "$(grep -c 'ok.* ok$' "$work/up")"
    else
        check "the lab is not as asked, and says so" yes "$(grep -q OFF "$work/up" && grep -q 'not as asked' "$work/err" && echo yes)"
    fi
    read -r rtt_ms mbit <<<"$(sed -n 's|^ *wide area .* / \([0-9.]*\) ms .* / \([0-9]*\) Mb/s.*|\1 \2|p' "$work/up")"
    check "the wide area's round trip, $rtt_ms ms, is its delay" yes "$(awk -v t="${rtt_ms:-0}" 'BEGIN { if (t > 11 && t < 40) print "yes" }')"
    check "its goodput, $mbit Mb/s, is below its rate" yes "$(awk -v r="${mbit:-0}" 'BEGIN { if (r > 50 && r < 1000) print "yes" }')"
}

# Everything that a lab promises, for whoever is in `as`.
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
    check "status" 1 "$(lab status | grep -c 'is up')"
    namespaces >"$work/before"
    check "four networks" 4 "$(sort -u "$work/before" | wc -l)"
    "${as[@]}" "$canele" lab run site1-node1 sh -c 'sleep 100 & sleep 100' 2>/dev/null &
    until_true 5 '[ "$(left_behind "$work/before" | grep -c "sleep 100")" -ge 2 ]'
    check "what runs there is seen" yes "$([ "$(left_behind "$work/before" | grep -c "sleep 100")" -ge 2 ] && echo yes)"
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
    echo "SKIPPED: this machine permits namespaces neither to root nor to users"
    exit 0
fi
whole_life

# As before, for another user.
if [ "$(id -u)" = 0 ]; then
    user=(setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR PATH=/usr/bin:/bin)
    if "${user[@]}" unshare -Urn true 2>/dev/null; then
        echo "without root:"
        as=("${user[@]}")
        whole_life
        as=()
    else
        echo "SKIPPED: user namespaces are not permitted here, so the lab needs root"
    fi
fi

# Nodes with several interfaces: each at its own rate, on a network of its own.
if lab up --name "$CANELE_LAB" --sites 1 --nics 2 >"$work/up" 2>"$work/err"; then
    check "two interfaces are as asked, and both at once" 3 "$(grep -c 'Mb/s ok$' "$work/up")"
else
    check "a lab of two interfaces is not as asked, and says so" yes "$(grep -q OFF "$work/up" && grep -q 'not as asked' "$work/err" && echo yes)"
fi
sed 's/^/    /' "$work/up" "$work/err"
read -r mbit <<<"$(sed -n 's|^ *by all .* / \([0-9]*\) Mb/s.*|\1|p' "$work/up")"
check "together they carry $mbit Mb/s" yes "$(awk -v r="${mbit:-0}" 'BEGIN { if (r > 100 && r < 2000) print "yes" }')"
check "status knows both addresses" "10.77.0.11 10.78.0.11" "$(lab status | awk '/site0-node1/ { print $2, $3 }')"
pair() { grid "$@" -n 4 -hosts site0-node0:2,site0-node1:2 "$work/collectives"; }
check "4 ranks on both networks" "collectives on 4 ranks: 0 failures" "$(pair)"
check "and on the second alone" "collectives on 4 ranks: 0 failures" "$(pair -iface eth1)"
# One cable is pulled in the middle of a run, which goes on over the other network.
grid -n 4 -hosts site0-node0:2,site0-node1:2 "$work/exchange" 4 0 >"$work/out" 2>"$work/err" &
job=$!
sleep 1.5
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

# One lab after another, some of them ended badly.
raise
namespaces >"$work/before"
raise
namespaces >"$work/after"
check "a second up replaces the first" "" "$(left_behind "$work/before" | grep -v "^$CANELE_LAB\\." | grep -v -E 'sleep infinity|lab link')"
check "its networks are new, or made anew" 4 "$(sort -u "$work/after" | wc -l)"
check "and work" "collectives on 8 ranks: 0 failures" "$(grid -n 8 -hosts $everywhere "$work/collectives")"
for id in $(left_behind "$work/after" | awk '/sleep infinity|lab link/ { print $1 }'); do kill -9 "$id"; done
check "status knows that it was killed" 1 "$(lab status | grep -c broken)"
raise
check "an up after a kill works" "collectives on 8 ranks: 0 failures" "$(grid -n 8 -hosts $everywhere "$work/collectives")"

# The wide area is cut for a second in the middle of a run: what was lost is sent again.
grid -n 4 -hosts site0-node0:1,site0-node1:1,site1-node0:1,site1-node1:1 "$work/exchange" 4 0 >"$work/out" 2>&1 &
job=$!
sleep 1.5
wall() { lab run "$1" sh -c "PATH=\$PATH:/usr/sbin XTABLES_LOCKFILE=$work/lock iptables-legacy $2"; }
for node in site1-node0 site1-node1; do wall $node "-A INPUT -s 10.77.0.0/24 -j DROP"; done
sleep 1
lost=$(wall site1-node0 "-vnxL INPUT" | awk '/DROP/ { print $1 }')
for node in site1-node0 site1-node1; do wall $node "-F INPUT"; done
wait $job
code=$?
check "the cut took packets: ${lost:-0}" yes "$([ "${lost:-0}" -gt 0 ] && echo yes)"
check "a run over a cut goes on: $(tail -1 "$work/out")" 0 $code

# Ranks on the lab that die with their mpiexec.
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/fault.c -o "$work/fault" || exit 1
"$mpiexec" -timeout 60 -launcher-exec "$canele lab run" -n 8 -hosts $everywhere "$work/fault" hang "$work/ids" 2>/dev/null &
job=$!
disown
until_true 20 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 16 ]'
kill -9 $job
until_true 5 '[ "$(alive "$work/ids")" = 0 ]'
check "mpiexec killed: all 16 processes on four nodes end" "16 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
rm -f "$work/ids"
start=$(date +%s%N)
grid -n 8 -hosts $everywhere "$work/fault" signal 11 "$work/ids" 2>"$work/err"
check "a rank that dies far away: its code" 139 $?
check "is named, with its node" 1 "$(grep -c 'mpiexec: rank 4 on site1-node0: was ended by signal 11' "$work/err")"
check "soon ($((($(date +%s%N) - start) / 1000000)) ms)" yes "$([ $((($(date +%s%N) - start) / 1000000)) -lt 3000 ] && echo yes)"
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
