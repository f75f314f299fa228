//! Connections over QUIC that are begun by the thousand and go no further: those of the job are served, and
//! what the rail keeps of the others is bounded, measured at the allocator.

#[path = "../initials/mod.rs"]
mod initials;

use std::time::{Duration, Instant};

use driver::{Event, Identity, Post, QuicConfig, QuicRail, Rail, Refusal};
use initials::{AT_ONCE, Strangers};
use peak_alloc::PeakAlloc;
use wire::{Frame, PeerId};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// One test, so that nobody else allocates meanwhile.
#[test]
fn the_half_open_take_little_and_keep_nobody_out() {
    let mut ranks = Ranks::new();
    let port = u16::from_le_bytes(*ranks.rails[0].address().last_chunk().unwrap());
    let mut strangers = Strangers::new(([127, 0, 0, 1], port).into(), &Identity::of(&SECRET, JOB));
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    // Some say one word and no more; others show that they are where they say to be, and fall silent then.
    for answers in [false, true] {
        for _ in 0..STRANGERS / AT_ONCE {
            strangers.begin(answers);
            ranks.take_a_turn();
            if answers {
                strangers.answer(|| ranks.take_a_turn());
            }
        }
    }
    let taken = ALLOCATOR.peak_usage() - before;
    assert!(taken <= TAKEN_MAX, "{taken} bytes");
    assert!(strangers.answered >= STRANGERS / 2, "{} have answered", strangers.answered);
    let refused = ranks.refused.iter().filter(|refusal| **refusal == Refusal::TooMany).count();
    assert!(refused >= strangers.answered - KEPT, "{refused} of {}", strangers.answered);

    // The place is full. A peer that comes now gets in while more of them do.
    let rounds = ranks.rounds;
    ranks.add(2);
    let limit = Instant::now() + PATIENCE;
    while !ranks.is_up[2] {
        strangers.begin(true);
        strangers.answer(|| ranks.take_a_turn());
        assert!(Instant::now() < limit, "a peer of the job is kept out");
    }
    ranks.until(|ranks| ranks.rounds >= rounds + 100);
    println!("{taken} bytes for {refused} refused");
}

/// Ranks 0 and 1 exchange frames without end; strangers call rank 0, and so may others of the job.
struct Ranks {
    rails: Vec<QuicRail>,
    is_up: Vec<bool>,
    rounds: usize,
    refused: Vec<Refusal>,
}

impl Ranks {
    fn new() -> Self {
        let refused = Vec::with_capacity(4 * STRANGERS);
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

    fn take_a_turn(&mut self) {
        for rank in 0..self.rails.len() {
            let mut has_come = false;
            let Self { rails, is_up, refused, .. } = self;
            rails[rank].poll(&mut |event| match event {
                Event::Up { .. } => is_up[rank] = true,
                Event::Frame { .. } => has_come = true,
                Event::Refused { reason, .. } => refused.push(reason),
                Event::Down { peer, fault } => panic!("{peer:?}: {fault:?}"),
                _ => {}
            });
            if has_come {
                self.rounds += 1;
                self.send(rank);
            }
        }
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !is_so(self) {
            self.take_a_turn();
            assert!(Instant::now() < limit, "refused: {:?}", self.refused);
        }
    }
}

fn rail(rank: u32) -> QuicRail {
    QuicRail::new(QuicConfig {
        rank: PeerId(rank),
        job: JOB,
        identity: Identity::of(&SECRET, JOB),
        interface: Some("127.0.0.1".into()),
        connect_timeout: PATIENCE,
        passes: false,
    })
    .unwrap()
}

const JOB: u64 = 9;
const SECRET: [u8; 32] = [3; 32];
/// Of either kind.
const STRANGERS: usize = 3000;
/// Whom a rail keeps until they have said who they are, as `quic::proving` has it.
const KEPT: usize = 128;
const TAKEN_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
