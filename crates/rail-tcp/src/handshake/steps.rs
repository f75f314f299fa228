//! The stages of a handshake.

use std::io::ErrorKind;

use auth::{
    ACCEPTED, ANSWER_LEN, Answer, Caller, Credentials, DECLINED, HELLO_LEN, Hello, PROOF_LEN,
    VERDICT_LEN,
};
use connect::Verdict;
use netpath::{RelayInfo, path_probe};
use rail::Refusal;
use relay::{GATEWAY, NOBODY, REPLY_LEN, Reply, Request};
use wire::PeerId;

use crate::TcpRail;
use crate::handshake::{Failure, HandshakeStage, PendingConnection, Step, has_proved_to, nonce};

impl TcpRail {
    /// Advances a handshake by one stage.
    pub(super) fn step(&mut self, one: &mut PendingConnection) -> Result<Step, Failure> {
        match one.stage {
            HandshakeStage::Connect { peer } => self.handle_connected(one, peer),
            HandshakeStage::RelayAnswer { peer, hello } => {
                self.handle_relay_answer(one, peer, hello)
            }
            HandshakeStage::Reply { peer } => self.handle_reply(one, peer),
            HandshakeStage::Answer { asked, hello } => {
                if let Some(refusal) = one.heard_version() {
                    return Err(refusal.into());
                }
                let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
                let binding = one.channel.binding()?;
                self.credentials.check_answer(&hello, &binding, &answer)?;
                let proof = self.credentials.proof(&hello, &binding, &answer);
                one.say(&proof)?;
                path_probe::watch(&one.channel.socket, path_probe::SILENCE)?;
                one.stage = HandshakeStage::Verdict { asked };
                Ok(Step::On)
            }
            HandshakeStage::Verdict { asked } => {
                match one.hear::<VERDICT_LEN>()? {
                    None => Ok(Step::Wait),
                    Some([ACCEPTED]) => {
                        let agreed = self.links.conclude(asked, asked.generation());
                        Ok(agreed.map_or(Step::Drop, Step::Open))
                    }
                    // The peer's own connection, or an earlier one of ours, is the link.
                    Some([DECLINED]) => Err(Failure::Declined),
                    Some(_) => Err(Refusal::Protocol.into()),
                }
            }
            HandshakeStage::Hello => {
                let Some(hello) = one.hear::<HELLO_LEN>()? else { return Ok(Step::Wait) };
                let caller =
                    self.credentials.check_hello(&hello).map_err(|refusal| one.answer(refusal))?;
                self.encryption.check(caller)?;
                one.channel.socket.set_nodelay(true)?;
                one.relay_info = RelayInfo::parse(caller.note).behind(one.round_trip());
                if caller.encrypts {
                    one.channel.encrypt_as_server(self.encryption.identity(&self.credentials))?;
                }
                one.stage = HandshakeStage::Keys { peer: caller.rank, hello };
                Ok(Step::On)
            }
            HandshakeStage::Keys { peer, hello } => {
                if !one.channel.agree()? {
                    return Ok(Step::Wait);
                }
                let answer = self.credentials.answer(&hello, &one.channel.binding()?, nonce()?);
                one.say(&answer)?;
                one.stage = HandshakeStage::Proof { peer, hello, answer };
                Ok(Step::On)
            }
            HandshakeStage::Proof { peer, hello, answer } => {
                self.handle_proof(one, peer, hello, answer)
            }
            HandshakeStage::Authenticated { agreed } => {
                one.say(&[ACCEPTED])?;
                Ok(Step::Open(agreed))
            }
        }
    }

