#!/usr/bin/env bash
# The test suite: formatting, lints, documentation, unit and scenario tests, then C programs on an installed tree, the
# ABI beside the reference's, and mpiexec as its users know it. Steps that mostly wait run beside steps that compile;
# instructions are counted alone. The last line gives the number of tests that passed, failed and were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh --tests
export PATH="$PATH:$HOME/.cargo/bin"
logs=$PWD/build/tests
prefix=$PWD/build/prefix
reference=$PWD/build/peers/mpich
rm -rf "$logs"
mkdir -p "$logs"

# Runs a command as a step. Its output goes to a log; at its end it prints one line, and a line for each skip. A step
# that takes longer than its budget says so, and still passes. One that fails shows the end of its log, and no other
# step begins. One that does not end within half an hour writes what runs to its log, and is ended.
step() { # budget in seconds, name, command
    local budget=$1 name=$2 begun=$SECONDS cpu_s before_s log watch run code=0
    log=$logs/${name//[^A-Za-z0-9]/-}.log
    shift 2
    [ ! -e "$logs/failed" ] || exit 1
    read_cpu
    before_s=$cpu_s
    (
        trap 'kill $nap' TERM
        # A sleep that outlives this shell must not hold its output open.
        sleep 1800 >/dev/null 2>&1 & nap=$!
        wait $nap || exit
        echo "$name has not ended after half an hour; what runs:" >>"$log"
        ps --ppid 2 -p 2 -N -o pid,ppid,etimes,stat,wchan:24,args --forest | cut -c1-160 >>"$log"
    ) &
    watch=$!
    # A shell's background jobs ignore SIGINT, and so would all that they start.
    CANELE_SKIP_LOG=$log env --default-signal=INT,QUIT timeout --kill-after=30 1860 "$@" >>"$log" 2>&1 </dev/null &
    run=$!
    trap 'kill $run $watch 2>/dev/null; exit 143' INT TERM
    wait $run || code=$?
    trap - INT TERM
    kill $watch 2>/dev/null || true
    read_cpu
    [ $code = 0 ] || echo "$name" >>"$logs/failed"
    { flock 9; report; } 9>>"$logs/lock"
    return $code
}
# Sets cpu_s to the CPU seconds of this shell's children that have ended, with theirs.
read_cpu() {
    local file=$logs/times-$BASHPID
    times >"$file"
    cpu_s=$(awk -F'[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
}
# Prints how a step went, and notes its numbers of tests; uses the variables of `step`.
report() {
    local passed skipped took=$((SECONDS - begun))
    passed=$(grep -cE '^ok |\.\.\. ok$' "$log" || true)
    skipped=$(grep -c '^skip ' "$log" || true)
    echo "$passed $skipped" >>"$logs/counts"
    printf '== %s: %d s, %d of CPU' "$name" $took $((cpu_s - before_s))
    [ "$passed" = 0 ] || printf ', %d tests passed' "$passed"
    [ "$skipped" = 0 ] || printf ', %d skipped' "$skipped"
    [ $took -le "$budget" ] || printf ', over its budget of %d s' "$budget"
    echo
    grep '^skip ' "$log" | sed 's/^/   /' || true
    [ $code != 0 ] || return 0
    # The first failure first: others may follow from it.
    grep -nE '^FAILED|^error|FAILED$|panicked at|failed$' "$log" | head -20 || true
    echo "-- the end of $log:"
    tail -80 "$log"
    echo "== $name failed ($code)"
}
# Runs groups of steps at the same time, each a function; ends when all have ended.
side_by_side() { # functions
    local group id groups=() code=0
    for group in "$@"; do
        "$group" &
        groups+=($!)
    done
    trap 'kill "${groups[@]}" 2>/dev/null; wait; exit 143' INT TERM
    for id in "${groups[@]}"; do wait "$id" || code=$?; done
    trap - INT TERM
    return $code
}

sources() {
    step 10 formatting cargo fmt --all --check
    step 5 "generated files" python3 api/generate.py --check
    step 5 "performance document" python3 scripts/performance.py --check
    step 5 "plain text" python3 tests/text.py
    step 5 "crate graph" python3 tests/graph.py
}
# The release build comes first where both want a core, since steps that wait follow it.
unit_tests() {
    step 300 lints nice cargo clippy --workspace --all-targets --locked -- -D warnings
    step 60 documentation env RUSTDOCFLAGS="-D warnings" nice cargo doc --workspace --no-deps --locked --quiet
    step 500 "build of the unit tests" nice cargo test --workspace --locked --no-run
    # What earlier jobs on this machine have learned of its links is not these tests' matter.
    step 400 "unit and scenario tests" env CANELE_CACHE_DIR="$logs/cache" scripts/unit_tests.py
}
installation() {
    scripts/build.sh && scripts/install.sh "$prefix"
}
export -f installation
export prefix
# Steps on the installed tree. Each of three lines of them waits for most of its time: for timeouts, delays of links,
# hosts that do not answer. Where one waits, another computes.
installed() {
    step 600 installation bash -c installation
    step 60 "reference for the ABI" scripts/peers.sh mpich==5.0.2
    side_by_side sites processes programs
}
sites() {
    step 120 mpi4py tests/mpi4py.sh "$prefix" "$PWD/build/mpi4py"
    step 40 "fast networks" tests/fabric.sh "$prefix" "$PWD/build/mpi4py"
    step 300 "the lab" tests/lab.sh "$prefix" "$PWD/build/mpi4py"
}
processes() {
    step 20 "installing and removing" tests/install.sh
    step 20 "the user's shell" tests/shell.sh "$prefix"
    step 60 "poor surroundings" tests/surroundings.sh "$prefix"
    step 60 packages tests/packages.sh
    step 10 ABI tests/abi.sh "$prefix" "$reference"
    step 40 "MPICH's ABI" tests/mpich_abi.sh "$prefix" "$reference"
    step 40 "Fortran programs" tests/fortran.sh "$prefix" "$reference"
    step 20 "compiler wrappers, CMake, pkg-config" tests/build.sh "$prefix"
    step 10 interoperation tests/interoperation.sh "$prefix" "$reference"
    step 10 PMIx tests/pmix.sh "$prefix"
    step 60 mpiexec tests/launch.sh "$prefix/bin"
    step 60 "ranks that spawn" tests/spawn.sh "$prefix"
    step 30 "options of mpiexec" tests/options.sh "$prefix/bin"
    step 60 "jobs that hang" tests/hang.sh "$prefix"
    step 60 "the load of jobs" tests/top.sh "$prefix"
    step 20 "the state of a grid" tests/grid_status.sh "$prefix"
    step 60 "hosts of two Slurms" tests/co_allocation.sh "$prefix"
    step 60 "buffers in devices" tests/devices.sh "$prefix"
    step 60 "mpiexec over ssh" tests/ssh.sh "$prefix"
    step 30 "connections that are reset" tests/resets.sh "$prefix"
    step 120 gateways tests/gateway.sh "$prefix"
    step 20 "a port scan" tests/scan.sh "$prefix"
    step 150 faults tests/faults.sh "$prefix"
    step 30 "ranks that fail" tests/ulfm.sh "$prefix"
    step 60 files tests/files.sh "$prefix"
    step 60 "jobs that meet" tests/ports.sh "$prefix"
    step 60 "what idle ranks cost" tests/costs.sh "$prefix"
}
programs() {
    step 250 "C programs" tests/programs.sh "$prefix" "$reference/bin"
    step 120 instruments tests/bench.sh "$prefix"
    step 120 "links that are cut" tests/cut.sh "$prefix"
    step 120 grids tests/grid.sh "$prefix"
}
sources
side_by_side unit_tests installed
step 30 "cores taken and given back" tests/cores.sh "$prefix"
step 30 "instructions of a short message" tests/instructions.sh "$prefix"
read -r passed skipped <<<"$(awk '{ passed += $1; skipped += $2 } END { print passed, skipped }' "$logs/counts")"
printf '%d s in all\n%d passed, 0 failed, %d skipped\n' $SECONDS "$passed" "$skipped"
