#!/usr/bin/env bash
# mpi4py, built from its source with our mpicc, on four ranks. Usage: mpi4py.sh PREFIX ENVIRONMENT
# (ENVIRONMENT: directory of the virtual environment, made if it is missing)
set -euo pipefail
cd "$(dirname "$0")"
prefix=$1 environment=$2
if [ ! -e "$environment/done" ]; then
    python3 -m venv "$environment"
    pip() { "$environment/bin/pip" "$1" -q --disable-pip-version-check "${@:2}"; }
    pip install numpy
    # pip's cached builds are linked with the library of another installation, which may be gone.
    # Without optimisation, its one large file compiles five times faster.
    CFLAGS=-O0 MPICC=$prefix/bin/mpicc MPI4PY_BUILD_MPIABI=1 pip install --no-cache-dir --no-binary mpi4py mpi4py==4.1.2
    touch "$environment/done"
fi
go() { timeout 120 "$prefix/bin/mpiexec" "$@" "$environment/bin/python" programs/numpy_client.py; }
go -n 4
go -n 1
go -genv CANELE_RAILS tcp -n 4
