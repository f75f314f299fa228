//! Choice of a strategy, and the rules for it.

use smallvec::SmallVec;
use wire::packet;

use super::view::View;

/// Contents of a frame: control packets, then messages, then a piece of a long message.
#[derive(Debug, Default)]
pub struct Choice {
    /// Number of control packets, oldest first.
    pub controls: usize,
    /// Messages by their index in the send queue, in the order in which they leave.
    pub messages: SmallVec<[(usize, Carry); 32]>,
    /// Piece at the end of the frame.
    pub piece: Option<Piece>,
}

/// Method by which a message leaves the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// Eager, copied into the frame's head.
    Inline,
    /// Eager, as the frame's body, sent from its own memory.
    Body,
    /// RTS; the data follow after the CTS, or before it as far as credits allow.
    Rts,
}

/// A piece of a long message, up to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the message among the streams, followed by those that this frame announces.
    pub stream: usize,
    /// Maximal number of bytes.
    pub len: usize,
    /// Longest compressed size for which the piece is sent compressed, in bytes; 0 for no compression.
    /// Pieces of less than [`COMPRESS_MIN`] or more than [`wire::compress::UNCOMPRESSED_MAX`] bytes are
    /// never compressed.
    ///
    /// [`COMPRESS_MIN`]: super::COMPRESS_MIN
    pub compressed_max: usize,
}

impl Piece {
    /// Creates an uncompressed piece.
    pub fn plain(stream: usize, len: usize) -> Self {
        Self { stream, len, compressed_max: 0 }
    }
}

/// Rule that a choice breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// More control packets were chosen than wait.
    #[error("{chosen} control packets chosen of {waiting}")]
    Controls {
        /// Number chosen.
        chosen: usize,
        /// Number waiting.
        waiting: usize,
    },
    /// A message is not in the send queue, beyond what the peer can put in order, or chosen twice.
    #[error("message {at} of the send_queue is not to be had")]
    Message {
        /// Index of the message.
        at: usize,
    },
    /// A message overtakes an older one of its context (MPI-5.0 §3.5).
    #[error("message {at} of the send_queue overtakes an older one of its context")]
    Order {
        /// Index of the message.
        at: usize,
    },
    /// An eager message is too long, or exceeds the credit.
    #[error("message {at} of the send_queue must ask: {bytes} bytes where {credit} are accepted")]
    Credit {
        /// Index of the message.
        at: usize,
        /// Length of the message.
        bytes: usize,
        /// Remaining credit of the peer.
        credit: usize,
    },
    /// Addressed traffic does not leave inline.
    #[error("addressed traffic {at} of the send_queue does not leave inline")]
    Addressed {
        /// Index in the send queue.
        at: usize,
    },
    /// Something follows the body that ends the frame.
    #[error("the frame goes on behind a body")]
    Body,
    /// A stream does not exist or is not carried by this link, or the piece is empty.
    #[error("a piece of {len} bytes of stream {stream}")]
    Piece {
        /// Index of the stream.
        stream: usize,
        /// Length of the piece.
        len: usize,
    },
    /// A compressed piece may be longer than the original.
    #[error("a piece of {len} bytes may be compressed to {compressed_max}")]
    Compressed {
        /// Length of the piece.
        len: usize,
        /// Maximal compressed length.
        compressed_max: usize,
    },
    /// Nothing was chosen, and no other link will ask for the waiting data ([`View::is_last`]).
    #[error("nothing chosen of what waits, with every link idle")]
    Nothing,
    /// The chosen packets do not fit.
    #[error("{bytes} bytes in a frame that has room for {room}")]
    Room {
        /// Bytes chosen.
        bytes: usize,
        /// Bytes that fit.
        room: usize,
    },
}

impl Choice {
    /// Empties the choice, record its allocation.
    pub fn clear(&mut self) {
        self.controls = 0;
        self.messages.clear();
        self.piece = None;
    }

    /// True if nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.controls == 0 && self.messages.is_empty() && self.piece.is_none()
    }

    /// True if the frame ends in a long payload.
    pub fn has_body(&self) -> bool {
        self.piece.is_some() || self.messages.last().is_some_and(|last| last.1 == Carry::Body)
    }

    /// Checks the choice against the waiting data and the link's limits.
    ///
    /// # Errors
    /// Returns the first broken rule.
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
                || !goes_on && stream > view.streams().count() + self.rts_count()
            {
                return Err(Invalid::Piece { stream, len });
            }
            if compressed_max > len - len / 20 {
                return Err(Invalid::Compressed { len, compressed_max });
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

    /// Number of messages that this frame announces.
    fn rts_count(&self) -> usize {
        self.messages.iter().filter(|(_, carry)| *carry == Carry::Rts).count()
    }

    /// Bytes of the chosen messages.
    fn check_messages(&self, view: &View<'_>) -> Result<usize, Invalid> {
        let (mut bytes, mut charged, mut ended, mut in_front) = (0, 0, false, true);
        let limit = view.order_room();
        for (index, &(at, carry)) in self.messages.iter().enumerate() {
            let message = view.message(at).filter(|_| index < limit);
            let message = message.ok_or(Invalid::Message { at })?;
            if ended {
                return Err(Invalid::Body);
            }
            // Messages chosen from the front without a gap overtake nothing.
            in_front &= at == index;
            if !in_front {
                self.check_order(view, index, at)?;
            }
            bytes += match carry {
                Carry::Rts | Carry::Body if message.is_addressed => {
                    return Err(Invalid::Addressed { at });
                }
                Carry::Rts => packet::RTS_LEN,
                Carry::Inline | Carry::Body => {
                    let credit = view.credit();
                    charged += message.cost;
                    let is_short = message.is_addressed || view.is_short(message.bytes);
                    if charged > credit || !is_short {
                        return Err(Invalid::Credit { at, bytes: message.bytes, credit });
                    }
                    packet::EAGER_LEN + message.bytes
                }
            };
            ended = carry == Carry::Body;
        }
        if ended && self.piece.is_some() { Err(Invalid::Body) } else { Ok(bytes) }
    }

    /// Checks that all older messages of the context were chosen before, and this one was not.
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
