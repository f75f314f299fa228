//! Tells from the C library's variable if the process has only one thread.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// True if the calling thread is the process's only one. Only this thread could create another, so the answer holds
/// until the caller does.
#[inline]
pub fn has_one_thread() -> bool {
    let known = ONE_THREAD.load(Ordering::Relaxed);
    let known = if known.is_null() { find_word() } else { known };
    // SAFETY: the variable is the C library's, or a static of our own; both live as long as the process. Only the
    // single thread changes it: before it creates another, and after it has joined the last.
    unsafe { AtomicU8::from_ptr(known) }.load(Ordering::Relaxed) != 0
}

/// Answers as [`has_one_thread`] does, but without a call; false until that function was called once.
#[inline(always)]
pub fn is_known_alone() -> bool {
    let known = ONE_THREAD.load(Ordering::Relaxed);
    // SAFETY: a pointer that is not null came from `find_word`, and its target lives as long as the process.
    !known.is_null() && unsafe { AtomicU8::from_ptr(known) }.load(Ordering::Relaxed) != 0
}

/// Finds the variable `__libc_single_threaded` (glibc ≥ 2.32), which is nonzero while there is one thread. Elsewhere
/// it returns a variable that is always zero.
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
