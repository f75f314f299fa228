//! The catalogue: each instrument's description, as a value.

mod applications;

use crate::instrument::{
    Against, Base, Column, Description, Instrument, Numbers, Quantity, Relation, Shape, Share,
    Statistic,
};
use crate::library::LibraryKind;
use crate::scenario::Place;

pub use applications::{IO, NAS, RAY2MESH, SIMRI};

/// Defaults: two ranks, a measurement for each size, one panel.
const PLAIN: Description = Description {
    name: "",
    about: "",
    details: "",
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
    bare: |_| &[],
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
    words: &[],
};

const RANKS: Numbers = Numbers {
    option: "ranks",
    help: "Numbers of ranks, such as 2,8,32",
    default: "2",
    quick: "2",
    least: 2,
    most: 1024,
    words: &[],
};

/// Benchmarks that exchange one message by the program `pingpong`.
const PINGPONG_LIKE: Description = Description {
    program: "pingpong",
    time: "half a round trip",
    figure: Some(Quantity::Bandwidth),
    least_us: Some(|link, _, case| link.limit_us(case.bytes)),
    bare: |_| &[LibraryKind::RawTcp],
    ..PLAIN
};

pub static PINGPONG: Description = Description {
    name: "pingpong",
    about: "Half a round trip between two ranks, beside raw TCP",
    details: "Times are µs of half a round trip, and Mb/s.",
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
    about: "Many short messages at once, until they are acknowledged",
    details: "Times are µs for all messages of a burst between two ranks, and millions of messages per second.",
    program: "burst",
    title: "Burst: messages at once, until they are acknowledged",
    time: "all messages and the acknowledgement",
    sizes: Some(Numbers { default: "8,16,64,256,1k,4k", quick: "8,1k", most: 64 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "messages",
        help: "Number of messages",
        default: "1000",
        quick: "1000",
        most: 100_000,
        ..SIZES
    }),
    panels: &[Column::Count("messages")],
    figure: Some(Quantity::Rate),
    moved_bytes: |case| case.bytes * case.count,
    least_us: Some(|link, _, case| link.limit_us(case.bytes * case.count) + link.delay_us),
    ..PLAIN
};

pub static OVERSUBSCRIBED: Description = Description {
    name: "oversubscribed",
    about: "Collectives and ping-pongs on more ranks than cores",
    details: "Measures a barrier, an 8-byte allreduce, a 1 KiB alltoall, and ping-pongs of all pairs at once. Times are µs per operation.",
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
    about: "A message in packets, each sent as a message of its own",
    details: "Times are µs of half a round trip, and relative to the message in one packet.",
    program: "cut",
    title: "Cut: half a round trip of a message in packets",
    time: "half a round trip",
    sizes: Some(Numbers { default: "64,1k,16k,64k,1M", quick: "64,64k", ..SIZES }),
    counts: Some(Numbers {
        option: "packets",
        help: "Number of packets, at most one per byte",
        default: "1,2,4,8,16,32,64,128,256,512,1024",
        quick: "1,8,64",
        most: 64 << 10,
        ..SIZES
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
    about: "A short message queued behind a long one to the same rank",
    details: "Times are µs until the answer to the short message, and to both, and relative to the short message alone.",
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
        ..SIZES
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
    about: "Short messages beside posted receives and unexpected messages that do not match",
    details: "Times are µs of half a round trip with and without wildcards, and relative to empty queues.",
    program: "queues",
    title: "Queues: half a round trip beside receives and messages without a match",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "depths",
        help: "Number of queued receives or messages",
        default: "0,100,10000",
        quick: "0,1000",
        least: 0,
        most: 30_000,
        ..SIZES
    }),
    operations: |_| 8,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("queued")],
    shape: Shape::Bars,
    base: Some(Base { against: Against::Count(0), head: "/ empty", relation: Relation::Ratio }),
    // Queueing and matching cost some libraries as much as so many bytes.
    moved_bytes: |case| case.count * 4096,
    ..PLAIN
};

