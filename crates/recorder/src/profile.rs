//! Profile of a rank for `mpiexec -profile`: counts of calls in memory that the rank shares with its agent.
//!
//! The memory is an array of cells of 256 bytes, as that of a trace. The first one counts the others, and holds the scale of
//! the clock. A row counts the calls
//! of one thread with the same function, communicator, phase and peer: only that thread writes it, without a lock. When all
//! cells are taken, calls that would need a new row are only counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Scale;
use crate::memory;

/// Variable with the descriptor of a rank's profile.
pub const PROFILE_VARIABLE: &str = "CANELE_PROFILE_FD";
/// Number of classes of sizes in a row. The first is of no bytes; class `n` is of at most `2^(n-1)` bytes, the last of more.
pub const SIZE_CLASSES: usize = 24;
/// Room for the profile of a rank, in bytes: 16384 cells. Memory is taken as rows come.
pub const PROFILE_ROOM: u64 = (CELL * 8 * 16384) as u64;

/// Makes the memory of a profile.
///
/// # Errors
/// The system lacks a resource.
pub fn create_profile() -> io::Result<File> {
    memory::create("canele-profile", MAGIC, PROFILE_ROOM)
}

/// Returns the length of the used part of a profile.
///
/// # Errors
/// The profile cannot be read.
pub fn used_profile(profile: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    profile.read_exact_at(&mut word, 8 * COUNT as u64)?;
    let cells = u64::from_le_bytes(word).saturating_add(1);
    Ok(cells.saturating_mul(8 * CELL as u64).min(profile.metadata()?.len()))
}

/// Key of a row: the same for all calls that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    /// Number of the function.
    pub function: u16,
    /// Phase that the application has named with `MPI_Pcontrol`.
    pub phase: i32,
    /// Handle of the communicator; 0 for none.
    pub comm: u64,
    /// Rank in the communicator that is sent to or received from, or [`NOBODY`].
    pub peer: i32,
}

/// Peer of calls that have none.
pub const NOBODY: i32 = -1;

/// Rank in the job of a member that is of another job.
pub const STRANGER: u32 = u32::MAX;

/// The profile of this process. The memory stays mapped until the process ends.
#[derive(Debug)]
pub struct Profile {
    words: &'static [AtomicU64],
    scale: Scale,
}

/// Rows of a thread: their keys, and the words where they begin; 0 for a free place.
#[derive(Debug, Default)]
struct Rows {
    places: Vec<(CallKeyWords, usize)>,
    used: usize,
}

type CallKeyWords = [u64; 3];

impl CallKey {
    fn words(self) -> CallKeyWords {
        let pair = (self.phase as u32 as u64) << 32 | self.peer as u32 as u64;
        [ROW | u64::from(self.function) << 8, self.comm, pair]
    }
}

fn mixed(key: CallKeyWords) -> u64 {
    (key[0] ^ key[1].rotate_left(20) ^ key[2].rotate_left(40)).wrapping_mul(MIXER)
}

impl Rows {
    /// Returns the place of a key: its row, or a free one.
    fn find(&self, key: CallKeyWords) -> usize {
        let mask = self.places.len() - 1;
        let mut at = (mixed(key) >> 32) as usize & mask;
        while self.places[at].1 != 0 && self.places[at].0 != key {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let room = (2 * self.places.len()).max(64);
        let old = std::mem::replace(&mut self.places, vec![([0; 3], 0); room]);
        for (key, row) in old.into_iter().filter(|(_, row)| *row != 0) {
            let at = self.find(key);
            self.places[at] = (key, row);
        }
    }
}

impl Profile {
    /// Returns the profile of this process, if its agent wants one.
    ///
    /// # Errors
    /// The memory cannot be mapped; the text says why.
    pub fn of_process() -> Result<Option<&'static Self>, String> {
        static OWN: OnceLock<Result<Option<Profile>, String>> = OnceLock::new();
        let own = OWN.get_or_init(|| {
            let words = memory::of_process(PROFILE_VARIABLE, "-profile", MAGIC)?;
            Ok(words.map(|words| Self::of(words, Scale::measure())))
        });
        own.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Maps a profile that [`create_profile`] has made.
    ///
    /// # Errors
    /// It is not a profile, or the system lacks a resource.
    pub fn map(file: &File) -> io::Result<Self> {
        Ok(Self::of(memory::map(file, MAGIC)?, Scale::NONE))
    }

