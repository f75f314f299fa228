//! A call as it passes through the layer: its arguments, and the function that it goes to.

use std::ffi::{CStr, c_int, c_void};
use std::io::Write;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use binding::library::{self, Library};
use recorder::{MpiCall, NameKind, Profile, Recorder, TraceEvent};

/// A handle of the ABI.
pub(crate) type RawHandle = *mut c_void;
/// A status, of which only the address passes through.
pub(crate) type Status = c_void;

/// Facts that a call is recorded with, as its arguments give them.
pub(crate) struct CallArguments {
    pub peer: c_int,
    pub source: c_int,
    pub root: c_int,
    pub tag: c_int,
    pub comm: RawHandle,
    pub count: i64,
    pub datatype: RawHandle,
    pub place: *const c_void,
    pub room: bool,
    /// Counts for each rank of the communicator, of two lengths.
    pub counts: *const c_int,
    pub large_counts: *const i64,
}

/// A call without any of these arguments.
pub(crate) const NONE: CallArguments = CallArguments {
    peer: ABSENT,
    source: ABSENT,
    root: ABSENT,
    tag: ABSENT,
    comm: ptr::null_mut(),
    count: 0,
    datatype: ptr::null_mut(),
    place: ptr::null(),
    room: false,
    counts: ptr::null(),
    large_counts: ptr::null(),
};

impl CallArguments {
    /// Returns the facts that are known before the call.
    pub fn facts(&self) -> MpiCall {
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
}

/// A function of the library.
pub(crate) struct Next {
    pub number: u16,
    name: &'static str,
    /// Null before the first call.
    address: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(number: u16, name: &'static str) -> Self {
        Self { number, name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Acquire);
        if known.is_null() { self.find() } else { known }
    }

    /// Finds the function and records its name.
    #[cold]
    fn find(&self) -> *mut c_void {
        let Layer { library, recorder, profile } = layer();
        let address = library.function(self.name, "mpiexec -trace and -profile");
        let text = self.name.trim_start_matches('P');
        if let Some(recorder) = recorder
            && self.number > 0
        {
            let (id, text) = (self.number.into(), text.to_owned());
            recorder.record(&TraceEvent::Name { kind: NameKind::Function, id, text });
        }
        if let Some(profile) = profile
            && self.number > 0
        {
            profile.name(self.number, text);
        }
        self.address.store(address, Ordering::Release);
        address
    }
}

/// Library, recorder and profile of the process.
pub(crate) struct Layer {
    /// The library that the program calls.
    library: Library,
    /// The recorder, if there is a recording. The library says why there is none.
    pub recorder: Option<&'static Recorder>,
    /// The profile, if there is one. One that cannot be mapped stays empty.
    pub profile: Option<&'static Profile>,
}

/// Returns the recorder and the profile of this process.
#[inline]
pub(crate) fn layer() -> &'static Layer {
    static OWN: OnceLock<Layer> = OnceLock::new();
    OWN.get_or_init(|| {
        let library = Library::loaded(MPICH);
        if library.is_loaded() {
            tell_of_mpich();
            return Layer { library, recorder: None, profile: None };
        }
        Layer {
            library: Library::loaded(library::STANDARD),
            recorder: Recorder::of_process().unwrap_or_default(),
            profile: Profile::of_process().unwrap_or_default(),
        }
    })
}

/// Says, in one rank, that no calls are recorded. Arguments of MPICH's ABI are others than this layer knows, but they are
/// passed in the same registers and places of the stack, so all calls pass through unread.
fn tell_of_mpich() {
    if std::env::var("PMI_RANK").is_ok_and(|rank| rank == "0") {
        // A message that nobody can read is lost.
        let _ = std::io::stderr().write_all(
            b"canele: -trace and -profile do not record the calls of a program of MPICH's ABI (libmpi.so.12): \
              compile it with Canele's mpicc\n",
        );
    }
}

/// Name of the library with MPICH's older ABI, Canele's or another.
const MPICH: &CStr = c"libmpi.so.12";
/// Value of an argument that a function does not have.
const ABSENT: c_int = c_int::MIN;
