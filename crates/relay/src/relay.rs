//! The protocol between ranks and gateways.
//!
//! A gateway carries connections between the hosts of its site and others. A caller connects and proves the job's
//! secret as ranks do to each other (`handshake`), unencrypted. It sends a sealed [`Request`] with its proof. The
//! gateway's [`Reply`] says whether the connection is established. From then on the gateway forwards bytes unread.
//! The two ranks authenticate each other through it as if connected directly, and encrypt if the rule demands it.
//!
//! Gateways have no ranks. All gateways of a job answer to [`GATEWAY`], which a gateway that calls another uses, too.

use std::fmt;
use std::net::SocketAddr;

use auth::{ANSWER_LEN, Answer, Credentials, HELLO_LEN, Hello, PROOF_LEN, SEAL_LEN, Secret};
use netpath::interfaces::{ADDRESSES_MAX, emit_one, parse_all, parse_one};
use netpath::{RELAY_INFO_LEN, RelayInfo};
use rail::Refusal;
use wire::PeerId;

use crate::path_cost::PATH_COST_LEN;
pub use crate::path_cost::PathCost;

/// Rank number that stands for any gateway of the job.
pub const GATEWAY: PeerId = PeerId(u32::MAX);
/// Rank number of a request that wants path costs to other gateways and no connection.
pub const NOBODY: PeerId = PeerId(u32::MAX - 1);

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rank to be reached.
    pub peer: PeerId,
    /// Gateways to be called, one of each stage: those of sites in between, then those of the peer's site. Empty
    /// within the peer's own site.
    pub via: Vec<Vec<SocketAddr>>,
    /// Addresses where the peer listens.
    pub listeners: Vec<SocketAddr>,
}

impl Request {
    /// Asks for the path costs to other gateways, which the gateway then measures.
    pub fn of_path_costs(via: Vec<SocketAddr>) -> Self {
        Self { peer: NOBODY, via: vec![via], listeners: Vec::new() }
    }

    /// Encodes the request.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.peer.0.to_le_bytes().to_vec();
        emit_stages(&mut bytes, &self.via);
        self.listeners.iter().take(ADDRESSES_MAX).for_each(|one| emit_one(&mut bytes, *one));
        bytes
    }

    /// Decodes a request; `None` if malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (peer, rest) = bytes.split_first_chunk::<4>()?;
        let (via, rest) = parse_stages(rest)?;
        let peer = PeerId(u32::from_le_bytes(*peer));
        Some(Self { peer, via, listeners: parse_all(rest)? })
    }
}

/// Appends stages, each with its number of gateways. A bit of the number says that another stage follows.
pub(crate) fn emit_stages(bytes: &mut Vec<u8>, stages: &[Vec<SocketAddr>]) {
    let stages = &stages[..stages.len().min(STAGES_MAX)];
    for (at, stage) in stages.iter().enumerate() {
        let stage = &stage[..stage.len().min(VIA_MAX)];
        let more = if at + 1 < stages.len() { MORE } else { 0 };
        bytes.push(stage.len() as u8 | more);
        stage.iter().for_each(|one| emit_one(bytes, *one));
    }
    if stages.is_empty() {
        bytes.push(0);
    }
}

