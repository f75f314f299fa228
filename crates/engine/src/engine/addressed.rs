//! Addressed traffic: puts, gets, calls of handlers, and flushes.

use memory::Region;
use wire::addressed::{Addressed, Answer, CallHeader};
use wire::{PeerId, RemoteKey};

use super::retract::RETRACT;
use super::revoke::REVOKE;
use super::{Engine, PeerError};
use crate::addressed::{CALL_BYTES, EndedEpoch, FlushStep, Postponed};
use crate::exposed::{
    AddressedHead, CALL_MAX, CallError, Handler, HandlerId, IncomingCall, PutTo, Replies, Reply,
    ReplyTo, SHORT_PUT_MAX, Wanted,
};
use crate::matching::Early;
use crate::op::{Completion, Head, OpId, OpState, Outcome, SendFate, SendState};
use crate::peer::Control;
use crate::pending::{ADDRESSED, Pending};

/// Exposed memory and handlers of this process.
impl Engine {
    /// Exposes memory: peers with its key may read and write it until [`Engine::withdraw`].
    pub fn expose(&mut self, memory: Region) -> RemoteKey {
        self.ops.pending += 1;
        self.memory.expose(memory)
    }

    /// Exposes memory whose pieces come and go ([`Engine::attach`]).
    pub fn expose_pieces(&mut self) -> RemoteKey {
        self.ops.pending += 1;
        self.memory.expose_pieces()
    }

    /// Adds a piece of exposed memory, which peers find at this offset; false if it overlaps another, or the key has no
    /// pieces.
    pub fn attach(&mut self, key: RemoteKey, offset: u64, piece: Region) -> bool {
        self.memory.attach(key, offset, piece)
    }

    /// Removes the piece that begins at this offset; false if there is none.
    pub fn detach(&mut self, key: RemoteKey, offset: u64) -> bool {
        self.memory.detach(key, offset)
    }

    /// Ends the exposure of memory; false for a stale key. A peer that still uses the key breaks the protocol.
    pub fn withdraw(&mut self, key: RemoteKey) -> bool {
        let is_known = self.memory.withdraw(key);
        self.ops.pending -= usize::from(is_known);
        is_known
    }

    /// Sets the handler of a number, which all processes use alike. The first number and the last are the engine's own.
    pub fn set_handler(&mut self, id: HandlerId, handler: Box<dyn Handler>) {
        assert!(id != REVOKE && id != RETRACT, "the engine's own handler");
        let index = usize::from(id.0);
        if self.handlers.len() <= index {
            self.handlers.resize_with(index + 1, || None);
        }
        self.handlers[index] = Some(handler);
    }
}

/// Commands.
impl Engine {
    /// Puts data into memory of a peer. Completes when `data` may be reused.
    pub fn submit_put(&mut self, peer: PeerId, to: PutTo, data: &Region) -> OpId {
        self.counters.puts += 1;
        let len = data.len();
        self.note_access(peer, len as u64);
        let epoch = self.peer(peer).addressed().count(len);
        let head = AddressedHead::Put { to, epoch };
        let id = self.ops.insert(Some(peer), data.clone(), send_state(head, len));
        if len == 0 {
            self.end(id);
        } else {
            self.send_addressed(peer, id, head, len);
        }
        id
    }

    /// Gets bytes from memory of a peer. Completes when they have arrived in `into`.
    pub fn submit_get(&mut self, peer: PeerId, from: PutTo, into: &Region) -> OpId {
        self.counters.gets += 1;
        let bytes = into.len() as u64;
        self.note_access(peer, bytes);
        let id = self.ops.insert(Some(peer), into.clone(), awaits(bytes));
        let state = self.peer(peer);
        if state.reach.is_failed() {
            self.fail(id.index);
        } else if bytes == 0 {
            self.end(id);
        } else {
            let PutTo { key, offset } = from;
            let get = Postponed::Get { key, offset, bytes, op: id.index };
            self.send_or_postpone(peer, get);
        }
        id
    }

    /// Calls a handler of a peer with at most [`CALL_MAX`] bytes of payload. Calls and messages of a process are handled
    /// in the order of their submission, as far as they are not delayed by what the peer owes already.
    pub fn submit_call(
        &mut self,
        peer: PeerId,
        handler: HandlerId,
        arguments: [u64; 3],
        payload: &Region,
        wanted: Wanted<'_>,
    ) -> OpId {
        assert!(handler != REVOKE && handler != RETRACT, "the engine's own handler");
        self.note_access(peer, payload.len() as u64);
        self.call(peer, handler, (arguments, payload), wanted, ADDRESSED)
    }

