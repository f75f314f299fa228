//! The catalogue: each instrument's description, as a value.

use crate::instrument::{
    Against, Base, Case, Column, Description, Instrument, Numbers, Quantity, Relation, Shape,
    Share, Statistic,
};
use crate::library::Kind;
use crate::scenario::{Dealt, Link, Place};

/// What most instruments are: two ranks, a measurement for each size, a panel.
const PLAIN: Description = Description {
    name: "",
    about: "",
    program: "",
    is_own: false,
    title: "",
    time: "",
    sizes: None,
    counts: None,
    has_case: |_| true,
    ranks: None,
    place: Place::Shm,
    nics: 1,
    nodes: 2,
    then: None,
    long_sizes: None,
    least_variants: 0,
    operations: |_| 1,
    statistics: &[Statistic::Median],
    panels: &[],
    axis: &[Column::Bytes("size")],
    shape: Shape::Lines,
    figure: None,
    draws_time: true,
    draws_of_limit: false,
    base: None,
    moved_bytes: |case| case.bytes,
    sample_s: |_| 0.0,
    least_us: None,
    tcp: &[],
    has_crossing: false,
    is_drawn: |_, _| true,
};

const SIZES: Numbers = Numbers {
    option: "sizes",
    help: "Sizes in bytes, such as 1,16,64k,4M",
    default: "8",
    quick: "8",
    least: 1,
    most: 1 << 30,
};

const RANKS: Numbers = Numbers {
    option: "ranks",
    help: "On how many ranks, such as 2,8,32",
    default: "2",
    quick: "2",
    least: 2,
    most: 1024,
};

/// What exchanges one message by the program `pingpong`.
const PINGPONG_LIKE: Description = Description {
    program: "pingpong",
    time: "half a round trip",
    figure: Some(Quantity::Bandwidth),
    least_us: Some(|link, _, case| link.limit_us(case.bytes)),
    tcp: &[Kind::RawTcp],
    ..PLAIN
};

pub static PINGPONG: Description = Description {
    name: "pingpong",
    about: "Half a round trip between two ranks, in µs and Mb/s, and raw TCP beside it",
    title: "Ping-pong: half a round trip",
    sizes: Some(Numbers {
        default: "1,8,16,64,256,1k,4k,16k,64k,256k,1M,4M,16M,64M",
        quick: "8,64k,1M",
        ..SIZES
    }),
    ..PINGPONG_LIKE
};

pub static BURST: Description = Description {
    name: "burst",
    about: "Many short messages at once between two ranks, until the word is back that they are there: µs for all, and millions of messages a second",
    program: "burst",
    title: "Burst: messages at once and the word that they are there",
    time: "all messages and the word",
    sizes: Some(Numbers { default: "8,16,64,256,1k,4k", quick: "8,1k", most: 64 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "messages",
        help: "How many messages",
        default: "1000",
        quick: "1000",
        least: 1,
        most: 100_000,
    }),
    panels: &[Column::Count("messages")],
    figure: Some(Quantity::Rate),
    moved_bytes: |case| case.bytes * case.count,
    least_us: Some(|link, _, case| link.limit_us(case.bytes * case.count) + link.delay_us),
    ..PLAIN
};

pub static OVERSUBSCRIBED: Description = Description {
    name: "oversubscribed",
    about: "Barrier, 8-byte allreduce, 1 KiB alltoall and the ping-pong of all pairs at once, on many ranks, in µs an operation",
    program: "oversubscribed",
    title: "Oversubscribed: a collective operation, or half a round trip of pairs",
    time: "time of the operation",
    ranks: Some(Numbers { default: "2,4,8,16,32", quick: "2,8", ..RANKS }),
    operations: |_| 4,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Ranks],
    shape: Shape::Bars,
    ..PLAIN
};

