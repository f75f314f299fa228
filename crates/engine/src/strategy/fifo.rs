//! One packet a frame, in the order of submission: the reference that optimises nothing.

use wire::packet;

use super::{Carry, Choice, Piece, Strategy, View};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl Strategy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        if view.controls() > 0 {
            choice.controls = 1;
        } else if let Some(message) = view.messages().next() {
            let affordable = View::cost_bytes(message.bytes) <= view.credit();
            let carry = match affordable && view.is_short(message.bytes) {
                true if message.bytes <= view.link().capabilities().inline_max => Carry::Copied,
                true => Carry::Gathered,
                false => Carry::Asked,
            };
            choice.messages.push((message.at, carry));
        } else if view.streams().next().is_some() && view.room() > packet::DATA_LEN {
            choice.piece = Some(Piece::plain(0, view.room() - packet::DATA_LEN));
        }
    }
}
