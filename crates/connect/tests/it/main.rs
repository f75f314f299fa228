//! Connections in virtual time.

mod patience;