pub static CUT: Description = Description {
    name: "cut",
    about: "Half a round trip of a message cut into packets, each sent as a message of its own, in µs, and against the message in one packet",
    program: "cut",
    title: "Cut: half a round trip of a message in packets",
    time: "half a round trip",
    sizes: Some(Numbers { default: "64,1k,16k,64k,1M", quick: "64,64k", ..SIZES }),
    counts: Some(Numbers {
        option: "packets",
        help: "Into how many packets; more than its bytes are left out",
        default: "1,2,4,8,16,32,64,128,256,512,1024",
        quick: "1,8,64",
        least: 1,
        most: 64 << 10,
    }),
    has_case: |case| case.count <= case.bytes,
    panels: &[Column::Bytes("message")],
    axis: &[Column::Count("packets")],
    figure: Some(Quantity::Bandwidth),
    base: Some(Base { against: Against::Count(1), head: "/ whole", relation: Relation::Ratio }),
    least_us: Some(|link, _, case| link.limit_us(case.bytes)),
    ..PLAIN
};

pub static BEHIND: Description = Description {
    name: "behind",
    about: "A short message behind a long one to the same rank: µs until the answer to the short one, and to both, and against the short one alone",
    program: "behind",
    title: "Behind: a short message after a long one, until it is answered",
    time: "until the answer",
    sizes: Some(Numbers { default: "4,8", quick: "4", most: 64 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "long",
        help: "Sizes of the long message in bytes; 0 is none",
        default: "0,64k,1M",
        quick: "0,64k",
        least: 0,
        most: 1 << 30,
    }),
    operations: |_| 2,
    panels: &[Column::Operation, Column::Bytes("short")],
    axis: &[Column::Length("long")],
    shape: Shape::Bars,
    base: Some(Base { against: Against::Count(0), head: "/ alone", relation: Relation::Ratio }),
    moved_bytes: |case| case.bytes + case.count,
    ..PLAIN
};

pub static QUEUES: Description = Description {
    name: "queues",
    about: "Half a round trip of short messages, in µs, while receives are posted or messages wait that do not match, with and without wildcards, and against empty queues",
    program: "queues",
    title: "Queues: half a round trip beside receives and messages that do not match",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "depths",
        help: "How many receives or messages are queued",
        default: "0,100,10000",
        quick: "0,1000",
        least: 0,
        most: 30_000,
    }),
    operations: |_| 8,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("queued")],
    shape: Shape::Bars,
    base: Some(Base { against: Against::Count(0), head: "/ empty", relation: Relation::Ratio }),
    // To queue and to match costs some libraries as much as so many bytes.
    moved_bytes: |case| case.count * 4096,
    ..PLAIN
};

pub static MODULES: Description = Description {
    name: "modules",
    about: "Half a round trip between two communicators' modules, in µs, while another module has been sent much and does not receive, and against alone",
    program: "modules",
    title: "Modules: half a round trip of one while the other does not receive",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "unready",
        help: "How many bytes the other module has been sent, in messages of 64 B to 256 KiB",
        default: "0,10M",
        quick: "0,1M",
        least: 0,
        most: 1 << 30,
    }),
    panels: &[Column::Bytes("size")],
    axis: &[Column::Length("unready")],
    shape: Shape::Bars,
    base: Some(Base { against: Against::Count(0), head: "/ alone", relation: Relation::Ratio }),
    moved_bytes: |case| case.count,
    ..PLAIN
};

pub static RAILS: Description = Description {
    name: "rails",
    about: "Half a round trip under several settings of Canele (at least two of --variant), in µs and Mb/s: one rail against two",
    title: "Rails: half a round trip",
    sizes: Some(Numbers {
        default: "64,1k,4k,16k,64k,256k,1M,4M,16M,64M",
        quick: "64,64k,1M",
        ..SIZES
    }),
    least_variants: 2,
    place: Place::Lan,
    nics: 2,
    ..PINGPONG_LIKE
};

pub static OVERHEAD: Description = Description {
    name: "overhead",
    about: "Half a round trip of a short message over a bare rail, in µs, over one below the engine, and over one below engine and progress, and ns more; in shared memory and over TCP's loopback",
    program: "overhead-pair",
    is_own: true,
    title: "Overhead: half a round trip over a bare rail, below the scheduler, and below its progress",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    operations: |_| 6,
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Word("way", &["bare rail", "scheduled", "progressed"])],
    shape: Shape::Bars,
    base: Some(Base {
        against: Against::Count(0),
        head: "less bare",
        relation: Relation::Difference,
    }),
    ..PLAIN
};

