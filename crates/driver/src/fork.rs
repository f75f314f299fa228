//! What becomes of copies of this process.
//!
//! A process that `fork` makes has the rails of the one that called, and with them its connections, rings
//! and doorbells: whatever it read would be missing there, and whatever it wrote would be nonsense to
//! peers. So it is told not to, before it does anything else.

/// Has `tell` called in every process forked from this one from now on, first thing. It may do no more
/// than a signal handler.
pub fn tell_forked(tell: extern "C" fn()) {
    // SAFETY: the handler is a function without arguments, which the library provides for as long as the
    // process lasts. Fails only for lack of memory: copies are then not told.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(tell)) };
}
