#!/usr/bin/env bash
# Gateways as their users know them: alone, between ranks of one machine, and in front of a private site of
# the lab. Usage: gateway.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$1
gateway=$prefix/bin/canele-gateway mpiexec=$prefix/bin/mpiexec canele=$prefix/bin/canele
work=$(mktemp -d)
chmod 755 "$work"
export CANELE_LAB=g$$
started=()
trap 'for id in "${started[@]}"; do kill -9 "$id" 2>/dev/null; done; "$canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
for program in collectives exchange; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 "programs/$program.c" -o "$work/$program" || exit 1
done
digits() { head -c "$1" /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# A standing gateway: told the pass, asked for an account, ended.
secret=$(digits 32)
echo "$(digits 8) $secret" | "$gateway" --listen 127.0.0.1:0 --allow 127.0.0.0/8 >"$work/address" 2>"$work/account" &
standing=$!
started+=($standing)
until_true 10 '[ -s "$work/address" ]'
read -r address <"$work/address"
check "it says where it is called" 127.0.0.1 "${address%:*}"
check "its secret is on no command line" 0 "$(tr '\0' ' ' <"/proc/$standing/cmdline" | grep -c "$secret")"
check "nor in its environment" 0 "$(tr '\0' '\n' <"/proc/$standing/environ" | grep -c "$secret")"
exec 3<>"/dev/tcp/127.0.0.1/${address#*:}"
head -c 100 /dev/zero >&3
check "a stranger is shown the door" "" "$(timeout 10 cat <&3 2>/dev/null)"
exec 3<&- 3>&-
kill -USR1 $standing
until_true 10 'grep -q "^refused, protocol: 1" "$work/account"'
check "an account is given when asked for" 1 "$(grep -c '^connections: 0 now, 0 in all' "$work/account")"
check "which tells of the stranger, once" "1 1" "$(grep -c 'refused 127.0.0.1:.* does not speak' "$work/account") $(grep -c '^refused, protocol: 1' "$work/account")"
kill -TERM $standing
wait $standing
check "it ends when told to" 0 $?
check "with another account" 2 "$(grep -c '^connections:' "$work/account")"
for wrong in "" "no pass" "$(digits 8) $(digits 31)"; do
    echo "$wrong" | "$gateway" --listen 127.0.0.1:0 2>"$work/err"
    check "a pass that is none is refused" "1 1" "$? $(grep -c 'is no pass' "$work/err")"
done
echo "$(digits 8) $secret" | "$gateway" --listen 127.0.0.1:0 --allow 10.1/16 2>"$work/err"
check "a network that is none is refused" "2 1" "$? $(grep -c '10.1/16' "$work/err")"

# Two pretended sites of this machine, each behind a gateway: nothing goes directly.
ports=()
for _ in 0 1 2; do ports+=("$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"); done
for number in 0 1 2; do
    cat >"$work/gateway$number" <<END
#!/bin/sh
echo \$\$ >"$work/id$number"
exec "$gateway" --until-eof --listen 127.0.0.1:${ports[number]} --allow 127.0.0.0/8 --gateways 127.0.0.1 "\$@" 2>>"$work/account$number"
END
    chmod 755 "$work/gateway$number"
done
at() { echo "127.0.0.1:${ports[$1]}=127.0.0.1:${ports[$1]}"; }
sites() { # options of mpiexec, then a program: two ranks on each site
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    timeout 100 "$mpiexec" "${options[@]}" -genv CANELE_RAILS tcp -n 2 -env CANELE_SITE near -env CANELE_GATEWAYS "$(at 0)" "$@" : \
        -n 2 -env CANELE_SITE far -env CANELE_GATEWAYS "$far" "$@"
}
far=$(at 1)
both=(-gateway "$work/gateway0" -gateway "$work/gateway1")
check "4 ranks of two sites, over UDP between gateways" "collectives on 4 ranks: 0 failures" "$(sites "${both[@]}" -- "$work/collectives")"
tcp=(-gateway "$work/gateway0 --no-udp" -gateway "$work/gateway1")
check "and over TCP" "collectives on 4 ranks: 0 failures" "$(sites "${tcp[@]}" -- "$work/collectives")"
until_true 5 '[ "$(cat "$work"/id? | alive /dev/stdin)" = 0 ]'
check "the gateways end with the job" 0 "$(cat "$work"/id? | alive /dev/stdin)"
check "and met no strangers" 0 "$(cat "$work"/account? | grep -cE 'does not speak|secret|another job|changes the bytes')"
sites -gateway "$work/gateway0" -- "$work/collectives" >/dev/null 2>"$work/err"
check "without the far gateway there is no way" yes "$([ $? != 0 ] && echo yes)"
check "which is said" yes "$(grep -q "${ports[1]}" "$work/err" && echo yes)"
# One of the far gateways is not there.
far=$(at 1),$(at 2)
check "another gateway replaces one that is missing" "collectives on 4 ranks: 0 failures" "$(sites -gateway "$work/gateway0" -gateway "$work/gateway2" -- "$work/collectives")"

# A private site of the lab: connections come in to its first node only.
if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    echo "SKIPPED: this machine permits namespaces neither to root nor to users"
    finish_checks
fi
timeout 100 "$canele" lab up --name "$CANELE_LAB" --private 1 >"$work/up" 2>&1
sed 's/^/    /' "$work/up"
site() { echo "10.77.$1.10:7000=10.77.$1.10:7000"; }
daemon() { # site, options: the command of its gateway
    echo "$canele lab run site$1-node0 $gateway --until-eof --listen 10.77.$1.10:7000 --allow 10.77.$1.0/24 --gateways 10.77.0.0/16 ${2:-}"
}
grid() { timeout 100 "$mpiexec" -launcher-exec "$canele lab run" "$@"; }
across() { # the sites that have a gateway; then a program: ranks on the second nodes
    local near=() far=() with=$1
    shift
    case $with in *0*) near=(-gateway "$(daemon 0)" -env CANELE_GATEWAYS "$(site 0)") ;; esac
    case $with in *1*) far=(-env CANELE_GATEWAYS "$(site 1)") ; near+=(-gateway "$(daemon 1)") ;; esac
    grid -hosts site0-node1:2,site1-node1:2 -n 2 -env CANELE_SITE site0 "${near[@]}" "$@" : -n 2 -env CANELE_SITE site1 "${far[@]}" "$@"
}
check "4 ranks, two of them private, through both sites' gateways" "collectives on 4 ranks: 0 failures" "$(across 01 "$work/collectives")"
check "and through the private site's alone" "collectives on 4 ranks: 0 failures" "$(across 1 "$work/collectives")"
across 01 "$work/exchange" 2 0 >"$work/out" 2>&1
check "long and short messages in both directions" 0 $?
check "are right: $(tail -1 "$work/out")" 1 "$(grep -c ': 0 failures$' "$work/out")"
"$canele" lab down
finish_checks
