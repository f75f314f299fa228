//! Two groups meet: how an intercommunicator comes about, within a job and between jobs (MPI-5.0 §7.6.2, §11.9).
//!
//! The roots of the two groups exchange messages over a [`RootChannel`]; each tells its group what it has learnt.
//!
//! Within one job a single message in each direction suffices, which has a context number and the ranks of the group. If
//! processes of several jobs are among the members, the roots also exchange the contacts of all. Each process then adds those
//! that it does not know as peers. A peer that has not done so would refuse links. So each root hears from its group that all
//! have, tells the other root, and only then its group.
//!
//! | from root to root | from root to group | from group to root |
//! |---|---|---|
//! | introduction: context, job, ranks | | |
//! | contacts | | |
//! | | announcement: ranks, or contacts | |
//! | | | all have added the peers |
//! | all of the group have | | |
//! | | verdict | |
//!
//! Processes behind gateways cannot be called by other jobs. If there are any, they then open links to all of the other group,
//! and the last two steps are repeated.
//!
//! A root that fails tells its group why. The root of an accepting group whose caller goes away turns to the next one, and
//! says so to its group.

use std::collections::BTreeSet;

use runtime::{Contact, context};
use wire::PeerId;

use crate::collective::{self, Form};
use crate::comm::{Comm, CommRef};
use crate::exchange::{Span, short_room};
use crate::group::Group;
use crate::inter::{GroupPair, malformed};
use crate::process::Process;
use crate::root_channel::RootChannel;
use crate::{Error, ErrorClass, Result};

/// The channel of a root to the other one, or the reason why it has none.
pub(crate) type Channel<'a> = Result<&'a mut (dyn RootChannel + 'a)>;

/// First message from root to root.
struct Introduction {
    /// Context number that the root has drawn.
    context: u64,
    /// Job of the root.
    job: u64,
    /// Ranks of the group's members, if all are of that job; else the number of bytes of their contacts.
    members: Result<Vec<u32>, u32>,
}

/// The message of a root to its group.
enum Announcement {
    /// The meeting has failed.
    Failed(ErrorClass, String),
    /// The other group has these ranks of the own job.
    Ranks(Agreed, Vec<u32>),
    /// Contacts of this length in bytes follow.
    Contacts(Agreed, u32),
}

/// Agreement of both roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Agreed {
    context: u64,
    /// True if this group is the second.
    is_second: bool,
}

/// Contacts of the own group, and of the other.
type TwoGroups = [Vec<Contact>; 2];

/// End of a meeting, after all members were asked to add the peers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Failed = 0,
    Done = 1,
    /// The other root has gone, and another one is awaited.
    Again = 2,
}

impl Comm {
    /// Makes an intercommunicator of this group and another one (collective over both). The root gives its channel.
    ///
    /// # Errors
    /// `MPI_ERR_COMM` when the groups have a process in common; the error of the root at all of its group.
    pub(crate) fn meet(&self, root: u32, mut channel: Option<Channel<'_>>) -> Result<Self> {
        let tag = collective::call(CommRef::Derived(self.clone()), Form::Blocking).number();
        // The root first, for it is who tells.
        let size = self.size();
        let turned = (0..size).map(|rank| self.group().peer((rank + root) % size));
        let (group, rank) = (&Group::of(turned.collect()), (self.rank() + size - root) % size);
        let (process, vci, context) = (self.process(), self.vci(), self.collective_context());
        let span = Span { process, vci, context, tag, group, rank };
        loop {
            let (announcement, contacts) = match &mut channel {
                None => Ok((Vec::new(), Vec::new())),
                Some(Ok(channel)) => self.learn(*channel),
                Some(Err(error)) => Err(error.clone()),
            }
            .unwrap_or_else(|error| (Announcement::of(&error).emit(), Vec::new()));
            match Announcement::parse(&span.broadcast(&announcement)?).ok_or_else(malformed)? {
                Announcement::Failed(class, text) => return Err(Error::new(class, text)),
                Announcement::Ranks(agreed, ranks) => {
                    let other = ranks.into_iter().map(|rank| process.peer(rank));
                    let other = other.collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
                    return self.pair_with(agreed, Group::of(other));
                }
                Announcement::Contacts(agreed, len) => {
                    let contacts = span.broadcast_most(&contacts, len as usize)?;
                    let groups = parse_two(&contacts).ok_or_else(malformed)?;
                    let added = add_peers(process, &groups);
                    let mut verdict = judge(&span, added.is_ok(), &mut channel)?;
                    let needs_calls = groups.iter().flatten().any(Contact::is_behind_gateways);
                    if needs_calls && verdict == Verdict::Done {
                        let peers = added.as_deref().unwrap_or_default();
                        let called = process.call_peers(peers).map_err(other);
                        verdict = judge(&span, called.is_ok(), &mut channel)?;
                        if verdict == Verdict::Failed {
                            return called.and(Err(left_alone()));
                        }
                    }
                    match verdict {
                        Verdict::Done => return self.pair_with(agreed, Group::of(added?)),
                        Verdict::Again => {}
                        Verdict::Failed => return added.and(Err(left_alone())),
                    }
                }
            }
        }
    }

