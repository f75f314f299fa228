#!/usr/bin/env bash
# The test suite: formatting, lints, documentation, unit and scenario tests.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }
step formatting; cargo fmt --all --check
step lints; cargo clippy --workspace --all-targets --locked -- -D warnings
step documentation; RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
step tests; cargo test --workspace --locked
