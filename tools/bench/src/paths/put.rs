//! The path of a put through engine and progress.

use std::io::{BufRead, Write};
use std::sync::Arc;

use engine::{OpId, PutTo, Short};
use memory::Region;
use progress::Progress;
use rail::Rail;
use wire::{PeerId, RemoteKey};

use super::below_progress::open_progress;
use super::link::pause;
use super::message::{MessagePath, Messages, SIZE_MAX, byte_at, outcome, pattern};
use super::pair::PeerPipes;

/// Puts into memory that the receiver polls. The last byte of each message differs from that of the message
/// before; over one link, it arrives last.
pub struct PutPath {
    progress: Arc<Progress>,
    peer: PeerId,
    /// Receive without a message, which fails with the peer.
    watch: OpId,
    /// Exposed memory. Messages of all sizes end where it ends, so their last byte is always the same one.
    memory: Region,
    /// Key of the peer's exposed memory.
    key: RemoteKey,
    out: Region,
    /// Place of messages received.
    into: Region,
    is_final: bool,
    /// Number of messages sent.
    count: u8,
    /// Last byte of the last message received.
    seen: u8,
    /// True if both processes have one core.
    shares_core: bool,
}

impl PutPath {
    /// Exposes memory and exchanges its keys; the link opens when it is first used.
    pub fn open(
        rail: Box<dyn Rail>,
        rank: u32,
        cores: usize,
        address: Vec<u8>,
        other: &mut PeerPipes<impl BufRead, impl Write>,
    ) -> Result<Self, String> {
        let progress = open_progress(rail, rank, cores, address)?;
        let memory = Region::owned(MEMORY_LEN);
        let own = progress.submit(|worker| worker.engine.expose(memory.clone()));
        other.tell(&(own.index, own.generation))?;
        let (index, generation) = other.hear()?;
        let key = RemoteKey { index, generation };
        let Messages { peer, selector, .. } = Messages::of(rank);
        let watch = progress
            .submit(|worker| worker.engine.submit_receive(Some(peer), selector, &Region::empty()));
        let [out, into] = [Region::empty(), Region::empty()];
        let (is_final, count, seen, shares_core) = (false, 0, 0, cores == 1);
        Ok(Self {
            progress,
            peer,
            watch,
            memory,
            key,
            out,
            into,
            is_final,
            count,
            seen,
            shares_core,
        })
    }

    /// Returns the byte that tells messages apart, with room for the mark of the final ones.
    fn last_byte(&self) -> u8 {
        self.count << 1 | u8::from(self.is_final)
    }
}

impl MessagePath for PutPath {
    fn prepare(&mut self, size: usize) {
        self.out = Region::from_box(pattern(size).into());
        self.into = self.memory.slice(MEMORY_LEN - size, size);
    }

    fn set_final(&mut self, is_final: bool) {
        self.is_final = is_final;
    }

    fn is_final(&self) -> bool {
        self.seen & 1 != 0
    }

    fn is_echo(&self) -> bool {
        self.into.to_vec() == self.out.to_vec()
    }

    fn send(&mut self, returns: bool) -> Result<(), String> {
        if !returns {
            self.count = self.count.wrapping_add(1);
            self.out.write(self.out.len() - 1, &[self.last_byte()]);
        }
        let Self { progress, peer, key, .. } = self;
        let data = if returns { &self.into } else { &self.out };
        let to = PutTo { key: *key, offset: (MEMORY_LEN - data.len()) as u64 };
        if progress.access_short(*peer, Short::Put(to), data) {
            return Ok(());
        }
        let put = progress.submit_and_wait(
            |worker| worker.engine.submit_put(*peer, to, data),
            |worker, &op| worker.engine.take(op),
        );
        outcome(put.outcome)
    }

    fn receive(&mut self) -> Result<(), String> {
        let Self { progress, watch, memory, seen, shares_core, .. } = self;
        let mut polls: u32 = 0;
        loop {
            // The progress thread writes to the memory, too, but only with the lock that the question has.
            let (byte, has_ended) = progress.test(|worker| {
                (byte_at(memory, MEMORY_LEN - 1), worker.engine.is_complete(*watch))
            });
            if byte != *seen {
                *seen = byte;
                return Ok(());
            }
            if has_ended {
                return Err("the other process has ended".into());
            }
            polls += 1;
            // `Progress::pause` would sleep where others want the cores, and a put does not end that sleep.
            pause(polls, || *shares_core);
        }
    }
}

impl Drop for PutPath {
    /// Ends the progress thread, which keeps the link while it sleeps on the rails for exposed memory.
    fn drop(&mut self) {
        self.progress.end_threads();
    }
}

/// Length of exposed memory, that of the longest message.
const MEMORY_LEN: usize = SIZE_MAX as usize;
