//! Observed rails, and flows of frames between them.
//!
//! An [`End`] checks what every rail promises at any moment: up once and first, down once and last, and no token that
//! was not held or that was reported before. A [`Flow`] posts numbered frames whose bytes follow from their number.
//! It overwrites their memory the moment it is free, posts again after `Full` only when told of room, and checks each
//! arrival.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cost::Cost;
use memory::{Layout, Region, Segment};
use rail::{Event, Fault, Post, Rail};
use testing::Random;
use wire::{Body, Capabilities, Frame, FrameToken, PeerId};

/// A kind of rail on which scenarios run.
pub trait Ground: Send + Sync {
    /// Returns fresh rails of processes `0..count`, which reach each other, and a function that lets time pass.
    fn field(&self, count: u32) -> Field;

    /// True if a process reaches only itself.
    fn is_alone(&self) -> bool {
        false
    }

    /// Returns the reason why this host has no rails of the kind.
    fn lack(&self) -> Option<String> {
        None
    }

    /// True if ends can be polled by threads of their own and wake each other.
    fn wakes(&self) -> bool {
        false
    }
}

/// Rails, and a function that lets time pass between their polls.
pub struct Field {
    pub rails: Vec<Box<dyn Rail>>,
    pub pass: Box<dyn FnMut() + Send>,
}

/// A rail and all its events.
pub struct End {
    pub rank: PeerId,
    pub rail: Box<dyn Rail>,
    pub peers: BTreeMap<PeerId, Seen>,
    /// Advice to the user, which depends on the limits of this host.
    advice: Option<String>,
}

/// Events of one peer.
#[derive(Default)]
pub struct Seen {
    pub capabilities: Option<Capabilities>,
    pub cost: Option<Cost>,
    pub frames: VecDeque<Vec<u8>>,
    /// Received bytes of a frame whose beginning was taken, and its length.
    coming: Option<(Vec<u8>, usize)>,
    pub down: Option<Fault>,
    pub rooms: u32,
    /// Memory of frames that the rail still holds, by token.
    held: HashMap<FrameToken, Memory>,
}

impl End {
    pub fn new(rank: u32, rail: Box<dyn Rail>) -> Self {
        Self { rank: PeerId(rank), rail, peers: BTreeMap::new(), advice: None }
    }

    /// Polls once and records the events.
    pub fn poll(&mut self) -> bool {
        let Self { rail, peers, advice, .. } = self;
        let (mut reported, mut has_ended) = (false, false);
        let moved = rail.poll(&mut |event| {
            assert!(!has_ended, "{event:?} in the poll that reported the end of a link");
            has_ended = matches!(event, Event::Down { .. });
            if let Event::Hampered { reason } = &event {
                let names_remedy = ["sysctl ", "ulimit "].iter().any(|tool| reason.contains(tool));
                assert!(names_remedy, "no remedy: {reason}");
                let earlier = advice.replace(reason.clone());
                assert_eq!(earlier, None, "advice is given once, and now again: {reason}");
            }
            reported |= note(peers, event);
        });
        assert!(moved || !reported, "something was reported, and nothing happened");
        moved
    }

    pub fn seen(&mut self, peer: PeerId) -> &mut Seen {
        self.peers.entry(peer).or_default()
    }

    pub fn is_up(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|seen| seen.capabilities.is_some())
    }

    /// Maximum length of a frame to `peer`.
    pub fn frame_max(&self, peer: PeerId) -> usize {
        self.peers[&peer].capabilities.expect("the link is up").frame_max
    }

    /// Posts a frame; its memory is overwritten as soon as the rail says that it is free.
    pub fn post(&mut self, peer: PeerId, mut load: Load) -> Result<(), Load> {
        match self.rail.post(peer, &load.frame) {
            Post::Full => return Err(load),
            Post::Done => load.memory.spoil(),
            Post::Held => {
                assert!(load.frame.body.is_some(), "a frame without body was held");
                let token = load.frame.token.expect("a token");
                let earlier = self.seen(peer).held.insert(token, load.memory);
                assert!(earlier.is_none(), "a token was used twice");
            }
        }
        Ok(())
    }

    pub fn held(&self) -> usize {
        self.peers.values().map(|seen| seen.held.len()).sum()
    }
}

