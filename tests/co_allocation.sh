#!/usr/bin/env bash
# mpiexec -grid on hosts that two Slurms give: together, one after the other, not at all, taken back, and given back in each
# case. Login hosts are reached over ssh, by a private server for each. The Slurms are real if `real` is given, and played
# otherwise. Usage: co_allocation.sh PREFIX [real]
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
. ./slurm_clusters.sh
. ./ssh_server.sh
prefix=$(realpath "$1")
player=$PWD/slurm_player.py
work=$(mktemp -d)
started=()
stop() {
    for id in "${started[@]}"; do kill "$id" 2>/dev/null; done
    for id in "${started[@]}"; do wait "$id" 2>/dev/null; done
    rm -rf "$work"
}
trap stop EXIT
chmod 755 "$work"
# The login host of a site, with what its Slurm needs: as a command that takes the host's name, and over ssh.
login() { # site, variables
    printf '#!/bin/sh\nexport %s\nshift\nexec "$@"\n' "$2" >"$work/$1-login"
    chmod +x "$work/$1-login"
    [ "${sshd:-}" ] || return
    start_ssh_server "$1" "SetEnv $2" || exit 1
    printf '%s\n' "Host $1-login" "  HostKeyAlias $1" "  Port $port" "  IdentityFile $work/key" >>"$work/ssh"
}
has_ssh "login hosts over ssh"
if [ "${2:-}" = real ]; then
    has_slurm "co-allocation on Slurm" || exit 0
    start_munge
    for site in north south; do
        start_cluster $site ${site:0:1}
        login $site "SLURM_CONF=$work/$site/slurm.conf"
    done
    for site in north south; do await_cluster $site "co-allocation on Slurm" || exit 0; done
else
    for site in north south; do
        mkdir -p "$work/$site" "$work/bin"
        login $site "PLAYED_SLURM=$work/$site PATH=$work/bin:$PATH"
    done
    for program in salloc squeue scancel scontrol srun; do ln -s "$player" "$work/bin/$program"; done
fi
at() { # site, command: at its login host
    "$work/$1-login" login "${@:2}"
}
if [ "$sshd" ]; then
    launch="ssh -F $work/ssh"
    cat >>"$work/ssh" <<X
Host refused
  Port 1
Host north-login south-login keyless refused
  HostName 127.0.0.1
Host keyless
  HostKeyAlias south
  Port $port
  IdentityFile $work/none
Host *
  BatchMode yes
$own_ssh
X
    if ! timeout 20 $launch south-login true 2>"$work/err"; then
        skip "login hosts over ssh" "this user cannot log in by a server of its own: $(tail -n 1 "$work/err")"
        sshd=
    fi
fi
launch() { # site
    [ "$sshd" ] && echo "$launch" || echo "$work/$1-login"
}
jobs_of() { # site: names of the jobs there
    at "$1" squeue --noheader --format=%j | paste -sd' '
}
nobody() { # name: no job is left, at no site
    until_true 20 '[ -z "$(jobs_of north)$(jobs_of south)" ]'
    check "$1: nothing is left" "" "$(jobs_of north)$(jobs_of south)"
}
grid() { # a file, options of the south
    for site in north south; do
        printf '[[site]]\nname = "%s"\nlaunch = "%s"\nlogin = "%s"\nslurm = "-N 2 --ntasks-per-node=2 %s"\n' $site "$(launch $site)" $site-login "$([ $site = north ] || echo "$2")"
    done >"$1"
}
grid "$work/grid" "-t 5"
grid "$work/refused" "-p nowhere"
# Holds all nodes of the south until its input ends.
occupy() {
    mkfifo "$work/hold"
    at south salloc -N 2 --exclusive --job-name=blocker cat <"$work/hold" >/dev/null 2>"$work/blocker" &
    blocker=$!
    started+=($blocker)
    exec 8>"$work/hold"
    until_true 20 'at south squeue --noheader --format="%T %j" | grep -q "RUNNING blocker"'
}
release() {
    exec 8>&-
    rm -f "$work/hold"
    wait $blocker
}
mpiexec=$prefix/bin/mpiexec
export CANELE_CACHE_DIR=$work/cache
said_lines() { # number of lines of mpiexec, without those for somebody who waits
    grep '^mpiexec: ' "$work/err" | grep -vcE '^mpiexec: (waiting for Slurm at .*\)|waiting for Slurm at sites? [a-z, ]*|Slurm has given .*)$'
}
run() { timeout 60 "$mpiexec" "$@" 8>&- 2>"$work/err"; }
begin() { # words of mpiexec, in the background, where neither keys nor the end of this shell reach it
    env --default-signal=INT,QUIT "$mpiexec" "$@" >"$work/said" 2>"$work/err" 8>&- &
    job=$!
}
"$prefix/bin/mpicc" -O1 programs/total.c -o "$work/total" || exit 1

