//! Error codes, and the way of a failure to its handler (MPI-5.0 §9).

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::{LazyLock, Mutex, MutexGuard};

use handles::{Handle, Kind};
use lock::Uncancelled;
use mpi::errhandler::{Errhandler, Owner};
use mpi::{comm, file, session, window};

use crate::arguments::find_comm;
use crate::convention::*;
use crate::world;

/// The code of a class: the ABI's number.
pub(crate) fn code_of(class: ErrorClass) -> c_int {
    use ErrorClass as E;
    match class {
        E::Buffer => 1,
        E::Count => 2,
        E::Type => 3,
        E::Tag => 4,
        E::Comm => 5,
        E::Rank => 6,
        E::Request => 7,
        E::Root => 8,
        E::Group => 9,
        E::Op => 10,
        E::Topology => 11,
        E::Dims => 12,
        E::Arg => 13,
        E::Unknown => 14,
        E::Truncate => 15,
        E::Other => 16,
        E::Intern => 17,
        E::Pending => 18,
        E::InStatus => 19,
        E::Access => 20,
        E::Amode => 21,
        E::Assert => 22,
        E::BadFile => 23,
        E::Base => 24,
        E::Conversion => 25,
        E::Disp => 26,
        E::DupDatarep => 27,
        E::FileExists => 28,
        E::FileInUse => 29,
        E::File => 30,
        E::InfoKey => 31,
        E::InfoNokey => 32,
        E::InfoValue => 33,
        E::Info => 34,
        E::Io => 35,
        E::Keyval => 36,
        E::Locktype => 37,
        E::Name => 38,
        E::NoMem => 39,
        E::NotSame => 40,
        E::NoSpace => 41,
        E::NoSuchFile => 42,
        E::Port => 43,
        E::Quota => 44,
        E::ReadOnly => 45,
        E::RmaAttach => 46,
        E::RmaConflict => 47,
        E::RmaRange => 48,
        E::RmaShared => 49,
        E::RmaSync => 50,
        E::Service => 51,
        E::Size => 52,
        E::Spawn => 53,
        E::UnsupportedDatarep => 54,
        E::UnsupportedOperation => 55,
        E::Win => 56,
        E::RmaFlavor => 57,
        E::ProcAborted => 58,
        E::ValueTooLarge => 59,
        E::Session => 60,
        E::Errhandler => 61,
        E::Abi => 62,
        // As in MPICH's headers.
        E::ProcFailedPending => 102,
        E::Revoked => 103,
    }
}

/// Takes a failure to the error handler of the object concerned. Returns the code that the function returns, which a
/// handler of the application may change (MPI-5.0 §9.3.1).
#[cold]
pub(crate) fn raise(function: &'static str, on: On, error: Error) -> c_int {
    let found = handler_of(&error, on);
    let given = match on {
        On::Handler(given) => Errhandler::find(handle(given), Owner::Comm).ok(),
        On::NewSession(given) => Errhandler::find(handle(given), Owner::Session).ok(),
        On::Comm(_) | On::Win(_) | On::File(_) | On::Session(_) | On::Process => None,
    };
    let of_found = || found.as_ref().map_or(Errhandler::Fatal, |(_, handler)| handler.clone());
    let handler = given.unwrap_or_else(of_found);
    let place = found.as_ref().map_or(String::new(), |(object, _)| place_of(*object));
    let text = format!("{function}: {error}{place}");
    let code = code_of_failure(&error, || text.clone());
    match handler {
        Errhandler::Return => code,
        Errhandler::Fatal | Errhandler::Abort => die(&text, code),
        Errhandler::User(function) => {
            let mut object = match on {
                On::NewSession(_) => raw(session::NULL),
                _ => found.as_ref().map_or(0, |(object, _)| raw(*object)),
            };
            let mut reported = code;
            // SAFETY: the application gave this address as an error handler function of this type.
            unsafe { crate::errhandler::call(function.address, &mut object, &mut reported) };
            reported
        }
    }
}

/// Name of the window concerned, in brackets, if the application has given it one.
fn place_of(object: Handle) -> String {
    let window = Some(object).filter(|object| object.is_of(Kind::Window));
    let name = window.and_then(|object| window::find(object).ok()).map(|window| window.name());
    let name = name.filter(|name| !name.is_empty());
    name.map_or(String::new(), |name| format!(" (window {})", String::from_utf8_lossy(&name)))
}

