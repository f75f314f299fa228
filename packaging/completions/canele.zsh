#compdef canele
# Completion of canele for zsh, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_canele() {
    local place=canele
    local -a commands specs
    local -a set0=(
            '*--help[Print help]'
    )
    local -a set1=(
            '*--pair[Round trip between two sites, at most 10s, such as 0-2=40ms; may be repeated]:pairs:_files'
            '*--help[Print help]'
    )
    local -a set2=(
            '*--prefix[Folder of the installed Canele \[default\: that of this command\]]:prefix:_files'
            '*--help[Print help]'
    )
    local -a set3=(
            '*--place[Place of the ranks\: shm, lan or wan \[default\: depends on the benchmark\]]:place:_files'
            '*--peers[Measure the peers in this folder too]:peers:_files'
            '*--seconds[Seconds per size or operation in each round, from 0.001 to 60 \[default\: 0.2\]]:seconds:_files'
            '*--quick[Measure few cases, of 0.02 s each, in 2 rounds; the time that this takes is printed first]'
            '*--loss[Share of packets lost between sites, below 100%, such as 0.1%]:loss:_files'
            '*--flow[Competing TCP flow between sites, by cubic, bbr or reno; its goodput is printed per turn]:flow:(cubic bbr reno)'
            '*--beside[Number of computing programs on the machine, from 0 to 1024]:beside:_files'
            '*--variant[Canele with settings, as NAME\:KEY=VALUE,KEY=VALUE; gateways=1 or 2 adds gateways; may be repeated]:variants:_files'
            '*--on-off[Canele with and without its strategy\: --variant on --variant off\:CANELE_STRATEGY=fifo]'
            '*--tuned[Peers also with larger eager messages and socket buffers]'
            '*--rounds[Number of turns of each library, from 1 to 100 \[default\: 1; 5 for several libraries\]]:rounds:_files'
            '*--nodes[Number of nodes per site of the lab, from 1 to 64 \[default\: 8 for torres, otherwise 2\]]:nodes:_files'
            '*--rtt[Round trips between sites, at most 10s, such as 1ms,300ms, each in a new lab \[default\: 11.6ms\]]:rtt:_files'
            '*--rate[Rates of links between sites, from 100kbit to 10Gbit, such as 100Mbit,1Gbit \[default\: 1Gbit\]]:rate:_files'
            '*--buffer[Buffers of links between sites, such as 500kB,2MB \[default\: 2MB\]]:buffer:_files'
            '*--socket-max[Largest TCP socket buffers (tcp_rmem, tcp_wmem), such as 64kB,4MB \[default\: the kernel'\''s\]]:socket_max:_files'
            '*--sites[Number of sites of the lab, from 2 to 8 \[default\: 2\]]:sites:_files'
            '*--pair[Round trip between two sites, at most 10s, such as 0-2=40ms; may be repeated]:pairs:_files'
            '*--lab[Use this lab, and raise none]:lab:_files'
            '*--by[Statistic over rounds in plots]:by:_files'
            '*--prefix[Folder of the installed Canele \[default\: that of this command\]]:prefix:_files'
            '*--output[Folder of results, tables and plots]:output:_files'
            '*--continue[Take up an interrupted run of the same command after its last turn]'
            '*--help[Print help]'
    )
    local -a set4=(
            '*--seconds[Seconds per size or operation in each round, from 0.001 to 60 \[default\: 0.2\]]:seconds:_files'
            '*--quick[Measure few cases, of 0.02 s each, in 2 rounds; the time that this takes is printed first]'
            '*--loss[Share of packets lost between sites, below 100%, such as 0.1%]:loss:_files'
            '*--flow[Competing TCP flow between sites, by cubic, bbr or reno; its goodput is printed per turn]:flow:(cubic bbr reno)'
            '*--beside[Number of computing programs on the machine, from 0 to 1024]:beside:_files'
            '*--variant[Canele with settings, as NAME\:KEY=VALUE,KEY=VALUE; gateways=1 or 2 adds gateways; may be repeated]:variants:_files'
            '*--on-off[Canele with and without its strategy\: --variant on --variant off\:CANELE_STRATEGY=fifo]'
            '*--tuned[Peers also with larger eager messages and socket buffers]'
            '*--rounds[Number of turns of each library, from 1 to 100 \[default\: 1; 5 for several libraries\]]:rounds:_files'
            '*--nodes[Number of nodes per site of the lab, from 1 to 64 \[default\: 8 for torres, otherwise 2\]]:nodes:_files'
            '*--rtt[Round trips between sites, at most 10s, such as 1ms,300ms, each in a new lab \[default\: 11.6ms\]]:rtt:_files'
            '*--rate[Rates of links between sites, from 100kbit to 10Gbit, such as 100Mbit,1Gbit \[default\: 1Gbit\]]:rate:_files'
            '*--buffer[Buffers of links between sites, such as 500kB,2MB \[default\: 2MB\]]:buffer:_files'
            '*--socket-max[Largest TCP socket buffers (tcp_rmem, tcp_wmem), such as 64kB,4MB \[default\: the kernel'\''s\]]:socket_max:_files'
            '*--sites[Number of sites of the lab, from 2 to 8 \[default\: 2\]]:sites:_files'
            '*--pair[Round trip between two sites, at most 10s, such as 0-2=40ms; may be repeated]:pairs:_files'
            '*--lab[Use this lab, and raise none]:lab:_files'
            '*--by[Statistic over rounds in plots]:by:_files'
            '*--prefix[Folder of the installed Canele \[default\: that of this command\]]:prefix:_files'
            '*--output[Folder of results, tables and plots]:output:_files'
            '*--continue[Take up an interrupted run of the same command after its last turn]'
            '*--help[Print help]'
    )
    while (( CURRENT > 2 )); do
        case "$place $words[2]" in
            'canele info' | 'canele jobs' | 'canele stack' | 'canele top' | 'canele grid' | 'canele grid status' | 'canele lab' | 'canele lab up' | 'canele lab run' | 'canele lab grid' | 'canele lab status' | 'canele lab set' | 'canele lab cut' | 'canele lab heal' | 'canele lab flow' | 'canele lab down' | 'canele profile' | 'canele tune' | 'canele bench' | 'canele bench clock' | 'canele bench pingpong' | 'canele bench burst' | 'canele bench oversubscribed' | 'canele bench cut' | 'canele bench behind' | 'canele bench queues' | 'canele bench modules' | 'canele bench rails' | 'canele bench overhead' | 'canele bench addressed' | 'canele bench express' | 'canele bench overlap' | 'canele bench progress' | 'canele bench reactivity' | 'canele bench threads' | 'canele bench partitioned' | 'canele bench offload' | 'canele bench idle' | 'canele bench wan' | 'canele bench slowstart' | 'canele bench first' | 'canele bench coll' | 'canele bench torres' | 'canele bench pairs' | 'canele bench onesided' | 'canele bench gups' | 'canele bench nas' | 'canele bench ray2mesh' | 'canele bench simri' | 'canele bench io' | 'canele bench compare' | 'canele bench report') place="$place $words[2]"; shift words; (( CURRENT-- )) ;;
            *) break ;;
        esac
    done
    case $place in
        'canele') commands=('info:Print settings, the cost of links, how ranks wait, or the plan of a collective' 'jobs:List the running jobs of this user on this machine' 'stack:Print the calls in which the ranks of a job wait, for whom, and deadlocks among them' 'top:Show what the ranks of a job do, how much they send, and their queues' 'grid:Find sites by measuring round trips between hosts' 'lab:Emulate sites and nodes on this machine' 'profile:Print the table of a file that mpiexec -profile has written' 'tune:Measure the algorithms of collectives, and write a table of the fastest' 'bench:Measure Canele, other MPIs and raw TCP') specs=($set0 
            '*--version[Print version]'
            '*-V[Print version]') ;;
        'canele info') specs=($set0 
            '*--settings[Print the settings as a table, in Markdown]'
            '*--link[Print the cost of links and the sizes derived from it\: all, or those of one or two hosts]:link:_files'
            '*--progress[Print how ranks wait on this node, and why; under mpiexec, for its ranks here]'
            '*--system[Print settings of this system that cost much, and the commands that mend them]'
            '*--plan[Print the schedule and predicted time of a collective, such as bcast 64KiB]:plan:_files'
            '*--on[Sites x nodes per site x ranks per node, at most 1024 ranks in all]:on:_files'
            '*--oversubscribed[All ranks on one machine, and more of them than cores]'
            '*--pair[Round trip, at most 10s, and rate, 100kbit to 10Gbit, of two sites, such as 0-2=40ms,20Mbit; may be repeated]:pairs:_files') ;;
        'canele jobs') specs=($set0 ) ;;
        'canele stack') specs=($set0 
            ':job:_files') ;;
        'canele top') specs=($set0 
            ':job:_files'
            '*--json[Print one JSON object per interval, each on a line]'
            '*--interval[Length of an interval in seconds, from 0.1 to 3600]:interval:_files'
            '*--count[End after so many intervals, at least 1 \[default\: 1 for a table without a terminal\]]:count:_files') ;;
        'canele grid') commands=('status:Ask the hosts of a grid file what they have, and print which do not answer') specs=($set0 
            '*--hosts[Hosts, such as a,b\:2,c; numbers of ranks are written to the file]:hosts:_files'
            '*--launcher-exec[Start agents by the command CMD HOST AGENT \[default\: ssh\]]:launcher_exec:_files'
            '*--save[Write the grid file, for mpiexec -grid]:save:_files') ;;
        'canele grid status') specs=($set0 
            ':file:_files'
            '*--json[Print one JSON object]'
            '*--timeout[Seconds after which a host counts as unreachable, from 1 to 3600]:timeout:_files') ;;
        'canele lab') commands=('up:Raise a lab, in place of one of the same name, and measure its links' 'run:Run a command on a node' 'grid:Print the lab as a grid file, for mpiexec -grid' 'status:Print nodes, links, and what each link has carried, lost or dropped' 'set:Change links between sites while they carry traffic' 'cut:Cut off a site from all others, or a node from all others' 'heal:End all cuts' 'flow:Run a competing TCP flow, and print its goodput' 'down:Take the lab down, with all its processes') specs=($set0 ) ;;
        'canele lab up') specs=($set1 
            '*--name[Name of the lab, letters and digits; labs of different names exist side by side]:name:_files'
            '*--sites[Number of sites, from 1 to 8]:sites:_files'
            '*--nodes[Number of nodes per site, from 1 to 32]:nodes:_files'
            '*--nics[Network interfaces per node, from 1 to 4, each on its own LAN; the first also leads to other sites]:nics:_files'
            '*--rtt[Round trip between sites, at most 10s, such as 11.6ms]:rtt:_files'
            '*--wan-rate[Rate of links between sites, from 100kbit to 10Gbit, such as 1Gbit]:wan_rate:_files'
            '*--lan-rate[Rate of network interfaces, from 100kbit to 10Gbit, such as 1Gbit]:lan_rate:_files'
            '*--wan-buffer[Buffer of links between sites, such as 2MB; packets that do not fit are dropped]:wan_buffer:_files'
            '*--socket-max[Largest TCP socket buffer (tcp_rmem, tcp_wmem), such as 4MB \[default\: the kernel'\''s\]]:socket_max:_files'
            '*--wan-loss[Share of packets lost between sites, below 100%, such as 0.1% or 0.001]:wan_loss:_files'
            '*--private[Site from 0 to 7 whose other nodes than the first are behind NAT; may be repeated]:private_sites:_files'
            '*--speed[Cores whose processor time the nodes may use, in turn, from 0.1 to 1024, such as 1,0.6; further nodes repeat the list \[default\: all\]]:speeds:_files'
            '*--seed[Seed of losses, duplicates and reordering]:seed:_files') ;;
        'canele lab run') specs=($set0 
            '*--name[Name of the lab]:name:_files'
            ':node:_files'
            '*:command:_files') ;;
        'canele lab grid' | 'canele lab heal' | 'canele lab down') specs=($set0 
            '*--name[Name of the lab]:name:_files') ;;
        'canele lab status') specs=($set0 
            '*--name[Name of the lab]:name:_files'
            '*--json[Print JSON]') ;;
        'canele lab set') specs=($set0 
            '*--name[Name of the lab]:name:_files'
            '*--from[Links from this site only, such as 0]:from:_files'
            '*--to[Links to this site only]:to:_files'
            '*--loss[Share of packets lost, below 100%, such as 0.1% or 0.001]:loss:_files'
            '*--duplicate[Share of packets duplicated, below 100%]:duplicate:_files'
            '*--reorder[Share of packets reordered, below 100%]:reorder:_files'
            '*--reorder-delay[Extra delay of reordered packets, at most 10s, such as 1ms]:reorder_delay:_files'
            '*--delay[One-way delay, at most 10s, such as 5.8ms]:delay:_files'
            '*--rate[Rate, from 100kbit to 10Gbit, such as 100Mbit]:rate:_files'
            '*--buffer[Buffer of the link, such as 2MB]:buffer:_files'
            '*--mtu[Longest IP packet in bytes, from 576 to 1500; longer ones are dropped without ICMP]:mtu:_files'
            '*--udp-forbidden[Drop all UDP]:udp_forbidden:(true false)'
            '*--tcp-forbidden[Drop all TCP]:tcp_forbidden:(true false)') ;;
        'canele lab cut') specs=($set0 
            '*--name[Name of the lab]:name:_files'
            ':target:_files'
            '*--for[Length of the cut, at most 3600s, such as 2s \[default\: until heal\]]:duration:_files'
            '*--direction[Direction of the lost packets\: in, out or both]:direction:(in out both)') ;;
        'canele lab flow') specs=($set0 
            '*--name[Name of the lab]:name:_files'
            '*--for[Length of the flow, at most 3600s, such as 10s]:duration:_files'
            '*--congestion[Congestion control\: cubic, bbr or reno]:congestion:(cubic bbr reno)'
            '*--from[Sending node \[default\: the last of the first site\]]:from:_files'
            '*--to[Receiving node \[default\: the last of the last site\]]:to:_files') ;;
        'canele profile') specs=($set0 
            ':file:_files') ;;
        'canele tune') specs=($set2 
            '*--operations[Operations, such as bcast,allreduce \[default\: all\]]:operations:_files'
            '*--sizes[Sizes in bytes, multiples of 4 from 4 to 1024M, such as 8,64k,1M; of a block or of the whole, as in the table]:sizes:_files'
            '*--seconds[Seconds per case in each round, from 0.001 to 60]:seconds:_files'
            '*--rounds[Number of turns of each algorithm, from 3 to 100]:rounds:_files'
            '*--table[File of the table, in a folder that rank 0'\''s host sees]:table:_files'
            '*:mpiexec:_files') ;;
        'canele bench') commands=('clock:Print overhead and resolution of the clock, and a known sleep' 'pingpong:Half a round trip between two ranks, beside raw TCP' 'burst:Many short messages at once, until they are acknowledged' 'oversubscribed:Collectives and ping-pongs on more ranks than cores' 'cut:A message in packets, each sent as a message of its own' 'behind:A short message queued behind a long one to the same rank' 'queues:Short messages beside posted receives and unexpected messages that do not match' 'modules:Two communicators, one of which has unreceived messages' 'rails:Half a round trip over one rail and over two (needs two --variant)' 'overhead:The cost of the engine and of progress over a bare rail' 'addressed:A put into memory that the receiver polls, beside a message and a bare rail' 'express:Packets that the receiver needs one by one (mad_receive_EXPRESS)' 'overlap:A transfer and a computation at the same time' 'progress:Operations that complete while the application computes' 'reactivity:Half a round trip beside computing threads' 'threads:Messages of many threads at once (MPI_THREAD_MULTIPLE)' 'partitioned:Partitions of a message that threads make ready, beside one MPI_Send' 'offload:The duration of the MPI_Isend call, and of the whole transfer' 'idle:CPU time of a rank that waits for a message' 'wan:Half a round trip over a long link, after traffic and after silence' 'slowstart:Long messages in a row on new connections' 'first:MPI_Init, and the first exchange of a job' 'coll:Collectives, and their traffic between sites' 'torres:Barrier, allgather and allreduce on 4 to 7 ranks, relative to 8' 'pairs:Messages of all pairs between two halves of the ranks at once' 'onesided:One-sided operations, each with its flush, also while the target computes' 'gups:Random updates of a table that all ranks hold (HPCC RandomAccess)' 'nas:Kernels of the NAS Parallel Benchmarks' 'ray2mesh:Seismic rays traced by workers for a master, and a mesh that all merge (ray2mesh)' 'simri:An image by magnetic resonance, simulated by workers for a master (Simri)' 'io:Files by all ranks, beside pwrite and pread by as many processes' 'compare:Run several benchmarks on Canele and the installed peers, in turn' 'report:Write one HTML file with all figures of some results') specs=($set0 ) ;;
        'canele bench clock') specs=($set0 
            '*--sleep[Length of the known sleep in seconds, from 0.001 to 60]:sleep:_files'
            '*--output[Folder of the compiled program]:output:_files') ;;
        'canele bench pingpong') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 1,8,16,64,256,1k,4k,16k,64k,256k,1M,4M,16M,64M\]]:sizes:_files') ;;
        'canele bench burst') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 64k \[default\: 8,16,64,256,1k,4k\]]:sizes:_files'
            '*--messages[Number of messages, between 1 and 100000 \[default\: 1000\]]:messages:_files') ;;
        'canele bench oversubscribed') specs=($set3 
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 1k \[default\: 2,4,8,16,32\]]:ranks:_files') ;;
        'canele bench cut') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 64,1k,16k,64k,1M\]]:sizes:_files'
            '*--packets[Number of packets, at most one per byte, between 1 and 64k \[default\: 1,2,4,8,16,32,64,128,256,512,1024\]]:packets:_files') ;;
        'canele bench behind') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 64k \[default\: 4,8\]]:sizes:_files'
            '*--long[Sizes of the long message in bytes; 0 is none, between 0 and 1024M \[default\: 0,64k,1M\]]:long:_files') ;;
        'canele bench queues') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 4k \[default\: 8\]]:sizes:_files'
            '*--depths[Number of queued receives or messages, between 0 and 30000 \[default\: 0,100,10000\]]:depths:_files') ;;
        'canele bench modules') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 4k \[default\: 8\]]:sizes:_files'
            '*--unready[Bytes of unreceived messages, each of 64 B to 256 KiB, between 0 and 1024M \[default\: 0,10M\]]:unready:_files') ;;
        'canele bench rails') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 64,1k,4k,16k,64k,256k,1M,4M,16M,64M\]]:sizes:_files') ;;
        'canele bench overhead' | 'canele bench addressed') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 4k \[default\: 8\]]:sizes:_files') ;;
        'canele bench express') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 4k \[default\: 16\]]:sizes:_files'
            '*--packets[Number of packets, between 1 and 10000 \[default\: 1,4,16,64,256\]]:packets:_files') ;;
        'canele bench overlap') specs=($set3 
            '*--sizes[Sizes in bytes, multiples of 256, between 256 and 256M \[default\: 64k,1M,4M\]]:sizes:_files'
            '*--computing[Length of the computation, in µs, between 1 and 10000000 \[default\: 1000,10000\]]:computing:_files') ;;
        'canele bench progress') specs=($set3 
            '*--sizes[Sizes in bytes; 0 is a barrier, between 0 and 256M \[default\: 0,8,1M\]]:sizes:_files'
            '*--computing[Length of the computation, in µs, between 1 and 10000000 \[default\: 100000\]]:computing:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 1k \[default\: 2\]]:ranks:_files') ;;
        'canele bench reactivity') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1M \[default\: 8\]]:sizes:_files'
            '*--threads[Number of computing threads beside a rank, between 0 and 256 \[default\: 0,1,2,4,8\]]:threads:_files') ;;
        'canele bench threads') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1M \[default\: 8\]]:sizes:_files'
            '*--threads[Threads per rank, between 1 and 64 \[default\: 1,2,4,8,16\]]:threads:_files') ;;
        'canele bench partitioned') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 64k,1M,8M\]]:sizes:_files'
            '*--threads[Threads of the sender, between 1 and 64 \[default\: 1,2,4,8\]]:threads:_files') ;;
        'canele bench offload') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 8,64,1k,4k,16k,64k,256k,1M,4M\]]:sizes:_files') ;;
        'canele bench idle') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1M \[default\: 8\]]:sizes:_files'
            '*--waiting[Length of the wait, in µs, between 1000 and 60000000 \[default\: 1000000\]]:waiting:_files') ;;
        'canele bench wan') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 1,1k,16k,64k,256k,1M,4M,16M\]]:sizes:_files'
            '*--silence[Silence before each message, in µs, between 0 and 60000000 \[default\: 0,1000000\]]:silence:_files'
            '*--long[Add long sizes]') ;;
        'canele bench slowstart') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 1M\]]:sizes:_files'
            '*--messages[Number of messages, between 1 and 50000 \[default\: 200\]]:messages:_files') ;;
        'canele bench first') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 1024M \[default\: 8\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 1k \[default\: 2\]]:ranks:_files') ;;
        'canele bench coll') specs=($set3 
            '*--sizes[Sizes in bytes; 0\: operations without data; reductions need multiples of 4, between 0 and 64M \[default\: 0,1,8,64k,1M\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 64 \[default\: 8\]]:ranks:_files') ;;
        'canele bench torres') specs=($set3 
            '*--sizes[Sizes in bytes, multiples of 4; 0\: the barrier, between 0 and 4M \[default\: 0,4,32,512,1024\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 64 \[default\: 4,5,6,7,8\]]:ranks:_files') ;;
        'canele bench pairs') specs=($set3 
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M, between 1 and 4M \[default\: 8,1k,64k\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 64 \[default\: 16\]]:ranks:_files') ;;
        'canele bench onesided') specs=($set3 
            '*--sizes[Sizes in bytes, multiples of 8; atomic operations are of 8, between 8 and 64M \[default\: 8,1M\]]:sizes:_files') ;;
        'canele bench gups') specs=($set3 
            '*--sizes[Sizes of each rank'\''s part in bytes, multiples of 8, between 8 and 1024M \[default\: 16M\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 64 \[default\: 2,4,8,16\]]:ranks:_files') ;;
        'canele bench nas') specs=($set3 
            '*--kernel[Kernels, one of EP, IS, CG, MG, FT, LU, BT, SP \[default\: EP,IS,CG,MG,FT,LU,BT,SP\]]:kernel:_files'
            '*--class[Classes of problems, from the least on, one of S, W, A, B \[default\: A\]]:class:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 1 and 32 \[default\: 4\]]:ranks:_files') ;;
        'canele bench ray2mesh') specs=($set3 
            '*--sizes[Sizes of the mesh in bytes, between 1k and 1024M \[default\: 16M\]]:sizes:_files'
            '*--masters[Ranks that are the master, one after the other, between 0 and 1023 \[default\: 0\]]:masters:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 1k \[default\: 4\]]:ranks:_files') ;;
        'canele bench simri') specs=($set3 
            '*--sizes[Bytes of a result, 16 for each line of the image, between 16 and 4k \[default\: 1k\]]:sizes:_files'
            '*--masters[Ranks that are the master, one after the other, between 0 and 1023 \[default\: 0\]]:masters:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 1k \[default\: 4\]]:ranks:_files') ;;
        'canele bench io') specs=($set3 
            '*--sizes[Bytes of each rank, multiples of 1024, between 64k and 1024M \[default\: 16M\]]:sizes:_files'
            '*--files[Place of the file\: 0 is /dev/shm, 1 the folder of the programs, 2 that folder, which the first half of the ranks sees, between 0 and 2 \[default\: 0,1\]]:files:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32, between 2 and 16 \[default\: 4\]]:ranks:_files') ;;
        'canele bench compare') specs=($set4 
            '*:what:_files'
            '*--sizes[Sizes in bytes, such as 1,16,64k,4M \[default and limits\: those of each benchmark\]]:sizes:_files'
            '*--ranks[Numbers of ranks, such as 2,8,32 \[default and limits\: those of each benchmark\]]:ranks:_files'
            '*--peers[Folder of the peers]:peers:_files') ;;
        'canele bench report') specs=($set0 
            '*:folders:_files'
            '*--output[File to write]:output:_files') ;;
    esac
    if (( $#commands && CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe command commands
    else
        _arguments -S $specs
    fi
}
_canele "$@"
