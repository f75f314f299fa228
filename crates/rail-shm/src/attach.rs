//! Attaching to peers: announcing a ring in the inbox of each, and finding the rings that they announce.
//!
//! Processes of a job know each other by the number of the job, which is in their inboxes. The kernel lets only
//! processes of the same user find these. A process of another job also proves the key of the two jobs with each ring
//! that it announces. Its link is up once both rings are proved, and a ring without the right proof is refused.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use auth::{ANSWER_LEN, HELLO_LEN, Hello, SEAL_LEN};
use lock::Uncancelled;
use memory::Region;
use rail::RailError;
use wire::{Capabilities, PeerId, RemoteRegion};

use crate::inbox::{COUNT_AT, INBOX_LEN, JOB_AT, OWN_ADDRESS_AT, PEERS_MAX, SLOTS_AT, TOKEN_AT};
use crate::liveness::Liveness;
use crate::node::Address;
use crate::ring::{Consumer, HEADER_AT, HEADER_LEN, Producer, SEGMENT_LEN};
use crate::segment::{Segment, open_descriptor};
use crate::shared::Shared;
use crate::shortage::is_shortage;
use crate::sleep::Fences;
use crate::{CAPABILITIES, ShmLink, ShmRail, ShmReport, process_memory, ring};

/// The creator of a ring, as its header tells.
enum Creator {
    /// A rank of the job.
    Rank(PeerId),
    /// A process of another job, which the hello names, and its proof.
    Other(Hello, [u8; SEAL_LEN]),
}

impl ShmRail {
    /// The link to a peer, unless it is one to another job that has ended: such a link may open again.
    pub(super) fn usable_link(&self, peer: PeerId) -> Option<usize> {
        let may_reopen = self.other_jobs.process(peer).is_some();
        self.link(peer).filter(|&index| !(may_reopen && self.links[index].down))
    }

    /// Attaches to a peer's inbox and announces a ring there. The link is up if the peer is proved.
    pub(super) fn attach(
        &mut self,
        peer: PeerId,
        address: &Address,
        is_proved: bool,
    ) -> Result<usize, RailError> {
        let _uncancelled = Uncancelled::begin();
        if address.identity != self.address.identity {
            return Err(RailError::Unreachable("another node".into()));
        }
        let inbox = Segment::attach(address.pid, address.inbox, INBOX_LEN)
            .map_err(unattached("the peer's inbox"))?;
        let other = self.other_jobs.process(peer);
        let job = other.map_or(self.job, |process| u128::from(process.job).to_le_bytes());
        if inbox.slice(TOKEN_AT, 16) != address.token || inbox.slice(JOB_AT, 16) != job {
            return Err(RailError::Unreachable("the peer's inbox is another's".into()));
        }
        let doorbell = open_descriptor(address.pid, address.doorbell)
            .map_err(unattached("the peer's doorbell"))?;
        let mut segment = Segment::create(SEGMENT_LEN)
            .map_err(|source| RailError::System { call: "shared memory for a ring", source })?;
        segment.write(HEADER_AT, &self.ring_header(peer, address));
        let producer = Producer::new(segment);
        let remote_read = can_remote_read(address, &inbox);
        self.announce(&inbox, producer.segment())?;
        let pid = address.pid;
        let link = ShmLink {
            peer,
            pid,
            producer,
            liveness: Liveness::of(pid),
            consumer: None,
            fences: Fences::between(&self.inbox, &inbox),
            inbox,
            doorbell,
            remote_read,
            is_proved: false,
            refused: false,
            down: false,
            is_over: false,
            streamed: 0,
            rest: None,
        };
        let index = 1 + self.place(link);
        if self.by_peer.len() <= peer.0 as usize {
            self.by_peer.resize(peer.0 as usize + 1, 0);
        }
        self.by_peer[peer.0 as usize] = index as u32;
        if is_proved {
            self.note_proved(index - 1);
        }
        self.links[index - 1].introduce();
        Ok(index - 1)
    }

