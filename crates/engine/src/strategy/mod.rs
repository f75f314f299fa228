//! Strategies: which of the things that wait for a peer go into the next frame of an idle link
//! (Brunet 2005, §3.1.3 and §4.1).
//!
//! A [`Strategy`] is asked when a link can take a frame and the peer has something to send. It sees
//! what waits, and the links, as a [`View`], and answers a [`Choice`]. The engine checks the choice
//! against the rules that no strategy may break, builds the frame and accounts for it. A choice that breaks
//! one is refused with its reason, and the engine goes on with [`Fifo`] on that peer.
//!
//! Each strategy but the first does what the one before it does, and more: [`Fifo`], [`Aggregate`],
//! [`Reorder`], [`Piggyback`], [`Split`], [`Compress`]; [`Auto`] asks several and takes the best proposal.

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

/// Chooses what goes into frames. One object serves all peers of a process.
pub trait Strategy: Send + Debug {
    /// A short name for messages and tables.
    fn name(&self) -> &'static str;

    /// Chooses the next frame of the link that asks; `choice` comes empty. Left empty, the link stays
    /// idle until something changes at the peer, which is refused where nothing is going to
    /// ([`View::is_last`]).
    fn choose(&mut self, view: &View<'_>, choice: &mut Choice);

    /// Whether short messages may share a frame before a link asks for one
    /// ([`Engine::submit_coalesced`](crate::Engine::submit_coalesced)).
    fn coalesces(&self) -> bool {
        true
    }
}

/// How much of the message whose turn it is goes into a frame with `room`: a share, so that the receiver
/// copies while the sender still does, and whole pages, so that both copies stay aligned. What comes
/// behind the frame waits for it: no longer than the link's costs say.
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

/// A long message travels in at least so many pieces.
const PIECES: usize = 16;

const PAGE_LEN: usize = 4096;

/// The strategy of a name, as users give it; none of that name is none.
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

/// The names that [`named`] knows, the simplest strategy first.
pub const NAMES: [&str; 7] =
    ["fifo", "aggregate", "reorder", "piggyback", "split", "compress", "auto"];
