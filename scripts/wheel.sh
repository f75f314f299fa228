#!/usr/bin/env bash
# Makes a wheel of a release build, for `pip install`. Usage: wheel.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?usage: wheel.sh FOLDER}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage scripts/install.sh /tree >/dev/null
python3 scripts/wheel.py "$stage/tree" "$folder"
