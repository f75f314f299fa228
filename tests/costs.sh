#!/usr/bin/env bash
# Costs of idle ranks: processor time while they wait, and memory for peers without any message. Usage: costs.sh
# PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in idle footprint; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 "programs/$program.c" -o "$work/$program" || exit 1
done
go() { timeout 60 "$prefix/bin/mpiexec" "$@"; }

# Less than 2 % of a core each; the program fails otherwise.
for rails in shm,tcp tcp; do
    for ranks in 2 16; do
        for wait in recv barrier; do
            said=$(go -genv CANELE_RAILS $rails -n $ranks "$work/idle" $wait 2)
            check "over $rails: $said" 0 $?
        done
    done
done

# At most 8 MiB for 64 peers. Links are opened at the first message.
for rails in shm,tcp tcp; do
    read -r alone _ _ <<<"$(go -genv CANELE_RAILS $rails -n 1 "$work/footprint")"
    read -r _ few_sockets few_segments <<<"$(go -genv CANELE_RAILS $rails -n 2 "$work/footprint")"
    read -r many_kib many_sockets many_segments <<<"$(go -genv CANELE_RAILS $rails -n 65 "$work/footprint")"
    check "over $rails: 64 peers take $((many_kib - alone)) KiB more than none" yes "$([ $((many_kib - alone)) -le 8192 ] && echo yes)"
    check "over $rails: no socket for peers without messages" "$few_sockets" "$many_sockets"
    check "over $rails: no segment for peers without messages" "$few_segments" "$many_segments"
done
finish_checks
