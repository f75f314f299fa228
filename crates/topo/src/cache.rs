//! Costs remembered between jobs, on disk.
//!
//! `$CANELE_CACHE_DIR`, else `$XDG_CACHE_HOME/canele`, else `~/.cache/canele`, else nothing. A
//! directory that others may write to is not used. There is one file for each machine (home
//! directories are shared), one for each pair of interfaces, and another for what traffic between the two has shown besides:
//!
//! ```text
//! canele 1
//! machine 4c4c4544…  boot 5d0c…  written 1795255000
//! link tcp node1/eth0 node2/eth0
//! cost/1 5800000:3 12000:8 …
//! ```
//!
//! A file counts only when all of it is understood; it is replaced whole, and the last writer wins.
//! Ranks that start at once do not all sample: one does, the others wait a little for its word.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use wire::{Cost, HostCost, Traffic};

use crate::file::{self, Ignored};
use crate::sample;

/// A directory of remembered costs.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
    here: Machine,
}

/// What was remembered, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The costs.
    pub value: T,
    /// How long ago they were written.
    pub age: Duration,
}

/// The two ends of a link, and the kind of rail between them. The costs are those from here to there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    rail: String,
    here: String,
    there: String,
}

impl Pair {
    /// The names of a rail and of two ends (a host and its interface, `node1/eth0`), which may be any
    /// text: what a cache's file cannot hold is replaced by `_`, and a long name is cut.
    pub fn new(rail: &str, here: &str, there: &str) -> Self {
        Self { rail: plain(rail), here: plain(here), there: plain(there) }
    }

    /// The rail's name.
    pub fn rail(&self) -> &str {
        &self.rail
    }

    /// This end.
    pub fn here(&self) -> &str {
        &self.here
    }

    /// The other end.
    pub fn there(&self) -> &str {
        &self.there
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.rail, self.here, self.there)
    }
}

/// What became of costs that were to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// They are on disk.
    Written,
    /// Another process of this user is writing, or has just written the same.
    Recent,
}

/// Why costs could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The directory is not to be trusted.
    #[error("{}: {reason}", directory.display())]
    Directory {
        /// The cache's directory.
        directory: PathBuf,
        /// What is wrong with it.
        reason: Ignored,
    },
    /// The system refused.
    #[error("{}: {source}", directory.display())]
    System {
        /// The cache's directory.
        directory: PathBuf,
        /// Its error.
        source: io::Error,
    },
}

impl Cache {
    /// The cache that the environment names; none where it names nothing, or nothing absolute.
    pub fn of_environment() -> Option<Self> {
        directory(|name| std::env::var_os(name)).map(Self::at)
    }

    /// The cache in a directory, which need not exist.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, here: Machine::this() }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What this machine cost when it was last sampled, since it was started.
    ///
    /// # Errors
    /// Why what is there cannot be used.
    pub fn host(&self) -> Result<Option<Entry<HostCost>>, Ignored> {
        let Some(found) = self.read::<HostCost>(&self.host_name())? else { return Ok(None) };
        let is_fresh = found.machine == self.here && found.entry.age <= HOST_AGE_MAX;
        if found.subject == HOST_WORD && is_fresh {
            Ok(Some(found.entry))
        } else {
            Err(Ignored::Stale)
        }
    }

