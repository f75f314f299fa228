//! Costs stored on disk between jobs.
//!
//! The directory is `$CANELE_CACHE_DIR`, else `$XDG_CACHE_HOME/canele`, else `~/.cache/canele`, else
//! none. A directory that others may write to is not used. It holds one file for each machine, since
//! home directories are shared, and one for each pair of interfaces. Another file for each pair holds
//! the traffic statistics.
//!
//! ```text
//! canele 1
//! machine 4c4c4544…  boot 5d0c…  written 1795255000
//! link tcp node1/eth0 node2/eth0
//! cost/1 5800000:3 12000:8 …
//! ```
//!
//! A file is used only if all of it is valid. It is replaced as a whole, and the last writer wins.
//! If ranks start at once, one samples and the others wait a short time for its result.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io, thread};

use cost::{Cost, HostCost, Traffic};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::file::{self, Ignored};
use crate::sample;

/// A directory of stored costs.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
    here: MachineId,
}

/// A stored value and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The stored value.
    pub value: T,
    /// Time since it was written.
    pub age: Duration,
}

/// Name of a link: its rail and its two ends. The costs are those from `here` to `there`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    rail: String,
    here: String,
    there: String,
}

impl Pair {
    /// Makes a name from a rail and two ends (a host and its interface, `node1/eth0`), which may be
    /// any text. Characters that a cache file cannot hold are replaced by `_`, and long names are
    /// cut.
    pub fn new(rail: &str, here: &str, there: &str) -> Self {
        Self { rail: plain(rail), here: plain(here), there: plain(there) }
    }

    /// Name of the rail.
    pub fn rail(&self) -> &str {
        &self.rail
    }

    /// Name of this end.
    pub fn here(&self) -> &str {
        &self.here
    }

    /// Name of the other end.
    pub fn there(&self) -> &str {
        &self.there
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.rail, self.here, self.there)
    }
}

/// Outcome of storing costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The costs are on disk.
    Written,
    /// Not written: another process of this user is writing, or has just written the same.
    Recent,
}

