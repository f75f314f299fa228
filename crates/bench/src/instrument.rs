//! The instruments, each described once: its program, what it is asked, and how its table and its plot
//! are read. The command line, the runs, the tables and the plots follow from the description.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scenario::{Link, size, size_text};
use crate::statistics::{bandwidth_mbit_per_s, messages_per_us};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Instrument {
    /// Messages to and fro between two ranks.
    Pingpong,
    /// Many messages at once between two ranks.
    Burst,
    /// Barrier and allreduce on many ranks.
    Crowd,
    /// A message in one packet, and the same in many.
    Cut,
    /// A short message behind a long one.
    Behind,
    /// A ping-pong beside receives and messages that do not match.
    Queues,
    /// A ping-pong of one module while another does not receive.
    Modules,
    /// A ping-pong under several settings of ours.
    Rails,
    /// A ping-pong over a bare rail, and over one below the scheduler.
    Overhead,
}

/// An instrument, as a value.
#[derive(Debug)]
pub struct Description {
    /// Of the command and of its files.
    pub name: &'static str,
    /// What the command does, with the unit of its times.
    pub about: &'static str,
    /// The name of its C source, or, where it is Canele's own, of the command that runs instead.
    pub program: &'static str,
    /// Whether only Canele can run it, on this machine, by a command of its own.
    pub is_own: bool,
    /// What its times are, in a title.
    pub title: &'static str,
    /// What its times are, beside an axis.
    pub time: &'static str,
    /// Which sizes it is asked for; none where it has its own.
    pub sizes: Option<Numbers>,
    /// Which counts it is asked for, beside each size.
    pub counts: Option<Numbers>,
    /// Whether so many of so many bytes is a case at all.
    pub has_case: fn(Case) -> bool,
    /// Whether its program runs on any number of ranks; else on two.
    pub any_ranks: bool,
    /// How many settings of ours it needs.
    pub least_variants: usize,
    /// How many measurements the program prints for each case.
    pub operations: usize,
    /// Columns of the table whose values have a panel of the plot each.
    pub panels: &'static [Column],
    /// The other columns that name a row; the last is the axis of the plot's panels.
    pub axis: &'static [Column],
    /// How panels are drawn.
    pub shape: Shape,
    /// What follows from time, and is shown beside it.
    pub figure: Option<Quantity>,
    /// The count that the others of the same size are set against.
    pub base: Option<Base>,
    /// How many bytes a sample moves, about.
    pub moved_bytes: fn(Case) -> u64,
    /// The least time a link allows, where that says something.
    pub least_us: Option<fn(&Link, Case) -> f64>,
    /// Whether raw TCP can do the same.
    pub has_tcp: bool,
}

/// One setting of a program: so many of so many bytes, whatever they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The size of a message, in bytes.
    pub bytes: u64,
    /// How many, or how long what stands before it is; 0 where nothing is counted.
    pub count: u64,
}

/// What cases are set against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The count of the base case.
    pub count: u64,
    /// The head of the column.
    pub head: &'static str,
    /// How they are set against it.
    pub relation: Relation,
}

/// How a time is set against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Divided by it.
    Ratio,
    /// Less it, in µs.
    Difference,
}

impl Relation {
    /// The value.
    pub fn of(self, time_us: f64, base_us: f64) -> f64 {
        match self {
            Self::Ratio => time_us / base_us,
            Self::Difference => time_us - base_us,
        }
    }
}

/// A list of numbers on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The option.
    pub option: &'static str,
    /// What they are.
    pub help: &'static str,
    /// What they are if nothing is asked.
    pub default: &'static str,
    /// The least.
    pub least: u64,
    /// The greatest.
    pub most: u64,
}

/// A column that names rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The operation.
    Operation,
    /// The size, under this head.
    Bytes(&'static str),
    /// The count, under this head.
    Count(&'static str),
    /// The count, which is of bytes, under this head.
    Length(&'static str),
    /// The count as one of these words, under this head.
    Word(&'static str, &'static [&'static str]),
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line for each library over the axis, both scales logarithmic.
    Lines,
    /// Bars for each library beside each other.
    Bars,
}

/// What is drawn, or shown beside the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// As measured, in µs.
    Time,
    /// The message's bytes over the time, in Mb/s.
    Bandwidth,
    /// Messages over the time, in millions a second.
    Rate,
}

impl Quantity {
    /// What a time comes to.
    pub fn of(self, case: Case, time_us: f64) -> f64 {
        match self {
            Self::Time => time_us,
            Self::Bandwidth => bandwidth_mbit_per_s(case.bytes, time_us),
            Self::Rate => messages_per_us(case.count, time_us),
        }
    }

    /// Its unit, in a table.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time => "µs",
            Self::Bandwidth => "Mb/s",
            Self::Rate => "M/s",
        }
    }
}

impl Column {
    /// Its head.
    pub fn head(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Bytes(head) | Self::Count(head) | Self::Length(head) | Self::Word(head, _) => {
                head
            }
        }
    }

    /// What stands in it.
    pub fn text(self, operation: &str, case: Case) -> String {
        match self {
            Self::Operation => operation.to_owned(),
            Self::Bytes(_) => size_text(case.bytes),
            Self::Count(_) => case.count.to_string(),
            Self::Length(_) => size_text(case.count),
            Self::Word(_, words) => words.get(case.count as usize).copied().unwrap_or("?").into(),
        }
    }

    /// What it counts, for an axis; an operation counts nothing.
    pub fn number(self, case: Case) -> u64 {
        match self {
            Self::Operation => 0,
            Self::Bytes(_) => case.bytes,
            Self::Count(_) | Self::Length(_) | Self::Word(..) => case.count,
        }
    }
}

