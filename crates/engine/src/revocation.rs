//! Revocations of contexts.

use wire::PeerId;

use crate::op::Outcome;

/// Contexts that are revoked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The first context.
    pub context: u64,
    /// Bits that the other contexts have set besides, each some of them.
    pub marks: u64,
    /// The reason.
    pub by: RevokedBy,
}

/// Reason for which a context is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokedBy {
    /// This peer has failed. Receives end, and sends go on.
    Failure(PeerId),
    /// The application wants all operations to end, sends among them.
    Application,
}

impl Revocation {
    /// The contexts: the first one with each set of marks.
    pub(crate) fn contexts(self) -> impl Iterator<Item = u64> {
        let next = move |set: &u64| (*set != 0).then(|| (set - 1) & self.marks);
        std::iter::successors(Some(self.marks), next).map(move |set| self.context | set)
    }
}

impl RevokedBy {
    /// Outcome of operations that end for this reason.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Failure(_) => Outcome::PeerFailed,
            Self::Application => Outcome::Revoked,
        }
    }
}
