#!/usr/bin/env bash
# A port scan during a run over TCP: the job's result stays right. Usage: scan.sh PREFIX
set -u
cd "$(dirname "$0")"
. ./check.sh
prefix=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/exchange.c -o "$work/exchange" || exit 1

# Links are opened before the scan, and during it.
for pause in 0 1; do
    "$prefix/bin/mpiexec" -timeout 60 -genv CANELE_RAILS tcp -n 4 "$work/exchange" 4 $pause >"$work/out" 2>"$work/err" &
    job=$!
    timeout 30 python3 programs/scan.py 4 $job >"$work/scan" 2>&1
    scan=$?
    wait $job
    code=$?
    check "the scan found ports to scan: $(tr '\n' ' ' <"$work/scan")" 0 $scan
    check "the job, links opened after $pause s: $(tr '\n' ' ' <"$work/out")" 0 $code
    check "is right" 1 "$(grep -c 'among 4 ranks: 0 failures' "$work/out")"
    # A rank reports a reason and an origin once, and the rest as a sum.
    output=$(sed -E 's/(\]|[0-9]):[0-9]+: /\1: /' "$work/err" | grep 'refused a connection' | sort | uniq -d)
    check "the job reports each reason and origin once" '' "$output"
    check "and of nothing else" 0 "$(grep -vc 'refused' "$work/err")"
done
finish_checks