    /// Stores a link. It takes the place, memory and descriptors of one to an ended process of another job, of which there
    /// may be any number in the life of this one.
    fn place(&mut self, link: ShmLink) -> usize {
        let is_free = |old: &ShmLink| old.is_over && self.other_jobs.process(old.peer).is_some();
        let Some(index) = self.links.iter().position(is_free) else {
            self.links.push(link);
            return self.links.len() - 1;
        };
        let old = std::mem::replace(&mut self.links[index], link);
        // Unless the peer has a newer link.
        let known = &mut self.by_peer[old.peer.0 as usize];
        if *known == index as u32 + 1 {
            *known = 0;
        }
        index
    }

    /// Reports a link to a process that is the one it claims to be.
    fn note_proved(&mut self, index: usize) {
        let ShmLink { peer, remote_read, is_proved, .. } = &mut self.links[index];
        if !std::mem::replace(is_proved, true) {
            let capabilities = Capabilities { remote_read: *remote_read, ..CAPABILITIES };
            self.events.push_back(ShmReport::Up(*peer, capabilities));
        }
    }

    /// Rank and address of this process, and a proof for a process of another job, for the header of a ring that `peer`
    /// finds at its `address`.
    fn ring_header(&self, peer: PeerId, address: &Address) -> Vec<u8> {
        let own = self.address.emit();
        let hello = self.other_jobs.process(peer).zip(self.other_jobs.with(peer)).map(
            |(process, credentials)| {
                // Nothing is repeated: the tokens of both inboxes are as fresh as a nonce.
                let hello = credentials.hello(PeerId(process.rank), false, 0, [0; 32]);
                let seal = credentials.seal(&hello, &NO_ANSWER, &sealed(&address.token, &own));
                [&hello[..], &seal].concat()
            },
        );
        let rank = if hello.is_some() { OTHER_JOB } else { self.rank.0 };
        let mut bytes = rank.to_le_bytes().to_vec();
        bytes.extend((own.len() as u32).to_le_bytes());
        bytes.extend(own);
        bytes.extend(hello.unwrap_or_default());
        debug_assert!(bytes.len() <= HEADER_LEN);
        bytes
    }

    fn announce(&self, inbox: &Segment, ring: &Segment) -> Result<(), RailError> {
        let slot = inbox.word32(COUNT_AT).fetch_add(1, Ordering::Relaxed);
        if slot >= PEERS_MAX {
            let text = format!("the peer has {PEERS_MAX} neighbours already");
            return Err(RailError::Unreachable(text));
        }
        let entry = u64::from(self.address.pid as u32) << 32 | ring.descriptor() as u64;
        inbox.word64(SLOTS_AT + 8 * slot as usize).store(entry, Ordering::Release);
        Ok(())
    }

    /// Attaches to the rings that peers have announced since the last call.
    #[inline]
    pub(super) fn attach_announced(&mut self) -> bool {
        let count = self.inbox.word32(COUNT_AT).load(Ordering::Acquire).min(PEERS_MAX);
        let mut moved = false;
        while self.announced < count {
            let slot = self.inbox.word64(SLOTS_AT + 8 * self.announced as usize);
            let entry = slot.load(Ordering::Acquire);
            if entry == 0 {
                break;
            }
            if !self.shortage.is_over() {
                break;
            }
            // Another ring that cannot be attached belongs to a peer that has ended.
            if let Err(RailError::System { source, .. }) =
                self.receive_ring((entry >> 32) as i32, entry as i32)
            {
                let text = self.shortage.note(&source);
                self.events.extend(text.map(ShmReport::Hampered));
                break;
            }
            self.announced += 1;
            moved = true;
        }
        if moved && let Some(cursors) = &self.cursors {
            cursors.note_announced(self.announced);
        }
        moved
    }

