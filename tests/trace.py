#!/usr/bin/env python3
"""Checks a file of `mpiexec -trace` and prints facts about it, a line each. Usage: trace.py FILE"""

import json
import sys
from collections import Counter, defaultdict

# Times in the file are in microseconds, to the nanosecond.
ROUNDING_US = 0.002


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        trace = json.load(file)
    events, ranks = trace["traceEvents"], trace["otherData"]["ranks"]
    slices = [event for event in events if event["ph"] == "X"]
    print("ranks:", ", ".join(e["args"]["name"] for e in events if e["name"] == "process_name"))
    order(slices)
    error_us = 2 * max([one["clock_error_us"] or 0 for one in ranks], default=0) + ROUNDING_US
    calls(slices, error_us)
    frames(events, slices)


def order(slices):
    """Slices of a track are in order, and lie within each other or apart."""
    tracks = defaultdict(list)
    for one in slices:
        tracks[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for track, spans in tracks.items():
        assert spans == sorted(spans, key=lambda span: span[0]), f"track {track} is out of order"
        open_until = []
        for begin, end in spans:
            while open_until and open_until[-1] <= begin + ROUNDING_US:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + ROUNDING_US, f"slices of {track} overlap at {begin}"
            open_until.append(end)
    assert all(begin >= 0 for spans in tracks.values() for begin, _ in spans)


def calls(slices, error_us):
    """Messages are sent before they are received, on one clock."""
    sent, received = defaultdict(list), defaultdict(list)
    for one in slices:
        peer = one["args"].get("peer")
        if one["name"] == "MPI_Send" and isinstance(peer, int):
            sent[one["pid"], peer].append(one)
        if one["name"] == "MPI_Recv" and "unfinished" not in one["args"]:
            received[peer, one["pid"]].append(one)
    for pair in sorted(sent):
        for send, receive in zip(sent[pair], received[pair], strict=True):
            assert send["ts"] <= receive["ts"] + receive["dur"] + error_us, f"{pair}: received before it was sent"
            assert send["args"]["bytes"] == receive["args"]["bytes_max"]
        lengths = Counter(one["args"]["bytes"] for one in sent[pair])
        print("sent:", pair[0], "to", pair[1], *(f"{count} x {length}" for length, count in sorted(lengths.items())))
    named = Counter(one["name"] for one in slices if one["cat"] == "mpi")
    print("calls:", *(f"{name} {count}" for name, count in sorted(named.items())))
    waits = sorted((one["pid"], one["name"]) for one in slices if "unfinished" in one["args"])
    print("unfinished:", *(f"{rank} {name}" for rank, name in waits))


def frames(events, slices):
    """Frames have all their facts, and each arrow has two ends."""
    all_frames = [one for one in slices if one["name"] == "frame"]
    assert all(one["args"]["bytes"] > 0 for one in all_frames)
    posted = [one["args"] for one in all_frames if "strategy" in one["args"]]
    assert all(one["packets"] > 0 and one["kinds"] and one["rail"] for one in posted)
    assert all(one.get("actual_us", 0) >= 0 for one in posted)
    begins = Counter(event["id"] for event in events if event["ph"] == "s")
    ends = Counter(event["id"] for event in events if event["ph"] == "f")
    assert begins == ends and set(begins.values()) <= {1}, "an arrow has one end"
    links = {one["args"]["peer"] for one in events if one["name"] == "link opened" and one["pid"] == 0}
    print("links of rank 0:", *sorted(links))
    print("strategies:", *sorted({one["strategy"] for one in posted}))
    messages = [one for one in posted if "eager" in one["kinds"] or "data" in one["kinds"]]
    lost = [one for one in messages if "actual_us" not in one]
    print("frames with messages:", "some" if messages else "none", "lost", len(lost))


main()
