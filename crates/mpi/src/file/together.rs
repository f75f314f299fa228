//! Collective accesses: each process for itself, or through aggregators where their data are interleaved.

use std::sync::Arc;

use io::{Pattern, Visibility};

use super::access::FileTransfer;
use super::agreement::{agree, gather};
use super::buffering::{BufferedPlan, RankPart, dense_range};
use super::hints::{BufferSwitch, Buffering};
use super::node_buffers::NodeBuffers;
use super::object::File;
use super::place::AccessKind;
use crate::comm::Comm;
use crate::{Error, ErrorClass, Result, exchange};

/// Summary of an access, from which all processes choose how to carry out all accesses.
#[derive(Clone, Copy, Debug)]
struct AccessSummary([u64; FIELDS]);

/// Bytes that an access has moved, in the file and in memory.
type Moved = (u64, u64);

impl AccessSummary {
    /// Summary of an access; one that has been carried out has nothing left.
    fn of(transfer: &FileTransfer, hints: Buffering, done: Option<Moved>) -> Self {
        let (pattern, mut stream) = (transfer.pattern(), transfer.stream());
        if done.is_some() {
            stream.end = stream.start;
        }
        let offset = |stream| pattern.byte_offset(stream).map_or(0, |at| at as u64);
        let is_empty = stream.is_empty();
        let first = if is_empty { 0 } else { offset(stream.start) };
        let end = if is_empty { 0 } else { offset(stream.end - 1) + 1 };
        let may_buffer = match hints.switch {
            _ if transfer.is_atomic() || !pattern.ascends(&stream) => IMPOSSIBLE,
            BufferSwitch::Disable => NEVER,
            BufferSwitch::Automatic => IF_INTERLEAVED,
            BufferSwitch::Enable => ALWAYS,
        };
        Self([
            first,
            end,
            stream.start,
            stream.end,
            pattern.encoded_len() as u64,
            pattern.run_len() as u64,
            may_buffer,
            u64::from(done.is_some()),
            hints.aggregators.map_or(0, u64::from),
            hints.buffer_bytes,
        ])
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; FIELDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(words)
    }
}

impl File {
    /// Carries out the accesses of all processes (collective). Returns the numbers of bytes of this one's, in the file and in
    /// memory.
    pub(super) fn run_together(
        &self,
        kind: AccessKind,
        prepared: Result<FileTransfer>,
    ) -> Result<Moved> {
        let (comm, routine) = (&self.0.comm, kind.routine());
        if comm.size() == 1 {
            return prepared?.run_to_end();
        }
        let hints = self.buffering(kind);
        let begun = prepared.and_then(|transfer| {
            let goes_alone = self.goes_alone(&transfer, hints);
            let done = goes_alone.then(|| transfer.run_to_end()).transpose()?;
            Ok((transfer, done))
        });
        let mine = begun
            .as_ref()
            .map_or(Vec::new(), |(own, done)| AccessSummary::of(own, hints, *done).bytes());
        let ((transfer, done), all) = gather(comm, routine, mine, 8 * FIELDS, begun)?;
        let all: Vec<AccessSummary> =
            all.iter().map(|bytes| AccessSummary::from_bytes(bytes)).collect();
        match done {
            Some(moved) if all.iter().all(|one| one.0[7] != 0) => return Ok(moved),
            Some(_) | None => {}
        }
        let ended = match is_buffered(&all) {
            true => self.run_buffered(kind, &transfer, &all).and_then(|moved| match done {
                Some(moved) => Ok(moved),
                None => Ok((moved, transfer.finish(moved)?)),
            }),
            false => done.map_or_else(|| transfer.run_to_end(), Ok),
        };
        agree(comm, routine, ended)
    }

    /// True if a process carries out its access before it hears of the others', which costs one exchange less: on one node no
    /// aggregator would do it better. The bytes of the file are few runs then.
    fn goes_alone(&self, transfer: &FileTransfer, hints: Buffering) -> bool {
        let pattern = transfer.pattern();
        let has_long_runs =
            pattern.layout().is_contiguous() || pattern.run_len() as u64 >= RUN_LONG;
        let is_one_node = self.0.comm.places().nodes() <= 1;
        is_one_node && has_long_runs && hints.switch == BufferSwitch::Automatic
    }

