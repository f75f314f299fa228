#!/usr/bin/env bash
# mpiexec from the user's view. Usage: launch.sh BIN (the directory of mpiexec, canele-agent and mpicc)
set -u
mpiexec=$1/mpiexec
. "$(dirname "$0")/check.sh"
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
check "an agent that somebody starts says so" "1 canele-agent: mpiexec starts it" "$("$1/canele-agent" --help 2>&1 >"$work/agent" | cut -d" " -f1-4 | sed "s/^/1 /")"
check "and writes nothing else" "" "$(cat "$work/agent")"
check "also on a terminal" "canele-agent: mpiexec starts it" "$(script -qec "$1/canele-agent" /dev/null </dev/null | cut -d" " -f1-4 | head -1)"
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
check "an unknown option" "mpiexec: unknown option -hotfile; did you mean -hostfile? (see mpiexec --help)" "$(run -hotfile x true 2>&1)"
check "the help names every group" 6 "$(run -help | grep -c "^[A-Z].*:$")"
unknown="mpiexec: CANELE_STRATGY is not a setting; did you mean CANELE_STRATEGY? (canele info --settings lists them)"
check "an unknown setting in the environment" "$unknown" "$(CANELE_STRATGY=fifo run -n 2 true 2>&1)"
check "an unknown setting on the command line" "$unknown" "$(run -genv CANELE_STRATGY fifo -n 2 true 2>&1)"
run -timeout 1 -n 2 sleep 30 2>/dev/null
check "a job that takes too long" 124 $?
MPIEXEC_TIMEOUT=1 run -n 2 sleep 30 2>"$work/err"
check "the same by Hydra's variable" 124 $?
check "which is named" 1 "$(grep -c MPIEXEC_TIMEOUT "$work/err")"
MPIEXEC_TIMEOUT=1 run -timeout 9 -n 1 sleep 1.5
check "which the option overrides" 0 $?
MPIEXEC_TIMEOUT=-1 run -n 1 true
check "and in which -1 means no limit" 0 $?
check "and no number is refused" "mpiexec: MPIEXEC_TIMEOUT=soon: a number of seconds is needed (see mpiexec --help)" "$(MPIEXEC_TIMEOUT=soon run -n 1 true 2>&1)"

# Bound to cores: the affinity of ranks, beside the cores that a thread of this shell may use.
allowed='sed -n "s/Cpus_allowed_list:\t//p" /proc/self/status'
threads=$(sh -c "$allowed" | tr ',' '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
cores=$(for thread in $threads; do cat "/sys/devices/system/cpu/cpu$thread/topology/thread_siblings_list"; done | sort -u | wc -l)
bound() { run -l -bind-to "$1" -n "$2" sh -c "$allowed" | sed 's/^.//' | sort -n | cut -d' ' -f2; }
check "unbound ranks may use all cores" "$(sh -c "$allowed")" "$(bound none 2 | uniq)"
check "as many ranks as cores get one core each" "$cores" "$(bound core "$cores" | sort -u | wc -l)"
check "twice as many ranks share the cores evenly, neighbours on one core" "$cores 2" \
    "$(bound core $((2 * cores)) | uniq -c | awk '{lines[$1]++} END {for (ranks in lines) print lines[ranks], ranks}')"
check "an unknown binding is refused" "mpiexec: -bind-to pony: not one of none, hwthread, core, l1cache, l2cache, l3cache, numa, socket, machine, rr, user:LIST (see mpiexec --help)" "$(run -bind-to pony -n 1 true 2>&1)"

# A program without MPI, beside one that waits for it in MPI_Init.
for one in 0:0 0.5:0 0:0.5; do
    IFS=: read -r others waits <<<"$one"
    run -n 1 bash -c "sleep $waits; echo cmd=barrier_in >&\$PMI_FD; read -r line <&\$PMI_FD" : -n 1 sleep "$others" 2>"$work/err"
    check "a rank that ends without MPI_Init after $others s fails the job" 1 $?
    check "is named" "mpiexec: rank 1 on localhost: ended without MPI_Init, in which rank 0 waits for all; ending the job" "$(cat "$work/err")"
done

# A rank is killed. The others are ended, and nothing is left behind.
run -n 2 sh -c "echo \$\$ >>$work/ids; if [ \$PMI_RANK = 0 ]; then until [ \$(wc -l <$work/ids) = 3 ]; do sleep 0.05; done; kill -9 \$\$; fi; sleep 60 & echo \$! >>$work/ids; wait" 2>"$work/err"
check "a rank ended by a signal" 137 $?
id=$(sed 's/.*as process \([0-9]*\).*/\1/' "$work/err")
check "is named with host, signal and process" "mpiexec: rank 0 on localhost: was ended by signal 9 (SIGKILL: killed by another process, or by the kernel for want of memory), as process ID; ending the job" "$(sed "s/process $id/process ID/" "$work/err")"
check "which is one of the job" 1 "$(grep -cx "$id" "$work/ids")"
check "leaves nothing behind" "3 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"

# A job that fails gives its ranks time to end themselves.
saving() { # seconds that a rank needs to save its state, command of the other rank
    run -n 1 sh -c "trap 'sleep $1; echo saved; exit 0' TERM; echo \$\$ >$work/ids; while :; do sleep 0.05; done" : -n 1 sh -c "until [ -s $work/ids ]; do sleep 0.05; done; $2" 2>/dev/null
}
rm -f "$work/ids"
check "ranks have time to save their state" "saved 137" "$(saving 1 'kill -9 $$') $?"
rm -f "$work/ids"
run -n 1 sh -c "trap 'echo saved; exit 0' TERM; echo \$\$ >$work/ids; kill -STOP \$\$; sleep 60" : -n 1 sh -c "until grep -q '^State:.T' /proc/\$(cat $work/ids 2>/dev/null)/status 2>/dev/null; do sleep 0.05; done; exit 3" >"$work/said" 2>/dev/null
check "also stopped ones" "3 saved" "$? $(cat "$work/said")"

# mpiexec is killed. The agent cleans up.
rm -f "$work/ids"
"$mpiexec" -timeout 20 -n 2 sh -c "echo \$\$ >>$work/ids; sleep 60 & echo \$! >>$work/ids; wait" &
job=$!
disown
until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 4 ]'
kill -9 $job
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "mpiexec killed leaves nothing behind" 0 "$(alive "$work/ids")"

