//! Strangers that send to an endpoint: they are refused and reported, and open links do not notice.

use std::time::{Duration, Instant};

use auth::{Credentials, Encryption};
use rail::{Event, Fault, Post, Rail, Refusal};
use testing::Random;
use wire::{Frame, PeerId};

use crate::fabric::{Completion, Destination, Endpoint, SendRefusal};
use crate::message::{FRAME_MAX, HELLO, Head, MessageKind};
use crate::{OfiConfig, OfiNetwork, OfiRail};

/// Rails 0 and 1 with a link, and the endpoint of a stranger.
struct Trial {
    rails: [OfiRail; 2],
    stranger: Endpoint,
    /// The endpoint of rail 0.
    to: Destination,
    refused: Vec<Refusal>,
    frames: Vec<Vec<u8>>,
    down: Option<Fault>,
    limit: Instant,
}

impl Trial {
    /// `None` if the provider is not here.
    fn new() -> Option<Self> {
        let find = || OfiNetwork::find(Some("tcp;ofi_rxm"), Some("127.0.0.1"));
        let network = match find() {
            Ok(network) => network,
            Err(reason) => {
                testing::skip(reason);
                return None;
            }
        };
        let rails = [0, 1].map(|rank| OfiRail::new(find().unwrap(), config(rank)).unwrap());
        let mut stranger = Endpoint::open(&network.provider, Head::LEN + FRAME_MAX).unwrap();
        let to = stranger.insert(rails[0].endpoint.name()).unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        let (refused, frames, down) = (Vec::new(), Vec::new(), None);
        let mut trial = Self { rails, stranger, to, refused, frames, down, limit };
        trial.connect();
        Some(trial)
    }

    fn connect(&mut self) {
        let address = self.rails[0].address();
        self.rails[1].connect(PeerId(0), &address).unwrap();
        self.until(|trial| {
            trial.rails[0].links.open_key(PeerId(1)).is_some()
                && trial.rails[1].links.open_key(PeerId(0)).is_some()
        });
    }

    fn poll(&mut self) {
        let Self { rails, refused, frames, down, .. } = self;
        for rail in rails {
            rail.poll(&mut |event| match event {
                Event::Refused { reason, .. } => refused.push(reason),
                Event::Frame { bytes, .. } => frames.push(bytes.to_vec()),
                Event::Down { fault, .. } => *down = Some(fault),
                _ => {}
            });
        }
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            self.poll();
            assert!(Instant::now() < self.limit, "not in time");
        }
    }

    /// Sends a message as the stranger.
    fn send(&mut self, bytes: &[u8]) {
        loop {
            self.stranger.poll(&mut |completion| match completion {
                Completion::Sent(_, failure) => assert!(failure.is_none(), "{failure:?}"),
                Completion::Received(_) => {}
            });
            self.poll();
            assert!(Instant::now() < self.limit, "the stranger does not get through");
            let Some(slot) = self.stranger.claim() else { continue };
            self.stranger.contents(&slot)[..bytes.len()].copy_from_slice(bytes);
            match self.stranger.send(slot, bytes.len(), self.to) {
                Ok(_) => return,
                Err(SendRefusal::Full) => {}
                Err(SendRefusal::Failed(failure)) => panic!("{failure:?}"),
            }
        }
    }

    /// Sends a message, and waits until it is refused for this reason.
    fn is_refused(&mut self, bytes: &[u8], reason: Refusal) {
        self.refused.clear();
        self.send(bytes);
        self.until(|trial| !trial.refused.is_empty());
        assert_eq!(self.refused, [reason]);
    }

    /// Checks that the link carries frames.
    fn link_works(&mut self) {
        self.frames.clear();
        let frame = Frame { head: vec![7; 100], body: None, token: None };
        assert_eq!(self.rails[1].post(PeerId(0), &frame), Post::Done);
        self.until(|trial| !trial.frames.is_empty());
        assert_eq!(self.frames, [vec![7; 100]]);
        assert_eq!(self.down, None);
    }
}

fn config(rank: u32) -> OfiConfig {
    OfiConfig {
        rank: PeerId(rank),
        job: 5,
        secret: [9; 32].into(),
        connect_timeout: Duration::from_secs(20),
        encryption: Encryption::None,
    }
}

fn message(key: u64, kind: MessageKind, payload: &[u8]) -> Vec<u8> {
    [&Head { key, sequence: 0, kind }.emit()[..], payload].concat()
}

/// Returns the first message of a caller with these credentials and this key for answers.
fn hello(credentials: &Credentials, key: u64, own: &[u8]) -> Vec<u8> {
    let hello = credentials.hello(PeerId(0), false, 1, [4; 32]);
    let words = [&key.to_le_bytes()[..], own].concat();
    let seal = credentials.seal_later(&hello, &[0; 64], (0, 0), &words);
    message(HELLO, MessageKind::Handshake, &[&hello[..], &seal, &words].concat())
}

