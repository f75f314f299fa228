//! Collective buffering: some processes, the *aggregators*, access the file for all. Each has a domain of its own, and the
//! others send it their data, or get them from it, in rounds. Processes of one node share memory instead
//! (`node_buffering`).

use std::cell::Cell;
use std::ops::Range;

use handles::Handle;
use io::{Coverage, Pattern};
use memory::{Region, Segment};

use super::object::File;
use super::place::AccessKind;
use crate::collective::{self, Form};
use crate::comm::CommRef;
use crate::point_to_point::{begin_receive_within, begin_send_within};
use crate::request::{self, Request};
use crate::{Error, ErrorClass, Result};

/// The access of a process.
#[derive(Clone, Debug)]
pub(super) struct RankPart {
    pub pattern: Pattern,
    /// Bytes of the pattern's stream.
    pub stream: Range<u64>,
}

/// Accesses of all processes, and who carries them out. It is the same on all processes.
#[derive(Debug)]
pub(super) struct BufferedPlan {
    /// Accesses by rank.
    pub parts: Vec<RankPart>,
    /// Ranks of the aggregators.
    pub aggregators: Vec<u32>,
    /// Bytes of the file between the lowest and the highest one accessed.
    pub span: Range<u64>,
    /// Bytes that an aggregator accesses in a round.
    pub buffer_bytes: u64,
    /// Bytes of the file of which the processes access each one.
    pub dense: Range<u64>,
}

/// Bytes that an aggregator accesses in a round.
#[derive(Clone, Debug)]
pub(super) struct AggregatorWindow {
    pub aggregator: u32,
    pub bytes: Range<u64>,
}

impl BufferedPlan {
    /// Windows of a round; none after the last.
    pub fn windows(&self, round: u64) -> Option<Vec<AggregatorWindow>> {
        let count = self.aggregators.len() as u64;
        let base = self.span.start / PAGE * PAGE;
        let domain = (self.span.end - base).div_ceil(count).next_multiple_of(PAGE);
        let begun = round.checked_mul(self.buffer_bytes).filter(|begun| *begun < domain)?;
        let window = |(index, &aggregator): (u64, &u32)| {
            let first = base.saturating_add(index * domain);
            let end = first.saturating_add(domain).min(self.span.end);
            let start = first.saturating_add(begun).min(end);
            let bytes = start..start.saturating_add(self.buffer_bytes).min(end);
            let bytes = bytes.start.max(self.span.start).min(bytes.end)..bytes.end;
            AggregatorWindow { aggregator, bytes }
        };
        Some((0..).zip(&self.aggregators).map(window).collect())
    }

    /// The bytes of a rank's stream that lie in a window.
    pub fn stream_in(&self, rank: u32, window: &AggregatorWindow) -> Range<u64> {
        let RankPart { pattern, stream } = &self.parts[rank as usize];
        let first = pattern.find(window.bytes.start, stream.start, stream.end, 1);
        first..pattern.find(window.bytes.end, first, stream.end, 1)
    }

    /// The parts of all ranks in a window, by rank.
    pub fn pieces(&self, window: &AggregatorWindow) -> Vec<StreamPiece> {
        let piece = |rank| StreamPiece { rank, stream: self.stream_in(rank, window) };
        let all = (0..self.parts.len() as u32).map(piece);
        all.filter(|piece| !piece.stream.is_empty()).collect()
    }

