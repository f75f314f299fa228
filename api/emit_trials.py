"""Calls with one wrong argument each, for tests/programs/wrong_arguments.c.

A line is `FUNCTION ARGUMENT WHAT CLASSES VALUE…`: the call's values, the wrong one among them, and the error classes that fit,
or `any` if the call may also succeed, or `misstated` if it may also read memory that is not there, or `tool` for any error code
of the tool interface, or 0 if it must succeed. A VALUE is a
number, `@NAME` for an object of the program, or memory with nothing behind it: `b:N` for N bytes of zeros, `i:1,2` for ints,
`l:1,@comm` for 64-bit values, `s:text` for a string, `h:N` or `k:N` for a handle or an int that a failed call sets to N.
"""
import re

import model

WORDS = {"int": 4, "char": 1, "MPI_Status": 32}
# Values of arguments by kind, where 1 is not right.
GOOD = {
    "COMMUNICATOR": "@comm", "DATATYPE": "@int", "GROUP": "@group", "OPERATION": "@sum", "INFO": "@info",
    "ERRHANDLER": "@handler", "REQUEST": "@request", "MESSAGE": "@no_proc", "RANK": 0, "RANK_NNI": 0, "TAG": 0,
    "KEY_INDEX": 0, "LOGICAL": 0, "COLOR": 0, "KEY": 0, "INDEX": 0, "COORDINATE": 0, "POLYDISPLACEMENT": 0,
    "POLYDISPLACEMENT_COUNT": 0, "POLYDISPLACEMENT_AINT_COUNT": 0, "DISPLACEMENT": 0, "POLYLOCATION": 0,
    "POLYNUM_BYTES_NNI": 64, "POLYDTYPE_PACK_SIZE": 64, "INFO_VALUE_LENGTH": 64, "ORDER": "@order_c",
    "SPLIT_TYPE": "@shared", "DISTRIB_ENUM": "@block", "DTYPE_DISTRIBUTION": "@default_darg",
    "TYPECLASS": "@class_integer", "TYPECLASS_SIZE": 4, "ERROR_CODE": "@added_code", "ERROR_CLASS": "@added_class",
    "FUNCTION": "@function", "POLYFUNCTION": "@function", "CVAR": "@cvar", "CVAR_INDEX_SPECIAL": 0, "CVAR_INDEX": 0,
    "PVAR": "@pvar", "PVAR_INDEX": 0, "CAT_INDEX": 0, "PVAR_SESSION": "@pvar_session", "PVAR_CLASS": "@counter",
    "EXTRA_STATE": 0, "ATTRIBUTE_VAL": 0, "TOOL_MPI_OBJ": 0, "EVENT_INDEX": 0, "SOURCE_INDEX": 0, "STRING_LENGTH": 8,
    "FILE": "@file", "OFFSET": 0, "ACCESS_MODE": "@mode_rdonly", "UPDATE_MODE": "@seek_set", "WINDOW": "@win", "SESSION": "@session", "LOCATION_SMALL": 0, "RMA_DISPLACEMENT_NNI": 0, "ASSERT": 0,
    "LOCK_TYPE": "@lock_shared", "WINDOW_SIZE": 4, "WIN_ATTACH_SIZE": 4,
}
# The objects that functions need in place of the usual ones.
OBJECTS = {r"MPI_Cart_(?!create|map)|MPI_Cartdim": {"COMMUNICATOR": "@grid"}, r"MPI_Graph(_get|_nei|dims)": {"COMMUNICATOR": "@graph"},
           r"MPI_(In|N)eighbor|MPI_Dist_graph_nei": {"COMMUNICATOR": "@ring"}, r"MPI_Type_get_contents": {"DATATYPE": "@derived"},
           r"MPI_\w*_free|MPI_Type_commit|MPI_Comm_disconnect": {"DATATYPE": "@derived", "OPERATION": "@op"},
           r"MPI_Graph_(create|map)": {"RANK": 0, "INDEX": 1}, r"MPI_Type_create_(sub|d)array": {"POLYDTYPE_NUM_ELEM_NNI": 0},
           r"MPI_\w+_fromint": {"KEY_INDEX": 0}, r"MPI_Win_(at|de)tach": {"WINDOW": "@dynamic_win"},
           r"MPI_Win_(set|get)_errhandler": {"ERRHANDLER": "@win_handler"},
           r"MPI_File_(set|get)_errhandler": {"ERRHANDLER": "@file_handler"},
           r"MPI_Session_(init|(set|get)_errhandler)": {"ERRHANDLER": "@session_handler"}}
