//! Partitions of requests: which are ready, and which have arrived (MPI-5.0 §4.2.2, §4.2.3).

use std::sync::Arc;

use handles::{Handle, TableError};

use super::named::{Named, unknown};
use super::requests::REQUESTS;
use super::{NULL, Request, Template};
use crate::partitioned::PartitionedMessage;
use crate::{Error, ErrorClass, Result};

/// Marks partitions of a send as ready, all or none.
///
/// # Errors
/// The request is no partitioned send or not active, or a partition does not exist or is ready already.
pub fn mark_ready(handle: Handle, partitions: impl Iterator<Item = u32> + Clone) -> Result<()> {
    find(handle)?.mark(partitions)
}

/// True if a partition has arrived, or the request is null or not active.
///
/// # Errors
/// The request is no partitioned receive, or there is no such partition.
pub fn has_arrived(handle: Handle, partition: u32) -> Result<bool> {
    if handle == NULL { Ok(true) } else { find(handle)?.has_arrived(partition) }
}

/// Returns the message of a request. Threads share the table's lock for this look-up only.
fn find(handle: Handle) -> Result<Arc<PartitionedMessage>> {
    match Named::of(handle) {
        Named::Null => Err(unknown(handle).about("request")),
        Named::Done(_) | Named::Operation(_) => Err(not_partitioned()),
        Named::Stored(vci) => match &REQUESTS.of(vci).lock().find(handle).map_err(named)?.request {
            Request::Persistent(persistent) => match &persistent.template {
                Template::Partitioned(message) => Ok(Arc::clone(message)),
                Template::Send(_)
                | Template::Receive(_)
                | Template::Collective(_)
                | Template::Followed(_) => Err(not_partitioned()),
            },
            Request::Done(_)
            | Request::Operation(_)
            | Request::Exchange(_)
            | Request::Flush(_)
            | Request::Collective(_)
            | Request::Access(_)
            | Request::Transfer(_)
            | Request::Generalized(_) => Err(not_partitioned()),
        },
    }
}

#[cold]
fn named(error: TableError) -> Error {
    Error::from(error).about("request")
}

#[cold]
fn not_partitioned() -> Error {
    let message = "the request has no partitions; MPI_Psend_init and MPI_Precv_init make such";
    Error::new(ErrorClass::Request, message)
}