    /// The runs of a piece in the file.
    pub fn runs(&self, piece: &StreamPiece) -> impl Iterator<Item = Segment> + '_ {
        let Range { start, end } = piece.stream;
        self.parts[piece.rank as usize].pattern.runs(start, (end - start) as usize)
    }

    /// The bytes that a rank sees.
    pub fn pattern(&self, rank: u32) -> &Pattern {
        &self.parts[rank as usize].pattern
    }

    /// The memory of bytes of a rank's stream, whose memory is `memory`.
    pub fn memory_of(&self, memory: &Region, rank: u32, stream: &Range<u64>) -> Region {
        let first = self.parts[rank as usize].stream.start;
        memory.slice((stream.start - first) as usize, (stream.end - stream.start) as usize)
    }

    /// True if the processes access each of these bytes of the file.
    pub fn is_dense(&self, bytes: &Range<u64>) -> bool {
        self.dense.start <= bytes.start && bytes.end <= self.dense.end
    }

    /// The bytes in the file from the first to the last one of some pieces.
    pub fn extent_of<'a>(
        &self,
        pieces: impl Iterator<Item = &'a StreamPiece> + Clone,
    ) -> Range<u64> {
        let offset = |rank: u32, stream| {
            self.parts[rank as usize].pattern.byte_offset(stream).map_or(0, |at| at as u64)
        };
        let first = pieces.clone().map(|piece| offset(piece.rank, piece.stream.start)).min();
        let end = pieces.map(|piece| offset(piece.rank, piece.stream.end - 1) + 1).max();
        first.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Carries out the accesses of all processes (collective). `memory` is this one's. Returns its bytes.
    ///
    /// A process that fails goes on to the last round, because others wait for its messages.
    pub fn run(&self, file: &File, kind: AccessKind, memory: &Region) -> Result<u64> {
        let call = collective::call(CommRef::Derived(file.0.comm.clone()), Form::Blocking);
        let (number, bytes) = (call.number(), 0);
        let mut rounds = BufferRounds { plan: self, file, memory, number, bytes, failed: None };
        let mut before = None;
        for number in 0.. {
            // The messages of a round are under way while the file is accessed for the one before.
            let begun = self.windows(number).map(|windows| match kind {
                AccessKind::Read => rounds.begin_read(&windows),
                AccessKind::Write => rounds.begin_write(&windows),
            });
            let is_last = begun.is_none();
            if let Some(round) = std::mem::replace(&mut before, begun) {
                rounds.end(round);
            }
            if is_last {
                break;
            }
        }
        rounds.failed.map_or(Ok(rounds.bytes), Err)
    }
}

/// Returns the bytes of the file of which the processes access each one: whole elements of patterns that fill together what
/// each of them repeats. None where no such pattern is found.
pub(super) fn dense_range(parts: &[RankPart]) -> Option<Range<u64>> {
    let first = &parts.first()?.pattern;
    let (extent, origin) = (first.layout().extent(), first.displacement());
    let is_alike = |pattern: &Pattern| {
        let size = pattern.layout().size();
        pattern.layout().extent() == extent && pattern.displacement() == origin && size > 0
    };
    let sum = |of: fn(&Pattern) -> usize| parts.iter().map(|part| of(&part.pattern)).sum::<usize>();
    let segments = sum(|pattern| pattern.layout().segments().len());
    let room = usize::try_from(extent).ok().filter(|room| *room <= TILE_MAX)?;
    let is_possible = parts.iter().all(|part| is_alike(&part.pattern));
    if !is_possible || segments > TILE_SEGMENTS_MAX || sum(|own| own.layout().size()) != room {
        return None;
    }
    let mut coverage = Coverage::new(room);
    for segment in parts.iter().flat_map(|part| part.pattern.layout().segments().iter()) {
        let from = usize::try_from(segment.offset).ok()?;
        coverage.add(from, (from.checked_add(segment.len)? <= room).then_some(segment.len)?);
    }
    if coverage.runs().next() != Some(Segment { offset: 0, len: room }) {
        return None;
    }
    let elements = parts.iter().map(|part| {
        let size = part.pattern.layout().size() as u64;
        part.stream.start.div_ceil(size)..part.stream.end / size
    });
    let common =
        elements.reduce(|one, other| one.start.max(other.start)..one.end.min(other.end))?;
    let offset = |element: u64| element.checked_mul(room as u64)?.checked_add(origin as u64);
    Some(offset(common.start)?..offset(common.end)?)
}

/// Part of a rank's access.
#[derive(Clone, Debug)]
pub(super) struct StreamPiece {
    rank: u32,
    /// Bytes of the rank's stream.
    stream: Range<u64>,
}

impl StreamPiece {
    fn len(&self) -> usize {
        (self.stream.end - self.stream.start) as usize
    }
}

/// Rounds of messages between processes, and of accesses by aggregators.
struct BufferRounds<'a> {
    plan: &'a BufferedPlan,
    file: &'a File,
    memory: &'a Region,
    /// Number of the collective call. A process that has failed before it sends nothing, and revokes the collectives.
    number: i32,
    /// Bytes of this process that were moved.
    bytes: u64,
    /// The first failure.
    failed: Option<Error>,
}

/// A round whose messages are under way.
#[derive(Default)]
struct BufferRound {
    messages: Messages,
    /// Number of messages, the first ones, that bring data which this process reads.
    reads: usize,
    /// Pieces that this process writes when all messages have arrived, and their data.
    received: Vec<(StreamPiece, Region)>,
}

/// Messages under way.
#[derive(Default)]
struct Messages(Vec<Cell<Handle>>);