/// Records an event. False if it brought nothing: no byte of a frame that is read in pieces.
fn note(peers: &mut BTreeMap<PeerId, Seen>, event: Event<'_>) -> bool {
    match event {
        Event::Up { peer, capabilities } => {
            let seen = peers.entry(peer).or_default();
            assert!(seen.down.is_none(), "up after down");
            let earlier = seen.capabilities.replace(capabilities);
            assert!(earlier.is_none(), "the link to {peer:?} came up twice");
        }
        Event::Frame { peer, bytes } => {
            let seen = open(peers, peer);
            assert!(seen.coming.is_none(), "a frame amid another");
            seen.frames.push_back(bytes.to_vec());
        }
        Event::Begun { peer, bytes, len, taken } => {
            let seen = open(peers, peer);
            assert!(seen.coming.is_none() && bytes.len() < len, "{} of {len} bytes", bytes.len());
            // Some frames are awaited whole.
            *taken = !len.is_multiple_of(3);
            seen.coming = taken.then(|| (bytes.to_vec(), len));
        }
        Event::Rest { peer, bytes } => {
            let seen = open(peers, peer);
            let (mut come, len) = seen.coming.take().expect("the rest of a frame that was begun");
            let region = memory_in_pieces(len - come.len());
            let count = bytes.store(&region);
            assert!(count <= region.len(), "{count} of {} bytes", region.len());
            come.extend_from_slice(&region.to_vec()[..count]);
            let has_come = count > 0;
            if come.len() == len {
                seen.frames.push_back(come);
            } else {
                seen.coming = Some((come, len));
            }
            return has_come;
        }
        Event::Sent { peer, token } => {
            let held = open(peers, peer).held.remove(&token);
            held.unwrap_or_else(|| panic!("{token:?} is not held")).spoil();
        }
        Event::Refused { from, reason } => panic!("{from} was refused: {reason}"),
        Event::Hampered { .. } => {}
        Event::Room { peer } => open(peers, peer).rooms += 1,
        Event::Cost { peer, cost } => {
            assert!(cost.busy_ns(1 << 20) > 0, "a megabyte takes its time");
            open(peers, peer).cost = Some(cost);
        }
        Event::Down { peer, fault } => {
            let seen = peers.entry(peer).or_default();
            assert_eq!(seen.down, None, "down twice, now by {fault:?}");
            seen.down = Some(fault);
        }
    }
    true
}

/// Returns memory of `len` bytes, some of it in short pieces or in long ones.
fn memory_in_pieces(len: usize) -> Region {
    let piece = [len.max(1), 100, 3000][len % 3];
    let all = Region::owned(2 * len);
    let starts = (0..len).step_by(piece);
    Region::chain(starts.map(|start| all.slice(2 * start, piece.min(len - start))))
}

fn open(peers: &mut BTreeMap<PeerId, Seen>, peer: PeerId) -> &mut Seen {
    let seen = peers.entry(peer).or_default();
    assert!(seen.capabilities.is_some(), "an event of {peer:?} before it is up");
    assert_eq!(seen.down, None, "an event of {peer:?} after it went down");
    seen
}

/// A frame and the memory behind it.
pub struct Load {
    pub frame: Frame,
    memory: Memory,
}

/// Memory of a frame's body, until the rail is done with it.
struct Memory(Vec<u8>);

impl Memory {
    fn spoil(&mut self) {
        self.0.fill(0xee);
    }
}

impl Load {
    /// Returns frame `number` of the stream `key`: `len` bytes in one of many shapes.
    pub fn new(key: u64, number: u64, len: usize) -> Self {
        let bytes = pattern(key, number, len);
        let mut random = Random::new(key ^ number.wrapping_mul(0x9e37));
        let head = match number % 6 {
            0 if len <= HEAD_MAX => len,
            1 => 0,
            _ => random.below(64.min(len) + 1),
        };
        let body_len = len - head;
        let shape = number % 6;
        let mut memory = Memory(vec![0x55; 3 * body_len + 64]);
        // SAFETY: each region lies inside the memory, which outlives the rail's use of it: it is
        // kept until the rail reports it free.
        let region = unsafe { describe(&mut memory.0, body_len, shape, &mut random) };
        region.write(0, &bytes[head..]);
        let body = (shape != 0 || head < len).then_some(Body { region });
        let token = Some(FrameToken(number));
        Self { frame: Frame { head: bytes[..head].to_vec(), body, token }, memory }
    }
}

