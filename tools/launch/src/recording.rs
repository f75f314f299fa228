//! Recording of the traffic that ranks have counted (`-record`).

use std::io::Write;

use place::traffic::Counted;

use crate::options::Options;
use crate::pattern::Pattern;
use crate::pmi::Server;
use crate::result_file::ResultFile;

/// A file that will contain the traffic between ranks.
pub(crate) struct Recording {
    file: ResultFile,
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
        let file = ResultFile::open("-record", path)?;
        let names: Vec<&str> = options.host_names().collect();
        let hosts = options.placement().into_iter().map(|host| names[host].to_owned()).collect();
        Ok(Some(Self { file, hosts }))
    }

    /// Writes the counts of all ranks. After a failed job some may be missing.
    ///
    /// # Errors
    /// Fails if counts are missing or the file cannot be written, with one line.
    pub fn finish(self, server: &Server, has_failed: bool) -> Result<(), String> {
        let mut all = Vec::with_capacity(self.hosts.len());
        for rank in 0..self.hosts.len() as u32 {
            let Some(counted) = counted(server, rank, self.hosts.len() as u32) else {
                let reason = match has_failed {
                    true => "the job has failed".to_owned(),
                    false => format!("rank {rank} has not come to the end of MPI_Finalize"),
                };
                return Err(format!("nothing is recorded in {}: {reason}", self.file.name()));
            };
            all.push(counted);
        }
        let text = Pattern::of(&all, &self.hosts).text();
        self.file.write(|out| out.write_all(text.as_bytes()))
    }
}

/// Returns the counts of a rank, if it has published them.
fn counted(server: &Server, rank: u32, ranks: u32) -> Option<Counted> {
    let value = |name: &str| Ok::<_, ()>(server.value(name));
    let bytes = boot::published(rank, boot::TRAFFIC_KEY, value).ok().flatten()?;
    Counted::parse(&bytes, ranks)
}
