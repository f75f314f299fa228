//! Peers that lie about links, with false `Resume`, `Ack` and `LinkDown` packets. Nothing panics,
//! other peers' links carry on, and no lie is blamed on an honest peer.

use engine::{
    Config, Engine, Envelope, Loss, OpId, Outcome, PeerError, Posted, Selector, SendMode,
};
use memory::Region;
use testing::{Random, seeds};
use wire::packet::{self, Header, Incarnation};
use wire::{Capabilities, Frame, RailId};

use crate::network::{NEAR, peer_id};

const HOSTILE: usize = 1;
const HONEST: usize = 2;

#[test]
fn frames_before_the_resume_are_refused() {
    let mut victim = Victim::new();
    victim.engine.handle_up(peer_id(HOSTILE), RAILS[0], KEPT);
    for frame in [eager(HOSTILE, 0), ack(0), link_down(0, 1, 0), vec![0xff; 12]] {
        let result = victim.engine.handle_frame(peer_id(HOSTILE), RAILS[0], &frame);
        assert_eq!(result, Err(PeerError::NoResume), "{frame:?}");
    }
    victim.assert_unharmed();
}

#[test]
fn a_second_resume_is_refused() {
    let mut victim = Victim::met();
    for frame in [resume(0, 1, 0), resume(0, 2, 0)] {
        assert_eq!(victim.deliver(0, &frame), Err(PeerError::Misplaced));
    }
    victim.assert_unharmed();
}

#[test]
fn an_ack_inside_a_frame_is_refused() {
    let mut victim = Victim::met();
    let frame = [eager(HOSTILE, 0), ack(0)].concat();
    assert_eq!(victim.deliver(0, &frame), Err(PeerError::Misplaced));
    victim.assert_unharmed();
}

#[test]
fn a_resume_that_acknowledges_unsent_frames_is_refused() {
    let mut victim = Victim::new();
    victim.engine.handle_up(peer_id(HOSTILE), RAILS[0], KEPT);
    let result = victim.engine.handle_frame(peer_id(HOSTILE), RAILS[0], &resume(0, 1, 3));
    assert_eq!(result, Err(PeerError::Confirmation { sent: 0, got: 3 }));
    victim.assert_unharmed();
}

#[test]
fn an_ack_of_more_frames_than_were_sent_is_refused() {
    for got in [2, 1000, u32::MAX] {
        let mut victim = Victim::met();
        victim.send();
        assert_eq!(victim.deliver(0, &ack(got)), Err(PeerError::Confirmation { sent: 1, got }));
        victim.assert_unharmed();
        let mut victim = Victim::met();
        victim.send();
        let result = victim.deliver(1, &link_down(0, 1, got));
        assert_eq!(result, Err(PeerError::Confirmation { sent: 1, got }));
        victim.assert_unharmed();
    }
}

#[test]
fn an_older_count_than_the_last_is_refused() {
    let mut victim = Victim::met();
    for sent in 1..=2 {
        victim.send();
        assert_eq!(victim.deliver(0, &ack(sent)), Ok(()));
    }
    assert_eq!(victim.deliver(0, &ack(1)), Err(PeerError::Confirmation { sent: 2, got: 1 }));
    victim.assert_unharmed();
}

#[test]
fn a_link_down_for_an_unknown_link_is_ignored() {
    let mut victim = Victim::met();
    for (rail, epoch) in [(9, 1), (255, u32::MAX), (0, 0)] {
        assert_eq!(victim.deliver(0, &link_down(rail, epoch, 0)), Ok(()));
    }
    assert!(!victim.engine.has_severed());
    assert_eq!(victim.deliver(0, &eager(HOSTILE, 0)), Ok(()), "both links carry on");
    assert_eq!(victim.deliver(1, &eager(HOSTILE, 1)), Ok(()));
    victim.assert_unharmed();
}

#[test]
fn thousands_of_link_downs_are_answered_once_per_frame_at_most() {
    let mut victim = Victim::met();
    for epoch in 1..5000 {
        assert_eq!(victim.deliver(1, &link_down(0, epoch, 0)), Ok(()));
        let _ = victim.engine.poll_severed();
        assert!(victim.drain(HOSTILE, 1).len() <= 1);
    }
    // All in one frame: queued replies do not grow with the number of packets.
    let frame: Vec<u8> = (5000..5300).flat_map(|epoch| link_down(0, epoch, 0)).collect();
    assert_eq!(victim.deliver(1, &frame), Ok(()));
    let answer = victim.drain(HOSTILE, 1).concat();
    assert!(answer.len() < 100, "{} bytes", answer.len());
    victim.assert_unharmed();
}

