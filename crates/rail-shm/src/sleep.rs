//! Sleep protocol: a process sleeps without missing what a peer writes meanwhile.
//!
//! The sleeper sets `asleep` in its inbox, and `wanted` in the rings it found full, and checks once more for what it
//! waits for. A writer of a frame or of room checks the flags afterwards, clears a set one, and rings the doorbell.
//! Each side writes what the other reads, so each needs a full fence between its write and its check (Dekker's
//! problem). The sleeper's `membarrier` runs a fence on every core, which saves the writers theirs.
//!
//! `membarrier` interrupts those cores, and ranks may sleep for every message. So the sleeper also sets a warning.
//! Warned neighbours run their own fences before they check the flag, and the sleeper runs only its own. A neighbour
//! withdraws the warning after many fences that found it awake. Writers check for wanted room without fences in any
//! case, so a process that wants room runs `membarrier` each time.

use std::sync::atomic::{Ordering, compiler_fence};

use crate::ring::{Consumer, Producer};
use crate::segment::can_run_barriers;
use crate::shared::{Shared, Word};

/// Side that runs the fence for a possible doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    /// The sleeper, on all cores, unless it has warned its neighbours.
    Sleeper,
    /// Each writer runs its own.
    Sender,
}

impl Fences {
    /// Returns the mode of two processes, from their inboxes. A process under an instrument or a system call filter
    /// may lack `membarrier` while its neighbour has it.
    pub fn between<S: Shared>(own: &S, peer: &S) -> Self {
        let both =
            [own, peer].iter().all(|inbox| inbox.word32(BARRIERS_AT).load(Ordering::Relaxed) != 0);
        if both { Self::Sleeper } else { Self::Sender }
    }

    /// True if the owner of `inbox` sleeps and its doorbell must be rung for the data just written. The flag is
    /// cleared, so only one writer rings.
    #[inline]
    pub fn must_wake<S: Shared>(self, inbox: &S) -> bool {
        self.fence_if_sender::<S>();
        let state = inbox.word32(STATE_AT);
        state.load(Ordering::Relaxed) != 0
            && match self {
                Self::Sleeper => Self::check_sleeper(inbox),
                Self::Sender => state.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0,
            }
    }

    /// Handles an inbox whose owner sleeps or has warned.
    #[cold]
    fn check_sleeper<S: Shared>(inbox: &S) -> bool {
        S::fence();
        let (state, wasted) = (inbox.word32(STATE_AT), inbox.word32(WASTED_AT));
        if state.load(Ordering::Relaxed) & ASLEEP != 0 {
            return state.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0;
        }
        let times = wasted.load(Ordering::Relaxed) + 1;
        let is_enough = times >= S::WASTED_FENCES_MAX;
        wasted.store(if is_enough { 0 } else { times }, Ordering::Relaxed);
        if is_enough {
            // If the owner sleeps by now, the warning stays.
            state.replace(WARNED, 0, Ordering::Relaxed);
        }
        false
    }

    /// Publishes the room of a ring just read if its producer waits for it; true if the producer may have to be
    /// woken.
    #[inline]
    pub fn give_room<S: Shared>(self, consumer: &mut Consumer<S>) -> bool {
        self.fence_if_sender::<S>();
        let wanted = consumer.take_wanted();
        if wanted {
            consumer.publish();
        }
        wanted
    }

    #[inline]
    fn fence_if_sender<S: Shared>(self) {
        match self {
            Self::Sleeper => compiler_fence(Ordering::SeqCst),
            Self::Sender => S::fence(),
        }
    }
}

/// Records in a new inbox if its owner, this process, can run `membarrier`.
pub(crate) fn init_inbox<S: Shared>(inbox: &S) {
    inbox.word32(BARRIERS_AT).store(u32::from(can_run_barriers()), Ordering::Relaxed);
}

