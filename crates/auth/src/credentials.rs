//! Mutual authentication: both ends prove that they know the job's secret before anything else is read.
//!
//! The initiator sends a hello: job, both ranks, a nonce, the number of this opening of the link, and whether it will
//! encrypt. It adds a note for the acceptor. The acceptor answers with a nonce and a MAC over both. The initiator
//! proves itself with its own MAC. The acceptor's verdict decides whether this connection is the link. MACs are
//! HMAC-SHA256 under the secret. They bind role, ranks and both nonces, so that nothing recorded can be replayed.
//!
//! On an encrypted link everything after the hello is encrypted. TLS then proves the acceptor, and there is no answer.
//! The initiator's MAC binds its hello to the keys that the two ends agreed on. A man in the middle has other keys with
//! each of them, and no two connections have the same.

use connect::{HelloPrefix, Refusal};
use hmac::{Hmac, Mac};
use secret::{Secret, scrubbed};
use sha2::Sha256;
use wire::PeerId;

/// Knowledge that both ends of a connection share.
#[derive(Clone)]
pub struct Credentials {
    /// Rank of this process.
    pub rank: PeerId,
    /// Number of the job.
    pub job: u64,
    /// Secret of the job.
    pub secret: Secret,
}

/// Length of a hello in bytes.
pub const HELLO_LEN: usize = NOTE_AT + NOTE_LEN;
/// Offset of the byte in a hello that says whether the sender will encrypt.
pub const ENCRYPTS_AT: usize = HelloPrefix::LEN + 32;
const NOTE_AT: usize = ENCRYPTS_AT + 1;
/// Length of a note in a hello.
pub const NOTE_LEN: usize = 4;
/// Length of an answer in bytes.
pub const ANSWER_LEN: usize = 64;
/// Length of a proof in bytes.
pub const PROOF_LEN: usize = 32;
/// Length of a seal in bytes.
pub const SEAL_LEN: usize = 32;

/// First message of the initiator.
pub type Hello = [u8; HELLO_LEN];
/// Answer of the acceptor: a nonce and a proof.
pub type Answer = [u8; ANSWER_LEN];
/// Random bytes that no other handshake has.
pub type Nonce = [u8; 32];
/// Channel binding: equal at both ends of an encrypted connection and nowhere else; zeros without encryption.
pub type Binding = [u8; 32];

/// The sender of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The peer that it claims to be.
    pub peer: PeerId,
    /// True if it encrypts everything after the hello.
    pub encrypts: bool,
    /// Four bytes for the acceptor, which the proofs cover.
    pub note: [u8; NOTE_LEN],
    /// Number of this opening of the link, as the caller counts.
    pub generation: u32,
}

impl Credentials {
    /// Returns the initiator's hello to `peer`.
    pub fn hello(&self, peer: PeerId, encrypts: bool, generation: u32, nonce: Nonce) -> Hello {
        let prefix = HelloPrefix { job: self.job, caller: self.rank, wanted: peer, generation };
        hello(&prefix, encrypts, [0; NOTE_LEN], nonce)
    }

    /// The sender of a hello.
    ///
    /// # Errors
    /// Returned when the caller is not of this job or wants another rank.
    pub fn check_hello(&self, hello: &Hello) -> Result<Caller, Refusal> {
        check_hello(hello, self.job, self.rank)
    }

    /// Returns the acceptor's answer.
    pub fn answer(&self, hello: &Hello, binding: &Binding, nonce: Nonce) -> Answer {
        let mut answer = [0; ANSWER_LEN];
        answer[..32].copy_from_slice(&nonce);
        answer[32..].copy_from_slice(&self.code(&[b"answer", hello, binding, &nonce]));
        answer
    }

    /// Checks that an answer proves knowledge of the secret.
    ///
    /// # Errors
    /// Returned when it does not.
    pub fn check_answer(
        &self,
        hello: &Hello,
        binding: &Binding,
        answer: &Answer,
    ) -> Result<(), Refusal> {
        let (nonce, code) = answer.split_at(32);
        self.check(&[b"answer", hello, binding, nonce], code, Refusal::Secret)
    }

    /// Returns the initiator's proof.
    pub fn proof(&self, hello: &Hello, binding: &Binding, answer: &Answer) -> [u8; PROOF_LEN] {
        self.code(&[b"proof!", hello, binding, &answer[..32]])
    }