pub static EXPRESS: Description = Description {
    name: "express",
    about: "Packets that the receiver wants each at once, in µs to and fro and halved: as one message of the native interface, and one by one in several ways; peers, which have no such interface, as MPI messages",
    program: "express",
    title: "Express: half a round trip of packets that are each wanted at once",
    time: "half a round trip of all packets",
    sizes: Some(Numbers { default: "16", quick: "16", most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "packets",
        help: "How many packets",
        default: "1,4,16,64,256",
        quick: "1,64",
        least: 1,
        most: 10_000,
    }),
    operations: |_| 6,
    panels: &[Column::Operation, Column::Bytes("packet")],
    axis: &[Column::Count("packets")],
    base: Some(Base {
        against: Against::Operation("one message"),
        head: "/ one",
        relation: Relation::Ratio,
    }),
    moved_bytes: |case| case.bytes * case.count,
    ..PLAIN
};

pub static OVERLAP: Description = Description {
    name: "overlap",
    about: "A transfer and computing begun together, until both have ended, in µs, and how much of the shorter was hidden behind the longer: the sender computes, the receiver or both, with contiguous data and with a vector",
    program: "overlap",
    title: "Overlap: a transfer beside computing",
    time: "until both have ended",
    sizes: Some(Numbers {
        help: "Sizes in bytes, multiples of 256",
        default: "64k,1M,4M",
        quick: "64k,1M",
        least: 256,
        most: 256 << 20,
        ..SIZES
    }),
    counts: Some(Numbers {
        option: "computing",
        help: "How long is computed, in µs",
        default: "1000,10000",
        quick: "1000,10000",
        least: 1,
        most: 10_000_000,
    }),
    operations: |_| 6,
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Duration("computing")],
    shape: Shape::Bars,
    figure: Some(Quantity::Share(Share {
        head: "hidden",
        label: "hidden share of the shorter",
        is_clamped: true,
        beside: Some(("by calls", "share_by_calls")),
    })),
    draws_time: false,
    sample_s: |case| 3e-6 * case.count as f64,
    ..PLAIN
};

pub static PROGRESS: Description = Description {
    name: "progress",
    about: "What ends while the application computes and calls nothing, in µs: how long the peer of a message waits, and how long the one that computes waits afterwards; the same of non-blocking collectives",
    program: "progress",
    title: "Progress: waiting, while others compute or after computing",
    time: "time in the wait",
    sizes: Some(Numbers {
        help: "Sizes in bytes; 0 is a barrier",
        default: "0,8,1M",
        quick: "0,1M",
        least: 0,
        most: 256 << 20,
        ..SIZES
    }),
    counts: Some(Numbers {
        option: "computing",
        help: "How long is computed, in µs",
        default: "100000",
        quick: "20000",
        least: 1,
        most: 10_000_000,
    }),
    ranks: Some(RANKS),
    operations: |case| if case.bytes == 0 { 2 } else { 6 },
    panels: &[Column::Operation, Column::Duration("computing")],
    axis: &[Column::Bytes("size"), Column::Ranks],
    shape: Shape::Bars,
    sample_s: |case| 2e-6 * case.count as f64,
    ..PLAIN
};

pub static REACTIVITY: Description = Description {
    name: "reactivity",
    about: "Half a round trip of short messages while threads compute beside each rank, without pause and one a millisecond, and beside one of them only, in µs: median, mean and 99th percentile; and the share of computing that the threads keep",
    program: "reactivity",
    title: "Reactivity: half a round trip beside threads that compute",
    time: "half a round trip",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "threads",
        help: "How many threads compute beside each rank, or beside one",
        default: "0,1,2,4,8",
        quick: "0,2",
        least: 0,
        most: 256,
    }),
    operations: |_| 4,
    statistics: &[Statistic::Median, Statistic::Mean, Statistic::P99],
    panels: &[Column::Operation, Column::Bytes("size"), Column::Statistic],
    axis: &[Column::Count("threads")],
    shape: Shape::Bars,
    figure: Some(Quantity::Share(Share {
        head: "kept",
        label: "computing that threads keep",
        is_clamped: false,
        beside: None,
    })),
    ..PLAIN
};