    /// Carries out the accesses of all processes through aggregators (collective).
    fn run_buffered(
        &self,
        kind: AccessKind,
        transfer: &FileTransfer,
        all: &[AccessSummary],
    ) -> Result<u64> {
        let plan = plan(self, kind, transfer, all)?;
        let buffers = self.node_buffers(plan.buffer_bytes)?;
        match buffers {
            Some(buffers) => {
                let plan = BufferedPlan { buffer_bytes: buffers.window_bytes(), ..plan };
                plan.run_on_node(self, &buffers, kind, transfer.memory())
            }
            None => plan.run(self, kind, transfer.memory()),
        }
    }

    /// The shared memory of processes of one node (collective), made at the first access that needs it. None where there are
    /// several nodes, or memory cannot be shared.
    fn node_buffers(&self, buffer_bytes: u64) -> Result<Option<NodeBuffers>> {
        let comm = &self.0.comm;
        if comm.places().nodes() > 1 {
            return Ok(None);
        }
        let window_bytes = buffer_bytes.min(NODE_WINDOW);
        let known = self.state().node_buffers.clone();
        // All processes know the same.
        if let Some((bytes, buffers)) = known
            && bytes == window_bytes
        {
            return Ok(buffers);
        }
        let made = NodeBuffers::make(comm, window_bytes)?;
        self.state().node_buffers = Some((window_bytes, made.clone()));
        Ok(made)
    }
}

/// True if aggregators access the file for all. The hints of rank 0 count.
fn is_buffered(all: &[AccessSummary]) -> bool {
    if all.iter().any(|one| one.0[6] == IMPOSSIBLE) {
        return false;
    }
    let mut ranges: Vec<(u64, u64)> = all.iter().map(|one| (one.0[0], one.0[1])).collect();
    ranges.retain(|(first, end)| first < end);
    ranges.sort_unstable();
    let is_interleaved = ranges.windows(2).any(|pair| pair[1].0 < pair[0].1);
    let has_short_runs = all.iter().any(|one| one.0[7] == 0 && one.0[5] < RUN_LONG);
    let described: u64 = all.iter().map(|one| one.0[4]).sum();
    let pays = match all[0].0[6] {
        ALWAYS => true,
        IF_INTERLEAVED => is_interleaved && has_short_runs,
        _ => false,
    };
    pays && !ranges.is_empty() && described <= DESCRIBED_MAX
}

/// Divides the file among aggregators (collective).
fn plan(
    file: &File,
    kind: AccessKind,
    own: &FileTransfer,
    all: &[AccessSummary],
) -> Result<BufferedPlan> {
    let part = |(pattern, one): (&Pattern, &AccessSummary)| {
        let stream = one.0[2]..one.0[3];
        let len = usize::try_from(stream.end.checked_sub(stream.start)?).ok()?;
        let pattern = pattern.clone();
        let is_possible = pattern.reaches(stream.start, len) && pattern.ascends(&stream);
        is_possible.then_some(RankPart { pattern, stream })
    };
    let patterns = patterns(file, kind, own, all)?;
    let parts: Option<Vec<RankPart>> = patterns.iter().zip(all).map(part).collect();
    let parts = parts.ok_or_else(wrong_description)?;
    let used = || all.iter().filter(|one| one.0[0] < one.0[1]);
    let first = used().map(|one| one.0[0]).min().unwrap_or(0);
    let end = used().map(|one| one.0[1]).max().unwrap_or(0);
    let [.., aggregators, buffer_bytes] = all[0].0;
    Ok(BufferedPlan {
        dense: dense_range(&parts).unwrap_or(0..0),
        parts,
        aggregators: choose(&file.0.comm, &file.0.visibility, aggregators),
        span: first..end,
        buffer_bytes: buffer_bytes.max(1),
    })
}

