//! How a process goes to sleep without missing what a peer writes meanwhile.
//!
//! The sleeper raises `asleep` in its inbox, and `wanted` in the rings it found full, and looks once
//! more at what it waits for. Who writes what a sleeper may wait for — a frame, or room — looks at the
//! flags afterwards, lowers the one it finds raised, and rings. Either side writes what the other
//! reads, so each needs a full fence between its write and its look (Dekker's problem); the sleeper's
//! `membarrier` runs one on every core, which spares the others theirs. It interrupts those cores, so that who sleeps
//! often runs only its own.

use std::sync::atomic::{Ordering, compiler_fence};

use super::ring::{Consumer, Producer};
use super::segment::can_run_barriers;
use super::shared::{Shared, Word};

/// Who runs the fence of those that may have to ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fences {
    /// The sleeper does, on all cores.
    Sleeper,
    /// Each runs its own.
    Sender,
}

impl Fences {
    /// What suits two processes, by their inboxes: a process that sleeps often, is under an instrument, or behind a
    /// filter of system calls, may run no `membarrier` while its neighbour does.
    pub fn between<S: Shared>(own: &S, peer: &S) -> Self {
        let both =
            [own, peer].iter().all(|inbox| inbox.word32(BARRIERS_AT).load(Ordering::Relaxed) != 0);
        if both { Self::Sleeper } else { Self::Sender }
    }

    /// Whether the owner of `inbox` sleeps and is to be rung for what was just written; it is asked
    /// to be rung once.
    #[inline]
    pub fn must_ring<S: Shared>(self, inbox: &S) -> bool {
        self.before_look::<S>();
        let asleep = inbox.word32(ASLEEP_AT);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
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
pub(crate) fn move_in<S: Shared>(inbox: &S, sleeps_often: bool) {
    let runs_barriers = !sleeps_often && can_run_barriers();
    inbox.word32(BARRIERS_AT).store(u32::from(runs_barriers), Ordering::Relaxed);
}

/// Tells that the owner of `inbox` is about to sleep and wants room in `starved`; to be followed by
/// a look at everything it waits for. The `fences` are those of all its neighbours: a newcomer runs its own
/// ([`Fences::Sender`]) before it looks at the flag.
pub(crate) fn lie_down<'a, S: Shared + 'a>(
    fences: Fences,
    inbox: &S,
    starved: impl Iterator<Item = &'a Producer<S>>,
) {
    inbox.word32(ASLEEP_AT).store(1, Ordering::Relaxed);
    starved.for_each(Producer::want_room);
    S::fence_of_sleeper(fences == Fences::Sleeper);
}

/// Tells that the owner of `inbox` is awake.
pub(crate) fn get_up<S: Shared>(inbox: &S) {
    inbox.word32(ASLEEP_AT).store(0, Ordering::Relaxed);
}

/// Whether the owner of `inbox` has said that it sleeps.
pub(crate) fn is_asleep<S: Shared>(inbox: &S) -> bool {
    inbox.word32(ASLEEP_AT).load(Ordering::Relaxed) != 0
}

/// Where the flag is in an inbox: on a line of its own, for senders read it at every frame.
const ASLEEP_AT: usize = 128;
/// Whether its owner is registered for `membarrier`, and runs it before it sleeps; never changes.
const BARRIERS_AT: usize = 132;
/// What an inbox must have room for.
#[cfg(test)]
pub(crate) const INBOX_WORDS_LEN: usize = ASLEEP_AT + 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::segment::Segment;

    #[test]
    fn who_sleeps_often_runs_its_own_fence_and_so_do_its_neighbours() {
        let [often, seldom] = [true, false].map(|sleeps_often| {
            let inbox = Segment::create(INBOX_WORDS_LEN).unwrap();
            move_in(&inbox, sleeps_often);
            inbox
        });
        assert_eq!(Fences::between(&often, &seldom), Fences::Sender);
        assert_eq!(Fences::between(&seldom, &often), Fences::Sender);
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
