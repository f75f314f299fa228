#!/usr/bin/env bash
# Events on a wide area, one after the other, while ranks on both sides of it exchange checked data. Every message
# arrives once, or the job ends with the expected error in the expected time.
# Usage: trouble.sh PREFIX [CASE...] (cuts, clock, gateways, address, mtu, udp, tcp, refused, oneway, disorder,
# malice, strangers, storm; all by default). STORM_SECONDS, 600 by default, and STORM_SEED are for the storm.
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$1
shift
work=$(mktemp -d)
export CANELE_LAB=t$$ TROUBLE_TEST=$work
canele=$prefix/bin/canele mpiexec=$prefix/bin/mpiexec
trap 'for id in "${started[@]}"; do kill -9 "$id" 2>/dev/null; done; "$canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
started=()
wanted=" ${*:-cuts clock gateways address mtu udp tcp refused oneway disorder malice strangers storm} "
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/exchange.c -o "$work/exchange" || exit 1
lab() { timeout 60 "$canele" lab "$@"; }
raise() { lab up --name "$CANELE_LAB" "$@" >"$work/up" 2>&1 || true; }
raise --nodes 3
if lab status --json | grep -q '"delay_by": "netem"'; then
    skip trouble "the kernel makes the links here, which cannot be cut, and lose nothing"
    exit 0
fi
wants() { [[ $wanted == *" $1 "* ]] && echo "$1:"; }

# Begins to exchange for some seconds. The rest are options of mpiexec.
begin() { # seconds, options
    local seconds=$1
    shift
    rm -f "$work/begun"
    timeout $((seconds + 100)) "$mpiexec" -genv EXCHANGE_BEGUN "$work/begun" "$@" "$work/exchange" "$seconds" 0.5 >"$work/out" 2>"$work/err" &
    job=$!
    started+=($job)
    until_true 30 '[ -e "$work/begun" ]'
    sleep 2
}
direct=(-launcher-exec "$canele lab run" -hosts site0-node2:1,site1-node2:1 -n 2)
# Checks the end of a job.
finish() { # name
    wait "$job"
    code=$?
    sed 's/^/    /' "$work/out" "$work/err"
    check "$1: the job ends well" 0 "$code"
    check "and every byte is right" 1 "$(grep -c ' ranks: 0 failures$' "$work/out")"
}
# Checks that the job lost its link and opened it anew.
noticed() { check "it was noticed" yes "$(grep -q ' is gone, it is opened anew' "$work/err" && echo yes)"; }
# Checks that another rail was reported to have taken over.
replaced() { # the lost rail, and the one that leads now
    check "$2 was reported to take over" yes "$(grep -qE "^canele: rank [0-9]+: $1 to rank [0-9]+ is not back: $2 takes over$" "$work/err" && echo yes)"
}
# Restores the initial state.
calm() { lab heal >/dev/null; lab set --loss 0 --duplicate 0 --reorder 0 --mtu 1500 --udp-forbidden=false --tcp-forbidden=false >/dev/null; }

if wants cuts; then
    for direction in both in out; do
        begin 25 "${direct[@]}"
        lab cut 1 --for 20s --direction "$direction" >/dev/null
        finish "a cut of 20 s ($direction)"
        noticed
    done
    begin 25 "${direct[@]}" -genv CANELE_RAILS quic
    lab cut 1 --for 20s >/dev/null
    finish "a cut of 20 s over UDP"
    noticed
    "$canele" lab grid >"$work/open.toml"
    begin 25 -grid "$work/open.toml" -n 6
    lab cut 1 --for 20s >/dev/null
    finish "a cut of 20 s where TCP and UDP lead there"
    noticed
    calm
fi

