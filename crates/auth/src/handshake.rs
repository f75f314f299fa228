//! The handshake of a connection that is to become a link, without IO, over TCP and QUIC alike.
//!
//! | end | state | awaits | says then |
//! |---|---|---|---|
//! | caller | [`Called`] | the answer | its proof |
//! | caller | [`Agreeing`], if it encrypts | keys | its proof |
//! | caller | [`Proved`] | the verdict | – |
//! | acceptor | [`Listening`] | the hello | – |
//! | acceptor | [`Introduced`] | keys, if the caller encrypts | the answer, if not |
//! | acceptor | [`Challenged`] | the proof | – |
//! | acceptor | [`Keyed`], if the caller encrypts | the proof | – |
//! | acceptor | [`Identified`] | the decision of [`Links::judge`] | the verdict |
//!
//! TLS proves both ends while they agree on keys. So an encrypted connection needs no answer, which saves a round trip:
//! the caller's proof follows its last message of TLS, and binds hello and keys. Over QUIC TLS comes before the hello,
//! and answer and proof are left out ([`Own::Channel`]). Each state is a type whose methods lead to the next one;
//! [`Handshake`] is a connection in one of them. It takes bytes in any pieces, and none that follow the handshake. It
//! never holds more than one message. Time is the rail's clock.

use std::time::Duration;

use connect::{
    Asked, DialFailure, HelloPrefix, Links, Refusal, VERSION_LEN, other_version, version_word,
};
use wire::PeerId;

use crate::credentials::{
    ANSWER_LEN, Answer, Binding, Caller, HELLO_LEN, Hello, NOTE_LEN, Nonce, PROOF_LEN, check_hello,
    hello,
};
use crate::keyring::{Keyring, OtherJobs};

/// This process, as a party of handshakes.
#[derive(Clone, Copy)]
pub enum Own<'a> {
    /// Both ends prove with message codes that they know the key of their jobs.
    Codes(&'a Keyring),
    /// The channel has proved both ends: TLS with the identity of the job, or of the two jobs that share a key.
    Channel {
        /// Number of the job.
        job: u64,
        /// Number of this process, of which callers know it under another one if it is a gateway.
        rank: PeerId,
        /// Number under which callers look for this process.
        known_as: PeerId,
        /// Processes of another job with the key that the channel has proved; `None` if it is the job's secret.
        others: Option<&'a OtherJobs>,
    },
}

/// Contents of a caller's hello.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The opening of the link that the connection is for.
    pub asked: Asked,
    /// Number under which this process looks for the acceptor.
    pub wanted: PeerId,
    /// True if everything after the hello will be encrypted.
    pub encrypts: bool,
    /// Four bytes for the acceptor.
    pub note: [u8; NOTE_LEN],
    /// Random bytes that no other handshake has.
    pub nonce: Nonce,
}

/// A connection in its handshake, seen from one end.
#[derive(Debug)]
pub struct Handshake {
    state: HandshakeState,
    /// Received part of the next message.
    got: Vec<u8>,
    deadline: Duration,
}

#[derive(Clone, Copy, Debug)]
enum HandshakeState {
    Called(Called),
    Agreeing(Agreeing),
    Proved(Proved),
    Listening(Listening),
    Introduced(Introduced),
    Challenged(Challenged),
    Keyed(Keyed),
    Identified,
}

/// The next step of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are awaited.
    Waits,
    /// Say this proof; the verdict is awaited then.
    Proves([u8; PROOF_LEN]),
    /// The caller has said hello. Agree on keys if it encrypts, then go on with [`Handshake::handle_keys`].
    Introduced(Caller),
    /// The caller is a peer. Decide with [`Links::judge`], and say the [`verdict`] or [`DECLINES`].
    Identified {
        /// The caller.
        peer: PeerId,
        /// Number of this opening, as the caller counts.
        generation: u32,
    },
    /// The acceptor takes the connection for the link. Decide with [`Links::conclude`].
    Accepted {
        /// The opening that this end has asked for.
        asked: Asked,
        /// Number of it, as the acceptor counts.
        generation: u32,
    },
}

