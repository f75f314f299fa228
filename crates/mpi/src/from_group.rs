//! Communicators from groups alone, without one to begin with (MPI-5.0 §7.4.2, §7.6.2).
//!
//! Members find each other by a string. Messages carry its hash as their tag, in a context that nothing else uses.
//! Their data include a longer hash, so that a collision with another call is detected.

use std::sync::Arc;

use runtime::context;
use wire::PeerId;

use crate::comm::Comm;
use crate::errhandler::Errhandler;
use crate::exchange::Span;
use crate::group::Group;
use crate::process::Process;
use crate::root_channel::RootChannel;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result};

/// A group, and the rank in it that speaks for it.
#[derive(Clone, Copy, Debug)]
pub struct Led<'a> {
    /// The group.
    pub group: &'a Group,
    /// The rank.
    pub leader: u32,
}

impl Comm {
    /// A communicator of a group (collective over it); none of the empty one.
    ///
    /// # Errors
    /// `MPI_ERR_GROUP` where this process is not in it, `MPI_ERR_ARG` for a string that is too long or not the
    /// others'.
    pub fn of_group(
        process: &Arc<Process>,
        group: &Group,
        string: &str,
        errhandler: Errhandler,
    ) -> Result<Option<Self>> {
        if group.size() == 0 {
            return Ok(None);
        }
        let comm = Found::new(process, group, string)?.comm(string, errhandler)?;
        comm.register().map(Some)
    }

    /// An intercommunicator of two groups (collective over both); none where one is empty. Who is in the local
    /// one calls with it first; the remote one counts at the local one's leader.
    ///
    /// # Errors
    /// As [`Comm::of_group`], and `MPI_ERR_COMM` when the groups have a process in common.
    pub fn of_groups(
        process: &Arc<Process>,
        local: Led<'_>,
        remote: Led<'_>,
        string: &str,
        errhandler: Errhandler,
    ) -> Result<Option<Self>> {
        if local.group.size() == 0 || remote.group.size() == 0 {
            return Ok(None);
        }
        let comm = Found::new(process, local.group, string)?.comm(string, errhandler)?;
        let mut channel = (comm.rank() == local.leader).then(|| {
            let other = remote.group.peer(remote.leader);
            let is_common = local.group.rank_of(other).is_some();
            LeadersChannel { process, other, is_common, tag: tag_of(string) }
        });
        comm.meet(local.leader, channel.as_mut().map(|channel| Ok(channel as _))).map(Some)
    }
}

/// The channel of two leaders that share no communicator.
struct LeadersChannel<'a> {
    process: &'a Process,
    other: PeerId,
    /// True if the other leader is in this group too: the meeting then reports that both groups have processes in common.
    is_common: bool,
    tag: i32,
}

impl RootChannel for LeadersChannel<'_> {
    fn leads_to(&self) -> Option<PeerId> {
        Some(self.other)
    }

    fn swap(&mut self, mine: &[u8], room: usize) -> Result<Vec<u8>> {
        if self.is_common {
            return Ok(mine.to_vec());
        }
        let &mut Self { process, other, tag, .. } = self;
        // Both name the two in the same order.
        let own = process.own_peer();
        let is_first = process.process_of(own) < process.process_of(other);
        let group = &Group::of(if is_first { vec![own, other] } else { vec![other, own] });
        let (vci, context, rank) = (Vci::FIRST, STRINGS_CONTEXT, u32::from(!is_first));
        Span { process, vci, context, tag, group, rank }.swap(1 - rank, mine, room)
    }
}

/// This process among those who have been asked for.
struct Found<'a> {
    process: &'a Arc<Process>,
    group: &'a Group,
    rank: u32,
}

impl<'a> Found<'a> {
    fn new(process: &'a Arc<Process>, group: &'a Group, string: &str) -> Result<Self> {
        if string.len() >= STRING_MAX {
            let message =
                format!("stringtag: {} bytes are more than {}", string.len(), STRING_MAX - 1);
            return Err(Error::new(ErrorClass::Arg, message));
        }
        let stranger = || Error::new(ErrorClass::Group, "this process is not in the group");
        let rank = group.rank_of(process.own_peer()).ok_or_else(stranger)?;
        Ok(Self { process, group, rank })
    }

    /// A communicator of the group, without a handle.
    fn comm(&self, string: &str, errhandler: Errhandler) -> Result<Comm> {
        let mut mine = self.process.draw_context().to_le_bytes().to_vec();
        mine.extend(hash(string).to_le_bytes());
        let &Self { process, group, rank } = self;
        let (vci, context) = (Vci::FIRST, STRINGS_CONTEXT);
        let span = Span { process, vci, context, tag: tag_of(string), group, rank };
        let received = span.broadcast(&mine)?;
        let (Some((context, rest)), true) =
            (received.split_first_chunk::<8>(), received.len() == 16)
        else {
            return Err(Error::new(ErrorClass::Intern, "a context arrived malformed"));
        };
        if rest != hash(string).to_le_bytes() {
            let message = format!("stringtag = {string} met another's call: use another string");
            return Err(Error::new(ErrorClass::Arg, message));
        }
        let context = u64::from_le_bytes(*context);
        Ok(Comm::new(process, context, group.clone(), rank, errhandler))
    }
}

/// Below the greatest tag that all rails carry.
fn tag_of(string: &str) -> i32 {
    (hash(string) >> 34) as i32
}

/// FNV-1a (Fowler, Noll, Vo).
fn hash(string: &str) -> u64 {
    string.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The context of `MPI_COMM_WORLD` with both bits that mark the library's own messages.
const STRINGS_CONTEXT: u64 = context::WORLD | context::COLLECTIVES | context::CREATION;

/// `MPI_MAX_STRINGTAG_LEN`.
const STRING_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_become_tags_that_differ() {
        let tags: Vec<i32> = ["", "a", "b", "ab", "ba", "org.example"].map(tag_of).into();
        for (at, tag) in tags.iter().enumerate() {
            assert!(*tag >= 0 && !tags[..at].contains(tag), "{tags:?}");
        }
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
