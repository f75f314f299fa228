//! Links between gateways that are begun by the thousand over UDP and go no further: those of the job are
//! served, and what the daemon keeps of the others is bounded, by what the kernel says of its process.

use std::thread;

use crate::common::{Daemon, Process, SECRET, echo, exchange, open, request};
use crate::initials::{AT_ONCE, Strangers};
use driver::Identity;
use gateway::Between;

#[test]
fn the_half_open_over_udp_take_little_and_keep_nobody_out() {
    let (gateway, host) = (Process::start(1, SECRET), echo());
    let far = Daemon::start(Between::Udp);
    let mut carried = open(far.address, &request(host, &[gateway.address]));
    let mut strangers = Strangers::new(gateway.address, &Identity::of(&[SECRET; 32], 1));
    let before = gateway.peak_kb();
    // Some say one word and no more; others show that they are where they say to be, and fall silent then.
    for answers in [false, true] {
        for _ in 0..STRANGERS / AT_ONCE {
            strangers.begin(answers);
            exchange(&mut carried);
            if answers {
                strangers.answer(|| exchange(&mut carried));
            }
        }
    }
    let taken = gateway.peak_kb() - before;
    assert!(taken <= TAKEN_MAX_KB, "{taken} KB");

    // The place is full. A gateway that calls now gets in while more of them do.
    let late = Daemon::start(Between::Udp);
    thread::scope(|scope| {
        let call = scope.spawn(|| open(late.address, &request(host, &[gateway.address])));
        while !call.is_finished() {
            strangers.begin(true);
            strangers.answer(|| exchange(&mut carried));
        }
        exchange(&mut call.join().unwrap());
    });
    let answered = strangers.answered;
    assert!(answered >= STRANGERS / 2, "{answered} have answered");
    let account = gateway.end();
    let crowd = account.lines().find_map(|line| line.strip_prefix("refused, crowd: "));
    let refused: usize = crowd.unwrap_or("0").parse().unwrap();
    assert!(refused >= answered - KEPT, "{answered} have answered:\n{account}");
    println!("{taken} KB for {refused} refused");
}

/// Of either kind.
const STRANGERS: usize = 3000;
/// Whom a gateway keeps until they have said who they are.
const KEPT: usize = 128;
const TAKEN_MAX_KB: usize = 24 << 10;
