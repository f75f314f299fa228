//! The C interface of PMIx. Its library is loaded when a launcher speaks PMIx: nothing links to it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr;

use zeroize::{Zeroize, Zeroizing};

use crate::error::BootError;

// Functions of the C interface (pmix.h).
type Init = unsafe extern "C" fn(*mut PmixProcess, *mut PmixInfo, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const PmixInfo, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut PmixProcess, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut PmixValue) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const PmixProcess, usize, *const PmixInfo, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const PmixProcess,
    *const c_char,
    *const PmixInfo,
    usize,
    *mut *mut PmixValue,
) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
type GetVersion = unsafe extern "C" fn() -> *const c_char;

/// The functions of a loaded PMIx library, which is never unloaded. Layouts and values are those of versions 2 to 5.
pub(crate) struct Library {
    init: Init,
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    error_string: ErrorString,
}

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// It is missing, it lacks a function, or its version is too old.
    pub fn load() -> Result<Self, BootError> {
        // SAFETY: the name is a C string. The library's constructors run as in a program that is linked to it.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Err(BootError::PmixLibrary(load_error()));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library stays loaded, and the name is a C string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            let missing = || format!("{} lacks {}", shown(NAME), shown(name));
            if symbol.is_null() { Err(BootError::PmixLibrary(missing())) } else { Ok(symbol) }
        };
        let version = symbol(c"PMIx_Get_version")?;
        // SAFETY: PMIx declares the function so, in all versions.
        let version = unsafe { mem::transmute::<*mut c_void, GetVersion>(version) };
        // SAFETY: the function takes nothing, and needs no earlier call.
        let version = text_at(unsafe { version() });
        if major(&version).is_none_or(|major| major < MAJOR_MIN) {
            let wrong = format!("{} is version `{version}`, not {MAJOR_MIN} or later", shown(NAME));
            return Err(BootError::PmixLibrary(wrong));
        }
        let (init, finalize) = (symbol(c"PMIx_Init")?, symbol(c"PMIx_Finalize")?);
        let (abort, put) = (symbol(c"PMIx_Abort")?, symbol(c"PMIx_Put")?);
        let (commit, fence) = (symbol(c"PMIx_Commit")?, symbol(c"PMIx_Fence")?);
        let (get, error_string) = (symbol(c"PMIx_Get")?, symbol(c"PMIx_Error_string")?);
        // SAFETY: versions 2 and later declare these functions so (pmix.h).
        unsafe {
            Ok(Self {
                init: mem::transmute::<*mut c_void, Init>(init),
                finalize: mem::transmute::<*mut c_void, Finalize>(finalize),
                abort: mem::transmute::<*mut c_void, Abort>(abort),
                put: mem::transmute::<*mut c_void, Put>(put),
                commit: mem::transmute::<*mut c_void, Commit>(commit),
                fence: mem::transmute::<*mut c_void, Fence>(fence),
                get: mem::transmute::<*mut c_void, Get>(get),
                error_string: mem::transmute::<*mut c_void, ErrorString>(error_string),
            })
        }
    }

    /// Connects to the server of this process. Returns the process's namespace and rank.
    pub fn init(&self) -> Result<(String, u32), BootError> {
        let mut process = PmixProcess { namespace: [0; 256], rank: 0 };
        // SAFETY: the library fills the structure, and is told of no further information.
        let status = unsafe { (self.init)(&raw mut process, ptr::null_mut(), 0) };
        self.check("PMIx_Init", status)?;
        let name = CStr::from_bytes_until_nul(&process.namespace).unwrap_or_default();
        Ok((name.to_string_lossy().into_owned(), process.rank))
    }

    /// Tells the server that this process ends as it should.
    pub fn finalize(&self) -> Result<(), BootError> {
        // SAFETY: no information is passed.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    /// Asks the server to end all processes of the namespace.
    pub fn abort(&self, code: i32) -> Result<(), BootError> {
        // SAFETY: the message is a C string, and no processes stand for all.
        let status = unsafe { (self.abort)(code, c"".as_ptr(), ptr::null_mut(), 0) };
        self.check("PMIx_Abort", status)
    }

    /// Stores a value, which [`Library::commit`] passes to the server. The text is wiped.
    pub fn put(&self, key: &str, text: &str) -> Result<(), BootError> {
        let invalid = || BootError::Pmix { function: "PMIx_Put", status: "a NUL byte".into() };
        let key = CString::new(key).map_err(|_| invalid())?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() + 1));
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        let content = Content { string: bytes.as_mut_ptr().cast() };
        let mut value = PmixValue { kind: STRING, content };
        // SAFETY: key and value are C strings. The library copies the value before it returns.
        let status = unsafe { (self.put)(GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)
    }

    /// Passes stored values to the server.
    pub fn commit(&self) -> Result<(), BootError> {
        // SAFETY: the function takes nothing.
        let status = unsafe { (self.commit)() };
        self.check("PMIx_Commit", status)
    }

    /// Waits for all processes of the namespace, and collects what they have committed.
    pub fn fence(&self) -> Result<(), BootError> {
        let collect = PmixInfo::flag(b"pmix.collect");
        // SAFETY: no processes stand for all; the information outlives the call.
        let status = unsafe { (self.fence)(ptr::null(), 0, &raw const collect, 1) };
        self.check("PMIx_Fence", status)
    }

    /// Returns a text that a process has committed before the last fence, if there is one.
    pub fn text(
        &self,
        namespace: &str,
        rank: u32,
        key: &str,
    ) -> Result<Option<Zeroizing<String>>, BootError> {
        self.value(namespace, rank, key, |value| match value.kind {
            // SAFETY: a value of this kind holds a C string.
            STRING => unsafe { value.content.string.as_ref() }.map(|text| {
                // SAFETY: the string ends with a zero, and stays until the value is released.
                let text = unsafe { CStr::from_ptr(text) };
                Zeroizing::new(text.to_string_lossy().into_owned())
            }),
            _ => None,
        })
    }

    /// Returns a number that the launcher tells of a process, or of the namespace.
    pub fn number(&self, namespace: &str, rank: u32, key: &str) -> Result<Option<u32>, BootError> {
        self.value(namespace, rank, key, |value| match value.kind {
            // SAFETY: a value of this kind holds a number of two bytes.
            UINT16 => Some(u32::from(unsafe { value.content.uint16 })),
            // SAFETY: a value of this kind holds a number of four bytes.
            UINT32 => Some(unsafe { value.content.uint32 }),
            _ => None,
        })
    }

    fn value<T>(
        &self,
        namespace: &str,
        rank: u32,
        key: &str,
        read: impl FnOnce(&PmixValue) -> Option<T>,
    ) -> Result<Option<T>, BootError> {
        let Some(process) = PmixProcess::of(namespace, rank) else { return Ok(None) };
        let Ok(key) = CString::new(key) else { return Ok(None) };
        // Without it the server would wait until the process commits such a key.
        let immediate = PmixInfo::flag(b"pmix.immediate");
        let mut value = ptr::null_mut();
        // SAFETY: the key is a C string, and all arguments outlive the call.
        let status = unsafe {
            let info = &raw const immediate;
            (self.get)(&raw const process, key.as_ptr(), info, 1, &raw mut value)
        };
        if MISSING.contains(&status) {
            return Ok(None);
        }
        self.check("PMIx_Get", status)?;
        // SAFETY: the library has set a value, which is this caller's now, or none.
        let Some(found) = (unsafe { value.as_mut() }) else { return Ok(None) };
        let result = read(found);
        found.release();
        // SAFETY: PMIx allocates values with `malloc`; nothing refers to this one any more.
        unsafe { libc::free(value.cast()) };
        Ok(result)
    }

    fn check(&self, function: &'static str, status: c_int) -> Result<(), BootError> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function knows all numbers, and returns a text that stays.
        let status = text_at(unsafe { (self.error_string)(status) });
        Err(BootError::Pmix { function, status })
    }
}

