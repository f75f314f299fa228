#!/usr/bin/env python3
"""Builds and runs the unit and scenario tests of all crates, two programs at a time: some of them mostly wait, and
`cargo test` runs them one after the other. Usage: unit_tests.py [ARGUMENT of cargo test ...]"""
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

AT_A_TIME = 2
cargo_test = ["cargo", "test", "--workspace", "--locked", *sys.argv[1:]]


def test_programs():
    """The test programs, each with the folder of its crate, in which Cargo would run it."""
    built = subprocess.run([*cargo_test, "--no-run", "--message-format=json"], stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    artifacts = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    return [
        (artifact["executable"], os.path.dirname(artifact["manifest_path"]))
        for artifact in artifacts
        if artifact["reason"] == "compiler-artifact" and artifact["profile"]["test"] and artifact["executable"]
    ]


def run(program):
    executable, folder = program
    ended = subprocess.run(
        [executable], cwd=folder, env=os.environ | {"CARGO_MANIFEST_DIR": folder},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    # In one write, so that the outputs of two programs do not mix.
    sys.stdout.write(f"     Running {os.path.relpath(executable)}\n{ended.stdout}")
    sys.stdout.flush()
    return ended.returncode


with ThreadPoolExecutor(AT_A_TIME) as pool:
    codes = list(pool.map(run, test_programs()))
codes.append(subprocess.run([*cargo_test, "--doc"]).returncode)
if any(codes):
    sys.exit(f"error: {sum(map(bool, codes))} of {len(codes)} test programs failed")
