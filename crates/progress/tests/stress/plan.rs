//! The messages of a run, as pure functions of the seed: both ends know them without communication.

use testing::Random;

/// A stream of messages between two processes, in which only order and tag tell messages apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageStream {
    pub kind: Kind,
    /// Number of the sending thread; it also receives, unless all threads do.
    pub thread: u32,
    pub from: u32,
    pub to: u32,
    pub tag: i32,
}

/// Kinds of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Receives that name source and tag.
    Exact,
    /// Receives with a wildcard for the source, the tag or both.
    Open,
    /// Receives after a probe, by the thread that probed.
    Probed,
    /// Receives that are cancelled now and then.
    Cancelled,
    /// Matched probes of any of the process's threads.
    Shared,
    /// Messages to and fro between two threads.
    Ping,
    /// Receives of messages that nobody sends.
    Never,
}

/// Wildcards of a receive of kind [`Kind::Open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    Source,
    Tag,
    Both,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct StressMessage {
    pub len: usize,
    pub synchronous: bool,
    key: u64,
    number: u32,
}

/// Size of a job, and the seed of its operations.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub processes: u32,
    pub threads: u32,
    pub windows: u32,
    /// One in so many messages is long.
    pub long_one_in: usize,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        Self {
            seed,
            processes: 1 + random.pick(&[0, 1, 1, 1, 2, 2]),
            threads: random.pick(&[1, 2, 3, 4, 4, 6, 8]),
            windows: random.pick(&[2, 5, 10]),
            long_one_in: random.pick(&[3, 10, 30]),
        }
    }

    /// Returns the random numbers for one decision, named by `what`.
    pub fn seed_of(&self, what: &[u64]) -> Random {
        let mut random = Random::new(self.seed);
        for one in what {
            random = Random::new(random.next() ^ one);
        }
        random
    }

    /// Number of messages that a stream carries in a window.
    pub fn count(&self, window: u32, stream: MessageStream) -> u32 {
        self.of_stream(stream, 1, window).pick(&[0, 0, 0, 1, 1, 1, 2, 4])
    }

    /// Message `number` of a stream.
    pub fn message(&self, stream: MessageStream, number: u32) -> StressMessage {
        let mut random = self.of_stream(stream, 2, number);
        let long = random.one_in(self.long_one_in);
        let most = match (stream.kind, long) {
            (_, false) => random.pick(&[8, 64, 1000, 5000]),
            (Kind::Exact | Kind::Cancelled | Kind::Ping, true) => {
                random.pick(&[20_000, 70_000, 300_000])
            }
            (Kind::Open | Kind::Probed | Kind::Shared | Kind::Never, true) => OPEN_MAX,
        };
        let least = if stream.kind.names_its_number() { 8 } else { 0 };
        StressMessage {
            len: least.max(random.below(most + 1)),
            synchronous: random.one_in(4),
            key: random.next(),
            number,
        }
    }

    /// Wildcards of a thread's open receives.
    pub fn leaves(&self, to: u32, thread: u32) -> Leaves {
        let what = [3, u64::from(to), u64::from(thread)];
        self.seed_of(&what).pick(&[Leaves::Source, Leaves::Tag, Leaves::Both])
    }

    /// True if a thread's probes use wildcards for source and tag.
    pub fn probes_openly(&self, rank: u32, thread: u32) -> bool {
        self.seed_of(&[8, u64::from(rank), u64::from(thread)]).one_in(2)
    }

    /// All streams of a kind.
    pub fn streams(&self, kind: Kind) -> impl Iterator<Item = MessageStream> + use<> {
        let Self { processes, threads, .. } = *self;
        (0..processes).flat_map(move |from| {
            (0..processes).flat_map(move |to| {
                (0..threads).flat_map(move |thread| {
                    (0..TAGS).map(move |tag| MessageStream { kind, thread, from, to, tag })
                })
            })
        })
    }

    fn of_stream(&self, stream: MessageStream, what: u64, number: u32) -> Random {
        let MessageStream { kind, thread, from, to, tag } = stream;
        let who = u64::from(from) << 32 | u64::from(to) << 16 | u64::from(thread);
        self.seed_of(&[what, kind as u64, who, tag as u64, u64::from(number)])
    }
}

impl Kind {
    /// True if the message carries its number, because the receiver may not know it.
    fn names_its_number(self) -> bool {
        matches!(self, Self::Open | Self::Shared)
    }
}

impl MessageStream {
    /// Context of the messages of a window.
    ///
    /// Shared messages have a context per window. Otherwise threads would take messages of other windows, for which
    /// others wait.
    pub fn context(&self, window: u32) -> u64 {
        match self.kind {
            Kind::Shared => shared_context(window),
            _ => context(self.kind, self.thread),
        }
    }

    /// The tag on the wire. In the context that all threads share, tags tell senders apart.
    pub fn wire_tag(&self) -> i32 {
        match self.kind {
            Kind::Shared => self.tag + TAGS * self.thread as i32,
            _ => self.tag,
        }
    }
}

/// The context of messages that all threads receive.
pub fn shared_context(window: u32) -> u64 {
    10_000 + u64::from(window)
}

/// The context of messages that one thread receives.
pub fn context(kind: Kind, thread: u32) -> u64 {
    100 * (kind as u64 + 1) + u64::from(thread)
}

impl StressMessage {
    pub fn bytes(&self) -> Vec<u8> {
        let key = self.key.to_le_bytes();
        let mut bytes: Vec<u8> =
            (0..self.len).map(|at| key[at % 8] ^ at as u8 ^ (at >> 8) as u8).collect();
        if let Some(said) = bytes.get_mut(..4).filter(|_| self.len >= 8) {
            said.copy_from_slice(&self.number.to_le_bytes());
        }
        bytes
    }

    /// Number that a message carries.
    pub fn number_in(bytes: &[u8]) -> Option<u32> {
        bytes.first_chunk().map(|said| u32::from_le_bytes(*said))
    }
}

/// The longest message whose receiver does not know its length.
pub const OPEN_MAX: usize = 60_000;

/// Number of tags in a context, `0..TAGS`; in the shared context, of each thread.
pub const TAGS: i32 = 2;
