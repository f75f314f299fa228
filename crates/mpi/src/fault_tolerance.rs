//! Communicators whose members fail (User-Level Failure Mitigation, a proposal to the MPI Forum).

use std::sync::{Arc, OnceLock};

use agree::{AgreementFault, AgreementRecord, Membership, RankSet, agreement};
use coll::{Argument, Failure, Fault, Pending};
use engine::{Revocation, RevokedBy};
use handles::Handle;
use memory::Region;
use progress::Worker;
use runtime::context;
use wire::PeerId;

use crate::collective::PendingCollective;
use crate::comm::Comm;
use crate::group::Group;
use crate::inter::GroupPair;
use crate::request::Request;
use crate::{Error, ErrorClass, Result};

impl Comm {
    /// Ends all operations of the communicator at all members, pending and later ones (not collective).
    pub fn revoke(&self) {
        let revocation = self.revocation();
        self.progress().submit(|worker| worker.revoke(revocation));
    }

    /// True once a member has revoked the communicator, as far as this process knows.
    pub fn is_revoked(&self) -> bool {
        if self.peer_count() > 0 {
            self.learn_of_revocation();
        }
        self.peer_count() == 0
    }

    /// Notes that a member has revoked the communicator.
    pub fn note_revoked(&self) {
        self.end_addressing();
    }

    /// Learns that a new communicator was revoked before this process knew of it.
    pub(crate) fn learn_of_revocation(&self) {
        let (context, revocation) = (self.context(), self.revocation());
        let is_revoked = self.progress().submit(|worker| {
            let by = worker.engine.revoked_by(context);
            let is_revoked = by == Some(RevokedBy::Application);
            if is_revoked {
                worker.revoke(revocation);
            }
            is_revoked
        });
        if is_revoked {
            self.note_revoked();
        }
    }

    /// The members that are known to have failed. Those of an earlier call come first.
    pub fn failed(&self) -> Group {
        self.find_failed();
        Group::of(self.failures().failed().0)
    }

    /// Acknowledges the first members of [`Comm::failed`], at most `count`, and returns how many are acknowledged.
    pub fn acknowledge(&self, count: usize) -> usize {
        self.failures().acknowledge(count)
    }

    /// Acknowledges all members that are known to have failed.
    pub fn acknowledge_all(&self) {
        self.find_failed();
        self.acknowledge(usize::MAX);
    }

    /// The failed members that are acknowledged.
    pub fn acknowledged(&self) -> Group {
        Group::of(self.failures().failed().1)
    }

    fn find_failed(&self) {
        self.progress().look(|worker| self.failures().find(worker));
    }

    fn revocation(&self) -> Revocation {
        let (context, marks) = (self.context(), context::MARKS);
        Revocation { context, marks, by: RevokedBy::Application }
    }
}

/// Agreements, which end whoever fails. On an intercommunicator both groups take part.
impl Comm {
    /// Agrees on the bits that all flags have, of the other group where there are two (collective). There is an error too,
    /// the same for all, if a member has failed and not all have acknowledged it.
    ///
    /// # Errors
    /// The communicator is too large.
    pub fn agree(&self, flag: i32) -> Result<(i32, Option<Error>)> {
        let answer = self.settle(flag.cast_unsigned(), 0)?;
        Ok((self.agreed_flag(&answer), self.unacknowledged(&answer).map(Error::from)))
    }

    /// Nonblocking [`Comm::agree`]; `flag` is read now, and written when the request completes.
    pub fn begin_agree(&self, flag: Region) -> Request {
        let mut bytes = [0; 4];
        flag.read(0, &mut bytes);
        let (end, comm) = (Pending::of_other(), self.clone());
        let told = end.clone();
        let then = move |answer: Answer, worker: &mut Worker| {
            let failure = match answer {
                Ok(answer) => {
                    flag.write(0, &comm.agreed_flag(&answer).to_ne_bytes());
                    comm.note_agreed(&answer);
                    comm.unacknowledged(&answer)
                }
                Err(fault) => Some(failure_of(fault)),
            };
            told.set(failure, worker);
        };
        self.begin(u32::from_ne_bytes(bytes), 0, Box::new(then));
        self.request(end)
    }

    /// Makes a communicator of the members that live, in the same order (collective).
    ///
    /// # Errors
    /// The communicator is too large, or the others take this process for failed.
    pub fn shrink(&self) -> Result<Self> {
        let answer = self.settle(u32::MAX, self.process().draw_context())?;
        self.without_failed(&answer)?.register()
    }

    /// Nonblocking [`Comm::shrink`]. The handle names the new communicator when the request completes.
    ///
    /// # Errors
    /// The table of communicators is full.
    pub fn begin_shrink(&self) -> Result<(Handle, Request)> {
        let (agreed, made) = (Pending::of_other(), self.reserve_handle()?);
        let (told, answer) = (agreed.clone(), Arc::new(OnceLock::new()));
        let (comm, known) = (self.clone(), Arc::clone(&answer));
        let then = move |answer: Answer, worker: &mut Worker| {
            let failure = match answer {
                Ok(answer) => {
                    comm.note_agreed(&answer);
                    let failure = comm.excluded(&answer);
                    let _ = known.set(answer);
                    failure
                }
                Err(fault) => Some(failure_of(fault)),
            };
            told.set(failure, worker);
        };
        self.begin(u32::MAX, self.process().draw_context(), Box::new(then));
        let comm = self.clone();
        // Without the worker's lock, which new communicators need.
        let make = move |_is_ok| {
            let new = answer.get().and_then(|answer| comm.without_failed(answer).ok());
            // The handle stays without a communicator only if the table was cleared meanwhile.
            let _ = new.map(|new| new.take_handle(made));
        };
        let end = agreed.followed_by(self.all().progress(), Box::new(make));
        Ok((made, self.request(end)))
    }

