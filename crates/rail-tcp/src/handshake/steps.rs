//! The steps of a connection towards a link.

use std::io::{ErrorKind, Read};

use auth::{
    ANSWER_LEN, DECLINES, HELLO_LEN, Handshake, HandshakeEnd, Hello, Opening, Own, Step as Move,
    VERDICT_LEN, answer_to, verdict,
};
use connect::{Refusal, Verdict};
use netpath::{RelayInfo, path_probe};
use rail::Fault;
use relay::{GATEWAY, NOBODY, REPLY_LEN, Reply, Request};
use wire::PeerId;

use crate::handshake::{
    Failure, PendingConnection, PendingStage, Prelude, Step, has_proved_to, nonce,
};
use crate::{Socket, TcpRail};

impl TcpRail {
    /// Advances a connection by one step.
    pub(super) fn step(&mut self, one: &mut PendingConnection) -> Result<Step, Failure> {
        match &one.stage {
            PendingStage::Prelude { peer, awaits, .. } => match (*awaits, *peer) {
                (Prelude::Connection, peer) => self.handle_connected(one, peer),
                (Prelude::RelayAnswer(hello), peer) => self.handle_relay_answer(one, peer, &hello),
                (Prelude::Reply, peer) => self.handle_reply(one, peer),
            },
            PendingStage::Handshake(_) => self.shake_hands(one),
            PendingStage::Replaces(agreed) => {
                let agreed = *agreed;
                one.say(&verdict(agreed.generation()))?;
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
            let hello = self.keys.own().hello(GATEWAY, false, 0, nonce()?);
            one.say(&hello)?;
            one.await_gateway(Prelude::RelayAnswer(hello));
            // Nobody waits long for path costs.
            if let PendingStage::Prelude { peer, deadline, .. } = &mut one.stage
                && *peer != NOBODY
            {
                *deadline = self.clock.now() + self.connect_timeout;
            }
            return Ok(Step::On);
        }
        self.send_hello(one, peer)
    }

    /// Sends the request to a gateway that has answered.
    fn handle_relay_answer(
        &mut self,
        one: &mut PendingConnection,
        peer: PeerId,
        hello: &Hello,
    ) -> Result<Step, Failure> {
        let Some(answer) = one.hear::<ANSWER_LEN>()? else { return Ok(Step::Wait) };
        let request = match peer {
            NOBODY => Some(Request::of_path_costs(one.about.clone())),
            peer => self.request(peer, one.address),
        };
        // The peer may have been disconnected meanwhile.
        let Some(request) = request else { return Ok(Step::Drop) };
        one.say(&relay::ask(self.keys.own(), hello, &answer, &request)?)?;
        one.await_gateway(Prelude::Reply);
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
            Reply::Refused(text) => {
                return Err(HandshakeEnd::Failed(format!("gateway: {text}")).into());
            }
            Reply::Open { .. } | Reply::PathCosts(_) => {
                return Err(Refusal::Protocol.into());
            }
        }
        // The peer learns whose connection it is, even if nobody wants it any more.
        let step = self.send_hello(one, peer)?;
        let is_wanted = self.links.dialling(peer).is_some();
        Ok(if is_wanted { step } else { Step::Drop })
    }

    /// Sends the hello to a peer, directly or through a gateway. A listener, the peer's or a gateway's, has accepted
    /// the connection; a gateway may be there though nobody is behind it.
    fn send_hello(&mut self, one: &mut PendingConnection, peer: PeerId) -> Result<Step, Failure> {
        let encrypts = self.encryption.covers(peer);
        let (note, nonce) = (one.relay_info.before(one.round_trip()).emit(), nonce()?);
        let opening = Opening { asked: self.ask(peer), wanted: peer, encrypts, note, nonce };
        let now = self.clock.now();
        let own = Own::Codes(&self.keys);
        let (handshake, hello) = Handshake::call(&own, &opening, now + self.connect_timeout);
        one.say(&hello)?;
        if encrypts {
            one.channel.encrypt_as_client(self.keys.identity(peer))?;
        }
        one.stage = PendingStage::Handshake(handshake);
        if let Some(dialling) = self.links.dialling(peer) {
            dialling.handle_connection(now, 2 * self.connect_timeout);
        }
        Ok(Step::On)
    }

