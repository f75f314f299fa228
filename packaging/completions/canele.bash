# Completion of canele for bash, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_canele() {
    local current=${COMP_WORDS[COMP_CWORD]} place=canele wanted= words= commands options word
    _canele_place
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ -n "$wanted" ]; then
            wanted=
        elif [[ $word == -* ]]; then
            _canele_option "$word"
        elif [[ " $commands " == *" $word "* ]]; then
            place="$place $word"
            _canele_place
        fi
    done
    COMPREPLY=()
    case $wanted,$current in
        words,*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
        folder,*) COMPREPLY=($(compgen -d -- "$current")) ;;
        file,*) ;;
        ,-*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "$commands" -- "$current")) ;;
    esac
}
# Sets the commands and options of the command `place`.
_canele_place() {
    commands= options=
    case $place in
        'canele') commands='info jobs stack top grid lab profile tune bench' options='--help --version -V' ;;
        'canele info') commands='' options='--settings --link --progress --system --plan --on --oversubscribed --pair --help' ;;
        'canele jobs' | 'canele stack' | 'canele profile') commands='' options='--help' ;;
        'canele top') commands='' options='--json --interval --count --help' ;;
        'canele grid') commands='status' options='--hosts --launcher-exec --save --help' ;;
        'canele grid status') commands='' options='--json --timeout --help' ;;
        'canele lab') commands='up run grid status set cut heal flow down' options='--help' ;;
        'canele lab up') commands='' options='--name --sites --nodes --nics --rtt --wan-rate --lan-rate --wan-buffer --socket-max --wan-loss --pair --private --speed --seed --help' ;;
        'canele lab run' | 'canele lab grid' | 'canele lab heal' | 'canele lab down') commands='' options='--name --help' ;;
        'canele lab status') commands='' options='--name --json --help' ;;
        'canele lab set') commands='' options='--name --from --to --loss --duplicate --reorder --reorder-delay --delay --rate --buffer --mtu --udp-forbidden --tcp-forbidden --help' ;;
        'canele lab cut') commands='' options='--name --for --direction --help' ;;
        'canele lab flow') commands='' options='--name --for --congestion --from --to --help' ;;
        'canele tune') commands='' options='--operations --sizes --seconds --rounds --table --prefix --help' ;;
        'canele bench') commands='clock pingpong burst oversubscribed cut behind queues modules rails overhead addressed express overlap progress reactivity threads partitioned offload idle wan slowstart first coll torres pairs onesided gups nas ray2mesh simri io compare report' options='--help' ;;
        'canele bench clock') commands='' options='--sleep --output --help' ;;
        'canele bench pingpong' | 'canele bench rails' | 'canele bench overhead' | 'canele bench addressed' | 'canele bench offload' | 'canele bench onesided') commands='' options='--sizes --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench burst' | 'canele bench slowstart') commands='' options='--sizes --messages --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench oversubscribed') commands='' options='--ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench cut' | 'canele bench express') commands='' options='--sizes --packets --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench behind') commands='' options='--sizes --long --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench queues') commands='' options='--sizes --depths --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench modules') commands='' options='--sizes --unready --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench overlap') commands='' options='--sizes --computing --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench progress') commands='' options='--sizes --computing --ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench reactivity' | 'canele bench threads' | 'canele bench partitioned') commands='' options='--sizes --threads --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench idle') commands='' options='--sizes --waiting --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench wan') commands='' options='--sizes --silence --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --long --help' ;;
        'canele bench first' | 'canele bench coll' | 'canele bench torres' | 'canele bench pairs' | 'canele bench gups') commands='' options='--sizes --ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench nas') commands='' options='--kernel --class --ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench ray2mesh' | 'canele bench simri') commands='' options='--sizes --masters --ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench io') commands='' options='--sizes --files --ranks --place --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench compare') commands='' options='--sizes --ranks --peers --seconds --quick --loss --flow --beside --variant --on-off --tuned --rounds --nodes --rtt --rate --buffer --socket-max --sites --pair --lab --by --prefix --output --continue --help' ;;
        'canele bench report') commands='' options='--output --help' ;;
    esac
}
# Sets the kind of the value that an option wants.
_canele_option() {
    case $1 in
        --beside | --buffer | --by | --class | --computing | --count | --delay | --depths | --duplicate | --files | --for | --from | --hosts | --interval | --kernel | --lab | --lan-rate | --launcher-exec | --link | --long | --loss | --masters | --messages | --mtu | --name | --nics | --nodes | --on | --operations | --output | --packets | --pair | --peers | --place | --plan | --prefix | --private | --ranks | --rate | --reorder | --reorder-delay | --rounds | --rtt | --save | --seconds | --seed | --silence | --sites | --sizes | --sleep | --socket-max | --speed | --table | --threads | --timeout | --to | --unready | --variant | --waiting | --wan-buffer | --wan-loss | --wan-rate) wanted=file ;;
        --congestion | --flow) wanted=words words='cubic bbr reno' ;;
        --direction) wanted=words words='in out both' ;;
        --tcp-forbidden | --udp-forbidden) wanted=words words='true false' ;;
    esac
}
complete -o default -F _canele canele
