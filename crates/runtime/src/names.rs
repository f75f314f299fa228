//! Published names of ports (MPI-5.0 §11.9.4), in files that belong to the user alone.
//!
//! A name is a file in the user's folder of cached data. So all jobs of a user on a machine see it, and those on all
//! machines that share the user's home. The file has the name of a port, which is a secret: folder and file are closed to others.
//! A process withdraws the names that it has published when it leaves its job. The file says which process has published it;
//! that of a process that has died is removed by the next one that sees it on that host.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use crate::life::ProcessLife;

/// The names that a user has published, and those of them that this process has.
pub struct PublishedNames {
    folder: PathBuf,
    own: Mutex<Vec<(PathBuf, Zeroizing<String>)>>,
}

/// Reason why a name is not published, found or withdrawn.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// Nobody has published it.
    #[error(
        "nobody has published `{0}`: names are seen by all ranks of one mpiexec, and by jobs of one user on one host"
    )]
    Unknown(String),
    /// Somebody has.
    #[error(
        "`{0}` is published already: withdraw it by MPI_Unpublish_name, or choose another name"
    )]
    Taken(String),
    /// This process did not publish it.
    #[error("`{0}` is not published with this port name")]
    NotPublished(String),
    /// No name can be so long, or empty.
    #[error("a service name has 1 to {SERVICE_MAX} bytes and no control characters")]
    Invalid,
    /// The folder cannot be used.
    #[error("{}: {text}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Reason for which it cannot be used.
        text: String,
    },
}

/// A published name as its file has it.
struct PublishedName {
    service: String,
    publisher: ProcessLife,
    port: Zeroizing<String>,
}

impl PublishedNames {
    /// The names of this process's user.
    ///
    /// # Errors
    /// The user has no home folder.
    pub fn of_user() -> Result<Self, NameError> {
        let cache = topo::Cache::of_environment().map(|cache| cache.directory().join("names"));
        let missing = || {
            let text = "no folder for published names: set HOME or CANELE_CACHE_DIR";
            NameError::Folder { folder: "HOME".into(), text: text.into() }
        };
        cache.map(Self::at).ok_or_else(missing)
    }

    /// The names in a folder, which need not exist.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder, own: Mutex::default() }
    }

    /// Publishes the name of a port.
    ///
    /// # Errors
    /// The service has a name of a process that lives, or the folder cannot be used.
    pub fn publish(&self, service: &str, port: &str) -> Result<(), NameError> {
        let path = self.path(service)?;
        self.make_folder()?;
        let failed = |error: io::Error| self.unusable(error.to_string());
        let entry = PublishedName {
            service: service.into(),
            publisher: ProcessLife::this(),
            port: Zeroizing::new(port.into()),
        };
        let own = path.with_extension(format!("{:x}", std::process::id()));
        // One left by a process of the same number.
        let _ = fs::remove_file(&own);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own);
        let written = file.and_then(|mut file| file.write_all(entry.emit().as_bytes()));
        let linked = written.and_then(|()| match fs::hard_link(&own, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_stale(&path) => {
                fs::remove_file(&path)?;
                fs::hard_link(&own, &path)
            }
            linked => linked,
        });
        let _ = fs::remove_file(&own);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(NameError::Taken(service.into()))
            }
            Err(error) => Err(failed(error)),
            Ok(()) => {
                self.own().push((path, entry.port));
                Ok(())
            }
        }
    }

    /// Returns the name of a port that is published for a service.
    ///
    /// # Errors
    /// There is none.
    pub fn look_up(&self, service: &str) -> Result<Zeroizing<String>, NameError> {
        let path = self.path(service)?;
        self.check_folder()?;
        let unknown = || NameError::Unknown(service.into());
        if is_stale(&path) {
            // Another process may have seen it, too.
            let _ = fs::remove_file(&path);
        }
        let entry = PublishedName::read(&path).ok_or_else(unknown)?;
        if entry.service == service { Ok(entry.port) } else { Err(unknown()) }
    }

    /// Withdraws a name.
    ///
    /// # Errors
    /// It is not published with this port.
    pub fn withdraw(&self, service: &str, port: &str) -> Result<(), NameError> {
        let path = self.path(service)?;
        let entry = PublishedName::read(&path).filter(|entry| entry.service == service);
        if entry.is_none_or(|entry| *entry.port != port) || fs::remove_file(&path).is_err() {
            return Err(NameError::NotPublished(service.into()));
        }
        self.own().retain(|(own, _)| *own != path);
        Ok(())
    }

    /// Withdraws all names that this process has published.
    pub fn withdraw_all(&self) {
        for (path, port) in std::mem::take(&mut *self.own()) {
            if PublishedName::read(&path).is_some_and(|entry| *entry.port == *port) {
                // Somebody may have removed it.
                let _ = fs::remove_file(path);
            }
        }
    }

    fn own(&self) -> MutexGuard<'_, Vec<(PathBuf, Zeroizing<String>)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unusable(&self, text: String) -> NameError {
        NameError::Folder { folder: self.folder.clone(), text }
    }

    /// Checks the name of a service.
    ///
    /// # Errors
    /// No name can be so long, or empty, or has control characters.
    pub fn check(service: &str) -> Result<(), NameError> {
        let is_valid =
            (1..=SERVICE_MAX).contains(&service.len()) && !service.chars().any(char::is_control);
        if is_valid { Ok(()) } else { Err(NameError::Invalid) }
    }

    fn path(&self, service: &str) -> Result<PathBuf, NameError> {
        Self::check(service)?;
        // Different names rarely have the same file; the entry tells them apart.
        let hash = service.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Ok(self.folder.join(format!("{hash:016x}")))
    }

    /// Makes the folder, which nobody else may use.
    fn make_folder(&self) -> Result<(), NameError> {
        let failed = |text: String| self.unusable(text);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| failed(error.to_string()))?;
        self.check_folder()
    }

    /// Checks that the folder, if there is one, is the user's alone.
    fn check_folder(&self) -> Result<(), NameError> {
        let failed = |text: String| self.unusable(text);
        let facts = match fs::symlink_metadata(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            facts => facts.map_err(|error| failed(error.to_string()))?,
        };
        let is_ours = facts.is_dir() && facts.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || facts.mode() & 0o077 != 0 {
            let text = "must be a folder of this user with mode 700, for it has secrets";
            return Err(failed(text.into()));
        }
        Ok(())
    }
}

