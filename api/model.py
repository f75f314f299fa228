"""The model of the API: functions, parameters, their kinds and constants, read from the tables beside this file."""
import re
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "api/functions.txt"
EXTENSIONS = ROOT / "api/extensions.txt"
KINDS = ROOT / "api/kinds.txt"
CONSTANTS = ROOT / "api/constants.txt"

# Functions that answer directly instead of with an error code.
DIRECT = re.compile(r"MPI_(Wtime|Wtick|Aint_add|Aint_diff|\w+_toint|\w+_fromint)$")
SCALARS = {"int": "c_int", "char": "c_char", "void": "c_void", "MPI_Aint": "isize", "MPI_Count": "i64", "MPI_Offset": "i64",
           "MPI_T_cb_safety": "c_int", "MPI_T_source_order": "c_int", "MPI_Status": "Status"}
# Names of MPI-5.0's chapters.
CHAPTERS = {3: "Point-to-Point Communication", 4: "Partitioned Point-to-Point Communication", 5: "Datatypes",
            6: "Collective Communication", 7: "Groups, Contexts, Communicators, and Caching", 8: "Virtual Topologies",
            9: "MPI Environmental Management", 10: "The Info Object", 11: "Process Initialization, Creation, and Management",
            12: "One-Sided Communications", 13: "External Interfaces", 14: "I/O", 15: "Tool Support", 16: "Deprecated Interfaces",
            19: "Language Bindings Summary", 20: "Application Binary Interface (ABI)"}
# Lengths that neither a parameter nor a constant gives.
LENGTHS = ("ranks", "sources", "destinations", "dimensions", "sum(degrees)", "last(indx)")
DIRECTIONS = ("in", "out", "inout")


class Kind:
    """Meaning of a parameter's values, and the error class of a wrong one; None if no value is wrong."""

    def __init__(self, line):
        self.name, error, self.meaning = line.split(" ", 2)
        self.error_class = None if error == "-" else f"MPI_ERR_{error}"


class Parameter:
    """A parameter of one C function."""

    def __init__(self, declaration, direction, kind, facts):
        self.declaration = declaration
        self.c, self.name, self.suffix = re.match(r"(.*?)(\w+)((?:\[\]|\[\]\[3\])?)$", declaration).groups()
        self.c = self.c.strip()
        self.array = bool(self.suffix)
        self.const = self.c.startswith("const ") and (self.array or "*" in self.c)
        self.base = self.c.removeprefix("const ").replace("*", "").strip()
        self.pointers = self.c.count("*") + self.array
        self.direction, self.kind = direction, kind
        self.length, self.may_be_null, self.at_root = facts["length"], facts["null"], facts["root"]
        self.after_first = facts["after_first"]

    @property
    def is_function(self):
        return self.base.endswith(("function", "function_c"))

    @property
    def rust(self):
        if self.is_function:
            return "Function"
        scalar = SCALARS.get(self.base, "RawHandle")
        if self.suffix == "[][3]":
            return "*mut [c_int; 3]"
        if self.pointers == 0:
            return scalar
        return "*mut " * (self.pointers - 1) + ("*const " if self.const else "*mut ") + scalar

    @property
    def rust_name(self):
        return {"type": "kind", "in": "input"}.get(self.name, self.name.lower())

    @property
    def is_place(self):
        """True if the function reads a value from behind the pointer or writes one there, so that NULL is wrong."""
        is_one = self.pointers == 1 and not self.array and not self.const and not self.is_function
        is_data = self.base == "void" and self.direction == "in"
        return is_one and not is_data and not self.may_be_null and self.kind != "STATUS"


class Function:
    """A C function: NAME, or its form NAME_c for large counts."""

    def __init__(self, procedure, is_large):
        self.module, self.result = procedure.module, procedure.result
        self.name = procedure.name + ("_c" if is_large else "")
        self.chapter, self.scope, self.summary = procedure.chapter, procedure.scope, procedure.summary
        self.is_large, self.is_variadic = is_large, procedure.is_variadic
        self.parameters = [Parameter(declaration_of(row[0], is_large), *row[1:]) for row in procedure.rows
                           if is_large or not row[3]["large"]]

    @property
    def arguments(self):
        return ", ".join([p.declaration for p in self.parameters] + ["..."] * self.is_variadic) or "void"


