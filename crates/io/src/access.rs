//! Reading and writing through a pattern.

use memory::{Region, Segment};

use crate::fault::Result;
use crate::open_file::{OpenFile, scratch};
use crate::pattern::Pattern;

/// Reads from byte `stream` of a pattern on, as much as the region holds. Returns the bytes read, which are fewer at the
/// end of the file. The pattern has so many bytes ([`Pattern::reaches`]).
///
/// # Errors
/// The system's.
pub fn read_pattern(
    file: &OpenFile,
    pattern: &Pattern,
    stream: u64,
    into: &Region,
) -> Result<usize> {
    let mut done = 0;
    let mut runs = pattern.runs(stream, into.len()).peekable();
    while let Some(first) = runs.next() {
        let mut block = vec![first];
        let mut end = first.offset + first.len as isize;
        // Short runs close to each other are read with what lies between them.
        while let Some(next) = runs.next_if(|next| is_near(&block, end, *next)) {
            end = next.offset + next.len as isize;
            block.push(next);
        }
        let (wanted, read) = read_block(file, &block, end, into, done)?;
        done += read;
        if read < wanted {
            break;
        }
    }
    Ok(done)
}

/// Writes a region to a pattern from byte `stream` on. The pattern has so many bytes ([`Pattern::reaches`]).
///
/// # Errors
/// The system's; a part may have been written.
pub fn write_pattern(file: &OpenFile, pattern: &Pattern, stream: u64, data: &Region) -> Result<()> {
    let mut done = 0;
    for run in pattern.runs(stream, data.len()) {
        file.write(run.offset as u64, data, done, run.len)?;
        done += run.len;
    }
    Ok(())
}

/// True if a run is read with those of a block, which end at `end`.
fn is_near(block: &[Segment], end: isize, next: Segment) -> bool {
    let gap = next.offset.checked_sub(end).filter(|gap| *gap >= 0);
    let span = (next.offset - block[0].offset) as usize + next.len;
    let is_short = |run: &Segment| run.len < RUN_SHORT;
    gap.is_some_and(|gap| gap < RUN_SHORT as isize)
        && span <= BLOCK_MAX
        && block.last().is_some_and(is_short)
        && is_short(&next)
}

/// Reads the runs of a block, which end at `end` in the file, to the region from byte `done` on. Returns the bytes of the
/// runs, and those read.
fn read_block(
    file: &OpenFile,
    block: &[Segment],
    end: isize,
    into: &Region,
    done: usize,
) -> Result<(usize, usize)> {
    if let [run] = block {
        return Ok((run.len, file.read(run.offset as u64, into, done, run.len)?));
    }
    let first = block[0].offset;
    let bytes = scratch((end - first) as usize)?;
    let there = file.read(first as u64, &bytes, 0, bytes.len())?;
    let (mut wanted, mut read) = (0, 0);
    for run in block {
        let at = (run.offset - first) as usize;
        let len = run.len.min(there.saturating_sub(at));
        into.copy_piece(done + wanted, &bytes, at, len);
        wanted += run.len;
        read += len;
    }
    Ok((wanted, read))
}

/// Length in bytes below which a run, or the gap before one, costs less to read than a system call.
const RUN_SHORT: usize = 4096;
/// Bytes that are read at once for several runs.
const BLOCK_MAX: usize = 1 << 20;
