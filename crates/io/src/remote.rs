//! Accesses that a process carries out for another one, which does not see the file: the forms of requests and answers.

use crate::fault::{FaultKind, FileFault};
use crate::pattern::Pattern;

/// A request of a process that does not see the file.
#[derive(Clone, Debug)]
pub enum FileRequest {
    /// These bytes are to be read.
    Read(RequestedBytes),
    /// These bytes are to be written.
    Write(RequestedBytes),
    /// The size of the file.
    Size,
    /// Written data are to be transferred to the storage.
    Sync,
    /// A pattern of so many bytes is to be kept, for later requests that give its number.
    Keep {
        /// Number of the pattern.
        number: u64,
        /// Length of its description.
        len: usize,
    },
}

/// Bytes of a pattern's stream.
#[derive(Clone, Debug)]
pub struct RequestedBytes {
    /// The pattern.
    pub pattern: RequestedPattern,
    /// First byte of the stream.
    pub stream: u64,
    /// Number of bytes.
    pub len: usize,
}

/// Pattern of a request.
#[derive(Clone, Debug)]
pub enum RequestedPattern {
    /// The pattern itself.
    Described(Pattern),
    /// Number of one that is kept.
    Kept(u64),
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReply {
    /// Bytes that were moved, or the size of the file.
    pub value: u64,
    /// The failure, if there was one.
    pub fault: Option<FileFault>,
}

impl FileRequest {
    /// Describes the request for the process that sees the file.
    pub fn encode(&self) -> Vec<u8> {
        let of = |bytes: &RequestedBytes| [bytes.stream, bytes.len as u64];
        let (kind, pattern, numbers) = match self {
            Self::Read(bytes) => (READ, Some(&bytes.pattern), of(bytes)),
            Self::Write(bytes) => (WRITE, Some(&bytes.pattern), of(bytes)),
            Self::Size => (SIZE, None, [0; 2]),
            Self::Sync => (SYNC, None, [0; 2]),
            Self::Keep { number, len } => (KEEP, None, [*number, *len as u64]),
        };
        let (kept, described) = match pattern {
            Some(RequestedPattern::Kept(number)) => (*number, Vec::new()),
            Some(RequestedPattern::Described(pattern)) => (0, pattern.encode()),
            None => (0, Vec::new()),
        };
        let words = [kind, kept].into_iter().chain(numbers);
        words.flat_map(u64::to_le_bytes).chain(described).collect()
    }

    /// Returns what another process has asked for; none if it is no request.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, described) = bytes.split_first_chunk::<{ 4 * 8 }>()?;
        let mut numbers = [0; 4];
        for (number, word) in numbers.iter_mut().zip(words.as_chunks().0) {
            *number = u64::from_le_bytes(*word);
        }
        let [kind, kept, first, len] = numbers;
        let len = usize::try_from(len).ok()?;
        let bytes = || {
            let pattern = match described {
                [] => RequestedPattern::Kept(kept),
                described => {
                    let pattern = Pattern::decode(described)?;
                    RequestedPattern::Described(pattern.reaches(first, len).then_some(pattern)?)
                }
            };
            Some(RequestedBytes { pattern, stream: first, len })
        };
        Some(match kind {
            READ => Self::Read(bytes()?),
            WRITE => Self::Write(bytes()?),
            SIZE => Self::Size,
            SYNC => Self::Sync,
            KEEP => Self::Keep { number: first, len },
            _ => return None,
        })
    }
}

impl FileReply {
    /// Length of [`FileReply::encode`].
    pub const LEN: usize = 3 * 8 + TEXT;

    /// Describes the answer for the process that has asked.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let kind = self.fault.as_ref().map_or(0, |fault| number_of(fault.kind));
        let offset = self.fault.as_ref().and_then(|fault| fault.offset);
        let words = [self.value, kind, offset.map_or(NOWHERE, |offset| offset)];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let text = self.fault.as_ref().map_or("", |fault| &fault.reason);
        let len = text.len().min(TEXT);
        bytes[3 * 8..][..len].copy_from_slice(&text.as_bytes()[..len]);
        bytes
    }

    /// Returns the answer of another process.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let mut words = [0; 3];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [value, kind, offset] = words;
        let text = String::from_utf8_lossy(&bytes[3 * 8..]);
        let reason = text.trim_end_matches('\0').to_owned();
        let offset = (offset != NOWHERE).then_some(offset);
        let fault = kind_of(kind).map(|kind| FileFault { kind, reason, offset });
        Self { value, fault }
    }
}

/// Number of a kind of failure; 0 is none.
fn number_of(kind: FaultKind) -> u64 {
    FaultKind::ALL.iter().position(|known| *known == kind).map_or(u64::MAX, |at| at as u64 + 1)
}

fn kind_of(number: u64) -> Option<FaultKind> {
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    Some(FaultKind::ALL.get(at).copied().unwrap_or(FaultKind::Io))
}

const READ: u64 = 1;
const WRITE: u64 = 2;
const SIZE: u64 = 3;
const SYNC: u64 = 4;
const KEEP: u64 = 5;
/// No offset.
const NOWHERE: u64 = u64::MAX;
/// Length of a reason in bytes.
const TEXT: usize = 104;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memory::{Layout, Segment};
    use proptest::prelude::*;

    use super::*;

    fn pattern() -> Pattern {
        let segments = [(0, 3), (5, 3), (11, 2)].map(|(offset, len)| Segment { offset, len });
        Pattern::new(7, &Arc::new(Layout::new(segments, 30))).unwrap()
    }

    #[test]
    fn a_request_comes_back_from_its_description() {
        let described = || RequestedPattern::Described(pattern());
        let all = [
            FileRequest::Read(RequestedBytes { pattern: described(), stream: 8, len: 100 }),
            FileRequest::Write(RequestedBytes { pattern: described(), stream: 0, len: 0 }),
            FileRequest::Write(RequestedBytes {
                pattern: RequestedPattern::Kept(3),
                stream: 9,
                len: 1 << 40,
            }),
            FileRequest::Size,
            FileRequest::Sync,
            FileRequest::Keep { number: 4, len: 5 },
        ];
        for one in all {
            let again = FileRequest::decode(&one.encode()).unwrap();
            assert_eq!(format!("{again:?}"), format!("{one:?}"));
        }
        let beyond =
            FileRequest::Read(RequestedBytes { pattern: described(), stream: u64::MAX, len: 2 });
        assert!(FileRequest::decode(&beyond.encode()).is_none());
    }

    #[test]
    fn an_answer_comes_back_from_its_description() {
        let answer = FileReply { value: 7, fault: None };
        assert_eq!(FileReply::decode(&answer.encode()), answer);
        for kind in FaultKind::ALL {
            for offset in [None, Some(0), Some(1 << 50)] {
                let fault = FileFault { kind, reason: "No space left".into(), offset };
                let answer = FileReply { value: 9, fault: Some(fault) };
                assert_eq!(FileReply::decode(&answer.encode()), answer);
            }
        }
    }

    proptest! {
        #[test]
        fn requests_of_strangers_cause_no_panic(
            words in proptest::collection::vec(
                prop_oneof![0..8u64, Just(u64::MAX), any::<u64>()], 0..14,
            ),
            cut in 0..8usize,
        ) {
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(FileRequest::Read(asked)) = FileRequest::decode(&bytes)
                && let RequestedPattern::Described(own) = asked.pattern
            {
                prop_assert!(own.reaches(asked.stream, asked.len));
            }
        }
    }
}
