"""Procedures that Fortran can express, and how the library finds out what belongs to an argument."""
import re
from functools import cache

import model

# Fortran's names of parameters that have another one in C.
NAMES = {"indx": "index", "error": "err"}
# Procedures of MPI-1, which mpi_f08 does not have.
ONLY_F90 = ("MPI_Attr_delete", "MPI_Attr_get", "MPI_Attr_put", "MPI_Keyval_create", "MPI_Keyval_free")
# Buffers whose address alone counts, and those that stay in use after the call.
ADDRESSES = re.compile(r"MPI_(Get_address|Free_mem|Win_detach|Fetch_and_op|Compare_and_swap|\w+_end)$")
KEPT = re.compile(r"MPI_(\w*[Bb]uffer_attach|\w+_attach_buffer|Win_create|Win_attach|\w+_begin)(_c)?$")
# Collectives that give each rank a part of a buffer, by the buffer's name.
DIVIDED = {"sendbuf": re.compile("scatter|alltoall"), "recvbuf": re.compile("gather|alltoall")}
HANDLES = {"MPI_Comm", "MPI_Datatype", "MPI_Errhandler", "MPI_File", "MPI_Group", "MPI_Info", "MPI_Message", "MPI_Op", "MPI_Request",
           "MPI_Session", "MPI_Win"}


@cache
def procedures():
    """The procedures, without functions that return a value, and MPI_Pcontrol."""
    return [p for p in model.read_procedures()
            if not p.name.startswith("MPI_T_") and not model.DIRECT.match(p.name) and p.name != "MPI_Pcontrol"]


def dummies(function):
    """Parameters that Fortran has too: not those of C's main()."""
    return [p for p in function.parameters if p.kind not in ("ARGUMENT_COUNT", "ARGUMENT_LIST")]


def name_of(parameter):
    return NAMES.get(parameter.name, parameter.name)


def has_sections(function):
    """True if mpi_f08 passes descriptors of choice buffers: not beside texts, for which compilers have none before gfortran 12."""
    kinds = {p.kind for p in function.parameters}
    return "BUFFER" in kinds and "STRING" not in kinds


def is_kept(function):
    """True if the function uses its buffers after it has returned."""
    return bool({"nonblocking", "persistent"} & set(function.scope) or KEPT.match(function.name))


def description(buffer, function):
    """How a section of a buffer is described by a datatype: name of the method, and the arguments that it changes. None if no datatype does."""
    parameters = function.parameters
    is_collective = "collective" in function.scope
    if is_collective and any(p.kind == "OPERATION" for p in parameters):
        # Predefined operations take predefined datatypes only.
        return None
    at = parameters.index(buffer)
    after = [(p, "count" if "NUM_ELEM" in p.kind else p.kind, bool(p.pointers)) for p in parameters[at + 1:at + 4]]
    match after:
        case [(count, "count", False), (datatype, "DATATYPE", False), *_]:
            is_divided = is_collective and buffer.name in DIVIDED and DIVIDED[buffer.name].search(function.name.lower())
            return ("describe_blocks" if is_divided else "describe"), [count, datatype]
        case [(_, "count", True), (_, _, True), (datatype, "DATATYPE", False)]:
            return "describe_elements", [datatype]
    return None


def is_copied(function):
    """True if the function works on copies of sections: a collective in the background to which no datatype describes them."""
    if not {"nonblocking", "persistent"} & set(function.scope) or "collective" not in function.scope or not has_sections(function):
        return False
    return any(p.kind == "BUFFER" and description(p, function) is None for p in function.parameters)


def is_counted_status(parameter):
    """True for an array of statuses."""
    return parameter.kind == "STATUS" and parameter.length is not None


def symbol(function):
    """The name that other manglings begin with: mpi_send."""
    return function.name.lower()


def section_symbol(function, prefix):
    """The C name of a procedure with choice buffers in mpi_f08, where the compiler's own descriptors are not known."""
    return f"canele_{prefix}{symbol(function)}_f08ts"