/// Reason why costs could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory is not to be trusted.
    #[error("{}: {reason}", directory.display())]
    Directory {
        /// The cache's directory.
        directory: PathBuf,
        /// Reason.
        reason: Ignored,
    },
    /// The system refused.
    #[error("{}: {source}", directory.display())]
    System {
        /// The cache's directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Cache {
    /// Returns the cache that the environment names; none without an absolute path.
    pub fn of_environment() -> Option<Self> {
        directory(|name| std::env::var_os(name)).map(Self::at)
    }

    /// Returns a line if the directory that the user has named in `CANELE_CACHE_DIR` cannot be used, and makes it if it is
    /// missing. Usual places that cannot be used are no mistake.
    pub fn complaint() -> Option<String> {
        let variable = settings::CACHE_DIR.variable();
        let named = PathBuf::from(std::env::var_os(variable).filter(|path| !path.is_empty())?);
        let reason = match named.is_absolute() {
            true => Self::at(named).prepare().err()?.to_string(),
            false => format!("{} is not an absolute path", named.display()),
        };
        Some(format!("{variable}: {reason}: no costs are remembered"))
    }

    /// Returns the cache in a directory, which need not exist.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, here: MachineId::this() }
    }

    /// Path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns this machine's costs, if they were sampled since it was booted.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
    pub fn host(&self) -> Result<Option<Entry<HostCost>>, Ignored> {
        let Some(found) = self.read::<HostCost>(&self.host_name())? else { return Ok(None) };
        let is_fresh = found.machine == self.here && found.entry.age <= HOST_AGE_MAX;
        if found.subject == HOST_WORD && is_fresh {
            Ok(Some(found.entry))
        } else {
            Err(Ignored::Stale)
        }
    }

    /// Stores this machine's costs.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn keep_host(&self, cost: &HostCost) -> Result<(), StoreError> {
        self.prepare()?;
        let name = self.host_name();
        let written = self.make_room(&name).and_then(|()| self.write(&name, HOST_WORD, cost));
        written.map_err(|source| self.refused(source))
    }

    /// Returns the stored costs of a link.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
    pub fn link(&self, pair: &Pair) -> Result<Option<Entry<Cost>>, Ignored> {
        self.of_link(LINK_PREFIX, LINK_WORD, pair)
    }

    /// Returns the stored traffic statistics of a link.
    ///
    /// # Errors
    /// The reason why the file cannot be used.
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

    /// Stores the costs of a link, unless that was just done: ranks that share a pair of interfaces
    /// have measured the same. They are stored nevertheless if they are the first to show a rate,
    /// or show one higher by an eighth. A conclusive rate counts more than that of a short burst.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn keep_link(&self, pair: &Pair, cost: &Cost) -> Result<Stored, StoreError> {
        self.prepare()?;
        let beyond = |rate: u64| rate.saturating_add(rate / 8);
        let says_more = |known: &Cost| match (cost.is_rate_conclusive(), known.is_rate_conclusive())
        {
            (true, false) => true,
            (false, true) => false,
            _ => cost.shown_bytes_per_s() > known.shown_bytes_per_s().map(beyond),
        };
        if let Ok(Some(Entry { value, age })) = self.link(pair)
            && age < KEEP_EVERY
            && !says_more(&value)
        {
            return Ok(Stored::Recent);
        }
        // Processes of a job end at once, and each stores its results.
        let Some(_lock) = self.lock_within(WAIT_MAX) else { return Ok(Stored::Recent) };
        self.write_of_link((LINK_PREFIX, LINK_WORD), pair, cost)
    }

    /// Adds a connection's traffic statistics to the stored ones, unless a connection that has seen
    /// as much has just done so. Too little traffic is not stored.
    ///
    /// # Errors
    /// If the directory cannot be used.
    pub fn keep_traffic(&self, pair: &Pair, traffic: &Traffic) -> Result<Stored, StoreError> {
        self.prepare()?;
        let known = || self.traffic(pair).ok().flatten();
        let says_enough = |Entry { value, age }: Entry<Traffic>| {
            age < KEEP_EVERY && value.sent_bytes() >= traffic.sent_bytes()
        };
        if !traffic.is_telling() || known().is_some_and(says_enough) {
            return Ok(Stored::Recent);
        }
        let Some(_lock) = self.lock_within(WAIT_MAX) else { return Ok(Stored::Recent) };
        let before = known().map_or(Traffic::default(), |entry| entry.value);
        let both = before.followed_by(*traffic);
        self.write_of_link((TRAFFIC_PREFIX, TRAFFIC_WORD), pair, &both)
    }

    fn write_of_link(
        &self,
        (prefix, word): (&str, &str),
        pair: &Pair,
        value: &dyn fmt::Display,
    ) -> Result<Stored, StoreError> {
        let (name, subject) = (name_of(prefix, pair), format!("{word} {pair}"));
        let written = self.make_room(&name).and_then(|()| self.write(&name, &subject, value));
        written.map(|()| Stored::Written).map_err(|source| self.refused(source))
    }

    /// Returns all stored links, in order, and the files that are not used, with the reason.
    ///
    /// # Errors
    /// If the directory cannot be trusted or read; one that does not exist is empty.
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

    fn read<T: FromStr>(&self, name: &str) -> Result<Option<CacheFile<T>>, Ignored>
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

    fn prepare(&self) -> Result<(), StoreError> {
        let reject = |reason| StoreError::Directory { directory: self.directory.clone(), reason };
        if file::check_directory(&self.directory).map_err(reject)? {
            return Ok(());
        }
        file::make_directory(&self.directory).map_err(|source| self.refused(source))
    }

    fn refused(&self, source: io::Error) -> StoreError {
        StoreError::System { directory: self.directory.clone(), source }
    }

    /// Takes the lock under which one process at a time samples, or writes links. None if another
    /// process has it, or locks do not work. Closing the file releases it.
    fn try_lock(&self) -> Option<File> {
        self.lock_within(Duration::ZERO)
    }

    /// Takes the lock, waiting up to `wait_max`.
    fn lock_within(&self, wait_max: Duration) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(self.directory.join(LOCK_NAME), flags, mode).ok()?;
        let until = Instant::now() + wait_max;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(File::from(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(RETRY_EVERY),
                Err(_) => return None,
            }
        }
    }

    /// Removes the oldest entries of this kind, to make room for one more, and the files of dead
    /// writers.
    fn make_room(&self, name: &str) -> io::Result<()> {
        if self.directory.join(name).exists() {
            return Ok(());
        }
        let kinds = [HOST_PREFIX, LINK_PREFIX, TRAFFIC_PREFIX];
        let kind = kinds.into_iter().find(|kind| name.starts_with(kind)).unwrap_or(HOST_PREFIX);
        let mut same_kind = Vec::new();
        for path in self.files()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Another process may have removed it.
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let written = metadata.modified()?;
            let age = written.elapsed().unwrap_or_default();
            if name.starts_with(file::UNFINISHED) && age > UNFINISHED_AGE_MAX {
                let _ = std::fs::remove_file(&path);
            } else if name.starts_with(kind) {
                same_kind.push((written, path));
            }
        }
        same_kind.sort();
        for (_, path) in same_kind.iter().take((same_kind.len() + 1).saturating_sub(ENTRIES_MAX)) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Returns the directory's files, up to a limit.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.directory)?.take(FILES_MAX);
        Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
    }
}

/// Result of [`Cache::links`].
#[derive(Debug, Default)]
pub struct Listing {
    /// The links, sorted.
    pub links: Vec<(Pair, Entry<Cost>)>,
    /// Traffic statistics of links that have sent enough to show random losses.
    pub traffic: BTreeMap<Pair, Traffic>,
    /// Files that are not used, and the reasons.
    pub ignored: Vec<(PathBuf, Ignored)>,
}

