//! Rails and strategies that record what they do, for `mpiexec -trace`. Without a recording, processes use the rails
//! and the strategy themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use cost::Cost;
use engine::strategy::{Choice, Strategy, View};
use memory::Region;
use rail::{Event, Neighbours, Post, Rail, RailError, ReadinessProbe, RemoteReader};
use recorder::{Cell, NameKind, Recorder, TraceEvent, now_ns, thread};
use wire::{Frame, FrameToken, Incoming, PeerId, ProcessId, RemoteRegion, packet};

/// Returns the rails and the strategy of a worker, which record what they do with the peers of its job, the first `size`
/// ones. `vci` is empty for the first VCI, and else tells its rails apart from those of others.
pub(crate) fn traced(
    rails: Vec<Box<dyn Rail>>,
    strategy: Box<dyn Strategy>,
    (vci, size): (&str, u32),
    recorder: &'static Recorder,
) -> (Vec<Box<dyn Rail>>, Box<dyn Strategy>) {
    let chosen_by = Arc::new(AtomicU16::new(NOBODY));
    let rail = |rail: Box<dyn Rail>| {
        let name = recorder.name(NameKind::Rail, &format!("{}{vci}", rail.name()));
        let record = RailRecord {
            recorder,
            name,
            size,
            costs: HashMap::new(),
            held: HashMap::new(),
            kinds: BTreeMap::new(),
            parts: HashMap::new(),
        };
        Box::new(TracedRail { rail, record, chosen_by: Arc::clone(&chosen_by) }) as Box<dyn Rail>
    };
    let rails = rails.into_iter().map(rail).collect();
    let name = recorder.name(NameKind::Strategy, strategy.name());
    (rails, Box::new(TracedStrategy { strategy, name, chosen_by }))
}

/// A strategy that tells the rails of its worker that it has chosen the contents of the next frame.
#[derive(Debug)]
struct TracedStrategy {
    strategy: Box<dyn Strategy>,
    name: u16,
    chosen_by: Arc<AtomicU16>,
}

impl Strategy for TracedStrategy {
    fn name(&self) -> &'static str {
        self.strategy.name()
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        self.strategy.choose(view, choice);
        let is_empty = choice.controls == 0 && choice.messages.is_empty() && choice.piece.is_none();
        self.chosen_by.store(if is_empty { NOBODY } else { self.name }, Ordering::Relaxed);
    }

    fn coalesces(&self) -> bool {
        self.strategy.coalesces()
    }
}

/// A rail that records its frames and links.
struct TracedRail {
    rail: Box<dyn Rail>,
    record: RailRecord,
    /// Strategy that has chosen the contents of the next frame.
    chosen_by: Arc<AtomicU16>,
}

/// Frames and links of a rail, as far as they are known.
struct RailRecord {
    recorder: &'static Recorder,
    /// Number of the rail's name.
    name: u16,
    /// Number of processes in the job. A trace is one of a job: peers of other jobs have no rank in it.
    size: u32,
    /// Costs that the rail has reported.
    costs: HashMap<PeerId, Cost>,
    /// Numbers of the names of kinds of packets.
    kinds: BTreeMap<BTreeSet<&'static str>, u16>,
    /// Frames whose memory the rail holds.
    held: HashMap<(PeerId, FrameToken), Cell>,
    /// Frames that are being received in pieces.
    parts: HashMap<PeerId, Part>,
}

/// A frame of which the beginning has arrived.
struct Part {
    begin_ns: u64,
    len: usize,
    /// Number of bytes to come.
    left: usize,
}

