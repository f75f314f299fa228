#!/usr/bin/env bash
# mpiexec over a real ssh: a private server on loopback, with two host names for it. Usage: ssh.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
. ./ssh_server.sh
has_ssh "mpiexec over ssh" || exit 0
prefix=$(realpath "$1")
work=$(mktemp -d)
started=()
trap 'for id in "${started[@]}"; do kill "$id" 2>/dev/null; done; rm -rf "$work"' EXIT
chmod 755 "$work"
start_ssh_server server || exit 1
cat >"$work/config" <<X
Host refused
  Port 1
Host unknown
  HostKeyAlias unknown
Host keyless
  IdentityFile $work/none
Host a b refused unknown
  IdentityFile $work/key
Host *.invalid
  HostName %h
Host a b refused unknown keyless
  HostName 127.0.0.1
  HostKeyAlias server
Host *
  Port $port
$own_ssh
X
# Options of mpiexec for ssh, with a configuration of the test's own.
printf '#!/bin/sh\nexec ssh -F %s/config -x -o BatchMode=yes -o ConnectTimeout=20 "$@"\n' "$work" >"$work/ssh"
chmod +x "$work/ssh"
export PATH=$prefix/bin:$PATH
run() { timeout 60 mpiexec -launcher-exec "$work/ssh" "$@"; }
if ! timeout 20 "$work/ssh" a true 2>"$work/err"; then
    skip "mpiexec over ssh" "this user cannot log in by a server of its own: $(tail -n 1 "$work/err")"
    exit 0
fi

check "ranks on two hosts" "a:0/4 a:1/4 b:2/4 b:3/4 " "$(run -n 4 -hosts a:2,b:2 sh -c 'test -n "$SSH_CONNECTION" && echo $([ $PMI_RANK -lt 2 ] && echo a || echo b):$PMI_RANK/$PMI_SIZE' | sort | tr '\n' ' ')"
printf 'a:2\nb slots=1\n' >"$work/hosts"
check "as many ranks as the hosts have slots" "0/3 1/3 2/3 " "$(run -f "$work/hosts" sh -c 'echo $PMI_RANK/$PMI_SIZE' | sort | tr '\n' ' ')"
mkdir -p "$work/north/bin" "$work/south/run" "$work/south/it's a prefix"
mpicc programs/total.c -o "$work/north/bin/total" || exit 1
ln -s "$prefix/bin" "$work/south/it's a prefix/bin"
cp "$work/north/bin/total" "$work/south/total"
cat >"$work/grid" <<X
[[site]]
name = "north"
hosts = ["a:2"]
launch = "$work/ssh"
binaries = "$work/north/bin"
environment = { WHERE = "there" }
[[site]]
name = "south"
hosts = ["b:2"]
launch = "ssh -F $work/config"
agent = "$work/south/it's a prefix/bin/canele-agent"
directory = "$work/south/run"
binaries = "$work/south"
X
check "a grid whose sites differ" "6 6 6 6 " "$(timeout 60 mpiexec -grid "$work/grid" total | tr '\n' ' ')"
check "directories and variables of sites" "north/there:/usr north/there:/usr south/:$work/south/run south/:$work/south/run " "$(cd /usr && timeout 60 mpiexec -grid "$work/grid" sh -c 'echo $CANELE_SITE/$WHERE:$PWD' | sort | tr '\n' ' ')"
mkdir -p "$work/it's \"a\" dir"
check "a directory with quotes and spaces" "$work/it's \"a\" dir" "$(run -n 1 -hosts b -wdir "$work/it's \"a\" dir" pwd)"
check "arguments with quotes and spaces" "a  b'c\"\$x" "$(run -n 1 -hosts b printf %s "a  b'c\"\$x")"
check "input goes to rank 0" "$(seq 50000 | md5sum)" "$(seq 50000 | run -n 2 -hosts a,b sh -c 'if [ $PMI_RANK = 0 ]; then cat; fi' | md5sum)"
check "lines are whole" 8000 "$(run -n 4 -hosts a:2,b:2 sh -c 'seq -f "line $PMI_RANK %g end" 2000' | grep -c '^line [0-3] [0-9]* end$')"
run -n 4 -hosts a:2,b:2 sh -c 'test $PMI_RANK != 3 || exit 7; sleep 50' 2>"$work/err"
check "an exit code is passed on" "7 mpiexec: rank 3 on b: exited with code 7; ending the job" "$? $(cat "$work/err")"
run -n 4 -hosts a:2,b:2 sh -c 'test $PMI_RANK != 3 || kill -SEGV $$; sleep 50' 2>"$work/err"
check "a signal is reported" "139 1" "$? $(grep -c 'rank 3 on b: was ended by signal 11' "$work/err")"

