//! One connection: what leaves on it, when, and what arrives.
//!
//! Frames wait in the outbox and are given to the connection as they may leave: at the pace and within the
//! window that the model of the path allows. Acknowledgements, probes and whatever else the protocol needs
//! leave in any case.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{Connection, ReadError, StreamId, Transmit, VarInt, WriteError};
use wire::PeerId;

use super::controller::SharedGate;
use super::frames::{Inbox, Outbox};
use super::keepalive::{Signs, Vigil};
use super::pacer::Pacer;
use super::settings::KEEP_ALIVE;
use super::tail_duplicate::{self, Heard, Tail};
use crate::rail::Fault;

/// Where packets leave: a socket.
pub(super) trait Outlet {
    /// Whether a batch waits for room; then nothing leaves before it.
    fn is_stuck(&self) -> bool;

    /// Packets of so many bytes that leave at once.
    fn batch_max(&self, packet_len: usize) -> usize;

    /// Sends a batch; false when there was no room for it, and it waits.
    fn send(&mut self, transmit: Transmit, contents: &mut Vec<u8>) -> bool;
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// This process has opened it to reach `peer`; the protocol's handshake is under way.
    Dialled { peer: PeerId },
    /// This process has said hello to `peer`, whose verdict is awaited.
    Asked { peer: PeerId },
    /// Somebody has opened it, and has not said hello yet.
    Strange,
    /// It is the link to `peer`.
    Open { peer: PeerId },
    /// It is closed, and lingers until the other end knows.
    Closing,
}

/// A connection of the rail.
pub(super) struct Line {
    pub connection: Connection,
    /// By which of the rail's sockets.
    pub socket: usize,
    pub stage: Stage,
    pub gate: SharedGate,
    /// The stream that carries the frames both ways, once it is there.
    pub stream: Option<StreamId>,
    pub outbox: Outbox,
    pub inbox: Inbox,
    /// What has been read of the word that is awaited.
    pub word: Vec<u8>,
    /// The stream may have something to read.
    pub readable: bool,
    /// Waits to be read, or to be served: in the rail's lists.
    pub listed: Listed,
    /// Why the link ends, once all that has arrived was shown.
    pub ending: Option<Fault>,
    /// When it is given up unless it has become a link, on the rail's clock.
    pub deadline: Duration,
    /// Somebody on the way has said that the peer is not there; until when it may show the contrary.
    pub doubted: Option<(Instant, u64)>,
    /// The earliest entry in the rail's list of timers.
    pub timer: Option<Instant>,
    /// Whether the peer is so far that frames are kept, for the link to be opened anew.
    pub is_far: bool,
    vigil: Vigil,
    /// The datagrams that had come at the last look that found more, and when that was.
    heard: (u64, Instant),
    /// One packet is to leave in any case, for the peer to answer.
    knocks: bool,
    pacer: Pacer,
    /// What the connection was given to send and has not sent, or has lost since: no less than that.
    loaded: usize,
    /// What it has lost so far.
    lost: u64,
    /// The connection has nothing that could leave and has not.
    is_drained: bool,
    /// STREAM frames that have left, and whether one has since the last that was to leave had.
    frames: u64,
    has_left: bool,
    /// What has left last…
    tail: Tail,
    /// …and what has come, of the stream.
    heard_of: Heard,
    /// The part that jobs before have lost of what they sent.
    loss_before: Option<f64>,
    /// When more may leave, if the pace is what it waits for.
    paced_until: Option<Instant>,
}

/// In which of the rail's lists a line is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    pub to_serve: bool,
    pub to_read: bool,
}

/// What reading has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There may be more.
    More,
    /// Nothing more for now.
    Dry,
}

