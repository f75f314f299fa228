//! What is said to a gateway, and what it answers.
//!
//! A gateway carries connections between the hosts of its site and others. Whoever wants one calls it and
//! proves the job's secret as one rank does to another (`handshake`), in clear; with its proof it
//! sends a sealed [`Request`]. The gateway's [`Reply`] says whether the connection is there. From then on
//! it passes bytes on, unread, and all that two ranks say to each other goes through it as if they had
//! connected directly: they prove themselves to each other, and encrypt where they have to.
//!
//! Gateways have no ranks. All of a job answer to [`GATEWAY`], and so does a gateway that calls another.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hmac::Mac;
use wire::PeerId;

use super::hello::{
    ANSWER_LEN, Answer, Credentials, HELLO_LEN, Hello, PROOF_LEN, Refusal, SEAL_LEN,
};
use super::interfaces::{ADDRESSES_MAX, emit_one, parse_all, parse_one};
use super::path_cost::PATH_COST_LEN;
pub use super::path_cost::PathCost;

/// In the place of a rank: a gateway, any of the job's.
pub const GATEWAY: PeerId = PeerId(u32::MAX);
/// In the place of a rank to be reached: no connection is wanted, but what those to other gateways cost.
pub const NOBODY: PeerId = PeerId(u32::MAX - 1);

/// A connection that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rank to be reached.
    pub peer: PeerId,
    /// Gateways of the peer's site, one of which is to be called; none if this is the peer's own site.
    pub via: Vec<SocketAddr>,
    /// Where the peer listens.
    pub listeners: Vec<SocketAddr>,
}

impl Request {
    /// A question: what the gateway's ways to these others cost, which it finds out then.
    pub fn of_path_costs(via: Vec<SocketAddr>) -> Self {
        Self { peer: NOBODY, via, listeners: Vec::new() }
    }

    /// The request as it is sent.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.peer.0.to_le_bytes().to_vec();
        let via = &self.via[..self.via.len().min(VIA_MAX)];
        bytes.push(via.len() as u8);
        via.iter().for_each(|one| emit_one(&mut bytes, *one));
        self.listeners.iter().take(ADDRESSES_MAX).for_each(|one| emit_one(&mut bytes, *one));
        bytes
    }

    /// The request that somebody has sent; none when the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (peer, rest) = bytes.split_first_chunk::<4>()?;
        let (&count, mut rest) = rest.split_first()?;
        if usize::from(count) > VIA_MAX {
            return None;
        }
        let via = (0..count).map(|_| parse_one(&mut rest)).collect::<Option<_>>()?;
        let peer = PeerId(u32::from_le_bytes(*peer));
        Some(Self { peer, via, listeners: parse_all(rest)? })
    }
}

/// What lies behind the end of a connection, which is a gateway's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detour {
    /// How much longer it takes to and fro.
    pub round_trip: Duration,
    /// Most of that is the link of two gateways, which measure what it carries.
    pub is_measured: bool,
}

impl Detour {
    /// With a link of two gateways before it.
    #[must_use]
    pub fn behind_link(self, round_trip: Duration) -> Self {
        let is_measured = round_trip >= self.round_trip;
        Self { round_trip: round_trip + self.round_trip, is_measured }
    }

    /// The whole way, behind and with a connection of such a round trip; none where nothing is behind that.
    pub(super) fn before(self, own: Duration) -> Self {
        let own = if self.round_trip.is_zero() { Duration::ZERO } else { own };
        Self { round_trip: self.round_trip + own, ..self }
    }

    /// Of a whole way what is behind its other end's connection.
    pub(super) fn behind(self, own: Duration) -> Self {
        Self { round_trip: self.round_trip.saturating_sub(own), ..self }
    }

    /// As it is sent.
    pub(super) fn emit(self) -> [u8; DETOUR_LEN] {
        let micros = u32::try_from(self.round_trip.min(DETOUR_MAX).as_micros()).unwrap_or(u32::MAX);
        (micros | if self.is_measured { MEASURED } else { 0 }).to_le_bytes()
    }

