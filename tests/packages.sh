#!/usr/bin/env bash
# The wheel and the Debian package of the release build: each is installed as users do, into a place of its own, and runs four
# ranks of a program that its own compiler wrapper has built.
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Without variables of this shell's installation.
unset LD_LIBRARY_PATH PYTHONPATH
four() { # folder of the programs: how many of four ranks greet
    "$1/mpicc" -O1 programs/sites.c -o "$work/program" && timeout 60 "$1/mpiexec" -n 4 "$work/program" | tail -1
}

wheel=$(../scripts/wheel.sh "$work/wheel" | cut -d' ' -f1)
check "a wheel is made" yes "$([ -s "$wheel" ] && echo yes)"
check "of at most 15 MB" yes "$([ "$(stat -c %s "$wheel")" -le 15000000 ] && echo yes)"
size() { # end of a file's name: its length in the wheel, in bytes
    python3 -c 'import sys, zipfile; print(*(f.file_size for f in zipfile.ZipFile(sys.argv[1]).infolist() if f.filename.endswith(sys.argv[2])))' "$wheel" "$1"
}
check "with a library of less than 8 MB" yes "$([ "$(size /lib/libmpi_abi.so.1)" -lt 8000000 ] && echo yes)"
check "and a canele of less than 15 MB" yes "$([ "$(size /bin/canele)" -lt 15000000 ] && echo yes)"
check "for the glibc that it needs" 1 "$(basename "$wheel" | grep -cE '^canele-[0-9.]+-py3-none-manylinux_2_[0-9]+_[a-z0-9_]+\.whl$')"
../scripts/wheel.sh "$work/again" >/dev/null
check "with the same bytes each time" 0 "$(cmp "$wheel" "$work/again/$(basename "$wheel")"; echo $?)"
if python3 -m venv "$work/venv" 2>/dev/null; then
    "$work/venv/bin/pip" install --no-index --quiet "$wheel" >"$work/log" 2>&1
    check "pip installs it" 0 $?
    check "no file of it is a link" 0 "$(find "$work/venv/lib" -maxdepth 1 -name 'lib*' -type l | wc -l)"
    check "four ranks run in its environment" "0:0 0:0 0:0 0:0 0 strangers" "$(four "$work/venv/bin")"
    check "mpirun, too" 2 "$("$work/venv/bin/mpirun" -n 2 echo x | wc -l)"
    # MPI_COMM_WORLD of MPICH's ABI.
    cat >"$work/mpich.py" <<'X'
import ctypes
library, size = ctypes.CDLL("libmpi.so.12"), ctypes.c_int()
library.MPI_Init(None, None)
library.MPI_Comm_size(0x44000000, ctypes.byref(size))
library.MPI_Finalize()
print("one of", size.value)
X
    check "and programs of MPICH's ABI" "one of 2 one of 2" \
        "$(LD_LIBRARY_PATH=$work/venv/lib/canele/mpich timeout 60 "$work/venv/bin/mpiexec" -n 2 "$work/venv/bin/python" "$work/mpich.py" | paste -sd' ')"
    mv "$work/venv" "$work/moved"
    check "also after a move" "0:0 0:0 0:0 0:0 0 strangers" "$(four "$work/moved/bin")"
    "$work/moved/bin/python" -m pip uninstall --yes --quiet canele >"$work/log" 2>&1
    check "and pip removes it" "" "$(ls "$work/moved/bin" | grep -E 'mpi|canele')"
else
    skip "the wheel in an environment" "python3 -m venv makes none here"
fi

if command -v dpkg-deb >/dev/null; then
    package=$(../scripts/deb.sh "$work/deb")
    check "a Debian package is made" "canele" "$(dpkg-deb -f "$package" Package)"
    again=$(umask 077; ../scripts/deb.sh "$work/again")
    describe() { dpkg-deb -f "$1"; dpkg-deb -c "$1"; }
    check "with the same bytes each time, whatever the umask" "" "$(cmp "$package" "$again"; diff <(describe "$package") <(describe "$again"))"
    check "for all users" "" "$(dpkg-deb -c "$package" | grep -vE '^([d-]r.[x-]r.[x-]r|l)')"
    check "with the glibc that it needs" 1 "$(dpkg-deb -f "$package" Depends | grep -cE '^libc6 \(>= 2\.[0-9]+\), libgcc-s1$')"
    dpkg-deb -x "$package" "$work/root"
    check "in a folder of its own" "canele canele-agent canele-gateway, canele" "$(ls "$work/root/usr/bin" | paste -sd' '), $(ls "$work/root/usr/lib")"
    check "four ranks run from there" "0:0 0:0 0:0 0:0 0 strangers" "$(four "$work/root/usr/lib/canele/bin")"
    dpkg-deb -e "$package" "$work/control"
    # update-alternatives as dpkg calls it, on folders of the test's own.
    mkdir -p "$work/alternatives" "$work/state" "$work/bin"
    printf '#!/bin/sh\necho "$*" >>%s/calls\n' "$work" >"$work/bin/update-alternatives"
    chmod +x "$work/bin/update-alternatives"
    PATH=$work/bin:$PATH sh "$work/control/postinst" configure && PATH=$work/bin:$PATH sh "$work/control/prerm" remove
    check "its programs are alternatives, and no longer when it goes" "2 2" "$(grep -c -- '^--install /usr/bin/mpi.* 20 --slave ' "$work/calls") $(grep -c -- '^--remove mpi' "$work/calls")"
    check "all of which exist" "" "$(grep -oE '/usr/lib/canele/[^ ]+' "$work/calls" | sort -u | while read -r file; do [ -e "$work/root$file" ] || echo "$file"; done)"
else
    skip "the Debian package" "no dpkg-deb here"
fi
finish_checks