pub static THREADS: Description = Description {
    name: "threads",
    about: "Ping-pongs of many threads of two ranks at once, in one communicator and in one each, messages of many threads of one rank to themselves, and threads that wait for a request, in a probe or for one of two requests and are woken in turn: µs for a message of each, and millions of messages a second",
    program: "threads",
    title: "Threads: messages of many threads at once",
    time: "half a round trip of each thread, or a message to itself",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "threads",
        help: "How many threads of each rank",
        default: "1,2,4,8,16",
        quick: "1,4",
        least: 1,
        most: 64,
    }),
    operations: |_| 6,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("threads")],
    figure: Some(Quantity::Rate),
    draws_time: false,
    ..PLAIN
};

pub static OFFLOAD: Description = Description {
    name: "offload",
    about: "The time that MPI_Isend takes to return, by size, in µs, and the whole transfer until the receiver's word that it has all",
    program: "offload",
    title: "Offload: the call of MPI_Isend, and the whole transfer",
    time: "time",
    sizes: Some(Numbers { default: "8,64,1k,4k,16k,64k,256k,1M,4M", quick: "8,64k,1M", ..SIZES }),
    operations: |_| 2,
    panels: &[Column::Operation],
    ..PLAIN
};

pub static IDLE: Description = Description {
    name: "idle",
    about: "Processor time that a rank uses while no message comes, as a share of a core: blocked in MPI_Recv, asleep with a receive posted, and asleep with none; and half the round trip that follows, in µs",
    program: "idle",
    title: "Idle: half a round trip after waiting, and what waiting costs",
    time: "half a round trip",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "waiting",
        help: "How long no message comes, in µs",
        default: "1000000",
        quick: "100000",
        least: 1000,
        most: 60_000_000,
    }),
    operations: |_| 3,
    panels: &[Column::Bytes("size"), Column::Duration("waiting")],
    axis: &[Column::Operation],
    shape: Shape::Bars,
    figure: Some(Quantity::Share(Share {
        head: "CPU",
        label: "processor time used, of a core",
        is_clamped: false,
        beside: None,
    })),
    sample_s: |case| 1e-6 * case.count as f64,
    ..PLAIN
};

pub static WAN: Description = Description {
    name: "wan",
    about: "Half a round trip over a long link, in µs, and against the least that the link allows: one message after the other and after silence; mean, median and first; and raw TCP in one stream and in eight; then `slowstart`",
    title: "WAN: half a round trip",
    sizes: Some(Numbers { default: "1,1k,16k,64k,256k,1M,4M,16M", quick: "1,64k,1M", ..SIZES }),
    long_sizes: Some("1,1k,16k,64k,256k,1M,4M,16M,64M"),
    counts: Some(Numbers {
        option: "silence",
        help: "How long nobody sends before each message, in µs; 0 is one message after the other",
        default: "0,1000000",
        quick: "0,200000",
        least: 0,
        most: 60_000_000,
    }),
    place: Place::Wan,
    then: Some(Instrument::Slowstart),
    statistics: &[Statistic::Mean, Statistic::Median, Statistic::First],
    panels: &[Column::Duration("silence"), Column::Statistic],
    draws_time: false,
    draws_of_limit: true,
    is_drawn: |_, statistic| statistic != Statistic::Median,
    sample_s: |case| 1e-6 * case.count as f64,
    tcp: &[Kind::RawTcp, Kind::TcpStreams],
    ..PINGPONG_LIKE
};

