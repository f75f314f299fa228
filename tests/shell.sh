#!/usr/bin/env bash
# What the installed tree gives a user's shell: completions, manual pages, module files; and the recipes for Spack and
# containers, as far as they can be checked without them. Usage: shell.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
share=$prefix/share
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Completion as bash does it: the words of a line up to its end, in which the last may be empty.
completed() { # line
    bash --norc --noprofile -c '
        line=$1
        read -ra COMP_WORDS <<<"$line"
        [[ $line != *" " ]] || COMP_WORDS+=("")
        COMP_LINE=$line COMP_POINT=${#line} COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        program=${COMP_WORDS[0]}
        . "$2/$program"
        of=$(complete -p "$program")
        of=${of##*-F } of=${of%% *}
        "$of" "$program" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' complete "$1" "$share/bash-completion/completions" | sort | paste -sd' '
}
for file in "$share"/bash-completion/completions/*; do check "bash reads ${file##*/}" "" "$(bash -n "$file" 2>&1)"; done
check "options of mpiexec" "-bind-to" "$(completed "mpiexec -bi")"
check "with two dashes" "--hostfile --hosts" "$(completed "mpirun -n 4 --host")"
check "words of an option" "l1cache l2cache l3cache" "$(completed "mpiexec -n 2 -bind-to l")"
check "behind a value that bash divides" "sites" "$(completed "mpiexec -hosts a:2,b:2 -encrypt s")"
check "a command as the program" yes "$(completed "mpiexec -genv A 1 -n 2 bas" | grep -qw bash && echo yes)"
check "nothing of ours behind the program" "" "$(completed "mpiexec -n 2 bash -bi")"
check "a second program" "-bind-to" "$(completed "mpiexec -n 2 bash x : -bi")"
(cd "$work" && mkdir folder && : >file)
check "folders where one is wanted" "$work/folder" "$(completed "mpiexec -wdir $work/f")"
check "commands of canele" "stack" "$(completed "canele st")"
check "and below them" "up" "$(completed "canele lab u")"
check "options of canele info" "--settings" "$(completed "canele info --set")"
check "options of canele-gateway" "--beat --between" "$(completed "canele-gateway --be")"
check "and their words" "auto tcp udp" "$(completed "canele-gateway --between ")"

if command -v zsh >/dev/null; then
    for program in canele canele-gateway mpiexec; do
        check "zsh reads _$program" "_$program" "$(zsh -f -c "fpath=($share/zsh/site-functions \$fpath); autoload -Uz compinit && compinit -D -u && echo \$_comps[$program] && autoload +X _$program" 2>&1)"
    done
else
    skip "completions for zsh" "no zsh here"
fi

pages="canele canele-agent canele-gateway mpic++ mpicc mpicxx mpiexec mpif77 mpif90 mpifort mpirun"
check "a manual page for each program" "$(ls "$prefix/bin" | sort)" "$(ls "$share/man/man1" | sed 's/\.1$//' | sort)"
check "all of them named here" "$pages" "$(ls "$share/man/man1" | sed 's/\.1$//' | sort | paste -sd' ')"
if command -v groff >/dev/null; then
    check "groff formats them" "" "$(cd "$share/man/man1" && groff -man -ww -z ./*.1 2>&1 | head -5)"
else
    skip "the form of manual pages" "no groff here"
fi
check "canele's page tells of all commands" "" "$("$prefix/bin/canele" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v help | while read -r word; do grep -qi "^\.SH CANELE $word" "$share/man/man1/canele.1" || echo "$word"; done)"

# Module files, which find the tree from where they lie.
version=$("$prefix/bin/canele" --version | cut -d' ' -f2)
modules=/usr/share/modules/init/bash
[ ! -e "$modules" ] || check "environment-modules" "$prefix/bin/mpicc $prefix" "$(MODULEPATH=$share/modulefiles bash -c ". $modules; module load canele && echo \$(command -v mpicc) \$MPI_HOME" 2>&1)"
[ ! -e "$modules" ] || check "and its removal" "no" "$(MODULEPATH=$share/modulefiles bash -c ". $modules; module load canele/$version; module unload canele; echo \${MPI_HOME-no}" 2>&1)"
lmod=/usr/share/lmod/lmod/init/bash
with_lmod() { # folder of module files, commands
    bash -c ". $lmod; module use $1 && $2" 2>&1
}
if [ -e "$lmod" ]; then
    check "Lmod" "$prefix/bin/mpicc $prefix" "$(with_lmod "$share/modulefiles" 'module load canele && echo $(command -v mpicc) $MPI_HOME')"
    check "and its removal" "no" "$(with_lmod "$share/modulefiles" "module load canele/$version; module unload canele; echo \${MPI_HOME-no}")"
    check "and what it says of the module" 1 "$(with_lmod "$share/modulefiles" 'module whatis canele' | grep -c "Canele $version: MPI for machines")"
    # The Tcl file alone, in another place.
    there=$work/tree/share/modulefiles
    mkdir -p "$there/canele" "$work/tree/bin" && cp "$share/modulefiles/canele/$version" "$there/canele/"
    check "Lmod, by the Tcl module file" "$work/tree $work/tree/bin" "$(with_lmod "$there" 'module load canele && echo $MPI_HOME ${PATH%%:*}')"
fi
[ -e "$modules" ] || [ -e "$lmod" ] || skip "module files" "environment-modules and Lmod are missing: scripts/bootstrap.sh --tests installs one"
[ -e "$lmod" ] || skip "the Lua module file" "Lmod is missing"
check "module files name this version" "2 $version $version.lua" "$(grep -l "Canele $version" "$share"/modulefiles/canele/* | wc -l) $(ls "$share/modulefiles/canele" | paste -sd' ')"

# The recipes name what exists.
recipes=$PWD/../packaging
check "Python reads the recipe for Spack" "" "$(python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$recipes/spack/packages/canele/package.py" 2>&1)"
check "its checkout is this one" "$(realpath ..)" "$(cd "$recipes/spack/packages/canele" && realpath ../../../..)"
check "it asks for the Rust of the workspace" "$(sed -n 's/^rust-version = "\(.*\)"/\1/p' ../Cargo.toml)" "$(sed -n 's/.*"rust@\([0-9.]*\):".*/\1/p' "$recipes/spack/packages/canele/package.py")"
container=$recipes/container/Containerfile
sed -n '/^RUN /,/[^\\]$/p' "$container" | sed 's/^RUN //' >"$work/commands"
check "the shell reads the container's commands" "0" "$(sh -n "$work/commands"; echo $?)"
if compgen -G "/var/lib/apt/lists/*_Packages*" >/dev/null && command -v apt-cache >/dev/null; then
    check "its packages are Debian's" "" "$(sed -n '/--no-install-recommends/{n;p}' "$container" | tr ' ' '\n' | grep -E '^[a-z][a-z0-9-]+$' | grep -vxE 'rm|rf' | while read -r name; do apt-cache show "$name" 2>/dev/null | grep -q '^Package:' || echo "$name"; done)"
else
    skip "the container's packages" "apt has no lists of packages here: apt-get update"
fi
finish_checks
