#compdef mpiexec mpirun
# Completion of mpiexec for zsh, written from the table of its options by `UPDATE_EXPECT=1 cargo test -p launch`.

_arguments -S \
    '*-n[number of ranks, from 1 to 1048576 (default\: all slots of the hosts, or 1)]:N: ' \
    '*-np[number of ranks, from 1 to 1048576 (default\: all slots of the hosts, or 1)]:N: ' \
    '*-soft[numbers of ranks that will do, such as 2,4\:16\:4, of at most -n]:FROM\:TO\:STEP: ' \
    '*-hosts[hosts, and number of ranks on each]:A\:2,B\:2:_hosts' \
    '*-f[read hosts from a file\: host, host\:2 or host slots=2 per line]:FILE:_files' \
    '*-hostfile[read hosts from a file\: host, host\:2 or host slots=2 per line]:FILE:_files' \
    '*-grid[read sites and hosts from a grid file]:FILE:_files' \
    '*-ppn[ranks per host, from 1 to 1048576, whatever numbers the hosts have]:N: ' \
    '*-N[ranks per host, from 1 to 1048576, whatever numbers the hosts have]:N: ' \
    '*-rr[one rank per host and round, as -ppn 1]' \
    '*-configfile[read programs with their options from a file, one per line]:FILE:_files' \
    '*-usize[universe\: SYSTEM (slots), INFINITE or from 1 to 1048576 (default\: ranks or slots)]:SIZE:(SYSTEM INFINITE)' \
    '*-arch[architecture of the hosts, which has to be that of this machine]:NAME: ' \
    '*-bind-to[none, hwthread, core, core\:2, l1cache, l2cache, l3cache, numa, socket, rr, user\:0+2]:WHAT:(none hwthread core l1cache l2cache l3cache numa socket rr)' \
    '*-map-by[slot, node, ppr\:2\:node; objects such as socket order bound ranks]:WHAT:(slot node core numa socket)' \
    '*-rank-by[slot\: number ranks host by host; node\: in turns; objects order bound ranks]:WHAT:(slot node core numa socket)' \
    '*-report-bindings[print the processors that each rank may use]' \
    '*-print-rank-map[print the ranks of each host]' \
    '*-record[record the bytes that ranks send each other]:FILE:_files' \
    '*-place[place ranks by a recorded file]:FILE:_files' \
    '*-genv[set a variable for all programs; also NAME=VALUE]:NAME:_parameters -g "*export*":VALUE: ' \
    '*-env[set a variable for this program; also NAME=VALUE]:NAME:_parameters -g "*export*":VALUE: ' \
    '*-x[set a variable for all programs, or pass its value here]:NAME\[=VALUE: ' \
    '*-genvall[pass the local environment to all programs (default)]' \
    '*-genvnone[do not pass the local environment]' \
    '*-genvlist[pass only these variables of the local environment\: A,B]:NAMES: ' \
    '*-genvexcl[pass the local environment without these variables\: A,B]:NAMES: ' \
    '*-envall[pass the local environment to this program]' \
    '*-envnone[do not pass the local environment to this program]' \
    '*-envlist[pass only these variables to this program\: A,B]:NAMES: ' \
    '*-envexcl[pass all but these variables to this program\: A,B]:NAMES: ' \
    '*-wdir[working directory of the program]:DIR:_files -/' \
    '*-path[directories where the program is looked for first]:DIR\:DIR: ' \
    '*-launcher[start agents by ssh, rsh, slurm or fork]:NAME:(ssh rsh slurm fork)' \
    '*-launcher-exec[start agents by the command CMD HOST AGENT]:CMD:_command_names -e' \
    '*-prefix[folder of Canele on other hosts (default\: as here)]:DIR:_files -/' \
    '*-localhost[name of this machine among the hosts]:NAME: ' \
    '*-iface[network interface of TCP and QUIC]:NAME: ' \
    '*-encrypt[encrypt TCP between sites, all TCP, or none\: sites, all, none]:WHICH:(sites all none)' \
    '*-disable-auto-cleanup[continue when a rank fails, for programs that handle errors]' \
    '*-with-ft[the same, as users of Open MPI know it\: ulfm, or none for the default]:WHICH: ' \
    '*-enable-auto-cleanup[end the job when a rank fails (default)]' \
    '*-timeout[time limit, from 1 to 1048576; prints where ranks wait (default\: MPIEXEC_TIMEOUT)]:SECONDS: ' \
    '*-wait[longest wait for hosts of a -grid from Slurm, from 1 to 1048576 (default\: any)]:SECONDS: ' \
    '*-V[print the version]' \
    '*-version[print the version]' \
    '*-h[print this help, or all about a topic or an option]::TOPIC:(ranks placement environment launching output others all)' \
    '*-help[print this help, or all about a topic or an option]::TOPIC:(ranks placement environment launching output others all)' \
    '*-s[ranks that get standard input\: all, none, or such as 0,3-5 (default\: 0)]:RANKS:(all none)' \
    '*-l[label lines of output with their rank]' \
    '*-prepend-rank[label lines of output with their rank]' \
    '*-prepend-pattern[label lines; %r\: rank, %h\: host, %p\: number of the host, %g\: number of the world]:PATTERN: ' \
    '*-tag-output[label lines as \[1,RANK\]<stdout>\:]' \
    '*-timestamp-output[label lines with the time; before other labels]' \
    '*-outfile-pattern[write standard output to files, such as out.%r; as -prepend-pattern]:PATTERN: ' \
    '*-errfile-pattern[write standard error to files]:PATTERN: ' \
    '*-output-filename[write output also to DIR/1/rank.N/stdout and stderr; DIR\:nocopy\: only there]:DIR:_files -/' \
    '*-print-all-exitcodes[print the exit codes of all ranks in the end]' \
    '*-v[print the effect of -place, and statistics of gateways]' \
    '*-trace[record MPI calls and frames of all ranks, for ui.perfetto.dev]:FILE:_files' \
    '*-profile[count MPI calls of all ranks, and print a table at the end]:FILE:_files' \
    '*-check[compare the arguments of collectives among ranks]' \
    '(-)1:program:_command_names -e' \
    '*::arguments:_normal'
