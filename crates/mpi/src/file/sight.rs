//! Opening a file where it is seen: who creates it, who sees it, and who accesses it for those that do not.

use std::path::Path;
use std::sync::Arc;

use coll::Routine;
use io::{FileFault, Finding, OpenFile, OpenMode, Visibility};

use super::agreement::{agree, gather};
use super::mode::AccessMode;
use super::object::fault_of;
use super::served::ServedFile;
use super::serving::FileService;
use super::store::Store;
use crate::comm::Comm;
use crate::vci::Vci;
use crate::{Error, ErrorClass, Result, exchange};

/// Sight of a file: the processes that see it, and the file itself where this one does.
#[derive(Debug)]
pub(super) struct Sight {
    pub visibility: Visibility,
    /// The file, if this process sees it.
    file: Option<Arc<OpenFile>>,
}

impl Sight {
    /// Opens a file (collective). All processes tell which file they have opened, in one exchange.
    ///
    /// # Errors
    /// The system's, if nobody can open the file, or if a process fails for another reason than that it does not see it; on
    /// all processes alike.
    pub fn find(comm: &Comm, path: &Path, mode: AccessMode) -> Result<Self> {
        let existing = OpenMode {
            reads: mode.reads(),
            writes: mode.writes(),
            creates: false,
            is_exclusive: false,
        };
        let (mut creator, mut created) = (None, None);
        if mode.creates() {
            let fresh = OpenMode { creates: true, is_exclusive: mode.is_exclusive(), ..existing };
            let (rank, file) = create(comm, path, fresh)?;
            (creator, created) = (Some(rank), file);
        }
        let opened = created.map_or_else(|| OpenFile::open(path, existing), Ok);
        let found = opened.and_then(|file| Ok((file.identity()?, file)));
        let finding = match &found {
            Ok((identity, _)) => Finding::Opened(*identity),
            Err(fault) if fault.kind.may_be_unseen() => Finding::Unseen,
            Err(_) => Finding::Failed,
        };
        let findings = exchange::allgather(comm, Routine::FileOpen, finding.encode())?;
        let findings: Vec<Finding> = findings.iter().map(Finding::decode).collect();
        let place = |rank| {
            let location = comm.places().location(rank);
            (location.node, location.site)
        };
        let Some(visibility) = Visibility::of(&findings, creator, place) else {
            return Err(agree_on_failure(comm, path, &findings, found.err()));
        };
        let own = found.ok().filter(|_| visibility.sees(comm.rank()));
        Ok(Self { visibility, file: own.map(|(_, file)| Arc::new(file)) })
    }

    /// Returns the way to the bytes of the file (collective). Those who see the file begin to access it for others.
    ///
    /// # Errors
    /// A process cannot access the file for others; on all processes alike.
    pub fn store(&self, comm: &Comm) -> Result<(Store, Option<FileService>)> {
        let (rank, process) = (comm.rank(), comm.process());
        let progress = process.vci(Vci::FIRST);
        let mut service = Ok(None);
        if let Some(file) = self.file.as_ref().filter(|_| self.visibility.serves(rank)) {
            let begun = process.file_servers().serve(progress, file);
            service = begun.map(Some).ok_or_else(no_thread);
        }
        let mut numbers = Vec::new();
        if !self.visibility.is_complete() {
            let number =
                |begun: &Option<FileService>| begun.as_ref().map_or(0, FileService::number);
            let mine = service.as_ref().map_or(0, number).to_le_bytes();
            (service, numbers) = gather(comm, Routine::FileOpen, mine.into(), mine.len(), service)
                .map(|(service, numbers)| (Ok(service), numbers))?;
        }
        let store = match (&self.file, self.visibility.server(rank)) {
            (Some(file), None) => Store::Seen(Arc::clone(file)),
            (_, Some(server)) => {
                let number = numbers.get(server as usize).and_then(|bytes| bytes.first_chunk());
                let number = u64::from_le_bytes(number.copied().unwrap_or_default());
                Store::Served(ServedFile::new(progress, (server, comm.peer(server)), number))
            }
            (None, None) => return Err(Error::new(ErrorClass::Intern, "the file is not open")),
        };
        Ok((store, service?))
    }
}

/// Creates a file (collective): rank 0 does so, or the first rank that can where rank 0 does not see the folder. Returns that
/// rank, and its file.
fn create(comm: &Comm, path: &Path, mode: OpenMode) -> Result<(u32, Option<OpenFile>)> {
    let rank = comm.rank();
    let open =
        || OpenFile::open(path, mode).map_err(|fault| (fault.kind, failed(rank, path, fault)));
    let mut made = if rank == 0 { open().map(Some) } else { Ok(None) };
    let vote = match &made {
        Ok(_) if rank == 0 || io::may_create(path) => CAN,
        Err((kind, _)) if !kind.may_be_unseen() => FAILED,
        Ok(_) | Err(_) => UNSEEN,
    };
    let votes = exchange::allgather(comm, Routine::FileOpen, [vote])?;
    let creator = match votes[0] {
        [UNSEEN] => votes.iter().position(|vote| *vote == [CAN]).unwrap_or(0) as u32,
        _ => 0,
    };
    if creator == 0 && votes[0] == [CAN] {
        return Ok((0, made.ok().flatten()));
    }
    if creator > 0 {
        made = if rank == creator { open().map(Some) } else { Ok(None) };
    }
    agree(comm, Routine::FileOpen, made.map_err(|(_, error)| error)).map(|file| (creator, file))
}

/// Returns the same failure to open a file on every process (collective). That a process sees no file is one only if nobody
/// sees it.
fn agree_on_failure(
    comm: &Comm,
    path: &Path,
    findings: &[Finding],
    mine: Option<FileFault>,
) -> Error {
    let has_failed = findings.contains(&Finding::Failed);
    let mine = mine.filter(|fault| !has_failed || !fault.kind.may_be_unseen());
    let mine = mine.map_or(Ok(()), |fault| Err(failed(comm.rank(), path, fault)));
    let nobody = || Error::new(ErrorClass::Intern, "a process tells of no failure");
    agree(comm, Routine::FileOpen, mine).err().unwrap_or_else(nobody)
}

fn failed(rank: u32, path: &Path, fault: FileFault) -> Error {
    fault_of(&format!("rank {rank} cannot open filename ="), path, fault)
}

#[cold]
fn no_thread() -> Error {
    let message = "no thread can be started to access the file for ranks that do not see it";
    Error::new(ErrorClass::NoMem, message)
}

/// The rank has created the file, or could.
const CAN: u8 = 0;
/// The rank does not see where the file would be.
const UNSEEN: u8 = 1;
const FAILED: u8 = 2;
