#!/usr/bin/env bash
# Fortran programs with mpif.h and both modules, and the wrappers that build them. Usage: fortran.sh PREFIX MPICH
set -eu
cd "$(dirname "$0")"
. ./check.sh
prefix=$(readlink -f "$1") mpich=$(readlink -m "$2")
sources=$PWD/programs/fortran
nas=$(readlink -f ../bench/nas)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH="$prefix/bin:$PATH" PKG_CONFIG_PATH=$prefix/lib/pkgconfig XDG_CACHE_HOME=$work/cache
cd "$work"
if ! command -v gfortran >/dev/null; then
    skip "Fortran" "there is no gfortran"
    finish_checks
fi
mpicc -c "$sources/languages.c"
run() { timeout 120 mpiexec "$@" 2>&1 || echo "code $?"; }
# Compiles a program, and runs it on so many ranks. A compiler may lack what it needs.
try() { # compiler, source, ranks, option
    if ! CANELE_FC=$1 mpifort -O1 ${4:-} "$sources/$2" languages.o -o program >log 2>&1; then
        grep -q 'not yet implemented' log && skip "$2 by $1" "$(grep -o 'not yet implemented: .*' log | head -1)" && return
        cat log
    fi
    for ranks in $3; do check "$2 ${4:-} by $1 on $ranks" " no errors" "$(run -n "$ranks" ./program)"; done
}
# One is installed for the tests. The others are those of Debian 12 that people have.
for compiler in gfortran-11 flang-new-16 flang-new-19 gfortran; do
    if ! command -v $compiler >/dev/null; then
        skip "programs by $compiler" "it is not installed"
        continue
    fi
    for program in include.f module.f90 sessions.F90; do try $compiler $program "1 3"; done
    try $compiler sessions.F90 2 -DMPIF
    for interface in 1 2; do try $compiler ports.F90 2 -DINTERFACE=$interface; done
    try $compiler size_of.f90 1
    if [ $compiler = flang-new-16 ]; then
        check "mpi_f08 by $compiler" "mpifort: $sources/module_f08.f90: $compiler cannot compile calls of the module mpi_f08" \
            "$(CANELE_FC=$compiler mpifort -c "$sources/module_f08.f90" 2>&1 | sed 's/: use the module mpi or mpif.h, or another compiler (.*mpi_f08.log)$//')"
        continue
    fi
    try $compiler module_f08.f90 "1 3"
    try $compiler sessions.F90 2 -DF08
    try $compiler ports.F90 2 -DINTERFACE=3
    try $compiler intercepted.f90 1 # mpi_send_f08ts_
    try $compiler by_address.f90 1  # mpi_send_f08_
done
for interface in 1 2 3; do
    mpifort -O1 -DINTERFACE=$interface "$sources/spawn.F90" -o spawn
    check "processes that start others, by interface $interface" " no errors" "$(run -n 2 ./spawn | grep -v 'its spawn failed: .*no-such-program')"
done
cat >refused.f90 <<'F90'
use mpi_f08
integer :: a(4)
type(MPI_Win) :: win
call MPI_Init()
call MPI_Win_create(a(::2), 8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win)
end
F90
mpifort refused.f90 -o refused
check "a section that is refused says so" 1 \
    "$(run -n 1 ./refused | grep -c 'MPI_ERR_BUFFER: .*cannot use a section of an array that is not contiguous: pass a contiguous copy')"
mpifort "$sources/module_f08.f90" languages.o -o program
check "over TCP" " no errors" "$(run -genv CANELE_RAILS tcp -n 2 ./program)"

# Over another library with the standard ABI, by its launcher.
if [ -e "$mpich/lib/libmpi_abi.so.1" ]; then
    for program in include.f module.f90 module_f08.f90; do
        mpifort "$sources/$program" languages.o -o program 2>log || cat log
        for ranks in 1 3; do
            check "$program over MPICH on $ranks" " no errors" \
                "$(LD_LIBRARY_PATH=$mpich/lib timeout 120 "$mpich/bin/mpiexec" -n $ranks ./program 2>&1)"
        done
    done
else
    skip "programs over MPICH" "it is not in $mpich"
fi

# Kernels of the NAS Parallel Benchmarks, which compare their results with the specification's.
mpifort -O2 -J "$work" -o nas "$nas"/{net_f08,random,ep,cg,mg,ft_known,ft,flow,lu,cells,directions,bt,sp}.f90 "$nas"/{nas,is}.c -lm 2>log || cat log
check "kernels of class S through mpi_f08" "8 right" \
    "$(run -n 4 ./nas 0 0/0 1/0 2/0 3/0 4/0 5/0 6/0 7/0 | grep -c '"median_us"') right"

# The wrappers. Modules are found whatever is asked first.
modules=$(mpifort --showme:incdirs | awk '{ print $2 }')
check "modules for this compiler" "mpi.mod mpi_f08.mod" "$(cd "$modules" && echo *.mod)"
check "mpif77 -show" "gfortran -I$prefix/include -I$modules -fallow-argument-mismatch x.f -L$prefix/lib -Wl,-rpath,$prefix/lib -lmpifort_abi -lmpi_abi" \
    "$(mpif77 -show x.f)"
