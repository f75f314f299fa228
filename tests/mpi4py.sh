#!/usr/bin/env bash
# mpi4py, built from its source with our mpicc, on four ranks. Usage: mpi4py.sh PREFIX ENVIRONMENT
# (ENVIRONMENT: where the virtual environment is made or found)
set -euo pipefail
cd "$(dirname "$0")"
prefix=$1 environment=$2
if [ ! -e "$environment/done" ]; then
    python3 -m venv "$environment"
    MPICC=$prefix/bin/mpicc MPI4PY_BUILD_MPIABI=1 "$environment/bin/pip" install -q \
        --disable-pip-version-check --no-binary mpi4py mpi4py==4.1.2 numpy
    touch "$environment/done"
fi
go() { timeout 120 "$prefix/bin/mpiexec" "$@" "$environment/bin/python" programs/numpy_client.py; }
go -n 4
go -n 1
go -genv CANELE_RAILS tcp -n 4
