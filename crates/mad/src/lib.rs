//! The native interface, with the model of Madeleine 4: messages are packed and unpacked piece by piece.
//!
//! A sender begins a message on a channel, packs pieces of its memory, and ends the message. Each piece has
//! constraints: when the sender's memory is read, and when the receiver has the data. The receiver unpacks the
//! same pieces in the same order with the same constraints. It may choose the place of a piece from the contents
//! of earlier ones (E. Brunet, *Support d'ordonnancement et d'optimisation automatisés des communications pour
//! les réseaux hautes performances*, INRIA RR-5641, 2005, §2.3 and §3).
//!
//! # How a message travels
//!
//! Unlike Madeleine 3's, messages describe themselves. Packing writes *batches* ([`batch`]): for each packet, in
//! order, a record with its length and constraints, followed by the data of short packets. A batch is one message
//! of the engine. It is sent when it is full, when the sender is about to compute or waits here, when a packet
//! follows a long one, and at the end of the message. Therefore a message of short packets is a single message of
//! the engine. Batches share frames with other messages to the same peer. Data of long packets, and of packets
//! that are read late, are separate messages of the engine, sent without a copy.
//!
//! The receiver reads the records first. It knows a packet before it takes it, and an unpack that does not fit
//! changes nothing. Unpacking a packet from a batch costs one copy. If a long packet is unpacked before its record
//! has arrived, its memory is offered at once. Its data are then received in place, even if they arrive in one
//! frame with the record.
//!
//! # Contexts and tags
//!
//! A *connection* is a channel and a peer. Its messages are numbered, and one at a time is packed or unpacked in
//! each direction. A channel has three kinds of contexts, which no communicator uses:
//!
//! - the first batches of messages, tagged by the message's number;
//! - further batches, tagged by the low bits of that number and the batch's number;
//! - separate data, tagged by the same low bits and the packet's position.
//!
//! The last two have the other bits of the message's number in the context ([`channel`]).
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

/// Hint for the application's next step after a pack or unpack (§3.1.4). It only affects when data are sent, even
/// if it turns out wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Not said: short packets wait for company, and a long one for the next call on its message.
    Unknown,
    /// Another packet of the same message, at once.
    Packet(Constraints),
    /// It computes: nothing waits.
    Computing,
}