    fn request(&self, end: Pending) -> Request {
        Request::Collective(PendingCollective::new(end, self.handle()))
    }

    /// The communicator of all members, of both groups if there are two.
    fn all(&self) -> &Self {
        self.merged().unwrap_or(self)
    }

    /// Takes part in an agreement, and waits for the answer.
    fn settle(&self, flag: u32, number: u64) -> Result<AgreementRecord> {
        let answer = Arc::new(OnceLock::new());
        let told = Arc::clone(&answer);
        // An agreement ends once.
        let then = move |answer: Answer, _: &mut Worker| drop(told.set(answer));
        self.begin(flag, number, Box::new(then));
        let answer = self.all().progress().wait(|_| answer.get().cloned());
        let answer = answer.map_err(|fault| Error::from(failure_of(fault)))?;
        self.note_agreed(&answer);
        Ok(answer)
    }

    fn begin(&self, flag: u32, number: u64, then: agree::Then) {
        self.find_failed();
        let all = self.all();
        let size = all.size() as usize;
        let ranks = |peers: Vec<PeerId>| {
            RankSet::of(size, peers.into_iter().filter_map(|peer| all.group().rank_of(peer)))
        };
        let (failed, acked) = self.failures().failed();
        let (failed, acked) = (ranks(failed), ranks(acked));
        let flags = if self.is_of_second() { [u32::MAX, flag] } else { [flag, u32::MAX] };
        let own = AgreementRecord { flags, number, failed, acked };
        let (context, members) = (self.context(), all.group().iter().collect());
        let membership = Membership { context, members, rank: all.rank() };
        let agreements = self.process().agreements(all.vci());
        all.progress().begin(agreement(agreements, membership, own, then));
    }

    /// True if this process is in the second group of an intercommunicator.
    fn is_of_second(&self) -> bool {
        self.pair().is_some_and(|pair| pair.is_second)
    }

    /// The agreed flag: that of the other group, if there are two.
    fn agreed_flag(&self, answer: &AgreementRecord) -> i32 {
        let is_second = self.pair().is_some_and(|pair| !pair.is_second);
        answer.flags[usize::from(is_second)].cast_signed()
    }

    /// Learns of failures on which all have agreed.
    fn note_agreed(&self, answer: &AgreementRecord) {
        let (all, own) = (self.all(), self.process().own_peer());
        let agreed = answer.failed.iter().map(|rank| all.peer(rank));
        self.failures().add(agreed.filter(|peer| *peer != own));
    }

    /// The failure of an agreement in spite of which there is an answer.
    fn unacknowledged(&self, answer: &AgreementRecord) -> Option<Box<Failure>> {
        let ranks = answer.failed.iter().filter(|rank| !answer.acked.contains(*rank));
        let names: Vec<String> = ranks.map(|rank| self.name_of(rank)).collect();
        let message = || {
            let names = names.join(", ");
            format!("failed: {names}; not all have acknowledged this with MPIX_Comm_ack_failed")
        };
        (!names.is_empty()).then(|| Failure::new(Fault::PeerGone, message()))
    }

    /// The failure of a process that the others take for failed.
    fn excluded(&self, answer: &AgreementRecord) -> Option<Box<Failure>> {
        let message = "the other members take this process for failed";
        let is_excluded = answer.failed.contains(self.all().rank());
        is_excluded.then(|| Failure::new(Fault::PeerGone, message))
    }

    fn name_of(&self, rank: u32) -> String {
        self.process().peer_name(self.all().peer(rank)).to_string()
    }

    /// The new communicator without the failed members.
    fn without_failed(&self, answer: &AgreementRecord) -> Result<Self> {
        if let Some(failure) = self.excluded(answer) {
            return Err(failure.into());
        }
        let all = self.all().group();
        let lives =
            |peer: &PeerId| all.rank_of(*peer).is_some_and(|rank| !answer.failed.contains(rank));
        let living = |group: &Group| Group::of(group.iter().filter(lives).collect());
        let (process, context) = (self.process(), answer.number);
        match self.pair() {
            Some(pair) => {
                let groups = [living(&pair.groups[0]), living(&pair.groups[1])];
                if groups.iter().any(|group| group.size() == 0) {
                    let message = "no member of the other group lives";
                    return Err(Error::new(ErrorClass::ProcAborted, message));
                }
                let pair = GroupPair { groups, is_second: pair.is_second };
                Ok(Self::between(process, context, pair, self.errhandler()))
            }
            None => {
                let group = living(self.group());
                let rank = group.rank_of(process.own_peer()).unwrap_or(0);
                Ok(Self::new(process, context, group, rank, self.errhandler()))
            }
        }
    }
}

/// The answer of an agreement.
type Answer = std::result::Result<AgreementRecord, AgreementFault>;

fn failure_of(fault: AgreementFault) -> Box<Failure> {
    match fault {
        AgreementFault::TooLarge => {
            Failure::new(Fault::NoMemory, "the communicator is too large for an agreement")
        }
        AgreementFault::Malformed => Failure::new(
            Fault::Differ(Argument::Routine),
            "the processes do not call the same functions of an agreement",
        ),
    }
}
