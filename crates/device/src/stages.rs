//! Host memory that devices copy fast, kept for reuse.

use std::sync::{Arc, Mutex, PoisonError};

use memory::Keeper;
use memory::device::HostStage;

/// Memory by its size: 4 KiB, 8 KiB and so on. It is never given back to the system: that may take as long as to get it.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    unused: Mutex<Unused>,
}

#[derive(Debug, Default)]
struct Unused {
    by_class: [Vec<usize>; CLASSES],
    /// Bytes that were allocated.
    bytes: usize,
}

/// Gives memory back when the last region of it is gone.
#[derive(Debug)]
struct Kept {
    stages: Arc<Stages>,
    class: usize,
    address: usize,
}

impl Keeper for Kept {}

impl Stages {
    /// Takes memory of `len` bytes, which `allocate` makes if there is none; none if that fails, or too much is in use.
    pub fn take(
        this: &Arc<Self>,
        len: usize,
        allocate: impl FnOnce(usize) -> Option<*mut u8>,
    ) -> Option<HostStage> {
        let class = (len.max(SMALLEST).next_power_of_two() / SMALLEST).ilog2() as usize;
        let room = SMALLEST << class;
        let known = {
            let mut unused = this.unused.lock().unwrap_or_else(PoisonError::into_inner);
            let known = unused.by_class.get_mut(class)?.pop();
            if known.is_none() {
                if unused.bytes + room > BYTES_MAX {
                    return None;
                }
                unused.bytes += room;
            }
            known
        };
        let address = match known {
            Some(address) => address as *mut u8,
            None => allocate(room).or_else(|| {
                this.unused.lock().unwrap_or_else(PoisonError::into_inner).bytes -= room;
                None
            })?,
        };
        let kept = Kept { stages: Arc::clone(this), class, address: address as usize };
        // SAFETY: the memory has room for so many bytes, and is nobody else's until the keeper is dropped.
        Some(unsafe { HostStage::new(address, len, Arc::new(kept)) })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut unused = self.stages.unused.lock().unwrap_or_else(PoisonError::into_inner);
        unused.by_class[self.class].push(self.address);
    }
}

/// Smallest memory in bytes.
const SMALLEST: usize = 4 << 10;
/// Number of sizes: up to 1 MiB.
const CLASSES: usize = 9;
/// Memory of all sizes in bytes.
const BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(len: usize) -> Option<*mut u8> {
        Some(Box::leak(vec![0; len].into_boxed_slice()).as_mut_ptr())
    }

    #[test]
    fn memory_is_used_again_and_bounded() {
        let stages = Arc::<Stages>::default();
        drop(Stages::take(&stages, 5000, allocate));
        let again = Stages::take(&stages, 8192, |_| panic!("there is some"));
        let mut is_made = false;
        let other = Stages::take(&stages, 8192, |len| {
            is_made = true;
            allocate(len)
        });
        assert!(again.is_some() && other.is_some() && is_made);
        drop((again, other));
        let held: Vec<_> =
            std::iter::from_fn(|| Stages::take(&stages, 1 << 20, allocate)).collect();
        assert_eq!(held.len(), 63);
        assert!(Stages::take(&stages, (1 << 20) + 1, allocate).is_none());
        drop(held);
        assert!(Stages::take(&stages, 1 << 20, |_| panic!("there is some")).is_some());
    }
}
