//! One message over several links, in shares that make them finish together; short ones over the link
//! that delivers them first.

use super::aggregate::Budget;
use super::reorder::{Reorder, choose_messages};
use super::{Choice, Piece, Strategy, View, piece_len};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Split;

impl Strategy for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        if view.links().len() == 1 {
            return Reorder.choose(view, choice);
        }
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        if view.is_first() {
            choose_messages(view, choice, &mut budget);
        }
        if budget.is_open() {
            let len = piece_len(view, budget.room);
            choice.piece = (len > 0).then_some(Piece { stream: 0, len });
        }
    }
}