    /// Remembers what this machine costs.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn keep_host(&self, cost: &HostCost) -> Result<(), KeepError> {
        self.prepare()?;
        let name = self.host_name();
        let written = self.make_room(&name).and_then(|()| self.write(&name, HOST_WORD, cost));
        written.map_err(|source| self.refused(source))
    }

    /// What a link cost when it was last used.
    ///
    /// # Errors
    /// Why what is there cannot be used.
    pub fn link(&self, pair: &Pair) -> Result<Option<Entry<Cost>>, Ignored> {
        self.of_link(LINK_PREFIX, LINK_WORD, pair)
    }

    /// What the traffic of jobs over a link has shown.
    ///
    /// # Errors
    /// Why what is there cannot be used.
    pub fn traffic(&self, pair: &Pair) -> Result<Option<Entry<Traffic>>, Ignored> {
        self.of_link(TRAFFIC_PREFIX, TRAFFIC_WORD, pair)
    }

    fn of_link<T: FromStr>(
        &self,
        prefix: &str,
        word: &str,
        pair: &Pair,
    ) -> Result<Option<Entry<T>>, Ignored>
    where
        T::Err: fmt::Display,
    {
        let Some(found) = self.read::<T>(&name_of(prefix, pair))? else { return Ok(None) };
        if found.subject != format!("{word} {pair}") {
            return Err(Ignored::Damaged("it is of another link".into()));
        }
        if found.entry.age > LINK_AGE_MAX { Err(Ignored::Stale) } else { Ok(Some(found.entry)) }
    }

    /// Remembers what a link costs, unless that was just done: ranks that share a pair of interfaces
    /// have learned the same. One that has seen the link's rate, or another that is higher by an eighth, says more than
    /// those before.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn keep_link(&self, pair: &Pair, cost: &Cost) -> Result<Kept, KeepError> {
        self.prepare()?;
        let beyond = |rate: u64| rate.saturating_add(rate / 8);
        let says_more =
            |known: &Cost| cost.shown_bytes_per_s() > known.shown_bytes_per_s().map(beyond);
        if let Ok(Some(Entry { value, age })) = self.link(pair)
            && age < KEEP_EVERY
            && !says_more(&value)
        {
            return Ok(Kept::Recent);
        }
        // Processes of a job end at once, and each keeps what it has seen.
        let Some(_turn) = self.turn_within(PATIENCE) else { return Ok(Kept::Recent) };
        self.write_of_link((LINK_PREFIX, LINK_WORD), pair, cost)
    }

    /// Adds what the traffic of a connection over a link has shown to what was seen before, unless one that has
    /// seen as much has just done so. Too little of it says nothing.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn keep_traffic(&self, pair: &Pair, traffic: &Traffic) -> Result<Kept, KeepError> {
        self.prepare()?;
        let known = || self.traffic(pair).ok().flatten();
        let says_enough = |Entry { value, age }: Entry<Traffic>| {
            age < KEEP_EVERY && value.sent_bytes() >= traffic.sent_bytes()
        };
        if !traffic.is_telling() || known().is_some_and(says_enough) {
            return Ok(Kept::Recent);
        }
        let Some(_turn) = self.turn_within(PATIENCE) else { return Ok(Kept::Recent) };
        let before = known().map_or(Traffic::default(), |entry| entry.value);
        let both = before.followed_by(*traffic);
        self.write_of_link((TRAFFIC_PREFIX, TRAFFIC_WORD), pair, &both)
    }

    fn write_of_link(
        &self,
        (prefix, word): (&str, &str),
        pair: &Pair,
        value: &dyn fmt::Display,
    ) -> Result<Kept, KeepError> {
        let (name, subject) = (name_of(prefix, pair), format!("{word} {pair}"));
        let written = self.make_room(&name).and_then(|()| self.write(&name, &subject, value));
        written.map(|()| Kept::Written).map_err(|source| self.refused(source))
    }

    /// All links remembered, in order, and the files that are not used, with the reason.
    ///
    /// # Errors
    /// When the directory cannot be trusted or read; one that does not exist is empty.
    pub fn links(&self) -> Result<Listing, Ignored> {
        let mut listing = Listing::default();
        if !file::check_directory(&self.directory)? {
            return Ok(listing);
        }
        for path in self.files().map_err(Ignored::Unreadable)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(TRAFFIC_PREFIX)
                && let Ok(Some(found)) = self.read::<Traffic>(&name)
                && let Ok((pair, entry)) = named(TRAFFIC_WORD, found)
                && entry.value.is_telling()
                && entry.age <= LINK_AGE_MAX
            {
                listing.traffic.insert(pair, entry.value);
            }
            if !name.starts_with(LINK_PREFIX) {
                continue;
            }
            let link = |found| named(LINK_WORD, found);
            match self.read::<Cost>(&name).and_then(|found| found.map(link).transpose()) {
                Ok(Some((pair, entry))) => listing.links.push((pair, entry)),
                Ok(None) => {}
                Err(reason) => listing.ignored.push((path, reason)),
            }
        }
        listing.links.sort_by(|(one, _), (other, _)| one.cmp(other));
        listing.ignored.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(listing)
    }

    fn read<T: FromStr>(&self, name: &str) -> Result<Option<Found<T>>, Ignored>
    where
        T::Err: fmt::Display,
    {
        if !file::check_directory(&self.directory)? {
            return Ok(None);
        }
        let text = file::read(&self.directory.join(name))?;
        text.map(|text| parse(&text, SystemTime::now())).transpose()
    }

    fn write(&self, name: &str, subject: &str, value: &dyn fmt::Display) -> io::Result<()> {
        let text = emit(&self.here, SystemTime::now(), subject, value);
        debug_assert!(text.len() as u64 <= file::LEN_MAX);
        file::write(&self.directory.join(name), &text)
    }

    fn host_name(&self) -> String {
        format!("{HOST_PREFIX}{:016x}", digest(&self.here.machine))
    }

    fn prepare(&self) -> Result<(), KeepError> {
        let reject = |reason| KeepError::Directory { directory: self.directory.clone(), reason };
        if file::check_directory(&self.directory).map_err(reject)? {
            return Ok(());
        }
        file::make_directory(&self.directory).map_err(|source| self.refused(source))
    }

    fn refused(&self, source: io::Error) -> KeepError {
        KeepError::System { directory: self.directory.clone(), source }
    }

    /// One process at a time samples, or writes links; none while another does, or where locks do not
    /// work. The turn ends with the file.
    fn turn(&self) -> Option<File> {
        self.turn_within(Duration::ZERO)
    }

    /// The same, where others may take so long.
    fn turn_within(&self, patience: Duration) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(self.directory.join(TURN_NAME), flags, mode).ok()?;
        let until = Instant::now() + patience;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(File::from(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(GLANCE_EVERY),
                Err(_) => return None,
            }
        }
    }

    /// Removes the entries of this kind that were written longest ago, for one more, and what dead
    /// writers left.
    fn make_room(&self, name: &str) -> io::Result<()> {
        if self.directory.join(name).exists() {
            return Ok(());
        }
        let kinds = [HOST_PREFIX, LINK_PREFIX, TRAFFIC_PREFIX];
        let kind = kinds.into_iter().find(|kind| name.starts_with(kind)).unwrap_or(HOST_PREFIX);
        let mut alike = Vec::new();
        for path in self.files()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Another process may have removed it.
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let written = metadata.modified()?;
            let age = written.elapsed().unwrap_or_default();
            if name.starts_with(file::UNFINISHED) && age > UNFINISHED_AGE_MAX {
                let _ = std::fs::remove_file(&path);
            } else if name.starts_with(kind) {
                alike.push((written, path));
            }
        }
        alike.sort();
        for (_, path) in alike.iter().take((alike.len() + 1).saturating_sub(ENTRIES_MAX)) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Some of the directory's files: all, unless it is full of others.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.directory)?.take(FILES_MAX);
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    }
}