impl Line {
    pub fn new(
        connection: Connection,
        socket: usize,
        stage: Stage,
        gate: SharedGate,
        now: Instant,
    ) -> Self {
        Self {
            connection,
            socket,
            stage,
            gate,
            stream: None,
            outbox: Outbox::new(DEPTH_MIN),
            inbox: Inbox::default(),
            word: Vec::new(),
            readable: false,
            listed: Listed::default(),
            ending: None,
            deadline: Duration::MAX,
            doubted: None,
            timer: None,
            is_far: false,
            vigil: Vigil::default(),
            heard: (0, now),
            knocks: false,
            pacer: Pacer::new(now),
            loaded: 0,
            lost: 0,
            is_drained: false,
            frames: 0,
            has_left: false,
            tail: Tail::default(),
            heard_of: Heard::default(),
            loss_before: None,
            paced_until: None,
        }
    }

    /// The peer behind the link, if this is one.
    pub fn peer(&self) -> Option<PeerId> {
        match self.stage {
            Stage::Open { peer } => Some(peer),
            Stage::Dialled { .. } | Stage::Asked { .. } | Stage::Strange | Stage::Closing => None,
        }
    }

    /// Whom this process wants to reach by it, if it has not yet.
    pub fn dials(&self) -> Option<PeerId> {
        match self.stage {
            Stage::Dialled { peer } | Stage::Asked { peer } => Some(peer),
            Stage::Strange | Stage::Open { .. } | Stage::Closing => None,
        }
    }

    /// Whether it may yet become a link.
    pub fn is_unproved(&self) -> bool {
        match self.stage {
            Stage::Dialled { .. } | Stage::Asked { .. } | Stage::Strange => true,
            Stage::Open { .. } | Stage::Closing => false,
        }
    }

