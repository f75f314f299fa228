//! A file that another process accesses for this one, which does not see it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{CALL_MAX, OpId, Outcome, Wanted};
use io::{FaultKind, FileFault, FileReply, FileRequest, Pattern, RequestedBytes, RequestedPattern};
use memory::Region;
use progress::Progress;
use wire::{PeerId, RemoteKey};

use super::serving::{HANDLER, PATTERN_MAX, PIECE, PIECES, argument_of};

/// A file that another process accesses for this one.
pub(super) struct ServedFile {
    progress: Arc<Progress>,
    rank: u32,
    peer: PeerId,
    /// Number of the file there.
    number: u64,
    kept: Mutex<KeptPattern>,
}

/// A failed access.
#[derive(Debug)]
pub(super) enum StoreFault {
    /// The system's reason.
    System(FileFault),
    /// The rank that accesses the file for this one is gone.
    Lost(u32),
}

/// Result of an access.
pub(super) type Result<T> = std::result::Result<T, StoreFault>;

impl From<FileFault> for StoreFault {
    fn from(fault: FileFault) -> Self {
        Self::System(fault)
    }
}

/// The long pattern that the other process keeps.
#[derive(Debug, Default)]
struct KeptPattern {
    number: u64,
    pattern: Option<Pattern>,
}

/// Part of a read that is under way.
struct ReadPiece {
    op: OpId,
    /// The answer, and the data behind it.
    answer: Region,
    /// Offset of the data in the application's memory.
    at: usize,
}

impl ServedFile {
    /// A file of this number at a rank of the communicator, and peer.
    pub fn new(progress: &Arc<Progress>, (rank, peer): (u32, PeerId), number: u64) -> Self {
        Self { progress: Arc::clone(progress), rank, peer, number, kept: Mutex::default() }
    }

    /// Size in bytes.
    pub fn size(&self) -> Result<u64> {
        self.ask(&FileRequest::Size, &Region::empty())
    }

    /// Transfers written data to the storage.
    pub fn sync(&self) -> Result<()> {
        self.ask(&FileRequest::Sync, &Region::empty()).map(drop)
    }

    /// Writes to a pattern from byte `stream` on.
    pub fn write(&self, pattern: &Pattern, stream: u64, data: &Region) -> Result<()> {
        let (pattern, len) = (self.requested(pattern)?, data.len());
        self.ask(&FileRequest::Write(RequestedBytes { pattern, stream, len }), data).map(drop)
    }

    /// Reads from byte `stream` of a pattern on. Returns the bytes read, which are fewer at the end of the file.
    pub fn read(&self, pattern: &Pattern, stream: u64, into: &Region) -> Result<usize> {
        let pattern = self.requested(pattern)?;
        let (mut pieces, mut asked) = (VecDeque::new(), 0);
        // The bytes read, once the end of the file or a failure was met.
        let (mut read, mut ended) = (0, None);
        loop {
            while asked < into.len() && pieces.len() < PIECES && ended.is_none() {
                let len = PIECE.min(into.len() - asked);
                let Some(answer) = Region::scratch(FileReply::LEN + len) else {
                    ended = Some(Err(no_memory()));
                    break;
                };
                let (pattern, stream) = (pattern.clone(), stream + asked as u64);
                let request = FileRequest::Read(RequestedBytes { pattern, stream, len });
                let op = self.call(&request, None, &answer);
                pieces.push_back(ReadPiece { op, answer, at: asked });
                asked += len;
            }
            let Some(ReadPiece { op, answer, at }) = pieces.pop_front() else { break };
            let answered = self.wait(op, &answer);
            if ended.is_some() {
                continue;
            }
            let wanted = answer.len() - FileReply::LEN;
            match answered {
                Ok(bytes) => {
                    let bytes = wanted.min(bytes as usize);
                    into.copy_piece(at, &answer, FileReply::LEN, bytes);
                    read += bytes;
                    ended = (bytes < wanted).then_some(Ok(()));
                }
                Err(fault) => ended = Some(Err(fault)),
            }
        }
        ended.unwrap_or(Ok(())).map(|()| read)
    }

    /// Asks for something, with memory that the other process may read, and waits for the answer.
    fn ask(&self, request: &FileRequest, data: &Region) -> Result<u64> {
        let answer = Region::owned(FileReply::LEN);
        let key = self.progress.submit(|worker| worker.engine.expose(data.clone()));
        let op = self.call(request, Some(key), &answer);
        let answered = self.wait(op, &answer);
        self.progress.submit(|worker| worker.engine.withdraw(key));
        answered
    }

    fn call(&self, request: &FileRequest, key: Option<RemoteKey>, answer: &Region) -> OpId {
        let payload = Region::from_box(request.encode().into());
        let arguments = [self.number, key.map_or(0, argument_of), 0];
        let wanted = Wanted::Reply(answer);
        self.progress.submit(|worker| {
            worker.engine.submit_call(self.peer, HANDLER, arguments, &payload, wanted)
        })
    }

    fn wait(&self, op: OpId, answer: &Region) -> Result<u64> {
        let outcome = self.progress.wait(|worker| worker.take_or_await(op)).outcome;
        if outcome != Outcome::Ok {
            return Err(StoreFault::Lost(self.rank));
        }
        let mut bytes = [0; FileReply::LEN];
        answer.read(0, &mut bytes);
        let FileReply { value, fault } = FileReply::decode(&bytes);
        fault.map_or(Ok(value), |fault| {
            let reason = format!("{}, says rank {}", fault.reason, self.rank);
            Err(FileFault { reason, ..fault }.into())
        })
    }

    /// The pattern as requests name it: a long one is described once.
    fn requested(&self, pattern: &Pattern) -> Result<RequestedPattern> {
        if pattern.encoded_len() <= DESCRIBED_MAX {
            return Ok(RequestedPattern::Described(pattern.clone()));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.pattern.as_ref().is_some_and(|known| known.is_identical(pattern)) {
            let described = pattern.encode();
            if described.len() > PATTERN_MAX {
                return Err(no_memory());
            }
            let (number, len) = (kept.number + 1, described.len());
            let described = Region::from_box(described.into());
            self.ask(&FileRequest::Keep { number, len }, &described)?;
            *kept = KeptPattern { number, pattern: Some(pattern.clone()) };
        }
        Ok(RequestedPattern::Kept(kept.number))
    }
}

impl fmt::Debug for ServedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, number) = (self.rank, self.number);
        f.debug_struct("ServedFile")
            .field("rank", &rank)
            .field("number", &number)
            .finish_non_exhaustive()
    }
}

#[cold]
fn no_memory() -> StoreFault {
    let reason = "there is not enough memory to access the file through another rank".to_owned();
    FileFault { kind: FaultKind::NoMemory, reason, offset: None }.into()
}

/// Longest description of a pattern that is part of each request, in bytes.
const DESCRIBED_MAX: usize = CALL_MAX / 4;
