# Completion of canele-gateway for bash, written from its options by `UPDATE_EXPECT=1 cargo test -p canele`.
_canele_gateway() {
    local current=${COMP_WORDS[COMP_CWORD]} place=canele-gateway wanted= words= commands options word
    _canele_gateway_place
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [ -n "$wanted" ]; then
            wanted=
        elif [[ $word == -* ]]; then
            _canele_gateway_option "$word"
        elif [[ " $commands " == *" $word "* ]]; then
            place="$place $word"
            _canele_gateway_place
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
_canele_gateway_place() {
    commands= options=
    case $place in
        'canele-gateway') commands='' options='--listen --allow --gateways --transit --between --until-eof --beat --account --help --version -V' ;;
    esac
}
# Sets the kind of the value that an option wants.
_canele_gateway_option() {
    case $1 in
        --allow | --gateways | --listen) wanted=file ;;
        --between) wanted=words words='auto tcp udp' ;;
    esac
}
complete -o default -F _canele_gateway canele-gateway
