//! Requests and answers of rendezvous ride on frames that carry data, before it: a long message costs no
//! frame of its own to be announced or cleared (Brunet 2005, §5.3).

use super::aggregate::Budget;
use super::{Choice, Piece, Strategy, View, piece_len};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Piggyback;

impl Strategy for Piggyback {
    fn name(&self) -> &'static str {
        "piggyback"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        for message in view.messages() {
            let carry = budget.carry(view, message.bytes);
            if !budget.take(choice, message.at, message.bytes, carry) {
                break;
            }
        }
        end_in_piece(view, choice, &budget);
    }
}

/// Ends a frame that has no body yet in a piece of the message whose turn it is: one under way, or one
/// that this frame announces.
pub(super) fn end_in_piece(view: &View<'_>, choice: &mut Choice, budget: &Budget) {
    if budget.is_open() {
        let len = piece_len(view, budget.room);
        choice.piece = (len > 0).then_some(Piece { stream: 0, len });
    }
}
