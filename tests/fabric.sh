#!/usr/bin/env bash
# Programs over the rail of libfabric, by its provider over TCP on the loopback. Usage: fabric.sh PREFIX [MPI4PY]
# (MPI4PY: virtual environment with mpi4py, if there is one)
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1 environment=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in collectives point_to_point nonblocking objects windows fault; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 "programs/$program.c" -o "$work/$program" || exit 1
done
go() { timeout 60 "$prefix/bin/mpiexec" "$@"; }

# A library of the same name that is not libfabric stands for an old one.
mkdir "$work/old"
echo 'int old;' | cc -xc -shared -fPIC -o "$work/old/libfabric.so.1" - || exit 1
output=$(LD_LIBRARY_PATH=$work/old go -genv CANELE_RAILS ofi -n 2 "$work/objects" 2>&1)
check "an old libfabric is named, with what to install" yes "$(grep -q 'rail ofi: .*install libfabric 1.9' <<<"$output" && echo yes)"
LD_LIBRARY_PATH=$work/old go -genv CANELE_RAILS shm,ofi,tcp -n 2 "$work/objects" >/dev/null 2>"$work/err"
check "beside other rails it is left out" 0 $?
check "in one line" 1 "$(grep -c 'rail ofi is left out' "$work/err")"

if ! ldconfig -p | grep -q 'libfabric\.so\.1 '; then
    skip "programs over libfabric" "libfabric.so.1 (Debian: libfabric1) is not here"
    finish_checks
fi
export CANELE_OFI_PROVIDER=tcp CANELE_IFACE=127.0.0.1
for program in collectives point_to_point nonblocking objects windows; do
    go -genv CANELE_RAILS ofi -n 4 "$work/$program" >"$work/out" 2>&1
    code=$?
    check "$program on four ranks over ofi" 0 $code
    [ $code = 0 ] || tail -5 "$work/out"
done
output=$(go -genv CANELE_LOG debug -n 2 "$work/objects" 2>&1)
check "the provider and its domain are told" yes "$(grep -q 'OFI: is open.*provider="tcp;ofi_rxm".*domain=' <<<"$output" && echo yes)"
output=$(go -genv CANELE_RAILS ofi -genv CANELE_OFI_PROVIDER nonesuch -n 2 "$work/objects" 2>&1)
check "a provider that is not there is named" yes "$(grep -q 'nonesuch.*CANELE_OFI_PROVIDER' <<<"$output" && echo yes)"
output=$(go -genv CANELE_RAILS ofi -genv CANELE_ENCRYPT all -n 2 "$work/objects" 2>&1)
check "what must be encrypted does not go over it" yes "$(grep -q 'not encrypted' <<<"$output" && echo yes)"
go -genv CANELE_RAILS ofi -n 4 "$work/fault" signal 9 "$work/ids" 2>"$work/err"
check "a killed rank ends the job with its code" 137 $?
check "and is named" 1 "$(grep -cF 'rank 2 on localhost: was ended by signal 9' "$work/err")"
if [ -e "$environment/done" ]; then
    go -genv CANELE_RAILS ofi -n 4 "$environment/bin/python" programs/numpy_client.py >/dev/null 2>&1
    check "mpi4py" 0 $?
fi
finish_checks
