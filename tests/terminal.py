"""Runs mpiexec on a terminal as a shell with job control does. Usage: terminal.py MPIEXEC CASE

Prints the lines on the terminal, sorted and without repetitions."""

import os
import pty
import select
import signal
import sys
import termios
import time

LIMIT_S = 20


class Shell:
    """The session leader of a new terminal, in the child of a fork; the parent holds the other side."""

    def __init__(self, mpiexec):
        self.mpiexec = mpiexec
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)

    def start(self, arguments, foreground):
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            if foreground:
                os.tcsetpgrp(0, os.getpgrp())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            os.execv(self.mpiexec, [self.mpiexec, *arguments])
        os.setpgid(job, job)
        if foreground:
            os.tcsetpgrp(0, job)
        return job

    def to_foreground(self, job):
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)

    def to_background(self, job):
        os.tcsetpgrp(0, os.getpgrp())
        os.killpg(job, signal.SIGCONT)

    @staticmethod
    def wait(job):
        """Returns how the job has ended or stopped."""
        _, status = os.waitpid(job, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return "stopped by " + signal.Signals(os.WSTOPSIG(status)).name
        if os.WIFSIGNALED(status):
            return "ended by " + signal.Signals(os.WTERMSIG(status)).name
        return f"exit {os.WEXITSTATUS(status)}"


def say(text):
    # In one piece, since ranks write to the same terminal.
    os.write(1, f"shell: {text}\n".encode())


def background(shell):
    """A job in the background reads nothing and does not stop."""
    say(shell.wait(shell.start(["-n", "2", "echo", "done"], foreground=False)))


def later_foreground(shell):
    """A job brought to the foreground reads what is typed there."""
    job = shell.start(["-n", "1", "sh", "-c", "echo ready; read word; echo got $word"], foreground=False)
    # Typed for the shell, not for the job.
    say("read " + input())
    shell.to_foreground(job)
    say("foreground")
    say(shell.wait(job))


def stopped(shell):
    """Ctrl-Z stops mpiexec and ranks. They continue in the background, and then in the foreground."""
    script = "trap 'echo continued' CONT; echo ready; until read word; do :; done; echo got $word"
    job = shell.start(["-n", "1", "bash", "-c", script], foreground=True)
    say(shell.wait(job))
    shell.to_background(job)
    time.sleep(0.5)
    say("background " + str(os.waitpid(job, os.WUNTRACED | os.WNOHANG)))
    shell.to_foreground(job)
    say("foreground")
    say(shell.wait(job))


def tostop(shell):
    """Under `stty tostop` a job that writes from the background stops like any other; its agent does not."""
    mode = termios.tcgetattr(0)
    mode[3] |= termios.TOSTOP
    termios.tcsetattr(0, termios.TCSANOW, mode)
    job = shell.start(["-n", "2", "sh", "-c", "echo done; : >/dev/tty; echo tty >/dev/tty"], foreground=False)
    say(shell.wait(job))
    shell.to_foreground(job)
    say(shell.wait(job))


def quit_key(shell):
    """Ctrl-\\ ends mpiexec and ranks."""
    say(shell.wait(shell.start(["-n", "1", "sh", "-c", "echo ready; sleep 60"], foreground=True)))


# What is typed after each text.
TYPED = {
    background: [],
    later_foreground: [(b"ready", b"shell\n"), (b"foreground", b"word\n")],
    stopped: [(b"ready", b"\x1a"), (b"foreground", b"word\n")],
    tostop: [],
    quit_key: [(b"ready", b"\x1c")],
}


def main():
    mpiexec, name = sys.argv[1:]
    case = globals()[name]
    child, terminal = pty.fork()
    if child == 0:
        mode = termios.tcgetattr(0)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(0, termios.TCSANOW, mode)
        case(Shell(mpiexec))
        os._exit(0)
    typed, seen, end = list(TYPED[case]), b"", time.monotonic() + LIMIT_S
    at = 0
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
        while typed and typed[0][0] in seen[at:]:
            text, keys = typed.pop(0)
            at = seen.index(text, at) + len(text)
            os.write(terminal, keys)
    else:
        print("too late")
        os.kill(child, signal.SIGKILL)
    lines = [line.strip() for line in seen.decode(errors="replace").replace("\r", "\n").split("\n")]
    # The order of lines of different processes may vary.
    print(" | ".join(sorted({line for line in lines if line})))


main()
