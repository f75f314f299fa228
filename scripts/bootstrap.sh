#!/usr/bin/env bash
# Installs the build's requirements: a C compiler, Python, and Rust; with --lab also those of the emulated grid, and
# with --tests also those of the tests, an ssh server among them. On Debian as root it installs missing packages.
# Elsewhere it prints exactly which packages to install. An existing Rust belongs to its owner: if it is unsuitable,
# this script says so and leaves it alone.
# Usage: bootstrap.sh [--lab | --tests]
set -euo pipefail
cd "${BASH_SOURCE%/*}/.."
PATH="$PATH:/usr/sbin:/sbin:${HOME:-/root}/.cargo/bin"
has() { command -v "$1" >/dev/null 2>&1; }

missing=()
need() { # command, package
    has "$1" || missing+=("$2")
}
wanted=${1:-}
case $wanted in
    '' | --lab | --tests) ;;
    *) echo "usage: bootstrap.sh [--lab | --tests]" >&2 && exit 1 ;;
esac
need cc gcc
need objcopy binutils
need make make
need tar tar
need python3 python3
has cargo || need curl curl
if [ -n "$wanted" ]; then
    need ip iproute2
    need nsenter util-linux
    need ps procps
    need iptables-legacy iptables
    need nft nftables
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
fi
if [ "$wanted" = --tests ]; then
    need c++ g++
    need gfortran gfortran
    need pkg-config pkg-config
    need cmake cmake
    need valgrind valgrind
    need ssh openssh-client
    need sshd openssh-server
    need dash dash
    need hostname hostname
    need fi_info libfabric-bin
    [ -e /usr/include/rdma/fabric.h ] || missing+=(libfabric-dev)
    # One of two that exclude each other in Debian; Lmod reads the files of both.
    [ -e /usr/share/modules/init/bash ] || [ -e /usr/share/lmod/lmod/init/bash ] || missing+=(lmod)
    python3 -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null || missing+=(python3-dev)
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || missing+=(ca-certificates)
# A compiler is useless without headers and development files.
echo '#include <stdio.h>' | cc -xc -fsyntax-only - 2>/dev/null || missing+=(libc6-dev)

[[ $(<Cargo.toml) =~ rust-version\ =\ \"([0-9]+)\.([0-9]+) ]]
rust_version=${BASH_REMATCH[1]}.${BASH_REMATCH[2]} wanted_minor=${BASH_REMATCH[2]}
rust() { # the defect of the Rust that is here, if any
    has cargo || { echo "Rust is missing"; return; }
    local said
    said=$(cargo --version 2>&1) || { echo "cargo does not run ($said)"; return; }
    [[ $said =~ ^cargo\ ([0-9]+)\.([0-9]+) ]] || { echo "cargo's version is not understood ($said)"; return; }
    [ "${BASH_REMATCH[1]}" -gt 1 ] || [ "${BASH_REMATCH[2]}" -ge "$wanted_minor" ] || { echo "Rust is too old ($said)"; return; }
    [ "$wanted" = --tests ] || return 0
    cargo fmt --version >/dev/null 2>&1 || { echo "rustfmt is missing"; return; }
    cargo clippy --version >/dev/null 2>&1 || echo "clippy is missing"
}
complaint=$(rust)
[ ${#missing[@]} -gt 0 ] || [ -n "$complaint" ] || exit 0

ask_for_rust() {
    echo "bootstrap: $1: please install Rust $rust_version or later with rustfmt and clippy, for instance by" >&2
    echo "    rustup toolchain install stable --component rustfmt,clippy      (https://rustup.rs)" >&2
    exit 1
}

can_install=no
[ "$(id -u)" != 0 ] || ! has apt-get || can_install=yes
if [ $can_install = no ] || { [ -n "$complaint" ] && { has cargo || has rustup; }; }; then
    if [ $can_install = no ] && [ ${#missing[@]} -gt 0 ]; then
        echo "bootstrap: please install these packages (Debian's names): ${missing[*]}" >&2
    fi
    [ -z "$complaint" ] || ask_for_rust "$complaint"
    exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
fi
if [ -n "$complaint" ]; then
    echo "installing the stable Rust"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
        sh -s -- -y --quiet --profile minimal --default-toolchain stable --component rustfmt,clippy ||
        ask_for_rust "Rust could not be fetched"
    hash -r
    complaint=$(rust)
    [ -z "$complaint" ] || { echo "bootstrap: $complaint, after its installation" >&2; exit 1; }
fi
