#!/usr/bin/env python3
"""Checks that the project's text follows its rules (CONTRIBUTING.md, "Text"): words, sentences, sizes, names.

Reads the files that git tracks and prints one line for each place that breaks a rule. Fails if there are more than
tests/text.most says, a number that only shrinks. `--list` prints them in any case.
"""

import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A documentation comment begins with a verb or a noun.
OPENERS = re.compile(r"(?:What|Who|Whom|Whose|Whether|Which|How|Where|That|As|So)\b")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[])")
SENTENCE_WORDS_MAX = 32
# The middle sentence, and the one that is longer than nine of ten.
SENTENCE_WORDS = {0.5: 16, 0.9: 28}

# Words of a private language, each with the word of the field that replaced it.
RETIRED = {
    "gate": "peer", "gates": "peers", "lane": "VCI", "lanes": "VCIs", "board": "shared segment", "boards": "shared segments",
    "crowd": "oversubscribed", "crowded": "oversubscribed", "toll": "path cost", "tolls": "path costs",
    "vigil": "keepalive or path probe", "onlooker": "idle poller", "onlookers": "idle pollers", "lookout": "readiness probe",
    "standby": "progress thread", "errand": "connect job", "errands": "connect jobs", "news": "event count or events",
    "slip": "record", "slips": "records", "witness": "send observer", "steward": "daemon", "parted": "link down",
    "greeting": "resume", "sought": "liveness check", "joint": "merged",
}
RETIRED_WORD = re.compile(r"\b(?:%s|stands? by)\b" % "|".join(RETIRED))

