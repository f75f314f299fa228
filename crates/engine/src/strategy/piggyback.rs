//! Piggybacking of RTS and CTS on frames with data: a rendezvous takes no frame of its own for its
//! control packets (Brunet 2005, §5.3).

use super::aggregate::{Budget, end_in_piece, serve_stream};
use super::reorder::choose_messages;
use super::{Choice, Strategy, View};

/// Strategy with piggybacking. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Piggyback;

impl Strategy for Piggyback {
    fn name(&self) -> &'static str {
        "piggyback"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        if serve_stream(view, choice, &budget) {
            return;
        }
        choose_messages(view, choice, &mut budget);
        end_in_piece(view, choice, &budget);
    }
}
