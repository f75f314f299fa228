#!/usr/bin/env bash
# Times of PETSc's solvers on eight ranks at two sites of the lab, and the collectives that they call: with Canele's plans, with
# naive ones (all ranks count as one site, and all send to one, and it to all), and on the peers in build/peers. A program of MPI-5.0's ABI is built once and
# runs on every library that has it; these are MPICH and Intel MPI. Rounds take turns, and the shortest time counts. PETSc's source
# is Debian's, by apt, and it needs liblapack-dev, flex and bison. Peers spin while they wait, so they need an idle machine.
# Usage: petsc.sh PREFIX FOLDER [ROUNDS [LIBRARY...]], where a library is canele, naive, mpich or impi-rt
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(realpath "$1") rounds=${3:-3} peers=$PWD/build/peers
mkdir -p "$2"
folder=$(realpath "$2")
command -v apt-get >/dev/null || { echo "petsc.sh: apt-get is missing, which gets PETSc's source" >&2; exit 1; }
echo "building PETSc in $folder/petsc; its output is in $folder/petsc.log" >&2
tests/petsc_source.sh "$prefix" "$folder" >"$folder/petsc.log" 2>&1 || { tail -5 "$folder/petsc.log" >&2; exit 1; }
export PETSC_DIR=$folder/petsc PETSC_ARCH=canele LD_LIBRARY_PATH=$prefix/lib
for program in ksp/ksp/tutorials/ex2 ksp/ksp/tutorials/ex45 snes/tutorials/ex19; do
    PATH=$prefix/bin:$PATH make -C "$PETSC_DIR/src/$(dirname $program)" "$(basename $program)" >>"$folder/petsc.log" 2>&1
done

work=$(mktemp -d)
export CANELE_LAB=s$$
trap '"$prefix/bin/canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
timeout 60 "$prefix/bin/canele" lab up --name "$CANELE_LAB" >"$work/lab" 2>&1 || grep -q 'not as asked' "$work/lab" || { cat "$work/lab" >&2; exit 1; }
seconds_max=120
hosts=site0-node0:2,site0-node1:2,site1-node0:2,site1-node1:2
# How a peer's launcher enters a node, in place of ssh.
cat >"$work/enter" <<ENTER
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec '$prefix/bin/canele' lab run "\$host" sh -c "\$*"
ENTER
chmod +x "$work/enter"
for operation in barrier bcast gather scatter allgather reduce allreduce; do echo "$operation * linear"; done >"$work/naive"
printf '%s * pairwise\n' alltoall reduce_scatter >>"$work/naive"

