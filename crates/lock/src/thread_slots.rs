//! A value of each thread, found without a call.
//!
//! In a shared library a `thread_local!` is found by a call (`__tls_get_addr`), before which all live registers are
//! saved. On the shortest paths that is a third of all instructions. Here a thread is known by its thread pointer,
//! which one instruction reads, and the pointer selects one of a few slots. Of threads that share a slot only one
//! gets it; the others go without a value. So do all threads on processors whose thread pointer is not known here.

use std::cell::{RefCell, UnsafeCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots for one value per thread.
pub struct ThreadSlots<T>([ThreadSlot<T>; SLOTS]);

/// A slot, on cache lines of its own.
#[repr(align(128))]
struct ThreadSlot<T> {
    /// Thread pointer of the owner, or 0.
    thread: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the thread that owns a slot creates, reads and drops its value, as with a `thread_local!`. A slot
// changes its owner by an atomic word, which the former one releases and the next acquires.
unsafe impl<T> Sync for ThreadSlots<T> {}

impl<T> ThreadSlots<T> {
    /// Creates slots that nobody owns.
    pub const fn new() -> Self {
        Self(
            [const { ThreadSlot { thread: AtomicUsize::new(0), value: UnsafeCell::new(None) } };
                SLOTS],
        )
    }

    /// Applies `question` to the calling thread's value, if it has one.
    ///
    /// # Safety
    /// `question` must not call [`ThreadSlots::set`] on these slots.
    #[inline(always)]
    pub unsafe fn ask<A>(&self, question: impl FnOnce(&T) -> A) -> Option<A> {
        let thread = this_thread();
        let slot = &self.0[slot_of(thread)];
        if thread == 0 || slot.thread.load(Ordering::Relaxed) != thread {
            return None;
        }
        // SAFETY: the slot belongs to this thread, which is neither in `set` nor at its end while it is here.
        unsafe { &*slot.value.get() }.as_ref().map(question)
    }

    /// Replaces the calling thread's value, if there is a slot for it.
    pub fn set(&'static self, value: T) {
        let thread = this_thread();
        let index = slot_of(thread);
        let slot = &self.0[index];
        let is_own = thread != 0
            && (slot.thread.load(Ordering::Relaxed) == thread || self.claim(index, thread));
        if is_own {
            // SAFETY: the slot belongs to this thread, and no `ask` is running, as its caller has promised.
            let former = unsafe { (*slot.value.get()).replace(value) };
            // Dropped last, because its destructor may use the slots.
            drop(former);
        }
    }

    /// Takes a free slot for the calling thread, until the thread ends.
    #[cold]
    fn claim(&'static self, index: usize, thread: usize) -> bool {
        let slot = &self.0[index].thread;
        if slot.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_noted = TAKEN.try_with(|taken| taken.0.borrow_mut().push((self, index))).is_ok();
        if !is_noted {
            // A thread that is ending keeps no slot.
            slot.store(0, Ordering::Release);
        }
        is_noted
    }
}

impl<T> Default for ThreadSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Slots that a thread leaves when it ends.
trait Leave {
    fn leave(&self, index: usize);
}

impl<T> Leave for ThreadSlots<T> {
    fn leave(&self, index: usize) {
        let slot = &self.0[index];
        // SAFETY: the slot belongs to this thread, which is at its end, and so not in `ask`.
        let last = unsafe { (*slot.value.get()).take() };
        slot.thread.store(0, Ordering::Release);
        drop(last);
    }
}

/// Slots of a thread.
struct Taken(RefCell<Vec<(&'static dyn Leave, usize)>>);

impl Drop for Taken {
    fn drop(&mut self) {
        for (slots, index) in self.0.get_mut().drain(..) {
            slots.leave(index);
        }
    }
}

thread_local! {
    static TAKEN: Taken = const { Taken(RefCell::new(Vec::new())) };
}

/// Index of a thread's slot. Thread pointers differ by the size of a stack: some megabytes and a page or more.
#[inline(always)]
fn slot_of(thread: usize) -> usize {
    (thread >> 12) % SLOTS
}

/// Thread pointer of the calling thread, unique among all live threads; 0 if it is not known.
#[inline(always)]
fn this_thread() -> usize {
    let thread: usize;
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    // SAFETY: the first word of a thread's control block is its own address (ELF Handling for Thread-Local Storage,
    // §3.4.6), and never changes.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    // SAFETY: the register holds the thread pointer (ELF Handling for Thread-Local Storage, §3.4.1), and is only
    // read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        thread = 0;
    }
    thread
}

/// Number of slots; more threads seldom pack messages at once.
const SLOTS: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    fn value(slots: &'static ThreadSlots<Arc<u32>>) -> Option<u32> {
        // SAFETY: the closure only reads.
        unsafe { slots.ask(|value| **value) }
    }

    #[test]
    fn threads_find_their_own_value_or_none() {
        static SLOTS: ThreadSlots<Arc<u32>> = ThreadSlots::new();
        let threads: Vec<_> = (0..100u32)
            .map(|number| {
                std::thread::spawn(move || {
                    assert_eq!(value(&SLOTS), None, "of thread {number}");
                    SLOTS.set(Arc::new(number));
                    let mut has_slot = value(&SLOTS).is_some();
                    for round in 0..1000 {
                        let latest = number + round * 1000;
                        SLOTS.set(Arc::new(latest));
                        // A thread without a slot may get one when another ends; a thread with one keeps it.
                        let found = value(&SLOTS);
                        assert!(
                            found == Some(latest) || found.is_none(),
                            "{found:?} of thread {number}"
                        );
                        assert!(found.is_some() || !has_slot, "thread {number} lost its slot");
                        has_slot = found.is_some();
                    }
                    has_slot
                })
            })
            .collect();
        let owners = threads.into_iter().map(|one| one.join().unwrap());
        let owners = owners.filter(|has_slot| *has_slot).count();
        let is_known = this_thread() != 0;
        assert!(owners > 0 || !is_known, "no thread had a slot");
    }

    #[test]
    fn an_ending_thread_frees_its_slot_and_value() {
        static SLOTS: ThreadSlots<Arc<u32>> = ThreadSlots::new();
        let shared = Arc::new(5);
        for _ in 0..200 {
            let given = Arc::clone(&shared);
            let (tell, hear) = channel();
            let thread = std::thread::spawn(move || {
                SLOTS.set(given);
                tell.send(value(&SLOTS)).unwrap();
            });
            let seen = hear.recv().unwrap();
            thread.join().unwrap();
            assert!(seen == Some(5) || this_thread() == 0, "one after the other has the slot");
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    }
}
