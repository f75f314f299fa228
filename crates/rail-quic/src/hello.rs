//! This process in hellos, and what the end of a QUIC connection means for its handshake ([`auth::Handshake`]).
//!
//! Both ends have authenticated with the job's key, or one that two jobs share, by then. An acceptor that declines or refuses closes the connection
//! instead of saying so on the stream, which a close would discard.

use auth::{HandshakeEnd, OtherJobs, Own};
use connect::other_version;
use quinn_proto::{ConnectionError, TransportErrorCode};
use rail::Refusal;
use wire::{PeerId, ProcessId};

use crate::connection::Code;

/// Identity of this process in hellos.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalEnd {
    pub rank: PeerId,
    pub job: u64,
    /// True for a gateway. Gateways are reached by address, whatever number they have given themselves.
    pub is_gateway: bool,
}

impl LocalEnd {
    /// Returns this process as a party of handshakes, on a connection that has proved the key of `others`, or of the job.
    pub fn own<'a>(&self, others: Option<&'a OtherJobs>) -> Own<'a> {
        let &Self { job, rank, .. } = self;
        Own::Channel { job, rank, known_as: self.name_of(rank), others }
    }

    /// Returns this process as other jobs know it.
    pub fn process(&self) -> ProcessId {
        ProcessId { job: self.job, rank: self.rank.0 }
    }

    /// Returns the number under which callers look for a process of this kind.
    pub fn name_of(&self, peer: PeerId) -> PeerId {
        if self.is_gateway { ANY_GATEWAY } else { peer }
    }
}

/// Says why an attempt of this end has failed.
pub(super) fn end_of_attempt(reason: &ConnectionError) -> HandshakeEnd {
    match (reason, blame(reason)) {
        (ConnectionError::ApplicationClosed(close), _) => match other_version(&close.reason) {
            Some(refusal) => refusal.into(),
            None if close.error_code == (Code::Misbehaved as u32).into() => Refusal::Closed.into(),
            None => HandshakeEnd::Declined,
        },
        (_, Some(Refusal::Secret)) => Refusal::Secret.into(),
        _ => HandshakeEnd::Failed(reason.to_string()),
    }
}

/// Says why an accepted connection has ended. A caller that closes in the middle may have found a better path.
pub(super) fn end_of_accepted(reason: &ConnectionError) -> HandshakeEnd {
    match (reason, blame(reason)) {
        (ConnectionError::TimedOut, _) => HandshakeEnd::Late,
        (_, Some(refusal)) => refusal.into(),
        _ => HandshakeEnd::Declined,
    }
}

/// Returns the refusal in the end of a connection, by this end or the other.
fn blame(reason: &ConnectionError) -> Option<Refusal> {
    let code = match reason {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        ConnectionError::VersionMismatch => return Some(Refusal::Protocol),
        ConnectionError::TimedOut
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => return None,
    };
    let is_of_tls = (0x100..0x200).contains(&u64::from(code));
    let is_of_protocol =
        code != TransportErrorCode::NO_ERROR && code != TransportErrorCode::APPLICATION_ERROR;
    match (is_of_tls, is_of_protocol) {
        (true, _) => Some(Refusal::Secret),
        (false, true) => Some(Refusal::Protocol),
        (false, false) => None,
    }
}

/// Number that is no rank and stands for any gateway.
const ANY_GATEWAY: PeerId = PeerId(u32::MAX);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use auth::{Handshake, Opening, Step, answer_to};
    use bytes::Bytes;
    use connect::{DialFailure, Links};
    use wire::PROTOCOL_VERSION;

    use super::*;

    fn side(rank: u32, job: u64) -> LocalEnd {
        LocalEnd { rank: PeerId(rank), job, is_gateway: false }
    }

    /// Returns what an acceptor makes of a caller's hello to `peer`.
    fn meet(caller: LocalEnd, peer: PeerId, acceptor: LocalEnd) -> Result<Step, HandshakeEnd> {
        let asked = Links::<u32>::new(caller.rank, Duration::MAX).ask(peer, false);
        let (wanted, note, nonce) = (caller.name_of(peer), [0; 4], [0; 32]);
        let opening = Opening { asked, wanted, encrypts: true, note, nonce };
        let (_, hello) = Handshake::call(&caller.own(None), &opening, Duration::MAX);
        let no_binding = || unreachable!("the channel has proved both");
        Handshake::listen(Duration::MAX).handle_bytes(
            &acceptor.own(None),
            &mut &hello[..],
            no_binding,
        )
    }

    #[test]
    fn gateways_accept_hellos_of_gateways_only() {
        let [one, other] = [5, 6].map(|rank| LocalEnd { is_gateway: true, ..side(rank, 9) });
        let known = Step::Identified { peer: PeerId(5), generation: 1 };
        assert_eq!(meet(one, PeerId(0), other), Ok(known));
        assert_eq!(meet(one, PeerId(0), side(0, 9)), Err(Refusal::Job.into()));
        assert_eq!(meet(side(0, 9), PeerId(6), other), Err(Refusal::Job.into()));
    }

    #[test]
    fn a_hello_of_another_job_or_for_another_rank_is_refused() {
        let known = Step::Identified { peer: PeerId(0), generation: 1 };
        assert_eq!(meet(side(0, 9), PeerId(1), side(1, 9)), Ok(known));
        assert_eq!(meet(side(0, 8), PeerId(1), side(1, 9)), Err(Refusal::Job.into()));
        assert_eq!(meet(side(0, 9), PeerId(2), side(1, 9)), Err(Refusal::Job.into()));
    }

    fn closed(code: Code, reason: Vec<u8>) -> ConnectionError {
        let error_code = (code as u32).into();
        let reason = Bytes::from(reason);
        ConnectionError::ApplicationClosed(quinn_proto::ApplicationClose { error_code, reason })
    }

    #[test]
    fn the_caller_of_another_version_names_both() {
        let theirs = Refusal::Version { theirs: PROTOCOL_VERSION + 1, own: PROTOCOL_VERSION };
        let mut reason = answer_to(theirs).expect("a version").to_vec();
        assert_eq!(end_of_attempt(&closed(Code::Misbehaved, reason.clone())), CLOSED);
        reason[7] += 1;
        let end = end_of_attempt(&closed(Code::Misbehaved, reason));
        assert_eq!(end, theirs.into());
        let failure = format!("{:?}", DialFailure::from(end));
        for version in [PROTOCOL_VERSION, PROTOCOL_VERSION + 1] {
            assert!(failure.contains(&format!("version {version}")), "{failure}");
        }
    }

    #[test]
    fn closed_connections_were_declined_or_refused() {
        assert_eq!(end_of_attempt(&closed(Code::Declined, Vec::new())), HandshakeEnd::Declined);
        assert_eq!(end_of_attempt(&closed(Code::Misbehaved, Vec::new())), CLOSED);
        assert_eq!(end_of_accepted(&closed(Code::Declined, Vec::new())), HandshakeEnd::Declined);
        assert_eq!(end_of_accepted(&ConnectionError::TimedOut), HandshakeEnd::Late);
        assert_eq!(end_of_accepted(&ConnectionError::Reset), HandshakeEnd::Declined);
        assert!(matches!(end_of_attempt(&ConnectionError::TimedOut), HandshakeEnd::Failed(_)));
    }

    const CLOSED: HandshakeEnd = HandshakeEnd::Refused(Refusal::Closed);
}