    fn pair_with(&self, agreed: Agreed, other: Group) -> Result<Self> {
        let Agreed { context, is_second } = agreed;
        let local = self.group().clone();
        let groups = if is_second { [other, local] } else { [local, other] };
        let pair = GroupPair { groups, is_second };
        Self::between(self.process(), context, pair, self.errhandler()).register()
    }

    /// Exchanges introductions, and contacts if necessary, with the other root. Returns the announcement for the group, and the
    /// contacts behind them.
    fn learn(&self, channel: &mut dyn RootChannel) -> Result<(Vec<u8>, Vec<u8>)> {
        let (process, job) = (self.process(), self.process().job().id());
        let is_of_job = |peer: PeerId| process.is_of_job(peer);
        let is_inside =
            self.group().iter().all(is_of_job) && channel.leads_to().is_some_and(is_of_job);
        let own: Vec<u8> = self.contacts_of_group(!is_inside)?;
        let members = match is_inside {
            true => Ok(self.group().iter().map(|peer| process.job_rank(peer)).collect()),
            false => Err(own.len() as u32),
        };
        let context = process.draw_context_between_jobs(!is_inside);
        let mine = Introduction { context, job, members };
        loop {
            match self.learn_of_one(channel, &mine, &own) {
                Err(error) if error.class == ErrorClass::Comm => return Err(error),
                Err(_) if channel.has_begun() => {}
                learnt => return learnt,
            }
        }
    }

    /// [`Comm::learn`] of one other root.
    fn learn_of_one(
        &self,
        channel: &mut dyn RootChannel,
        mine: &Introduction,
        own: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let process = self.process();
        let theirs = channel.begin(&mine.emit(), short_room(process))?;
        let theirs = Introduction::parse(&theirs).ok_or_else(malformed)?;
        // The first group is that whose context is taken. A random one is unique among the members of several jobs. Of two of
        // one job, the less is that of the leader with the lower rank.
        let order = |context| (!context::is_random(context), context);
        let is_second = order(mine.context) > order(theirs.context);
        let context = if is_second { theirs.context } else { mine.context };
        let agreed = Agreed { context, is_second };
        if let (Ok(_), Ok(ranks)) = (&mine.members, &theirs.members)
            && mine.job == theirs.job
        {
            let others = ranks.iter().filter_map(|rank| process.peer(*rank));
            self.check_apart(others)?;
            return Ok((Announcement::Ranks(agreed, ranks.clone()).emit(), Vec::new()));
        }
        let own = match mine.members {
            Ok(_) => self.contacts_of_group(true)?,
            Err(_) => own.to_vec(),
        };
        let room = match theirs.members {
            Err(len) => len as usize,
            // It answers this group's contacts with those of its ranks.
            Ok(ranks) => ranks.len() * CONTACT_ROOM,
        };
        let other = channel.swap(&own, room)?;
        let [_, others] = parse_two(&[&own[..], &other].concat()).ok_or_else(malformed)?;
        self.check_apart(others.iter().filter_map(|it| process.find_peer(it.process())))?;
        let both = [own, other].concat();
        Ok((Announcement::Contacts(agreed, both.len() as u32).emit(), both))
    }