/// Reason for which a handshake ends without a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeEnd {
    /// One end refuses the other.
    Refused(Refusal),
    /// The other end prefers another connection.
    Declined,
    /// The time is up.
    Late,
    /// The connection has failed; the text says how.
    Failed(String),
}

/// Effect of the end of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An attempt of this end to reach a peer has failed.
    Attempt(PeerId, DialFailure),
    /// A caller is refused, which is reported.
    Stranger(Refusal),
    /// A caller has gone that may be of the job: it computes, or has found a better path.
    Excused,
}

/// HandshakeState of a caller that has said hello.
#[derive(Clone, Copy, Debug)]
struct Called {
    asked: Asked,
    hello: Hello,
}

impl Called {
    fn handle_answer(
        self,
        keys: &Keyring,
        binding: &Binding,
        answer: &Answer,
    ) -> Result<(Proved, [u8; PROOF_LEN]), Refusal> {
        let shared = keys.with(self.asked.peer());
        shared.check_answer(&self.hello, binding, answer)?;
        let proof = shared.proof(&self.hello, binding, answer);
        Ok((Proved { asked: self.asked }, proof))
    }
}

/// HandshakeState of a caller that has said hello, and agrees on keys.
#[derive(Clone, Copy, Debug)]
struct Agreeing {
    asked: Asked,
    hello: Hello,
}

impl Agreeing {
    fn handle_keys(self, keys: &Keyring, binding: &Binding) -> (Proved, [u8; PROOF_LEN]) {
        let proof = keys.with(self.asked.peer()).proof_with_keys(&self.hello, binding);
        (Proved { asked: self.asked }, proof)
    }
}

/// HandshakeState of a caller that has proved itself. The acceptor may take the connection for the link already.
#[derive(Clone, Copy, Debug)]
struct Proved {
    asked: Asked,
}

impl Proved {
    fn handle_verdict(self, verdict: [u8; VERDICT_LEN]) -> Result<Step, HandshakeEnd> {
        let [kind, generation @ ..] = verdict;
        let generation = u32::from_le_bytes(generation);
        match kind {
            ACCEPTED => Ok(Step::Accepted { asked: self.asked, generation }),
            // The peer's own connection, or an earlier one of this end, is the link.
            DECLINED => Err(HandshakeEnd::Declined),
            _ => Err(Refusal::Protocol.into()),
        }
    }
}

/// HandshakeState of an acceptor of which nobody knows who has called.
#[derive(Clone, Copy, Debug)]
struct Listening;

impl Listening {
    /// Refuses another protocol and another version by its first bytes, whatever follows them there.
    fn check_beginning(self, got: &[u8]) -> Result<(), Refusal> {
        let Some(word) = got.get(..VERSION_LEN) else { return Ok(()) };
        match other_version(word) {
            Some(refusal) => Err(refusal),
            None if word == version_word() => Ok(()),
            None => Err(Refusal::Protocol),
        }
    }

    fn handle_hello(self, own: &Own<'_>, hello: &Hello) -> Result<Introduced, Refusal> {
        let caller = own.check(hello)?;
        Ok(Introduced { caller, hello: *hello })
    }
}

/// HandshakeState of an acceptor that has received a valid hello.
#[derive(Clone, Copy, Debug)]
struct Introduced {
    caller: Caller,
    hello: Hello,
}

impl Introduced {
    fn challenge(self, keys: &Keyring, binding: &Binding, nonce: Nonce) -> (Challenged, Answer) {
        let answer = keys.with(self.caller.peer).answer(&self.hello, binding, nonce);
        (Challenged { introduced: self, answer }, answer)
    }

    /// The channel, or a proof, says who the caller is.
    fn identify(self) -> Identified {
        Identified { caller: self.caller }
    }
}

/// HandshakeState of an acceptor that has answered and awaits the proof.
#[derive(Clone, Copy, Debug)]
struct Challenged {
    introduced: Introduced,
    answer: Answer,
}

