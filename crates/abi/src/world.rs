//! MPI in this process (MPI-5.0 §11): the World Model from initialisation to finalisation, and sessions. The C interface has one
//! World Model per process.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use lock::Uncancelled;
use mpi::contexts;
use mpi::errhandler::Errhandler;
use mpi::process::Process;
use mpi::session::{self, Session, Wishes};
use mpi::thread_level::ThreadLevel;
use mpi::world::{WorldModel, drop_objects};
use runtime::context::Contexts;
use runtime::{Instance, Needs, shared};

use crate::call_finder;
use crate::convention::*;

/// The process that has initialised MPI, by the World Model or by a session. If there are only sessions that have not
/// communicated, waits until all processes have joined the job.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, after finalisation, and in processes forked from one that is
/// initialised.
#[inline]
pub(crate) fn current() -> Result<&'static Arc<Process>> {
    // SAFETY: the pointer is null, or leads to a process that is never dropped.
    match unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        Some(process) => shared::refuse_forked().map(|()| process).map_err(other),
        None => of_sessions(),
    }
}

/// The process for sessions that have not communicated yet.
#[cold]
fn of_sessions() -> Result<&'static Arc<Process>> {
    if !session::are_any() {
        return Err(not_initialized());
    }
    let instance = shared::of_session(&needs(false)).map_err(other)?;
    Ok(models().present(instance))
}

#[cold]
fn not_initialized() -> Error {
    let is_over = STATE.load(Ordering::Acquire) == FINALIZED;
    let text = if is_over { "called after MPI_Finalize" } else { "called before MPI_Init" };
    Error::new(ErrorClass::Other, text)
}

/// The World Model.
///
/// # Errors
/// As [`current`], whether there are sessions or not.
#[inline]
pub(crate) fn world_model() -> Result<&'static WorldModel> {
    match (STATE.load(Ordering::Acquire), WORLD.get()) {
        (ACTIVE, Some(world)) => shared::refuse_forked().map(|()| world).map_err(other),
        _ => Err(not_initialized()),
    }
}

/// The process, if it communicates. Does not wait.
pub(crate) fn known() -> Option<&'static Arc<Process>> {
    models().known
}

/// Rank in the job, if it is known. Does not wait.
pub(crate) fn known_rank() -> Option<u32> {
    shared::known_place().map(|place| place.rank)
}

/// True once initialisation of the World Model has completed.
pub(crate) fn is_initialized() -> bool {
    STATE.load(Ordering::Acquire) != NEW
}

/// True once finalisation of the World Model has completed. True in forked processes, so that they do not finalise.
pub(crate) fn is_finalized() -> bool {
    let state = STATE.load(Ordering::Acquire);
    state == FINALIZED || (state == ACTIVE && shared::refuse_forked().is_err())
}

/// Initialises the World Model in this process.
///
/// # Errors
/// A second call, a malformed setting, and those of [`shared::join`].
pub(crate) fn initialize(level: ThreadLevel) -> Result<&'static WorldModel> {
    shared::refuse_forked().map_err(other)?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        FINALIZED => return Err(Error::new(ErrorClass::Other, "MPI_Init after MPI_Finalize")),
        _ => return Err(Error::new(ErrorClass::Other, "MPI_Init called twice")),
    }
    let _uncancelled = Uncancelled::begin();
    mpi::collective::check_settings()?;
    let instance = shared::join(&needs(level == ThreadLevel::Multiple)).map_err(other)?;
    let mut models = models();
    models.users += 1;
    let process = models.present(instance);
    let world = WORLD.get_or_init(|| WorldModel::new(process, level));
    drop(models);
    world.meet_parent()?;
    STATE.store(ACTIVE, Ordering::Release);
    Ok(world)
}

/// Ends the World Model in this process. Sessions go on.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, and those of [`shared::leave`].
pub(crate) fn finalize() -> Result<()> {
    let world = world_model()?;
    if !session::are_any() {
        world.process().end_file_threads();
        world.ports().end();
    }
    shared::leave().map_err(other)?;
    STATE.store(FINALIZED, Ordering::Release);
    world.drop_communicators();
    models().end_use();
    Ok(())
}

/// Begins a session.
///
/// # Errors
/// Those of [`Session::begin`], and a malformed setting.
pub(crate) fn begin_session(wishes: Wishes, errhandler: Errhandler) -> Result<Session> {
    static AT_EXIT: Once = Once::new();
    shared::refuse_forked().map_err(other)?;
    let _uncancelled = Uncancelled::begin();
    mpi::collective::check_settings()?;
    AT_EXIT.call_once(|| {
        // SAFETY: the handler is a function that exists as long as the library. The call fails only for lack of
        // memory; the launcher then reports that the process has not left its job.
        let _ = unsafe { libc::atexit(leave_at_exit) };
    });
    let needs = needs(wishes.level == ThreadLevel::Multiple);
    let session = Session::begin(wishes, errhandler, needs)?;
    models().users += 1;
    Ok(session)
}

/// Ends a session.
///
/// # Errors
/// Those of [`Session::finish`].
pub(crate) fn end_session(session: &Session) -> Result<()> {
    shared::refuse_forked().map_err(other)?;
    session.finish()?;
    models().end_use();
    Ok(())
}

extern "C" fn leave_at_exit() {
    shared::leave_at_exit();
}

/// Ends the job with `code`, without returning; a forked process ends only itself.
pub(crate) fn abort(code: c_int) -> ! {
    let _uncancelled = Uncancelled::begin();
    shared::abandon();
    if let Some(instance) = shared::present()
        && shared::refuse_forked().is_ok()
    {
        instance.abort(code);
    }
    std::process::exit(if code == 0 { 1 } else { code })
}

fn needs(is_multithreaded: bool) -> Needs {
    Needs {
        is_multithreaded,
        contexts: Some(Contexts {
            members: contexts::members,
            note_revoked: contexts::note_revoked,
        }),
        name_context: Some(contexts::context_name),
        find_call: Some(call_finder::find),
    }
}

fn other(error: runtime::Error) -> Error {
    Error::new(ErrorClass::Other, error.0)
}

/// Uses of MPI in this process.
struct Models {
    /// The World Model, and sessions.
    users: u32,
    /// The process, from its first communication on.
    known: Option<&'static Arc<Process>>,
}

impl Models {
    /// The process that uses an instance, which is current from now on. It is never dropped: there is another one only after all
    /// processes have left their job together.
    fn present(&mut self, instance: Arc<Instance>) -> &'static Arc<Process> {
        let is_it = |process: &&Arc<Process>| Arc::ptr_eq(process.instance(), &instance);
        let process = self
            .known
            .filter(is_it)
            .unwrap_or_else(|| Box::leak(Box::new(Arc::new(Process::new(Arc::clone(&instance))))));
        self.known = Some(process);
        CURRENT.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
        process
    }

    /// Counts a use less. After the last one nothing communicates.
    fn end_use(&mut self) {
        self.users -= 1;
        if self.users == 0 {
            self.known.inspect(|process| process.ports().end());
            CURRENT.store(std::ptr::null_mut(), Ordering::Release);
            drop_objects();
        }
    }
}

fn models() -> MutexGuard<'static, Models> {
    static MODELS: Mutex<Models> = Mutex::new(Models { users: 0, known: None });
    MODELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// States of the World Model in this process, whatever other interfaces do.
const NEW: u8 = 0;
const ACTIVE: u8 = 1;
const FINALIZED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static WORLD: OnceLock<WorldModel> = OnceLock::new();
static CURRENT: AtomicPtr<Arc<Process>> = AtomicPtr::new(std::ptr::null_mut());