impl Rail for TracedRail {
    fn name(&self) -> &'static str {
        self.rail.name()
    }

    fn address(&self) -> Vec<u8> {
        self.rail.address()
    }

    fn passes(&self) -> bool {
        self.rail.passes()
    }

    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError> {
        self.rail.connect(peer, address)
    }

    fn add_peer(&mut self, peer: PeerId, process: ProcessId, key: &[u8; 32]) {
        self.rail.add_peer(peer, process, key);
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.rail.disconnect(peer);
        self.record.note_link(peer, false);
    }

    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post {
        let strategy = self.chosen_by.swap(NOBODY, Ordering::Relaxed);
        let begin_ns = now_ns();
        let posted = self.rail.post(peer, frame);
        if posted != Post::Full {
            self.record.note_posted((peer, strategy), frame, begin_ns, posted);
        }
        posted
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Self { rail, record, .. } = self;
        rail.poll(&mut |event| record.pass(event, sink))
    }

    fn remote_reader(&self, peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        let reader = self.rail.remote_reader(peer)?;
        if !self.record.covers(peer) {
            return Some(reader);
        }
        let RailRecord { recorder, name: rail, .. } = self.record;
        Some(Arc::new(TracedReader { reader, recorder, rail, peer }))
    }

    fn coalesce_within(&self) -> Duration {
        self.rail.coalesce_within()
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.rail.neighbours()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rail.descriptors()
    }

    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        self.rail.readiness_probe()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.rail.prepare_sleep()
    }

    fn finish_sleep(&mut self) {
        self.rail.finish_sleep();
    }

    fn is_flushed(&self) -> bool {
        self.rail.is_flushed()
    }

    fn is_at_rest(&self) -> bool {
        self.rail.is_at_rest()
    }
}

impl RailRecord {
    /// True if the peer is one of the job that is recorded.
    fn covers(&self, peer: PeerId) -> bool {
        peer.0 < self.size
    }

    /// Records a frame that the rail has accepted.
    fn note_posted(
        &mut self,
        (peer, strategy): (PeerId, u16),
        frame: &Frame,
        begin_ns: u64,
        posted: Post,
    ) {
        if !self.covers(peer) {
            return;
        }
        let (end_ns, bytes) = (now_ns(), frame.len() as u64);
        let packets = packet::names(&frame.head).count() as u32;
        let kinds = packet::names(&frame.head).collect::<BTreeSet<_>>();
        let name = |kinds: &BTreeSet<&str>| {
            let text = kinds.iter().copied().collect::<Vec<_>>().join(", ");
            self.recorder.name(NameKind::Packets, &text)
        };
        let kinds = match self.kinds.get(&kinds) {
            Some(known) => *known,
            None => *self.kinds.entry(kinds.clone()).or_insert(name(&kinds)),
        };
        let predicted_ns = self.costs.get(&peer).map_or(0, |cost| cost.arrival_ns(bytes));
        let cell = self.recorder.record(&TraceEvent::Sent {
            rail: self.name,
            peer: peer.0,
            begin_ns,
            end_ns,
            done_ns: if posted == Post::Done { end_ns } else { 0 },
            bytes,
            predicted_ns,
            strategy,
            kinds,
            packets,
        });
        if let (Post::Held, Some(token)) = (posted, frame.token) {
            self.held.insert((peer, token), cell);
        }
    }

