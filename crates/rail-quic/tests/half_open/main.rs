//! Thousands of half-open QUIC connections: peers of the job are served, and the memory for the others is bounded,
//! measured at the allocator.

#[path = "../initials/mod.rs"]
mod initials;
#[path = "../job/mod.rs"]
mod job;

use std::time::Instant;

use initials::{AT_ONCE, HalfOpenClients};
use job::{PATIENCE, identity, rail};
use peak_alloc::PeakAlloc;
use rail::{Event, Post, Rail, Refusal};
use rail_quic::QuicRail;
use wire::{Frame, PeerId};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The file has one test, so that nothing else allocates meanwhile.
#[test]
fn half_open_connections_take_little_memory_and_keep_no_peer_out() {
    let mut ranks = ServedRanks::new();
    let port = u16::from_le_bytes(*ranks.rails[0].address().last_chunk().unwrap());
    let mut clients = HalfOpenClients::new(([127, 0, 0, 1], port).into(), &identity());
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    // Some send one packet and no more; others prove their address and fall silent then.
    for answers in [false, true] {
        for _ in 0..CLIENTS / AT_ONCE {
            clients.begin(answers);
            ranks.poll_all();
            if answers {
                clients.answer(|| ranks.poll_all());
            }
        }
    }
    let taken = ALLOCATOR.peak_usage() - before;
    assert!(taken <= TAKEN_MAX, "{taken} bytes");
    assert!(clients.answered >= CLIENTS / 2, "{} have answered", clients.answered);
    let refused = ranks.refused.iter().filter(|refusal| **refusal == Refusal::TooMany).count();
    assert!(refused >= clients.answered - PENDING_MAX, "{refused} of {}", clients.answered);

    // The table is full. A peer that connects now gets in while more of them come.
    let rounds = ranks.rounds;
    ranks.add(2);
    let limit = Instant::now() + PATIENCE;
    while !ranks.is_up[2] {
        clients.begin(true);
        clients.answer(|| ranks.poll_all());
        assert!(Instant::now() < limit, "a peer of the job is kept out");
    }
    ranks.until(|ranks| ranks.rounds >= rounds + 100);
    println!("{taken} bytes for {refused} refused");
}

/// ServedRanks 0 and 1, which exchange frames without end, while others call rank 0.
struct ServedRanks {
    rails: Vec<QuicRail>,
    is_up: Vec<bool>,
    rounds: usize,
    refused: Vec<Refusal>,
}

impl ServedRanks {
    fn new() -> Self {
        let refused = Vec::with_capacity(4 * CLIENTS);
        let mut ranks = Self { rails: vec![rail(0)], is_up: vec![true], rounds: 0, refused };
        ranks.add(1);
        ranks.until(|ranks| ranks.is_up[1]);
        ranks.send(1);
        ranks.until(|ranks| ranks.rounds > 100);
        ranks
    }

    fn add(&mut self, rank: u32) {
        let mut rail = rail(rank);
        rail.connect(PeerId(0), &self.rails[0].address()).unwrap();
        self.rails.push(rail);
        self.is_up.push(false);
    }

    fn send(&mut self, from: usize) {
        let frame = Frame { head: vec![7; 1000], body: None, token: None };
        assert_eq!(self.rails[from].post(PeerId(1 - from as u32), &frame), Post::Done);
    }

    fn poll_all(&mut self) {
        for rank in 0..self.rails.len() {
            let mut has_frame = false;
            let Self { rails, is_up, refused, .. } = self;
            rails[rank].poll(&mut |event| match event {
                Event::Up { .. } => is_up[rank] = true,
                Event::Frame { .. } => has_frame = true,
                Event::Refused { reason, .. } => refused.push(reason),
                Event::Down { peer, fault } => panic!("{peer:?}: {fault:?}"),
                _ => {}
            });
            if has_frame {
                self.rounds += 1;
                self.send(rank);
            }
        }
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !is_so(self) {
            self.poll_all();
            assert!(Instant::now() < limit, "refused: {:?}", self.refused);
        }
    }
}

/// Number of connections of each kind.
const CLIENTS: usize = 3000;
/// Number of half-open connections that a rail keeps until they authenticate, as in `quic::handshake`.
const PENDING_MAX: usize = 128;
const TAKEN_MAX: usize = 16 << 20;
