//! A table that grows without moving what is in it.

use std::ops::{Index, IndexMut};

/// Slots numbered from 0, in blocks of their own.
#[derive(Debug)]
pub(super) struct Blocks<T>(Vec<Box<[T; BLOCK]>>);

impl<T: Default> Blocks<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Allocates blocks up to `slot`.
    #[inline]
    pub fn reach(&mut self, slot: u32) {
        if slot as usize / BLOCK >= self.0.len() {
            self.extend(slot);
        }
    }

    #[cold]
    fn extend(&mut self, slot: u32) {
        let blocks = slot as usize / BLOCK + 1;
        self.0.resize_with(blocks, || Box::new(std::array::from_fn(|_| T::default())));
    }

    /// Number of slots.
    pub fn len(&self) -> u32 {
        (self.0.len() * BLOCK) as u32
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|block| block.iter_mut())
    }
}

impl<T> Index<u32> for Blocks<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        touch();
        &self.0[slot as usize / BLOCK][slot as usize % BLOCK]
    }
}

impl<T> IndexMut<u32> for Blocks<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        touch();
        &mut self.0[slot as usize / BLOCK][slot as usize % BLOCK]
    }
}

#[cfg(not(test))]
#[inline]
fn touch() {}

#[cfg(test)]
fn touch() {
    TOUCHED.set(TOUCHED.get() + 1);
}

#[cfg(test)]
thread_local! {
    /// Number of slot accesses by this thread.
    pub(super) static TOUCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

const BLOCK: usize = 64;