# Any end of mpiexec, or of its connection, ends all ranks.
for how in INT TERM HUP KILL connection; do
    rm -f "$work/ids"
    # Background processes of a script ignore SIGINT otherwise.
    env --default-signal=INT mpiexec -launcher-exec "$work/ssh" -timeout 50 -n 4 -hosts a:2,b:2 sh -c "echo \$\$ >>$work/ids; sleep 60 & echo \$! >>$work/ids; wait" 2>"$work/err" &
    job=$!
    until_true 20 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 8 ]'
    if [ $how = INT ]; then
        check "no secret in command lines or environments" 0 "$(for id in $job $(ps --ppid $job -o pid=) $(cat "$work/ids"); do tr '\0' '\n' <"/proc/$id/cmdline"; tr '\0' '\n' <"/proc/$id/environ"; done 2>/dev/null | grep -cE '(^|[^0-9a-f])[0-9a-f]{64}([^0-9a-f]|$)')"
    fi
    if [ $how = connection ]; then kill -9 "$(ps --ppid $job -o pid= | head -1)"; else kill -$how $job; fi
    wait $job 2>/dev/null
    code=$?
    case $how in INT) expected=130 ;; TERM) expected=143 ;; HUP) expected=129 ;; KILL) expected=137 ;; connection) expected=1 ;; esac
    until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
    check "$how leaves nothing behind" "$expected 8 0" "$code $(wc -l <"$work/ids") $(alive "$work/ids")"
done

# Errors state the cause and a remedy.
while IFS='|' read -r host reason; do
    timeout 30 mpiexec -launcher-exec "ssh -F $work/config -o BatchMode=yes" -n 2 -hosts a,$host true 2>"$work/err" </dev/null
    check "host $host fails the job" 1 $?
    check "and the message names the cause and a remedy" "1 1" "$(grep -ci "$reason" "$work/err") $(grep -c "could not start an agent on host $host (exit status: 255): \`ssh .* $host true\` has to work" "$work/err")"
done <<X
unknown|host key verification failed
keyless|permission denied
refused|connection refused
nowhere.invalid|could not resolve
X
sed "s|^agent = .*|agent = \"$work/none/canele-agent\"|" "$work/grid" >"$work/wrong"
timeout 30 mpiexec -grid "$work/wrong" -n 4 true 2>"$work/err"
check "an agent that is missing" "1 1" "$? $(grep -c "on host b of site south (exit status: 127): $work/none/canele-agent has to be there" "$work/err")"
timeout 30 mpiexec -launcher-exec "$work/nossh" -n 2 -hosts a,b true 2>"$work/err"
check "a launcher that is missing" "1 1" "$? $(grep -c "launcher $work/nossh for host a: .*: install it, or name another launcher" "$work/err")"

# A shell that prints at login, as .bashrc may.
echo "command=\"echo Welcome; eval \\\"\$SSH_ORIGINAL_COMMAND\\\"\" $(cat "$work/key.pub")" >"$work/keys"
run -n 1 -hosts a true 2>"$work/err"
check "a shell that prints at login is named" "1 1" "$? $(grep -c 'on host a something else than an agent answered: `Welcome` (do login scripts print there?)' "$work/err")"
echo "command=\"dash -c \\\"\$SSH_ORIGINAL_COMMAND\\\"\" $(cat "$work/key.pub")" >"$work/keys"
if command -v dash >/dev/null; then check "a plain shell" "ok" "$(run -n 1 -hosts a echo ok)"; else skip "a plain shell" "no dash here"; fi
finish_checks
