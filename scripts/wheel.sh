#!/usr/bin/env bash
# Makes a wheel of a release build, for `pip install`: of this machine's, or of `build.sh ARCHITECTURE`.
# Usage: wheel.sh FOLDER [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: wheel.sh FOLDER [ARCHITECTURE]} architecture=${2:-}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if [ -n "$architecture" ]; then
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/$architecture-unknown-linux-gnu
    if [ "$architecture" != "$(uname -m)" ]; then
        export OBJCOPY=$architecture-linux-gnu-objcopy STRIP=$architecture-linux-gnu-strip
        if ! command -v "$OBJCOPY" >/dev/null; then
            echo "wheel: $OBJCOPY is missing: install binutils-${architecture/_/-}-linux-gnu" >&2
            exit 1
        fi
    fi
fi
DESTDIR=$stage scripts/install.sh /tree >/dev/null
python3 scripts/wheel.py "$stage/tree" "$folder"