/// What [`Cache::links`] found.
#[derive(Debug, Default)]
pub struct Listing {
    /// The links, sorted.
    pub links: Vec<(Pair, Entry<Cost>)>,
    /// What was seen of the traffic over links, where enough was sent to say what gets lost.
    pub traffic: BTreeMap<Pair, Traffic>,
    /// Files that are not used, and why.
    pub ignored: Vec<(PathBuf, Ignored)>,
}

/// What this machine costs: remembered, or sampled now and remembered. Where another process is
/// sampling, its word is waited for, a few milliseconds; failing that, a usual machine's.
pub fn host_cost(cache: Option<&Cache>) -> HostCost {
    let Some(cache) = cache else { return sample::host() };
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(entry)) = cache.host() {
            return entry.value;
        }
        if cache.prepare().is_err() {
            return sample::host();
        }
        if let Some(_turn) = cache.turn() {
            // Another may have finished between the look and the turn.
            if let Ok(Some(entry)) = cache.host() {
                return entry.value;
            }
            let cost = sample::host();
            if !cost.is_plausible() {
                return HostCost::default();
            }
            // A full disk costs the next job a sample.
            let _ = cache.keep_host(&cost);
            return cost;
        }
        if Instant::now() >= until {
            return HostCost::default();
        }
        thread::sleep(GLANCE_EVERY);
    }
}

/// Where the cache is. An empty variable is as good as none, and so is a relative path: it would be
/// another cache in each directory.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path(settings::CACHE_DIR.variable())
        .or_else(|| Some(path("XDG_CACHE_HOME")?.join("canele")))
        .or_else(|| Some(path("HOME")?.join(".cache/canele")))
}

/// Which machine, and since when it runs. Containers have their own host names, with costs alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    machine: String,
    boot: String,
}

