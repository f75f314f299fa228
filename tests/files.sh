#!/usr/bin/env bash
# Files: random programs against a sequential model, what the system refuses, and ranks that are killed while they write.
# Usage: files.sh PREFIX. SEED=7 repeats seed 7 of the random programs; SEEDS=100 runs so many.
set -u
cd "$(dirname "$0")"
. ./check.sh
if [ "${2:-}" != apart ] && unshare -rm true 2>/dev/null; then
    exec unshare -rm "$PWD/files.sh" "$1" apart
fi
prefix=$1
work=$(mktemp -d)
trap 'umount "$work"/full "$work"/readonly 2>/dev/null; rm -rf "$work"' EXIT
for program in files_random files_faults files_lost files_unseen; do
    "$prefix/bin/mpicc" -Wall -Werror -O1 programs/$program.c -o "$work/$program" -pthread || exit 1
done

# On tmpfs and on the disk; over shared memory, with messages alone, and with sites in name only.
memory=$(mktemp -d -p /dev/shm 2>/dev/null) || memory=$work
trap 'umount "$work"/full "$work"/readonly "$work"/over/seen 2>/dev/null; rm -rf "$work" "$memory"' EXIT
first=${SEED:-$((RANDOM * 32768 + RANDOM))} count=${SEEDS:-12}
[ -z "${SEED:-}" ] || count=${SEEDS:-1}
seeds=$(seq "$first" $((first + count - 1)))
for one in "1 shm $memory" "2 shm $memory" "3 shm,tcp $work" "4 shm $memory" "5 tcp $memory"; do
    read -r ranks rails folder <<<"$one"
    # shellcheck disable=SC2086
    output=$(timeout 120 "$prefix/bin/mpiexec" -genv CANELE_RAILS "$rails" -n "$ranks" "$work/files_random" "$folder" $seeds 2>"$work/err")
    check "random programs on $ranks ranks over $rails" "random programs on a file, $ranks ranks, seeds $first to $((first + count - 1)): ok" "$output"
    head -5 "$work/err"
done
# shellcheck disable=SC2016,SC2086
output=$(timeout 120 "$prefix/bin/mpiexec" -n 4 sh -c 'CANELE_SITE=s$((PMI_RANK / 2)) exec "$0" "$@"' "$work/files_random" "$memory" $seeds 2>"$work/err")
check "random programs on two sites" "random programs on a file, 4 ranks, seeds $first to $((first + count - 1)): ok" "$output"
head -5 "$work/err"

refused() { # case, folder
    local ranks output
    for ranks in 1 2 4; do
        output=$(timeout 60 "$prefix/bin/mpiexec" -n $ranks "$work/files_faults" "$1" "$2" 2>"$work/err")
        check "$1, on $ranks ranks" "$1: 0 failures" "$output"
        head -5 "$work/err"
    done
}
for case in limit quota cut denied; do refused $case "$work"; done
refused interrupted "$memory"
if [ "${2:-}" = apart ]; then
    mkdir "$work/full" "$work/readonly"
    mount -t tmpfs -o size=1m tmpfs "$work/full"
    refused full "$work/full"
    mount -t tmpfs tmpfs "$work/readonly"
    echo data >"$work/readonly/file"
    mount -o remount,ro "$work/readonly"
    refused readonly "$work/readonly"
else
    skip "full disks and read-only file systems" "this machine does not permit namespaces"
fi

