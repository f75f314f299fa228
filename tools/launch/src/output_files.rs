//! Files that the output of ranks goes to.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::label::{Label, LabelFacts, OutputStream};

/// Names of files for output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePatterns {
    /// Files of standard output.
    pub output: Option<Label>,
    /// Files of standard error.
    pub error: Option<Label>,
    /// True if the output is also printed.
    pub copies: bool,
}

/// The files, each open from its first bytes on. Several ranks may share one.
#[derive(Debug, Default)]
pub(crate) struct OutputFiles {
    patterns: FilePatterns,
    open: HashMap<PathBuf, File>,
}

impl OutputFiles {
    pub fn new(patterns: FilePatterns) -> Self {
        Self { patterns, open: HashMap::new() }
    }

    /// Writes a piece of a stream to its file. True if it is to be printed, too.
    ///
    /// # Errors
    /// Fails if the file cannot be written, with one line that names it.
    pub fn write(&mut self, facts: LabelFacts<'_>, bytes: &[u8]) -> Result<bool, String> {
        let pattern = match facts.stream {
            OutputStream::Output => &self.patterns.output,
            OutputStream::Error => &self.patterns.error,
        };
        let Some(pattern) = pattern else { return Ok(true) };
        let path = PathBuf::from(pattern.text(facts));
        let failed = |error: io::Error| {
            format!("output of the ranks cannot be written to {}: {error}", path.display())
        };
        if !self.open.contains_key(&path) {
            self.open.insert(path.clone(), create(&path).map_err(failed)?);
        }
        if let Some(file) = self.open.get_mut(&path) {
            file.write_all(bytes).map_err(failed)?;
        }
        Ok(self.patterns.copies)
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_files_or_share_one() {
        let folder = tempfile::tempdir().unwrap();
        let name = |end: &str| folder.path().join(end).display().to_string();
        let mut files = OutputFiles::new(FilePatterns {
            output: Some(Label::parse(&name("of/%r")).unwrap()),
            error: Some(Label::parse(&name("all")).unwrap()),
            copies: false,
        });
        let facts =
            |rank, stream| LabelFacts { world: 0, rank, size: 2, host: "a", node: 0, stream };
        for rank in [0, 1, 0] {
            let text = format!("{rank}");
            for stream in [OutputStream::Output, OutputStream::Error] {
                assert_eq!(files.write(facts(rank, stream), text.as_bytes()), Ok(false));
            }
        }
        let read = |end: &str| fs::read_to_string(name(end)).unwrap();
        assert_eq!(
            (read("of/0"), read("of/1"), read("all")),
            ("00".into(), "1".into(), "010".into())
        );
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let output = Some(Label::parse("/dev/null/%r").unwrap());
        let mut files = OutputFiles::new(FilePatterns { output, ..FilePatterns::default() });
        let stream = OutputStream::Output;
        let facts = LabelFacts { world: 0, rank: 3, size: 4, host: "a", node: 0, stream };
        let mistake = files.write(facts, b"x").unwrap_err();
        assert!(mistake.contains("cannot be written to /dev/null/3: "), "{mistake}");
    }
}
