#!/usr/bin/env bash
# mpiexec on a grid of two sites of two nodes, described by a file and discovered, by root and without. Also on a grid
# with a private site, through a gateway.
# Usage: grid.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
work=$(mktemp -d)
export CANELE_LAB=g$$
as=()
trap '"${as[@]}" "$canele" lab down; rm -rf "$work"' EXIT

# A copy that another user can read too.
cp -r "$1" "$work/prefix"
for program in sites collectives exchange spawn merged; do "$work/prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$work/$program" || exit 1; done
mkdir "$work/ids" "$work/north" "$work/south" "$work/caches"
canele=$work/prefix/bin/canele mpiexec=$work/prefix/bin/mpiexec
for site in north south; do
    printf '#!/bin/sh\necho "$PMI_RANK %s $(hostname) $CANELE_SITE $WHERE $PWD"\n' $site >"$work/$site/app"
    chmod +x "$work/$site/app"
done
chmod -R a+rX "$work"
chmod 777 "$work/ids" "$work/caches"
run() { timeout 60 "${as[@]}" "$mpiexec" "$@"; }
# Command lines and environments of all processes.
everything() {
    local id
    for id in $(ls /proc | grep -E '^[0-9]+$'); do
        cat "/proc/$id/cmdline" "/proc/$id/environ" 2>/dev/null
    done | tr '\0' '\n'
}
# A job that waits. Its processes are in ids/, one file each.
begin() { # command that each rank runs before
    rm -f "$work"/ids/*
    "${as[@]}" "$mpiexec" -timeout 50 -grid "$work/grid.toml" -n 8 bash -c "$1; echo \$\$ >$work/ids/\$PMI_RANK; exec sleep 50" >"$work/said" 2>"$work/err" &
    job=$!
    until_true 20 '[ "$(cat "$work"/ids/* 2>/dev/null | wc -l)" = 8 ]'
    cat "$work"/ids/* >"$work/all"
}
ended() { # name, code
    wait $job
    check "$1" "$2" $?
    until_true 20 '[ "$(alive "$work/all")" = 0 ]'
    check "and nothing of it runs any more" "8 0" "$(wc -l <"$work/all") $(alive "$work/all")"
}
agent_of() { awk '/^PPid:/ { print $2 }' "/proc/$(cat "$work/ids/$1")/status"; }

whole_grid() { # owner of the caches
    # Other tests have lost packets between hosts of these addresses.
    export CANELE_CACHE_DIR=$work/caches/$1
    # A grid that is up with deviations, on a busy machine, is sufficient.
    timeout 60 "${as[@]}" "$canele" lab up --name "$CANELE_LAB" >/dev/null 2>&1
    "${as[@]}" "$canele" lab grid |
        sed "s|^name = \"site0\"|name = \"north\"\nslots = 2\nbinaries = \"$work/north\"\nenvironment = { WHERE = \"up\" }|
             s|^name = \"site1\"|name = \"south\"\nslots = 2\nbinaries = \"$work/south\"\nenvironment = { WHERE = \"down\" }\ndirectory = \"/usr\"|" >"$work/grid.toml"
    local here
    here=$(pwd)
    check "programs, directories and variables by site" "0 north site0-node0 north up $here
2 north site0-node1 north up $here
4 south site1-node0 south down /usr
6 south site1-node1 south down /usr" "$(run -grid "$work/grid.toml" -n 8 app | sort -n | grep -v '^[1357]')"
    check "ranks know their nodes and sites" "0:0 0:0 2:0 2:0 4:4 4:4 6:4 6:4 0 strangers" "$(run -grid "$work/grid.toml" -genv CANELE_SITE x -n 8 "$work/sites")"
    check "and without names" "0:0 0:0 2:0 2:0 4:4 4:4 6:4 6:4 0 strangers" "$(run -launcher-exec "$canele lab run" -hosts site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2 -n 8 "$work/sites")"
    check "8 ranks on both sites" "collectives on 8 ranks: 0 failures" "$(run -grid "$work/grid.toml" -n 8 "$work/collectives")"
    check "ranks spawn at a site" "child 0 in /usr at south
child 1 in /usr at south
where on 2: 0 failures" "$(run -grid "$work/grid.toml" -n 2 "$work/spawn" where - 2 site south 2>&1 | sort)"
    check "and on free slots of all" "spawn on 5: 0 failures" "$(run -grid "$work/grid.toml" -n 5 "$work/spawn" talk 3 2>&1 | sed 's/talk/spawn/')"
    check "all of MPI works on what they merge" "merged 8, 2 share memory: 0 failures" \
        "$(run -grid "$work/grid.toml" -n 4 "$work/merged" 4 "$work/ids/file" 2>&1)"
    "${as[@]}" "$canele" grid status "$work/grid.toml" >"$work/said" 2>"$work/err"
    check "all hosts answer" "0 2 2" "$? $(grep -cE '^site0-node[01] +north +[0-9.]+ +[1-9]' "$work/said") $(grep -cE '^site1-node[01] +south +[0-9.]+ +[1-9]' "$work/said")"
    sed 's/"site1-node1/"site1-node9/' "$work/grid.toml" >"$work/more.toml"
    "${as[@]}" "$canele" grid status "$work/more.toml" >"$work/said" 2>"$work/err"
    check "all but one that the lab does not have" "1 1 1" \
        "$? $(grep -cE '^site1-node9 +south +no answer: the launcher could not start an agent on host site1-node9 of site south' "$work/said") $(grep -c '^1 of 4 hosts does not answer$' "$work/said")"

    # A firewall between the sites. The losses that a busy machine has shown earlier jobs would put QUIC first.
    for forbidden in udp tcp; do
        CANELE_CACHE_DIR=$work/caches/$forbidden-$1
        "${as[@]}" "$canele" lab set --$forbidden-forbidden >/dev/null
        check "no $forbidden passes between the sites" "collectives on 8 ranks: 0 failures" "$(run -grid "$work/grid.toml" -n 8 "$work/collectives" 2>"$work/err")"
        "${as[@]}" "$canele" lab set --$forbidden-forbidden=false >/dev/null
    done
    # On a busy machine a job may end before a rank has given up TCP: no rank says so then.
    for try in 1 2; do
        grep -q tried "$work/err" && break
        CANELE_CACHE_DIR=$work/caches/tcp-$try-$1
        "${as[@]}" "$canele" lab set --tcp-forbidden >/dev/null
        run -grid "$work/grid.toml" -n 8 "$work/collectives" >/dev/null 2>"$work/err"
        "${as[@]}" "$canele" lab set --tcp-forbidden=false >/dev/null
    done
    check "and the other protocol is found: $(grep -m 1 tried "$work/err")" yes "$(grep -qE '^canele: rank [0-7]: rank [0-7]: tcp: no answer within 1.5 s from .*; quic is tried' "$work/err" && echo yes)"

    # On lossy wide-area paths QUIC goes first. If UDP is blocked, TCP follows after the same time.
    "${as[@]}" "$canele" lab set --loss 1% >/dev/null
    CANELE_CACHE_DIR=$work/caches/lossy-$1
    run -launcher-exec "$canele lab run" -hosts site0-node0:1,site1-node0:1 -n 2 "$work/exchange" 4 0 >/dev/null 2>&1
    "${as[@]}" "$canele" lab set --loss 0 --udp-forbidden >/dev/null
    check "a lossy path that blocks UDP carries the job" "collectives on 8 ranks: 0 failures" "$(run -grid "$work/grid.toml" -n 8 "$work/collectives" 2>"$work/err")"
    "${as[@]}" "$canele" lab set --udp-forbidden=false >/dev/null
    check "is found, too: $(grep -m 1 tried "$work/err")" yes "$(grep -qE '^canele: rank [0-7]: rank [0-7]: quic: no answer within 1.5 s from .*; tcp is tried' "$work/err" && echo yes)"

    # All ranks know the secret. No process has it in its command line or environment.
    begin "echo cmd=get kvsname=x key=canele-secret >&\$PMI_FD; read -r line <&\$PMI_FD; echo \${line##*value=}"
    secret=$(sort -u "$work/said")
    check "all ranks have one secret" 64 "${#secret}"
    everything >"$work/everything"
    check "and no other place has it" "yes 0" "$([ "$(grep -c "^PMI_RANK=" "$work/everything")" -ge 8 ] && echo yes) $(grep -cF "$secret" "$work/everything")"
    rm -f "$work/everything"
    kill -TERM $job
    ended "SIGTERM reaches all ranks" 143

    begin true
    kill -9 "$(agent_of 6)"
    ended "an agent killed below a site's: a failure" 1
    check "that names host and site" "mpiexec: the agent on host site1-node1 of site south with 2 ranks is gone (signal: 9 (SIGKILL))" "$(cat "$work/err")"
    begin true
    kill -9 "$(agent_of 4)"
    ended "a site's agent killed: a failure" 1
    check "that names host and site" "mpiexec: the agent on host site1-node0 of site south with 4 ranks is gone (signal: 9 (SIGKILL))" "$(cat "$work/err")"
    begin true
    kill -9 $job
    ended "mpiexec killed" 137

    # Discovery by measurement, with hosts in any order.
    "${as[@]}" "$canele" grid --hosts site1-node1:2,site0-node0:2,site1-node0:2,site0-node1:2 --launcher-exec "$canele lab run" --save "$work/ids/found.toml" >"$work/said" 2>"$work/err"
    check "a grid is found: $(cat "$work/err")" 0 $?
    check "its sites are those of the lab" "site0  site1-node1  site1-node0
site1  site0-node0  site0-node1" "$(grep '^site.  site' "$work/said")"
    check "and a job runs on it" "collectives on 8 ranks: 0 failures" "$(run -grid "$work/ids/found.toml" -n 8 "$work/collectives")"
    rm -f "$work"/ids/*
    "${as[@]}" "$canele" lab down
}

# Gateway processes of this lab.
gateways() {
    local file
    for file in $(grep -lsa canele-gateway /proc/[0-9]*/cmdline); do
        file=${file%/cmdline}
        if grep -qsa "CANELE_LAB_MARK=$CANELE_LAB-" "$file/environ"; then
            echo "${file#/proc/}"
        fi
    done
}