# A launcher that gets the host first, for two hosts.
printf '#!/bin/sh\nhost=$1; shift; LAB_HOST=$host exec "$@"\n' >"$work/launcher"
chmod +x "$work/launcher"
check "a custom launcher is used" "one one two " "$(run -n 3 -hosts one:2,two:1 -launcher-exec "$work/launcher" sh -c 'echo $LAB_HOST' | sort | tr '\n' ' ')"
check "hosts may be IPv6 addresses" "::1 ::2 ::2 fe80::3%eth0 " "$(run -hosts '::1,[::2]:2,[fe80::3%eth0]' -launcher-exec "$work/launcher" sh -c 'echo $LAB_HOST' | sort | tr '\n' ' ')"

# Location of ranks: first ranks of nodes and sites.
"$1/mpicc" -Wall -Werror -O1 "$(dirname "$0")/programs/sites.c" -o "$work/sites" || exit 1
check "all ranks are at one site, unless sites are named" "0:0 0:0 0:0 0:0 0 strangers" "$(run -n 4 "$work/sites")"
check "named sites separate ranks" "0:0 0:1 0:0 0:1 0 strangers" "$(run -n 1 -env CANELE_SITE a "$work/sites" : -n 1 -env CANELE_SITE b "$work/sites" : -n 1 -env CANELE_SITE a "$work/sites" : -n 1 -env CANELE_SITE b "$work/sites")"
check "two agents on one node" "0:0 0:0 0:0 0 strangers" "$(run -hosts one:2,two:1 -launcher-exec "$work/launcher" -n 3 "$work/sites")"
run -n 1 "$work/sites" : -n 1 -env CANELE_SITE b "$work/sites" 2>"$work/err" >&2
check "a site name that rank 0 lacks fails the job" 16 $?
check "and the message says so" 1 "$(grep -c 'CANELE_SITE=b, but rank 0 has none: name the sites of all, or of none' "$work/err")"

# Programs that a rank starts are no ranks, before MPI_Finalize and after it.
"$1/mpicc" -Wall -Werror -O1 "$(dirname "$0")/programs/starts.c" -o "$work/starts" || exit 1
starts() { run -n 2 "$@" 2>&1 | sort | tr '\n' ' '; }
tool="$work/starts tool"
check "a program that a rank starts in MPI is alone" "rank 0 of 2 rank 1 of 2 tool 0 of 1 " "$(starts "$work/starts" rank true "$tool")"
check "and so is one that it starts after MPI" "rank 0 of 2 rank 1 of 2 tool 0 of 1 " "$(starts "$work/starts" rank "$tool" true)"
check "and one that gets the rank's number for its own file or socket" "rank 0 of 2 rank 1 of 2 tool 0 of 1 tool 0 of 1 " \
    "$(starts "$work/starts" rank "eval \"exec \$PMI_FD</dev/null\"; $tool" "exec python3 -c 'import os, socket; pair = socket.socketpair(); os.dup2(pair[0].fileno(), int(os.environ[\"PMI_FD\"])); os.execv(\"$work/starts\", [\"starts\", \"tool\"])'")"
check "and one that closes all descriptors" "rank 0 of 2 rank 1 of 2 tool 0 of 1 " "$(starts "$work/starts" rank true "python3 -c 'import subprocess; subprocess.run([\"$work/starts\", \"tool\"])'")"
check "also under a launcher that does not name its socket" "rank 0 of 2 rank 1 of 2 tool 0 of 1 tool 0 of 1 " "$(starts env -u CANELE_PMI_SOCKET "$work/starts" rank "$tool" "$tool")"
check "a rank may start a job" "rank 0 of 2 rank 1 of 2 tool 0 of 2 tool 1 of 2 " "$(starts "$work/starts" rank true "$mpiexec -n 2 $tool")"
check "a program between mpiexec and a rank is none" "rank 0 of 2 rank 1 of 2 " "$(starts sh -c "true; $work/starts rank; true")"
check "and a rank may be two programs in turn" "a 0 of 2 a 1 of 2 b 0 of 2 b 1 of 2 " "$(starts sh -c "$work/starts a; $work/starts b")"
# The same under a launcher that ranks connect to.
python3 "$(dirname "$0")/programs/pmi_port.py" >"$work/port" &
server=$!
until_true 20 '[ -s "$work/port" ]'
connected() { PMI_PORT=$(head -1 "$work/port") PMI_ID=0 timeout 20 "$@" 2>&1 | tr '\n' ' '; }
check "programs of a rank that connects to its launcher are alone" "rank 0 of 1 tool 0 of 1 tool 0 of 1 " "$(connected "$work/starts" rank "$tool" "$tool")"
check "and its launcher knows the rank only" "server: joined server: finalized " "$(tail -n +2 "$work/port" | tr '\n' ' ')"
check "programs in turn each join" "a 0 of 1 b 0 of 1 3" "$(connected sh -c "$work/starts a; $work/starts b")$(grep -c finalized "$work/port")"
kill $server
# Python closes descriptors above 2 in what it starts.
run -n 2 python3 -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)' "$work/starts" rank 2>"$work/err" >&2
check "a program between them that closes the connection is told of" "yes" "$(grep -q 'the launcher.s connection (PMI_FD=[0-9]*) is closed' "$work/err" && echo yes)"
run -trace "$work/run.json" -n 2 "$work/starts" rank "$tool" "$tool" >"$work/said" 2>&1
check "and the programs of a traced rank are not in its trace" "0 2 1" "$? $(grep -c tool "$work/said") $(grep -o 'MPI_Barrier' "$work/run.json" | sort | uniq -c | awk '{ print ($1 <= 4) }')"

