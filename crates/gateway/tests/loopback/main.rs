//! Gateways on the loopback, between hosts and callers that may be anybody.

mod carrying;
mod common;
mod hostile;
mod ranks;
