#!/usr/bin/env bash
# MPICH's own tests of the implemented functions, built with our mpicc, without those in mpich.excluded. Their source
# is Debian's, by apt. Prints a line for each failure, and the numbers of tests run and failed at the end.
# Usage: mpich_suite.sh PREFIX FOLDER (FOLDER: directory of the source and the build, made if it is missing)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1 folder=$2
version=4.0.2
suites="attr coll comm datatype errhan group info init pt2pt rma topo threads/coll threads/comm threads/init threads/pt2pt"
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib

# Some need functions that MPI has removed, and are not built. They are excluded.
build() {
    cd "$folder/mpich/test/mpi"
    # Unpacked files all get one age.
    find . -exec touch -r configure {} +
    CC=mpicc ./configure --with-mpi="$prefix" --disable-fortran --disable-cxx --enable-strictmpi >configure.log
    for part in dtpools util $suites; do
        make -k -C "$part" >"${part//\//-}.log" 2>&1 || [ "$part" != util ]
    done
    touch "$folder/mpich/built"
}

"$here/debian_source.sh" "$folder" mpich "$version" test/mpi
[ -e "$folder/mpich/built" ] || (build)

excluded=$(sed -E 's/ *(#.*)?$//; /^$/d' "$here/mpich.excluded" | awk '{print $1}')
needed=$(sed 's/#.*//' "$here/mpich.excluded" | sed -nE 's/.* needs (MPI_[A-Za-z_]+).*/\1/p' | sort -u)
supported=$(grep -vxFf "$here/../api/unsupported.txt" <<<"$needed" || true)
[ -z "$supported" ] || { echo "supported, yet a reason in tests/mpich.excluded:" $supported >&2; exit 1; }
run=0 failed=0
for suite in $suites; do
    cd "$folder/mpich/test/mpi/$suite"
    list=testlist
    [ -e $list ] || list=testlist.in
    # A program, its ranks, and arg=..., env=... and its expected result. Lines with other expectations are for MPICH
    # alone.
    while read -r program ranks more; do
        case "$program $more" in ' ' | '#'* | *@* | *resultTest=* | *mpiversion=*) continue ;; esac
        grep -qxF "$suite/$program" <<<"$excluded" && continue
        [[ $ranks =~ ^[0-9]+$ ]] || ranks=2
        arguments=() environment=()
        for word in $more; do
            case $word in
                arg=*) arguments+=("${word#arg=}") ;;
                env=*) word=${word#env=} && environment+=(-genv "${word%%=*}" "${word#*=}") ;;
            esac
        done
        run=$((run + 1))
        said=$("$prefix/bin/mpiexec" -timeout 180 "${environment[@]}" -n "$ranks" "./$program" "${arguments[@]}" 2>&1 </dev/null) && grep -qi 'no errors' <<<"$said" && continue
        failed=$((failed + 1))
        echo "failed: $suite/$program on $ranks ${arguments[*]}: $(head -c 300 <<<"$said" | tr '\n' '/')"
    done <$list
done
echo "$run tests of MPICH's, $failed failed"
[ "$run" -gt 0 ] && [ "$failed" = 0 ]
