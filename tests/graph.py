#!/usr/bin/env python3
"""Checks the structure of the source against ARCHITECTURE.md: edges between crates, purity, cycles of files.

- The dependencies of each crate are those of the table "Crates".
- Pure crates and modules (their list is below the table) use no clock, thread, socket, file or environment outside their tests.
- Crates without unsafe code (the list below that) forbid it, and no others do.
- Files of a crate that import each other in a circle are counted. tests/graph.most holds the highest count allowed for
  each crate, which only shrinks. `--list` prints the cycles.
"""

import os
import re
import subprocess
import sys
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("crates", "tools")
ROW = re.compile(r"^\| `(\w[\w-]*)` \| [^|]* \| ([^|]*) \|$", re.M)
# Where the state of a machine enters: a pure crate names none of these outside its tests.
IMPURE = re.compile(
    r"(?:std|core)::(?:time::(?:Instant|SystemTime)|thread|net(?!::(?:SocketAddr|IpAddr|Ipv[46]Addr)\b)|fs|env|process|io|os)\b|(?:\w+::)*(?:Instant|SystemTime)::now|"
    r"(?:rustix|libc|socket2|tokio|getrandom)::"
)
TEST_MODULE = re.compile(r"^#\[cfg\((?:test|all\(test, [^\]]*\))\)\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{\n.*?^\}\n", re.M | re.S)
COMMENT = re.compile(r"//[^\n]*")
USE = re.compile(r"^ *(?:pub(?:\([a-z]+\))? )?use ([^;]+);", re.M)
PATH = re.compile(r"(?<![\w:])[a-z_]\w*(?:::\w+)+")


def main():
    os.chdir(ROOT)
    text = open("ARCHITECTURE.md", encoding="utf-8").read()
    table = {name: set(re.findall(r"`([\w-]+)`", uses)) for name, uses in ROW.findall(section(text, "Crates"))}
    faults = edges(table)
    for crate in listed(text, "Pure crates:"):
        faults += impurities(crate)
    safe = listed(text, "Without unsafe code")
    for crate in sorted(table):
        is_safe = any("#![forbid(unsafe_code)]" in source for source in sources(crate).values())
        if is_safe != (crate in safe):
            faults.append(f"ARCHITECTURE.md: `{crate}` {'forbids' if is_safe else 'does not forbid'} unsafe code")
    most = dict(line.split() for line in open("tests/graph.most", encoding="utf-8"))
    counts = {}
    for crate in sorted(table):
        cycles = file_cycles(crate)
        counts[crate] = sum(map(len, cycles))
        if "--list" in sys.argv:
            for cycle in cycles:
                print(f"{crate}: {len(cycle)} files in a cycle: {' '.join(sorted(cycle))}")
        allowed = int(most.get(crate, 0))
        if counts[crate] > allowed:
            faults.append(f"{crate}: {counts[crate]} files import each other in a circle, more than {allowed}")
        elif counts[crate] < allowed:
            faults.append(f"{crate}: only {counts[crate]} files import each other in a circle: lower tests/graph.most")
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"FAILED: {len(faults)} faults of structure")
    print(f"ok crate graph: {len(table)} crates, {sum(counts.values())} files in cycles")


def listed(text, opening):
    """Returns the names in the sentence of ARCHITECTURE.md that begins in bold with `opening`."""
    found = re.search(rf"^\*\*{opening}.*?\.(?=\s)", text, re.M | re.S)
    if not found:
        sys.exit(f'FAILED: ARCHITECTURE.md has no sentence that begins with "{opening}"')
    return re.findall(r"`([a-z][\w:-]*)`", found[0])


