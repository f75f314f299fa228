#!/usr/bin/env bash
# Conformance of the library: the kit that every rail passes, the ABI beside the reference's, and mpi4py's own tests
# on one and two ranks. Over libmpi.so.12: Intel's benchmarks, mpi4py's wheel, and some of MPICH's tests. Also the own tests of
# pshmem, of MPICH, and of libraries for applications and for files (which need
# the packages that tests/programs_of_others.sh names). Ends with a table. Fails if a failure is not listed in
# tests/*.excluded.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh --tests
export PATH="$PATH:$HOME/.cargo/bin"
step() { printf '\n== %s\n' "$*"; }
rows=() code=0
row() { rows+=("$(printf '%-28s %8s %8s %8s %8s' "$@")"); }
# Runs a check with a time limit in seconds. Its output goes to the terminal and to $output.
check() { # seconds, command...
    local limit_s=$1
    shift
    timeout -k 10 "$limit_s" "$@" 2>&1 | tee "$output" || { code=1; return 1; }
}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

step build
scripts/build.sh
cargo test -p rail --test conformance --locked --no-run
prefix=$PWD/build/prefix environment=$PWD/build/mpi4py
scripts/install.sh "$prefix"
scripts/peers.sh mpich==5.0.2

step "the rails' kit"
if check 600 cargo test -p rail --test conformance --locked || grep -q '^test result:' "$output"; then
    read -r passed failed ignored < <(sed -nE 's/^test result: [^0-9]*([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$output")
    row "rails" $((passed + failed + ignored)) "$passed" "$ignored" "$failed"
else
    row "rails" - - - no-end
fi

step "the ABI beside the reference's"
if check 300 tests/abi.sh "$prefix" "$PWD/build/peers/mpich"; then
    compared=$(grep '^ABI:' "$output" | grep -oE '[0-9]+ (symbols|constants|lines)' | awk '{sum += $1} END {print sum}')
    row "ABI: names, values, types" "$compared" "$compared" 0 0
else
    row "ABI: names, values, types" - - - differs
fi

step "mpi4py's own tests"
tests/mpi4py.sh "$prefix" "$environment"
source=build/mpi4py-4.1.2
if [ ! -d $source ]; then
    "$environment/bin/pip" download -q --disable-pip-version-check --no-binary mpi4py --no-deps -d build mpi4py==4.1.2
    tar xf $source.tar.gz -C build
fi
mpi4py() { # name of the row, environment
    local ranks run passed skipped failed
    for ranks in 1 2; do
        check 1000 tests/mpi4py_suite.sh "$prefix" "$2" $source $ranks || true
        read -r run passed skipped failed < <(tail -1 "$output" | grep -E '^([0-9]+|-) ([0-9]+|-) ([0-9]+|-) [0-9]+$' || echo '- - - no-end')
        row "$1, ranks: $ranks" "$run" "$passed" "$skipped" "$failed"
    done
}
mpi4py mpi4py "$environment"

step "programs of MPICH's ABI"
scripts/peers.sh impi-rt==2021.18.0
check 1300 tests/programs_of_mpich.sh "$prefix" "$PWD/build/peers/impi-rt" || true
read -r run failed < <(sed -nE 's/^IMB ([0-9]+) ([0-9]+)$/\1 \2/p' "$output" | grep . || echo '- no-end')
passed=-
[ "$run" = - ] || passed=$((run - failed))
row "Intel's IMB" "$run" "$passed" 0 "$failed"

step "mpi4py's wheel, over libmpi.so.12"
wheel=$PWD/build/mpi4py-wheel
if [ ! -e "$wheel/done" ]; then
    python3 -m venv "$wheel"
    "$wheel/bin/pip" install -q --disable-pip-version-check --only-binary :all: numpy mpi4py==4.1.2
    touch "$wheel/done"
fi
MPI4PY_LIBMPI=$prefix/lib/canele/mpich/libmpi.so.12 mpi4py "mpi4py's wheel" "$wheel"

step "pshmem's own tests"
for ranks in 2 4; do
    check 600 tests/pshmem.sh "$prefix" "$environment" $ranks || true
    read -r run failed < <(tail -1 "$output" | grep -E '^[0-9]+ [0-9]+$' || echo '- no-end')
    passed=-
    [ "$run" = - ] || passed=$((run - failed))
    row "pshmem, ranks: $ranks" "$run" "$passed" 0 "$failed"
done

step "MPICH's own tests"
if command -v apt-get >/dev/null; then
    mkdir -p build/debian
    mpich() { # name of the row, options
        local run failed passed=-
        check 2400 tests/mpich_suite.sh "${@:2}" "$prefix" "$PWD/build/debian" || true
        read -r run failed < <(sed -nE 's/^([0-9]+) tests of MPICH.s, ([0-9]+) failed$/\1 \2/p' "$output" | grep . || echo '- no-end')
        [ "$run" = - ] || passed=$((run - failed))
        row "$1" "$run" "$passed" 0 "$failed"
    }
    mpich MPICH
    step "MPICH's own tests, over libmpi.so.12"
    mpich "MPICH over libmpi.so.12" -abi "$PWD/build/peers/mpich"
    # Another name of the compiler that the wrappers use by themselves adds nothing.
    for compiler in gfortran-11 flang-new-16 flang-new-19; do
        command -v $compiler >/dev/null || continue
        step "MPICH's own tests in Fortran, by $compiler"
        mpich "MPICH by $compiler" -fc $compiler
    done
    step "libraries of others"
    for name in fftw3 scotch hypre petsc mumps hpcc romio pnetcdf hdf5 netcdf h5py; do
        check 2400 tests/programs_of_others.sh "$prefix" "$PWD/build/debian" $name || true
        read -r run failed < <(sed -nE "s/^$name ([0-9]+) ([0-9]+)$/\1 \2/p" "$output" | grep . || echo '- no-end')
        passed=-
        [ "$run" = - ] || passed=$((run - failed))
        row "$name" "$run" "$passed" 0 "$failed"
    done
else
    echo "left out: their sources are Debian's, by apt-get, which is missing"
    row "MPICH, libraries of others" - - - -
fi

printf '\n%-28s %8s %8s %8s %8s\n' "" "run" passed skipped failed
printf '%s\n' "${rows[@]}"
printf '\nNot run: %s entries in tests/mpi4py.excluded, %s in tests/mpich.excluded, %s in tests/mpich_abi.excluded and %s in tests/mpich_fortran.excluded, each with its reason.\n' \
    "$(grep -cE '^test_' tests/mpi4py.excluded)" "$(grep -cE '^[a-z]' tests/mpich.excluded)" "$(grep -cE '^[a-z]' tests/mpich_abi.excluded)" \
    "$(grep -cE '^[a-z]' tests/mpich_fortran.excluded)"
exit $code
