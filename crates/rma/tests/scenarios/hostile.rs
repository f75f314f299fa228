//! Damaged frames of a peer: nothing panics, and no byte is written that the window does not cover.

use std::sync::Arc;

use engine::{Config, Engine};
use memory::Region;
use progress::{Policy, Progress, Worker};
use rail::{LoopbackRail, SimPath};
use rma::{Served, Window, WindowMemory};
use testing::{Random, seeds};
use wire::{PeerId, RailId};

use crate::{Addresses, Flavor, Links, Scenario, ScenarioResult};

#[test]
fn damaged_frames_write_nothing_outside_the_window() {
    let (mut program, mut refused) = (None, 0);
    for seed in seeds(1500) {
        // A hundred seeds damage the frames of one program.
        let number = seed / 100;
        if program.as_ref().is_none_or(|(known, _)| *known != number) {
            program = Some((number, record(number)));
        }
        let (_, ScenarioResult { frames, window_len, .. }) = program.as_ref().expect("a program");
        let mut victim = Victim::new(*window_len);
        let at = frames.len() * (seed % 100) as usize / 100;
        // The frames before are as they were.
        frames[..at].iter().for_each(|frame| assert!(victim.hears(frame), "a sound frame"));
        let mut random = Random::new(!seed);
        for frame in mutate(&mut random, &frames[at], frames) {
            refused += u32::from(!victim.hears(&frame));
        }
        victim.check();
    }
    assert!(testing::is_seed_given() || refused > 300, "{refused} frames were refused");
}

/// Runs a program of two ranks, of which only rank 0 submits operations: the first from a seed on that sends frames.
fn record(seed: u64) -> ScenarioResult {
    let run = |seed| {
        let sound = Scenario::new(seed, Links::Sound);
        Scenario { size: 2, flavor: Flavor::Own, is_of_one: true, ..sound }.run()
    };
    let mut results = (seed..).map(run);
    results.find(|result| !result.frames.is_empty()).expect("a program that sends frames")
}

/// Rank 1, which hears of rank 0 what a test says.
struct Victim {
    progress: Arc<Progress>,
    window: Window,
    /// The window, and bytes on both sides of it.
    memory: Region,
}

impl Victim {
    fn new(window_len: usize) -> Self {
        let own = PeerId(1);
        let rail = Box::new(LoopbackRail::new(own).expect("a rail to oneself"));
        let engine = Engine::new(Config::new(2));
        let worker = Worker::new(engine, own, 2, vec![rail], Box::new(Addresses(own)));
        let progress =
            Progress::new(worker.silenced(), Policy::for_node(2, 2)).expect("descriptors");
        progress.end_threads();
        let memory = Region::owned(window_len + 2 * BESIDE);
        let served = Served::new(&progress);
        let exposed = WindowMemory::Own(memory.slice(BESIDE, window_len));
        let (window, _) = Window::expose(&progress, &served, 1, exposed, 1);
        let capabilities = SimPath::default().capabilities;
        progress.look(|worker| worker.engine.handle_up(PeerId(0), RAIL, capabilities));
        Self { progress, window, memory }
    }

    /// True if a frame is taken.
    fn hears(&mut self, frame: &[u8]) -> bool {
        self.progress.look(|worker| worker.engine.handle_frame(PeerId(0), RAIL, frame).is_ok())
    }

    fn check(self) {
        let len = self.memory.len();
        for beside in [0, len - BESIDE] {
            let bytes = self.memory.slice(beside, BESIDE).to_vec();
            assert!(bytes.iter().all(|byte| *byte == 0), "written beside the window");
        }
        self.window.close();
    }
}

/// Damages a frame in some places, or sends it twice.
fn mutate(random: &mut Random, frame: &[u8], others: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut bytes = frame.to_vec();
    for _ in 0..1 + random.below(3) {
        // Headers are at the beginning.
        let reach = if random.one_in(2) { bytes.len().min(80) } else { bytes.len() };
        let at = random.below(reach + 1);
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend(random.next().to_le_bytes()),
            2 => bytes.extend(&others[random.below(others.len())]),
            3 => return vec![bytes.clone(), bytes],
            4 | 5 => overwrite(&mut bytes, at, &[random.next() as u8]),
            6 => overwrite(&mut bytes, at & !3, &random.pick(&EDGES).to_le_bytes()[..4]),
            _ => overwrite(&mut bytes, at & !3, &random.pick(&EDGES).to_le_bytes()),
        }
    }
    vec![bytes]
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes.iter_mut().skip(at).zip(with).for_each(|(byte, new)| *byte = *new);
}

/// Numbers that provoke arithmetic errors.
const EDGES: [u64; 8] = [0, 1, 8, 0x7fff_ffff, 0xffff_ffff, 1 << 32, i64::MAX as u64, u64::MAX];

/// Bytes on each side of the window.
const BESIDE: usize = 100_000;

/// Rail of the link to the peer.
const RAIL: RailId = RailId(0);