where='echo $CANELE_SITE:$SLURMD_NODENAME:$PMI_RANK/$PMI_SIZE'
check "both sites give hosts" "north:n1:0/8 north:n1:1/8 north:n2:2/8 north:n2:3/8 south:s1:4/8 south:s1:5/8 south:s2:6/8 south:s2:7/8" \
    "$(run -grid "$work/grid" sh -c "$where" | sort -t: -k3n | paste -sd' ')"
nobody "a job that has ended"
check "an MPI program over both" "28 28 28 28 28 28 28 28" "$(run -grid "$work/grid" "$work/total" | paste -sd' ')"
check "fewer ranks" "3 3 3" "$(run -grid "$work/grid" -n 3 "$work/total" | paste -sd' ')"
check "more on each host" "66" "$(run -grid "$work/grid" -ppn 3 -n 12 "$work/total" | sort -u)"
run -grid "$work/grid" sh -c 'test $PMI_RANK != 7 || exit 7; sleep 50'
check "an exit code" 7 $?
nobody "a job that has failed"

# One site waits.
occupy
begin -grid "$work/grid" "$work/total"
until_true 30 'grep -q "site south (job [0-9]*: PENDING, " "$work/err"'
check "who waits is told, with the state of the queue" 1 "$(grep -cE '^mpiexec: waiting for Slurm at site south \(job [0-9]+: PENDING, (Resources|Priority)' "$work/err")"
check "while the other site holds its hosts" 1 "$(jobs_of north | grep -c canele-)"
release
wait $job
check "and the job starts when all are there" "0 8" "$? $(grep -c '^28$' "$work/said")"
check "which is told" 1 "$(grep -c 'Slurm has given the hosts of all 2 sites' "$work/err")"
nobody "after a wait"

declare -A code=([INT]=130 [KILL]=137)
occupy
run -grid "$work/grid" -wait 2 "$work/total"
check "a wait that is too long" 1 $?
check "names the site" 1 "$(grep -cE 'mpiexec: waiting for Slurm at site south( \(job [0-9]+.*\))? after 2 s \(-wait\); all hosts are given back' "$work/err")"
until_true 20 '[ "$(jobs_of north)$(jobs_of south)" = blocker ]'
check "and cancels its request" "blocker" "$(jobs_of north)$(jobs_of south)"
for signal in INT KILL; do
    begin -grid "$work/grid" "$work/total"
    until_true 30 '[[ $(jobs_of south) == *canele-* ]] && [[ $(jobs_of north) == *canele-* ]]'
    kill -$signal $job
    wait $job 2>/dev/null
    check "SIG$signal while a site waits" "SIG$signal ${code[$signal]}" "SIG$signal $?"
    until_true 20 '[ "$(jobs_of north)$(jobs_of south)" = blocker ]'
    check "leaves nothing" "blocker" "$(jobs_of north)$(jobs_of south)"
done
release

for signal in INT KILL; do
    rm -f "$work"/id-*
    begin -grid "$work/grid" sh -c "echo \$\$ >$work/id-\$PMI_RANK; exec sleep 50"
    until_true 30 '[ "$(cat "$work"/id-* 2>/dev/null | wc -l)" = 8 ]'
    cat "$work"/id-* >"$work/ids"
    kill -$signal $job
    wait $job 2>/dev/null
    check "SIG$signal while the job runs" "SIG$signal ${code[$signal]}" "SIG$signal $?"
    nobody "SIG$signal"
    until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
    check "nor a rank" "8 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
done