/// The communicator, window or file concerned, and its error handler. Errors of files without a valid one go by
/// MPI_FILE_NULL's (MPI-5.0 §14.7), others by MPI_COMM_SELF's (MPI-5.0 §9.3). If the program has set that of
/// MPI_COMM_WORLD alone, it is used in place of MPI_COMM_SELF's: many programs know of no other. Before
/// initialisation there is neither.
fn handler_of(error: &Error, on: On) -> Option<(Handle, Errhandler)> {
    let of_window = |object| Some((object, window::find(object).ok()?.errhandler()));
    let of_session = |object| Some((object, session::find(object).ok()?.errhandler()));
    let of_comm = |object| {
        let comm = find_comm(raw(object)).ok()?;
        Some((comm.handle(), comm.errhandler()))
    };
    let found = match (error.on, on) {
        (Some(object), _) if object.is_of(Kind::Window) => of_window(object),
        (Some(object), _) if object.is_of(Kind::Tool) => of_session(object),
        (Some(object), _) if object.is_of(Kind::File) => Some(file::errhandler_of(object)),
        (Some(object), _) => of_comm(object),
        (None, On::Win(object)) => of_window(handle(object)),
        (None, On::File(object)) => Some(file::errhandler_of(handle(object))),
        (None, On::Comm(object)) => of_comm(handle(object)),
        (None, On::Session(object)) => of_session(handle(object)),
        (None, On::Process | On::Handler(_) | On::NewSession(_)) => None,
    };
    found.or_else(|| {
        let is_set = |object| find_comm(raw(object)).is_ok_and(|comm| comm.has_set_errhandler());
        let is_of_world = !is_set(comm::SELF) && is_set(comm::WORLD);
        of_comm(if is_of_world { comm::WORLD } else { comm::SELF })
    })
}

/// The code of a failure: its own, or one by which `MPI_Error_string` finds a text.
pub(crate) fn code_of_failure(error: &Error, text: impl FnOnce() -> String) -> c_int {
    error.code.unwrap_or_else(|| code_for(error.class, text()))
}

/// A code for one failure, by which `MPI_Error_string` finds its text:
/// `1 << 30 | number of the failure << 7 | class`. The class stays readable after the text is dropped.
///
/// Programs compare the two classes that speak of other codes with the codes themselves.
#[cold]
pub(crate) fn code_for(class: ErrorClass, text: String) -> c_int {
    if matches!(class, ErrorClass::InStatus | ErrorClass::Pending) {
        return code_of(class);
    }
    let mut codes = codes();
    codes.failures = (codes.failures + 1) % (1 << 23);
    let code = FAILURE | codes.failures << 7 | code_of(class);
    if codes.recent.len() == RECENT_MAX {
        codes.recent.pop_front();
    }
    codes.recent.push_back((code, text));
    code
}

/// The failure that a function of the application reports by its code.
pub(crate) fn callback_result(function: impl Display, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut error = class(ErrorClass::Other, format!("{function} returned {code}"));
    error.code = Some(code);
    Err(error)
}

fn die(text: &str, code: c_int) -> ! {
    let _uncancelled = Uncancelled::begin();
    let rank = world::known_rank().map_or(String::new(), |rank| format!("rank {rank}: "));
    // Written in one piece: whoever ends the job may not wait for the rest of a line.
    let line = format!("canele: {rank}{text}\n");
    let _ = write!(io::stderr(), "{line}");
    world::abort(class_of(code).unwrap_or(code))
}

/// The class of a code; none for a number that is no code.
fn class_of(code: c_int) -> Option<c_int> {
    let class = if code >= FAILURE { code & CLASS_MASK } else { code };
    match codes().known.get(&class) {
        Some((class, _)) => Some(*class),
        None => (class == 0 || name_of(class).is_some()).then_some(class),
    }
}

/// Name and meaning of one of the standard's classes, or of a code of the tool interface.
fn name_of(code: c_int) -> Option<(&'static str, &'static str)> {
    let class = ErrorClass::ALL.iter().find(|class| code_of(**class) == code);
    class.map(|class| (class.name(), class.text())).or_else(|| crate::tool::name_of(code))
}

fn no_code(code: c_int) -> Error {
    Error::argument(format!("errorcode = {code} is no error code"))
}

pub(crate) fn error_class(code: c_int, result: Out<c_int>) -> Result<()> {
    let class = class_of(code).ok_or_else(|| no_code(code))?;
    result.put(class)
}

pub(crate) fn error_string(code: c_int, text: Chars, len: Out<c_int>) -> Result<()> {
    let class = class_of(code).ok_or_else(|| no_code(code))?;
    let known = codes().text(code);
    let string = match (known, name_of(class)) {
        (Some(known), _) => known,
        (None, Some((name, meaning))) => format!("{name}: {meaning}"),
        (None, None) => "MPI_SUCCESS: no error".to_owned(),
    };
    write_string(&string, STRING_MAX, text, len)
}

