//! The state of every thread, and an end with a report when a thread fails or hangs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, Once, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use progress::Progress;

use crate::job::{Job, lock};

/// Current action of a thread and its start; none once the thread is done.
#[derive(Clone, Debug, Default)]
pub struct WatchState(Arc<Mutex<Option<(Instant, String)>>>);

impl WatchState {
    /// Records the thread's current action.
    pub fn set(&self, what: String) {
        *lock(&self.0) = Some((Instant::now(), what));
    }

    pub fn clear(&self) {
        *lock(&self.0) = None;
    }

    fn since(&self) -> Option<(Instant, String)> {
        lock(&self.0).clone()
    }
}

/// A job under way.
struct Watched {
    title: String,
    states: Vec<Vec<WatchState>>,
    progress: Vec<Arc<Progress>>,
}

/// A guard that watches a job until it is dropped.
pub struct Watching(String);

static JOBS: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

/// Ends the program when a thread of `job` fails, or is busy with one action for too long.
pub fn over(job: &Job) -> Watching {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            fail(&format!("thread {name}: {panic}"));
        }));
        thread::spawn(watch);
    });
    let title = format!("{:?} with {:?}", job.rails, job.plan);
    lock(&JOBS).push(Watched {
        title: title.clone(),
        states: job.processes.iter().map(|process| process.states.clone()).collect(),
        progress: job.processes.iter().map(|process| Arc::clone(&process.progress)).collect(),
    });
    Watching(title)
}

impl Drop for Watching {
    fn drop(&mut self) {
        lock(&JOBS).retain(|job| job.title != self.0);
    }
}

fn watch() {
    loop {
        thread::sleep(Duration::from_millis(200));
        let is_late = |(since, _): (Instant, String)| since.elapsed() > PATIENCE;
        let is_stuck = |state: &WatchState| state.since().is_some_and(is_late);
        let stuck = |job: &&Watched| job.states.iter().flatten().any(is_stuck);
        let report = lock(&JOBS).iter().find(stuck).map(Watched::report);
        if let Some(report) = report {
            fail(&format!("a thread is stuck\n{report}"));
        }
    }
}

impl Watched {
    fn report(&self) -> String {
        let mut text = self.title.clone();
        for (rank, (states, progress)) in self.states.iter().zip(&self.progress).enumerate() {
            for (number, state) in states.iter().enumerate() {
                let what = match state.since() {
                    Some((since, what)) => format!("{what}, for {:?}", since.elapsed()),
                    None => "done".into(),
                };
                let _ = write!(text, "\nprocess {rank}, thread {number}: {what}");
            }
            let _ = write!(text, "\n{}", engine_of(progress));
        }
        text
    }
}

/// Returns the engine's state, unless a thread holds the lock for too long.
fn engine_of(progress: &Arc<Progress>) -> String {
    let (told, tell) = mpsc::channel();
    let progress = Arc::clone(progress);
    thread::spawn(move || {
        told.send(progress.look(|worker| format!("{:?}", worker.engine))).ok();
    });
    let Ok(text) = tell.recv_timeout(Duration::from_secs(2)) else {
        return "somebody holds the lock and does not give it back".into();
    };
    // Prints one line for each peer and each operation under way.
    let lines = text.replace("Some(PeerState {", "\n  PeerState {").replace("Op { ", "\n  Op { ");
    let is_over = |line: &&str| line.contains("state: Free") || line.contains("state: Done");
    let lines = lines.lines().filter(|line| !is_over(line));
    let lines = lines.map(|line| line.chars().take(LINE_MAX).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

/// Ends the program with a message that the test harness does not capture.
///
/// The other threads would wait for the failed one for ever.
pub fn fail(why: &str) {
    let mut text = format!("{why}\n");
    if let Ok(jobs) = JOBS.try_lock() {
        for job in jobs.iter() {
            let _ = writeln!(text, "under way: {}", job.title);
        }
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::exit(1);
}

/// Upper limit for one action of a thread, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Longest line of a report, in characters: waiting messages are printed with their bytes.
const LINE_MAX: usize = 2000;
