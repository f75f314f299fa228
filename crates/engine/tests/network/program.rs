//! Random MPI programs.

use engine::{MatchedId, SendMode};

use super::{Handle, Receive, Send, Shape, SimulatedNetwork};
use testing::Random;

/// A random MPI program.
pub struct Program {
    pub network: SimulatedNetwork,
    size: usize,
    receives: Vec<Handle>,
    sends: Vec<(Handle, Send)>,
    /// Cancelled sends that a receiver may have granted.
    uncertain: Vec<(Handle, Send)>,
    granted: Vec<(usize, (MatchedId, usize))>,
}

impl Program {
    pub fn new(seed: u64, size: usize, shape: Shape) -> Self {
        Self::on(SimulatedNetwork::new(seed, size, shape), size)
    }

    /// Runs a program on all processes of a network.
    pub fn on(network: SimulatedNetwork, size: usize) -> Self {
        Self {
            network,
            size,
            receives: Vec::new(),
            sends: Vec::new(),
            uncertain: Vec::new(),
            granted: Vec::new(),
        }
    }

    pub fn act(&mut self, random: &mut Random) {
        let rank = random.below(self.size);
        match random.below(16) {
            0..=6 => self.send(rank, random),
            7..=11 => self.post(rank, random),
            12 => {
                if random.one_in(2) {
                    self.cancel_send(random);
                } else if !self.receives.is_empty() {
                    let at = random.below(self.receives.len());
                    self.network.cancel(self.receives.swap_remove(at));
                }
            }
            13 => {
                let selector = self.receive(random).selector();
                self.network.probe(rank, selector);
            }
            14 => {
                let selector = self.receive(random).selector();
                if let Some(message) = self.network.matched_probe(rank, selector) {
                    self.granted.push((rank, message));
                }
            }
            _ => {
                if let Some((rank, message)) = self.granted.pop() {
                    self.network.matched_receive(rank, message, 3000);
                }
            }
        }
    }

    pub fn send(&mut self, rank: usize, random: &mut Random) {
        let (to, context) = (random.below(self.size), random.next() % 2);
        let bytes = random.pick(&[0, 1, 100, 256, 257, 1000, 1024, 1025, 5000, 9000]);
        let mode = random.pick(&[SendMode::Standard, SendMode::Standard, SendMode::Synchronous]);
        let send = Send { to, context, tag: random.below(3), bytes, mode };
        self.sends.push((self.network.submit_send(rank, send), send));
    }

    /// Cancels a send, one of the newest more often.
    pub fn cancel_send(&mut self, random: &mut Random) {
        let Some(last) = self.sends.len().checked_sub(1) else { return };
        let back = random.pick(&[1, 3, self.sends.len()]);
        let (handle, send) = self.sends.remove(last.saturating_sub(random.below(back)));
        if send.mode == SendMode::Standard {
            // The model could not tell which of several was granted.
            let network = &self.network;
            self.uncertain.retain(|(other, _)| !network.is_complete(*other));
            let is_like =
                |(other, of): &(Handle, Send)| other.rank == handle.rank && of.to == send.to;
            if self.uncertain.iter().any(is_like) {
                return;
            }
            self.uncertain.push((handle, send));
        }
        self.network.cancel_send(handle);
    }

    pub fn post(&mut self, rank: usize, random: &mut Random) {
        let receive = self.receive(random);
        self.receives.push(self.network.submit_receive(rank, receive));
    }

    fn receive(&self, random: &mut Random) -> Receive {
        let source = random.below(2 * self.size);
        let tag = random.below(5);
        Receive {
            source: (source < self.size).then_some(source),
            context: random.next() % 2,
            tag: (tag < 3).then_some(tag),
            capacity: random.pick(&[0, 100, 1024, 10_000]),
        }
    }

    /// Drains like [`Program::drain`]. Asserts that no process has failed, and that each message was either received or
    /// cancelled.
    pub fn drain_whole(self) -> SimulatedNetwork {
        let network = self.drain();
        assert_eq!(network.failures(), 0, "a link was left");
        network.check_each_message();
        network
    }

    /// Receives or cancels all pending operations.
    pub fn drain(mut self) -> SimulatedNetwork {
        self.network.run();
        for (rank, message) in self.granted {
            self.network.matched_receive(rank, message, 3000);
        }
        for rank in 0..self.size {
            for context in 0..2 {
                let any = Receive { source: None, context, tag: None, capacity: 10_000 };
                while self.network.probe(rank, any.selector()).is_some() {
                    self.network.submit_receive(rank, any);
                }
            }
        }
        self.network.run();
        for receive in self.receives {
            if !self.network.is_complete(receive) {
                assert!(self.network.cancel(receive), "only what nobody sent to is left");
            }
        }
        self.network.finish();
        self.network
    }
}