    fn of(words: &'static [AtomicU64], scale: Scale) -> Self {
        let Scale { ns_per_tick, base: (ticks, time_ns) } = scale;
        for (at, value) in [(NS_PER_TICK, ns_per_tick), (BASE_TICKS, ticks), (BASE_NS, time_ns)] {
            words[at].store(value, Ordering::Relaxed);
        }
        Self { words, scale }
    }

    /// Reads the clock of this profile.
    #[inline(always)]
    pub fn read_clock(&self) -> u64 {
        self.scale.read()
    }

    /// Counts a call that has begun and ended at these readings of the clock. `bytes` is none if they are not known before
    /// it, as with a receive. Returns true if it is the first one of its row.
    #[inline]
    pub fn count(&self, key: CallKey, bytes: Option<u64>, begin: u64, end: u64) -> bool {
        let Some(row) = self.row(key.words()) else {
            self.words[LOST].fetch_add(1, Ordering::Relaxed);
            return false;
        };
        // Only this thread writes the row.
        let add = |at: usize, by: u64| {
            let sum = row[at].load(Ordering::Relaxed).wrapping_add(by);
            row[at].store(sum, Ordering::Relaxed);
            sum
        };
        let is_first = add(CALLS, 1) == 1;
        if is_first {
            row[BEGIN].store(begin, Ordering::Relaxed);
        }
        row[END].store(end, Ordering::Relaxed);
        add(TIME, end.saturating_sub(begin));
        if let Some(bytes) = bytes {
            add(BYTES, bytes);
            add(SIZES + size_class(bytes), 1);
        }
        is_first
    }

    /// Records the name of a function.
    pub fn name(&self, function: u16, name: &str) {
        if let Some(cell) = self.take() {
            fill(
                &self.words[cell..cell + CELL],
                &[NAME | u64::from(function) << 8],
                name.as_bytes(),
            );
        }
    }

    /// Records a communicator: its name, its size, and the ranks of its members in the job. Those of the largest ones are
    /// left out.
    pub fn comm(&self, handle: u64, size: u32, name: &str, members: &[u32]) {
        if let Some(cell) = self.take() {
            let head = [COMM, handle, u64::from(size)];
            fill(&self.words[cell..cell + CELL], &head, name.as_bytes());
        }
        for part in members.chunks(MEMBERS_IN_CELL).take(MEMBER_CELLS_MAX) {
            let Some(cell) = self.take() else { return };
            let bytes: Vec<u8> = part.iter().flat_map(|member| member.to_le_bytes()).collect();
            fill(&self.words[cell..cell + CELL], &[MEMBERS, handle, part.len() as u64], &bytes);
        }
    }

    /// Returns the calling thread's row of a key. Those of its recent calls are found without a search.
    #[inline]
    fn row(&self, key: CallKeyWords) -> Option<&[AtomicU64; CELL]> {
        thread_local! {
            static RECENT: [Cell<(CallKeyWords, usize)>; 1 << RECENT_BITS] =
                const { [const { Cell::new(([0; 3], 0)) }; 1 << RECENT_BITS] };
        }
        RECENT.with(|recent| {
            let recent = &recent[(mixed(key) >> (64 - RECENT_BITS)) as usize];
            let (known, at) = recent.get();
            let at = if known == key {
                at
            } else {
                let at = self.known_row(key)?;
                recent.set((key, at));
                at
            };
            self.words.get(at..at + CELL)?.try_into().ok()
        })
    }

    /// Returns where the calling thread's row of a key begins.
    #[cold]
    fn known_row(&self, key: CallKeyWords) -> Option<usize> {
        thread_local! {
            static OWN: RefCell<Rows> = const { RefCell::new(Rows { places: Vec::new(), used: 0 }) };
        }
        // A thread that ends may have destroyed its rows.
        OWN.try_with(|rows| self.find_row(&mut rows.borrow_mut(), key)).ok().flatten()
    }