# A site whose hosts are reachable only through its gateway, which mpiexec starts.
private_site() {
    timeout 60 "${as[@]}" "$canele" lab up --name "$CANELE_LAB" --private 1 >/dev/null 2>&1
    "${as[@]}" "$canele" lab grid | sed 's/^name = "site."/&\nslots = 2/' >"$work/grid.toml"
    check "its gateway could listen" 1 "$("${as[@]}" "$canele" grid status "$work/grid.toml" | grep -cE '^site1-node0 .* can listen at 10.77.1.10$')"
    check "8 ranks communicate through a gateway" "collectives on 8 ranks: 0 failures" "$(run -grid "$work/grid.toml" -n 8 "$work/collectives")"
    "${as[@]}" "$mpiexec" -timeout 50 -grid "$work/grid.toml" -genv EXCHANGE_BEGUN "$work/begun" -n 8 "$work/exchange" 4 0 >"$work/said" 2>"$work/err" &
    job=$!
    until_true 30 '[ -e "$work/begun" ]'
    kill -USR1 "$(gateways)"
    wait $job
    check "a run over it: $(tail -1 "$work/said")" 0 $?
    check "goes through the gateway: $(grep connections "$work/err")" 1 "$(grep -c '^connections: [1-9][0-9]* now' "$work/err")"
    begin "echo cmd=get kvsname=x key=canele-secret >&\$PMI_FD; read -r line <&\$PMI_FD; echo \${line##*value=}"
    secret=$(sort -u "$work/said")
    everything >"$work/everything"
    check "no other place has the secret" "64 1 0" "${#secret} $(gateways | wc -l) $(grep -cF "$secret" "$work/everything")"
    rm -f "$work/everything"
    killed=$(gateways)
    kill -9 "$killed"
    until_true 10 '[ -n "$(gateways)" ] && [ "$(gateways)" != "$killed" ]'
    check "a gateway that was killed is started again" "1 1" "$(gateways | wc -l) $(grep -c 'the gateway on host site1-node0 of site site1 has ended (signal: 9 (SIGKILL)); starting it again' "$work/err")"
    kill -TERM $job
    ended "the job ends" 143
    until_true 20 '[ -z "$(gateways)" ]'
    check "and its gateway" "" "$(gateways)"
    sed -i 's/"10.77.1.10"/"10.99.1.10:7001"/' "$work/grid.toml"
    check "an address of another host is found before" 1 "$("${as[@]}" "$canele" grid status "$work/grid.toml" | grep -cE '^site1-node0 .* cannot run at 10.99.1.10:7001: .*Cannot assign')"
    run -grid "$work/grid.toml" -n 8 "$work/sites" 2>"$work/err"
    check "a gateway that cannot listen fails the job" 1 $?
    check "that is named" "1 1" "$(grep -c '^mpiexec: the gateway on host site1-node0 of site site1 has ended' "$work/err") $(grep -c 'canele-gateway: TCP 10.99.1.10:7001: Cannot assign' "$work/err")"
    "${as[@]}" "$canele" lab down
}

