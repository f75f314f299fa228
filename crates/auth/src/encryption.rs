//! The choice of links to encrypt.
//!
//! Both ends decide alike before the first byte, from the job's settings and the sites of the ranks. The dialling
//! side announces its choice in its hello, and the other refuses a wrong one. A wrong choice means a changed hello or
//! different settings. Changing the hello gains an attacker nothing: the dialling side keeps its choice, and proofs
//! cover the hello.

use std::fmt;
use std::sync::Arc;

use connect::Refusal;
use wire::PeerId;

use crate::credentials::Caller;

/// The links of a process that are encrypted.
#[derive(Clone)]
pub enum Encryption {
    /// None.
    None,
    /// All.
    All,
    /// Links to the peers for which this returns true. It must be symmetric: both ends must return the same of each
    /// other.
    Some(Arc<dyn Fn(PeerId) -> bool + Send + Sync>),
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::All => "All",
            Self::Some(_) => "Some",
        })
    }
}

impl Encryption {
    /// True if the link to `peer` is encrypted.
    pub fn covers(&self, peer: PeerId) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Some(covers) => covers(peer),
        }
    }

    /// Checks that a caller encrypts exactly if the rule demands it.
    ///
    /// # Errors
    /// Returned when the caller breaks the rule.
    pub fn check(&self, caller: Caller) -> Result<(), Refusal> {
        match (self.covers(caller.peer), caller.encrypts) {
            (true, false) => Err(Refusal::Clear),
            (false, true) => Err(Refusal::Encrypted),
            (true, true) | (false, false) => Ok(()),
        }
    }
}
