//! One connection: transmission, timing and reception.
//!
//! Frames wait in the outbox. They enter the stream when they may leave, at the pace and within the congestion window
//! of the path model. Acknowledgements, probes and other protocol packets leave at once.

use std::time::{Duration, Instant};

use auth::{Handshake, HandshakeEnd, Own, Step};
use bytes::Bytes;
use connect::Asked;
use quinn_proto::{ReadError, StreamId, Transmit, VarInt, WriteError};
use rail::{Fault, Refusal};
use wire::PeerId;

use crate::controller::SharedController;
use crate::frames::{Inbox, Outbox};
use crate::keepalive::{Keepalive, Signs, UNHEARD_MAX};
use crate::key_chain::KeyId;
use crate::pacer::Pacer;
use crate::tail_duplicate;
use crate::tail_duplicate::{Reassembly, Tail};

/// Destination of packets: a socket.
pub(super) trait Outlet {
    /// True if a batch waits for room in the socket; nothing leaves before it.
    fn is_stuck(&self) -> bool;

    /// Number of packets of `packet_len` bytes that may leave in one batch.
    fn batch_max(&self, packet_len: usize) -> usize;

    /// Sends a batch. False if the socket has no room; the batch then waits.
    fn send(&mut self, transmit: Transmit, contents: &mut Vec<u8>) -> bool;
}

/// Stage of a connection.
#[derive(Debug)]
pub(super) enum Stage {
    /// This process opens it to reach `peer`; the handshake of QUIC is under way. The deadline is on the rail's clock.
    Dialled { peer: PeerId, deadline: Duration },
    /// The two ends agree on whether it is the link.
    Handshake(Handshake),
    /// It is the link to `peer`.
    Open { peer: PeerId },
    /// It is closed, and remains until the other end has drained.
    Closing,
}

/// A connection of the rail.
pub(super) struct Connection {
    pub protocol: quinn_proto::Connection,
    /// Index of its socket among the rail's.
    pub socket: usize,
    pub stage: Stage,
    /// The key that both ends prove.
    pub key: KeyId,
    pub controller: SharedController,
    /// Bidirectional stream of the frames, once it is open.
    pub stream: Option<StreamId>,
    pub outbox: Outbox,
    pub inbox: Inbox,
    /// True if the stream may have data to read.
    pub readable: bool,
    /// Membership in the rail's work lists.
    pub listed: Listed,
    /// Cause of the end of the link, reported after all received frames.
    pub ending: Option<Fault>,
    /// Set after an ICMP error: the time by which the peer must send something, and the datagrams received before.
    pub doubted: Option<(Instant, u64)>,
    /// Earliest entry in the rail's timer queue.
    pub timer: Option<Instant>,
    /// True for a WAN peer: unacknowledged frames are kept, and the link can be reopened.
    pub is_wan: bool,
    keepalive: Keepalive,
    /// Number of datagrams received at the last increase, and its time.
    heard: (u64, Instant),
    /// True if one packet must leave in any case, for the peer to acknowledge.
    probes: bool,
    pacer: Pacer,
    /// Upper estimate of the bytes given to quinn that have not left, or were lost since.
    loaded: usize,
    /// Bytes lost so far.
    lost: u64,
    /// True if quinn has nothing to send.
    is_drained: bool,
    /// Number of STREAM frames sent.
    frames: u64,
    /// True if a STREAM frame has left since the last one after which nothing was waiting.
    has_left: bool,
    /// Latest bytes written to the stream, for tail duplicates.
    tail: Tail,
    /// Received stream data, merged with tail duplicates.
    reassembly: Reassembly,
    /// Loss rate of earlier jobs on this path.
    loss_before: Option<f64>,
    /// Time at which more may leave, if the pacer is what holds it back.
    paced_until: Option<Instant>,
}

/// Membership of a connection in the work lists of the rail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    pub to_serve: bool,
    pub to_read: bool,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// More data may be available.
    More,
    /// No data is available for now.
    Dry,
}

impl Connection {
    pub fn new(
        protocol: quinn_proto::Connection,
        socket: usize,
        (stage, key): (Stage, KeyId),
        controller: SharedController,
        now: Instant,
    ) -> Self {
        Self {
            protocol,
            socket,
            stage,
            key,
            controller,
            stream: None,
            outbox: Outbox::new(DEPTH_MIN),
            inbox: Inbox::default(),
            readable: false,
            listed: Listed::default(),
            ending: None,
            doubted: None,
            timer: None,
            is_wan: false,
            keepalive: Keepalive::new(now),
            heard: (0, now),
            probes: false,
            pacer: Pacer::new(now),
            loaded: 0,
            lost: 0,
            is_drained: false,
            frames: 0,
            has_left: false,
            tail: Tail::default(),
            reassembly: Reassembly::default(),
            loss_before: None,
            paced_until: None,
        }
    }

