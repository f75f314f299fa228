#!/usr/bin/env bash
# canele top on 4 ranks of two emulated sites: its figures against what the program sends. Usage: top.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
mpiexec=$prefix/bin/mpiexec
canele=$prefix/bin/canele
work=$(mktemp -d)
trap 'for one in ${job:-} ${other:-} ${watcher:-}; do kill -9 $one 2>/dev/null; done; rm -rf "$work"' EXIT
"$prefix/bin/mpicc" -Wall -Werror -O1 programs/load.c -o "$work/load" || exit 1
printf '#!/bin/sh\nhost=$1\nshift\nexec env CANELE_SITE=$host "$@"\n' >"$work/launcher"
chmod +x "$work/launcher"
begin() { # options of mpiexec
    rm -rf "$work/begun"
    mkdir "$work/begun"
    "$mpiexec" -timeout 180 "$@" -n 4 "$work/load" "$work/begun" >"$work/said" 2>&1 &
    job=$!
    until_true 60 '[ "$(ls "$work/begun" | wc -l)" -ge 4 ]'
}
end() {
    touch "$work/begun/go" "$work/begun/end"
    until_true 60 '! kill -0 $job 2>/dev/null'
    wait $job
    check "the job ends" 0 $?
    job=
}
has() { # name, pattern of a line of the table
    check "$1" yes "$(grep -qE -- "$2" "$work/table" && echo yes || cat "$work/table")"
}
figures() { # Python that prints, with the intervals in `intervals` and the sums in `sent(rank, to)`
    python3 -c '
import json, sys
intervals = [json.loads(line) for line in open(sys.argv[1])]
def sent(rank, to, what="messages"):
    return sum(one[what] for each in intervals for one in each["ranks"][rank]["sent"] or [] if one["to"] == to)
waiting = [each["ranks"] for each in intervals if any(one["quiet_s"] >= 1 for one in each["ranks"][2]["waits"])]
last = waiting[-1]
'"$1" "$work/lines"
}
watch_exchange() { # rails
    rm -f "$work/lines"
    begin -hosts one:2,two:2 -launcher-exec "$work/launcher" -genv CANELE_RAILS "$1"
    "$canele" top $job --json --interval 0.3 >"$work/lines" 2>"$work/errors" &
    watcher=$!
    until_true 30 '[ -s "$work/lines" ]'
    touch "$work/begun/go"
    # Rank 2 waits for a second, and ranks 0 and 3 compute.
    until_true 60 'tail -1 "$work/lines" | grep -q "\"call\":\"MPI_Recv\"[^]]*\"quiet_s\":[1-9]"'
    "$canele" top $job --interval 0.5 >"$work/table" 2>&1
    end
    until_true 20 '! kill -0 $watcher 2>/dev/null'
    wait $watcher
    check "$1: canele top ends with the job" "0 canele: job" "$? $(cut -d' ' -f1-2 "$work/errors")"
    watcher=
    check "$1: rank 0 has sent what it did" "5000 500000 200 8000" \
        "$(figures 'print(sent(0, "node"), sent(0, "node", "bytes"), sent(0, "wan"), sent(0, "wan", "bytes"))')"
    check "$1: rank 1 too" "30 30000000 0" "$(figures 'print(sent(1, "node"), sent(1, "node", "bytes"), sent(1, "wan"))')"
    check "$1: and the others, but for what they send at the end" "7 56" "$(figures 'print(sent(2, "node"), sent(2, "node", "bytes"))')"
}

watch_exchange tcp
check "the waiting rank is in MPI, the computing ones are not" "True True True" \
    "$(figures 'print(*[(last[rank]["mpi_share"] > 0.5) == (rank == 2) for rank in (0, 2, 3)])')"
check "messages without a receive, and receives without a message" "6 3" \
    "$(figures 'print(last[3]["queues"]["unexpected_messages"], last[0]["queues"]["posted_receives"])')"
check "connections have a round trip" True \
    "$(figures 'print(any(one["round_trip_us"] > 0 for one in last[0]["sent"] if one["to"] == "wan"))')"
