//! Links between gateways that are begun by the thousand over UDP and go no further: those of the job are
//! served, and what the daemon keeps of the others is bounded, by what the kernel says of its process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::{Daemon, SECRET, echo, exchange, open, request};
use crate::initials::{AT_ONCE, Strangers};
use driver::Identity;
use gateway::Between;

#[test]
fn the_half_open_over_udp_take_little_and_keep_nobody_out() {
    let (gateway, host) = (Process::start(), echo());
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

/// A gateway in a process of its own.
struct Process {
    address: SocketAddr,
    child: Child,
}

impl Process {
    fn start() -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--allow", "127.0.0.0/8"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_canele-gateway"))
            .args(listen)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pass = format!("{:016x} {}\n", 1, format!("{SECRET:02x}").repeat(32));
        child.stdin.as_mut().unwrap().write_all(pass.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { address: line.trim().parse().unwrap(), child }
    }

    /// The most memory that it has had.
    fn peak_kb(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// Ends it; its account.
    fn end(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        let mut account = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut account).unwrap();
        account
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of either kind.
const STRANGERS: usize = 3000;
/// Whom a gateway keeps until they have said who they are.
const KEPT: usize = 128;
const TAKEN_MAX_KB: usize = 24 << 10;
