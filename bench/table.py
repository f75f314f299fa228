#!/usr/bin/env python3
"""Prints a table of the ping-pongs in a folder: files mpi.PLACE and tcp.PLACE of JSON lines."""
import json
import sys
from pathlib import Path

PLACES = {"node": "within a node", "site": "within a site", "wan": "across the WAN"}


def read(path):
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.startswith("{"))
    return {row["bytes"]: row["median_us"] for row in rows}


def main():
    folder = Path(sys.argv[1])
    for place, title in PLACES.items():
        mpi, tcp = read(folder / f"mpi.{place}"), read(folder / f"tcp.{place}")
        print(f"\n{title}")
        print(f"{'bytes':>10} {'MPI µs':>12} {'Mb/s':>9}" + (f" {'TCP µs':>12} {'Mb/s':>9} {'MPI/TCP':>8}" if tcp else ""))
        for size, median in mpi.items():
            line = f"{size:>10} {median:>12.2f} {size * 8 / median:>9.1f}"
            if size in tcp:
                line += f" {tcp[size]:>12.2f} {size * 8 / tcp[size]:>9.1f} {median / tcp[size]:>8.2f}"
            print(line)


if __name__ == "__main__":
    main()
