//! A process that was started without `mpiexec`, and starts one for its children: it asks on our standard input.

use std::io::{BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::channel::{Ended, Exit};
use crate::{pmi, system};

/// The connection to the process.
pub(crate) struct Singleton(UnixStream);

impl Singleton {
    /// Takes the connection, and passes on its requests, the last of them none.
    ///
    /// # Errors
    /// Our standard input is no connection, or the system lacks a resource, with one line.
    pub fn serve(
        mut take: impl FnMut(Option<Vec<u8>>) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let failed =
            |error| format!("the connection to the process that has started mpiexec: {error}");
        let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        let stream = UnixStream::from(input);
        stream.peer_addr().map_err(failed)?;
        let reading = stream.try_clone().map_err(failed)?;
        system::start_thread(move || {
            let mut lines = BufReader::new(reading);
            while let Ok(Some(request)) = pmi::read_request(&mut lines) {
                if !take(Some(request)) {
                    return;
                }
            }
            take(None);
        })
        .map_err(failed)?;
        Ok(Self(stream))
    }

    /// Sends lines.
    pub fn answer(&self, lines: &[u8]) {
        // A process that has ended needs no answer.
        let _ = (&self.0).write_all(lines);
    }

    /// Sends a signal that is to end the process.
    pub fn signal(&self, signal: Signal) {
        let process = socket_peercred(&self.0).ok().map(|process| process.pid);
        let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        if let Some(process) = process {
            // A process that has ended needs none.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// End of the process, whose code nobody tells us.
    pub fn ended() -> Ended {
        Ended { exit: Exit::Code(0), was_signalled: false, reason: None }
    }
}