KEYVALS = {"MPI_Type": "@type_keyval", "MPI_Win": "@win_keyval"}
STRINGS = {"datarep": "external32", "name": "shm", "key": "key"}
# Values that are no handle of a kind: MPI_*_NULL, freed, of another kind, and addresses.
HANDLES = {kind: [f"@null_{word}", f"@freed_{word}", f"@{foreign}", "0x7f0000001234", "0x299", "0x1000", "-1",
                   "0x8000000000000000"] for kind, word, foreign in (
    ("COMMUNICATOR", "comm", "derived"), ("DATATYPE", "type", "comm"), ("GROUP", "group", "comm"), ("OPERATION", "op", "int"),
    ("INFO", "info", "group"), ("ERRHANDLER", "handler", "info"), ("REQUEST", "request", "info"), ("MESSAGE", "message", "info"), ("WINDOW", "win", "comm"), ("FILE", "file", "win"), ("SESSION", "session", "info"))}
# What is not the program's to free.
PREDEFINED = {"COMMUNICATOR": "@world", "DATATYPE": "@int", "OPERATION": "@sum", "INFO": "@info_env", "KEYVAL": "@tag_ub"}
LOW, HIGH = -(1 << 31), (1 << 31) - 1
# Values out of the range of each kind; a rank's are those of a group of one.
RANGES = {
    "POLYXFER_NUM_ELEM_NNI": [-1, LOW], "POLYDTYPE_NUM_ELEM_NNI": [-1, LOW], "XFER_NUM_ELEM": [-1, LOW],
    "XFER_NUM_ELEM_NNI": [-1], "POLYXFER_NUM_ELEM": [-1, LOW], "POLYDTYPE_NUM_ELEM": [-1, LOW], "ARRAY_LENGTH": [-1, LOW],
    "ARRAY_LENGTH_NNI": [-1, LOW], "ARRAY_LENGTH_PI": [-1, LOW], "POLYDTYPE_NUM_ELEM_PI": [-1, LOW],
    "NUM_DIMS": [-1, LOW], "POLYNUM_PARAM_VALUES": [-1, LOW], "POLYNUM_BYTES_NNI": [-1, LOW],
    "POLYDTYPE_PACK_SIZE": [-1, LOW], "INFO_VALUE_LENGTH": [-1, LOW], "DEGREE": [-1, LOW], "RANK": [1, -7, LOW, HIGH],
    "RANK_NNI": [1, -7, LOW, HIGH], "TAG": [-5, LOW], "COMM_SIZE": [-1, LOW], "COMM_SIZE_PI": [0, -1, LOW],
    "ALLOC_MEM_NUM_BYTES": [-1, LOW], "ORDER": [-4], "SPLIT_TYPE": [-4], "TYPECLASS": [-4, HIGH],
    "TYPECLASS_SIZE": [-1, 3, HIGH], "DISTRIB_ENUM": [-4], "PROCESS_GRID_SIZE": [-1, 0, HIGH], "COLOR": [-4, LOW],
    "ERROR_CODE": [-4, 999999, LOW], "ERROR_CLASS": [-4, 999999, LOW], "KEY_INDEX": [-1, 99, LOW, HIGH],
    "INDEX": [-1, 99, LOW, HIGH], "COORDINATE": [-1, 1, HIGH], "MATH": [5000, HIGH],
    "KEYVAL": ["@invalid_keyval", "@freed_keyval", -3, HIGH], "CVAR_INDEX": [-1, HIGH], "PVAR_INDEX": [-1, HIGH],
    "CAT_INDEX": [-1, HIGH], "PVAR_CLASS": [-1, HIGH], "CVAR_INDEX_SPECIAL": [-1, HIGH], "EVENT_INDEX": [-1, 0, HIGH],
    "SOURCE_INDEX": [-1, 0, HIGH], "CVAR": [0, 0x299], "PVAR": [0, 0x299, "@other_pvar"], "PVAR_SESSION": [0, 0x299],
    "WEIGHT": [-1], "POLYLOCATION": [-1, HIGH], "DTYPE_DISTRIBUTION": [-7],
    "THREAD_LEVEL": [-1, 7, HIGH], "RMA_DISPLACEMENT_NNI": [-1, LOW], "ASSERT": [1, -1, LOW], "LOCK_TYPE": [0, -4, HIGH],
    "WINDOW_SIZE": [-1, LOW], "WIN_ATTACH_SIZE": [-1, LOW], "OFFSET": [-1, LOW],
    "PARTITION": [-1, LOW], "ACCESS_MODE": [0, 48, 18, 96, 512, -1, LOW], "UPDATE_MODE": [0, -4, HIGH], "POLYRMA_DISPLACEMENT": [0, -1, LOW],
}
# Values by the names of arguments, where the kind does not decide.
NAMED = {"position": [-1, HIGH], "dims": [-1, LOW, HIGH], "indx": [-1, LOW], "stride": [], "count": [-1, LOW]}
# Extreme values that may be right, or too large: they must do no harm.
EXTREMES = {
    "POLYDTYPE_NUM_ELEM_NNI": [HIGH], "POLYDTYPE_NUM_ELEM": [HIGH, LOW], "POLYDTYPE_STRIDE_BYTES": [HIGH, LOW],
    "KEY": [HIGH, LOW], "POLYDISPLACEMENT_COUNT": [HIGH, LOW], "POLYDISPLACEMENT_AINT_COUNT": [HIGH, LOW],
    "POLYDTYPE_NUM_ELEM_PI": [HIGH], "LOGICAL": [7, LOW], "DIMENSION": [HIGH, LOW], "KEY_INDEX": [HIGH, LOW],
    "COLOR": [HIGH], "PROFILE_LEVEL": [HIGH, LOW], "INFO_VALUE_LENGTH": [HIGH], "LOCATION_SMALL": [HIGH, LOW],
    "DTYPE_DISTRIBUTION": [HIGH, LOW],
}
WIDE = 1 << 62
# Arguments that may have any value, or one that is wrong elsewhere: it must do no harm.
FREE = re.compile(r"MPI_(Comm|Win|File|Session)_call_errhandler errorcode|MPI_File_\w+_errhandler (file|fh)|MPI_File_\w+_end buf|MPI_Get_address location|MPI_\w+_(set|get)_name (comm|datatype|win|comm_name|type_name|win_name)|"
                  r"MPI_Add_error_string string|\S+ (stringtag|value)|MPI_Type_get_contents(_c)? array_of_(addresses|large_counts)|"
                  r"MPI_(Wait|Test)(all|any|some)? (request|array_of_requests)|MPI_Request_get_status\S* \S*request|"
                  r"MPI_Parrived request|MPI_Intercomm_create_from_groups |"
                  r"MPI_(Publish|Unpublish)_name (service|port)_name|MPI_(Comm_connect|Lookup_name) port_name|"
                  r"MPI_\w+_(toint|fromint) |MPI_Status_set_(source|tag|error) |"
                  r"MPI_T_category_get_\w+ indices|MPI_T_init_thread required")
