#!/usr/bin/env bash
# Libraries for applications, built by our mpicc with their own instructions, and their own tests of MPI features:
# FFTW's transforms, PT-Scotch's partitions, hypre's and PETSc's solvers, PETSc's star forests over windows, MUMPS's
# solvers in Fortran, and the HPC Challenge. For files ROMIO's tests, PnetCDF, parallel HDF5, netCDF-C on top of both, and
# h5py on HDF5. Their sources are Debian's, by apt, or PyPI's. Prints a line for each: its name, and the numbers of tests run and failed. Their
# output is in FOLDER/NAME.log.
# Usage: programs_of_others.sh PREFIX FOLDER [NAME...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- fftw3 scotch hypre petsc mumps hpcc romio pnetcdf hdf5 netcdf h5py
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib
jobs=$(nproc)
packages="flex bison liblapack-dev gfortran autoconf automake libtool m4 zlib1g-dev libxml2-dev"
for needed in $packages; do
    dpkg -s $needed >/dev/null 2>&1 || { echo "$needed is missing: apt-get install $packages" >&2; exit 1; }
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
    "$here/petsc_source.sh" "$prefix" "$folder" && cd "$folder/petsc" || return
    export PETSC_DIR=$PWD PETSC_ARCH=canele
    # Star forests over every flavour of window (create, dynamic, allocate, shared), by fences, PSCW and locks.
    for tests in 'ksp_ksp_tutorials*' 'vec_is_sf*'; do
        make -k -f gmakefile test TIMEOUT=300 search="$tests" || true
    done
    # The same over TCP, where no memory is shared; those of shared windows still share it.
    CANELE_RAILS=tcp make -k -f gmakefile test TIMEOUT=300 search='vec_is_sf*window*' || true
    # Two of the solvers' require a display and report that there is none.
    ran=$(grep -cE '^(not)? ok (ksp|vec)' <(grep -v SKIP "$log")) failed=$(grep '^not ok' "$log" | grep -cvE 'ksp.*ex(28_1|5_5)' || true)
}

mumps() {
    get mumps 5.5.1 || return
    # Its dense root may go to ScaLAPACK, which is missing: whoever calls it is ended.
    local routine ranks
    for routine in blacs_gridexit blacs_gridinfo blacs_gridinit descinit numroc pdgetrf pdgetrs pdpotrf pdpotrs; do
        echo "void ${routine}_(void) { __builtin_trap(); }"
    done >absent.c
    cat >Makefile.inc <<'MAKE'
IPORD = -I$(topdir)/PORD/include/
LPORDDIR = $(topdir)/PORD/lib/
LORDERINGS = -L$(LPORDDIR) -lpord
ORDERINGSF = -Dpord
ORDERINGSC = $(ORDERINGSF)
IORDERINGSC = $(IPORD)
LIBEXT = .a
OUTC = -o # a blank follows
OUTF = -o # a blank follows
RM = rm -f
CC = mpicc
FC = mpifort
FL = mpifort
AR = ar vr # a blank follows
RANLIB = ranlib
LIBBLAS = -llapack -lblas
LIBOTHERS = $(topdir)/absent.o
CDEFS = -DAdd_
OPTF = -O
OPTL = -O
OPTC = -O
MAKE
    built eval 'mpicc -c absent.c && make d' || return
    cd examples
    # A Laplacian on a grid, with the right-hand side whose solution is 1 everywhere.
    awk -v m=80 'BEGIN {
        print m * m; print m * m + 4 * m * (m - 1)
        for (i = 0; i < m; i++) for (j = 0; j < m; j++) {
            row = i * m + j + 1; sum[row] = 4.5; print row, row, 4.5
            for (k = 0; k < 4; k++) {
                x = i + (k == 0) - (k == 1); y = j + (k == 2) - (k == 3)
                if (x >= 0 && y >= 0 && x < m && y < m) { print row, x * m + y + 1, -1; sum[row]-- }
            }
        }
        for (row = 1; row <= m * m; row++) print sum[row]
    }' >laplacian
    ran=0 failed=0
    solved() { # expected numbers, ranks, program, input
        ran=$((ran + 1))
        mpiexec -timeout 300 -n "$2" "./$3" <"$4" >"$3.out" || { failed=$((failed + 1)) && return; }
        sed -n '/Solution is/,/^ *$/p' "$3.out" | grep -oE '[0-9]+\.[0-9]+' | awk '{ printf "%.6g\n", $1 }' | sort -g | uniq -c |
            awk '{ printf "%s of %s; ", $1, $2 }' | grep -qxF "$1" || failed=$((failed + 1))
    }
    for ranks in 1 2 4; do solved "1 of 1; 1 of 2; 1 of 3; 1 of 4; 1 of 5; " $ranks dsimpletest input_simpletest_real; done
    solved "6400 of 1; " 4 dsimpletest laplacian
    solved "1 of 1; 1 of 2; " 4 c_example /dev/null
}

