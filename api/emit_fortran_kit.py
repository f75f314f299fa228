"""Fortran's side of the interface: mpif.h, and the modules mpi and mpi_f08, which users' compilers turn into .mod files.

They only declare. What has an address in Fortran and none in C lies in the library under names of C. Procedures of mpi_f08 with
choice buffers are BIND(C), so that the compiler passes descriptors as the Fortran standard lays them down. For a compiler whose own
descriptors the library reads, mpifort removes the BIND(C): the procedures then have the names that tools intercept, mpi_x_f08ts_. Where
that compiler may pass a copy, mpifort leaves those alone that use the address after the call; a comment marks them.
"""
import model
from fortran import (ADDRESSES, HANDLES, ONLY_F90, dummies, has_sections, is_counted_status, is_kept, name_of, procedures, section_symbol)

KINDS = {"MPI_Aint": "MPI_ADDRESS_KIND", "MPI_Count": "MPI_COUNT_KIND", "MPI_Offset": "MPI_OFFSET_KIND"}
# Declaration of each constant with an address: in mpif.h and mpi, and in mpi_f08.
SENTINELS = {
    "MPI_BOTTOM": ("INTEGER", "INTEGER"), "MPI_IN_PLACE": ("INTEGER", "INTEGER"), "MPI_BUFFER_AUTOMATIC": ("INTEGER", "INTEGER"),
    "MPI_STATUS_IGNORE(8)": ("INTEGER", "TYPE(MPI_Status)"), "MPI_STATUSES_IGNORE(8,1)": ("INTEGER", "TYPE(MPI_Status)"),
    "MPI_ERRCODES_IGNORE(1)": ("INTEGER", "INTEGER"), "MPI_UNWEIGHTED(1)": ("INTEGER", "INTEGER"),
    "MPI_WEIGHTS_EMPTY(1)": ("INTEGER", "INTEGER"), "MPI_ARGV_NULL(1)": ("CHARACTER(LEN=1)", "CHARACTER(LEN=1)"),
    "MPI_ARGVS_NULL(1,1)": ("CHARACTER(LEN=1)", "CHARACTER(LEN=1)"),
}
F08_SHAPES = {"MPI_STATUS_IGNORE(8)": "MPI_STATUS_IGNORE", "MPI_STATUSES_IGNORE(8,1)": "MPI_STATUSES_IGNORE(1)"}
CALLBACKS = {f"MPI_{kind}_{fn}": None for kind in ("COMM", "TYPE", "WIN") for fn in ("DUP_FN", "NULL_COPY_FN", "NULL_DELETE_FN")}
OLD_CALLBACKS = ("MPI_DUP_FN", "MPI_NULL_COPY_FN", "MPI_NULL_DELETE_FN")
OPERATORS = sorted(h.removeprefix("MPI_") for h in HANDLES)
# Dummy arguments of users' procedures in mpi_f08.
LOGICAL, INTEGER, ADDRESS = "LOGICAL", "INTEGER", "INTEGER(KIND=MPI_ADDRESS_KIND)"
POINTER = "TYPE(C_PTR), VALUE"


def users_procedures():
    """Name and dummy arguments of each abstract interface."""
    out = {}
    for suffix, count in (("", INTEGER), ("_c", "INTEGER(KIND=MPI_COUNT_KIND)")):
        out[f"MPI_User_function{suffix}"] = [("invec", POINTER), ("inoutvec", POINTER), ("len", count), ("datatype", "TYPE(MPI_Datatype)")]
        out[f"MPI_Datarep_conversion_function{suffix}"] = [
            ("userbuf", POINTER), ("datatype", "TYPE(MPI_Datatype)"), ("count", count), ("filebuf", POINTER),
            ("position", "INTEGER(KIND=MPI_OFFSET_KIND)"), ("extra_state", ADDRESS), ("ierror", INTEGER)]
    for kind, old, key in (("Comm", "oldcomm", "comm"), ("Type", "oldtype", "type"), ("Win", "oldwin", "win")):
        handle = f"TYPE(MPI_{'Datatype' if kind == 'Type' else kind})"
        owner = "datatype" if kind == "Type" else key
        out[f"MPI_{kind}_copy_attr_function"] = [
            (old, handle), (f"{key}_keyval", INTEGER), ("extra_state", ADDRESS), ("attribute_val_in", ADDRESS),
            ("attribute_val_out", ADDRESS), ("flag", LOGICAL), ("ierror", INTEGER)]
        out[f"MPI_{kind}_delete_attr_function"] = [
            (owner, handle), (f"{key}_keyval", INTEGER), ("attribute_val", ADDRESS), ("extra_state", ADDRESS), ("ierror", INTEGER)]
    for kind, name in (("Comm", "comm"), ("File", "file"), ("Session", "session"), ("Win", "win")):
        out[f"MPI_{kind}_errhandler_function"] = [(name, f"TYPE(MPI_{kind})"), ("error_code", INTEGER)]
    out["MPI_Grequest_query_function"] = [("extra_state", ADDRESS), ("status", "TYPE(MPI_Status)"), ("ierror", INTEGER)]
    out["MPI_Grequest_free_function"] = [("extra_state", ADDRESS), ("ierror", INTEGER)]
    out["MPI_Grequest_cancel_function"] = [("extra_state", ADDRESS), ("complete", LOGICAL), ("ierror", INTEGER)]
    out["MPI_Datarep_extent_function"] = [("datatype", "TYPE(MPI_Datatype)"), ("extent", ADDRESS), ("extra_state", ADDRESS), ("ierror", INTEGER)]
    return out


