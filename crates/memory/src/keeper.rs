//! Owners of memory that regions describe.

/// Object that keeps memory alive while it lives.
pub trait Keeper: std::fmt::Debug + Send + Sync + std::panic::RefUnwindSafe {}