impl Description {
    /// The columns that name a row.
    pub fn columns(&self) -> impl Iterator<Item = Column> {
        self.panels.iter().chain(self.axis).copied()
    }
}

impl Numbers {
    /// Reads a list: `16,64k,4M` (binary).
    ///
    /// # Errors
    /// For what is no number, or out of bounds.
    pub fn parse(self, text: &str) -> Result<Vec<u64>, String> {
        let number = |word: &str| {
            let number = size(word)?;
            if (self.least..=self.most).contains(&number) {
                return Ok(number);
            }
            let bounds = [self.least, self.most].map(short_text);
            Err(format!("{word} is not between {} and {}", bounds[0], bounds[1]))
        };
        text.split(',').map(number).collect()
    }
}

/// As on the command line: `64k`.
fn short_text(number: u64) -> String {
    match number {
        0 => "0".into(),
        _ if number.is_multiple_of(1 << 20) => format!("{}M", number >> 20),
        _ if number.is_multiple_of(1 << 10) => format!("{}k", number >> 10),
        _ => number.to_string(),
    }
}

impl Instrument {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Pingpong,
        Self::Burst,
        Self::Crowd,
        Self::Cut,
        Self::Behind,
        Self::Queues,
        Self::Modules,
        Self::Rails,
        Self::Overhead,
    ];

    /// What it is.
    pub fn description(self) -> &'static Description {
        match self {
            Self::Pingpong => &PINGPONG,
            Self::Burst => &BURST,
            Self::Crowd => &CROWD,
            Self::Cut => &CUT,
            Self::Behind => &BEHIND,
            Self::Queues => &QUEUES,
            Self::Modules => &MODULES,
            Self::Rails => &RAILS,
            Self::Overhead => &OVERHEAD,
        }
    }
}

impl FromStr for Instrument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.description().name == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|known| known.description().name).join(", ");
            format!("no instrument `{text}`: there are {names}")
        })
    }
}

/// What one run of an instrument does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Which.
    pub instrument: Instrument,
    /// On how many ranks.
    pub ranks: u32,
    /// For which sizes, in bytes.
    pub sizes: Vec<u64>,
    /// For which counts.
    pub counts: Vec<u64>,
}

impl Workload {
    /// The instrument as it is if nothing is asked.
    pub fn new(instrument: Instrument) -> Self {
        let list = |numbers: Option<Numbers>| {
            let list = numbers.map(|numbers| numbers.parse(numbers.default));
            list.and_then(Result::ok).unwrap_or_default()
        };
        let description = instrument.description();
        let (sizes, counts) = (list(description.sizes), list(description.counts));
        let ranks = if description.any_ranks { CROWD_RANKS } else { 2 };
        Self { instrument, ranks, sizes, counts }
    }