# Modules whose functions move data, or say how.
COMMUNICATING = ("coll", "p2p", "op", "pack", "window", "file")
# Calls that end the process or MPI, start processes, or trust any address.
LEFT_OUT = re.compile(r"MPI_(Abort|Finalize|T_finalize|Free_mem|Info_create_env|Comm_spawn(_multiple)?)$")

# Kinds of numbers that say how much there is, and sends whose data are copied.
COUNTED = re.compile("NUM|LENGTH|SIZE|DEGREE|DIM|STRIDE|DISPLACEMENT|INDEX|COORDINATE|RANK$")
COPIES = re.compile("bsend|Bsend|_replace|uffer")
# Collective calls that free an object, or for which both processes need arguments of their own.
ALONE = re.compile("_free|_disconnect|Intercomm|_from_group|_spawn|_accept|_connect|_join")


def value_of(function, parameter):
    for pattern, values in OBJECTS.items():
        if re.match(pattern, function.name) and parameter.kind in values:
            return values[parameter.kind]
    if parameter.kind == "KEYVAL":
        return next((v for start, v in KEYVALS.items() if function.name.startswith(start)), "@keyval")
    return GOOD.get(parameter.kind, 1)


def width(parameter):
    """Letter for memory that holds values of a parameter's type."""
    return "i" if parameter.base == "int" else "l"