    fn check_apart(&self, mut others: impl Iterator<Item = PeerId>) -> Result<()> {
        let common = others.find(|&peer| self.group().rank_of(peer).is_some());
        common.map_or(Ok(()), |common| {
            let message = format!("{} is in both groups", self.process().peer_name(common));
            Err(Error::new(ErrorClass::Comm, message))
        })
    }

    /// The contacts of the group's members, if they are wanted.
    fn contacts_of_group(&self, is_wanted: bool) -> Result<Vec<u8>> {
        if !is_wanted {
            return Ok(Vec::new());
        }
        let process = self.process();
        let contacts = self.group().iter().map(|peer| process.contact_of(peer));
        let contacts = contacts.collect::<runtime::Result<Vec<_>>>();
        Ok(emit_contacts(
            &contacts.map_err(|error| Error::new(ErrorClass::Other, error.to_string()))?,
        ))
    }
}

/// Adds the peers of the other group, and notes the contacts of the own; returns the former.
fn add_peers(process: &Process, groups: &TwoGroups) -> Result<Vec<PeerId>> {
    let add = |contact: &Contact| process.add_peer(contact).map_err(other);
    let [_, added] =
        groups.each_ref().map(|group| group.iter().map(add).collect::<Result<Vec<_>>>());
    added
}

#[cold]
fn other(error: runtime::Error) -> Error {
    Error::new(ErrorClass::Other, error.0)
}

/// Hears whether all of both groups are ready; this process is, if `is_ready`. The roots tell each other, and their groups.
fn judge(span: &Span<'_>, is_ready: bool, channel: &mut Option<Channel<'_>>) -> Result<Verdict> {
    let are_ready = span.all(is_ready).unwrap_or(false);
    let verdict = match channel {
        Some(Ok(channel)) => match channel.swap(&[u8::from(are_ready)], 1) {
            Ok(theirs) if theirs == [1] && are_ready => Verdict::Done,
            Err(_) if are_ready && channel.has_begun() => Verdict::Again,
            Ok(_) | Err(_) => Verdict::Failed,
        },
        Some(Err(_)) | None => Verdict::Failed,
    };
    Verdict::parse(&span.broadcast(&[verdict as u8])?).ok_or_else(malformed)
}

impl Introduction {
    fn emit(&self) -> Vec<u8> {
        let mut bytes = [self.context.to_le_bytes(), self.job.to_le_bytes()].concat();
        match &self.members {
            Ok(ranks) => {
                bytes.push(RANKS);
                bytes.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
            }
            Err(len) => {
                bytes.push(CONTACTS);
                bytes.extend(len.to_le_bytes());
            }
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (context, rest) = bytes.split_first_chunk::<8>()?;
        let (job, rest) = rest.split_first_chunk::<8>()?;
        let (form, rest) = rest.split_first()?;
        let members = match *form {
            RANKS => Ok(parse_ranks(rest)?),
            CONTACTS => Err(u32::from_le_bytes(rest.try_into().ok()?)),
            _ => return None,
        };
        let (context, job) = (u64::from_le_bytes(*context), u64::from_le_bytes(*job));
        Some(Self { context, job, members })
    }
}

impl Announcement {
    fn of(error: &Error) -> Self {
        let end = error.message.floor_char_boundary(TEXT_MAX);
        Self::Failed(error.class, error.message[..end].to_owned())
    }