    /// The instrument, as a value.
    pub fn description(&self) -> &'static Description {
        self.instrument.description()
    }

    /// What its times are, in a title.
    pub fn title(&self) -> String {
        let Description { title, any_ranks, .. } = self.description();
        if *any_ranks { format!("{title} on {} ranks", self.ranks) } else { (*title).into() }
    }

    /// The program's arguments.
    pub fn arguments(&self, seconds: f64) -> Vec<String> {
        let word = |case: Case| match self.counts[..] {
            [] => case.bytes.to_string(),
            _ => format!("{}/{}", case.bytes, case.count),
        };
        std::iter::once(seconds.to_string()).chain(self.cases().into_iter().map(word)).collect()
    }

    /// How many measurements the program prints.
    pub fn measurements(&self) -> usize {
        let Description { sizes, operations, .. } = self.description();
        let cases = if sizes.is_some() { self.cases().len() } else { 1 };
        cases * operations
    }

    /// A run that takes longer than this is ended. Generous: a message of a size may cost several
    /// seconds where the link is long, and a few of them are sent whatever the budget is.
    pub fn limit(&self, seconds: f64) -> Duration {
        let moved_bytes = self.description().moved_bytes;
        let moved: u64 = self.cases().into_iter().map(moved_bytes).sum();
        let transfers = moved as f64 * 100.0 / 50e6;
        let budgets = self.measurements() as f64 * seconds * 10.0;
        Duration::from_secs_f64(60.0 + budgets + transfers)
    }

    fn cases(&self) -> Vec<Case> {
        let counts: &[u64] = if self.counts.is_empty() { &[0] } else { &self.counts };
        let of = |bytes: &u64| {
            let bytes = *bytes;
            counts.iter().map(move |count| Case { bytes, count: *count })
        };
        let has_case = self.description().has_case;
        self.sizes.iter().flat_map(of).filter(|case| has_case(*case)).collect()
    }
}

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
    any_ranks: false,
    least_variants: 0,
    operations: 1,
    panels: &[],
    axis: &[Column::Bytes("size")],
    shape: Shape::Lines,
    figure: None,
    base: None,
    moved_bytes: |case| case.bytes,
    least_us: None,
    has_tcp: false,
};

const SIZES: Numbers = Numbers {
    option: "sizes",
    help: "Sizes in bytes, such as 1,16,64k,4M",
    default: "8",
    least: 1,
    most: 1 << 30,
};

/// What exchanges one message by the program `pingpong`.
const PINGPONG_LIKE: Description = Description {
    program: "pingpong",
    time: "half a round trip",
    figure: Some(Quantity::Bandwidth),
    least_us: Some(|link, case| link.limit_us(case.bytes)),
    has_tcp: true,
    ..PLAIN
};

static PINGPONG: Description = Description {
    name: "pingpong",
    about: "Half a round trip between two ranks, in µs and Mb/s, and raw TCP beside it",
    title: "Ping-pong: half a round trip",
    sizes: Some(Numbers { default: "1,8,16,64,256,1k,4k,16k,64k,256k,1M,4M,16M,64M", ..SIZES }),
    ..PINGPONG_LIKE
};

static BURST: Description = Description {
    name: "burst",
    about: "Many short messages at once between two ranks, until the word is back that they are there: µs for all, and millions of messages a second",
    program: "burst",
    title: "Burst: messages at once and the word that they are there",
    time: "all messages and the word",
    sizes: Some(Numbers { default: "8,16,64,256,1k,4k", most: 64 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "messages",
        help: "How many messages",
        default: "1000",
        least: 1,
        most: 100_000,
    }),
    panels: &[Column::Count("messages")],
    figure: Some(Quantity::Rate),
    moved_bytes: |case| case.bytes * case.count,
    least_us: Some(|link, case| link.limit_us(case.bytes * case.count) + link.delay_us),
    ..PLAIN
};

static CROWD: Description = Description {
    name: "crowd",
    about: "Barrier and 8-byte allreduce on many ranks, in µs an operation",
    program: "crowd",
    title: "Crowd: a collective operation",
    time: "time of the operation",
    any_ranks: true,
    operations: 2,
    axis: &[Column::Operation, Column::Bytes("size")],
    shape: Shape::Bars,
    ..PLAIN
};

static CUT: Description = Description {
    name: "cut",
    about: "Half a round trip of a message cut into packets, each sent as a message of its own, in µs, and against the message in one packet",
    program: "cut",
    title: "Cut: half a round trip of a message in packets",
    time: "half a round trip",
    sizes: Some(Numbers { default: "64,1k,16k,64k,1M", ..SIZES }),
    counts: Some(Numbers {
        option: "packets",
        help: "Into how many packets; more than its bytes are left out",
        default: "1,2,4,8,16,32,64,128,256,512,1024",
        least: 1,
        most: 64 << 10,
    }),
    has_case: |case| case.count <= case.bytes,
    panels: &[Column::Bytes("message")],
    axis: &[Column::Count("packets")],
    figure: Some(Quantity::Bandwidth),
    base: Some(Base { count: 1, head: "/ whole", relation: Relation::Ratio }),
    least_us: Some(|link, case| link.limit_us(case.bytes)),
    ..PLAIN
};

static BEHIND: Description = Description {
    name: "behind",
    about: "A short message behind a long one to the same rank: µs until the answer to the short one, and to both, and against the short one alone",
    program: "behind",
    title: "Behind: a short message after a long one, until it is answered",
    time: "until the answer",
    sizes: Some(Numbers { default: "4,8", most: 64 << 10, ..SIZES }),
    counts: Some(Numbers {
        option: "long",
        help: "Sizes of the long message in bytes; 0 is none",
        default: "0,64k,1M",
        least: 0,
        most: 1 << 30,
    }),
    operations: 2,
    panels: &[Column::Operation, Column::Bytes("short")],
    axis: &[Column::Length("long")],
    shape: Shape::Bars,
    base: Some(Base { count: 0, head: "/ alone", relation: Relation::Ratio }),
    moved_bytes: |case| case.bytes + case.count,
    ..PLAIN
};