impl Challenged {
    fn handle_proof(
        self,
        keys: &Keyring,
        binding: &Binding,
        proof: &[u8; PROOF_LEN],
    ) -> Result<Identified, Refusal> {
        let Introduced { caller, hello } = self.introduced;
        keys.with(caller.peer).check_proof(&hello, binding, &self.answer, proof)?;
        Ok(self.introduced.identify())
    }
}

/// HandshakeState of an acceptor that shares keys with its caller and awaits the proof.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    introduced: Introduced,
}

impl Keyed {
    fn handle_proof(
        self,
        keys: &Keyring,
        binding: &Binding,
        proof: &[u8; PROOF_LEN],
    ) -> Result<Identified, Refusal> {
        let Introduced { caller, hello } = self.introduced;
        keys.with(caller.peer).check_proof_with_keys(&hello, binding, proof)?;
        Ok(self.introduced.identify())
    }
}

/// HandshakeState of an acceptor that knows its caller.
#[derive(Clone, Copy, Debug)]
struct Identified {
    caller: Caller,
}

impl Identified {
    fn step(self) -> Step {
        Step::Identified { peer: self.caller.peer, generation: self.caller.generation }
    }
}

impl Own<'_> {
    fn hello(&self, opening: &Opening) -> Hello {
        let Opening { asked, wanted, encrypts, note, nonce } = *opening;
        let generation = asked.generation();
        let prefix = match *self {
            Self::Codes(keys) => keys.prefix(wanted, generation),
            Self::Channel { job, rank, .. } => {
                HelloPrefix { job, caller: rank, wanted, generation }
            }
        };
        hello(&prefix, encrypts, note, nonce)
    }

    fn check(&self, hello: &Hello) -> Result<Caller, Refusal> {
        match self {
            Self::Codes(keys) => keys.check_hello(hello),
            Self::Channel { others: Some(others), .. } => others.check_hello(hello),
            Self::Channel { job, known_as, others: None, .. } => {
                check_hello(hello, *job, *known_as)
            }
        }
    }
}

impl Handshake {
    /// Begins the handshake of a connection that this end has opened, and returns the hello to say.
    pub fn call(own: &Own<'_>, opening: &Opening, deadline: Duration) -> (Self, Hello) {
        let (asked, hello) = (opening.asked, own.hello(opening));
        let state = match own {
            Own::Codes(_) if opening.encrypts => {
                HandshakeState::Agreeing(Agreeing { asked, hello })
            }
            Own::Codes(_) => HandshakeState::Called(Called { asked, hello }),
            Own::Channel { .. } => HandshakeState::Proved(Proved { asked }),
        };
        (Self { state, got: Vec::new(), deadline }, hello)
    }

    /// Begins the handshake of a connection that another process has opened.
    pub fn listen(deadline: Duration) -> Self {
        Self { state: HandshakeState::Listening(Listening), got: Vec::new(), deadline }
    }

    /// The opening that this end asks for; `None` at the acceptor.
    pub fn asked(&self) -> Option<Asked> {
        match self.state {
            HandshakeState::Called(Called { asked, .. })
            | HandshakeState::Agreeing(Agreeing { asked, .. })
            | HandshakeState::Proved(Proved { asked }) => Some(asked),
            HandshakeState::Listening(_)
            | HandshakeState::Introduced(_)
            | HandshakeState::Challenged(_)
            | HandshakeState::Keyed(_)
            | HandshakeState::Identified => None,
        }
    }

    /// True if this end has proved itself and awaits the verdict: the connection may be the link already.
    pub fn is_proved(&self) -> bool {
        matches!(self.state, HandshakeState::Proved(_))
    }

    /// True if the other end has said a valid hello.
    pub fn is_known(&self) -> bool {
        match self.state {
            HandshakeState::Introduced(_)
            | HandshakeState::Challenged(_)
            | HandshakeState::Keyed(_)
            | HandshakeState::Identified => true,
            HandshakeState::Called(_)
            | HandshakeState::Agreeing(_)
            | HandshakeState::Proved(_)
            | HandshakeState::Listening(_) => false,
        }
    }

    /// True if the acceptor has a proof to check next.
    pub fn awaits_proof(&self) -> bool {
        matches!(self.state, HandshakeState::Challenged(_) | HandshakeState::Keyed(_))
    }