/// Returns this machine's costs: stored ones, or ones sampled and stored now. If another process is
/// sampling, waits for its result a few milliseconds, and else returns a usual machine's costs.
pub fn host_cost(cache: Option<&Cache>) -> HostCost {
    let Some(cache) = cache else { return sample::host() };
    let until = Instant::now() + WAIT_MAX;
    loop {
        if let Ok(Some(entry)) = cache.host() {
            return entry.value;
        }
        if cache.prepare().is_err() {
            return sample::host();
        }
        if let Some(_lock) = cache.try_lock() {
            // Another may have finished before the lock was taken.
            if let Ok(Some(entry)) = cache.host() {
                return entry.value;
            }
            let cost = sample::host();
            if !cost.is_plausible() {
                return HostCost::default();
            }
            // Errors are ignored: a full disk only costs the next job a sample.
            let _ = cache.keep_host(&cost);
            return cost;
        }
        if Instant::now() >= until {
            return HostCost::default();
        }
        thread::sleep(RETRY_EVERY);
    }
}

/// Returns the cache's directory. An empty variable counts as unset, and so does a relative path,
/// which would be another cache in each directory. A home that does not exist is not created: it is
/// nobody's.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path(settings::CACHE_DIR.variable())
        .or_else(|| Some(path("XDG_CACHE_HOME")?.join("canele")))
        .or_else(|| Some(path("HOME").filter(|home| home.is_dir())?.join(".cache/canele")))
}

/// Identity of a machine and its boot. Containers have their own host names, with equal costs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MachineId {
    machine: String,
    boot: String,
}

impl MachineId {
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

/// Content of a file.
#[derive(Debug)]
struct CacheFile<T> {
    machine: MachineId,
    subject: String,
    entry: Entry<T>,
}

fn emit(here: &MachineId, now: SystemTime, subject: &str, value: &dyn fmt::Display) -> String {
    let written = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let MachineId { machine, boot } = here;
    format!("{VERSION_LINE}\nmachine {machine} boot {boot} written {written}\n{subject}\n{value}\n")
}

fn parse<T: FromStr>(text: &str, now: SystemTime) -> Result<CacheFile<T>, Ignored>
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
    let machine = MachineId { machine: machine.into(), boot: boot.into() };
    Ok(CacheFile { machine, subject: subject.into(), entry: Entry { value, age } })
}

/// Returns the stored value of a link with the link's name.
fn named<T>(word: &str, found: CacheFile<T>) -> Result<(Pair, Entry<T>), Ignored> {
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

/// Converts a name to one word of a file: printable ASCII, not too long, not empty.
fn plain(name: &str) -> String {
    let good = |symbol: char| if symbol.is_ascii_graphic() { symbol } else { '_' };
    let plain: String = name.chars().map(good).take(NAME_MAX).collect();
    if plain.is_empty() { NAMELESS.into() } else { plain }
}

/// FNV-1a (Fowler, Noll, Vo), for file names; the file itself holds the full name.
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
const LOCK_NAME: &str = "turn";
const NAMELESS: &str = "-";

/// Maximum length of the name of a rail, an end or a machine.
const NAME_MAX: usize = 128;
/// Maximum number of links, or of machines; the oldest are removed first.
const ENTRIES_MAX: usize = 512;
/// Maximum number of files that are looked at.
const FILES_MAX: usize = 4096;
/// Age above which an unfinished file's writer is dead.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum age of a machine's costs, which change with its software.
const HOST_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum age of a link's costs: they are a first guess, which traffic corrects, and an old guess
/// is better than none.
const LINK_AGE_MAX: Duration = Duration::from_secs(90 * 24 * 3600);
const SKEW_MAX: Duration = DAY;
/// Minimum time between two writes of a link's costs.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Maximum wait: several times the duration of sampling on a free core, and enough to write many
/// links.
const WAIT_MAX: Duration = Duration::from_millis(50);
const RETRY_EVERY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_where_the_user_has_one() {
        let home = std::env::temp_dir();
        let found = |variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
            directory(|name| value(name).map(|(_, value)| OsString::from(value)))
        };
        let home_text = home.to_str().unwrap();
        let chosen = settings::CACHE_DIR.variable();
        let all = [("HOME", home_text), ("XDG_CACHE_HOME", "/x"), (chosen, "/c")];
        assert_eq!(found(&all), Some("/c".into()));
        assert_eq!(found(&all[..2]), Some("/x/canele".into()));
        assert_eq!(found(&all[..1]), Some(home.join(".cache/canele")));
        assert_eq!(found(&[("HOME", home_text), ("XDG_CACHE_HOME", "")]), found(&all[..1]));
        for strange in ["", "relative", "/nonexistent", "/proc/version"] {
            assert_eq!(found(&[("HOME", strange)]), None, "{strange}");
        }
    }
}
