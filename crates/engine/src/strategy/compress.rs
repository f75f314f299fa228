//! Compression of data on slow links, where it is predicted to make them arrive sooner.
//!
//! Compression takes the sender's time, which is free while the link has a queue. Decompression
//! takes the receiver's time, and on an oversubscribed node everybody's. In return less data cross
//! the link (`cost::HostCost::compressed_max`). The ratio is predicted from recent pieces
//! ([`Compression`](super::Compression)). A message that would be the body of a frame becomes an
//! RTS with a compressed piece in the same frame.
//!
//! Only links that report their cost count as slow; shared memory does not.

use wire::packet;

use super::{COMPRESS_MIN, Carry, Choice, Piece, Split, Strategy, View};

/// Strategy with compression. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Compress;

impl Strategy for Compress {
    fn name(&self) -> &'static str {
        "compress"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        Split.choose(view, choice);
        compress_piece(view, choice);
        compress_message(view, choice);
    }
}

/// Marks a frame's piece for compression where that pays.
pub(super) fn compress_piece(view: &View<'_>, choice: &mut Choice) {
    let Some(piece) = choice.piece.filter(|_| view.link().capabilities().adapts) else { return };
    // A message announced in this frame is assumed to be long; its state is known once the frame is
    // built.
    let left = view.streams().nth(piece.stream).map_or(piece.len, |stream| stream.left);
    let len = piece.len.min(left);
    if len > 0 {
        choice.piece = Some(Piece { len, compressed_max: compressed_max(view, len), ..piece });
    }
}

/// Turns the message at a frame's end into an RTS with a compressed piece, where that pays.
pub(super) fn compress_message(view: &View<'_>, choice: &mut Choice) {
    let Some((&mut (at, ref mut carry), before)) = choice.messages.split_last_mut() else { return };
    if *carry != Carry::Body {
        return;
    }
    let Some(message) = view.message(at) else { return };
    let shares = |&(at, carry): &(usize, Carry)| match carry {
        Carry::Rts => packet::RTS_LEN,
        Carry::Inline | Carry::Body => {
            packet::EAGER_LEN + view.message(at).map_or(0, |message| message.bytes)
        }
    };
    let others = before.iter().map(shares).sum::<usize>() + choice.controls * packet::CONTROL_MAX;
    let len = message.bytes;
    let fits = others + packet::RTS_LEN + packet::DATA_LEN + len <= view.room();
    if !fits || len > view.link().capabilities().rts_data_max {
        return;
    }
    let compressed_max = compressed_max(view, len);
    if compressed_max > 0 {
        *carry = Carry::Rts;
        let asked = before.iter().filter(|(_, carry)| *carry == Carry::Rts).count();
        let stream = view.streams().count() + asked;
        choice.piece = Some(Piece { stream, len, compressed_max });
    }
}

/// Compressed size at which `bytes` bytes pay on the asking link; 0 if no gain is expected.
fn compressed_max(view: &View<'_>, bytes: usize) -> usize {
    let link = view.link();
    if bytes < COMPRESS_MIN || !link.capabilities().adapts {
        return 0;
    }
    let most = view.host().compressed_max(
        link.cost(),
        bytes as u64,
        link.queue_ns(),
        view.is_oversubscribed(),
    );
    let (most, compression) = (most as usize, view.compression());
    if compression.expected_bytes(bytes) <= most || compression.is_trial_due() { most } else { 0 }
}
