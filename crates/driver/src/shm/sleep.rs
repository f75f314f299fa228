//! How a process goes to sleep without missing what a peer writes meanwhile.
//!
//! The sleeper raises `asleep` in its inbox, and `wanted` in the rings it found full, and looks once
//! more at what it waits for. Who writes what a sleeper may wait for — a frame, or room — looks at the
//! flags afterwards, lowers the one it finds raised, and rings. Either side writes what the other
//! reads, so each needs a full fence between its write and its look (Dekker's problem); the sleeper's
//! `membarrier` runs one on every core, which spares the others theirs.

use std::sync::atomic::{Ordering, compiler_fence};

use super::ring::{Consumer, Producer};
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

/// Tells that the owner of `inbox` is about to sleep and wants room in `starved`; to be followed by
/// a look at everything it waits for.
pub(crate) fn lie_down<'a, S: Shared + 'a>(
    inbox: &S,
    starved: impl Iterator<Item = &'a Producer<S>>,
) {
    inbox.word32(ASLEEP_AT).store(1, Ordering::Relaxed);
    starved.for_each(Producer::want_room);
    S::fence_all();
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
/// What an inbox must have room for.
#[cfg(test)]
pub(crate) const INBOX_WORDS_LEN: usize = ASLEEP_AT + 64;