    /// Whether everything that was posted has arrived.
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.is_drained && self.gate.lock().has_all_arrived
    }

    /// Whether what is posted now would have to wait for the pace.
    pub fn is_paced(&self, now: Instant) -> bool {
        self.paced_until.is_some_and(|until| now < until)
    }

    /// Whether something waits for the pace.
    pub fn waits_for_pace(&self) -> bool {
        self.paced_until.is_some()
    }

    /// The protocol has had news, or something was written: it may have something to send.
    pub fn stir(&mut self) {
        self.is_drained = false;
    }

    /// When to serve it next, if nothing comes before.
    pub fn next(&mut self) -> Option<Instant> {
        let dues = [self.connection.poll_timeout(), self.paced_until, self.vigil.due()];
        dues.into_iter().chain([self.tail.due()]).flatten().min()
    }

    /// Sends what may leave now; whether anything did.
    pub fn pump(&mut self, now: Instant, outlet: &mut dyn Outlet, batch: &mut Vec<u8>) -> bool {
        let mut moved = false;
        self.paced_until = None;
        self.watch(now);
        let mut owes_echo = self.tail.take_due(now);
        for _ in 0..BATCHES_MAX {
            if outlet.is_stuck() {
                return moved;
            }
            let datagram = usize::from(self.connection.current_mtu());
            let (allowance, pace) = self.allowance(now);
            let is_open = std::mem::take(&mut self.knocks) || allowance >= datagram;
            self.gate.lock().is_open = is_open;
            if is_open {
                self.load(allowance + 2 * datagram);
            }
            batch.clear();
            let datagrams = (allowance / datagram).max(1).min(outlet.batch_max(datagram));
            let Some(transmit) = self.connection.poll_transmit(now, datagrams, batch) else {
                self.is_drained |= is_open;
                let has_run_dry = is_open && std::mem::take(&mut self.loaded) > 0;
                if has_run_dry && !self.outbox.is_empty() {
                    // It held less than was believed.
                    continue;
                }
                let is_waiting = !self.is_drained || !self.outbox.is_empty();
                self.pacer.set_backlogged(is_waiting);
                if !is_waiting {
                    self.gate.lock().model.handle_drained(now);
                    if std::mem::take(&mut owes_echo) && self.echo(now) {
                        continue;
                    }
                    self.plan_echo(now);
                }
                // It is planned anew when what waits has left.
                self.has_left |= owes_echo;
                if !is_open && is_waiting && self.pacer.next() > now {
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
        // There is more; others have their turn before.
        self.paced_until = Some(now);
        moved
    }

    /// Has the peer asked for an answer when nothing comes for long.
    fn watch(&mut self, now: Instant) {
        let gate = self.gate.lock();
        let (has_all_arrived, arrived) = (gate.has_all_arrived, gate.arrived);
        drop(gate);
        let awaits = !has_all_arrived || self.is_unheard(now);
        let signs = || Signs { arrived, round_trip: self.connection.rtt() };
        if self.vigil.look(now, awaits, signs) {
            self.knock();
        }
    }

    /// Jobs before have lost such a part of what they sent on this path, if that is known.
    pub fn expect_loss(&mut self, loss: Option<f64>) {
        self.loss_before = loss;
        self.tail.keep(tail_duplicate::pays(0, 0, loss));
    }

    /// All that was to leave has.
    fn plan_echo(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_left) {
            let path = self.connection.stats().path;
            let pays = tail_duplicate::pays(path.sent_packets, path.lost_packets, self.loss_before);
            self.tail.keep(pays);
            if pays {
                self.tail.plan(now, self.connection.rtt());
            }
        }
    }

    /// Has the last bytes leave once more, in any case; whether there is somebody who understands that.
    fn echo(&mut self, now: Instant) -> bool {
        let mut datagrams = self.connection.datagrams();
        let Some(most) = datagrams.max_size() else { return false };
        let has_echo = datagrams.send(self.tail.echo(most), true).is_ok();
        if has_echo {
            self.gate.lock().model.handle_echo(now);
            self.knocks = true;
            self.stir();
        }
        has_echo
    }

    /// Echoes have come.
    pub fn take_echoes(&mut self) {
        while let Some(echo) = self.connection.datagrams().recv() {
            self.heard_of.keep(echo);
            self.readable = true;
        }
    }

    /// Whether no sign of life has come for longer than one takes that is asked for when nothing else comes.
    fn is_unheard(&mut self, now: Instant) -> bool {
        let datagrams = self.connection.stats().udp_rx.datagrams;
        if datagrams != self.heard.0 {
            self.heard = (datagrams, now);
        }
        now.saturating_duration_since(self.heard.1) > KEEP_ALIVE + ANSWER_WITHIN
    }

    /// Has one packet leave in any case, which the peer answers.
    pub fn knock(&mut self) {
        self.connection.ping();
        self.knocks = true;
        self.stir();
    }

    /// How often the peer was asked for an answer in vain, where that ends the link: far away, for it can be opened
    /// anew.
    pub fn unanswered(&self) -> Option<u32> {
        self.vigil.verdict().filter(|_| self.is_far)
    }

    /// How many bytes may leave now, and at which pace.
    fn allowance(&mut self, now: Instant) -> (usize, f64) {
        let gate = self.gate.lock();
        let window = gate.model.window().saturating_sub(gate.model.in_flight());
        let pace = gate.model.pace();
        drop(gate);
        let paced = self.pacer.allowance(now, pace);
        (paced.min(usize::try_from(window).unwrap_or(usize::MAX)), pace)
    }

    fn note_sent(&mut self, now: Instant, bytes: usize, pace: f64) {
        let frames = self.connection.stats().frame_tx.stream;
        if frames == self.frames {
            // Acknowledgements and the like are not acknowledged, or too few to count.
            return;
        }
        self.frames = frames;
        self.has_left = true;
        self.pacer.sent(bytes, pace);
        let mut gate = self.gate.lock();
        gate.has_all_arrived = false;
        gate.model.handle_sent(now, bytes as u64);
    }

    /// Gives the connection so much to send, as far as there is so much and the peer has room for it.
    fn load(&mut self, wanted: usize) {
        let lost = self.connection.stats().path.lost_bytes;
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

    /// Writes to the stream and puts back what it does not take.
    fn write(&mut self, chunk: Bytes) -> usize {
        let mut chunks = [chunk.clone()];
        let written = match self.stream {
            Some(id) => self.connection.send_stream(id).write_chunks(&mut chunks),
            None => Err(WriteError::Blocked),
        };
        let [rest] = chunks;
        self.outbox.put_back(rest);
        let bytes = written.map_or(0, |written| written.bytes);
        self.tail.note_written(&chunk[..bytes]);
        self.is_drained &= bytes == 0;
        bytes
    }

    /// Says a word of the beginning, which fits whatever room a fresh stream has.
    pub fn say(&mut self, word: &[u8]) {
        if let Some(id) = self.stream {
            // A stream that is gone is found so by its reader.
            let written = self.connection.send_stream(id).write(word).unwrap_or(0);
            self.tail.note_written(&word[..written]);
            self.stir();
        }
    }

    /// The next `N` bytes, once they are there.
    pub fn hear<const N: usize>(&mut self) -> Option<[u8; N]> {
        let id = self.stream?;
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return None };
        while self.word.len() < N {
            let Ok(Some(chunk)) = chunks.next(N - self.word.len()) else { break };
            self.word.extend(self.heard_of.bring(chunk.bytes));
        }
        // What the reading allows the peer to send is told with whatever leaves next.
        let _ = chunks.finalize();
        let word = <[u8; N]>::try_from(&self.word[..]).ok()?;
        self.word.clear();
        Some(word)
    }

    /// Shows frames that have arrived, at most about `budget` bytes of them.
    ///
    /// # Errors
    /// When the peer sends nonsense.
    pub fn read(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8])) -> Result<Reading, Fault> {
        let Some(id) = self.stream else { return Ok(Reading::Dry) };
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Reading::Dry) };
        let mut count = 0;
        let reading = loop {
            if count >= budget {
                break Ok(Reading::More);
            }
            match chunks.next(budget) {
                Ok(Some(chunk)) => {
                    count += chunk.bytes.len();
                    let bytes = self.heard_of.bring(chunk.bytes);
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
            && let Some(bytes) = self.heard_of.fill()
        {
            self.inbox.take(&bytes, sink)?;
        }
        reading
    }

    /// Ends it: the other end is told once.
    pub fn close(&mut self, now: Instant, code: Code) {
        self.connection.close(now, VarInt::from_u32(code as u32), Bytes::new());
        self.stage = Stage::Closing;
        self.stir();
    }

    /// Follows what the path is known to carry: so much is taken from the engine in advance.
    pub fn reckon_depth(&mut self) {
        let pace = self.gate.lock().model.pace();
        let carried = |time: Duration| ((pace * time.as_secs_f64()) as usize).max(DEPTH_MIN);
        self.outbox.depth = carried(DEPTH).min(DEPTH_MAX);
        self.outbox.burst = carried(BURST).min(DEPTH_MAX);
    }
}

/// Why a connection is closed, for the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Code {
    /// Nothing more will come.
    Goodbye = 0,
    /// Another connection is the link.
    Declined = 1,
    /// What came was nonsense.
    Misbehaved = 2,
    /// This end takes the link for lost.
    Lost = 3,
}

/// What of a packet is not a frame's, at most: what the connection holds is believed to be more rather than less, for
/// that shows when it runs dry.
const OVERHEAD: usize = 48;
/// Batches of one line before others have their turn.
const BATCHES_MAX: usize = 32;
/// What is accepted of the engine ahead of the pace: as long as a thread that stands by stays away.
const DEPTH: Duration = Duration::from_millis(2);
/// What is accepted of long messages in a row: enough to be under way until the rail is polled.
const BURST: Duration = Duration::from_micros(500);
const DEPTH_MIN: usize = 64 << 10;
const DEPTH_MAX: usize = 1 << 20;
/// What a sign of life that is asked for may take, over the longest way.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
