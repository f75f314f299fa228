#!/usr/bin/env bash
# mpiexec as its users know it. Usage: launch.sh BIN (the directory of mpiexec and canele-agent)
set -u
mpiexec=$1/mpiexec
failures=0
check() { # name, expected, found
    if [ "$2" != "$3" ]; then
        printf 'FAILED %s\n  expected: %s\n  found:    %s\n' "$1" "$2" "$3"
        failures=$((failures + 1))
    else
        printf 'ok %s\n' "$1"
    fi
}
run() { timeout 20 "$mpiexec" "$@"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check "ranks and sizes" "0/3 1/3 2/3 " "$(run -n 3 sh -c 'echo $PMI_RANK/$PMI_SIZE' | sort | tr '\n' ' ')"
check "several programs" "a b b " "$(run -n 1 echo a : -n 2 echo b | sort | tr '\n' ' ')"
check "labels" "[0] x [1] x " "$(run -l -n 2 echo x | sort | tr '\n' ' ')"
check "variables" "1 2" "$(run -genv A 1 -n 1 -env B 2 sh -c 'echo $A $B')"
check "directory" "/usr" "$(run -n 1 -wdir /usr pwd)"
check "input goes to rank 0" "$(seq 5000 | md5sum)" "$(seq 5000 | run -n 2 sh -c 'if [ $PMI_RANK = 0 ]; then cat; fi' | md5sum)"
check "a partial last line" "no newline" "$(run -n 1 printf 'no newline')"
run -n 2 sh -c 'exit $((PMI_RANK * 5))' 2>"$work/err"
check "exit code of the first failure" 5 $?
check "and its reason" 1 "$(grep -c 'rank 1 on localhost: exited with code 5' "$work/err")"
run -n 1 "$work/missing" 2>"$work/err"
check "a missing program" 127 $?
check "is named" 1 "$(grep -c "$work/missing not found" "$work/err")"
touch "$work/plain"
run -n 1 "$work/plain" 2>/dev/null
check "a program that cannot be executed" 126 $?
run -n 1 -hosts nowhere.invalid -launcher-exec /bin/false true 2>"$work/err"
check "a launcher that fails" 1 $?
check "names the host" 1 "$(grep -c 'nowhere.invalid' "$work/err")"
printf 'a\nb sluts=2\n' >"$work/hosts"
run -n 1 -f "$work/hosts" true 2>"$work/err"
check "a hosts file with a mistake" 2 $?
check "names the line" 1 "$(grep -c "$work/hosts:2" "$work/err")"
run -timeout 1 -n 2 sleep 30 2>/dev/null
check "a job that takes too long" 124 $?

# A rank killed: the others are ended, and nothing is left behind.
run -n 2 sh -c "echo \$\$ >>$work/ids; if [ \$PMI_RANK = 0 ]; then sleep 0.2; kill -9 \$\$; fi; sleep 60 & echo \$! >>$work/ids; wait" 2>/dev/null
check "a rank ended by a signal" 137 $?
alive() { for id in $(cat "$1"); do [ -e "/proc/$id" ] && ! grep -q '^State:.Z' "/proc/$id/status" 2>/dev/null && echo "$id"; done | wc -l; }
check "leaves nothing behind" 0 "$(alive "$work/ids")"

# mpiexec killed hard: the agent cleans up.
rm -f "$work/ids"
timeout 20 "$mpiexec" -n 2 sh -c "echo \$\$ >>$work/ids; sleep 60 & echo \$! >>$work/ids; wait" &
for _ in $(seq 100); do [ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 4 ] && break; sleep 0.05; done
for id in $(cat /proc/$!/task/*/children 2>/dev/null); do kill -9 "$id"; done
for _ in $(seq 100); do [ "$(alive "$work/ids")" = 0 ] && break; sleep 0.05; done
check "mpiexec killed leaves nothing behind" 0 "$(alive "$work/ids")"
wait 2>/dev/null

# A launcher that is given the host first, for two hosts.
printf '#!/bin/sh\nhost=$1; shift; LAB_HOST=$host exec "$@"\n' >"$work/launcher"
chmod +x "$work/launcher"
check "a launcher of one's own" "one one two " "$(run -n 3 -hosts one:2,two:1 -launcher-exec "$work/launcher" sh -c 'echo $LAB_HOST' | sort | tr '\n' ' ')"

printf '%s failures\n' "$failures"
exit "$failures"