# Programs that run alone although they might not.
check "a program alone in an allocation says so once" "alone 0 of 1 canele: runs alone, although SLURM_NTASKS=4: .mpiexec. starts as many ranks as .-n. says " "$(SLURM_NTASKS=4 "$work/starts" alone 2>&1 | sort | tr '\n`' ' .')"
check "its ranks do not" "a 0 of 2 a 1 of 2 " "$(SLURM_NTASKS=4 starts "$work/starts" a)"
check "nor their programs" "rank 0 of 2 rank 1 of 2 tool 0 of 1 " "$(SLURM_NTASKS=4 starts "$work/starts" rank "$tool" true)"
echo 'int other(void) { return 0; }' >"$work/other.c"
echo 'int other(void); int main(void) { return other(); }' >"$work/program.c"
cc -shared -fPIC -Wl,-soname,libmpi.so.40 "$work/other.c" -o "$work/libmpi.so.40" && cc "$work/program.c" "$work/libmpi.so.40" -Wl,-rpath,"$work" -o "$work/foreign" || exit 1
told="mpiexec: $work/foreign is a program of Open MPI (libmpi.so.40), whose ranks each run alone here: compile it with Canele's mpicc, or start it with the mpiexec of Open MPI"
check "a program of another MPI is told of once" "$told" "$(run -n 2 "$work/foreign" : -n 1 "$work/foreign" 2>&1)"
check "unless it is to run alone" "" "$(run -n 1 "$work/foreign" 2>&1)"

# Limits of the system: ranks have what they need, or one line names limit and remedy.
limited() { # limit of open files, soft (-S) or hard (-H), mpiexec's arguments...
    (ulimit -S -n "$2" && if [ "$1" = -H ]; then ulimit -H -n "$2"; fi && shift 2 && run "$@" 2>"$work/err")
}
check "ranks raise their own limit of open files" "0 of 17" "$(limited -S 48 -n 17 "$work/starts" a | sort -n -k2 | head -1 | cut -d' ' -f2-)"
limited -H 64 -n 17 "$work/starts" a >"$work/said"
check "a hard limit that the agent reaches ends the job" "126 1" "$? $(grep -c 'rank .* on localhost: no more ranks can be started here: the limit of 64 open files is reached; raise the hard limit (ulimit -Hn), or use more hosts; ending the job' "$work/err")"
run -n 17 sh -c "ulimit -n 64; exec $work/starts a" 2>"$work/err" >"$work/said"
check "and so does one that ranks would reach" "yes" "$(grep -q 'the limit of 64 open files is too low for 17 ranks on a host, which need 70: raise the hard limit (ulimit -Hn)' "$work/err" && echo yes)"
"$1/mpicc" -Wall -Werror -O1 "$(dirname "$0")/programs/short_of_files.c" -o "$work/short_of_files" || exit 1
output=$(run -genv CANELE_RAILS shm -n 2 "$work/short_of_files" 1 2>"$work/err")
check "a rank without a free file gets what a neighbour has sent once it has one" "0 arrived" "$? $output"
check "and the user is told why it waits" "1 canele: rank 0: shm: a rank of this host cannot be reached: Too many open files (os error 24); it is tried again, and more open files (ulimit -n) would help" "$(wc -l <"$work/err") $(cat "$work/err")"
printf '#!/no/such\n' >"$work/script" && chmod +x "$work/script"
run -n 1 "$work/script" 2>"$work/err"
check "a missing interpreter is told of as such" "127 mpiexec: rank 0 on localhost: program $work/script needs the interpreter /no/such, which is missing on this host" "$? $(cat "$work/err")"
run -n 700 -genv BALLAST "$(head -c 100000 /dev/zero | tr '\0' x)" true 2>"$work/err"
check "too many ranks for one agent are told of as such" "1 mpiexec: 700 ranks with their environments are more than an agent can start on host localhost: name more hosts, or pass on less (-genvnone)" "$? $(cat "$work/err")"

