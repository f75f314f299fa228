//! Queues from which a caller that waits for one of many operations learns which have ended.
//!
//! Work that the engine does not know, such as a collective, keeps its registrations itself ([`EndMarks`](crate::EndMarks)).

use super::Engine;
use crate::ends::{EndMark, EndQueueId};
use crate::op::{OpId, OpState, REGISTERED};

impl Engine {
    /// Opens a queue of ends.
    pub fn open_end_queue(&mut self) -> EndQueueId {
        self.ops.ends.open()
    }

    /// Closes a queue of ends.
    pub fn close_end_queue(&mut self, id: EndQueueId) {
        self.ops.ends.close(id);
    }

    /// Lets a place enter a queue when an operation completes, at once if it has. If the operation was registered in
    /// this queue before, it moves, and its former place is returned.
    pub fn expect_end_of(&mut self, op: OpId, mark: EndMark) -> Option<u32> {
        match self.ops.find_mut(op) {
            Some(found) if !matches!(found.state, OpState::Done(_) | OpState::Free) => {
                found.at_end |= REGISTERED;
                self.ops.ends.register(op.index, mark)
            }
            Some(_) | None => {
                self.expect_end(mark.queue);
                self.note_end(mark);
                None
            }
        }
    }

    /// Takes back [`Engine::expect_end_of`], unless the operation has completed.
    pub fn forget_end_of(&mut self, op: OpId, queue: EndQueueId) {
        if self.ops.find(op).is_some_and(|op| op.at_end & REGISTERED != 0) {
            self.ops.ends.forget(op.index, queue);
        }
    }

    /// Declares that [`Engine::note_end`] will be called for a queue.
    pub fn expect_end(&mut self, queue: EndQueueId) {
        self.ops.ends.expect(queue);
    }

    /// Takes back [`Engine::expect_end`].
    pub fn unexpect_end(&mut self, queue: EndQueueId) {
        self.ops.ends.unexpect(queue);
    }

    /// Lets a place enter a queue, for work that the engine does not know.
    pub fn note_end(&mut self, mark: EndMark) {
        self.ops.ends.push(mark);
    }

    /// Takes the place that entered a queue first.
    #[inline]
    pub fn next_end(&mut self, id: EndQueueId) -> Option<u32> {
        let queue = self.ops.ends.find_mut(id)?;
        let place = queue.places.pop_front()?;
        queue.expected -= 1;
        Some(place)
    }

    /// Number of places in a queue.
    #[inline]
    pub fn ends_in(&self, id: EndQueueId) -> usize {
        self.ops.ends.find(id).map_or(0, |queue| queue.places.len())
    }

    /// True if a place is in the queue or will enter it.
    pub fn expects_ends(&self, id: EndQueueId) -> bool {
        self.ops.ends.find(id).is_some_and(|queue| queue.expected > 0)
    }