/// Returns a region of `len` bytes in `memory`: flat, with holes, in many pieces (some empty), or part of such a
/// region.
///
/// # Safety
/// `memory` (at least `3 * len + 64` bytes) must stay where it is while the region is in use.
unsafe fn describe(memory: &mut [u8], len: usize, shape: u64, random: &mut Random) -> Region {
    let base = memory.as_mut_ptr();
    match shape {
        // SAFETY: the memory has at least `len` bytes, and the caller keeps it in place.
        0 | 1 => unsafe { Region::new(base, len) },
        // Elements of 3 bytes in reverse order, 7 apart; the rest follows flat.
        2 => {
            let segments = [Segment { offset: 4, len: 1 }, Segment { offset: 0, len: 2 }];
            let layout = Arc::new(Layout::new(segments, 7));
            let count = len / 3;
            // SAFETY: `count` elements of extent 7 are at most 7/3 len bytes; the rest is behind.
            unsafe {
                let holes = Region::elements(base, count, &layout);
                let rest = Region::new(base.add(7 * count), len - 3 * count);
                Region::chain([holes, rest])
            }
        }
        // Pieces of random length, every third of them empty.
        _ => {
            let whole = if shape == 5 { len + 40 } else { len };
            let mut parts = Vec::new();
            let (mut done, mut at) = (0, 0);
            while done < whole {
                let piece = random.below(1 + whole / 90).clamp(1, whole - done);
                // SAFETY: pieces and the gaps between them fit three times their length.
                parts.push(unsafe { Region::new(base.add(at), piece) });
                if random.below(3) == 0 {
                    parts.push(Region::empty());
                }
                done += piece;
                at += piece + random.below(2);
            }
            let chain = Region::chain(parts);
            if shape == 5 { chain.slice(20, len) } else { chain }
        }
    }
}

/// Returns the bytes of frame `number` of the stream `key`.
pub fn pattern(key: u64, number: u64, len: usize) -> Vec<u8> {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut random = Random::new(1);
        (0..NOISE_LEN / 8).flat_map(|_| random.next().to_le_bytes()).collect()
    });
    let from = Random::new(key.rotate_left(32) ^ number).below(NOISE_LEN - len);
    noise[from..from + len].to_vec()
}

/// Frames from one end to another, and their arrival.
pub struct Flow {
    pub from: usize,
    pub to: usize,
    sizes: Vec<usize>,
    posted: usize,
    arrived: usize,
    /// Refused frame, not to be posted again before there is room.
    refused: Option<(Load, u32)>,
    pub refusals: usize,
}

impl Flow {
    pub fn new(from: usize, to: usize, sizes: Vec<usize>) -> Self {
        Self { from, to, sizes, posted: 0, arrived: 0, refused: None, refusals: 0 }
    }

    fn key(&self) -> u64 {
        (self.from as u64) << 20 | self.to as u64
    }

    pub fn is_done(&self) -> bool {
        self.arrived == self.sizes.len()
    }

    pub fn arrived(&self) -> usize {
        self.arrived
    }

    pub fn is_posted(&self) -> bool {
        self.posted == self.sizes.len()
    }

    /// Posts until all is posted or the rail is full.
    pub fn post(&mut self, ends: &mut [End]) {
        let to = ends[self.to].rank;
        let key = self.key();
        let end = &mut ends[self.from];
        while self.posted < self.sizes.len() {
            let load = match self.refused.take() {
                Some((load, rooms)) if end.seen(to).rooms == rooms => {
                    self.refused = Some((load, rooms));
                    return;
                }
                Some((load, _)) => load,
                None => Load::new(key, self.posted as u64, self.sizes[self.posted]),
            };
            let rooms = end.seen(to).rooms;
            match end.post(to, load) {
                Ok(()) => self.posted += 1,
                Err(load) => {
                    self.refusals += 1;
                    self.refused = Some((load, rooms));
                }
            }
        }
    }

    /// Checks the frames that have arrived.
    pub fn check(&mut self, ends: &mut [End]) {
        let from = ends[self.from].rank;
        while let Some(bytes) = ends[self.to].seen(from).frames.pop_front() {
            let len = *self.sizes.get(self.arrived).expect("a frame nobody sent");
            let number = self.arrived as u64;
            assert_eq!(bytes.len(), len, "length of frame {number} of {from:?}");
            assert!(bytes == pattern(self.key(), number, len), "bytes of frame {number}, {len} B");
            self.arrived += 1;
        }
    }
}

/// A scenario's limit in time.
pub struct Limit(Instant);

impl Limit {
    pub fn new() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    pub fn check(&self, what: &str) {
        assert!(Instant::now() < self.0, "not within {PATIENCE:?}: {what}");
    }
}

/// Length of the noise from which frames are cut.
const NOISE_LEN: usize = 4 << 20;

/// The longest head posted: engines keep packets and short payloads there.
const HEAD_MAX: usize = 4096;

/// Time limit far above the need of any scenario.
pub const PATIENCE: Duration = Duration::from_secs(60);
