//! Formats of the calls of windows.

use wire::RemoteKey;

/// Kind of a call. Its first argument is the key of the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// Combines elements: the combination, and the number of runs; runs and data are the payload. The answer is the
    /// elements that were there.
    Accumulate,
    /// Compares and swaps one element: the combination, and its offset; the payload is what to compare with and the new
    /// element. The answer is the element that was there.
    CompareAndSwap,
    /// Takes the lock: its kind, and the rank of the caller. Answered once it is granted; refused if a process that has
    /// failed holds it.
    Lock,
    /// Gives the lock back: its kind.
    Unlock,
    /// Tells that the lock was given back while somebody waited.
    GivenBack,
    /// Tells those who serve the lock that a process has failed: its rank.
    Lost,
    /// Writes short pieces of memory: the number of runs; runs and bytes are the payload.
    Put,
    /// Reads short pieces of memory: the number of runs, which are the payload. The answer is the bytes.
    Get,
}

impl CallKind {
    pub const ALL: [Self; 8] = [
        Self::Accumulate,
        Self::CompareAndSwap,
        Self::Lock,
        Self::Unlock,
        Self::GivenBack,
        Self::Lost,
        Self::Put,
        Self::Get,
    ];
}

/// Encodes a key as an argument.
pub(crate) fn argument_of(key: RemoteKey) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

/// Decodes a key.
pub(crate) fn key_of(argument: u64) -> RemoteKey {
    RemoteKey { index: argument as u32, generation: (argument >> 32) as u32 }
}

/// Length of a run in bytes: the offset of its first element, and the number of its elements.
pub(crate) const RUN_LEN: usize = 12;

/// Appends a run.
pub(crate) fn push_run(to: &mut Vec<u8>, offset: u64, count: u32) {
    to.extend_from_slice(&offset.to_le_bytes());
    to.extend_from_slice(&count.to_le_bytes());
}

/// Decodes the runs at the beginning of a payload; returns them and the data behind. `None` if they are not there.
pub(crate) fn runs_of(
    payload: &[u8],
    count: u64,
) -> Option<(impl Iterator<Item = (u64, u32)>, &[u8])> {
    let len = usize::try_from(count).ok()?.checked_mul(RUN_LEN)?;
    let (runs, data) = payload.split_at_checked(len)?;
    let runs = runs.as_chunks::<RUN_LEN>().0.iter().map(|run| {
        let (offset, count) = run.split_at(8);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        (number(offset), number(count) as u32)
    });
    Some((runs, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_runs_are_decoded_as_they_were_encoded() {
        let key = RemoteKey { index: 7, generation: u32::MAX };
        assert_eq!(key_of(argument_of(key)), key);
        let mut payload = Vec::new();
        push_run(&mut payload, u64::MAX - 1, 3);
        push_run(&mut payload, 0x0102_0304_0506_0708, u32::MAX);
        payload.extend([9, 9]);
        let (runs, data) = runs_of(&payload, 2).unwrap();
        let expected = [(u64::MAX - 1, 3), (0x0102_0304_0506_0708, u32::MAX)];
        assert_eq!((runs.collect::<Vec<_>>(), data), (expected.to_vec(), &[9, 9][..]));
        assert!(runs_of(&payload, 3).is_none() && runs_of(&payload, u64::MAX).is_none());
    }
}