# Some ranks do not see the file system that is mounted on $work/over/seen: they have an empty one there, or over the folder
# above it. All see it as $work/real.
cat >"$work/sighted" <<'SH'
#!/bin/sh
# Usage: sighted PLACE BLIND PROGRAM...: the ranks BLIND have an empty file system at PLACE, with another file of the same name.
place=$1 blind=$2
shift 2
export CANELE_SITE=s$((PMI_RANK / 2))
case " $blind " in
*" $PMI_RANK "*) unshare -m sh -c 'mount -t tmpfs tmpfs "$0" && echo stale >"$0/random" && exec "$@"' "$place" "$@" ;;
*) "$@" ;;
esac
code=$?
[ "$PMI_RANK" != "${LOST:-}" ] || sleep 60
exit $code
SH
chmod +x "$work/sighted"
sighted() { # place, blind ranks, program...
    FILES_REAL=$work/real timeout 120 "$prefix/bin/mpiexec" -genv CANELE_RAILS "$rails" -n 4 "$work/sighted" "$@" 2>"$work/err"
}
if [ "${2:-}" = apart ]; then
    mkdir -p "$work/real" "$work/over/seen"
    mount --bind "$work/real" "$work/over/seen"
    for one in "shm seen 2 3" "tcp seen 2 3" "shm over 0 1" "tcp over 0 1" "tcp over 0 2 3" "shm seen 1"; do
        read -r rails place blind <<<"$one"
        [ "$place" = over ] && place=$work/over || place=$work/over/seen
        # shellcheck disable=SC2086
        output=$(sighted "$place" "$blind" "$work/files_random" "$work/over/seen" $seeds)
        check "random programs where ranks $blind do not see the file, over $rails" "random programs on a file, 4 ranks, seeds $first to $((first + count - 1)): ok" "$output"
        head -5 "$work/err"
        [ "$rails" = tcp ] || continue
        output=$(sighted "$place" "$blind" "$work/files_unseen" "$work/over/seen")
        check "long accesses where ranks $blind do not see it" "a file that some do not see: 0 failures" "$output"
        head -5 "$work/err"
    done
    mkdir "$work/real/full"
    mount -t tmpfs -o size=1m tmpfs "$work/over/seen/full"
    rails=tcp
    for case in full limit quota interrupted cut; do
        place=$work/over/seen
        [ $case != full ] || place=$place/full
        output=$(sighted "$work/over/seen" "2 3" "$work/files_faults" $case "$place")
        check "$case, where ranks 2 and 3 do not see the file" "$case: 0 failures" "$output"
        head -5 "$work/err"
    done
    umount "$work/over/seen/full"
    # Those that access the file for others are killed, or those for whom they do.
    for one in "tcp 0 300" "tcp 1 2000" "shm 2 900" "shm 3 3000"; do
        read -r rails lost delay_us <<<"$one"
        rm -f "$work"/real/lost*
        output=$(LOST=$lost sighted "$work/over/seen" "2 3" "$work/files_lost" "$work/over/seen" "$lost" "$delay_us" | sort)
        expected=$(for rank in 0 1 2 3; do [ $rank = "$lost" ] || echo "rank $rank: 0 failures"; done)
        check "rank $lost is killed over $rails, and ranks 2 and 3 do not see the file" "$expected" "$output"
        grep '^rank .* line ' "$work/err"
    done
else
    skip "files that some ranks do not see" "this machine does not permit namespaces"
fi

# A rank is killed, an aggregator or another one, unseen by its launcher.
for one in "shm 0 300" "shm 1 2000" "shm 3 700" "tcp 0 900" "tcp 2 3000"; do
    read -r rails lost delay_us <<<"$one"
    rm -f "$work"/lost*
    # shellcheck disable=SC2016
    output=$(timeout 60 "$prefix/bin/mpiexec" -genv CANELE_RAILS "$rails" -n 4 sh -c 'lost=$1; shift; "$0" "$@"; [ "$PMI_RANK" != "$lost" ] || sleep 60' "$work/files_lost" "$lost" "$work" "$lost" "$delay_us" 2>"$work/err" | sort)
    expected=$(for rank in 0 1 2 3; do [ $rank = "$lost" ] || echo "rank $rank: 0 failures"; done)
    check "rank $lost is killed over $rails after $delay_us us: what was synchronized is there, and the others are told" "$expected" "$output"
    grep '^rank .* line ' "$work/err"
done
finish_checks