#[test]
fn a_stranger_is_refused_and_the_link_goes_on() {
    let Some(mut trial) = Trial::new() else { return };
    trial.is_refused(b"GET / HTTP/1.1\r\n\r\n", Refusal::Protocol);
    trial.is_refused(b"short", Refusal::Protocol);
    trial.is_refused(&[], Refusal::Protocol);
    for kind in [
        MessageKind::Frame,
        MessageKind::Handshake,
        MessageKind::Farewell,
        MessageKind::Gone,
        MessageKind::Ping,
    ] {
        trial.is_refused(&message(77, kind, b"a guessed key"), Refusal::Protocol);
    }
    trial.is_refused(&message(HELLO, MessageKind::Frame, b"no hello"), Refusal::Protocol);
    let name = trial.stranger.name().to_vec();
    let knows = |job, secret: [u8; 32]| Credentials { rank: PeerId(1), job, secret: secret.into() };
    trial.is_refused(&hello(&knows(6, [9; 32]), 50, &name), Refusal::Job);
    trial.is_refused(&hello(&knows(5, [8; 32]), 51, &name), Refusal::Secret);
    let mut changed = hello(&knows(5, [9; 32]), 52, &name);
    *changed.last_mut().unwrap() ^= 1;
    trial.is_refused(&changed, Refusal::Secret);
    assert_eq!(trial.rails[0].connections.len(), 1, "nothing is kept of a stranger");
    assert_eq!(trial.rails[0].destinations.len(), 1, "a stranger's address is not taken");
    trial.link_works();
}

#[test]
fn a_recorded_hello_leads_nowhere() {
    let Some(mut trial) = Trial::new() else { return };
    let name = trial.stranger.name().to_vec();
    let credentials = Credentials { rank: PeerId(1), job: 5, secret: [9; 32].into() };
    let recorded = hello(&credentials, 60, &name);
    for _ in 0..40 {
        trial.send(&recorded);
    }
    trial.until(|trial| trial.rails[0].connections.len() == 2);
    for _ in 0..1000 {
        trial.poll();
    }
    // One more connection awaits a proof, and the link stands.
    assert_eq!(trial.rails[0].connections.len(), 2);
    trial.link_works();
}

#[test]
fn random_messages_are_harmless() {
    let Some(mut trial) = Trial::new() else { return };
    for seed in testing::seeds(3) {
        let mut random = Random::new(seed);
        for _ in 0..100 {
            let mut bytes: Vec<u8> =
                (0..random.below(300_usize)).map(|_| random.next() as u8).collect();
            if random.one_in(2) && bytes.len() >= Head::LEN {
                let kind =
                    random.pick(&[MessageKind::Frame, MessageKind::Handshake, MessageKind::Ping]);
                let head = Head { key: HELLO, sequence: 0, kind };
                bytes[..Head::LEN].copy_from_slice(&head.emit());
            }
            trial.send(&bytes);
        }
        trial.link_works();
    }
    assert!(!trial.refused.is_empty());
    assert_eq!(trial.rails[0].connections.len(), 1);
}

#[test]
fn messages_out_of_order_are_delivered_in_order_and_once() {
    let Some(mut trial) = Trial::new() else { return };
    // The stranger has learnt the key, and stands for a provider that completes messages out of order.
    let key = trial.rails[0].links.open_key(PeerId(1)).unwrap();
    let next = trial.rails[0].connections[&key].next_received;
    for (step, text) in [(2, b"c"), (1, b"b"), (2, b"x"), (500, b"y"), (0, b"a"), (0, b"z")] {
        let head = Head { key, sequence: next + step, kind: MessageKind::Frame };
        trial.send(&[&head.emit()[..], text].concat());
    }
    trial.until(|trial| trial.frames.len() >= 3);
    for _ in 0..1000 {
        trial.poll();
    }
    assert_eq!(trial.frames, [b"a", b"b", b"x"]);
    assert!(trial.rails[0].connections[&key].early.is_empty());
}

#[test]
fn an_end_that_has_lost_the_link_says_so() {
    let Some(mut trial) = Trial::new() else { return };
    let key = trial.rails[0].links.open_key(PeerId(1)).unwrap();
    // Its farewell is lost.
    trial.rails[0].links.remove(PeerId(1));
    trial.rails[0].remove(key);
    let frame = Frame { head: vec![1; 10], body: None, token: None };
    assert_eq!(trial.rails[1].post(PeerId(0), &frame), Post::Done);
    trial.until(|trial| trial.down.is_some());
    assert!(matches!(trial.down, Some(Fault::Lost(_))), "{:?}", trial.down);
    assert_eq!(trial.refused, []);
    trial.down = None;
    trial.connect();
    trial.link_works();
}

#[test]
fn a_link_that_must_be_encrypted_is_not_opened() {
    let Some(trial) = Trial::new() else { return };
    let address = trial.rails[0].address();
    let network = OfiNetwork::find(Some("tcp;ofi_rxm"), Some("127.0.0.1")).unwrap();
    let config = OfiConfig { encryption: Encryption::All, ..config(2) };
    let mut rail = OfiRail::new(network, config).unwrap();
    let error = rail.connect(PeerId(0), &address).unwrap_err().to_string();
    assert!(error.contains("must be encrypted"), "{error}");
}
