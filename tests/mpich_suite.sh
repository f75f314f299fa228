#!/usr/bin/env bash
# MPICH's own tests of the implemented functions, built with our wrappers, without those in mpich.excluded. Their
# source is Debian's, by apt. Prints a line for each failure, and the numbers of tests run and failed at the end.
# Usage: mpich_suite.sh [-abi REFERENCE | -fc COMPILER] PREFIX FOLDER [SUITE...] (FOLDER: directory of the source and the
# build, made if it is missing). With -abi, a choice of those in C is built with MPICH's header in REFERENCE, and runs over
# libmpi.so.12; those in mpich_abi.excluded are left out instead. With -fc, those in Fortran are built by another compiler;
# those in mpich_fortran.excluded are left out, too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
reference='' compiler=''
case ${1:-} in
    -abi) reference=$2 && shift 2 ;;
    -fc) compiler=$2 && shift 2 ;;
esac
prefix=$1 folder=$2
shift 2
version=4.0.2
# Not those that measure time (perf) or call MPICH's own functions (ft, impls).
suites="attr coll comm datatype errhan group info init io mpi_t part pt2pt rma spawn topo"
for part in coll comm init mpi_t pt2pt rma spawn; do suites="$suites threads/$part"; done
for part in attr coll comm datatype faults group io pt2pt rma spawn topo f77/io f90/io f08/io; do suites="$suites errors/$part"; done
for language in f77 f90 f08; do
    for part in attr coll comm datatype ext info init io profile pt2pt rma spawn topo; do suites="$suites $language/$part"; done
done
suites="$suites f90/f90types f90/misc f90/timer f08/misc f08/subarray f08/timer"
export PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$prefix/lib
list_of_excluded=$here/mpich.excluded wrappers=$prefix languages=(--enable-fortran=all)
compilers=(CC=mpicc FC=mpifort F77=mpif77)
if [ -n "$reference" ]; then
    suites="attr coll comm datatype errhan group info init io part pt2pt rma spawn topo"
    list_of_excluded=$here/mpich_abi.excluded folder=$folder/abi languages=(--disable-fortran)
    wrappers=$folder compilers=("CC=$folder/bin/mpicc")
    export LD_LIBRARY_PATH=$prefix/lib/canele/mpich
    mkdir -p "$folder/bin"
    # The header has no version of the standard ABI.
    printf '#!/bin/sh\nexec gcc -I%s/include -DMPI_ABI_VERSION=-1 -DMPI_ABI_SUBVERSION=-1 "$@" -L%s -lmpi\n' \
        "$reference" "$LD_LIBRARY_PATH" >"$folder/bin/mpicc"
    chmod +x "$folder/bin/mpicc"
fi
if [ -n "$compiler" ]; then
    suites=$(tr ' ' '\n' <<<"$suites" | grep -E '^(errors/)?f(77|90|08)/')
    # This one cannot compile calls of the module mpi_f08.
    [ "$compiler" != flang-new-16 ] || suites=$(grep -v f08/ <<<"$suites")
    suites=$(paste -sd' ' <<<"$suites")
    folder=$folder/$compiler
    export CANELE_FC=$compiler
fi
suites=${*:-$suites}

# Some need functions that MPI has removed, and are not built. They are excluded.
build() {
    local part source
    cd "$folder/mpich/test/mpi"
    if [ ! -e configured ]; then
        # Unpacked files all get one age.
        find . -exec touch -r configure {} +
        env "${compilers[@]}" ./configure --with-mpi="$wrappers" --disable-cxx "${languages[@]}" --enable-strictmpi >configure.log
        # The tests of mpi_f08 are left out of MPICH's own build unless it is MPICH that is built.
        [ -n "$reference" ] || [ "$compiler" = flang-new-16 ] || make -C util libmtest_f08.la am_libmtest_f08_la_OBJECTS=mtest_f08.lo >util-f08.log 2>&1
        make -k -C dtpools >dtpools.log 2>&1 || true
        make -k -C util >util.log 2>&1
        touch configured
    fi
    for part in $suites; do
        [ ! -e "$part/built" ] || continue
        make -k -C "$part" >"${part//\//-}.log" 2>&1 || true
        touch "$part/built"
    done
    # The non-blocking variants of tests of files, and others that are optional.
    for source in io/i_*.c f{77,90,08}/io/{i_,iwriteatall}*.f* f77/ext/allocmemf f{90,08}/ext/allocmemf90 rma/aint{,_collattach} f90/rma/aintf90 f08/rma/aintf08; do
        part=${source%/*} source=${source##*/}
        [[ " $suites " != *" $part "* ]] || make -C "$part" "${source%.*}" >>optional.log 2>&1 || true
    done
}

mkdir -p "$folder"
"$here/debian_source.sh" "$folder" mpich "$version" test/mpi
(build)

excluded=$(sed -E 's/ *(#.*)?$//; /^$/d' "$list_of_excluded" | awk '{print $1}')
[ -z "$compiler" ] || excluded+=$'\n'$(awk -v compiler="$compiler" '$1 == compiler {print $2}' "$here/mpich_fortran.excluded")
run=0 failed=0
for suite in $suites; do
    cd "$folder/mpich/test/mpi/$suite"
    list=testlist
    [ -e $list ] || list=testlist.in
    # A program, its ranks, arguments and environment of the program and of mpiexec, its time limit, and the end that it
    # must come to. A name begins with a mark if MPICH itself runs it only where it was configured to.
    while read -r program ranks more; do
        program=${program##*@}
        case $program in '' | '#'*) continue ;; esac
        [ -d "$program" ] && continue
        grep -qxF "$suite/$program" <<<"$excluded" && continue
        [[ $ranks =~ ^[0-9]+$ ]] || ranks=2
        arguments=() options=() limit_s=180 wanted=success
        for word in $more; do
            case $word in
                arg=*) arguments+=("${word#arg=}") ;;
                env=*) word=${word#env=} && options+=(-genv "${word%%=*}" "${word#*=}") ;;
                mpiexecarg=*) options+=("${word#mpiexecarg=}") ;;
                timeLimit=*) limit_s=${word#timeLimit=} ;;
                resultTest=*) wanted=failure ;;
            esac
        done
        run=$((run + 1))
        status=0
        said=$("$prefix/bin/mpiexec" -timeout "$limit_s" "${options[@]}" -n "$ranks" "./$program" "${arguments[@]}" 2>&1 </dev/null) || status=$?
        case $wanted in
            success) [ $status = 0 ] && grep -qi 'no errors' <<<"$said" && continue ;;
            failure) [ $status != 0 ] && [ -x "$program" ] && continue ;;
        esac
        failed=$((failed + 1))
        echo "failed: $suite/$program on $ranks ${arguments[*]}: $(head -c 300 <<<"$said" | tr '\n' '/')"
    done <$list
done
echo "$run tests of MPICH's, $failed failed"
[ "$run" -gt 0 ] && [ "$failed" = 0 ]
