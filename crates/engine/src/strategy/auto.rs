//! Automatic strategy: takes the proposal that is predicted to finish the waiting data soonest.
//!
//! A frame arrives as a whole. A short message in a frame with a long piece is as late as the
//! piece; on its own it costs another frame. The better option depends on the link, so both
//! proposals are compared. The measure is the sum, over all waiting data, of the predicted
//! departure times, with compression where it pays. Brunet 2005 asks for this simulator (§4.1,
//! §6.2); equal weights make it Smith's rule.

use wire::packet;

use super::aggregate::{Budget, end_in_piece};
use super::compress::{compress_message, compress_piece};
use super::{Carry, Choice, Piece, Reorder, Split, Strategy, View};

/// Strategy that compares several others. See the module's documentation.
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
            // Only long messages wait, so there is nothing to compare.
            end_in_piece(view, choice, &Budget::new(view));
            return compress_piece(view, choice);
        }
        Split.choose(view, choice);
        compress_piece(view, choice);
        let nothing_shares = choice.controls == 0 && choice.messages.is_empty();
        if !nothing_shares && choice.piece.is_some() && view.is_alone() {
            self.other.clear();
            Reorder.choose(view, &mut self.other);
            if predicted_ns(view, &self.other) < predicted_ns(view, choice) {
                std::mem::swap(choice, &mut self.other);
            }
        }
        compress_message(view, choice);
    }
}

/// Sum of the departure times of all waiting data if this frame goes first, then the other
/// messages, then the long ones.
fn predicted_ns(view: &View<'_>, choice: &Choice) -> u64 {
    let cost = view.link().cost();
    let mut load = Load::default();
    for message in view.messages().take(LOOKAHEAD) {
        match choice.messages.iter().find(|&&(at, _)| at == message.at) {
            Some((_, Carry::Rts)) => load.announce(message.bytes),
            Some((_, Carry::Inline | Carry::Body)) => load.go(message.bytes),
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
            (view.compression().expected_bytes(piece), view.host().compression_ns(piece as u64))
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

/// Waiting data, and the part of them in the frame.
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

/// Number of queue entries that the prediction looks at.
const LOOKAHEAD: usize = 64;