def room_for_text(function, parameter, numbers):
    """Number of bytes that a function may write of a text: by its length argument or by a constant of the ABI."""
    if parameter.length in numbers:
        return int(numbers[parameter.length], 0)
    given = next((p for p in function.parameters if p.name == parameter.length), None)
    # MPI_Info_get does not count the zero byte.
    return GOOD[given.kind] + (given.name == "valuelen") if given else int(numbers["MPI_MAX_INFO_KEY"])


def good(function, parameter, numbers, ranks=1):
    """A right value of a parameter; buffers hold one int for each rank."""
    if parameter.is_function or not parameter.pointers or parameter.kind.startswith(("EXTRA", "TOOL_MPI")):
        return str(value_of(function, parameter))
    if parameter.kind == "BUFFER":
        return f"b:{64 if parameter.name in ('outbuf', 'inbuf') else 4 * ranks}"
    if parameter.kind == "ATTRIBUTE_VAL" and parameter.direction == "in":
        return "@memory"
    if parameter.kind.startswith("C_BUFFER") and parameter.direction == "in":
        return "@memory"
    if parameter.kind == "STRING":
        if parameter.direction == "in":
            return "s:" + ("native" if function.name == "MPI_File_set_view" else STRINGS.get(parameter.name, "text"))
        return f"b:{room_for_text(function, parameter, numbers)}"
    if parameter.kind in ("ARGUMENT_LIST", "ARGUMENT_COUNT"):
        return "0"
    if parameter.base == "void":
        return "b:256"
    if parameter.suffix == "[][3]":
        return "i:0,0,1"
    count = ranks if parameter.length == "ranks" else 1
    if null := model.null_result(function, parameter):
        return f"{'k' if parameter.kind == 'KEYVAL' else 'h'}:{null}"
    if parameter.direction == "out" or parameter.base == "MPI_Status":
        return f"b:{WORDS.get(parameter.base, 8) * (2 if function.name.startswith('MPI_T_category_get') else count)}"
    values = [value_of(function, parameter)] * count
    if parameter.kind == "POLYDISPLACEMENT":
        values = list(range(count))
    return f"{width(parameter)}:{','.join(map(str, values))}"


def wrong_values(function, parameter):
    """Values that a parameter must not have: what each is, and the value."""
    values = HANDLES.get(parameter.kind, []) + NAMED.get(parameter.name, RANGES.get(parameter.kind, []))
    if parameter.kind == "INFO" and function.module != "info":
        values = values[1:]
    if "_free" in function.name or "_disconnect" in function.name:
        values = values + [PREDEFINED[k] for k in PREDEFINED if k == parameter.kind]
    if parameter.kind == "KEYVAL":
        values = values + ["@keyval" if function.name.startswith("MPI_Type") else "@type_keyval"]
    wrong = [(str(v).lstrip("@"), v) for v in values]
    if parameter.kind == "DATATYPE" and parameter.direction == "in" and function.module in COMMUNICATING and "_extent" not in function.name:
        wrong.append(("uncommitted", "@uncommitted"))
    if parameter.kind == "OPERATION" and any(p.kind == "BUFFER" for p in function.parameters):
        wrong.append(("minloc", "@minloc"))
    if not parameter.pointers:
        yield from wrong
        if parameter.base in ("MPI_Count", "MPI_Aint") and parameter.kind in RANGES and "NUM_ELEM" in parameter.kind:
            yield "overflow", WIDE
        return
    is_data = parameter.kind == "BUFFER" and not function.name.startswith("MPI_T_")
    if is_data or not parameter.may_be_null:
        yield "NULL", 0
    if is_data and not takes_in_place(function, parameter):
        yield "in_place", 1
    if parameter.kind == "STRING" and parameter.direction == "in":
        yield "empty", "s:"
        yield "long", "s:" + "k" * 600
    if parameter.direction != "out" and parameter.base not in ("void", "char", "MPI_Status") and not parameter.suffix == "[][3]":
        for what, value in wrong:
            yield what, f"{width(parameter)}:{value}"
    elif parameter.suffix == "[][3]":
        yield from (("negative", "i:-1,0,1"), ("size", "i:0,1,1"), ("stride", "i:0,0,0"))


def takes_in_place(function, parameter):
    """True if MPI_IN_PLACE has a meaning for a buffer: that of the process's own data in a collective of one group."""
    own = "recvbuf" if "catter" in function.name and "educe" not in function.name else "sendbuf"
    return function.module == "coll" and function.chapter == 6 and parameter.name == own


