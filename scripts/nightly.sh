#!/usr/bin/env bash
# What takes too long, or needs too much, to run with every change: sanitizers, deep models, new seeds,
# memcheck, and what happens to a wide area. A table at the end says how each step ended; a step that cannot run here says why.
# Usage: nightly.sh [STEP...] (address, thread, models, seeds, exchange, windows, memcheck, trouble, raw_tcp, placement, slurm, hour,
# aarch64, reproducible; all by default)
# SOAK_S: for how many seconds each of `seeds` and `exchange` runs, 300 by default.
# Address and thread sanitizers need a nightly Rust: rustup toolchain install nightly --profile minimal -c rust-src
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
logs=$PWD/build/nightly
mkdir -p "$logs"
soak_s=${SOAK_S:-300}
host=x86_64-unknown-linux-gnu aarch64=aarch64-unknown-linux-gnu
target=${CARGO_TARGET_DIR:-$PWD/target}
table=()
failed=no

step() { # name, what it does, most seconds, command...: runs it, and shows the log's end if it fails
    local name=$1 what=$2 most_s=$3 begin=$SECONDS code=0 result
    shift 3
    printf '\n== %s: %s (at most %s s; %s)\n' "$name" "$what" "$most_s" "build/nightly/$name.log"
    timeout --kill-after=20 "$most_s" scripts/nightly.sh --within "$@" >"$logs/$name.log" 2>&1 || code=$?
    case $code in
        0) result=passed ;;
        124 | 137) result="FAILED: not done after $most_s s" ;;
        *) result="FAILED with $code" ;;
    esac
    if [ "$code" != 0 ]; then
        failed=yes
        grep -nE 'SUMMARY|ERROR SUMMARY|panicked|runs it alone|FAILED|failures|^error' "$logs/$name.log" | head -40
        tail -20 "$logs/$name.log"
    fi
    echo "$name: $result"
    table+=("$(printf '%-10s %6s s  %s' "$name" $((SECONDS - begin)) "$result")")
}

skip() { # name, why
    printf '\n== %s: skipped: %s\n' "$1" "$2"
    table+=("$(printf '%-10s %6s    skipped: %s' "$1" - "$2")")
}

# Why a sanitizer cannot run here; nothing if it can.
obstacle() { # runtime
    [ "$(uname -m)" = x86_64 ] || { echo "the recipe knows $host only, not $(uname -m)"; return; }
    command -v rustup >/dev/null || { echo "rustup is missing, which would bring a nightly Rust"; return; }
    rustc +nightly --version >/dev/null 2>&1 || { echo "no nightly Rust: rustup toolchain install nightly --profile minimal"; return; }
    [ -e "$(rustc +nightly --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.$1.a" ] || echo "this nightly Rust has no runtime for it ($1)"
}

# The tests of the crates that move data, built with a sanitizer. The models run elsewhere: loom
# switches stacks in ways that sanitizers do not know, and runs everything on one thread.
sanitized() { # sanitizer, more for cargo...
    local name=$1
    shift
    # Other tests of rma have several processes in one, which sockets order: the thread sanitizer does not see that.
    if [ "$name" = thread ]; then
        CARGO_TARGET_DIR=$target/nightly-$name RUSTFLAGS=-Zsanitizer=$name cargo +nightly test "$@" --target $host -p rma --test windows -- threads_share_a_window || return
    else
        set -- "$@" -p rma
    fi
    CARGO_TARGET_DIR=$target/nightly-$name RUSTFLAGS=-Zsanitizer=$name cargo +nightly test "$@" --target $host --lib --tests --no-fail-fast \
        -p memory -p wire -p engine -p datatype -p rail -p rail-shm -p rail-tcp -p rail-quic -p auth -p netpath -p relay -p lock -p progress -p partitioned -p mpi -- --skip model::
}

# Ten times as many cases as in the test suite, with other seeds, another million every day, until the time is over.
seeds() {
    local end first=$(($(date +%s) / 86400 * 1000000))
    export CANELE_TEST_BUDGET=10 PROPTEST_CASES=2000
    cargo test --locked --no-run -p wire -p engine -p rma -p partitioned -p agree -p connect -p datatype -p rail-tcp -p rail-quic -p auth -p relay -p plan -p progress -p mad || return
    # 100 000 networks take a minute.
    CANELE_TEST_BUDGET=50 CANELE_SEED=$first+ cargo test --locked --no-fail-fast -p connect || return
    # 100 000 programs on windows, over links that are cut or not, take ten minutes.
    CANELE_TEST_BUDGET=220 CANELE_SEED=$first+ cargo test --locked --no-fail-fast -p rma --test scenarios -- operations_happen a_rank_that_ends || return
    end=$((SECONDS + soak_s))
    while
        echo "seeds from $first"
        CANELE_SEED=$first+ cargo test --locked --no-fail-fast -p wire -p engine -p rma -p partitioned -p agree -p datatype -p plan || return
        CANELE_SEED=$first+ cargo test --locked --no-fail-fast -p progress -p mad --test it -- take_over:: revoke:: messages:: || return
        CANELE_SEED=$first+ cargo test --locked --no-fail-fast -p progress --test stress || return
        cargo test --locked -p rail-tcp -p auth -p relay --lib || return
        CANELE_SEED=$first+ cargo test --locked -p rail-quic --lib -- hostile_tests:: || return
        first=$((first + 20000))
        [ $SECONDS -lt $end ]
    do :; done
}

