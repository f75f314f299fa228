//! Collective buffering on one node: all ranks copy their data to windows of the aggregators in shared memory, or from them.

use io::Coverage;
use memory::{Region, Segment};

use super::buffering::{AggregatorWindow, BufferedPlan};
use super::node_buffers::NodeBuffers;
use super::object::File;
use super::place::AccessKind;
use crate::{Error, Result, collective};

/// Rounds of copies and accesses.
struct NodeRounds<'a> {
    plan: &'a BufferedPlan,
    file: &'a File,
    buffers: &'a NodeBuffers,
    memory: &'a Region,
    /// Bytes of this process that were moved.
    bytes: u64,
    /// The first failure of an access.
    failed: Option<Error>,
}

impl BufferedPlan {
    /// Carries out the accesses of all processes through shared memory (collective). `memory` is this one's. Returns its bytes.
    ///
    /// A process whose access fails goes on to the last round, because others wait for it.
    pub fn run_on_node(
        &self,
        file: &File,
        buffers: &NodeBuffers,
        kind: AccessKind,
        memory: &Region,
    ) -> Result<u64> {
        let mut rounds = NodeRounds { plan: self, file, buffers, memory, bytes: 0, failed: None };
        for number in 0.. {
            let Some(windows) = self.windows(number) else { break };
            match kind {
                AccessKind::Read => rounds.read(number, &windows)?,
                AccessKind::Write => rounds.write(number, &windows)?,
            }
        }
        rounds.failed.map_or(Ok(rounds.bytes), Err)
    }
}

impl NodeRounds<'_> {
    /// Copies this process's data to all windows, and writes its own window. While others write theirs, the next ones are
    /// filled: nobody comes further before all have written.
    fn write(&mut self, round: u64, windows: &[AggregatorWindow]) -> Result<()> {
        let own = self.rank();
        for window in windows {
            let stream = self.plan.stream_in(own, window);
            if !stream.is_empty() {
                let data = self.plan.memory_of(self.memory, own, &stream);
                self.bytes += stream.end - stream.start;
                let shared = self.buffers.window(window.aggregator, round);
                self.plan.pattern(own).scatter(stream, &data, &shared, window.bytes.start);
            }
        }
        collective::barrier(&self.file.0.comm)?;
        let window = windows.iter().find(|window| window.aggregator == own);
        if let (Some(window), None) = (window, &self.failed) {
            self.failed = self.write_window(round, window).err();
        }
        Ok(())
    }

    /// Writes the bytes that ranks have copied to a window, and no byte between.
    fn write_window(&self, round: u64, window: &AggregatorWindow) -> Result<()> {
        let data = self.buffers.window(window.aggregator, round);
        let start = window.bytes.start;
        let write = |run: Segment| {
            let at = start + run.offset as u64;
            self.file.write_bytes(at, &data, run.offset as usize, run.len)
        };
        if self.plan.is_dense(&window.bytes) {
            write(Segment { offset: 0, len: (window.bytes.end - start) as usize })
        } else {
            let mut coverage = Coverage::new((window.bytes.end - start) as usize);
            for piece in self.plan.pieces(window) {
                for run in self.plan.runs(&piece) {
                    coverage.add((run.offset as u64 - start) as usize, run.len);
                }
            }
            coverage.runs().try_for_each(write)
        }
    }

    /// Reads the own window, and copies this process's data from all. The next round's windows are others.
    fn read(&mut self, round: u64, windows: &[AggregatorWindow]) -> Result<()> {
        let own = self.rank();
        if let Some(window) = windows.iter().find(|window| window.aggregator == own) {
            let read = self.read_window(round, window);
            self.failed = self.failed.take().or(read.err());
        }
        collective::barrier(&self.file.0.comm)?;
        for window in windows {
            let mut stream = self.plan.stream_in(own, window);
            if !stream.is_empty() {
                let end = self.buffers.end(window.aggregator, round);
                stream.end = self.plan.pattern(own).find(end, stream.start, stream.end, 1);
                let into = self.plan.memory_of(self.memory, own, &stream);
                self.bytes += stream.end - stream.start;
                let shared = self.buffers.window(window.aggregator, round);
                self.plan.pattern(own).gather(stream, &shared, window.bytes.start, &into);
            }
        }
        Ok(())
    }

    /// Reads all from the first to the last byte that ranks want of a window.
    fn read_window(&self, round: u64, window: &AggregatorWindow) -> Result<()> {
        let extent = self.plan.extent_of(self.plan.pieces(window).iter());
        let data = self.buffers.window(window.aggregator, round);
        let (from, len) =
            (extent.start.saturating_sub(window.bytes.start), extent.end - extent.start);
        let read = self.file.read_bytes(extent.start, &data, from as usize, len as usize);
        let there = read.as_ref().map_or(0, |bytes| *bytes as u64);
        self.buffers.set_end(window.aggregator, round, extent.start + there);
        read.map(drop)
    }

    fn rank(&self) -> u32 {
        self.file.0.comm.rank()
    }
}
