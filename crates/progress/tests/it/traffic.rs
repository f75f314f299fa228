//! Messages of any length between two processes; their bytes show losses and wrong order.

use engine::{Completion, Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use progress::Worker;
use testing::Random;
use wire::PeerId;

/// A message under way.
pub struct Exchange {
    number: usize,
    /// Rank and operation of the sender and of the receiver.
    ops: [(usize, OpId); 2],
    ends: [Option<Completion>; 2],
    into: Region,
}

impl Exchange {
    /// Begins to send a message in a random direction.
    pub fn begin(cores: &mut [Worker; 2], random: &mut Random, number: usize, tag: i32) -> Self {
        let from = random.below(2);
        let bytes = [0, 8, 5000, 70_000, 400_000][random.below(5)];
        Self::of(cores, (number, tag), (from, bytes))
    }

    /// Begins to send a message of `bytes` bytes from rank `from`.
    pub fn of(
        cores: &mut [Worker; 2],
        (number, tag): (usize, i32),
        (from, bytes): (usize, usize),
    ) -> Self {
        let data = Region::from_box(content(number, bytes).into());
        let into = Region::owned(bytes);
        let (sender, receiver) = (PeerId(from as u32), PeerId(1 - from as u32));
        let (context, source) = (0, sender.0);
        let envelope = Envelope { context, source, tag, is_urgent: false };
        let selector = Selector { context, source: Some(source), tag: Some(tag) };
        let receive = cores[1 - from].engine.submit_receive(Some(sender), selector, &into);
        let mode = SendMode::Synchronous;
        let send = cores[from].engine.submit_send(receiver, envelope, &data, mode);
        Self { number, ops: [(from, send), (1 - from, receive)], ends: [None, None], into }
    }

    /// True if both operations have ended.
    pub fn has_ended(&mut self, cores: &mut [Worker; 2]) -> bool {
        for (end, (rank, op)) in self.ends.iter_mut().zip(self.ops) {
            *end = end.take().or_else(|| cores[rank].engine.take(op));
        }
        self.ends.iter().all(Option::is_some)
    }

    /// Checks that both operations succeeded and that the message is whole.
    pub fn check(&self) {
        let Self { number, ends, into, .. } = self;
        let outcomes = ends.each_ref().map(|end| end.as_ref().map(|end| end.outcome));
        assert_eq!(outcomes, [Some(Outcome::Ok); 2], "message {number}");
        assert!(into.to_vec() == content(*number, into.len()), "message {number} came mangled");
    }
}

fn content(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number * 7 + at / 251) as u8).collect()
}