    #[cold]
    fn receive_ring(&mut self, pid: i32, fd: i32) -> Result<(), RailError> {
        let segment =
            Segment::attach(pid, fd, SEGMENT_LEN).map_err(unattached("the peer's ring"))?;
        // Its creator may change it meanwhile.
        let header = segment.slice(HEADER_AT, HEADER_LEN).to_vec();
        let malformed = || RailError::Unreachable("a ring without introduction".into());
        let (creator, address) = parse_ring_header(&header).ok_or_else(malformed)?;
        let mut consumer = Consumer::new(segment, pid);
        let Some(peer) = self.peer_of(&creator, &address) else {
            consumer.refuse();
            // The other end may sleep until it knows.
            if let Ok(doorbell) = open_descriptor(address.pid, address.doorbell) {
                ring(&doorbell);
            }
            return Err(RailError::Unreachable("a ring of a stranger".into()));
        };
        let index = match self.usable_link(peer) {
            Some(index) => index,
            None => self.attach(peer, &address, true)?,
        };
        self.note_proved(index);
        if let Some(cursors) = &self.cursors {
            let at = Arc::clone(consumer.publish_cursor());
            cursors.add(consumer.segment(), &at);
        }
        self.links[index].consumer = Some(consumer);
        Ok(())
    }

    /// The peer that has created a ring, if it is the one it claims to be.
    fn peer_of(&self, creator: &Creator, address: &Address) -> Option<PeerId> {
        match creator {
            Creator::Rank(peer) => self.other_jobs.process(*peer).is_none().then_some(*peer),
            Creator::Other(hello, seal) => {
                let peer = self.other_jobs.check_hello(hello).ok()?.peer;
                let sealed = sealed(&self.address.token, &address.emit());
                let is_right = |it: &auth::Credentials| {
                    it.check_seal(hello, &NO_ANSWER, &sealed, seal).is_ok()
                };
                self.other_jobs.with(peer).is_some_and(is_right).then_some(peer)
            }
        }
    }
}

/// Returns the error for something of a peer that cannot be attached: this process lacks a resource, or the peer has it
/// no more.
fn unattached(what: &'static str) -> impl Fn(io::Error) -> RailError {
    move |source| match is_shortage(&source) {
        true => RailError::System { call: what, source },
        false => RailError::Unreachable(format!("{what}: {source}")),
    }
}

/// Returns what a proof covers besides the hello: for whom the ring is, and where its creator is.
fn sealed(token: &[u8; 16], address: &[u8]) -> Vec<u8> {
    [token, address].concat()
}

fn parse_ring_header(header: &[u8]) -> Option<(Creator, Address)> {
    let (rank, rest) = header.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (address, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    let address = Address::parse(address)?;
    match u32::from_le_bytes(*rank) {
        OTHER_JOB => {
            let (hello, rest) = rest.split_first_chunk::<HELLO_LEN>()?;
            let (seal, _) = rest.split_first_chunk::<SEAL_LEN>()?;
            Some((Creator::Other(*hello, *seal), address))
        }
        rank => (rank < RANKS_MAX).then_some((Creator::Rank(PeerId(rank)), address)),
    }
}

/// True if the kernel lets this process read the peer's memory. The test reads the token of the peer's inbox, at the
/// address that the peer has published there.
fn can_remote_read(address: &Address, inbox: &Segment) -> bool {
    let remote = inbox.word64(OWN_ADDRESS_AT).load(Ordering::Acquire);
    if remote == 0 {
        return false;
    }
    let target = Region::owned(16);
    let remote = RemoteRegion { address: remote, len: 16 };
    let read = process_memory::copy_from_process(address.pid, remote, 0, &target);
    read.is_ok() && target.to_vec() == address.token
}

/// Maximum rank, so that a malformed ring header cannot request much memory.
const RANKS_MAX: u32 = 1 << 22;

/// Rank in the header of a ring whose creator is of another job.
const OTHER_JOB: u32 = u32::MAX;

/// A ring is announced without an answer before.
const NO_ANSWER: [u8; ANSWER_LEN] = [0; ANSWER_LEN];
