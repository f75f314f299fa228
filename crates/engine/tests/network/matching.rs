//! The reference model of matching, beside the engines: it follows the packets that they receive.

use wire::addressed::Addressed;
use wire::packet::{self, Packet, RndvKind};

use super::reference::Waiting;
use super::{Handle, Send, Sent, SimulatedNetwork, Tracked, TrackedKind, peer_id};

impl SimulatedNetwork {
    pub(super) fn update_reference(&mut self, from: usize, to: usize, mut frame: &[u8]) {
        while let Some(packet) = packet::parse(&mut frame).expect("engines send frames") {
            let (header, asks) = match packet {
                Packet::Eager { header, .. } => (header, None),
                Packet::Rts { header, bytes, rndv, .. } => {
                    (header, Some((bytes, matches!(rndv, RndvKind::Short(_)))))
                }
                Packet::RtsData { sequence, payload, .. } => {
                    let bytes = payload.len() as u64;
                    self.processes[to].reference.arrive_rts_data(peer_id(from), sequence, bytes);
                    continue;
                }
                Packet::CompressedRtsData { sequence, bytes, .. } => {
                    let bytes = u64::from(bytes);
                    self.processes[to].reference.arrive_rts_data(peer_id(from), sequence, bytes);
                    continue;
                }
                Packet::Addressed(Addressed::Call { call, .. }) => {
                    let retracted = (call.handler == RETRACT).then_some(call.arguments);
                    let reference = &mut self.processes[to].reference;
                    let pairs = reference.pass(peer_id(from), call.sequence, retracted);
                    self.pair_all(to, pairs);
                    continue;
                }
                Packet::Addressed(_)
                | Packet::Ack { .. }
                | Packet::Resume { .. }
                | Packet::LinkDown { .. }
                | Packet::Cts { .. }
                | Packet::Data { .. }
                | Packet::CompressedData { .. }
                | Packet::Fin { .. }
                | Packet::Refused { .. }
                | Packet::Credit { .. } => continue,
                Packet::Grant { .. } => {
                    self.granted += 1;
                    continue;
                }
            };
            let is_new = self.sequences.insert((from, to, header.sequence));
            assert!(is_new, "message {} from {from} to {to} came twice", header.sequence);
            let pairs = self.processes[to].reference.arrive(peer_id(from), header, asks);
            self.pair_all(to, pairs);
        }
    }

    /// Takes the messages out of the model that an engine has dropped since it counted so many, because their senders
    /// have cancelled them. It drops all of them but those that it has granted, which end as usual.
    pub(super) fn drop_retracted(&mut self, rank: usize, before: u64) {
        let asked = self.processes[rank].reference.retracted();
        let mut left = self.processes[rank].engine.counters().retracted - before;
        let (short, others): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|waiting| waiting.may_be_granted());
        // A send that has ended as usual was granted.
        let is_open = |waiting: &Waiting| !self.messages[self.message_of(rank, waiting)].complete;
        let short: Vec<_> = short.into_iter().filter(is_open).collect();
        let are_granted = left == others.len() as u64;
        for waiting in others.into_iter().chain(short.into_iter().filter(|_| !are_granted)) {
            let message = self.message_of(rank, &waiting);
            self.messages[message].dropped = true;
            self.processes[rank].reference.drop_waiting(&waiting);
            left = left.checked_sub(1).expect("the model drops no other messages than the engine");
        }
        assert_eq!(left, 0, "the engine drops no other messages than the model");
    }

    fn pair_all(&mut self, rank: usize, pairs: Vec<(usize, Waiting)>) {
        for (receive, message) in pairs {
            self.pair(rank, receive, message);
        }
    }

    pub(super) fn pair(&mut self, rank: usize, receive: usize, waiting: Waiting) {
        let message = self.message_of(rank, &waiting);
        assert!(!self.messages[message].dropped, "a cancelled message is received");
        self.messages[message].matched = true;
        let process = &mut self.processes[rank];
        if let TrackedKind::Receive { found, .. } = &mut process.ops[receive].kind {
            *found = Some(message);
        }
        process.watch(receive);
    }

    pub(super) fn message_of(&self, rank: usize, waiting: &Waiting) -> usize {
        let key = (waiting.peer.0 as usize, rank, waiting.header.context);
        self.order[&key][waiting.number as usize]
    }

    /// Cancels a send; true if its message had not left.
    pub fn cancel_send(&mut self, handle: Handle) -> bool {
        let process = &mut self.processes[handle.rank];
        let Tracked { op: Some(op), kind: TrackedKind::Send { message }, .. } =
            process.ops[handle.index]
        else {
            return false;
        };
        let is_withdrawn = process.engine.submit_cancel(op);
        if is_withdrawn {
            let Sent { from, send: Send { to, context, .. }, dropped, .. } =
                &mut self.messages[message];
            *dropped = true;
            // It arrives nowhere. Later messages of its context have not left either.
            let order = self.order.get_mut(&(*from, *to, *context)).expect("it was submitted");
            order.retain(|one| *one != message);
        }
        self.settle(handle.rank);
        is_withdrawn
    }

    /// Asserts that each message was either received or cancelled. Returns the number of cancelled ones.
    pub fn check_each_message(&self) -> u64 {
        for (number, sent) in self.messages.iter().enumerate() {
            assert_ne!(sent.matched, sent.dropped, "message {number} is received or cancelled");
        }
        self.messages.iter().map(|sent| u64::from(sent.dropped)).sum()
    }
}

/// Handler by which a sender retracts a message.
const RETRACT: u16 = u16::MAX;