/// The class of a code, and its text behind a colon if it has one.
pub(crate) fn described(code: c_int) -> (ErrorClass, String) {
    let class = class_of(code)
        .and_then(|class| ErrorClass::ALL.iter().copied().find(|known| code_of(*known) == class));
    let text = codes().text(code).filter(|text| !text.is_empty());
    let text = text.map_or_else(String::new, |text| format!(": {text}"));
    (class.unwrap_or(ErrorClass::Unknown), text)
}

pub(crate) fn add_error_class(result: Out<c_int>) -> Result<()> {
    let code = codes().add(None);
    result.put(code)
}

pub(crate) fn add_error_code(class: c_int, result: Out<c_int>) -> Result<()> {
    if class_of(class) != Some(class) {
        return Err(Error::argument(format!("errorclass = {class} is no error class")));
    }
    let code = codes().add(Some(class));
    result.put(code)
}

pub(crate) fn add_error_string(code: c_int, text: String) -> Result<()> {
    codes().known.get_mut(&code).ok_or_else(|| not_added("errorcode", code))?.1 = text;
    Ok(())
}

pub(crate) fn remove_error_class(class: c_int) -> Result<()> {
    remove("errorclass", class)
}

pub(crate) fn remove_error_code(code: c_int) -> Result<()> {
    remove("errorcode", code)
}

pub(crate) fn remove_error_string(code: c_int) -> Result<()> {
    codes().known.get_mut(&code).ok_or_else(|| not_added("errorcode", code))?.1.clear();
    Ok(())
}

/// The last code in use, for `MPI_LASTUSEDCODE`.
pub(crate) fn last_used_code() -> c_int {
    codes().last.max(LAST_CODE)
}

/// Takes back what was added; what codes or texts belong to has to lose them first (MPI-5.0 §9.5).
fn remove(name: &str, code: c_int) -> Result<()> {
    let mut codes = codes();
    let (_, text) = codes.known.get(&code).ok_or_else(|| not_added(name, code))?;
    let others = codes.known.iter().find(|(other, (class, _))| **other != code && *class == code);
    match others {
        _ if !text.is_empty() => in_use(name, code, "its string"),
        Some((other, _)) => in_use(name, code, &format!("error code {other}")),
        None => {
            codes.known.remove(&code);
            Ok(())
        }
    }
}

fn in_use(name: &str, code: c_int, what: &str) -> Result<()> {
    Err(Error::argument(format!("{name} = {code}: remove {what} first")))
}

fn not_added(name: &str, code: c_int) -> Error {
    Error::argument(format!("{name} = {code} was not added by the application"))
}

#[derive(Default)]
struct Codes {
    last: c_int,
    /// The application's own codes: the class and text of each.
    known: BTreeMap<c_int, (c_int, String)>,
    /// Number of failures so far, modulo the range in a code.
    failures: c_int,
    /// Codes and texts of the latest failures.
    recent: VecDeque<(c_int, String)>,
}

impl Codes {
    fn add(&mut self, class: Option<c_int>) -> c_int {
        self.last = self.last.max(LAST_CODE) + 1;
        self.known.insert(self.last, (class.unwrap_or(self.last), String::new()));
        self.last
    }

    /// Details of a code beyond its class.
    fn text(&self, code: c_int) -> Option<String> {
        let recent = self.recent.iter().rev().find(|(known, _)| *known == code);
        recent.map(|(_, text)| text.clone()).or_else(|| Some(self.known.get(&code)?.1.clone()))
    }
}

fn codes() -> MutexGuard<'static, Codes> {
    static CODES: LazyLock<Mutex<Codes>> = LazyLock::new(Mutex::default);
    CODES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Writes a C string of less than `max` bytes, and its length.
pub(crate) fn write_string(string: &str, max: usize, text: Chars, len: Out<c_int>) -> Result<()> {
    len.put(text.write(string, max)? as c_int)
}

/// `MPI_MAX_ERROR_STRING`.
const STRING_MAX: usize = 512;
/// `MPI_ERR_LASTCODE`.
const LAST_CODE: c_int = 0x3fff;
/// The bit of codes made for a failure.
const FAILURE: c_int = 1 << 30;
/// The class in such a code.
const CLASS_MASK: c_int = 0x7f;
/// Number of failures whose text is stored.
const RECENT_MAX: usize = 256;
