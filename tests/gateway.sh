#!/usr/bin/env bash
# Gateways from the user's view: alone, between ranks of one machine, and in front of a private site of the lab.
# Usage: gateway.sh PREFIX
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
for program in collectives exchange secret ports; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 "programs/$program.c" -o "$work/$program" -lpthread || exit 1
done
digits() { head -c "$1" /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# A standing gateway gets the pass, prints a report on request, and ends.
secret=$(digits 32)
echo "$(digits 8) $secret" | "$gateway" --listen 127.0.0.1:0 --allow 127.0.0.0/8 >"$work/address" 2>"$work/account" &
standing=$!
started+=($standing)
until_true 10 '[ -s "$work/address" ]'
read -r address <"$work/address"
check "a gateway prints its address" 127.0.0.1 "${address%:*}"
check "its secret is on no command line" 0 "$(tr '\0' ' ' <"/proc/$standing/cmdline" | grep -c "$secret")"
check "nor in its environment" 0 "$(tr '\0' '\n' <"/proc/$standing/environ" | grep -c "$secret")"
exec 3<>"/dev/tcp/127.0.0.1/${address#*:}"
head -c 100 /dev/zero >&3
check "a stranger's connection is closed" "" "$(timeout 10 cat <&3 2>/dev/null)"
exec 3<&- 3>&-
exec 3<>"/dev/tcp/127.0.0.1/${address#*:}"
exec 3<&- 3>&-
gave_account() {
    kill -USR1 $standing
    sleep 0.1
    grep -q "^refused, closed: 1" "$work/account" && grep -q "^refused, protocol: 1" "$work/account"
}
until_true 10 gave_account
check "a report is printed on request" yes "$(grep -q '^connections: 0 now, 0 in all' "$work/account" && echo yes)"
check "the stranger is reported once" "1 refused 127.0.0.1:*: it does not speak the protocol of these processes; the next of this kind are counted only" \
    "$(grep -c refused\ 127 "$work/account") $(sed -n 's/.*\(refused 127.0.0.1:\)[0-9]*/\1*/p' "$work/account")"
check "a closed connection is only counted" yes "$(grep -q '^refused, closed: 1' "$work/account" && echo yes)"
accounts=$(grep -c '^connections:' "$work/account")
kill -TERM $standing
wait $standing
check "a gateway ends on request" 0 $?
check "its secret is not in its output" 0 "$(grep -ciF "$secret" "$work/account")"
check "and a last report is printed" $((accounts + 1)) "$(grep -c '^connections:' "$work/account")"
for wrong in "" "no pass" "$(digits 8) $(digits 31)"; do
    echo "$wrong" | "$gateway" --listen 127.0.0.1:0 2>"$work/err"
    check "an invalid pass is refused" "1 1" "$? $(grep -c 'is no pass' "$work/err")"
done
echo "$(digits 8) $secret" | "$gateway" --listen 127.0.0.1:0 --allow 10.1/16 2>"$work/err"
check "an invalid network is refused" "2 1" "$? $(grep -c '10.1/16' "$work/err")"

for wrong in 127.0.0.1:8-7 gate:7; do
    "$gateway" --listen "$wrong" 2>"$work/err" </dev/null
    check "an invalid listen address is refused" "2 1" "$? $(grep -c "'$wrong'" "$work/err")"
done

# Two simulated sites of this machine, each behind a gateway. No connection is direct.
export GATEWAY_TEST=$work
gateways() { # the gateway processes that this test's jobs have started
    local file
    for file in $(grep -lsa canele-gateway /proc/[0-9]*/cmdline); do
        file=${file%/cmdline}
        if grep -qsa "GATEWAY_TEST=$work" "$file/environ"; then echo "${file#/proc/}"; fi
    done
}
pretend() { # more keys of the far site, for one more gateway: prints the grid
    printf '[[site]]\nname = "near"\nhosts = ["near:2"]\nlaunch = "fork"\nnetworks = ["near"]\n'
    printf '[[site.gateway]]\nhost = "near"\ninside = "127.0.0.1"\noutside = "127.0.0.1"\n'
    printf '[[site]]\nname = "far"\nhosts = ["far:2"]\nlaunch = "fork"\nnetworks = ["far"]\n%b' "${1:-}"
    printf '[[site.gateway]]\nhost = "far"\ninside = "127.0.0.1"\noutside = "127.0.0.1"\n'
    printf '[[network]]\nname = "near"\nsubnets = ["127.0.0.0/8"]\n[[network]]\nname = "far"\nsubnets = ["127.0.0.0/8"]\n'
}
sites() { timeout 100 "$mpiexec" -grid "$work/grid.toml" -genv CANELE_RAILS tcp -n 4 "$@"; }
pretend >"$work/grid.toml"
check "4 ranks of two sites, by two gateways" "collectives on 4 ranks: 0 failures" "$(sites "$work/collectives" 2>"$work/err")"
check "which met no strangers: $(cat "$work/err")" "" "$(cat "$work/err")"
until_true 20 '[ -z "$(gateways)" ]'
check "the gateways end with the job" "" "$(gateways)"
check "standard input reaches a rank that starts after them" "the input" "$(echo the input | sites sh -c 'read -r line; [ "$PMI_RANK" != 0 ] || echo $line')"
# Ranks stay when they have finished, so the test can inspect all processes.
stay() { # seconds, after which the ranks wait for the file over: prints the program
    printf '"%s/exchange" %s 0 || exit; until [ -e "%s/over" ]; do sleep 0.05; done' "$work" "$1" "$work"
}
sites sh -c "$(stay 3)" >"$work/out1" 2>"$work/err1" &
one=$!
sites sh -c "$(stay 3)" >"$work/out2" 2>"$work/err2" &
other=$!
until_true 20 '[ "$(gateways | wc -l)" = 4 ]'
check "two jobs at once have gateways of their own" 4 "$(gateways | wc -l)"
touch "$work/over"
wait $one && wait $other
code=$?
check "and end well: $(cat "$work"/err[12])" 0 $code
check "with every byte right" 2 "$(cat "$work"/out[12] | grep -c ' among 4 ranks: 0 failures$')"
# The job's secret appears in no output, though strangers are refused and a gateway is killed. Agents give it to ranks
# that ask. One rank writes it down here.
cat >"$work/asks" <<'EOF'
[ "$PMI_RANK" != 0 ] || { echo "cmd=get key=canele-secret" >&$PMI_FD; read -r answer <&$PMI_FD; echo "${answer##*value=}" >"$1/digits"; }
"$1/exchange" 8 0
EOF
timeout 100 "$mpiexec" -v -check -grid "$work/grid.toml" -genv CANELE_RAILS tcp -genv EXCHANGE_BEGUN "$work/begun" -n 4 bash "$work/asks" "$work" >"$work/out" 2>"$work/err" &
job=$!
until_true 30 '[ -e "$work/begun" ]'
python3 programs/scan.py 2 $job >/dev/null
kill -9 "$(gateways | head -1)"
wait $job
code=$?
sed 's/^/    /' "$work/err"
check "a job that is scanned, and that loses a near link with a gateway, ends with an error" yes "$([ $code != 0 ] && [ $code != 124 ] && echo yes)"
check "strangers and the loss are reported" "yes yes" "$(grep -q refused "$work/err" && echo yes) $(grep -q 'is gone' "$work/err" && echo yes)"
check "the test knows the secret" 64 "$(tr -dc 0-9a-f <"$work/digits" | wc -c)"
hidden=$(python3 -c 'import base64, sys; print(base64.b64encode(bytes.fromhex(sys.argv[1])).decode().rstrip("="))' "$(cat "$work/digits")")
check "and no output has it, in hexadecimal or base64" "" "$(grep -iF -e "$(cat "$work/digits")" -e "$hidden" "$work/out" "$work/err")"
# Nor does any core dump have it, or a key derived from it.
search_dumps() { # what the job consists of, its command: searches the memory of its processes
    local job
    rm -f "$work/ready" "$work/over"
    "${@:2}" "$work/secret" "$work" >"$work/out" 2>&1 &
    job=$!
    until_true 30 '[ -e "$work/ready" ]'
    check "no core dump has the secret" "$1: 0 copies" "$(python3 programs/dumped.py "$work/answers" $job)"
    touch "$work/over"
    wait $job
    check "and the job ends well: $(cat "$work/out")" 0 $?
}
search_dumps "2 canele-agent, 2 canele-gateway, 1 mpiexec, 4 secret" sites -genv CANELE_RAILS tcp
search_dumps "1 canele-agent, 1 mpiexec, 2 secret" timeout 100 "$mpiexec" -genv CANELE_RAILS quic -n 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
dead=127.0.0.1:$port
pretend "[[site.gateway]]\nhost = \"far\"\ninside = \"$dead\"\noutside = \"$dead\"\nlisten = [\"127.0.0.1\"]\n" >"$work/grid.toml"
check "another gateway replaces one that does not answer" "collectives on 4 ranks: 0 failures" "$(sites "$work/collectives")"
timeout 100 "$mpiexec" -genv CANELE_RAILS tcp -n 2 -env CANELE_SITE near "$work/collectives" : -n 2 -env CANELE_SITE far -env CANELE_GATEWAYS "$dead=$dead" "$work/collectives" >"$work/out" 2>"$work/err"
check "a rank connects to a peer whose gateway does not answer" "collectives on 4 ranks: 0 failures" "$(cat "$work/out")"
timeout 100 "$mpiexec" -genv CANELE_RAILS tcp -genv CANELE_GATEWAYS "$dead=$dead" -n 2 -env CANELE_SITE near "$work/collectives" : -n 2 -env CANELE_SITE far "$work/collectives" >/dev/null 2>"$work/err"
check "a job without a gateway that answers fails" yes "$([ $? != 0 ] && echo yes)"
check "and the message says so" yes "$(grep -q "$port" "$work/err" && echo yes)"

# A private site of the lab accepts connections to its first node only.
if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    skip "gateways on the lab" "this machine permits namespaces neither to root nor to users"
    finish_checks
fi
timeout 100 "$canele" lab up --name "$CANELE_LAB" --private 1 >"$work/up" 2>&1
sed 's/^/    /' "$work/up"
describe() { # the sites that have a gateway, the ports they may use: prints the grid
    local site
    for site in 0 1; do
        printf '[[site]]\nname = "site%s"\nhosts = ["site%s-node1:2", "site%s-node0"]\nlaunch = "%s lab run"\n' $site $site $site "$canele"
        case $1 in *$site*)
            printf 'networks = ["lan%s"]\n[[site.gateway]]\nhost = "site%s-node0"\ninside = "10.77.%s.10%s"\noutside = "10.77.%s.10%s"\n' $site $site $site "$2" $site "$2"
            printf '[[network]]\nname = "lan%s"\nsubnets = ["10.77.%s.0/24"]\n' $site $site >>"$work/networks"
        esac
    done
    cat "$work/networks"
    rm "$work/networks"
}
across() { timeout 100 "$mpiexec" -grid "$work/grid.toml" -n 6 "$@"; }
describe 01 "" >"$work/grid.toml"
check "6 ranks, two of them private, through both sites' gateways" "collectives on 6 ranks: 0 failures" "$(CANELE_CACHE_DIR=$work/cache across "$work/collectives")"
check "gateways cache the path between them at their end" yes "$(grep -qsE '^link (tcp|quic) site.-node0/10.77.(0.10 10.77.1|1.10 10.77.0).10$' "$work"/cache/link-* && echo yes)"
describe 1 "" >"$work/grid.toml"
check "and through the private site's alone" "collectives on 6 ranks: 0 failures" "$(across "$work/collectives")"
# A job behind the private site's gateway meets one that does not know it.
{
    printf '[[site]]\nname = "site1"\nhosts = ["site1-node1:2", "site1-node0"]\nlaunch = "%s lab run"\nnetworks = ["lan1"]\n' "$canele"
    printf '[[site.gateway]]\nhost = "site1-node0"\ninside = "10.77.1.10"\noutside = "10.77.1.10"\n'
    printf '[[network]]\nname = "lan1"\nsubnets = ["10.77.1.0/24"]\n'
} >"$work/private.toml"
CANELE_CACHE_DIR=$work/cache timeout 100 "$mpiexec" -launcher-exec "$canele lab run" -hosts site0-node0:1,site0-node1:1 -n 2 "$work/ports" accept meeting >"$work/out1" 2>&1 &
one=$!
CANELE_CACHE_DIR=$work/cache timeout 100 "$mpiexec" -grid "$work/private.toml" -n 2 "$work/ports" connect meeting >"$work/out2" 2>&1
wait $one
check "a job behind a gateway meets another job" "ok accept ok connect" "$(echo $(cat "$work"/out[12]))"
describe 01 :7000-7001 >"$work/grid.toml"
rm "$work/over"
across sh -c "$(stay 4)" >"$work/out1" 2>&1 &
one=$!
across sh -c "$(stay 4)" >"$work/out2" 2>&1 &
other=$!
until_true 20 '[ "$(gateways | wc -l)" = 4 ]'
across "$work/exchange" 1 0 >"$work/out3" 2>&1
check "a third job finds none of two ports free" "1 yes" "$? $(grep -q ':7001: Address already in use' "$work/out3" && echo yes)"
touch "$work/over"
wait $one && wait $other
check "two jobs through both at once" 0 $?
check "long and short messages are right: $(tail -qn1 "$work"/out[12])" 2 "$(cat "$work"/out[12] | grep -c ' among 6 ranks: 0 failures$')"
"$canele" lab down