# What the lab writes runs, whatever the lab is like.
every_lab() {
    local options ranks
    for options in "--private 0 --private 1" "--nics 2" "--sites 1 --private 0" "--sites 3 --nodes 1 --pair 0-2=40ms --private 2" \
        "--sites 3 --nics 2 --private 0 --socket-max 64kB --wan-loss 0.1%" "--rtt 0.1ms --wan-rate 10Mbit --lan-rate 100Mbit --wan-buffer 64kB --seed 3"; do
        # shellcheck disable=SC2086
        timeout 60 "${as[@]}" "$canele" lab up --name "$CANELE_LAB" $options >/dev/null 2>&1
        "${as[@]}" "$canele" lab grid >"$work/grid.toml"
        ranks=$(grep -o 'site[0-9]*-node[0-9]*"[],]' "$work/grid.toml" | wc -l)
        check "a lab with $options" "collectives on $ranks ranks: 0 failures" "$(CANELE_CACHE_DIR=$work/caches/every run -grid "$work/grid.toml" -n "$ranks" "$work/collectives" 2>"$work/err")"
        "${as[@]}" "$canele" lab down
    done
}

if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    skip "grids" "this machine permits namespaces neither to root nor to users"
    exit 0
fi
whole_grid own
private_site
every_lab
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR PATH=/usr/bin:/bin)
    if "${as[@]}" unshare -Urn true 2>/dev/null; then
        echo "without root:"
        # The other user may not enter this directory.
        cd "$work" || exit 1
        whole_grid without-root
    else
        skip "a grid without root" "user namespaces are not permitted here"
    fi
fi
finish_checks
