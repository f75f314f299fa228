#!/usr/bin/env bash
# Installs a release build into PREFIX, below DESTDIR if that is set, or removes what it has installed there. Programs
# and library are stripped; their debugging information goes to files beside them, where debuggers look for it.
# OBJCOPY and STRIP name the tools for a build of another architecture.
# Usage: [DESTDIR=FOLDER] install.sh PREFIX, or install.sh --uninstall PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
# What is installed is for all users.
umask 022
usage="usage: install.sh [--uninstall] PREFIX"
action=install
if [ "${1:-}" = --uninstall ]; then
    action=uninstall
    shift
fi
prefix=${1:?$usage}
root=${DESTDIR:-}$prefix
# What installations have made, one a line: files, and folders with a slash behind their names.
list=$root/share/canele/installed

if [ $action = uninstall ]; then
    if [ ! -e "$list" ]; then
        echo "install: nothing is installed in $root: $list is missing" >&2
        exit 1
    fi
    # Folders come after what is in them.
    mapfile -t files < <(sort -r "$list")
    # Modules that compilers have made.
    rm -rf "$root/lib/canele/fortran"
    rmdir "$root/lib/canele" 2>/dev/null || true
    for file in "${files[@]}"; do
        case $file in
            */) rmdir "$root/$file" 2>/dev/null || true ;;
            *) rm -f "$root/$file" ;;
        esac
    done
    rmdir "$root" 2>/dev/null || true
    echo "Canele removed from $root"
    exit
fi

target=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
for file in libmpi_abi.so libmpifort_abi.so libmpich_abi.so libcanele_trace.so mpiexec canele-agent canele-gateway canele; do
    if [ ! -e "$target/$file" ]; then
        echo "install: $target/$file is missing: run scripts/build.sh first" >&2
        exit 1
    fi
done
# Everything is made aside, so that the list is complete and a failure leaves nothing half done.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$made"/{bin/.debug,include,lib/.debug,lib/canele/mpich/.debug,lib/pkgconfig,share/canele,share/doc/canele/user}
binary() { # file, folder, name
    "${OBJCOPY:-objcopy}" --only-keep-debug "$1" "$made/$2/.debug/$3.debug"
    chmod 644 "$made/$2/.debug/$3.debug"
    install -m 755 "$1" "$made/$2/$3"
    "${STRIP:-strip}" --strip-unneeded "$made/$2/$3"
    "${OBJCOPY:-objcopy}" --add-gnu-debuglink="$made/$2/.debug/$3.debug" "$made/$2/$3"
}
binary "$target/libmpi_abi.so" lib libmpi_abi.so.1
binary "$target/libcanele_trace.so" lib libcanele_trace.so
for program in mpiexec canele-agent canele-gateway canele; do binary "$target/$program" bin $program; done
binary "$target/libmpifort_abi.so" lib libmpifort_abi.so.1
for library in libmpi_abi libmpifort_abi; do ln -s $library.so.1 "$made/lib/$library.so"; done
# The library for programs of MPICH is in a folder that no loader searches unless a user says so.
binary "$target/libmpich_abi.so" lib/canele/mpich libmpi.so.12
ln -s libmpi.so.12 "$made/lib/canele/mpich/libmpi.so"
ln -s mpiexec "$made/bin/mpirun"
install -m 644 include/mpi.h include/mpi-ext.h include/mad.h "$made/include/"
wrapper() { # name, variable, default compiler, script for sed
    sed -e "s/@NAME@/$1/g; s/@VAR@/$2/g; s/@DEFAULT@/$3/; s/@VERSION@/$version/" -e "$4" packaging/mpicc.in >"$made/bin/$1"
    chmod 755 "$made/bin/$1"
}
c='/^ *# fortran$/,/^ *# end fortran$/d; s/@FLAGS@/"-I$include"/; s/@FOLDERS@/"$include"/; s/@LINKED@/-lmpi_abi/; s/@LIBRARIES@/mpi_abi/'
fortran='/^ *# \(end \)*fortran$/d; s/@FLAGS@/"-I$include" "-I$modules" $checks/; s/@FOLDERS@/"$include" "$modules"/
    s/@LINKED@/-lmpifort_abi -lmpi_abi ${runtime:+"$runtime"}/; s/@LIBRARIES@/mpifort_abi mpi_abi/'
wrapper mpicc CC cc "$c"
wrapper mpicxx CXX c++ "$c"
wrapper mpic++ CXX c++ "$c"
for name in mpifort mpif90 mpif77; do wrapper $name FC gfortran "$fortran"; done
# Compilers make their modules from these when mpifort first calls them.
python3 api/generate.py fortran "$made/share/canele/fortran" "$version"
mv "$made/share/canele/fortran/mpif.h" "$made/include/"
install -m 644 packaging/sections.f90 "$made/share/canele/fortran/"
for module in mpi mpi_f08; do
    sed "s/@MODULE@/$module/" packaging/uses_module.f90.in >"$made/share/canele/fortran/uses_$module.f90"
done
for package in mpi mpi-fort canele-mad; do
    sed "s/@VERSION@/$version/" "packaging/$package.pc.in" >"$made/lib/pkgconfig/$package.pc"
done
# One page for each function, made from the table of the API.
python3 api/generate.py man "$made/share/man/man3" "$version"
mkdir -p "$made"/share/{man/man1,bash-completion/completions,zsh/site-functions,modulefiles/canele}
for page in packaging/*.1.in; do
    name=${page##*/}
    sed "s/@VERSION@/$version/" "$page" >"$made/share/man/man1/${name%.in}"
done
ln -s mpiexec.1 "$made/share/man/man1/mpirun.1"
for name in mpicxx mpic++ mpifort mpif90 mpif77; do ln -s mpicc.1 "$made/share/man/man1/$name.1"; done
for program in mpiexec canele canele-gateway; do
    install -m 644 packaging/completions/$program.bash "$made/share/bash-completion/completions/$program"
    install -m 644 packaging/completions/$program.zsh "$made/share/zsh/site-functions/_$program"
done
ln -s mpiexec "$made/share/bash-completion/completions/mpirun"
sed "s/@VERSION@/$version/g" packaging/modules/canele.tcl.in >"$made/share/modulefiles/canele/$version"
sed "s/@VERSION@/$version/g" packaging/modules/canele.lua.in >"$made/share/modulefiles/canele/$version.lua"
install -m 644 README.md CHANGELOG.md LICENSE-* "$made/share/doc/canele/"
install -m 644 docs/user/*.md "$made/share/doc/canele/user/"
{
    (cd "$made" && find . -type f -o -type l) | sed 's|^\./||'
    # Folders that were there before are others'.
    [ ! -e "$list" ] || grep '/$' "$list" || true
    (cd "$made" && find . -mindepth 1 -type d) | sed 's|^\./||' | while read -r folder; do
        [ -d "$root/$folder" ] || echo "$folder/"
    done
    echo share/canele/installed
} | sort -u >"$made/installed"
mv "$made/installed" "$made/share/canele/installed"
mkdir -p "$root"
# Programs that run keep their old files: a file is replaced, not written to. Folders that are there keep their modes and owners.
tar -C "$made" -cf - . | tar -C "$root" -xpf - --no-same-owner --no-overwrite-dir --keep-directory-symlink
echo "Canele $version installed in $root"
