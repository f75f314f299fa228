#!/usr/bin/env bash
# A program built against the other MPI's ABI library runs on it, started by our mpiexec.
# Usage: interoperation.sh PREFIX REFERENCE
set -euo pipefail
cd "$(dirname "$0")"
prefix=$1 reference=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O1 -I"$prefix/include" programs/collectives.c -o "$work/collectives" -L"$prefix/lib" -lmpi_abi
LD_LIBRARY_PATH=$reference/lib timeout 120 "$prefix/bin/mpiexec" -n 4 "$work/collectives"
LD_LIBRARY_PATH=$prefix/lib timeout 120 "$prefix/bin/mpiexec" -n 4 "$work/collectives"
echo "one binary, both libraries, our mpiexec: ok"