    fn find_row(&self, rows: &mut Rows, key: CallKeyWords) -> Option<usize> {
        if rows.used * 2 >= rows.places.len() {
            rows.grow();
        }
        let at = rows.find(key);
        let mut row = rows.places[at].1;
        if row == 0 {
            row = self.take()?;
            rows.places[at] = (key, row);
            rows.used += 1;
            fill(&self.words[row..row + CELL], &key, &[]);
        }
        Some(row)
    }

    /// Takes a cell; returns where it begins.
    fn take(&self) -> Option<usize> {
        let count = self.words[COUNT].fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(count).ok()?.checked_add(1)?.checked_mul(CELL)?;
        (at + CELL <= self.words.len()).then_some(at)
    }
}

/// Writes a cell: words, then bytes as far as they have room. Its first word comes last: it is 0 in a cell without contents.
fn fill(cell: &[AtomicU64], head: &[u64], bytes: &[u8]) {
    for (word, part) in cell[head.len()..].iter().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..part.len()].copy_from_slice(part);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    for (word, value) in cell.iter().zip(head).rev() {
        word.store(*value, Ordering::Release);
    }
}

/// Returns the class of a size.
pub fn size_class(bytes: u64) -> usize {
    match bytes {
        0 => 0,
        _ => (1 + bytes.next_power_of_two().trailing_zeros() as usize).min(SIZE_CLASSES - 1),
    }
}

/// The calls that one row has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCounts {
    /// Key of the row.
    pub key: CallKey,
    /// Number of calls.
    pub calls: u64,
    /// Time in them, in nanoseconds.
    pub time_ns: u64,
    /// Bytes, of those whose bytes are known.
    pub bytes: u64,
    /// Calls by the class of their size.
    pub sizes: [u64; SIZE_CLASSES],
}

/// A communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommFacts {
    /// Number of its ranks.
    pub size: u32,
    /// Its name when it was first used.
    pub name: String,
    /// Ranks of its members in the job; some or all are missing if it is large.
    pub members: Vec<u32>,
}

/// A profile that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadProfile {
    /// Functions by number.
    pub functions: BTreeMap<u16, String>,
    /// Communicators by handle.
    pub comms: BTreeMap<u64, CommFacts>,
    /// Rows.
    pub rows: Vec<CallCounts>,
    /// Time from the first call until the end of the last, in nanoseconds.
    pub time_ns: u64,
    /// Calls that are in no row, for want of room.
    pub lost: u64,
}

impl ReadProfile {
    /// Reads the used part of a profile, as an agent has sent it. What makes no sense is left out.
    pub fn parse(bytes: &[u8]) -> Self {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let mut read = Self::default();
        let mut cells = words.chunks_exact(CELL);
        let Some(first) = cells.next().filter(|first| first[0] == MAGIC) else { return read };
        read.lost = first[LOST];
        let base = (first[BASE_TICKS], first[BASE_NS]);
        let scale = Scale { ns_per_tick: first[NS_PER_TICK], base };
        let mut span = (u64::MAX, 0);
        for cell in cells {
            let number = (cell[0] >> 8) as u16;
            match cell[0] & 0xff {
                NAME => drop(read.functions.insert(number, text(&cell[1..]))),
                COMM => {
                    let comm = read.comms.entry(cell[1]).or_default();
                    comm.size = cell[2] as u32;
                    comm.name = text(&cell[3..]);
                }
                MEMBERS => {
                    let count = (cell[2] as usize).min(MEMBERS_IN_CELL);
                    let members =
                        cell[3..].iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
                    read.comms.entry(cell[1]).or_default().members.extend(members.take(count));
                }
                ROW => {
                    let (begin_ns, end_ns) = (scale.time_ns(cell[BEGIN]), scale.time_ns(cell[END]));
                    span = (span.0.min(begin_ns), span.1.max(end_ns));
                    read.rows.push(CallCounts {
                        key: CallKey {
                            function: number,
                            phase: (cell[2] >> 32) as i32,
                            comm: cell[1],
                            peer: cell[2] as i32,
                        },
                        calls: cell[CALLS],
                        time_ns: scale.duration_ns(cell[TIME]),
                        bytes: cell[BYTES],
                        sizes: std::array::from_fn(|class| cell[SIZES + class]),
                    })
                }
                _ => {}
            }
        }
        read.time_ns = span.1.saturating_sub(span.0);
        read
    }
}

fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

