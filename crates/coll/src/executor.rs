//! Execution of collective operations from the planner's schedules (MPI-5.0 §6): at once, in the background, or
//! repeatedly.

use std::sync::{Arc, OnceLock};

use engine::{EndMark, EndMarks, EndQueueId, OpId};
use lock::Lock;
use memory::Region;
use plan::Schedule;
use progress::{Progress, Task, TaskStage, Worker};

use crate::call::{Call, Collective};
use crate::check;
use crate::failure::{Failure, Result};
use crate::running::Running;
use crate::team::{Form, Team};

/// Result of a collective in the background, once it has ended: `None` or the failure.
#[derive(Clone, Debug)]
pub struct Pending(Arc<CollectiveEnd>);

#[derive(Debug, Default)]
struct CollectiveEnd {
    result: OnceLock<Option<Box<Failure>>>,
    /// Queues that are told of the end; used with the lock of the team's worker.
    marks: Lock<EndMarks>,
}

impl<T: Team> Collective<T> {
    /// Runs the collective to its end.
    ///
    /// # Errors
    /// A peer failed, or sent a message of another length than this process expects.
    pub fn run(&self) -> Result<()>
    where
        T: Clone,
    {
        if self.call.arguments.get().is_some() {
            self.compare()?;
        }
        self.carry_out()
    }

    #[cold]
    fn compare(&self) -> Result<()>
    where
        T: Clone,
    {
        let mut comparison = self.comparison();
        while let Some(one) = comparison {
            one.collective.carry_out()?;
            comparison = one.conclude()?;
        }
        Ok(())
    }

    #[inline]
    fn carry_out(&self) -> Result<()> {
        if self.call.form == Form::Blocking
            && let Some(slot) = self.call.team.collectives().slot()
        {
            slot.begin(self.call.tag);
        }
        let progress = self.call.team.progress();
        let mut running = Running::new(self);
        while progress.wait(|worker| running.advance_or_await(worker)) == TaskStage::Works {
            running.work();
        }
        running.failure.map_or(Ok(()), Err)
    }

    /// The comparison of arguments that runs first, if checks are on.
    fn comparison(&self) -> Option<Comparison<T>>
    where
        T: Clone,
    {
        let arguments = self.call.arguments.get()?;
        let (team, size) = (&self.call.team, self.call.team.size());
        let calls = check::exchange(team, check::RECORD as u64);
        let lengths = check::exchange(team, check::LENGTHS as u64 * u64::from(size));
        let then = Lengths { schedule: lengths, own: check::lengths(arguments, size) };
        let own = arguments.emit().to_vec();
        Some(Comparison::new(&self.call, calls, own, Compared::Calls(then)))
    }
}

impl<T: Team + Clone + Send + Sync + 'static> Collective<T> {
    /// Starts it; the progress engine runs it in the background. It may run repeatedly, but only once at a time.
    pub fn start(self: Arc<Self>) -> Pending {
        let pending = Pending(Arc::default());
        let comparison = self.comparison().map(Comparison::begun);
        let (running, end) = (Running::new(Arc::clone(&self)), pending.clone());
        let task = Background { comparison, running, end };
        self.team().progress().begin(Box::new(task));
        pending
    }
}

impl Pending {
    /// The end of something else than a collective, which [`Pending::set`] tells.
    pub fn of_other() -> Self {
        Self(Arc::default())
    }

    /// The result, if the collective has ended.
    #[inline]
    pub fn end(&self) -> Option<&Option<Box<Failure>>> {
        self.0.result.get()
    }

    /// Lets a place enter a queue of the team's worker at the end, or at once; see [`EndMarks::register`].
    pub fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Option<u32> {
        self.0.marks.lock().register(&mut worker.engine, mark, self.end().is_some())
    }

    /// Takes back [`Pending::register_end`], unless the collective has ended.
    pub fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        self.0.marks.lock().forget(&mut worker.engine, queue);
    }

    /// The end of this collective and of what follows it: `then` gets true after success, and is called
    /// without the worker's lock. `progress` is that of the team.
    pub fn followed_by(&self, progress: &Progress, then: Box<dyn FnOnce(bool) + Send>) -> Self {
        let end = Self(Arc::default());
        progress.begin(Box::new(Following {
            first: self.clone(),
            then: Some(then),
            end: end.clone(),
        }));
        end
    }

    /// Tells of the end.
    pub fn set(&self, failure: Option<Box<Failure>>, worker: &mut Worker) {
        // A collective ends once.
        let _ = self.0.result.set(failure);
        self.0.marks.lock().note(&mut worker.engine);
    }
}

