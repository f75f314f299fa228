//! A path as both processes see it, and the messages of the engine.

use engine::strategy::{self, Strategy};
use engine::{Envelope, Outcome, Selector};
use memory::Region;
use wire::PeerId;

/// A path for messages of one size. Each tells the other process if it is of the final batch.
pub trait MessagePath {
    /// Sets the size of messages.
    fn prepare(&mut self, size: usize);
    /// Marks the messages to be sent.
    fn set_final(&mut self, is_final: bool);
    /// True if the last message received is of the final batch.
    fn is_final(&self) -> bool;
    /// True if the last message received is the one sent.
    fn is_echo(&self) -> bool;
    /// Sends a message, or returns the last one received.
    fn send(&mut self, returns: bool) -> Result<(), String>;
    /// Waits for a message.
    fn receive(&mut self) -> Result<(), String>;

    /// Sends and receives `times` messages.
    fn ask(&mut self, times: u32) -> Result<(), String> {
        (0..times).try_for_each(|_| {
            self.send(false)?;
            self.receive()
        })
    }

    /// Receives and returns `times` messages.
    fn answer(&mut self, times: u32) -> Result<(), String> {
        (0..times).try_for_each(|_| {
            self.receive()?;
            self.send(true)
        })
    }
}

/// Messages of the engine, in both directions.
pub struct Messages {
    /// Peer of both directions.
    pub peer: PeerId,
    /// Envelope of messages sent.
    pub envelope: Envelope,
    /// Selector of messages received.
    pub selector: Selector,
    /// Message to be sent.
    pub out: Region,
    /// Last message received.
    pub into: Region,
}

impl Messages {
    /// Returns those of a rank.
    pub fn of(rank: u32) -> Self {
        let peer = 1 - rank;
        Self {
            peer: PeerId(peer),
            envelope: Envelope { context: 0, source: rank, tag: 1, is_urgent: false },
            selector: Selector { context: 0, source: Some(peer), tag: Some(1) },
            out: Region::empty(),
            into: Region::empty(),
        }
    }

    /// Sets the size of messages.
    pub fn prepare(&mut self, size: usize) {
        self.out = Region::from_box(pattern(size).into());
        self.into = Region::owned(size);
    }

    /// Marks the messages to be sent in their first byte.
    pub fn set_final(&mut self, is_final: bool) {
        self.out.write(0, &[u8::from(is_final)]);
    }

    /// True if the last message received is marked.
    pub fn is_final(&self) -> bool {
        byte_at(&self.into, 0) != 0
    }

    /// True if the last message received is the one sent.
    pub fn is_echo(&self) -> bool {
        self.into.to_vec() == self.out.to_vec()
    }

    /// Returns the message to be sent, or the last one received.
    pub fn data(&self, returns: bool) -> &Region {
        if returns { &self.into } else { &self.out }
    }
}

/// Returns the strategy of the setting, as for programs.
pub fn strategy() -> Result<Box<dyn Strategy>, String> {
    let (name, variable) = (settings::STRATEGY.text(), settings::STRATEGY.variable());
    strategy::named(&name).ok_or_else(|| format!("{variable}={name}: no such strategy"))
}

/// Checks the outcome of an operation.
pub fn outcome(outcome: Outcome) -> Result<(), String> {
    if outcome == Outcome::Ok { Ok(()) } else { Err(format!("scheduled: {outcome:?}")) }
}

/// Returns a byte of memory.
pub fn byte_at(memory: &Region, offset: usize) -> u8 {
    let mut byte = [0];
    memory.read(offset, &mut byte);
    byte[0]
}

/// Returns the bytes of a message.
pub fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7) as u8).collect()
}

/// Longest message of a path: one that fits into a frame of every rail.
pub const SIZE_MAX: u32 = 4096;
