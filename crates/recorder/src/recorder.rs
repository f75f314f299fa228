//! The shared memory of a recording: made by the agent, mapped by its rank.

use std::cell::Cell as LocalCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::event::{CELL_LEN, MAGIC, MpiCall, NameKind, SENT_DONE, TraceEvent, WORDS, Words};
use crate::memory;

/// Variable with the descriptor of a rank's recording.
pub const VARIABLE: &str = "CANELE_TRACE_FD";

/// Makes the memory of a recording with room for `len` bytes. Memory is taken as events come.
///
/// # Errors
/// The system lacks a resource.
pub fn create(len: u64) -> io::Result<File> {
    memory::create("canele-trace", MAGIC, len)
}

/// Returns the length of the used part of a recording.
///
/// # Errors
/// The recording cannot be read.
pub fn used(recording: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    recording.read_exact_at(&mut word, 8 * COUNT as u64)?;
    let cells = u64::from_le_bytes(word).saturating_add(1);
    Ok(cells.saturating_mul(CELL_LEN as u64).min(recording.metadata()?.len()))
}

/// The recording of this process. The memory stays mapped until the process ends.
#[derive(Debug)]
pub struct Recorder {
    words: &'static [AtomicU64],
    /// Last number that was given to a name.
    last_name: AtomicU16,
}

/// Place of an event in a recording; none if there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(Option<usize>);

impl Recorder {
    /// Returns the recorder of this process, if its agent wants a recording.
    ///
    /// # Errors
    /// The recording cannot be mapped; the text says why.
    pub fn of_process() -> Result<Option<&'static Self>, String> {
        static OWN: OnceLock<Result<Option<Recorder>, String>> = OnceLock::new();
        let own =
            OWN.get_or_init(|| Ok(memory::of_process(VARIABLE, "-trace", MAGIC)?.map(Self::of)));
        own.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Maps a recording that [`create`] has made.
    ///
    /// # Errors
    /// It is not a recording, or the system lacks a resource.
    pub fn map(file: &File) -> io::Result<Self> {
        memory::map(file, MAGIC).map(Self::of)
    }

    fn of(words: &'static [AtomicU64]) -> Self {
        let len = words.len() / WORDS * WORDS;
        Self { words: &words[..len], last_name: AtomicU16::new(0) }
    }

    /// Records an event.
    pub fn record(&self, event: &TraceEvent) -> Cell {
        let count = self.words[COUNT].fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(count).ok().and_then(|count| (count + 1).checked_mul(WORDS));
        let Some((at, cell)) = at.and_then(|at| Some((at, self.words.get(at..at + WORDS)?))) else {
            return Cell(None);
        };
        fill(cell, event.encode());
        Cell(Some(at))
    }

    /// Records a name, and returns its number: the next one, from 1 on.
    pub fn name(&self, kind: NameKind, text: &str) -> u16 {
        let id = self.last_name.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.record(&TraceEvent::Name { kind, id: id.into(), text: text.to_owned() });
        id
    }

    /// Records the end of a call that [`Recorder::record`] has begun.
    pub fn end_call(&self, cell: Cell, end_ns: u64, begun: &TraceEvent, call: MpiCall) {
        let (Some(at), &TraceEvent::Call { function, thread, begin_ns, .. }) = (cell.0, begun)
        else {
            return;
        };
        let ended = TraceEvent::Call { function, thread, begin_ns, end_ns, call };
        fill(&self.words[at..at + WORDS], ended.encode());
    }

    /// Records that a rail has sent or copied all bytes of a frame.
    pub fn end_sending(&self, cell: Cell, done_ns: u64) {
        if let Some(at) = cell.0 {
            self.words[at + SENT_DONE].store(done_ns, Ordering::Relaxed);
        }
    }
}

/// Writes an event. A cell whose first word is 0 holds none yet, so that word comes last.
fn fill(cell: &[AtomicU64], words: Words) {
    for (word, value) in cell.iter().zip(words).rev() {
        word.store(value, Ordering::Release);
    }
}

/// Returns the time of `CLOCK_MONOTONIC`.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the kernel's number of the calling thread. Records its name at the thread's first call.
pub fn thread(recorder: &Recorder) -> u32 {
    thread_local! {
        static OWN: LocalCell<u32> = const { LocalCell::new(0) };
    }
    let known = OWN.get();
    if known != 0 {
        return known;
    }
    let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    OWN.set(id);
    let name = rustix::thread::name().unwrap_or_default();
    let text = name.to_string_lossy().into_owned();
    recorder.record(&TraceEvent::Name { kind: NameKind::Thread, id, text });
    id
}

/// Word that counts the events.
const COUNT: usize = 1;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::event::Recording;

    fn read(file: &File) -> Recording {
        let mut bytes = vec![0; used(file).unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Recording::parse(&bytes, file.metadata().unwrap().len())
    }

    fn link(peer: u32) -> TraceEvent {
        TraceEvent::Link { rail: 1, peer, at_ns: 7, is_open: true }
    }

    #[test]
    fn a_recording_is_bounded_and_counts_what_it_drops() {
        let file = create(5 * CELL_LEN as u64).unwrap();
        let recorder = Recorder::map(&file).unwrap();
        for peer in 0..10 {
            recorder.record(&link(peer));
        }
        let recording = read(&file);
        assert_eq!(recording.events, (0..4).map(link).collect::<Vec<_>>());
        assert_eq!(recording.dropped, 6);
        assert_eq!(used(&file).unwrap(), 5 * CELL_LEN as u64);
    }

    #[test]
    fn threads_never_share_a_cell() {
        let file = create(1 << 20).unwrap();
        let recorder = Recorder::map(&file).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for at in 0..1000 {
                        recorder.record(&link(1000 * thread + at));
                    }
                });
            }
        });
        let mut recording = read(&file);
        recording.events.sort_by_key(|event| match event {
            TraceEvent::Link { peer, .. } => *peer,
            other => panic!("{other:?}"),
        });
        assert_eq!(recording.events, (0..4000).map(link).collect::<Vec<_>>());
    }

    #[test]
    fn a_call_is_known_from_its_begin_and_completed_at_its_end() {
        let file = create(1 << 12).unwrap();
        let recorder = Recorder::map(&file).unwrap();
        let call = MpiCall { tag: Some(3), ..MpiCall::default() };
        let begun = TraceEvent::Call { function: 2, thread: 9, begin_ns: 100, end_ns: 0, call };
        let cell = recorder.record(&begun);
        assert_eq!(read(&file).events, std::slice::from_ref(&begun));
        let call = MpiCall { bytes: Some(8), code: 15, ..call };
        recorder.end_call(cell, 200, &begun, call);
        let ended = TraceEvent::Call { function: 2, thread: 9, begin_ns: 100, end_ns: 200, call };
        assert_eq!(read(&file).events, [ended]);
    }

    #[test]
    fn another_file_is_no_recording() {
        let mut own = File::open("/proc/self/exe").unwrap();
        own.read_exact(&mut [0; 8]).unwrap();
        assert!(Recorder::map(&own).unwrap_err().to_string().contains("no recording"));
    }

    #[test]
    fn a_thread_is_named_once() {
        let file = create(1 << 12).unwrap();
        let recorder = Recorder::map(&file).unwrap();
        let named = || (thread(&recorder), thread(&recorder));
        let (first, second) =
            std::thread::scope(|scope| scope.spawn(named).join().expect("no panic"));
        assert_eq!(first, second);
        let [TraceEvent::Name { kind: NameKind::Thread, id, .. }] = read(&file).events[..] else {
            panic!("one name")
        };
        assert_eq!(id, first);
    }
}
