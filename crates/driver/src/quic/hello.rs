//! The first word on a connection: which ranks it joins.
//!
//! Both ends have shown the job's key by then, so there is nothing left to prove. The side that has opened
//! the connection says who it is and whom it looks for; the other answers with one byte that this connection
//! is the link, or closes it.

use wire::GateId;

use crate::tcp::Refusal;

/// Who this process is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Myself {
    pub rank: GateId,
    pub job: u64,
}

pub(super) const HELLO_LEN: usize = 24;
pub(super) const ACCEPTED: u8 = 1;

impl Myself {
    /// What is said to `peer`.
    pub fn hello(&self, peer: GateId) -> [u8; HELLO_LEN] {
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8..16].copy_from_slice(&self.job.to_le_bytes());
        hello[16..20].copy_from_slice(&self.rank.0.to_le_bytes());
        hello[20..].copy_from_slice(&peer.0.to_le_bytes());
        hello
    }

    /// Who says hello.
    ///
    /// # Errors
    /// When it is nobody of this job who looks for this rank.
    pub fn check(&self, hello: &[u8; HELLO_LEN]) -> Result<GateId, Refusal> {
        if &hello[..8] != MAGIC {
            return Err(Refusal::Protocol);
        }
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&hello[at..at + 4]);
            u32::from_le_bytes(word)
        };
        if hello[8..16] != self.job.to_le_bytes() || word(20) != self.rank.0 {
            return Err(Refusal::Job);
        }
        Ok(GateId(word(16)))
    }
}

/// A name and a version.
const MAGIC: &[u8; 8] = b"caneleq\x01";

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rank: u32, job: u64) -> Myself {
        Myself { rank: GateId(rank), job }
    }

    #[test]
    fn only_one_of_the_job_who_looks_for_this_rank_is_heard() {
        let own = side(1, 9);
        assert_eq!(own.check(&side(0, 9).hello(GateId(1))), Ok(GateId(0)));
        assert_eq!(own.check(&side(0, 8).hello(GateId(1))), Err(Refusal::Job));
        assert_eq!(own.check(&side(0, 9).hello(GateId(2))), Err(Refusal::Job));
        assert_eq!(own.check(&[7; HELLO_LEN]), Err(Refusal::Protocol));
    }
}
