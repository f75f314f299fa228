//! The native interface, as Madeleine 4 has it: messages that are packed and unpacked piece by piece.
//!
//! A sender begins a message on a channel, packs pieces of its memory, each with constraints on how it
//! is read and on when the receiver has it, and ends the message. The receiver unpacks the same pieces
//! in the same order, with the same constraints; it may choose where a piece goes by what it has read
//! in those before (E. Brunet, *Support d'ordonnancement et d'optimisation automatisés des
//! communications pour les réseaux hautes performances*, INRIA RR-5641, 2005, §2.3 and §3).
//!
//! # How a message travels
//!
//! Unlike Madeleine 3's, messages describe themselves. What is packed is written down in *batches*: a
//! record for each packet, in order, with its length and its constraints, and the data of short packets
//! behind their records ([`batch`]). A batch is a message of the engine; it leaves when it is full, when
//! the sender says that it is going to compute or waits here for something, when more is packed behind a
//! long packet, and at the end, so that a message of short packets is one message of the engine however
//! many it has. Batches then share frames with whatever else goes to the same peer. Data of long packets,
//! and of packets that are read late, are messages of the engine each, taken from where they lie.
//!
//! The receiver reads the records first. So it knows what a packet is before it takes it, and an unpack
//! that does not fit changes nothing; and a packet that has come in a batch costs a copy to unpack. Only
//! where a long packet is unpacked before its record has come, memory is offered at once, so that its
//! data go there even where they come in one frame with the record.
//!
//! # Whose packet it is
//!
//! A *connection* is a channel and a peer. Its messages are numbered, and one at a time is packed or
//! unpacked in each direction. A channel has three kinds of contexts, which no communicator has:
//! the first batches of messages, tagged by the message's number; the others, tagged by the low bits of
//! that number and their own; and the data sent apart, tagged by the same bits and the packet's position.
//! The two last have the rest of the message's number in the context ([`channel`]).
#![deny(unsafe_code)]

use std::fmt;

pub mod batch;
pub mod channel;
mod error;
pub mod face;
pub mod packing;
pub mod session;
pub mod unpacking;

pub use channel::{Channel, Node};
pub use error::{Error, Fault, Result};
pub use packing::Packing;
pub use unpacking::Unpacking;

/// When the memory of a packet is read (§2.3.2); as batches have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// Before the pack returns: what is written there later does not change the message.
    Safer = 1,
    /// When the message ends, and not before: what is written there until then is what is sent.
    Later = 2,
    /// At any time until the message has ended; until then it must not change.
    Cheaper = 3,
}

/// When the receiver has the data of a packet (§2.3.2); as batches have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// When the unpack returns.
    Express = 1,
    /// When the unpacking has ended.
    Cheaper = 0,
}

/// Constraints of a packet, the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// On the sender's side.
    pub send: Send,
    /// On the receiver's side.
    pub receive: Receive,
}

impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let send = match self.send {
            Send::Safer => "SAFER",
            Send::Later => "LATER",
            Send::Cheaper => "CHEAPER",
        };
        let receive = match self.receive {
            Receive::Express => "EXPRESS",
            Receive::Cheaper => "CHEAPER",
        };
        write!(f, "{send}, {receive}")
    }
}

/// What the application does after a pack or unpack (§3.1.4). It changes how soon things leave, and
/// nothing else, even where it does not come true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Not said: short packets wait for company, and a long one for the next call on its message.
    Unknown,
    /// Another packet of the same message, at once.
    Packet(Constraints),
    /// It computes: nothing waits.
    Computing,
}