    /// Advances the handshake by the bytes that have arrived, or by the keys that the two ends agree on.
    fn shake_hands(&mut self, one: &mut PendingConnection) -> Result<Step, Failure> {
        let PendingStage::Handshake(handshake) = &one.stage else { return Ok(Step::Wait) };
        let (calls, is_proved) = (handshake.asked().is_some(), handshake.is_proved());
        let missing = handshake.missing();
        if calls
            && !is_proved
            && let Some(refusal) = one.heard_version()
        {
            return Err(refusal.into());
        }
        if missing == 0 {
            return self.agree_on_keys(one);
        }
        let mut room = [0; HELLO_LEN];
        let Some(mut bytes) = one.read(&mut room[..missing])? else { return Ok(Step::Wait) };
        let PendingConnection { channel, stage, .. } = one;
        let PendingStage::Handshake(handshake) = stage else { return Ok(Step::Wait) };
        let own = Own::Codes(&self.keys);
        let step = handshake.handle_bytes(&own, &mut bytes, || channel.binding());
        match step {
            Ok(Move::Waits) => Ok(Step::Wait),
            Ok(Move::Proves(proof)) => {
                one.say(&proof)?;
                one.watch_path()
            }
            Ok(Move::Introduced(caller)) => {
                self.encryption.check(caller)?;
                one.channel.socket.set_nodelay(true)?;
                one.relay_info = RelayInfo::parse(caller.note).behind(one.round_trip());
                if caller.encrypts {
                    one.channel.encrypt_as_server(self.keys.identity(caller.peer))?;
                }
                Ok(Step::On)
            }
            Ok(Move::Identified { peer, generation }) => self.judge(one, peer, generation),
            Ok(Move::Accepted { asked, generation }) => {
                Ok(self.links.conclude(asked, generation).map_or(Step::Drop, Step::Open))
            }
            Err(end) => {
                if let HandshakeEnd::Refused(refusal) = end
                    && let Some(word) = answer_to(refusal).filter(|_| !calls)
                {
                    // A caller that does not hear it sees a closed connection.
                    let _ = one.say(&word);
                }
                Err(end.into())
            }
        }
    }

    /// Goes on once this end has keys, if they encrypt: proves itself to the acceptor, or answers the caller.
    fn agree_on_keys(&mut self, one: &mut PendingConnection) -> Result<Step, Failure> {
        if !one.channel.agree()? {
            return Ok(Step::Wait);
        }
        let binding = one.channel.binding()?;
        let PendingStage::Handshake(handshake) = &mut one.stage else { return Ok(Step::Wait) };
        let said = handshake.handle_keys(&self.keys, &binding, nonce()?)?;
        let proved_to = handshake.asked().filter(|_| handshake.is_proved());
        if !said.is_empty() {
            one.say(&said)?;
        }
        let Some(asked) = proved_to else { return Ok(Step::On) };
        // The acceptor has proved by TLS that it is of the job, and checked before that it is the one wanted.
        match self.links.anticipate(asked) {
            Some(agreed) => Ok(Step::Anticipate(agreed)),
            None => one.watch_path(),
        }
    }

    /// Reads the verdict on a link that was anticipated. Returns true once it has come.
    ///
    /// # Errors
    /// The connection is not the link, or is lost.
    pub(crate) fn hear_verdict(&mut self, key: u64) -> Result<bool, Fault> {
        let Self { sockets, keys, links, .. } = self;
        let Some(Socket::Open(open)) = sockets.get_mut(&key) else { return Ok(true) };
        while let Some(handshake) = &mut open.verdict {
            let channel = &mut open.stream.channel;
            let mut room = [0; VERDICT_LEN];
            let count = match channel.read(&mut room[..handshake.missing()]) {
                Ok(0) => return Err(Fault::Lost("the peer closed the connection".into())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::Lost(error.to_string())),
            };
            let step = handshake
                .handle_bytes(&Own::Codes(keys), &mut &room[..count], || channel.binding());
            match step {
                Ok(Move::Accepted { asked, generation }) => {
                    links.handle_acceptance(asked, generation);
                    open.verdict = None;
                }
                Ok(_) => {}
                Err(_) => return Err(Fault::Lost("the peer has another connection".into())),
            }
        }
        Ok(true)
    }

    /// Decides whether the connection of an authenticated peer is the link.
    fn judge(
        &mut self,
        one: &mut PendingConnection,
        peer: PeerId,
        generation: u32,
    ) -> Result<Step, Failure> {
        match self.links.judge(peer, generation, || has_proved_to(&self.sockets, peer)) {
            Verdict::Accepted(agreed) => {
                one.say(&verdict(agreed.generation()))?;
                Ok(Step::Open(agreed))
            }
            Verdict::Replaces(_, agreed) => {
                one.stage = PendingStage::Replaces(agreed);
                Ok(Step::Replace(peer))
            }
            Verdict::Declined => {
                one.say(&DECLINES)?;
                Ok(Step::Drop)
            }
        }
    }
}

impl PendingConnection {
    /// Notices a host that vanishes while this end, which has proved itself, waits for the verdict.
    fn watch_path(&self) -> Result<Step, Failure> {
        path_probe::watch(&self.channel.socket, path_probe::SILENCE)?;
        Ok(Step::On)
    }

    fn await_gateway(&mut self, event: Prelude) {
        if let PendingStage::Prelude { awaits, .. } = &mut self.stage {
            *awaits = event;
        }
    }
}
