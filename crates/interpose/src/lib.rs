//! The layer of MPI calls that `mpiexec -trace` and `-profile` preload into ranks (`libcanele_trace.so`).
//!
//! It defines the functions that communicate, as MPI's profiling interface provides for (MPI-5.0 §15.2). For a trace, each
//! records its begin, calls its `PMPI_` form, and records its end. For a profile, it counts the call. The library knows
//! nothing of it, so a process without this layer pays nothing. The layer finds the library when it is first called: a
//! process that loads no MPI is not affected.

use std::ffi::c_int;

use recorder::{MpiCall, Profile, Recorder, TraceEvent, now_ns, thread};

use call::{CallArguments, Layer, NONE, Next, RawHandle, Status, layer};

/// Defines functions `MPI_*`, each with the number of its name and the facts that are recorded of its arguments.
macro_rules! calls {
    ($($number:literal $name:ident $next:literal ($($argument:ident: $type:ty),*) { $($facts:tt)* })*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static NEXT: Next = Next::new($number, $next);
            let address = NEXT.address();
            // SAFETY: the address is that of the function `PMPI_*` of the same prototype.
            let next = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(address)
            };
            let arguments = CallArguments { $($facts)* ..$crate::NONE };
            // SAFETY: the caller passes what the standard says, for this function or its `PMPI_` form.
            recorded(&NEXT, &arguments, || unsafe { next($($argument),*) })
        }
    )* };
}

mod call;
#[rustfmt::skip]
mod generated;
mod profile;

/// Carries a call out, and records and counts it.
#[inline]
fn recorded(next: &Next, arguments: &CallArguments, call: impl FnOnce() -> c_int) -> c_int {
    let Layer { recorder, profile, .. } = layer();
    let carry_out = || match profile {
        Some(profile) => counted(profile, next, arguments, call),
        None => call(),
    };
    match recorder {
        Some(recorder) => traced(recorder, next, arguments, carry_out),
        None => carry_out(),
    }
}

/// Carries a call out, and records its begin and its end.
fn traced(
    recorder: &Recorder,
    next: &Next,
    arguments: &CallArguments,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let (facts, thread) = (arguments.facts(), thread(recorder));
    let begun = TraceEvent::Call {
        function: next.number,
        thread,
        begin_ns: now_ns(),
        end_ns: 0,
        call: facts,
    };
    let cell = recorder.record(&begun);
    let code = call();
    let end_ns = now_ns();
    let bytes = if code == 0 { profile::bytes(arguments) } else { None };
    recorder.end_call(cell, end_ns, &begun, MpiCall { bytes, code, ..facts });
    code
}

/// Carries a call out and counts it.
#[inline]
fn counted(
    profile: &Profile,
    next: &Next,
    arguments: &CallArguments,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let begin = profile.read_clock();
    let code = call();
    let end = profile.read_clock();
    if code == 0 {
        profile::count(profile, next.number, arguments, (begin, end));
    }
    code
}
