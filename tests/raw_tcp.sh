#!/usr/bin/env bash
# Raw TCP, beside which Canele is measured, has the rate that iperf3 has over the same link of the lab: both are run in
# turn, and the best of three rates are within 5 %. Usage: raw_tcp.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
canele=$1/bin/canele
if ! command -v iperf3 >/dev/null; then
    skip "raw TCP beside iperf3" "iperf3 is not installed"
    finish_checks
fi
if ! unshare -n true 2>/dev/null && ! unshare -Urn true 2>/dev/null; then
    skip "raw TCP beside iperf3" "this machine permits namespaces neither to root nor to users"
    finish_checks
fi
work=$(mktemp -d)
chmod 755 "$work"
export CANELE_LAB=r$$
trap '"$canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
cc -O2 -std=gnu11 -o "$work/tcp" ../bench/tcp.c -lm || exit 1
timeout 100 "$canele" lab up --name "$CANELE_LAB" --nodes 1 >"$work/up" 2>&1
sed 's/^/    /' "$work/up"
node() { "$canele" lab run "$@"; }

# Mb/s of the payload in one stream: long transfers one way, each with an answer of a byte.
raw_tcp() {
    local port
    rm -f "$work/port"
    node site1-node0 "$work/tcp" serve 1 >"$work/port" &
    until_true 10 '[ -s "$work/port" ]'
    read -r port <"$work/port"
    node site0-node0 "$work/tcp" onesided 10.77.1.10 "$port" 1 1 67108864 >"$work/said" || return
    python3 - "$work/said" <<'EOF'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
us = next(row["median_us"] for row in rows if row.get("operation") == "put")
print(round(67108864 * 8 / us, 1))
EOF
}
iperf() {
    node site1-node0 iperf3 -s -1 -p 5301 >/dev/null 2>&1 &
    until_true 10 'node site0-node0 iperf3 -c 10.77.1.10 -p 5301 -t 6 -O 1 -J >"$work/said" 2>/dev/null'
    python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["end"]["sum_received"]["bits_per_second"] / 1e6, 1))' "$work/said"
}
ours=() theirs=()
for _ in 1 2 3; do
    theirs+=("$(iperf)")
    ours+=("$(raw_tcp)")
done
# Other load only slows them.
best() { printf '%s\n' "$@" | sort -n | tail -n1; }
ratio=$(awk -v ours="$(best "${ours[@]}")" -v theirs="$(best "${theirs[@]}")" 'BEGIN { print (theirs > 0 ? ours / theirs : 0) }')
check "raw TCP has the rate of iperf3, in Mb/s ${ours[*]} beside ${theirs[*]}: ratio $ratio" yes "$(awk -v ratio="$ratio" 'BEGIN { if (ratio > 0.95 && ratio < 1.05) print "yes" }')"
finish_checks
