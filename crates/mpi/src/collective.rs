//! Collective operations: the planner's schedules, carried out (MPI-5.0 §6).

use std::ops::Deref;

use datatype::{Datatype, Op};
use engine::{Envelope, OpId, Outcome, Selector, SendMode};
use memory::Region;
use plan::{Buffer, Place, Schedule, Span, Step};

use crate::comm::{Comm, CommRef};
use crate::process;
use crate::{Error, ErrorClass, Result};

/// Waits until all processes of the communicator have called.
///
/// # Errors
/// When a peer fails.
pub fn barrier(comm: &Comm) -> Result<()> {
    let schedule = plan::barrier(comm.rank(), comm.size(), place()?);
    let nothing = Bytes::new(Region::empty(), Region::empty());
    carry_out(comm, comm.next_collective(), &schedule, &nothing)
}

/// A collective call of this process. It counts from here on, before its arguments are checked: one that
/// fails its check on this rank only still has the number it has on the others, and what follows stays
/// in step.
#[derive(Debug)]
pub struct Call {
    comm: CommRef,
    number: i32,
}

impl Call {
    /// Counts a call on `comm`.
    pub fn new(comm: CommRef) -> Self {
        let number = comm.next_collective();
        Self { comm, number }
    }

    /// Carries out this rank's schedule, once.
    ///
    /// # Errors
    /// When a peer fails, or sends a message of another length than this process expects.
    pub fn run(&self, schedule: &Schedule, memory: &dyn Memory) -> Result<()> {
        carry_out(&self.comm, self.number, schedule, memory)
    }
}

impl Deref for Call {
    type Target = CommRef;

    fn deref(&self) -> &CommRef {
        &self.comm
    }
}

/// What the planner is told of the machine.
///
/// # Errors
/// When not initialised.
pub fn place() -> Result<Place> {
    Ok(process::current()?.place())
}

/// The memory of a schedule whose units are bytes of packed streams.
#[derive(Debug)]
pub struct Bytes {
    input: Region,
    output: Region,
}

/// The memory of a schedule whose units are elements. The regions are contiguous, from the lowest byte
/// of the elements' data to the highest ([`Datatype::reach`]); the elements' extent may be less than
/// what each takes, or negative.
#[derive(Debug)]
pub struct Elements<'a> {
    /// What the caller hands in; empty in place.
    pub input: Region,
    /// What the caller gets.
    pub output: Region,
    /// The elements' type.
    pub datatype: &'a Datatype,
    /// Its handle, for functions of the application.
    pub handle: u64,
    /// How elements combine.
    pub op: &'a Op,
}

impl Bytes {
    /// The streams of both buffers.
    pub fn new(input: Region, output: Region) -> Self {
        Self { input, output }
    }
}

/// How a schedule's spans lie in memory.
pub trait Memory {
    /// The memory of a temporary of `units` units.
    fn temporary(&self, units: u64) -> Region;
    /// The stream of a span's bytes.
    fn stream(&self, span: Span, temporaries: &[Region]) -> Region;
    /// Combines two spans.
    fn reduce(&self, input: Span, inout: Span, temporaries: &[Region]);
}

impl Memory for Bytes {
    fn temporary(&self, units: u64) -> Region {
        Region::owned(units as usize)
    }

    fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = match span.buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Temporary(index) => &temporaries[index as usize],
        };
        buffer.slice(span.start as usize, span.len as usize)
    }

    fn reduce(&self, _: Span, _: Span, _: &[Region]) {
        unreachable!("schedules that move bytes reduce nothing")
    }
}

impl Elements<'_> {
    /// The output's `units` elements in memory of the library, gaps left out.
    pub fn copy_of_output(&self, units: u64) -> Region {
        let copy = [self.temporary(units)];
        let all = |buffer| Span { buffer, start: 0, len: units };
        let target = self.stream(all(Buffer::Temporary(0)), &copy);
        target.copy_from(&self.stream(all(Buffer::Output), &copy));
        let [copy] = copy;
        copy
    }

    fn buffer<'a>(&'a self, buffer: Buffer, temporaries: &'a [Region]) -> &'a Region {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Temporary(index) => &temporaries[index as usize],
        }
    }

    /// Where element `index` has its address, in bytes from the beginning of a buffer of `len` bytes.
    fn place(&self, len: usize, index: u64) -> isize {
        let (lower, true_extent) = self.datatype.true_extent();
        let extent = self.datatype.extent().1;
        // With a negative extent the last element is the lowest.
        let first = if extent < 0 { len as isize - true_extent - lower } else { -lower };
        first + index as isize * extent
    }

    fn reach(&self, count: u64) -> (isize, usize) {
        let reach = self.datatype.reach(count as usize);
        reach.unwrap_or_else(|| unreachable!("the caller's buffer of as many elements was checked"))
    }

    /// The memory of a span, gaps included: what reduction functions are given.
    fn whole(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = self.buffer(span.buffer, temporaries);
        let (lowest, len) = self.reach(span.len);
        buffer.slice((self.place(buffer.len(), span.start) + lowest) as usize, len)
    }

    /// The first address the application chose, whose alignment suits its datatype.
    fn model(&self) -> usize {
        let chosen = if self.input.is_empty() { &self.output } else { &self.input };
        chosen.as_span().map_or(0, |span| span.address as usize)
    }
}

