"""crates/abi/src/generated.rs: the C symbols.

For an implemented function `MPI_Foo` of module `m` the shim calls `m::foo(…) -> Result<(), Error>`, a safe function. The shim does
all work with pointers: it turns each argument into a value of crates/abi/src/caller.rs, by direction, kind and length.

    a result                             `Out`, checked for NULL; `Option<Out>` if NULL has a meaning
    a variable                           `InOut`, checked for NULL
    a status                             `&Status`, `&mut Status`, `StatusOut` if it may be ignored, `Statuses`
    an array as long as a parameter      `&[T]`, `Slots` for results, `&[Cell<Handle>]` for requests; the parameter is not passed on
    another array                        `Array`, whose length the body knows
    a text                               `String`, `PathBuf` for a file's name, `RootText` if it counts at the root, `Chars` for results
    a buffer                             `Address`
    all other pointers                   as they are: words that the body stores or gives back

Where `MPI_Foo` and `MPI_Foo_c` differ only in the width of integers, both call the same body: it takes `i64` for such a scalar,
`IntSlice` or `Ints` for such an array, `OutInt` or `InOutInt` for such a place. A place for a new datatype is a `NewType`, for types
remember in which form they were asked for.

The functions MPI_T_* give a code and call no error handler. `MODULE/BODY` names a body that answers for several functions, whatever
their arguments. The bodies of module `coll` give a collective, which the shim carries out, begins or keeps: `MPI_Foo`, `MPI_Ifoo` and
`MPI_Foo_init` share one.

A call that fails sets the handle and the attribute key that it was to give to the null ones.
"""
from model import DIRECT, null_result, read_kinds

HANDLES = ("MPI_Comm", "MPI_Win", "MPI_File", "MPI_Session")
# Why the unsafe blocks are sound: for all, the caller passes what the standard says of an argument of this direction, kind and length.
SAFETY = {
    "Out, OutInt, NewType": "result: NULL, which is looked for, or a variable of the type in the prototype.",
    "InOut, InOutInt": "variable: the same, with a value.",
    "StatusOut, Statuses, status, status_mut": "status: MPI_STATUS_IGNORE (NULL), or one status or as many as the length beside it.",
    "array, array_mut, handles, Slots": "sized array: NULL, or as many values as the parameter says that gives its length.",
    "Array, Ints": "plain array: a constant of the standard, or as many values as the standard says for the communicator.",
    "string, path, text, RootText, Chars, Label": "text: NULL, or a text that ends in a zero byte; for results, room for as much as the standard says.",
    "RootTexts, RootRows, ErrorCodes": "start of processes: what the standard says of these arguments at the root.",
    "Address, Value": "buffer: a constant of the standard, or memory that belongs to the operation until it completes.",
}
# Values of what describes processes to start.
AT_ROOT = {"STRING_ARRAY": "RootTexts", "STRING_2DARRAY": "RootRows", "ERROR_CODE": "ErrorCodes"}
# Kinds whose pointers are words: bodies store them, or give them back.
WORDS = ("EXTRA_STATE", "EXTRA_STATE2", "TOOL_MPI_OBJ", "ARGUMENT_COUNT", "ARGUMENT_LIST")


def widths(function, by_name):
    """Which parameters differ from those of the other width's function, if that shares the body."""
    other = by_name.get(function.name.removesuffix("_c") if function.is_large else function.name + "_c")
    if other is None or len(other.parameters) != len(function.parameters):
        return None
    return [p.rust != q.rust for p, q in zip(function.parameters, other.parameters)]


def is_sized(parameter, function):
    """True if the parameter is an array as long as another parameter says."""
    is_array = parameter.kind == "STATUS" or parameter.kind == "WEIGHT" and parameter.direction == "out"
    return (parameter.array or is_array) and parameter.kind not in WORDS and not is_read_at_root(parameter, function) and length_parameter(parameter, function) is not None


def is_read_at_root(parameter, function):
    """True for what describes processes to start: it has a meaning at the root only, and the body reads it there."""
    return function.name.startswith("MPI_Comm_spawn") and (parameter.at_root or parameter.kind == "ERROR_CODE")


def length_parameter(parameter, function):
    name = (parameter.length or "").removeprefix("3*")
    return next((p for p in function.parameters if p.name == name and not p.pointers), None)


def is_label(parameter, function):
    """True for a text of the tool interface, whose length the caller gives and gets."""
    return function.name.startswith("MPI_T_") and parameter.kind == "STRING" and parameter.direction == "out"