impl PublishedName {
    fn emit(&self) -> Zeroizing<String> {
        let Self { service, publisher, port } = self;
        Zeroizing::new(format!("{VERSION}\n{service}\n{}\n{}\n", publisher.emit(), **port))
    }

    fn read(path: &Path) -> Option<Self> {
        let mut text = Zeroizing::new(String::new());
        File::open(path).ok()?.take(ENTRY_MAX).read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        if lines.next()? != VERSION {
            return None;
        }
        let service = lines.next()?.into();
        let publisher = ProcessLife::parse(lines.next()?)?;
        let port = Zeroizing::new(lines.next()?.to_owned());
        Some(Self { service, publisher, port })
    }
}

/// True for the file of a process that has ended.
fn is_stale(path: &Path) -> bool {
    PublishedName::read(path).is_some_and(|entry| entry.publisher.has_ended())
}

const VERSION: &str = "canele name 1";
/// Maximum length of the name of a service in bytes.
const SERVICE_MAX: usize = 1024;
/// Maximum length of a file in bytes.
const ENTRY_MAX: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(test: &str) -> PublishedNames {
        let folder = std::env::temp_dir().join(format!("names-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        PublishedNames::at(folder)
    }

    #[test]
    fn a_name_is_published_once_found_and_withdrawn() {
        let names = names("once");
        assert!(matches!(names.look_up("ocean"), Err(NameError::Unknown(_))));
        names.publish("ocean", "canele1:abc").unwrap();
        names.publish("air/sea ice ä", "canele1:def").unwrap();
        assert_eq!(*names.look_up("ocean").unwrap(), "canele1:abc");
        assert_eq!(*names.look_up("air/sea ice ä").unwrap(), "canele1:def");
        assert!(matches!(names.publish("ocean", "canele1:x"), Err(NameError::Taken(_))));
        assert!(matches!(names.withdraw("ocean", "other"), Err(NameError::NotPublished(_))));
        names.withdraw("ocean", "canele1:abc").unwrap();
        assert!(matches!(names.withdraw("ocean", "canele1:abc"), Err(NameError::NotPublished(_))));
        assert!(matches!(names.look_up("ocean"), Err(NameError::Unknown(_))));
        names.withdraw_all();
        assert!(matches!(names.look_up("air/sea ice ä"), Err(NameError::Unknown(_))));
        assert_eq!(fs::read_dir(&names.folder).unwrap().count(), 0, "no file is left");
        fs::remove_dir_all(&names.folder).unwrap();
    }

    #[test]
    fn names_of_dead_processes_do_not_count() {
        let names = names("dead");
        names.make_folder().unwrap();
        let ended = ProcessLife { began: 1, ..ProcessLife::this() };
        let far = ProcessLife { host: "elsewhere".into(), ..ended.clone() };
        for (publisher, is_found) in [(ended, false), (far, true), (ProcessLife::this(), true)] {
            let port = Zeroizing::new("canele1:old".to_owned());
            let entry = PublishedName { service: "sea".into(), publisher, port };
            let path = names.path("sea").unwrap();
            fs::write(&path, entry.emit().as_bytes()).unwrap();
            assert_eq!(names.look_up("sea").is_ok(), is_found);
            fs::write(&path, entry.emit().as_bytes()).unwrap();
            assert_eq!(names.publish("sea", "canele1:new").is_ok(), !is_found);
        }
        fs::remove_dir_all(&names.folder).unwrap();
    }

    #[test]
    fn the_folder_is_closed_to_others() {
        use std::os::unix::fs::PermissionsExt;
        let names = names("closed");
        names.publish("a", "canele1:b").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&names.folder), 0o700);
        assert_eq!(mode(&names.path("a").unwrap()), 0o600);
        fs::set_permissions(&names.folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(names.publish("c", "canele1:d"), Err(NameError::Folder { .. })));
        fs::remove_dir_all(&names.folder).unwrap();
    }

    #[test]
    fn strange_names_and_files_are_refused() {
        let names = names("strange");
        for wrong in ["", "a\nb", &"x".repeat(SERVICE_MAX + 1)] {
            assert!(matches!(names.publish(wrong, "canele1:a"), Err(NameError::Invalid)));
        }
        names.make_folder().unwrap();
        for bytes in
            [&b""[..], b"canele name 1\nsea\n", b"canele name 1\nsea\nh x 1\np\n", &[255; 99]]
        {
            fs::write(names.path("sea").unwrap(), bytes).unwrap();
            assert!(matches!(names.look_up("sea"), Err(NameError::Unknown(_))));
        }
        fs::remove_dir_all(&names.folder).unwrap();
    }
}