hpcc() {
    get hpcc 1.5.0 || return
    # It calls two functions by the names of MPI-1, which have left the standard; today's have the same arguments.
    cat >hpl/Make.canele <<'MAKE'
SHELL = /bin/sh
CD = cd
CP = cp
LN_S = ln -fs
MKDIR = mkdir -p
RM = rm -f
TOUCH = touch
TOPdir = ../../..
INCdir = $(TOPdir)/include
HPLlib = $(TOPdir)/lib/canele/libhpl.a
HPL_INCLUDES = -I$(INCdir) -I$(INCdir)/canele
HPL_LIBS = $(HPLlib) -lblas -lm
HPL_DEFS = -DAdd_ -DF77_INTEGER=int -DStringSunStyle -DMPI_Address=MPI_Get_address -DMPI_Type_struct=MPI_Type_create_struct $(HPL_INCLUDES)
CC = mpicc
CCNOOPT = $(HPL_DEFS)
CCFLAGS = $(HPL_DEFS) -O2 -std=gnu99 -fcommon
LINKER = mpicc
LINKFLAGS = $(CCFLAGS)
ARCHIVER = ar
ARFLAGS = r
RANLIB = true
MAKE
    built make arch=canele || return
    # A small matrix: what is wanted is that each part says its result is right.
    sed 's/^1000 .*Ns/400 Ns/' _hpccinf.txt >hpccinf.txt
    rm -f hpccoutf.txt
    mpiexec -timeout 300 -n 4 ./hpcc || true
    ran=0 failed=0
    local sign
    for sign in 'Success=1' '\|\|Ax-b.*PASSED' ' 0 tests completed and failed residual checks\.' \
        'PTRANS_residual=0' 'MPIRandomAccess_ErrorsFraction=0' 'MPIRandomAccess_LCG_ErrorsFraction=0' \
        'MPIFFT_maxErr=[0-9.]+e-1[4-6]'; do
        ran=$((ran + 1))
        grep -qE "^ *$sign" hpccoutf.txt || { echo "not there: $sign" && failed=$((failed + 1)); }
    done
}

