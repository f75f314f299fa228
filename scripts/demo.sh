#!/usr/bin/env bash
# Builds, raises a grid of two sites, compiles an example with our mpicc, and runs it on 8 ranks over both sites.
# Prints a ping-pong: MPI beside raw TCP, within a node, within a site, across the WAN.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh --lab
export PATH="$PATH:$HOME/.cargo/bin"
prefix=$PWD/build/prefix
scripts/build.sh
scripts/install.sh "$prefix"
export PATH="$prefix/bin:$PATH" CANELE_LAB=demo
trap 'canele lab down' EXIT
# A grid that is up with deviations, on a busy machine, has reported them and is sufficient.
canele lab up --name demo || canele lab status >/dev/null
work=$(mktemp -d)
trap 'canele lab down; rm -rf "$work"' EXIT
mpicc -O2 tests/programs/collectives.c -o "$work/collectives"
printf '\n8 ranks on two sites: '
mpiexec -launcher-exec "canele lab run" -n 8 \
    -hosts site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2 "$work/collectives"

for place in shm lan wan; do
    canele bench pingpong --place $place --lab demo --seconds 0.3 --sizes 16,1k,16k,64k,256k,1M,4M \
        --output "$PWD/build/bench/demo"
done