const MAGIC: u64 = u64::from_le_bytes(*b"caneleP2");
/// Words of a cell.
const CELL: usize = 32;
/// Words of the first cell.
const COUNT: usize = 1;
const LOST: usize = 2;
const NS_PER_TICK: usize = 3;
const BASE_TICKS: usize = 4;
const BASE_NS: usize = 5;
/// Kinds of cells, in the lowest byte of their first word.
const ROW: u64 = 1;
const NAME: u64 = 2;
const COMM: u64 = 3;
const MEMBERS: u64 = 4;
/// Words of a row after its key.
const CALLS: usize = 3;
const TIME: usize = 4;
const BYTES: usize = 5;
const BEGIN: usize = 6;
const END: usize = 7;
const SIZES: usize = CELL - SIZE_CLASSES;
const MEMBERS_IN_CELL: usize = 2 * (CELL - 3);
/// Cells for the members of a communicator: of some 7400 ranks.
const MEMBER_CELLS_MAX: usize = 128;
/// Rows that a thread finds without a search: 2 to this power.
const RECENT_BITS: u32 = 6;
/// An odd number with as many ones as zeros, which spreads keys.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &File) -> ReadProfile {
        let mut bytes = vec![0; used_profile(file).unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        ReadProfile::parse(&bytes)
    }

    const KEY: CallKey = CallKey { function: 298, phase: -2, comm: 0x101, peer: NOBODY };

    #[test]
    fn calls_of_a_key_share_a_row() {
        let file = create_profile().unwrap();
        let profile = Profile::map(&file).unwrap();
        profile.name(298, "MPI_Send");
        profile.comm(0x101, 3, "world", &[0, 1, 2]);
        let firsts = [0, 8, 9].map(|bytes| profile.count(KEY, Some(bytes), 100, 110));
        assert_eq!(firsts, [true, false, false]);
        profile.count(CallKey { peer: 2, ..KEY }, None, 110, 200);
        let read = read(&file);
        assert_eq!(read.functions[&298], "MPI_Send");
        let comm = CommFacts { size: 3, name: "world".into(), members: vec![0, 1, 2] };
        assert_eq!(read.comms[&0x101], comm);
        let mut sizes = [0; SIZE_CLASSES];
        (sizes[0], sizes[4], sizes[5]) = (1, 1, 1);
        let first = CallCounts { key: KEY, calls: 3, time_ns: 30, bytes: 17, sizes };
        assert_eq!(read.rows[0], first);
        assert_eq!((read.rows[1].key.peer, read.rows[1].sizes), (2, [0; SIZE_CLASSES]));
        assert_eq!((read.rows.len(), read.time_ns, read.lost), (2, 100, 0));
    }

    #[test]
    fn classes_of_sizes_end_at_powers_of_two() {
        let classes = [0, 1, 2, 3, 4, 5, 1 << 21, (1 << 21) + 1, u64::MAX / 2].map(size_class);
        assert_eq!(classes, [0, 1, 2, 3, 3, 4, 22, 23, 23]);
    }

    #[test]
    fn a_profile_is_bounded_and_counts_what_it_drops() {
        let file = create_profile().unwrap();
        let profile = Profile::map(&file).unwrap();
        for peer in 0..20_000 {
            profile.count(CallKey { peer, ..KEY }, None, 1, 2);
        }
        let found = read(&file);
        assert_eq!(found.rows.len() as u64, PROFILE_ROOM / 256 - 1);
        assert_eq!(found.lost, 20_000 - found.rows.len() as u64);
        profile.count(CallKey { peer: 5, ..KEY }, None, 1, 2);
        assert_eq!(read(&file).rows[5].calls, 2);
    }

    #[test]
    fn threads_count_in_rows_of_their_own() {
        let file = create_profile().unwrap();
        let profile = Profile::map(&file).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).filter(|_| profile.count(KEY, Some(1), 1, 2)).count());
            }
        });
        let calls: Vec<u64> = read(&file).rows.iter().map(|row| row.calls).collect();
        assert_eq!(calls, [1000; 4]);
    }

    #[test]
    fn bytes_that_are_no_profile_are_empty() {
        assert_eq!(ReadProfile::parse(&[7; 1000]), ReadProfile::default());
        assert_eq!(ReadProfile::parse(&[]), ReadProfile::default());
    }
}
