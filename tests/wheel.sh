#!/usr/bin/env bash
# The wheel of `build.sh ARCHITECTURE`: for which glibc it is, and four ranks of C and Fortran programs on what pip installs
# from it. Programs of another architecture run under an emulator, started by PREFIX's launcher.
# Usage: wheel.sh PREFIX ARCHITECTURE [EMULATOR...]
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1") architecture=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH PYTHONPATH
tools=$PWD/../build/auditwheel
[ -e "$tools/done" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install -q --disable-pip-version-check auditwheel==6.8.2 && touch "$tools/done"; }

wheel=$(../scripts/wheel.sh "$work/wheel" "$architecture" | cut -d' ' -f1)
check "the wheel is for glibc 2.17" "manylinux_2_17_$architecture.whl" "${wheel##*-}"
check "which auditwheel finds, too" yes "$("$tools/bin/auditwheel" show "$wheel" >"$work/audit" 2>&1; grep -q "\"manylinux_2_17_$architecture\"" "$work/audit" && echo yes || cat "$work/audit")"
# pip's --target leaves out what lies in lib, and --platform needs it: the data are unpacked as pip would.
python3 - "$wheel" "$work/tree" <<'X'
import os, sys, zipfile
for entry in zipfile.ZipFile(sys.argv[1]).infolist():
    _, found, inside = entry.filename.partition(".data/data/")
    if found:
        path = os.path.join(sys.argv[2], inside)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").write(zipfile.ZipFile(sys.argv[1]).read(entry))
        os.chmod(path, entry.external_attr >> 16 & 0o777)
X
check "it can be unpacked" 0 $?
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -1)
for program in canele mpiexec canele-gateway; do
    check "$program runs" 1 "$("$@" "$work/tree/bin/$program" --version 2>&1 | grep -cF "$version")"
done
compiler() { # name: that of the architecture
    if [ "$architecture" = "$(uname -m)" ]; then echo "$1"; else echo "$architecture-linux-gnu-$1"; fi
}
run() { # command of mpiexec...
    timeout 600 "$prefix/bin/mpiexec" -timeout 590 "$@" 2>&1
}
clean() { # name, command of mpiexec...: a program that counts its failures
    local name=$1 said
    shift
    said=$(run "$@")
    check "$name" yes "$(grep -q '[ ,]0 failures$' <<<"$said" && echo yes || tail -5 <<<"$said")"
}
export CANELE_CC CANELE_FC XDG_CACHE_HOME=$work/cache
CANELE_CC=$(compiler gcc) CANELE_FC=$(compiler gfortran)
for program in collectives point_to_point layouts operations sites; do
    "$work/tree/bin/mpicc" -O1 programs/$program.c -o "$work/$program" -ldl || failures=$((failures + 1))
done
mapfile -t names < <(python3 ../api/generate.py datatypes)
clean "operations on all datatypes" -n 1 "$@" "$work/operations" 1 "${names[@]}"
for rails in shm tcp; do
    check "four ranks greet over $rails" "0:0 0:0 0:0 0:0 0 strangers" "$(run -genv CANELE_RAILS $rails -n 4 "$@" "$work/sites")"
    for program in collectives point_to_point layouts; do
        clean "$program over $rails" -genv CANELE_RAILS $rails -n 4 "$@" "$work/$program"
    done
done
if command -v "$CANELE_FC" >/dev/null; then
    "$work/tree/bin/mpicc" -c programs/fortran/languages.c -o "$work/languages.o"
    for program in include.f module.f90 module_f08.f90; do
        # Modules of the program go to the folder that it is compiled in.
        (cd "$work" && "$work/tree/bin/mpifort" -O1 "$OLDPWD/programs/fortran/$program" "$work/languages.o" -o "$work/fortran") >"$work/log" 2>&1 || cat "$work/log"
        check "$program on four ranks" " no errors" "$(run -n 4 "$@" "$work/fortran" | tail -1)"
    done
else
    skip "Fortran programs" "there is no $CANELE_FC"
fi
finish_checks
