//! The traffic that ranks have counted, into a file (`-record`).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use place::traffic::Counted;

use crate::options::Options;
use crate::pattern::Pattern;
use crate::pmi::Server;

/// A file that is to say who sent how much to whom.
pub(crate) struct Recording {
    path: PathBuf,
    file: File,
    /// The host of every rank, as the command line or the grid calls it.
    hosts: Vec<String>,
}

impl Recording {
    /// The recording that was asked for. Makes sure that there will be a file to write to; one that is there
    /// stays as it is until then.
    ///
    /// # Errors
    /// When it cannot be written; a line that names it.
    pub fn of(options: &Options) -> Result<Option<Self>, String> {
        let Some(path) = options.record.clone() else { return Ok(None) };
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| unwritten(&path, &error))?;
        let names: Vec<&str> = options.host_names().collect();
        let hosts = options.placement().into_iter().map(|host| names[host].to_owned()).collect();
        Ok(Some(Self { path, file, hosts }))
    }

    /// Writes what all ranks have told; a job that has failed may have left some of it untold.
    ///
    /// # Errors
    /// When not all have, or the file cannot be written; a line that says so.
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

    /// Leaves no empty file behind.
    fn discard(self) {
        if self.file.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            // What cannot be removed is empty at least.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> String {
    format!("-record {}: cannot be written: {error}", path.display())
}

/// What a rank has counted, if it has told.
fn counted(server: &Server, rank: u32, ranks: u32) -> Option<Counted> {
    let value = |name: &str| Ok::<_, ()>(server.value(name).map(str::to_owned));
    let bytes = boot::published(rank, boot::TRAFFIC_KEY, value).ok().flatten()?;
    Counted::parse(&bytes, ranks)
}