impl BufferRounds<'_> {
    /// Begins to send data to the aggregators, and to receive those of this process's window.
    fn begin_write(&mut self, windows: &[AggregatorWindow]) -> BufferRound {
        let (own, mut round) = (self.rank(), BufferRound::default());
        let window = windows.iter().find(|window| window.aggregator == own);
        for piece in window.map_or(Vec::new(), |window| self.plan.pieces(window)) {
            let data = match piece.rank == own {
                true => self.own_memory(&piece.stream),
                false => {
                    let data = self.scratch(piece.len());
                    self.receive(&mut round.messages, piece.rank, &data);
                    data
                }
            };
            round.received.push((piece, data));
        }
        for window in windows {
            let stream = self.plan.stream_in(own, window);
            self.bytes += stream.end - stream.start;
            if window.aggregator != own && !stream.is_empty() {
                let data = self.own_memory(&stream);
                self.send(&mut round.messages, window.aggregator, &data);
            }
        }
        round
    }

    /// Ends a round: all messages have arrived, and received data are written.
    fn end(&mut self, round: BufferRound) {
        let mut read = 0;
        self.complete(&round.messages, |index, bytes| {
            read += if index < round.reads { bytes } else { 0 };
        });
        self.bytes += read;
        if self.failed.is_none() && !round.received.is_empty() {
            let written = self.write_pieces(&round.received);
            self.note(written);
        }
    }

    /// Writes received data, and no byte between.
    fn write_pieces(&self, received: &[(StreamPiece, Region)]) -> Result<()> {
        let extent = self.plan.extent_of(received.iter().map(|(piece, _)| piece));
        let buffer = Region::scratch((extent.end - extent.start) as usize).ok_or_else(no_memory)?;
        let mut coverage = Coverage::new(buffer.len());
        for (piece, data) in received {
            let mut done = 0;
            for run in self.plan.runs(piece) {
                let at = run.offset as usize - extent.start as usize;
                buffer.copy_piece(at, data, done, run.len);
                coverage.add(at, run.len);
                done += run.len;
            }
        }
        let write = |run: Segment| {
            let at = extent.start + run.offset as u64;
            self.file.write_bytes(at, &buffer, run.offset as usize, run.len)
        };
        coverage.runs().try_for_each(write)
    }

    /// Reads for all processes what lies in this one's window, and begins to get its own data.
    fn begin_read(&mut self, windows: &[AggregatorWindow]) -> BufferRound {
        let (own, mut round) = (self.rank(), BufferRound::default());
        for window in windows {
            let stream = self.plan.stream_in(own, window);
            if window.aggregator != own && !stream.is_empty() {
                let into = self.own_memory(&stream);
                self.receive(&mut round.messages, window.aggregator, &into);
            }
        }
        round.reads = round.messages.0.len();
        if let Some(window) = windows.iter().find(|window| window.aggregator == own) {
            self.read_pieces(&mut round.messages, &self.plan.pieces(window));
        }
        round
    }

    /// Reads the pieces of all ranks at once, and begins to send them.
    fn read_pieces(&mut self, messages: &mut Messages, pieces: &[StreamPiece]) {
        let extent = self.plan.extent_of(pieces.iter());
        let buffer = self.scratch((extent.end - extent.start) as usize);
        let read = self.file.read_bytes(extent.start, &buffer, 0, buffer.len());
        let there = extent.start + read.as_ref().map_or(0, |bytes| *bytes as u64);
        self.note(read.map(drop));
        for piece in pieces {
            let pattern = &self.plan.parts[piece.rank as usize].pattern;
            let Range { start, end } = piece.stream;
            let stream = start..pattern.find(there, start, end, 1);
            let mut found = StreamPiece { stream, ..*piece };
            let data = match piece.rank == self.rank() {
                true => self.own_memory(&found.stream),
                false => self.scratch(found.len()),
            };
            // Less only where memory is short.
            found.stream.end = found.stream.start + data.len() as u64;
            let mut done = 0;
            for run in self.plan.runs(&found) {
                let at = run.offset as usize - extent.start as usize;
                data.copy_piece(done, &buffer, at, run.len);
                done += run.len;
            }
            match piece.rank == self.rank() {
                true => self.bytes += done as u64,
                // Also a message of no bytes, which the receiver waits for.
                false => self.send(messages, piece.rank, &data),
            }
        }
    }

    fn rank(&self) -> u32 {
        self.file.0.comm.rank()
    }

    /// The memory of bytes of this process's stream.
    fn own_memory(&self, stream: &Range<u64>) -> Region {
        self.plan.memory_of(self.memory, self.rank(), stream)
    }

    /// Memory of so many bytes; none, which is a failure, where there are not enough.
    fn scratch(&mut self, len: usize) -> Region {
        Region::scratch(len).unwrap_or_else(|| {
            self.note(Err(no_memory()));
            Region::empty()
        })
    }

    fn note(&mut self, result: Result<()>) {
        self.failed = self.failed.take().or(result.err());
    }

    fn send(&mut self, messages: &mut Messages, to: u32, data: &Region) {
        let begun = begin_send_within(&self.file.0.comm, to, self.number, data);
        let added = self.add(messages, begun);
        self.note(added);
    }

    fn receive(&mut self, messages: &mut Messages, from: u32, into: &Region) {
        let begun = begin_receive_within(&self.file.0.comm, from, self.number, into);
        let added = self.add(messages, begun);
        self.note(added);
    }

    fn add(&self, messages: &mut Messages, request: Request) -> Result<()> {
        messages.0.push(Cell::new(request.register(self.file.0.comm.vci())?));
        Ok(())
    }

    /// Waits for all messages. Reports the index and the bytes of each.
    fn complete(&mut self, messages: &Messages, mut report: impl FnMut(usize, u64)) {
        let mut failed = None;
        let ended = request::wait_all(self.file.0.comm.process(), &messages.0, |index, ended| {
            report(index, ended.status.bytes);
            failed = failed.take().or(ended.ending.error());
        });
        self.note(ended.and(failed.map_or(Ok(()), Err)));
    }
}