/// Announces that the owner of `inbox` is about to sleep and wants room in `starved`. The caller must then check
/// everything it waits for. `fences` combines the modes of all neighbours: a new neighbour runs its own fence
/// ([`Fences::Sender`]) before it checks the flag.
pub(crate) fn begin_sleep<'a, S: Shared + 'a>(
    fences: Fences,
    inbox: &S,
    starved: impl Iterator<Item = &'a Producer<S>>,
) {
    let mut starved = starved.peekable();
    let state = inbox.word32(STATE_AT);
    inbox.word32(WASTED_AT).store(0, Ordering::Relaxed);
    let on_all_cores = match fences {
        Fences::Sleeper => {
            let has_warned = state.swap(ASLEEP | WARNED, Ordering::Relaxed) & WARNED != 0;
            !has_warned || starved.peek().is_some()
        }
        Fences::Sender => {
            state.swap(ASLEEP, Ordering::Relaxed);
            false
        }
    };
    starved.for_each(Producer::want_room);
    S::sleeper_fence(on_all_cores);
}

/// Records that the owner of `inbox` is awake.
pub(crate) fn end_sleep<S: Shared>(inbox: &S) {
    inbox.word32(STATE_AT).fetch_and(!ASLEEP, Ordering::Relaxed);
}

/// True if the owner of `inbox` has announced that it sleeps.
pub(crate) fn is_asleep<S: Shared>(inbox: &S) -> bool {
    inbox.word32(STATE_AT).load(Ordering::Relaxed) & ASLEEP != 0
}

/// Offset of the flags in an inbox: on a line of its own, because senders read it for every frame.
const STATE_AT: usize = 128;
/// Set while the owner sleeps and its doorbell must be rung.
const ASLEEP: u32 = 1;
/// Set while the owner sleeps often: writers must run a fence before they check the other flag. The owner has run a
/// fence on all cores since it was set.
const WARNED: u32 = 2;
/// Non-zero if the owner is registered for `membarrier` and runs it before it sleeps; constant.
const BARRIERS_AT: usize = 132;
/// Number of fences since the last sleep that neighbours ran because of the warning and that found the owner awake.
const WASTED_AT: usize = 136;
/// Minimum length of an inbox.
#[cfg(test)]
pub(crate) const INBOX_WORDS_LEN: usize = STATE_AT + 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    #[test]
    fn a_warning_stays_until_a_neighbour_has_wasted_many_fences() {
        let inbox = Segment::create(INBOX_WORDS_LEN).unwrap();
        let state = || inbox.word32(STATE_AT).load(Ordering::Relaxed);
        let nobody = || std::iter::empty::<&Producer<Segment>>();
        let wasted = || inbox.word32(WASTED_AT).load(Ordering::Relaxed);
        let fences = Fences::Sleeper;
        assert!(!fences.must_wake(&inbox) && wasted() == 0);
        begin_sleep(fences, &inbox, nobody());
        assert!(is_asleep(&inbox) && fences.must_wake(&inbox));
        assert!(!fences.must_wake(&inbox), "it was rung");
        assert_eq!((state(), wasted()), (WARNED, 1));
        begin_sleep(fences, &inbox, nobody());
        end_sleep(&inbox);
        for _ in 0..Segment::WASTED_FENCES_MAX {
            assert_eq!(state(), WARNED);
            assert!(!fences.must_wake(&inbox));
        }
        assert_eq!((state(), wasted()), (0, 0), "it has not slept for long");
        begin_sleep(Fences::Sender, &inbox, nobody());
        assert_eq!(state(), ASLEEP, "where no fence was run on all cores nobody is warned");
    }

    #[test]
    fn senders_skip_fences_only_if_both_sides_have_membarrier() {
        let inbox = |barriers| {
            let inbox = Segment::create(INBOX_WORDS_LEN).unwrap();
            inbox.word32(BARRIERS_AT).store(barriers, Ordering::Relaxed);
            inbox
        };
        let between = |own, peer| Fences::between(&inbox(own), &inbox(peer));
        assert_eq!(between(1, 1), Fences::Sleeper);
        for (own, peer) in [(0, 0), (0, 1), (1, 0)] {
            assert_eq!(between(own, peer), Fences::Sender);
        }
    }
}
