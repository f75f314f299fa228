#!/usr/bin/env python3
"""Writes docs/performance.md, and a chart for each result without a picture, from docs/results/*.json.

performance.py           writes
performance.py --check   writes nothing; fails if a file is not what would be written

A result is a JSON object: title, claim, date, machine, command, columns, rows, and optionally picture (a file in docs),
charted (names of the columns that the chart shows; all with numbers if absent) and unit of its axis. Files are taken in
the order of their names."""
import json
import math
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
RESULTS = DOCS / "results"
LIMIT = 12 * 1024
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b"]
INTRO = """# Performance

Written by `scripts/performance.py` from `docs/results`. Canele, MPICH 5.0.2, Open MPI 5.0.11, Intel MPI 2021.18 and raw TCP
ran in turn on two cores; the command repeats the measurement (`make peers` brings the others). *Site* and *WAN* are the
emulated grid of `canele lab`: 1 Gb/s, round trip 11.6 ms, 2 MB of buffer. The limit is delay and transfer at 941 Mb/s. Full
tables are in the [notebook](notebook/2026-11-28-measurements.md), what fell short in the [decisions](decisions.md).
"""


def number(cell):
    """Returns the number that a cell begins with, or None."""
    found = re.match(r"-?\d+(\.\d+)?", str(cell))
    return float(found.group()) if found else None


def chart(result):
    """Draws a result as horizontal bars on a logarithmic axis."""
    columns, rows = result["columns"], result["rows"]
    shown = result.get("charted") or [c for i, c in enumerate(columns) if i and any(number(r[i]) is not None for r in rows)]
    indices = [columns.index(c) for c in shown]
    named = [i for i in range(columns.index(shown[0])) if columns[i] != "limit"]
    values = [v for r in rows for i in indices if (v := number(r[i])) is not None and v > 0]
    low = 10 ** math.floor(math.log10(min(values) * 0.999))
    high = max(values) * 1.6
    left, width, bar, top = 230, 620, 11, 62

    def x(value):
        return left + width * math.log(value / low) / math.log(high / low)

    colours = iter(COLOURS)
    colour = ["#B0B0B0" if name == "limit" else next(colours) for name in shown]
    group = bar * len(indices) + 10
    height = top + group * len(rows) + 34
    text = 'font-family="sans-serif" font-size="12" fill="#000000"'
    out = [f'<svg width="900" height="{height}" viewBox="0 0 900 {height}" xmlns="http://www.w3.org/2000/svg">',
           f'<rect width="900" height="{height}" fill="#FFFFFF"/>',
           f'<text x="12" y="20" {text}>{result["title"]} ({result["unit"]}); {result["date"]}, {result["machine"]}</text>']
    for n, name in enumerate(shown):
        out += [f'<rect x="{12 + 125 * n}" y="34" width="10" height="10" fill="{colour[n]}"/>',
                f'<text x="{26 + 125 * n}" y="43" {text}>{name}</text>']
    tick = low
    while tick <= high:
        out += [f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 6}" y2="{height - 24}" stroke="#DEDEDE"/>',
                f'<text x="{x(tick):.1f}" y="{height - 8}" text-anchor="middle" {text}>{tick:g}</text>']
        tick *= 10
    for r, row in enumerate(rows):
        y = top + group * r
        label = ", ".join(str(row[i]) for i in named)
        out.append(f'<text x="{left - 8}" y="{y + group / 2:.0f}" text-anchor="end" {text}>{label}</text>')
        for n, i in enumerate(indices):
            value = number(row[i])
            if not value:
                continue
            out += [f'<rect x="{left}" y="{y + bar * n}" width="{x(value) - left:.1f}" height="{bar - 1}" fill="{colour[n]}"/>',
                    f'<text x="{x(value) + 3:.1f}" y="{y + bar * n + 9}" {text.replace("12", "9")}>{row[i]}</text>']
    return "\n".join(out + ["</svg>"]) + "\n"


def section(result, picture):
    """Returns a result as a section of the document."""
    table = [result["columns"], ["-"] + ["-:"] * (len(result["columns"]) - 1), *result["rows"]]
    lines = ["|" + "|".join(map(str, row)) + "|" for row in table]
    return (f"\n## {result['title']}\n\n{result['claim']}\n\n![chart]({picture})\n\n" + "\n".join(lines)
            + f"\n\n{result['date']}, {result['machine']}: `{result['command']}`\n")


def files():
    """Returns what is to be written: path and text."""
    made, document = {}, INTRO
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        for row in result["rows"]:
            if len(row) != len(result["columns"]):
                sys.exit(f"{path}: a row has {len(row)} cells, not {len(result['columns'])}: {row}")
        picture = result.get("picture")
        if not picture:
            drawn = path.with_suffix(".svg")
            made[drawn] = chart(result)
            picture = f"results/{drawn.name}"
        elif not (DOCS / picture).exists():
            sys.exit(f"{path}: there is no docs/{picture}")
        document += section(result, picture)
    if len(document.encode()) > LIMIT:
        sys.exit(f"docs/performance.md would have {len(document.encode())} bytes, more than {LIMIT}: leave out rows")
    made[DOCS / "performance.md"] = document
    return made


def main():
    made = files()
    if "--check" in sys.argv[1:]:
        stale = [p for p, text in made.items() if not p.exists() or p.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is not what scripts/performance.py would write", file=sys.stderr)
        sys.exit(bool(stale))
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