# Slurm takes back what it has given.
number() { # site: of the job there
    at "$1" squeue --noheader --format=%i
}
sleeps() { # begins a job of eight ranks that sleep
    rm -f "$work"/id-*
    begin -grid "$work/grid" sh -c "echo \$\$ >$work/id-\$PMI_RANK; exec sleep 100"
    until_true 30 '[ "$(cat "$work"/id-* 2>/dev/null | wc -l)" = 8 ]'
    cat "$work"/id-* >"$work/ids"
}
ended() { # name, site, reason: the job has ended for it, and only the one line says so
    wait $job
    check "$1 ends the job" 1 $?
    check "and the line names site, allocation and reason" "1 1" \
        "$(grep -c "^mpiexec: site $2: Slurm has ended allocation $taken: $3.*; ending the job$" "$work/err") $(said_lines)"
    nobody "$1"
    until_true 20 '[ "$(alive "$work/ids")" = 0 ]'
    check "nor a rank" "8 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
}
sleeps
taken=$(number south)
at south scancel "$taken"
ended scancel south 'it was cancelled (scancel)'
sleeps
taken=$(number north)
# The real one looks every 30 s.
at north scontrol update "jobid=$taken" endtime=now
ended "a time limit" north 'its time limit of [0-9:]* is over; give more with -t in `slurm` of the grid file'
occupy
begin -grid "$work/grid" "$work/total"
until_true 30 'grep -q "site south (job [0-9]*: PENDING, " "$work/err"'
taken=$(number north)
at north scancel "$taken"
wait $job
check "hosts that are taken back while another site waits" "1 1" "$? $(grep -c "^mpiexec: site north: Slurm has ended allocation $taken: it was cancelled.*; all hosts are given back$" "$work/err")"
release
nobody "a wait whose hosts are gone"

# Sites that give nothing, and login hosts that are not reached.
run -grid "$work/refused" "$work/total"
check "a partition that does not exist" "1 1" "$? $(grep -ciE 'mpiexec: site south: no hosts from Slurm: .*partition.*; all hosts are given back$' "$work/err")"
nobody "a refusal"
printf '#!/bin/sh\nexport PATH=/nowhere\nshift\nexec "$@"\n' >"$work/nowhere-login"
chmod +x "$work/nowhere-login"
south() { # a grid, launcher and login host of the south
    awk -v launch="$2" -v login="$3" '/^name/ { south = /south/ } south && /^launch/ { $0 = "launch = \"" launch "\"" }
        south && /^login/ { $0 = "login = \"" login "\"" } { print }' "$work/grid" >"$1"
}
south "$work/missing" "$work/nowhere-login" south-login
run -grid "$work/missing" "$work/total"
check "a host without Slurm" "1 1" "$? $(grep -c 'mpiexec: site south: no hosts from Slurm: no salloc in the PATH of its agent' "$work/err")"
unreached() { # name, reason in the line
    check "$1" "1 1" "$? $(grep -c "^mpiexec: .*$2.*; all hosts are given back$" "$work/err")"
    check "in one line" 1 "$(said_lines)"
    nobody "$1"
}
south "$work/silent" false south-login
run -grid "$work/silent" "$work/total"
unreached "a launcher that fails" "could not start an agent on host south-login of site south"
printf '#!/bin/sh\nexec sleep 100\n' >"$work/asleep"
chmod +x "$work/asleep"
south "$work/silent" "$work/asleep" south-login
CANELE_CONNECT_TIMEOUT=2 run -grid "$work/silent" "$work/total"
unreached "a login host that does not answer" "no agent answered on host south-login of site south within 2 s"
if [ "$sshd" ]; then
    for host in refused keyless nowhere.invalid; do
        south "$work/silent" "$launch" $host
        run -grid "$work/silent" "$work/total"
        unreached "login host $host" "could not start an agent on host $host of site south .*: \`$launch $host true\` has to work without a question"
    done
    # The connection to a login host breaks.
    sleeps
    taken=$(number north)
    kill "$(ps --ppid $job -o pid=,args= | awk '/north-login/ && !/srun/ { print $1 }')"
    wait $job
    check "a login host that is lost ends the job" "1 1" "$? $(grep -c "^mpiexec: the agent on host north-login of site north is gone (.*); it held allocation $taken of Slurm; ending the job$" "$work/err")"
    nobody "a login host that is lost"
fi
printf '[[site]]\nname = "here"\nhosts = ["localhost"]\n' >"$work/plain"
run -grid "$work/plain" -wait 5 true
check "-wait without Slurm is a mistake" "2 1" "$? $(grep -c 'mpiexec: -wait: no site' "$work/err")"
"$prefix/bin/canele" grid status "$work/grid" >"$work/said"
check "canele grid status asks the login hosts" "0 2" "$? $(grep -cE '^(north|south)-login .* requests hosts from slurm' "$work/said")"
finish_checks
