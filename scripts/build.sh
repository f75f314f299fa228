#!/usr/bin/env bash
# Makes a release build whose bytes depend neither on the folder that it is made in nor on the user's home: the paths in
# programs and libraries are relative.
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
exec cargo build --release --locked
