//! The one instance that the C interfaces of this process share: MPI's World Model and the native interface.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boot::{BootError, Job};
use lock::Uncancelled;

use crate::error::{Error, Result};
use crate::instance::{Instance, Needs};
use crate::report;

/// Counts one more user of this process's communication. The first joins the job, once more if it was left before: all
/// processes of the job do so as often as each other. All users share one instance.
///
/// # Errors
/// The process was forked, the launcher is not supported, a setting is malformed, or the system
/// lacks a resource. The text says what to do.
pub fn join(needs: &Needs) -> Result<Arc<Instance>> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let mut membership = membership();
    let instance = match &membership.instance {
        Some(instance) => Arc::clone(instance),
        None => {
            let job = join_job(membership.has_left)?;
            let instance = Arc::new(Instance::new(job, needs)?);
            if !membership.has_left {
                rail::tell_forked(have_forked);
            }
            report::begin(&instance);
            Arc::clone(membership.instance.insert(instance))
        }
    };
    if let Some(members) = needs.members {
        instance.set_members(members);
    }
    if let Some(name) = needs.name_context {
        instance.set_name_context(name);
    }
    if let Some(find) = needs.find_call {
        progress::set_call_finder(find);
    }
    membership.users += 1;
    Ok(instance)
}

/// Counts one user less. The last one ends communication: messages in flight arrive, all remaining processes meet,
/// and the launcher is notified.
///
/// # Errors
/// No user is left, the process was forked, or the launcher has failed.
pub fn leave() -> Result<()> {
    refuse_forked()?;
    let _uncancelled = Uncancelled::begin();
    let mut membership = membership();
    let instance = match (&membership.instance, membership.users) {
        (Some(instance), 1..) => Arc::clone(instance),
        _ => return Err(Error("the process is in no job".into())),
    };
    if membership.users == 1 {
        instance.end()?;
        membership.instance = None;
        membership.has_left = true;
    }
    membership.users -= 1;
    Ok(())
}

/// Joins the job of the launcher.
fn join_job(again: bool) -> Result<Job> {
    if !again {
        return Job::join().map_err(|error| Error(error.to_string()));
    }
    let failed = |error: BootError| {
        Error(format!("the process has left its job and cannot join it again: {error}"))
    };
    let job = Job::join().map_err(failed)?;
    // All processes have closed the links of before; a late one might be taken for one of this time.
    job.fence().map_err(failed)?;
    Ok(job)
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

/// Runs in a forked process before anything else.
extern "C" fn have_forked() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Users of the shared instance.
#[derive(Default)]
struct Membership {
    instance: Option<Arc<Instance>>,
    users: u32,
    has_left: bool,
}

fn membership() -> MutexGuard<'static, Membership> {
    static MEMBERSHIP: Mutex<Membership> =
        Mutex::new(Membership { instance: None, users: 0, has_left: false });
    MEMBERSHIP.lock().unwrap_or_else(PoisonError::into_inner)
}

static IS_FORKED: AtomicBool = AtomicBool::new(false);
