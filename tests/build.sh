#!/usr/bin/env bash
# Ways for programs to find the library: the compiler wrappers, CMake's FindMPI, pkg-config; and its man pages.
# Usage: build.sh PREFIX
set -eu
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
implemented=$(python3 ../api/generate.py prototypes | sed -n 's/^[^-].* \(MPI_[A-Za-z0-9_]*\)(.*/\1/p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH="$prefix/bin:$PATH" PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cp programs/instructions.c "$work/c.c"
cp programs/instructions.c "$work/cxx.cpp"
cp programs/check.h "$work/"
cp programs/mad_pack.c "$work/native.c"
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(found C CXX)
find_package(MPI REQUIRED)
add_executable(c c.c)
target_link_libraries(c MPI::MPI_C)
add_executable(cxx cxx.cpp)
target_link_libraries(cxx MPI::MPI_CXX)
CMAKE
cd "$work"
mkfifo fifo
runs() { timeout 60 mpiexec -n 2 "$work/$1" "$work/fifo" && echo yes; }
cmake -S . -B build >log 2>&1 && cmake --build build >>log 2>&1 || cat log
check "CMake finds C" yes "$(runs build/c)"
check "CMake finds C++" yes "$(runs build/cxx)"
mpicc c.c -o by-mpicc
check "mpicc" yes "$(runs by-mpicc)"
mpicxx cxx.cpp -o by-mpicxx
check "mpicxx" yes "$(runs by-mpicxx)"
# Options of the wrapper may be anywhere, and nothing else is changed.
prefix=$(readlink -f "$prefix")
flags="-L$prefix/lib -Wl,-rpath,$prefix/lib -lmpi_abi"
for show in "-show c.c" "c.c -show" "--showme c.c"; do
    # shellcheck disable=SC2086
    check "mpicc $show" "cc -I$prefix/include c.c $flags" "$(mpicc $show)"
done
check "mpicc -show -c" "cc -I$prefix/include -c c.c" "$(mpicc -c c.c -show)"
check "mpicc -compile-info" "cc -I$prefix/include" "$(mpicc -compile-info)"
check "mpicxx -link_info" "c++ $flags" "$(mpicxx -link_info)"
check "mpicc --showme:link" "$flags" "$(mpicc --showme:link)"
check "mpicc -v asks the compiler" "$(cc -v 2>&1)" "$(mpicc -v 2>&1)"
check "mpicc --version" "$(cc --version)" "$(mpicc --version)"
check "the wrappers' variables are known" "" "$(CANELE_CC=cc CANELE_CXX=c++ CANELE_FC=gfortran mpiexec -n 1 true 2>&1)"
mkdir "$work/with blanks"
cp -r "$prefix/bin" "$prefix/include" "$prefix/lib" "$work/with blanks/"
cp c.c "with blanks/a b.c"
"$work/with blanks/bin/mpicc" "with blanks/a b.c" -o "by blanks"
check "mpicc in a folder whose name has blanks" yes "$(runs "by blanks")"
check "mpicc -show quotes blanks" "cc '-I$work/with blanks/include' 'a b.c' -c" "$("$work/with blanks/bin/mpicc" -show 'a b.c' -c)"
# Options as words: pkg-config's output is meant to be split.
cc c.c -o by-pkg-config $(pkg-config --cflags --libs mpi)
check "pkg-config" yes "$(runs by-pkg-config)"
cc native.c -o by-pkg-config-mad $(pkg-config --cflags --libs canele-mad)
check "pkg-config, the native interface alone" yes "$(timeout 60 mpiexec -n 2 "$work/by-pkg-config-mad" >log 2>&1 && echo yes || cat log)"

pages=$prefix/share/man/man3
check "a man page for each function" "$(sort <<<"$implemented")" "$(cd "$pages" && printf '%s\n' *.3 | sed 's/\.3$//' | sort)"
check "a page for both forms" ".so man3/MPI_Send.3" "$(cat "$pages/MPI_Send_c.3")"
check "its pages are there" "" "$(cd "$pages/.." && sed -n 's/^\.so //p' man3/*.3 | sort -u | xargs ls 2>&1 >/dev/null)"
# Sections in their order: a page that breaks off, or an argument taken for a request, has others.
sections() { sed -n 's/^\.SH //p' "$pages/$1.3" | paste -sd,; }
check "sections of a page" "NAME,SYNOPSIS,DESCRIPTION,PARAMETERS,RETURN VALUE,SEE ALSO,STANDARDS" "$(sections MPI_Gatherv)"
check "Fortran in a page" "MPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs," \
    "$(grep -A1 '^use mpi_f08$' "$pages/MPI_Gatherv.3" | tail -1)"
check "only known requests" "" "$(sed -n 's/^\.\([A-Za-z]*\).*/\1/p' "$pages"/*.3 | sort -u | grep -vxE 'TH|SH|nf|fi|TP|I|BR|so')"
check "each parameter once" "$(printf '%s\n' sendbuf sendcount sendtype recvbuf recvcounts displs recvtype root comm)" \
    "$(sed -n 's/^\.I //p' "$pages/MPI_Gatherv.3")"
if command -v groff >log; then
    check "groff formats the pages" "" "$(cd "$pages/.." && grep -L '^\.so' man3/*.3 | xargs groff -man -ww -z 2>&1)"
else
    skip "groff formats the pages" "there is no groff"
fi
finish_checks
