//! Aggregation: control packets and short messages share a frame, as many as fit, in order; long
//! data have their own frames (Brunet 2005, §5.2).

use wire::packet;

use super::{Carry, Choice, Message, Piece, Strategy, View, piece_len};

/// Strategy with aggregation. See the module's documentation.
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
            let carry = budget.carry(view, &message);
            if !budget.take(choice, &message, carry) {
                break;
            }
        }
        if choice.is_empty() {
            end_in_piece(view, choice, &budget);
        }
    }
}

/// Ends a frame without a body in a piece of the first stream, or of a message that this frame
/// announces.
pub(super) fn end_in_piece(view: &View<'_>, choice: &mut Choice, budget: &Budget) {
    if budget.is_open() {
        let len = piece_len(view, budget.room);
        choice.piece = (len > 0).then_some(Piece::plain(0, len));
    }
}

/// Gives the frame to the first stream if others have passed it for long enough; false if no stream
/// is due.
pub(super) fn serve_stream(view: &View<'_>, choice: &mut Choice, budget: &Budget) -> bool {
    if view.is_stream_due() {
        end_in_piece(view, choice, budget);
    }
    choice.piece.is_some()
}

/// Remaining room and credit while a frame is being chosen.
pub(super) struct Budget {
    pub room: usize,
    credit: usize,
    /// Bytes of short messages that may still be copied.
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

    /// Method by which a message leaves, given the remaining credit.
    #[inline]
    pub fn carry(&self, view: &View<'_>, message: &Message) -> Carry {
        if message.is_addressed {
            Carry::Inline
        } else if !view.is_short(message.bytes) || message.cost > self.credit {
            Carry::Rts
        } else if message.bytes <= view.link().capabilities().inline_max {
            Carry::Inline
        } else {
            Carry::Body
        }
    }

    /// Adds a message to the frame; false if it does not fit.
    #[inline]
    pub fn take(&mut self, choice: &mut Choice, message: &Message, carry: Carry) -> bool {
        let &Message { at, bytes, cost, .. } = message;
        let needed = match carry {
            Carry::Rts => packet::RTS_LEN,
            Carry::Inline | Carry::Body => packet::EAGER_LEN + bytes,
        };
        // A longer message takes a frame of its own.
        let is_too_much =
            carry == Carry::Inline && needed > self.copies && !choice.messages.is_empty();
        if self.ended || needed > self.room || is_too_much {
            return false;
        }
        self.room -= needed;
        if carry == Carry::Inline {
            self.copies = self.copies.saturating_sub(needed);
        }
        if carry != Carry::Rts {
            self.credit -= cost;
        }
        self.ended = carry == Carry::Body;
        choice.messages.push((at, carry));
        true
    }

    /// Replaces the body that ended the frame by an RTS. Its credit stays charged, for the data
    /// after the RTS.
    pub fn reopen(&mut self, bytes: usize) {
        self.room += packet::EAGER_LEN + bytes - packet::RTS_LEN;
        self.ended = false;
    }

    /// True if something may follow in the frame.
    pub fn is_open(&self) -> bool {
        !self.ended
    }
}
