#!/usr/bin/env bash
# Programs that survive the failure of processes: revoked communicators, agreements, new communicators of those that live.
# Usage: ulfm.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/ulfm.c -o "$work/ulfm" || exit 1

# What comes before the program.
wrapper=()
run() { # name, ranks that end well, case, arguments of mpiexec
    local name=$1 expected=$2 which=$3
    shift 3
    timeout 60 "$prefix/bin/mpiexec" "$@" "${wrapper[@]}" "$work/ulfm" "$which" >"$work/out" 2>"$work/err"
    check "$name" "$expected" "$(grep -c ": $which: 0 failures" "$work/out")"
    grep -E 'line|failures: [1-9]' "$work/err" "$work/out" | head -20
}
for rails in shm tcp; do
    run "a revoked communicator over $rails" 4 revoke -genv CANELE_RAILS $rails -n 4
    run "a failed rank over $rails" 3 failures -disable-auto-cleanup -genv CANELE_RAILS $rails -n 4
    run "failed coordinators over $rails" 1 coordinators --enable-recovery -genv CANELE_RAILS $rails -n 5
done
run "a failed rank that is replaced" 3 spawn --with-ft ulfm -n 4
# shellcheck disable=SC2016
wrapper=(sh -c 'CANELE_SITE=s$((PMI_RANK / 2)) exec "$0" "$@"')
run "a revoked communicator of two sites" 4 revoke -n 4
run "a failed rank of two sites" 3 failures -disable-auto-cleanup -n 4
run "failed coordinators of two sites" 1 coordinators -disable-auto-cleanup -n 4
finish_checks
