//! Profile of a job (`-profile`): calls of all ranks by function, communicator, phase and peer.

mod model;
mod table;

use std::fs;
use std::io::Write;
use std::path::Path;

use recorder::ReadProfile;

use model::{Profiled, RankPlace, VERSION};

use crate::collected::{Collected, some};
use crate::options::Options;
use crate::result_file::ResultFile;
use crate::tree;

/// The profile of a job that runs.
pub(crate) struct Profile {
    /// The file, unless it cannot be written.
    file: Option<ResultFile>,
    /// The recordings of the ranks.
    pub collected: Collected,
    places: Vec<RankPlace>,
}

impl Profile {
    /// Returns the requested profile. If the file cannot be written, a line says so, and the job still has a table.
    pub fn of(options: &Options, homes: &[usize], names: &[String]) -> Option<Self> {
        let path = options.profile.clone()?;
        let file = ResultFile::open("-profile", path).and_then(ResultFile::with_room);
        let file = file.inspect_err(|text| tell!("mpiexec: {text}; only the table is printed"));
        let sites = site_numbers(options);
        let hosts = options.placement();
        let place = |((&node, name), host): ((&usize, &String), &usize)| RankPlace {
            host: name.clone(),
            node,
            site: sites.get(*host).copied().unwrap_or(0),
        };
        let places = homes.iter().zip(names).zip(&hosts).map(place).collect();
        let collected = Collected::new(names, recorder::PROFILE_ROOM);
        Some(Self { file: file.ok(), collected, places })
    }

    /// Prints the table, writes the file, and says what is missing.
    ///
    /// # Errors
    /// Fails if the file cannot be written, with one line.
    pub fn finish(self) -> Result<(), String> {
        let Self { file, collected, places } = self;
        let missing = collected.missing();
        if !missing.is_empty() {
            tell!("mpiexec: -profile: the calls are missing of rank {}", some(&missing));
        }
        let read = collected.into_parts().map(|(_, bytes)| ReadProfile::parse(&bytes));
        let profiled = Profiled::of(&places, &read.collect::<Vec<_>>());
        tell!("{}", table::render(&profiled).trim_end());
        let Some(file) = file else { return Ok(()) };
        file.write(|out| {
            serde_json::to_writer(&mut *out, &profiled)?;
            out.write_all(b"\n")
        })
    }
}

/// Returns the table of a file that `mpiexec -profile` has written.
///
/// # Errors
/// Fails if it cannot be read or is no profile, with one line.
pub fn profile_table(path: &Path) -> Result<String, String> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let read: Profiled = serde_json::from_str(&text)
        .map_err(|error| format!("{name}: is no profile of mpiexec -profile: {error}"))?;
    if read.canele_profile != VERSION {
        let found = read.canele_profile;
        return Err(format!("{name}: has form {found}, and this canele reads form {VERSION}"));
    }
    Ok(table::render(&read))
}

/// Returns the number of each host's site; all are at one site if there is no grid.
fn site_numbers(options: &Options) -> Vec<usize> {
    let names: Vec<Option<&str>> =
        tree::sites_of(options).into_iter().map(|site| Some(&*site?.name)).collect();
    let first = |name| names.iter().position(|other| *other == name).unwrap_or(0);
    names.iter().map(|name| first(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::model::tests::{places, read};
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        let profiled = Profiled::of(&places(), &[read()]);
        fs::write(&path, serde_json::to_vec(&profiled).unwrap()).unwrap();
        assert_eq!(profile_table(&path), Ok(table::render(&profiled)));
        fs::write(&path, "{\"canele_profile\": 9, \"ranks\": [], \"calls\": []}").unwrap();
        assert!(
            profile_table(&path).unwrap_err().ends_with("has form 9, and this canele reads form 1")
        );
        fs::write(&path, "[]").unwrap();
        assert!(profile_table(&path).unwrap_err().contains("is no profile of mpiexec -profile"));
        assert!(profile_table(&folder.path().join("none")).unwrap_err().contains("none"));
    }

    #[test]
    fn a_file_that_cannot_be_written_does_not_stop_the_job() {
        let options = Options { profile: Some("/nowhere/profile".into()), ..Options::default() };
        let profile = Profile::of(&options, &[0], &["here".into()]).expect("a table");
        assert!(profile.file.is_none());
        assert!(Profile::of(&Options::default(), &[], &[]).is_none());
    }
}
