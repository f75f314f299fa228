//! Gateways on the loopback, between hosts and callers that may be anybody.

mod carrying;
mod common;
mod half_open;
mod hostile;
#[path = "../../../../crates/rail-quic/tests/initials/mod.rs"]
mod initials;
mod path_costs;
mod ranks;
