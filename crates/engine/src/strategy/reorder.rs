//! Reordering: short before long and urgent before bulk, as far as MPI's order allows.
//!
//! Messages of one context leave in order (MPI-5.0 §3.5); those of different contexts need not.
//! Urgent messages go first. A message with a body would end the frame and delay those behind it.
//! Where its data may follow an RTS, it leaves as an RTS, short messages share the frame, and its
//! data follow.
//!
//! The oldest message is overtaken by at most [`OVERTAKEN_MAX`] others, plus those in the frame of
//! the last one. Between two pieces of a long message, at most the data given by
//! [`View::is_stream_due`] leave.

use smallvec::SmallVec;

use super::aggregate::{Budget, end_in_piece, serve_stream};
use super::{Carry, Choice, Message, Strategy, View};

/// Strategy with reordering. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Reorder;

impl Strategy for Reorder {
    fn name(&self) -> &'static str {
        "reorder"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        if serve_stream(view, choice, &budget) {
            return;
        }
        choose_messages(view, choice, &mut budget);
        if choice.is_empty() {
            end_in_piece(view, choice, &budget);
        }
    }
}

/// Fills the frame with messages: urgent ones, then the others, then at most one with a body.
pub(super) fn choose_messages(view: &View<'_>, choice: &mut Choice, budget: &mut Budget) {
    let mut messages = view.messages();
    let Some(first) = messages.next() else { return };
    let Some(second) = messages.next() else {
        let carry = budget.carry(view, &first);
        budget.take(choice, &first, carry);
        return;
    };
    let send_queue: SmallVec<[Message; LOOKAHEAD]> =
        [first, second].into_iter().chain(messages).take(LOOKAHEAD).collect();
    if first.overtaken >= OVERTAKEN_MAX {
        let carry = budget.carry(view, &first);
        budget.take(choice, &first, carry);
    } else if send_queue.iter().any(|message| message.is_urgent) {
        choose_pass(view, choice, budget, &send_queue, |message| message.is_urgent);
    }
    choose_pass(view, choice, budget, &send_queue, |_| true);
}

/// Takes the `wanted` messages in order; a message that does not fit blocks its context.
fn choose_pass(
    view: &View<'_>,
    choice: &mut Choice,
    budget: &mut Budget,
    send_queue: &[Message],
    wanted: impl Fn(&Message) -> bool,
) {
    let may_send_rts_data = view.link().capabilities().rts_data_max > 0;
    let mut held: SmallVec<[u64; 8]> = SmallVec::new();
    let mut last = None;
    for message in send_queue {
        if choice.messages.iter().any(|&(at, _)| at == message.at) {
            continue;
        }
        if held.contains(&message.context) {
            continue;
        }
        if !wanted(message) {
            held.push(message.context);
            continue;
        }
        match budget.carry(view, message) {
            Carry::Body if may_send_rts_data && message.at + 1 < send_queue.len() => {
                if !budget.take(choice, message, Carry::Rts) {
                    held.push(message.context);
                }
            }
            Carry::Body => {
                last = last.or(Some(message));
                held.push(message.context);
            }
            carry @ (Carry::Inline | Carry::Rts) => {
                if !budget.take(choice, message, carry) {
                    held.push(message.context);
                }
            }
        }
    }
    if let Some(message) = last {
        let carry = budget.carry(view, message);
        budget.take(choice, message, carry);
    }
}

/// Number of send queue entries that the strategy looks at.
const LOOKAHEAD: usize = 64;

/// Number of overtaking messages after which a message is next.
pub(super) const OVERTAKEN_MAX: usize = 256;
