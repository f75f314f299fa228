//! Hello and verdict: the first messages on a connection, which state the ranks it joins.
//!
//! Both ends have authenticated with the job's key by then. The client sends its rank, the rank it looks for, and the
//! generation of the link. The server replies with the generation it counts, which accepts the connection as the
//! link, or closes the connection.

use bytes::Bytes;
use connect::{DialFailure, HelloPrefix, other_version, version_word};
use quinn_proto::{ConnectionError, TransportErrorCode};
use rail::Refusal;
use wire::PeerId;

/// Identity of this process in hellos.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalEnd {
    pub rank: PeerId,
    pub job: u64,
    /// True for a gateway. Gateways are reached by address, whatever number they have given themselves.
    pub is_gateway: bool,
}

pub(super) const HELLO_LEN: usize = HelloPrefix::LEN;
pub(super) const VERDICT_LEN: usize = 5;
const ACCEPTED: u8 = 1;

/// Encodes the verdict that accepts a connection as the link.
pub(super) fn accept(generation: u32) -> [u8; VERDICT_LEN] {
    let mut verdict = [ACCEPTED; VERDICT_LEN];
    verdict[1..].copy_from_slice(&generation.to_le_bytes());
    verdict
}

/// Returns the generation that the server counts, if it has accepted.
pub(super) fn accepted(verdict: [u8; VERDICT_LEN]) -> Option<u32> {
    let [ACCEPTED, generation @ ..] = verdict else { return None };
    Some(u32::from_le_bytes(generation))
}

impl LocalEnd {
    /// Encodes the hello to `peer`.
    pub fn hello(&self, peer: PeerId, generation: u32) -> [u8; HELLO_LEN] {
        let wanted = if self.is_gateway { ANY_GATEWAY } else { peer };
        HelloPrefix { job: self.job, caller: self.rank, wanted, generation }.emit()
    }

    /// Decodes a hello.
    ///
    /// # Errors
    /// The client has another version or job, or looks for another rank.
    pub fn check(&self, hello: &[u8; HELLO_LEN]) -> Result<HelloPrefix, Refusal> {
        let own = if self.is_gateway { ANY_GATEWAY } else { self.rank };
        HelloPrefix::check(hello, self.job, own)
    }
}

/// Returns the reason sent with the end of a refused connection: the own version, if the client has another.
pub(super) fn answer_to(refusal: Refusal) -> Bytes {
    match refusal {
        Refusal::Version { .. } => Bytes::copy_from_slice(&version_word()),
        Refusal::Protocol
        | Refusal::Job
        | Refusal::Secret
        | Refusal::Slow
        | Refusal::Closed
        | Refusal::Altered
        | Refusal::Clear
        | Refusal::Encrypted
        | Refusal::TooMany => Bytes::new(),
    }
}

/// True if the other end has preferred another connection, or refused this end.
pub(super) fn is_declined(reason: &ConnectionError) -> bool {
    matches!(reason, ConnectionError::ApplicationClosed(_))
}

/// Says why an attempt of this end has failed.
pub(super) fn dial_failure(reason: &ConnectionError) -> DialFailure {
    let answered = match reason {
        ConnectionError::ApplicationClosed(close) => other_version(&close.reason),
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::Reset
        | ConnectionError::TimedOut
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => None,
    };
    match answered {
        Some(refusal) => DialFailure::other_version(refusal.to_string()),
        None if refusal(reason) == Some(Refusal::Secret) => {
            DialFailure::stranger(Refusal::Secret.to_string())
        }
        None => DialFailure::silent(reason.to_string()),
    }
}

/// Number that is no rank and stands for any gateway.
const ANY_GATEWAY: PeerId = PeerId(u32::MAX);

/// Returns the refusal to report when an unauthenticated connection ends. A client that closes in the middle may have
/// found a better path and is not reported.
pub(super) fn refusal(reason: &ConnectionError) -> Option<Refusal> {
    let code = match reason {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        ConnectionError::VersionMismatch => return Some(Refusal::Protocol),
        ConnectionError::TimedOut => return Some(Refusal::Slow),
        ConnectionError::ApplicationClosed(_)
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

#[cfg(test)]
mod tests {
    use wire::PROTOCOL_VERSION;

    use super::*;

    fn side(rank: u32, job: u64) -> LocalEnd {
        LocalEnd { rank: PeerId(rank), job, is_gateway: false }
    }

    #[test]
    fn gateways_accept_hellos_of_gateways_only() {
        let [one, other] = [5, 6].map(|rank| LocalEnd { is_gateway: true, ..side(rank, 9) });
        let prefix = HelloPrefix { job: 9, caller: PeerId(5), wanted: ANY_GATEWAY, generation: 1 };
        assert_eq!(other.check(&one.hello(PeerId(0), 1)), Ok(prefix));
        assert_eq!(side(0, 9).check(&one.hello(PeerId(0), 1)), Err(Refusal::Job));
        assert_eq!(other.check(&side(0, 9).hello(PeerId(6), 1)), Err(Refusal::Job));
    }

    #[test]
    fn a_hello_of_another_job_or_for_another_rank_is_refused() {
        let own = side(1, 9);
        let prefix = HelloPrefix { job: 9, caller: PeerId(0), wanted: PeerId(1), generation: 4 };
        assert_eq!(own.check(&side(0, 9).hello(PeerId(1), 4)), Ok(prefix));
        assert_eq!(own.check(&side(0, 8).hello(PeerId(1), 4)), Err(Refusal::Job));
        assert_eq!(own.check(&side(0, 9).hello(PeerId(2), 4)), Err(Refusal::Job));
        assert_eq!(own.check(&[7; HELLO_LEN]), Err(Refusal::Protocol));
    }

    #[test]
    fn both_ends_name_both_versions() {
        let own = side(1, 9);
        let mut hello = side(0, 9).hello(PeerId(1), 4);
        hello[7] += 1;
        let refusal = own.check(&hello).unwrap_err();
        let versions = |text: String| {
            [PROTOCOL_VERSION, PROTOCOL_VERSION + 1]
                .map(|version| text.contains(&format!("version {version}")))
        };
        assert_eq!(versions(refusal.to_string()), [true; 2]);
        // The client of the other version sees this end's one.
        let mut reason = answer_to(refusal).to_vec();
        assert_eq!(other_version(&reason), None);
        reason[7] += 1;
        let error_code = 2u32.into();
        let close = quinn_proto::ApplicationClose { error_code, reason: reason.into() };
        let failure = dial_failure(&ConnectionError::ApplicationClosed(close));
        assert_eq!(versions(format!("{failure:?}")), [true; 2]);
        assert_eq!(answer_to(Refusal::Job), Bytes::new());
    }

    #[test]
    fn a_verdict_carries_the_generation() {
        assert_eq!(accepted(accept(0x0102_0304)), Some(0x0102_0304));
        assert_eq!(accepted([0; VERDICT_LEN]), None);
    }
}
