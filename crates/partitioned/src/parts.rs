//! Building blocks of what threads share. The loom model substitutes its own.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
