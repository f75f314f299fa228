#!/usr/bin/env bash
# Jobs that meet: over all rails, alone or of several ranks, at once, in threads, by a socket; names, errors, deaths.
# Usage: ports.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$1
work=$(mktemp -d)
started=()
trap 'for id in "${started[@]}"; do kill -9 "$id" 2>/dev/null; done; rm -rf "$work"' EXIT
export CANELE_CACHE_DIR=$work/cache
for program in ports ports_wrong; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 "programs/$program.c" -o "$work/$program" -lpthread || exit 1
done
go() { timeout 120 "$prefix/bin/mpiexec" "$@"; }
# Two jobs that meet: ranks of the accepting one, of the connecting one (0: a program without a launcher), options of mpiexec.
pair() {
    local accepting=$1 connecting=$2
    shift 2
    role() { # role, ranks, options
        if [ "$2" = 0 ]; then timeout 120 "$work/ports" "$1" "s$$"; else go "${@:3}" -n "$2" "$work/ports" "$1" "s$$"; fi
    }
    role accept "$accepting" "$@" >"$work/accept" 2>&1 &
    started+=($!)
    role connect "$connecting" "$@" >"$work/connect" 2>&1
    wait $!
    echo $(cat "$work/accept" "$work/connect")
}
for ranks in "2 3" "3 1" "0 2" "2 0" "0 0"; do
    # shellcheck disable=SC2086
    check "jobs of $ranks ranks meet (0: without a launcher)" "ok accept ok connect" "$(pair $ranks)"
done
for rails in tcp quic; do
    check "over $rails" "ok accept ok connect" "$(pair 2 2 -genv CANELE_RAILS $rails)"
done
check "with several VCIs" "ok accept ok connect" "$(pair 2 1 -genv CANELE_VCIS 4)"
meanwhile() { # role, ranks, more arguments
    go -n "$2" "$work/ports" "$1" "${@:3}" >"$work/$1$2" 2>&1 &
    started+=($!)
}
for both in "all none" "sites all" "none sites"; do
    export CANELE_RAILS=tcp
    CANELE_ENCRYPT=${both% *} meanwhile accept 2 "$both"
    CANELE_ENCRYPT=${both#* } meanwhile connect 1 "$both"
    unset CANELE_RAILS
    wait "${started[@]: -2}"
    check "jobs with other wishes for encryption meet: $both" "ok accept ok connect" "$(echo $(cat "$work/accept2" "$work/connect1"))"
done
meanwhile first 2 three
meanwhile second 1 three
meanwhile third 2 three
wait "${started[@]: -3}"
check "three jobs meet" "ok first ok second ok third" "$(echo $(cat "$work/first2" "$work/second1" "$work/third2"))"
meanwhile accept 2 two 2
meanwhile connect 1 two 1
meanwhile connect 3 two 1
wait "${started[@]: -3}"
check "two jobs connect at once" "ok accept ok connect ok connect" "$(echo $(cat "$work/accept2" "$work/connect1" "$work/connect3"))"
check "two halves of a job meet" "ok within" "$(go -n 4 "$work/ports" within 2>&1)"
check "several threads meet at one port" "ok threads" "$(go -n 2 "$work/ports" threads 2>&1)"
check "two processes join by a socket" "ok join ok join" "$(echo $(timeout 60 "$work/ports" join 2>&1; sleep 0.5))"
check "no published name is left" "" "$(ls -A "$CANELE_CACHE_DIR/names")"
check "its folder is closed to others" 700 "$(stat -c %a "$CANELE_CACHE_DIR/names")"

# Names and ports that do not serve.
check "errors have their classes" "ok wrong" "$(go -n 2 "$work/ports_wrong" wrong 2>&1)"
# mpiexec serves names to all its ranks: here two hosts, whose users have folders of their own.
printf '#!/bin/sh\nhost=$1; shift; CANELE_CACHE_DIR=%s/$host exec "$@"\n' "$work" >"$work/launcher"
chmod +x "$work/launcher"
check "names are found on all hosts" "ok names" "$(go -hosts one:1,two:2 -launcher-exec "$work/launcher" -n 3 "$work/ports_wrong" names 2>&1)"
check "one for this job is in no folder" "" "$(ls -A "$work/one/names" "$work/two/names" 2>/dev/null)"
# Callers that die at any moment, and strangers, end nothing.
check "a job accepts after callers have died" "ok deaths" "$(timeout 100 "$work/ports_wrong" deaths 2>&1)"
check "and so does one of three ranks" "ok deaths" "$(go -n 3 "$work/ports_wrong" deaths 2>&1)"
check "nothing is left of jobs that have ended" "ok visits" "$(timeout 100 "$work/ports_wrong" visits 2>&1)"
finish_checks
