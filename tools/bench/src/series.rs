//! The measurements of one command, one after the other: the time that is left, and the results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kept::Kept;
use crate::library::LibraryKind;
use crate::planned::Plan;
use crate::programs::Programs;
use crate::report::{By, Document, Report};
use crate::run::{Interruption, about, say, tell};
use crate::runner::{self, Places, RunnerError, Turns, check};
use crate::scenario::{Crossing, Place, Surroundings};
use crate::sweep::Sweep;
use crate::testbed::Testbeds;
use crate::{plot, table};

/// Options of a command that concern all its plans.
pub struct SeriesOptions {
    /// Folder of the installed Canele; that of this command if none is given.
    pub prefix: Option<PathBuf>,
    /// Folder of the peers.
    pub peers: PathBuf,
    /// Lab to use, if none is to be raised.
    pub lab: Option<String>,
    /// Links that were asked for.
    pub crossings: Vec<Crossing>,
    /// Statistic over rounds in plots.
    pub by: By,
    /// Folder of results.
    pub output: PathBuf,
    /// The command, without `--continue`.
    pub words: Vec<String>,
    /// True if an interrupted run is taken up.
    pub continues: bool,
}

/// Measures plan by plan; each is printed and written as soon as it is there.
pub fn measure(plans: &[Plan], options: SeriesOptions) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let prefix = match &options.prefix {
        Some(prefix) => absolute(prefix)?,
        None => own.ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf(),
    };
    let places = Places { prefix, peers: absolute(&options.peers)? };
    let programs = Programs::new(&options.output.join("programs"), &places.prefix)
        .map_err(|error| error.to_string())?;
    let interruption = Interruption::watch().map_err(|error| error.to_string())?;
    let testbeds = Testbeds::new(&own, options.lab.clone());
    check(plans, &places, &testbeds).map_err(|error| error.to_string())?;
    let asked = asked(plans, &options.crossings);
    let all: Vec<&Plan> = asked.iter().flatten().collect();
    let kept = Kept::open(&options.output, options.words.clone(), options.continues, &all)?;
    let raising = RAISING * if options.lab.is_none() { labs(&all) } else { 0 };
    let estimates = all.iter().map(|plan| plan.estimate(&places)).collect();
    let pace = Pace { estimates, begun: Instant::now(), measured: Duration::ZERO };
    let time = about(raising + pace.left(0));
    match options.crossings.len() {
        0 | 1 => tell(&format!("canele bench: some {time}")),
        links => tell(&format!("canele bench: {links} links in turn, some {time} in all")),
    }
    let begun = Instant::now();
    let mut series =
        Series { options, places, programs, interruption, testbeds, kept, pace, failure: None };
    let mut first = 0;
    for plans in &asked {
        series.measure_links(plans, first)?;
        first += plans.len();
    }
    series.kept.remove();
    tell(&format!("canele bench: took {}", about(begun.elapsed())));
    match series.failure {
        Some(reason) => Err(format!("Canele failed: {reason}")),
        None => Ok(()),
    }
}

/// Settings that the plans of a command share.
struct Series {
    options: SeriesOptions,
    places: Places,
    programs: Programs,
    interruption: Interruption,
    testbeds: Testbeds,
    kept: Kept,
    pace: Pace,
    /// Reason of Canele's first failure.
    failure: Option<String>,
}

impl Series {
    /// Measures a plan over each of its links; `first` is the number of the first.
    fn measure_links(&mut self, plans: &[Plan], first: usize) -> Result<(), String> {
        let (by, folder) = (self.options.by, self.options.output.clone());
        let mut sweep: Option<Sweep> = None;
        let mut text = None;
        for (number, plan) in (first..).zip(plans) {
            let (report, is_new) = match self.kept.finished(number) {
                Some(report) => (report, false),
                None => (self.measure(plan, number)?, true),
            };
            let mut ours = report.entries.iter();
            let ours = ours.find_map(|entry| {
                entry.failure.clone().filter(|_| entry.library == LibraryKind::Canele)
            });
            self.failure = self.failure.take().or(ours);
            if plans.len() < 2 {
                // A finished result that an interruption has left is there already.
                if is_new {
                    let paths = write(&report, by, &folder)?;
                    text = Some(written(&table::render(&report), &paths));
                }
                continue;
            }
            // What is measured is written though a later link cannot be.
            match &mut sweep {
                Some(sweep) => sweep.push(report),
                None => sweep = Some(Sweep::new(report)),
            }
            if let Some(sweep) = &sweep {
                let paths = write_sweep(sweep, by, &folder)?;
                text = Some(written(&table::render_sweep(sweep), &paths));
            }
        }
        text.map_or(Ok(()), |text| say(&text))
    }

