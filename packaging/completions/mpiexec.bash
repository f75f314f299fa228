# Completion of mpiexec for bash, written from the table of its options by `UPDATE_EXPECT=1 cargo test -p launch`.

# Sets `kinds` to the kinds of the values of an option, one word each.
_mpiexec_kinds() {
    kinds=
    case $1 in
        n | np | ntasks) kinds='none' ;;
        soft) kinds='none' ;;
        hosts | host | H | machines | machine | machinelist | hostlist) kinds='hosts' ;;
        f | hostfile | machinefile) kinds='file' ;;
        grid) kinds='file' ;;
        ppn | N | perhost | npernode | ntasks-per-node | grr) kinds='none' ;;
        configfile | app) kinds='file' ;;
        usize) kinds='=usize' ;;
        arch) kinds='none' ;;
        bind-to | binding) kinds='=bind-to' ;;
        map-by) kinds='=map-by' ;;
        rank-by) kinds='=rank-by' ;;
        record) kinds='file' ;;
        place) kinds='file' ;;
        genv) kinds='variable none' ;;
        env) kinds='variable none' ;;
        x) kinds='none' ;;
        genvlist) kinds='none' ;;
        genvexcl) kinds='none' ;;
        envlist) kinds='none' ;;
        envexcl) kinds='none' ;;
        wdir | wd | cwd) kinds='dir' ;;
        path) kinds='none' ;;
        launcher | rmk | bootstrap) kinds='=launcher' ;;
        launcher-exec | bootstrap-exec | launch-agent) kinds='cmd' ;;
        prefix) kinds='dir' ;;
        localhost) kinds='none' ;;
        iface) kinds='none' ;;
        encrypt) kinds='=encrypt' ;;
        with-ft) kinds='none' ;;
        timeout) kinds='none' ;;
        wait) kinds='none' ;;
        h | help | ?) kinds='=h' ;;
        s | stdin) kinds='=s' ;;
        prepend-pattern) kinds='none' ;;
        outfile-pattern | outfile) kinds='none' ;;
        errfile-pattern | errfile) kinds='none' ;;
        output-filename | output-directory) kinds='dir' ;;
        trace) kinds='file' ;;
        profile) kinds='file' ;;
        mca | gmca | omca | pmixmca | prtemca) kinds='none none' ;;
        topolib | demux) kinds='none' ;;
        membind) kinds='none' ;;
        file) kinds='file' ;;
        nameserver | ompi-server) kinds='none' ;;
        cpus-per-proc | cpus-per-rank | cpus-per-task) kinds='none' ;;
    esac
}

_mpiexec() {
    # Bash divides words also at colons and equals signs.
    local line=${COMP_LINE:0:COMP_POINT} current kinds word name
    local -a words wanted=()
    read -ra words <<<"$line"
    current=${words[-1]}
    [[ $line != *[[:space:]] ]] || current=
    [ -z "$current" ] || unset 'words[-1]'
    COMPREPLY=()
    local has_program=
    for word in "${words[@]:1}"; do
        if [ "$word" = : ]; then
            has_program= wanted=()
        elif [ ${#wanted[@]} -gt 0 ]; then
            wanted=("${wanted[@]:1}")
            # A variable and its value may be one word.
            [[ $word != *=* ]] || wanted=()
        elif [ -z "$has_program" ] && [[ $word == -* ]]; then
            name=${word#-}
            name=${name#-}
            kinds=
            [[ $word == *=* ]] || _mpiexec_kinds "$name"
            read -ra wanted <<<"$kinds"
        else
            has_program=yes
        fi
    done
    # Arguments of a program are completed as files are, by readline.
    [ -z "$has_program" ] || return 0
    case ${wanted[0]:-} in
        '')
            local options='-n -np -soft -hosts -f -hostfile -grid -ppn -N -rr -configfile -usize -arch -bind-to -map-by -rank-by -report-bindings -print-rank-map -record -place -genv -env -x -genvall -genvnone -genvlist -genvexcl -envall -envnone -envlist -envexcl -wdir -path -launcher -launcher-exec -prefix -localhost -iface -encrypt -disable-auto-cleanup -with-ft -enable-auto-cleanup -timeout -wait -V -version -h -help -s -l -prepend-rank -prepend-pattern -tag-output -timestamp-output -outfile-pattern -errfile-pattern -output-filename -print-all-exitcodes -v -trace -profile -check'
            case $current in
                --*) COMPREPLY=($(compgen -P - -W "$options" -- "${current#-}")) ;;
                -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
                */*) COMPREPLY=($(compgen -f -- "$current")) ;;
                *) COMPREPLY=($(compgen -c -- "$current")) ;;
            esac
            ;;
        dir) COMPREPLY=($(compgen -d -- "$current")) ;;
        cmd) COMPREPLY=($(compgen -c -- "$current")) ;;
        hosts) COMPREPLY=($(compgen -A hostname -P "${current%"${current##*,}"}" -- "${current##*,}")) ;;
        variable) COMPREPLY=($(compgen -e -- "$current")) ;;
        =bind-to) COMPREPLY=($(compgen -W 'none hwthread core l1cache l2cache l3cache numa socket rr' -- "$current")) ;;
        =map-by) COMPREPLY=($(compgen -W 'slot node core numa socket' -- "$current")) ;;
        =rank-by) COMPREPLY=($(compgen -W 'slot node core numa socket' -- "$current")) ;;
        =launcher) COMPREPLY=($(compgen -W 'ssh rsh slurm fork' -- "$current")) ;;
        =encrypt) COMPREPLY=($(compgen -W 'sites all none' -- "$current")) ;;
        =usize) COMPREPLY=($(compgen -W 'SYSTEM INFINITE' -- "$current")) ;;
        =s) COMPREPLY=($(compgen -W 'all none' -- "$current")) ;;
        =h) COMPREPLY=($(compgen -W 'ranks placement environment launching output others all' -- "$current")) ;;
    esac
}
complete -o default -F _mpiexec mpiexec mpirun
