#!/usr/bin/env bash
# The test suite: formatting, lints, documentation, unit and scenario tests, then C programs on an
# installed tree, the ABI beside the reference's, and mpiexec as its users know it.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh
export PATH="$PATH:$HOME/.cargo/bin"
# A step that does not end shows what runs, and is ended. A user's interrupt still reaches it.
limit=(timeout --kill-after=30 1860)
[ ! -t 0 ] || limit+=(--foreground)
step() { # name, command
    local name=$1 begun=$SECONDS watch code=0
    shift
    printf '\n== %s\n' "$name"
    (
        trap 'kill $nap' TERM
        # One that outlived this shell would keep nobody waiting who reads the output.
        sleep 1800 >/dev/null 2>&1 & nap=$!
        wait $nap || exit
        echo "$name has not ended after half an hour; what runs:"
        ps -eo pid,ppid,etimes,stat,wchan:24,args --forest | cut -c1-160
    ) &
    watch=$!
    "${limit[@]}" "$@" || code=$?
    kill $watch 2>/dev/null || true
    printf '== %s: %d s\n' "$name" $((SECONDS - begun))
    return $code
}
step formatting cargo fmt --all --check
step "generated files" python3 api/generate.py --check
step lints cargo clippy --workspace --all-targets --locked -- -D warnings
step documentation env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
step "unit and scenario tests" cargo test --workspace --locked
step installation cargo build --release --locked
prefix=$PWD/build/prefix
scripts/install.sh "$prefix"
step "reference for the ABI" scripts/peers.sh mpich==5.0.2
reference=$PWD/build/peers/mpich
step ABI tests/abi.sh "$prefix" "$reference"
step "compiler wrappers, CMake, pkg-config" tests/build.sh "$prefix"
step "C programs" tests/programs.sh "$prefix" "$reference/bin"
step interoperation tests/interoperation.sh "$prefix" "$reference"
step mpiexec tests/launch.sh "$prefix/bin"
step faults tests/faults.sh "$prefix"
step "connections that are reset" tests/resets.sh "$prefix"
step gateways tests/gateway.sh "$prefix"
step "a port scan" tests/scan.sh "$prefix"
step instruments tests/bench.sh "$prefix"
step "what idle ranks cost" tests/costs.sh "$prefix"
step "instructions of a short message" tests/instructions.sh "$prefix"
step mpi4py tests/mpi4py.sh "$prefix" "$PWD/build/mpi4py"
step "the lab" tests/lab.sh "$prefix" "$PWD/build/mpi4py"
step "grids" tests/grid.sh "$prefix"
step "links that are cut" tests/cut.sh "$prefix"
printf '\nall tests passed\n'
