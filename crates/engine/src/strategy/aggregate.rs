//! Control packets and short messages together in one frame, as many as fit, in order; data in frames of
//! its own (Brunet 2005, §5.2).

use wire::packet;

use super::{Carry, Choice, Piece, Strategy, View, piece_len};

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate;

impl Strategy for Aggregate {
    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        let mut budget = Budget::new(view);
        budget.take_controls(view, choice);
        if serve_stream(view, choice, &budget) {
            return;
        }
        for message in view.messages() {
            let carry = budget.carry(view, message.bytes);
            if !budget.take(choice, message.at, message.bytes, carry) {
                break;
            }
        }
        if choice.is_empty() {
            end_in_piece(view, choice, &budget);
        }
    }
}

/// Ends a frame that has no body yet in a piece of the message whose turn it is: one under way, or one
/// that this frame announces.
pub(super) fn end_in_piece(view: &View<'_>, choice: &mut Choice, budget: &Budget) {
    if budget.is_open() {
        let len = piece_len(view, budget.room);
        choice.piece = (len > 0).then_some(Piece::plain(0, len));
    }
}

/// Gives the frame to the long message whose turn it is, where others have passed it for long enough; false
/// where none has to be served.
pub(super) fn serve_stream(view: &View<'_>, choice: &mut Choice, budget: &Budget) -> bool {
    if view.is_stream_due() {
        end_in_piece(view, choice, budget);
    }
    choice.piece.is_some()
}

/// What is left of a frame's room and of the peer's credit while a frame is being chosen.
pub(super) struct Budget {
    pub room: usize,
    credit: usize,
    /// How much of short messages may still be copied.
    copies: usize,
    ended: bool,
}

impl Budget {
    pub fn new(view: &View<'_>) -> Self {
        let copies = view.link().capabilities().aggregate_max;
        Self { room: view.room(), credit: view.credit(), copies, ended: false }
    }

    pub fn take_controls(&mut self, view: &View<'_>, choice: &mut Choice) {
        choice.controls = view.controls().min(self.room / packet::CONTROL_MAX);
        self.room -= choice.controls * packet::CONTROL_MAX;
    }

    /// How a message of so many bytes leaves, as its length and the credit that is left have it.
    #[inline]
    pub fn carry(&self, view: &View<'_>, bytes: usize) -> Carry {
        if !view.is_short(bytes) || View::cost_bytes(bytes) > self.credit {
            Carry::Asked
        } else if bytes <= view.link().capabilities().inline_max {
            Carry::Copied
        } else {
            Carry::Coalesced
        }
    }

    /// Adds a message to the frame; false when it does not fit.
    #[inline]
    pub fn take(&mut self, choice: &mut Choice, at: usize, bytes: usize, carry: Carry) -> bool {
        let needed = match carry {
            Carry::Asked => packet::RTS_LEN,
            Carry::Copied | Carry::Coalesced => packet::EAGER_LEN + bytes,
        };
        // What is longer than that goes alone.
        let is_too_much =
            carry == Carry::Copied && needed > self.copies && !choice.messages.is_empty();
        if self.ended || needed > self.room || is_too_much {
            return false;
        }
        self.room -= needed;
        if carry == Carry::Copied {
            self.copies = self.copies.saturating_sub(needed);
        }
        if carry != Carry::Asked {
            self.credit -= View::cost_bytes(bytes);
        }
        self.ended = carry == Carry::Coalesced;
        choice.messages.push((at, carry));
        true
    }

    /// The message of so many bytes that ended the frame is announced instead. Its credit stays taken, for what goes
    /// ahead.
    pub fn reopen(&mut self, bytes: usize) {
        self.room += packet::EAGER_LEN + bytes - packet::RTS_LEN;
        self.ended = false;
    }

    /// Whether something may follow in the frame.
    pub fn is_open(&self) -> bool {
        !self.ended
    }
}
