# Common functions of the test scripts, sourced by them.
failures=0
check() { # name, expected, found
    if [ "$2" != "$3" ]; then
        printf 'FAILED %s\n  expected: %s\n  found:    %s\n' "$1" "$2" "$3"
        failures=$((failures + 1))
    else
        printf 'ok %s\n' "$1"
    fi
}
skip() { # name, reason: a test, or a part of it, that cannot run here; scripts/test.sh counts these lines
    printf 'skip %s: %s\n' "$1" "$2"
}
alive() { # a file of process ids: number of those that run
    local id
    while read -r id; do
        [ -e "/proc/$id" ] && ! grep -q '^State:.Z' "/proc/$id/status" 2>/dev/null && echo "$id"
    done <"$1" | wc -l
}
until_true() { # seconds, condition: waits until it holds, at most so long
    local end=$((SECONDS + $1))
    until eval "$2" || [ $SECONDS -ge $end ]; do sleep 0.05; done
}
since_ms() { # a file: milliseconds since its last change
    echo $((($(date +%s%N) - $(date -r "$1" +%s%N)) / 1000000))
}
took_ms() { # a command: milliseconds that it takes here and now, on a machine that may be busy
    local start
    start=$(date +%s%N)
    "$@" >/dev/null 2>&1
    echo $((($(date +%s%N) - start) / 1000000))
}
# Runs functions at the same time, each in a process of its own. Prints what they print, one after the other, and counts
# their failures.
beside() { # functions
    local part ids=() logs
    logs=$(mktemp -d)
    for part in "$@"; do
        (failures=0; "$part"; exit "$failures") >"$logs/$part" 2>&1 &
        ids+=($!)
    done
    for part in "$@"; do
        wait "${ids[0]}" || failures=$((failures + $?))
        ids=("${ids[@]:1}")
        echo "$part:"
        cat "$logs/$part"
    done
    rm -rf "$logs"
}
finish_checks() {
    printf '%s failures\n' "$failures"
    [ "$failures" = 0 ]
    exit
}