# Two gateways of a site, one of them behind a link of a tenth of the rate. That site is two of the lab's, a LAN's
# length apart.
timeout 100 "$canele" lab up --name "$CANELE_LAB" --sites 3 --pair 1-2=0.2ms >"$work/up" 2>&1
sed 's/^/    /' "$work/up"
if "$canele" lab status --json | grep -q '"delay_by": "netem"'; then
    skip "two gateways of a site" "the kernel makes the links here, which cannot be changed"
    "$canele" lab down
    finish_checks
fi
"$canele" lab set --from 0 --to 1 --rate 100Mbit >/dev/null
"$canele" lab set --from 1 --to 0 --rate 100Mbit >/dev/null
{
    printf '[[site]]\nname = "near"\nhosts = ["site0-node1:2", "site0-node0:0"]\nlaunch = "%s lab run"\nnetworks = ["lan0"]\n' "$canele"
    printf '[[site.gateway]]\nhost = "site0-node0"\ninside = "10.77.0.10"\noutside = "10.77.0.10"\n'
    printf '[[site]]\nname = "far"\nhosts = ["site1-node1:2", "site1-node0:0", "site2-node0:0"]\nlaunch = "%s lab run"\nnetworks = ["lan1"]\n' "$canele"
    for site in 1 2; do printf '[[site.gateway]]\nhost = "site%s-node0"\ninside = "10.77.%s.10"\noutside = "10.77.%s.10"\n' $site $site $site; done
    for site in 0 1; do printf '[[network]]\nname = "lan%s"\nsubnets = ["10.77.%s.0/24"]\n' $site $site; done
} >"$work/grid.toml"
unequal() { CANELE_CACHE_DIR=$work/unequal timeout 100 "$mpiexec" -v -grid "$work/grid.toml" -genv EXCHANGE_BEGUN "$work/begun" -n 4 "$@"; }
# Kilobytes carried between the near site and each of the other two, since these counts.
carried() { "$canele" lab status --json | python3 -c 'import json, sys; links = json.load(sys.stdin)["links"]; print(*(sum(link["counts"]["bytes"] for link in links if {link["from"], link["to"]} == {0, far}) // 1000 - before for far, before in zip((1, 2), map(int, sys.argv[1:]))))' "$@"; }
unequal "$work/exchange" 3 0 >"$work/out" 2>"$work/err"
check "4 ranks, one site with two gateways of which nothing is known" "0 1" "$? $(grep -c ' among 4 ranks: 0 failures$' "$work/out")"
read -r slow fast <<<"$(carried 0 0)"
unequal "$work/exchange" 3 0 >"$work/out" 2>"$work/err"
check "the same job runs again" "0 1" "$? $(grep -c ' among 4 ranks: 0 failures$' "$work/out")"
read -r slow fast <<<"$(carried "$slow" "$fast")"
sed 's/^/    /' "$work/err"
check "traffic goes through the better gateway: $fast kB, and $slow through the other" yes "$([ "$fast" -gt 1000 ] && [ $((10 * slow)) -lt "$fast" ] && echo yes)"
check "and the report of the gateways shows it" yes "$(grep -q '^gateway 10.77.2.10:.* round trip 1[12]\..* Mb/s, [0-9]* connections$' "$work/err" && echo yes)"
rm "$work/begun"
unequal "$work/exchange" 10 0 >"$work/out" 2>"$work/err" &
job=$!
until_true 30 '[ -e "$work/begun" ]'
for dies in $(gateways); do
    if tr '\0' ' ' <"/proc/$dies/cmdline" | grep -q 'listen 10.77.2.10'; then
        # Its agent must not restart it meanwhile.
        agent=$(awk '/^PPid:/ { print $2 }' "/proc/$dies/status")
        kill -STOP "$agent"
        kill -9 "$dies"
    fi