    /// Submits a call; it leaves in the order of its context.
    pub(super) fn call(
        &mut self,
        peer: PeerId,
        handler: HandlerId,
        (arguments, payload): ([u64; 3], &Region),
        wanted: Wanted<'_>,
        context: u64,
    ) -> OpId {
        assert!(payload.len() <= CALL_MAX, "a call of {} bytes", payload.len());
        self.counters.calls += 1;
        let len = payload.len();
        let epoch = self.peer(peer).addressed().count_call(len);
        let reply = match wanted {
            Wanted::Reply(into) if !into.is_empty() => {
                let awaits = awaits(into.len() as u64);
                Some(self.ops.insert(Some(peer), into.clone(), awaits))
            }
            Wanted::Nothing | Wanted::Done | Wanted::Reply(_) => None,
        };
        let id = self.ops.insert(Some(peer), payload.clone(), OpState::Free);
        let answer = match (reply, wanted) {
            (Some(reply), _) => Answer::Data(reply.index),
            (None, Wanted::Nothing) => Answer::None,
            (None, Wanted::Done | Wanted::Reply(_)) => Answer::Fin(id.index),
        };
        let call = CallHeader { handler: handler.0, epoch, sequence: 0, answer, arguments };
        let head = AddressedHead::Call(call);
        let (awaiting, send) =
            (matches!(answer, Answer::Fin(_)), SendState::new(Head::Addressed(head)));
        if let Some(op) = self.ops.find_mut(id) {
            op.state = OpState::Send(SendState { to_emit: true, awaiting, ..send });
        }
        if let Some(reply) = reply {
            self.ops.release(id);
            if self.is_failed(peer) {
                self.fail(reply.index);
            }
        }
        if self.is_failed(peer) {
            self.fail(id.index);
        } else {
            let pending = pending(id, len + head.len(), context);
            self.send_or_postpone(peer, Postponed::Call { pending, has_data: reply.is_some() });
        }
        reply.unwrap_or(id)
    }

    /// Flushes addressed traffic to a peer. Completes when the peer has applied all puts and calls that were submitted
    /// before.
    pub fn submit_flush(&mut self, peer: PeerId) -> OpId {
        let send = SendState::new(Head::Addressed(AddressedHead::Flush));
        let awaits = OpState::Send(SendState { awaiting: true, ..send });
        let id = self.ops.insert(Some(peer), Region::empty(), awaits);
        if self.is_failed(peer) {
            self.fail(id.index);
            return id;
        }
        let step = self.peer(peer).addressed().flush(id);
        self.take_step(peer, id, step);
        id
    }

    /// Answers calls that their handlers have not answered.
    pub fn submit_replies(&mut self, answer: impl FnOnce(&mut Replies)) {
        answer(&mut self.replies);
        self.send_replies();
    }
}

/// Sending.
impl Engine {
    /// Lines up a packet of addressed traffic: a short one leaves whole, a long one in pieces.
    fn send_addressed(&mut self, peer: PeerId, id: OpId, head: AddressedHead, len: usize) {
        let state = self.peer(peer);
        if state.reach.is_failed() {
            return self.fail(id.index);
        }
        if len > SHORT_PUT_MAX {
            state.streams.push_back(id);
        } else {
            state.send_queue.push_back(pending(id, len + head.len(), ADDRESSED));
        }
        self.list(peer);
    }

    /// Sends a get or call, unless the peer has to send data for too many others first.
    fn send_or_postpone(&mut self, peer: PeerId, postponed: Postponed) {
        let addressed = self.peer(peer).addressed();
        if addressed.admits() {
            self.admit(peer, postponed);
        } else {
            addressed.postpone(postponed);
        }
    }

    fn admit(&mut self, peer: PeerId, postponed: Postponed) {
        let state = self.peer(peer);
        match postponed {
            Postponed::Get { key, offset, bytes, op } => {
                state.addressed().await_data();
                state.control.push_back(Control::Get { key, offset, bytes, op });
            }
            Postponed::Call { pending, has_data } => {
                if has_data {
                    state.addressed().await_data();
                }
                state.send_queue.push_back(pending);
            }
        }
        self.list(peer);
    }

    /// Handles the end of a get, or of a call with a reply: others may be sent.
    pub(super) fn answer_arrived(&mut self, peer: PeerId) {
        self.peer(peer).addressed().data_arrived();
        while let Some(postponed) = self.peer(peer).addressed().next_postponed() {
            self.admit(peer, postponed);
        }
    }

    fn take_step(&mut self, peer: PeerId, id: OpId, step: FlushStep) {
        match step {
            FlushStep::Complete => self.end(id),
            FlushStep::Joined => {}
            FlushStep::Send { epoch, bytes } => {
                let flush = Control::Flush { op: id.index, epoch, bytes };
                self.peer(peer).control.push_back(flush);
                self.list(peer);
            }
        }
    }

