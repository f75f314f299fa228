"""Kinds of the functions that programs pass."""


def kind_of(parameter):
    """Returns the kind of a callback, the object that it is for, and the event, as far as the kind has them."""
    base = parameter.base.removeprefix("MPI_").removesuffix("_c")
    words = base.split("_")
    if base == "User_function":
        return "operation", "Datatype", None
    if base.endswith("errhandler_function"):
        return "error handler", words[0], None
    if base in ("Copy_function", "Delete_function"):
        return "old attribute", "Comm", words[0].lower()
    if "_attr_" in base:
        return "attribute", {"Type": "Datatype"}.get(words[0], words[0]), words[1]
    if base.startswith("Grequest"):
        return "request", None, words[1]
    if base == "Datarep_extent_function":
        return "extent", None, None
    if base.startswith("Datarep"):
        return "conversion", None, None
    return "other", None, None
