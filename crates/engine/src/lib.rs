//! Communication engine of one process: send queues, matching, eager and rendezvous protocols, credits.
//!
//! The engine is pure: it takes time, frames and events, and returns frames and completions. It has no
//! clock, socket, thread or environment. `progress` calls it under one lock.
//!
//! * Commands: [`Engine::submit_send`], [`Engine::submit_receive`], the probes. An [`OpId`] identifies
//!   the operation until [`Engine::take`] returns its [`Completion`].
//! * Outputs, polled after every command and event: [`Engine::poll_connect`],
//!   [`Engine::poll_peer`] with [`Engine::poll_frame`] and [`Engine::handle_posted`],
//!   [`Engine::poll_remote_read`].
//! * Events: `handle_up`, `handle_frame`, `handle_sent`, `handle_room`, `handle_remote_read_done`,
//!   `handle_down`.
//!
//! # A message
//! A short message is sent *eagerly*, as far as the peer's credits allow. Its data travel with its
//! envelope, and wait at the receiver if no receive is posted. Without credit it sends an RTS, and the
//! receiver grants it before its receive if the process's budget allows.
//!
//! A long message sends an RTS first (*rendezvous*). After the match, the receiver reads the sender's
//! memory if the rail can, or sends a CTS and the sender streams the data. On links with a long round
//! trip, data follow the RTS before the CTS, as far as credits allow.
//!
//! All messages for one peer pass its send queue. An idle rail takes the next frame from it: control
//! first, then short messages together, then one long piece at the end.
//!
//! # Addressed traffic
//! A process exposes memory ([`Engine::expose`]), and peers put to it and get from it by its key. A call
//! runs a [`Handler`] of the peer. A flush completes once the peer has applied what was submitted before.
//!
//! # Order
//! MPI orders messages by communicator and source (MPI-5.0 §3.5). Matching-bearing packets carry one
//! sequence number per peer, which is stronger. It costs one comparison on an ordered rail, and the
//! receiver restores the order of messages from several rails.
#![forbid(unsafe_code)]

mod addressed;
mod compress;
mod counters;
mod emit;
mod end_marks;
mod ends;
mod engine;
mod exposed;
mod link;
mod matching;
mod op;
mod peer;
mod pending;
mod pending_op;
mod replay_buffer;
mod revocation;
mod rts_data;
mod send_observer;
pub mod strategy;

pub use emit::Short;
pub use end_marks::EndMarks;
pub use ends::{EndMark, EndQueueId};
pub use engine::{
    BUDGET_BYTES, Config, Counters, Engine, Loss, Peak, PeerError, Posted, RemoteRead, RemoteReadId,
};
pub use exposed::{
    CALL_MAX, CallError, ExposedMemory, Handler, HandlerId, IncomingCall, PutTo, Replies, ReplyTo,
    Wanted,
};
pub use matching::{MatchedId, Message, Selector};
pub use op::{Completion, Envelope, OpId, Outcome, SendMode};
pub use pending_op::{PendingOp, QueueLengths};
pub use revocation::{Revocation, RevokedBy};
pub use send_observer::SendObserver;