impl Memory for Elements<'_> {
    fn temporary(&self, units: u64) -> Region {
        let (_, len) = self.reach(units);
        let memory = Region::owned(len + ALIGNMENT);
        let address = memory.as_span().map_or(0, |span| span.address as usize);
        memory.slice(self.model().wrapping_sub(address) % ALIGNMENT, len)
    }

    fn stream(&self, span: Span, temporaries: &[Region]) -> Region {
        let buffer = self.buffer(span.buffer, temporaries);
        let start = self.place(buffer.len(), span.start);
        let elements = buffer.typed(start, span.len as usize, self.datatype.layout());
        elements.unwrap_or_else(|| unreachable!("{span:?} of a schedule lies outside its buffer"))
    }

    fn reduce(&self, input: Span, inout: Span, temporaries: &[Region]) {
        if input.len == 0 || self.datatype.size() == 0 {
            return;
        }
        let (from, to) = (self.whole(input, temporaries), self.whole(inout, temporaries));
        self.op.apply(&from, &to, input.len as usize, self.datatype, self.handle);
    }
}

/// Carries out a schedule. All processes of the communicator call their collectives in the same order,
/// so that the same number tells the messages of this one from those of others.
fn carry_out(comm: &Comm, tag: i32, schedule: &Schedule, memory: &dyn Memory) -> Result<()> {
    let temporaries: Vec<Region> =
        schedule.temporaries.iter().map(|&units| memory.temporary(units)).collect();
    let mut begun = Vec::new();
    let result = steps(comm, tag, schedule, memory, &temporaries, &mut begun);
    if result.is_err() {
        // What was begun may refer to the temporaries until the engine is done with it.
        abandon(&begun);
        std::mem::forget(temporaries);
    }
    result
}

fn steps(
    comm: &Comm,
    tag: i32,
    schedule: &Schedule,
    memory: &dyn Memory,
    temporaries: &[Region],
    begun: &mut Vec<(OpId, u64)>,
) -> Result<()> {
    let progress = process::current()?.progress();
    let context = comm.collective_context();
    for step in &schedule.steps {
        match *step {
            Step::Send { to, span } => {
                let data = memory.stream(span, temporaries);
                let envelope = Envelope { context, source: comm.rank(), tag, is_urgent: true };
                let gate = comm.gate(to);
                if progress.send_short(gate, envelope, &data) {
                    continue;
                }
                let mode = SendMode::Standard;
                let op =
                    progress.submit(|core| core.engine.submit_send(gate, envelope, &data, mode));
                begun.push((op, data.len() as u64));
            }
            Step::Receive { from, span } => {
                let into = memory.stream(span, temporaries);
                let selector = Selector { context, source: Some(from), tag: Some(tag) };
                let gate = comm.gate(from);
                let receive = |core: &mut progress::Core| {
                    core.engine.submit_receive(Some(gate), selector, &into)
                };
                begun.push((progress.submit(receive), into.len() as u64));
            }
            Step::Wait => wait(begun)?,
            Step::Copy { from, to } => {
                memory.stream(to, temporaries).copy_from(&memory.stream(from, temporaries));
            }
            Step::Reduce { input, inout } => memory.reduce(input, inout, temporaries),
        }
    }
    wait(begun)
}

fn wait(begun: &mut Vec<(OpId, u64)>) -> Result<()> {
    let progress = process::current()?.progress();
    let mut failure = None;
    progress.wait(|core| {
        while let Some(&(op, bytes)) = begun.last() {
            let completion = core.engine.take(op)?;
            begun.pop();
            match completion.outcome {
                Outcome::Ok if completion.bytes == bytes => {}
                outcome => failure = Some((outcome, completion.source, completion.bytes, bytes)),
            }
        }
        Some(())
    });
    match failure {
        None => Ok(()),
        Some((Outcome::PeerFailed, ..)) => {
            let notices = progress.look(|core| core.take_notices()).join("; ");
            let message = format!("a peer is gone in the middle of a collective ({notices})");
            Err(Error::new(ErrorClass::ProcAborted, message))
        }
        Some((outcome, source, got, expected)) => {
            let got = match outcome {
                Outcome::Truncated { message_bytes } => message_bytes,
                Outcome::Ok | Outcome::Cancelled | Outcome::PeerFailed => got,
            };
            let message = format!(
                "rank {source} sent {got} bytes where {expected} were expected: counts or types differ between processes"
            );
            Err(Error::new(ErrorClass::Truncate, message))
        }
    }
}

fn abandon(begun: &[(OpId, u64)]) {
    let Ok(process) = process::current() else { return };
    process.progress().submit(|core| {
        for &(op, _) in begun {
            core.engine.submit_cancel(op);
            core.engine.release(op);
        }
    });
}

/// Temporaries are aligned as the application's memory is, as far as vector instructions care.
const ALIGNMENT: usize = 64;
