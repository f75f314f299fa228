//! The file of a trace: JSON in Chrome's trace event format, which the Perfetto UI opens.
//!
//! A rank is a process. Each of its threads is a track with calls of MPI as slices, and so is each direction of a link, with
//! frames as slices. Frames of a link arrive in order. The n-th frame that a rank has sent since the link
//! opened is thus the n-th that its peer has received, and an arrow joins the two.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::Duration;

use recorder::{MpiCall, NameKind, Recording, TraceEvent};
use serde_json::{Map, Value, json};

use super::clock::HostClock;

/// Events of a rank.
pub(crate) struct RankTimeline {
    pub rank: u32,
    pub host: String,
    pub recording: Recording,
    pub clock: HostClock,
}

/// The recordings of all ranks, with each frame's arrival found.
pub(crate) struct Timeline<'a> {
    ranks: &'a [RankTimeline],
    /// The frames that were received, by the places of their events.
    arrivals: HashMap<Place, FrameFlight>,
    /// Tracks of the links of each rank.
    tracks: Vec<LinkTracks>,
    /// Begin of the trace.
    begin_ns: u64,
}

/// Place of an event: index of the rank, and index in its recording.
type Place = (usize, usize);

/// A frame between two recordings, as either end needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameFlight {
    /// Number of the arrow.
    id: usize,
    /// Time at which it was posted, and at which its last byte had arrived.
    posted_ns: u64,
    arrived_ns: u64,
}

/// A frame as both ends know it: sender, receiver, rail, number of the link's opening, and of the frame since.
type FrameKey<'a> = (u32, u32, &'a str, u32, u32);

/// Opening of a link, and frames since then.
#[derive(Clone, Copy, Default)]
struct LinkCount {
    openings: u32,
    sent: u32,
    arrived: u32,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkSide {
    To,
    From,
}

impl<'a> Timeline<'a> {
    /// Joins the recordings.
    pub fn of(ranks: &'a [RankTimeline]) -> Self {
        let all = ranks.iter().flat_map(|one| {
            let times = one.recording.events.iter().filter_map(|event| Some(span(event)?.0));
            times.map(|ns| one.clock.convert(ns))
        });
        let begin_ns = all.min().unwrap_or_default();
        let mut free = LINK_TRACKS..;
        let tracks = ranks.iter().map(|one| link_tracks(&one.recording, &mut free)).collect();
        Self { ranks, arrivals: flights(ranks), tracks, begin_ns }
    }

    /// Writes the file. `boot` is the time of day at which the clock of `mpiexec` was 0.
    pub fn write(&self, boot: Duration, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{},", self.facts(boot))?;
        write!(out, "\"traceEvents\":[")?;
        let mut separator = "";
        for index in 0..self.ranks.len() {
            self.write_rank(index, &mut |event| {
                write!(out, "{separator}\n{event}")?;
                separator = ",";
                Ok(())
            })?;
        }
        writeln!(out, "\n]}}")
    }

    /// Facts about the whole trace.
    fn facts(&self, boot: Duration) -> Value {
        let rank = |one: &RankTimeline| {
            json!({
                "rank": one.rank,
                "host": one.host,
                "events": one.recording.events.len(),
                "dropped_events": one.recording.dropped,
                "clock_error_us": one.clock.error_ns().map(micros),
            })
        };
        let begin = boot + Duration::from_nanos(self.begin_ns);
        json!({
            "producer": concat!("mpiexec (Canele) ", env!("CARGO_PKG_VERSION"), " -trace"),
            "clock": "CLOCK_MONOTONIC of the host of mpiexec; clock_error_us bounds the error of other hosts",
            "begin_unix_s": begin.as_secs_f64(),
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
        })
    }