/// Splits off stages; `None` if they are malformed or too many.
pub(crate) fn parse_stages(mut bytes: &[u8]) -> Option<(Vec<Vec<SocketAddr>>, &[u8])> {
    let mut stages = Vec::new();
    loop {
        let (&head, mut rest) = bytes.split_first()?;
        let (count, is_last) = (usize::from(head & !MORE), head & MORE == 0);
        let is_empty = count == 0 && is_last && stages.is_empty();
        if count > VIA_MAX || stages.len() == STAGES_MAX || count == 0 && !is_empty {
            return None;
        }
        let stage = (0..count).map(|_| parse_one(&mut rest)).collect::<Option<Vec<_>>>()?;
        stages.extend(Some(stage).filter(|stage| !stage.is_empty()));
        if is_last {
            return Some((stages, rest));
        }
        bytes = rest;
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection is established.
    Open {
        /// Path between the gateway and the peer's host.
        beyond: RelayInfo,
    },
    /// The connection failed for this reason.
    Refused(String),
    /// Costs of the routes to the gateways of the request, in their order.
    PathCosts(Vec<PathCost>),
}

impl Reply {
    /// Encodes the reply.
    pub fn emit(&self) -> [u8; REPLY_LEN] {
        let mut bytes = [0; REPLY_LEN];
        match self {
            Self::Open { beyond } => {
                bytes[0] = OPEN;
                bytes[1..1 + RELAY_INFO_LEN].copy_from_slice(&beyond.emit());
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

    /// Decodes a gateway's reply; `None` if malformed.
    pub fn parse(bytes: &[u8; REPLY_LEN]) -> Option<Self> {
        match bytes[0] {
            OPEN => Some(Self::Open { beyond: RelayInfo::parse(*bytes[1..].first_chunk()?) }),
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

/// The gateway's side of the handshakes, without IO. As the called side it sends [`answer`](Self::answer) to a hello.
/// It then reads [`PROOF_HEAD_LEN`] bytes for [`check_proof`](Self::check_proof) and as many as that returns for
/// [`check_request`](Self::check_request). As the caller of another gateway it sends its [`hello`](Self::hello), and
/// [`ask`](Self::ask) after the answer.
#[derive(Clone)]
pub struct RelayHandshake {
    credentials: Credentials,
}

impl RelayHandshake {
    /// Creates the handshake of a gateway of this job.
    pub fn new(job: u64, secret: impl Into<Secret>) -> Self {
        Self { credentials: Credentials { rank: GATEWAY, job, secret: secret.into() } }
    }

    /// Returns the answer to a caller's hello; the nonce is used once.
    ///
    /// # Errors
    /// Returned when the caller is not of this job or does not want a gateway.
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

    /// Returns the length of the request and seal that follow.
    ///
    /// # Errors
    /// Returned when the caller does not know the secret, or announces too long a request.
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

    /// Returns the caller's request.
    ///
    /// # Errors
    /// Returned when the seal is wrong, or the bytes are no request.
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

    /// Returns the hello to another gateway; the nonce is used once.
    pub fn hello(&self, nonce: [u8; 32]) -> [u8; HELLO_LEN] {
        self.credentials.hello(GATEWAY, false, 0, nonce)
    }

    /// Returns the proof and request to another gateway.
    ///
    /// # Errors
    /// Returned when the answer does not prove knowledge of the secret.
    pub fn ask(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        request: &Request,
    ) -> Result<Vec<u8>, Refusal> {
        ask(&self.credentials, hello, answer, request)
    }

    /// Starts the session that seals later messages on the connection; `calls` is true on the calling side.
    pub fn session(
        &self,
        hello: &[u8; HELLO_LEN],
        answer: &[u8; ANSWER_LEN],
        calls: bool,
    ) -> Session {
        let credentials = self.credentials.clone();
        let own = u8::from(calls);
        Session { credentials, hello: *hello, answer: *answer, own, sent: 0, received: 0 }
    }
}

/// A lasting connection between two gateways, as one of them holds it. Messages that matter are sealed with the job's
/// secret and their sequence number, so that none can be changed, dropped or replayed.
pub struct Session {
    credentials: Credentials,
    hello: Hello,
    answer: Answer,
    /// This side: 1 if it called, 0 otherwise.
    own: u8,
    sent: u64,
    received: u64,
}

impl Session {
    /// Returns the seal of this side's next message, which is then [recorded](Self::note_sent) as sent.
    pub fn seal(&self, word: &[u8]) -> [u8; SEAL_LEN] {
        let place = (self.own, self.sent);
        self.credentials.seal_later(&self.hello, &self.answer, place, word)
    }

    /// Records that a sealed message was sent.
    pub fn note_sent(&mut self) {
        self.sent += 1;
    }

    /// Checks the other side's next sealed message and returns it without its seal.
    ///
    /// # Errors
    /// Returned when the seal is wrong.
    pub fn check<'a>(&mut self, sealed: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let (word, seal) = sealed.split_last_chunk::<SEAL_LEN>().ok_or(Refusal::Protocol)?;
        let place = (1 - self.own, self.received);
        self.credentials.check_seal_later(&self.hello, &self.answer, place, word, seal)?;
        self.received += 1;
        Ok(word)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl fmt::Debug for RelayHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayHandshake").finish_non_exhaustive()
    }
}

/// Returns the bytes for a gateway that has answered: the proof, and the sealed request with its length.
///
/// # Errors
/// Returned when the answer does not prove knowledge of the secret.
pub fn ask(
    credentials: &Credentials,
    hello: &Hello,
    answer: &Answer,
    request: &Request,
) -> Result<Vec<u8>, Refusal> {
    credentials.check_answer(hello, &CLEAR, answer)?;
    let words = request.emit();
    let mut sent = credentials.proof(hello, &CLEAR, answer).to_vec();
    sent.extend((words.len() as u16).to_le_bytes());
    sent.extend(&words);
    sent.extend(credentials.seal(hello, answer, &words));
    Ok(sent)
}

/// Length of a hello to a gateway.
pub const RESUME_LEN: usize = HELLO_LEN;
/// Length of a gateway's answer to it.
pub const CHALLENGE_LEN: usize = ANSWER_LEN;
/// Length of the head after the answer: a proof, and the length of the request.
pub const PROOF_HEAD_LEN: usize = PROOF_LEN + 2;
/// Length of a reply.
pub const REPLY_LEN: usize = 128;
/// Maximum length of a request: rank, counts, and all addresses as IPv6.
pub const REQUEST_MAX: usize = 4 + STAGES_MAX * (1 + VIA_MAX * 19) + ADDRESSES_MAX * 19;
/// Maximum number of gateways in a stage.
pub const VIA_MAX: usize = 8;
/// Maximum number of stages: gateways of three sites in between, and those of the peer's site.
pub const STAGES_MAX: usize = 4;
/// Bit of a stage's number of gateways that says that another stage follows.
const MORE: u8 = 0x80;

const OPEN: u8 = 1;
const REFUSED: u8 = 2;
const PATH_COSTS: u8 = 3;
/// Channel binding between a rank and a gateway, which do not encrypt; the ranks encrypt end to end.
const CLEAR: [u8; 32] = [0; 32];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use std::time::Duration;

    fn request() -> Request {
        let parse = |text: &str| text.parse().unwrap();
        let listeners = ["10.0.0.1:5", "[2001:db8::1]:6"].map(parse).to_vec();
        Request { peer: PeerId(9), via: vec![vec![parse("192.0.2.1:7")]], listeners }
    }

    fn rank(secret: u8) -> Credentials {
        Credentials { rank: PeerId(3), job: 1, secret: [secret; 32].into() }
    }

    /// Returns the gateway's verdict on a call whose bytes `alter` may change.
    fn call(caller: &Credentials, alter: impl Fn(usize, &mut Vec<u8>)) -> Result<Request, Refusal> {
        let gateway = RelayHandshake::new(1, [7; 32]);
        let mut hello = caller.hello(GATEWAY, false, 0, [1; 32]).to_vec();
        alter(0, &mut hello);
        let received = <Hello>::try_from(&hello[..]).unwrap();
        let answer = gateway.answer(&received, [2; 32])?;
        let hello = caller.hello(GATEWAY, false, 0, [1; 32]);
        let mut sent = match ask(caller, &hello, &answer, &request()) {
            Ok(sent) => sent,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Secret);
                let credulous = caller.clone();
                let words = request().emit();
                let mut sent = credulous.proof(&hello, &CLEAR, &answer).to_vec();
                sent.extend((words.len() as u16).to_le_bytes());
                sent.extend(&words);
                sent.extend(credulous.seal(&hello, &answer, &words));
                sent
            }
        };
        alter(HELLO_LEN, &mut sent);
        let (head, rest) = sent.split_first_chunk().unwrap();
        let len = gateway.check_proof(&received, &answer, head)?;
        gateway.check_request(&received, &answer, rest.get(..len).ok_or(Refusal::Closed)?)
    }

    #[test]
    fn a_member_is_accepted_and_a_thief_refused() {
        assert_eq!(call(&rank(7), |_, _| {}), Ok(request()));
        assert_eq!(call(&rank(8), |_, _| {}), Err(Refusal::Secret));
        let stranger = Credentials { job: 2, ..rank(7) };
        assert_eq!(call(&stranger, |_, _| {}), Err(Refusal::Job));
    }

    #[test]
    fn a_gateway_gives_a_thief_nothing_useful() {
        let hello = rank(7).hello(GATEWAY, false, 0, [1; 32]);
        let answer = RelayHandshake::new(1, [8; 32]).answer(&hello, [2; 32]).unwrap();
        assert_eq!(ask(&rank(7), &hello, &answer, &request()), Err(Refusal::Secret));
        let encrypting = rank(7).hello(GATEWAY, true, 0, [1; 32]);
        assert_eq!(
            RelayHandshake::new(1, [7; 32]).answer(&encrypting, [2; 32]),
            Err(Refusal::Protocol)
        );
    }

    #[test]
    fn a_request_names_gateways_of_few_stages() {
        let stage = |third: u8| vec![SocketAddr::from(([192, 0, third, 1], 7)); VIA_MAX];
        let with = |stages: u8| Request { via: (0..stages).map(stage).collect(), ..request() };
        for stages in 0..=STAGES_MAX as u8 {
            let request = with(stages);
            assert_eq!(Request::parse(&request.emit()), Some(request));
        }
        let longest = Request {
            via: vec![vec![SocketAddr::from(([1; 8], 7)); VIA_MAX]; STAGES_MAX],
            listeners: vec![SocketAddr::from(([1; 8], 7)); ADDRESSES_MAX],
            ..request()
        };
        assert_eq!(longest.emit().len(), REQUEST_MAX);
        let mut words = with(STAGES_MAX as u8).emit();
        let address = words.len() - 2 * 7 - 7;
        words.splice(address..address, [1, 4, 192, 0, 2, 1, 0, 7]);
        words[4 + (STAGES_MAX - 1) * (1 + VIA_MAX * 7)] |= MORE;
        assert_eq!(Request::parse(&words), None, "one stage more");
        assert_eq!(Request::parse(&[9, 0, 0, 0, MORE, 0]), None, "an empty stage");
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
    fn sealed_messages_cannot_be_changed_dropped_or_replayed() {
        let gateway = RelayHandshake::new(1, [7; 32]);
        let hello = gateway.hello([1; 32]);
        let answer = gateway.answer(&hello, [2; 32]).unwrap();
        let mut one = gateway.session(&hello, &answer, true);
        let sent: Vec<Vec<u8>> = [b"first", b"again", b"third"]
            .map(|word| {
                let sealed = [&word[..], &one.seal(word)].concat();
                one.note_sent();
                sealed
            })
            .to_vec();
        let hears = |which: &[usize]| {
            let mut other = gateway.session(&hello, &answer, false);
            which.iter().all(|&at| other.check(&sent[at]).is_ok_and(|word| word == &sent[at][..5]))
        };
        assert!(hears(&[0, 1, 2]));
        assert!(!hears(&[1]) && !hears(&[0, 0]) && !hears(&[0, 2]));
        let mut other = gateway.session(&hello, &answer, false);
        let changed = [&b"First"[..], &sent[0][5..]].concat();
        assert_eq!(other.check(&changed), Err(Refusal::Altered));
        assert_eq!(other.check(b"short"), Err(Refusal::Protocol));
        // A message of one side, or of another connection, does not pass for the other's.
        assert!(one.check(&sent[0]).is_err());
        let answer = gateway.answer(&hello, [3; 32]).unwrap();
        assert!(gateway.session(&hello, &answer, false).check(&sent[0]).is_err());
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
        fn arbitrary_bytes_parse_as_a_request_or_fail(
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
        fn arbitrary_bytes_parse_as_a_reply_or_fail(
            mut bytes: [u8; REPLY_LEN],
            micros: u32,
            is_measured: bool,
        ) {
            for first in 0..5 {
                bytes[0] = first;
                let _ = Reply::parse(&bytes);
            }
            let round_trip = Duration::from_micros(micros.into());
            let reply = Reply::Open { beyond: RelayInfo { round_trip, is_measured } };
            let Some(Reply::Open { beyond }) = Reply::parse(&reply.emit()) else { panic!("{reply:?}") };
            prop_assert_eq!(beyond, RelayInfo { round_trip: round_trip.min(RelayInfo::ROUND_TRIP_MAX), is_measured });
        }
    }
}