def classes(function, parameter, what, kinds):
    """Error classes that fit a wrong value."""
    if model.DIRECT.match(function.name) or FREE.match(f"{function.name} {parameter.name}"):
        return "any"
    if function.name.startswith("MPI_T_"):
        return "tool"
    if function.name == "MPI_Win_detach" and parameter.name == "base":
        return "MPI_ERR_RMA_ATTACH"
    if what == "NULL":
        return "MPI_ERR_BUFFER" if parameter.kind == "BUFFER" else "MPI_ERR_ARG"
    if what == "overflow" and function.module == "types":
        return "any"
    if parameter.name == "port_name" and function.name in ("MPI_Close_port", "MPI_Comm_accept"):
        return "MPI_ERR_PORT"
    if parameter.name == "service_name" and function.name == "MPI_Lookup_name":
        return "MPI_ERR_SERVICE,MPI_ERR_NAME"
    if parameter.name == "filename":
        return "MPI_ERR_NO_SUCH_FILE,MPI_ERR_BAD_FILE"
    if parameter.name == "datarep" and function.name == "MPI_File_set_view":
        return "MPI_ERR_UNSUPPORTED_DATAREP"
    if parameter.name == "root":
        return "MPI_ERR_ROOT"
    if parameter.name == "key":
        return "MPI_ERR_INFO_KEY"
    if parameter.name in ("count", "incount"):
        return "MPI_ERR_COUNT"
    found = kinds[parameter.kind].error_class or "any"
    # An argument of another argument's meaning: the edges of a graph, the blocks of a datatype.
    is_general = function.module in ("types", "topology", "group") and parameter.kind not in HANDLES
    return f"{found},MPI_ERR_ARG" if is_general else found


def as_numbers(names, numbers):
    return ",".join(numbers.get(name, name) for name in names.split(","))


def extreme_values(function, parameter):
    """Values at the ends of a parameter's type that an array's length does not depend on."""
    if parameter.length or any(p.length == parameter.name for p in function.parameters) or function.module == "coll":
        return
    values = EXTREMES.get(parameter.kind, [])
    if parameter.base in ("MPI_Count", "MPI_Aint"):
        values = values + [WIDE, -WIDE] * bool(values)
    for value in values:
        if not parameter.pointers:
            yield "extreme", value
        elif parameter.direction != "out":
            yield "extreme", f"{width(parameter)}:{value}"


def trials(functions, kinds, numbers):
    for function in functions:
        if LEFT_OUT.match(function.name):
            continue
        values = [good(function, p, numbers) for p in function.parameters]
        for index, parameter in enumerate(function.parameters):
            # The only process is the first.
            tried = [(what, value, "any" if parameter.after_first else classes(function, parameter, what, kinds))
                     for what, value in wrong_values(function, parameter)]
            tried += [(what, value, "any") for what, value in extreme_values(function, parameter)]
            for what, value, fitting in tried:
                call = values[:index] + [str(value)] + values[index + 1:]
                yield " ".join([function.name, parameter.name, what, as_numbers(fitting, numbers), *call])


def is_misstated(function, parameter):
    """True if a greater value promises memory that the call's other arguments do not have."""
    lengths = [p.length or "" for p in function.parameters]
    is_length = any(length in (parameter.name, f"3*{parameter.name}") for length in lengths)
    is_summed = parameter.name in ("indx", "degrees")
    return is_length or is_summed or any(p.kind == "BUFFER" for p in function.parameters)


