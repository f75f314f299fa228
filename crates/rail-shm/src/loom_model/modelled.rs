//! Memory of the models: atomic words of loom, and bytes whose concurrent use is an error.

use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

use crate::loom_model::{BYTES, CREATED, FLAW, Flaw, barrier};
use crate::pool::LINE;
use crate::ring::{DATA_AT, USED_AT};
use crate::shared::{Shared, Word};

/// Memory of which every clone is a mapping.
#[derive(Clone, Debug)]
pub struct Modelled(Rc<Contents>);

#[derive(Debug)]
struct Contents {
    descriptor: i32,
    /// The word at the beginning of each line, and two behind others.
    words64: BTreeMap<usize, Word64>,
    words32: BTreeMap<usize, Word32>,
    bytes: UnsafeCell<Box<[u8]>>,
    /// Use of the bytes of each line.
    uses: Vec<loom::cell::UnsafeCell<()>>,
    /// Words that a flaw clears later.
    late: RefCell<Vec<usize>>,
}

#[derive(Debug)]
pub struct Word64 {
    at: usize,
    of: i32,
    value: AtomicU64,
}

#[derive(Debug)]
pub struct Word32(AtomicU32);

impl Shared for Modelled {
    type Word64 = Word64;
    type Word32 = Word32;

    const RING_LEN: usize = 16 * LINE;
    const CUT_THROUGH_MIN: usize = LINE;
    const PIECE_LEN: usize = LINE;
    const CHUNKS: u16 = 3;
    const CHUNK_LEN: usize = 2 * LINE;
    const ROUNDS: u64 = 4;
    const BRIEF_LEN: usize = LINE - 16;
    const SHORT_ROUNDS: u64 = 4;
    const SHORT_LEN: usize = LINE;
    const WASTED_FENCES_MAX: u32 = 1;

    fn create_in_part(len: usize, _reserved: usize) -> io::Result<Self> {
        Self::create(len)
    }

    fn reserve(&mut self, _at: usize, _len: usize) -> io::Result<()> {
        Ok(())
    }

    fn create(len: usize) -> io::Result<Self> {
        let lines = len.div_ceil(LINE);
        let of = CREATED.with_borrow(Vec::len) as i32;
        let word = |at| (at, Word64 { at, of, value: AtomicU64::new(0) });
        let places64 = (0..lines).flat_map(|line| [0, 16, 24, 32].map(|at| line * LINE + at));
        let places = (0..lines).flat_map(|line| [0, 4, 8, 12].map(|at| line * LINE + at));
        let contents = Contents {
            descriptor: of,
            words64: places64.map(word).collect(),
            words32: places.map(|at| (at, Word32(AtomicU32::new(0)))).collect(),
            bytes: UnsafeCell::new(vec![0; lines * LINE].into()),
            uses: (0..lines).map(|_| loom::cell::UnsafeCell::new(())).collect(),
            late: RefCell::default(),
        };
        let memory = Self(Rc::new(contents));
        CREATED.with_borrow_mut(|created| created.push(memory.clone()));
        Ok(memory)
    }

    fn attach(_: i32, fd: i32, _: usize) -> io::Result<Self> {
        Ok(CREATED.with_borrow(|created| created[fd as usize].clone()))
    }

    fn descriptor(&self) -> i32 {
        self.0.descriptor
    }

    fn word64(&self, at: usize) -> &Word64 {
        &self.0.words64[&at]
    }

    fn word32(&self, at: usize) -> &Word32 {
        &self.0.words32[&at]
    }

    fn slice(&self, at: usize, len: usize) -> &[u8] {
        for line in at / LINE..(at + len).div_ceil(LINE) {
            self.0.uses[line].with(|_| ());
        }
        // SAFETY: loom has just checked that the writes to these lines happened before.
        unsafe { &(&*self.0.bytes.get())[at..at + len] }
    }

    /// Words that the bytes lie over hold what the bytes happen to be.
    fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        for line in at / LINE..(at + len).div_ceil(LINE) {
            self.0.uses[line].with_mut(|_| ());
        }
        for line in at.div_ceil(LINE)..(at + len).div_ceil(LINE) {
            self.0.words64[&(line * LINE)].value.store(BYTES, Ordering::Relaxed);
        }
        // SAFETY: loom has just checked that all uses of these lines happened before.
        unsafe { &mut (&mut *self.0.bytes.get())[at..at + len] }
    }

    fn fence() {
        if FLAW.get() != Flaw::NoFence {
            fence(Ordering::SeqCst);
        }
    }

    fn pause() {
        thread::yield_now();
    }

    fn sleeper_fence(on_all_cores: bool) {
        if FLAW.get() == Flaw::NoFenceOfSleeper {
            return;
        }
        fence(Ordering::SeqCst);
        if on_all_cores && FLAW.get() != Flaw::OwnFenceOfSleeper {
            barrier().ask();
        }
    }
}

impl Word<u64> for Word64 {
    fn load(&self, order: Ordering) -> u64 {
        let relaxed = match FLAW.get() {
            Flaw::StateWithoutAcquire => self.at >= DATA_AT,
            Flaw::RoomWithoutAcquire => self.at == USED_AT,
            Flaw::CountWithoutAcquire => true,
            _ => false,
        };
        self.value.load(if relaxed { Ordering::Relaxed } else { order })
    }

    fn store(&self, value: u64, order: Ordering) {
        let memory = || CREATED.with_borrow(|created| created[self.of as usize].clone());
        let is_clear = self.at >= DATA_AT && value == 0;
        match FLAW.get() {
            Flaw::StateWithoutRelease if self.at >= DATA_AT => {
                self.value.store(value, Ordering::Relaxed);
            }
            Flaw::RoomWithoutRelease if self.at == USED_AT => {
                self.value.store(value, Ordering::Relaxed);
            }
            Flaw::CountWithoutRelease => self.value.store(value, Ordering::Relaxed),
            Flaw::ClearedLate if is_clear => memory().0.late.borrow_mut().push(self.at),
            Flaw::ClearedLate if self.at == USED_AT => {
                self.value.store(value, order);
                for at in memory().0.late.take() {
                    memory().word64(at).value.store(0, Ordering::Relaxed);
                }
            }
            Flaw::ClearedInPart if is_clear && self.value.load(Ordering::Relaxed) == BYTES => {}
            _ => self.value.store(value, order),
        }
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.value.swap(value, order)
    }

    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_and(value, order)
    }

    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.value.fetch_or(value, order)
    }

    fn replace(&self, known: u64, value: u64, order: Ordering) {
        let _ = self.value.compare_exchange(known, value, order, Ordering::Relaxed);
    }
}

impl Word<u32> for Word32 {
    fn load(&self, order: Ordering) -> u32 {
        let relaxed = FLAW.get() == Flaw::ChunkWithoutAcquire;
        self.0.load(if relaxed { Ordering::Relaxed } else { order })
    }

    /// A swap: loom does not know that no store comes between a swap and the store it read, and would
    /// take a later store for an earlier one.
    fn store(&self, value: u32, order: Ordering) {
        let relaxed = matches!(FLAW.get(), Flaw::ChunkWithoutRelease | Flaw::WantedWithoutRelease);
        self.0.swap(value, if relaxed { Ordering::Relaxed } else { order });
    }

    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }

    fn fetch_and(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_and(value, order)
    }

    fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_or(value, order)
    }

    fn replace(&self, known: u32, value: u32, order: Ordering) {
        let _ = self.0.compare_exchange(known, value, order, Ordering::Relaxed);
    }
}
