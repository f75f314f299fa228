#!/usr/bin/env bash
# Installs a release build. Usage: install.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${1:?usage: install.sh PREFIX}
target=${CARGO_TARGET_DIR:-target}/release
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
for file in libmpi_abi.so mpiexec canele-agent canele-gateway canele; do
    if [ ! -e "$target/$file" ]; then
        echo "install: $target/$file is missing: run \`cargo build --release\` first" >&2
        exit 1
    fi
done
mkdir -p "$prefix"/{bin,include,lib/pkgconfig}
install -m 644 include/mpi.h include/mad.h "$prefix/include/"
install -m 755 "$target/libmpi_abi.so" "$prefix/lib/libmpi_abi.so.1"
ln -sf libmpi_abi.so.1 "$prefix/lib/libmpi_abi.so"
install -m 755 "$target"/{mpiexec,canele-agent,canele-gateway,canele} "$prefix/bin/"
ln -sf mpiexec "$prefix/bin/mpirun"
wrapper() { # name, variable, default compiler
    sed -e "s/@NAME@/$1/; s/@VAR@/$2/g; s/@DEFAULT@/$3/; s/@VERSION@/$version/; s/@NAME@/$1/g" packaging/mpicc.in >"$prefix/bin/$1"
    chmod 755 "$prefix/bin/$1"
}
wrapper mpicc CC cc
wrapper mpicxx CXX c++
wrapper mpic++ CXX c++
for package in mpi canele-mad; do
    sed "s/@VERSION@/$version/" "packaging/$package.pc.in" >"$prefix/lib/pkgconfig/$package.pc"
done
# One page for each function, made from the table of the API.
python3 api/generate.py man "$prefix/share/man/man3" "$version"
echo "Canele $version installed in $prefix"
