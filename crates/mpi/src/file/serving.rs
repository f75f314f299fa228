//! Accesses for processes that do not see a file, as a process that sees it carries them out. Calls of the engine ask for them,
//! and threads of a pool of their own do the work, which waits for no lock of another process.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    CallError, ExposedMemory, Handler, HandlerId, IncomingCall, OpId, Outcome, PutTo, Replies,
    ReplyTo,
};
use io::{
    FaultKind, FileFault, FileReply, FileRequest, OpenFile, Pattern, Pool, RequestedBytes,
    RequestedPattern,
};
use memory::Region;
use progress::Progress;
use wire::{PeerId, RemoteKey};

/// Files that a process accesses for others. A process has one, for all of them.
#[derive(Debug, Default)]
pub(crate) struct FileServers {
    files: Mutex<ServedFiles>,
    pool: Pool,
}

#[derive(Debug, Default)]
struct ServedFiles {
    servers: HashMap<u64, Arc<FileServer>>,
    last_number: u64,
}

/// A file that a process accesses for others.
struct FileServer {
    file: Arc<OpenFile>,
    progress: Arc<Progress>,
    /// The last pattern that each process has described, with its number.
    kept: Mutex<HashMap<PeerId, (u64, Pattern)>>,
}

/// Ends the accesses for others when it is dropped.
#[derive(Debug)]
pub(super) struct FileService {
    all: Arc<FileServers>,
    number: u64,
}

impl FileServers {
    /// Makes it for a process, and sets the handler of its worker.
    pub fn new(progress: &Progress) -> Arc<Self> {
        let all = Arc::new(Self::default());
        let handler = RequestHandler(Arc::clone(&all));
        progress.look(|worker| worker.engine.set_handler(HANDLER, Box::new(handler)));
        all
    }

    /// Adds a file. None if no thread can be started.
    pub(super) fn serve(
        self: &Arc<Self>,
        progress: &Arc<Progress>,
        file: &Arc<OpenFile>,
    ) -> Option<FileService> {
        if !self.pool.start() {
            return None;
        }
        let (file, progress) = (Arc::clone(file), Arc::clone(progress));
        let server = Arc::new(FileServer { file, progress, kept: Mutex::default() });
        let mut files = self.files();
        files.last_number += 1;
        let number = files.last_number;
        files.servers.insert(number, server);
        Some(FileService { all: Arc::clone(self), number })
    }

    /// Ends all accesses.
    pub fn end(&self) {
        self.files().servers.clear();
        self.pool.end();
    }

    fn files(&self) -> MutexGuard<'_, ServedFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileService {
    /// Number by which others name the file.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for FileService {
    fn drop(&mut self) {
        self.all.files().servers.remove(&self.number);
    }
}

/// Encodes the key of memory as an argument of a call.
pub(super) fn argument_of(key: RemoteKey) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

/// Handler of requests. Its arguments are the number of the file, and the key of the memory of the process that asks.
#[derive(Debug)]
struct RequestHandler(Arc<FileServers>);

impl Handler for RequestHandler {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        _: &ExposedMemory,
        _: &mut Replies,
    ) -> Result<(), CallError> {
        let [number, key, _] = call.arguments;
        let request = FileRequest::decode(call.payload).ok_or("it is no request for a file")?;
        match request {
            FileRequest::Read(RequestedBytes { len, .. }) if len > PIECE => {
                return Err("it reads too much".into());
            }
            FileRequest::Keep { len, .. } if len > PATTERN_MAX => {
                return Err("the pattern is too long".into());
            }
            _ if !call.reply_to.wants_data() => return Err("it wants no answer".into()),
            _ => {}
        }
        let server = self.0.files().servers.get(&number).cloned().ok_or(CallError::Refused)?;
        let key = RemoteKey { index: key as u32, generation: (key >> 32) as u32 };
        let job = ServedRequest { server, key, reply_to: call.reply_to };
        // The engine bounds the calls of a process that are not answered.
        match self.0.pool.offer(move || job.run(request)) {
            true => Ok(()),
            false => Err(CallError::Refused),
        }
    }
}

/// A request that a thread carries out.
struct ServedRequest {
    server: Arc<FileServer>,
    /// Memory of the process that asks.
    key: RemoteKey,
    reply_to: ReplyTo,
}

/// The process that has asked is gone, and needs no answer.
struct AskerGone;

