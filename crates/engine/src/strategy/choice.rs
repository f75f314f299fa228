//! What a strategy answers, and the rules it may not break.

use smallvec::SmallVec;
use wire::packet;

use super::view::View;

/// The contents of a frame: control packets, then messages, then a piece of a long one.
#[derive(Debug, Default)]
pub struct Choice {
    /// How many control packets go, the oldest first.
    pub controls: usize,
    /// Messages by their place in the send_queue, in the order in which they go.
    pub messages: SmallVec<[(usize, Carry); 32]>,
    /// The end of the frame.
    pub piece: Option<Piece>,
}

/// How a message leaves the send_queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Whole, copied into the frame's head.
    Copied,
    /// Whole, taken from where it lies: it ends the frame.
    Coalesced,
    /// By a request; its bytes follow when they are asked for, or ahead of that.
    Asked,
}

/// A piece of a long message: what is left of it, up to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The place of the message among the streams; behind them come those that this frame announces.
    pub stream: usize,
    /// Bytes, at most.
    pub len: usize,
    /// The piece goes packed where a piece of that length gets no longer than this by it, in bytes; 0
    /// where it goes as it is. Pieces of less than [`COMPRESS_MIN`] or more than
    /// [`wire::compress::UNPACKED_MAX`] bytes always do.
    ///
    /// [`COMPRESS_MIN`]: super::COMPRESS_MIN
    pub compressed_max: usize,
}

impl Piece {
    /// A piece that goes as it is.
    pub fn plain(stream: usize, len: usize) -> Self {
        Self { stream, len, compressed_max: 0 }
    }
}

/// Which rule a choice breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// More control packets than wait.
    #[error("{chosen} control packets chosen of {waiting}")]
    Controls {
        /// How many were chosen.
        chosen: usize,
        /// How many there are.
        waiting: usize,
    },
    /// A message that is not in the send_queue, or is beyond what the peer can put in order, or comes twice.
    #[error("message {at} of the send_queue is not to be had")]
    Message {
        /// Its place.
        at: usize,
    },
    /// A message before an older one of its context (MPI-5.0 §3.5).
    #[error("message {at} of the send_queue overtakes an older one of its context")]
    Order {
        /// Its place.
        at: usize,
    },
    /// A long message that does not ask, or more without asking than the peer accepts.
    #[error("message {at} of the send_queue must ask: {bytes} bytes where {credit} are accepted")]
    Credit {
        /// Its place.
        at: usize,
        /// Its length.
        bytes: usize,
        /// What the peer still accepts.
        credit: usize,
    },
    /// Something behind what ends the frame.
    #[error("the frame goes on behind a body")]
    Body,
    /// A stream that is not there, or that this link does not carry, or a piece of no bytes.
    #[error("a piece of {len} bytes of stream {stream}")]
    Piece {
        /// The stream's place.
        stream: usize,
        /// The piece's length.
        len: usize,
    },
    /// A piece that goes packed though that makes it longer.
    #[error("a piece of {len} bytes may go packed with {compressed_max}")]
    Packed {
        /// The piece's length.
        len: usize,
        /// Its longest packed.
        compressed_max: usize,
    },
    /// Nothing, where no other link is going to ask for what waits ([`View::is_last`]).
    #[error("nothing chosen of what waits, with every link idle")]
    Nothing,
    /// More than fits.
    #[error("{bytes} bytes in a frame that has room for {room}")]
    Room {
        /// What was chosen.
        bytes: usize,
        /// What the link takes.
        room: usize,
    },
}

impl Choice {
    /// Forgets everything, keeping its allocation.
    pub fn clear(&mut self) {
        self.controls = 0;
        self.messages.clear();
        self.piece = None;
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.controls == 0 && self.messages.is_empty() && self.piece.is_none()
    }

    /// Whether the frame ends in a long payload.
    pub fn has_body(&self) -> bool {
        self.piece.is_some() || self.messages.last().is_some_and(|last| last.1 == Carry::Coalesced)
    }

    /// Checks the choice against what waits and what the link takes.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn check(&self, view: &View<'_>) -> Result<(), Invalid> {
        if self.controls > view.controls() {
            return Err(Invalid::Controls { chosen: self.controls, waiting: view.controls() });
        }
        let messages = if self.messages.is_empty() { 0 } else { self.check_messages(view)? };
        let mut bytes = self.controls * packet::CONTROL_MAX + messages;
        let mut is_nothing = bytes == 0;
        if let Some(Piece { stream, len, compressed_max }) = self.piece {
            let goes_on = view.streams().nth(stream).is_some();
            if !view.takes_pieces()
                || len == 0
                || !goes_on && stream > view.streams().count() + self.asked()
            {
                return Err(Invalid::Piece { stream, len });
            }
            if compressed_max > len - len / 20 {
                return Err(Invalid::Packed { len, compressed_max });
            }
            bytes += packet::DATA_LEN + len;
            is_nothing &= !goes_on;
        }
        if is_nothing && view.is_last() {
            return Err(Invalid::Nothing);
        }
        let room = view.room();
        if bytes > room { Err(Invalid::Room { bytes, room }) } else { Ok(()) }
    }

    /// How many messages this frame announces.
    fn asked(&self) -> usize {
        self.messages.iter().filter(|(_, carry)| *carry == Carry::Asked).count()
    }

    /// Bytes of the messages chosen.
    fn check_messages(&self, view: &View<'_>) -> Result<usize, Invalid> {
        let (mut bytes, mut charged, mut ended, mut in_front) = (0, 0, false, true);
        let limit = view.order_room();
        for (index, &(at, carry)) in self.messages.iter().enumerate() {
            let message = view.message(at).filter(|_| index < limit);
            let message = message.ok_or(Invalid::Message { at })?;
            if ended {
                return Err(Invalid::Body);
            }
            // Chosen from the front without a gap, nothing is overtaken.
            in_front &= at == index;
            if !in_front {
                self.check_order(view, index, at)?;
            }
            bytes += match carry {
                Carry::Asked => packet::RTS_LEN,
                Carry::Copied | Carry::Coalesced => {
                    let credit = view.credit();
                    charged += View::cost_bytes(message.bytes);
                    if charged > credit || !view.is_short(message.bytes) {
                        return Err(Invalid::Credit { at, bytes: message.bytes, credit });
                    }
                    packet::EAGER_LEN + message.bytes
                }
            };
            ended = carry == Carry::Coalesced;
        }
        if ended && self.piece.is_some() { Err(Invalid::Body) } else { Ok(bytes) }
    }

    /// Whether all older messages of the context were chosen before, and this one was not.
    fn check_order(&self, view: &View<'_>, index: usize, at: usize) -> Result<(), Invalid> {
        let before = &self.messages[..index];
        let is_before = |place: usize| before.iter().any(|&(chosen, _)| chosen == place);
        if is_before(at) {
            return Err(Invalid::Message { at });
        }
        let context = view.message(at).map(|message| message.context);
        let older = (0..at).filter(|&place| view.message(place).map(|one| one.context) == context);
        match older.into_iter().all(is_before) {
            true => Ok(()),
            false => Err(Invalid::Order { at }),
        }
    }
}
