//! Two ends of a handshake, and what each says to the other.

use std::time::Duration;

use auth::{Credentials, Handshake, HandshakeEnd, Keyring, Opening, Own, Step};
use connect::{Asked, Links, Refusal};
use testing::Random;
use wire::PeerId;

/// Way in which the two ends prove themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Proof {
    Codes,
    /// A code over an encrypted connection, where the hello comes before the keys.
    Keys,
    Channel,
}

pub const PROOFS: [Proof; 3] = [Proof::Codes, Proof::Keys, Proof::Channel];
pub const CALLER: PeerId = PeerId(3);
pub const ACCEPTOR: PeerId = PeerId(1);
pub const JOB: u64 = 0x1122_3344_5566_7788;
pub const DEADLINE: Duration = Duration::from_secs(10);

impl Proof {
    pub fn encrypts(self) -> bool {
        self != Self::Codes
    }

    /// Channel binding of the connections of a test.
    pub fn binding(self) -> [u8; 32] {
        if self.encrypts() { [9; 32] } else { [0; 32] }
    }
}

pub fn credentials(rank: PeerId) -> Credentials {
    Credentials { rank, job: JOB, secret: [7; 32].into() }
}

pub fn keys(rank: PeerId) -> Keyring {
    Keyring::new(credentials(rank))
}

/// Returns a process as a party of handshakes.
pub fn own(proof: Proof, keys: &Keyring) -> Own<'_> {
    let Credentials { rank, job, .. } = *keys.own();
    match proof {
        Proof::Codes | Proof::Keys => Own::Codes(keys),
        Proof::Channel => Own::Channel { job, rank, known_as: rank, others: None },
    }
}

pub fn nonce(random: &mut Random) -> [u8; 32] {
    std::array::from_fn(|_| random.next() as u8)
}

/// The first opening of a link to `peer`.
pub fn first_opening(caller: PeerId, peer: PeerId) -> Asked {
    Links::<usize>::new(caller, DEADLINE).ask(peer, false)
}

/// An end of a handshake.
pub struct Party {
    pub proof: Proof,
    pub keys: Keyring,
    pub binding: [u8; 32],
    pub handshake: Handshake,
    /// Everything said so far.
    pub said: Vec<u8>,
}

impl Party {
    pub fn caller(proof: Proof, keys: Keyring, asked: Asked, random: &mut Random) -> Self {
        let (note, nonce) = ([1, 2, 3, 4], nonce(random));
        let encrypts = proof.encrypts();
        let opening = Opening { asked, wanted: asked.peer(), encrypts, note, nonce };
        let (handshake, hello) = Handshake::call(&own(proof, &keys), &opening, DEADLINE);
        Self { proof, keys, binding: proof.binding(), handshake, said: hello.to_vec() }
    }

    pub fn acceptor(proof: Proof, keys: Keyring) -> Self {
        let (binding, handshake) = (proof.binding(), Handshake::listen(DEADLINE));
        Self { proof, keys, binding, handshake, said: Vec::new() }
    }

    /// Agrees on keys, as far as the party can, and says what follows.
    fn agree(&mut self, random: &mut Random) -> Result<(), HandshakeEnd> {
        let said = self.handshake.handle_keys(&self.keys, &self.binding, nonce(random))?;
        self.said.extend(said);
        Ok(())
    }

    /// Takes bytes in pieces of random length, until a step concerns the link, or the end. What is not taken is left.
    pub fn hear(&mut self, bytes: &mut &[u8], random: &mut Random) -> Result<Step, HandshakeEnd> {
        if self.proof == Proof::Keys && self.handshake.missing() == 0 {
            self.agree(random)?;
        }
        let mut left = self.handshake.missing() + 1000;
        while !bytes.is_empty() {
            assert!(left > 0, "it makes no progress");
            left -= 1;
            let own = own(self.proof, &self.keys);
            let len = 1 + random.below(bytes.len());
            let mut piece = &bytes[..len];
            let missing = self.handshake.missing();
            let step = self.handshake.handle_bytes(&own, &mut piece, || Ok(self.binding))?;
            assert_eq!(len - piece.len(), missing.min(len), "it takes what it lacks, and no more");
            *bytes = &bytes[len - piece.len()..];
            match step {
                Step::Waits => {}
                Step::Proves(proof) => self.said.extend(proof),
                Step::Introduced(_) => self.agree(random)?,
                Step::Identified { .. } | Step::Accepted { .. } => return Ok(step),
            }
        }
        Ok(Step::Waits)
    }
}

/// An honest pair, up to the point at which the acceptor knows the caller. Returns what each has said.
pub fn introduce(proof: Proof, random: &mut Random) -> (Party, Party, Step) {
    let asked = first_opening(CALLER, ACCEPTOR);
    let mut caller = Party::caller(proof, keys(CALLER), asked, random);
    let mut acceptor = Party::acceptor(proof, keys(ACCEPTOR));
    let step = meet(&mut caller, &mut acceptor, random).expect("honest ends");
    (caller, acceptor, step)
}

/// Lets two ends talk up to the point at which the acceptor knows the caller.
pub fn meet(
    caller: &mut Party,
    acceptor: &mut Party,
    random: &mut Random,
) -> Result<Step, HandshakeEnd> {
    let (mut heard, mut answered) = (0, 0);
    for _ in 0..3 {
        let mut bytes = &caller.said[heard..];
        let step = acceptor.hear(&mut bytes, random)?;
        assert!(bytes.is_empty(), "the caller says no more than it is asked");
        heard = caller.said.len();
        if step != Step::Waits {
            return Ok(step);
        }
        let said = acceptor.said.clone();
        let step = caller.hear(&mut &said[answered..], random)?;
        assert_eq!(step, Step::Waits, "no verdict is said");
        answered = said.len();
    }
    panic!("no end");
}

/// The refusal in the end of a handshake.
pub fn refusal(end: Result<Step, HandshakeEnd>) -> Option<Refusal> {
    match end {
        Err(HandshakeEnd::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}
