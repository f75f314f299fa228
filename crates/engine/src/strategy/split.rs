//! One message over several links, in shares that make them finish together; short ones over the link
//! that delivers them first. One that could go whole is shared where it arrives sooner so by a quarter.
//!
//! The shares are computed anew whenever a link asks, from what is left of the message, what the links
//! cost, and what is under way on each (`wire::cost::split`): a link that falls behind gets less, and one
//! that is gone nothing.

use smallvec::SmallVec;
use wire::cost::{are_alike, finish_ns, split};
use wire::{Capabilities, Cost};

use super::aggregate::Budget;
use super::reorder::choose_messages;
use super::{Carry, Choice, LinkView, Piece, Piggyback, Strategy, View, piece_len};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Split;

impl Strategy for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        if view.is_alone() {
            return Piggyback.choose(view, choice);
        }
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        if view.is_stream_due() {
            end_in_share(view, choice, &budget);
        }
        if choice.piece.is_none() && view.is_first() {
            choose_messages(view, choice, &mut budget);
            share_last(view, choice, &mut budget);
        }
        if choice.piece.is_none() && budget.is_open() {
            end_in_share(view, choice, &budget);
        }
    }
}

/// Has the message that would end the frame whole go ahead in shares, where that pays.
fn share_last(view: &View<'_>, choice: &mut Choice, budget: &mut Budget) {
    let Some((at, carry @ Carry::Coalesced)) = choice.messages.last_mut() else { return };
    let Some(bytes) = view.message(*at).map(|message| message.bytes) else { return };
    let Capabilities { rts_data_max, piece_min, .. } = *view.link().capabilities();
    let is_possible = bytes <= rts_data_max && bytes >= 2 * piece_min;
    if is_possible && view.streams().next().is_none() && pays(view, bytes as u64) {
        *carry = Carry::Asked;
        budget.reopen(bytes);
    }
}

/// Whether shares arrive sooner than the whole by the link that asks.
fn pays(view: &View<'_>, bytes: u64) -> bool {
    let links = links(view);
    let shares = split(bytes, &links);
    let last_ns = (0..links.len()).map(|at| finish_ns(links[at], shares[at])).max();
    let whole_ns = finish_ns(links[view.place()], bytes);
    last_ns.is_some_and(|last_ns| last_ns < whole_ns - whole_ns / 4)
}

/// Ends a frame in what the link has to carry of the message whose turn it is.
fn end_in_share(view: &View<'_>, choice: &mut Choice, budget: &Budget) {
    // What is under way is known by whole pieces: short ones, to share the end well.
    let most = PIECES_MIN * view.link().capabilities().piece_min;
    let len = piece_len(view, budget.room).min(most).min(share(view, choice));
    choice.piece = (len > 0).then_some(Piece::plain(0, len));
}

/// The links' costs, and for how long they are busy already.
fn links<'a>(view: &View<'a>) -> SmallVec<[(&'a Cost, u64); 4]> {
    let first = view.link().cost();
    if !are_alike(view.links().map(|link| link.cost())) {
        return view.links().map(|link| (link.cost(), link.backlog_ns())).collect();
    }
    let busy_ns = |link: LinkView<'_>| first.busy_ns(link.backlog_bytes() as u64);
    view.links().map(|link| (first, busy_ns(link))).collect()
}

/// A piece is at most as long as so many of the shortest.
const PIECES_MIN: usize = 4;

/// The share that the link that asks has of what is left of the message whose turn it is, or that this frame
/// announces.
fn share(view: &View<'_>, choice: &Choice) -> usize {
    let stream = view.streams().next().map(|stream| (stream.rest, stream.left));
    let announced = || {
        let (at, _) = choice.messages.iter().find(|(_, carry)| *carry == Carry::Asked)?;
        view.message(*at).map(|message| (message.bytes, message.bytes))
    };
    let Some((rest, left)) = stream.or_else(announced) else { return usize::MAX };
    let links = links(view);
    let shares = split(rest as u64, &links);
    let share = shares[view.place()] as usize;
    if share > 0 {
        return share;
    }
    // What would be late by less than the shortest piece does not wait for the others.
    let last_ns = (0..links.len()).map(|at| finish_ns(links[at], shares[at])).max().unwrap_or(0);
    let (cost, backlog_ns) = links[view.place()];
    let least = view.link().capabilities().piece_min.min(left);
    if backlog_ns + cost.arrival_ns(0) <= last_ns { least } else { 0 }
}
