//! Whichever strategy is predicted to finish soonest what waits.
//!
//! A frame arrives whole: a short message that shares one with a long piece is as late as the piece,
//! and one that does not costs a frame more. Which is better depends on the link, so both are proposed
//! and the proposals compared: by the sum, over everything that waits, of the time at which it will have
//! left, packed where that pays (the simulator that Brunet 2005 asks for, §4.1, §6.2; equal weights make
//! it Smith's rule).

use wire::packet;

use super::aggregate::{Budget, end_in_piece};
use super::compress::{pack_message, pack_piece};
use super::{Carry, Choice, Piece, Reorder, Split, Strategy, View};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Auto {
    other: Choice,
}

impl Strategy for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        if view.is_alone() && view.controls() == 0 && !view.has_messages() {
            // Long messages only: there is nothing to weigh.
            end_in_piece(view, choice, &Budget::new(view));
            return pack_piece(view, choice);
        }
        Split.choose(view, choice);
        pack_piece(view, choice);
        let nothing_shares = choice.controls == 0 && choice.messages.is_empty();
        if !nothing_shares && choice.piece.is_some() && view.is_alone() {
            self.other.clear();
            Reorder.choose(view, &mut self.other);
            if predicted_ns(view, &self.other) < predicted_ns(view, choice) {
                std::mem::swap(choice, &mut self.other);
            }
        }
        pack_message(view, choice);
    }
}

/// The sum of the times at which all that waits will have left, if this frame goes first: what it
/// holds, then the other messages, then the long ones.
fn predicted_ns(view: &View<'_>, choice: &Choice) -> u64 {
    let cost = view.link().cost();
    let mut load = Load::default();
    for message in view.messages().take(LOOKAHEAD) {
        match choice.messages.iter().find(|&&(at, _)| at == message.at) {
            Some((_, Carry::Asked)) => load.announce(message.bytes),
            Some((_, Carry::Copied | Carry::Coalesced)) => load.go(message.bytes),
            None => load.wait(message.bytes),
        }
    }
    for stream in view.streams().take(LOOKAHEAD) {
        load.streams += 1;
        load.stream_bytes += stream.left;
    }
    let piece = choice.piece.map_or(0, |piece| piece.len).min(load.stream_bytes);
    let (crossing, compression_ns) = match choice.piece {
        Some(Piece { compressed_max: 1.., .. }) => {
            (view.packing().expected_bytes(piece), view.host().compression_ns(piece as u64))
        }
        Some(Piece { compressed_max: 0, .. }) | None => (piece, 0),
    };
    let frame = choice.controls * packet::CONTROL_MAX + load.frame_bytes + crossing;
    let first_ns = compression_ns + cost.busy_ns(frame as u64);
    let waiting = load.waiting_bytes as u64;
    let then_ns = first_ns + if load.waiting > 0 { cost.busy_ns(waiting) } else { 0 };
    let left = (load.stream_bytes - piece) as u64;
    let last_ns = then_ns + if left > 0 { cost.busy_ns(left) } else { 0 };
    (choice.controls as u64 + load.gone) * first_ns
        + load.waiting * then_ns
        + load.streams * last_ns
}

/// What waits, and what of it the frame takes.
#[derive(Default)]
struct Load {
    frame_bytes: usize,
    gone: u64,
    waiting: u64,
    waiting_bytes: usize,
    streams: u64,
    stream_bytes: usize,
}

impl Load {
    fn go(&mut self, bytes: usize) {
        self.frame_bytes += packet::EAGER_LEN + bytes;
        self.gone += 1;
    }

    fn announce(&mut self, bytes: usize) {
        self.frame_bytes += packet::RTS_LEN;
        self.streams += 1;
        self.stream_bytes += bytes;
    }

    fn wait(&mut self, bytes: usize) {
        self.waiting += 1;
        self.waiting_bytes += packet::EAGER_LEN + bytes;
    }
}

/// How far into the queues the prediction looks.
const LOOKAHEAD: usize = 64;
