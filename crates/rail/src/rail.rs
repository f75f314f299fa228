//! The interface every rail implements, and the conformance kit exercises.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use connect::{Fault, Refusal};
use cost::Cost;
use memory::Region;
use wire::{Capabilities, Frame, FrameToken, Incoming, PeerId, ProcessId, RemoteRegion};

use crate::readiness_probe::ReadinessProbe;

/// A channel to peers of one kind: this process, shared memory, TCP, QUIC or a simulated network.
///
/// Order of calls for a link: the application's first message to a peer makes `progress` look up
/// the peer's address and call [`connect`](Rail::connect). A link that the peer opens needs no call.
/// In both cases the rail reports [`Event::Up`] once, before any other event of that peer. Frames may
/// then be posted until [`Event::Down`], which is the last event of the link.
pub trait Rail: Send {
    /// A short name for messages and tables: `self`, `shm`, `tcp`, `tcp1`, `sim`.
    fn name(&self) -> &'static str;

    /// Returns the address that peers pass to [`connect`](Rail::connect): at most 512 opaque bytes,
    /// published once at start. It contains no secret.
    fn address(&self) -> Vec<u8>;

    /// True if this is the second rail of its kind, whose links overtake those of the first
    /// ([`Capabilities::passes`]). Its links are opened once the first rail carries long messages.
    fn passes(&self) -> bool {
        false
    }

    /// Starts to open the link to `peer`, whose rail published `address`, and returns at once. Does
    /// nothing if the link is up or being opened. [`Event::Up`] or [`Event::Down`] follows.
    ///
    /// # Errors
    /// This rail cannot reach the peer (another node, a malformed address). `progress` then tries the
    /// next rail.
    fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), RailError>;

    /// Adds a process of another job under the number `peer`. Both processes have to prove that they know `key` before
    /// a link between them opens. A rail that leads to no other job takes no notice, and reports that it does not reach
    /// the peer.
    fn add_peer(&mut self, _peer: PeerId, _process: ProcessId, _key: &[u8; 32]) {}

    /// Closes the link to `peer` at once, because the peer violated the protocol. The rail reports no
    /// further event of that link, not even [`Event::Down`].
    fn disconnect(&mut self, peer: PeerId);

    /// Hands a frame to an open link. Never blocks. The head is always copied or sent before the
    /// call returns; the body's memory remains in use if the result is [`Post::Held`].
    fn post(&mut self, peer: PeerId, frame: &Frame) -> Post;

    /// Receives on all links, sends posted bytes, and reports a bounded number of events to `sink`.
    /// Returns true if anything was sent, received or reported.
    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool;

    /// Returns the reader of the memory of `peer`, for links whose capabilities include `remote_read`.
    fn remote_reader(&self, _peer: PeerId) -> Option<Arc<dyn RemoteReader>> {
        None
    }

    /// Time the rail is busy with one short frame. Short messages that follow within it are better
    /// coalesced into one frame. Zero if a frame costs almost nothing.
    fn coalesce_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns what the rail knows of the processes on this node, if it connects them.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        None
    }

    /// Descriptors that become readable when this rail has events: usually one epoll descriptor or an
    /// eventfd. They stay the same for the life of the rail.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns a probe that sees pending input without locking this rail. The rail maintains it from the first call
    /// on. `None` if no other process sends over this rail.
    fn readiness_probe(&mut self) -> Option<Arc<dyn ReadinessProbe>> {
        None
    }

    /// Passes what the transport knows of its open connections to `sink`, with their peers. A rail without connections
    /// of a transport passes nothing.
    fn path_statistics(&self, _sink: &mut dyn FnMut(PeerId, PathStatistics)) {}

    /// Announces that this process is about to sleep on the descriptors: peers must signal them from now on.
    /// Returns false if events are pending; the caller must not sleep then.
    fn prepare_sleep(&mut self) -> bool;

    /// Ends the sleep announced by [`prepare_sleep`](Rail::prepare_sleep) and clears the descriptors.
    fn finish_sleep(&mut self);

    /// True if every posted frame has left this process (on TCP: was accepted by the kernel).
    fn is_flushed(&self) -> bool;

    /// True if no work is pending that only [`poll`](Rail::poll) would advance: all posted frames have left, and no
    /// handshake or measurement is under way. Such work may start when a frame is posted or a cost is reported.
    fn is_at_rest(&self) -> bool {
        self.is_flushed()
    }
}

/// Facts about a connection, from its transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStatistics {
    /// Number of packets that were lost and sent again.
    pub retransmitted: u64,
    /// Smallest round trip of late; zero before it is known.
    pub round_trip: Duration,
    /// True if the peer's system has not acknowledged all that has left this process.
    pub is_in_flight: bool,
}

/// A rail between the processes of a node, which share its cores and see each other's state.
pub trait Neighbours {
    /// Wakes `peer` if it sleeps on this rail's descriptors, for something other than a frame, such as data in a
    /// shared segment. `address` returns the address the peer's rail published. Returns true if this rail reaches
    /// `peer`.
    fn wake(&mut self, peer: PeerId, address: &mut dyn FnMut() -> Option<Vec<u8>>) -> bool;

