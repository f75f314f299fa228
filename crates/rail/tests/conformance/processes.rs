//! Scenarios between processes: sleep and wake-up, and sudden death.
//!
//! The other process is this test program again, run for one role alone.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rail::{Fault, Post, Rail};
use wire::{Frame, PeerId};

use crate::kit::{End, Flow, Limit, Load, pattern};
use crate::scenarios::sleep;

/// Frames that are mirrored by the other process arrive, though both sleep whenever they can.
pub fn echo(rail: &str) {
    let (mut end, other) = with(rail, "echo");
    for round in 0..ECHOES {
        let bytes = pattern(1, round, (round as usize * 37) % 3000);
        let frame = Frame { head: bytes.clone(), body: None, token: None };
        assert_eq!(end.rail.post(PEER, &frame), Post::Done);
        assert!(next(&mut end, round as u32) == bytes, "echo {round}");
    }
    drop(other);
}

/// Checks a process killed while it sends: whole frames only, then down, once, though the dead child has not been
/// waited for.
pub fn death(rail: &str) {
    let (mut end, mut other) = with(rail, "flood");
    for number in 0..50 {
        let bytes = next(&mut end, number);
        assert!(bytes == pattern(FLOOD, u64::from(number), bytes.len()), "frame {number}");
    }
    other.0.kill().expect("kill");
    let mut number = 50;
    let fault = down(&mut end, Waiting::Asleep, |bytes| {
        assert!(bytes == pattern(FLOOD, number, bytes.len()), "frame {number}, after the kill");
        assert_eq!(bytes.len(), flood_len(number));
        number += 1;
    });
    check_loss(rail, &fault);
    for _ in 0..2000 {
        end.poll();
    }
}

/// Checks a process that never polls and is killed: posting to it does not block, and it is down, once, even for a
/// peer that only polls.
pub fn deafness(rail: &str) {
    let (end, mut other) = with(rail, "deaf");
    let size = end.frame_max(PEER).min(64 << 10);
    let mut ends = [end, End::new(1, Box::new(rail::LoopbackRail::new(PEER).expect("an event")))];
    let mut flow = Flow::new(0, 1, vec![size; 1000]);
    let limit = Limit::new();
    while flow.refusals == 0 {
        flow.post(&mut ends);
        limit.check("a sender runs out of room");
    }
    let [mut end, _] = ends;
    other.0.kill().expect("kill");
    let fault = down(&mut end, Waiting::Polling, |_| panic!("a frame of the deaf"));
    check_loss(rail, &fault);
}

/// Plays the role of the other process, if one is set.
pub fn play() {
    let rail = std::env::var(RAIL).expect("run by the other tests, for a role in them");
    let role = std::env::var(ROLE).expect("a role");
    let mut end = open(&rail, 1);
    println!("{ADDRESS}{}", hex::encode(end.rail.address()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the other's address");
    let peer = PeerId(0);
    end.rail
        .connect(peer, &hex::decode(line.trim()).expect("hexadecimal digits"))
        .expect("the way to the other");
    let limit = Limit::new();
    while !end.is_up(peer) {
        end.poll();
        limit.check("the link is up");
    }
    match role.as_str() {
        "echo" => loop {
            end.poll();
            match end.seen(peer).frames.pop_front() {
                Some(head) => {
                    let frame = Frame { head, body: None, token: None };
                    assert_eq!(end.rail.post(peer, &frame), Post::Done);
                }
                None if end.seen(peer).down.is_some() => return,
                None => sleep(&mut *end.rail, 0),
            }
        },
        "flood" => {
            for number in 0.. {
                let mut load = Load::new(FLOOD, number, flood_len(number));
                while let Err(back) = end.post(peer, load) {
                    load = back;
                    end.poll();
                    limit.check("to be killed");
                }
            }
        }
        "deaf" => thread::sleep(Duration::from_secs(60)),
        other => panic!("no role {other}"),
    }
}

/// Returns this process's end of an open link, and the process at the other.
fn with(rail: &str, role: &str) -> (End, Other) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--ignored", "--exact", "the_other_process", "--nocapture"])
        .env(RAIL, rail)
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut input = child.stdin.take().expect("a pipe");
    let other = Other(child);
    let address = loop {
        let line = lines.next().expect("an address").expect("text");
        // The test harness has begun the line.
        if let Some((_, address)) = line.split_once(ADDRESS) {
            break hex::decode(address).expect("hexadecimal digits");
        }
    };
    let mut end = open(rail, 0);
    let own = hex::encode(end.rail.address());
    writeln!(input, "{own}").expect("the other process listens");
    end.rail.connect(PEER, &address).expect("the way to the other");
    let limit = Limit::new();
    while !end.is_up(PEER) {
        end.poll();
        limit.check("the link is up");
    }
    (end, other)
}

fn open(rail: &str, rank: u32) -> End {
    let rail: Box<dyn Rail> = match rail {
        "shm" => crate::shm_rail(rank),
        "tcp" => crate::tcp_rail(rank),
        "private" => crate::private_rail(rank),
        "network" => crate::network_rail(rank),
        "quic" => crate::quic_rail(rank),
        "ofi" => crate::ofi_rail("tcp;ofi_rxm", rank),
        "ofi_sockets" => crate::ofi_rail("sockets", rank),
        other => panic!("no rail {other} between processes"),
    };
    End::new(rank, rail)
}

fn next(end: &mut End, round: u32) -> Vec<u8> {
    let limit = Limit::new();
    loop {
        if let Some(bytes) = end.seen(PEER).frames.pop_front() {
            return bytes;
        }
        if !end.poll() {
            sleep(&mut *end.rail, round);
        }
        assert_eq!(end.seen(PEER).down, None);
        limit.check("the next frame");
    }
}

/// The way a process waits for events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Asleep,
    /// Polls now and then, as a loop of `MPI_Test` does.
    Polling,
}

/// Waits until the peer is down, delivering the last frames.
fn down(end: &mut End, waiting: Waiting, mut arrived: impl FnMut(&[u8])) -> Fault {
    let limit = Limit::new();
    loop {
        end.poll();
        while let Some(bytes) = end.seen(PEER).frames.pop_front() {
            arrived(&bytes);
        }
        if let Some(fault) = &end.seen(PEER).down {
            return fault.clone();
        }
        if waiting == Waiting::Asleep {
            end.rail.prepare_sleep();
        }
        thread::sleep(Duration::from_millis(1));
        if waiting == Waiting::Asleep {
            end.rail.finish_sleep();
        }
        limit.check("the peer is down");
    }
}

/// Checks that a link ended by the death of its peer. A provider of libfabric may say nothing of a death; the peer is
/// silent then.
fn check_loss(rail: &str, fault: &Fault) {
    let may_be_silent = rail.starts_with("ofi");
    let is_right = match fault {
        Fault::Lost(_) => true,
        Fault::Silent(..) => may_be_silent,
        Fault::Closed | Fault::Unreachable(_) | Fault::Misbehaved(_) => false,
    };
    assert!(is_right, "{fault:?}");
}

/// The other process, killed at the end of the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // Fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn flood_len(number: u64) -> usize {
    (number as usize * 1237) % 30_000
}

const PEER: PeerId = PeerId(1);
const ECHOES: u64 = 3000;
const FLOOD: u64 = 5;
const RAIL: &str = "CONFORMANCE_RAIL";
const ROLE: &str = "CONFORMANCE_ROLE";
const ADDRESS: &str = "address: ";
