#!/usr/bin/env bash
# Measures Canele beside its peers and raw TCP: installs the peers, builds, installs into build/prefix, and runs
# `canele bench compare` with the given arguments. Tables, JSON and plots go to build/bench.
# Usage: bench.sh [INSTRUMENT[@PLACE]...] [--rounds N] [--seconds S] [--sizes LIST], as `canele bench compare`
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/bootstrap.sh --lab
export PATH="$PATH:$HOME/.cargo/bin"
scripts/peers.sh
scripts/build.sh
scripts/install.sh "$PWD/build/prefix"
build/prefix/bin/canele bench clock
exec build/prefix/bin/canele bench compare "$@"
