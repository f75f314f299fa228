//! The choice of links to encrypt.
//!
//! Both ends decide alike before the first byte, from the job's settings and the sites of the ranks. The dialling
//! side announces its choice in its hello, and the other refuses a wrong one. A wrong choice means a changed hello or
//! different settings. Changing the hello gains an attacker nothing: the dialling side keeps its choice, and proofs
//! cover the hello.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use connect::Refusal;
use wire::PeerId;

use crate::credentials::{Caller, Credentials};
use crate::identity::Identity;

/// The links of a process that are encrypted.
#[derive(Clone)]
pub enum Encryption {
    /// None.
    None,
    /// All.
    All,
    /// Links to the ranks for which this returns true. It must be symmetric: both ranks must return the same of each
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

/// The rule, and the keys derived from the secret when the first link is encrypted.
pub struct EncryptionRule {
    encryption: Encryption,
    identity: OnceCell<Identity>,
}

impl EncryptionRule {
    /// Makes the rule for these links.
    pub fn new(encryption: Encryption) -> Self {
        Self { encryption, identity: OnceCell::new() }
    }

    /// True if the link to `peer` is encrypted.
    pub fn covers(&self, peer: PeerId) -> bool {
        match &self.encryption {
            Encryption::None => false,
            Encryption::All => true,
            Encryption::Some(covers) => covers(peer),
        }
    }

    /// Checks that a caller encrypts exactly if the rule demands it.
    ///
    /// # Errors
    /// Returned when the caller breaks the rule.
    pub fn check(&self, caller: Caller) -> Result<(), Refusal> {
        match (self.covers(caller.rank), caller.encrypts) {
            (true, false) => Err(Refusal::Clear),
            (false, true) => Err(Refusal::Encrypted),
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// Returns the identity of the job, made at the first call.
    pub fn identity(&self, credentials: &Credentials) -> &Identity {
        self.identity.get_or_init(|| Identity::of(&credentials.secret, credentials.job))
    }
}
