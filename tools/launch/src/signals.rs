//! Signals: which ones `mpiexec` obeys, and their names in messages.

use std::io;

use signal_hook::consts::signal::*;
use signal_hook::iterator::Signals;

use crate::system;

/// Receives the signals that `mpiexec` obeys while a job runs. A signal that its parent ignores stays ignored, here
/// and in ranks: `nohup` ignores SIGHUP, and scripts ignore SIGINT and SIGQUIT for commands in the background.
pub(crate) fn receive() -> io::Result<Signals> {
    let ignored = system::ignored_signals();
    Signals::new(OBEYED.into_iter().filter(|signal| ignored & bit(*signal) == 0))
}

/// Returns the bit of a signal in a set of signals.
pub(crate) fn bit(signal: i32) -> u64 {
    1u64.checked_shl(signal as u32).unwrap_or(0)
}

/// Returns the name of a signal, and what it means.
pub(crate) fn description(signal: i32) -> String {
    match SIGNALS.iter().find(|(number, ..)| *number == signal) {
        Some((_, name, meaning)) => format!("{name}: {meaning}"),
        None => "see signal(7)".to_owned(),
    }
}

/// Signals that are passed to the ranks. Those without another meaning end the job.
const OBEYED: [i32; 9] =
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH];

/// Signals that end processes: number, name, meaning.
const SIGNALS: [(i32, &str, &str); 20] = [
    (SIGHUP, "SIGHUP", "hangup"),
    (SIGINT, "SIGINT", "interrupt"),
    (SIGQUIT, "SIGQUIT", "quit"),
    (SIGILL, "SIGILL", "illegal instruction; was it compiled for another CPU?"),
    (SIGTRAP, "SIGTRAP", "trace trap"),
    (SIGABRT, "SIGABRT", "aborted"),
    (
        SIGBUS,
        "SIGBUS",
        "access to memory that is not there, such as beyond the end of a mapped file",
    ),
    (SIGFPE, "SIGFPE", "arithmetic exception, such as an integer division by zero"),
    (SIGKILL, "SIGKILL", "killed by another process, or by the kernel for want of memory"),
    (SIGUSR1, "SIGUSR1", "user-defined signal 1"),
    (SIGSEGV, "SIGSEGV", "access to invalid memory"),
    (SIGUSR2, "SIGUSR2", "user-defined signal 2"),
    (SIGPIPE, "SIGPIPE", "write to a pipe that nobody reads"),
    (SIGALRM, "SIGALRM", "alarm clock"),
    (SIGTERM, "SIGTERM", "terminated by another process"),
    (SIGXCPU, "SIGXCPU", "limit of CPU time exceeded (ulimit -t)"),
    (SIGXFSZ, "SIGXFSZ", "limit of file size exceeded (ulimit -f)"),
    (SIGVTALRM, "SIGVTALRM", "virtual alarm clock"),
    (SIGPROF, "SIGPROF", "profiling timer expired"),
    (SIGSYS, "SIGSYS", "system call that a filter refuses"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_a_name_and_a_meaning() {
        assert_eq!(description(SIGSEGV), "SIGSEGV: access to invalid memory");
        assert_eq!(description(63), "see signal(7)");
    }
}
