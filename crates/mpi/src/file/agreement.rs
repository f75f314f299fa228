//! Agreement of the processes that call a collective function of a file.

use coll::Routine;

use crate::comm::Comm;
use crate::{Error, ErrorClass, Result, exchange};

/// Returns the same result on every process (collective): success, or the failure of the lowest rank that has one.
///
/// Everyone has called when it returns.
pub(super) fn agree<T>(comm: &Comm, routine: Routine, mine: Result<T>) -> Result<T> {
    agree_on(comm, routine, 0, mine)
}

/// [`agree`]; a value that differs between processes is a failure of class `MPI_ERR_NOT_SAME`.
pub(super) fn agree_on<T>(comm: &Comm, routine: Routine, value: u64, mine: Result<T>) -> Result<T> {
    let (result, values) = gather(comm, routine, value.to_le_bytes().into(), 8, mine)?;
    let differs = values.iter().position(|other| *other != values[0]);
    differs.map_or(Ok(result), |rank| {
        let message = format!("{routine:?}: the arguments of ranks 0 and {rank} differ");
        Err(Error::new(ErrorClass::NotSame, message))
    })
}

/// [`agree`] that gathers `len` bytes of each process. Those of one that has failed may be fewer.
pub(super) fn gather<T>(
    comm: &Comm,
    routine: Routine,
    mut bytes: Vec<u8>,
    len: usize,
    mine: Result<T>,
) -> Result<(T, Vec<Vec<u8>>)> {
    if comm.size() == 1 {
        return Ok((mine?, vec![bytes]));
    }
    bytes.resize(len, 0);
    bytes.push(mine.as_ref().err().map_or(0, |error| number_of(error.class)));
    let lengths = vec![bytes.len() as u64; comm.size() as usize];
    let mut votes = exchange::allgather_listed(comm, routine, &bytes, &lengths)?;
    let classes: Vec<u8> = votes.iter_mut().map(|vote| vote.pop().unwrap_or(0)).collect();
    let Some(failed) = classes.iter().position(|class| *class != 0) else {
        return Ok((mine?, votes));
    };
    let text = mine.as_ref().err().map_or(String::new(), |error| error.message.to_string());
    let mut padded = [0; TEXT];
    let len = text.len().min(TEXT);
    padded[..len].copy_from_slice(&text.as_bytes()[..len]);
    let texts = exchange::allgather(comm, routine, padded)?;
    let text = String::from_utf8_lossy(&texts[failed]);
    let class = class_of(classes[failed]);
    Err(Error::new(class, format!("rank {failed}: {}", text.trim_end_matches('\0'))))
}

/// Number of an error class in a vote; 0 is success.
fn number_of(class: ErrorClass) -> u8 {
    ErrorClass::ALL.iter().position(|known| *known == class).map_or(u8::MAX, |at| at as u8 + 1)
}

fn class_of(number: u8) -> ErrorClass {
    ErrorClass::ALL.get(usize::from(number) - 1).copied().unwrap_or(ErrorClass::Io)
}

/// Length of a message in bytes.
const TEXT: usize = 384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_numbers() {
        for class in ErrorClass::ALL {
            assert_eq!(class_of(number_of(*class)), *class);
        }
    }
}
