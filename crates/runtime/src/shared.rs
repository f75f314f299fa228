//! The one instance that the C interfaces of this process share: MPI's World Model, its sessions, and the native interface.
//!
//! A *collective* user joins and leaves at the same time as those of all other processes. The World Model is one, and the native
//! interface. A *session* begins and ends when this process likes, so it neither waits for others when it begins nor when it ends.
//! A thread joins the job for it. After the last session the process stays in its job until it exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};

use boot::{BootError, Job};
use lock::Uncancelled;

use crate::error::{Error, Result};
use crate::instance::{Instance, Needs};
use crate::report;

/// Counts one more collective user of this process's communication. The first user joins the job, once more if it was left
/// before: all processes of the job do so as often as each other. All users share one instance.
///
/// # Errors
/// The process was forked, the launcher is not supported, a setting is malformed, or the system
/// lacks a resource. The text says what to do.
pub fn join(needs: &Needs) -> Result<Arc<Instance>> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    membership().add_user();
    let joined = be_present(needs);
    let mut membership = membership();
    match &joined {
        Ok(_) => membership.is_collective = true,
        Err(_) => membership.users -= 1,
    }
    joined
}

/// Counts one user less, a collective one. The last one ends communication: messages in flight arrive, all remaining processes
/// meet, and the launcher is notified.
///
/// # Errors
/// No user is left, the process was forked, or the launcher has failed.
pub fn leave() -> Result<()> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    end_if_unused(without_user()?)
}

/// Counts one more session. A thread joins the job for it, if nobody has joined it.
///
/// # Errors
/// The process was forked, the launcher is not supported, or the system has no thread.
pub fn begin_session(needs: &Needs) -> Result<()> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    Job::check_launcher().map_err(|error| Error(error.to_string()))?;
    recognize_forks();
    let mut membership = membership();
    membership.add_user();
    let is_out = matches!(membership.presence, Presence::Absent | Presence::Leaving);
    if is_out && !std::mem::replace(&mut membership.is_joiner_due, true) {
        let needs = *needs;
        let join = move || {
            let membership = membership_at_rest();
            // Somebody else may have joined, and left again, before this thread has begun.
            if membership.is_joiner_due {
                // A failure is reported to whoever needs the instance.
                drop(enter(membership, &needs));
            }
        };
        let builder = thread::Builder::new().name("canele-join".into());
        match cpu::without_signals(|| builder.spawn(join)) {
            Ok(joiner) => membership.joiner = Some(joiner),
            Err(error) => {
                membership.users -= 1;
                membership.is_joiner_due = false;
                return Err(Error(format!("no thread to join the job: {error}")));
            }
        }
    }
    Ok(())
}

/// The instance that a session uses. Waits until all processes of the job have joined it.
///
/// # Errors
/// Those of [`join`].
pub fn of_session(needs: &Needs) -> Result<Arc<Instance>> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let instance = be_present(needs)?;
    // The C library counts a thread until it has been joined, and locks are cheaper without any.
    let joiner = membership().joiner.take();
    if let Some(joiner) = joiner {
        // It has nothing left to do, and does not panic.
        let _ = joiner.join();
    }
    Ok(instance)
}

/// Counts one session less. If it was the last user, its messages arrive, and the process stays in its job. It leaves the job
/// only where a collective user has been here: then the other processes wait for it.
///
/// # Errors
/// No user is left, the process was forked, or the launcher has failed.
pub fn end_session() -> Result<()> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let membership = without_user()?;
    if membership.is_collective {
        return end_if_unused(membership);
    }
    if let (Presence::Present(instance), 0) = (&membership.presence, membership.users) {
        let instance = Arc::clone(instance);
        drop(membership);
        instance.settle();
    }
    Ok(())
}

