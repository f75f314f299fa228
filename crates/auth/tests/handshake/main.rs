//! The handshake in virtual time: honest and hostile ends, with networks that cut, change, repeat and reorder bytes.

mod attempts;
mod hostile;
mod other_jobs;
mod pipe;
