//! Events of the rail that wait for the next poll.

use std::net::SocketAddr;

use cost::Cost;
use rail::{Event, Fault, Refusal};
use wire::{Capabilities, PeerId};

/// Event that was not reported yet.
pub(super) enum QuicReport {
    Up { peer: PeerId },
    Room { peer: PeerId },
    Cost { peer: PeerId, cost: Cost },
    Down { peer: PeerId, fault: Fault },
    Refused { from: SocketAddr, reason: Refusal },
    Hampered { reason: String },
}

impl QuicReport {
    /// Returns the peer that the event concerns.
    pub fn peer(&self) -> Option<PeerId> {
        match self {
            Self::Up { peer }
            | Self::Room { peer }
            | Self::Cost { peer, .. }
            | Self::Down { peer, .. } => Some(*peer),
            Self::Refused { .. } | Self::Hampered { .. } => None,
        }
    }

    /// Passes the event to `sink`.
    pub fn tell(self, capabilities: &Capabilities, sink: &mut dyn FnMut(Event<'_>)) {
        match self {
            Self::Up { peer } => sink(Event::Up { peer, capabilities: *capabilities }),
            Self::Room { peer } => sink(Event::Room { peer }),
            Self::Cost { peer, cost } => sink(Event::Cost { peer, cost }),
            Self::Down { peer, fault } => sink(Event::Down { peer, fault }),
            Self::Refused { from, reason } => sink(Event::Refused { from, reason }),
            Self::Hampered { reason } => sink(Event::Hampered { reason }),
        }
    }
}