# Rails that cannot open: there is no network, not even a loopback.
if unshare -n true 2>"$work/err"; then
    isolated() { timeout 20 unshare -n "$mpiexec" "$@" 2>"$work/err"; }
    left_out() { sed -n 's/^canele: rail \([a-z]*\) is left out, since the others reach all ranks: no.*/\1/p' "$work/err" | tr '\n' ' '; }
    for rails in "shm,tcp:tcp " "shm,quic:quic " "tcp,shm,quic:tcp quic " "shm+tcp:tcp " "shm:"; do
        check "shared memory alone is enough for ${rails%:*}" "a 0 of 3 a 1 of 3 a 2 of 3 " "$(isolated -genv CANELE_RAILS "${rails%:*}" -n 3 "$work/starts" a | sort | tr '\n' ' ')"
        check "and what is left out is told of once" "${rails#*:}" "$(left_out)"
    done
    isolated -genv CANELE_RAILS tcp -n 2 "$work/starts" a
    check "a job without any rail fails" "16 yes" "$? $(grep -q 'rail tcp: .*no network interface' "$work/err" && echo yes)"
    printf '#!/bin/sh\nshift; exec unshare --ipc "$@"\n' >"$work/apart" && chmod +x "$work/apart"
    isolated -hosts one,two -launcher-exec "$work/apart" -n 2 "$work/starts" a
    check "and so does one on two nodes" "16 yes" "$? $(grep -q 'rail tcp: .*no network interface' "$work/err" && echo yes)"
    isolated -genv CANELE_VCIS 2 -n 2 "$work/starts" a >"$work/said"
    check "further VCIs need no more" "0 tcp " "$? $(left_out)"
    isolated -iface lo -n 2 "$work/starts" a
    check "a network that the user names must be there" "16 yes" "$? $(grep -q 'no interface or address .lo. here' "$work/err" && echo yes)"
else
    skip "rails without a network" "$(head -1 "$work/err")"
fi

check "64 ranks" "$(seq 0 63 | md5sum)" "$(run -n 64 sh -c 'echo $PMI_RANK' | sort -n | md5sum)"
check "a variable for one program only" "1 none" "$(run -n 1 -env B 1 sh -c 'echo $B' : -n 1 sh -c 'echo ${B:-none}' | sort | tr '\n' ' ' | sed 's/ $//')"
run -n 1 -wdir "$work/nowhere" true 2>"$work/err"
check "a directory that is missing" 127 $?
check "is named" 1 "$(grep -c "no directory $work/nowhere" "$work/err")"

# Output, byte by byte.
long='head -c 3000000 /dev/zero | tr "\\0" x'
check "a line of 3 MB" "$(sh -c "$long" | md5sum)" "$(run -n 1 sh -c "$long" | md5sum)"
check "labelled once" "1 $((3000000 + 4))" "$(run -l -n 1 sh -c "$long" | { tee "$work/long" | tr -cd '[' | wc -c; } | tr -d '\n'; echo " $(wc -c <"$work/long")")"
head -c 2000000 /dev/urandom >"$work/bytes"
check "binary output is unchanged" "$(md5sum <"$work/bytes")" "$(run -n 1 cat "$work/bytes" | md5sum)"
check "and so is binary input" "$(md5sum <"$work/bytes")" "$(run -n 2 sh -c '[ $PMI_RANK = 1 ] || cat' <"$work/bytes" | md5sum)"
check "a slow reader gets all output" "$(seq 500000 | md5sum)" "$(run -n 1 seq 500000 | (sleep 1; md5sum))"
check "lines of many ranks stay whole" "8000 xxxxxxxxxxxxxxxxxxxx" "$(run -n 8 sh -c 'yes xxxxxxxxxxxxxxxxxxxx | head -1000' | sort | uniq -c | sed 's/^ *//')"
check "long lines of many ranks stay whole" "$(for rank in 0 1 2 3 4 5; do for line in 1 2 3; do echo "[$rank] 200000"; done; done)" \
    "$(run -l -n 6 sh -c 'for line in 1 2 3; do head -c 200000 /dev/zero | tr "\\0" $PMI_RANK; echo; done' | awk '{ only = $2; gsub(substr($2, 1, 1), "", only); print $1, only == "" ? length($2) : "mixed" }' | sort)"
check "the two streams stay apart" "out" "$(run -n 1 sh -c 'echo out; echo err >&2' 2>"$work/err")"
check "and both arrive" "err" "$(cat "$work/err")"

check "arguments in no encoding are passed on" "ff fe 0a" "$(run -n 1 printf '%s\n' $'\xff\xfe' | od -An -tx1 | sed 's/^ *//')"
run -genv A $'\xff' true 2>"$work/err"
check "an option's value that is not UTF-8 is refused" "2 1" "$? $(grep -c '^mpiexec: -genv .*not in UTF-8' "$work/err")"

# Output without a reader ends the job.
rm -f "$work/ids"
check "the first line reaches a reader that wants one" y "$({ run -n 2 sh -c "echo \$\$ >>$work/ids; exec yes"; echo $? >"$work/code"; } 2>"$work/err" | head -1)"
until_true 20 '[ -s "$work/code" ]'
check "ends the job" 141 "$(cat "$work/code")"
check "in one line that says why" "mpiexec: nobody reads the output of the ranks any more; ending the job" "$(cat "$work/err")"
check "and all of it" 0 "$(alive "$work/ids")"
rm -f "$work/code"
{ run -n 2 yes; echo $? >"$work/code"; } 2>&1 | head -1 >/dev/null
until_true 20 '[ -s "$work/code" ]'
check "and so it does if its error output has no reader either" 141 "$(cat "$work/code")"

