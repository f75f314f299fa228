//! Memory of the processes of a node, one part for each.

use std::io;

use memory::Region;
use rail_shm::SharedMemory;

use crate::control::Control;

/// Memory of the processes of a node, one part for each, mapped by all. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    memory: SharedMemory,
    parts: Vec<(usize, usize)>,
}

/// By which the other processes of the node map it.
pub type NodeInvitation = [u8; SharedMemory::INVITATION_LEN];

impl NodeMemory {
    /// Creates zeroed memory with a part of these lengths in bytes for each process of the node, as its first process. If
    /// `is_contiguous`, each part begins where the last one ends; else on a page of its own.
    ///
    /// # Errors
    /// The kernel gives no shared memory.
    pub fn create(lengths: &[u64], is_contiguous: bool) -> io::Result<(Self, NodeInvitation)> {
        let (parts, len) = layout(lengths, is_contiguous)?;
        let (memory, invitation) = SharedMemory::create(len)?;
        Ok((Self { memory, parts }, invitation))
    }

    /// False if the system has not as much memory; short lengths are not compared.
    pub fn is_available(len: usize) -> bool {
        SharedMemory::is_available(len)
    }

    /// Maps the memory of the node's first process.
    ///
    /// # Errors
    /// The kernel does not let this process attach the other's memory.
    pub fn join(
        invitation: NodeInvitation,
        lengths: &[u64],
        is_contiguous: bool,
    ) -> io::Result<Self> {
        let (parts, len) = layout(lengths, is_contiguous)?;
        Ok(Self { memory: SharedMemory::join(invitation, len)?, parts })
    }

    /// Memory of the process at this position in the node.
    pub fn part(&self, position: usize) -> Region {
        let (at, len) = self.parts[position];
        self.memory.region(at, len)
    }

    pub(crate) fn control(&self, position: usize) -> Control {
        Control::Shared(self.memory.clone(), position * Control::LEN)
    }
}

/// Begin and length of each part, and the length of all.
fn layout(lengths: &[u64], is_contiguous: bool) -> io::Result<(Vec<(usize, usize)>, usize)> {
    let too_long = || io::Error::new(io::ErrorKind::OutOfMemory, "more memory than there is");
    let mut at = (lengths.len() * Control::LEN).next_multiple_of(PAGE_LEN);
    let mut parts = Vec::with_capacity(lengths.len());
    for &len in lengths {
        let len = usize::try_from(len).map_err(|_| too_long())?;
        parts.push((at, len));
        at = at.checked_add(len).filter(|end| *end < LEN_MAX).ok_or_else(too_long)?;
        if !is_contiguous {
            at = at.next_multiple_of(PAGE_LEN);
        }
    }
    Ok((parts, at))
}

/// A multiple of a page and of every alignment that a program may ask for.
const PAGE_LEN: usize = 4096;

/// Longest memory that the system can address.
const LEN_MAX: usize = 1 << 47;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_or_begin_on_pages() {
        let lengths = [10, 0, 5000];
        let (memory, invitation) = NodeMemory::create(&lengths, true).unwrap();
        let other = NodeMemory::join(invitation, &lengths, true).unwrap();
        let addresses = |memory: &NodeMemory| {
            [0, 2].map(|part| memory.part(part).as_span().unwrap().address as usize)
        };
        let [first, last] = addresses(&memory);
        assert_eq!((last - first, memory.part(1).len(), memory.part(2).len()), (10, 0, 5000));
        other.part(2).write(0, &[3; 5000]);
        assert_eq!(memory.part(2).to_vec(), [3; 5000]);
        let (memory, _) = NodeMemory::create(&lengths, false).unwrap();
        assert!(addresses(&memory).iter().all(|address| address.is_multiple_of(4096)));
        assert!(NodeMemory::create(&[u64::MAX, 1], true).is_err());
    }
}
