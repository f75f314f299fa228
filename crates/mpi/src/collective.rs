//! Collective calls on communicators (MPI-5.0 §6). `coll` executes them.

use std::sync::Arc;

use coll::{Argument, Collectives, Failure, Fault, Team};
use engine::{EndMark, EndQueueId};
use handles::Handle;
use plan::Topology;
use progress::{Progress, Worker};
use runtime::{record, wanted_rails};
use wire::PeerId;

use crate::comm::{Comm, CommRef};
use crate::request::{Request, Template};
use crate::{Error, ErrorClass, Result};

pub use coll::{CallArguments, Elements, Form, Lengths, Listed, Routine, Shape};

/// A call on a communicator.
pub type Call = coll::Call<CommRef>;

/// One rank's part in a collective on a communicator.
pub type Collective = coll::Collective<CommRef>;

/// A call on a communicator, which has the next number.
#[inline]
pub fn call(comm: CommRef, form: Form) -> Call {
    let comm = match comm.merged() {
        Some(merged) => CommRef::Derived(merged.clone()),
        None => comm,
    };
    Call::new(comm, form)
}

/// Checks the setting of collective calls.
///
/// # Errors
/// `MPI_ERR_OTHER` for a value that is none; the text names the variable.
pub fn check_settings() -> Result<()> {
    coll::check::validate().map_err(|text| Error::new(ErrorClass::Other, text))
}

/// Waits until all processes of the communicator have called.
///
/// # Errors
/// A peer failed.
pub fn barrier(comm: &Comm) -> Result<()> {
    Ok(call(CommRef::Derived(comm.clone()), Form::Blocking).barrier().run()?)
}

/// Starts a collective in the background.
pub fn begin(collective: Collective) -> Request {
    Request::Collective(start(Arc::new(collective)))
}

/// [`begin`]; at the end `then` gets true after success, and is called without the worker's lock.
pub(crate) fn begin_with_end(
    collective: Collective,
    then: Box<dyn FnOnce(bool) + Send>,
) -> Request {
    let collective = Arc::new(collective);
    let PendingCollective { run, comm } = start(Arc::clone(&collective));
    let run = run.followed_by(collective.team().progress(), then);
    Request::Collective(PendingCollective { run, comm })
}

/// Makes a persistent request, which runs the collective each time it is started.
///
/// All processes make such requests in the same order, but may start them in any order (MPI-5.0 §6.13).
/// Therefore the messages of every run carry the number of the call that made the request.
pub fn persistent(collective: Collective) -> Request {
    Request::persistent(Template::Collective(Arc::new(collective)))
}

/// Starts a collective that may run repeatedly, but only once at a time.
pub(crate) fn start(collective: Arc<Collective>) -> PendingCollective {
    let comm = collective.team().handle();
    PendingCollective { run: collective.start(), comm }
}

/// A collective in the background, and the communicator for its errors.
#[derive(Clone, Debug)]
pub struct PendingCollective {
    run: coll::Pending,
    comm: Handle,
}

impl PendingCollective {
    /// The end of something else than a collective, whose errors concern this communicator.
    pub(crate) fn new(run: coll::Pending, comm: Handle) -> Self {
        Self { run, comm }
    }

    /// The same, which ends after `then`; see [`coll::Pending::followed_by`].
    pub(crate) fn followed_by(
        &self,
        progress: &Progress,
        then: Box<dyn FnOnce(bool) + Send>,
    ) -> Self {
        Self { run: self.run.followed_by(progress, then), comm: self.comm }
    }

    /// True once the collective has ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.run.end().is_some()
    }

    /// See [`coll::Pending::register_end`]; the worker is that of its VCI.
    pub(crate) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.run.register_end(worker, mark)
    }

    /// See [`coll::Pending::forget_end`].
    pub(crate) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.run.forget_end(worker, queue);
    }

    /// The result, if the collective has ended: `None` or the error.
    #[inline]
    pub(crate) fn end(&self) -> Option<Option<Error>> {
        let failure = self.run.end()?.clone();
        Some(failure.map(|failure| Error::from(failure).on(self.comm)))
    }
}

impl Team for Comm {
    #[inline]
    fn context(&self) -> u64 {
        self.collective_context()
    }

    #[inline]
    fn rank(&self) -> u32 {
        self.rank()
    }

    #[inline]
    fn size(&self) -> u32 {
        self.size()
    }

    #[inline]
    fn peer(&self, rank: u32) -> PeerId {
        self.peer(rank)
    }

    #[inline]
    fn progress(&self) -> &Progress {
        self.progress()
    }

    #[inline]
    fn places(&self) -> &Topology {
        self.places()
    }

    /// True if the rail `shm` is enabled and communication is not recorded.
    fn wants_shm_coll(&self) -> bool {
        wanted_rails().split([',', '+']).any(|rail| rail.trim() == "shm") && !record::is_on()
    }

    #[inline]
    fn collectives(&self) -> &Collectives {
        self.collectives()
    }
}

impl From<Box<Failure>> for Error {
    #[cold]
    fn from(failure: Box<Failure>) -> Self {
        let class = match failure.fault {
            Fault::PeerGone => ErrorClass::ProcAborted,
            Fault::Revoked => ErrorClass::Revoked,
            Fault::Length => ErrorClass::Truncate,
            Fault::NoMemory => ErrorClass::NoMem,
            Fault::Differ(Argument::Routine) => ErrorClass::Arg,
            Fault::Differ(Argument::Root) => ErrorClass::Root,
            Fault::Differ(Argument::Op) => ErrorClass::Op,
            Fault::Differ(Argument::Count) => ErrorClass::Count,
        };
        Self::new(class, failure.message)
    }
}