    fn measure(&mut self, plan: &Plan, number: usize) -> Result<Report, String> {
        let all = self.pace.estimates.len();
        if all > 1 {
            let left = about(self.pace.left(number));
            let title = plan.title();
            tell(&format!("canele bench: {} of {all}: {title}; some {left} are left", number + 1));
        }
        let later = self.pace.left(number + 1);
        let turns = Turns { kept: &mut self.kept, number, later };
        let report = runner::measure(
            plan,
            &self.places,
            &self.programs,
            &mut self.testbeds,
            &self.interruption,
            turns,
        );
        self.pace.measured += self.pace.estimates[number];
        report.map_err(|error| match error {
            RunnerError::Interrupted => format!("interrupted{}", self.kept.remedy()),
            _ => error.to_string(),
        })
    }
}

/// Estimates of plans, and how they have come true so far.
struct Pace {
    estimates: Vec<Duration>,
    begun: Instant,
    /// Sum of the estimates of those that have been measured since.
    measured: Duration,
}

impl Pace {
    /// Returns the time for the plans from this one on.
    fn left(&self, number: usize) -> Duration {
        let estimate: Duration = self.estimates[number..].iter().sum();
        match self.measured.as_secs_f64() {
            0.0 => estimate,
            measured => estimate.mul_f64(self.begun.elapsed().as_secs_f64() / measured),
        }
    }
}

/// Each plan over each of the links.
pub fn asked(plans: &[Plan], crossings: &[Crossing]) -> Vec<Vec<Plan>> {
    let over = |plan: &Plan, crossing: &Crossing| {
        let surroundings = Surroundings { crossing: Some(*crossing), ..plan.surroundings };
        Plan { surroundings, ..plan.clone() }
    };
    let over_all = |plan: &Plan| match crossings {
        [] => vec![plan.clone()],
        _ => crossings.iter().map(|crossing| over(plan, crossing)).collect(),
    };
    plans.iter().map(over_all).collect()
}

/// A table, and where it is.
fn written(table: &str, paths: &[PathBuf]) -> String {
    let paths: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    format!("\n{table}\n{paths}")
}

/// Number of labs that these plans raise, one after the other.
fn labs(plans: &[&Plan]) -> u32 {
    let raises = |plan: &&&Plan| plan.place != Place::Shm;
    let mut specs: Vec<_> = plans.iter().filter(raises).map(|plan| plan.needs().spec("")).collect();
    specs.dedup();
    specs.len() as u32
}

/// Writes the document, the table and the plots.
fn write(report: &Report, by: By, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let document = Document { report, rows: report.rows() };
    let mut paths = write_words(&document, &table::render(report), &report.stem(), folder)?;
    paths.extend(plot::draw(report, by, folder).map_err(|error| error.to_string())?);
    Ok(paths)
}

/// The same of a sweep.
fn write_sweep(sweep: &Sweep, by: By, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let table = table::render_sweep(sweep);
    let mut paths = write_words(&sweep.documents(), &table, &sweep.stem(), folder)?;
    paths.extend(plot::draw_sweep(sweep, by, folder).map_err(|error| error.to_string())?);
    Ok(paths)
}

fn write_words(
    document: &impl serde::Serialize,
    table: &str,
    stem: &str,
    folder: &Path,
) -> Result<Vec<PathBuf>, String> {
    let json = serde_json::to_string_pretty(document).map_err(|error| error.to_string())?;
    let mut paths = Vec::new();
    for (ending, text) in [("json", json.as_str()), ("txt", table)] {
        let path = folder.join(format!("{stem}.{ending}"));
        fs::write(&path, text).map_err(|error| format!("write {}: {error}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Ok(PathBuf::new());
    }
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Approximate time to create a lab and measure its links.
const RAISING: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;
    use crate::sweep;

    #[test]
    fn a_sweep_is_written_with_its_table_and_plots() {
        let folder = tempfile::tempdir().unwrap();
        let paths = write_sweep(&sweep::tests::sweep(), By::Median, folder.path()).unwrap();
        assert_eq!(paths.len(), 4);
        assert!(paths.iter().all(|path| path.metadata().unwrap().len() > 0));
    }

    #[test]
    fn a_report_is_written_with_its_table_and_plots() {
        let folder = tempfile::tempdir().unwrap();
        let paths = write(&sample(), By::Median, folder.path()).unwrap();
        let endings: Vec<_> =
            paths.iter().map(|path| path.extension().unwrap().to_str().unwrap()).collect();
        assert_eq!(endings, ["json", "txt", "svg", "png"]);
        assert!(paths.iter().all(|path| path.metadata().unwrap().len() > 0));
    }

    #[test]
    fn the_time_that_is_left_follows_the_pace() {
        let estimates = [10, 20, 30].map(Duration::from_secs).to_vec();
        let mut pace = Pace { estimates, begun: Instant::now(), measured: Duration::ZERO };
        assert_eq!(pace.left(1), Duration::from_secs(50));
        pace.begun = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
        pace.measured = Duration::from_secs(10);
        let left_s = pace.left(2).as_secs();
        assert!(left_s >= 60, "twice the estimate of 30 s: {left_s}");
        assert_eq!(pace.left(3), Duration::ZERO);
    }
}
