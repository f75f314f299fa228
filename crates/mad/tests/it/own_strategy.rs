//! A strategy of the application's own, made known by its name, chooses what a process sends.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use engine::strategy::{Choice, Fifo, Strategy, View};
use mad::{Constraints, Next, Receive, Send, session};
use memory::Region;

/// The reference strategy with a count of its calls.
#[derive(Debug)]
struct Counted;

/// Time limit of the process.
const PATIENCE: Duration = Duration::from_secs(60);

static ASKED: AtomicU64 = AtomicU64::new(0);

impl Strategy for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn choose(&mut self, view: &View<'_>, choice: &mut Choice) {
        ASKED.fetch_add(1, Ordering::Relaxed);
        Fifo.choose(view, choice);
    }
}

#[test]
fn a_strategy_made_known_by_its_name_is_asked() {
    const NAME: &str = "own_strategy::a_strategy_made_known_by_its_name_is_asked";
    if std::env::var("CANELE_STRATEGY").is_ok_and(|name| name == "counted") {
        return job_of_one_process();
    }
    let own = std::env::current_exe().expect("its path");
    let mut child = Command::new(own);
    let status = child.args(["--exact", NAME]).env("CANELE_STRATEGY", "counted").status();
    assert!(status.expect("a process").success());
}

fn job_of_one_process() {
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        std::process::exit(1);
    });
    runtime::strategy::register("counted", || Box::new(Counted));
    session::initialize().expect("a job");
    let channel = session::node().and_then(|node| node.open(0)).expect("a channel");
    let constraints = Constraints { send: Send::Safer, receive: Receive::Express };
    let (out, into) = (Region::owned(300_000), Region::owned(300_000));
    out.write(0, &[7; 300_000]);
    thread::scope(|scope| {
        // A long packet may have to wait for its receiver.
        scope.spawn(|| {
            let packing = channel.begin_packing(0).expect("a connection");
            packing.pack(&out, constraints, Next::Unknown).expect("a packet");
            packing.end().expect("a whole message");
        });
        let unpacking = channel.begin_unpacking().expect("a message");
        unpacking.unpack(&into, constraints, Next::Unknown).expect("the packet");
        unpacking.end().expect("a whole message");
    });
    assert_eq!(into.to_vec(), [7; 300_000]);
    assert!(ASKED.load(Ordering::Relaxed) > 0);
    session::finalize(|| {}).expect("the job's end");
}
