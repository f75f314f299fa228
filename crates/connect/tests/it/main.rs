//! Connections in virtual time.

mod network;
mod patience;
mod random_networks;