    fn emit(&self) -> Vec<u8> {
        match self {
            Self::Failed(class, text) => {
                let place = ErrorClass::ALL.iter().position(|one| one == class);
                [&[FAILED, place.unwrap_or_default() as u8], text.as_bytes()].concat()
            }
            Self::Ranks(agreed, ranks) => {
                let mut bytes = agreed.emit(RANKS);
                bytes.extend(ranks.iter().flat_map(|rank| rank.to_le_bytes()));
                bytes
            }
            Self::Contacts(agreed, len) => {
                let mut bytes = agreed.emit(CONTACTS);
                bytes.extend(len.to_le_bytes());
                bytes
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&form, rest) = bytes.split_first()?;
        if form == FAILED {
            let (&class, text) = rest.split_first()?;
            let class = *ErrorClass::ALL.get(usize::from(class))?;
            return Some(Self::Failed(class, String::from_utf8_lossy(text).into_owned()));
        }
        let (context, rest) = rest.split_first_chunk::<8>()?;
        let (&is_second, rest) = rest.split_first()?;
        let agreed = Agreed { context: u64::from_le_bytes(*context), is_second: is_second == 1 };
        match form {
            RANKS => Some(Self::Ranks(agreed, parse_ranks(rest)?)),
            CONTACTS => Some(Self::Contacts(agreed, u32::from_le_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

impl Agreed {
    fn emit(self, form: u8) -> Vec<u8> {
        let mut bytes = vec![form];
        bytes.extend(self.context.to_le_bytes());
        bytes.push(u8::from(self.is_second));
        bytes
    }
}

impl Verdict {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let is_it = |verdict: &Self| bytes == [*verdict as u8];
        [Self::Failed, Self::Done, Self::Again].into_iter().find(is_it)
    }
}

fn parse_ranks(bytes: &[u8]) -> Option<Vec<u32>> {
    let (ranks, []) = bytes.as_chunks::<4>() else { return None };
    Some(ranks.iter().map(|rank| u32::from_le_bytes(*rank)).collect())
}

/// Number of contacts, then each with its length.
fn emit_contacts(contacts: &[Contact]) -> Vec<u8> {
    let mut bytes = (contacts.len() as u32).to_le_bytes().to_vec();
    for contact in contacts {
        let contact = contact.emit();
        bytes.extend((contact.len() as u32).to_le_bytes());
        bytes.extend(contact);
    }
    bytes
}

fn parse_contacts(bytes: &mut &[u8]) -> Option<Vec<Contact>> {
    let number = |bytes: &mut &[u8]| {
        let (number, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*number) as usize)
    };
    let (count, mut processes) = (number(bytes)?, BTreeSet::new());
    let mut contacts = Vec::new();
    for _ in 0..count {
        let len = number(bytes)?;
        let contact = Contact::parse(bytes.split_off(..len)?)?;
        // A process has one rank in a group.
        processes.insert(contact.process()).then(|| contacts.push(contact))?;
    }
    Some(contacts)
}

fn parse_two(mut bytes: &[u8]) -> Option<TwoGroups> {
    let groups = [parse_contacts(&mut bytes)?, parse_contacts(&mut bytes)?];
    (bytes.is_empty() && groups.iter().all(|group| !group.is_empty())).then_some(groups)
}

#[cold]
fn left_alone() -> Error {
    let text = "the root of the other group has gone, or a process could not reach the other group";
    Error::new(ErrorClass::ProcAborted, text)
}

const FAILED: u8 = 0;
const RANKS: u8 = 1;
const CONTACTS: u8 = 2;
/// Maximum bytes of the text of a failure: the rest of a short message.
const TEXT_MAX: usize = 500;
/// Maximum bytes of a contact.
const CONTACT_ROOM: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_the_exchange() {
        for members in [Ok(vec![3, 0, 7]), Err(900)] {
            let mine = Introduction { context: 1 << 62 | 4, job: 9, members };
            let read = Introduction::parse(&mine.emit()).unwrap();
            let same =
                (read.context, read.job, read.members) == (mine.context, mine.job, mine.members);
            assert!(same);
        }
        let agreed = Agreed { context: 12, is_second: true };
        let told = Announcement::parse(&Announcement::Ranks(agreed, vec![5, 6]).emit());
        assert!(
            matches!(told, Some(Announcement::Ranks(of, ranks)) if of == agreed && ranks == [5, 6])
        );
        let told = Announcement::parse(&Announcement::Contacts(agreed, 77).emit());
        assert!(matches!(told, Some(Announcement::Contacts(of, 77)) if of == agreed));
        let error = Error::new(ErrorClass::Port, "ä".repeat(TEXT_MAX));
        let told = Announcement::parse(&Announcement::of(&error).emit());
        let text = "ä".repeat(TEXT_MAX / 2);
        assert!(
            matches!(told, Some(Announcement::Failed(ErrorClass::Port, found)) if found == text)
        );
    }

    proptest! {
        /// Peers of other jobs send what they like.
        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Introduction::parse(&bytes), Announcement::parse(&bytes));
            let _ = (parse_two(&bytes), Contact::parse(&bytes), Verdict::parse(&bytes));
        }
    }
}