SIZES = {"README.md": ("words", 600), "ARCHITECTURE.md": ("bytes", 14 << 10), "docs/performance.md": ("bytes", 12 << 10)}
FUNCTION = re.compile(r"( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 100
TYPE_FILES_MAX = 3
# Written by a script, or held word for word.
GENERATED = {"crates/abi/src/generated.rs", "crates/fortran/src/generated.rs", "crates/mpich/src/constants.rs",
             "crates/mpich/src/generated.rs", "include/mpi.h"}
ARCHIVES = ("docs/notebook/", "CHANGELOG.md")


def main():
    os.chdir(ROOT)
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    faults = []
    lengths = {"rs": [], "md": []}
    types = collections.defaultdict(set)
    for path in tracked:
        if not path.endswith((".rs", ".md")) or not os.path.exists(path):
            continue
        text = open(path, encoding="utf-8").read()
        lines = text.split("\n")
        kind = path[-2:]
        if path in SIZES:
            faults += size(path, text)
        if path.startswith(ARCHIVES) or path in GENERATED:
            continue
        faults += retired(path, text)
        for number, sentence in sentences(lines, kind):
            words = len(sentence.split())
            lengths[kind].append(words)
            if words > SENTENCE_WORDS_MAX:
                faults.append(f"{path}:{number}: a sentence of {words} words: {sentence[:60]}…")
        if kind == "md":
            faults += links(path, text)
            continue
        faults += openers(path, lines) + lengths_of_code(path, lines) + safety(path, lines) + test_files(path, text)
        faults += printing(path, lines) + names_of_peers(path, lines)
        for name in re.findall(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union) (\w+)", text, re.M):
            types[name].add(path)
    for name, files in sorted(types.items()):
        if len(files) > TYPE_FILES_MAX:
            faults.append(f"the type name {name} is defined in {len(files)} files: {' '.join(sorted(files))}")
    for kind, found in lengths.items():
        found.sort()
        for share, most in SENTENCE_WORDS.items():
            words = found[int(len(found) * share)]
            if words > most:
                faults.append(f"sentences of *.{kind}: {share:.0%} have up to {words} words, more than {most}")
    if "--list" in sys.argv:
        return print("\n".join(faults))
    most = int(open("tests/text.most").read())
    if len(faults) > most:
        print("\n".join(faults))
        sys.exit(f"FAILED: {len(faults)} places break the rules for text (CONTRIBUTING.md), more than {most}")
    print(f"ok text follows the rules but in {len(faults)} places of at most {most}")


def size(path, text):
    unit, most = SIZES[path]
    found = len(text.split()) if unit == "words" else len(text.encode())
    return [f"{path}: {found} {unit}, more than {most}"] if found > most else []


def retired(path, text):
    faults = []
    for found in RETIRED_WORD.finditer(text.lower()):
        number = text.count("\n", 0, found.start()) + 1
        faults.append(f"{path}:{number}: \"{found[0]}\": say {RETIRED.get(found[0], 'progress thread')}")
    return faults


def sentences(lines, kind):
    """Sentences of the prose, each with the line where its paragraph begins; code, tables and headings left out."""
    paragraph, start, fenced = [], 0, False
    for number, line in enumerate(lines + [""], 1):
        text = line.strip()
        if kind == "rs":
            text = text.lstrip("/!").strip() if text.startswith("//") else ""
        is_fence = text.startswith("```")
        fenced ^= is_fence
        is_prose = text and not is_fence and not fenced and text[0] not in "|#" and not text.startswith("    ")
        is_item = text.startswith(("* ", "- "))
        if not is_prose or is_item:
            if paragraph:
                for sentence in SENTENCE_END.split(" ".join(paragraph)):
                    if sentence.count(" ") > 1:
                        yield start, sentence
                paragraph = []
        if is_prose:
            start = start if paragraph else number
            paragraph.append(text[2:] if is_item else text)


def openers(path, lines):
    faults, inside = [], False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        is_doc = text.startswith(("///", "//!"))
        if is_doc and not inside and OPENERS.match(text[4:]):
            faults.append(f"{path}:{number}: begin with a verb or a noun: {text[4:50]}…")
        inside = is_doc
    return faults


def lengths_of_code(path, lines):
    faults = []
    if len(lines) > FILE_LINES_MAX + 1:
        faults.append(f"{path}: {len(lines) - 1} lines, more than {FILE_LINES_MAX}")
    for number, line in enumerate(lines):
        found = "fn " in line and FUNCTION.match(line)
        if not found:
            continue
        # The body begins where the signature ends with a brace; a declaration and a function on one line have none.
        body = next((n for n in range(number, min(number + 40, len(lines))) if lines[n].endswith(("{", ";", "}"))), number)
        if lines[body].endswith("{"):
            end = next((n for n in range(body, len(lines)) if lines[n] == found[1] + "}"), body)
            if end - number >= FUNCTION_LINES_MAX:
                faults.append(f"{path}:{number + 1}: {found[2]} has {end - number + 1} lines, more than {FUNCTION_LINES_MAX}")
    return faults


def safety(path, lines):
    borrowed = re.compile(r"SAFETY: (?:as (?:the body|above|before|there)|see )", re.I)
    return [f"{path}:{n}: give this block's own reason" for n, line in enumerate(lines, 1) if borrowed.search(line)]


def test_files(path, text):
    """Files that only tests include say so in their names."""
    faults = []
    for name in re.findall(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);", text):
        if not re.search(r"test|model", name):
            faults.append(f"{path}: the module {name} holds only tests: say so in its name")
    return faults


def outside_of_tests(path, lines):
    """The lines that are no tests."""
    if re.search(r"(?:^|/)(?:tests?|build\.rs|benches)(?:/|\.rs|$)|_tests?\.rs$|^crates/testing/", path):
        return []
    end = next((n for n, line in enumerate(lines) if line.startswith("#[cfg(test)]") and "mod " in "".join(lines[n:n + 2])), len(lines))
    return lines[:end]


def printing(path, lines):
    """Macros that panic when nobody reads any more."""
    found = [n for n, line in enumerate(outside_of_tests(path, lines), 1) if re.search(r"^[^/\"]*\be?print(?:ln)?!\(", line)]
    return [f"{path}:{n}: write with `let _ = writeln!(io::stdout(), …)`: print macros panic when nobody reads" for n in found]


def names_of_peers(path, lines):
    """Numbers of peers in messages that call them ranks. To a simulated network and to a gateway the two are the same."""
    if path.startswith(("crates/rail/src/sim.rs", "tools/gateway/")):
        return []
    text = "\n".join(outside_of_tests(path, lines))
    found = re.finditer(r"\"[^\"\n]*\b(?:ranks?|process(?:es)?) \{\}[^\"\n]*\",[^;]*?\b(\w+)\.0\b(?!\.)", text)
    lines = [(text.count("\n", 0, one.start()) + 1, one[1]) for one in found]
    return [f"{path}:{n}: {peer}.0 is no rank: write its name (connect::PeerName)" for n, peer in lines]


def links(path, text):
    faults = []
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.S)):
        if not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(os.path.dirname(path), target)):
            faults.append(f"{path}: the link {target} leads nowhere")
    return faults


if __name__ == "__main__":
    main()
