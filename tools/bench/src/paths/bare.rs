//! The path over a bare rail.

use memory::Region;
use rail::{Event, Post, Rail};
use wire::{Frame, PeerId};

use super::link::{open_link, pause, shares_core};
use super::message::{MessagePath, pattern};

/// A rail and nothing else.
pub struct BareRail {
    rail: Box<dyn Rail>,
    peer: PeerId,
    frame: Frame,
    out: Vec<u8>,
    into: Vec<u8>,
    /// Bytes received of a cut-through message.
    come: usize,
}

impl BareRail {
    /// Opens its link.
    pub fn open(mut rail: Box<dyn Rail>, rank: u32, address: &[u8]) -> Result<Self, String> {
        open_link(&mut *rail, rank, address)?;
        let peer = PeerId(1 - rank);
        Ok(Self { rail, peer, frame: Frame::default(), out: Vec::new(), into: Vec::new(), come: 0 })
    }

    /// Takes a message, if one has arrived.
    fn take(&mut self) -> Option<Result<(), String>> {
        let Self { rail, into, come, .. } = self;
        let mut outcome = None;
        rail.poll(&mut |event| match event {
            Event::Begun { bytes, len, taken, .. } if len == into.len() => {
                into[..bytes.len()].copy_from_slice(bytes);
                (*come, *taken) = (bytes.len(), true);
            }
            Event::Rest { bytes, .. } => {
                let rest = Region::owned(into.len() - *come);
                let count = bytes.store(&rest).min(rest.len());
                rest.read(0, &mut into[*come..][..count]);
                *come += count;
                if *come == into.len() {
                    outcome = Some(Ok(()));
                }
            }
            Event::Frame { bytes, .. } if bytes.len() == into.len() => {
                into.copy_from_slice(bytes);
                outcome = Some(Ok(()));
            }
            Event::Frame { bytes, .. } => {
                outcome = Some(Err(format!("{} bytes came", bytes.len())));
            }
            Event::Down { fault, .. } => outcome = Some(Err(format!("link down: {fault:?}"))),
            Event::Begun { .. }
            | Event::Up { .. }
            | Event::Sent { .. }
            | Event::Room { .. }
            | Event::Cost { .. }
            | Event::Refused { .. }
            | Event::Hampered { .. } => {}
        });
        outcome
    }
}

impl MessagePath for BareRail {
    fn prepare(&mut self, size: usize) {
        self.out = pattern(size);
        self.into = vec![0; size];
    }

    fn set_final(&mut self, is_final: bool) {
        self.out[0] = u8::from(is_final);
    }

    fn is_final(&self) -> bool {
        self.into[0] != 0
    }

    fn is_echo(&self) -> bool {
        self.into == self.out
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        self.frame.clear();
        self.frame.head.extend_from_slice(if returns { &self.into } else { &self.out });
        match self.rail.post(self.peer, &self.frame) {
            Post::Done | Post::Held => Ok(()),
            Post::Full => Err("the bare rail has no room for one message".into()),
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut polls: u32 = 0;
        loop {
            if let Some(outcome) = self.take() {
                return outcome;
            }
            polls += 1;
            pause(polls, || shares_core(&mut *self.rail));
        }
    }
}
