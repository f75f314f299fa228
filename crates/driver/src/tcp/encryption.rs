//! Which links are encrypted.
//!
//! Both ends come to the same answer from what both know before the first byte: the job's settings, and
//! which ranks are of one site. The side that dials says in its hello which way it goes; the other refuses
//! the wrong one, whether somebody has changed the hello or the two are not set alike. To change it is of no
//! use to anybody: the side that dials goes its way all the same, and proofs cover the hello.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use wire::PeerId;

use super::hello::{Caller, Credentials, Refusal};
use crate::identity::Identity;

/// Which links of a process are encrypted.
#[derive(Clone)]
pub enum Encryption {
    /// None.
    None,
    /// All.
    All,
    /// Those to the ranks of which this is true. Where a rank says so of another, the other must say so of
    /// it.
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

/// The rule, and the keys that follow from the secret when the first link is to be encrypted.
pub(super) struct Rule {
    encryption: Encryption,
    identity: OnceCell<Identity>,
}

impl Rule {
    pub fn new(encryption: Encryption) -> Self {
        Self { encryption, identity: OnceCell::new() }
    }

    /// Whether the link to `peer` is encrypted.
    pub fn covers(&self, peer: PeerId) -> bool {
        match &self.encryption {
            Encryption::None => false,
            Encryption::All => true,
            Encryption::Some(covers) => covers(peer),
        }
    }

    /// Whether a caller goes the way that the link to it has to go.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self, caller: Caller) -> Result<(), Refusal> {
        match (self.covers(caller.rank), caller.encrypts) {
            (true, false) => Err(Refusal::Clear),
            (false, true) => Err(Refusal::Encrypted),
            (true, true) | (false, false) => Ok(()),
        }
    }

    pub fn identity(&self, credentials: &Credentials) -> &Identity {
        self.identity.get_or_init(|| Identity::of(&credentials.secret, credentials.job))
    }
}
