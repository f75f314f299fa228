//! MPI in this process: from initialisation to finalisation (MPI-5.0 §11.2), over the runtime that it shares with the
//! native interface.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use lock::Uncancelled;
use runtime::{Instance, Needs};

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

/// State of an initialised process.
pub struct Process {
    instance: Arc<Instance>,
    rank: u32,
    size: u32,
    world: Comm,
    myself: Comm,
    level: ThreadLevel,
    main_thread: ThreadId,
}

impl Process {
    /// Rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes in the job.
    pub fn size(&self) -> u32 {
        self.size
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

    /// Level of thread support.
    pub fn level(&self) -> ThreadLevel {
        self.level
    }

    /// True if the calling thread initialised MPI.
    pub fn is_main_thread(&self) -> bool {
        std::thread::current().id() == self.main_thread
    }
}

impl Deref for Process {
    type Target = Instance;

    #[inline]
    fn deref(&self) -> &Instance {
        &self.instance
    }
}

/// The initialised process.
///
/// # Errors
/// `MPI_ERR_OTHER` before initialisation, after finalisation, and in processes forked from one that is
/// initialised.
#[inline]
pub fn current() -> Result<&'static Process> {
    match (STATE.load(Ordering::Acquire), PROCESS.get()) {
        (ACTIVE, Some(process)) => runtime::refuse_forked().map(|()| process).map_err(other),
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
pub fn initialize(level: ThreadLevel) -> Result<&'static Process> {
    runtime::refuse_forked().map_err(other)?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(|poison| poison.into_inner());
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        FINALIZED => return Err(Error::new(ErrorClass::Other, "MPI_Init after MPI_Finalize")),
        _ => return Err(Error::new(ErrorClass::Other, "MPI_Init called twice")),
    }
    let _uncancelled = Uncancelled::begin();
    crate::check::validate().map_err(|text| Error::new(ErrorClass::Other, text))?;
    let is_multithreaded = level == ThreadLevel::Multiple;
    let needs = Needs { is_multithreaded, members: Some(comm::members) };
    let instance = Instance::join(&needs).map_err(other)?;
    let (rank, size) = (instance.rank(), instance.size());
    let process = PROCESS.get_or_init(|| Process {
        instance,
        rank,
        size,
        world: Comm::world(rank, size),
        myself: Comm::myself(rank),
        level,
        main_thread: std::thread::current().id(),
    });
    STATE.store(ACTIVE, Ordering::Release);
    Ok(process)
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
    Some(PROCESS.get()?.counters())
}

/// Ends the job with `code`, without returning; a forked process ends only itself.
pub fn abort(code: i32) -> ! {
    let _uncancelled = Uncancelled::begin();
    if let Some(process) = PROCESS.get()
        && runtime::refuse_forked().is_ok()
    {
        process.instance.abort(code);
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
static PROCESS: OnceLock<Process> = OnceLock::new();
