#!/usr/bin/env bash
# Gateways as their users know them: alone, and between ranks of one machine. Usage: gateway.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$1
gateway=$prefix/bin/canele-gateway mpiexec=$prefix/bin/mpiexec
work=$(mktemp -d)
chmod 755 "$work"
started=()
trap 'for id in "${started[@]}"; do kill -9 "$id" 2>/dev/null; done; rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/collectives.c -o "$work/collectives" || exit 1
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

finish_checks