    fn write_rank(
        &self,
        index: usize,
        put: &mut impl FnMut(Value) -> io::Result<()>,
    ) -> io::Result<()> {
        let one = &self.ranks[index];
        let (names, tracks) = (names(&one.recording), &self.tracks[index]);
        let pid = one.rank;
        let mut name_track = |kind: &str, tid: u32, arguments: Value| {
            put(json!({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": arguments}))
        };
        let title = format!("rank {pid} on {}", one.host);
        name_track("process_name", 0, json!({ "name": title }))?;
        name_track("process_sort_index", 0, json!({ "sort_index": pid }))?;
        for ((kind, id), text) in &names {
            if *kind == NameKind::Thread {
                name_track("thread_name", *id, json!({ "name": text }))?;
            }
        }
        for ((rail, peer, direction), tid) in tracks {
            let way = if *direction == LinkSide::To { "to" } else { "from" };
            let rail = name_of(&names, NameKind::Rail, *rail);
            name_track(
                "thread_name",
                *tid,
                json!({"name": format!("{way} rank {peer} over {rail}")}),
            )?;
            name_track("thread_sort_index", *tid, json!({ "sort_index": tid }))?;
        }
        let events = &one.recording.events;
        let spans = || events.iter().filter_map(span);
        let end_ns = spans().map(|(begin, end)| end.max(begin)).max().unwrap_or_default();
        // A call that has not returned lasts until the end of the recording.
        let end_of = |end: u64| if end == 0 { end_ns } else { end };
        let mut order: Vec<(u64, Reverse<u64>, usize)> = events
            .iter()
            .enumerate()
            .filter_map(|(at, event)| {
                let (begin, end) = span(event)?;
                let begin_ns = one.clock.convert(begin);
                let length_ns = one.clock.convert(end_of(end)).saturating_sub(begin_ns);
                Some((begin_ns, Reverse(length_ns), at))
            })
            .collect();
        // A call within another one follows it.
        order.sort_unstable();
        for (begin_ns, Reverse(length_ns), at) in order {
            let ts = micros(begin_ns.saturating_sub(self.begin_ns));
            let slice = Slice { pid, ts, length_us: micros(length_ns) };
            self.write_event((index, at), &slice, &names, put)?;
        }
        if one.recording.dropped > 0 {
            let ts = micros(one.clock.convert(end_ns).saturating_sub(self.begin_ns));
            let name = format!("{} further events are not recorded", one.recording.dropped);
            put(json!({"ph": "i", "s": "p", "pid": pid, "tid": 0, "ts": ts, "name": name}))?;
        }
        Ok(())
    }

    fn write_event(
        &self,
        (index, at): Place,
        slice: &Slice,
        names: &Names,
        put: &mut impl FnMut(Value) -> io::Result<()>,
    ) -> io::Result<()> {
        let one = &self.ranks[index];
        let flight = self.arrivals.get(&(index, at));
        let rail_name = |rail: u16| name_of(names, NameKind::Rail, rail);
        let track = |rail: u16, peer: u32, direction: LinkSide| {
            self.tracks[index].get(&(rail, peer, direction)).copied().unwrap_or_default()
        };
        match &one.recording.events[at] {
            TraceEvent::Name { .. } => Ok(()),
            TraceEvent::Call { function, thread, end_ns, call, .. } => {
                let mut arguments = call_arguments(call);
                if *end_ns == 0 {
                    arguments.insert("unfinished".into(), true.into());
                }
                let name = name_of(names, NameKind::Function, *function);
                put(slice.of(*thread, ("mpi", &name), arguments.into()))
            }
            TraceEvent::Sent {
                rail,
                peer,
                begin_ns,
                done_ns,
                bytes,
                predicted_ns,
                strategy,
                kinds,
                packets,
                ..
            } => {
                let known = |ns: u64| (ns > 0).then_some(ns);
                let strategy =
                    (*strategy > 0).then(|| name_of(names, NameKind::Strategy, *strategy));
                let arguments = json!({
                    "bytes": bytes,
                    "peer": peer,
                    "rail": rail_name(*rail),
                    "packets": packets,
                    "kinds": name_of(names, NameKind::Packets, *kinds),
                    "strategy": strategy.unwrap_or_else(|| "none asked".into()),
                    "predicted_us": known(*predicted_ns).map(micros),
                    "actual_us": flight.map(|one| micros(one.time_ns())),
                    "sent_us": known(*done_ns).map(|done| micros(done.saturating_sub(*begin_ns))),
                });
                let tid = track(*rail, *peer, LinkSide::To);
                put(slice.of(tid, ("frame", "frame"), arguments))?;
                flight.map_or(Ok(()), |one| put(slice.arrow("s", tid, one.id)))
            }
            TraceEvent::Arrived { rail, peer, bytes, .. } => {
                let arguments = json!({
                    "bytes": bytes,
                    "peer": peer,
                    "rail": rail_name(*rail),
                    "actual_us": flight.map(|one| micros(one.time_ns())),
                });
                let tid = track(*rail, *peer, LinkSide::From);
                put(slice.of(tid, ("frame", "frame"), arguments))?;
                flight.map_or(Ok(()), |one| put(slice.arrow("f", tid, one.id)))
            }
            TraceEvent::Read { rail, peer, thread, bytes, .. } => {
                let arguments = json!({"bytes": bytes, "peer": peer, "rail": rail_name(*rail)});
                put(slice.of(*thread, ("frame", "remote read"), arguments))
            }
            TraceEvent::Link { rail, peer, is_open, .. } => {
                let name = if *is_open { "link opened" } else { "link ended" };
                let arguments = json!({"peer": peer, "rail": rail_name(*rail)});
                put(slice.instant(track(*rail, *peer, LinkSide::To), name, arguments))
            }
        }
    }
}

impl FrameFlight {
    fn time_ns(&self) -> u64 {
        self.arrived_ns.saturating_sub(self.posted_ns)
    }
}

/// Process and time of an event.
struct Slice {
    pid: u32,
    ts: f64,
    length_us: f64,
}

impl Slice {
    /// A slice, with the arguments that are known.
    fn of(&self, tid: u32, (category, name): (&str, &str), mut arguments: Value) -> Value {
        let Self { pid, ts, length_us } = self;
        if let Value::Object(all) = &mut arguments {
            all.retain(|_, value| !value.is_null());
        }
        json!({
            "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": length_us, "cat": category, "name": name,
            "args": arguments,
        })
    }

    /// One end of an arrow, in the slice that begins at this time.
    fn arrow(&self, phase: &str, tid: u32, id: usize) -> Value {
        let Self { pid, ts, .. } = self;
        json!({
            "ph": phase, "bp": "e", "pid": pid, "tid": tid, "ts": ts, "id": id, "cat": "frame",
            "name": "frame",
        })
    }

    fn instant(&self, tid: u32, name: &str, arguments: Value) -> Value {
        let Self { pid, ts, .. } = self;
        json!({
            "ph": "i", "s": "t", "pid": pid, "tid": tid, "ts": ts, "cat": "link", "name": name,
            "args": arguments,
        })
    }
}

type Names = BTreeMap<(NameKind, u32), String>;
type LinkTracks = BTreeMap<(u16, u32, LinkSide), u32>;

/// Returns the names that a rank has recorded.
fn names(recording: &Recording) -> Names {
    let name = |event: &TraceEvent| match event {
        TraceEvent::Name { kind, id, text } => Some(((*kind, *id), text.clone())),
        _ => None,
    };
    recording.events.iter().filter_map(name).collect()
}

fn name_of(names: &Names, kind: NameKind, id: u16) -> String {
    let known = names.get(&(kind, id.into())).cloned();
    known.unwrap_or_else(|| format!("number {id}"))
}

/// Returns a track for each direction of a link. The Perfetto UI takes the name of a track by its number alone, so no two
/// ranks have one in common.
fn link_tracks(recording: &Recording, free: &mut impl Iterator<Item = u32>) -> LinkTracks {
    let mut tracks = LinkTracks::new();
    for event in &recording.events {
        let key = match *event {
            TraceEvent::Sent { rail, peer, .. } | TraceEvent::Link { rail, peer, .. } => {
                (rail, peer, LinkSide::To)
            }
            TraceEvent::Arrived { rail, peer, .. } => (rail, peer, LinkSide::From),
            TraceEvent::Name { .. } | TraceEvent::Call { .. } | TraceEvent::Read { .. } => continue,
        };
        tracks.insert(key, 0);
    }
    for (track, tid) in tracks.values_mut().zip(free) {
        *track = tid;
    }
    tracks
}

/// Begin and end of an event by the clock of its host; end 0 if it has not ended. None for names.
fn span(event: &TraceEvent) -> Option<(u64, u64)> {
    match *event {
        TraceEvent::Name { .. } => None,
        TraceEvent::Call { begin_ns, end_ns, .. }
        | TraceEvent::Sent { begin_ns, end_ns, .. }
        | TraceEvent::Arrived { begin_ns, end_ns, .. }
        | TraceEvent::Read { begin_ns, end_ns, .. } => Some((begin_ns, end_ns)),
        TraceEvent::Link { at_ns, .. } => Some((at_ns, at_ns)),
    }
}

/// Finds both ends of each frame.
fn flights(ranks: &[RankTimeline]) -> HashMap<Place, FrameFlight> {
    let all_names: Vec<Names> = ranks.iter().map(|one| names(&one.recording)).collect();
    let (mut sent, mut arrived) = (HashMap::new(), Vec::new());
    for (index, one) in ranks.iter().enumerate() {
        let names = &all_names[index];
        let mut counts: HashMap<(u16, u32), LinkCount> = HashMap::new();
        for (at, event) in one.recording.events.iter().enumerate() {
            let (TraceEvent::Sent { rail, peer, .. }
            | TraceEvent::Arrived { rail, peer, .. }
            | TraceEvent::Link { rail, peer, .. }) = *event
            else {
                continue;
            };
            let Some(name) = names.get(&(NameKind::Rail, rail.into())) else { continue };
            let count = counts.entry((rail, peer)).or_default();
            match *event {
                TraceEvent::Link { is_open, .. } if is_open => {
                    *count = LinkCount { openings: count.openings + 1, ..LinkCount::default() };
                }
                TraceEvent::Sent { begin_ns, bytes, .. } => {
                    count.sent += 1;
                    let key: FrameKey<'_> =
                        (one.rank, peer, name.as_str(), count.openings, count.sent);
                    sent.insert(key, ((index, at), one.clock.convert(begin_ns), bytes));
                }
                TraceEvent::Arrived { arrived_ns, bytes, .. } => {
                    count.arrived += 1;
                    let key: FrameKey<'_> =
                        (peer, one.rank, name.as_str(), count.openings, count.arrived);
                    arrived.push((key, (index, at), one.clock.convert(arrived_ns), bytes));
                }
                TraceEvent::Link { .. }
                | TraceEvent::Name { .. }
                | TraceEvent::Call { .. }
                | TraceEvent::Read { .. } => {}
            }
        }
    }
    let mut flights = HashMap::new();
    for (id, (key, place, arrived_ns, bytes)) in arrived.into_iter().enumerate() {
        let Some(&(from, posted_ns, posted_bytes)) = sent.get(&key) else { continue };
        // Ends that disagree have counted different openings of the link.
        if posted_bytes == bytes {
            let flight = FrameFlight { id, posted_ns, arrived_ns };
            flights.extend([(from, flight), (place, flight)]);
        }
    }
    flights
}

/// Returns what is known of a call.
fn call_arguments(call: &MpiCall) -> Map<String, Value> {
    let rank = |rank: i32| match rank {
        -1 => json!("MPI_ANY_SOURCE"),
        -3 => json!("MPI_PROC_NULL"),
        -4 => json!("MPI_ROOT"),
        _ => json!(rank),
    };
    let tag = |tag: i32| if tag == -2 { json!("MPI_ANY_TAG") } else { json!(tag) };
    let comm = |comm: u64| match comm {
        0x101 => json!("MPI_COMM_WORLD"),
        0x102 => json!("MPI_COMM_SELF"),
        _ => json!(format!("{comm:#x}")),
    };
    let all = [
        (if call.is_root { "root" } else { "peer" }, call.peer.map(rank)),
        ("source", call.source.map(rank)),
        ("tag", call.tag.map(tag)),
        (if call.is_room { "bytes_max" } else { "bytes" }, call.bytes.map(|bytes| json!(bytes))),
        ("comm", call.comm.map(comm)),
        ("error_code", (call.code != 0).then(|| json!(call.code))),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// First track of a link. The kernel's threads have lower numbers.
const LINK_TRACKS: u32 = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: NameKind, id: u32, text: &str) -> TraceEvent {
        TraceEvent::Name { kind, id, text: text.into() }
    }

    fn link(rail: u16, peer: u32) -> TraceEvent {
        TraceEvent::Link { rail, peer, at_ns: 1000, is_open: true }
    }

    fn sent(rail: u16, peer: u32, begin_ns: u64, bytes: u64) -> TraceEvent {
        let (end_ns, done_ns) = (begin_ns + 10, begin_ns + 20);
        TraceEvent::Sent {
            rail,
            peer,
            begin_ns,
            end_ns,
            done_ns,
            bytes,
            predicted_ns: 700,
            strategy: 0,
            kinds: 0,
            packets: 1,
        }
    }

    fn arrived(rail: u16, peer: u32, arrived_ns: u64, bytes: u64) -> TraceEvent {
        let (begin_ns, end_ns) = (arrived_ns, arrived_ns + 5);
        TraceEvent::Arrived { rail, peer, arrived_ns, begin_ns, end_ns, bytes }
    }

    fn call(thread: u32, begin_ns: u64, end_ns: u64) -> TraceEvent {
        TraceEvent::Call { function: 3, thread, begin_ns, end_ns, call: MpiCall::default() }
    }

    fn ranks(recordings: Vec<Vec<TraceEvent>>) -> Vec<RankTimeline> {
        let rank = |(rank, events)| RankTimeline {
            rank,
            host: "here".into(),
            recording: Recording { events, dropped: 0 },
            clock: HostClock::default(),
        };
        (0u32..).zip(recordings).map(rank).collect()
    }

    /// The file as JSON.
    fn written(ranks: &[RankTimeline]) -> Vec<Value> {
        let mut out = Vec::new();
        Timeline::of(ranks).write(Duration::ZERO, &mut out).expect("written to memory");
        let file: Value = serde_json::from_slice(&out).expect("valid JSON");
        assert_eq!(file["otherData"]["ranks"].as_array().map(Vec::len), Some(ranks.len()));
        file["traceEvents"].as_array().expect("an array").clone()
    }

    fn of_phase(events: &[Value], phase: &str) -> Vec<Value> {
        events.iter().filter(|event| event["ph"] == phase).cloned().collect()
    }

    #[test]
    fn ranks_threads_and_links_are_named_tracks() {
        let rail = name(NameKind::Rail, 1, "tcp");
        let thread = name(NameKind::Thread, 77, "worker");
        let events = written(&ranks(vec![vec![], vec![thread, rail, sent(1, 0, 5000, 9)]]));
        let named: Vec<_> = of_phase(&events, "M")
            .iter()
            .filter_map(|event| {
                Some((event["pid"].as_u64()?, event["args"]["name"].as_str()?.to_owned()))
            })
            .collect();
        let expected = [
            (0, "rank 0 on here"),
            (1, "rank 1 on here"),
            (1, "worker"),
            (1, "to rank 0 over tcp"),
        ];
        assert_eq!(named, expected.map(|(pid, text)| (pid, text.to_owned())));
    }

    #[test]
    fn no_two_ranks_have_a_track_of_a_link_in_common() {
        let rank =
            |peer| vec![name(NameKind::Rail, 1, "tcp"), link(1, peer), arrived(1, peer, 9, 9)];
        let events = of_phase(&written(&ranks(vec![rank(1), rank(0)])), "M");
        let named = events.iter().filter(|event| event["name"] == "thread_name");
        let tracks: Vec<_> = named.map(|event| event["tid"].as_u64().expect("a number")).collect();
        assert_eq!(tracks, [0, 1, 2, 3].map(|number| u64::from(LINK_TRACKS) + number));
    }

    #[test]
    fn a_frame_meets_its_arrival_whatever_the_numbers_of_the_rail() {
        let one = vec![
            name(NameKind::Rail, 1, "tcp"),
            link(1, 1),
            sent(1, 1, 2000, 8),
            sent(1, 1, 3000, 9),
            sent(1, 1, 4000, 7),
        ];
        let other = vec![
            name(NameKind::Rail, 5, "tcp"),
            link(5, 0),
            arrived(5, 0, 2600, 8),
            arrived(5, 0, 3900, 9),
        ];
        let events = written(&ranks(vec![one, other]));
        let actual: Vec<_> = of_phase(&events, "X")
            .iter()
            .map(|event| (event["args"]["bytes"].clone(), event["args"]["actual_us"].clone()))
            .collect();
        let expected = [
            (json!(8), json!(0.6)),
            (json!(9), json!(0.9)),
            (json!(7), Value::Null),
            (json!(8), json!(0.6)),
            (json!(9), json!(0.9)),
        ];
        assert_eq!(actual, expected);
        let ids = |phase: &str| {
            of_phase(&events, phase).iter().map(|event| event["id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids("s"), ids("f"));
        assert_eq!(ids("s").len(), 2);
    }

    #[test]
    fn frames_of_another_opening_of_a_link_do_not_meet() {
        let rail = || name(NameKind::Rail, 1, "tcp");
        let one = vec![rail(), link(1, 1), sent(1, 1, 2000, 8), link(1, 1), sent(1, 1, 3000, 8)];
        let other =
            vec![rail(), link(1, 0), link(1, 0), arrived(1, 0, 3500, 8), arrived(1, 0, 3600, 5)];
        let events = written(&ranks(vec![one, other]));
        let actual: Vec<_> =
            of_phase(&events, "X").iter().map(|event| event["args"]["actual_us"].clone()).collect();
        assert_eq!(actual, [Value::Null, json!(0.5), json!(0.5), Value::Null]);
    }

    #[test]
    fn slices_of_a_track_are_in_order_and_nested() {
        let events = vec![
            name(NameKind::Function, 3, "MPI_Test"),
            call(7, 2500, 2600),
            call(7, 2000, 3000),
            call(7, 2000, 2100),
            call(7, 1000, 1500),
        ];
        let spans: Vec<_> = of_phase(&written(&ranks(vec![events])), "X")
            .iter()
            .map(|event| {
                assert_eq!(event["name"], "MPI_Test");
                (event["ts"].as_f64().unwrap_or(-1.0), event["dur"].as_f64().unwrap_or(-1.0))
            })
            .collect();
        assert_eq!(spans, [(0.0, 0.5), (1.0, 1.0), (1.0, 0.1), (1.5, 0.1)]);
    }

    #[test]
    fn a_call_that_has_not_returned_lasts_until_the_end() {
        let events = vec![call(7, 1000, 2000), call(7, 3000, 0), sent(1, 1, 9000, 1)];
        let written = of_phase(&written(&ranks(vec![events])), "X");
        assert_eq!(
            (&written[1]["dur"], &written[1]["args"]["unfinished"]),
            (&json!(6.01), &json!(true))
        );
        assert_eq!(written[0]["args"]["unfinished"], Value::Null);
    }

    #[test]
    fn events_that_were_dropped_are_told_of() {
        let mut ranks = ranks(vec![vec![call(7, 1000, 2000)]]);
        ranks[0].recording.dropped = 12;
        let events = written(&ranks);
        assert_eq!(of_phase(&events, "i")[0]["name"], "12 further events are not recorded");
    }

    #[test]
    fn any_recording_gives_valid_json() {
        let text = "quote \" and \u{1} and é";
        let events = vec![
            name(NameKind::Thread, 0, text),
            name(NameKind::Rail, 9, text),
            call(0, u64::MAX, 5),
            sent(9, u32::MAX, u64::MAX - 100, u64::MAX),
            arrived(8, 0, 0, 0),
            TraceEvent::Read { rail: 0, peer: 0, thread: 0, begin_ns: 9, end_ns: 2, bytes: 1 },
        ];
        assert!(!written(&ranks(vec![events])).is_empty());
        assert!(written(&[]).is_empty());
    }
}
