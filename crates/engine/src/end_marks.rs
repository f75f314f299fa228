//! Registrations in queues of ends, of work that the engine does not know.

use crate::ends::{EndMark, EndQueueId};
use crate::engine::Engine;

/// Registrations of work that the engine does not know, until it ends. At most one in each open queue.
#[derive(Debug, Default)]
pub struct EndMarks(Vec<EndMark>);

impl EndMarks {
    /// Adds a registration; if there is one in this queue, it moves, and its former place is returned.
    pub fn add(&mut self, engine: &mut Engine, mark: EndMark) -> Option<u32> {
        self.0.retain(|known| engine.is_open_end_queue(known.queue));
        match self.0.iter_mut().find(|known| known.queue == mark.queue) {
            Some(known) => Some(std::mem::replace(&mut known.place, mark.place)),
            None => {
                self.0.push(mark);
                None
            }
        }
    }

    /// True if there is no registration.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets a place enter a queue at the end of the work, at once if that is over. If the work was registered in this
    /// queue before, it moves, and its former place is returned.
    pub fn register(&mut self, engine: &mut Engine, mark: EndMark, is_over: bool) -> Option<u32> {
        let former = if is_over { None } else { self.add(engine, mark) };
        if former.is_none() {
            engine.expect_end(mark.queue);
        }
        if is_over {
            engine.note_end(mark);
        }
        former
    }

    /// Takes back [`EndMarks::register`], unless the work has ended.
    pub fn forget(&mut self, engine: &mut Engine, queue: EndQueueId) {
        if self.remove(queue) {
            engine.unexpect_end(queue);
        }
    }

    /// Removes the registration in a queue; false if there is none.
    pub fn remove(&mut self, queue: EndQueueId) -> bool {
        let before = self.0.len();
        self.0.retain(|known| known.queue != queue);
        self.0.len() < before
    }

    /// The registrations.
    pub fn iter(&self) -> impl Iterator<Item = EndMark> {
        self.0.iter().copied()
    }

    /// Lets all places enter their queues, and forgets them.
    pub fn note(&mut self, engine: &mut Engine) {
        self.0.drain(..).for_each(|mark| engine.note_end(mark));
    }
}
