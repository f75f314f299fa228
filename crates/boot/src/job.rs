//! A job: its processes, its key-value exchange, its secret.

use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use secret::{Secret, scrubbed};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::environment::{Detected, NodePlace, detect, node_place, unused_tasks};
use crate::error::BootError;
use crate::identity::{self, Holder};
use crate::launcher::Launcher;
use crate::names::{NameAnswer, NameQuestion};
use crate::own_launcher;
use crate::pmi::Pmi;
use crate::pmix::Pmix;
use crate::report::ReportSocket;
use crate::spawn::SpawnRequest;

/// The job of this process.
pub struct Job {
    rank: u32,
    size: u32,
    universe_size: Option<u32>,
    application_number: Option<u32>,
    place: Option<NodePlace>,
    secret: Secret,
    id: u64,
    launcher: Option<Mutex<Box<dyn Launcher>>>,
    /// Launcher of the programs that a process without one starts.
    own_launcher: Mutex<Option<Box<dyn Launcher>>>,
    /// True if the launcher is our `mpiexec`.
    is_ours: bool,
    /// True if the launcher watches the job's processes.
    is_watched: bool,
    /// A line for the user about how the process was started.
    notice: Option<String>,
    /// Socket on which the launcher asks for reports.
    report_socket: Mutex<Option<ReportSocket>>,
}

impl Job {
    /// Fails if this process cannot join a job, as far as its environment tells.
    ///
    /// # Errors
    /// The launcher is unknown, or its environment is incomplete or invalid.
    pub fn check_launcher() -> Result<(), BootError> {
        detect(&|name| std::env::var(name).ok()).map(drop)
    }

    /// Joins the job that the launcher of this process has started.
    ///
    /// # Errors
    /// The launcher is unknown, its environment is incomplete or invalid, or it does not answer.
    pub fn join() -> Result<Self, BootError> {
        let variable = |name: &str| std::env::var(name).ok();
        match detect(&variable)? {
            Detected::None => {
                let notice = unused_tasks(&variable);
                Ok(Self { notice, ..Self::alone()? })
            }
            Detected::PmiDescriptor { fd, rank, size, inode } => {
                match identity::holder(fd, inode) {
                    Holder::Own => {
                        let stream = identity::take(fd).map_err(BootError::Launcher)?;
                        let (pmi, _) = Pmi::open(stream, None)?;
                        let report_socket = Mutex::new(ReportSocket::take());
                        Ok(Self { report_socket, ..Self::of_many(Box::new(pmi), rank, size)? })
                    }
                    // A program that a rank has started.
                    Holder::Ancestor => Self::alone(),
                    Holder::Nobody => Err(BootError::Closed { fd }),
                }
            }
            Detected::Pmix { namespace, rank } => {
                if identity::is_descendant(&format!("PMIX_NAMESPACE={namespace}")) {
                    // A program that a rank has started.
                    return Self::alone();
                }
                if !identity::mark().map_err(BootError::Launcher)? {
                    return Err(BootError::Again);
                }
                let (pmix, size) = Pmix::open(namespace, rank)?;
                Self::of_many(Box::new(pmix), rank, size)
            }
            Detected::PmiPort { address, id } => {
                if identity::is_descendant(&format!("PMI_PORT={address}")) {
                    // A program that a rank has started.
                    return Self::alone();
                }
                identity::mark().map_err(BootError::Launcher)?;
                let stream = TcpStream::connect(&address).map_err(BootError::Launcher)?;
                let (pmi, place) = Pmi::open(stream, Some(id))?;
                let (rank, size) = place.unwrap_or((id, 1));
                Self::of_many(Box::new(pmi), rank, size)
            }
        }
    }