def constants():
    """Name, type and value of each named constant; the type is the handle's in C."""
    out = [("MPI_STATUS_SIZE", "INTEGER", "8"), ("MPI_SOURCE", "INTEGER", "1"), ("MPI_TAG", "INTEGER", "2"), ("MPI_ERROR", "INTEGER", "3"),
           ("MPI_ADDRESS_KIND", "INTEGER", "8"), ("MPI_COUNT_KIND", "INTEGER", "8"), ("MPI_OFFSET_KIND", "INTEGER", "8"),
           ("MPI_INTEGER_KIND", "INTEGER", "4"), ("MPI_DISPLACEMENT_CURRENT", "INTEGER(KIND=8)", "-1_8")]
    values = {}
    for section, rows in model.read_constants():
        for row in rows:
            name, value = row.split(" ", 1)
            if section.startswith("handle MPI_T_") or name.startswith(("MPI_T_", "MPI_F_")) or section in ("typed", "callback"):
                continue
            if section == "alias":
                kind, number = values[value]
            else:
                kind = section.removeprefix("handle ") if section != "int" else "INTEGER"
                # Texts have no zero byte at their end.
                number = int(value, 0) - name.startswith("MPI_MAX_")
            values[name] = kind, number
            out.append((name, kind, str(number)))
    return out


def declared(parameter, function, is_f08):
    """Type, attributes and shape of a dummy argument."""
    kind, base = parameter.kind, parameter.base
    shape = "(*)" if parameter.array else ""
    intent = [f"INTENT({parameter.direction.upper()})"] if is_f08 else []
    if kind == "BUFFER" or kind == "C_BUFFER2" and not is_f08:
        # A compiler takes it that a procedure keeps no address of a variable without TARGET.
        is_asynchronous = is_kept(function) or function.name in ("MPI_Get_address", "MPI_Free_mem")
        if not is_f08 or not has_sections(function):
            return "BUFFER", ["TARGET"] * is_asynchronous, ""
        kept = ["ASYNCHRONOUS", "TARGET"] * is_asynchronous
        is_read = parameter.direction == "in" and parameter.const
        return "TYPE(*)", ["DIMENSION(..)", *["INTENT(IN)"] * is_read, *kept], ""
    if kind in ("C_BUFFER", "C_BUFFER2"):
        return ("TYPE(C_PTR)" if is_f08 else ADDRESS), intent, ""
    if kind == "STATUS":
        if is_f08:
            return "TYPE(MPI_Status)", intent if parameter.direction != "out" else [], "(*)" if is_counted_status(parameter) else ""
        return INTEGER, [], "(MPI_STATUS_SIZE,*)" if is_counted_status(parameter) else "(MPI_STATUS_SIZE)"
    if base in HANDLES:
        return (f"TYPE({base})" if is_f08 else INTEGER), intent, shape
    if parameter.is_function:
        return (f"PROCEDURE({base})" if is_f08 else "EXTERNAL"), [], ""
    if base == "char":
        two = {"STRING_2DARRAY": "(count,*)", "STRING_ARRAY": "(*)"}
        return "CHARACTER(LEN=*)", intent, two.get(kind, "")
    if kind.startswith(("LOGICAL",)):
        return LOGICAL, intent, shape
    if kind in ("ATTRIBUTE_VAL_10", "EXTRA_STATE2"):
        return INTEGER, intent, ""
    if kind.startswith(("ATTRIBUTE_VAL", "EXTRA_STATE")):
        return ADDRESS, intent, ""
    if kind == "WEIGHT" or kind == "ERROR_CODE" and parameter.array:
        return INTEGER, intent if parameter.direction == "in" else [], "(*)"
    if parameter.suffix == "[][3]":
        return INTEGER, intent, "(3,*)"
    return (f"INTEGER(KIND={KINDS[base]})" if base in KINDS else INTEGER), intent, shape