pub static SLOWSTART: Description = Description {
    name: "slowstart",
    about: "Long messages to and fro in a row on connections that have carried nothing before: half a round trip of each over time, in µs, and how long it took until one went at 500 Mb/s; and raw TCP in one stream and in eight",
    program: "slowstart",
    title: "Slow start: messages in a row from the first on",
    time: "time",
    sizes: Some(Numbers { default: "1M", quick: "1M", ..SIZES }),
    counts: Some(Numbers {
        option: "messages",
        help: "How many messages",
        default: "200",
        quick: "20",
        least: 1,
        most: 50_000,
    }),
    place: Place::Wan,
    operations: |_| 2,
    statistics: &[Statistic::Mean],
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Count("messages")],
    shape: Shape::Trace,
    moved_bytes: |case| case.bytes * case.count / 10,
    least_us: Some(|link, operation, case| {
        // To be fast is seen when a whole message has come back.
        let trips = if operation == "each message" { 1.0 } else { 2.0 };
        trips * link.limit_us(case.bytes)
    }),
    tcp: &[Kind::RawTcp, Kind::TcpStreams],
    ..PLAIN
};

pub static COLL: Description = Description {
    name: "coll",
    about: "Collective operations, in µs: fifty in a row as Torres & Kofuji measure them, each alone with all ranks coming at once, and at random; and what each puts on the link between sites, counted there",
    program: "coll",
    title: "Collectives: time of the operation",
    time: "time of the operation",
    sizes: Some(Numbers {
        help: "Sizes in bytes; 0 is what has no data, and what adds numbers is left out but for multiples of 4",
        default: "0,1,8,64k,1M",
        quick: "0,8,64k",
        least: 0,
        most: 64 << 20,
        ..SIZES
    }),
    ranks: Some(Numbers { default: "8", quick: "4", most: 64, ..RANKS }),
    place: Place::Wan,
    // Each in three ways: the barrier and the making of communicators, what moves bytes, and what adds numbers besides.
    operations: |case| match case.bytes {
        0 => 9,
        bytes if bytes.is_multiple_of(4) => 45,
        _ => 27,
    },
    statistics: &[Statistic::Least, Statistic::Mean],
    panels: &[Column::Operation],
    axis: &[
        Column::Bytes("size"),
        Column::Ranks,
        Column::Word("ranks come", &["in a row", "at once", "at random"]),
        Column::Statistic,
    ],
    shape: Shape::Bars,
    moved_bytes: |case| case.bytes * 500,
    least_us: Some(collective_limit_us),
    has_crossing: true,
    // Alone and at once: the way whose time is that of one call.
    is_drawn: |case, statistic| case.count == 1 && statistic == Statistic::Mean,
    ..PLAIN
};

