//! How a process goes to sleep without missing what a peer writes meanwhile.
//!
//! The sleeper raises `asleep` in its inbox, and `wanted` in the rings it found full, and looks once
//! more at what it waits for. Who writes what a sleeper may wait for — a frame, or room — looks at the
//! flags afterwards, lowers the one it finds raised, and rings. Either side writes what the other
//! reads, so each needs a full fence between its write and its look (Dekker's problem); the sleeper's
//! `membarrier` runs one on every core, which spares the others theirs.
//!
//! But it interrupts those cores, and where ranks sleep for every message that takes longer than the rest. So it warns the
//! neighbours as well: from then on they run their own fences before they look at its flag, and it runs only its own, until
//! one of them has done so many times and found it awake. What is written for want of room is looked for without fences all
//! the same, and who wants room runs `membarrier` each time.

use std::sync::atomic::{Ordering, compiler_fence};

use super::ring::{Consumer, Producer};
use super::segment::can_run_barriers;
use super::shared::{Shared, Word};

/// Who runs the fence of those that may have to ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    /// The sleeper does, on all cores, unless it has warned them.
    Sleeper,
    /// Each runs its own.
    Sender,
}

impl Fences {
    /// What suits two processes, by their inboxes: a process that is under an instrument, or behind a filter of system
    /// calls, may run no `membarrier` while its neighbour does.
    pub fn between<S: Shared>(own: &S, peer: &S) -> Self {
        let both =
            [own, peer].iter().all(|inbox| inbox.word32(BARRIERS_AT).load(Ordering::Relaxed) != 0);
        if both { Self::Sleeper } else { Self::Sender }
    }

    /// Whether the owner of `inbox` sleeps and is to be rung for what was just written; it is asked to be rung once.
    #[inline]
    pub fn must_ring<S: Shared>(self, inbox: &S) -> bool {
        self.before_look::<S>();
        let state = inbox.word32(STATE_AT);
        state.load(Ordering::Relaxed) != 0
            && match self {
                Self::Sleeper => Self::look_again(inbox),
                Self::Sender => state.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0,
            }
    }

    /// It sleeps, or has warned of that.
    #[cold]
    fn look_again<S: Shared>(inbox: &S) -> bool {
        S::fence();
        let (state, in_vain) = (inbox.word32(STATE_AT), inbox.word32(IN_VAIN_AT));
        if state.load(Ordering::Relaxed) & ASLEEP != 0 {
            return state.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0;
        }
        let times = in_vain.load(Ordering::Relaxed) + 1;
        let is_enough = times >= S::IN_VAIN;
        in_vain.store(if is_enough { 0 } else { times }, Ordering::Relaxed);
        if is_enough {
            // If it sleeps by now the warning stands.
            state.replace(WARNED, 0, Ordering::Relaxed);
        }
        false
    }

    /// Publishes the room of a ring that was just read if its producer waits for it; true when the
    /// producer may have to be rung.
    #[inline]
    pub fn give_room<S: Shared>(self, consumer: &mut Consumer<S>) -> bool {
        self.before_look::<S>();
        let wanted = consumer.take_wanted();
        if wanted {
            consumer.publish();
        }
        wanted
    }

    #[inline]
    fn before_look<S: Shared>(self) {
        match self {
            Self::Sleeper => compiler_fence(Ordering::SeqCst),
            Self::Sender => S::fence(),
        }
    }
}

/// Tells in a fresh inbox whether its owner, this process, is to run `membarrier`, and can.
pub(crate) fn move_in<S: Shared>(inbox: &S) {
    inbox.word32(BARRIERS_AT).store(u32::from(can_run_barriers()), Ordering::Relaxed);
}

/// Tells that the owner of `inbox` is about to sleep and wants room in `starved`; to be followed by
/// a look at everything it waits for. The `fences` are those of all its neighbours: a newcomer runs its own
/// ([`Fences::Sender`]) before it looks at the flag.
pub(crate) fn lie_down<'a, S: Shared + 'a>(
    fences: Fences,
    inbox: &S,
    starved: impl Iterator<Item = &'a Producer<S>>,
) {
    let mut starved = starved.peekable();
    let state = inbox.word32(STATE_AT);
    inbox.word32(IN_VAIN_AT).store(0, Ordering::Relaxed);
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
    S::fence_of_sleeper(on_all_cores);
}

/// Tells that the owner of `inbox` is awake.
pub(crate) fn get_up<S: Shared>(inbox: &S) {
    inbox.word32(STATE_AT).fetch_and(!ASLEEP, Ordering::Relaxed);
}

/// Whether the owner of `inbox` has said that it sleeps.
pub(crate) fn is_asleep<S: Shared>(inbox: &S) -> bool {
    inbox.word32(STATE_AT).load(Ordering::Relaxed) & ASLEEP != 0
}

/// Where the flags are in an inbox: on a line of its own, for senders read it at every frame.
const STATE_AT: usize = 128;
/// Its owner sleeps, and is to be rung.
const ASLEEP: u32 = 1;
/// It sleeps often, and whoever writes what it may wait for is to run a fence before looking at the other flag. It has run
/// one on all cores since.
const WARNED: u32 = 2;
/// Whether its owner is registered for `membarrier`, and runs it before it sleeps; never changes.
const BARRIERS_AT: usize = 132;
/// How many fences neighbours have run because of the warning, and found it awake, since it slept last.
const IN_VAIN_AT: usize = 136;
/// What an inbox must have room for.
#[cfg(test)]
pub(crate) const INBOX_WORDS_LEN: usize = STATE_AT + 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::segment::Segment;

    #[test]
    fn who_has_slept_warns_its_neighbours_until_one_has_run_many_fences_in_vain() {
        let inbox = Segment::create(INBOX_WORDS_LEN).unwrap();
        let state = || inbox.word32(STATE_AT).load(Ordering::Relaxed);
        let nobody = || std::iter::empty::<&Producer<Segment>>();
        let in_vain = || inbox.word32(IN_VAIN_AT).load(Ordering::Relaxed);
        let fences = Fences::Sleeper;
        assert!(!fences.must_ring(&inbox) && in_vain() == 0);
        lie_down(fences, &inbox, nobody());
        assert!(is_asleep(&inbox) && fences.must_ring(&inbox));
        assert!(!fences.must_ring(&inbox), "it was rung");
        assert_eq!((state(), in_vain()), (WARNED, 1));
        lie_down(fences, &inbox, nobody());
        get_up(&inbox);
        for _ in 0..Segment::IN_VAIN {
            assert_eq!(state(), WARNED);
            assert!(!fences.must_ring(&inbox));
        }
        assert_eq!((state(), in_vain()), (0, 0), "it has not slept for long");
        lie_down(Fences::Sender, &inbox, nobody());
        assert_eq!(state(), ASLEEP, "where no fence was run on all cores nobody is warned");
    }

    #[test]
    fn both_must_have_barriers_for_senders_to_be_spared() {
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