    /// Time on the rail's clock at which the connection is given up unless it has become a link.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// True if the connection is given up now. A caller that has proved itself waits for the verdict while the host of
    /// the acceptor `is_alive`: the connection may be the link, and the peer may compute.
    pub fn is_late(&self, now: Duration, is_alive: impl FnOnce() -> bool) -> bool {
        now >= self.deadline && !(self.is_proved() && is_alive())
    }

    /// Number of bytes to the end of the next message. 0 if keys or a decision are awaited.
    pub fn missing(&self) -> usize {
        self.message_len() - self.got.len()
    }

    fn message_len(&self) -> usize {
        match self.state {
            HandshakeState::Called(_) => ANSWER_LEN,
            HandshakeState::Proved(_) => VERDICT_LEN,
            HandshakeState::Listening(_) => HELLO_LEN,
            HandshakeState::Challenged(_) | HandshakeState::Keyed(_) => PROOF_LEN,
            HandshakeState::Agreeing(_)
            | HandshakeState::Introduced(_)
            | HandshakeState::Identified => 0,
        }
    }

    /// Takes received bytes, at most those that are [missing](Self::missing), and returns the next step. `binding` is
    /// that of the channel.
    ///
    /// # Errors
    /// The other end is refused, or declines. The connection is to be closed.
    pub fn handle_bytes(
        &mut self,
        own: &Own<'_>,
        bytes: &mut &[u8],
        binding: impl FnOnce() -> Result<Binding, Refusal>,
    ) -> Result<Step, HandshakeEnd> {
        let taken = bytes.split_off(..self.missing().min(bytes.len())).unwrap_or_default();
        self.got.extend_from_slice(taken);
        if let HandshakeState::Listening(state) = self.state {
            state.check_beginning(&self.got)?;
        }
        if self.missing() > 0 || self.message_len() == 0 {
            return Ok(Step::Waits);
        }
        let message = std::mem::take(&mut self.got);
        match (self.state, own) {
            (HandshakeState::Called(state), Own::Codes(keys)) => {
                let (proved, proof) = state.handle_answer(keys, &binding()?, whole(&message)?)?;
                self.state = HandshakeState::Proved(proved);
                Ok(Step::Proves(proof))
            }
            (HandshakeState::Proved(state), _) => state.handle_verdict(*whole(&message)?),
            (HandshakeState::Listening(state), own) => {
                let introduced = state.handle_hello(own, whole(&message)?)?;
                match own {
                    Own::Codes(_) => {
                        self.state = HandshakeState::Introduced(introduced);
                        Ok(Step::Introduced(introduced.caller))
                    }
                    Own::Channel { .. } => Ok(self.identify(introduced.identify())),
                }
            }
            (HandshakeState::Challenged(state), Own::Codes(keys)) => {
                let identified = state.handle_proof(keys, &binding()?, whole(&message)?)?;
                Ok(self.identify(identified))
            }
            (HandshakeState::Keyed(state), Own::Codes(keys)) => {
                let identified = state.handle_proof(keys, &binding()?, whole(&message)?)?;
                Ok(self.identify(identified))
            }
            // Such states and messages do not exist.
            (
                HandshakeState::Called(_)
                | HandshakeState::Challenged(_)
                | HandshakeState::Keyed(_),
                Own::Channel { .. },
            )
            | (
                HandshakeState::Agreeing(_)
                | HandshakeState::Introduced(_)
                | HandshakeState::Identified,
                _,
            ) => Err(Refusal::Protocol.into()),
        }
    }

    fn identify(&mut self, identified: Identified) -> Step {
        self.state = HandshakeState::Identified;
        identified.step()
    }