# Counts a test, which is a command that must succeed.
passes() { # seconds, command...
    local limit_s=$1
    shift
    ran=$((ran + 1))
    echo "== $*"
    timeout -k 10 "$limit_s" "$@" </dev/null && return
    failed=$((failed + 1))
    echo "== failed with code $?: $*"
}
# ROMIO's, which are of MPICH's source. Left out are those that use MPI_LB and MPI_UB or MPIO_Request, which MPI has removed, and
# coll_perf, whose file has 14 GB.
romio() {
    ran=0 failed=0
    "$here/debian_source.sh" "$folder/romio-source" mpich 4.0.2 src/mpi/romio/test && cd "$folder/romio-source/mpich/src/mpi/romio/test" || return
    sed 's/@LL@/%lld/' misc.c.in >misc.c
    local program sources
    sources=$(grep -LE 'MPI_LB|MPI_UB|MPIO_Request' ./*.c)
    built eval 'for source in $sources; do mpicc -w -O1 -o "${source%.c}" "$source" || exit 1; done' || return
    clean() { # ranks, program...: it prints that there were no errors
        local said
        rm -f data*
        said=$(mpiexec -timeout 280 -n "$@" 2>&1) || { echo "$said"; return 1; }
        echo "$said"
        grep -qi 'no errors' <<<"$said"
    }
    export -f clean
    shows() { passes 300 bash -c 'clean "$@"' clean "$@"; }
    for program in simple async-multiple atomicity coll_test creat_excl excl file_info misc psimple shared_fp ordered_fp split_coll; do
        shows 4 ./$program -fname data
    done
    for program in error status; do shows 1 ./$program -fname data; done
    for program in aggregation2 hindexed darray_read; do shows 4 ./$program data; done
    shows 4 ./aggregation1 -h -f data
    shows 2 ./types_with_zeros data
    # It reports errors alone.
    passes 300 mpiexec -timeout 280 -n 4 ./large_array -fname data
}

pnetcdf() {
    ran=0 failed=0
    get pnetcdf 1.12.3 || return
    built eval 'autoreconf -i && ./configure --prefix="$folder/netcdf-libraries" --enable-shared --disable-static --disable-cxx --disable-fortran MPICC=mpicc TESTMPIRUN="mpiexec -timeout 280 -n NP" && make -j"$jobs" && make install && make -j"$jobs" tests' || return
    # Each prints a line with "pass", or "fail".
    for part in C nc_test cdf_format header testcases nonblocking; do make -C test/$part ptest || failed=$((failed + 1)); done
    make -C examples ptest || failed=$((failed + 1))
    ran=$(grep -cE -- '---.*(pass|fail)' "$log") failed=$((failed + $(grep -cE -- '---.*fail' "$log" || true)))
}

# In the mode that skips most of alike cases (HDF5TestExpress=3). Left out are t_cache and t_cache_image: they test the library's own cache, mostly
# without files, and take far longer than all others.
hdf5() {
    ran=0 failed=0
    get hdf5 1.10.8 || return
    built eval 'CC=mpicc ./configure --prefix="$folder/netcdf-libraries" --enable-parallel --disable-static --disable-fortran --disable-cxx && make -j"$jobs" -C src && make -C src install && make -j"$jobs" -C hl/src && make -C hl/src install && make -j"$jobs" -C test libh5test.la && make -j"$jobs" -C testpar t_mpi t_bigio testphdf5 t_pread t_pshutdown t_prestart t_init_term t_shapesame t_filters_parallel' || return
    cd testpar
    export HDF5TestExpress=3
    for program in t_mpi testphdf5 t_pread t_pshutdown t_prestart t_init_term t_shapesame t_filters_parallel t_bigio; do
        passes 900 mpiexec -timeout 880 -n 4 ./$program
    done
}

netcdf() {
    ran=0 failed=0
    get netcdf 4.9.0 || return
    local libraries=$folder/netcdf-libraries
    built eval 'CC=mpicc CPPFLAGS="-I$libraries/include" LDFLAGS="-L$libraries/lib -Wl,-rpath,$libraries/lib" ./configure --enable-pnetcdf --enable-parallel-tests --disable-dap --disable-nczarr --disable-utilities --disable-static --with-mpiexec="mpiexec -timeout 280" && make -j"$jobs"' || return
    # Its scripts run programs on 1 to 16 ranks, and end with the first failure.
    local part script programs
    for part in h5_test/run_par_tests.sh nc_test4/run_par_test.sh nc_test/run_pnetcdf_tests.sh; do
        script=${part##*/} part=${part%/*}
        programs=$(grep -v '^ *#' "$part/$script" | grep -oE '(^| )\./[a-zA-Z0-9_]+' | sed 's|.*/||' | sort -u)
        # shellcheck disable=SC2086
        make -j"$jobs" -C "$part" $programs && (cd "$part" && timeout 900 bash "./$script") || failed=$((failed + 1))
        ran=$((ran + $(wc -w <<<"$programs")))
    done
}

# On the parallel HDF5 of the step before. Both are compiled without optimisation, which is faster.
h5py() {
    ran=0 failed=0
    local libraries=$folder/netcdf-libraries environment=$folder/h5py
    [ -e "$libraries/lib/libhdf5.so" ] || { echo "there is no $libraries/lib/libhdf5.so: run hdf5 first" >&2; return 1; }
    python3 -m venv "$environment" && cd "$environment" || return
    install() { bin/pip install -q --disable-pip-version-check --no-cache-dir "$@"; }
    built eval 'install numpy==2.2.6 cython==3.0.12 pkgconfig setuptools wheel pytest pytest-mpi &&
        CFLAGS=-O0 MPICC=mpicc MPI4PY_BUILD_MPIABI=1 install --no-binary mpi4py mpi4py==4.1.2 &&
        CFLAGS=-O0 CC=mpicc HDF5_MPI=ON HDF5_DIR="$libraries" install --no-build-isolation --no-binary=h5py h5py==3.12.1' || return
    local ranks
    for ranks in 1 4; do passes 300 mpiexec -timeout 280 -n $ranks bin/python "$here/programs/h5py_parallel.py" file.h5; done
    # Its own tests of MPI.
    passes 300 mpiexec -timeout 280 -n 4 bin/python -m pytest -q --with-mpi -m mpi --pyargs h5py.tests
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
