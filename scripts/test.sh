#!/usr/bin/env bash
# The test suite: formatting, lints, documentation, unit and scenario tests, then C programs on an
# installed tree, the ABI beside the reference's, and mpiexec as its users know it.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh --tests
export PATH="$PATH:$HOME/.cargo/bin"
logs=$PWD/build/tests
rm -rf "$logs"
mkdir -p "$logs"
# What a step prints goes to a file, and is shown where it fails. One that does not end shows what runs, and is
# ended. A user's interrupt still reaches it.
limit=(timeout --kill-after=30 1860)
[ ! -t 0 ] || limit+=(--foreground)
passed=0
step() { # name, command
    local name=$1 begun=$SECONDS log watch code=0 count
    log=$logs/${name//[^A-Za-z0-9]/-}.log
    shift
    printf '== %s' "$name"
    (
        trap 'kill $nap' TERM
        # One that outlived this shell would keep nobody waiting who reads the output.
        sleep 1800 >/dev/null 2>&1 & nap=$!
        wait $nap || exit
        echo "$name has not ended after half an hour; what runs:" >>"$log"
        ps --ppid 2 -p 2 -N -o pid,ppid,etimes,stat,wchan:24,args --forest | cut -c1-160 >>"$log"
    ) &
    watch=$!
    "${limit[@]}" "$@" >>"$log" 2>&1 || code=$?
    kill $watch 2>/dev/null || true
    count=$(awk '/^ok |\.\.\. ok$/ { n++ } END { print n + 0 }' "$log")
    passed=$((passed + count))
    printf ': %d s' $((SECONDS - begun))
    [ "$count" = 0 ] || printf ', %d tests passed' "$count"
    echo
    if [ $code != 0 ]; then
        # The first failure first: others may follow from it.
        grep -nE '^FAILED|^error|FAILED$|panicked at|failed$' "$log" | head -20 || true
        echo "-- the end of $log:"
        tail -80 "$log"
        echo "== $name failed ($code)"
    fi
    return $code
}
step formatting cargo fmt --all --check
step "generated files" python3 api/generate.py --check
step "performance document" python3 scripts/performance.py --check
step lints cargo clippy --workspace --all-targets --locked -- -D warnings
step documentation env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
# What earlier jobs on this machine have learned of its links is not these tests' matter.
step "unit and scenario tests" env CANELE_CACHE_DIR="$logs/cache" cargo test --workspace --locked
step installation cargo build --release --locked
prefix=$PWD/build/prefix
scripts/install.sh "$prefix" >"$logs/install.log"
step "reference for the ABI" scripts/peers.sh mpich==5.0.2
reference=$PWD/build/peers/mpich
step ABI tests/abi.sh "$prefix" "$reference"
step "compiler wrappers, CMake, pkg-config" tests/build.sh "$prefix"
step "C programs" tests/programs.sh "$prefix" "$reference/bin"
step interoperation tests/interoperation.sh "$prefix" "$reference"
step mpiexec tests/launch.sh "$prefix/bin"
step "mpiexec over ssh" tests/ssh.sh "$prefix"
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
printf '%d passed, 0 failed\nall tests passed\n' $passed