pub static MODULES: Description = Description {
    name: "modules",
    about: "Two communicators, one of which has unreceived messages",
    details: "Times are µs of half a round trip in the other communicator, and relative to no unreceived messages.",
    program: "modules",
    title: "Modules: half a round trip beside a communicator with unreceived messages",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "unready",
        help: "Bytes of unreceived messages, each of 64 B to 256 KiB",
        default: "0,10M",
        quick: "0,1M",
        least: 0,
        most: 1 << 30,
        ..SIZES
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
    about: "Half a round trip over one rail and over two (needs two --variant)",
    details: "Times are µs of half a round trip, and Mb/s, under each setting of Canele.",
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

/// Benchmarks of three paths over each rail, which a pair of processes of Canele's own takes in turn.
const PATHS: Description = Description {
    is_own: true,
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    operations: |_| 6,
    panels: &[Column::Operation],
    shape: Shape::Bars,
    ..PLAIN
};

pub static OVERHEAD: Description = Description {
    name: "overhead",
    about: "The cost of the engine and of progress over a bare rail",
    details: "Times are µs of half a round trip of a short message over shared memory and loopback TCP, and ns more than over the bare rail.",
    program: "overhead-pair",
    title: "Overhead: half a round trip over a bare rail, with the engine, and with progress",
    axis: &[
        Column::Bytes("size"),
        Column::Word("layers", &["bare rail", "engine", "engine and progress"]),
    ],
    base: Some(Base {
        against: Against::Count(0),
        head: "less bare",
        relation: Relation::Difference,
    }),
    ..PATHS
};

pub static ADDRESSED: Description = Description {
    name: "addressed",
    about: "A put into memory that the receiver polls, beside a message and a bare rail",
    details: "Times are µs of half a round trip over shared memory and loopback TCP, and relative to the bare rail. The message and the put pass engine and progress. The longest size is 4096 bytes: such messages are eager, and puts of more than 2 KiB leave in pieces.",
    program: "addressed-pair",
    title: "Addressed: half a round trip over a bare rail, of a message, and of a put",
    axis: &[Column::Bytes("size"), Column::Word("path", &["bare rail", "message", "put"])],
    base: Some(Base { against: Against::Count(0), head: "/ bare", relation: Relation::Ratio }),
    ..PATHS
};

pub static EXPRESS: Description = Description {
    name: "express",
    about: "Packets that the receiver needs one by one (mad_receive_EXPRESS)",
    details: "Times are µs of half a round trip: as one message of the native interface, and packet by packet in several forms. Other MPIs send MPI messages.",
    program: "express",
    title: "Express: half a round trip of packets needed one by one",
    time: "half a round trip of all packets",
    sizes: Some(Numbers { default: "16", quick: "16", most: 4 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "packets",
        help: "Number of packets",
        default: "1,4,16,64,256",
        quick: "1,64",
        most: 10_000,
        ..SIZES
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
    about: "A transfer and a computation at the same time",
    details: "Times are µs until both have ended, with the share of the shorter one that was hidden. The sender computes, the receiver, or both; data are contiguous or a vector.",
    program: "overlap",
    title: "Overlap: a transfer and a computation",
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
        help: "Length of the computation, in µs",
        default: "1000,10000",
        quick: "1000,10000",
        most: 10_000_000,
        ..SIZES
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
    about: "Operations that complete while the application computes",
    details: "Times are µs that the peer of a message waits, and that the computing rank waits afterwards; also for non-blocking collectives.",
    program: "progress",
    title: "Progress: waiting for a rank that computes, and after computing",
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
        help: "Length of the computation, in µs",
        default: "100000",
        quick: "20000",
        most: 10_000_000,
        ..SIZES
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
    about: "Half a round trip beside computing threads",
    details: "Times are µs, as median, mean and 99th percentile. Threads compute without pause or once per millisecond, beside both ranks or one. The share of computation that they keep is printed, too.",
    program: "reactivity",
    title: "Reactivity: half a round trip beside computing threads",
    time: "half a round trip",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "threads",
        help: "Number of computing threads beside a rank",
        default: "0,1,2,4,8",
        quick: "0,2",
        least: 0,
        most: 256,
        ..SIZES
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
    about: "Messages of many threads at once (MPI_THREAD_MULTIPLE)",
    details: "Threads of two ranks exchange messages in one communicator or in one each, threads of one rank send to themselves, and threads wait for requests or probes, or ask for messages without rest. Times are µs per message, and millions of messages per second.",
    program: "threads",
    title: "Threads: messages of many threads at once",
    time: "half a round trip of each thread, or a message to itself",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "threads",
        help: "Threads per rank",
        default: "1,2,4,8,16",
        quick: "1,4",
        most: 64,
        ..SIZES
    }),
    operations: |_| 7,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("threads")],
    figure: Some(Quantity::Rate),
    draws_time: false,
    ..PLAIN
};