/// Leaves the job in which sessions have kept this process, at its exit. Does nothing while there are users, which the launcher then
/// reports, nor in forked processes, nor after [`abandon`].
pub fn leave_at_exit() {
    if IS_FORKED.load(Ordering::Relaxed) || IS_ABANDONED.load(Ordering::Relaxed) {
        return;
    }
    let mut membership = membership();
    // A session that ends later, in a destructor, ends communication.
    membership.is_collective = true;
    let is_out = matches!(membership.presence, Presence::Absent | Presence::Failed(_));
    if membership.users > 0 || (is_out && !membership.is_joiner_due) {
        return;
    }
    let joiner = membership.joiner.take();
    drop(membership);
    // A thread of its own has thread-local variables, which those that exit may have lost.
    let leave = || {
        // It does not panic.
        let _ = joiner.map(JoinHandle::join);
        // The launcher sees the end of the process in any case.
        let _ = end_if_unused(membership_at_rest());
    };
    let builder = thread::Builder::new().name("canele-exit".into());
    if let Ok(thread) = cpu::without_signals(|| builder.spawn(leave)) {
        // It does not panic.
        let _ = thread.join();
    }
}

/// Lets the exit of this process wait for no other: it ends because of an error.
pub fn abandon() {
    IS_ABANDONED.store(true, Ordering::Relaxed);
}

/// This process among those of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPlace {
    /// Rank in the job.
    pub rank: u32,
    /// Number of processes in the job.
    pub size: u32,
}

/// The place of this process, which has a session. It is known before other processes have joined the job, if the launcher is ours.
///
/// # Errors
/// Those of [`join`].
pub fn place() -> Result<JobPlace> {
    refuse_forked()?;
    let mut membership = membership();
    loop {
        match (membership.place, &membership.presence) {
            (Some(place), _) => return Ok(place),
            (None, Presence::Failed(error)) => return Err(error.clone()),
            (None, _) => membership = changed(membership),
        }
    }
}

/// The place of this process, if it is known. Does not wait.
pub fn known_place() -> Option<JobPlace> {
    membership().place
}

/// The instance, if this process is in its job.
pub fn present() -> Option<Arc<Instance>> {
    match &membership().presence {
        Presence::Present(instance) => Some(Arc::clone(instance)),
        Presence::Absent | Presence::Joining | Presence::Leaving | Presence::Failed(_) => None,
    }
}

/// Joins the job unless this process is in it, and returns the instance.
fn be_present(needs: &Needs) -> Result<Arc<Instance>> {
    enter(membership_at_rest(), needs)
}

/// Joins the job as [`be_present`] does, given the membership at rest.
fn enter(mut membership: MutexGuard<'static, Membership>, needs: &Needs) -> Result<Arc<Instance>> {
    membership.is_joiner_due = false;
    let instance = match &membership.presence {
        Presence::Present(instance) => Arc::clone(instance),
        Presence::Failed(error) => return Err(error.clone()),
        Presence::Absent | Presence::Joining | Presence::Leaving => {
            membership.presence = Presence::Joining;
            let has_left = membership.has_left;
            drop(membership);
            let joined = start(needs, has_left);
            membership = self::membership();
            membership.presence = match &joined {
                Ok(instance) => Presence::Present(Arc::clone(instance)),
                Err(error) => Presence::Failed(error.clone()),
            };
            membership.is_collective = false;
            CHANGED.notify_all();
            joined?
        }
    };
    drop(membership);
    if let Some(contexts) = needs.contexts {
        instance.set_contexts(contexts);
    }
    if let Some(name) = needs.name_context {
        instance.set_name_context(name);
    }
    if let Some(find) = needs.find_call {
        progress::set_call_finder(find);
    }
    Ok(instance)
}

/// Joins the job of the launcher, and makes an instance.
fn start(needs: &Needs, again: bool) -> Result<Arc<Instance>> {
    recognize_forks();
    let job = join_job(again)?;
    let instance = Arc::new(Instance::new(job, needs)?);
    report::begin(&instance);
    Ok(instance)
}