# Unreachable hosts, in every way.
too_late() { # name, expected text, mpiexec's arguments...
    local name=$1 text=$2 start=$SECONDS
    shift 2
    CANELE_CONNECT_TIMEOUT=1 run "$@" true 2>"$work/err"
    check "$name fails the job" 1 $?
    check "in one line that says why" 1 "$(grep -c "$text" "$work/err")"
    check "and no other" 1 "$(wc -l <"$work/err")"
    check "within the connect timeout" yes "$([ $((SECONDS - start)) -le 5 ] && echo yes)"
}
printf '#!/bin/sh\nexec sleep 60\n' >"$work/silent"
printf '#!/bin/sh\n[ $1 = far ] && exec sleep 60\nshift; exec "$@"\n' >"$work/half"
printf '#!/bin/sh\necho "Welcome to this machine"; exec sleep 60\n' >"$work/talkative"
printf '#!/bin/sh\nexec <&- >&-; sleep 60\n' >"$work/closed"
chmod +x "$work/silent" "$work/talkative" "$work/closed" "$work/half"
CANELE_CONNECT_TIMEOUT=soon run true 2>"$work/err"
check "a timeout that is no number is refused" 1 $?
check "and the message says so" "mpiexec: CANELE_CONNECT_TIMEOUT=soon: a number of seconds, such as 90, 90s or 2min, is needed" "$(cat "$work/err")"
too_late "a launcher that is missing" "launcher $work/none for host far: No such file" -n 2 -hosts far -launcher-exec "$work/none"
too_late "a launcher that hangs" "no agent answered on host far within 1 s" -n 2 -hosts far -launcher-exec "$work/silent"
too_late "a launcher that hangs, before many ranks" "no agent answered on host far within 1 s" -genv BALLAST "$(head -c 20000 /dev/zero | tr '\0' x)" -n 64 -hosts far -launcher-exec "$work/silent"
too_late "a launcher that closes its channel" "could not start an agent on host far" -n 2 -hosts far -launcher-exec "$work/closed"
too_late "a login that talks" "something else than an agent answered: .Welcome to this machine" -n 2 -hosts far -launcher-exec "$work/talkative"
too_late "one host of two" "no agent answered on host far within 1 s" -n 2 -hosts localhost:1,far:1 -launcher-exec "$work/half"
printf '#!/bin/sh\nprintf "\\011\\0\\0\\0\\0\\016\\0\\0\\0canele-agent 2"; exec sleep 60\n' >"$work/old"
printf '#!/bin/sh\nshift; exec env -i "$@"\n' >"$work/bare"
chmod +x "$work/old" "$work/bare"
run -hosts far -launcher-exec "$work/old" -n 1 true 2>"$work/err"
check "an agent of another version fails the job" 1 $?
check "and the message says so" "mpiexec: the agent on far is .canele-agent 2., needed is .canele-agent [0-9]*.: install the same version" "$(sed 's/`/./g; s/agent [0-9]*\.:/agent [0-9]*.:/' "$work/err")"
check "variables go to all hosts, but not the location of mpiexec" "x nowhere" "$(A=x CANELE_SITE=here run -hosts far -launcher-exec "$work/bare" -n 1 sh -c 'echo $A ${CANELE_SITE:-nowhere}')"

# Signals.
signalled() { # signal: prints the name of the signal that a rank catches
    rm -f "$work/ids"
    "$mpiexec" -timeout 20 -n 1 sh -c "trap 'echo $1; exit 0' $1; echo \$\$ >$work/ids; while :; do sleep 0.05; done" >"$work/said" 2>/dev/null &
    local job=$!
    until_true 10 '[ -s "$work/ids" ]'
    kill -"$1" $job
    wait $job
    cat "$work/said"
}
check "SIGUSR1 reaches the ranks" USR1 "$(signalled USR1)"
check "SIGUSR2 reaches the ranks" USR2 "$(signalled USR2)"
check "SIGTERM reaches the ranks" TERM "$(signalled TERM)"
rm -f "$work/ids"
"$mpiexec" -timeout 20 -n 1 sh -c "echo \$\$ >$work/ids; until [ -e $work/over ]; do sleep 0.05; done" &
job=$!
until_true 10 '[ -s "$work/ids" ]'
state() { awk '{ print $3 }' "/proc/$1/stat"; }
kill -TSTP $job
until_true 20 '[ "$(state $job)$(state "$(cat "$work/ids")")" = TT ]'
check "SIGTSTP stops mpiexec and the ranks" TT "$(state $job)$(state "$(cat "$work/ids")")"
kill -CONT $job
touch "$work/over"
wait $job
check "and SIGCONT continues both" 0 $?

# Signals that the parent ignores stay ignored, here and in ranks.
held() { # signal: sends it to a job whose parent ignores it, and prints the exit code and the signals that ranks ignore
    rm -f "$work/ids"
    (
        trap '' "$1"
        exec "$mpiexec" -timeout 20 -n 1 sh -c "sed -n 's/SigIgn:[^0-9a-f]*//p' /proc/self/status; echo \$\$ >$work/ids; until [ -e $work/sent ]; do sleep 0.05; done"
    ) >"$work/said" &
    local job=$!
    until_true 10 '[ -s "$work/ids" ]'
    kill -"$1" $job
    touch "$work/sent"
    wait $job
    echo "$? $((0x$(cat "$work/said") >> ($(kill -l "$1") - 1) & 1))"
    rm -f "$work/sent"
}
for one in HUP INT QUIT TERM; do
    check "SIG$one that is ignored does not end a job" "0 1" "$(held $one)"
done

# Jobs on a terminal. Lines that start with "shell" are from the shell.
terminal() { timeout 25 python3 "$(dirname "$0")/terminal.py" "$mpiexec" "$1" 2>&1; }
check "a job in the background of a terminal runs" "done | shell: exit 0" "$(terminal background)"
check "and reads once it is in the foreground" "got word | ready | shell: exit 0 | shell: foreground | shell: read shell" "$(terminal later_foreground)"
check "Ctrl-Z stops a job, and bg and fg continue it" "continued | got word | ready | shell: background (0, 0) | shell: exit 0 | shell: foreground | shell: stopped by SIGSTOP" "$(terminal stopped)"
check "stty tostop stops mpiexec only" "done | shell: exit 0 | shell: stopped by SIGTTOU | tty" "$(terminal tostop)"
check "Ctrl-\\ ends a job" "ready | shell: exit 131" "$(terminal quit_key)"

