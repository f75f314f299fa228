#!/usr/bin/env bash
# Buffers in the memory of a device, by a library with CUDA's interface and no device. Usage: devices.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lib"
cc -std=gnu11 -Wall -Werror -O1 -shared -fPIC -pthread programs/fake_cuda.c -o "$work/lib/libcuda.so.1" -Wl,-soname,libcuda.so.1
ln -s libcuda.so.1 "$work/lib/libcuda.so"
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/devices.c -o "$work/devices" -L"$work/lib" -lcuda
cat >"$work/short.c" <<'C'
/* Sends more of a device's memory than there is. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
int cuMemAlloc_v2(uint64_t *, size_t);
int main(void) {
    uint64_t place;
    MPI_Init(0, 0);
    cuMemAlloc_v2(&place, 1000);
    MPI_Sendrecv((void *)place, 2000, MPI_BYTE, 0, 0, 0, 0, MPI_BYTE, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    return 0;
}
C
"$prefix/bin/mpicc" -O1 "$work/short.c" -o "$work/short" -L"$work/lib" -lcuda
go() { LD_LIBRARY_PATH=$work/lib CANELE_DEVICES=cuda timeout 300 "$prefix/bin/mpiexec" "$@" 2>&1; }
all_right() { # name, options and program
    check "$1" "all right" "$(go "${@:2}" "$work/devices" "$work/file" | sed -n 's/^devices: .* ranks, \(all right\)$/\1/; t p; b; :p p')"
    rm -f "$work/file"
}
for ranks in 1 2 3; do all_right "$ranks ranks in shared memory" -n $ranks; done
all_right "two ranks over TCP" -genv CANELE_RAILS tcp -n 2
all_right "two ranks over QUIC" -genv CANELE_RAILS quic -n 2
all_right "three ranks over two rails" -genv CANELE_RAILS shm+tcp -n 3
all_right "two ranks, each message compressed if it can be" -genv CANELE_RAILS tcp -genv CANELE_STRATEGY compress -n 2
all_right "with four VCIs" -genv CANELE_VCIS 4 -n 2

check "a buffer that is too short is told of" 1 "$(go -n 1 "$work/short" | grep -c 'copying 2000 bytes at 0x[0-9a-f]* in a device: CUDA_ERROR_INVALID_VALUE')"
cat >"$work/none.c" <<'C'
#include <mpi.h>
int main(void) {
    MPI_Init(0, 0);
    MPI_Finalize();
    return 0;
}
C
"$prefix/bin/mpicc" "$work/none.c" -o "$work/none"
with() { CANELE_DEVICES=$1 timeout 60 "$prefix/bin/mpiexec" -n 1 "$work/none" 2>&1; }
check "a library that is missing" 1 "$(with cuda | grep -c 'CANELE_DEVICES=cuda: libcuda.so.1: ')"
check "a value that is none" 1 "$(with gpu | grep -c 'CANELE_DEVICES=gpu: not one of auto, cuda, none')"
check "without devices" "" "$(with auto)$(with none)"
finish_checks