    /// What somebody has sent: as little of it as may be believed.
    pub(super) fn parse(bytes: [u8; DETOUR_LEN]) -> Self {
        let word = u32::from_le_bytes(bytes);
        let round_trip = Duration::from_micros((word & !MEASURED).into()).min(DETOUR_MAX);
        Self { round_trip, is_measured: word & MEASURED != 0 }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection is there.
    Open {
        /// What there is between the gateway and the peer's host.
        beyond: Detour,
    },
    /// It is not, for this reason.
    Refused(String),
    /// None was wanted, but what the ways to the gateways of the request cost, in their order.
    PathCosts(Vec<PathCost>),
}

impl Reply {
    /// The reply as it is sent.
    pub fn emit(&self) -> [u8; REPLY_LEN] {
        let mut bytes = [0; REPLY_LEN];
        match self {
            Self::Open { beyond } => {
                bytes[0] = OPEN;
                bytes[1..1 + DETOUR_LEN].copy_from_slice(&beyond.emit());
            }
            Self::Refused(text) => {
                let end = text.floor_char_boundary(REPLY_LEN - 2);
                bytes[0] = REFUSED;
                bytes[1] = end as u8;
                bytes[2..2 + end].copy_from_slice(&text.as_bytes()[..end]);
            }
            Self::PathCosts(path_costs) => {
                let path_costs = &path_costs[..path_costs.len().min(VIA_MAX)];
                bytes[0] = PATH_COSTS;
                bytes[1] = path_costs.len() as u8;
                for (room, path_cost) in bytes[2..].chunks_exact_mut(PATH_COST_LEN).zip(path_costs)
                {
                    room.copy_from_slice(&path_cost.emit());
                }
            }
        }
        bytes
    }

    /// The reply that a gateway has sent; none when the bytes are none.
    pub fn parse(bytes: &[u8; REPLY_LEN]) -> Option<Self> {
        match bytes[0] {
            OPEN => Some(Self::Open { beyond: Detour::parse(*bytes[1..].first_chunk()?) }),
            REFUSED => {
                let text = str::from_utf8(bytes.get(2..2 + usize::from(bytes[1]))?).ok()?;
                let is_line = !text.chars().any(char::is_control);
                is_line.then(|| Self::Refused(text.into()))
            }
            PATH_COSTS => {
                let count = usize::from(bytes[1]);
                let (path_costs, _) = bytes[2..].as_chunks::<PATH_COST_LEN>();
                let path_costs = path_costs.get(..count).filter(|_| count <= VIA_MAX)?;
                Some(Self::PathCosts(
                    path_costs.iter().map(|path_cost| PathCost::parse(*path_cost)).collect(),
                ))
            }
            _ => None,
        }
    }
}

/// The part of a gateway in the handshakes, without IO. Called, it says what
/// [`answer`](Self::answer) gives to a hello, then reads [`PROOF_HEAD_LEN`] bytes for
/// [`check_proof`](Self::check_proof) and as many as that says for
/// [`check_request`](Self::check_request). Calling another, it says its [`hello`](Self::hello), and to
/// the answer what [`ask`](Self::ask) gives.
#[derive(Clone)]
pub struct Porter {
    credentials: Credentials,
}

impl Porter {
    /// A gateway of this job.
    pub fn new(job: u64, secret: [u8; 32]) -> Self {
        Self { credentials: Credentials { rank: GATEWAY, job, secret } }
    }

    /// The answer to a caller's hello, by a number that is used once.
    ///
    /// # Errors
    /// When it is nobody of this job who looks for a gateway.
    pub fn answer(
        &self,
        hello: &[u8; HELLO_LEN],
        nonce: [u8; 32],
    ) -> Result<[u8; ANSWER_LEN], Refusal> {
        let caller = self.credentials.check_hello(hello)?;
        if caller.encrypts {
            return Err(Refusal::Protocol);
        }
        Ok(self.credentials.answer(hello, &CLEAR, nonce))
    }

    /// How many bytes of request and seal follow.
    ///
    /// # Errors
    /// When the caller does not know the secret, or announces more than a request has.
    pub fn check_proof(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        head: &[u8; PROOF_HEAD_LEN],
    ) -> Result<usize, Refusal> {
        let (Some(proof), Some(len)) = (head.first_chunk(), head.last_chunk()) else {
            unreachable!("a head is a proof and a length");
        };
        self.credentials.check_proof(hello, &CLEAR, answer, proof)?;
        let len = usize::from(u16::from_le_bytes(*len));
        if len <= REQUEST_MAX { Ok(len + SEAL_LEN) } else { Err(Refusal::Protocol) }
    }

