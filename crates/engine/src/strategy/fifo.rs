//! One packet a frame, in the order of submission: the reference that optimises nothing.

use wire::packet;

use super::aggregate::Budget;
use super::{Choice, Piece, Strategy, View};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl Strategy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn coalesces(&self) -> bool {
        false
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let mut budget = Budget::new(view);
        let message = view.messages().next().filter(|_| !view.is_stream_due());
        if view.controls() > 0 {
            choice.controls = usize::from(budget.room >= packet::CONTROL_MAX);
        } else if let Some(message) = message {
            // What does not fit beside what was coalesced has the next frame.
            let carry = budget.carry(view, message.bytes);
            budget.take(choice, message.at, message.bytes, carry);
        } else if view.streams().next().is_some() && view.room() > packet::DATA_LEN {
            choice.piece = Some(Piece::plain(0, view.room() - packet::DATA_LEN));
        }
    }
}
