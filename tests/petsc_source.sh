#!/usr/bin/env bash
# PETSc, configured in C alone and built by our mpicc in FOLDER/petsc, unless it has been. Usage: petsc_source.sh PREFIX FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 folder=$2
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib
"$here/debian_source.sh" "$folder" petsc 3.18.5
cd "$folder/petsc"
[ ! -e .built ] || exit 0
export PETSC_DIR=$PWD PETSC_ARCH=canele
./configure --with-cc=mpicc --with-cxx=0 --with-fc=0 --with-debugging=0 --with-x=0 --with-make-np="$(nproc)" --with-mpiexec="mpiexec -timeout 300"
make all
touch .built
