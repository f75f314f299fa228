//! A connection: the messages between this endpoint and that of one peer, numbered in both directions.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use auth::Handshake;
use connect::Agreed;
use wire::PeerId;

use crate::fabric::{Destination, Received};
use crate::message::MessageKind;

/// A connection, from the first message on.
#[derive(Debug)]
pub(crate) struct OfiConnection {
    pub stage: ConnectionStage,
    pub to: Destination,
    /// Address of the peer's endpoint, to show.
    pub address: SocketAddr,
    /// Number that the peer has given to this end.
    pub their_key: u64,
    /// Number of the next message to send, and of the next to receive.
    pub next_sent: u32,
    pub next_received: u32,
    /// Messages that have come before an earlier one.
    pub early: BTreeMap<u32, Received>,
    /// Messages of the connection itself that the provider has not taken yet.
    pub unsent: VecDeque<(MessageKind, Vec<u8>)>,
    /// Number of messages being sent.
    pub in_flight: usize,
    /// True if a frame was refused and [`rail::Event::Room`] is due.
    pub is_refused: bool,
    /// Time of the last message from the peer, on the rail's clock.
    pub heard: Duration,
    /// Number of pings since then, and of the last ones that the provider did not take.
    pub pings: u32,
    pub unsent_pings: u32,
    /// Time at which the last step of the handshake was sent, and the time to its answer.
    pub asked: Instant,
    pub round_trip: Option<Duration>,
}

/// Stage of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionStage {
    /// The two ends prove themselves.
    Handshake(Handshake),
    /// It is the link once the one that it replaces has been closed.
    Replaces(Agreed),
    /// It is the link to this peer.
    Open(PeerId),
}

impl OfiConnection {
    /// A connection to an endpoint that was heard at `now`.
    pub fn new(
        handshake: Handshake,
        (to, address): (Destination, SocketAddr),
        their_key: u64,
        now: Duration,
    ) -> Self {
        Self {
            stage: ConnectionStage::Handshake(handshake),
            to,
            address,
            their_key,
            next_sent: 0,
            next_received: 0,
            early: BTreeMap::new(),
            unsent: VecDeque::new(),
            in_flight: 0,
            is_refused: false,
            heard: now,
            pings: 0,
            unsent_pings: 0,
            asked: Instant::now(),
            round_trip: None,
        }
    }

    /// An open link of which nothing was heard since the clock began.
    #[cfg(test)]
    fn trial() -> Self {
        let nowhere = (Destination::trial(), "127.0.0.1:1".parse().unwrap());
        let mut trial = Self::new(Handshake::listen(Duration::MAX), nowhere, 1, Duration::ZERO);
        trial.stage = ConnectionStage::Open(PeerId(1));
        trial
    }

    /// The peer of a link.
    pub fn peer(&self) -> Option<PeerId> {
        match self.stage {
            ConnectionStage::Open(peer) => Some(peer),
            ConnectionStage::Handshake(_) | ConnectionStage::Replaces(_) => None,
        }
    }

    /// The handshake, if it is under way.
    pub fn handshake(&self) -> Option<&Handshake> {
        match &self.stage {
            ConnectionStage::Handshake(handshake) => Some(handshake),
            ConnectionStage::Replaces(_) | ConnectionStage::Open(_) => None,
        }
    }

    /// True if this end's handshake asks `peer` for a link.
    pub fn asks(&self, peer: PeerId) -> bool {
        let asked = self.handshake().and_then(Handshake::asked);
        asked.is_some_and(|asked| asked.peer() == peer)
    }

    /// Returns what a silent link is due at `now`.
    pub fn keepalive(&mut self, now: Duration) -> Keepalive {
        let silence = now.saturating_sub(self.heard);
        if silence < QUIET {
            (self.pings, self.unsent_pings) = (0, 0);
            return Keepalive::Nothing;
        }
        // Nothing is under way, and yet the provider takes no message: it has no connection, and gets none.
        let is_cut = !self.unsent.is_empty() && self.in_flight == 0;
        self.unsent_pings = if is_cut { self.unsent_pings + 1 } else { 0 };
        if self.unsent_pings >= PINGS_MIN {
            return Keepalive::Cut(silence);
        }
        if silence >= SILENCE && self.pings >= PINGS_MIN {
            return Keepalive::Lost(silence);
        }
        self.pings += 1;
        Keepalive::Ping
    }
}

/// The action that a link is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keepalive {
    Nothing,
    Ping,
    /// The peer has been silent for this long.
    Lost(Duration),
    /// The provider does not reach the peer, which has been silent for this long.
    Cut(Duration),
}

/// Time without a message after which a peer is asked for one.
pub(crate) const QUIET: Duration = Duration::from_secs(3);
/// Silence after which a link is lost. The peer's progress thread answers even while the application computes; on a
/// host with many more ranks than cores it may be late by seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);
/// Pings without which no link is lost: a process that was stopped has not waited.
const PINGS_MIN: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(connection: &mut OfiConnection, seconds: u64) -> Keepalive {
        connection.keepalive(Duration::from_secs(seconds))
    }

    #[test]
    fn a_silent_peer_is_asked_and_then_lost() {
        let mut connection = OfiConnection::trial();
        assert_eq!(after(&mut connection, 2), Keepalive::Nothing);
        for second in 3..20 {
            assert_eq!(after(&mut connection, second), Keepalive::Ping);
        }
        assert_eq!(after(&mut connection, 20), Keepalive::Lost(SILENCE));
        connection.heard = Duration::from_secs(20);
        assert_eq!(after(&mut connection, 21), Keepalive::Nothing);
        assert_eq!(after(&mut connection, 23), Keepalive::Ping);
    }

    #[test]
    fn a_process_that_was_stopped_asks_before_it_judges() {
        let mut connection = OfiConnection::trial();
        for second in 100..105 {
            assert_eq!(after(&mut connection, second), Keepalive::Ping);
        }
        assert!(matches!(after(&mut connection, 105), Keepalive::Lost(_)));
    }

    #[test]
    fn a_peer_that_the_provider_does_not_reach_is_lost_sooner() {
        let mut connection = OfiConnection::trial();
        assert_eq!(after(&mut connection, 3), Keepalive::Ping);
        connection.unsent.push_back((MessageKind::Ping, Vec::new()));
        for second in 4..8 {
            assert_eq!(after(&mut connection, second), Keepalive::Ping);
        }
        connection.in_flight = 1;
        assert_eq!(after(&mut connection, 8), Keepalive::Ping, "it may only be slow");
        connection.in_flight = 0;
        for second in 9..13 {
            assert_eq!(after(&mut connection, second), Keepalive::Ping);
        }
        assert!(matches!(after(&mut connection, 13), Keepalive::Cut(_)));
    }
}