def taken_in(function):
    """Parameters that the shim uses up: the lengths of arrays and texts."""
    sized = [length_parameter(p, function) for p in function.parameters if is_sized(p, function)]
    labels = [p.length for p in function.parameters if is_label(p, function)]
    return [p for p in function.parameters if p in sized or p.name in labels]


def lengths(function, kinds):
    """The lengths of arrays, each checked once."""
    out = ""
    for parameter in taken_in(function):
        if parameter.pointers:
            continue
        name = parameter.rust_name
        if function.name.startswith("MPI_T_"):
            out += f"let {name} = tool::len({name})?; "
            continue
        error = {"count": "Count", "incount": "Count"}.get(name) or kinds[parameter.kind].error_class.removeprefix("MPI_ERR_").capitalize()
        wide = name if parameter.rust == "i64" else f"i64::from({name})"
        out += f'let {name} = length_of("{parameter.name}", ErrorClass::{error}, {wide})?; '
    return out


def array(parameter, function, width):
    """The value of an array or of what stands for one."""
    name, quoted = parameter.rust_name, f'"{parameter.name}", {parameter.rust_name}'
    of = length_parameter(parameter, function).rust_name if is_sized(parameter, function) else None
    if parameter.kind == "STATUS":
        return f"Statuses::new({name}, {of})"
    if width or parameter.base == "MPI_Aint" and function.module == "coll":
        cast = "" if parameter.base == "int" else ".cast()"
        ints = f"Ints::{'int' if parameter.base == 'int' else 'count'}({quoted}{cast})"
        return ints if of is None else f"{ints}.all({of})?"
    if of is None:
        return f"Array::new({quoted})"
    if parameter.kind == "REQUEST":
        return f"handles({quoted}, {of})?"
    make = {"in": "array({})?", "inout": "array_mut({})?", "out": "Slots::new({})"}[parameter.direction]
    return make.format(f"{quoted}, {of}")


def place(parameter, function, width):
    """The value of a pointer to one thing."""
    name, quoted = parameter.rust_name, f'"{parameter.name}", {parameter.rust_name}'
    kind = "Out" if parameter.direction == "out" else "InOut"
    if parameter.base == "void":
        quoted += ".cast::<usize>()"
    if function.name.startswith("MPI_T_"):
        return f"{kind}::optional({name})" if parameter.may_be_null else f"tool::given({kind}::optional({name}))?"
    if width:
        form, cast = ("Int", "") if parameter.base == "int" else ("Count", ".cast()")
        return f"{kind}Int::{form}({kind}::new({quoted}{cast})?)"
    return f"{kind}::optional({name})" if parameter.may_be_null else f"{kind}::new({quoted})?"


def new_type(parameter, function):
    return f'NewType::{"large" if function.is_large else "small"}(Out::new("newtype", {parameter.rust_name})?)'


def argument(parameter, function, width):
    """What the body gets of a parameter."""
    name, quoted = parameter.rust_name, f'"{parameter.name}", {parameter.rust_name}'
    is_tool = function.name.startswith("MPI_T_")
    if not parameter.pointers or parameter.is_function:
        return f"{name} as i64" if width and parameter.rust != "i64" and not parameter.is_function else name
    if parameter.kind in WORDS or parameter.kind.startswith("ATTRIBUTE_VAL") and parameter.direction == "in":
        return name
    if is_read_at_root(parameter, function) and parameter.kind in AT_ROOT:
        return f"{AT_ROOT[parameter.kind]}::new({name if parameter.kind == 'ERROR_CODE' else quoted})"
    if parameter.kind in ("BUFFER", "LOGICAL_VOID"):
        cast = "" if parameter.base == "void" else ".cast()"
        return f"tool::given(Value::new({name}))?" if is_tool else f"Address::new({name}{cast})"
    if parameter.name == "filename":
        return f"arguments::path({quoted})?"
    if parameter.kind == "STRING" and parameter.at_root:
        return f"RootText::new({quoted})"
    if parameter.kind == "STRING" and parameter.direction == "in":
        return f"tool::text({name})?" if is_tool else f"arguments::string({quoted})?"
    if parameter.kind == "STRING":
        return f"Label::new({name}, {parameter.length})" if is_tool else f"Chars::new({quoted})"
    if parameter.kind == "STATUS" and not is_sized(parameter, function):
        if parameter.may_be_null:
            return f"StatusOut::new({name})"
        return f"caller::status{'' if parameter.const else '_mut'}({quoted})?"
    is_array = parameter.array or parameter.kind in ("WEIGHT", "STATUS")
    return array(parameter, function, width) if is_array else place(parameter, function, width)


def guarded(run, names):
    """Code in an unsafe block, if it vouches for a pointer."""
    return f"unsafe {{ {run} }}" if any("(" in name for name in names) else run


