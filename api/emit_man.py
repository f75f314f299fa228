"""Man pages of section 3: one for each implemented function; NAME_c leads to the page of NAME."""
import re

import emit_fortran_kit
import fortran
import model

SCOPES = {"local": "The call is local: it does not wait for other processes.",
          "nonlocal": "The call is not local: it may wait for other processes.",
          "collective": "The call is collective: all processes of the group make it, in the same order as their other collective calls.",
          "nonblocking": "It begins an operation and returns at once. Buffers and results belong to the operation until a call such as "
                         "MPI_Wait or MPI_Test completes it.",
          "persistent": "It describes an operation, which MPI_Start begins as often as wanted. Buffers belong to the "
                        "operation between MPI_Start and its completion."}
DIRECTIONS = {"in": "input", "out": "output", "inout": "input and output"}
LENGTHS = {"ranks": "one for each rank of the group", "sources": "one for each neighbour that sends to this process",
           "destinations": "one for each neighbour that this process sends to", "dimensions": "one for each dimension of the topology"}
NULLS = {"BUFFER": "MPI_BOTTOM is allowed", "STATUS": "MPI_STATUS_IGNORE is allowed"}


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("|", "\\(ba")


def line(text):
    """A line of text, which must not begin as a request."""
    return ("\\&" if text[:1] in ".'" else "") + escape(text)


def sentence(text):
    return text[0].upper() + text[1:] + "."


def synopsis(function):
    first = f"{function.result} {function.name}("
    lines, current = [], first
    arguments = function.arguments.split(", ")
    for i, argument in enumerate(arguments):
        argument += "," if i + 1 < len(arguments) else ");"
        if len(current) + len(argument) > 76 and current != first:
            lines.append(current.rstrip())
            current = " " * 8
        current += argument + " "
    return lines + [current.rstrip()]


def fortran_synopsis(procedure):
    """Both forms in Fortran, with the arguments of one type on one line."""
    if procedure not in fortran.procedures():
        return []
    out = []
    for is_f08 in (True, False):
        if is_f08 and procedure.name in fortran.ONLY_F90:
            continue
        function = procedure.functions[0]
        arguments = emit_fortran_kit.dummy_arguments(function, is_f08)
        out.append("use mpi_f08" if is_f08 else "use mpi (or include 'mpif.h')")
        name = function.name if is_f08 else function.name.upper()
        out += wrapped(f"{name}(", [a[0] for a in arguments], ")")
        types = {}
        for dummy, kind, attributes, shape in arguments:
            kind, shape = ("<type>", "(*)") if kind == "BUFFER" else (kind, shape)
            attributes = [a for a in attributes if a != "TARGET"]
            types.setdefault(", ".join([kind, *attributes]), []).append(dummy + shape)
        for kind, dummies in types.items():
            out += wrapped(f"    {kind} :: ", dummies, "")
        out.append("")
    return out


def wrapped(head, words, tail):
    """A list, on several lines."""
    lines, current = [], head
    for i, word in enumerate(words):
        word += ", " if i + 1 < len(words) else tail
        if len(current) + len(word) > 78 and current != head:
            lines.append(current.rstrip())
            current = " " * 8
        current += word
    return [*lines, current]


def about(parameter, kind):
    """Sentences on a parameter."""
    facts = [DIRECTIONS[parameter.direction] + ": " + kind.meaning]
    if parameter.length in LENGTHS:
        facts.append(LENGTHS[parameter.length])
    elif parameter.length:
        facts.append(f"{'room for ' if parameter.direction == 'out' else ''}{parameter.length} "
                     f"{'bytes' if parameter.base == 'char' and not parameter.pointers > 1 else 'values'}")
    if parameter.may_be_null:
        facts.append(NULLS.get(parameter.kind, "NULL is allowed"))
    if parameter.at_root:
        facts.append("significant only at the root")
    return " ".join(map(sentence, facts))


def errors(function, kinds):
    if model.DIRECT.match(function.name):
        return ["The function answers directly, and has no errors."]
    if function.name.startswith("MPI_T_"):
        return ["Returns MPI_SUCCESS or an error code MPI_T_ERR_*. It calls no error handler."]
    classes = sorted({kinds[p.kind].error_class for p in function.parameters
                      if kinds[p.kind].error_class and (p.direction != "out" or p.pointers)}
                     | ({"MPI_ERR_ARG"} if any(p.pointers for p in function.parameters) else set())
                     | ({"MPI_ERR_ROOT"} if any(p.name == "root" for p in function.parameters) else set()))
    text = "Returns MPI_SUCCESS, or an error code through the error handler of its communicator or of MPI_COMM_SELF."
    if classes:
        text += " Wrong arguments have the classes " + ", ".join(classes) + "."
    return [text]


def related(function, names):
    """Other forms of an operation, the way to complete it, and functions on the same object."""
    stem = re.sub(r"^MPI_(I(?=[a-z])(?!n[fi]|s_)|[BSR](?=send))?", "", function.name).removesuffix("_init").capitalize()
    forms = [f"MPI_{stem}", f"MPI_I{stem.lower()}", f"MPI_{stem}_init"]
    if "nonblocking" in function.scope:
        forms += ["MPI_Wait", "MPI_Test"]
    if "persistent" in function.scope:
        forms += ["MPI_Start", "MPI_Wait"]
    family = re.match(r"MPI_(?:T_)?[A-Z]?[a-z]+_", function.name)
    found = [n for n in dict.fromkeys(forms) if n in names and n != function.name]
    if family:
        found += [n for n in names if n.startswith(family[0]) and n != function.name and n not in found][:12]
    return found


def page(procedure, kinds, names, version):
    functions = procedure.functions
    small, full = functions[0], functions[-1]
    out = [f'.TH {small.name} 3 "" "Canele {version}" "MPI\\-5.0"', ".SH NAME",
           ", ".join(f.name for f in functions) + " \\- " + escape(procedure.summary),
           ".SH SYNOPSIS", ".nf", "#include <mpi.h>", ""]
    for function in functions:
        out += [*map(line, synopsis(function)), ""]
    out += [text and line(text) for text in fortran_synopsis(procedure)]
    out += [".fi", ".SH DESCRIPTION", *(line(SCOPES[word]) for word in procedure.scope)]
    if full.parameters:
        out.append(".SH PARAMETERS")
    for parameter in full.parameters:
        out += [".TP", f".I {parameter.name}", line(about(parameter, kinds[parameter.kind]))]
        if parameter.name not in [p.name for p in small.parameters]:
            out.append(line(f"Only in {full.name}."))
    out += [".SH RETURN VALUE", *map(line, errors(small, kinds))]
    see = related(small, names)
    if see:
        out += [".SH SEE ALSO", *(f".BR {n} (3)" + ("," if n != see[-1] else "") for n in see)]
    out += [".SH STANDARDS", line(f"MPI-5.0, chapter {procedure.chapter}: {model.CHAPTERS[procedure.chapter]}.")]
    return "\n".join(out) + "\n"


def pages(procedures, kinds, version):
    """The files of all pages, by their names."""
    names = [p.name for p in procedures]
    made = {}
    for procedure in procedures:
        made[f"{procedure.name}.3"] = page(procedure, kinds, names, version)
        if procedure.has_large:
            made[f"{procedure.name}_c.3"] = f".so man3/{procedure.name}.3\n"
    return made
