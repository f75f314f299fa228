//! Splitting of a message over several links, in shares that finish together; short messages use
//! the fastest link. A message that could be eager is split if it arrives a quarter sooner.
//!
//! Shares are computed anew whenever a link asks: from the rest of the message, the links' costs,
//! and the data in flight on each (`cost::split`). A link that falls behind gets less, a lost
//! one nothing.

use cost::{Cost, are_alike, finish_ns, split};
use smallvec::SmallVec;
use wire::Capabilities;

use super::aggregate::Budget;
use super::reorder::choose_messages;
use super::{Carry, Choice, LinkView, Piece, Piggyback, Strategy, View, piece_len};

/// Strategy with splitting. See the module's documentation.
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

/// Turns the message at the frame's end into an RTS with shares, where that pays.
fn share_last(view: &View<'_>, choice: &mut Choice, budget: &mut Budget) {
    let Some((at, carry @ Carry::Body)) = choice.messages.last_mut() else { return };
    let Some(bytes) = view.message(*at).map(|message| message.bytes) else { return };
    let Capabilities { rts_data_max, piece_min, .. } = *view.link().capabilities();
    let is_possible = bytes <= rts_data_max && bytes >= 2 * piece_min;
    if is_possible && view.streams().next().is_none() && pays(view, bytes as u64) {
        *carry = Carry::Rts;
        budget.reopen(bytes);
    }
}

/// True if shares arrive sooner than the whole message over the asking link.
fn pays(view: &View<'_>, bytes: u64) -> bool {
    let links = links(view);
    let shares = split(bytes, &links);
    let last_ns = (0..links.len()).map(|at| finish_ns(links[at], shares[at])).max();
    let whole_ns = finish_ns(links[view.place()], bytes);
    last_ns.is_some_and(|last_ns| last_ns < whole_ns - whole_ns / 4)
}

/// Ends a frame in the asking link's share of the first stream.
fn end_in_share(view: &View<'_>, choice: &mut Choice, budget: &Budget) {
    // In-flight data are known by whole pieces; short ones let the end be shared well.
    let most = PIECES_MIN * view.link().capabilities().piece_min;
    let len = piece_len(view, budget.room).min(most).min(share(view, choice));
    choice.piece = (len > 0).then_some(Piece::plain(0, len));
}

/// Links' costs and remaining busy times.
fn links<'a>(view: &View<'a>) -> SmallVec<[(&'a Cost, u64); 4]> {
    let first = view.link().cost();
    if !are_alike(view.links().map(|link| link.cost())) {
        return view.links().map(|link| (link.cost(), link.backlog_ns())).collect();
    }
    let busy_ns = |link: LinkView<'_>| first.busy_ns(link.backlog_bytes() as u64);
    view.links().map(|link| (first, busy_ns(link))).collect()
}

/// Maximal piece length in units of the shortest.
const PIECES_MIN: usize = 4;

/// Asking link's share of the rest of the first stream, or of a message announced in this frame.
fn share(view: &View<'_>, choice: &Choice) -> usize {
    let stream = view.streams().next().map(|stream| (stream.rest, stream.left));
    let announced = || {
        let (at, _) = choice.messages.iter().find(|(_, carry)| *carry == Carry::Rts)?;
        view.message(*at).map(|message| (message.bytes, message.bytes))
    };
    let Some((rest, left)) = stream.or_else(announced) else { return usize::MAX };
    let links = links(view);
    let shares = split(rest as u64, &links);
    let share = shares[view.place()] as usize;
    if share > 0 {
        return share;
    }
    // A delay of less than the shortest piece is not worth leaving to the others.
    let last_ns = (0..links.len()).map(|at| finish_ns(links[at], shares[at])).max().unwrap_or(0);
    let (cost, backlog_ns) = links[view.place()];
    let least = view.link().capabilities().piece_min.min(left);
    if backlog_ns + cost.arrival_ns(0) <= last_ns { least } else { 0 }
}
