//! The layer of MPI calls that `mpiexec -trace` preloads into ranks (`libcanele_trace.so`).
//!
//! It defines the functions that communicate, as MPI's profiling interface provides for (MPI-5.0 §15.2): each records its
//! begin, calls its `PMPI_` form, and records its end. The library knows nothing of it, so a process without this layer
//! pays nothing. The layer finds the library when it is first called: a process that loads no MPI is not affected.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use recorder::{MpiCall, NameKind, Recorder, TraceEvent, now_ns, thread};

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

#[rustfmt::skip]
mod generated;

/// A handle of the ABI.
type RawHandle = *mut c_void;
/// A status, of which only the address passes through.
type Status = c_void;

/// Facts that a call is recorded with, as its arguments give them.
struct CallArguments {
    peer: c_int,
    source: c_int,
    root: c_int,
    tag: c_int,
    comm: RawHandle,
    count: i64,
    datatype: RawHandle,
    place: *const c_void,
    room: bool,
}

/// A call without any of these arguments.
const NONE: CallArguments = CallArguments {
    peer: ABSENT,
    source: ABSENT,
    root: ABSENT,
    tag: ABSENT,
    comm: ptr::null_mut(),
    count: 0,
    datatype: ptr::null_mut(),
    place: ptr::null(),
    room: false,
};

impl CallArguments {
    /// Returns the facts that are known before the call.
    fn facts(&self) -> MpiCall {
        let given = |value: c_int| (value != ABSENT).then_some(value);
        MpiCall {
            peer: given(self.peer).or(given(self.root)),
            source: given(self.source),
            tag: given(self.tag),
            is_root: self.root != ABSENT,
            bytes: None,
            is_room: self.room,
            comm: (!self.comm.is_null()).then_some(self.comm as u64),
            code: 0,
        }
    }

    /// Returns the bytes of the buffer, if count and datatype have a meaning in a call that succeeded.
    fn bytes(&self) -> Option<u64> {
        let is_moot = [PROC_NULL, ROOT].iter().any(|rank| [self.peer, self.root].contains(rank));
        if self.datatype.is_null() || is_moot || self.place as usize == IN_PLACE {
            return None;
        }
        let count = u64::try_from(self.count).ok()?;
        if count == 0 {
            return Some(0);
        }
        static SIZE: Next = Next::new(0, "PMPI_Type_size_c");
        // SAFETY: the address is that of the function, of which this is the prototype.
        let size = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(RawHandle, &mut i64) -> c_int>(
                SIZE.address(),
            )
        };
        let mut bytes = 0;
        let code = size(self.datatype, &mut bytes);
        (code == 0).then(|| u64::try_from(bytes).ok()?.checked_mul(count)).flatten()
    }
}

/// A function of the library.
struct Next {
    number: u16,
    name: &'static str,
    /// Null before the first call.
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(number: u16, name: &'static str) -> Self {
        Self { number, name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if known.is_null() { self.find() } else { known }
    }

    /// Finds the function and records its name.
    #[cold]
    fn find(&self) -> *mut c_void {
        let address = library_function(self.name);
        if let Some(recorder) = own_recorder()
            && self.number > 0
        {
            let text = self.name.trim_start_matches('P').to_owned();
            let id = self.number.into();
            recorder.record(&TraceEvent::Name { kind: NameKind::Function, id, text });
        }
        self.address.store(address, Ordering::Release);
        address
    }
}

/// Carries a call out and records it.
fn recorded(next: &Next, arguments: &CallArguments, call: impl FnOnce() -> c_int) -> c_int {
    let Some(recorder) = own_recorder() else { return call() };
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
    let bytes = if code == 0 { arguments.bytes() } else { None };
    recorder.end_call(cell, end_ns, &begun, MpiCall { bytes, code, ..facts });
    code
}

/// Returns the recorder, if there is a recording. The library says why there is none.
fn own_recorder() -> Option<&'static Recorder> {
    Recorder::of_process().unwrap_or_default()
}

/// Finds a function of the library that the program has loaded.
fn library_function(name: &str) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        // The program is linked to the library, or has loaded it with what is. It is not loaded again.
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the name is a C string, and a library that is loaded already runs no code.
        unsafe { libc::dlopen(SONAME.as_ptr(), flags) as usize }
    });
    let symbol = format!("{name}\0");
    let address = match library {
        0 => ptr::null_mut(),
        // SAFETY: the handle is that of a library that stays loaded, and the name ends in a zero byte.
        _ => unsafe { libc::dlsym(library as *mut c_void, symbol.as_ptr().cast::<c_char>()) },
    };
    if address.is_null() {
        let library = SONAME.to_string_lossy();
        let text = format!("canele: mpiexec -trace: {library} of this program has no {name}\n");
        // A message that nobody can read is lost.
        let _ = std::io::stderr().write_all(text.as_bytes());
        std::process::abort();
    }
    address
}

const SONAME: &CStr = c"libmpi_abi.so.1";
/// Value of an argument that a function does not have.
const ABSENT: c_int = c_int::MIN;
/// Constants of the ABI.
const PROC_NULL: c_int = -3;
const ROOT: c_int = -4;
const IN_PLACE: usize = 1;
