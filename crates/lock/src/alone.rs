//! Whether the process has one thread, by the word of the C library.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Whether the process has this thread only. Other threads are made by this one, or not at all, so the
/// answer holds until the caller makes one.
#[inline]
pub fn has_one_thread() -> bool {
    let known = ONE_THREAD.load(Ordering::Relaxed);
    let known = if known.is_null() { find_word() } else { known };
    // SAFETY: the word is the C library's, or a static of our own; both live as long as the process.
    // Threads are made, and the word changed, by the only thread there is: also where it says so again
    // after the others have ended and were waited for.
    unsafe { AtomicU8::from_ptr(known) }.load(Ordering::Relaxed) != 0
}

/// As [`has_one_thread`], without a call: no until that was asked.
#[inline(always)]
pub fn is_known_alone() -> bool {
    let known = ONE_THREAD.load(Ordering::Relaxed);
    // SAFETY: as above.
    !known.is_null() && unsafe { AtomicU8::from_ptr(known) }.load(Ordering::Relaxed) != 0
}

/// The word in which the C library (glibc from 2.32 on) says that there is one thread; elsewhere one that
/// never says so.
#[cold]
#[inline(never)]
fn find_word() -> *mut u8 {
    static NEVER: AtomicU8 = AtomicU8::new(0);
    // SAFETY: the name is a C string; `dlsym` finds a variable of type `char`, or nothing.
    let word = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    let word = if word.is_null() { NEVER.as_ptr() } else { word.cast() };
    ONE_THREAD.store(word, Ordering::Relaxed);
    word
}

static ONE_THREAD: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
