#!/usr/bin/env bash
# Placement of ranks where their traffic is cheap, and by the speeds of hosts: recorded patterns, placements from them, and
# the resulting traffic on the wide area. Two sites of two nodes; bytes are counted at the link. Usage: placement.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
work=$(mktemp -d)
export CANELE_LAB=p$$
canele=$1/bin/canele mpiexec=$1/bin/mpiexec
trap '"$canele" lab down; rm -rf "$work"' EXIT
"$1/bin/mpicc" -Wall -Werror -O1 programs/traffic.c -o "$work/traffic" || exit 1
run() { timeout 120 "$mpiexec" "$@"; }

# Sums of a recorded pattern: messages and bytes by phase, and the greatest number of destinations of a rank.
sums() {
    python3 - "$1" <<'END'
import json, sys
pattern = json.load(open(sys.argv[1]))
for phase in pattern["phases"]:
    if phase["kind"] == "collective-of-all":
        continue
    to = [one for row in phase["rows"] for one in row["to"]]
    print(phase["level"], phase["kind"], sum(one[1] for one in to), sum(one[2] for one in to), max(len(row["to"]) for row in phase["rows"]))
END
}

# On one machine.
run -record "$work/ring.json" -n 6 "$work/traffic" ring plain 1000 7 >"$work/said" 2>"$work/err"
check "a recorded run prints nothing else: $(cat "$work/said")" "0 0" "$? $(wc -l <"$work/err")"
phases="1 point-to-point 48 48000 2
2 point-to-point 36 36000 2"
check "all messages are counted, once, by phases" "$phases" "$(sums "$work/ring.json")"
run -record "$work/long.json" -n 2 "$work/traffic" ring plain 3000000 2 >"$work/said"
check "and long ones" "1 point-to-point 4 12000000 1
2 point-to-point 4 12000000 1" "$(sums "$work/long.json")"
run -record "$work/none.json" -n 2 sh -c 'exit 3' 2>"$work/err"
check "a job that fails" 3 $?
check "reports that nothing is recorded" "1 no" "$(grep -c "^mpiexec: nothing is recorded in $work/none.json: the job has failed" "$work/err") $([ -e "$work/none.json" ] && echo yes || echo no)"
run -record "$work/ring.json" -n 2 true 2>"$work/err"
check "so does one without MPI" "1 1" "$? $(grep -c 'rank 0 has not come to the end of MPI_Finalize' "$work/err")"
check "and what was recorded before stays" "$phases" "$(sums "$work/ring.json")"
run -record "$work/nowhere/x.json" -n 2 true 2>"$work/err"
check "a file that cannot be written" "1 1 1" "$? $(wc -l <"$work/err") $(grep -c 'x.json: cannot be written' "$work/err")"
printf '{"version":9}' >"$work/newer.json"
for mistake in "$work/nowhere.json:cannot be read" "$1/bin/mpiexec:cannot be read" "$work/traffic:cannot be read" "placement.sh:is no recorded pattern" "$work/newer.json:is of version 9" "$work/ring.json:is of 6 ranks, this job has 4"; do
    run -place "${mistake%%:*}" -n 4 true 2>"$work/err"
    check "a mistake is refused in one line: ${mistake#*:}" "2 1 1" "$? $(wc -l <"$work/err") $(grep -cF "${mistake%%:*}: ${mistake#*:}" "$work/err")"
done

# Sites in name only, with ranks dealt round-robin.
for shape in ring stencil; do
    for how in cart graph adjacent edges; do
        said=$(run -n 8 sh -c "CANELE_SITE=s\$((PMI_RANK % 2)) exec $work/traffic $shape $how 1000 3")
        check "reordered: $said" 1 "$(grep -c ': 0 failures' <<<"$said")"
    done
done

if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    skip "placement on the lab" "this machine permits namespaces neither to root nor to users"
    finish_checks
fi

# Sixteen ranks dealt round-robin over the sites.
dealt=site0-node0,site1-node0,site0-node1,site1-node1
# A lab that is up with deviations, on a busy machine, is sufficient.
timeout 60 "$canele" lab up --name "$CANELE_LAB" >/dev/null 2>&1
grid() { run -launcher-exec "$canele lab run" -hosts $dealt -n 16 "$@"; }
carried() { timeout 20 "$canele" lab status --json | python3 -c 'import json, sys; print(sum(link["counts"]["bytes"] for link in json.load(sys.stdin)["links"]))'; }
bytes=8000 rounds=200
# Traffic of a run on the wide-area links, in both directions. Each edge that has to cross carries the same amount in
# both directions. Padding that lets BBR measure a path is not the program's traffic, and is as much as some of these
# runs carry. Another congestion control has none.
crosses() { # name, edges that have to cross, arguments of mpiexec...
    local name=$1 least=$((2 * $2 * bytes * rounds)) before found
    shift 2
    before=$(carried)
    grid -genv CANELE_CONGESTION cubic "$@" >"$work/said" 2>"$work/err"
    check "$name: $(cat "$work/said")" 1 "$(grep -c ': 0 failures' "$work/said")"
    found=$(($(carried) - before))
    # Headers, acknowledgements and encryption come on top.
    check "$name: $least bytes have to cross, $found did" yes "$([ "$found" -ge "$least" ] && [ "$found" -le $((least + least / 6 + 500000)) ] && echo yes)"
}
# Padding that lets BBR measure a path is sent once per pair of hosts, not per pair of ranks, and hardly at all where
# the path is cached. There are four paths between the hosts, and a rank's neighbours are on the other site.
mkdir "$work/paths"
pads() { # name, bytes at most
    local before found
    before=$(carried)
    grid -genv CANELE_CACHE_DIR "$work/paths" "$work/traffic" ring plain 8 50 >"$work/said" 2>"$work/err"
    check "$1: $(cat "$work/said" "$work/err")" 1 "$(grep -c ': 0 failures' "$work/said")"
    found=$(($(carried) - before))
    check "$1, $found bytes of padding and little else" yes "$([ "$found" -le "$2" ] && echo yes)"
}
pads "sixteen ranks without cached paths" 24000000
pads "and where they are remembered" 6000000

# Time of a round of long messages, the best of three runs each, alternating.
compared() { # shape, file
    local trial
    for trial in 1 2 3; do
        grid "$work/traffic" "$1" plain 1048576 15 >>"$work/$1-in-turn" 2>/dev/null
        grid -place "$2" "$work/traffic" "$1" plain 1048576 15 >>"$work/$1-placed" 2>/dev/null
    done
    awk -v shape="$1" '{ ms = $(NF - 3) } !(FILENAME in least) || ms < least[FILENAME] { least[FILENAME] = ms }
        END { a = least[ARGV[1]]; b = least[ARGV[2]]; printf "    %s: rounds of 1 MiB in turn %.1f ms, placed %.1f ms: %.2f\n", shape, a, b, a ? b / a : 0 }' "$work/$1-in-turn" "$work/$1-placed"
}
for shape in ring:2:16 stencil:4:12; do
    IFS=: read -r shape least in_turn <<<"$shape"
    file=$work/$shape.json
    grid -record "$file" "$work/traffic" $shape plain 1000 3 >"$work/said" 2>"$work/err"
    check "$shape is recorded: $(cat "$work/said" "$work/err")" "0 2" "$? $(python3 -c 'import json, sys; print(len({host["site"] for host in json.load(open(sys.argv[1]))["hosts"]}))' "$file")"
    crosses "$shape in turn" $in_turn "$work/traffic" $shape plain $bytes $rounds
    crosses "$shape placed" $least -place "$file" -v "$work/traffic" $shape plain $bytes $rounds
    check "and the prediction is printed: $(cat "$work/err")" 1 "$(grep -c "^mpiexec: 16 ranks on 4 hosts of 2 sites: $((2 * least * 3000)) bytes between sites .* instead of $((2 * in_turn * 3000)) bytes between sites" "$work/err")"
    for how in cart graph adjacent edges; do
        crosses "$shape by its $how" $least "$work/traffic" $shape $how $bytes $rounds
    done
    compared $shape "$file"
done

# A grid file itself states which hosts are near.
"$canele" lab grid >"$work/grid.toml"
run -grid "$work/grid.toml" -place "$work/ring.json" -v -n 16 "$work/traffic" ring plain 1000 3 >"$work/said" 2>"$work/err"
check "on a grid: $(cat "$work/said")" "0 1" "$? $(grep -c "^mpiexec: 16 ranks on 4 hosts of 2 sites: $((2 * 2 * 3000)) bytes between sites and" "$work/err")"
"$canele" lab down

# Two nodes of unequal speed. Ranks are counted by it where no numbers are given.
said=$(timeout 60 "$canele" lab up --name "$CANELE_LAB" --sites 1 --nodes 2 --speed 0.8,0.4 2>&1 >/dev/null)
if grep -q -- '--speed' <<<"$said"; then
    skip "placement by speed" "$said"
    finish_checks
fi
unequal() { run -launcher-exec "$canele lab run" -n 6 "$@" "$work/traffic" ring plain 1000 3 >"$work/said" 2>"$work/err"; }
unequal -record "$work/unequal.json" -hosts site0-node1,site0-node0
check "a ring on unequal hosts is recorded: $(cat "$work/said" "$work/err")" "0 0.5" "$? $(python3 -c 'import json, sys
speeds = {host["host"]: host["speed_percent"] for host in json.load(open(sys.argv[1]))["hosts"]}
print(round(speeds["site0-node1"] / speeds["site0-node0"], 1))' "$work/unequal.json")"
taken() { sed -nE 's/^mpiexec: ranks by the speeds of hosts: site0-node1 takes ([0-9]) \(speed [0-9.]+\), site0-node0 takes ([0-9]) \(speed [0-9.]+\)$/\1 \2/p' "$work/err"; }
placed() { # hosts, expected ranks, what is checked
    unequal -place "$work/unequal.json" -v -hosts "$1"
    check "$3: $(cat "$work/said" "$work/err")" "0 $2" "$? $(taken)"
}
placed site0-node1,site0-node0 "2 4" "a host of half the speed takes half as many ranks"
placed site0-node1:6,site0-node0:6 "0 6" "or none, if the other has slots for all"
placed site0-node1:3,site0-node0:3 "" "or as many as it is given"
"$canele" lab down
finish_checks