#[test]
fn a_peer_that_ends_its_last_link_ends_no_other_peer() {
    let mut victim = Victim::met();
    assert_eq!(victim.deliver(0, &link_down(1, 1, 0)), Ok(()));
    assert_eq!(victim.deliver(0, &link_down(0, 1, 0)), Ok(()));
    while let Some((peer, rail)) = victim.engine.poll_severed() {
        assert_eq!(peer, peer_id(HOSTILE));
        victim.engine.handle_link_down(peer, rail, true);
    }
    victim.assert_unharmed();
}

#[test]
fn a_silent_link_is_probed_in_growing_intervals() {
    let mut engine = Engine::new(Config::new(2));
    engine.handle_up(peer_id(1), RAILS[0], KEPT);
    assert_eq!(engine.handle_frame(peer_id(1), RAILS[0], &resume(0, 1, 0)), Ok(()));
    let mut frame = Frame::default();
    let mut leaves = |engine: &mut Engine| {
        let mut count = 0;
        while engine.poll_frame(peer_id(1), RAILS[0], &mut frame) {
            engine.handle_posted(peer_id(1), RAILS[0], &mut frame, Posted::Done);
            count += 1;
        }
        count
    };
    assert_eq!(leaves(&mut engine), 1, "the resume");
    engine.submit_send(peer_id(1), ENVELOPE, &Region::owned(8), SendMode::Standard);
    assert_eq!(leaves(&mut engine), 1);
    let mut asked_s = Vec::new();
    for second in 0..600 {
        assert!(engine.wants_time() || engine.is_watching());
        assert_eq!(engine.handle_time(second * 1_000_000_000), None);
        if leaves(&mut engine) > 0 {
            asked_s.push(second);
        }
    }
    assert!(asked_s.len() >= 8 && asked_s.len() <= 12, "asked at {asked_s:?} s");
    let frames = 1 + asked_s.len() as u32;
    assert_eq!(engine.handle_frame(peer_id(1), RAILS[0], &ack(frames)), Ok(()));
    for second in 600..700 {
        engine.handle_time(second * 1_000_000_000);
        assert_eq!(leaves(&mut engine), 0, "all has ack");
    }
}

#[test]
fn lies_about_links_harm_nobody() {
    let mut accused = 0;
    for seed in seeds(6000) {
        let mut random = Random::new(seed);
        let mut victim = Victim::met();
        for _ in 0..1 + random.below(24) {
            if !victim.suffer_one(&mut random) {
                accused += 1;
                break;
            }
        }
        victim.assert_unharmed();
    }
    if !testing::is_seed_given() {
        assert!(accused > 1000, "many of 6000 lies are noticed, not {accused}");
    }
}

/// A process with two links each to two peers, one of which lies about its own.
struct Victim {
    engine: Engine,
    sequence: u32,
    honest: (OpId, Region),
}

impl Victim {
    /// Creates it before the liar has a link.
    fn new() -> Self {
        let mut engine = Engine::new(Config::new(3));
        let selector = Selector { context: 0, source: Some(HONEST as u32), tag: Some(1) };
        let into = Region::owned(4);
        let receive = engine.submit_receive(Some(peer_id(HONEST)), selector, &into);
        let mut victim = Self { engine, sequence: 0, honest: (receive, into) };
        victim.meet(HONEST);
        victim
    }

    /// Creates it with all links open.
    fn met() -> Self {
        let mut victim = Self::new();
        victim.meet(HOSTILE);
        victim
    }

    fn meet(&mut self, peer: usize) {
        for rail in RAILS {
            self.engine.handle_up(peer_id(peer), rail, KEPT);
            let result = self.engine.handle_frame(peer_id(peer), rail, &resume(rail.0, 1, 0));
            assert_eq!(result, Ok(()));
            let resumes = self.drain(peer, rail.0 as usize);
            assert!(packet::parse_resume(&resumes[0]).is_some(), "{resumes:?}");
        }
    }

    /// Delivers a frame of the liar over one of its links.
    fn deliver(&mut self, link: usize, frame: &[u8]) -> Result<(), PeerError> {
        self.engine.handle_frame(peer_id(HOSTILE), RAILS[link], frame)
    }

    /// Sends a short message to the liar over its first link, which is idle.
    fn send(&mut self) {
        let data = Region::owned(8);
        self.engine.submit_send(peer_id(HOSTILE), ENVELOPE, &data, SendMode::Standard);
        assert_eq!(self.drain(HOSTILE, 0).len(), 1);
    }

