//! A file that an option names, written at the end of the job.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// A file that can be written. An existing one stays as it is until then; an empty one is removed in the end.
#[derive(Debug)]
pub(crate) struct ResultFile {
    option: &'static str,
    path: PathBuf,
    file: File,
}

impl ResultFile {
    /// Opens the file that `option` names.
    ///
    /// # Errors
    /// Fails if it cannot be written; one line names it.
    pub fn open(option: &'static str, path: PathBuf) -> Result<Self, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        match file {
            Ok(file) => Ok(Self { option, path, file }),
            Err(error) => Err(format!("{option} {}: cannot be written: {error}", path.display())),
        }
    }

    /// Makes sure that the disk has room for a short file, by writing one beside it.
    ///
    /// # Errors
    /// Fails if it has none; one line names the file.
    pub fn with_room(self) -> Result<Self, String> {
        if !self.file.metadata().is_ok_and(|file| file.is_file()) {
            return Ok(self);
        }
        let mut beside = self.path.clone().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        let written = fs::write(&beside, [1; ROOM]);
        // One that was not made cannot be removed.
        let _ = fs::remove_file(&beside);
        let failed = |error| format!("{} {}: has no room: {error}", self.option, self.name());
        written.map_err(failed)?;
        Ok(self)
    }

    /// Name of the file for messages.
    pub fn name(&self) -> impl std::fmt::Display {
        self.path.display()
    }

    /// Replaces the contents by what `fill` writes.
    ///
    /// # Errors
    /// Fails if the file cannot be written; one line names it.
    pub fn write(
        &self,
        fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> Result<(), String> {
        let mut out = BufWriter::new(&self.file);
        let written = self.file.set_len(0).and_then(|()| fill(&mut out)).and_then(|()| out.flush());
        written
            .map_err(|error| format!("{} {}: cannot be written: {error}", self.option, self.name()))
    }
}

/// Room that a short file needs, in bytes.
const ROOM: usize = 64 << 10;

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            // A file that cannot be removed is at least empty.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        fs::write(&path, "older and longer").unwrap();
        let file = ResultFile::open("-trace", path.clone()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"older and longer");
        file.write(|out| out.write_all(b"new")).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn nothing_is_left_of_a_file_that_was_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        drop(ResultFile::open("-trace", path.clone()).unwrap());
        assert!(!path.exists());
        fs::write(&path, "older").unwrap();
        drop(ResultFile::open("-trace", path.clone()).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"older");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_with_its_option() {
        let error = ResultFile::open("-record", "/nowhere/file".into()).unwrap_err();
        assert!(error.starts_with("-record /nowhere/file: cannot be written: "), "{error}");
        let full = ResultFile::open("-trace", "/dev/full".into()).unwrap();
        let error = full.write(|out| out.write_all(b"new")).unwrap_err();
        assert!(error.starts_with("-trace /dev/full: cannot be written: "), "{error}");
    }
}