if wants clock; then
    cc -Wall -Werror -O1 -shared -fPIC programs/clock.c -o "$work/clock.so" -ldl || exit 1
    for rails in tcp quic; do
        echo 0 >"$work/off"
        CLOCK_OFF=$work/off LD_PRELOAD=$work/clock.so begin 25 "${direct[@]}" -genv CANELE_RAILS $rails
        for off in 3600 -3600; do
            echo $off >"$work/off"
            sleep 2
            lab cut 1 --for 7s >/dev/null
            sleep 9
        done
        finish "the clock jumps by an hour forth and two back, over $rails"
        check "links were lost and opened anew after each jump" yes "$([ "$(grep -c 'is gone, it is opened anew' "$work/err")" -ge 2 ] && grep -q 'is back' "$work/err" && echo yes)"
        calm
    done
fi

# Gateways on the first two nodes of a site, for ranks on its third.
grid() { # number of gateways of each site
    local site gateway
    for site in 0 1; do
        printf '[[site]]\nname = "site%s"\nhosts = ["site%s-node2:2", "site%s-node0", "site%s-node1"]\n' $site $site $site $site
        printf 'launch = "%s lab run"\nnetworks = ["lan%s"]\n' "$canele" $site
        for gateway in $(seq 0 $(($1 - 1))); do
            printf '[[site.gateway]]\nhost = "site%s-node%s"\ninside = "10.77.%s.1%s"\noutside = "10.77.%s.1%s"\n' $site $gateway $site $gateway $site $gateway
        done
    done
    for site in 0 1; do printf '[[network]]\nname = "lan%s"\nsubnets = ["10.77.%s.0/24"]\n' $site $site; done
}
# Gateways of this test on a node.
gateway_on() { # node
    local file
    for file in $(grep -lsa canele-gateway /proc/[0-9]*/cmdline); do
        file=${file%/cmdline}
        if grep -qsa "TROUBLE_TEST=$work" "$file/environ" && [ "$(nsenter -u -t "${file#/proc/}" hostname)" = "$1" ]; then echo "${file#/proc/}"; fi
    done
}
carried() { lab status | sed 's/^/    /'; }

if wants gateways; then
    grid 1 >"$work/one.toml"
    grid 2 >"$work/two.toml"
    begin 12 -grid "$work/one.toml" -n 6
    killed=$(gateway_on site1-node0)
    kill -9 "$killed"
    sleep 3
    again=$(gateway_on site1-node0)
    check "a gateway that was killed runs again" yes "$([ -n "$again" ] && [ "$again" != "$killed" ] && echo yes)"
    kill -9 "$(gateway_on site0-node0)"
    finish "a gateway killed and started again at either site"
    noticed
    begin 14 -grid "$work/two.toml" -n 6
    stopped=("$(gateway_on site1-node0)" "$(gateway_on site0-node1)")
    kill -STOP "${stopped[@]}"
    started+=("${stopped[@]}")
    finish "one of two gateways of either site hangs"
    noticed
    begin 14 -grid "$work/two.toml" -n 6
    lab cut 1:0 >/dev/null
    finish "the host of one of two gateways gone for good"
    noticed
    calm
fi

change() { # node, old and new address
    lab run "$1" sh -c "way=\$(ip route show default) &&
        ip addr add $3/32 dev eth0 && ip addr del $2/24 dev eth0 && ip addr del $3/32 dev eth0 &&
        ip addr add $3/24 dev eth0 && ip route add \$way" || check "the address can be changed" yes no
}

if wants address; then
    back() { check "the link is back" yes "$(grep -q 'is back' "$work/err" && echo yes)"; }
    begin 14 "${direct[@]}"
    change site1-node2 10.77.1.12 10.77.1.99
    finish "the address of a host has changed"
    back
    for site in 0 1; do
        begin 14 -launcher-exec "$canele lab run" -hosts site0-node$site:1,site1-node$site:1 -n 2 -genv CANELE_RAILS quic
        change site$site-node$site 10.77.$site.1$site 10.77.$site.9$site
        finish "the address of a host of site $site has changed, over UDP"
    done
    lab down >/dev/null
    raise --nodes 3
fi

if wants mtu; then
    begin 14 "${direct[@]}"
    lab set --mtu 1280 >/dev/null
    finish "no packet longer than 1280 bytes passes any more, and nobody says so"
    noticed
    calm
    begin 14 "${direct[@]}" -genv CANELE_RAILS quic
    lab set --mtu 1280 >/dev/null
    finish "the same over UDP"
    calm
fi

if wants udp; then
    start=$SECONDS
    begin 20 "${direct[@]}" -genv CANELE_RAILS quic -genv CANELE_LINK_PATIENCE 10
    lab set --udp-forbidden >/dev/null
    wait "$job"
    code=$?
    sed 's/^/    /' "$work/out" "$work/err"
    check "a job with UDP alone ends with an error when UDP is blocked" yes "$([ "$code" != 0 ] && [ "$code" != 124 ] && echo yes)"
    check "in time" yes "$([ $((SECONDS - start)) -lt 60 ] && echo yes)"
    check "and no process is said to have ended" 0 "$(grep -c 'process has ended' "$work/err")"
    calm
    "$canele" lab grid >"$work/open.toml"
    begin 20 -grid "$work/open.toml" -n 6 -genv CANELE_RAILS shm,quic,tcp
    lab set --udp-forbidden >/dev/null
    finish "UDP is forbidden in mid-run, and TCP leads there"
    replaced quic tcp
    calm
fi

if wants tcp; then
    lab set --tcp-forbidden >/dev/null
    grid 1 >"$work/one.toml"
    begin 20 -grid "$work/one.toml" -n 6
    finish "no TCP passes between the sites, and gateways need none"
    calm
    begin 20 -grid "$work/one.toml" -n 6
    lab set --tcp-forbidden >/dev/null
    finish "TCP is forbidden in mid-run, by which gateways share a link"
    noticed
    calm
    "$canele" lab grid >"$work/open.toml"
    begin 20 -grid "$work/open.toml" -n 6 -genv CANELE_RAILS shm,tcp,quic
    lab set --tcp-forbidden >/dev/null
    sleep 8
    lab set --tcp-forbidden=false --udp-forbidden >/dev/null
    finish "TCP is blocked in mid-run and UDP leads, and then the reverse"
    replaced tcp quic
    replaced quic tcp
    calm
fi

# Rejections of the second site's firewall, added or removed. Its own resets pass.
refuse() { # protocol, how, chains (INPUT: what comes from the first site; OUTPUT: what goes there)
    local protocol=$1 how=$2 node chain side what
    shift 2
    what=(-p "$protocol")
    [ "$protocol" = udp ] || what+=(! --tcp-flags RST RST)
    for node in 0 1 2; do
        for chain in "$@"; do
            if [ "$chain" = INPUT ]; then side=-s; else side=-d; fi
            lab run site1-node$node iptables -A "$chain" "$side" 10.77.0.0/24 "${what[@]}" -j REJECT --reject-with "$how" || check "$protocol can be refused" yes no
        done
    done
}
admit() { for node in 0 1 2; do lab run site1-node$node iptables -F; done; }
refusal_told() { check "a refusal was reported" yes "$(grep -qE "^canele: rank [0-9]+: $1 to rank [0-9]+ is refused: nobody listens" "$work/err" && echo yes)"; }

if wants refused; then
    grid 1 >"$work/one.toml"
    refuse tcp tcp-reset INPUT OUTPUT
    begin 20 -grid "$work/one.toml" -n 6
    finish "TCP is refused between the sites, and gateways need none"
    admit
    calm
    "$canele" lab grid >"$work/open.toml"
    for chains in INPUT OUTPUT "INPUT OUTPUT"; do
        begin 12 -grid "$work/open.toml" -n 6 -genv CANELE_RAILS shm,tcp,quic
        # shellcheck disable=SC2086
        refuse tcp tcp-reset $chains
        finish "TCP is refused in mid-run ($chains), and UDP leads there"
        replaced tcp quic
        admit
        begin 12 -grid "$work/open.toml" -n 6 -genv CANELE_RAILS shm,quic,tcp
        # shellcheck disable=SC2086
        refuse udp icmp-port-unreachable $chains
        finish "UDP is refused in mid-run ($chains), and TCP leads there"
        replaced quic tcp
        admit
    done
    begin 25 -grid "$work/open.toml" -n 6 -genv CANELE_RAILS shm,tcp,quic
    refuse tcp tcp-reset INPUT
    sleep 5
    admit
    finish "TCP is refused for 5 s"
    replaced tcp quic
    check "TCP leads again between all ranks of the two sites" 9 "$(sed -nE 's/^canele: rank ([0-9]+): tcp to rank ([0-9]+) is back, and leads again$/\1 \2/p' "$work/err" | awk '{ print $1 < $2 ? $0 : $2 " " $1 }' | sort -u | wc -l)"
    for rails in tcp:tcp:tcp-reset tcp:tcp:icmp-port-unreachable quic:udp:icmp-port-unreachable tcp:tcp:icmp-admin-prohibited; do
        IFS=: read -r rail protocol how <<<"$rails"
        begin 20 "${direct[@]}" -genv CANELE_RAILS "$rail"
        refuse "$protocol" "$how" INPUT OUTPUT
        sleep 8
        admit
        finish "all there is is refused for 8 s ($protocol, $how)"
        noticed
        case $protocol:$how in tcp:tcp-reset | tcp:icmp-port-unreachable) refusal_told "$rail" ;; esac
    done
    begin 20 "${direct[@]}" -genv CANELE_RAILS tcp,quic -genv CANELE_LINK_PATIENCE 5
    refuse tcp tcp-reset INPUT OUTPUT
    refuse udp icmp-port-unreachable INPUT OUTPUT
    wait "$job"
    code=$?
    sed 's/^/    /' "$work/out" "$work/err"
    check "all is refused for good: the job ends with an error" yes "$([ "$code" != 0 ] && [ "$code" != 124 ] && echo yes)"
    check "and the message says so" yes "$(grep -q 'no link has opened again in time' "$work/err" && echo yes)"
    admit
    "$prefix/bin/mpicc" -Wall -Werror -O1 programs/orphan.c -o "$work/orphan" || exit 1
    for rails in tcp tcp,quic; do
        # shellcheck disable=SC2016
        output=$(timeout 45 "$mpiexec" "${direct[@]}" -genv CANELE_RAILS $rails sh -c '"$0"; [ "$PMI_RANK" = 0 ] || sleep 30' "$work/orphan" 2>"$work/err")
        sed 's/^/    /' "$work/err"
        check "a process that has ended unseen is not waited for, over $rails" "the dead: 0 failures" "$output"
    done
fi

# Ranks of the second site can connect to the first, but accept no connections. One is silent for longer than
# connection attempts last, and another ends meanwhile.
if wants oneway; then
    "$prefix/bin/mpicc" -Wall -Werror -O1 programs/unspoken.c -o "$work/unspoken" || exit 1
    for one in "1 DROP" "2 REJECT --reject-with tcp-reset"; do
        read -r node how <<<"$one"
        # shellcheck disable=SC2086
        lab run site1-node$node iptables -A INPUT -s 10.77.0.0/24 -p tcp --syn -j $how || check "connections can be blocked" yes no
        # shellcheck disable=SC2016
        timeout 80 "$mpiexec" -genv CANELE_RAILS shm,tcp -launcher-exec "$canele lab run" -hosts site0-node$node:1,site1-node$node:2 -n 3 sh -c '"$0" 42; [ "$PMI_RANK" = 0 ] || sleep 80' "$work/unspoken" >"$work/output$node" 2>"$work/err$node" &
        started+=($!)
        silent[node]=$!
    done
    for node in 1 2; do
        wait "${silent[node]}"
        sed 's/^/    /' "$work/err$node"
        check "a live rank that accepts no connections is waited for, and a dead one of its site is not" "1 dead of 3: 0 failures" "$(cat "$work/output$node")"
        lab run site1-node$node iptables -F
    done
fi

if wants disorder; then
    for rails in tcp quic; do
        lab set --reorder 1% --reorder-delay 1ms --duplicate 1% >/dev/null
        begin 6 "${direct[@]}" -genv CANELE_RAILS $rails
        finish "packets overtaken and doubled, over $rails"
        calm
    done
fi

if wants malice; then
    middle=()
    for node in site0-node2 site1-node2; do
        lab run $node iptables -t nat -A PREROUTING -p tcp -s 10.77.0.0/16 -j REDIRECT --to-ports 5999 || check "connections can be redirected" yes no
        "$canele" lab run $node python3 programs/between.py 5999 >>"$work/malice" &
        started+=($!)
        middle+=($!)
    done
    begin 20 "${direct[@]}"
    finish "one in the middle changes, repeats, cuts short and mixes up what is said"
    sort "$work/malice" | uniq -c
    check "and all kinds of malice were tried" 4 "$(sort -u "$work/malice" | wc -l)"
    noticed
    check "and reported" yes "$(grep -q 'what came is not what the peer has encrypted' "$work/err" && echo yes)"
    kill "${middle[@]}"
    for node in site0-node2 site1-node2; do
        lab run $node iptables -t nat -F
        "$canele" lab run $node python3 programs/amid.py 7 >>"$work/amid" &
        started+=($!)
        lab run $node iptables -A INPUT -p udp -s 10.77.0.0/16 -m statistic --mode random --probability 0.02 -j NFQUEUE --queue-num 7 --queue-bypass || check "datagrams can be queued" yes no
    done
    begin 15 -launcher-exec "$canele lab run" -hosts site0-node2:2,site1-node2:2 -n 4 -genv CANELE_RAILS shm,quic
    finish "the same over UDP"
    sort "$work/amid" | uniq -c
    check "and all kinds of malice were tried" 4 "$(sort -u "$work/amid" | wc -l)"
    check "and no link was lost" 0 "$(grep -c ' is gone' "$work/err")"
    for node in site0-node2 site1-node2; do lab run $node iptables -F; done
fi

# Ranks of the storm, over one rail, on the nodes of this number.
storm_over() { # rail, node
    timeout $((seconds + 200)) "$mpiexec" -launcher-exec "$canele lab run" -hosts "site0-node$2:1,site1-node$2:1" -n 2 -genv CANELE_RAILS "$1" -genv CANELE_LINK_PATIENCE 60 "$work/exchange" "$seconds" 0.5 >"$work/out-$1" 2>"$work/err-$1" &
    started+=($!)
}
# One event, which is over after some seconds.
event() {
    local kinds=(cut cut loss duplicate reorder mtu address) directions=(both in out) node
    local kind=${kinds[RANDOM % 7]} percent=$((RANDOM % 5 + 1))%
    echo "    $((SECONDS - begun)) s: $kind"
    case $kind in
        cut) lab cut 1 --for $((RANDOM % 80 + 2))00ms --direction "${directions[RANDOM % 3]}" >/dev/null ;;
        loss) lab set --loss $percent >/dev/null ;;
        duplicate) lab set --duplicate $percent >/dev/null ;;
        reorder) lab set --reorder $percent --reorder-delay 1ms >/dev/null ;;
        mtu) lab set --mtu 1280 >/dev/null ;;
        address)
            node=$((RANDOM % 2 + 1))
            change site1-node$node "10.77.1.1$node" "10.77.1.9$node"
            sleep $((RANDOM % 5 + 1))
            change site1-node$node "10.77.1.9$node" "10.77.1.1$node"
            ;;
    esac
    sleep $((RANDOM % 6 + 1))
    calm
    sleep $((RANDOM % 3))
}