def section(text, title):
    """Returns the text under a heading, up to the next one."""
    found = re.search(rf"^#+ {title}$(.*?)(?=^#+ |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def edges(table):
    """Compares the table with the dependencies in the manifests."""
    faults = []
    crates = {name for folder in FOLDERS for name in os.listdir(folder) if os.path.exists(f"{folder}/{name}/Cargo.toml")}
    for name in sorted(crates | set(table)):
        if name not in crates or name not in table:
            faults.append(f"ARCHITECTURE.md: crate `{name}` is {'not in the table' if name in crates else 'no crate'}")
            continue
        manifest = tomllib.load(open(f"{home(name)}/Cargo.toml", "rb"))
        found = set(manifest.get("dependencies", {})) & crates
        for extra in sorted(found - table[name]):
            faults.append(f"{home(name)}/Cargo.toml: `{name}` uses `{extra}`, which the table in ARCHITECTURE.md does not allow")
        for missing in sorted(table[name] - found):
            faults.append(f"ARCHITECTURE.md: `{name}` does not use `{missing}`")
    return faults


def home(crate):
    """Returns the folder of a crate: libraries are in crates/, programs in tools/."""
    return next(f"{folder}/{crate}" for folder in FOLDERS if os.path.isdir(f"{folder}/{crate}"))


def sources(crate):
    """Returns the files of a crate's library and programs, with their text, without tests and comments."""
    found = {}
    for folder, _, names in os.walk(f"{home(crate)}/src"):
        for name in names:
            path = os.path.join(folder, name)
            is_test = re.search(r"(?:^|_)tests?\.rs$|loom_model\.rs$", name) or "/tests/" in path
            if name.endswith(".rs") and not is_test:
                text = COMMENT.sub("", open(path, encoding="utf-8").read())
                found[path] = TEST_MODULE.sub("", text)
    return found


def impurities(name):
    """Finds uses of the machine in a pure crate, or in a pure module of another one."""
    crate, *module = name.split("::")
    begin = "/".join([home(crate), "src", *module])
    texts = {path: text for path, text in sources(crate).items() if path.startswith((begin + "/", begin + ".rs"))}
    faults = [] if texts else [f"ARCHITECTURE.md: `{name}` is not there"]
    for path, text in sorted(texts.items()):
        for used in sorted(set(filter(IMPURE.match, paths(text)))):
            faults.append(f"{path}: `{name}` is pure, and uses {used}")
    return faults


def file_cycles(crate):
    """Returns the sets of files that import each other, directly or through others."""
    texts = sources(crate)
    base = f"{home(crate)}/src"
    modules = {}
    for path in texts:
        parts = os.path.relpath(path, base)[:-3].split(os.sep)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        modules[tuple(parts)] = path
    exports = {module: reexports(texts[path], module, modules) for module, path in modules.items()}
    imports = {path: set() for path in texts}
    for module, path in modules.items():
        for used in paths(texts[path]):
            target = resolve(used, module, modules, exports)
            if target and target != path:
                imports[path].add(target)
    return [cycle for cycle in components(imports) if len(cycle) > 1]


def paths(text):
    """Returns the paths that a file names, with grouped imports expanded."""
    rest = USE.sub("", text)
    return [full for use in USE.findall(text) for full in expand(use)] + PATH.findall(rest)


def expand(use):
    """Expands `a::{b, c::d}` to `a::b` and `a::c::d`."""
    use = re.sub(r" as \w+", "", re.sub(r"\s+", " ", use).strip())
    head, brace, rest = use.partition("{")
    if not brace:
        return [head]
    parts, depth, part = [], 0, ""
    for letter in rest[: rest.rindex("}")]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts.append(part)
    return [full for part in parts if part.strip() for full in expand(head + part.strip())]


def absolute(used, module, modules):
    """Returns a path from the crate's root, or None if it leads out of the crate."""
    parts = used.replace(" ", "").split("::")
    if parts[0] == "crate":
        return tuple(parts[1:])
    if parts[0] not in ("super", "self"):
        return module + tuple(parts) if module + (parts[0],) in modules else None
    at = list(module)
    while parts and parts[0] in ("super", "self"):
        at = at[:-1] if parts[0] == "super" else at
        parts = parts[1:]
    return tuple(at + parts)


def reexports(text, module, modules):
    """Returns where the names lead that a file takes from another one of its crate."""
    found = {}
    for use in USE.findall(text):
        for full in expand(use):
            whole = absolute(full, module, modules)
            if whole:
                found[whole[-1]] = whole
    return found


def resolve(used, module, modules, exports):
    """Returns the file that a path leads to: that of its longest prefix which is a module, behind re-exports."""
    whole = absolute(used, module, modules)
    for _ in range(9):
        if whole is None:
            return None
        end = next(end for end in range(len(whole), -1, -1) if whole[:end] in modules)
        name = whole[end] if end < len(whole) else None
        further = exports[whole[:end]].get(name)
        if further is None or further == whole:
            return modules[whole[:end]]
        whole = further + whole[end + 1 :]
    return None


def components(graph):
    """Strongly connected components (Tarjan, 1972)."""
    order, low, stack, result = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            part = set()
            while node not in part:
                part.add(stack.pop())
            result.append(part)

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return result


if __name__ == "__main__":
    main()
