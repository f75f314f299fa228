#!/usr/bin/env python3
"""Generates what follows from the model of the API (model.py): the C header, the Rust shims, Fortran's procedures, MPICH's ABI, the
recorded calls, documents and lists.

    api/generate.py                      write the generated files
    api/generate.py --check              fail if any of them would change
    api/generate.py prototypes           print the module and prototype of each C function
    api/generate.py trials               print calls with one wrong argument each
    api/generate.py trials root          print calls whose arguments are wrong where they do not count
    api/generate.py trials absurd        print calls with one number that is far too large
    api/generate.py trials refused       print collective calls that one process makes wrongly first
    api/generate.py datatypes            print the names of the predefined datatypes
    api/generate.py man DIR VERSION      write the man pages of a version of Canele
    api/generate.py fortran DIR VERSION  write mpif.h and Fortran's modules of a version of Canele
"""
import sys
from pathlib import Path

# The sources may be on a file system that is only read.
sys.dont_write_bytecode = True

import emit_docs
import emit_fortran
import emit_fortran_kit
import emit_header
import emit_man
import emit_mpich
import emit_shims
import emit_trace
import emit_trials
import model

HEADER = model.ROOT / "include/mpi.h"
EXTENSIONS = model.ROOT / "include/mpi-ext.h"
SHIMS = model.ROOT / "crates/abi/src/generated.rs"
FORTRAN = model.ROOT / "crates/fortran/src/generated.rs"
MPICH = model.ROOT / "crates/mpich/src/generated.rs"
MPICH_CONSTANTS = model.ROOT / "crates/mpich/src/constants.rs"
RECORDED = model.ROOT / "crates/interpose/src/generated.rs"
CONFORMANCE = model.ROOT / "docs/user/conformance.md"
ARGUMENTS = model.ROOT / "docs/user/arguments.md"


def made():
    """The generated files and their text."""
    procedures = model.read_procedures()
    functions, extensions = model.functions_of(procedures), model.functions_of(model.read_extensions())
    return {EXTENSIONS: emit_header.extensions(extensions),
            HEADER: emit_header.header(functions, model.read_constants()), SHIMS: emit_shims.shims([*functions, *extensions]),
            FORTRAN: emit_fortran.library(), MPICH: emit_mpich.library(functions),
            MPICH_CONSTANTS: emit_mpich.constants(), RECORDED: emit_trace.calls(procedures),
            CONFORMANCE: emit_docs.conformance(functions), ARGUMENTS: emit_docs.arguments(procedures)}


def write():
    for path, text in made().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def check():
    stale = [str(p.relative_to(model.ROOT)) for p, text in made().items() if not p.exists() or p.read_text() != text]
    if stale:
        sys.exit("out of date, run api/generate.py: " + ", ".join(stale))


def prototypes():
    for f in model.functions_of(model.read_procedures()):
        print(f"{f.module or '-'} {f.result} {f.name}({f.arguments})")


def trials(which):
    functions, kinds = model.functions_of(model.read_procedures()), model.read_kinds()
    numbers = dict(row.split(" ") for row in dict(model.read_constants())["int"])
    match which:
        case "wrong":
            calls = emit_trials.trials(functions, kinds, numbers)
        case "root":
            calls = emit_trials.insignificant(functions, numbers)
        case "absurd":
            calls = emit_trials.absurd(functions, numbers)
        case "refused":
            calls = emit_trials.refused(functions, kinds, numbers)
        case _:
            sys.exit(__doc__)
    print("\n".join(calls))


def datatypes():
    handles = dict(model.read_constants())["handle MPI_Datatype"]
    print("\n".join(row.split(" ")[0] for row in handles if not row.startswith("MPI_DATATYPE_NULL ")))


def man(directory, version):
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in emit_man.pages(model.read_procedures(), model.read_kinds(), version).items():
        (directory / name).write_text(text)


def fortran(directory, version):
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in emit_fortran_kit.kit(version).items():
        (directory / name).write_text(text)


def main():
    match sys.argv[1:]:
        case []:
            write()
        case ["--check"]:
            check()
        case ["prototypes"]:
            prototypes()
        case ["trials"]:
            trials("wrong")
        case ["trials", which]:
            trials(which)
        case ["datatypes"]:
            datatypes()
        case ["man", directory, version]:
            man(Path(directory), version)
        case ["fortran", directory, version]:
            fortran(Path(directory), version)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
