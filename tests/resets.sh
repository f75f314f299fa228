#!/usr/bin/env bash
# Connections that are reset under traffic, one network's and all at once. Two nodes with two networks in common, of
# namespaces made here, exchange checked data. Needs root. Usage: resets.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
one=r$$a two=r$$b
clean() {
    ip netns del "$one" 2>/dev/null
    ip netns del "$two" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/exchange.c -o "$work/exchange" || exit 1
ip netns add "$one" && ip netns add "$two" || exit 1
for net in 1 2; do
    ip link add "r$$n$net" netns "$one" type veth peer name "r$$m$net" netns "$two" || exit 1
    ip -n "$one" addr add "10.99.$net.1/24" dev "r$$n$net"
    ip -n "$two" addr add "10.99.$net.2/24" dev "r$$m$net"
    ip -n "$one" link set "r$$n$net" up
    ip -n "$two" link set "r$$m$net" up
done
ip -n "$one" link set lo up
ip -n "$two" link set lo up
# The kernel takes up to a second to report that links are up.
for _ in $(seq 100); do
    up=$(for host in "$one" "$two"; do ip -n "$host" -br link; done | grep -c ' UP ')
    [ "$up" -lt 4 ] || break
    sleep 0.1
done
cat >"$work/launcher" <<'END'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" sh -c "$*"
END
chmod +x "$work/launcher"

timeout 60 "$prefix/bin/mpiexec" -launcher-exec "$work/launcher" -hosts "$one:1,$two:1" -genv CANELE_RAILS tcp -genv EXCHANGE_BEGUN "$work/begun" -n 2 "$work/exchange" 15 0.5 >"$work/out" 2>"$work/err" &
job=$!
until_true 30 '[ -e "$work/begun" ]'
begun=$SECONDS
sleep 2
closed=0
# Number of connections to these addresses that the kernel has closed in a node.
reset() { ip netns exec "$1" ss -HK dst "$2" 2>/dev/null | wc -l; }
# The last are reset some seconds before the end, so there is time to reopen them.
while [ "$closed" -lt 8 ] && [ $((SECONDS - begun)) -lt 10 ]; do
    closed=$((closed + $(reset "$one" 10.99.0.0/16)))
    sleep 0.7
    closed=$((closed + $(reset "$two" 10.99.2.0/24)))
    sleep 0.7
done
wait "$job"
check "the job ends well" 0 "$?"
sed "s/^/    /" "$work/out" "$work/err"
check "connections were reset" yes "$([ "$closed" -ge 6 ] && echo yes)"
check "every byte is right" 1 "$(grep -c ' among 2 ranks: 0 failures$' "$work/out")"
check "links were lost beside another" yes "$(grep -q 'is gone, others go on' "$work/err" && echo yes)"
check "and all at once" yes "$(grep -q 'is gone, it is opened anew' "$work/err" && echo yes)"
check "as many are back as were lost" "$(grep -c ' is gone, ' "$work/err")" "$(grep -c ' is back$' "$work/err")"
finish_checks
