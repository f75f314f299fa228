//! Rules for the encryption of links over TCP.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use auth::Encryption;
use boot::Job;
use topo::sites::SiteMap;
use wire::PeerId;

/// The wish of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncryptionRule {
    /// No link.
    None = 0,
    /// Links between sites.
    Sites = 1,
    /// All links.
    All = 2,
}

impl EncryptionRule {
    /// The user's wish.
    ///
    /// # Errors
    /// The setting is malformed.
    pub fn of_settings() -> Result<Self, String> {
        let wanted = settings::ENCRYPT.text();
        match wanted.trim() {
            "sites" => Ok(Self::Sites),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => {
                let variable = settings::ENCRYPT.variable();
                Err(format!("{variable}={wanted}: `sites`, `all` or `none` is needed"))
            }
        }
    }

    /// Encodes it.
    pub fn emit(self) -> u8 {
        self as u8
    }

    /// Decodes it; `None` if the byte is none.
    pub fn parse(byte: u8) -> Option<Self> {
        [Self::None, Self::Sites, Self::All].into_iter().find(|rule| rule.emit() == byte)
    }

    /// True if links between processes of two jobs with these wishes are encrypted: the stronger wish holds.
    fn covers(self, other: Self, is_one_site: bool) -> bool {
        match (self as u8).max(other as u8) {
            0 => false,
            1 => !is_one_site,
            _ => true,
        }
    }
}

/// Sites of peers, as far as they decide about the encryption of links.
#[derive(Default)]
pub(crate) struct LinkSites {
    /// Sites of the own job, set before its first link opens.
    pub map: OnceLock<SiteMap>,
    /// Processes of other jobs to which links are not encrypted.
    clear: Mutex<BTreeSet<PeerId>>,
}

impl LinkSites {
    /// Notes a process of another job, before a link to it opens.
    pub fn note_other(
        &self,
        peer: PeerId,
        rules: (EncryptionRule, EncryptionRule),
        is_one_site: bool,
    ) {
        if !rules.0.covers(rules.1, is_one_site) {
            self.clear.lock().unwrap_or_else(PoisonError::into_inner).insert(peer);
        }
    }

    /// Returns the links of a process to encrypt. The rank in a hello may be out of range, because it is not authenticated
    /// yet.
    pub fn encryption(self: &Arc<Self>, job: &Job, rule: EncryptionRule) -> Encryption {
        if rule == EncryptionRule::All {
            return Encryption::All;
        }
        let (sites, own, size) = (Arc::clone(self), job.rank(), job.size());
        let is_here = move |peer: u32, map: &SiteMap| map.site(peer) == map.site(own);
        let covers = move |peer: PeerId| match rule {
            _ if peer.0 >= size => {
                !sites.clear.lock().unwrap_or_else(PoisonError::into_inner).contains(&peer)
            }
            EncryptionRule::None => false,
            EncryptionRule::Sites | EncryptionRule::All => {
                !sites.map.get().is_some_and(|map| is_here(peer.0, map))
            }
        };
        Encryption::Some(Arc::new(covers))
    }
}

#[cfg(test)]
mod tests {
    use super::EncryptionRule::{All, None, Sites};
    use super::*;

    #[test]
    fn both_ends_decide_alike_and_the_stronger_wish_holds() {
        let encrypts = |one: EncryptionRule, other: EncryptionRule, is_one_site| {
            let covers = one.covers(other, is_one_site);
            assert_eq!(covers, other.covers(one, is_one_site));
            covers
        };
        for rule in [None, Sites, All] {
            assert_eq!(EncryptionRule::parse(rule.emit()), Some(rule));
            assert!(encrypts(rule, All, true) && encrypts(rule, All, false));
            assert_eq!(encrypts(rule, Sites, true), rule == All);
            assert!(encrypts(rule, Sites, false));
        }
        assert!(!encrypts(None, None, true) && !encrypts(None, None, false));
        assert_eq!(EncryptionRule::parse(3), Option::None);
    }
}
