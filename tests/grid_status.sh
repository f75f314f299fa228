#!/usr/bin/env bash
# canele grid status, with hosts that answer and hosts that do not, each in its own way. Usage: grid_status.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
canele=$prefix/bin/canele
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
script() { # name, lines
    printf '#!/bin/sh\n%s\n' "$2" >"$work/$1"
    chmod +x "$work/$1"
}
script fails 'exit 3'
script silent "echo \$\$ >$work/silent.id; exec sleep 60"
script chatty 'echo Welcome to $1'
script older "printf '\\011\\0\\0\\0\\0\\016\\0\\0\\0canele-agent 1'; cat >/dev/null"
script spread 'case $1 in two) shift; exec "$@" ;; *) exit 4 ;; esac'
cat >"$work/good" <<X
[[site]]
name = "near"
hosts = ["one", "two"]
launch = "fork"
spread = "fork"
networks = ["lan"]

[[site.gateway]]
host = "two"
inside = "127.0.0.1"

[[network]]
name = "lan"
subnets = ["127.0.0.0/8"]
X
cat >"$work/bad" <<X
[[site]]
name = "near"
hosts = ["one", "two", "three"]
launch = "fork"
spread = "$work/spread"
networks = ["lan"]

[[site.gateway]]
host = "one"
inside = "192.0.2.1:7000"

[[site]]
name = "failed"
hosts = ["four", "five"]
launch = "$work/fails"

[[site]]
name = "silent"
hosts = ["six"]
launch = "$work/silent"

[[site]]
name = "chatty"
hosts = ["seven"]
launch = "$work/chatty"

[[site]]
name = "older"
hosts = ["eight"]
launch = "$work/older"

[[site]]
name = "none"
hosts = ["nine"]
launch = "$work/there-is-none"

[[network]]
name = "lan"
subnets = ["192.0.2.0/24"]
X
line() { grep -E "^$1 " "$work/said"; }
says() { # name, host, pattern
    check "$1" 1 "$(line "$2" | grep -cE -- "$3")"
}
"$canele" grid status "$work/good" >"$work/said" 2>&1
check "all hosts answer" "0 3" "$? $(wc -l <"$work/said")"
version=$("$canele" --version | cut -d' ' -f2)
says "with load, cores, memory and version" one "^one +near +[0-9.]+ +[1-9][0-9]* +[0-9.]+ of [0-9.]+ GiB +$version$"
says "and what their gateways can do" two "$version +can listen at 127.0.0.1$"
"$canele" grid status --json "$work/good" >"$work/said"
check "as JSON too" "True True [{'address': '127.0.0.1', 'fault': None}]" \
    "$(python3 -c 'import json, sys; hosts = json.load(sys.stdin)["hosts"]; print(all(host["answers"] for host in hosts), hosts[0]["memory_bytes"] > 0, hosts[1]["gateways"])' <"$work/said")"
"$canele" grid status --timeout 2 "$work/bad" >"$work/said" 2>"$work/errors"
check "some do not, which is a failure" "1 7 of 9 hosts do not answer" "$? $(tail -1 "$work/said")"
check "all in one table, and no other line" "11 0" "$(wc -l <"$work/said") $(wc -l <"$work/errors")"
says "a gateway's address that is none of this host" one "cannot run at 192.0.2.1:7000: 192.0.2.1:7000: "
says "a host reached through another" two "GiB"
says "one that this one does not reach" three "no answer: the launcher could not start an agent on host three of site near .*4"
says "a launcher that fails" four "no answer: the launcher could not start an agent on host four of site failed .*3"
says "and the hosts behind it" five "no answer: it is reached through the first host of its site"
says "a silent host" six "no answer: no agent answered on host six of site silent within 2 s"
says "another program that answers" seven 'something else than an agent answered: `Welcome to seven`'
says "another version" eight 'is `canele-agent 1`, needed is'
says "a launcher that is missing" nine "no answer: launcher .*there-is-none.*No such file"
check "whose launcher is ended" "1 0" "$(wc -l <"$work/silent.id") $(alive "$work/silent.id")"
"$canele" grid status "$work/no-file" 2>"$work/errors"
check "a file that is none" "2 1" "$? $(grep -c 'canele grid status: .*no-file: cannot be read' "$work/errors")"
echo 'site = 3' >"$work/wrong"
"$canele" grid status "$work/wrong" 2>"$work/errors"
check "a file with a mistake" "2 1 1" "$? $(wc -l <"$work/errors") $(grep -c 'canele grid status: .*wrong:1: site: ' "$work/errors")"
"$canele" grid status 2>"$work/errors"
check "no file" "2 1" "$? $(wc -l <"$work/errors")"
mkdir "$work/alone"
cp "$canele" "$work/alone"
"$work/alone/canele" grid status "$work/good" 2>"$work/errors"
check "no agent beside it" "2 1" "$? $(grep -c 'canele grid status: .*canele-agent is missing: install Canele again$' "$work/errors")"
finish_checks
