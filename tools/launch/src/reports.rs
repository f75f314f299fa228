//! Reports of ranks, as their agents collect them.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use boot::{RankReport, ReportRequest};
use serde::{Deserialize, Serialize};

use crate::channel::{Message, MessageKind};
use crate::system;

/// State of a rank, as its agent has learnt it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankState {
    /// Number of the request.
    pub number: u64,
    /// Process of the rank on its host.
    pub process: u32,
    /// The rank's answer; none if it is not in MPI, or did not answer in time.
    pub answer: Option<String>,
    /// True if the process is stopped, as by a debugger or Ctrl-Z.
    pub is_stopped: bool,
}

/// Passes the socket on which a rank answers to its process.
pub(crate) fn pass(command: &mut Command, socket: &UnixStream) {
    let fd = socket.as_raw_fd();
    if let Some(inode) = boot::socket_inode(fd) {
        command.env(boot::REPORT_VARIABLE, format!("{fd}:{inode}"));
    }
    system::inherit(command, fd);
}

/// Asks ranks at the same time, and sends what they answer.
pub(crate) fn collect(
    ranks: Vec<(u32, u32, Arc<UnixStream>)>,
    request: ReportRequest,
    send: impl Fn(&Message) + Clone + Send + 'static,
) {
    let number = request.number;
    for (rank, process, socket) in ranks {
        let theirs = send.clone();
        let started = system::start_thread(move || {
            let answer = boot::ask_rank(&socket, request, PATIENCE);
            let answer = answer.map(|report: RankReport| report.text(number));
            let state = RankState { number, process, answer, is_stopped: is_stopped(process) };
            theirs(&message(rank, &state));
        });
        if started.is_err() {
            send(&message(rank, &RankState { number, process, ..RankState::default() }));
        }
    }
}

fn message(rank: u32, state: &RankState) -> Message {
    Message::new(MessageKind::Report, rank, serde_json::to_vec(state).unwrap_or_default())
}

fn is_stopped(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| matches!(state.trim().chars().next(), Some('T' | 't')))
}

/// Time in which a rank must answer. Its threads have a quarter of a second each time to say what they wait for.
const PATIENCE: Duration = Duration::from_millis(1500);
