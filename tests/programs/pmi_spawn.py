"""A rank that speaks PMI-1 itself and spawns others. Usage: pmi_spawn.py PROGRAM RANKS [KEY=VALUE...] [-- ARGUMENT...]

Rank 0 asks for the ranks, with hints, and prints the answer's code. The ranks are the same job's: each prints its rank, the
size, and what the spawning rank gives it.
"""
import os
import socket
import sys

pmi = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw", newline="\n")


def ask(lines):
    pmi.write(lines + "\n")
    pmi.flush()
    return dict(word.split("=", 1) for word in pmi.readline().split() if "=" in word)


ask("cmd=init pmi_version=1 pmi_subversion=1")
if os.environ["PMI_SPAWNED"] == "1":
    given = ask("cmd=get kvsname=x key=greeting")["value"]
    ask("cmd=barrier_in")
    appnum = ask("cmd=get_appnum")["appnum"]
    print("child", os.environ["PMI_RANK"], "of", os.environ["PMI_SIZE"], "program", appnum, given, *sys.argv[1:], flush=True)
elif os.environ["PMI_RANK"] == "0":
    words = sys.argv[3:]
    hints, rest = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    programs = sys.argv[1].split(",")
    lines = []
    for number, program in enumerate(programs, 1):
        lines += ["mcmd=spawn", f"nprocs={sys.argv[2]}", f"execname={program}", f"totspawns={len(programs)}", f"spawnssofar={number}"]
        lines += [f"arg{i}={text}" for i, text in enumerate(rest, 1)] + [f"argcnt={len(rest)}"]
        lines += ["preput_num=1", "preput_key_0=greeting", "preput_val_0=hello", f"info_num={len(hints)}"]
        for i, hint in enumerate(hints):
            lines += ["info_key_%d=%s\ninfo_val_%d=%s" % (i, *hint.split("=", 1)[:1], i, hint.split("=", 1)[1])]
        lines += ["endcmd"]
    print("spawn", ask("\n".join(lines))["rc"], flush=True)
ask("cmd=finalize")
