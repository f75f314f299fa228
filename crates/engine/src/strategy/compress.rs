//! Data on slow links packed, where that is predicted to make it arrive sooner.
//!
//! Compression takes the sender's time, which is free as long as the link has a queue; unpacking takes the
//! receiver's, and where others want the cores everybody's; in return less crosses the link (`wire::HostCost::compressed_max`). Whether the data gets
//! short enough, the last pieces tell ([`Compression`](super::Compression)). A message that would go whole as the
//! body of a frame goes ahead as a packed piece instead, in the same frame as its request.
//!
//! Only links that say what they cost are slow: memory is not.

use wire::packet;

use super::{COMPRESS_MIN, Carry, Choice, Piece, Split, Strategy, View};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Compress;

impl Strategy for Compress {
    fn name(&self) -> &'static str {
        "compress"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        Split.choose(view, choice);
        pack_piece(view, choice);
        pack_message(view, choice);
    }
}

/// Lets a frame's piece go packed where that pays.
pub(super) fn pack_piece(view: &View<'_>, choice: &mut Choice) {
    let Some(piece) = choice.piece.filter(|_| view.link().capabilities().adapts) else { return };
    // What this frame announces is known when it has been built: it is taken to be long.
    let left = view.streams().nth(piece.stream).map_or(piece.len, |stream| stream.left);
    let len = piece.len.min(left);
    if len > 0 {
        choice.piece = Some(Piece { len, compressed_max: compressed_max(view, len), ..piece });
    }
}

/// Lets the message that ends a frame go ahead, packed, where that pays.
pub(super) fn pack_message(view: &View<'_>, choice: &mut Choice) {
    let Some((&mut (at, ref mut carry), before)) = choice.messages.split_last_mut() else { return };
    if *carry != Carry::Coalesced {
        return;
    }
    let Some(message) = view.message(at) else { return };
    let shares = |&(at, carry): &(usize, Carry)| match carry {
        Carry::Asked => packet::RTS_LEN,
        Carry::Copied | Carry::Coalesced => {
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
        *carry = Carry::Asked;
        let asked = before.iter().filter(|(_, carry)| *carry == Carry::Asked).count();
        let stream = view.streams().count() + asked;
        choice.piece = Some(Piece { stream, len, compressed_max });
    }
}

/// How short packing must make so many bytes to pay on the link that asks; 0 where it is not expected to.
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
    let (most, packing) = (most as usize, view.packing());
    if packing.expected_bytes(bytes) <= most || packing.is_trial_due() { most } else { 0 }
}