/// `pmix_proc_t`.
#[repr(C)]
struct PmixProcess {
    namespace: [u8; 256],
    rank: u32,
}

impl PmixProcess {
    fn of(namespace: &str, rank: u32) -> Option<Self> {
        let mut process = Self { namespace: [0; 256], rank };
        // The last byte stays zero.
        process.namespace[..255].get_mut(..namespace.len())?.copy_from_slice(namespace.as_bytes());
        Some(process)
    }
}

/// `pmix_value_t`.
#[repr(C)]
struct PmixValue {
    kind: u16,
    content: Content,
}

impl PmixValue {
    /// Wipes and frees what the value points to.
    fn release(&mut self) {
        if self.kind != STRING {
            return;
        }
        // SAFETY: a value of this kind points to a C string of its own, allocated with `malloc`, or to nothing.
        unsafe {
            let text = self.content.string;
            if !text.is_null() {
                std::slice::from_raw_parts_mut(text, libc::strlen(text)).zeroize();
                libc::free(text.cast());
            }
        }
        self.content.string = ptr::null_mut();
    }
}

/// Contents of a value, as far as they are used. The longest variants of PMIx have 24 bytes.
#[repr(C)]
union Content {
    flag: bool,
    uint16: u16,
    uint32: u32,
    string: *mut c_char,
    room: [u64; 3],
}

