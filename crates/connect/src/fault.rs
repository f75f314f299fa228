//! Why a link ends.

use std::time::Duration;

/// Cause of the end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer closed the link in an orderly way.
    Closed,
    /// The network or the peer's process failed; the text names both ends.
    Lost(String),
    /// The peer's host has shown no sign of life for some time; the text says so.
    Silent(String, Duration),
    /// No connection to the peer could be made; the text lists the attempts. A refusal between sites may come from a
    /// device in between, such as a firewall.
    Unreachable(String),
    /// The peer violated the protocol; the text says how.
    Misbehaved(String),
}

impl Fault {
    /// Returns the description of the failure; `None` for an orderly close.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Closed => None,
            Self::Lost(text)
            | Self::Silent(text, _)
            | Self::Unreachable(text)
            | Self::Misbehaved(text) => Some(text),
        }
    }

    /// Time that had passed since the last sign of life when the link ended, if it ended for that.
    pub fn silence(&self) -> Option<Duration> {
        match self {
            Self::Silent(_, silence) => Some(*silence),
            Self::Closed | Self::Lost(_) | Self::Unreachable(_) | Self::Misbehaved(_) => None,
        }
    }

    /// True if the link was lost, so that another connection may be made.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Silent(..) => true,
            Self::Closed | Self::Unreachable(_) | Self::Misbehaved(_) => false,
        }
    }
}