    /// Sends the answers that handlers have given.
    fn send_replies(&mut self) {
        while let Some((ReplyTo { peer, answer }, reply)) = self.replies.0.pop() {
            match (answer, reply) {
                _ if self.is_failed(peer) => {}
                (Answer::None, _) => {}
                (Answer::Fin(op), Reply::Data(_)) => {
                    self.answer_with(peer, Control::Fin { op });
                }
                (Answer::Data(op), Reply::Data(data)) => self.send_data(peer, op, data),
                (answer, Reply::Refused) => self.refuse_call(peer, answer),
            }
        }
    }

    /// Sends data for an operation of a peer.
    fn send_data(&mut self, peer: PeerId, receiver: u32, data: Region) {
        let (len, head) = (data.len(), AddressedHead::Data { receiver });
        let OpState::Send(send) = send_state(head, len) else { return };
        let send = OpState::Send(SendState { receiver, ..send });
        let id = self.ops.insert(Some(peer), data, send);
        self.ops.release(id);
        self.send_addressed(peer, id, head, len);
    }

    /// Completes an operation that has nothing to wait for.
    fn end(&mut self, id: OpId) {
        let completion = Completion { source: 0, tag: 0, bytes: 0, outcome: Outcome::Ok };
        self.ops.complete(id.index, completion);
    }
}

/// Events.
impl Engine {
    #[inline(never)]
    pub(super) fn handle_addressed(
        &mut self,
        peer: PeerId,
        packet: Addressed<'_>,
    ) -> Result<(), PeerError> {
        match packet {
            Addressed::Put { key, epoch, offset, payload } => {
                let len = payload.len() as u64;
                let memory = self.exposed(key, offset, len)?;
                let is_refused = memory.is_none();
                if let Some(memory) = memory {
                    memory.write(0, payload);
                }
                self.note_applied(peer, epoch, len, is_refused)
            }
            Addressed::Get { key, offset, bytes, op } => {
                match self.exposed(key, offset, bytes)? {
                    Some(data) => {
                        self.owe(peer)?;
                        self.send_data(peer, op, data);
                    }
                    None => self.answer_with(peer, Control::Refused { op }),
                }
                Ok(())
            }
            Addressed::Call { call, payload } => self.handle_call(peer, &call, payload),
            Addressed::Flush { op, epoch, bytes } => {
                let ended = self.peer(peer).addressed().flush_arrived(epoch, op, bytes);
                self.answer_flush(peer, ended)
            }
        }
    }

    /// Finds exposed memory that has these bytes; none if the application named bytes that are not attached.
    fn exposed(&self, key: RemoteKey, offset: u64, len: u64) -> Result<Option<Region>, PeerError> {
        match self.memory.take(key, offset, len) {
            Ok(memory) => Ok(Some(memory)),
            Err(CallError::Refused) => Ok(None),
            Err(CallError::Malformed(_)) => Err(PeerError::Key { index: key.index, offset, len }),
        }
    }

    pub(super) fn answer_with(&mut self, peer: PeerId, answer: Control) {
        self.peer(peer).control.push_back(answer);
        self.list(peer);
    }

    fn owe(&mut self, peer: PeerId) -> Result<(), PeerError> {
        let owes = self.peer(peer).addressed().owe();
        if owes { Ok(()) } else { Err(PeerError::Addressed("gets and calls with replies")) }
    }

    fn handle_call(
        &mut self,
        peer: PeerId,
        call: &CallHeader,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        if payload.len() > CALL_MAX {
            let (len, wanted) = (payload.len(), CALL_MAX as u64);
            return Err(PeerError::Range { offset: 0, len, wanted });
        }
        if !self.in_sequence(peer, call.sequence)? {
            let early = Early::Call { call: *call, payload: payload.into() };
            self.peer(peer).early.insert(call.sequence, early);
            return Ok(());
        }
        self.run_call(peer, call, payload)?;
        self.handle_early(peer)
    }

    pub(super) fn run_call(
        &mut self,
        peer: PeerId,
        header: &CallHeader,
        payload: &[u8],
    ) -> Result<(), PeerError> {
        let &CallHeader { handler, answer, arguments, .. } = header;
        if let Answer::Data(_) = answer {
            self.owe(peer)?;
        }
        let mut is_refused = false;
        let call = IncomingCall { peer, arguments, payload, reply_to: ReplyTo { peer, answer } };
        if handler == REVOKE.0 {
            self.handle_revocation(&call)?;
        } else if handler == RETRACT.0 {
            self.handle_retraction(&call);
        } else {
            let Self { handlers, memory, replies, .. } = self;
            let found = handlers.get_mut(usize::from(handler)).and_then(Option::as_mut);
            let found = found.ok_or(PeerError::Handler(handler))?;
            let handled = found.handle(&call, memory, replies);
            match handled {
                Ok(()) => {}
                Err(CallError::Malformed(reason)) => {
                    return Err(PeerError::Call { handler, reason });
                }
                Err(CallError::Refused) => is_refused = true,
            }
        }
        self.send_replies();
        // A caller that waits for an answer hears of it there, and others with the next flush.
        if is_refused && answer != Answer::None {
            self.refuse_call(peer, answer);
            is_refused = false;
        }
        let bytes = (payload.len() + CALL_BYTES) as u64;
        self.note_applied(peer, header.epoch, bytes, is_refused)
    }

