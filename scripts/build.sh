#!/usr/bin/env bash
# Makes a release build whose bytes depend neither on the folder that it is made in nor on the user's home: the paths in
# programs and libraries are relative. For a named architecture the build is for glibc 2.17 or later, and made with Zig,
# which knows its symbols, into TARGET/ARCHITECTURE-unknown-linux-gnu/release.
# Usage: build.sh [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${HOME:-/root}/.cargo/bin"
read -ra flags <<<"${RUSTFLAGS:-}"
# Of several prefixes of a path, the last one counts.
remap() { flags+=("--remap-path-prefix=$1=$2"); }
remap "$PWD" .
remap "$(realpath -m "${CARGO_TARGET_DIR:-target}")" target
remap "${CARGO_HOME:-${HOME:-/root}/.cargo}/registry/src" registry
remap "$(rustc --print sysroot)/lib/rustlib/src/rust" "/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf %s "${flags[*]}")
export CARGO_ENCODED_RUSTFLAGS
[ $# -gt 0 ] || exec cargo build --release --locked

host=$1-unknown-linux-gnu tools=$PWD/build/zig
case $1 in
    x86_64 | aarch64) ;;
    *) echo "build: $1: the architectures are x86_64 and aarch64" >&2 && exit 1 ;;
esac
if [ ! -e "$(rustc --print sysroot)/lib/rustlib/$host" ]; then
    echo "build: Rust has no standard library for $1: rustup target add $host" >&2
    exit 1
fi
if [ ! -e "$tools/done" ]; then
    if ! { python3 -m venv "$tools" && "$tools/bin/pip" install -q --disable-pip-version-check cargo-zigbuild==0.24.1 ziglang==0.17.1; }; then
        echo "build: Zig cannot be fetched into $tools: see pip's message above" >&2
        exit 1
    fi
    touch "$tools/done"
fi
PATH=$tools/bin:$PATH exec cargo zigbuild --release --locked --target "$host.2.17"
