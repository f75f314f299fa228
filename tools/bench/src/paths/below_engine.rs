//! The path through the engine.

use engine::{Config, Engine, OpId, Posted, SendMode};
use rail::{Event, Post, Rail};
use wire::{Frame, PeerId, RailId};

use super::link::{open_link, pause, shares_core};
use super::message::{MessagePath, Messages, outcome, strategy};

/// A rail below the engine, without a lock, other threads, or sleep.
pub struct RailBelowEngine {
    engine: Engine,
    rail: Box<dyn Rail>,
    frame: Frame,
    messages: Messages,
}

impl RailBelowEngine {
    /// Opens its link.
    pub fn open(mut rail: Box<dyn Rail>, rank: u32, address: &[u8]) -> Result<Self, String> {
        let mut engine = Engine::new(Config { strategy: strategy()?, ..Config::new(2) });
        let capabilities = open_link(&mut *rail, rank, address)?;
        engine.handle_up(PeerId(1 - rank), ONLY, capabilities);
        Ok(Self { engine, rail, frame: Frame::default(), messages: Messages::of(rank) })
    }

    /// Polls the rail and sends the resulting frames.
    fn advance(&mut self) -> Result<(), String> {
        let Self { engine, rail, .. } = self;
        let mut failure = None;
        rail.poll(&mut |event| match event {
            Event::Frame { peer, bytes } => {
                if let Err(error) = engine.handle_frame(peer, ONLY, bytes) {
                    failure = Some(error.to_string());
                }
            }
            Event::Begun { peer, bytes, len, taken } => {
                match engine.handle_beginning(peer, ONLY, bytes, len) {
                    Ok(is_taken) => *taken = is_taken,
                    Err(error) => failure = Some(error.to_string()),
                }
            }
            Event::Rest { peer, bytes } => {
                if let Err(error) = engine.handle_rest(peer, ONLY, bytes) {
                    failure = Some(error.to_string());
                }
            }
            Event::Sent { peer, token } => engine.handle_sent(peer, ONLY, token),
            Event::Room { peer } => engine.handle_room(peer, ONLY),
            Event::Cost { peer, cost } => engine.handle_cost(peer, ONLY, cost),
            Event::Down { fault, .. } => failure = Some(format!("link down: {fault:?}")),
            Event::Up { .. } | Event::Refused { .. } | Event::Hampered { .. } => {}
        });
        self.flush();
        failure.map_or(Ok(()), Err)
    }

    fn flush(&mut self) {
        while let Some((peer, rail)) = self.engine.poll_peer() {
            while self.engine.poll_frame(peer, rail, &mut self.frame) && self.post(peer) {}
        }
    }

    /// Posts the frame; false when the rail has no room.
    fn post(&mut self, peer: PeerId) -> bool {
        let posted = match self.rail.post(peer, &self.frame) {
            Post::Done => Posted::Done,
            Post::Held => Posted::Held,
            Post::Full => Posted::Full,
        };
        self.engine.handle_posted(peer, ONLY, &mut self.frame, posted);
        posted != Posted::Full
    }

    fn wait(&mut self, op: OpId) -> Result<(), String> {
        let mut polls: u32 = 0;
        loop {
            if let Some(ended) = self.engine.take(op) {
                return outcome(ended.outcome);
            }
            self.advance()?;
            polls += 1;
            pause(polls, || shares_core(&mut *self.rail));
        }
    }
}

impl MessagePath for RailBelowEngine {
    fn prepare(&mut self, size: usize) {
        self.messages.prepare(size);
    }

    fn set_final(&mut self, is_final: bool) {
        self.messages.set_final(is_final);
    }

    fn is_final(&self) -> bool {
        self.messages.is_final()
    }

    fn is_echo(&self) -> bool {
        self.messages.is_echo()
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        let Self { engine, frame, messages, .. } = self;
        let Messages { peer, envelope, .. } = *messages;
        if engine.submit_short(peer, envelope, messages.data(returns), frame).is_some() {
            self.post(peer);
            return Ok(());
        }
        let data = messages.data(returns);
        let op = engine.submit_send(peer, envelope, data, SendMode::Standard);
        self.flush();
        self.wait(op)
    }

    fn receive(&mut self) -> Result<(), String> {
        let Messages { peer, selector, ref into, .. } = self.messages;
        let op = self.engine.submit_receive(Some(peer), selector, into);
        self.wait(op)
    }
}

/// Identifier of the only rail of an engine.
const ONLY: RailId = RailId(0);
