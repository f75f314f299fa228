//! A value of each thread, found without a call.
//!
//! A `thread_local!` of a shared library is found by a call (`__tls_get_addr`), before which everything that is live is
//! saved: on the shortest ways, a third of all instructions. Here a thread is known by its thread pointer, which is
//! one instruction away, and has one of a few places by it. Threads whose places are the same do without, but
//! for one of them, and so do all on processors whose thread pointer is not known here.

use std::cell::{RefCell, UnsafeCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// ThreadSlots for a value each.
pub struct ThreadSlots<T>([Place<T>; PLACES]);

/// On cache lines of its own.
#[repr(align(128))]
struct Place<T> {
    /// The pointer of the thread that has it, or 0.
    thread: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: a value comes from the thread alone that has its place, and is asked and dropped there, as one of a
// `thread_local!`; the place changes hands by an atomic word, which the one releases and the next acquires.
unsafe impl<T> Sync for ThreadSlots<T> {}

impl<T> ThreadSlots<T> {
    /// ThreadSlots that nobody has.
    pub const fn new() -> Self {
        Self(
            [const { Place { thread: AtomicUsize::new(0), value: UnsafeCell::new(None) } }; PLACES],
        )
    }

    /// Asks the calling thread's value, if it has one.
    ///
    /// # Safety
    /// The question does not come back to [`ThreadSlots::set`].
    #[inline(always)]
    pub unsafe fn ask<A>(&self, question: impl FnOnce(&T) -> A) -> Option<A> {
        let thread = this_thread();
        let place = &self.0[place_of(thread)];
        if thread == 0 || place.thread.load(Ordering::Relaxed) != thread {
            return None;
        }
        // SAFETY: the place is this thread's, which is here, and so not in `set` nor at its end.
        unsafe { &*place.value.get() }.as_ref().map(question)
    }

    /// Gives the calling thread another value, where there is a place for it.
    pub fn set(&'static self, value: T) {
        let thread = this_thread();
        let at = place_of(thread);
        let place = &self.0[at];
        let is_own = thread != 0
            && (place.thread.load(Ordering::Relaxed) == thread || self.claim(at, thread));
        if is_own {
            // SAFETY: the place is this thread's, and no question is being asked, as its asker vouched.
            let former = unsafe { (*place.value.get()).replace(value) };
            // What its end brings about comes behind all this.
            drop(former);
        }
    }

    /// Takes a place that nobody has, until the thread ends.
    #[cold]
    fn claim(&'static self, at: usize, thread: usize) -> bool {
        let place = &self.0[at].thread;
        if place.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        let is_noted = TAKEN.try_with(|taken| taken.0.borrow_mut().push((self, at))).is_ok();
        if !is_noted {
            // A thread that is ending has none.
            place.store(0, Ordering::Release);
        }
        is_noted
    }
}

impl<T> Default for ThreadSlots<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// ThreadSlots that are left at the end of a thread.
trait Leave {
    fn leave(&self, at: usize);
}

impl<T> Leave for ThreadSlots<T> {
    fn leave(&self, at: usize) {
        let place = &self.0[at];
        // SAFETY: the place is this thread's, which is at its end, and so in no question.
        let last = unsafe { (*place.value.get()).take() };
        place.thread.store(0, Ordering::Release);
        drop(last);
    }
}

/// The places that a thread has.
struct Taken(RefCell<Vec<(&'static dyn Leave, usize)>>);

impl Drop for Taken {
    fn drop(&mut self) {
        for (places, at) in self.0.get_mut().drain(..) {
            places.leave(at);
        }
    }
}

thread_local! {
    static TAKEN: Taken = const { Taken(RefCell::new(Vec::new())) };
}

/// The place of a thread by its pointer. These lie a stack apart, which is some megabytes and a page or more.
#[inline(always)]
fn place_of(thread: usize) -> usize {
    (thread >> 12) % PLACES
}

/// What tells the calling thread from all others that live; 0 where that is not known.
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
    // SAFETY: the register holds the thread pointer (the same, §3.4.1), and is read only.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        thread = 0;
    }
    thread
}

/// More threads than these seldom pack messages at once.
const PLACES: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    fn value(places: &'static ThreadSlots<Arc<u32>>) -> Option<u32> {
        // SAFETY: the question only reads.
        unsafe { places.ask(|value| **value) }
    }

    #[test]
    fn every_thread_finds_its_own_value_or_none() {
        static PLACES: ThreadSlots<Arc<u32>> = ThreadSlots::new();
        let threads: Vec<_> = (0..100u32)
            .map(|number| {
                std::thread::spawn(move || {
                    assert_eq!(value(&PLACES), None, "of thread {number}");
                    PLACES.set(Arc::new(number));
                    let mut has_place = value(&PLACES).is_some();
                    for round in 0..1000 {
                        let latest = number + round * 1000;
                        PLACES.set(Arc::new(latest));
                        // Without a place it may get one yet, when another thread ends; with one it keeps it.
                        let found = value(&PLACES);
                        assert!(
                            found == Some(latest) || found.is_none(),
                            "{found:?} of thread {number}"
                        );
                        assert!(found.is_some() || !has_place, "thread {number} lost its place");
                        has_place = found.is_some();
                    }
                    has_place
                })
            })
            .collect();
        let placed = threads.into_iter().map(|one| one.join().unwrap());
        let placed = placed.filter(|has_place| *has_place).count();
        let is_known = this_thread() != 0;
        assert!(placed > 0 || !is_known, "no thread had a place");
    }

    #[test]
    fn a_thread_that_ends_leaves_its_place_and_its_value() {
        static PLACES: ThreadSlots<Arc<u32>> = ThreadSlots::new();
        let shared = Arc::new(5);
        for _ in 0..200 {
            let given = Arc::clone(&shared);
            let (tell, hear) = channel();
            let thread = std::thread::spawn(move || {
                PLACES.set(given);
                tell.send(value(&PLACES)).unwrap();
            });
            let seen = hear.recv().unwrap();
            thread.join().unwrap();
            assert!(seen == Some(5) || this_thread() == 0, "one after the other has the place");
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    }
}
