//! Decides which thread polls, which sleeps, and which of them the rails wake.
//!
//! A waiting thread polls for all, and sleeps on the rails if nothing arrives. If no thread waits, the progress
//! thread polls, and the rails wake it while it sleeps. All changes are made under the worker's lock and return the
//! thread to wake. So no thread sleeps on rails that wake another one, or sleeps through its own event. The model
//! runs under loom.

#[cfg(test)]
mod loom_model;

/// Roles of the threads of a worker. Guarded by the worker's lock.
#[derive(Debug, Default)]
pub(crate) struct PollState {
    /// True if a waiting thread polls for all.
    is_polled: bool,
    /// True if that thread sleeps on the rails.
    is_asleep: bool,
    /// True if the progress thread sleeps on the rails, and they wake it.
    is_thread_asleep: bool,
}

/// Eventfd that wakes a thread sleeping on the rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// Of the waiting thread.
    Poller,
    /// Of the progress thread.
    ProgressThread,
}

impl PollState {
    /// True if a waiting thread polls, awake or asleep.
    #[inline]
    pub fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// True if a waiting thread polls and is awake.
    #[inline]
    pub fn is_polled_now(&self) -> bool {
        self.is_polled && !self.is_asleep
    }

    /// True if a waiting thread sleeps on the rails.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    /// True if the progress thread sleeps on the rails.
    #[inline]
    pub fn is_thread_asleep(&self) -> bool {
        self.is_thread_asleep
    }

    /// Records that a waiting thread polls from now on.
    #[inline]
    pub fn begin_polling(&mut self) {
        self.is_polled = true;
    }

    /// Records that it has stopped polling.
    #[inline]
    pub fn stop_polling(&mut self) {
        self.is_polled = false;
    }

    /// Records that the polling thread goes to sleep and the rails wake it. They are disarmed afterwards, so the
    /// thread that they woke until now has to check again.
    pub fn begin_poller_sleep(&mut self) -> Option<Wakeup> {
        self.is_asleep = true;
        std::mem::take(&mut self.is_thread_asleep).then_some(Wakeup::ProgressThread)
    }

    /// Records that the polling thread is awake.
    pub fn end_poller_sleep(&mut self) {
        self.is_asleep = false;
    }

    /// Records that the progress thread goes to sleep on the rails.
    pub fn begin_thread_sleep(&mut self) {
        self.is_thread_asleep = true;
    }

    /// Records that the progress thread is awake. True if the rails were armed for it.
    pub fn end_thread_sleep(&mut self) -> bool {
        std::mem::take(&mut self.is_thread_asleep)
    }

    /// Returns the thread to wake for an event. The progress thread waits for none.
    #[inline]
    pub fn wakeup_for_events(&self) -> Option<Wakeup> {
        self.is_asleep.then_some(Wakeup::Poller)
    }

    /// Returns the thread to wake so that it asks the rails for room, or copies. A sleeping thread does neither.
    pub fn wakeup_for_backlog(&self) -> Option<Wakeup> {
        self.wakeup_for_events().or(self.is_thread_asleep.then_some(Wakeup::ProgressThread))
    }
}
