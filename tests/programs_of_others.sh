#!/usr/bin/env bash
# Libraries for applications, built by our mpicc with their own instructions, and their own tests of MPI features:
# FFTW's transforms, PT-Scotch's partitions, hypre's and PETSc's solvers. Their sources are Debian's, by apt. Prints a
# line for each: its name, and the numbers of tests run and failed. Their output is in FOLDER/NAME.log.
# Usage: programs_of_others.sh PREFIX FOLDER [NAME...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- fftw3 scotch hypre petsc
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib
jobs=$(nproc)
for needed in flex bison liblapack-dev; do
    dpkg -s $needed >/dev/null 2>&1 || { echo "$needed is missing: apt-get install flex bison liblapack-dev" >&2; exit 1; }
done
get() { "$here/debian_source.sh" "$folder" "$1" "$2" && cd "$folder/$1"; }
# Runs once, and again if it has not come to its end.
built() { [ -e .built ] || { "$@" && touch .built; }; }

fftw3() {
    get fftw3 3.3.10 || return
    built eval './configure --enable-mpi --disable-fortran --disable-doc && make -j"$jobs"' || return
    make -C mpi check MPIRUN="mpiexec -timeout 300" || true
    # Each line of check.pl's is a transform, by three norms.
    ran=$((4 * 10)) failed=$((ran - 10 * $(grep -c 'MPI FFTW transforms passed' "$log")))
}

scotch() {
    get scotch 7.0.3 || return
    cp src/Make.inc/Makefile.inc.x86-64_pc_linux2 src/Makefile.inc
    built make -C src scotch ptscotch CCD=mpicc || return
    make -k -C src/check ptcheck CCD=mpicc EXECPPROG="mpiexec -timeout 300" EXECPFLAGS= || true
    ran=$(grep -c '^mpiexec' "$log") failed=$(grep -cE '^(make|gmake).* Error ' "$log" || true)
}

hypre() {
    get hypre 2.26.0 || return
    cd src
    built eval './configure --disable-fortran --without-superlu CC=mpicc CXX=mpicxx && make -j"$jobs" && make -C test ij struct struct_migrate sstruct' || return
    cd test
    rm -f TEST_*/*.out.* TEST_*/*.err
    local sstruct
    sstruct=$(ls TEST_sstruct/*.sh | grep -v maxwell)
    bash runtest.sh -mpi "mpiexec -timeout 300 -n" -rtol 1e-6 TEST_struct/*.sh TEST_ij/{solvers,coarsening,matrix,vector}.sh $sstruct || true
    ran=$(find . -path '*.out.*' | wc -l) failed=$(find . -name '*.err' -size +0 | wc -l)
}

petsc() {
    get petsc 3.18.5 || return
    export PETSC_DIR=$PWD PETSC_ARCH=canele
    built eval './configure --with-cc=mpicc --with-cxx=0 --with-fc=0 --with-debugging=0 --with-x=0 --with-mpiexec="mpiexec -timeout 300" && make all' || return
    make -k -f gmakefile test TIMEOUT=300 search='ksp_ksp_tutorials*' || true
    # Those two require a display and report that there is none.
    ran=$(grep -cE '^(not)? ok ksp' <(grep -v SKIP "$log")) failed=$(grep '^not ok' "$log" | grep -cvE 'ex(28_1|5_5)' || true)
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
code=0
for name in "$@"; do
    log=$folder/$name.log
    if (
        ran=- failed=
        $name >"$log" 2>&1 || { echo "$name - no-end" && tail -3 "$log" >&2 && exit 1; }
        echo "$name $ran $failed"
        [ "$ran" -gt 0 ] && [ "$failed" = 0 ]
    ); then :; else code=1; fi
done
exit $code
