#!/usr/bin/env bash
# Brings what a build and the tests need: a C compiler, Python, and Rust. On Debian as root it installs
# what is missing; elsewhere it says exactly what to install.
set -euo pipefail
missing=()
need() { # command, package
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need cc gcc
need c++ g++
need make make
need cmake cmake
need pkg-config pkg-config
need python3 python3
need curl curl
need ip iproute2
need nm binutils
need valgrind valgrind
[ -e /usr/sbin/iptables-legacy ] || missing+=(iptables)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
python3 -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null || missing+=(python3-dev)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing ${missing[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
    else
        echo "please install: ${missing[*]} (Debian's names)" >&2
        exit 1
    fi
fi
if ! command -v cargo >/dev/null 2>&1 && [ ! -x "$HOME/.cargo/bin/cargo" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing rustup"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq rustup >/dev/null 2>&1 || true
    fi
    if command -v rustup >/dev/null 2>&1; then
        rustup default stable
    else
        echo "please install Rust (stable, 1.95 or later) with rustup" >&2
        exit 1
    fi
fi
