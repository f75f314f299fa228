#!/usr/bin/env bash
# Every command where something usual is missing: HOME, a cache that can be written, a terminal, a stream, variables, a current
# folder, an allocation. It works as ever, or says in one line what is wrong. Usage: surroundings.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
bin=$prefix/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
"$bin/mpicc" -O1 programs/total.c -o "$work/total" || exit 1
cp programs/total.c "$work/"
echo 'call MPI_Init()' >"$work/small.f90"
touch "$work/file"
mkdir "$work/locked"
mkdir -m 1777 "$work/out"
chmod 555 "$work/locked"
printf '[[site]]\nname = "here"\nhosts = ["localhost"]\nlaunch = "fork"\n' >"$work/grid"
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$work/launcher"
# A compiler that is fast, and makes modules. A folder of modules that cannot be written makes the user's cache count.
cat >"$work/fortran" <<'SH'
#!/bin/sh
[ "$1" != --version ] || { echo "Small Fortran 1.0" && exit; }
touch mpi.mod mpi_f08.mod
SH
chmod 755 "$work/launcher" "$work/fortran"
mkdir -p "$work/tree/lib" "$work/tree/share"
cp -r "$bin" "$prefix/include" "$work/tree/"
cp -r "$prefix/share/canele" "$work/tree/share/"
touch "$work/tree/lib/canele"
"$bin/mpiexec" -profile "$work/profile" -n 2 "$work/total" >/dev/null 2>&1
chmod 644 "$work/profile"
export CANELE_FC=$work/fortran
# A cache of the test, where nothing else is said.
export CANELE_CACHE_DIR=$work/out/cache XDG_CACHE_HOME=$work/out/usual