def wrapped(head, words, tail):
    """A statement with a list, on several lines."""
    lines, line = [], head
    for i, word in enumerate(words):
        word += "," * (i + 1 < len(words))
        if len(line) + len(word) > 110:
            lines.append(line + " &")
            line = "        "
        line += word
    return [*lines, line + tail]


def subroutine(name, parameters, bind=None, is_address_kept=False):
    """An interface body: name, and name, type, attributes and shape of each dummy argument."""
    names = [p[0] for p in parameters]
    tail = f') &\n        BIND(C, NAME="{bind}")' + " ! kept" * is_address_kept if bind else ")"
    out = wrapped(f"    SUBROUTINE {name}(", names, tail)
    used = {k for k in (*KINDS.values(), "MPI_STATUS_SIZE") for p in parameters if k in p[1] + p[3]}
    used |= {p[1][p[1].index("(") + 1:-1] for p in parameters if p[1].startswith(("TYPE(MPI_", "PROCEDURE("))}
    used |= {"C_PTR"} if any("C_PTR" in p[1] for p in parameters) else set()
    if used:
        out += wrapped("      IMPORT :: ", sorted(used), "")
    for dummy, kind, attributes, shape in parameters:
        if kind == "BUFFER":
            # Any type and rank, by its address: each compiler reads its own line.
            out += [f"      !GCC$ ATTRIBUTES NO_ARG_CHECK :: {dummy}", f"      !DEC$ ATTRIBUTES NO_ARG_CHECK :: {dummy}",
                    f"      !DIR$ IGNORE_TKR {dummy}", f"      {', '.join(['INTEGER', *attributes])} :: {dummy}(*)"]
        elif kind == "EXTERNAL":
            out.append(f"      EXTERNAL :: {dummy}")
        else:
            out.append(f"      {', '.join([kind, *attributes])} :: {dummy}{shape}")
    return [*out, "    END SUBROUTINE"]


def dummy_arguments(function, is_f08):
    out = [(name_of(p), *declared(p, function, is_f08)) for p in dummies(function)]
    return out + [("ierror", INTEGER, ["OPTIONAL", "INTENT(OUT)"] if is_f08 else [], "")]


def interfaces_f90():
    out = []
    for prefix in ("", "P"):
        for entry in procedures():
            function = entry.functions[0]
            name = f"{prefix}{function.name}".upper()
            parameters = dummy_arguments(function, is_f08=False)
            has_pointer = any(p.kind == "C_BUFFER" for p in function.parameters)
            # Without a generic name, an element may be passed for the array that begins with it.
            out += [f"  INTERFACE {name}" if has_pointer else "  INTERFACE", *subroutine(name, parameters)]
            if has_pointer:
                pointer = [(n, "TYPE(C_PTR)" if n == "baseptr" else kind, *rest) for n, kind, *rest in parameters]
                out += subroutine(f"{name}_CPTR", pointer)
            out.append("  END INTERFACE")
        out += others(prefix, is_f08=False)
    return out


def is_distinct(small, large):
    """True if the types of the arguments tell both forms apart."""
    types = [[(p.base if p.base not in KINDS else "8 bytes", p.array) for p in f.parameters if not p.is_function] for f in (small, large)]
    return types[0] != types[1]


