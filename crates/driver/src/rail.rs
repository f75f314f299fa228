//! The interface every rail implements, and the conformance kit exercises.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use memory::Region;
use wire::{Capabilities, Cost, Frame, FrameToken, PeerId, RemoteRegion};

use crate::readiness_probe::ReadinessProbe;
use crate::tcp::Refusal;

/// One way to reach peers.
///
/// The order of calls for a link: the application's first message to a peer makes `progress` fetch
/// the peer's address and call [`connect`](Rail::connect); a link opened by the peer appears by
/// itself. Either way [`Event::Up`] is reported once, before any other event of that peer; after it
/// frames may be posted, until [`Event::Down`], which is the last event of the link.
pub trait Rail: Send {
    /// A short name for messages and tables: `self`, `shm`, `tcp`, `tcp1`, `sim`.
    fn name(&self) -> &'static str;

    /// What a peer needs to reach this process by this rail: opaque bytes, at most 512, published
    /// once at start. Contains no secret.
    fn address(&self) -> Vec<u8>;

    /// Whether its links pass those of the other rail of its kind ([`Capabilities::passes`]): they are opened once
    /// those carry what is long.
    fn passes(&self) -> bool {
        false
    }

    /// Begins to open the link to `peer`, whose rail published `address`. Returns at once; a link
    /// that is already up or on its way is left as it is. [`Event::Up`] or [`Event::Down`] follows.
    ///
    /// # Errors
    /// When it is known at once that the peer cannot be reached by this rail (another node, a
    /// malformed address): `progress` then tries the next rail.
    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError>;

    /// Ends the link to `peer` at once: it has sent what no rank sends. Nothing more is reported of it,
    /// not even that it is down.
    fn disconnect(&mut self, peer: PeerId);

    /// Hands a frame to an open link. Never blocks. The head is always copied or sent before the
    /// call returns; the body's memory may still be in use when the answer is [`Post::Held`].
    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post;

    /// Looks for news on all links, moves posted bytes on, and reports at most a bounded number of
    /// events to `sink`. Returns whether anything happened.
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool;

    /// What copies from the memory of `peer`; only of links whose capabilities include `pull`.
    fn remote_reader(&self, _peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        None
    }

    /// How soon after a short frame the next would find the rail still busy: short messages that follow
    /// within this time are better gathered in one frame. Zero where a frame costs next to nothing.
    fn coalesce_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Wakes `peer`, whose rail published what `address` answers, if it sleeps on this rail's descriptors: it was
    /// left something that is no frame. Whether this rail leads there.
    fn wake(&mut self, _peer: PeerId, _address: &mut dyn FnMut() -> Option<Vec<u8>>) -> bool {
        false
    }

    /// Tells peers whether this process stands by to send what it has offered. Only of use to rails
    /// that can pull.
    fn set_attentive(&mut self, _attentive: bool) {}

    /// Whether `peer` stands by to send the `bytes` it has offered: then asking for them is faster than a pull,
    /// for two processes copy, one behind the other, in user space. One that sleeps has to be woken first.
    fn is_attentive(&self, _peer: PeerId, _bytes: u64) -> bool {
        false
    }

    /// Whether a peer that is awake was last seen on the core that runs this thread: then spinning keeps
    /// it from sending what is waited for.
    fn shares_core(&mut self) -> bool {
        false
    }

    /// Whether a peer that is awake was last seen on that core.
    fn has_neighbour_on(&self, _core: u32) -> bool {
        false
    }

    /// The threads of this process may run on the cores that this word names, which is not 0: what neighbours have last
    /// said of theirs.
    fn compare_cores(&mut self, _own: u64) -> Neighbours {
        Neighbours::default()
    }

    /// Descriptors that become readable when this rail has news (usually one epoll descriptor or a
    /// doorbell). Stable for the life of the rail.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// What sees, without this rail, that something has come for it; from the first call on it is kept up. None where
    /// nothing comes but by this process's own hand.
    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        None
    }

    /// Announces that this process is about to sleep on the descriptors: from now on peers must ring.
    /// Returns `false` when there is news already, and the caller must not sleep.
    fn prepare_sleep(&mut self) -> bool;

    /// Ends what `prepare_sleep` began; the doorbell is silenced.
    fn finish_sleep(&mut self);

    /// Whether everything posted has left this process (on a stream: was accepted by the kernel).
    fn is_flushed(&self) -> bool;

    /// Whether nothing is going on that only polls move: everything posted has left, and the rail does nothing of its
    /// own accord. It may begin such a thing when it is handed a frame, and where it reports a peer's cost.
    fn is_at_rest(&self) -> bool {
        self.is_flushed()
    }
}