/// Waits for a collective, and does what follows it.
struct Following {
    first: Pending,
    then: Option<Box<dyn FnOnce(bool) + Send>>,
    end: Pending,
}

impl Task for Following {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        match self.first.end() {
            None => TaskStage::Waits,
            Some(_) if self.then.is_some() => TaskStage::Works,
            Some(failure) => {
                self.end.set(failure.clone(), worker);
                TaskStage::Ended
            }
        }
    }

    fn work(&mut self) {
        if let (Some(failure), Some(then)) = (self.first.end(), self.then.take()) {
            then(failure.is_none());
        }
    }
}

/// An exchange of arguments, to compare the calls of all processes.
struct Comparison<T> {
    collective: Arc<Collective<T>>,
    /// Arguments of all processes.
    received: Region,
    compared: Compared,
}

/// Data exchanged: first the calls, then their lists of lengths, if a process has one.
enum Compared {
    Calls(Lengths),
    Lengths(Vec<u8>),
}

/// The exchange of lengths, and this process's contribution.
struct Lengths {
    schedule: Arc<Schedule>,
    own: Vec<u8>,
}

impl<T: Team + Clone> Comparison<T> {
    fn new(call: &Call<T>, schedule: Arc<Schedule>, own: Vec<u8>, compared: Compared) -> Self {
        let received = Region::owned(own.len() * call.team.size() as usize);
        let own = Region::from_box(own.into_boxed_slice());
        let member = (call.team.clone(), call.tag);
        let collective = Collective::part(member, schedule, own, received.clone());
        Self { collective: Arc::new(collective), received, compared }
    }

    fn begun(self) -> (OwnRun<T>, Self) {
        (Running::new(Arc::clone(&self.collective)), self)
    }

    /// Compares the exchanged data. Fails for the first difference, or returns the next comparison.
    fn conclude(self) -> Result<Option<Self>> {
        let received = self.received.to_vec();
        match self.compared {
            Compared::Calls(Lengths { schedule, own }) => {
                check::compare(&received).map_or(Ok(()), Err)?;
                let call = &self.collective.call;
                let next = || Self::new(call, schedule, own, Compared::Lengths(received.clone()));
                Ok(check::has_lengths(&received).then(next))
            }
            Compared::Lengths(calls) => {
                check::compare_lengths(&calls, &received).map_or(Ok(None), Err)
            }
        }
    }
}

/// A run that owns its collective.
type OwnRun<T> = Running<Arc<Collective<T>>>;

/// A collective that runs in the background.
struct Background<T> {
    /// The comparison of arguments that runs first, if checks are on.
    comparison: Option<(OwnRun<T>, Comparison<T>)>,
    running: OwnRun<T>,
    end: Pending,
}

impl<T: Team + Clone> Background<T> {
    fn stage(&mut self, worker: &mut Worker) -> TaskStage {
        while let Some((mut running, comparison)) = self.comparison.take() {
            let stage = running.advance(worker);
            if stage != TaskStage::Ended {
                self.comparison = Some((running, comparison));
                return stage;
            }
            match running.failure.take().map_or_else(|| comparison.conclude(), Err) {
                Ok(next) => self.comparison = next.map(Comparison::begun),
                Err(failure) => {
                    self.running.failure = Some(failure);
                    return TaskStage::Ended;
                }
            }
        }
        self.running.advance(worker)
    }
}

impl<T: Team + Clone + Send + Sync> Task for Background<T> {
    fn advance(&mut self, worker: &mut Worker) -> TaskStage {
        let stage = self.stage(worker);
        if stage == TaskStage::Ended {
            self.end.set(self.running.failure.take(), worker);
        }
        stage
    }

    fn work(&mut self) {
        match &mut self.comparison {
            Some((running, _)) => running.work(),
            None => self.running.work(),
        }
    }

    fn awaited(&self) -> Option<OpId> {
        match &self.comparison {
            Some((running, _)) => running.awaited(),
            None => self.running.awaited(),
        }
    }
}