commands=(
    "$bin/mpiexec -n 2 $work/total"
    "$bin/mpicc $work/total.c -o $work/out/total"
    "$work/tree/bin/mpifort -c $work/small.f90"
    "$bin/canele --version"
    "$bin/canele info"
    "$bin/canele info --link"
    "$bin/canele info --progress"
    "$bin/canele info --system"
    "$bin/canele info --plan bcast 64KiB"
    "$bin/canele jobs"
    "$bin/canele stack 1"
    "$bin/canele top 1"
    "$bin/canele grid status $work/grid"
    "$bin/canele grid --hosts a,b --launcher-exec $work/launcher"
    "$bin/canele lab status --name nobody"
    "$bin/canele lab down --name nobody"
    "$bin/canele profile $work/profile"
    "$bin/canele bench clock --sleep 0.01"
)
usual=()
run() { # command: its code, and what is wrong with what it says
    local code
    timeout 60 "$@" 2>"$work/err"
    code=$?
    [ "$(wc -l <"$work/err")" -le 1 ] && ! grep -qE 'panicked|RUST_BACKTRACE' "$work/err" || cat "$work/err" >&3
    echo $code >&3
}
# Runs all commands in surroundings, which a function makes: those that end with another code than usually, or say more than
# one line.
within() { # name, function that runs a command
    local at said wrong=
    for at in "${!commands[@]}"; do
        # shellcheck disable=SC2086
        said=$(cd "$work/out" && "$2" ${commands[at]} 3>&1 >/dev/null)
        if [ -z "${usual[at]:-}" ]; then usual[at]=$said; fi
        [ "$said" = "${usual[at]}" ] || wrong+="${commands[at]##*/bin/}: $said; "
    done
    check "$1" "${3:-}" "$wrong"
}
usually() { run "$@"; }
within "usual surroundings" usually
check "and their codes" "0 0 0 0 0 0 0 0 0 0 1 1 0 0 1 0 0 0" "${usual[*]}"
empty() { run env -i TMPDIR="$work/out" CANELE_FC="$CANELE_FC" CANELE_CACHE_DIR="$CANELE_CACHE_DIR" "$@"; }
within "no variables" empty
homeless() { run env -u HOME -u XDG_CACHE_HOME -u CANELE_CACHE_DIR TMPDIR="$work/out" "$@"; }
within "no home" homeless
away() { run env -u CANELE_CACHE_DIR -u XDG_CACHE_HOME HOME=/nonexistent TMPDIR="$work/out" "$@"; }
within "a home that is not there" away
strange() { run env -u TERM LC_ALL=xx_YY.none TZ=Nowhere/None "$@"; }
within "no terminal, and an unknown language" strange
temporary() { run env TMPDIR=/nonexistent "$@"; }
within "no folder for temporary files" temporary
no_input() { run "$@" <&-; }
within "no input" no_input
no_output() { run "$@" >&-; }
within "no output" no_output
no_error() { local code; timeout 60 "$@" 2>&-; code=$?; echo $code >&3; }
within "no error output" no_error
file() { run env -u CANELE_CACHE_DIR XDG_CACHE_HOME="$work/file" XDG_RUNTIME_DIR="$work/file" TMPDIR="$work/out" "$@"; }
within "a cache below a file" file "canele info --link: 1; "
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    locked() { run env -u CANELE_CACHE_DIR -u XDG_CACHE_HOME HOME="$work/locked" XDG_RUNTIME_DIR="$work/locked" TMPDIR="$work/out" "${as[@]}" "$@"; }
    rm -rf "$work/out/total" "$work/out/build" "$work"/out/*.mod
    within "a home that cannot be written" locked
else
    skip "a home that cannot be written" "only root can be another user"
fi

# What a user has asked for and does not get is told.
said() { # command: its code, and what it says
    timeout 60 "$@" >"$work/said" 2>"$work/err"
    echo "$? $(cat "$work/err")"
}
full() { timeout 60 "$@" 2>&1 >/dev/full; }
for command in --version "info" "jobs" "grid --hosts a,b --launcher-exec $work/launcher" "grid status $work/grid" "profile $work/profile" "bench clock --sleep 0.01"; do
    # shellcheck disable=SC2086
    check "canele $command on a full disk" 1 "$(cd "$work/out"; full "$bin/canele" $command | grep -c 'standard output.*No space left')"
done
check "a cache that is a file" "0 mpiexec: CANELE_CACHE_DIR: $work/file: is not a directory: no costs are remembered" \
    "$(CANELE_CACHE_DIR=$work/file said "$bin/mpiexec" -n 2 "$work/total")"
check "a cache without an absolute path" "0 mpiexec: CANELE_CACHE_DIR: cache is not an absolute path: no costs are remembered" \
    "$(CANELE_CACHE_DIR=cache said "$bin/mpiexec" -n 2 "$work/total")"
check "no C compiler" "1 mpicc: no-such-compiler is not there: install it, or set CANELE_CC to another compiler" \
    "$(CANELE_CC=no-such-compiler said "$bin/mpicc" "$work/total.c")"
mkdir -p "$work/others/canele-$(id -u)"
for name in "$work"/out/*/canele-"$(id -u)"/* "$work"/out/canele-"$(id -u)"/*; do cp -r "$name" "$work/others/canele-$(id -u)/" 2>/dev/null; done
if [ "$(id -u)" = 0 ]; then
    chown -R 65534 "$work/others"
    check "modules that another user has made" "1 mpifort: no folder for the modules can be written: set XDG_CACHE_HOME to one" \
        "$(cd "$work/out"; said env -u HOME -u XDG_CACHE_HOME TMPDIR="$work/others" "$work/tree/bin/mpifort" -c "$work/small.f90")"
fi
# An allocation that is none.
printf '#!/bin/sh\necho "srun: error: Unable to confirm allocation for job 77: Invalid job id specified" >&2\nexit 1\n' >"$work/launcher"
mkdir "$work/slurm"
cp "$work/launcher" "$work/slurm/srun"
check "an allocation that has ended" 1 "$(SLURM_JOB_ID=77 SLURM_JOB_NODELIST=n1 SLURM_TASKS_PER_NODE=2 PATH=$work/slurm:$PATH said "$bin/mpiexec" "$work/total" |
    grep -cE 'mpiexec: the launcher could not start an agent on host n1 .*: `srun .* true` has to work; without an allocation of your own, unset SLURM_JOB_NODELIST$')"
# Another MPI's library in the place of ours, as after `pip install` of both.
mkdir "$work/mixed"
cp -r "$bin" "$work/mixed/"
mkdir "$work/mixed/lib"
cp /bin/true "$work/mixed/lib/libmpi_abi.so.1"
other="$work/mixed/lib/libmpi_abi.so.1 is the library of another MPI, which programs load in the place of Canele's: give each MPI an environment of its own"
check "the library of another MPI" "0 mpiexec: $other" "$(said "$work/mixed/bin/mpiexec" -n 1 true)"
check "also in canele info" "0 canele: $other" "$(said "$work/mixed/bin/canele" info)"
finish_checks
