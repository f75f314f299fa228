//! Reference strategy without optimisation: one packet per frame, in order of submission.

use wire::packet;

use super::aggregate::Budget;
use super::{Choice, Piece, Strategy, View};

/// Strategy without optimisation. See the module's documentation.
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
            // A message that does not fit beside the coalesced ones takes the next frame.
            let carry = budget.carry(view, &message);
            budget.take(choice, &message, carry);
        } else if view.streams().next().is_some() && view.room() > packet::DATA_LEN {
            choice.piece = Some(Piece::plain(0, view.room() - packet::DATA_LEN));
        }
    }
}