# Standard streams that are closed, full or of the wrong kind.
streams() { run -n 2 sh -c 'cat; echo x; echo y >&2' 2>"$work/err"; }
check "closed input is empty" "x x " "$(streams <&- | tr '\n' ' ')"
check "and so is input that cannot be read" "x x " "$(streams 0>/dev/null | tr '\n' ' ')"
check "without a message" "y y " "$(tr '\n' ' ' <"$work/err")"
check "a directory as input is told of" "x x  mpiexec: standard input cannot be read: Is a directory (os error 21) y y " "$(streams </ | tr '\n' ' ') $(sort "$work/err" | tr '\n' ' ')"
streams >&-
check "closed output loses nothing else" "0 y y " "$? $(tr '\n' ' ' <"$work/err")"
run -n 2 echo x 2>&- >"$work/said"
check "and closed error output neither" "0 x x " "$? $(tr '\n' ' ' <"$work/said")"
run -n 2 echo x 2>"$work/err" >/dev/full
check "full output fails the job" "1 mpiexec: output of the ranks cannot be written: No space left on device (os error 28)" "$? $(cat "$work/err")"
run -help 2>"$work/err" >/dev/full
check "and the help" "1 mpiexec: standard output cannot be written: No space left on device (os error 28)" "$? $(cat "$work/err")"
run -n 1 echo x 2>"$work/err" 1</dev/null
check "read-only output too" "1 mpiexec: output of the ranks cannot be written: Bad file descriptor (os error 9)" "$? $(cat "$work/err")"
for words in "canele nonsense:2" "canele info --link x,y:1" "canele lab status --name nobody:1" "canele-gateway --listen x:2"; do
    "$1/"${words%:*} 2>/dev/full >/dev/full
    check "${words%:*} does not panic without a reader" "${words#*:}" $?
done
slow() { python3 -c 'import os, sys; os.set_blocking(1, False); os.execv(sys.argv[1], sys.argv[1:])' "$mpiexec" -n 1 seq 200000; }
check "output that does not block gets everything" "$(seq 200000 | md5sum)" "$(slow | (sleep 0.3; md5sum))"

check "the encryption option sets CANELE_ENCRYPT" "all none " "$({ run --encrypt=all -n 1 sh -c 'echo $CANELE_ENCRYPT'; run -encrypt none -n 1 sh -c 'echo $CANELE_ENCRYPT'; } | tr '\n' ' ')"

# A grid: two sites on this machine, each with an agent that starts another.
mkdir -p "$work/north/bin" "$work/south"
printf '#!/bin/sh\necho "$PMI_RANK $CANELE_SITE ${WHERE:-nowhere} $PWD"\n' >"$work/north/bin/app"
sed 's/PMI_RANK/PMI_RANK southern/' "$work/north/bin/app" >"$work/south/app"
chmod +x "$work/north/bin/app" "$work/south/app"
cat >"$work/grid.toml" <<END
[[site]]
name = "north"
hosts = ["one:1", "two"]
slots = 2
launch = "fork"
binaries = "$work/north/bin"
environment = { WHERE = "up there" }
[[site]]
name = "south"
hosts = ["three:1", "four:2"]
launch = "$work/launcher"
spread = "fork"
directory = "$work/south"
END
grid() { run --grid="$work/grid.toml" "$@"; }
here=$(pwd)
check "ranks get the settings of their site" "0 north up there $here;1 north up there $here;2 north up there $here;3 southern south nowhere $work/south;4 southern south nowhere $work/south;5 southern south nowhere $work/south;" \
    "$(grid -n 6 ./app | sort -n | tr '\n' ';')"