/// `pmix_info_t`.
#[repr(C)]
struct PmixInfo {
    key: [u8; 512],
    flags: u32,
    value: PmixValue,
}

impl PmixInfo {
    /// Information that is true.
    fn flag(name: &[u8]) -> Self {
        let mut key = [0; 512];
        key[..name.len()].copy_from_slice(name);
        let mut content = Content { room: [0; 3] };
        content.flag = true;
        Self { key, flags: 0, value: PmixValue { kind: BOOL, content } }
    }
}

/// Returns the first number of a version such as `OpenPMIx 4.2.2, repo rev: …`.
fn major(version: &str) -> Option<u32> {
    let start = version.find(|letter: char| letter.is_ascii_digit())?;
    version[start..].split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn shown(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Returns the reason why the last library could not be loaded.
fn load_error() -> String {
    // SAFETY: the function takes nothing; its text stays until the thread's next call of the loader.
    text_at(unsafe { libc::dlerror() })
}

/// Copies a text of a library.
fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: callers pass C strings, or null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Rank that stands for all of a namespace, where values of the job are found.
pub(crate) const RANK_WILDCARD: u32 = u32::MAX - 1;

const NAME: &CStr = c"libpmix.so.2";
/// First version with these layouts.
const MAJOR_MIN: u32 = 2;

const SUCCESS: c_int = 0;
/// Statuses of a key that does not exist: `PMIX_ERR_NOT_FOUND`, and those of older versions.
const MISSING: [c_int; 3] = [-46, -17, -30];
/// `PMIX_GLOBAL`: values for processes of this and of other nodes.
const GLOBAL: u8 = 3;
const BOOL: u16 = 1;
const STRING: u16 = 3;
const UINT16: u16 = 13;
const UINT32: u16 = 14;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_are_those_of_the_c_interface() {
        // Printed by a C program that includes pmix.h of version 4.2.2.
        assert_eq!((size_of::<PmixProcess>(), offset_of!(PmixProcess, rank)), (260, 256));
        assert_eq!((size_of::<PmixValue>(), offset_of!(PmixValue, content)), (32, 8));
        let info =
            (size_of::<PmixInfo>(), offset_of!(PmixInfo, flags), offset_of!(PmixInfo, value));
        assert_eq!(info, (552, 512, 520));
    }

    #[test]
    fn versions_are_read() {
        let found =
            ["OpenPMIx 4.2.2, repo rev: v4.2.2", "PMIx 3.1.5", "OpenPMIx 10.0.0a1", "unknown", ""];
        assert_eq!(found.map(major), [Some(4), Some(3), Some(10), None, None]);
    }

    #[test]
    fn long_names_are_no_processes() {
        assert!(PmixProcess::of(&"x".repeat(255), 1).is_some());
        assert!(PmixProcess::of(&"x".repeat(256), 1).is_none());
    }
}