static QUEUES: Description = Description {
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
        least: 0,
        most: 30_000,
    }),
    operations: 8,
    panels: &[Column::Operation, Column::Bytes("size")],
    axis: &[Column::Count("queued")],
    shape: Shape::Bars,
    base: Some(Base { count: 0, head: "/ empty", relation: Relation::Ratio }),
    // To queue and to match costs some libraries as much as so many bytes.
    moved_bytes: |case| case.count * 4096,
    ..PLAIN
};

static MODULES: Description = Description {
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
        least: 0,
        most: 1 << 30,
    }),
    panels: &[Column::Bytes("size")],
    axis: &[Column::Length("unready")],
    shape: Shape::Bars,
    base: Some(Base { count: 0, head: "/ alone", relation: Relation::Ratio }),
    moved_bytes: |case| case.count,
    ..PLAIN
};

static RAILS: Description = Description {
    name: "rails",
    about: "Half a round trip under several settings of Canele (at least two of --variant), in µs and Mb/s: one rail against two",
    title: "Rails: half a round trip",
    sizes: Some(Numbers { default: "64,1k,4k,16k,64k,256k,1M,4M,16M,64M", ..SIZES }),
    least_variants: 2,
    ..PINGPONG_LIKE
};

static OVERHEAD: Description = Description {
    name: "overhead",
    about: "Half a round trip of a short message over a bare rail, in µs, and over one below engine and progress, and ns more; in shared memory and over TCP's loopback",
    program: "overhead-pair",
    is_own: true,
    title: "Overhead: half a round trip over a bare rail, and below the scheduler",
    time: "half a round trip",
    sizes: Some(Numbers { most: 4 << 10, ..SIZES }),
    operations: 4,
    panels: &[Column::Operation],
    axis: &[Column::Bytes("size"), Column::Word("way", &["bare rail", "scheduled"])],
    shape: Shape::Bars,
    base: Some(Base { count: 0, head: "less bare", relation: Relation::Difference }),
    ..PLAIN
};

/// Ranks of a crowd if nothing is asked.
const CROWD_RANKS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_whole_and_its_defaults_are_allowed() {
        for instrument in Instrument::ALL {
            let description = instrument.description();
            assert_eq!(description.name.parse(), Ok(instrument));
            for text in [description.about, description.program, description.title] {
                assert!(!text.is_empty(), "{instrument:?}");
            }
            for numbers in [description.sizes, description.counts].into_iter().flatten() {
                let list = numbers.parse(numbers.default);
                assert!(list.is_ok_and(|list| !list.is_empty()), "{instrument:?}");
            }
            assert!(Workload::new(instrument).measurements() > 0);
        }
        let error = "moon".parse::<Instrument>().unwrap_err();
        assert!(error.contains("moon") && error.contains("burst"), "{error}");
    }

    #[test]
    fn numbers_out_of_bounds_are_named_with_the_bounds() {
        let numbers = BURST.sizes.unwrap();
        assert_eq!(numbers.parse("8,64k"), Ok(vec![8, 65536]));
        let error = numbers.parse("8,1M").unwrap_err();
        assert_eq!(error, "1M is not between 1 and 64k");
        assert!(numbers.parse("5x").unwrap_err().contains("5x"));
    }

    #[test]
    fn arguments_are_what_the_programs_read() {
        let burst = Workload {
            counts: vec![1000],
            sizes: vec![8, 1024],
            ..Workload::new(Instrument::Burst)
        };
        assert_eq!(burst.arguments(0.5), ["0.5", "8/1000", "1024/1000"]);
        assert_eq!((burst.ranks, burst.measurements()), (2, 2));
        let pingpong = Workload { sizes: vec![8], ..Workload::new(Instrument::Pingpong) };
        assert_eq!(pingpong.arguments(0.5), ["0.5", "8"]);
        let cut = Workload {
            sizes: vec![2, 64],
            counts: vec![1, 2, 4],
            ..Workload::new(Instrument::Cut)
        };
        assert_eq!(cut.arguments(1.0), ["1", "2/1", "2/2", "64/1", "64/2", "64/4"]);
        let crowd = Workload::new(Instrument::Crowd);
        assert_eq!((crowd.arguments(1.0), crowd.measurements()), (vec!["1".to_owned()], 2));
        assert!(crowd.title().contains("16 ranks"));
    }
}