    /// Starts the handshake of a connection that is established: with a gateway first, or with the peer.
    fn handle_connected(
        &mut self,
        one: &mut PendingConnection,
        peer: PeerId,
    ) -> Result<Step, Failure> {
        let socket = &one.channel.socket;
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        match socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Step::Wait),
            Err(error) => return Err(error.into()),
        }
        socket.set_nodelay(true)?;
        if peer == NOBODY || self.request(peer, one.address).is_some() {
            let hello = self.credentials.hello(GATEWAY, false, 0, nonce()?);
            one.say(&hello)?;
            one.stage = HandshakeStage::RelayAnswer { peer, hello };
            return Ok(Step::On);
        }
        self.send_hello(one, peer)
    }

    /// Sends the request to a gateway that has answered.
    fn handle_relay_answer(
        &mut self,
        one: &mut PendingConnection,
        peer: PeerId,
        hello: Hello,
    ) -> Result<Step, Failure> {
        let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
        let request = match peer {
            NOBODY => Some(Request::of_path_costs(one.about.clone())),
            peer => self.request(peer, one.address),
        };
        // The peer may have been disconnected meanwhile.
        let Some(request) = request else { return Ok(Step::Drop) };
        one.say(&relay::ask(&self.credentials, &hello, &answer, &request)?)?;
        one.stage = HandshakeStage::Reply { peer };
        Ok(Step::On)
    }

    /// Continues with the peer behind a gateway, or records path costs.
    fn handle_reply(&mut self, one: &mut PendingConnection, peer: PeerId) -> Result<Step, Failure> {
        let Some(reply) = one.hear::<REPLY_LEN>()? else { return Ok(Step::Wait) };
        match Reply::parse(&reply).ok_or(Refusal::Protocol)? {
            Reply::PathCosts(path_costs) if peer == NOBODY => {
                self.handle_path_costs(one.address, &one.about, Some(&path_costs));
                return Ok(Step::Drop);
            }
            Reply::Open { beyond } if peer != NOBODY => one.relay_info = beyond,
            Reply::Refused(text) => return Err(Failure::Gateway(text)),
            Reply::Open { .. } | Reply::PathCosts(_) => {
                return Err(Refusal::Protocol.into());
            }
        }
        let step = self.send_hello(one, peer)?;
        self.note_connection(one);
        let is_wanted = self.links.dialling(peer).is_some();
        Ok(if is_wanted { step } else { Step::Drop })
    }

    /// Checks the proof of an accepted peer and decides whether its connection is the link.
    fn handle_proof(
        &mut self,
        one: &mut PendingConnection,
        peer: PeerId,
        hello: Hello,
        answer: Answer,
    ) -> Result<Step, Failure> {
        let Some(proof) = one.hear::<PROOF_LEN>()? else { return Ok(Step::Wait) };
        let binding = one.channel.binding()?;
        self.credentials.check_proof(&hello, &binding, &answer, &proof)?;
        let Caller { generation, .. } = self.credentials.check_hello(&hello)?;
        match self.links.judge(peer, generation, || has_proved_to(&self.sockets, peer)) {
            Verdict::Accepted(agreed) => {
                one.say(&[ACCEPTED])?;
                Ok(Step::Open(agreed))
            }
            Verdict::Replaces(_, agreed) => {
                one.stage = HandshakeStage::Authenticated { agreed };
                Ok(Step::Replace(peer))
            }
            Verdict::Declined => {
                one.say(&[DECLINED])?;
                Ok(Step::Drop)
            }
        }
    }

    /// Sends the hello to a peer, directly or through a gateway.
    fn send_hello(&mut self, one: &mut PendingConnection, peer: PeerId) -> Result<Step, Failure> {
        let encrypts = self.encryption.covers(peer);
        let nonce = nonce()?;
        let asked = self.ask(peer);
        let mut hello = self.credentials.hello(peer, encrypts, asked.generation(), nonce);
        Credentials::add_note(&mut hello, one.relay_info.before(one.round_trip()).emit());
        one.say(&hello)?;
        if encrypts {
            one.channel.encrypt_as_client(self.encryption.identity(&self.credentials))?;
        }
        one.stage = HandshakeStage::Answer { asked, hello };
        Ok(Step::On)
    }
}