done
sleep 2
read -r slow fast <<<"$(carried 0 0)"
sleep 3
read -r slow fast <<<"$(carried "$slow" "$fast")"
kill -CONT "$agent"
check "after the better one is killed, all goes through the other: $slow kB, and $fast through the first" yes "$([ "$slow" -gt 1000 ] && [ $((10 * fast)) -lt "$slow" ] && echo yes)"
wait $job
check "to a good end: $(tail -n1 "$work/out")" "0 1" "$? $(grep -c ' among 4 ranks: 0 failures$' "$work/out")"
"$canele" lab down

# Two sites that reach only a third one, which has no ranks: its gateway passes on what they send each other.
timeout 100 "$canele" lab up --name "$CANELE_LAB" --sites 3 >"$work/up" 2>&1
sed 's/^/    /' "$work/up"
for pair in "0 2" "2 0"; do
    read -r from to <<<"$pair"
    "$canele" lab set --from "$from" --to "$to" --tcp-forbidden --udp-forbidden >/dev/null
done
chain() { # keys of the gateway of the site in between
    local site
    for site in 0 1 2; do
        printf '[[site]]\nname = "s%s"\nhosts = ["site%s-node1:%s", "site%s-node0:0"]\nlaunch = "%s lab run"\nnetworks = ["lan%s"]\n' $site $site "$((site == 1 ? 0 : 2))" $site "$canele" $site
        [ $site = 1 ] && [ "$1" = none ] && continue
        printf '[[site.gateway]]\nhost = "site%s-node0"\ninside = "10.77.%s.10"\noutside = "10.77.%s.10"\n' $site $site $site
        printf 'networks = ["%s"]\n' "$([ $site = 1 ] && echo 'lan0", "lan2' || echo lan1)"
    done
    for site in 0 1 2; do printf '[[network]]\nname = "lan%s"\nsubnets = ["10.77.%s.0/24"]\n' $site $site; done
}
chain all >"$work/grid.toml"
through() { CANELE_CACHE_DIR=$work/through timeout 100 "$mpiexec" -grid "$work/grid.toml" -n 4 "$@"; }
check "the route is shown" "s0 to s2: through the gateways of s1 s2 to s0: through the gateways of s1" "$(echo $("$canele" grid status "$work/grid.toml" | grep through))"
check "4 ranks of two sites that meet only through a third" "collectives on 4 ranks: 0 failures" "$(through "$work/collectives" 2>"$work/err")"
sed 's/^/    /' "$work/err"
through "$work/exchange" 3 0 >"$work/out" 2>"$work/err"
check "long and short messages are right: $(tail -n1 "$work/out")" "0 1" "$? $(grep -c ' among 4 ranks: 0 failures$' "$work/out")"
until_true 20 '[ -z "$(gateways)" ]'
check "the gateway in between ends with the job" "" "$(gateways)"
chain none >"$work/grid.toml"
check "without it, a line says that no route leads there" "2 yes" "$(through true >/dev/null 2>"$work/err"; echo $?) $(grep -q 'none leads from site `s0` to site `s2`' "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] && echo yes)"
"$canele" lab down
finish_checks
