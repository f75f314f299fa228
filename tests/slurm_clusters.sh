# Private Slurm clusters on this machine, sourced by tests that have `work` and the array `started` of process ids.
PATH=$PATH:/usr/sbin
has_slurm() { # name of the test: false, with a skip, if no cluster can be started
    local program
    for program in slurmctld slurmd srun munged; do
        command -v $program >/dev/null || { skip "$1" "no $program here"; return 1; }
    done
    [ "$(id -u)" = 0 ] || { skip "$1" "Slurm's daemons need root"; return 1; }
}
start_munge() {
    mkdir -m 700 "$work/munge"
    head -c 1024 /dev/urandom >"$work/munge/key"
    chmod 400 "$work/munge/key"
    munged -F --force --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munged.log" 2>&1 &
    started+=($!)
    until_true 10 '[ -S "$work/munge.socket" ]'
}
# Starts a cluster of two nodes, NODE1 and NODE2, of four CPUs. Its configuration is $work/NAME/slurm.conf.
start_cluster() { # name, NODE
    local port=$((20000 + RANDOM % 10000)) here of=$work/$1 node
    here=$(hostname -s)
    mkdir -p "$of/state" "$of"/{spool,tmp}-"$2"{1,2}
    chmod 755 "$of"
    chmod 1777 "$of"/tmp-*
    cat >"$of/slurm.conf" <<X
ClusterName=$1
SlurmctldHost=$here(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$of/state
SlurmdSpoolDir=$of/spool-%n
SlurmctldPidFile=$of/slurmctld.id
SlurmdPidFile=$of/slurmd-%n.id
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
TmpFS=$of/tmp-%n
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
KillWait=2
NodeName=$2[1-2] NodeHostname=$here NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
X
    SLURM_CONF=$of/slurm.conf slurmctld -D -c >"$of/slurmctld.log" 2>&1 &
    started+=($!)
    for node in "$2"{1,2}; do
        SLURM_CONF=$of/slurm.conf slurmd -D -N "$node" >"$of/slurmd-$node.log" 2>&1 &
        started+=($!)
    done
}
await_cluster() { # name, test: false, with a skip, if its nodes do not become idle
    local conf=$work/$1/slurm.conf
    until_true 30 "SLURM_CONF=$conf sinfo -h -t idle -o %D 2>/dev/null | grep -q '^2$'"
    [ "$(SLURM_CONF=$conf sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
    skip "$2" "Slurm's daemons do not serve here: $(tail -q -n 1 "$work/$1"/slurm*.log | tr '\n' ' ')"
    return 1
}
