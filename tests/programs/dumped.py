"""Searches the memory that a core dump would show for a job's secret and the keys derived from it, as bytes and as
hexadecimal text. Usage: dumped.py FILE LAUNCHER, where FILE has the answers of PMI with the secret and the job's name,
and LAUNCHER is the process id of mpiexec or of its parent.
Prints the processes of the job by program, and the number of copies. Each process but mpiexec, which passes the secret on
and drops it, must have it in memory that dumps leave out: the search is then known to find it."""
import collections
import hashlib
import hmac
import re
import sys

from scan import descendants

PROGRAMS = {"mpiexec", "canele-agent", "canele-gateway", "secret"}


def derived(secret, job, purpose):
    """HKDF-SHA256 (RFC 5869), one block."""
    extracted = hmac.digest(b"canele/1", secret, "sha256")
    return hmac.digest(extracted, purpose + job + b"\x01", "sha256")


def mappings(process):
    """Address, end and flags of each writable mapping in use."""
    with open(f"/proc/{process}/smaps") as file:
        for line in file:
            if begin := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line):
                first, end, access = int(begin[1], 16), int(begin[2], 16), begin[3]
            elif line.startswith("Rss:"):
                is_used = int(line.split()[1]) > 0
            elif line.startswith("VmFlags:") and "w" in access and is_used:
                yield first, end, line.split()[1:]


def search(process, forms):
    """Names of the forms found in memory that a dump shows, one for each copy; whether other memory has one."""
    copies, is_kept = [], False
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for first, end, flags in mappings(process):
            try:
                memory.seek(first)
                found = memory.read(end - first)
            except OSError:
                continue
            if "dd" in flags:
                is_kept = is_kept or any(form in found for form in forms)
                continue
            copies += [name for form, name in forms.items() for _ in range(found.count(form))]
    return copies, is_kept


def main():
    with open(sys.argv[1]) as file:
        words = dict(word.split("=", 1) for word in file.read().split() if "=" in word)
    secret = bytes.fromhex(words["value"])
    job = hashlib.sha256(b"job" + secret + words["kvsname"].encode()).digest()[:8]
    keys = {
        "secret": secret,
        "identity": derived(secret, job, b"identity ed25519"),
        "first id": derived(secret, job, b"first connection id"),
    }
    forms = {}
    for name, key in keys.items():
        digits = key.hex()
        forms |= {key: name, digits.encode(): f"{name} in digits", digits.upper().encode(): f"{name} in digits"}
    programs, copies = collections.Counter(), []
    for process in descendants(int(sys.argv[2])):
        try:
            with open(f"/proc/{process}/comm") as file:
                program = file.read().strip()
        except OSError:
            continue
        if program not in PROGRAMS:
            continue
        found, is_kept = search(process, forms)
        programs[program] += 1
        copies += [f"{name} in {program}" for name in found]
        if not is_kept and program != "mpiexec":
            copies.append(f"nothing found in {program}")
    told = ", ".join(f"{count} {program}" for program, count in sorted(programs.items()))
    print(f"{told}: {len(copies)} copies", *sorted(copies), sep="; " if copies else "")


main()