if wants storm; then
    seconds=${STORM_SECONDS:-600} begun=$SECONDS
    RANDOM=${STORM_SEED:=$(date +%s)}
    echo "    seed $STORM_SEED"
    storm_over tcp 2
    storm_over quic 1
    jobs=("${started[@]: -2}")
    sleep 3
    while [ $((SECONDS - begun)) -lt $((seconds - 20)) ]; do event; done
    for rail in tcp quic; do
        wait "${jobs[0]}"
        code=$?
        jobs=("${jobs[@]:1}")
        tail -n 20 "$work/out-$rail" "$work/err-$rail" | sed 's/^/    /'
        check "events of all kinds for $seconds s over $rail, seed $STORM_SEED: the job ends well" 0 "$code"
        check "and every byte is right" 1 "$(grep -c ' ranks: 0 failures$' "$work/out-$rail")"
    done
fi

# Ports with a listener on a node.
listeners_on() { # node, protocol
    local state=0A
    [ "$2" = tcp ] || state=07
    lab run "$1" cat "/proc/net/$2" | awk -v state=$state '$4 == state && $2 !~ /^0100007F/ { split($2, at, ":"); print at[2] }' | while read -r port; do echo $((16#$port)); done | sort
}
# A gateway has the same port for both protocols.
gateway_listener_on() { comm -12 <(listeners_on "$1" tcp) <(listeners_on "$1" udp) | head -1; }
# Redirects a node's traffic for an address to the listener of another.
divert() { # node, protocol, address, the other's address and port
    lab run "$1" iptables -t nat -A OUTPUT -p "$2" -d "$3" -j DNAT --to-destination "$4:$5" || check "$2 can be redirected to another listener" yes no
}
refused_by() { # process name in the messages: number of refusals that it reports
    grep -cE "^$1: (rank [0-9]+: )?refused (a connection from )?10\.77\." "$work/err"
}

if wants strangers; then
    for rail in tcp quic; do
        protocol=${rail/quic/udp}
        begin 10 "${direct[@]}" -genv CANELE_RAILS $rail
        # Over UDP a second one exists, for packets that overtake others.
        divert site0-node1 $protocol 10.77.1.11 10.77.1.12 "$(listeners_on site1-node2 $protocol | head -1)"
        divert site1-node1 $protocol 10.77.0.11 10.77.0.12 "$(listeners_on site0-node2 $protocol | head -1)"
        timeout 80 "$mpiexec" -launcher-exec "$canele lab run" -hosts site0-node1:1,site1-node1:1 -n 2 -genv CANELE_RAILS $rail "$work/exchange" 1 0 >"$work/stranger" 2>&1
        code=$?
        sed 's/^/    stranger: /' "$work/stranger"
        check "ranks of another job that reach this one's listeners are refused, over $rail" yes "$([ $code != 0 ] && [ $code != 124 ] && echo yes)"
        finish "and this one goes on"
        check "and this job reports it" yes "$([ "$(refused_by canele)" -ge 2 ] && echo yes)"
        for site in 0 1; do lab run site$site-node1 iptables -t nat -F; done
    done
    grid 1 >"$work/one.toml"
    sed 's/hosts = .*/hosts = ["HOST:2"]/; s/node0/node1/; s/\.10"/.11"/' "$work/one.toml" | awk '/^name = "site/ { split($0, name, "\""); host = name[2] "-node1" } { sub("HOST", host); print }' >"$work/other.toml"
    begin 15 -grid "$work/one.toml" -n 6
    for protocol in tcp udp; do
        divert site0-node1 $protocol 10.77.1.11 10.77.1.10 "$(gateway_listener_on site1-node0)"
        divert site1-node1 $protocol 10.77.0.11 10.77.0.10 "$(gateway_listener_on site0-node0)"
    done
    timeout 80 "$mpiexec" -grid "$work/other.toml" -n 4 "$work/exchange" 1 0 >"$work/stranger" 2>&1
    code=$?
    sed 's/^/    stranger: /' "$work/stranger"
    check "gateways of another job that reach this one's are refused" yes "$([ $code != 0 ] && [ $code != 124 ] && echo yes)"
    finish "and this one goes on"
    check "and this job reports it" yes "$([ "$(refused_by canele-gateway)" -ge 1 ] && echo yes)"
    for site in 0 1; do lab run site$site-node1 iptables -t nat -F; done
fi
finish_checks