    fn alone() -> Result<Self, BootError> {
        let secret = random_secret()?;
        let id = job_number(&secret, "");
        let universe_size = None;
        let application_number = None;
        let (launcher, is_ours, is_watched) = (None, false, false);
        Ok(Self {
            rank: 0,
            size: 1,
            universe_size,
            application_number,
            place: node_place(),
            secret,
            id,
            launcher,
            own_launcher: Mutex::default(),
            is_ours,
            is_watched,
            notice: None,
            report_socket: Mutex::default(),
        })
    }

    /// Joins the job of `size` processes that a launcher serves, as process `rank`.
    ///
    /// # Errors
    /// The launcher fails.
    pub fn of_many(mut server: Box<dyn Launcher>, rank: u32, size: u32) -> Result<Self, BootError> {
        let universe_size = server.universe_size()?;
        let application_number = server.application_number()?;
        let place = server.place()?;
        let (secret, is_ours) = agree_secret(&mut *server, rank)?;
        let is_watched = is_ours && server.introduce()?;
        let id = job_number(&secret, server.job_name());
        let launcher = Some(Mutex::new(server));
        Ok(Self {
            rank,
            size,
            universe_size,
            application_number,
            place,
            secret,
            id,
            launcher,
            own_launcher: Mutex::default(),
            is_ours,
            is_watched,
            notice: None,
            report_socket: Mutex::default(),
        })
    }

