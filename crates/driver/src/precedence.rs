//! Precedence of a thread over others that want its core, where the system permits it (sched(7)).

use std::io;
use std::time::Duration;

/// A thread of this process, of ordinary standing when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(libc::pid_t);

impl Thread {
    /// The calling thread; none where somebody has given it a standing of its own, which is left alone.
    pub fn current() -> Option<Self> {
        let mut own = standing(0);
        // SAFETY: the kernel writes at most as many bytes as it is told.
        let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, own.size, 0) };
        let is_ordinary = (own.sched_policy, own.sched_flags, own.sched_nice) == (ORDINARY, 0, 0);
        // SAFETY: no preconditions.
        (known == 0 && is_ordinary).then(|| Self(unsafe { libc::gettid() }))
    }

    /// Lets it go before ordinary threads. What it forks and creates meanwhile is ordinary.
    ///
    /// # Errors
    /// When this process has no right to it (`CAP_SYS_NICE`, or `RLIMIT_NICE`).
    pub fn precede(self) -> io::Result<()> {
        let preceding = libc::sched_attr {
            sched_flags: RESET_ON_FORK,
            sched_runtime: SLICE.as_nanos() as u64,
            ..standing(PRECEDING)
        };
        self.set(&preceding)
    }

    /// Makes it ordinary again; a thread that has ended needs it no more.
    ///
    /// # Errors
    /// When the kernel refuses, or the thread has ended.
    pub fn step_back(self) -> io::Result<()> {
        self.set(&standing(0))
    }

    fn set(self, standing: &libc::sched_attr) -> io::Result<()> {
        // SAFETY: the kernel reads as many bytes as the first word says, all of them `standing`'s.
        let set =
            unsafe { libc::syscall(libc::SYS_sched_setattr, self.0, &raw const *standing, 0) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Gives the calling thread the lowest standing (`SCHED_IDLE`): it runs where nobody else wants the core, and is put
/// aside at once when somebody does, for however long. It must hold nothing that others wait for.
///
/// # Errors
/// When the kernel refuses.
pub fn poll_when_idle() -> io::Result<()> {
    let idle = libc::sched_attr { sched_policy: libc::SCHED_IDLE as u32, ..standing(0) };
    // SAFETY: no preconditions.
    Thread(unsafe { libc::gettid() }).set(&idle)
}

/// What makes a thread an ordinary one, but for its nice value.
fn standing(nice: i32) -> libc::sched_attr {
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

/// Nine times the share of an ordinary thread. At the lowest value of all a thread that sleeps often was seen
/// to wait for others all the same.
const PRECEDING: i32 = -10;

/// The shortest slice of a core that there is. Linux from 6.12 on has a thread that wakes take the core from one with
/// a longer slice at once, and else leaves it to that one until the slice or the tick of the clock ends, milliseconds later;
/// before, there is one slice for all.
const SLICE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        // SAFETY: no preconditions; -1 is not among the values here.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn a_thread_goes_before_others_alone_and_then_beside_them_again() {
        let Some(thread) = Thread::current() else {
            assert_ne!(nice(), 0, "a thread is an ordinary one unless the tests run under nice");
            return;
        };
        match thread.precede() {
            Ok(()) => {
                assert_eq!(nice(), PRECEDING);
                assert_eq!(Thread::current(), None, "it has a standing of its own now");
                let created = std::thread::spawn(|| (nice(), Thread::current().is_some()));
                assert_eq!(created.join().unwrap(), (0, true));
                std::thread::spawn(move || thread.step_back()).join().unwrap().unwrap();
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        assert_eq!(nice(), 0);
        assert_eq!(Thread::current(), Some(thread));
    }

    #[test]
    fn a_thread_has_the_lowest_standing_alone() {
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
    fn a_thread_that_has_ended_is_told() {
        // SAFETY: no preconditions.
        let ended = std::thread::spawn(|| Thread(unsafe { libc::gettid() })).join().unwrap();
        // Joining ends when the kernel clears the thread's identity, shortly before it forgets the thread.
        // On a busy machine that is as long as others have the core.
        let refusal = (0..20_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            ended.step_back().err()
        });
        assert_eq!(refusal.and_then(|error| error.raw_os_error()), Some(libc::ESRCH));
    }
}