#[cold]
fn no_memory() -> Error {
    Error::new(ErrorClass::NoMem, "there is not enough memory to access the file for others")
}

/// Longest elements in bytes, and most segments of all, that are compared to find out whether they fill the file.
const TILE_MAX: usize = 1 << 24;
const TILE_SEGMENTS_MAX: usize = 1 << 14;
/// Domains begin on pages, in bytes.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memory::Layout;

    use super::*;

    fn part(
        displacement: i64,
        segments: &[(isize, usize)],
        extent: isize,
        stream: Range<u64>,
    ) -> RankPart {
        let segments = segments.iter().map(|&(offset, len)| Segment { offset, len });
        let layout = Arc::new(Layout::new(segments, extent));
        RankPart { pattern: Pattern::new(displacement, &layout).unwrap(), stream }
    }

    #[test]
    fn elements_that_fill_the_file_are_dense_where_all_have_some() {
        let of = |other: RankPart| dense_range(&[part(100, &[(0, 4), (12, 4)], 16, 8..79), other]);
        assert_eq!(of(part(100, &[(4, 8)], 16, 0..800)), Some(116..100 + 9 * 16));
        assert_eq!(of(part(100, &[(4, 8)], 16, 30..40)), Some(100 + 4 * 16..100 + 5 * 16));
        assert_eq!(of(part(100, &[(4, 7)], 16, 0..80)), None, "a byte is missing");
        assert_eq!(of(part(100, &[(5, 8)], 16, 0..80)), None, "one is missing, one there twice");
        assert_eq!(of(part(104, &[(0, 8)], 16, 0..80)), None, "another origin");
        assert_eq!(of(part(100, &[(4, 8)], 32, 0..80)), None, "another distance");
        assert_eq!(of(part(100, &[(4, 4), (16, 4)], 16, 0..80)), None, "beyond its extent");
    }

    #[test]
    fn windows_cover_the_span_once() {
        for (start, end, buffer_bytes, aggregators) in [
            (0, 1, 4096, 1),
            (5000, 100_000, 4096, 3),
            (4095, 8193, 10_000, 4),
            (8192, 50_000, 1 << 20, 2),
        ] {
            let plan = BufferedPlan {
                parts: Vec::new(),
                aggregators: (0..aggregators).collect(),
                span: start..end,
                buffer_bytes,
                dense: 0..0,
            };
            let rounds = (0..).map_while(|round| plan.windows(round));
            let mut all: Vec<Range<u64>> = rounds.flatten().map(|window| window.bytes).collect();
            assert!(
                all.iter().all(
                    |bytes| bytes.start <= bytes.end && bytes.end - bytes.start <= buffer_bytes
                )
            );
            all.retain(|bytes| !bytes.is_empty());
            all.sort_by_key(|bytes| bytes.start);
            assert_eq!((all[0].start, all[all.len() - 1].end), (start, end));
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
            assert!(
                all[1..]
                    .iter()
                    .all(|bytes| buffer_bytes % PAGE > 0 || bytes.start.is_multiple_of(PAGE))
            );
        }
    }
}