pub static TORRES: Description = Description {
    name: "torres",
    about: "Allgather and allreduce on 5, 6 and 7 ranks beside 8, in µs, as Torres & Kofuji measure them: fifty in a row, the least of each rank, the greatest over the ranks",
    program: "torres",
    title: "Torres & Kofuji: time of the operation on numbers of ranks that are no powers of two",
    time: "time of the operation",
    sizes: Some(Numbers {
        help: "Sizes in bytes, multiples of 4",
        default: "4",
        quick: "4",
        least: 4,
        most: 4 << 20,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(4),
    ranks: Some(Numbers { default: "5,6,7,8", quick: "5,8", most: 64, ..RANKS }),
    place: Place::Lan,
    nodes: 8,
    operations: |_| 2,
    statistics: &[Statistic::Least, Statistic::Median],
    panels: &[Column::Operation, Column::Bytes("size"), Column::Statistic],
    axis: &[Column::Ranks],
    shape: Shape::Bars,
    base: Some(Base { against: Against::Ranks(8), head: "/ 8", relation: Relation::Ratio }),
    moved_bytes: |case| case.bytes * 500,
    ..PLAIN
};

pub static PAIRS: Description = Description {
    name: "pairs",
    about: "Messages of all pairs between two halves of the ranks at once, in µs: from one half to the other until the word is back that all have come, and both ways; and against the least that a link between the halves allows",
    program: "pairs",
    title: "Pairs: messages of all pairs between two halves of the ranks",
    time: "until all have come",
    sizes: Some(Numbers { default: "8,1k,64k", quick: "8,64k", most: 4 << 20, ..SIZES }),
    ranks: Some(Numbers { default: "16", quick: "4", most: 64, ..RANKS }),
    place: Place::Wan,
    operations: |_| 2,
    statistics: &[Statistic::Least, Statistic::Mean],
    panels: &[Column::Operation, Column::Statistic],
    axis: &[Column::Bytes("size"), Column::Ranks],
    shape: Shape::Bars,
    moved_bytes: |case| case.bytes * 64 * 50,
    least_us: Some(|link, operation, case| {
        let half = u64::from(case.ranks / 2);
        let word = if operation == "one way" { link.delay_us } else { 0.0 };
        link.limit_us(half * half * case.bytes) + word
    }),
    ..PLAIN
};

/// The least time of a collective: the way from the first site to the farthest and what one site must hear of another
/// over the link between them, each datum once; or what some node must take in or give out.
fn collective_limit_us(link: &Link, operation: &str, case: Case) -> f64 {
    let (bytes, ranks) = (case.bytes, u64::from(case.ranks));
    let Dealt { sites, on_site, on_node } = link.layout.dealt(case.ranks);
    let foreign = ranks - on_node;
    let (crossing, network) = match operation {
        "allgather"
        | "gather"
        | "scatter"
        | "reduce_scatter"
        | "reduce_scatter_block"
        | "allgatherv"
        | "gatherv"
        | "scatterv" => (on_site * bytes, foreign * bytes),
        "alltoall" | "alltoallv" => (on_site * on_site * bytes, on_node * foreign * bytes),
        _ => (bytes, bytes),
    };
    let network_us = link.layout.interface_us(network);
    match sites {
        1 => network_us,
        2.. => network_us.max(link.layout.farthest_us + link.stream_us(crossing)),
        0 => unreachable!("ranks are somewhere"),
    }
}

#[cfg(test)]
mod tests {
    use lab::Spec;

    use super::*;

    fn limit_ms(spec: &Spec, place: Place, operation: &str, ranks: u32) -> f64 {
        let case = Case { bytes: 1 << 20, count: 0, ranks };
        let limit_us = collective_limit_us(&Link::of(place, spec).unwrap(), operation, case);
        (limit_us / 1e2).round() / 10.0
    }

    #[test]
    fn a_collective_takes_as_long_as_its_busiest_link_or_interface() {
        let spec = Spec::default();
        let of = |operation| limit_ms(&spec, Place::Wan, operation, 8);
        assert_eq!([of("bcast"), of("scan")], [14.7, 14.7]);
        // An interface takes in six blocks, and the link carries four.
        assert_eq!([of("allgather"), of("gatherv"), of("reduce_scatter")], [53.5; 3]);
        assert_eq!(of("alltoall"), 148.4);
        assert_eq!(limit_ms(&spec, Place::Wan, "allgather", 2), 14.7);
        assert_eq!(limit_ms(&spec, Place::Lan, "allgather", 8), 35.7);
        let lone = Spec { nodes: 1, ..spec };
        assert_eq!(limit_ms(&lone, Place::Wan, "allgather", 8), 41.5);
    }

    #[test]
    fn of_several_sites_the_farthest_counts_over_others_if_that_is_shorter() {
        let pair = |one, other, ms| lab::Pair {
            sites: [one, other],
            rtt: std::time::Duration::from_millis(ms),
        };
        let spec = Spec { sites: 3, pairs: vec![pair(0, 2, 80)], ..Spec::default() };
        assert_eq!(limit_ms(&spec, Place::Wan, "bcast", 6), 20.5);
        let spec = Spec { pairs: vec![pair(0, 2, 20)], ..spec };
        assert_eq!(limit_ms(&spec, Place::Wan, "bcast", 6), 18.9);
        assert_eq!(limit_ms(&spec, Place::Wan, "allgather", 6), 44.6);
    }
}