    /// Checks that a proof proves knowledge of the secret.
    ///
    /// # Errors
    /// Returned when it does not.
    pub fn check_proof(
        &self,
        hello: &Hello,
        binding: &Binding,
        answer: &Answer,
        proof: &[u8; PROOF_LEN],
    ) -> Result<(), Refusal> {
        self.check(&[b"proof!", hello, binding, &answer[..32]], proof, Refusal::Secret)
    }

    /// Returns the initiator's proof over an encrypted connection.
    pub fn proof_with_keys(&self, hello: &Hello, binding: &Binding) -> [u8; PROOF_LEN] {
        self.code(&[b"keyed!", hello, binding])
    }

    /// Checks that a proof over an encrypted connection proves knowledge of the secret. A connection without keys has
    /// no such proof.
    ///
    /// # Errors
    /// Returned when it does not.
    pub fn check_proof_with_keys(
        &self,
        hello: &Hello,
        binding: &Binding,
        proof: &[u8; PROOF_LEN],
    ) -> Result<(), Refusal> {
        if *binding == CLEAR {
            return Err(Refusal::Clear);
        }
        self.check(&[b"keyed!", hello, binding], proof, Refusal::Secret)
    }

    /// Returns the MAC that binds `words`, a request to a gateway, to a proof.
    pub fn seal(&self, hello: &Hello, answer: &Answer, words: &[u8]) -> [u8; SEAL_LEN] {
        self.code(&[b"sealed", hello, &CLEAR, &answer[..32], words])
    }

    /// Checks that `words` come from the peer that has proved itself.
    ///
    /// # Errors
    /// Returned when they do not.
    pub fn check_seal(
        &self,
        hello: &Hello,
        answer: &Answer,
        words: &[u8],
        seal: &[u8; SEAL_LEN],
    ) -> Result<(), Refusal> {
        self.check(&[b"sealed", hello, &CLEAR, &answer[..32], words], seal, Refusal::Altered)
    }

    /// Returns the MAC of a message after the handshake, sent by one of two sides as its number `count`.
    pub fn seal_later(
        &self,
        hello: &Hello,
        answer: &Answer,
        (side, count): (u8, u64),
        words: &[u8],
    ) -> [u8; SEAL_LEN] {
        let count = count.to_le_bytes();
        self.code(&[b"linked", hello, &CLEAR, &answer[..32], &[side], &count, words])
    }

    /// Checks that `words` are the message that the side of this peer sent as its number `count`.
    ///
    /// # Errors
    /// Returned when they are not.
    pub fn check_seal_later(
        &self,
        hello: &Hello,
        answer: &Answer,
        (side, count): (u8, u64),
        words: &[u8],
        seal: &[u8; SEAL_LEN],
    ) -> Result<(), Refusal> {
        let count = count.to_le_bytes();
        let parts: [&[u8]; 7] = [b"linked", hello, &CLEAR, &answer[..32], &[side], &count, words];
        self.check(&parts, seal, Refusal::Altered)
    }

    /// Returns the MAC of the parts of a message.
    fn code(&self, parts: &[&[u8]]) -> [u8; 32] {
        scrubbed(|| self.mac(parts).finalize().into_bytes().into())
    }

