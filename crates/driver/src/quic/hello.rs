//! The first word on a connection: which ranks it joins.
//!
//! Both ends have shown the job's key by then, so there is nothing left to prove. The side that has opened
//! the connection says who it is and whom it looks for, and which opening of the link between the two this is; the
//! other answers that this connection is the link, and which opening it counts, or closes it.

use wire::PeerId;

use crate::tcp::Refusal;

/// Who this process is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Myself {
    pub rank: PeerId,
    pub job: u64,
    /// Gateways are looked for by their addresses, whatever number they have given themselves.
    pub is_gateway: bool,
}

/// A hello that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub rank: PeerId,
    /// Which opening of the link it has in mind.
    pub generation: u32,
}

pub(super) const HELLO_LEN: usize = 28;
pub(super) const VERDICT_LEN: usize = 5;
const ACCEPTED: u8 = 1;

/// What is said to a caller whose connection is the link.
pub(super) fn accept(generation: u32) -> [u8; VERDICT_LEN] {
    let mut verdict = [ACCEPTED; VERDICT_LEN];
    verdict[1..].copy_from_slice(&generation.to_le_bytes());
    verdict
}

/// Which opening the peer counts, if it has accepted.
pub(super) fn accepted(verdict: [u8; VERDICT_LEN]) -> Option<u32> {
    let [ACCEPTED, generation @ ..] = verdict else { return None };
    Some(u32::from_le_bytes(generation))
}

impl Myself {
    /// What is said to `peer`.
    pub fn hello(&self, peer: PeerId, generation: u32) -> [u8; HELLO_LEN] {
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8..16].copy_from_slice(&self.job.to_le_bytes());
        hello[16..20].copy_from_slice(&self.rank.0.to_le_bytes());
        let wanted = if self.is_gateway { ANY_GATEWAY } else { peer.0 };
        hello[20..24].copy_from_slice(&wanted.to_le_bytes());
        hello[24..].copy_from_slice(&generation.to_le_bytes());
        hello
    }

    /// Who says hello.
    ///
    /// # Errors
    /// When it is nobody of this job who looks for this rank.
    pub fn check(&self, hello: &[u8; HELLO_LEN]) -> Result<Caller, Refusal> {
        if &hello[..8] != MAGIC {
            return Err(Refusal::Protocol);
        }
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&hello[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let own = if self.is_gateway { ANY_GATEWAY } else { self.rank.0 };
        if hello[8..16] != self.job.to_le_bytes() || word(20) != own {
            return Err(Refusal::Job);
        }
        Ok(Caller { rank: PeerId(word(16)), generation: word(24) })
    }
}

/// A name and a version.
const MAGIC: &[u8; 8] = b"caneleq\x02";
/// No rank has this number.
const ANY_GATEWAY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rank: u32, job: u64) -> Myself {
        Myself { rank: PeerId(rank), job, is_gateway: false }
    }

    #[test]
    fn gateways_look_for_gateways_and_for_nobody_else() {
        let [one, other] = [5, 6].map(|rank| Myself { is_gateway: true, ..side(rank, 9) });
        let caller = Caller { rank: PeerId(5), generation: 1 };
        assert_eq!(other.check(&one.hello(PeerId(0), 1)), Ok(caller));
        assert_eq!(side(0, 9).check(&one.hello(PeerId(0), 1)), Err(Refusal::Job));
        assert_eq!(other.check(&side(0, 9).hello(PeerId(6), 1)), Err(Refusal::Job));
    }

    #[test]
    fn only_one_of_the_job_who_looks_for_this_rank_is_heard() {
        let own = side(1, 9);
        let caller = Caller { rank: PeerId(0), generation: 4 };
        assert_eq!(own.check(&side(0, 9).hello(PeerId(1), 4)), Ok(caller));
        assert_eq!(own.check(&side(0, 8).hello(PeerId(1), 4)), Err(Refusal::Job));
        assert_eq!(own.check(&side(0, 9).hello(PeerId(2), 4)), Err(Refusal::Job));
        assert_eq!(own.check(&[7; HELLO_LEN]), Err(Refusal::Protocol));
    }

    #[test]
    fn a_verdict_tells_the_opening_that_the_other_counts() {
        assert_eq!(accepted(accept(0x0102_0304)), Some(0x0102_0304));
        assert_eq!(accepted([0; VERDICT_LEN]), None);
    }
}