ours() { "$prefix/bin/mpiexec" -timeout $seconds_max -launcher-exec "$prefix/bin/canele lab run" -hosts $hosts -n 8 "$@"; }
peer() { # name, options..., program...
    local root=$peers/$1 placed=(-hosts $hosts)
    [ "$1" = mpich ] || placed=(-hosts "${hosts//:2/}" -ppn 2)
    shift
    LD_LIBRARY_PATH=$root/lib I_MPI_PIN=0 timeout $seconds_max "$prefix/bin/canele" lab run site0-node0 "$root/bin/mpiexec.hydra" \
        -launcher ssh -launcher-exec "$work/enter" "${placed[@]}" -n 8 "$@"
}
# Runs a program on a library, and adds the time that PETSc has measured.
measured() { # library, label, program...
    local library=$1 label=$2 said seconds
    shift 2
    # One that did not end is not asked again.
    ! grep -qsxF "$label, $library" "$work/endless" || return 0
    case $library in
    canele) said=$(ours "$@" -log_view 2>&1) ;;
    naive) said=$(CANELE_PLANS=$work/naive ours -genv CANELE_SITE one "$@" -log_view 2>&1) ;;
    *) said=$(peer "$library" "$@" -log_view 2>&1) ;;
    esac || true
    seconds=$(sed -nE 's/^Time \(sec\): +([0-9.e+-]+).*/\1/p' <<<"$said")
    if [ -z "$seconds" ]; then
        echo "petsc.sh: $label did not end on $library within $seconds_max s: $(tail -1 <<<"$said")" >&2
        echo "$label, $library" >>"$work/endless"
        return 0
    fi
    printf '%s\t%s\t%s\n' "$label" "$library" "$seconds" >>"$work/times"
    echo "  $label on $library: $seconds s" >&2
}
libraries=("${@:4}")
if [ ${#libraries[@]} = 0 ]; then
    libraries=(canele naive)
    for name in mpich impi-rt; do [ ! -e "$peers/$name/lib/libmpi_abi.so.1" ] || libraries+=("$name"); done
fi

# Name, folder, program and options: conjugate gradients (two sums of numbers in each step, or one that is hidden), multigrid, and a
# driven cavity by Newton's method.
programs="CG|ksp/ksp/tutorials/ex2|-m 120 -n 120 -ksp_type cg -pc_type jacobi -ksp_rtol 1e-8
pipelined CG|ksp/ksp/tutorials/ex2|-m 120 -n 120 -ksp_type pipecg -pc_type jacobi -ksp_rtol 1e-8
GMRES|ksp/ksp/tutorials/ex2|-m 120 -n 120 -ksp_type gmres -pc_type bjacobi -ksp_rtol 1e-8
multigrid|ksp/ksp/tutorials/ex45|-da_grid_x 33 -da_grid_y 33 -da_grid_z 33 -pc_type mg -pc_mg_levels 3 -ksp_rtol 1e-8
cavity|snes/tutorials/ex19|-da_grid_x 33 -da_grid_y 33"
for ((round = 1; round <= rounds; round++)); do
    while IFS='|' read -r label program options; do
        for library in "${libraries[@]}"; do
            # shellcheck disable=SC2086
            measured "$library" "$label" "$PETSC_DIR/src/$program" $options </dev/null
        done
    done <<<"$programs"
done
while IFS='|' read -r label program options; do
    # shellcheck disable=SC2086
    ours -profile "$work/$label.json" "$PETSC_DIR/src/$program" $options </dev/null >/dev/null 2>&1
done <<<"$programs"

python3 - "$work" "${libraries[@]}" <<'PYTHON'
import collections, json, pathlib, sys

work, libraries = pathlib.Path(sys.argv[1]), sys.argv[2:]
times = collections.defaultdict(dict)
for line in (work / "times").read_text().splitlines():
    label, library, seconds = line.split("\t")
    times[label][library] = min(float(seconds), times[label].get(library, float("inf")))
names = {"canele": "Canele", "naive": "naive plans", "mpich": "MPICH", "impi-rt": "Intel MPI"}
print("Time in s, and as a multiple of the first\n")
print(f"{'program':14}" + "".join(f"{names[library]:>20}" for library in libraries))
for label, found in times.items():
    first = found.get(libraries[0], float("nan"))
    cells = [f"{found[library]:.2f} ({found[library] / first:.2f})" if library in found else "-" for library in libraries]
    print(f"{label:14}" + "".join(f"{cell:>20}" for cell in cells))
print("\nCollectives: calls of a rank, and how many are of at most so many bytes\n")
collectives = ("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "scan")
for label in times:
    profile = json.loads((work / f"{label}.json").read_text())
    calls, sizes = collections.Counter(), collections.defaultdict(collections.Counter)
    for row in profile["calls"]:
        name = row["function"].removeprefix("MPI_")
        if row["rank"] == 0 and any(word in name.lower() for word in collectives):
            calls[name] += row["calls"]
            for most, count in row["sizes"]:
                sizes[name][most] += count
    for name, count in calls.most_common():
        print(f"{label:14}{name:24}{count:>8}  " + ", ".join(f"{count} ≤ {most} B" for most, count in sorted(sizes[name].items())))
PYTHON
