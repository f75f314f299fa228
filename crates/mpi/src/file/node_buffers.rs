//! Windows of files in memory that the processes of a node share.

use memory::Region;
use rma::NodeMemory;

use crate::Result;
use crate::comm::Comm;
use crate::window::node_memory;

/// Memory that all processes of a file share. Each has two windows: while it accesses the file with one, the others copy
/// to or from the other one.
#[derive(Clone, Debug)]
pub(super) struct NodeBuffers {
    memory: NodeMemory,
    window_bytes: usize,
}

impl NodeBuffers {
    /// Makes the memory (collective). None if the processes cannot share it.
    pub fn make(comm: &Comm, window_bytes: u64) -> Result<Option<Self>> {
        let window_bytes = window_bytes as usize;
        let memory = node_memory(comm, 2 * (window_bytes + END_LEN) as u64)?;
        Ok(memory.map(|memory| Self { memory, window_bytes }))
    }

    /// Bytes of a window.
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    /// A process's window of a round.
    pub fn window(&self, rank: u32, round: u64) -> Region {
        self.half(rank, round).slice(0, self.window_bytes)
    }

    /// Notes the end of the bytes that a process has read for a round.
    pub fn set_end(&self, rank: u32, round: u64, end: u64) {
        self.half(rank, round).write(self.window_bytes, &end.to_le_bytes());
    }

    /// End of those bytes, as an offset in the file.
    pub fn end(&self, rank: u32, round: u64) -> u64 {
        let mut bytes = [0; 8];
        self.half(rank, round).read(self.window_bytes, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn half(&self, rank: u32, round: u64) -> Region {
        let len = self.window_bytes + END_LEN;
        self.memory.part(rank as usize).slice((round % 2) as usize * len, len)
    }
}

/// Bytes behind a window: a cache line, for the end of what was read.
const END_LEN: usize = 64;
