//! The communication engine of one process: windows, matching, eager and rendezvous, credits.
//!
//! Pure: time, frames and events come in, frames and completions go out; it has no clock, socket,
//! thread or environment, and is called under one lock by `progress`.
//!
//! * Commands: [`Engine::submit_send`], [`Engine::submit_receive`], the probes; an [`OpId`] names what
//!   was submitted until [`Engine::take`] returns its [`Completion`].
//! * Outputs, asked for after every command and event: [`Engine::poll_connect`],
//!   [`Engine::poll_peer`] with [`Engine::poll_frame`] and [`Engine::handle_posted`],
//!   [`Engine::poll_remote_read`].
//! * Events: `handle_up`, `handle_frame`, `handle_sent`, `handle_room`, `handle_remote_read_done`,
//!   `handle_down`.
//!
//! # A message
//! A short one goes *eager*, as far as the peer's credits allow: its bytes travel with its envelope and
//! wait at the receiver if no receive is posted. Beyond the credits it asks, and the receiver takes it in
//! before its receive if the process's budget allows. A long one asks first (*rendezvous*): the receiver,
//! once matched, fetches it from the sender's memory where the rail can, or clears the sender to
//! stream it; on links where asking takes long, its beginning goes ahead of the clear, as far as credits
//! allow. Everything for one peer passes the peer's send_queue, from which an idle rail takes the
//! next frame: control first, then short messages together, then one long piece at the end.
//!
//! # Order
//! MPI orders messages by communicator and source (MPI-5.0 §3.5). Matching-bearing packets carry one
//! sequence per peer, which is stronger, costs one comparison on an ordered rail, and lets the
//! receiver put in order what several rails delivered.
#![forbid(unsafe_code)]

mod compress;
mod emit;
mod engine;
mod link;
mod matching;
mod op;
mod peer;
mod replay_buffer;
mod rts_data;
mod send_observer;
pub mod strategy;

pub use engine::{
    BUDGET_BYTES, CLOSES, Config, Counters, Engine, Loss, Overdue, PATIENCE_NS, PeerError, Posted,
    RemoteRead, RemoteReadId,
};
pub use matching::{MatchedId, Message, Selector};
pub use op::{Completion, Envelope, OpId, Outcome, SendMode};
pub use send_observer::SendObserver;
