#!/usr/bin/env bash
# Builds, raises a grid of two sites, compiles an example with our mpicc, runs it on 8 ranks over both
# sites, and prints a ping-pong: MPI beside raw TCP, within a node, within a site, across the WAN.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh
export PATH="$PATH:$HOME/.cargo/bin"
prefix=$PWD/build/prefix
cargo build --release --locked
scripts/install.sh "$prefix"
export PATH="$prefix/bin:$PATH" CANELE_LAB=demo
trap 'canele lab down' EXIT
canele lab up --name demo
work=$(mktemp -d)
trap 'canele lab down; rm -rf "$work"' EXIT
mpicc -O2 bench/pingpong.c -o "$work/pingpong"
mpicc -O2 tests/programs/collectives.c -o "$work/collectives"
cc -O2 bench/tcp_pingpong.c -o "$work/tcp_pingpong"
grid() { mpiexec -launcher-exec "canele lab exec" "$@"; }

printf '\n8 ranks on two sites: '
grid -n 8 -hosts site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2 "$work/collectives"

sizes="16 1024 16384 65536 262144 1048576 4194304"
mpi() { # place, hosts
    grid -n 2 -hosts "$2" "$work/pingpong" 0.3 $sizes >"$work/mpi.$1"
}
tcp() { # place, from, to, address
    canele lab exec "$3" "$work/tcp_pingpong" serve &
    server=$!
    canele lab exec "$2" "$work/tcp_pingpong" "$4" 0.3 $sizes >"$work/tcp.$1"
    wait $server
}
printf '\nhalf a round trip in µs (median), and the bandwidth that makes\n'
mpi node site0-node0:2
mpi site site0-node0:1,site0-node1:1
tcp site site0-node0 site0-node1 10.77.0.11
mpi wan site0-node0:1,site1-node0:1
tcp wan site0-node0 site1-node0 10.77.1.10
python3 bench/table.py "$work"