    /// Tells a caller that its call is refused.
    fn refuse_call(&mut self, peer: PeerId, answer: Answer) {
        match answer {
            Answer::None => {}
            Answer::Fin(op) => self.answer_with(peer, Control::Refused { op }),
            Answer::Data(op) => {
                self.peer(peer).addressed().paid();
                self.answer_with(peer, Control::Refused { op });
            }
        }
    }

    /// Counts what was applied of an epoch of a peer. A thread may wait for its effect on memory.
    fn note_applied(
        &mut self,
        peer: PeerId,
        epoch: u16,
        bytes: u64,
        is_refused: bool,
    ) -> Result<(), PeerError> {
        self.ops.event_count += 1;
        let ended = self.peer(peer).addressed().apply(epoch, bytes, is_refused);
        self.answer_flush(peer, ended)
    }

    fn answer_flush(
        &mut self,
        peer: PeerId,
        ended: Option<Option<EndedEpoch>>,
    ) -> Result<(), PeerError> {
        match ended.ok_or(PeerError::Addressed("flushes"))? {
            Some(EndedEpoch { op, is_refused: true }) => {
                self.answer_with(peer, Control::Refused { op })
            }
            Some(EndedEpoch { op, is_refused: false }) => {
                self.answer_with(peer, Control::Fin { op })
            }
            None => {}
        }
        Ok(())
    }

    /// Handles the refusal of a flush, a get, or a call that wants an answer, and the answer to a retraction. A message is
    /// refused if the peer's application has revoked its context.
    #[cold]
    pub(super) fn handle_refused(&mut self, peer: PeerId, op: u32) -> Result<(), PeerError> {
        let is_get = self.ops.at(op).is_some_and(|one| {
            let awaits = matches!(one.state, OpState::Receiving { is_answer: true, .. });
            awaits && one.peer == Some(peer)
        });
        if is_get {
            self.refuse(op);
            self.answer_arrived(peer);
            return Ok(());
        }
        let (_, send) = self.awaiting_send(peer, op, "refused")?;
        match send.head {
            Head::Addressed(AddressedHead::Flush) => self.handle_flushed(peer, op, true),
            Head::Addressed(AddressedHead::Call(_)) => {
                (send.awaiting, send.fate) = (false, SendFate::Refused);
                self.ops.complete_send_if_done(op);
                Ok(())
            }
            // What was announced of the message is sent to its end.
            Head::Matched(_) => {
                let is_retracted = send.fate == SendFate::Retracted;
                let fate = if is_retracted { SendFate::Dropped } else { SendFate::Revoked };
                (send.awaiting, send.fate) = (false, fate);
                self.ops.complete_send_if_done(op);
                Ok(())
            }
            Head::Addressed(_) => Err(PeerError::Operation { what: "refused", op }),
        }
    }

    fn refuse(&mut self, op: u32) {
        let outcome = Outcome::Refused;
        self.ops.complete(op, Completion { source: 0, tag: 0, bytes: 0, outcome });
    }

    /// Handles the answer to a flush: completes it and its followers, if those before it are complete.
    pub(super) fn handle_flushed(
        &mut self,
        peer: PeerId,
        op: u32,
        is_refused: bool,
    ) -> Result<(), PeerError> {
        let id = self.ops.id(op);
        let addressed = self.peer(peer).addressed();
        let completed = addressed.flush_answered(id, is_refused);
        let begun = addressed.begin_deferred();
        for (id, is_refused) in completed {
            if is_refused { self.refuse(id.index) } else { self.end(id) }
        }
        if let Some((id, step)) = begun {
            self.take_step(peer, id, step);
        }
        Ok(())
    }
}

fn pending(id: OpId, packet_len: usize, context: u64) -> Pending {
    let bytes = packet_len.saturating_sub(wire::packet::EAGER_LEN);
    let (is_addressed, is_urgent) = (true, true);
    Pending { id, bytes, cost: 0, context, is_addressed, is_urgent, overtaken: 0 }
}

fn send_state(head: AddressedHead, len: usize) -> OpState {
    let send = SendState::new(Head::Addressed(head));
    OpState::Send(SendState { to_emit: true, end: len as u64, ..send })
}

fn awaits(bytes: u64) -> OpState {
    let (wanted, left) = (bytes, bytes);
    OpState::Receiving { source: 0, tag: 0, bytes, wanted, left, is_answer: true }
}