    /// Tells peers if a thread of this process is polling and can send rendezvous data at once.
    fn set_attentive(&mut self, attentive: bool);

    /// True if `peer` is polling and a CTS for its `bytes` is faster than a remote read: sender and receiver then
    /// copy in a pipeline, in user space. A sleeping peer would have to be woken first.
    fn is_attentive(&self, peer: PeerId, bytes: u64) -> bool;

    /// True if a peer that is awake was last seen on the CPU core of this thread. Spinning would then keep that
    /// peer from running and sending.
    fn shares_core(&mut self) -> bool;

    /// True if a peer that is awake was last seen on CPU core `core`.
    fn has_neighbour_on(&self, core: u32) -> bool;

    /// Publishes the CPU affinity of this process, as a non-zero digest `own` of its set of cores. Returns how it
    /// compares with the affinities that the other processes of this node have published.
    fn compare_cores(&mut self, own: u64) -> Affinities;
}

/// Number of processes on this node that have published their CPU affinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affinities {
    /// Number of processes with the CPU affinity of this process.
    pub alike: usize,
    /// Number of processes with another CPU affinity.
    pub others: usize,
}

/// A reader of a peer's memory, usable by several threads at once and without the rail. After the end of the link, a
/// read succeeds or returns an error.
pub trait RemoteReader: Send + Sync {
    /// Copies `local.len()` bytes, starting `offset` bytes into `remote`, into `local`.
    ///
    /// # Errors
    /// The system call failed. The engine then asks the peer to send the data instead.
    fn remote_read(
        &self,
        remote: RemoteRegion,
        offset: u64,
        local: &Region,
    ) -> Result<(), RailError>;
}

/// Longest frame that every rail accepts, in bytes.
pub const FRAME_MAX_OF_ALL: usize = (64 << 10) + 3 * 64;

/// Result of [`Rail::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The frame was accepted; its memory may be reused now.
    Done,
    /// The frame was accepted; its memory may be reused after [`Event::Sent`] with the frame's token.
    Held,
    /// The frame was refused, because the link's queue is full. [`Event::Room`] reports when to try again.
    Full,
}

/// An event that [`Rail::poll`] reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// The link to a peer is open.
    Up {
        /// The peer, authenticated.
        peer: PeerId,
        /// Capabilities of the link.
        capabilities: Capabilities,
    },
    /// A frame has arrived, whole; frames of one peer arrive in the order they were posted.
    Frame {
        /// Sender of the frame.
        peer: PeerId,
        /// Its bytes, valid during the call.
        bytes: &'a [u8],
    },
    /// The beginning of a frame has arrived, while its sender still writes the rest. It keeps its place in the order
    /// of the peer's frames.
    Begun {
        /// Sender of the frame.
        peer: PeerId,
        /// Its first bytes, valid during the call: at least the head, unless that is longer than one cache line.
        bytes: &'a [u8],
        /// Length of the whole frame in bytes.
        len: usize,
        /// Set by the sink to receive the frame in pieces: [`Event::Rest`] then brings the other bytes, in order, before
        /// any other event of this link except [`Event::Down`]. Otherwise [`Event::Frame`] brings the whole frame.
        taken: &'a mut bool,
    },
    /// The next bytes of a frame that the sink receives in pieces.
    Rest {
        /// Sender of the frame.
        peer: PeerId,
        /// The bytes, which the sink puts where they belong. Dropped, they are discarded.
        bytes: Incoming<'a>,
    },
    /// The memory of a frame that was [`Post::Held`] may be reused.
    Sent {
        /// The peer behind the link.
        peer: PeerId,
        /// The frame's token.
        token: FrameToken,
    },
    /// A link that returned [`Post::Full`] can accept frames again.
    Room {
        /// The peer behind the link.
        peer: PeerId,
    },
    /// The rail's estimate of the cost of an open link, reported after [`Event::Up`] and after each change.
    Cost {
        /// The peer behind the link.
        peer: PeerId,
        /// Predicted cost of frames posted from now on.
        cost: Cost,
    },
    /// An unauthenticated peer was refused; no link is affected.
    Refused {
        /// Address of the refused peer.
        from: SocketAddr,
        /// Reason of the refusal.
        reason: Refusal,
    },
    /// A shortage or misconfiguration of this host that slows the rail, as text for the user. Each rail reports it at
    /// most once, and nothing else changes.
    Hampered {
        /// The cause, and the remedy.
        reason: String,
    },
    /// The link is lost, or could not be opened; this is its last event, and the last event of its poll. The caller
    /// handles the end before the next poll, so that events of two connections to one peer never mix.
    Down {
        /// The peer behind the link.
        peer: PeerId,
        /// Cause of the end.
        fault: Fault,
    },
}

/// Error of a call to a rail.
#[derive(Debug, thiserror::Error)]
pub enum RailError {
    /// The rail cannot reach the peer.
    #[error("not reachable by this rail: {0}")]
    Unreachable(String),
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The system call and its purpose.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}