models() {
    export LOOM_MAX_PREEMPTIONS=5
    cargo test --locked -p rail-shm -p rma -p partitioned --lib -- loom_model && cargo test --locked -p lock --lib -- model:: || return
    LOOM_MAX_PREEMPTIONS=4 cargo test --locked -p progress --lib -- poller::loom_model || return
    LOOM_MAX_PREEMPTIONS=3 cargo test --locked -p progress --lib -- progress_thread::loom_model
}

# An installed tree, and the C programs in $work.
programs() {
    prefix=$PWD/build/prefix work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    scripts/build.sh && scripts/install.sh "$prefix" || return
    local program
    for program in "$@"; do
        "$prefix/bin/mpicc" -g -Wall -Werror -O1 "tests/programs/$program.c" -o "$work/$program" -ldl || return
    done
}

# Data that is checked, among more ranks than cores.
exchange() {
    programs exchange || return
    local rails
    for rails in shm tcp shm,tcp; do
        "$prefix/bin/mpiexec" -timeout $((soak_s / 3 + 60)) -genv CANELE_RAILS $rails -n 5 "$work/exchange" $((soak_s / 3)) 0 | tee "$work/said" || return
        grep -q ': 0 failures' "$work/said" || return
    done
}

# Windows created and freed 100 000 times, 10 000 at once, a million pieces of attached memory; threads that share windows.
windows() {
    programs windows_many windows_threads || return
    local rails
    for rails in shm tcp; do
        "$prefix/bin/mpiexec" -timeout 1500 -genv CANELE_RAILS $rails -n 2 "$work/windows_many" 100000 10000 100000 || return
        "$prefix/bin/mpiexec" -timeout 600 -genv CANELE_RAILS $rails -n 3 "$work/windows_threads" 8 5000 || return
    done
}

# `large` is not among them: it moves gigabytes, and what it does on the way `point_to_point` does too.
memcheck() {
    programs collectives layouts point_to_point topologies types bad_input tool || return
    local rails
    checked() { # ranks, command...
        local ranks=$1
        shift
        echo "over $rails, $ranks ranks: ${*##*/}"
        "$prefix/bin/mpiexec" -timeout 300 -genv CANELE_RAILS $rails -n "$ranks" valgrind -q --error-exitcode=99 --leak-check=full \
            --show-leak-kinds=definite --errors-for-leak-kinds=definite --num-callers=30 "$@"
    }
    for rails in shm tcp; do
        for program in collectives layouts point_to_point topologies types; do
            checked 2 "$work/$program" || return
        done
        checked 2 "$work/bad_input" pair || return
        checked 1 "$work/bad_input" stated || return
        checked 1 "$work/tool" || return
    done
}

# Long cuts, gateways that die, hosts that move, networks that forbid: each while ranks exchange data.
trouble() {
    programs && tests/trouble.sh "$prefix"
}

# Raw TCP, beside which Canele is measured.
raw_tcp() {
    programs && tests/raw_tcp.sh "$prefix"
}

# Ranks that are placed by what they send each other, and what then crosses between sites.
placement() {
    programs && tests/placement.sh "$prefix"
}

# Jobs within allocations of a Slurm of the test's own.
slurm() {
    programs && tests/slurm.sh "$prefix" && tests/co_allocation.sh "$prefix" real
}

# The commands of the page for newcomers.
hour() {
    programs && tests/first_hour.sh "$prefix"
}

# What the build for aarch64 needs and this machine lacks; nothing if it has all.
lacks_aarch64() {
    command -v qemu-aarch64 >/dev/null || { echo "qemu-aarch64 is missing: install qemu-user"; return; }
    command -v aarch64-linux-gnu-gcc >/dev/null || { echo "aarch64-linux-gnu-gcc is missing: install gcc-aarch64-linux-gnu"; return; }
    [ -e "$(rustc --print sysroot)/lib/rustlib/$aarch64" ] || echo "Rust has no standard library for it: rustup target add $aarch64"
}