    /// Passes an event of the rail on, and records it.
    fn pass(&mut self, event: Event<'_>, sink: &mut dyn FnMut(Event<'_>)) {
        match event {
            Event::Frame { peer, bytes } => {
                let (begin_ns, len) = (now_ns(), bytes.len());
                sink(Event::Frame { peer, bytes });
                self.note_arrived(peer, len, begin_ns, begin_ns);
            }
            Event::Begun { peer, bytes, len, taken } => {
                let (begin_ns, left) = (now_ns(), len.saturating_sub(bytes.len()));
                sink(Event::Begun { peer, bytes, len, taken: &mut *taken });
                if *taken {
                    self.parts.insert(peer, Part { begin_ns, len, left });
                    self.note_rest(peer, 0, begin_ns);
                }
            }
            Event::Rest { peer, bytes } => {
                let (at_ns, mut len) = (now_ns(), 0);
                match bytes {
                    Incoming::Here(here) => {
                        len = here.len();
                        sink(Event::Rest { peer, bytes });
                    }
                    Incoming::Unread(read) => {
                        let mut counted = |target: &Region| {
                            len = read(target);
                            len
                        };
                        sink(Event::Rest { peer, bytes: Incoming::Unread(&mut counted) });
                    }
                }
                self.note_rest(peer, len, at_ns);
            }
            Event::Sent { peer, token } => {
                if let Some(cell) = self.held.remove(&(peer, token)) {
                    self.recorder.end_sending(cell, now_ns());
                }
                sink(Event::Sent { peer, token });
            }
            Event::Cost { peer, cost } => {
                self.costs.insert(peer, cost);
                sink(Event::Cost { peer, cost });
            }
            Event::Up { peer, capabilities } => {
                self.note_link(peer, true);
                sink(Event::Up { peer, capabilities });
            }
            Event::Down { peer, fault } => {
                self.note_link(peer, false);
                sink(Event::Down { peer, fault });
            }
            other @ (Event::Room { .. } | Event::Refused { .. } | Event::Hampered { .. }) => {
                sink(other);
            }
        }
    }

    /// Notes that `len` more bytes of a frame in pieces have arrived; the last ones complete it.
    fn note_rest(&mut self, peer: PeerId, len: usize, at_ns: u64) {
        let Some(part) = self.parts.get_mut(&peer) else { return };
        part.left = part.left.saturating_sub(len);
        if part.left == 0 {
            let Part { begin_ns, len, .. } = *part;
            self.parts.remove(&peer);
            self.note_arrived(peer, len, begin_ns, at_ns);
        }
    }

    fn note_arrived(&self, peer: PeerId, len: usize, begin_ns: u64, arrived_ns: u64) {
        if !self.covers(peer) {
            return;
        }
        self.recorder.record(&TraceEvent::Arrived {
            rail: self.name,
            peer: peer.0,
            arrived_ns,
            begin_ns,
            end_ns: now_ns(),
            bytes: len as u64,
        });
    }

    /// Records that a link has opened or ended, with which all frames in flight end.
    fn note_link(&mut self, peer: PeerId, is_open: bool) {
        self.held.retain(|(of, _), _| *of != peer);
        self.parts.remove(&peer);
        self.costs.remove(&peer);
        if self.covers(peer) {
            let (rail, at_ns) = (self.name, now_ns());
            self.recorder.record(&TraceEvent::Link { rail, peer: peer.0, at_ns, is_open });
        }
    }
}

/// A reader of a peer's memory that records its reads.
struct TracedReader {
    reader: Arc<dyn RemoteReader>,
    recorder: &'static Recorder,
    rail: u16,
    peer: PeerId,
}

impl RemoteReader for TracedReader {
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError> {
        let begin_ns = now_ns();
        let read = self.reader.remote_read(remote, offset, local);
        self.recorder.record(&TraceEvent::Read {
            rail: self.rail,
            peer: self.peer.0,
            thread: thread(self.recorder),
            begin_ns,
            end_ns: now_ns(),
            bytes: local.len() as u64,
        });
        read
    }
}

