#!/usr/bin/env python3
"""Plays salloc, squeue, scancel, scontrol and srun of a Slurm with two nodes, by the name under which it is called.

Jobs are in a file of the folder $PLAYED_SLURM: number, name, state and process of their salloc. One job has both nodes. Jobs
that Slurm has ended are kept with their reason. `scontrol update jobid=N endtime=now` ends a job by its time limit. It says what Slurm 22.05 says. Used where no Slurm is installed.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time

FOLDER = os.environ["PLAYED_SLURM"]
NODE = os.path.basename(FOLDER)[0]


def locked(change):
    """Changes the jobs, of which those of dead processes have gone."""
    with open(os.path.join(FOLDER, "lock"), "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        jobs = json.loads(lock.read() or "{}")
        jobs = {number: job for number, job in jobs.items() if "reason" in job or os.path.exists(f"/proc/{job['process']}")}
        result = change(jobs)
        lock.truncate(0)
        lock.write(json.dumps(jobs))
        lock.flush()
        return result


def say(text):
    print(f"salloc: {text}", file=sys.stderr, flush=True)


def salloc(options, command):
    if "--version" in options:
        print("slurm-played 22.05.8")
        return 0
    name = next(word.split("=", 1)[1] for word in reversed(options) if word.startswith("--job-name="))
    if "-p" in options and options[options.index("-p") + 1] != "all":
        say(f"error: invalid partition specified: {options[options.index('-p') + 1]}")
        say("error: Job submit/allocate failed: Invalid partition name specified")
        return 1
    number = locked(lambda jobs: submit(jobs, name))

    # A signal that comes while the jobs are locked is obeyed afterwards.
    ended = []

    def revoke():
        say(f"Job allocation {number} has been revoked.")
        sys.exit(1)

    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: ended.append(True))
    said = False
    while locked(lambda jobs: grant(jobs, number)) != "RUNNING":
        if not said:
            say(f"Pending job allocation {number}")
            say(f"job {number} queued and waiting for resources")
        said = True
        time.sleep(0.05)
        if ended or is_over(number):
            locked(lambda jobs: jobs.pop(number, None))
            revoke()
    say(f"Granted job allocation {number}")
    given = {"SLURM_JOB_ID": number, "SLURM_JOB_NODELIST": f"{NODE}[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    process = subprocess.Popen(command, env=dict(os.environ, **given))
    while (code := process.poll()) is None:
        time.sleep(0.05)
        if is_over(number):
            # Else the command goes on.
            if "--kill-command=TERM" in options:
                process.terminate()
            process.wait()
            revoke()
    say(f"Relinquishing job allocation {number}")
    locked(lambda jobs: jobs.pop(number, None))
    return code


def submit(jobs, name):
    number = str(1 + max([0] + [int(known) for known in jobs]))
    jobs[number] = {"name": name, "state": "PENDING", "process": os.getpid()}
    return number


def is_over(number):
    return "reason" in locked(dict).get(number, {"reason": ""})


def grant(jobs, number):
    waiting = {known: job for known, job in jobs.items() if "reason" not in job}
    if all(job["state"] == "PENDING" for job in waiting.values()) and waiting and min(waiting, key=int) == number:
        jobs[number]["state"] = "RUNNING"
    return jobs.get(number, {}).get("state")


def squeue(options):
    wanted = [word.split("=", 1)[1] for word in options if word.startswith("--jobs=")]
    form = next(word.split("=", 1)[1] for word in options if word.startswith("--format="))
    for number, job in locked(dict).items():
        if wanted in ([], [number]) and ("--states=all" in options or "reason" not in job):
            reason = job.get("reason", "None" if job["state"] == "RUNNING" else "Resources")
            values = {"%T": job["state"], "%r": reason, "%S": "N/A", "%l": "5:00", "%j": job["name"], "%i": number}
            print(re.sub("%.", lambda key: values[key.group()], form))
    return 0


def scancel(options):
    names = [word.split("=", 1)[1] for word in options if word.startswith("--name=")]
    for number, job in locked(dict).items():
        if "reason" not in job and (job["name"] in names or number in options):
            locked(lambda jobs: jobs[number].update(state="CANCELLED", reason="None"))
    return 0


def scontrol(options):
    number = options[1].split("=", 1)[1]
    locked(lambda jobs: jobs[number].update(state="TIMEOUT", reason="TimeLimit"))
    return 0


def srun(options, command):
    values = dict(word.split("=", 1) for word in options if "=" in word)
    if is_over(values["--jobid"]):
        print("srun: error: Unable to confirm allocation for job: Invalid job id specified", file=sys.stderr)
        return 1
    os.execvpe(command[0], command, dict(os.environ, SLURMD_NODENAME=values["--nodelist"]))


def divided(words):
    """Options, with their values, and the command behind them."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 1 if "=" in words[at] or not re.fullmatch("-[a-zA-Z]", words[at]) else 2
    return words[:at], words[at:]


called = os.path.basename(sys.argv[0])
if called in ("salloc", "srun"):
    sys.exit({"salloc": salloc, "srun": srun}[called](*divided(sys.argv[1:])))
sys.exit({"squeue": squeue, "scancel": scancel, "scontrol": scontrol}[called](sys.argv[1:]))