impl ServedRequest {
    fn run(&self, request: FileRequest) {
        let file = &self.server.file;
        let answer = match request {
            FileRequest::Size => file.size().map_or_else(failed, moved),
            FileRequest::Sync => file.sync().map_or_else(failed, |()| moved(0)),
            FileRequest::Keep { number, len } => match self.keep(number, len) {
                Ok(answer) => answer,
                Err(AskerGone) => return,
            },
            FileRequest::Write(bytes) => {
                let pattern = self.pattern(&bytes);
                match pattern.map(|pattern| self.write(&pattern, bytes.stream, bytes.len)) {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(AskerGone)) => return,
                    Err(fault) => failed(fault),
                }
            }
            FileRequest::Read(bytes) => return self.answer_read(&bytes),
        };
        self.answer(Region::from_box(answer.encode().into()));
    }

    fn answer(&self, answer: Region) {
        let reply = |replies: &mut Replies| replies.send_region(self.reply_to, answer);
        self.server.progress.submit(|worker| worker.engine.submit_replies(reply));
    }

    /// Reads, and answers with as many bytes as were asked for, of which those count that were read.
    fn answer_read(&self, bytes: &RequestedBytes) {
        let data = Region::owned(bytes.len);
        let pattern = self.pattern(bytes);
        let read = pattern
            .and_then(|pattern| io::read_pattern(&self.server.file, &pattern, bytes.stream, &data));
        let answer = read.map_or_else(failed, |bytes| moved(bytes as u64));
        let answer = Region::from_box(answer.encode().into());
        self.answer(Region::chain([answer, data]));
    }

    /// Gets the data of a process, and writes what has arrived while more is under way.
    fn write(&self, pattern: &Pattern, stream: u64, len: usize) -> Result<FileReply, AskerGone> {
        let (mut pieces, mut free) = (VecDeque::new(), Vec::new());
        let (mut asked, mut written) = (0, 0);
        let mut failure = None;
        loop {
            while asked < len && pieces.len() < PIECES && failure.is_none() {
                let Some(memory) = free.pop().or_else(|| Region::scratch(PIECE.min(len))) else {
                    failure = Some(no_memory());
                    break;
                };
                let data = memory.slice(0, PIECE.min(len - asked));
                pieces.push_back((self.get(asked, &data), memory, data));
                asked += PIECE.min(len - asked);
            }
            let Some((op, memory, data)) = pieces.pop_front() else { break };
            if self.wait(op).is_err() {
                pieces.into_iter().for_each(|(op, ..)| drop(self.wait(op)));
                return Err(AskerGone);
            }
            if failure.is_none() {
                let at = stream + written as u64;
                failure = io::write_pattern(&self.server.file, pattern, at, &data).err();
                written += data.len();
            }
            free.push(memory);
        }
        Ok(failure.map_or_else(|| moved(written as u64), failed))
    }

    /// Gets a pattern that later requests name.
    fn keep(&self, number: u64, len: usize) -> Result<FileReply, AskerGone> {
        let Some(described) = Region::scratch(len) else { return Ok(failed(no_memory())) };
        self.wait(self.get(0, &described))?;
        Ok(match Pattern::decode(&described.to_vec()) {
            Some(pattern) => {
                self.server.kept().insert(self.reply_to.peer(), (number, pattern));
                moved(0)
            }
            None => failed(no_pattern()),
        })
    }

    fn pattern(&self, bytes: &RequestedBytes) -> io::Result<Pattern> {
        let number = match &bytes.pattern {
            RequestedPattern::Described(pattern) => return Ok(pattern.clone()),
            RequestedPattern::Kept(number) => *number,
        };
        let kept = self.server.kept().get(&self.reply_to.peer()).cloned();
        let found = kept.filter(|(known, pattern)| {
            *known == number && pattern.reaches(bytes.stream, bytes.len)
        });
        found.map(|(_, pattern)| pattern).ok_or_else(no_pattern)
    }

    fn get(&self, offset: usize, into: &Region) -> OpId {
        let from = PutTo { key: self.key, offset: offset as u64 };
        let peer = self.reply_to.peer();
        self.server.progress.submit(|worker| worker.engine.submit_get(peer, from, into))
    }

    fn wait(&self, op: OpId) -> Result<(), AskerGone> {
        let outcome = self.server.progress.wait(|worker| worker.take_or_await(op)).outcome;
        if outcome == Outcome::Ok { Ok(()) } else { Err(AskerGone) }
    }
}

impl fmt::Debug for FileServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileServer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl FileServer {
    fn kept(&self) -> MutexGuard<'_, HashMap<PeerId, (u64, Pattern)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn moved(value: u64) -> FileReply {
    FileReply { value, fault: None }
}

fn failed(fault: FileFault) -> FileReply {
    FileReply { value: 0, fault: Some(fault) }
}

fn no_memory() -> FileFault {
    let reason = "there is not enough memory to access the file for others".to_owned();
    FileFault { kind: FaultKind::NoMemory, reason, offset: None }
}

fn no_pattern() -> FileFault {
    let reason = "a process describes its view wrongly".to_owned();
    FileFault { kind: FaultKind::Io, reason, offset: None }
}

/// Number of the handler; those of windows have lower ones.
pub(super) const HANDLER: HandlerId = HandlerId(64);
/// Bytes that are read or written at once.
pub(super) const PIECE: usize = 1 << 20;
/// Pieces of an access that are under way at the same time: with [`PIECE`], what fits into a long fast link.
pub(super) const PIECES: usize = 16;
/// Longest description of a pattern that is kept, in bytes.
pub(super) const PATTERN_MAX: usize = 64 << 20;