/// Joins the job of the launcher.
fn join_job(again: bool) -> Result<Job> {
    let known = |job: &Job| {
        membership().place = Some(JobPlace { rank: job.rank(), size: job.size() });
        CHANGED.notify_all();
    };
    if !again {
        let job = Job::join().map_err(|error| Error(error.to_string()))?;
        known(&job);
        return Ok(job);
    }
    let failed = |error: BootError| {
        Error(format!("the process has left its job and cannot join it again: {error}"))
    };
    let job = Job::join().map_err(failed)?;
    known(&job);
    // All processes have closed the links of before; a late one might be taken for one of this time.
    job.fence().map_err(failed)?;
    Ok(job)
}

/// Ends communication if nobody uses it.
fn end_if_unused(mut membership: MutexGuard<'_, Membership>) -> Result<()> {
    let (Presence::Present(instance), 0) = (&membership.presence, membership.users) else {
        return Ok(());
    };
    let instance = Arc::clone(instance);
    membership.presence = Presence::Leaving;
    drop(membership);
    let ended = instance.end();
    let mut membership = self::membership();
    membership.presence = match ended {
        Ok(()) => Presence::Absent,
        Err(_) => Presence::Present(instance),
    };
    membership.has_left |= ended.is_ok();
    membership.users += u32::from(ended.is_err());
    CHANGED.notify_all();
    ended
}

/// Fails in a process forked from one that has joined its job. Takes no lock, because another thread may have
/// held it at the fork.
///
/// # Errors
/// The process is such a process.
#[inline]
pub fn refuse_forked() -> Result<()> {
    if IS_FORKED.load(Ordering::Relaxed) { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> Error {
    let text = "called in a forked process, which has no part in the job: \
        its parent may call, or a program it executes";
    Error(text.into())
}

/// Lets processes know that they are forked from this one.
fn recognize_forks() {
    static TELL: Once = Once::new();
    TELL.call_once(|| rail::tell_forked(have_forked));
}

/// Runs in a forked process before anything else.
extern "C" fn have_forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Users of the shared instance.
struct Membership {
    presence: Presence,
    users: u32,
    /// True if a collective user has used this instance.
    is_collective: bool,
    has_left: bool,
    place: Option<JobPlace>,
    /// The thread that joins for sessions.
    joiner: Option<JoinHandle<()>>,
    /// True until that thread begins to join, or somebody else does.
    is_joiner_due: bool,
}

/// This process's part in its job.
enum Presence {
    Absent,
    Joining,
    Present(Arc<Instance>),
    Leaving,
    /// It could not join.
    Failed(Error),
}

impl Membership {
    fn add_user(&mut self) {
        if let (Presence::Failed(_), 0) = (&self.presence, self.users) {
            self.presence = Presence::Absent;
        }
        self.users += 1;
    }
}

/// The membership, with one user less.
fn without_user() -> Result<MutexGuard<'static, Membership>> {
    let mut membership = membership();
    let missing = || Error("the process is in no job".into());
    membership.users = membership.users.checked_sub(1).ok_or_else(missing)?;
    Ok(membership)
}

/// The membership while nobody joins or leaves.
fn membership_at_rest() -> MutexGuard<'static, Membership> {
    let mut membership = membership();
    while matches!(membership.presence, Presence::Joining | Presence::Leaving) {
        membership = changed(membership);
    }
    membership
}

/// The membership after its next change.
fn changed(membership: MutexGuard<'static, Membership>) -> MutexGuard<'static, Membership> {
    CHANGED.wait(membership).unwrap_or_else(PoisonError::into_inner)
}

fn membership() -> MutexGuard<'static, Membership> {
    MEMBERSHIP.lock().unwrap_or_else(PoisonError::into_inner)
}

static MEMBERSHIP: Mutex<Membership> = Mutex::new(Membership {
    presence: Presence::Absent,
    users: 0,
    is_collective: false,
    has_left: false,
    place: None,
    joiner: None,
    is_joiner_due: false,
});
static CHANGED: Condvar = Condvar::new();
static IS_FORKED: AtomicBool = AtomicBool::new(false);
static IS_ABANDONED: AtomicBool = AtomicBool::new(false);