    /// Checks a MAC of the parts of a message, in a time that does not depend on where it is wrong.
    fn check(&self, parts: &[&[u8]], code: &[u8], refusal: Refusal) -> Result<(), Refusal> {
        scrubbed(|| self.mac(parts).verify_slice(code)).map_err(|_| refusal)
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.secret.expose()) else {
            unreachable!("HMAC takes keys of any length");
        };
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// Binding of a connection that is not encrypted.
const CLEAR: Binding = [0; 32];

/// Returns a hello.
pub(crate) fn hello(
    prefix: &HelloPrefix,
    encrypts: bool,
    note: [u8; NOTE_LEN],
    nonce: Nonce,
) -> Hello {
    let mut hello = [0; HELLO_LEN];
    hello[..HelloPrefix::LEN].copy_from_slice(&prefix.emit());
    hello[HelloPrefix::LEN..ENCRYPTS_AT].copy_from_slice(&nonce);
    hello[ENCRYPTS_AT] = u8::from(encrypts);
    hello[NOTE_AT..].copy_from_slice(&note);
    hello
}

/// The sender of a hello to the process `own` of a job.
pub(crate) fn check_hello(hello: &Hello, job: u64, own: PeerId) -> Result<Caller, Refusal> {
    let (mut prefix, mut note) = ([0; HelloPrefix::LEN], [0; NOTE_LEN]);
    prefix.copy_from_slice(&hello[..HelloPrefix::LEN]);
    note.copy_from_slice(&hello[NOTE_AT..]);
    let HelloPrefix { caller, generation, .. } = HelloPrefix::check(&prefix, job, own)?;
    let encrypts = match hello[ENCRYPTS_AT] {
        0 => false,
        1 => true,
        _ => return Err(Refusal::Protocol),
    };
    Ok(Caller { peer: caller, encrypts, generation, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rank: u32, job: u64, secret: u8) -> Credentials {
        Credentials { rank: PeerId(rank), job, secret: [secret; 32].into() }
    }

    #[test]
    fn ranks_of_a_job_authenticate_each_other() {
        for encrypts in [false, true] {
            let (a, b) = (side(0, 9, 1), side(1, 9, 1));
            let hello = a.hello(PeerId(1), encrypts, 3, [5; 32]);
            let note = [0; NOTE_LEN];
            let caller = Caller { peer: PeerId(0), encrypts, generation: 3, note };
            assert_eq!(b.check_hello(&hello), Ok(caller));
            let answer = b.answer(&hello, &CLEAR, [6; 32]);
            assert_eq!(a.check_answer(&hello, &CLEAR, &answer), Ok(()));
            let proof = a.proof(&hello, &CLEAR, &answer);
            assert_eq!(b.check_proof(&hello, &CLEAR, &answer, &proof), Ok(()));
        }
    }

    #[test]
    fn other_jobs_and_protocols_are_refused_for_their_reason() {
        let b = side(1, 9, 1);
        let hello = |job, to| side(0, job, 1).hello(PeerId(to), false, 1, [0; 32]);
        assert_eq!(b.check_hello(&hello(8, 1)), Err(Refusal::Job));
        assert_eq!(b.check_hello(&hello(9, 2)), Err(Refusal::Job));
        assert_eq!(b.check_hello(&[b'G'; HELLO_LEN]), Err(Refusal::Protocol));
        let thief = side(0, 9, 2);
        let hello = thief.hello(PeerId(1), false, 1, [5; 32]);
        let answer = b.answer(&hello, &CLEAR, [6; 32]);
        assert_eq!(thief.check_answer(&hello, &CLEAR, &answer), Err(Refusal::Secret));
        let proof = thief.proof(&hello, &CLEAR, &answer);
        assert_eq!(b.check_proof(&hello, &CLEAR, &answer, &proof), Err(Refusal::Secret));
    }

    #[test]
    fn a_recorded_proof_does_not_fit_another_nonce() {
        let (a, b) = (side(0, 9, 1), side(1, 9, 1));
        let hello = a.hello(PeerId(1), false, 1, [5; 32]);
        let proof = a.proof(&hello, &CLEAR, &b.answer(&hello, &CLEAR, [6; 32]));
        let fresh = b.answer(&hello, &CLEAR, [7; 32]);
        assert_eq!(b.check_proof(&hello, &CLEAR, &fresh, &proof), Err(Refusal::Secret));
        // Nor can an answer be reflected as a proof.
        let mut reflected = [0; PROOF_LEN];
        reflected.copy_from_slice(&fresh[32..]);
        assert_eq!(b.check_proof(&hello, &CLEAR, &fresh, &reflected), Err(Refusal::Secret));
    }

    #[test]
    fn proofs_of_another_connection_or_another_kind_of_connection_do_not_fit() {
        let (a, b) = (side(0, 9, 1), side(1, 9, 1));
        let hello = a.hello(PeerId(1), true, 1, [5; 32]);
        let (one, other) = ([1; 32], [2; 32]);
        let proof = a.proof_with_keys(&hello, &one);
        assert_eq!(b.check_proof_with_keys(&hello, &one, &proof), Ok(()));
        assert_eq!(b.check_proof_with_keys(&hello, &other, &proof), Err(Refusal::Secret));
        let mut clear = hello;
        clear[ENCRYPTS_AT] = 0;
        assert_eq!(b.check_proof_with_keys(&clear, &one, &proof), Err(Refusal::Secret));
        let answer = b.answer(&hello, &one, [6; 32]);
        assert_eq!(b.check_proof(&hello, &one, &answer, &proof), Err(Refusal::Secret));
        // Without keys nothing is fresh.
        let proof = a.proof_with_keys(&hello, &CLEAR);
        assert_eq!(b.check_proof_with_keys(&hello, &CLEAR, &proof), Err(Refusal::Clear));
    }
}