impl Machine {
    fn this() -> Self {
        let read = |path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            plain(text.trim())
        };
        let boot = read("/proc/sys/kernel/random/boot_id");
        let machine = read("/etc/machine-id");
        let machine = if machine == NAMELESS { sample::host_name() } else { machine };
        Self { machine: plain(&machine), boot }
    }
}

/// A file's content.
#[derive(Debug)]
struct Found<T> {
    machine: Machine,
    subject: String,
    entry: Entry<T>,
}

fn emit(here: &Machine, now: SystemTime, subject: &str, value: &dyn fmt::Display) -> String {
    let written = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let Machine { machine, boot } = here;
    format!("{VERSION_LINE}\nmachine {machine} boot {boot} written {written}\n{subject}\n{value}\n")
}

fn parse<T: FromStr>(text: &str, now: SystemTime) -> Result<Found<T>, Ignored>
where
    T::Err: fmt::Display,
{
    let damaged = |what: &str| Ignored::Damaged(what.into());
    if text.split('\n').next() != Some(VERSION_LINE) {
        return Err(if text.starts_with("canele ") {
            Ignored::Version
        } else {
            damaged("no such file")
        });
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let [_, origin, subject, value, ""] = lines[..] else { return Err(damaged("its lines")) };
    let words: Vec<&str> = origin.split(' ').collect();
    let ["machine", machine, "boot", boot, "written", written] = words[..] else {
        return Err(damaged("its origin"));
    };
    let written = written.parse().map_err(|_| damaged("its time"))?;
    let written = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(written));
    let written = written.ok_or_else(|| damaged("its time"))?;
    let age = match now.duration_since(written) {
        Ok(age) => age,
        // Clocks of machines that share a directory differ.
        Err(early) if early.duration() <= SKEW_MAX => Duration::ZERO,
        Err(_) => return Err(damaged("it was written in the future")),
    };
    let value = value.parse().map_err(|error: T::Err| Ignored::Damaged(error.to_string()))?;
    let machine = Machine { machine: machine.into(), boot: boot.into() };
    Ok(Found { machine, subject: subject.into(), entry: Entry { value, age } })
}

/// What was remembered of a link, with its name.
fn named<T>(word: &str, found: Found<T>) -> Result<(Pair, Entry<T>), Ignored> {
    let nameless = || Ignored::Damaged("it names no link".into());
    let words: Vec<&str> = found.subject.split(' ').collect();
    let [_, rail, here, there] = words[..] else { return Err(nameless()) };
    let pair = Pair::new(rail, here, there);
    let is_plain = found.subject == format!("{word} {pair}");
    if is_plain { Ok((pair, found.entry)) } else { Err(nameless()) }
}

fn name_of(prefix: &str, pair: &Pair) -> String {
    format!("{prefix}{:016x}", digest(&pair.to_string()))
}

/// A name as one word of a file: printable ASCII, not too long, not empty.
fn plain(name: &str) -> String {
    let good = |symbol: char| if symbol.is_ascii_graphic() { symbol } else { '_' };
    let plain: String = name.chars().map(good).take(NAME_MAX).collect();
    if plain.is_empty() { NAMELESS.into() } else { plain }
}

/// FNV-1a (Fowler, Noll, Vo), for file names: the file itself says whose it is.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

const VERSION_LINE: &str = "canele 1";
const HOST_WORD: &str = "host";
const LINK_WORD: &str = "link";
const TRAFFIC_WORD: &str = "traffic";
const HOST_PREFIX: &str = "host-";
const LINK_PREFIX: &str = "link-";
const TRAFFIC_PREFIX: &str = "traffic-";
const TURN_NAME: &str = "turn";
const NAMELESS: &str = "-";

/// The longest name of a rail, an end or a machine.
const NAME_MAX: usize = 128;
/// More links, or machines, are forgotten, the oldest first.
const ENTRIES_MAX: usize = 512;
/// More files are not looked at.
const FILES_MAX: usize = 4096;
/// A writer that took longer is dead.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Machines change with their software.
const HOST_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// A link's cost is a first guess, which traffic corrects: an old one is better than none for long.
const LINK_AGE_MAX: Duration = Duration::from_secs(90 * 24 * 3600);
const SKEW_MAX: Duration = DAY;
/// A link's costs are written no more often.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Several times what sampling takes on a core of one's own; many links are written in it.
const PATIENCE: Duration = Duration::from_millis(50);
const GLANCE_EVERY: Duration = Duration::from_millis(1);
