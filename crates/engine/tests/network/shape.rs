//! Kinds of connections between two processes.

use wire::Capabilities;

use super::content::Content;

/// Connection between two processes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// One-way latency in nanoseconds.
    pub latency_ns: u64,
    /// Maximal jitter of each frame, in nanoseconds.
    pub jitter_ns: u64,
    pub bytes_per_us: u64,
    /// Number of frames that fill a link.
    pub depth: usize,
    /// Number of links between the two; they open one after another.
    pub links: usize,
    pub capabilities: Capabilities,
    /// Capabilities of the links beyond the first, if they differ.
    pub other: Option<Other>,
    /// True if a remote read succeeds where the link allows one.
    pub remote_read_works: bool,
    /// Contents of the messages.
    pub content: Content,
}

/// A link of another kind.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    pub latency_ns: u64,
    pub bytes_per_us: u64,
    pub capabilities: Capabilities,
}

impl Shape {
    /// Returns the shape with links that reopen, and replay what was lost. One end wants that, the other has no reason to.
    pub const fn reopening(self) -> Self {
        let capabilities = Capabilities { replay: true, reopens: true, ..self.capabilities };
        Self { capabilities, ..self }
    }

    /// Properties of one of the links.
    pub fn of_link(self, link: usize) -> Self {
        match self.other {
            Some(Other { latency_ns, bytes_per_us, capabilities }) if link > 0 => {
                Self { latency_ns, bytes_per_us, capabilities, ..self }
            }
            Some(_) | None => self,
        }
    }
}

/// A link with small thresholds, so that small scenarios reach all of them.
pub const NEAR: Shape = Shape {
    latency_ns: 1_000,
    jitter_ns: 0,
    bytes_per_us: 10_000,
    depth: 4,
    links: 1,
    capabilities: Capabilities {
        frame_max: 4096,
        inline_max: 256,
        eager_max: 1024,
        rts_data_max: 0,
        aggregate_max: 4096,
        piece_min: 256,
        piece_max: 4096,
        credit_bytes: 16 << 10,
        credit_wanted: 16 << 10,
        remote_read: false,
        adapts: false,
        replay: false,
        reopens: false,
        copies: false,
        passes: false,
    },
    other: None,
    remote_read_works: false,
    content: Content::Dense,
};

/// A slow wide-area link that reports its cost.
pub const SLOW: Shape = Shape {
    latency_ns: 1_000_000,
    bytes_per_us: 10,
    capabilities: Capabilities {
        frame_max: 40 << 10,
        credit_bytes: 64 << 10,
        adapts: true,
        ..NEAR.capabilities
    },
    content: Content::Mixed,
    ..NEAR
};

/// A link that could reopen, but is too near for that to be useful.
pub const GREETED: Shape =
    Shape { capabilities: Capabilities { reopens: true, ..NEAR.capabilities }, ..NEAR };

/// A link on which a round trip takes long.
pub const LONG_ROUND_TRIP: Shape = Shape {
    latency_ns: 100_000,
    capabilities: Capabilities { rts_data_max: 6000, ..NEAR.capabilities },
    ..NEAR
};

pub const FETCH: Shape = Shape {
    capabilities: Capabilities { remote_read: true, ..NEAR.capabilities },
    remote_read_works: true,
    ..NEAR
};

pub const FETCH_REFUSED: Shape = Shape { remote_read_works: false, ..FETCH };

/// Two links whose frames overtake one another.
pub const TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 20_000,
    capabilities: Capabilities { replay: true, ..NEAR.capabilities },
    ..NEAR
};

pub const AHEAD_TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 300_000,
    capabilities: Capabilities { replay: true, ..LONG_ROUND_TRIP.capabilities },
    ..LONG_ROUND_TRIP
};

/// A link with little initial credit.
pub const GRANTED: Shape = Shape {
    capabilities: Capabilities {
        credit_bytes: 2 << 10,
        credit_wanted: 40 << 10,
        ..LONG_ROUND_TRIP.capabilities
    },
    ..LONG_ROUND_TRIP
};

/// A link with hardly any credit for unexpected messages.
pub const SCARCE: Shape = Shape {
    capabilities: Capabilities {
        credit_bytes: 1 << 10,
        credit_wanted: 1 << 10,
        ..FETCH.capabilities
    },
    ..FETCH
};

pub const SCARCE_TWO_LINKS: Shape = Shape {
    capabilities: Capabilities {
        credit_bytes: 1 << 10,
        credit_wanted: 1 << 10,
        ..TWO_LINKS.capabilities
    },
    ..TWO_LINKS
};

/// Two slow links, on which pieces are compressed.
pub const SLOW_TWO_LINKS: Shape = Shape {
    links: 2,
    jitter_ns: 300_000,
    capabilities: Capabilities { replay: true, ..SLOW.capabilities },
    ..SLOW
};

/// Shared memory and a network.
pub const TWO_KINDS: Shape = Shape {
    links: 2,
    latency_ns: 200,
    bytes_per_us: 400,
    capabilities: Capabilities { adapts: true, ..TWO_LINKS.capabilities },
    other: Some(Other {
        latency_ns: 30_000,
        bytes_per_us: 125,
        capabilities: Capabilities {
            frame_max: 40 << 10,
            inline_max: 1024,
            eager_max: 8 << 10,
            adapts: true,
            ..TWO_LINKS.capabilities
        },
    }),
    ..NEAR
};

/// A link for long messages, and one before it that passes it.
pub const PASSED: Shape = Shape {
    links: 2,
    jitter_ns: 300_000,
    capabilities: Capabilities {
        eager_max: 128,
        inline_max: 128,
        replay: true,
        copies: false,
        passes: true,
        ..LONG_ROUND_TRIP.capabilities
    },
    other: Some(Other {
        latency_ns: 100_000,
        bytes_per_us: 10,
        capabilities: Capabilities { replay: true, ..LONG_ROUND_TRIP.capabilities },
    }),
    ..LONG_ROUND_TRIP
};

pub const ALL: [Shape; 14] = [
    NEAR,
    GREETED,
    FETCH,
    FETCH_REFUSED,
    TWO_LINKS,
    LONG_ROUND_TRIP,
    AHEAD_TWO_LINKS,
    GRANTED,
    SCARCE,
    SCARCE_TWO_LINKS,
    SLOW,
    SLOW_TWO_LINKS,
    TWO_KINDS,
    PASSED,
];