    /// Goes on once keys are agreed on, or, at the acceptor, if there are none. Returns what to say: the caller's
    /// proof, the acceptor's answer without keys, and nothing with keys.
    ///
    /// # Errors
    /// No keys were awaited.
    pub fn handle_keys(
        &mut self,
        keys: &Keyring,
        binding: &Binding,
        nonce: Nonce,
    ) -> Result<Vec<u8>, HandshakeEnd> {
        let (state, said) = match self.state {
            HandshakeState::Agreeing(state) => {
                let (proved, proof) = state.handle_keys(keys, binding);
                (HandshakeState::Proved(proved), proof.to_vec())
            }
            HandshakeState::Introduced(introduced) if introduced.caller.encrypts => {
                (HandshakeState::Keyed(Keyed { introduced }), Vec::new())
            }
            HandshakeState::Introduced(state) => {
                let (challenged, answer) = state.challenge(keys, binding, nonce);
                (HandshakeState::Challenged(challenged), answer.to_vec())
            }
            HandshakeState::Called(_)
            | HandshakeState::Proved(_)
            | HandshakeState::Listening(_)
            | HandshakeState::Challenged(_)
            | HandshakeState::Keyed(_)
            | HandshakeState::Identified => return Err(Refusal::Protocol.into()),
        };
        self.state = state;
        Ok(said)
    }

    /// Ends the handshake without a link.
    pub fn end<K: Copy>(self, end: HandshakeEnd, links: &mut Links<K>) -> Outcome {
        let Some(asked) = self.asked() else {
            return match end {
                HandshakeEnd::Refused(refusal) if !(is_excusable(refusal) && self.is_known()) => {
                    Outcome::Stranger(refusal)
                }
                HandshakeEnd::Late if !self.is_known() => Outcome::Stranger(Refusal::Slow),
                HandshakeEnd::Failed(_) if !self.is_known() => Outcome::Stranger(Refusal::Closed),
                HandshakeEnd::Refused(_)
                | HandshakeEnd::Late
                | HandshakeEnd::Failed(_)
                | HandshakeEnd::Declined => Outcome::Excused,
            };
        };
        let is_answered = matches!(
            end,
            HandshakeEnd::Declined
                | HandshakeEnd::Refused(Refusal::Version { .. } | Refusal::Secret)
        );
        if self.is_proved() && !is_answered {
            links.handle_unanswered(asked);
        }
        Outcome::Attempt(asked.peer(), end.into())
    }
}

/// Returns the verdict that accepts a connection as the link, which this end counts as this opening.
pub fn verdict(generation: u32) -> [u8; VERDICT_LEN] {
    let mut verdict = [ACCEPTED; VERDICT_LEN];
    verdict[1..].copy_from_slice(&generation.to_le_bytes());
    verdict
}

/// Returns what an acceptor says to a caller that it refuses: the own version if the caller has another, so that both
/// ends can name both.
pub fn answer_to(refusal: Refusal) -> Option<[u8; VERSION_LEN]> {
    matches!(refusal, Refusal::Version { .. }).then(version_word)
}

/// True if a peer of the job may end a handshake so.
fn is_excusable(refusal: Refusal) -> bool {
    match refusal {
        Refusal::Slow | Refusal::Closed | Refusal::TooMany => true,
        Refusal::Protocol
        | Refusal::Version { .. }
        | Refusal::Job
        | Refusal::Secret
        | Refusal::Altered
        | Refusal::Clear
        | Refusal::Encrypted => false,
    }
}

/// Returns a message that is complete.
fn whole<const N: usize>(message: &[u8]) -> Result<&[u8; N], Refusal> {
    message.try_into().map_err(|_| Refusal::Protocol)
}

impl From<Refusal> for HandshakeEnd {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<HandshakeEnd> for DialFailure {
    fn from(end: HandshakeEnd) -> Self {
        match end {
            HandshakeEnd::Refused(refusal) => refusal.into(),
            HandshakeEnd::Declined => Self::silent("declined in favour of another connection"),
            HandshakeEnd::Late => Self::silent("connected, but silent"),
            HandshakeEnd::Failed(text) => Self::silent(text),
        }
    }
}

/// Length of a verdict in bytes: its kind, and the number of the opening.
pub const VERDICT_LEN: usize = 5;
/// Verdict: another connection is the link.
pub const DECLINES: [u8; VERDICT_LEN] = [DECLINED, 0, 0, 0, 0];
const ACCEPTED: u8 = 1;
const DECLINED: u8 = 2;
