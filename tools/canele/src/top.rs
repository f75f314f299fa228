//! `canele top`: the ranks of a running job, what they do and how much they send, in intervals.

mod json;
mod rates;
mod screen;
mod table;

use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use launch::jobs;

use crate::jobs::only_job;
use rates::JobRates;
use screen::Screen;

/// Arguments of `canele top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Number of the job, as `canele jobs` prints it; not needed if there is one
    job: Option<u32>,
    /// Print one JSON object per interval, each on a line
    #[arg(long)]
    json: bool,
    /// Length of an interval in seconds, from 0.1 to 3600
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// End after so many intervals, at least 1 [default: 1 for a table without a terminal]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Shows the load of a job until the user, the count or the job ends it.
pub(crate) fn run(arguments: &TopArguments) -> ExitCode {
    let shown = arguments.job.map_or_else(only_job, Ok).and_then(|job| show(job, arguments));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // A message that nobody can read is lost.
            let _ = writeln!(io::stderr(), "canele: {text}");
            ExitCode::FAILURE
        }
    }
}

fn show(job: u32, arguments: &TopArguments) -> Result<(), String> {
    let interval = arguments.interval;
    // Ranks count for as long as questions come.
    let watch = 3 * interval + Duration::from_secs(10);
    let mut before = jobs::load(job, watch)?;
    let mut output = Output::begin(arguments.json)?;
    let count = arguments.count.unwrap_or(output.usual_count());
    let mut due = Instant::now();
    for number in 0..count {
        due = (due + interval).max(Instant::now());
        if !output.wait(due) {
            return Ok(());
        }
        let now = match jobs::load(job, watch) {
            Ok(now) => now,
            Err(text) => {
                drop(output);
                let has_ended = jobs::list().iter().all(|one| one.job != job);
                let text = if has_ended { format!("job {job} has ended") } else { text };
                return if has_ended && number > 0 { tell(&text) } else { Err(text) };
            }
        };
        if !output.put(JobRates::between(&before, &now))? {
            return Ok(());
        }
        before = rates::filled(now, before);
    }
    output.end();
    Ok(())
}

/// Says why there is no more to show.
fn tell(text: &str) -> Result<(), String> {
    let _ = writeln!(io::stderr(), "canele: {text}");
    Ok(())
}

/// Place where intervals are shown.
enum Output {
    Lines,
    Tables { is_first: bool },
    Screen(Screen),
}

impl Output {
    fn begin(is_json: bool) -> Result<Self, String> {
        match io::stdout().is_terminal() {
            _ if is_json => Ok(Self::Lines),
            false => Ok(Self::Tables { is_first: true }),
            true => {
                Screen::begin().map(Self::Screen).map_err(|error| format!("the terminal: {error}"))
            }
        }
    }

    /// Number of intervals if the user gives none.
    fn usual_count(&self) -> u64 {
        match self {
            Self::Tables { .. } => 1,
            Self::Lines | Self::Screen(_) => u64::MAX,
        }
    }

    /// Waits for the end of an interval. False if the user ends it.
    fn wait(&mut self, due: Instant) -> bool {
        match self {
            Self::Lines | Self::Tables { .. } => {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                true
            }
            Self::Screen(screen) => screen.wait(due),
        }
    }

    /// Shows an interval. False if nobody reads any more.
    fn put(&mut self, rates: JobRates) -> Result<bool, String> {
        let text = match self {
            Self::Lines => json::line(&rates),
            Self::Tables { is_first } => {
                let gap = if std::mem::take(is_first) { "" } else { "\n" };
                format!("{gap}{}", table::text(&rates, None))
            }
            Self::Screen(screen) => return Ok(screen.show(rates)),
        };
        let mut stdout = io::stdout();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(format!("standard output cannot be written: {error}")),
        }
    }

    /// Leaves the last interval on a terminal.
    fn end(self) {
        if let Self::Screen(screen) = self
            && let Some(rates) = screen.end()
        {
            // A terminal that has gone shows nothing.
            let _ = io::stdout().write_all(table::text(&rates, None).as_bytes());
        }
    }
}

/// Reads the length of an interval.
fn seconds(text: &str) -> Result<Duration, String> {
    let refused = || "a number of seconds from 0.1 to 3600 is needed".to_owned();
    let seconds: f64 = text.parse().map_err(|_| refused())?;
    let is_sound = (0.1..=3600.0).contains(&seconds);
    is_sound.then(|| Duration::from_secs_f64(seconds)).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "0.05", "3601", "NaN", "inf", "soon", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
