//! Requests whose ends enter queues.

use std::sync::atomic::Ordering;

use engine::{EndMark, EndQueueId};
use handles::Handle;
use progress::Worker;

use super::named::Named;
use super::requests::{REQUESTS, StoredRequest};
use super::{Active, Persistent, Request, Template};

/// Result of registering a request in a queue of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    /// It was not registered there.
    Anew,
    /// It was registered there, at another place.
    Before,
    /// Its end enters no queue.
    Never,
}

impl Registered {
    /// Result of a registration that returns the former place.
    pub fn of(former: Option<u32>) -> Self {
        if former.is_some() { Self::Before } else { Self::Anew }
    }

    /// Registers what has ended.
    pub fn ended(worker: &mut Worker, mark: EndMark) -> Self {
        worker.engine.expect_end(mark.queue);
        worker.engine.note_end(mark);
        Self::Anew
    }
}

impl Request {
    /// Lets a place enter a queue of its VCI's worker whenever an operation of the request ends, and at once if it has.
    pub(super) fn register_end(&self, worker: &mut Worker, mark: EndMark) -> Registered {
        match self {
            Self::Done(_) => Registered::ended(worker, mark),
            Self::Operation(operation) => {
                Registered::of(worker.engine.expect_end_of(operation.op, mark))
            }
            Self::Exchange(parts) => {
                match parts.each_ref().map(|part| part.register_end(worker, mark)) {
                    [Registered::Anew, Registered::Anew] => Registered::Anew,
                    _ => Registered::Before,
                }
            }
            Self::Flush(_) => Registered::Never,
            Self::Collective(pending) => Registered::of(pending.register_end(worker, mark)),
            Self::Access(pending) => Registered::of(pending.register_end(worker, mark)),
            Self::Transfer(pending) => Registered::of(pending.register_end(worker, mark)),
            Self::Generalized(request) => Registered::of(request.register_end(worker, mark)),
            Self::Persistent(persistent) if persistent.is_partitioned() => Registered::Never,
            Self::Persistent(persistent) => {
                if let Some(active) = persistent.run.lock().active() {
                    active.register_end(worker, mark);
                }
                Registered::Anew
            }
        }
    }

    /// Takes back [`Request::register_end`], unless the request has ended.
    pub(super) fn forget_end(&self, worker: &mut Worker, queue: EndQueueId) {
        match self {
            Self::Done(_) | Self::Flush(_) => {}
            Self::Operation(operation) => worker.engine.forget_end_of(operation.op, queue),
            Self::Exchange(parts) => parts.iter().for_each(|part| part.forget_end(worker, queue)),
            Self::Collective(pending) => pending.forget_end(worker, queue),
            Self::Access(pending) => pending.forget_end(worker, queue),
            Self::Transfer(pending) => pending.forget_end(worker, queue),
            Self::Generalized(request) => request.forget_end(worker, queue),
            Self::Persistent(persistent) => match persistent.run.lock().active() {
                Some(Active::Operation(operation)) => {
                    worker.engine.forget_end_of(operation.op, queue);
                }
                Some(Active::Collective(pending)) => pending.forget_end(worker, queue),
                Some(Active::Done(_) | Active::Partitioned(_)) | None => {}
            },
        }
    }
}

impl StoredRequest {
    /// [`Request::register_end`]; a persistent request stays registered.
    pub fn register_end(&mut self, worker: &mut Worker, mark: EndMark) -> Registered {
        if let Request::Persistent(persistent) = &self.request
            && !persistent.is_partitioned()
        {
            // Before its state is asked for: a thread that starts it finds this, or is found.
            persistent.is_registered.store(true, Ordering::Relaxed);
            let marks = self.marks.get_or_insert_default();
            if marks.add(&mut worker.engine, mark).is_some() {
                return Registered::Before;
            }
        }
        self.request.register_end(worker, mark)
    }

    /// Takes back [`StoredRequest::register_end`].
    pub fn forget_end(&mut self, worker: &mut Worker, queue: EndQueueId) {
        if let Some(marks) = &mut self.marks {
            marks.remove(queue);
        }
        self.request.forget_end(worker, queue);
    }
}

impl Persistent {
    /// True if the calls that name the request ask it each time: its end enters no queue.
    fn is_partitioned(&self) -> bool {
        matches!(self.template, Template::Partitioned(_))
    }

    /// Registers a run that has begun wherever the request is registered.
    #[cold]
    pub(super) fn announce(&self, handle: Handle) {
        let register = |worker: &mut Worker| {
            let Named::Stored(vci) = Named::of(handle) else { return };
            let mut requests = REQUESTS.of(vci).lock();
            let Ok(StoredRequest { marks: Some(marks), .. }) = requests.find(handle) else {
                return;
            };
            for mark in marks.iter() {
                if let Some(active) = self.run.lock().active() {
                    active.register_end(worker, mark);
                }
            }
            // It may have ended before.
            worker.engine.submit_event();
        };
        match &self.template {
            Template::Send(send) => send.comm.progress().submit(register),
            Template::Receive(receive) => receive.comm.progress().submit(register),
            Template::Collective(collective) => collective.team().progress().submit(register),
            Template::Followed(followed) => {
                followed.collective.team().progress().submit(register);
            }
            // Such a request is not registered.
            Template::Partitioned(_) => {}
        }
    }
}

impl Active {
    fn register_end(&self, worker: &mut Worker, mark: EndMark) {
        match self {
            Self::Done(_) => {
                Registered::ended(worker, mark);
            }
            Self::Operation(operation) => {
                worker.engine.expect_end_of(operation.op, mark);
            }
            Self::Collective(pending) => {
                pending.register_end(worker, mark);
            }
            // Its end enters no queue.
            Self::Partitioned(_) => {}
        }
    }
}