/// Processes of this node that a rail leads to and that have told which cores they may run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Those that may run on exactly the cores of this process.
    pub alike: usize,
    /// Those that may not.
    pub others: usize,
}

/// What copies from a peer's memory, by several threads at once and without the rail. It does so, or fails, also when
/// the link has ended meanwhile.
pub trait RemoteReader: Send + Sync {
    /// Copies `local.len()` bytes, starting `offset` bytes into `remote`, into `local`.
    ///
    /// # Errors
    /// When the system refuses: the engine then asks the peer to send the data instead.
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError>;
}

/// What became of a posted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// Taken; its memory may be reused now.
    Done,
    /// Taken; [`Event::Sent`] with the frame's token tells when its memory may be reused.
    Held,
    /// Not taken: the rail is at its depth. [`Event::Room`] tells when to try again.
    Full,
}

/// What a rail has to report.
#[derive(Debug)]
pub enum Event<'a> {
    /// The link to a peer is open.
    Up {
        /// The peer, proved to be who it says.
        peer: PeerId,
        /// What the link can do.
        capabilities: Capabilities,
    },
    /// A frame has arrived, whole; frames of one peer arrive in the order they were posted.
    Frame {
        /// Who posted it.
        peer: PeerId,
        /// Its bytes, valid during the call.
        bytes: &'a [u8],
    },
    /// The beginning of a frame has arrived, whose rest its sender is writing. It comes in its turn among the frames of
    /// its peer.
    Begun {
        /// Who posted it.
        peer: PeerId,
        /// Its first bytes, valid during the call: at least the head, unless that is longer than its first line.
        bytes: &'a [u8],
        /// How many there are in all.
        len: usize,
        /// To be set by who takes it so: then [`Event::Rest`] brings the other bytes, in order, before anything else
        /// of this peer but its end. Otherwise [`Event::Frame`] brings the whole.
        taken: &'a mut bool,
    },
    /// The next bytes of a frame whose beginning was taken.
    Rest {
        /// Who posted it.
        peer: PeerId,
        /// The bytes, valid during the call.
        bytes: &'a [u8],
    },
    /// The memory of a frame that was [`Post::Held`] may be reused.
    Sent {
        /// Where it went.
        peer: PeerId,
        /// The frame's token.
        token: FrameToken,
    },
    /// A link that was [`Post::Full`] can take frames again.
    Room {
        /// The peer behind the link.
        peer: PeerId,
    },
    /// What an open link costs, as far as the rail knows: told after [`Event::Up`] and when it has changed.
    Cost {
        /// The peer behind the link.
        peer: PeerId,
        /// What is predicted of frames posted from now on.
        cost: Cost,
    },
    /// A stranger was turned away before it could say anything; no link is concerned.
    Refused {
        /// Where it came from.
        from: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// What keeps this rail from doing its work for a while, for the user; told once.
    Hampered {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The link is gone, or could not be opened; nothing more comes from it. One that takes its place comes with a
    /// later poll: whoever hears of an end acts on it after the report.
    Down {
        /// The peer behind the link.
        peer: PeerId,
        /// Why.
        fault: Fault,
    },
}

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer closed it in good order.
    Closed,
    /// The network or the peer's process failed; the text names both ends.
    Lost(String),
    /// No way to the peer was found; the text says what was tried. Who refuses on a long way may be something in
    /// between, such as a firewall.
    Unreachable(String),
    /// The peer sent bytes that no honest peer sends; the text says which.
    Misbehaved(String),
}

impl Fault {
    /// What happened, if anything out of order did.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Closed => None,
            Self::Lost(text) | Self::Unreachable(text) | Self::Misbehaved(text) => Some(text),
        }
    }
}

/// Why a rail could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RailError {
    /// The peer is not to be had by this rail.
    #[error("not reachable by this rail: {0}")]
    Unreachable(String),
    /// The system refused; the text names the call.
    #[error("{call}: {source}")]
    System {
        /// The system call, and what it was for.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}
