//! Recording of the traffic that ranks have counted (`-record`).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use place::traffic::Counted;

use crate::options::Options;
use crate::pattern::Pattern;
use crate::pmi::Server;

/// A file that will contain the traffic between ranks.
pub(crate) struct Recording {
    path: PathBuf,
    file: File,
    /// Host of every rank, as the command line or the grid calls it.
    hosts: Vec<String>,
}

impl Recording {
    /// Returns the requested recording. Makes sure that the file can be written; an existing file stays as it
    /// is until then.
    ///
    /// # Errors
    /// Fails if the file cannot be written; one line names it.
    pub fn of(options: &Options) -> Result<Option<Self>, String> {
        let Some(path) = options.record.clone() else { return Ok(None) };
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| unwritten(&path, &error))?;
        let names: Vec<&str> = options.host_names().collect();
        let hosts = options.placement().into_iter().map(|host| names[host].to_owned()).collect();
        Ok(Some(Self { path, file, hosts }))
    }

    /// Writes the counts of all ranks. After a failed job some may be missing.
    ///
    /// # Errors
    /// Fails if counts are missing or the file cannot be written, with one line.
    pub fn finish(mut self, server: &Server, has_failed: bool) -> Result<(), String> {
        let name = self.path.display();
        let mut all = Vec::with_capacity(self.hosts.len());
        for rank in 0..self.hosts.len() as u32 {
            let Some(counted) = counted(server, rank, self.hosts.len() as u32) else {
                let reason = match has_failed {
                    true => "the job has failed".to_owned(),
                    false => format!("rank {rank} has not come to the end of MPI_Finalize"),
                };
                let text = format!("nothing is recorded in {name}: {reason}");
                self.discard();
                return Err(text);
            };
            all.push(counted);
        }
        let text = Pattern::of(&all, &self.hosts).text();
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| unwritten(&self.path, &error))
    }

    /// Removes the file if it is empty.
    fn discard(self) {
        if self.file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            // A file that cannot be removed is at least empty.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> String {
    format!("-record {}: cannot be written: {error}", path.display())
}

/// Returns the counts of a rank, if it has published them.
fn counted(server: &Server, rank: u32, ranks: u32) -> Option<Counted> {
    let value = |name: &str| Ok::<_, ()>(server.value(name).map(str::to_owned));
    let bytes = boot::published(rank, boot::TRAFFIC_KEY, value).ok().flatten()?;
    Counted::parse(&bytes, ranks)
}
