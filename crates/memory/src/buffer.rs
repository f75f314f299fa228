//! Memory that regions own.

use std::sync::Arc;

use crate::scratch;

/// Memory owned by the library itself (temporaries, buffered sends, shared memory).
#[derive(Debug)]
pub(crate) struct Buffer {
    pub address: *mut u8,
    pub len: usize,
    pub owner: BufferOwner,
}

/// Owner of a buffer's memory.
#[derive(Debug)]
pub(crate) enum BufferOwner {
    /// The allocator.
    Allocator,
    /// The memory that is reused.
    Scratch,
    /// An object that keeps it mapped.
    Keeper(#[expect(dead_code, reason = "only its drop matters")] Arc<dyn Keeper>),
}

/// Object that keeps memory alive while it lives.
pub trait Keeper: std::fmt::Debug + Send + Sync + std::panic::RefUnwindSafe {}

// SAFETY: a buffer owns its memory and never reads it; regions control the access.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only gives its address; regions control the access.
unsafe impl Sync for Buffer {}
impl Buffer {
    pub fn new(data: Box<[u8]>, owner: BufferOwner) -> Arc<Self> {
        let len = data.len();
        let address = Box::into_raw(data).cast::<u8>();
        Arc::new(Self { address, len, owner })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let is_scratch = match self.owner {
            BufferOwner::Allocator => false,
            BufferOwner::Scratch => true,
            BufferOwner::Keeper(_) => return,
        };
        let slice = std::ptr::slice_from_raw_parts_mut(self.address, self.len);
        // SAFETY: address and length come from `Box::into_raw` in `Buffer::new`, and this is the
        // last reference.
        let data = unsafe { Box::from_raw(slice) };
        if is_scratch {
            scratch::give(data);
        }
    }
}
