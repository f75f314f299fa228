//! The open ports of a process, and the names that it has published.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use runtime::{Job, MeetingError, NameAnswer, NameError, NameQuestion, Port, PublishedNames};
use zeroize::Zeroizing;

use crate::{Error, ErrorClass, Result};

/// The open ports of a process, and the names that it has published.
#[derive(Default)]
pub struct OpenPorts {
    ports: Mutex<Vec<(Zeroizing<String>, Arc<Port>)>>,
    names: OnceLock<PublishedNames>,
}

impl OpenPorts {
    /// Adds a port that has just been opened; returns its name.
    pub fn add(&self, port: Port) -> Zeroizing<String> {
        let name = port.name().emit();
        self.ports().push((name.clone(), Arc::new(port)));
        name
    }

    /// The open port of this name.
    ///
    /// # Errors
    /// `MPI_ERR_PORT` if this process has none.
    pub fn find(&self, name: &str) -> Result<Arc<Port>> {
        let ports = self.ports();
        let found = ports.iter().find(|(own, _)| **own == name.trim_end());
        found.map(|(_, port)| Arc::clone(port)).ok_or_else(unknown)
    }

    /// Closes a port.
    ///
    /// # Errors
    /// `MPI_ERR_PORT` if this process has none of this name.
    pub fn close(&self, name: &str) -> Result<()> {
        let port = self.find(name)?;
        self.ports().retain(|(_, other)| !Arc::ptr_eq(other, &port));
        port.close();
        Ok(())
    }

    /// Closes all ports, and withdraws the names that this process has published.
    pub fn end(&self) {
        for (_, port) in std::mem::take(&mut *self.ports()) {
            port.close();
        }
        if let Some(names) = self.names.get() {
            names.withdraw_all();
        }
    }

    /// Publishes the name of a port under the name of a service: for all worlds of our `mpiexec`, and for other jobs of the user
    /// on this host unless `is_of_job`.
    ///
    /// # Errors
    /// `MPI_ERR_SERVICE` if the service has a port already, or no name can be published.
    pub fn publish(&self, job: &Job, service: &str, port: &str, is_of_job: bool) -> Result<()> {
        let (service, port) = (service.trim(), port.trim_end());
        PublishedNames::check(service).map_err(failure)?;
        let is_served = match job.ask_name(NameQuestion::Publish(service, port)) {
            NameAnswer::Refused => return Err(failure(NameError::Taken(service.into()))),
            NameAnswer::Done(_) => true,
            NameAnswer::NotServed => false,
        };
        if is_served && is_of_job {
            return Ok(());
        }
        let published = self.names().and_then(|it| it.publish(service, port).map_err(failure));
        match published {
            // The launcher's names need no folder.
            Err(error) if is_served && error.class == ErrorClass::Other => Ok(()),
            Err(error) => {
                job.ask_name(NameQuestion::Withdraw(service, port));
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// The name of the port that is published for a service.
    ///
    /// # Errors
    /// `MPI_ERR_NAME` if there is none.
    pub fn look_up(&self, job: &Job, service: &str) -> Result<Zeroizing<String>> {
        let service = service.trim();
        match job.ask_name(NameQuestion::LookUp(service)) {
            NameAnswer::Done(port) => Ok(port),
            NameAnswer::NotServed | NameAnswer::Refused => {
                self.names()?.look_up(service).map_err(failure)
            }
        }
    }

    /// Withdraws the name of a service.
    ///
    /// # Errors
    /// `MPI_ERR_SERVICE` if it is not published with this port.
    pub fn withdraw(&self, job: &Job, service: &str, port: &str) -> Result<()> {
        let (service, port) = (service.trim(), port.trim_end());
        let answer = job.ask_name(NameQuestion::Withdraw(service, port));
        let withdrawn = self.names().and_then(|it| it.withdraw(service, port).map_err(failure));
        if matches!(answer, NameAnswer::Done(_)) { Ok(()) } else { withdrawn }
    }

    fn names(&self) -> Result<&PublishedNames> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        let names = PublishedNames::of_user().map_err(failure)?;
        Ok(self.names.get_or_init(|| names))
    }

    fn ports(&self) -> MutexGuard<'_, Vec<(Zeroizing<String>, Arc<Port>)>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a meeting.
#[cold]
pub(crate) fn not_met(error: &MeetingError) -> Error {
    let class = match error {
        MeetingError::System(_) => ErrorClass::Other,
        MeetingError::Name
        | MeetingError::Unreachable(_)
        | MeetingError::Key
        | MeetingError::Refused
        | MeetingError::NotAccepted(_)
        | MeetingError::NotConnected(_)
        | MeetingError::Closed
        | MeetingError::Gone
        | MeetingError::Late
        | MeetingError::Malformed => ErrorClass::Port,
    };
    Error::new(class, error.to_string())
}

#[cold]
fn failure(error: NameError) -> Error {
    let class = match &error {
        NameError::Unknown(_) => ErrorClass::Name,
        NameError::Taken(_) | NameError::NotPublished(_) | NameError::Invalid => {
            ErrorClass::Service
        }
        NameError::Folder { .. } => ErrorClass::Other,
    };
    Error::new(class, error.to_string())
}

#[cold]
fn unknown() -> Error {
    let text =
        "this process has no open port of this name: pass what MPI_Open_port has returned here";
    Error::new(ErrorClass::Port, text)
}
