//! Short before long, urgent before bulk, as far as MPI's order allows.
//!
//! Messages of one context leave in order (MPI-5.0 §3.5); those of different contexts need not. What is
//! urgent goes first. A message with a body of its own would end the frame and hold up what is behind
//! it: where its bytes may go ahead of being asked for, it leaves as a request, the short ones share the
//! frame, and its bytes follow.
//!
//! The oldest message is overtaken by no more than [`OVERTAKEN_MAX`] others and what shares a frame with the last
//! of them, and between two pieces of a long one leaves no more than [`View::is_stream_due`] says.

use smallvec::SmallVec;

use super::aggregate::{Budget, end_in_piece, serve_stream};
use super::{Carry, Choice, Message, Strategy, View};

/// See the module's documentation.
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
        let carry = budget.carry(view, first.bytes);
        budget.take(choice, first.at, first.bytes, carry);
        return;
    };
    let send_queue: SmallVec<[Message; LOOKAHEAD]> =
        [first, second].into_iter().chain(messages).take(LOOKAHEAD).collect();
    if first.overtaken >= OVERTAKEN_MAX {
        let carry = budget.carry(view, first.bytes);
        budget.take(choice, first.at, first.bytes, carry);
    } else if send_queue.iter().any(|message| message.is_urgent) {
        choose_pass(view, choice, budget, &send_queue, |message| message.is_urgent);
    }
    choose_pass(view, choice, budget, &send_queue, |_| true);
}

/// Takes the messages that are `wanted`, in order; what cannot be taken holds up its context.
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
        match budget.carry(view, message.bytes) {
            Carry::Coalesced if may_send_rts_data && message.at + 1 < send_queue.len() => {
                if !budget.take(choice, message.at, message.bytes, Carry::Asked) {
                    held.push(message.context);
                }
            }
            Carry::Coalesced => {
                last = last.or(Some(message));
                held.push(message.context);
            }
            carry @ (Carry::Copied | Carry::Asked) => {
                if !budget.take(choice, message.at, message.bytes, carry) {
                    held.push(message.context);
                }
            }
        }
    }
    if let Some(message) = last {
        let carry = budget.carry(view, message.bytes);
        budget.take(choice, message.at, message.bytes, carry);
    }
}

/// How far into the send_queue the strategy looks.
const LOOKAHEAD: usize = 64;

/// A message that so many have overtaken is the next.
pub(super) const OVERTAKEN_MAX: usize = 256;