    /// Performs one lie, or an event on the liar's links; false if the liar is found out.
    fn suffer_one(&mut self, random: &mut Random) -> bool {
        let link = random.below(2);
        let rail = [0, 0, 1, 1, 7][random.below(5)];
        let epoch = [0, 1, 2, 3, u32::MAX][random.below(5)];
        let frames = [0, 0, 0, 1, 2, u32::MAX][random.below(6)];
        let frame = match random.below(8) {
            0 => resume(rail, epoch, frames),
            1 | 2 => link_down(rail, epoch, frames),
            3 => ack(frames),
            4 => {
                self.sequence += 1;
                [ack(frames), eager(HOSTILE, self.sequence - 1)].concat()
            }
            5 => {
                self.send_any();
                return true;
            }
            6 => {
                let ends = random.below(2) == 0;
                return self.engine.handle_link_down(peer_id(HOSTILE), RAILS[link], ends)
                    != Loss::Final;
            }
            _ => {
                self.engine.handle_up(peer_id(HOSTILE), RAILS[link], KEPT);
                return true;
            }
        };
        let result = self.deliver(link, &frame);
        for link in 0..RAILS.len() {
            self.drain(HOSTILE, link);
        }
        while let Some((peer, rail)) = self.engine.poll_severed() {
            assert_eq!(peer, peer_id(HOSTILE), "only the liar's links are given up");
            self.engine.handle_link_down(peer, rail, false);
        }
        if result.is_err() {
            self.engine.handle_down(peer_id(HOSTILE));
        }
        result.is_ok()
    }

    fn send_any(&mut self) {
        let data = Region::owned(8);
        self.engine.submit_send(peer_id(HOSTILE), ENVELOPE, &data, SendMode::Standard);
        for link in 0..RAILS.len() {
            self.drain(HOSTILE, link);
        }
    }

    /// Checks that the honest peer's links carry frames both ways, and acknowledge received frames.
    fn assert_unharmed(&mut self) {
        let peer = peer_id(HONEST);
        let data = Region::owned(8);
        let sent = self.engine.submit_send(peer, ENVELOPE, &data, SendMode::Synchronous);
        let synchronous = self.drain(HONEST, 0).concat();
        let (_, _, mut rest) = packet::split_ack(&synchronous).expect("a word begins it");
        let Ok(Some(packet::Packet::Eager { acknowledge: Some(op), .. })) =
            packet::parse(&mut rest)
        else {
            panic!("the message leaves over the first link: {synchronous:?}");
        };
        let mut answer = ack(1);
        packet::emit_fin(&mut answer, op);
        assert_eq!(self.engine.handle_frame(peer, RAILS[1], &eager(HONEST, 0)), Ok(()));
        assert_eq!(self.engine.handle_frame(peer, RAILS[0], &answer), Ok(()));
        let (receive, into) = &self.honest;
        assert_eq!(self.engine.take(*receive).map(|end| end.outcome), Some(Outcome::Ok));
        assert_eq!(into.to_vec(), b"real");
        assert_eq!(self.engine.take(sent).map(|end| end.outcome), Some(Outcome::Ok));
    }

    /// Returns the engine's next frames for a peer over a link.
    fn drain(&mut self, peer: usize, link: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut frame = Frame::default();
        while self.engine.poll_frame(peer_id(peer), RAILS[link], &mut frame) {
            frames.push(frame.head.clone());
            self.engine.handle_posted(peer_id(peer), RAILS[link], &mut frame, Posted::Done);
        }
        frames
    }
}

fn resume(rail: u8, epoch: u32, frames: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_resume(&mut frame, Incarnation { rail, epoch }, frames, true);
    frame
}

fn link_down(rail: u8, epoch: u32, frames: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_link_down(&mut frame, Incarnation { rail, epoch }, frames);
    frame
}

fn ack(frames: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    packet::emit_ack(&mut frame, frames, false);
    frame
}

fn eager(source: usize, sequence: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = Header { context: 0, source: source as u32, tag: 1, sequence };
    packet::emit_eager(&mut frame, &header, None, 4);
    frame.extend(b"real");
    frame
}

const ENVELOPE: Envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
const RAILS: [RailId; 2] = [RailId(0), RailId(1)];

/// Links with replay for each other, which reopen.
const KEPT: Capabilities = Capabilities { replay: true, reopens: true, ..NEAR.capabilities };