    /// True if the queue is open.
    pub fn is_open_end_queue(&self, id: EndQueueId) -> bool {
        self.ops.ends.find(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memory::Region;
    use proptest::prelude::*;
    use wire::PeerId;

    use super::*;
    use crate::{Config, Selector};

    fn receive(engine: &mut Engine) -> OpId {
        let selector = Selector { context: 0, source: Some(1), tag: None };
        engine.submit_receive(Some(PeerId(1)), selector, &Region::owned(8))
    }

    fn ends(engine: &mut Engine, queue: EndQueueId) -> Vec<u32> {
        std::iter::from_fn(|| engine.next_end(queue)).collect()
    }

    #[test]
    fn ends_enter_the_queue_in_their_order() {
        let mut engine = Engine::new(Config::new(2));
        let queue = engine.open_end_queue();
        let ops: Vec<_> = (0..5).map(|_| receive(&mut engine)).collect();
        assert!(!engine.expects_ends(queue));
        for (place, op) in (10..).zip(&ops) {
            assert_eq!(engine.expect_end_of(*op, EndMark { queue, place }), None);
        }
        for index in [3, 0, 4] {
            assert!(engine.submit_cancel(ops[index]));
        }
        assert_eq!(engine.ends_in(queue), 3);
        assert_eq!(ends(&mut engine, queue), [13, 10, 14]);
        assert!(engine.expects_ends(queue), "two are under way");
        engine.release(ops[1]);
        assert_eq!(ends(&mut engine, queue), [11], "nobody else learns of its end");
        engine.forget_end_of(ops[2], queue);
        assert!(!engine.expects_ends(queue));
        assert!(engine.submit_cancel(ops[2]));
        assert_eq!(engine.ends_in(queue), 0);
    }

    #[test]
    fn what_has_ended_enters_at_once() {
        let mut engine = Engine::new(Config::new(2));
        let queue = engine.open_end_queue();
        let op = receive(&mut engine);
        assert!(engine.submit_cancel(op));
        engine.expect_end_of(op, EndMark { queue, place: 1 });
        assert!(engine.take(op).is_some());
        engine.expect_end_of(op, EndMark { queue, place: 2 });
        assert_eq!(ends(&mut engine, queue), [1, 2]);
        assert!(!engine.expects_ends(queue));
    }

    #[test]
    fn slot_of_a_registered_operation_is_used_again_without_its_registrations() {
        let mut engine = Engine::new(Config::new(2));
        let queue = engine.open_end_queue();
        let op = receive(&mut engine);
        engine.expect_end_of(op, EndMark { queue, place: 1 });
        assert!(engine.submit_cancel(op) && engine.take(op).is_some());
        let again = receive(&mut engine);
        assert!(engine.submit_cancel(again));
        assert_eq!(ends(&mut engine, queue), [1]);
    }

    #[test]
    fn closed_queues_leave_nothing_behind() {
        let mut engine = Engine::new(Config::new(2));
        let op = receive(&mut engine);
        for place in 0..1000 {
            let queue = engine.open_end_queue();
            assert_eq!(engine.expect_end_of(op, EndMark { queue, place }), None);
            engine.close_end_queue(queue);
            assert_eq!(engine.next_end(queue), None);
        }
        assert_eq!(engine.ops.ends.len(), (1, 1));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Post,
        Expect { op: usize, queue: usize, place: u32 },
        Forget { op: usize, queue: usize },
        End(usize),
        Release(usize),
        Reopen(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            Just(Act::Post),
            (0..40usize, 0..3usize, 0..100u32).prop_map(|(op, queue, place)| Act::Expect {
                op,
                queue,
                place
            }),
            (0..40usize, 0..3usize).prop_map(|(op, queue)| Act::Forget { op, queue }),
            (0..40usize).prop_map(Act::End),
            (0..40usize).prop_map(Act::Release),
            (0..3usize).prop_map(Act::Reopen),
        ]
    }

    proptest! {
        /// Compares the queues with a model: for each queue, the place of each operation under way.
        #[test]
        fn each_registered_end_enters_each_queue_once(acts in prop::collection::vec(act(), 1..200)) {
            let mut engine = Engine::new(Config::new(2));
            let mut queues = [(); 3].map(|()| engine.open_end_queue());
            let mut model = [(); 3].map(|()| (BTreeMap::new(), Vec::new()));
            let mut ops: Vec<Option<OpId>> = Vec::new();
            let end = |model: &mut [(BTreeMap<usize, u32>, Vec<u32>); 3], op: usize| {
                for (expected, ended) in model {
                    ended.extend(expected.remove(&op));
                }
            };
            for act in acts {
                match act {
                    Act::Post => ops.push(Some(receive(&mut engine))),
                    Act::Expect { op, queue, place } => if let Some(Some(id)) = ops.get(op) {
                        let former = engine.expect_end_of(*id, EndMark { queue: queues[queue], place });
                        prop_assert_eq!(former, model[queue].0.insert(op, place));
                    },
                    Act::Forget { op, queue } => if let Some(Some(id)) = ops.get(op) {
                        engine.forget_end_of(*id, queues[queue]);
                        model[queue].0.remove(&op);
                    },
                    Act::End(op) => if let Some(id) = ops.get_mut(op).and_then(Option::take) {
                        prop_assert!(engine.submit_cancel(id) && engine.take(id).is_some());
                        end(&mut model, op);
                    },
                    Act::Release(op) => if let Some(id) = ops.get_mut(op).and_then(Option::take) {
                        engine.release(id);
                        end(&mut model, op);
                        prop_assert!(engine.submit_cancel(id));
                    },
                    Act::Reopen(queue) => {
                        engine.close_end_queue(queues[queue]);
                        queues[queue] = engine.open_end_queue();
                        model[queue] = Default::default();
                    }
                }
                for (queue, (expected, ended)) in queues.iter().zip(&model) {
                    prop_assert_eq!(engine.ends_in(*queue), ended.len());
                    prop_assert_eq!(engine.expects_ends(*queue), !expected.is_empty() || !ended.is_empty());
                }
            }
            for (queue, (_, ended)) in queues.into_iter().zip(model) {
                prop_assert_eq!(ends(&mut engine, queue), ended);
            }
        }
    }
}