/// Patterns of all processes (collective), exchanged at the first access through a view.
fn patterns(
    file: &File,
    kind: AccessKind,
    own: &FileTransfer,
    all: &[AccessSummary],
) -> Result<Arc<[Pattern]>> {
    // Views are set by all processes together.
    if let Some(known) = file.state().patterns.clone() {
        return Ok(known);
    }
    let lengths: Vec<u64> = all.iter().map(|one| one.0[4]).collect();
    let mine = own.pattern().encode();
    let described = exchange::allgather_listed(&file.0.comm, kind.routine(), &mine, &lengths)?;
    let patterns: Option<Arc<[Pattern]>> =
        described.iter().map(|bytes| Pattern::decode(bytes)).collect();
    let patterns = patterns.ok_or_else(wrong_description)?;
    file.state().patterns = Some(Arc::clone(&patterns));
    Ok(patterns)
}

#[cold]
fn wrong_description() -> Error {
    Error::new(ErrorClass::Intern, "a process describes its view wrongly")
}

/// Chooses aggregators: ranks of all nodes by turns that see the file. As many as are wanted, or for 0 at most four of each node.
fn choose(comm: &Comm, visibility: &Visibility, wanted: u64) -> Vec<u32> {
    let places = comm.places();
    let mut turns = vec![0u32; places.nodes().max(1) as usize];
    let mut ranks: Vec<(u32, u32)> = Vec::new();
    for rank in (0..comm.size()).filter(|rank| visibility.sees(*rank)) {
        let node = places.location(rank).node as usize;
        if node >= turns.len() {
            turns.resize(node + 1, 0);
        }
        ranks.push((turns[node], rank));
        turns[node] += 1;
    }
    ranks.sort_unstable();
    match wanted {
        0 => ranks.retain(|(turn, _)| *turn < PER_NODE),
        wanted => ranks.truncate(wanted.min(u64::from(u32::MAX)) as usize),
    }
    ranks.into_iter().map(|(_, rank)| rank).collect()
}

/// Number of words in a summary.
const FIELDS: usize = 10;
const NEVER: u64 = 0;
const IF_INTERLEAVED: u64 = 1;
const ALWAYS: u64 = 2;
/// Of atomic accesses, and of bytes that do not ascend in the file.
const IMPOSSIBLE: u64 = 3;
/// Length of runs in bytes from which system calls cost less than messages.
const RUN_LONG: u64 = 64 << 10;
/// Bytes that describe the patterns of all processes, up to which each process gets them.
const DESCRIBED_MAX: u64 = 64 << 20;
/// Bytes of a window in shared memory: with all windows of a node, so many stay in a cache.
const NODE_WINDOW: u64 = 1 << 20;
/// Aggregators of a node.
const PER_NODE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A summary: first and last byte, length of runs, and whether to buffer.
    fn summary(first: u64, end: u64, run: u64, may_buffer: u64) -> AccessSummary {
        AccessSummary([first, end, 0, 8, 56, run, may_buffer, 0, 0, 1 << 20])
    }

    #[test]
    fn interleaved_short_runs_are_buffered() {
        let is_buffered_of = |first, end, run, switch| {
            is_buffered(&[summary(0, 100, run, switch), summary(first, end, run, switch)])
        };
        assert!(is_buffered_of(50, 150, 8, IF_INTERLEAVED));
        assert!(!is_buffered_of(100, 150, 8, IF_INTERLEAVED), "they do not overlap");
        let all = [summary(0, 100, 8, ALWAYS), summary(50, 150, 8, IMPOSSIBLE)];
        assert!(!is_buffered(&all), "one cannot");
        assert!(!is_buffered_of(0, 0, 8, IF_INTERLEAVED), "one accesses nothing");
        assert!(!is_buffered_of(50, 150, RUN_LONG, IF_INTERLEAVED));
        assert!(is_buffered_of(100, 150, 8, ALWAYS));
        assert!(!is_buffered_of(50, 150, 8, NEVER));
        assert!(!is_buffered(&[summary(0, 0, 8, ALWAYS)]));
    }

    #[test]
    fn a_summary_comes_back_from_its_bytes() {
        let one = summary(3, 5, 8, ALWAYS);
        assert_eq!(AccessSummary::from_bytes(&one.bytes()).0, one.0);
    }
}