check "the command line overrides the grid file" "0 north down /;" "$(grid -genv WHERE down -wdir / -n 1 app | tr '\n' ';')"
check "the launcher is given the first host" "3 three" "$(grid -n 6 sh -c 'echo $LAB_HOST' | grep . | uniq -c | sed 's/^ *//')"
check "each host has an agent, started by the first of its site" "1 1 2 " "$(grid -n 6 sh -c 'echo $PPID $(ps -o ppid= -p $PPID)' | sort -u | awk '{ print $2 }' | sort | uniq -c | awk '{ print $1 }' | sort | tr '\n' ' ')"
check "ranks know their nodes and sites" "0:0 0:0 0:0 0:3 0:3 0:3 0 strangers" "$(grid -n 6 "$work/sites")"
check "input and output pass through two agents" "$(md5sum <"$work/bytes")" "$(grid -n 6 sh -c '[ $PMI_RANK != 0 ] || cat' <"$work/bytes" | md5sum)"
check "a line of 3 MB passes through two agents" "$(sh -c "$long" | md5sum)" "$(grid -n 6 sh -c "[ \$PMI_RANK != 5 ] || $long" | md5sum)"
grid -n 6 sh -c 'exit $((PMI_RANK == 5 ? 9 : 0))' 2>"$work/err"
check "a failure on a far host gives its code" 9 $?
check "is named with host and site" "mpiexec: rank 5 on four of site south: exited with code 9" "$(sed 's/; ending the job//' "$work/err")"
lost() { # rank whose agent is killed, expected text
    rm -f "$work/ids"
    grid -n 6 sh -c "echo \$\$ >>$work/ids; until [ \$(wc -l <$work/ids) -ge 6 ]; do sleep 0.05; done; [ \$PMI_RANK != $1 ] || { kill -9 \$PPID; exec sleep 60; }; sleep 60 & echo \$! >>$work/ids; wait" 2>"$work/err"
    check "a killed agent of rank $1 fails the job" 1 $?
    check "that names host and site" "mpiexec: $2" "$(cat "$work/err")"
    until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
    check "and leaves nothing behind" 0 "$(alive "$work/ids")"
}
# An unreachable agent: its ranks' end is unknown.
rm -f "$work/ids"
run -n 1 -hosts localhost:1,127.0.0.1:1 -launcher fork sh -c "until [ -s $work/ids ]; do sleep 0.05; done; exit 3" : -n 1 sh -c "kill -STOP \$PPID; echo \$PPID >$work/ids; exec sleep 60" 2>"$work/err"
check "an agent that no longer answers leaves the code of the first failure" 3 $?
check "is given up in the end" 1 "$(grep -c 'nothing is heard of the end of 1 ranks on 127.0.0.1' "$work/err")"
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "and ended" 0 "$(alive "$work/ids")"
lost 5 "the agent on host four of site south with 2 ranks is gone (signal: 9 (SIGKILL))"
lost 3 "the agent on host three of site south with 3 ranks is gone (signal: 9 (SIGKILL))"
rm -f "$work/ids"
"$mpiexec" -timeout 20 -grid "$work/grid.toml" -n 6 sh -c "echo \$\$ >>$work/ids; sleep 60 & echo \$! >>$work/ids; wait" &
job=$!
disown
until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 12 ]'
kill -9 $job
until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
check "mpiexec killed leaves nothing behind on any site" "12 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
rm -f "$work/ids"
"$mpiexec" -timeout 20 -grid "$work/grid.toml" -n 6 sh -c "trap 'echo caught; exit 0' USR1; echo \$\$ >>$work/ids; while :; do sleep 0.05; done" >"$work/said" 2>/dev/null &
job=$!
until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 6 ]'
kill -USR1 $job
wait $job
check "signals reach all ranks of all sites" 6 "$(grep -c caught "$work/said")"
sed "s|^spread = .*|spread = \"$work/silent {host}\"|" "$work/grid.toml" >"$work/silent.toml"
too_late "a host below that is silent" "no agent answered on host four of site south within 1 s" -grid "$work/silent.toml" -n 6
sed "s|^spread = .*|spread = \"$work/none\"|" "$work/grid.toml" >"$work/missing.toml"
too_late "a launcher below that is missing" "launcher $work/none for host four of site south: No such file" -grid "$work/missing.toml" -n 6
sed "s|^spread = .*|spread = \"$work/talkative\"|" "$work/grid.toml" >"$work/talks.toml"
too_late "a login below that talks" "on host four of site south something else than an agent answered: .Welcome" -grid "$work/talks.toml" -n 6
sed 's/^slots = 2/slots = two/' "$work/grid.toml" >"$work/wrong.toml"
run -grid "$work/wrong.toml" true 2>"$work/err"
check "a grid file with a mistake is refused" 2 $?
check "names file, line and key" "1 1" "$(grep -c "$work/wrong.toml:4: slots: " "$work/err") $(wc -l <"$work/err")"
grid -hosts a,b true 2>"$work/err"
check "a grid and hosts together are refused" "2 1" "$? $(grep -c 'leave -hosts and -hostfile out' "$work/err")"

# Discovery of a grid.
"$1/canele" grid --hosts one:2,two --launcher-exec "$work/launcher" --save "$work/found.toml" >"$work/said" 2>"$work/err"
check "a grid is found: $(head -1 "$work/err")" 0 $?
check "one machine is one site" "site0  one  two" "$(grep '^site0  one' "$work/said")"
check "which a job can use" "site0 one site0 one site0 two " "$(run -grid "$work/found.toml" -n 3 sh -c 'echo $CANELE_SITE $LAB_HOST' | sort | tr '\n' ' ')"
"$1/canele" grid --hosts one,two --launcher-exec /bin/false 2>"$work/err"
check "a host without an agent" "1 canele grid: the launcher could not start an agent on host one (exit status: 1)" "$? $(sed 's/host two/host one/' "$work/err")"

# A trace of all ranks, on one clock.
"$1/mpicc" -Wall -Werror -O1 "$(dirname "$0")/programs/traced.c" -o "$work/traced" || exit 1
traced() { python3 "$(dirname "$0")/trace.py" "$work/run.json" 2>&1; }
names() { traced | grep '^ranks'; }
facts() { traced | grep -v '^ranks'; }
whole="sent: 0 to 1 5 x 8 1 x 300000
sent: 0 to 2 5 x 8 1 x 300000
calls: MPI_Allreduce 3 MPI_Finalize 3 MPI_Gather 3 MPI_Init 3 MPI_Recv 12 MPI_Send 15
unfinished:
links of rank 0: 1 2
strategies: auto none asked
frames with messages: some lost 0"
run -trace "$work/run.json" -n 3 "$work/traced" 2>"$work/err"
check "a traced job" "0 " "$? $(cat "$work/err")"
check "shows calls and frames of all ranks" "$whole" "$(facts)"
check "by rank and host" "ranks: rank 0 on localhost, rank 1 on localhost, rank 2 on localhost" "$(names)"
run -trace "$work/run.json" -hosts one:2,two:1 -launcher-exec "$work/launcher" -n 3 "$work/traced"
check "of all hosts" "ranks: rank 0 on one, rank 1 on one, rank 2 on two" "$(names)"
grid -trace "$work/run.json" -n 6 "$work/traced"
check "and through agents of agents" "rank 5 on four of site south" "$(names | sed 's/.*, //')"
printf '#!/bin/sh\nhost=$1; shift\n[ $host = far ] || exec "$@"\nexec unshare --time --monotonic 3600 --fork "$@"\n' >"$work/timed"
chmod +x "$work/timed"
if unshare --time --monotonic 3600 --fork true 2>"$work/err"; then
    run -trace "$work/run.json" -genv CANELE_RAILS tcp -hosts near:2,far:1 -launcher-exec "$work/timed" -n 3 "$work/traced"
    check "a host whose clock is an hour ahead is on the same clock" "$whole" "$(facts)"
