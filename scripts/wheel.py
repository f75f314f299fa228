#!/usr/bin/env python3
"""Packs an installed tree into a wheel. Usage: wheel.py TREE FOLDER

TREE is what scripts/install.sh has made. Its files become data of the wheel, which pip installs into the folder of the Python
environment: bin, lib, include, share. A wheel holds no symbolic links, so `libmpi_abi.so` becomes a linker script and `mpirun`
a script. The wheel's tag names the least glibc that its programs and libraries need.
"""

import base64
import hashlib
import os
import re
import stat
import subprocess
import sys
import zipfile

NAME = "canele"
# Debugging information, and documents for people, stay out.
LEFT_OUT = ("/.debug/", "share/man/man3/", "share/canele/installed")
# Names by e_machine.
MACHINES = {62: "x86_64", 183: "aarch64"}
SUMMARY = "MPI for machines that are far apart: library, compiler wrappers and mpiexec"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    tree, folder = sys.argv[1:]
    version = re.search(r'^version = "(.*)"', open("Cargo.toml").read(), re.M)[1]
    files = {}
    for path in sorted(walk(tree)):
        inside = os.path.relpath(path, tree)
        if any(part in f"/{inside}" or inside.startswith(part) for part in LEFT_OUT):
            continue
        files[f"{NAME}-{version}.data/data/{inside}"] = contents(path, inside)
    elf = [data for data, _ in files.values() if data.startswith(b"\x7fELF")]
    if not elf:
        sys.exit(f"wheel: {tree} holds no programs: run scripts/install.sh first")
    tag = f"py3-none-manylinux_2_{glibc(elf)}_{machine(elf[0])}"
    info = f"{NAME}-{version}.dist-info"
    files[f"{info}/METADATA"] = (metadata(version), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: canele\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, f"{NAME}-{version}-{tag}.whl")
    write(target, files, f"{info}/RECORD")
    print(f"{target} ({os.path.getsize(target) / 1e6:.1f} MB)")


def walk(tree):
    for folder, _, names in os.walk(tree):
        yield from (os.path.join(folder, name) for name in names)


def contents(path, inside):
    """Bytes and mode of a file; a script in place of a symbolic link."""
    if not os.path.islink(path):
        return open(path, "rb").read(), 0o755 if os.access(path, os.X_OK) else 0o644
    to = os.readlink(path)
    if inside.startswith("lib/"):
        return f"/* GNU ld script */\nINPUT({to})\n".encode(), 0o644
    if inside.startswith("bin/"):
        return f'#!/bin/sh\nexec "$(dirname "$0")/{to}" "$@"\n'.encode(), 0o755
    return open(path, "rb").read(), 0o644


def glibc(elf):
    """Least minor version of glibc 2 that has all symbols which the files need."""
    versions = [re.findall(rb"GLIBC_2\.(\d+)", data) for data in elf]
    return max(int(minor) for found in versions for minor in found)


def machine(elf):
    """Name of the architecture of an ELF file."""
    number = int.from_bytes(elf[18:20], "little")
    return MACHINES.get(number) or sys.exit(f"wheel: programs of an unknown machine (e_machine {number})")


def metadata(version):
    lines = [
        "Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {version}", f"Summary: {SUMMARY}",
        "License: MIT OR Apache-2.0", "Requires-Python: >=3.8", "Description-Content-Type: text/markdown", "",
    ]
    return ("\n".join(lines) + "\n" + open("README.md", encoding="utf-8").read()).encode()


def write(target, files, record):
    """Writes the same bytes for the same files, whenever it runs."""
    rows = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, mode) in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
            archive.writestr(entry(name, mode), data)
        rows.append(f"{record},,")
        archive.writestr(entry(record, 0o644), "\n".join(rows) + "\n")


def entry(name, mode):
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = (stat.S_IFREG | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


main()
