//! Scheduling precedence of a thread over others on its core, where the system permits it (sched(7)).

use std::io;
use std::time::Duration;

/// A thread of this process that had ordinary scheduling when this was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(libc::pid_t);

impl Thread {
    /// Returns the calling thread; `None` if its scheduling was changed by somebody, which is left alone.
    pub fn current() -> Option<Self> {
        let mut own = attributes(0);
        // SAFETY: the kernel writes at most `own.size` bytes to `own`, which has that size.
        let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, own.size, 0) };
        let is_ordinary = (own.sched_policy, own.sched_flags, own.sched_nice) == (ORDINARY, 0, 0);
        (known == 0 && is_ordinary).then(Self::calling)
    }

    fn calling() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Gives the thread precedence over ordinary ones. Its children and new threads are ordinary.
    ///
    /// # Errors
    /// Returned when this process lacks the right (`CAP_SYS_NICE`, or `RLIMIT_NICE`).
    pub fn precede(self) -> io::Result<()> {
        let preceding = libc::sched_attr {
            sched_flags: RESET_ON_FORK,
            sched_runtime: SLICE.as_nanos() as u64,
            ..attributes(PRECEDING)
        };
        self.set(&preceding)
    }

    /// Makes the thread ordinary again; a thread that has ended does not need it.
    ///
    /// # Errors
    /// Returned when the kernel refuses, or the thread has ended.
    pub fn step_back(self) -> io::Result<()> {
        self.set(&attributes(0))
    }

    fn set(self, attributes: &libc::sched_attr) -> io::Result<()> {
        // SAFETY: the kernel reads as many bytes as the `size` field says, which is the size of the struct.
        let set =
            unsafe { libc::syscall(libc::SYS_sched_setattr, self.0, &raw const *attributes, 0) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Puts the calling thread under `SCHED_IDLE`. It runs only on a core that nobody else wants, and is preempted at
/// once, for any length of time. It must hold no lock that others wait for.
///
/// # Errors
/// Returned when the kernel refuses.
pub fn poll_when_idle() -> io::Result<()> {
    let idle = libc::sched_attr { sched_policy: libc::SCHED_IDLE as u32, ..attributes(0) };
    Thread::calling().set(&idle)
}

/// Returns ordinary scheduling attributes with this nice value.
fn attributes(nice: i32) -> libc::sched_attr {
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: ORDINARY,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

const ORDINARY: u32 = libc::SCHED_OTHER as u32;

const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;

/// Nice value with nine times the CPU share of an ordinary thread. At the lowest value, a thread that sleeps often
/// was still seen to wait for others.
const PRECEDING: i32 = -10;

/// Shortest time slice. Since Linux 6.12 a woken thread preempts one with a longer slice at once. Otherwise it waits
/// until that slice or the timer tick ends, milliseconds later. Earlier kernels have one slice length for all.
const SLICE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        // SAFETY: no preconditions; -1 is not among the values here.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn a_thread_gets_precedence_alone_and_gives_it_back() {
        let Some(thread) = Thread::current() else {
            assert_ne!(nice(), 0, "a thread is an ordinary one unless the tests run under nice");
            return testing::skip("the tests run under nice");
        };
        match thread.precede() {
            Ok(()) => {
                assert_eq!(nice(), PRECEDING);
                assert_eq!(Thread::current(), None, "it has attributes of its own now");
                let created = std::thread::spawn(|| (nice(), Thread::current().is_some()));
                assert_eq!(created.join().unwrap(), (0, true));
                std::thread::spawn(move || thread.step_back()).join().unwrap().unwrap();
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                testing::skip("this user may not run before others");
            }
        }
        assert_eq!(nice(), 0);
        assert_eq!(Thread::current(), Some(thread));
    }

    #[test]
    fn a_thread_is_idle_scheduled_alone() {
        let scheduler = || {
            // SAFETY: no preconditions.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = scheduler();
        let polls = std::thread::spawn(move || poll_when_idle().map(|()| scheduler()));
        assert_eq!(polls.join().unwrap().unwrap(), libc::SCHED_IDLE);
        assert_eq!(scheduler(), before);
    }

    #[test]
    fn an_ended_thread_is_reported() {
        let ended = std::thread::spawn(Thread::calling).join().unwrap();
        // Joining ends when the kernel clears the thread's identity, shortly before it forgets the thread.
        // On a busy machine that is as long as others have the core.
        let refusal = (0..20_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            ended.step_back().err()
        });
        assert_eq!(refusal.and_then(|error| error.raw_os_error()), Some(libc::ESRCH));
    }
}
