#compdef canele-gateway
# Completion of canele-gateway for zsh, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_canele_gateway() {
    local place=canele-gateway
    local -a commands specs
    while (( CURRENT > 2 )); do
        case "$place $words[2]" in
            none) place="$place $words[2]"; shift words; (( CURRENT-- )) ;;
            *) break ;;
        esac
    done
    case $place in
        'canele-gateway') specs=(
            '*--listen[Listen here over TCP and UDP, on the first free port, such as 10.77.1.10\:7000-7009; may be repeated]:listen:_files'
            '*--allow[Connect to hosts of this network; may be repeated]:allow:_files'
            '*--gateways[Connect to gateways of other sites in this network; may be repeated]:gateways:_files'
            '*--transit[Pass connections of other sites'\'' gateways on to those of a third site]'
            '*--between[Protocol to other gateways\: auto (TCP with BBR, otherwise UDP), tcp, or udp (TCP as fallback)]:between:(auto tcp udp)'
            '*--until-eof[End at the end of standard input]'
            '*--beat[Write an empty line each second, as a sign of life]'
            '*--account[Print statistics at the end of standard input, too]'
            '*--help[Print help]'
            '*--version[Print version]'
            '*-V[Print version]') ;;
    esac
    if (( $#commands && CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe command commands
    else
        _arguments -S $specs
    fi
}
_canele_gateway "$@"
