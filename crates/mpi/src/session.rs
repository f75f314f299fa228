//! Sessions (MPI-5.0 §11.3): uses of MPI that know nothing of each other.
//!
//! A session begins without waiting for other processes. Its first communicator waits until all processes of the job have
//! initialised MPI, by a session or by the World Model.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use handles::{Handle, Kind, Table};
use runtime::{Needs, shared};
use wire::PeerId;

use crate::buffer::Place;
use crate::comm::{self, Comm};
use crate::errhandler::Errhandler;
use crate::group::Group;
use crate::info::Info;
use crate::process::Process;
use crate::thread_level::ThreadLevel;
use crate::{Error, ErrorClass, Result};

/// A session. Clones are the same session.
#[derive(Clone, Debug)]
pub struct Session(Arc<SessionData>);

#[derive(Debug)]
struct SessionData {
    wishes: Wishes,
    needs: Needs,
    errhandler: Mutex<Errhandler>,
    buffer: Place,
    handle: OnceLock<Handle>,
    process: OnceLock<Arc<Process>>,
}

/// Requests of the application to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Level of thread support.
    pub level: ThreadLevel,
    /// True if the end of the session fails while it has communicators.
    pub is_strict: bool,
}

impl Wishes {
    /// Reads an info object. Keys that are unknown are ignored.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_VALUE` for a value that is none of its key.
    pub fn of(info: &Info) -> Result<Self> {
        let level = match info.value(THREAD_LEVEL)? {
            None => ThreadLevel::Multiple,
            Some(name) => ThreadLevel::named(&name).ok_or_else(|| {
                let known = ThreadLevel::ALL.map(ThreadLevel::name).join(", ");
                wrong_value(THREAD_LEVEL, &name, &known)
            })?,
        };
        let is_strict = match info.value(STRICT)?.as_deref() {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(value) => return Err(wrong_value(STRICT, value, "true, false, 1 and 0")),
        };
        Ok(Self { level, is_strict })
    }
}

impl Session {
    /// Begins a session. Waits for no other process.
    ///
    /// # Errors
    /// When the process cannot join its job, as far as can be told yet; the text says what to do.
    pub fn begin(wishes: Wishes, errhandler: Errhandler, needs: Needs) -> Result<Self> {
        shared::begin_session(&needs).map_err(other)?;
        let errhandler = Mutex::new(errhandler);
        let (buffer, handle, process) = (Place::default(), OnceLock::new(), OnceLock::new());
        let session =
            Self(Arc::new(SessionData { wishes, needs, errhandler, buffer, handle, process }));
        let handle = SESSIONS.insert(session.clone()).inspect_err(|_| {
            // The error that counts is the first one.
            let _ = shared::end_session();
        })?;
        // A new session has no handle yet.
        let _ = session.0.handle.set(handle);
        Ok(session)
    }

    /// Ends the session, and frees the communicators that the application has left.
    ///
    /// # Errors
    /// `MPI_ERR_SESSION` when a strict session has communicators, and then it goes on, or when another thread
    /// has ended it. When the launcher has failed.
    pub fn finish(&self) -> Result<()> {
        let is_of_it = |comm: &Comm| comm.process().session() == Some(self.handle());
        if self.0.wishes.is_strict
            && let Some(comm) = comm::find_where(is_of_it)
        {
            return Err(has_communicator(&comm));
        }
        remove(self.handle())?;
        comm::free_where(is_of_it);
        shared::end_session().map_err(other)
    }

    /// The session's handle.
    pub fn handle(&self) -> Handle {
        self.0.handle.get().copied().unwrap_or(NULL)
    }

    /// The process, as communicators of this session see it. Waits until all processes have joined the job, the first time.
    ///
    /// # Errors
    /// Those of `base`, which gives the process.
    pub fn process(
        &self,
        base: impl FnOnce() -> Result<&'static Arc<Process>>,
    ) -> Result<&Arc<Process>> {
        if let Some(process) = self.0.process.get() {
            return Ok(process);
        }
        let process = base()?.in_session(self.handle(), &self.0.buffer);
        Ok(self.0.process.get_or_init(|| Arc::new(process)))
    }

    /// The process, if the session has communicated.
    pub fn known_process(&self) -> Option<&Arc<Process>> {
        self.0.process.get()
    }

    /// The error handler.
    pub fn errhandler(&self) -> Errhandler {
        self.with_errhandler(|known| known.clone())
    }

