#!/usr/bin/env bash
# mpiexec within allocations of a real Slurm: a private cluster on this machine, of two nodes. Usage: slurm.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
. ./slurm_clusters.sh
has_slurm slurm || exit 0
prefix=$(realpath "$1")
work=$(mktemp -d)
started=()
stop() {
    for id in "${started[@]}"; do kill "$id" 2>/dev/null; done
    for id in "${started[@]}"; do wait "$id" 2>/dev/null; done
    rm -rf "$work"
}
trap stop EXIT
chmod 755 "$work"
start_munge
start_cluster canele n
export SLURM_CONF=$work/canele/slurm.conf
await_cluster canele slurm || exit 0
mpiexec=$prefix/bin/mpiexec
# srun prints this on a cluster that binds nothing.
within() { timeout 60 salloc -Q -N2 -n5 timeout 50 "$@" 2> >(grep -v 'lacks support for cpu binding' >"$work/err"); }
on_nodes='echo $SLURMD_NODENAME:$PMI_RANK/$PMI_SIZE'

tasks=$(within sh -c 'echo $SLURM_TASKS_PER_NODE')
check "an allocation of two nodes" "4,1" "$tasks"
check "hosts and counts are the allocation's" "n1:0/5 n1:1/5 n1:2/5 n1:3/5 n2:4/5 " "$(within "$mpiexec" sh -c "$on_nodes" | sort | tr '\n' ' ')"
check "fewer ranks than slots" "n1:0/2 n1:1/2 " "$(within "$mpiexec" -n 2 sh -c "$on_nodes" | sort | tr '\n' ' ')"
check "one on each node" "n1:0/2 n2:1/2 " "$(within "$mpiexec" -ppn 1 sh -c "$on_nodes" | sort | tr '\n' ' ')"
check "one host of the allocation" "n2:0/1 " "$(within "$mpiexec" -hosts n2 sh -c "$on_nodes" | tr '\n' ' ')"
cat >"$work/grid" <<X
[[site]]
name = "cluster"
hosts = ["n1:2", "n2:2"]
launch = "slurm"
X
check "a grid's site launched by Slurm" "n1:0/4 n1:1/4 n2:2/4 n2:3/4 " "$(within "$mpiexec" -grid "$work/grid" sh -c "$on_nodes" | sort | tr '\n' ' ')"
"$prefix/bin/mpicc" programs/total.c -o "$work/total" || exit 1
check "an MPI program" "10 10 10 10 10 " "$(within "$mpiexec" "$work/total" | tr '\n' ' ')"
check "input and output" "$(seq 20000 | md5sum)" "$(seq 20000 | within "$mpiexec" -n 1 cat | md5sum)"
head -c 1000000 /dev/urandom >"$work/bytes"
check "output, byte by byte" "$(md5sum <"$work/bytes")" "$(within "$mpiexec" -n 1 cat "$work/bytes" | md5sum)"
within "$mpiexec" sh -c 'test $PMI_RANK != 4 || exit 7; sleep 50'
check "an exit code is passed on" 7 $?

"$prefix/bin/mpicc" programs/spawn.c -o "$work/spawn" || exit 1
check "ranks spawn on the nodes of the allocation" "n1 where on 3: 0 failures;n2 child 0 in /usr at -;n2 child 1 in /usr at -;" \
    "$(within "$mpiexec" -prepend-pattern '%h ' -n 3 "$work/spawn" where - 2 wdir /usr host n2 | sort | tr '\n' ';')"
for kind in pmi2 pmix; do
    srun -n 1 --mpi=$kind true >"$work/said" 2>&1 || continue
    timeout 60 srun -n 2 --mpi=$kind "$work/spawn" talk 1 >"$work/said" 2>"$work/err"
    check "under srun --mpi=$kind a spawn fails, with a remedy" yes "$(grep -q "MPI_ERR_SPAWN: .* starts no further processes: start this one with Canele.s .mpiexec. inside the allocation" "$work/err" && echo yes)"
done
check "srun --mpi=pmi2 starts programs" "3 3 3 " "$(timeout 60 srun -n 3 --mpi=pmi2 "$work/total" | tr '\n' ' ')"
check "one task alone" "0" "$(timeout 60 srun -n 1 --mpi=none "$work/total")"
timeout 60 srun -n 2 --mpi=none "$work/total" 2>"$work/err"
check "several tasks without PMI get a remedy" "16 2" "$? $(grep -c 'started by srun without PMI .* `srun --mpi=pmi2`' "$work/err")"

# Ranks that Slurm starts through PMIx.
pmix() { timeout 60 srun -N2 -O --mpi=pmix "$@" 2>"$work/err"; }
if srun -n 1 --mpi=pmix true >"$work/said" 2>&1; then
    for program in starts abort joins; do
        "$prefix/bin/mpicc" -O1 programs/$program.c -o "$work/$program" -lpthread || exit 1
    done
    check "srun --mpi=pmix starts 16 ranks on two nodes" "16 120" "$(pmix -n 16 "$work/total" | sort | uniq -c | xargs)"
    check "one task alone" "0" "$(timeout 60 srun -n 1 --mpi=pmix "$work/total")"
    check "programs that a rank starts are alone" "rank 0 of 2 rank 1 of 2 tool 0 of 1 tool 0 of 1 " \
        "$(pmix -n 2 "$work/starts" rank "$work/starts tool" "$work/starts tool" | sort | tr '\n' ' ')"
    check "programs in turn each join" "a 0 of 2 a 1 of 2 b 0 of 2 b 1 of 2 " "$(pmix -n 2 sh -c "$work/starts a; $work/starts b" | sort | tr '\n' ' ')"
    pmix -n 2 "$work/joins" 3 >"$work/said"
    check "a process joins once, and is told so" yes "$(grep -q 'cannot join it again: PMIx serves each process once' "$work/said" "$work/err" && echo yes)"
    pmix -n 4 "$work/abort" 7 >"$work/said"
    check "MPI_Abort ends the job" yes "$([ $? != 0 ] && echo yes)"
    # What Slurm keeps of a running job, which user 65534 must not read.
    pmix -n 2 "$work/starts" rank "touch $work/inside; sleep 5" >"$work/said" &
    step=$!
    until_true 30 '[ -e "$work/inside" ]'
    others="setpriv --reuid=65534 --regid=65534 --clear-groups"
    check "other users do not read the job's secret" "" "$($others grep -rlaE canele-shared-secret "$work"/canele/{spool,tmp}-n{1,2} /dev/shm 2>/dev/null)"
    wait $step
    check "and the job ends well" 0 $?
else
    skip "srun --mpi=pmix" "$(head -1 "$work/said") (Debian: libpmix-dev, whose libpmix.so the plugin loads)"
fi

# scancel ends all.
printf '#!/bin/sh\n"%s" sh -c "echo \\$\\$ >>%s/ids; sleep 60 & echo \\$! >>%s/ids; wait"\n' "$mpiexec" "$work" "$work" >"$work/batch"
job=$(sbatch --parsable -N2 -n5 -o "$work/out" "$work/batch")
until_true 30 '[ "$(cat "$work/ids" 2>/dev/null | wc -l)" = 10 ]'
scancel "$job"
until_true 30 '[ "$(alive "$work/ids")" = 0 ]'
check "scancel leaves nothing behind" "10 0" "$(wc -l <"$work/ids") $(alive "$work/ids")"
finish_checks
