//! Many threads in several processes send, receive, wait, test, probe and cancel at random, over each
//! rail. Every message arrives once, whole and in order, and no thread waits for an event that has happened.
//!
//! Seeds decide the operations of the threads; the machine decides their timing. A failure prints its
//! seed. `CANELE_SEED=n cargo test -p progress --test stress RAIL` runs only that seed, and
//! `CANELE_SEED=n+` goes on from there.

mod job;
mod member;
#[macro_use]
#[path = "../wrapped_rail/mod.rs"]
mod wrapped_rail;
mod plan;
mod rails;
mod watch;

use std::thread;
use std::time::{Duration, Instant};

use job::Job;
use member::Member;

#[test]
fn simulated() {
    within_budget(rails::RailKind::Simulated);
}

#[test]
fn tcp() {
    within_budget(rails::RailKind::Tcp);
}

#[test]
fn shm() {
    within_budget(rails::RailKind::Shm);
}

/// Runs seed after seed until the time is over.
fn within_budget(rails: rails::RailKind) {
    let begin = Instant::now();
    for seed in testing::seeds(u64::MAX) {
        println!("{rails:?}: seed {seed}");
        play(rails, seed);
        if begin.elapsed() > BUDGET * testing::budget() as u32 {
            break;
        }
    }
}

/// Runs all members of a job, then checks that nothing is left.
fn play(rails: rails::RailKind, seed: u64) {
    let job = Job::new(rails, seed);
    let _watched = watch::over(&job);
    thread::scope(|scope| {
        for rank in 0..job.plan.processes {
            for number in 0..job.plan.threads {
                let job = &job;
                scope.spawn(move || Member::new(job, rank, number).act());
            }
        }
    });
    job.check_all_arrived();
    job.check_nothing_is_left();
}

/// Duration of each test; three run at a time.
const BUDGET: Duration = Duration::from_secs(6);