pub static PARTITIONED: Description = Description {
    name: "partitioned",
    about: "Partitions of a message that threads make ready, beside one MPI_Send",
    details: "Each thread writes four partitions and makes each ready. Beside it, one MPI_Send follows once all threads have written theirs. Times are µs from the first byte written to the receiver's answer.",
    program: "partitioned",
    title: "Partitioned: a message that threads make ready by parts",
    time: "time from the first byte to the answer",
    sizes: Some(Numbers { default: "64k,1M,8M", quick: "8M", ..SIZES }),
    counts: Some(Numbers {
        option: "threads",
        help: "Threads of the sender",
        default: "1,2,4,8",
        quick: "1,4",
        most: 64,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(4 * case.count),
    operations: |_| 2,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("threads")],
    base: Some(Base {
        against: Against::Operation("one MPI_Send"),
        head: "/ send",
        relation: Relation::Ratio,
    }),
    ..PLAIN
};

pub static OFFLOAD: Description = Description {
    name: "offload",
    about: "The duration of the MPI_Isend call, and of the whole transfer",
    details: "Times are µs. The transfer ends with the receiver's acknowledgement.",
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
    about: "CPU time of a rank that waits for a message",
    details: "CPU time is a share of a core: blocked in MPI_Recv, and asleep with and without a posted receive. Times are µs of half the round trip that follows.",
    program: "idle",
    title: "Idle: half a round trip after waiting, and CPU time of waiting",
    time: "half a round trip",
    sizes: Some(Numbers { most: 1 << 20, ..SIZES }),
    counts: Some(Numbers {
        option: "waiting",
        help: "Length of the wait, in µs",
        default: "1000000",
        quick: "100000",
        least: 1000,
        most: 60_000_000,
        ..SIZES
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
    about: "Half a round trip over a long link, after traffic and after silence",
    details: "Times are µs, as mean, median and first, and relative to the limit of the link; beside raw TCP in one stream and in eight. Then runs slowstart.",
    title: "WAN: half a round trip",
    sizes: Some(Numbers { default: "1,1k,16k,64k,256k,1M,4M,16M", quick: "1,64k,1M", ..SIZES }),
    long_sizes: Some("1,1k,16k,64k,256k,1M,4M,16M,64M"),
    counts: Some(Numbers {
        option: "silence",
        help: "Silence before each message, in µs",
        default: "0,1000000",
        quick: "0,200000",
        least: 0,
        most: 60_000_000,
        ..SIZES
    }),
    place: Place::Wan,
    then: Some(Instrument::Slowstart),
    statistics: &[Statistic::Mean, Statistic::Median, Statistic::First],
    panels: &[Column::Duration("silence"), Column::Statistic],
    draws_time: false,
    draws_of_limit: true,
    is_drawn: |_, statistic| statistic != Statistic::Median,
    sample_s: |case| 1e-6 * case.count as f64,
    bare: |_| &[LibraryKind::RawTcp, LibraryKind::TcpStreams],
    ..PINGPONG_LIKE
};

pub static SLOWSTART: Description = Description {
    name: "slowstart",
    about: "Long messages in a row on new connections",
    details: "Times are µs of half a round trip of each message, and until one reaches 500 Mb/s; beside raw TCP in one stream and in eight.",
    program: "slowstart",
    title: "Slow start: messages in a row from the first on",
    time: "time",
    sizes: Some(Numbers { default: "1M", quick: "1M", ..SIZES }),
    counts: Some(Numbers {
        option: "messages",
        help: "Number of messages",
        default: "200",
        quick: "20",
        most: 50_000,
        ..SIZES
    }),
    place: Place::Wan,
    operations: |_| 2,
    statistics: &[Statistic::Mean],
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Count("messages")],
    shape: Shape::Trace,
    moved_bytes: |case| case.bytes * case.count / 10,
    least_us: Some(|link, operation, case| {
        // Speed shows once a whole message has returned.
        let trips = if operation == "each message" { 1.0 } else { 2.0 };
        trips * link.limit_us(case.bytes)
    }),
    bare: |_| &[LibraryKind::RawTcp, LibraryKind::TcpStreams],
    ..PLAIN
};

pub static FIRST: Description = Description {
    name: "first",
    about: "MPI_Init, and the first exchange of a job",
    details: "Times are µs of MPI_Init on the slowest rank, of half the first exchange between the first rank and the last, and of both on the first. Each round is a job, with one size.",
    program: "first",
    title: "First contact: the start of a job and its first messages",
    time: "time",
    sizes: Some(SIZES),
    ranks: Some(RANKS),
    place: Place::Wan,
    operations: |_| 3,
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Ranks],
    shape: Shape::Bars,
    moved_bytes: |case| case.bytes * 2,
    least_us: Some(|link, operation, case| match operation {
        "half of the first exchange" => link.limit_us(case.bytes),
        _ => 0.0,
    }),
    ..PLAIN
};

pub static COLL: Description = Description {
    name: "coll",
    about: "Collectives, and their traffic between sites",
    details: "Times are µs. Fifty calls in a row (Torres & Kofuji), single calls that all ranks enter at once, and single calls that they enter at random times.",
    program: "coll",
    title: "Collectives: time of the operation",
    time: "time of the operation",
    sizes: Some(Numbers {
        help: "Sizes in bytes; 0: operations without data; reductions need multiples of 4",
        default: "0,1,8,64k,1M",
        quick: "0,8,64k",
        least: 0,
        most: 64 << 20,
        ..SIZES
    }),
    ranks: Some(Numbers { default: "8", quick: "4", most: 64, ..RANKS }),
    place: Place::Wan,
    // Three variants each: the barrier and the creation of communicators, data movement, and reductions.
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
        Column::Word("arrival", &["in a row", "at once", "at random"]),
        Column::Statistic,
    ],
    shape: Shape::Bars,
    moved_bytes: |case| case.bytes * 500,
    least_us: Some(|link, operation, case| link.collective_us(operation, case.bytes, case.ranks)),
    has_crossing: true,
    // Drawn: one call at a time, whose time is that of one call.
    is_drawn: |case, statistic| case.count == 1 && statistic == Statistic::Mean,
    ..PLAIN
};