    /// Returns a line for the user about how the process was started, if there is one to give.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Takes the socket on which the launcher asks for reports, if it has passed one.
    pub fn take_report_socket(&self) -> Option<ReportSocket> {
        self.report_socket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// `MPI_UNIVERSE_SIZE`, if the launcher provides it.
    pub fn universe_size(&self) -> Option<u32> {
        self.universe_size
    }

    /// `MPI_APPNUM`, if the launcher provides it.
    pub fn application_number(&self) -> Option<u32> {
        self.application_number
    }

    /// Number of the job's ranks on this node, if the launcher provides it.
    pub fn local_ranks(&self) -> Option<usize> {
        self.place.map(|place| place.ranks as usize)
    }

    /// True if this is the first of the job's ranks on this node, or the launcher does not provide it.
    pub fn is_first_on_node(&self) -> bool {
        self.place.is_none_or(|place| place.position == 0)
    }

    /// The secret that proves to peers that a process belongs to the job.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// A number that identifies this job, the same on all its processes.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Publishes `bytes` of this process under `key`; others see them after [`Job::fence`].
    ///
    /// # Errors
    /// The launcher rejects them.
    pub fn publish(&self, key: &str, bytes: &[u8]) -> Result<(), BootError> {
        let Some(mut server) = self.server() else { return Ok(()) };
        let text = hex::encode(bytes);
        let piece = server.value_max().clamp(16, 512);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
        for (index, part) in pieces.iter().enumerate() {
            let name = piece_name(self.rank, key, index);
            let more = if index + 1 < pieces.len() { '+' } else { '.' };
            let value = format!("{more}{}", String::from_utf8_lossy(part));
            server.put(&name, &value)?;
        }
        Ok(())
    }

    /// Waits until every process has called it; all earlier publications are then visible.
    ///
    /// # Errors
    /// The launcher fails.
    pub fn fence(&self) -> Result<(), BootError> {
        match self.server() {
            Some(mut server) => server.barrier(),
            None => Ok(()),
        }
    }

    /// Returns the bytes that process `rank` published under `key`.
    ///
    /// # Errors
    /// It has published nothing there, or the launcher fails.
    pub fn fetch(&self, rank: u32, key: &str) -> Result<Vec<u8>, BootError> {
        let unpublished = || BootError::Unpublished { rank, key: key.into() };
        let mut server = self.server().ok_or_else(unpublished)?;
        let bytes = published(rank, key, |name| server.get(rank, name))?;
        bytes.ok_or_else(unpublished)
    }

    /// True if the launcher has seen process `rank` end while the rest of the job continues. Returns at once; false
    /// if no launcher watches the processes, or another thread waits for the launcher.
    pub fn has_ended(&self, rank: u32) -> bool {
        let launcher = self.launcher.as_ref().filter(|_| self.is_watched);
        let Some(mut server) = launcher.and_then(|server| server.try_lock().ok()) else {
            return false;
        };
        let known = server.get_served(&ended_name(rank));
        known.is_ok_and(|known| known.is_some())
    }

    /// Starts programs as a job of their own, and waits until all their processes run. A process without a launcher
    /// starts an `mpiexec` for them.
    ///
    /// # Errors
    /// They cannot be started; the text says what to do.
    pub fn spawn(&self, request: &SpawnRequest) -> Result<(), BootError> {
        if let Some(mut server) = self.server() {
            let variable = |name: &str| std::env::var(name).ok();
            return match own_launcher::hindrance(&variable).filter(|_| !self.is_ours) {
                Some(launcher) => Err(BootError::NoSpawn { launcher }),
                None => server.spawn(request),
            };
        }
        let mut own = self.own_launcher.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match &mut *own {
            Some(server) => server,
            none => {
                let server = none.insert(own_launcher::start()?);
                // It does not know the number of this job.
                server.tell_connection(self.id, self.id, true)?;
                server
            }
        };
        let spawned = server.spawn(request);
        if matches!(spawned, Err(BootError::Launcher(_))) {
            // It has ended, and the next spawn may start another one.
            *own = None;
        }
        spawned
    }

    /// Tells the launcher that this process has communicators with processes of another job from now on, or none any
    /// more. Our launcher ends connected jobs together.
    ///
    /// # Errors
    /// The launcher fails.
    pub fn tell_connection(&self, other: u64, is_connected: bool) -> Result<(), BootError> {
        let told = |server: &mut dyn Launcher| server.tell_connection(self.id, other, is_connected);
        self.with_own_launcher(told).unwrap_or(Ok(()))
    }

    /// Asks our launcher about a name, which all its worlds have in common.
    pub fn ask_name(&self, question: NameQuestion<'_>) -> NameAnswer {
        let answer = self.with_own_launcher(|server| server.ask_name(question));
        // A launcher that fails ends this process.
        answer.and_then(Result::ok).unwrap_or(NameAnswer::NotServed)
    }

    /// Asks the launcher if it is our `mpiexec`: that of this process, or the one that it has started.
    fn with_own_launcher<T>(&self, ask: impl FnOnce(&mut dyn Launcher) -> T) -> Option<T> {
        if let Some(mut server) = self.server() {
            return self.is_ours.then(|| ask(&mut **server));
        }
        let mut own = self.own_launcher.lock().unwrap_or_else(PoisonError::into_inner);
        own.as_mut().map(|server| ask(&mut **server))
    }

    /// Returns a value that the process which has spawned this job gives to all its processes, if there is one. It may
    /// be a secret.
    ///
    /// # Errors
    /// The launcher fails.
    pub fn given(&self, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        let is_spawned = std::env::var("PMI_SPAWNED").is_ok_and(|value| value == "1");
        match self.server().filter(|_| is_spawned) {
            Some(mut server) => server.get_served(key),
            None => Ok(None),
        }
    }

    /// Asks the launcher to end the whole job; false if there is no launcher.
    pub fn abort(&self, code: i32) -> bool {
        match self.server() {
            Some(mut server) => server.abort(code).is_ok(),
            None => false,
        }
    }

    /// Tells the launcher that this process ends as it should.
    ///
    /// # Errors
    /// When the launcher fails.
    pub fn finalize(&self) -> Result<(), BootError> {
        let own = self.own_launcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (self.server(), own) {
            (Some(mut server), _) => server.finalize(),
            (None, Some(mut own)) => own.finalize(),
            (None, None) => Ok(()),
        }
    }

    fn server(&self) -> Option<MutexGuard<'_, Box<dyn Launcher>>> {
        let server = self.launcher.as_ref()?;
        Some(server.lock().unwrap_or_else(|poison| poison.into_inner()))
    }
}

