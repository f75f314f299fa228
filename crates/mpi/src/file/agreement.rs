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
    if comm.size() == 1 {
        return mine;
    }
    let mut vote = [0; 9];
    vote[0] = mine.as_ref().err().map_or(0, |error| number_of(error.class));
    vote[1..].copy_from_slice(&value.to_le_bytes());
    let votes = exchange::allgather(comm, routine, vote)?;
    let failed = votes.iter().position(|vote| vote[0] != 0);
    let Some(failed) = failed else {
        let differs = votes.iter().position(|vote| vote[1..] != votes[0][1..]);
        return differs.map_or(mine, |rank| {
            let message = format!("{routine:?}: the arguments of ranks 0 and {rank} differ");
            Err(Error::new(ErrorClass::NotSame, message))
        });
    };
    let text = mine.as_ref().err().map_or(String::new(), |error| error.message.to_string());
    let mut padded = [0; TEXT];
    let len = text.len().min(TEXT);
    padded[..len].copy_from_slice(&text.as_bytes()[..len]);
    let texts = exchange::allgather(comm, routine, padded)?;
    let text = String::from_utf8_lossy(&texts[failed]);
    let class = class_of(votes[failed][0]);
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