/// Number of no strategy.
const NOBODY: u16 = 0;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use recorder::Recording;
    use wire::Body;

    use super::*;

    /// Gives events to a sink.
    type Script = fn(&mut dyn FnMut(Event<'_>));

    /// A rail that holds frames with tokens and gives the events that it was told to.
    #[derive(Default)]
    struct Scripted {
        events: Vec<Script>,
    }

    impl Rail for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn address(&self) -> Vec<u8> {
            Vec::new()
        }

        fn connect(&mut self, _: PeerId, _: &[u8]) -> Result<(), RailError> {
            Ok(())
        }

        fn disconnect(&mut self, _: PeerId) {}

        fn post(&mut self, _: PeerId, frame: &Frame) -> Post {
            match (&frame.token, &frame.body) {
                (Some(_), _) => Post::Held,
                (None, Some(_)) => Post::Full,
                (None, None) => Post::Done,
            }
        }

        fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
            self.events.drain(..).for_each(|event| event(sink));
            true
        }

        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }

        fn prepare_sleep(&mut self) -> bool {
            true
        }

        fn finish_sleep(&mut self) {}

        fn is_flushed(&self) -> bool {
            true
        }
    }

    fn frame(head: usize, token: Option<u64>) -> Frame {
        Frame { head: vec![0; head], body: None, token: token.map(FrameToken) }
    }

    /// Records what a rail does, and returns it without the names.
    fn record(events: Vec<Script>, act: impl FnOnce(&mut dyn Rail)) -> Vec<TraceEvent> {
        let file = recorder::create(1 << 16).expect("a memfd");
        let recorder: &'static Recorder =
            Box::leak(Box::new(Recorder::map(&file).expect("a mapping")));
        let strategy = engine::strategy::named("fifo").expect("known");
        let rails: Vec<Box<dyn Rail>> = vec![Box::new(Scripted { events })];
        let (mut rails, _) = traced(rails, strategy, ("", 3), recorder);
        act(&mut *rails[0]);
        let mut bytes = vec![0; recorder::used(&file).expect("a count") as usize];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        let recorded = Recording::parse(&bytes, 1 << 16).events;
        recorded.into_iter().filter(|one| !matches!(one, TraceEvent::Name { .. })).collect()
    }

    #[test]
    fn a_frame_is_recorded_with_its_length_and_the_time_when_it_was_sent() {
        let sent = |sink: &mut dyn FnMut(Event<'_>)| {
            sink(Event::Sent { peer: PeerId(2), token: FrameToken(5) });
        };
        let events = record(vec![sent], |rail| {
            let region = Region::from_box(Box::new([0; 4]));
            let refused = Frame { body: Some(Body { region }), ..frame(8, None) };
            assert_eq!(rail.post(PeerId(2), &refused), Post::Full);
            assert_eq!(rail.post(PeerId(1), &frame(100, None)), Post::Done);
            assert_eq!(rail.post(PeerId(2), &frame(300, Some(5))), Post::Held);
            assert_eq!(rail.post(PeerId(2), &frame(400, Some(6))), Post::Held);
            // A process of another job.
            assert_eq!(rail.post(PeerId(3), &frame(500, None)), Post::Done);
            rail.poll(&mut |_| {});
        });
        let facts: Vec<_> = events
            .iter()
            .map(|event| match *event {
                TraceEvent::Sent { peer, bytes, begin_ns, end_ns, done_ns, .. } => {
                    (peer, bytes, begin_ns <= end_ns, done_ns >= end_ns)
                }
                ref other => panic!("{other:?}"),
            })
            .collect();
        let expected = [(1, 100, true, true), (2, 300, true, true), (2, 400, true, false)];
        assert_eq!(facts, expected);
    }

    #[test]
    fn a_frame_that_comes_in_pieces_arrives_once() {
        let begun = |sink: &mut dyn FnMut(Event<'_>)| {
            let taken = &mut false;
            sink(Event::Begun { peer: PeerId(1), bytes: &[0; 64], len: 100, taken });
            assert!(*taken);
        };
        let rest = |sink: &mut dyn FnMut(Event<'_>)| {
            sink(Event::Rest { peer: PeerId(1), bytes: Incoming::Here(&[0; 18]) });
        };
        let whole = |sink: &mut dyn FnMut(Event<'_>)| {
            sink(Event::Frame { peer: PeerId(1), bytes: &[0; 30] });
        };
        let events = record(vec![begun, rest, rest, whole], |rail| {
            rail.poll(&mut |event| {
                if let Event::Begun { taken, .. } = event {
                    *taken = true;
                }
            });
        });
        let lengths: Vec<_> = events
            .iter()
            .map(|event| match *event {
                TraceEvent::Arrived { peer: 1, bytes, begin_ns, arrived_ns, end_ns, .. } => {
                    assert!(begin_ns <= arrived_ns && arrived_ns <= end_ns);
                    bytes
                }
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lengths, [100, 30]);
    }

    #[test]
    fn the_cost_of_a_link_predicts_arrivals_until_the_link_ends() {
        let cost = |sink: &mut dyn FnMut(Event<'_>)| {
            sink(Event::Cost { peer: PeerId(1), cost: Cost::linear(1000, 0, 1_000_000_000) });
        };
        let down = |sink: &mut dyn FnMut(Event<'_>)| {
            sink(Event::Down { peer: PeerId(1), fault: rail::Fault::Closed });
        };
        let events = record(vec![cost], |rail| {
            rail.poll(&mut |_| {});
            rail.post(PeerId(1), &frame(500, None));
            let mut ended = false;
            rail.disconnect(PeerId(1));
            rail.post(PeerId(1), &frame(500, None));
            down(&mut |event| ended = matches!(event, Event::Down { .. }));
            assert!(ended);
        });
        let predicted: Vec<_> = events
            .iter()
            .filter_map(|event| match *event {
                TraceEvent::Sent { predicted_ns, .. } => Some(predicted_ns),
                _ => None,
            })
            .collect();
        assert_eq!(predicted, [1500, 0]);
        let is_closed =
            |event: &TraceEvent| matches!(event, TraceEvent::Link { is_open: false, .. });
        assert_eq!(events.iter().filter(|event| is_closed(event)).count(), 1);
    }
}