check "intervals are the ranks' own time" True "$(figures 'print(all(one["interval_s"] > 0.2 for one in last))')"
has "the table has a row for the waiting rank" "^ +2  two +MPI_Recv [0-9]+ s +(9[0-9]|100)% "
has "and for a computing one" "^ +3  two +computes +[0-9]% "
has "and its head" "^rank  host  does .* WAN B/s "

watch_exchange quic
check "QUIC has its round trips" True "$(figures 'print(any(one["round_trip_us"] > 0 for one in last[0]["sent"]))')"

begin
"$canele" top $job --count 2 --interval 0.2 --json >"$work/lines"
check "so many intervals as wanted" 2 "$(wc -l <"$work/lines")"
"$canele" top $job --interval 0.2 --count 2 >"$work/table"
check "and so many tables" 2 "$(grep -c '^rank ' "$work/table")"
"$canele" stack $job >"$work/table"
has "stack still answers" "^ranks 0-3: waits in no call: it computes, or polls"
"$mpiexec" -n 1 sleep 60 &
other=$!
until_true 20 '[ "$("$canele" jobs | grep -c "sleep 60$")" = 1 ]'
"$canele" top >"$work/table" 2>&1
check "one of several jobs has to be named" "1 1" "$? $(grep -c '^canele: jobs .* run here: name one' "$work/table")"
"$canele" top $other --interval 0.2 >"$work/table" 2>&1
has "a program without MPI has a row" "^ +0  .*not in MPI"
kill $other
wait $other 2>/dev/null
other=
# In a terminal: the first key ends it, and the terminal is as before.
timeout 30 python3 - "$canele" $job >"$work/table" 2>&1 <<'PYTHON'
import os, pty, select, struct, sys, termios, fcntl, time
canele, job = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 40, 0, 0))
    before = termios.tcgetattr(0)
    status = os.spawnv(os.P_WAIT, canele, [canele, "top", job, "--interval", "0.2"])
    print(f"\nexit {status}, modes {'as before' if termios.tcgetattr(0) == before else 'changed'}")
    sys.stdout.flush()
    os._exit(0)
seen, typed, end = b"", False, time.monotonic() + 20
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    if not typed and seen.count(b"not shown") >= 2:
        os.write(terminal, b"q")
        typed = True
screens = seen.split(b"\x1b[H")
lines = [line.split(b"\x1b")[0] for line in screens[-1].split(b"\x1b[?25h")[0].split(b"\r\n")]
print("rows", len(lines), "columns", max(map(len, lines)) <= 40, "alternate", seen.count(b"\x1b[?1049h"), seen.count(b"\x1b[?1049l"))
print(seen.decode(errors="replace").splitlines()[-1])
PYTHON
check "a terminal is drawn on within its size, and given back at a key" "rows 6 columns True alternate 1 1|exit 0, modes as before" "$(paste -sd'|' "$work/table")"
"$canele" top $job --interval 600 2>"$work/errors" >/dev/null &
watcher=$!
end
kill $watcher
wait $watcher 2>/dev/null
watcher=
check "a job that is none is refused" "1 canele: no job 1 of this user runs here: \`canele jobs\` lists them" "$("$canele" top 1 >"$work/table" 2>&1; echo "$? $(cat "$work/table")")"
check "so is an interval of nothing" 2 "$("$canele" top --interval 0 2>/dev/null; echo $?)"
# An mpiexec of an earlier version knows no such question, and closes the connection.
python3 - <<'PYTHON' &
import os, socket, struct
server = socket.socket(socket.AF_UNIX)
server.bind(f"\0canele-job-{os.getuid()}-{os.getpid()}")
server.listen()
for _ in range(8):
    stream, _ = server.accept()
    if stream.recv(32) == b"facts\n":
        stream.send(b'{"job":%d,"ranks":1,"hosts":1,"seconds":1,"command":"old"}' % os.getpid())
    stream.close()
PYTHON
other=$!
until_true 20 '[ -n "$("$canele" jobs | grep "old$")" ]'
check "another version is named" "1 1" "$("$canele" top $other >"$work/table" 2>&1; echo "$? $(grep -c "^canele: job $other runs under an mpiexec of another version" "$work/table")")"
kill $other
wait $other 2>/dev/null
other=
finish_checks