    /// Sets the error handler.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.with_errhandler(|known| *known = errhandler);
    }

    fn with_errhandler<T>(&self, access: impl FnOnce(&mut Errhandler) -> T) -> T {
        access(&mut self.0.errhandler.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Place of the buffer for buffered sends on communicators of this session that have none of their own.
    pub fn buffer(&self) -> &Place {
        &self.0.buffer
    }

    /// The hints that the session uses.
    ///
    /// # Errors
    /// None of these keys is too long.
    pub fn info(&self) -> Result<Info> {
        let info = Info::default();
        info.set(THREAD_LEVEL, self.0.wishes.level.name())?;
        info.set(STRICT, if self.0.wishes.is_strict { "true" } else { "false" })?;
        info.set(comm::MEMORY_KINDS, device::memory_kinds())?;
        Ok(info)
    }

    /// Names of the process sets that this process is in.
    pub fn process_sets(&self) -> Vec<String> {
        let mut names = [WORLD, SELF, NODE].map(String::from).to_vec();
        names.extend(own_site());
        names
    }

    /// The group of a process set; none if this process is in no set of this name. The case of letters does not matter, but in
    /// the name of a site. Sets of the library's own wait until all
    /// processes have joined the job, the first time.
    ///
    /// # Errors
    /// When the process cannot join its job; the text says what to do.
    pub fn process_set(&self, name: &str) -> Result<Option<Group>> {
        let place = shared::place().map_err(other)?;
        let instance = || shared::of_session(&self.0.needs).map_err(other);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let peers: Vec<PeerId> = if is(WORLD) {
            (0..place.size).map(PeerId).collect()
        } else if is(SELF) {
            vec![PeerId(place.rank)]
        } else if is(NODE) {
            let instance = instance()?;
            let here = instance.node(instance.own_peer());
            instance.job_peers().filter(|&peer| instance.node(peer) == here).collect()
        } else if own_site().is_some_and(|site| site == name) {
            let instance = instance()?;
            let here = instance.site(instance.own_peer());
            instance.job_peers().filter(|&peer| instance.site(peer) == here).collect()
        } else {
            return Ok(None);
        };
        Ok(Some(Group::of(peers).of_session(Some(self.handle()))))
    }
}

/// The session behind a handle.
///
/// # Errors
/// `MPI_ERR_SESSION` for the null, a stale or a foreign handle.
pub fn find(handle: Handle) -> Result<Session> {
    match handle {
        NULL => Err(Error::new(ErrorClass::Session, "the session is MPI_SESSION_NULL")),
        _ => SESSIONS.find(handle).map_err(|_| no_session(handle)),
    }
}

/// The session that an object derives from.
///
/// # Errors
/// `MPI_ERR_SESSION` when it is finalised.
pub fn of_object(handle: Handle) -> Result<Session> {
    SESSIONS.find(handle).map_err(|_| Error::new(ErrorClass::Session, "its session is finalised"))
}

/// The handle whose Fortran integer is `value`.
pub fn from_int(value: i32) -> Handle {
    SESSIONS.from_int(value)
}

/// True if there are sessions.
pub fn are_any() -> bool {
    !SESSIONS.is_empty()
}

/// This process as a peer, known before other processes have joined the job.
///
/// # Errors
/// When the process cannot join its job; the text says what to do.
pub fn own_peer() -> Result<PeerId> {
    shared::place().map(|place| PeerId(place.rank)).map_err(other)
}

fn remove(handle: Handle) -> Result<Session> {
    SESSIONS.remove(handle).map_err(|_| no_session(handle))
}

/// Name of the process set of this process's site, if the site has a name.
fn own_site() -> Option<String> {
    settings::SITE.given().map(|name| format!("{SITE}{}", name.to_string_lossy()))
}

fn other(error: runtime::Error) -> Error {
    Error::new(ErrorClass::Other, error.0)
}

#[cold]
fn no_session(Handle(handle): Handle) -> Error {
    Error::new(ErrorClass::Session, format!("{handle:#x} is no session, or a finalised one"))
}

#[cold]
fn wrong_value(key: &str, value: &str, known: &str) -> Error {
    Error::new(ErrorClass::InfoValue, format!("info: {key} = {value}: known are {known}"))
}

#[cold]
fn has_communicator(comm: &Comm) -> Error {
    let name = String::from_utf8_lossy(&comm.name()).into_owned();
    let name = if name.is_empty() { "an unnamed communicator".into() } else { name };
    let message = format!("{name} of this session is not freed: free it first");
    Error::new(ErrorClass::Session, message)
}

/// `MPI_SESSION_NULL`.
pub const NULL: Handle = Handle(0x120);

/// Info key of the level of thread support (MPI-5.0 §11.3.1).
const THREAD_LEVEL: &str = "thread_level";
/// Info key, which is MPICH's, of sessions that must not end while they have communicators.
const STRICT: &str = "strict_finalize";

/// Process sets of the standard (MPI-5.0 §11.3.2).
const WORLD: &str = "mpi://WORLD";
const SELF: &str = "mpi://SELF";
/// The process set of those that share memory with this process.
const NODE: &str = "canele://node";
/// Beginning of the name of the process set of a site.
const SITE: &str = "canele://site/";

/// Tool objects have the first part of the indices.
static SESSIONS: Table<Session> = Table::part(Kind::Tool, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_strictly() {
        let wishes = |key: &str, value: &str| {
            let info = Info::default();
            info.set(key, value).unwrap();
            Wishes::of(&info).map_err(|error| error.class)
        };
        let usual = Wishes { level: ThreadLevel::Multiple, is_strict: false };
        assert_eq!(wishes("of_another", "library"), Ok(usual));
        for level in ThreadLevel::ALL {
            assert_eq!(wishes(THREAD_LEVEL, level.name()), Ok(Wishes { level, ..usual }));
        }
        for value in ["1", "true"] {
            assert_eq!(wishes(STRICT, value), Ok(Wishes { is_strict: true, ..usual }));
        }
        for (key, value) in [(THREAD_LEVEL, "multiple"), (THREAD_LEVEL, ""), (STRICT, "perhaps")] {
            assert_eq!(wishes(key, value), Err(ErrorClass::InfoValue), "{key} = {value}");
        }
    }

    #[test]
    fn a_foreign_handle_is_no_session() {
        for handle in [NULL, Handle(0x101), Handle::new(Kind::Tool, 0), Handle::new(Kind::Comm, 1)]
        {
            assert_eq!(find(handle).unwrap_err().class, ErrorClass::Session);
        }
        assert!(!are_any());
    }
}