else
    skip "a clock of another host" "$(head -1 "$work/err")"
fi
run -trace "$work/run.json" -n 3 "$work/traced" and fail 2>"$work/err"
check "a job that fails keeps its code" 134 $?
check "and one line on it" "mpiexec: rank 2 on localhost: was ended by signal 6 (SIGABRT: aborted), as process ID; ending the job" "$(grep '^mpiexec' "$work/err" | sed 's/process [0-9]*/process ID/')"
check "and leaves what was recorded" "unfinished: 0 MPI_Recv 1 MPI_Recv" "$(facts | grep unfinished)"
run -trace "$work/run.json" -hosts localhost:1,127.0.0.1:1 -launcher fork -n 2 sh -c '[ $PMI_RANK = 0 ] || kill -9 $PPID; exec sleep 60' 2>"$work/err"
check "a rank whose agent is lost is missing from the trace" "mpiexec: -trace $work/run.json: the events are missing of rank 1 on 127.0.0.1" "$(grep trace "$work/err")"
check "which is valid" "frames with messages: none lost 0" "$(facts | tail -1)"
check "the layer of calls goes before other preloaded libraries" "libcanele_trace.so:libm.so.6" \
    "$(run -trace "$work/run.json" -genv LD_PRELOAD libm.so.6 -n 1 sh -c 'echo $LD_PRELOAD' | sed 's|.*/lib/||')"
check "a program without MPI leaves a trace without events" "unfinished:" "$(run -trace "$work/run.json" -n 2 true && facts | grep unfinished)"
rm -f "$work/run.json"
run -trace "$work/run.json" -hosts far -launcher-exec "$work/none" true 2>"$work/err"
check "a job that never starts leaves no file" no "$([ -e "$work/run.json" ] && echo yes || echo no)"
run -trace "$work/nowhere/run.json" -n 2 sh -c "touch $work/started" 2>"$work/err"
check "a trace that cannot be written fails the job" 1 $?
check "in one line that says why" "mpiexec: -trace $work/nowhere/run.json: cannot be written: No such file or directory (os error 2)" "$(cat "$work/err")"
check "before it starts" no "$([ -e "$work/started" ] && echo yes || echo no)"

# A profile of all ranks.
shown() { "$1/canele" profile "$work/calls.json" | sed -E 's/[0-9]+\.[0-9]+ (s,|%)/TIME \1/g'; }
grid -profile "$work/calls.json" -n 6 "$work/traced" 2>"$work/err"
check "a profiled job" 0 $?
check "prints a table" "$("$1/canele" profile "$work/calls.json")" "$(grep -v '^mpiexec' "$work/err")"
check "of ranks, hosts and sites" "profile of 6 ranks (hosts: 4, sites: 2): TIME s, TIME % in MPI" "$(shown "$1" | head -1)"
check "with sizes" "MPI_Send by size: ≤ 8 B: 25, ≤ 512 KiB: 5" "$(shown "$1" | grep '^MPI_Send by size')"
run -profile "$work/calls.json" -trace "$work/run.json" -n 3 "$work/traced" 2>"$work/err"
check "a profile and a trace of one job" "$whole" "$(facts)"
check "count the same calls" "MPI_Allreduce MPI_COMM_WORLD 3" "$(shown "$1" | awk '/^MPI_Allreduce +MPI/ { print $1, $2, $3 }')"
run -profile "$work/nowhere/calls.json" -n 2 sh -c "cat '$work/err' >'$work/early'" 2>"$work/err"
check "a profile that cannot be written is no reason to fail" 0 $?
check "and said before the job starts" "mpiexec: -profile $work/nowhere/calls.json: cannot be written: No such file or directory (os error 2); only the table is printed" "$(head -1 "$work/early")"
run -profile "$work/calls.json" -n 2 true 2>"$work/err"
check "a program without MPI has an empty profile" "profile of 2 ranks (hosts: 1, sites: 1): 0.000 s, - in MPI" "$(head -1 "$work/err")"
"$1/canele" profile "$work/run.json" 2>"$work/err"
check "a file that is no profile" "1 1" "$? $(wc -l <"$work/err")"

# The job's secret is known to ranks and written nowhere.
rm -f "$work/secret" "$work/ids"
"$mpiexec" -timeout 20 -grid "$work/grid.toml" -n 6 bash -c "echo cmd=get kvsname=x key=canele-secret >&\$PMI_FD; read -r line <&\$PMI_FD; echo \${line##*value=} >>$work/secret; echo \$\$ >>$work/ids; exec sleep 60" 2>/dev/null &
job=$!
until_true 10 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 6 ]'
secret=$(sort -u "$work/secret")
check "all ranks have one secret" 64 "${#secret}"
processes=$(ls /proc | grep -E '^[0-9]+$')
spilt=$(for id in $processes; do cat "/proc/$id/cmdline" "/proc/$id/environ"; done 2>/dev/null | tr '\0' '\n' | grep -cF "$secret")
check "which is in no command line and no environment" "0 yes" "$spilt $([ "$(echo "$processes" | wc -l)" -gt 12 ] && echo yes)"
kill -TERM $job
wait $job

finish_checks
