#!/usr/bin/env bash
# Ranks that lose all cores but one, and get them back, wait like ranks that began so. It compares speeds, so nothing
# else may run. Usage: cores.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/cores.c -o "$work/cores" || exit 1
median() { sort -n | sed -n 2p; } # of three numbers
[ "$(nproc)" -gt 1 ] || skip "ranks moved to one core" "there is only one core"
for rails in shm tcp; do
    [ "$(nproc)" -gt 1 ] || break
    rm -f "$work/moved" "$work/begun"
    for _ in 1 2 3; do
        timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 2 "$work/cores" >>"$work/moved"
        check "two ranks are moved to one core and back, over $rails" 0 $?
        timeout 60 taskset -c "${cores%%[-,]*}" "$prefix/bin/mpiexec" -genv CANELE_RAILS $rails -n 2 "$work/cores" >>"$work/begun"
    done
    check "and notice it, each time" "4 0 4 0 4 0" "$(cut -d' ' -f4- "$work/moved" | paste -sd' ')"
    moved=$(cut -d' ' -f2 "$work/moved" | median) begun=$(cut -d' ' -f2 "$work/begun" | median)
    check "they run at least a third of the rounds of ranks that begin there ($moved and $begun per second)" yes "$([ $((3 * moved)) -ge "$begun" ] && echo yes)"
    back=$(cut -d' ' -f3 "$work/moved" | median) before=$(cut -d' ' -f1 "$work/moved" | median)
    check "and a third of the earlier rounds after getting the cores back ($back and $before per second)" yes "$([ $((3 * back)) -ge "$before" ] && echo yes)"
done
finish_checks
