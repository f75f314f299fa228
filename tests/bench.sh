#!/usr/bin/env bash
# Instruments on an installed tree: they measure, write their results, and refuse mistakes in one line. Usage:
# bench.sh PREFIX
set -Eeuo pipefail
prefix=$1
bench=$(cd "$(dirname "$0")/../bench" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "bench.sh: line $LINENO failed"; tail -3 "$work/progress"' ERR
canele=$prefix/bin/canele
cd "$work"

timeout 60 "$canele" bench clock --sleep 0.05 --output "$work" >table
grep -q 'known sleep' table
timeout 120 "$canele" bench pingpong --place shm --seconds 0.005 --sizes 1,16,64k --output "$work" >table 2>progress
grep -q 'MPI / TCP' table
grep -q '64 KiB' table
[ "$(grep -c '^pingpong shm Canele' progress)" = 3 ]
python3 - "$work/pingpong-shm.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
ours, tcp = report["entries"]
assert "Canele" in ours["version"], ours["version"]
for entry in (ours, tcp):
    assert entry["failure"] is None, entry
    assert [read["bytes"] for read in entry["rounds"][0]] == [1, 16, 65536]
    for read in entry["rounds"][0]:
        assert 0 < read["min_us"] <= read["median_us"] <= read["p99_us"] <= read["max_us"], read
        assert read["samples"] >= 3
assert report["environment"]["cores"] >= 1
PYTHON
# An interrupted run is taken up after its last turn. Nothing is measured again, and nothing of another command is mixed in.
asked=(bench pingpong --place shm --seconds 0.1 --sizes 8 --rounds 6 --output "$work")
timeout 120 "$canele" "${asked[@]}" >table 2>progress &
running=$!
for ((turn = 0; turn < 600; turn++)); do
    ! grep -q 'round 2 of 6 is over; some .* are left' progress || break
    sleep 0.05
done
kill $running
if wait $running; then false; fi
grep -q '^canele bench: interrupted; add --continue to the command' progress
kept=$(grep -c '^pingpong shm Canele' progress)
if timeout 60 "$canele" bench burst --output "$work" --continue 2>progress; then false; fi
grep -q "unfinished is of another command: canele ${asked[*]}$" progress
timeout 120 "$canele" "${asked[@]}" --continue >table 2>progress
[ "$(grep -c '^pingpong shm Canele' progress)" -le $((7 - kept)) ]
[ ! -e unfinished ]
grep -q ', continued 20' table
python3 - "$work/pingpong-shm.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
assert [len(entry["rounds"]) for entry in report["entries"]] == [6, 6], report["entries"]
assert len(report["environment"]["continued"]) == 1
PYTHON
if timeout 60 "$canele" "${asked[@]}" --continue 2>progress; then false; fi
grep -q 'unfinished is missing: no run was interrupted' progress
timeout 120 "$canele" bench burst --seconds 0.01 --messages 100 --sizes 8 --output "$work" >table 2>progress
grep -q ' 8 B' table
timeout 120 "$canele" bench oversubscribed --ranks 2,3 --seconds 0.01 --output "$work" >table 2>progress
[ "$(grep -c 'ping-pong of pairs' table)" = 2 ]
# The one that is no command counts what a call costs beside many outstanding requests.
"$prefix/bin/mpicc" -Wall -Werror -O1 "$bench/outstanding.c" -o outstanding
timeout 120 "$prefix/bin/mpiexec" -n 2 ./outstanding 50 100 >table 2>progress
cases=$(grep -c '"n": 50,' table)
[ "$cases" -gt 20 ]
[ "$(grep -c '"n": 100,' table)" = "$cases" ]

# Nor is the limit of interleaved accesses, which needs no MPI.
"$prefix/bin/mpicc" -Wall -Werror -O1 "$bench/interleaved.c" -o interleaved -lm
timeout 120 ./interleaved 2 4194304 "$work" 0.01 >table 2>progress
[ "$(grep -c '"median_us"' table)" = 10 ]

# The experiments on the send queue, with small parameters: a table, a complete document, and a plot each.
experiment() { # name, word in the table, cases, arguments
    local name=$1 word=$2 cases=$3
    shift 3
    timeout 120 "$canele" bench "$name" --seconds 0.005 --output "$work" "$@" >table 2>progress || { cat progress; exit 1; }
    grep -q -- "$word" table || { cat table; exit 1; }
    grep -q '</svg>' "$name-shm.svg"
    head -c 8 "$name-shm.png" | grep -q PNG
    python3 - "$name-shm.json" "$cases" <<'PYTHON'
import json, sys
report, cases = json.load(open(sys.argv[1])), int(sys.argv[2])
statistics = len({row["statistic"] for row in report["rows"]})
assert len(report["rows"]) == cases * statistics, len(report["rows"])
for entry in report["entries"]:
    assert entry["failure"] is None, entry["failure"]
    for round in entry["rounds"]:
        assert len(round) + len(entry.get("missing", [])) == cases, (len(round), entry.get("missing"))
        assert all(0 < read["min_us"] <= read["median_us"] <= read["max_us"] for read in round), round
for row in report["rows"]:
    bases = [other for other in report["rows"] if (other["operation"], other["bytes"]) == (row["operation"], row["bytes"])]
    for cell in row["cells"]:
        named = {"express": row["operation"] == "one message", "partitioned": row["operation"] == "one MPI_Send", "onesided": row["count"] == 1}
        is_base = named.get(report["workload"]["instrument"], row is bases[0])
        if is_base and (base := cell["against_base"]):
            assert base["median"] == (0 if report["workload"]["instrument"] == "overhead" else 1), row
    for cell in row["cells"]:
        has_share = {
            "overlap": True,
            "idle": True,
            "reactivity": row["operation"] == "one a millisecond" and row["count"] > 0 and row["statistic"] == "median",
            "onesided": cell["library"] == "Canele" and row["count"] == 2 and row["statistic"] == "median",
            "io": row["statistic"] == "median",
        }
        assert (cell["share"] is not None) == has_share.get(report["workload"]["instrument"], False), row
PYTHON
}
experiment cut '/ whole' 5 --sizes 2,64 --packets 1,2,64
experiment behind '/ alone' 4 --sizes 4 --long 0,64k
experiment queues 'unexpected, any tag' 24 --depths 0,10,100
experiment modules '/ alone' 2 --unready 0,1M
experiment express '/ one' 12 --packets 1,64
experiment express '/ Canele two' 6 --packets 8 --rounds 2 --variant one:CANELE_RAILS=tcp --variant two:CANELE_STRATEGY=fifo
experiment cut '/ Canele off' 2 --sizes 64 --packets 1,64 --rounds 2 --on-off
grep -q 'CANELE_STRATEGY=fifo' table
experiment overlap hidden 6 --sizes 64k --computing 1000
experiment progress 'receiver waits' 14 --sizes 0,8,64k --computing 2000 --ranks 2
experiment reactivity kept 8 --threads 0,2
experiment threads 'woken in turn' 14 --threads 1,3
experiment partitioned '/ send' 4 --sizes 64k --threads 1,2
experiment offload MPI_Isend 4 --sizes 8,64k
experiment idle 'receive posted' 3 --waiting 10000
experiment onesided 'MPI / memory' 23 --quick
[ -s gups-shm.json ]
experiment gups 'M/s' 2 --ranks 2,3 --sizes 64k
experiment io 'of plain' 20 --ranks 3 --sizes 64k --files 0
experiment rails 'Canele two Mb/s' 2 --place shm --sizes 8,64k --rounds 2 --variant one:CANELE_RAILS=shm --variant two:CANELE_RAILS=tcp,shm
[ "$(grep -c '^rails shm Canele two' progress)" = 4 ]
grep -q 'CANELE_RAILS=tcp,shm' table

experiment ray2mesh merging 3 --quick
experiment simri simulating 2 --quick --masters 0,2
if command -v gfortran >/dev/null; then
    experiment nas 'CG' 8 --quick
    timeout 60 "$canele" bench nas --kernel BT,IS --class S --ranks 2 --output "$work" >table 2>progress
    grep -q 'not measured: .*BT.*: it runs on a square number of ranks' table || { cat table; exit 1; }
else
    echo "skip canele bench nas: there is no gfortran"
fi

# Experiments for long links, here without one: silence, a row of messages and its plot over time.
experiment wan silence 4 --place shm --sizes 8,64k --silence 0,1000
experiment slowstart 'until 500 Mb/s' 2 --place shm --messages 20 --rounds 2
grep -q '8 x TCP' table
python3 - <<'PYTHON'
import json
entries = json.load(open("slowstart-shm.json"))["entries"]
assert [entry["version"].split()[0] for entry in entries] == ["Canele", "raw", "TCP"], entries
for read in (read for entry in entries for round in entry["rounds"] for read in round if read["operation"] == "each message"):
    assert len(read["trace_us"]) == read["samples"] == 20 and min(read["trace_us"]) == read["min_us"] > 0, read
PYTHON
experiment coll 'at random' 81 --place shm --ranks 3 --sizes 0,1,8
for form in scan exscan allgatherv alltoallv gatherv scatterv; do grep -q "  $form " progress; done
timeout 120 "$canele" bench oversubscribed --ranks 2 --seconds 0.005 --beside 2 --output "$work" >table 2>progress
grep -q 'beside 2 busy programs' table
[ -s oversubscribed-shm-beside2.json ]
[ "$(pgrep -cf "^$work/programs/busy" || true)" = 0 ]

experiment overhead 'less bare' 6 --rounds 2
grep -q '^ *tcp .* engine and progress .* ns (' table || { cat table; exit 1; }
experiment addressed '/ bare' 12 --rounds 2 --sizes 8,4k
for path in message put; do grep -q "^ *tcp .* 4 KiB  *$path " table || { cat table; exit 1; }; done

# Settings of a variant reach the ranks.
if timeout 60 "$canele" bench burst --seconds 0.005 --sizes 8 --variant bad:CANELE_RAILS=moon --output "$work" >table 2>&1; then
    cat table
    exit 1
fi
grep -qE 'Canele bad: not measured here: .*(mpiexec|moon)' table || { cat table; exit 1; }

# A comparison without peers names the missing ones and still measures.
timeout 120 "$canele" bench compare shm --rounds 2 --seconds 0.005 --sizes 8 --peers "$work/none" --output "$work" >table 2>progress
for peer in MPICH 'Open MPI' 'Intel MPI'; do grep -q "^$peer: not measured here: .*make peers" table; done
head -c 8 pingpong-shm.png | grep -q PNG
grep -q '<svg' pingpong-shm.svg

# One page with all figures; a browser shows it if there is one.
mkdir figures && cp pingpong-shm.json figures
"$canele" bench report figures --output page.html | grep '^page.html: 1 figures$' >/dev/null
if browser=$(command -v chromium-headless-shell || command -v chromium); then
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --dump-dom "file://$PWD/page.html" 2>/dev/null >dom
else
    cp page.html dom
fi
marks=$(grep -c '<circle class="mark' dom)
[ "$marks" -ge 1 ] && [ "$marks" = "$(grep -c '<title>.* µs.*</title></circle>' dom)" ] || { echo "the page has $marks marks"; exit 1; }

refuses() { # word that the one line must contain, arguments
    word=$1
    shift
    if timeout 60 "$canele" bench "$@" >out 2>err; then
        echo "not refused: $*"
        exit 1
    fi
    [ "$(wc -l <err)" = 1 ] && grep -q -- "$word" err || { echo "$*:"; cat err; exit 1; }
}
refuses moon pingpong --place moon
refuses 5x pingpong --sizes 5x
refuses /none/bin/mpiexec pingpong --prefix /none --output "$work"
refuses nowhere pingpong --place wan --lab nowhere --output "$work"
refuses mars compare mars
refuses 'no results in' report "$work/programs"
refuses '/none' report /none
refuses 'UA is not one of EP' nas --kernel UA
refuses 'between sites' wan --place shm --loss 1% --output "$work"
refuses 'gateways are between sites' pingpong --place lan --variant x:gateways=1 --output "$work"
refuses 'nothing to measure' torres --place shm --sizes 6 --output "$work"
refuses 'there is no site 2' coll --pair 0-2=40ms --output "$work"
refuses 'several sites' coll --place lan --sites 3 --output "$work"
refuses settings rails --variant one:A=b --output "$work"
refuses 'nothing to measure' onesided --place shm --sizes 12 --output "$work"
refuses 'this machine only' overhead --place lan --output "$work"
refuses 'two of this name' burst --variant one --variant one:A=b --output "$work"
refuses 'nothing to measure' cut --sizes 2 --packets 4 --output "$work"
echo "canele bench: ok"
