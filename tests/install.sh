#!/usr/bin/env bash
# What scripts/install.sh installs of the release build, and that it removes exactly that.
set -eu
cd "$(dirname "$0")"
. ./check.sh
install=$PWD/../scripts/install.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR=$work/stage "$install" /opt/canele >"$work/log"
prefix=$work/stage/opt/canele
check "an installation below DESTDIR" "1 1" "$(ls "$work/stage" | wc -l) $(ls "$work/stage/opt" | wc -l)"
check "programs and library" "canele canele-agent canele-gateway mpic++ mpicc mpicxx mpiexec mpif77 mpif90 mpifort mpirun, canele libcanele_trace.so libmpi_abi.so libmpi_abi.so.1 libmpifort_abi.so libmpifort_abi.so.1 pkgconfig" \
    "$(ls "$prefix/bin" | paste -sd' '), $(ls "$prefix/lib" | paste -sd' ')"
check "the library for programs of MPICH" "libmpi.so libmpi.so.12" "$(ls "$prefix/lib/canele/mpich" | paste -sd' ')"
check "licences and documents" "CHANGELOG.md LICENSE-APACHE LICENSE-MIT README.md user" "$(ls "$prefix/share/doc/canele" | paste -sd' ')"
check "the manual page of mpiexec" "1 1" "$(grep -c '^.TH MPIEXEC' "$prefix/share/man/man1/mpirun.1") $(grep -c -- '^.B .*report.*bindings' "$prefix/share/man/man1/mpiexec.1")"
for file in lib/libmpi_abi.so.1 bin/mpiexec; do
    check "$file is stripped" 0 "$(readelf -S "$prefix/$file" | grep -c '\.debug_info')"
    debug=$prefix/${file%/*}/.debug/${file##*/}.debug
    check "its debugging information is beside it" 1 "$(readelf -S "$debug" | grep -c ' \.debug_line ')"
    check "and is found by its name" "${debug##*/}" "$(readelf --string-dump=.gnu_debuglink "$prefix/$file" | grep -o '[a-z_.0-9]*\.debug')"
done
check "the moved tree runs" 2 "$("$prefix/bin/mpirun" -n 2 echo here | grep -c here)"
DESTDIR=$work/stage "$install" --uninstall /opt/canele >"$work/log"
check "nothing of it is left" "" "$(ls "$work/stage/opt")"

# A folder that others use.
mkdir -p "$work/shared/lib/pkgconfig" "$work/shared/bin"
echo other >"$work/shared/bin/other"
mkdir "$work/elsewhere"
ln -s ../elsewhere "$work/shared/share"
chmod 2775 "$work/shared" "$work/shared/bin"
others() { (cd "$work/shared" && find . -printf '%m %p %l\n' | sort); }
before=$(others)
(umask 077 && "$install" "$work/shared") >"$work/log"
"$install" "$work/shared" >"$work/log"
check "all users can use it" "" "$(find "$work/shared" "$work/elsewhere" ! -type l ! -perm -444)"
check "folders of others keep their modes" "$before" "$(others | grep -E ' \.(/share|/bin|/bin/other|/lib|/lib/pkgconfig)? ')"
"$install" --uninstall "$work/shared" >"$work/log"
check "what others have installed is left" "$before" "$(others)"
check "where nothing is installed, nothing is removed" 1 "$("$install" --uninstall "$work/shared" 2>&1 | grep -c 'nothing is installed in')"
finish_checks