check "mpif90 --showme:libs" "mpifort_abi mpi_abi" "$(mpif90 --showme:libs)"
check "mpifort --version" "$(gfortran --version)" "$(mpifort --version)"
check "wide integers are refused" "mpifort: -fdefault-integer-8: MPI's integers have 4 bytes; give the kind of other integers where they are declared" \
    "$(mpifort -fdefault-integer-8 x.f 2>&1)"
check "no compiler" "mpifort: no-such-compiler cannot be run: set CANELE_FC to a Fortran compiler" \
    "$(CANELE_FC=no-such-compiler mpifort -c x.f 2>&1)"
# Another compiler gets modules of its own, in the user's folder if the installation cannot be written.
cat >other <<'SH'
#!/bin/sh
[ "$1" != --version ] || { echo "Other Fortran 1.0" && exit; }
exec gfortran "$@"
SH
chmod 755 other
mkdir -p locked/share
cp -r "$prefix/bin" "$prefix/include" locked/
cp -r "$prefix/share/canele" locked/share/
mkdir -p locked/lib && touch locked/lib/canele
CANELE_FC=$work/other locked/bin/mpifort -c "$sources/module.f90"
check "modules in the user's folder" "1" "$(ls "$work/cache/canele/fortran" | grep -c '^Other-Fortran-1.0-')"
cat >failing <<'SH'
#!/bin/sh
[ "$1" != --version ] || { echo "Failing Fortran 1.0" && exit; }
echo "TYPE(*) is not supported"
exit 1
SH
chmod 755 failing
# A compiler whose programs do not run has its descriptors turned into those of the standard.
cat >unknown <<'SH'
#!/bin/sh
case "$*" in
    --version) echo "Unknown Fortran 1.0" && exit ;;
    *sections.f90*) exit 1 ;;
esac
exec gfortran "$@"
SH
chmod 755 unknown
CANELE_FC=$work/unknown mpifort "$sources/module_f08.f90" languages.o -o unknown-program >log 2>&1 || cat log
check "a compiler whose descriptors are not known" " no errors" "$(run -n 2 ./unknown-program)"
check "a compiler too old" "mpifort: $work/failing does not compile the module mpi: TYPE(*) is not supported " \
    "$(CANELE_FC=$work/failing locked/bin/mpifort -c x.f90 2>&1)"

# All that the modules declare is in the library.
exported() { nm -D --defined-only "$prefix/lib/libmpifort_abi.so.1" | awk '{ print $3 }' | sort -u; }
declared() { # names of procedures, functions and variables, as compilers write them
    sed -e '/ABSTRACT INTERFACE/,/END INTERFACE/d' -e ':more' -e '/&$/{N;s/&\n//;b more' -e '}' "$1" |
        sed -nE 's/.*BIND\(C, NAME="([a-z0-9_]+)"\).*/\1/p; t; s/^ *(PURE )?(SUBROUTINE|FUNCTION) +([A-Za-z0-9_]+).*/\L\3_/p'
}
for module in mpi mpi_f08; do
    declared "$prefix/share/canele/fortran/$module.f90" | sort -u >declared
    check "what module $module declares" "some" "$([ "$(wc -l <declared)" -gt 800 ] && echo some)"
    check "is in the library" "" "$(exported | comm -23 declared -)"
done

check "names that tools intercept" "" "$(exported | sed -nE 's/^canele_(p?mpi_.*_f08ts)$/\1_/p' | sort | comm -23 - <(exported))"
# The size of a variable is not known from its address.
check "the same for buffers by address" "" \
    "$(exported | sed -nE 's/^(p?mpi_.*_f08)ts_$/\1_/p' | grep -v '^p\?mpi_sizeof_' | sort | comm -23 - <(exported))"

# Wrong uses that a compiler can see are errors there.
cat >wrong.f90 <<'F90'
use mpi_f08
integer :: comm
call MPI_Barrier(comm)
end
F90
check "an integer as a communicator in mpi_f08" "no" "$(mpifort -c wrong.f90 2>/dev/null && echo yes || echo no)"

cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(found Fortran)
find_package(MPI REQUIRED COMPONENTS Fortran)
message(STATUS "found: ${MPI_Fortran_HAVE_F77_HEADER} ${MPI_Fortran_HAVE_F90_MODULE} ${MPI_Fortran_HAVE_F08_MODULE}")
add_executable(include include.f)
target_link_libraries(include MPI::MPI_Fortran)
CMAKE
cp "$sources/include.f" .
cmake -S . -B build >log 2>&1 && cmake --build build >>log 2>&1 || cat log
check "CMake finds all three interfaces" "-- found: TRUE TRUE TRUE" "$(grep -- '-- found' log)"
check "CMake's program" " no errors" "$(run -n 2 build/include)"
# Options as words: pkg-config's output is meant to be split.
gfortran -fallow-argument-mismatch include.f -o by-pkg-config $(pkg-config --cflags --libs mpi-fort) 2>log || cat log
check "pkg-config" " no errors" "$(run -n 2 ./by-pkg-config)"
finish_checks
