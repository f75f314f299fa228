//! Half-open QUIC links between gateways, begun by the thousand: the job's links are served, and the kernel's
//! figure for the process bounds the memory of the others.

use std::thread;

use auth::Identity;
use gateway::Between;

use crate::common::{Daemon, RankProcess, SECRET, echo, exchange, open, request};
use crate::initials::{AT_ONCE, HalfOpenClients};

#[test]
fn half_open_udp_links_take_little_memory_and_keep_nobody_out() {
    let (gateway, host) = (RankProcess::start(1, SECRET), echo());
    let far = Daemon::start(Between::Udp);
    let mut carried = open(far.address, &request(host, &[gateway.address]));
    let mut strangers =
        HalfOpenClients::new(gateway.address, &Identity::of(&[SECRET; 32].into(), 1));
    let before = gateway.peak_kb();
    // Some send one packet only; others validate their address and then fall silent.
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

    // The table is full. A gateway that calls now gets in while others continue to arrive.
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
    let too_many = account.lines().find_map(|line| line.strip_prefix("refused, too many: "));
    let refused: usize = too_many.unwrap_or("0").parse().unwrap();
    assert!(refused >= answered - KEPT, "{answered} have answered:\n{account}");
    println!("{taken} KB for {refused} refused");
}

/// Number of strangers of either kind.
const STRANGERS: usize = 3000;
/// Maximum number of unauthenticated peers that a gateway keeps.
const KEPT: usize = 128;
const TAKEN_MAX_KB: usize = 24 << 10;