pub static TORRES: Description = Description {
    name: "torres",
    about: "Barrier, allgather and allreduce on 4 to 7 ranks, relative to 8",
    details: "Times are µs of fifty calls in a row, thirty times (Torres & Kofuji): the minimum of each rank, and of these the maximum.",
    program: "torres",
    title: "Torres & Kofuji: time of the operation, also on 5, 6 and 7 ranks",
    time: "time of the operation",
    sizes: Some(Numbers {
        help: "Sizes in bytes, multiples of 4; 0: the barrier",
        default: "0,4,32,512,1024",
        quick: "0,4",
        least: 0,
        most: 4 << 20,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(4),
    ranks: Some(Numbers { default: "4,5,6,7,8", quick: "5,8", most: 64, ..RANKS }),
    place: Place::Lan,
    nodes: 8,
    operations: |case| if case.bytes == 0 { 1 } else { 2 },
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
    about: "Messages of all pairs between two halves of the ranks at once",
    details: "Times are µs from one half to the other until acknowledged, and in both directions, and relative to the limit of a link between the halves.",
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

pub static ONESIDED: Description = Description {
    name: "onesided",
    about: "One-sided operations, each with its flush, also while the target computes",
    details: "Times are µs of an operation and its flush, on windows of MPI_Win_allocate and of MPI_Win_create, and relative to the latter. The target waits in MPI_Recv, or computes without a call for five times --seconds; the share of its computing that it keeps is printed, too. The limit is bare memory of two processes, or raw TCP. Then runs gups.",
    program: "onesided",
    title: "One-sided: an operation and its flush",
    time: "operation and flush",
    sizes: Some(Numbers {
        help: "Sizes in bytes, multiples of 8; atomic operations are of 8",
        default: "8,1M",
        quick: "8,1M",
        least: 8,
        most: 64 << 20,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(8),
    then: Some(Instrument::Gups),
    operations: |case| if case.bytes == 8 { 15 } else { 8 },
    statistics: &[Statistic::Median, Statistic::Least],
    panels: &[Column::Operation, Column::Statistic],
    axis: &[
        Column::Bytes("size"),
        Column::Word("window", &["allocated", "created", "created, computes"]),
    ],
    shape: Shape::Bars,
    figure: Some(Quantity::Share(Share {
        head: "kept",
        label: "computing that the target keeps",
        is_clamped: false,
        beside: None,
    })),
    base: Some(Base { against: Against::Count(1), head: "/ created", relation: Relation::Ratio }),
    moved_bytes: |case| case.bytes * 8,
    least_us: Some(|link, operation, case| match operation {
        "make a window" => link.delay_us,
        "1000 puts" => link.limit_us(1000 * case.bytes) + link.delay_us,
        _ => link.limit_us(case.bytes) + link.delay_us,
    }),
    bare: |place| match place {
        Place::Shm => &[LibraryKind::Memory],
        Place::Lan | Place::Wan => &[LibraryKind::RawTcp],
    },
    is_drawn: |_, statistic| statistic == Statistic::Median,
    ..PLAIN
};

pub static GUPS: Description = Description {
    name: "gups",
    about: "Random updates of a table that all ranks hold (HPCC RandomAccess)",
    details: "Times are µs for an update of any rank, and millions of updates per second. Each update is an MPI_Accumulate; a flush follows 1024 of them.",
    program: "gups",
    title: "GUPS: random updates of a table that all ranks hold",
    time: "time for an update of any rank",
    sizes: Some(Numbers {
        help: "Sizes of each rank's part in bytes, multiples of 8",
        default: "16M",
        quick: "1M",
        least: 8,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(8),
    ranks: Some(Numbers { default: "2,4,8,16", quick: "2,4", most: 64, ..RANKS }),
    statistics: &[Statistic::Median, Statistic::Least],
    panels: &[Column::Bytes("size"), Column::Statistic],
    axis: &[Column::Ranks],
    shape: Shape::Bars,
    figure: Some(Quantity::Rate),
    draws_time: false,
    ..PLAIN
};
