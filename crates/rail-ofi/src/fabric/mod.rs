//! The endpoint of libfabric: the only place of this crate with unsafe code.
#![allow(unsafe_code)]

mod endpoint;
mod layout;
#[cfg(test)]
mod layout_tests;
mod library;

pub(crate) use endpoint::{Completion, Destination, Endpoint, Received, SendFailure, SendRefusal};
pub(crate) use library::{Provider, socket_address};