# Unit tests of all crates but those in tests/aarch64.excluded, and 4 ranks of programs on the wheel, under qemu. On
# x86-64, qemu keeps the order of x86-64's memory: faults of weak memory order do not show here, but in the models.
aarch64() {
    local qemu=(qemu-aarch64 -L /usr/aarch64-linux-gnu) excluded
    mapfile -t excluded < <(awk '/^[a-z]/ { print "--skip"; print $1 }' tests/aarch64.excluded)
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${qemu[*]}"
    # Emulated cores are slow: fewer random cases than elsewhere.
    PROPTEST_CASES=32 cargo test --locked --target $aarch64 --workspace --lib --bins --no-fail-fast -- --skip model:: "${excluded[@]}" || return
    unset CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER CC_aarch64_unknown_linux_gnu
    programs && scripts/build.sh aarch64 && tests/wheel.sh "$prefix" aarch64 "${qemu[@]}"
}

# Two builds of the last commit in folders whose names differ in length: programs, libraries and packages are compared.
reproducible() {
    local folder name differs=no
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    for folder in "$work/one" "$work/another/folder"; do
        git clone -q "$PWD" "$folder" && (cd "$folder" && unset CARGO_TARGET_DIR && scripts/build.sh) || return
        (cd "$folder" && scripts/wheel.sh packages && { ! command -v dpkg-deb >/dev/null || scripts/deb.sh packages; }) || return
    done
    cd "$work/one" || return
    for name in packages/* target/release/{libmpi_abi.so,libmpifort_abi.so,libmpich_abi.so,libcanele_trace.so,mpiexec,canele,canele-agent,canele-gateway}; do
        cmp "$name" "$work/another/folder/$name" || differs=yes
    done
    [ $differs = no ]
}

if [ "${1:-}" = --within ]; then
    shift
    "$@"
    exit
fi
wanted=" ${*:-address thread models seeds exchange windows memcheck trouble raw_tcp placement slurm hour aarch64 reproducible} "
wants() { [[ $wanted == *" $1 "* ]]; }
if wants address; then
    why=$(obstacle asan)
    if [ -n "$why" ]; then skip address "$why"; else
        step address "tests under the address sanitizer, leaks included" 1800 sanitized address --locked
    fi
fi
if wants thread; then
    # A standard library built without it would not be seen to order its own memory: channels, cells that
    # are written once, and the test harness would be taken for races.
    why=$(obstacle tsan)
    [ -n "$why" ] || [ -e "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] || why="no sources of the standard library: rustup component add rust-src --toolchain nightly"
    if [ -n "$why" ]; then skip thread "$why"; else
        step thread "tests and the standard library under the thread sanitizer" 3000 sanitized thread --locked -Zbuild-std
    fi
fi
wants models && step models "every order of the locks and the shared-memory protocols, up to 5 preemptions" 1800 models
wants seeds && step seeds "scenarios and parsers with new seeds for $soak_s s" $((soak_s + 2100)) seeds
wants exchange && step exchange "5 ranks that exchange data for $soak_s s" $((soak_s + 900)) exchange
wants windows && step windows "windows in numbers, and threads that share them" 4500 windows
if wants memcheck; then
    if command -v valgrind >/dev/null; then
        step memcheck "C programs on 2 ranks under valgrind, over shm and tcp" 1800 memcheck
    else
        skip memcheck "valgrind is missing"
    fi
fi
wants trouble && step trouble "what happens to a wide area while ranks exchange data" 3300 trouble
if wants raw_tcp; then
    if command -v iperf3 >/dev/null; then
        step raw_tcp "raw TCP beside iperf3 over a link of the lab" 1200 raw_tcp
    else
        skip raw_tcp "iperf3 is missing"
    fi
fi
wants placement && step placement "ranks placed by what they send each other" 900 placement
if wants slurm; then
    if command -v srun >/dev/null; then
        step slurm "mpiexec within allocations of Slurm's" 1200 slurm
    else
        skip slurm "Slurm is missing"
    fi
fi
wants hour && step hour "the commands of the page for newcomers" 900 hour
if wants aarch64; then
    why=$(lacks_aarch64)
    if [ -n "$why" ]; then skip aarch64 "$why"; else
        step aarch64 "unit tests and 4 ranks for aarch64, under qemu" 2400 aarch64
    fi
fi
wants reproducible && step reproducible "two builds in different folders, byte for byte" 3600 reproducible
printf '\n%s\n' "step         time  result"
printf '%s\n' "${table[@]}"
[ $failed = no ]