class Procedure:
    """An entry of the table, which stands for one or two C functions."""

    def __init__(self, line):
        head, chapter, scope, self.summary = line.split("; ")
        self.module, self.result, self.name, *forms = head.split(" ")
        self.has_large = forms == ["_c"]
        self.chapter, self.scope = int(chapter.removeprefix("chapter ")), scope.split(" ")
        self.rows, self.is_variadic = [], False

    def add(self, line):
        if line == "...":
            self.is_variadic = True
            return
        declaration, facts = line.split("; ")
        direction, kind, *rest = facts.split(" ")
        if direction not in DIRECTIONS:
            raise ValueError(f"{self.name}: {direction} is no direction: {line}")
        length = rest.pop(rest.index("length") + 1) if "length" in rest else None
        known = {fact: fact in rest for fact in ("null", "root", "after_first", "large")}
        if set(rest) - {"length", *known}:
            raise ValueError(f"{self.name}: unknown fact: {line}")
        self.rows.append((declaration, direction, kind, {"length": length, **known}))

    @cached_property
    def functions(self):
        return [Function(self, is_large) for is_large in ([False, True] if self.has_large else [False])]


def declaration_of(text, is_large):
    """The declaration in one of both forms, from `int|MPI_Count count`."""
    return re.sub(r"(\w+)\|(\w+)", r"\2" if is_large else r"\1", text)


def read_procedures():
    """The functions of MPI-5.0."""
    return read_table(FUNCTIONS)


def read_extensions():
    """The functions of mpi-ext.h."""
    return read_table(EXTENSIONS)


@cache
def read_table(path):
    procedures, kinds = [], read_kinds()
    for line in path.read_text().splitlines():
        if line.startswith("  "):
            procedures[-1].add(line.strip())
        elif line and not line.startswith("#"):
            procedures.append(Procedure(line))
    for procedure in procedures:
        verify(procedure, kinds)
    return procedures


def verify(procedure, kinds):
    """Raises an error unless the facts of a procedure lead somewhere."""
    parameters = procedure.functions[-1].parameters
    lengths = [*LENGTHS, *(p.name for p in parameters), *(f"3*{p.name}" for p in parameters)]
    for parameter in parameters:
        if parameter.kind not in kinds:
            raise ValueError(f"{procedure.name}: api/kinds.txt has no {parameter.kind}")
        if parameter.length and parameter.length not in lengths and not parameter.length.startswith("MPI_MAX_"):
            raise ValueError(f"{procedure.name}: {parameter.length} is no length of {parameter.name}")
    if procedure.chapter not in CHAPTERS:
        raise ValueError(f"{procedure.name}: MPI-5.0 has no functions in chapter {procedure.chapter}")


@cache
def read_kinds():
    return {kind.name: kind for kind in (Kind(l) for l in KINDS.read_text().splitlines() if not l.startswith("#"))}


def functions_of(procedures):
    """All C functions, in the order of their names."""
    return sorted((f for p in procedures for f in p.functions), key=lambda f: f.name)


def null_result(function, parameter):
    """What a call that fails writes for a handle or an attribute key that it was to give; None for other parameters."""
    is_one = parameter.direction == "out" and parameter.pointers == 1 and not parameter.array
    if not is_one or function.name.startswith("MPI_T_"):
        return None
    return null_handles().get(parameter.kind if parameter.kind == "KEYVAL" else parameter.base)


@cache
def null_handles():
    """The constant that names no object, by the type of its handle, and that for keys of attributes (kind KEYVAL)."""
    sections = read_constants()
    nulls = {name.removeprefix("handle "): next((row.split(" ")[1] for row in rows if "_NULL " in row), None)
             for name, rows in sections if name.startswith("handle MPI_") and not name.startswith("handle MPI_T_")}
    integers = dict(row.split(" ") for row in dict(sections)["int"])
    return {**{name: null for name, null in nulls.items() if null}, "KEYVAL": integers["MPI_KEYVAL_INVALID"]}


def read_constants():
    sections, current = [], None
    for line in CONSTANTS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("  "):
            current[1].append(line.strip())
        else:
            current = (line, [])
            sections.append(current)
    return sections