def closure(run, names):
    return f"|| {guarded(run, names)}" if names else run.removesuffix("()")


def collective(body, names):
    """The call of a collective's body, and of what becomes of it: the body's name tells the form.

    The body takes the call's number as its last act, so the arguments that it is not given are checked before.
    """
    before, rest = "", []
    if body.endswith("_init"):
        form, use, body, names, rest = "Persistent", "keep", body[:-5], names[:-2], names[-2:]
        before, rest = f"let request = coll::kept({', '.join(rest)})?; ", ["request"]
    elif body.startswith("i"):
        form, use, body, names, rest = "Nonblocking", "begin", body[1:], names[:-1], names[-1:]
        before, rest = f"let request = {rest[0]}; ", ["request"]
    else:
        form, use = "Blocking", "run"
    names = names[:-1] + [f"coll::call({names[-1]}, coll::Form::{form})?"]
    plan = f"coll::{body}({', '.join(names)})"
    return f"{before}coll::{use}({', '.join([plan, *rest])})"


def unset(function):
    """What sets the results that name an object to the null ones of their types."""
    nulls = [(p.rust_name, null_result(function, p)) for p in function.parameters]
    return "; ".join(f"unset(Out::optional({name}), {null})" for name, null in nulls if null)


def call_of(function, run, names):
    """The call of a body, whose failure goes to an error handler."""
    begin = f'"{function.name}", {handler(function)}, {closure(run, names)}'
    nothing = unset(function)
    return f"finish_or({begin}, || unsafe {{ {nothing} }})" if nothing else f"finish({begin})"


def handler(function):
    if function.name.removesuffix("_c") in ("MPI_File_open", "MPI_File_close", "MPI_File_delete", "MPI_Register_datarep"):
        return "On::File(FILE_NULL)"
    if function.name == "MPI_Session_init":
        return "On::NewSession(errhandler)"
    for parameter in function.parameters:
        if parameter.c in HANDLES:
            kind = parameter.c.removeprefix("MPI_")
            return f"On::{kind}({parameter.rust_name})"
    if "_create_from_group" in function.name:
        return "On::Handler(errhandler)"
    return "On::Process"


def shims(functions):
    by_name, kinds = {f.name: f for f in functions}, read_kinds()
    out = ["//! The C symbols. Generated by api/generate.py from api/functions.txt and api/extensions.txt.", "//!",
           "//! The blocks are sound because the caller passes what the standard says of each argument:", "//!",
           *(f"//! * `{'`, `'.join(made.split(', '))}` of a {why}" for made, why in SAFETY.items()), "",
           "use std::ffi::{c_char, c_double, c_int, c_void};", "",
           "use crate::convention::*;", "use crate::tool::{Label, Value};", "use crate::*;", ""]
    for function in functions:
        wide = widths(function, by_name)
        shared = wide is not None and any(wide)
        body = function.name.removeprefix("MPI_").removeprefix("MPIX_").lower()
        if shared and function.is_large:
            body = body.removesuffix("_c")
        used_up = taken_in(function)
        wide = wide or [False] * len(function.parameters)
        names = [new_type(p, function) if shared and p.name == "newtype" else argument(p, function, shared and w)
                 for p, w in zip(function.parameters, wide) if p not in used_up]
        parameters = ", ".join(f"{p.rust_name}: {p.rust}" for p in function.parameters)
        if DIRECT.match(function.name):
            result = {"double": "c_double", "MPI_Aint": "isize", "int": "c_int"}.get(function.result, "RawHandle")
            call = f"{function.module}::{body}({', '.join(names)})"
        else:
            result = "c_int"
            if "/" in function.module:
                call = function.module.replace("/", "::") + "()"
                parameters = ", ".join(f"_{p.rust_name}: {p.rust}" for p in function.parameters)
            elif function.name in ("MPI_T_init_thread", "MPI_T_finalize"):
                call = guarded(f"{function.module}::{body}({', '.join(names)})", names)
            elif function.name.startswith("MPI_T_"):
                run = f"{lengths(function, kinds)}{function.module}::{body}({', '.join(names)})"
                call = f"tool::finish({closure(run, names)})"
            elif function.module == "coll":
                call = call_of(function, collective(body, names), names)
            else:
                run = f"{lengths(function, kinds)}{function.module}::{body}({', '.join(names)})"
                call = call_of(function, run, names)
        for prefix in ("", "P"):
            out.append("#[unsafe(no_mangle)]")
            out.append(f'pub unsafe extern "C" fn {prefix}{function.name}({parameters}) -> {result} {{ {call} }}')
    return "\n".join(out) + "\n"
