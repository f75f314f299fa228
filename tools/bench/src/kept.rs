//! Results of an interrupted command, kept in a file until the command is done.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::planned::Plan;
use crate::report::Report;
use crate::run::tell;

/// The reports of a command so far, in memory and in a file. The file is replaced as a whole after each turn.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    contents: Contents,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Contents {
    /// The command, without `--continue`.
    words: Vec<String>,
    /// Reports of the plans, in their order. The last one may lack turns.
    reports: Vec<Report>,
    /// Turns that the last report holds.
    turns: u32,
}

impl Kept {
    /// Opens the file of a folder: for a new run of these words, or for one that takes up the interrupted one. A file that
    /// is not taken up is set aside.
    ///
    /// # Errors
    /// Fails if there is nothing to take up, or another command's.
    pub fn open(
        folder: &Path,
        words: Vec<String>,
        continues: bool,
        plans: &[&Plan],
    ) -> Result<Self, String> {
        let path = folder.join(NAME);
        let name = path.display();
        let found = match fs::read(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{name}: {error}")),
        };
        let mut contents = Contents { words, ..Contents::default() };
        match found {
            None if continues => {
                return Err(format!("--continue: {name} is missing: no run was interrupted"));
            }
            Some(text) if continues => {
                let old: Contents = serde_json::from_slice(&text)
                    .map_err(|error| format!("--continue: {name} cannot be read: {error}"))?;
                if old.words != contents.words {
                    return Err(format!(
                        "--continue: {name} is of another command: canele {}",
                        old.words.join(" ")
                    ));
                }
                if !old.fits(plans) {
                    return Err(format!(
                        "--continue: {name} is of another version of Canele, or of other libraries"
                    ));
                }
                contents = old;
            }
            Some(_) => {
                let aside = path.with_extension("old");
                fs::rename(&path, &aside).map_err(|error| format!("{name}: {error}"))?;
                tell(&format!(
                    "canele bench: an interrupted run is set aside as {}; to take it up, rename it to {name}, and add --continue",
                    aside.display()
                ));
            }
            None => {}
        }
        Ok(Self { path, contents })
    }

    /// Returns the report of a plan if it has all turns.
    pub fn finished(&self, number: usize) -> Option<Report> {
        let Contents { reports, turns, .. } = &self.contents;
        let is_finished = |report: &&Report| {
            number + 1 < reports.len() || *turns == report.rounds * report.entries.len() as u32
        };
        reports.get(number).filter(is_finished).cloned()
    }

    /// Returns the report of a plan that lacks turns, and the number of those it has.
    pub fn begun(&self, number: usize) -> Option<(Report, u32)> {
        let report = self.contents.reports.get(number)?;
        (number + 1 == self.contents.reports.len()).then(|| (report.clone(), self.contents.turns))
    }

    /// Keeps the report of a plan, which now has so many turns.
    pub fn keep(&mut self, number: usize, report: &Report, turns: u32) {
        self.contents.reports.truncate(number);
        self.contents.reports.push(report.clone());
        self.contents.turns = turns;
        if let Err(error) = self.write() {
            let name = self.path.display();
            tell(&format!("canele bench: {name}: {error}; an interruption would lose this turn"));
        }
    }

    /// Returns how to take up what is kept, as the end of a message.
    pub fn remedy(&self) -> String {
        match self.path.exists() {
            true => "; add --continue to the command to take it up after its last turn".into(),
            false => String::new(),
        }
    }

    /// Removes the file of a command that is done.
    pub fn remove(self) {
        // A command of no turns has none.
        let _ = fs::remove_file(&self.path);
    }

    fn write(&self) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&self.contents)?)?;
        fs::rename(&new, &self.path)
    }
}

impl Contents {
    /// True if the reports are of these plans.
    fn fits(&self, plans: &[&Plan]) -> bool {
        let libraries = |report: &Report, plan: &Plan| {
            let theirs = plan.entries();
            report.entries.len() == theirs.len()
                && report.entries.iter().zip(&theirs).all(|(one, other)| {
                    (one.library, &one.variant) == (other.library, &other.variant)
                })
        };
        let is_of = |(report, plan): (&Report, &&Plan)| {
            (&report.workload, report.place, report.surroundings, report.rounds)
                == (&plan.workload, plan.place, plan.surroundings, plan.rounds)
                && libraries(report, plan)
        };
        self.reports.len() <= plans.len() && self.reports.iter().zip(plans).all(is_of)
    }
}

/// Name of the file. It has no ending of a result.
const NAME: &str = "unfinished";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::{Instrument, Workload};
    use crate::library::LibraryKind;
    use crate::report::tests::sample;

    /// A plan and its report.
    fn planned(place: crate::scenario::Place) -> (Plan, Report) {
        let plan = Plan {
            workload: Workload::new(Instrument::Pingpong),
            place,
            surroundings: Default::default(),
            kinds: vec![LibraryKind::Canele, LibraryKind::Mpich],
            variants: Vec::new(),
            tuned: false,
            rounds: 3,
            seconds: 0.1,
            nodes: 2,
            pairs: Vec::new(),
        };
        let report = Report {
            workload: plan.workload.clone(),
            place,
            surroundings: plan.surroundings,
            rounds: plan.rounds,
            entries: plan.entries(),
            ..sample()
        };
        (plan, report)
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_interrupted_run_is_taken_up_after_its_last_turn() {
        let folder = tempfile::tempdir().unwrap();
        let (first, report) = planned(crate::scenario::Place::Shm);
        let (second, other) = planned(crate::scenario::Place::Lan);
        let plans = [&first, &second];
        let open = |continues| Kept::open(folder.path(), words("bench compare"), continues, &plans);
        let mut kept = open(false).unwrap();
        assert_eq!((kept.finished(0), kept.begun(0), &*kept.remedy()), (None, None, ""));
        kept.keep(0, &report, 5);
        drop(kept);
        let mut kept = open(true).unwrap();
        assert_eq!((kept.finished(0), kept.begun(0)), (None, Some((report.clone(), 5))));
        kept.keep(0, &report, 6);
        let kept_now = open(true).unwrap();
        assert_eq!((kept_now.finished(0), kept_now.begun(1)), (Some(report.clone()), None));
        kept.keep(1, &other, 1);
        let kept = open(true).unwrap();
        assert_eq!((kept.finished(0), kept.finished(1)), (Some(report), None));
        assert_eq!(kept.begun(1), Some((other, 1)));
        assert!(kept.remedy().contains("--continue"));
        kept.remove();
        assert!(open(true).unwrap_err().contains("no run was interrupted"));
    }

    #[test]
    fn what_is_not_taken_up_is_set_aside_and_nothing_is_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let (plan, report) = planned(crate::scenario::Place::Shm);
        let open =
            |line, continues, plan| Kept::open(folder.path(), words(line), continues, &[plan]);
        open("bench pingpong", false, &plan).unwrap().keep(0, &report, 1);
        let text = open("bench burst", true, &plan).unwrap_err();
        assert!(text.ends_with("is of another command: canele bench pingpong"), "{text}");
        let more = Plan { rounds: 4, ..plan.clone() };
        assert!(open("bench pingpong", true, &more).unwrap_err().contains("another version"));
        assert_eq!(open("bench burst", false, &plan).unwrap().begun(0), None);
        assert!(folder.path().join("unfinished.old").exists());
        fs::write(folder.path().join(NAME), "{").unwrap();
        assert!(open("bench burst", true, &plan).unwrap_err().contains("cannot be read"));
    }
}