/// Returns the job's secret, and true if the launcher is ours. Our launcher serves a secret over its own
/// channels; under a foreign one, rank 0 makes it and publishes it over PMI or PMIx.
fn agree_secret(server: &mut dyn Launcher, rank: u32) -> Result<(Secret, bool), BootError> {
    if let Some(text) = server.get_served(SECRET_KEY)? {
        return Ok((secret_of(&text)?, true));
    }
    if rank == 0 {
        let secret = random_secret()?;
        server.put(SHARED_SECRET_KEY, &secret.line("", ""))?;
    }
    server.barrier()?;
    match server.get(0, SHARED_SECRET_KEY)? {
        Some(text) => Ok((secret_of(&text)?, false)),
        None => Err(BootError::Unpublished { rank: 0, key: SHARED_SECRET_KEY.into() }),
    }
}

fn secret_of(text: &str) -> Result<Secret, BootError> {
    let wrong =
        || BootError::Answer { expected: "a secret of 32 bytes", line: "(not shown)".into() };
    Secret::parse(text).ok_or_else(wrong)
}

fn random_secret() -> Result<Secret, BootError> {
    Secret::random().map_err(|error| BootError::Random(error.to_string()))
}

/// Returns the number of the job with this secret and this name at its launcher.
pub fn job_number(secret: &Secret, name: &str) -> u64 {
    scrubbed(|| {
        let digest = Sha256::new().chain_update(b"job").chain_update(secret.expose());
        let mut number = [0; 8];
        number.copy_from_slice(&digest.chain_update(name).finalize()[..8]);
        u64::from_le_bytes(number)
    })
}

/// Assembles the value that process `rank` published under `key` from its pieces; `None` if one is missing.
///
/// # Errors
/// Those of `value`.
pub fn published<V: AsRef<str>, E>(
    rank: u32,
    key: &str,
    mut value: impl FnMut(&str) -> Result<Option<V>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut text = String::new();
    for index in 0..PIECES_MAX {
        let Some(piece) = value(&piece_name(rank, key, index))? else { return Ok(None) };
        let piece = piece.as_ref();
        text.push_str(piece.get(1..).unwrap_or(""));
        if piece.starts_with('.') {
            return Ok(hex::decode(&text).ok());
        }
    }
    Ok(None)
}

/// True if a name is that of a piece that a process has published under `key`.
pub fn is_published_as(name: &str, key: &str) -> bool {
    let piece = name.strip_prefix("canele-").and_then(|rest| rest.split_once('-'));
    piece.and_then(|(_, rest)| rest.rsplit_once('-')).is_some_and(|(found, _)| found == key)
}

fn piece_name(rank: u32, key: &str, index: usize) -> String {
    format!("canele-{rank}-{key}-{index}")
}

/// Key under which our launcher tells agents that process `rank` has ended.
pub fn ended_name(rank: u32) -> String {
    format!("{ENDED_PREFIX}{rank}")
}

/// True for the result of [`ended_name`]. Agents receive all such keys.
pub fn is_ended_name(name: &str) -> bool {
    name.starts_with(ENDED_PREFIX)
}

/// Key of the secret that our `mpiexec` serves.
pub const SECRET_KEY: &str = "canele-secret";
const SHARED_SECRET_KEY: &str = "canele-shared-secret";
const ENDED_PREFIX: &str = "canele-ended-";

/// Variable that asks a rank for a record of its traffic.
pub const RECORD_VARIABLE: &str = "CANELE_RECORD";
/// Key under which ranks publish their traffic for the launcher.
pub const TRAFFIC_KEY: &str = "traffic";

/// The code with which a rank asks for the job's end because a peer has ended before it: the ABI's
/// `MPI_ERR_PROC_ABORTED`. A launcher then waits for that peer's own code.
pub const PEER_IS_GONE: i32 = 58;

/// Maximum number of pieces of a value: enough for the site map of 50 000 ranks on as many nodes.
const PIECES_MAX: usize = 1024;
