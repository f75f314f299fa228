//! Partitioned messages as requests know them (MPI-5.0 §4.2).

use std::sync::Arc;

use handles::Handle;
use partitioned::{Misuse, PartitionedFault, Receiver, Sender};
use progress::Worker;

use crate::{Error, ErrorClass, Result};

/// One side of a partitioned message.
#[derive(Debug)]
pub struct PartitionedMessage {
    /// Communicator whose error handler gets its errors.
    comm: Handle,
    half: Half,
    /// Number of partitions of this side.
    partitions: u32,
}

#[derive(Debug)]
enum Half {
    Send(Arc<Sender>),
    Receive {
        receiver: Arc<Receiver>,
        source: u32,
        tag: i32,
    },
    /// To `MPI_PROC_NULL`.
    SendToNobody,
    /// From `MPI_PROC_NULL`.
    ReceiveFromNobody,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing: it was a send.
    Sent,
    /// Nothing, from `MPI_PROC_NULL`.
    OfNobody,
    /// A message.
    Message {
        /// Rank of the sender.
        source: u32,
        /// Its tag.
        tag: i32,
        /// Bytes delivered.
        bytes: u64,
    },
}

impl PartitionedMessage {
    /// Makes the sending side; none to `MPI_PROC_NULL`. `comm` is the communicator for its errors.
    pub(crate) fn send(comm: Handle, sender: Option<Arc<Sender>>, partitions: u32) -> Self {
        Self { comm, half: sender.map_or(Half::SendToNobody, Half::Send), partitions }
    }

    /// Makes the receiving side, with the rank of its sender and the tag; none from `MPI_PROC_NULL`.
    pub(crate) fn receive(
        comm: Handle,
        receiver: Option<(Arc<Receiver>, u32, i32)>,
        partitions: u32,
    ) -> Self {
        let of = |(receiver, source, tag)| Half::Receive { receiver, source, tag };
        Self { comm, half: receiver.map_or(Half::ReceiveFromNobody, of), partitions }
    }

    /// Begins a run.
    pub(crate) fn start(&self) {
        match &self.half {
            Half::Send(sender) => sender.start(),
            Half::Receive { receiver, .. } => receiver.start(),
            Half::SendToNobody | Half::ReceiveFromNobody => {}
        }
    }

    /// Marks partitions as ready, all or none.
    ///
    /// # Errors
    /// It is no send, it is not started, or a partition does not exist or is ready already.
    pub(crate) fn mark(&self, partitions: impl Iterator<Item = u32> + Clone) -> Result<()> {
        match &self.half {
            Half::Send(sender) => sender.mark(partitions).map_err(|misuse| self.misused(misuse)),
            Half::SendToNobody => {
                let beyond = partitions.clone().find(|one| *one >= self.partitions);
                beyond.map_or(Ok(()), |one| Err(self.misused(Misuse::NoPartition(one))))
            }
            Half::Receive { .. } | Half::ReceiveFromNobody => {
                let message = "partitions of a receive are not marked as ready; name the request of MPI_Psend_init";
                Err(self.wrong_request(message))
            }
        }
    }

    /// True if a partition has arrived, or the receive is not active.
    ///
    /// # Errors
    /// It is no receive, or there is no such partition.
    pub(crate) fn has_arrived(&self, partition: u32) -> Result<bool> {
        match &self.half {
            Half::Receive { receiver, .. } => {
                receiver.has_arrived(partition).map_err(|misuse| self.misused(misuse))
            }
            Half::ReceiveFromNobody if partition >= self.partitions => {
                Err(self.misused(Misuse::NoPartition(partition)))
            }
            Half::ReceiveFromNobody => Ok(true),
            Half::Send(_) | Half::SendToNobody => {
                let message =
                    "partitions of a send do not arrive; name the request of MPI_Precv_init";
                Err(self.wrong_request(message))
            }
        }
    }

    /// The result of the run, once it is over.
    pub(crate) fn poll(&self, worker: &mut Worker) -> Option<(Arrival, Option<Error>)> {
        let result = match &self.half {
            Half::Send(sender) => sender.poll(worker)?,
            Half::Receive { receiver, .. } => receiver.poll(worker)?.map(drop),
            Half::SendToNobody | Half::ReceiveFromNobody => Ok(()),
        };
        let arrival = match &self.half {
            Half::Send(_) | Half::SendToNobody => Arrival::Sent,
            Half::ReceiveFromNobody => Arrival::OfNobody,
            &Half::Receive { ref receiver, source, tag } => {
                Arrival::Message { source, tag, bytes: receiver.message_bytes() }
            }
        };
        Some((arrival, result.err().map(|fault| self.failure(fault, worker))))
    }

    /// Ends a run that is over.
    pub(crate) fn end(&self, worker: &mut Worker) {
        match &self.half {
            Half::Send(sender) => sender.end(),
            Half::Receive { receiver, .. } => receiver.end(worker),
            Half::SendToNobody | Half::ReceiveFromNobody => {}
        }
    }

    #[cold]
    fn misused(&self, misuse: Misuse) -> Error {
        let error = match misuse {
            Misuse::Inactive => {
                let message =
                    "the request is not active; call MPI_Start before partitions are ready";
                Error::new(ErrorClass::Request, message)
            }
            Misuse::NoPartition(partition) => Error::argument(format!(
                "partition {partition} is outside the {} partitions of the request",
                self.partitions
            )),
            Misuse::ReadyTwice(partition) => {
                Error::argument(format!("partition {partition} is ready already"))
            }
        };
        error.on(self.comm)
    }

    #[cold]
    fn wrong_request(&self, message: &'static str) -> Error {
        Error::new(ErrorClass::Request, message).on(self.comm)
    }

    #[cold]
    fn failure(&self, fault: PartitionedFault, worker: &mut Worker) -> Error {
        let error = match fault {
            PartitionedFault::PeerFailed => {
                let notices = worker.take_notices().join("; ");
                let message = format!("the peer of a partitioned message is gone ({notices})");
                Error::new(ErrorClass::ProcAborted, message)
            }
            PartitionedFault::Truncated { message_bytes } => {
                let message = format!(
                    "a partitioned message of {message_bytes} bytes met a receive of fewer"
                );
                Error::new(ErrorClass::Truncate, message)
            }
            PartitionedFault::NoMemory { partitions } => too_many(partitions),
            PartitionedFault::Malformed => {
                let message = "the peer of a partitioned message breaks the protocol";
                Error::new(ErrorClass::Intern, message)
            }
        };
        error.on(self.comm)
    }
}

/// The error of a message of too many partitions.
#[cold]
pub(crate) fn too_many(partitions: u32) -> Error {
    let message = format!("there is no memory for {partitions} partitions");
    Error::new(ErrorClass::NoMem, message)
}
