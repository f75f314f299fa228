//! Why a link ends.

/// Cause of the end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer closed the link in an orderly way.
    Closed,
    /// The network or the peer's process failed; the text names both ends.
    Lost(String),
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
            Self::Lost(text) | Self::Unreachable(text) | Self::Misbehaved(text) => Some(text),
        }
    }
}