def absurd(functions, numbers):
    """Calls with one number that is far too large: most would need more memory than there is."""
    for function in functions:
        # The forms of a collective share their checks.
        is_form = function.module == "coll" and re.match(r"MPI_I[a-z]|\w+_init", function.name)
        if is_form or LEFT_OUT.match(function.name):
            continue
        right = [good(function, p, numbers) for p in function.parameters]
        if function.module == "p2p" and not COPIES.search(function.name):
            # Nobody sends or receives so much: such calls would wait.
            right = [numbers["MPI_PROC_NULL"] if p.kind.startswith("RANK") else value for p, value in zip(function.parameters, right)]
        for index, parameter in enumerate(function.parameters):
            is_number = parameter.base in ("int", "MPI_Count", "MPI_Aint") and parameter.suffix != "[][3]"
            is_counted = COUNTED.search(parameter.kind) and parameter.kind not in ("KEY_INDEX", "CVAR_INDEX")
            if not is_number or not is_counted or parameter.direction == "out":
                continue
            fitting = "misstated" if is_misstated(function, parameter) else "any"
            for bit in (20, 30, 31) if parameter.base == "int" else (20, 30, 40, 62, 63):
                number = (1 << bit) - (bit in (31, 63))
                value = f"{width(parameter)}:{number}" if parameter.pointers else str(number)
                call = right[:index] + [value] + right[index + 1:]
                yield " ".join([function.name, parameter.name, "absurd", fitting, *call])
                if function.module == "types" and "@int" in call:
                    # Every element in several pieces, apart from each other.
                    apart = ["@gapped" if value == "@int" else "64" if p.name == "stride" else value
                             for p, value in zip(function.parameters, call)]
                    yield " ".join([function.name, parameter.name, "absurd", fitting, *apart])


def refused(functions, kinds, numbers):
    """Calls on two processes: of a right one at each, the last process makes its own again after a wrong one."""
    for function in functions:
        if function.module not in ("coll", "comm", "topology", "window") or "collective" not in function.scope or ALONE.search(function.name):
            continue
        right = [good(function, p, numbers, ranks=2) for p in function.parameters]
        for index, parameter in enumerate(function.parameters):
            for what, value in [] if parameter.at_root else wrong_values(function, parameter):
                fitting = classes(function, parameter, what, kinds)
                is_right = parameter.kind in ("RANK", "RANK_NNI") and value == 1
                if fitting == "any" or is_right or parameter.array and what != "NULL":
                    continue
                wrong = right[:index] + [str(value)] + right[index + 1:]
                yield " ".join([function.name, parameter.name, "refused", as_numbers(fitting, numbers), *wrong])
                yield " ".join([function.name, "-", "all", "0", *right])


def insignificant(functions, numbers):
    """Calls on two processes with nonsense where it does not count: at one of them, beside counts of 0, or for data in place."""
    for function in (f for f in functions if f.module in ("coll", "p2p", "pack", "op")):
        parameters = function.parameters
        right = [good(function, p, numbers, ranks=2) for p in parameters]
        if function.module == "p2p":
            right = [numbers["MPI_PROC_NULL"] if p.kind.startswith("RANK") else v for p, v in zip(parameters, right)]

        def with_nonsense(words, which):
            return " ".join([function.name, "-", words, "0", *[nonsense(p) if p in which else v for p, v in zip(parameters, right)]])

        for words, which in (("other", [p for p in parameters if p.at_root]), ("root", [p for p in parameters if p.after_first])):
            if which:
                yield with_nonsense(words, which)
                yield with_nonsense("other" if words == "root" else "root", [])
        in_place = next((i for i, p in enumerate(parameters) if takes_in_place(function, p) and not any(q.at_root for q in parameters)), None)
        if in_place is not None and (described := described_after(parameters, in_place)):
            kept, right[in_place] = right[in_place], "1"
            yield with_nonsense("all", described)
            right[in_place] = kept
        if counts := [i for i, p in enumerate(parameters) if is_count(p)]:
            for i in counts:
                right[i] = f"{width(parameters[i])}:0,0" if parameters[i].pointers else "0"
            yield with_nonsense("all", [p for i, p in enumerate(parameters) if is_beside_count(parameters, i)])


def nonsense(parameter):
    return "0x10" if parameter.pointers else {"DATATYPE": "0x299"}.get(parameter.kind, "-7")


def is_count(parameter):
    return parameter.kind == "POLYXFER_NUM_ELEM_NNI" and parameter.direction == "in"


def is_beside_count(parameters, index):
    """True for a buffer, places or datatypes of elements that a count of the same call counts."""
    if parameters[index].kind == "BUFFER":
        after = next((p for p in parameters[index + 1:] if p.kind != "BUFFER"), None)
        return after is not None and is_count(after)
    return parameters[index].kind in ("DATATYPE", "POLYDISPLACEMENT", "DISPLACEMENT") and parameters[index].direction == "in"


def described_after(parameters, index):
    """Counts, places and datatypes of the data in a buffer, if they describe no other."""
    own = []
    for parameter in parameters[index + 1:]:
        if parameter.kind == "BUFFER":
            return own
        own.append(parameter)
    return []