def interfaces_f08():
    out = []
    for prefix in ("", "P"):
        for entry in procedures():
            if entry.name in ONLY_F90:
                continue
            forms = entry.functions
            name = prefix + entry.name
            out.append(f"  INTERFACE {name}")
            for function in forms:
                if function.is_large and not is_distinct(*forms):
                    out += ["  END INTERFACE", f"  INTERFACE {prefix}{function.name}"]
                parameters = dummy_arguments(function, is_f08=True)
                if has_sections(function):
                    bind = section_symbol(function, prefix.lower())
                    is_address_kept = is_kept(function) or bool(ADDRESSES.match(function.name))
                    out += subroutine(f"{prefix}{function.name}_f08ts", parameters, bind, is_address_kept)
                else:
                    out += subroutine(f"{prefix}{function.name}_f08", parameters)
            out.append("  END INTERFACE")
        out += others(prefix, is_f08=True)
    return out


def others(prefix, is_f08):
    """Interfaces of procedures that C has in another form."""
    suffix = "_f08" * is_f08
    out = []
    for name, result, arguments in (("Wtime", "DOUBLE PRECISION", ()), ("Wtick", "DOUBLE PRECISION", ()),
                                    ("Aint_add", ADDRESS, ("base", "disp")), ("Aint_diff", ADDRESS, ("addr1", "addr2"))):
        name = f"{prefix}MPI_{name}"
        out += [f"  INTERFACE {name}", f"    FUNCTION {name}{suffix}({', '.join(arguments)}) RESULT(answer)"]
        out += [f"      IMPORT :: MPI_ADDRESS_KIND"] * bool(arguments)
        out += [f"      {ADDRESS}, INTENT(IN) :: {', '.join(arguments)}"] * bool(arguments)
        out += [f"      {result} :: answer", "    END FUNCTION", "  END INTERFACE"]
    status = "TYPE(MPI_Status)"
    old, new = [("f_status", INTEGER, [], "(MPI_STATUS_SIZE)")], [("f08_status", status, [], "")]
    error = [("ierror", INTEGER, ["OPTIONAL", "INTENT(OUT)"] if is_f08 else [], "")]
    lower = prefix.lower()
    extra = [("Pcontrol", [("level", INTEGER, ["INTENT(IN)"], "")], None), ("Status_f2f08", old + new + error, None),
             ("Status_f082f", new + old + error, None),
             ("Sizeof", [("x", "TYPE(*)", ["DIMENSION(..)"], ""), ("size", INTEGER, ["INTENT(OUT)"], ""), *error], f"canele_{lower}mpi_sizeof{'_f08ts' * is_f08}"),
             ("F_sync_reg", [("buf", "TYPE(*)", ["DIMENSION(..)", "ASYNCHRONOUS"], "")] if is_f08 else [("buf", "BUFFER", [], "")],
              f"canele_{lower}mpi_f_sync_reg_f08ts" if is_f08 else None)]
    for name, parameters, bind in extra:
        name = f"{prefix}MPI_{name}"
        out += [f"  INTERFACE {name}", *subroutine(f"{name}{'_f08ts' if bind else suffix}", parameters, bind), "  END INTERFACE"]
    return out


def predefined_callbacks(is_f08):
    """The callbacks of attributes that the library has."""
    if not is_f08:
        return wrapped("  EXTERNAL :: ", [*CALLBACKS, *OLD_CALLBACKS, "MPI_CONVERSION_FN_NULL"], "")
    out, known = ["  INTERFACE"], users_procedures()
    for name in CALLBACKS:
        kind, which = name.removeprefix("MPI_").split("_", 1)
        form = known[f"MPI_{kind.capitalize()}_{'delete' if 'DELETE' in which else 'copy'}_attr_function"]
        out += subroutine(name, [(n, t, [], "") for n, t in form])
    for name in ("MPI_Datarep_conversion_function",):
        parameters = [(n, *t.split(", ")[:1], t.split(", ")[1:], "") for n, t in known[name]]
        out += subroutine("MPI_CONVERSION_FN_NULL", parameters)
    return [*out, "  END INTERFACE"]


def types():
    """Handles and statuses of mpi_f08."""
    out = ["  TYPE, BIND(C) :: MPI_Status", "    INTEGER :: MPI_SOURCE", "    INTEGER :: MPI_TAG", "    INTEGER :: MPI_ERROR",
           "    INTEGER, PRIVATE :: MPI_internal(5)", "  END TYPE"]
    for kind in OPERATORS:
        out += [f"  TYPE, BIND(C) :: MPI_{kind}", "    INTEGER :: MPI_VAL", "  END TYPE"]
    return out