    /// Returns the peer behind the link, if this is one.
    pub fn peer(&self) -> Option<PeerId> {
        match self.stage {
            Stage::Open { peer } => Some(peer),
            Stage::Dialled { .. } | Stage::Handshake(_) | Stage::Closing => None,
        }
    }

    /// Returns the peer that this process wants to reach, while the connection is not a link yet.
    pub fn dials(&self) -> Option<PeerId> {
        match &self.stage {
            Stage::Dialled { peer, .. } => Some(*peer),
            Stage::Handshake(handshake) => handshake.asked().map(Asked::peer),
            Stage::Open { .. } | Stage::Closing => None,
        }
    }

    /// True if another process has opened it, and it is not a link yet.
    pub fn is_accepted(&self) -> bool {
        matches!(&self.stage, Stage::Handshake(handshake) if handshake.asked().is_none())
    }

    /// True if it has not become a link in time.
    pub fn is_late(&self, now: Duration) -> bool {
        match &self.stage {
            Stage::Dialled { deadline, .. } => now >= *deadline,
            // The IO thread of a peer that computes says the verdict at once.
            Stage::Handshake(handshake) => handshake.is_late(now, || false),
            Stage::Open { .. } | Stage::Closing => false,
        }
    }

    /// True while it may still become a link.
    pub fn is_unproved(&self) -> bool {
        match self.stage {
            Stage::Dialled { .. } | Stage::Handshake(_) => true,
            Stage::Open { .. } | Stage::Closing => false,
        }
    }

