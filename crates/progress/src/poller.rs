//! Who polls, who sleeps, and for whom the rails ring.
//!
//! A thread that waits polls for all, and sleeps on the rails when nothing comes. When nobody polls the thread that
//! stands by does, and the rails ring for it while it sleeps. All changes are made under the worker's lock; they say whom
//! to ring for, so that nobody sleeps on rails that ring for somebody else, or through what it waits for. The model runs
//! under loom.

#[cfg(test)]
mod model;

/// Guarded as the core.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// A thread that waits polls for all.
    is_polled: bool,
    /// It sleeps on the rails.
    is_asleep: bool,
    /// The progress thread does, and they ring for it.
    is_guarded: bool,
}

/// What wakes a thread that sleeps on the rails, besides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The one that waits.
    Wake,
    /// The progress thread.
    Relief,
}

impl Watch {
    /// Whether a thread that waits polls, awake or asleep.
    #[inline]
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Whether one polls that is awake.
    #[inline]
    pub fn is_polled_now(&self) -> bool {
        self.is_polled && !self.is_asleep
    }

    /// Whether one sleeps on the rails.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// Whether the progress thread sleeps on them.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// A thread that waits polls from now on.
    #[inline]
    pub fn begin_polling(&mut self) {
        self.is_polled = true;
    }

    /// It polls no more.
    #[inline]
    pub fn stop_polling(&mut self) {
        self.is_polled = false;
    }

    /// The thread that polls goes to sleep, and the rails ring for it. They fall silent after it: who they rang for has
    /// to look again.
    pub fn lie_down(&mut self) -> Option<Bell> {
        self.is_asleep = true;
        std::mem::take(&mut self.is_guarded).then_some(Bell::Relief)
    }

    /// It is awake.
    pub fn get_up(&mut self) {
        self.is_asleep = false;
    }

    /// The progress thread goes to sleep on the rails.
    pub fn begin_guard(&mut self) {
        self.is_guarded = true;
    }

    /// It is awake; whether it was for it that the rails rang.
    pub fn end_guard(&mut self) -> bool {
        std::mem::take(&mut self.is_guarded)
    }

    /// Who is to hear of news: the progress thread waits for none.
    #[inline]
    pub fn hears_events(&self) -> Option<Bell> {
        self.is_asleep.then_some(Bell::Wake)
    }

    /// Who is to ask the rails for room, or to copy: who sleeps does neither.
    pub fn hears_backlog(&self) -> Option<Bell> {
        self.hears_events().or(self.is_guarded.then_some(Bell::Relief))
    }
}