    /// What the caller asks for.
    ///
    /// # Errors
    /// When the words are not its own, or no request.
    pub fn check_request(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        sealed: &[u8],
    ) -> Result<Request, Refusal> {
        let (words, seal) = sealed.split_last_chunk().ok_or(Refusal::Protocol)?;
        self.credentials.check_seal(hello, answer, words, seal)?;
        Request::parse(words).ok_or(Refusal::Protocol)
    }

    /// The first word to another gateway, by a number that is used once.
    pub fn hello(&self, nonce: [u8; 32]) -> [u8; HELLO_LEN] {
        self.credentials.hello(GATEWAY, false, 0, nonce)
    }

    /// The second word to another gateway.
    ///
    /// # Errors
    /// When its answer shows that it does not know the secret.
    pub fn ask(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        request: &Request,
    ) -> Result<Vec<u8>, Refusal> {
        ask(&self.credentials, hello, answer, request)
    }

    /// What is sealed on the connection from now on, which this gateway has called or been called by.
    pub fn session(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        calls: bool,
    ) -> Session {
        let credentials = self.credentials.clone();
        let own = u8::from(calls);
        Session { credentials, hello: *hello, answer: *answer, own, said: 0, heard: 0 }
    }
}

/// What two gateways say to each other by a connection that stays, as one of them has it: words that matter are sealed
/// with the job's secret, each by its place, so that none can be changed, left out or said again.
pub struct Session {
    credentials: Credentials,
    hello: Hello,
    answer: Answer,
    /// Which side this is.
    own: u8,
    said: u64,
    heard: u64,
}

impl Session {
    /// The seal of the next word that this side says, which [was said](Self::note_said) then.
    pub fn seal(&self, word: &[u8]) -> [u8; SEAL_LEN] {
        let code = self.credentials.sealing_later(&self.hello, &self.answer, self.own, self.said);
        code.chain_update(word).finalize().into_bytes().into()
    }

    /// A sealed word was said.
    pub fn note_said(&mut self) {
        self.said += 1;
    }

    /// The next sealed word that the other side has said, without its seal.
    ///
    /// # Errors
    /// When it has not said that.
    pub fn check<'a>(&mut self, sealed: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let (word, seal) = sealed.split_last_chunk::<SEAL_LEN>().ok_or(Refusal::Protocol)?;
        let other = 1 - self.own;
        let code = self.credentials.sealing_later(&self.hello, &self.answer, other, self.heard);
        code.chain_update(word).verify_slice(seal).map_err(|_| Refusal::Altered)?;
        self.heard += 1;
        Ok(word)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl fmt::Debug for Porter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Porter").finish_non_exhaustive()
    }
}

/// What is said to a gateway that has answered: the proof, and the sealed request with its length.
///
/// # Errors
/// When the answer shows that it does not know the secret.
pub(super) fn ask(
    credentials: &Credentials,
    hello: &Hello,
    answer: &Answer,
    request: &Request,
) -> Result<Vec<u8>, Refusal> {
    credentials.check_answer(hello, &CLEAR, answer)?;
    let words = request.emit();
    let mut said = credentials.proof(hello, &CLEAR, answer).to_vec();
    said.extend((words.len() as u16).to_le_bytes());
    said.extend(&words);
    said.extend(credentials.seal(hello, answer, &words));
    Ok(said)
}

/// Length of a hello to a gateway.
pub const RESUME_LEN: usize = HELLO_LEN;
/// Length of a gateway's answer to it.
pub const CHALLENGE_LEN: usize = ANSWER_LEN;
/// Length of what is read behind the answer: a proof, and the length of the request.
pub const PROOF_HEAD_LEN: usize = PROOF_LEN + 2;
/// Length of a reply.
pub const REPLY_LEN: usize = 128;
/// No request is longer: rank, count, and all addresses of IPv6.
pub const REQUEST_MAX: usize = 5 + (VIA_MAX + ADDRESSES_MAX) * 19;
/// Gateways named in a request.
pub(super) const VIA_MAX: usize = 8;

