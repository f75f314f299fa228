#!/usr/bin/env bash
# Options of mpiexec as users of Hydra and Open MPI type them, by what they do. Usage: options.sh BIN (the directory of mpiexec
# and canele-agent)
set -u
mpiexec=$1/mpiexec
bin=$(realpath "$1")
. "$(dirname "$0")/check.sh"
run() { timeout 20 "$mpiexec" "$@"; }
sorted() { run "$@" 2>&1 | sort | tr '\n' ' '; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A launcher for hosts that are all this machine, and which tells ranks its host and its arguments.
printf '#!/bin/sh\nwords=; while [ $# -gt 2 ]; do words="$words$1,"; shift; done; LAB_ARGS=$words LAB_HOST=$1 exec "$2"\n' >"$work/launcher"
chmod +x "$work/launcher"
two() { run -launcher-exec "$work/launcher" -H a:2,b:2 "$@" 2>&1; }
each='echo $PMI_RANK@$LAB_HOST'

check "options for what always holds are accepted" "x" "$(run --oversubscribe --allow-run-as-root -n 1 echo x 2>&1)"
check "options without an effect are told of once" "1 x" "$(run --mca btl self --mca btl self -n 1 echo x 2>&1 | sed 's/^mpiexec: --mca btl self: no effect: .*/1/' | tr '\n' ' ' | sed 's/ $//')"
check "options that cannot be are refused with what to use" "2 mpiexec: -gdb: not supported: use mpiexec -n 2 xterm -e gdb PROGRAM (see mpiexec --help)" "$(run -gdb -n 1 true 2>&1 | sed "s/^/2 /")"
check "numbers in the option's word" "x x " "$(sorted -n2 echo x)"
check "ranks on hosts in turns" "0@a 1@b 2@a 3@b " "$(two --map-by node sh -c "$each" | sort | tr '\n' ' ')"
check "numbered host by host" "0@a 1@a 2@b " "$(two -n 3 --map-by node --rank-by slot sh -c "$each" | sort | tr '\n' ' ')"
check "ranks per host" "0@a 1@b " "$(two -N 1 sh -c "$each" | sort | tr '\n' ' ')"
check "also by ppr" "0@a 1@b " "$(two --map-by ppr:1:node sh -c "$each" | sort | tr '\n' ' ')"
check "the map of ranks" "(a:0,1) (b:2) x x x " "$(two -print-rank-map -n 3 echo x | sort | tr '\n' ' ')"
check "all exit codes" "Exit codes: [a] 0,1 Exit codes: [b] 1,1 " "$(two -print-all-exitcodes -disable-auto-cleanup sh -c 'exit $((PMI_RANK > 0))' | grep Exit | tr '\n' ' ')"
check "a set of numbers of ranks" "3" "$(run -n 4 -soft 1:4:2 echo x | wc -l)"

# Variables.
export A=here B=two HOSTNAME=own
check "a variable of this shell" "own here" "$(run -n 1 -x HOSTNAME -x A sh -c 'echo $HOSTNAME $A')"
check "a variable with a value" "v=w" "$(run -n 1 -x A=v=w sh -c 'echo $A')"
check "a variable that is not set" "mpiexec: -x NO_SUCH: no such variable is set here" "$(run -n 1 -x NO_SUCH true 2>&1)"
check "only some variables" "here," "$(run -n 1 -genvlist A,PATH sh -c 'echo $A,$B')"
check "all but some" ",two" "$(run -n 1 -genvexcl A sh -c 'echo $A,$B')"
check "for each program" "a:here,two b:here, c:,two d:, " "$(sorted -envall sh -c 'echo a:$A,$B' : -envlist A,PATH sh -c 'echo b:$A,$B' : -envexcl A sh -c 'echo c:$A,$B' : -envnone sh -c 'echo d:$A,$B')"
check "against the rule for all" "here,two" "$(run -genvnone -n 1 -envall sh -c 'echo $A,$B')"

# Programs.
mkdir -p "$work/one" "$work/two"
for folder in one two; do printf '#!/bin/sh\necho %s\n' $folder >"$work/$folder/tool"; done
chmod +x "$work"/*/tool
check "a path of programs" "one" "$(run -n 1 -path "$work/none:$work/one:$work/two" tool)"
printf -- '-n 1 echo a\n# no program\n-n 2 -env C c printenv C\n' >"$work/programs"
check "programs of a file" "a c c " "$(sorted -configfile "$work/programs")"
mkdir -p "$work/there/bin"
printf '#!/bin/sh\nWHERE=there exec %s/canele-agent\n' "$bin" >"$work/there/bin/canele-agent"
chmod +x "$work/there/bin/canele-agent"
check "Canele in another folder on other hosts" "there $work/there/bin $work/there/lib" "$(two -n 1 --prefix "$work/there" sh -c 'echo $WHERE ${PATH%%:*} ${LD_LIBRARY_PATH%%:*}')"

# Input.
reads='echo $PMI_RANK:$(cat | md5sum | cut -c1-4)'
sum=$(seq 9000 | md5sum | cut -c1-4)
empty=$(md5sum </dev/null | cut -c1-4)
check "input for all" "0:$sum 1:$sum 2:$sum " "$(seq 9000 | sorted -s all -n 3 sh -c "$reads")"
check "input for some" "0:$empty 1:$sum 2:$sum " "$(seq 9000 | sorted -s 1-2 -n 3 sh -c "$reads")"
check "input for none" "0:$empty 1:$empty " "$(seq 9000 | sorted --stdin none -n 2 sh -c "$reads")"
seq 90000 >"$work/long"
check "a reader that ends early stops nobody" "0:done 1:$(md5sum <"$work/long" | cut -c1-4) " "$(sorted -s all -n 2 sh -c "[ \$PMI_RANK = 0 ] && echo 0:done || $reads" <"$work/long")"

# Output.
check "tags" "[1,0]<stderr>:e [1,0]<stdout>:o " "$(sorted --tag-output -n 1 sh -c 'echo o; echo e >&2')"
check "times" 2 "$(run --timestamp-output -n 2 echo o | grep -cE '^[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4}<stdout>:o$')"
check "a pattern" "0@a/0 1@b/1 " "$(two -n 2 -ppn 1 -prepend-pattern '%r@%h/%p ' sh -c 'echo' | sort | tr -d '\n')"
run -n 2 -outfile-pattern "$work/out/%r" -errfile-pattern "$work/err.all" sh -c 'echo o$PMI_RANK; echo e >&2' >"$work/said" 2>&1
check "files for output, and one for all errors" "o0 o1 e e " "$(cat "$work"/out/0 "$work"/out/1 "$work/err.all" | tr '\n' ' ')"
check "and nothing is printed" "" "$(cat "$work/said")"
check "Open MPI's folders" "0 1 2 3 4 5 6 7 8 9 10 " "$(run -n 11 --output-filename "$work/folder" sh -c 'echo $PMI_RANK' | sort -n | tr '\n' ' ')"
check "have a file for each rank" "rank.00 rank.05 rank.10 5" "$(ls "$work/folder/1" | sed -n '1p;6p;$p' | tr '\n' ' ')$(cat "$work/folder/1/rank.05/stdout")"
check "alone if that is asked for" "" "$(run -n 1 --output-filename "$work/alone:nocopy" echo x)"
run -n 1 -outfile-pattern "$work/said/%r" echo x >"$work/err" 2>&1
check "a file that cannot be written fails the job" "1 1" "$? $(grep -c "mpiexec: output of the ranks cannot be written to $work/said/0: " "$work/err")"

# Binding.
allowed='sed -n "s/Cpus_allowed_list:\t//p" /proc/self/status'
first=$(sh -c "$allowed" | grep -oE '^[0-9]+')
for what in hwthread socket machine l1cache l2cache core:1 rr "user:$first"; do
    check "ranks are bound to $what" 2 "$(run -bind-to "$what" -n 2 sh -c "$allowed" | wc -l)"
done
check "a rank is bound to listed processors" "$first" "$(run -bind-to "user:$first" -n 1 sh -c "$allowed")"
check "which is reported" "mpiexec: rank 0 on localhost: may use processors $first" "$(run -bind-to "user:$first" --report-bindings -n 1 true 2>&1)"
run -bind-to user:9999 -n 1 true 2>"$work/err"
check "processors that are not there are named" "126 1" "$? $(grep -c 'rank 0 on localhost: cannot be bound to \[9999\]: it may use \[' "$work/err")"

# Tools choose their options by these words.
check "the version names Hydra's" "1 HYDRA build details: 1" "$(run --version | grep -c '^mpiexec (Canele) .*MPICH') $(run -info | grep -i 'hydra build') $(run --version | grep -cE '^ +Version: +[0-9]+\.[0-9]+\.[0-9]+$')"
check "and no other MPI" 0 "$(run --version | grep -ciE 'open ?mpi|openrte|prrte|intel')"
check "help on a topic" "Placement: Placement: 1" "$(run --help placement | grep ':$') $(run --help map-by | grep ':$') $(run --help placement | grep -c 'also -display-map')"
run --help pony 2>"$work/err"
check "help on nothing" "2 mpiexec: no help on pony; topics are ranks, placement, environment, launching, output, others and all (see mpiexec --help)" "$? $(cat "$work/err")"

# Kubernetes' mpi-operator with mpiImplementation MPICH or Intel: the launcher's variables name a hosts file, and arguments
# for ssh. Here ssh is a script that enters the worker's pod, as kubexec does.
mkdir "$work/pods" "$work/mpi"
printf 'job-worker-0.job.default.svc:2\njob-worker-1.job.default.svc:1\n' >"$work/mpi/hostfile"
cat >"$work/pods/ssh" <<'X'
#!/bin/sh
# ssh [-x] [-o OPTION]... POD COMMAND...
while :; do
    case $1 in
    -x) shift ;;
    -o) options="$options $2"; shift 2 ;;
    *) break ;;
    esac
done
case $1 in *.job.default.svc) ;; *) echo "no pod $1" >&2; exit 255 ;; esac
pod=$1
shift
exec env -i PATH="$PATH" POD="$pod" OPTIONS="$options" sh -c "$*"
X
chmod +x "$work/pods/ssh"
operator() { PATH=$work/pods:$PATH run "$@" sh -c 'echo $PMI_RANK/$PMI_SIZE@${POD%%.*} ${OPTIONS##* }' 2>&1 | sort | tr '\n' ' '; }
workers="0/3@job-worker-0 ConnectionAttempts=10 1/3@job-worker-0 ConnectionAttempts=10 2/3@job-worker-1 ConnectionAttempts=10 "
check "Kubernetes' operator starts the job on its workers" "$workers" "$(HYDRA_HOST_FILE=$work/mpi/hostfile HYDRA_LAUNCH_EXTRA_ARGS="-o ConnectionAttempts=10" operator -n 3)"
check "as many ranks as they have slots" "$workers" "$(HYDRA_HOST_FILE=$work/mpi/hostfile HYDRA_LAUNCH_EXTRA_ARGS="-o ConnectionAttempts=10" operator)"
check "and with the variables of Intel MPI" "$workers" "$(I_MPI_HYDRA_HOST_FILE=$work/mpi/hostfile I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS="-o ConnectionAttempts=10" operator)"
check "a launcher that a variable names" "0@x,y,a" "$(HYDRA_LAUNCHER_EXEC="$work/launcher x" HYDRA_LAUNCH_EXTRA_ARGS=y run -hosts a -n 1 sh -c 'echo $PMI_RANK@$LAB_ARGS$LAB_HOST')"
check "a hosts file that is missing is named with its variable" "mpiexec: HYDRA_HOST_FILE: hosts file $work/mpi/none: No such file or directory (os error 2) (see mpiexec --help)" "$(HYDRA_HOST_FILE=$work/mpi/none operator | sed 's/ $//')"
finish_checks
