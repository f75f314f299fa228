//! Strategies: they choose the next frame of an idle link from the waiting packets (Brunet 2005,
//! §3.1.3 and §4.1).
//!
//! A [`Strategy`] is called when a link can take a frame and the peer has something to send. It
//! sees the waiting data and the links as a [`View`], and returns a [`Choice`]. The engine checks
//! the choice against the rules for all strategies, and builds the frame. A choice that breaks a
//! rule is rejected with its reason, and the engine uses [`Fifo`] for that peer.
//!
//! Each strategy extends the one before it: [`Fifo`], [`Aggregate`], [`Reorder`], [`Piggyback`],
//! [`Split`], [`Compress`]. [`Auto`] compares several proposals and takes the best.

mod aggregate;
mod auto;
mod choice;
mod compress;
mod fifo;
mod piggyback;
mod reorder;
mod split;
mod view;

use std::fmt::Debug;

use wire::{Capabilities, packet};

pub use crate::compress::{COMPRESS_MIN, Compression};
pub use aggregate::Aggregate;
pub use auto::Auto;
pub use choice::{Carry, Choice, Invalid, Piece};
pub use compress::Compress;
pub use fifo::Fifo;
pub use piggyback::Piggyback;
pub use reorder::Reorder;
pub use split::Split;
pub use view::{LinkView, Message, Stream, View};

/// A policy that chooses the contents of frames. One object serves all peers of a process.
pub trait Strategy: Send + Debug {
    /// A short name for messages and tables.
    fn name(&self) -> &'static str;

    /// Chooses the next frame of the asking link; `choice` is empty on entry. An empty choice
    /// leaves the link idle until something changes at the peer. It is an error if nothing will
    /// change ([`View::is_last`]).
    fn choose(&mut self, view: &View<'_>, choice: &mut Choice);

    /// True if short messages may be coalesced before a link asks for a frame
    /// ([`Engine::submit_coalesced`](crate::Engine::submit_coalesced)).
    fn coalesces(&self) -> bool {
        true
    }
}

/// Length of the first stream's next piece in a frame with `room`. It is a fraction of the message,
/// so that the receiver copies while the sender still does, in whole pages, so that both copies
/// stay aligned. Later frames wait no longer than the link's cost allows.
fn piece_len(view: &View<'_>, room: usize) -> usize {
    if !view.takes_pieces() {
        return 0;
    }
    let room = room.saturating_sub(packet::DATA_LEN);
    let bytes = view.streams().next().map_or(room, |stream| stream.bytes);
    let Capabilities { piece_min, piece_max, .. } = *view.link().capabilities();
    let len = room.min((bytes / PIECES).min(piece_max).max(piece_min));
    if len < PAGE_LEN { len } else { len - len % PAGE_LEN }
}

/// Minimal number of pieces of a long message.
const PIECES: usize = 16;

const PAGE_LEN: usize = 4096;

/// Returns the strategy with a name given by the user; `None` if there is none.
pub fn named(name: &str) -> Option<Box<dyn Strategy>> {
    Some(match name {
        "fifo" => Box::new(Fifo),
        "aggregate" => Box::new(Aggregate),
        "piggyback" => Box::new(Piggyback),
        "reorder" => Box::new(Reorder),
        "split" => Box::new(Split),
        "compress" => Box::new(Compress),
        "auto" => Box::new(Auto::default()),
        _ => return None,
    })
}

/// Names that [`named`] accepts, simplest first.
pub const NAMES: [&str; 7] =
    ["fifo", "aggregate", "reorder", "piggyback", "split", "compress", "auto"];