    /// True if the peer has acknowledged all posted frames.
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.is_drained && self.controller.lock().has_all_arrived
    }

    /// True if a frame posted now would wait for the pacer.
    pub fn is_paced(&self, now: Instant) -> bool {
        self.paced_until.is_some_and(|until| now < until)
    }

    /// True if data waits for the pacer.
    pub fn waits_for_pace(&self) -> bool {
        self.paced_until.is_some()
    }

    /// Marks that quinn may have something to send, after input or a write.
    pub fn stir(&mut self) {
        self.is_drained = false;
    }

    /// Returns the time of the next service if no input arrives before.
    pub fn next(&mut self) -> Option<Instant> {
        let keepalive = self.keepalive.due().unwrap_or(self.heard.1 + UNHEARD_MAX);
        let dues = [self.protocol.poll_timeout(), self.paced_until, Some(keepalive)];
        dues.into_iter().chain([self.tail.due()]).flatten().min()
    }

    /// Sends the data that may leave now; returns true if anything left.
    pub fn pump(&mut self, now: Instant, outlet: &mut dyn Outlet, batch: &mut Vec<u8>) -> bool {
        let mut moved = false;
        self.paced_until = None;
        self.watch(now);
        let mut owes_duplicate = self.tail.take_due(now);
        for _ in 0..BATCHES_MAX {
            if outlet.is_stuck() {
                return moved;
            }
            let datagram = usize::from(self.protocol.current_mtu());
            let (allowance, pace) = self.allowance(now);
            let may_send = std::mem::take(&mut self.probes) || allowance >= datagram;
            self.controller.lock().may_send = may_send;
            if may_send {
                self.load(allowance + 2 * datagram);
            }
            batch.clear();
            let datagrams = (allowance / datagram).max(1).min(outlet.batch_max(datagram));
            let Some(transmit) = self.protocol.poll_transmit(now, datagrams, batch) else {
                self.is_drained |= may_send;
                let has_run_dry = may_send && std::mem::take(&mut self.loaded) > 0;
                if has_run_dry && !self.outbox.is_empty() {
                    // The estimate of loaded bytes was too high: load more.
                    continue;
                }
                let is_waiting = !self.is_drained || !self.outbox.is_empty();
                self.pacer.set_backlogged(is_waiting);
                if may_send && is_waiting {
                    self.controller.lock().model.handle_blocked();
                }
                if !is_waiting {
                    self.controller.lock().model.handle_drained(now);
                    if std::mem::take(&mut owes_duplicate) && self.send_duplicate(now) {
                        continue;
                    }
                    self.plan_duplicate(now);
                }
                // The duplicate is planned again once the waiting data has left.
                self.has_left |= owes_duplicate;
                if !may_send && is_waiting && self.pacer.next() > now {
                    self.paced_until = Some(self.pacer.next());
                }
                return moved;
            };
            moved = true;
            let packets = transmit.segment_size.map_or(1, |len| transmit.size.div_ceil(len));
            self.loaded =
                self.loaded.saturating_sub(transmit.size.saturating_sub(packets * OVERHEAD));
            self.note_sent(now, transmit.size, pace);
            if !outlet.send(transmit, batch) {
                return moved;
            }
        }
        // More may leave; other connections are served first.
        self.paced_until = Some(now);
        moved
    }

    /// Requests a keepalive probe if no acknowledgement has arrived for long.
    fn watch(&mut self, now: Instant) {
        let controller = self.controller.lock();
        let (has_all_arrived, arrived) = (controller.has_all_arrived, controller.arrived);
        drop(controller);
        // Asked at each look, since it also notes when the last datagram came.
        let is_unheard = self.is_unheard(now);
        let awaits = !has_all_arrived || is_unheard;
        let heard = self.heard.1;
        let signs = || Signs { arrived, heard, round_trip: self.protocol.rtt() };
        if self.keepalive.look(now, awaits, signs) {
            self.probe();
        }
    }

    /// Sets the loss rate that earlier jobs saw on this path, if known.
    pub fn expect_loss(&mut self, loss: Option<f64>) {
        self.loss_before = loss;
        self.tail.keep(tail_duplicate::pays(0, 0, loss));
    }

    /// Plans a tail duplicate after all data has left.
    fn plan_duplicate(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_left) {
            let path = self.protocol.stats().path;
            let pays = tail_duplicate::pays(path.sent_packets, path.lost_packets, self.loss_before);
            self.tail.keep(pays);
            if pays {
                self.tail.plan(now, self.protocol.rtt());
            }
        }
    }

    /// Sends the latest bytes once more, without waiting for the pacer. False if the peer supports no datagrams.
    fn send_duplicate(&mut self, now: Instant) -> bool {
        let mut datagrams = self.protocol.datagrams();
        let Some(most) = datagrams.max_size() else { return false };
        let was_sent = datagrams.send(self.tail.duplicate(most), true).is_ok();
        if was_sent {
            self.controller.lock().model.handle_duplicate(now);
            self.probes = true;
            self.stir();
        }
        was_sent
    }

    /// Receives tail duplicates.
    pub fn take_duplicates(&mut self) {
        while let Some(duplicate) = self.protocol.datagrams().recv() {
            self.reassembly.keep(duplicate);
            self.readable = true;
        }
    }

    /// True if no datagram has arrived for longer than a requested keepalive takes.
    fn is_unheard(&mut self, now: Instant) -> bool {
        let datagrams = self.protocol.stats().udp_rx.datagrams;
        if datagrams != self.heard.0 {
            self.heard = (datagrams, now);
        }
        now.saturating_duration_since(self.heard.1) >= UNHEARD_MAX
    }

    /// Sends one ack-eliciting packet without waiting for the pacer.
    pub fn probe(&mut self) {
        self.protocol.ping();
        self.probes = true;
        self.stir();
    }

    /// Returns the time without a sign of life if it ends the link: only a WAN link, which can be reopened.
    pub fn has_vanished(&self, now: Instant, silence: Duration) -> Option<Duration> {
        let verdict = || self.keepalive.verdict(now, silence, self.protocol.rtt());
        if self.is_wan { verdict() } else { None }
    }

    /// Returns the number of bytes that may leave now, and the pace in bytes per second.
    fn allowance(&mut self, now: Instant) -> (usize, f64) {
        let controller = self.controller.lock();
        let window = controller.model.window().saturating_sub(controller.model.in_flight());
        let pace = controller.model.pace();
        drop(controller);
        let paced = self.pacer.allowance(now, pace);
        (paced.min(usize::try_from(window).unwrap_or(usize::MAX)), pace)
    }

    fn note_sent(&mut self, now: Instant, bytes: usize, pace: f64) {
        let frames = self.protocol.stats().frame_tx.stream;
        if frames == self.frames {
            // Acknowledgements and similar packets are not acknowledged, or too few to count.
            return;
        }
        self.frames = frames;
        self.has_left = true;
        self.pacer.sent(bytes, pace);
        let mut controller = self.controller.lock();
        controller.has_all_arrived = false;
        controller.model.handle_sent(now, bytes as u64);
    }

    /// Moves up to `wanted` bytes to the stream, limited by the outbox and by flow control.
    fn load(&mut self, wanted: usize) {
        let lost = self.protocol.stats().path.lost_bytes;
        self.loaded += lost.saturating_sub(std::mem::replace(&mut self.lost, lost)) as usize;
        while self.loaded < wanted {
            let Some(chunk) = self.outbox.take(wanted - self.loaded) else { return };
            let len = chunk.len();
            let written = self.write(chunk);
            self.loaded += written;
            if written < len {
                return;
            }
        }
    }

    /// Writes to the stream and returns the bytes it does not take to the outbox.
    fn write(&mut self, chunk: Bytes) -> usize {
        let mut chunks = [chunk.clone()];
        let written = match self.stream {
            Some(id) => self.protocol.send_stream(id).write_chunks(&mut chunks),
            None => Err(WriteError::Blocked),
        };
        let [rest] = chunks;
        self.outbox.put_back(rest);
        let bytes = written.map_or(0, |written| written.bytes);
        self.tail.note_written(&chunk[..bytes]);
        self.is_drained &= bytes == 0;
        bytes
    }

    /// Writes a hello or a verdict, which fits the initial flow-control window.
    pub fn send_message(&mut self, word: &[u8]) {
        if let Some(id) = self.stream {
            // A closed stream is noticed by its reader.
            let written = self.protocol.send_stream(id).write(word).unwrap_or(0);
            self.tail.note_written(&word[..written]);
            self.stir();
        }
    }

    /// Advances the handshake by what has arrived. Bytes of frames behind it stay in the stream.
    ///
    /// # Errors
    /// The other end is refused.
    pub fn receive_message(&mut self, own: &Own<'_>) -> Result<Step, HandshakeEnd> {
        let (Stage::Handshake(handshake), Some(id)) = (&mut self.stage, self.stream) else {
            return Ok(Step::Waits);
        };
        let mut stream = self.protocol.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Step::Waits) };
        let mut step = Ok(Step::Waits);
        while step == Ok(Step::Waits) && handshake.missing() > 0 {
            let Ok(Some(chunk)) = chunks.next(handshake.missing()) else { break };
            let bytes = self.reassembly.bring(chunk.bytes);
            step = handshake.handle_bytes(own, &mut &bytes[..], || Err(Refusal::Protocol));
        }
        // The window update leaves with the next packet.
        let _ = chunks.finalize();
        step
    }

    /// Delivers received frames, about `budget` bytes of them at most.
    ///
    /// # Errors
    /// The peer violated the protocol.
    pub fn read(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> Result<Reading, Fault> {
        let Some(id) = self.stream else { return Ok(Reading::Dry) };
        let mut stream = self.protocol.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Reading::Dry) };
        let mut count = 0;
        let reading = loop {
            if count >= budget {
                break Ok(Reading::More);
            }
            match chunks.next(budget) {
                Ok(Some(chunk)) => {
                    count += chunk.bytes.len();
                    let bytes = self.reassembly.bring(chunk.bytes);
                    if let Err(fault) = self.inbox.take(&bytes, sink) {
                        break Err(fault);
                    }
                }
                Err(ReadError::Blocked) => break Ok(Reading::Dry),
                Ok(None) | Err(ReadError::Reset(_)) => {
                    break Err(Fault::Misbehaved("the end of a stream that has none".into()));
                }
            }
        };
        let grants_room = chunks.finalize().should_transmit();
        if grants_room {
            self.stir();
        }
        if reading == Ok(Reading::Dry)
            && let Some(bytes) = self.reassembly.fill()
        {
            self.inbox.take(&bytes, sink)?;
        }
        reading
    }

    /// Closes the connection and sends the code and reason once.
    pub fn close(&mut self, now: Instant, code: Code, reason: Bytes) {
        self.protocol.close(now, VarInt::from_u32(code as u32), reason);
        self.stage = Stage::Closing;
        self.stir();
    }

    /// Derives the depth of the outbox from the pace.
    pub fn update_depth(&mut self) {
        let pace = self.controller.lock().model.pace();
        let carried = |time: Duration| ((pace * time.as_secs_f64()) as usize).max(DEPTH_MIN);
        self.outbox.depth = carried(DEPTH).min(DEPTH_MAX);
        self.outbox.burst = carried(BURST).min(DEPTH_MAX);
    }
}

/// Application error codes of CONNECTION_CLOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    /// Orderly close.
    Goodbye = 0,
    /// Another connection is the link.
    Declined = 1,
    /// The peer violated the protocol.
    Misbehaved = 2,
    /// This end counts the link as lost.
    Lost = 3,
}

/// Maximum bytes of a packet that are not stream data. It is an upper bound, so that `loaded` is never too low; an
/// overestimate shows when quinn runs dry.
const OVERHEAD: usize = 48;
/// Batches of one connection before others are served.
const BATCHES_MAX: usize = 32;
/// Data accepted ahead of the pace, as time on the path: twice the poll interval of a progress thread.
const DEPTH: Duration = Duration::from_millis(2);
/// Data of long messages accepted in a row, as time on the path: enough until the next poll.
const BURST: Duration = Duration::from_micros(500);
const DEPTH_MIN: usize = 64 << 10;
const DEPTH_MAX: usize = 1 << 20;