def operators():
    out = []
    for sign, word in (("==", "eq"), ("/=", "ne")):
        out.append(f"  INTERFACE OPERATOR({sign})")
        for kind in OPERATORS:
            out += [f"    PURE FUNCTION canele_{kind}_{word}(a, b) RESULT(answer)", f"      IMPORT :: MPI_{kind}",
                    f"      TYPE(MPI_{kind}), INTENT(IN) :: a, b", "      LOGICAL :: answer", "    END FUNCTION"]
        out.append("  END INTERFACE")
    return out


def abstract_interfaces():
    out = ["  ABSTRACT INTERFACE"]
    for name, parameters in users_procedures().items():
        out += subroutine(name, [(n, *t.split(", ")[:1], t.split(", ")[1:], "") for n, t in parameters])
    return [*out, "  END INTERFACE"]


def status_type():
    """The form of statuses that the other module has, for their conversion."""
    return types()[:6]


def module_constants(is_f08):
    out = []
    for name, kind, value in constants():
        if kind in HANDLES and is_f08:
            out.append(f"  TYPE({kind}), PARAMETER :: {name} = {kind}({value})")
        else:
            out.append(f"  {kind if kind not in HANDLES else INTEGER}, PARAMETER :: {name} = {value}")
    supported = ".TRUE." if is_f08 else ".FALSE."
    out += [f"  LOGICAL, PARAMETER :: MPI_SUBARRAYS_SUPPORTED = {supported}",
            f"  LOGICAL, PARAMETER :: MPI_ASYNC_PROTECTS_NONBLOCKING = {supported}"]
    for name, kinds in SENTINELS.items():
        shown = F08_SHAPES.get(name, name) if is_f08 else name
        # A program may use both modules, and no two variables may share a name of C in it.
        symbol = f"canele_{name.split('(')[0].lower()}{'_f08' * is_f08}"
        out.append(f'  {kinds[is_f08]}, BIND(C, NAME="{symbol}"), TARGET :: {shown}')
    return out


def module(name, version):
    is_f08 = name == "mpi_f08"
    out = [f"! Module {name} of Canele {version}. Generated by api/generate.py.", f"MODULE {name}",
           "  USE, INTRINSIC :: ISO_C_BINDING, ONLY: C_PTR", "  IMPLICIT NONE", "  PRIVATE :: C_PTR"]
    out += types() if is_f08 else status_type()
    out += module_constants(is_f08)
    if is_f08:
        out += [*abstract_interfaces(), *operators(), *predefined_callbacks(True), *interfaces_f08()]
    else:
        out += [*predefined_callbacks(False), *interfaces_f90()]
    return "\n".join([*out, f"END MODULE {name}"]) + "\n"


def include():
    """mpif.h, in fixed and free form: no line is continued, or longer than 72 characters."""
    out = ["! mpif.h of Canele. Generated by api/generate.py."]

    def line(text):
        if len(text) > 66:
            raise ValueError(f"too long for a line of mpif.h: {text}")
        out.append("      " + text)

    for name, kind, value in constants():
        line(f"{INTEGER if kind in HANDLES else kind} {name}")
        line(f"PARAMETER ({name}={value})")
    for name in ("MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"):
        line(f"LOGICAL {name}")
        line(f"PARAMETER ({name}=.FALSE.)")
    for number, (shown, (kind, _)) in enumerate(SENTINELS.items()):
        name = shown.split("(")[0]
        line(f"{kind} {shown}")
        line(f"COMMON /CANELE{number}/ {name}")
        line(f"BIND(C, NAME='canele_{name.lower()}') :: /CANELE{number}/")
    for prefix in ("", "P"):
        for name, kind in (("WTIME", "DOUBLE PRECISION"), ("WTICK", "DOUBLE PRECISION"), ("AINT_ADD", "INTEGER(KIND=8)"),
                           ("AINT_DIFF", "INTEGER(KIND=8)")):
            line(f"{kind} {prefix}MPI_{name}")
            line(f"EXTERNAL {prefix}MPI_{name}")
    for name in (*CALLBACKS, *OLD_CALLBACKS, "MPI_CONVERSION_FN_NULL"):
        line(f"EXTERNAL {name}")
    return "\n".join(out) + "\n"


def kit(version):
    """The files of the kit and their text."""
    return {"mpif.h": include(), "mpi.f90": module("mpi", version), "mpi_f08.f90": module("mpi_f08", version)}
