//! MPI in this process: from initialisation to finalisation (MPI-5.0 §11.2), over the runtime that it shares with the
//! native interface.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use lock::Uncancelled;
use runtime::{Instance, Needs, context};

use crate::buffer::Place;
use crate::comm::{self, Comm};
use crate::{Error, ErrorClass, Result};

/// Level of thread support (MPI-5.0 §11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI calls it.
    Funneled,
    /// One thread calls at a time.
    Serialized,
    /// Any thread calls at any time.
    Multiple,
}

/// This process in its job: what all its communicators share.
pub struct Process {
    instance: Arc<Instance>,
    level: ThreadLevel,
    main_thread: ThreadId,
    buffer: Place,
    next_context: AtomicU32,
}

impl Process {
    /// Begins to use an instance, in the thread that initialises MPI.
    pub fn new(instance: Arc<Instance>, level: ThreadLevel) -> Self {
        Self {
            instance,
            level,
            main_thread: std::thread::current().id(),
            buffer: Place::default(),
            next_context: AtomicU32::new(FIRST_CONTEXT),
        }
    }

    /// Level of thread support.
    pub fn level(&self) -> ThreadLevel {
        self.level
    }

    /// True if the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        std::thread::current().id() == self.main_thread
    }

    /// Place of the buffer for buffered sends on communicators that have none of their own.
    pub fn buffer(&self) -> &Place {
        &self.buffer
    }

    /// Draws a context number that no other process draws.
    pub(crate) fn draw_context(&self) -> u64 {
        context::number(self.rank(), self.next_context.fetch_add(1, Ordering::Relaxed))
    }
}

impl Deref for Process {
    type Target = Instance;

    #[inline]
    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("rank", &self.rank()).field("level", &self.level).finish()
    }
}

/// The World Model (MPI-5.0 §11.2): a process with its predefined communicators.
#[derive(Debug)]
pub struct WorldModel {
    process: Arc<Process>,
    world: Comm,
    myself: Comm,
}

impl WorldModel {
    /// Makes the predefined communicators of a process.
    pub fn new(process: Process) -> Self {
        let process = Arc::new(process);
        Self { world: Comm::world(&process), myself: Comm::myself(&process), process }
    }

    /// The process.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// `MPI_COMM_WORLD`.
    #[inline]
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// `MPI_COMM_SELF`.
    pub fn myself(&self) -> &Comm {
        &self.myself
    }
}

impl Deref for WorldModel {
    type Target = Process;

    #[inline]
    fn deref(&self) -> &Process {
        &self.process
    }
}

/// The initialised process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, after finalisation, and in processes forked from one that is
/// initialised.
#[inline]
pub fn current() -> Result<&'static WorldModel> {
    match (STATE.load(Ordering::Acquire), WORLD.get()) {
        (ACTIVE, Some(world)) => runtime::refuse_forked().map(|()| world).map_err(other),
        (FINALIZED, _) => Err(Error::new(ErrorClass::Other, "called after MPI_Finalize")),
        _ => Err(Error::new(ErrorClass::Other, "called before MPI_Init")),
    }
}

/// True once initialisation has completed.
pub fn is_initialized() -> bool {
    STATE.load(Ordering::Acquire) != NEW
}

/// True once finalisation has completed. True in forked processes, so that they do not finalise.
pub fn is_finalized() -> bool {
    let state = STATE.load(Ordering::Acquire);
    state == FINALIZED || (state == ACTIVE && runtime::refuse_forked().is_err())
}

/// Initialises MPI in this process.
///
/// # Errors
/// A second call, a malformed setting, and those of [`Instance::join`].
pub fn initialize(level: ThreadLevel) -> Result<&'static WorldModel> {
    runtime::refuse_forked().map_err(other)?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(|poison| poison.into_inner());
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        FINALIZED => return Err(Error::new(ErrorClass::Other, "MPI_Init after MPI_Finalize")),
        _ => return Err(Error::new(ErrorClass::Other, "MPI_Init called twice")),
    }
    let _uncancelled = Uncancelled::begin();
    coll::check::validate().map_err(|text| Error::new(ErrorClass::Other, text))?;
    let is_multithreaded = level == ThreadLevel::Multiple;
    let needs = Needs { is_multithreaded, members: Some(comm::members) };
    let instance = Instance::join(&needs).map_err(other)?;
    let world = WORLD.get_or_init(|| WorldModel::new(Process::new(instance, level)));
    STATE.store(ACTIVE, Ordering::Release);
    Ok(world)
}

/// Ends MPI in this process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, and those of [`Instance::leave`].
pub fn finalize() -> Result<()> {
    current()?;
    Instance::leave().map_err(other)?;
    STATE.store(FINALIZED, Ordering::Release);
    Ok(())
}

/// Counters of this process, once it has joined its job.
pub fn counters() -> Option<(progress::Counters, engine::Counters)> {
    Some(WORLD.get()?.counters())
}

/// Ends the job with `code`, without returning; a forked process ends only itself.
pub fn abort(code: i32) -> ! {
    let _uncancelled = Uncancelled::begin();
    if let Some(world) = WORLD.get()
        && runtime::refuse_forked().is_ok()
    {
        world.instance.abort(code);
    }
    std::process::exit(if code == 0 { 1 } else { code })
}

fn other(error: runtime::Error) -> Error {
    Error::new(ErrorClass::Other, error.0)
}

/// States of MPI in this process, whatever other interfaces do.
const NEW: u8 = 0;
const ACTIVE: u8 = 1;
const FINALIZED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NEW);
static WORLD: OnceLock<WorldModel> = OnceLock::new();

/// First counter of drawn context numbers; lower ones belong to the predefined communicators.
const FIRST_CONTEXT: u32 = 16;