pub(super) const DETOUR_LEN: usize = 4;
/// In the place of a detour's length: whether it is measured.
const MEASURED: u32 = 1 << 31;
/// A longer one is taken for this: nobody waits so long for what may be lost.
const DETOUR_MAX: Duration = Duration::from_secs(10);

const OPEN: u8 = 1;
const REFUSED: u8 = 2;
const PATH_COSTS: u8 = 3;
/// Nothing is encrypted between a rank and a gateway: it is between ranks.
const CLEAR: [u8; 32] = [0; 32];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> Request {
        let parse = |text: &str| text.parse().unwrap();
        let listeners = ["10.0.0.1:5", "[2001:db8::1]:6"].map(parse).to_vec();
        Request { peer: PeerId(9), via: vec![parse("192.0.2.1:7")], listeners }
    }

    fn rank(secret: u8) -> Credentials {
        Credentials { rank: PeerId(3), job: 1, secret: [secret; 32] }
    }

    /// The porter's verdict on what `caller` says, each byte of which `alter` may change.
    fn call(caller: &Credentials, alter: impl Fn(usize, &mut Vec<u8>)) -> Result<Request, Refusal> {
        let porter = Porter::new(1, [7; 32]);
        let mut hello = caller.hello(GATEWAY, false, 0, [1; 32]).to_vec();
        alter(0, &mut hello);
        let heard = <Hello>::try_from(&hello[..]).unwrap();
        let answer = porter.answer(&heard, [2; 32])?;
        let hello = caller.hello(GATEWAY, false, 0, [1; 32]);
        let mut said = match ask(caller, &hello, &answer, &request()) {
            Ok(said) => said,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Secret);
                let credulous = Credentials { rank: caller.rank, job: caller.job, ..*caller };
                let words = request().emit();
                let mut said = credulous.proof(&hello, &CLEAR, &answer).to_vec();
                said.extend((words.len() as u16).to_le_bytes());
                said.extend(&words);
                said.extend(credulous.seal(&hello, &answer, &words));
                said
            }
        };
        alter(HELLO_LEN, &mut said);
        let (head, rest) = said.split_first_chunk().unwrap();
        let len = porter.check_proof(&heard, &answer, head)?;
        porter.check_request(&heard, &answer, rest.get(..len).ok_or(Refusal::Closed)?)
    }

    #[test]
    fn a_member_is_heard_and_a_thief_refused() {
        assert_eq!(call(&rank(7), |_, _| {}), Ok(request()));
        assert_eq!(call(&rank(8), |_, _| {}), Err(Refusal::Secret));
        let stranger = Credentials { job: 2, ..rank(7) };
        assert_eq!(call(&stranger, |_, _| {}), Err(Refusal::Job));
    }

    #[test]
    fn what_a_gateway_says_to_a_thief_is_of_no_use() {
        let hello = rank(7).hello(GATEWAY, false, 0, [1; 32]);
        let answer = Porter::new(1, [8; 32]).answer(&hello, [2; 32]).unwrap();
        assert_eq!(ask(&rank(7), &hello, &answer, &request()), Err(Refusal::Secret));
        let encrypting = rank(7).hello(GATEWAY, true, 0, [1; 32]);
        assert_eq!(Porter::new(1, [7; 32]).answer(&encrypting, [2; 32]), Err(Refusal::Protocol));
    }

    #[test]
    fn replies_are_a_line() {
        let long = Reply::Refused("ä".repeat(REPLY_LEN));
        let Some(Reply::Refused(text)) = Reply::parse(&long.emit()) else { panic!("no reply") };
        assert_eq!(text, "ä".repeat((REPLY_LEN - 2) / 2));
        assert_eq!(Reply::parse(&Reply::Refused("two\nlines".into()).emit()), None);
        assert_eq!(Reply::parse(&[0; REPLY_LEN]), None);
    }

    #[test]
    fn a_reply_has_room_for_the_path_costs_of_all_gateways_of_a_site() {
        let costs = |ms| PathCost::Costs {
            round_trip: Duration::from_millis(ms),
            bytes_per_s: 125_000_000,
        };
        let path_costs: Vec<PathCost> =
            (1..VIA_MAX as u64).map(costs).chain([PathCost::Closed]).collect();
        let reply = Reply::PathCosts(path_costs);
        assert_eq!(Reply::parse(&reply.emit()), Some(reply.clone()));
        let mut bytes = reply.emit();
        bytes[1] += 1;
        assert_eq!(Reply::parse(&bytes), None, "more than there are");
    }

    #[test]
    fn a_way_is_measured_by_gateways_where_most_of_it_is_between_them() {
        let detour =
            |ms, is_measured| Detour { round_trip: Duration::from_millis(ms), is_measured };
        let link = Duration::from_millis(12);
        assert_eq!(detour(1, false).behind_link(link), detour(13, true));
        assert_eq!(detour(30, false).behind_link(link), detour(42, false));
    }

    #[test]
    fn each_end_knows_what_is_behind_its_own_connection() {
        let (far, near) = (Duration::from_millis(12), Duration::from_millis(1));
        let beyond = Detour { round_trip: near, is_measured: false };
        assert_eq!(beyond.before(far).behind(near), Detour { round_trip: far, ..beyond });
        assert_eq!(Detour::default().before(far).behind(near), Detour::default(), "directly");
    }

    #[test]
    fn what_gateways_seal_cannot_be_changed_left_out_or_said_again() {
        let porter = Porter::new(1, [7; 32]);
        let hello = porter.hello([1; 32]);
        let answer = porter.answer(&hello, [2; 32]).unwrap();
        let mut one = porter.session(&hello, &answer, true);
        let said: Vec<Vec<u8>> = [b"first", b"again", b"third"]
            .map(|word| {
                let sealed = [&word[..], &one.seal(word)].concat();
                one.note_said();
                sealed
            })
            .to_vec();
        let hears = |which: &[usize]| {
            let mut other = porter.session(&hello, &answer, false);
            which.iter().all(|&at| other.check(&said[at]).is_ok_and(|word| word == &said[at][..5]))
        };
        assert!(hears(&[0, 1, 2]));
        assert!(!hears(&[1]) && !hears(&[0, 0]) && !hears(&[0, 2]));
        let mut other = porter.session(&hello, &answer, false);
        let changed = [&b"First"[..], &said[0][5..]].concat();
        assert_eq!(other.check(&changed), Err(Refusal::Altered));
        assert_eq!(other.check(b"short"), Err(Refusal::Protocol));
        // Nor is one side's word the other's, nor that of another connection.
        assert!(one.check(&said[0]).is_err());
        let answer = porter.answer(&hello, [3; 32]).unwrap();
        assert!(porter.session(&hello, &answer, false).check(&said[0]).is_err());
        assert!(!format!("{one:?}").contains('7'));
    }

    proptest! {
        #[test]
        fn no_bit_of_a_call_can_be_changed(
            at in 0..HELLO_LEN + PROOF_HEAD_LEN + request().emit().len() + SEAL_LEN,
            bit in 0..8u32,
        ) {
            let alter = |from: usize, words: &mut Vec<u8>| {
                if let Some(byte) = at.checked_sub(from).and_then(|at| words.get_mut(at)) {
                    *byte ^= 1 << bit;
                }
            };
            prop_assert!(call(&rank(7), alter).is_err());
        }

        #[test]
        fn bytes_of_a_stranger_are_a_request_or_are_not(
            bytes: Vec<u8>,
            cut in 0usize..40,
        ) {
            if let Some(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.emit(), bytes);
            }
            let good = request().emit();
            let whole = [4 + 1 + 7, 4 + 1 + 7 + 7, good.len()].contains(&cut.min(good.len()));
            prop_assert_eq!(Request::parse(&good[..cut.min(good.len())]).is_some(), whole);
        }

        #[test]
        fn bytes_of_a_gateway_are_a_reply_or_are_not(
            mut bytes: [u8; REPLY_LEN],
            micros: u32,
            is_measured: bool,
        ) {
            for first in 0..5 {
                bytes[0] = first;
                let _ = Reply::parse(&bytes);
            }
            let round_trip = Duration::from_micros(micros.into());
            let reply = Reply::Open { beyond: Detour { round_trip, is_measured } };
            let Some(Reply::Open { beyond }) = Reply::parse(&reply.emit()) else { panic!("{reply:?}") };
            prop_assert_eq!(beyond, Detour { round_trip: round_trip.min(DETOUR_MAX), is_measured });
        }
    }
}
