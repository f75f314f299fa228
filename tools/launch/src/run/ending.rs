//! End of a job: signals, time limits, and what is lost.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::signal::*;

use super::{Cause, Run, TICK, exit_code};
use crate::channel::{ALL_WORLDS, Message, MessageKind};
use crate::node::Node;
use crate::system;

impl Run {
    /// Ends the job; the first failure gives the exit code. If ranks only miss a peer, the peer's end has a
    /// moment to become known, because a rank's connections break before its parent learns of its end.
    pub(super) fn end(&mut self, code: u8, cause: Cause) {
        match cause {
            Cause::First => {
                if !std::mem::replace(&mut self.explained, true) {
                    self.code = code;
                }
                self.begin_to_end();
            }
            Cause::Consequence => {
                if !self.explained && self.missing.is_none() {
                    self.code = code;
                    self.missing = Some(Instant::now());
                }
            }
        }
    }

    pub(super) fn begin_to_end(&mut self) {
        if self.ending.is_none() {
            self.signal_end(SIGTERM);
            if let Some(singleton) = &self.singleton {
                singleton.signal(Signal::TERM);
            }
        }
    }

    /// Sends a signal that is to end the job. Ranks that do not end in time are killed.
    fn signal_end(&mut self, signal: i32) {
        self.ending = Some(Instant::now());
        self.signal_all(signal);
        // Stopped ranks take the signal once they continue.
        self.signal_all(SIGCONT);
    }

    pub(super) fn signal_all(&self, signal: i32) {
        self.send_to_all(&Message::new(MessageKind::Signal, ALL_WORLDS, [signal as u8]));
    }

    pub(super) fn send_to_all(&self, message: &Message) {
        self.nodes.iter().for_each(|node| node.send(message.clone()));
    }

    pub(super) fn pass_signal(&mut self, signal: i32) {
        match signal {
            SIGUSR1 => {
                self.print_report();
                self.send_to_all(&Message::new(MessageKind::SignalTaken, 0, [signal as u8]));
            }
            SIGUSR2 | SIGCONT | SIGWINCH => self.signal_all(signal),
            SIGTSTP => {
                self.signal_all(signal);
                // Lets the writers send the signal before this process stops.
                thread::sleep(TICK);
                system::stop();
            }
            _ if self.ending.is_some() => {
                self.tell_unexplained();
                self.kill();
            }
            _ => {
                self.signal_end(signal);
                self.code = exit_code(128 + signal);
                self.explained = true;
            }
        }
    }

    /// Checks time limits: an ending job is killed, and silent agents are given up.
    pub(super) fn check_time_limits(&mut self, now: Instant) {
        if self.missing.is_some_and(|since| now - since > MISSING_GRACE) {
            self.begin_to_end();
        }
        if let Some(since) = self.ending
            && (now - since > GRACE || !self.has_running())
            && self.killed.is_none()
        {
            self.kill();
        }
        self.end_report();
        if self.deadline.is_some_and(|deadline| now > deadline) && self.ending.is_none() {
            self.deadline = None;
            self.report_and_end();
        }
        let patience = Duration::from_secs(self.connect_timeout_s);
        if self.ending.is_none()
            && let Some((ranks, text)) = self.silent(patience)
        {
            self.give_up(&ranks, &text);
        }
        if let Some(since) = self.killed {
            // Ranks of a silent node were never started.
            let silent = self.nodes.iter().filter(|node| !node.has_answered());
            let ranks: Vec<u32> = silent.flat_map(Node::ranks).collect();
            self.count_as_ended(&ranks);
            if now - since > END_TIMEOUT && self.left > 0 {
                self.give_up_unreported();
            }
        }
    }

    /// Returns what has not answered in time, an agent with its ranks, or a gateway.
    fn silent(&self, patience: Duration) -> Option<(Vec<u32>, String)> {
        let seconds = self.connect_timeout_s;
        let is_awaited = |node: &Node| node.ranks().is_empty() || self.has_any(&node.ranks());
        let mut nodes = self.nodes.iter();
        let silent = nodes.find(|node| node.is_silent(patience) && is_awaited(node));
        silent.map(|node| (node.ranks(), node.silence_text(seconds))).or_else(|| {
            let (name, first) = self.missing_gateway()?;
            let (world, _) = self.world_of(first);
            let is_late = self.worlds[world].since.elapsed() > patience;
            let text = format!("{name} does not serve within {seconds} s");
            is_late.then(|| (Vec::new(), text))
        })
    }

    fn kill(&mut self) {
        self.killed.get_or_insert_with(Instant::now);
        self.signal_all(SIGKILL);
        if let Some(singleton) = &self.singleton {
            singleton.signal(Signal::KILL);
        }
    }

    /// Gives up agents that do not report their ranks' end. They may be unreachable; their ranks end with the
    /// channels.
    fn give_up_unreported(&mut self) {
        let left: Vec<u32> =
            (0u32..).zip(&self.ended).filter(|(_, ended)| !**ended).map(|(rank, _)| rank).collect();
        let mut hosts: Vec<&str> = left.iter().map(|&rank| &*self.hosts[rank as usize]).collect();
        hosts.dedup();
        let hosts = hosts.join(", ");
        tell!("mpiexec: nothing is heard of the end of {} ranks on {hosts}", left.len());
        self.expect_no_events(&left);
        self.count_as_ended(&left);
    }

    /// Handles the loss of an agent, with all its ranks.
    pub(super) fn handle_lost_agent(&mut self, node: usize) {
        let ranks = self.nodes[node].ranks();
        self.nodes[node].note_lost();
        if self.has_any(&ranks) || self.missing_gateway().is_some() {
            let text = self.nodes[node].loss_text();
            self.give_up(&ranks, &text);
        }
        self.expect_no_events(&ranks);
    }

    /// True if ranks of an agent that has answered may run. Those of others were never started.
    fn has_running(&self) -> bool {
        self.nodes.iter().any(|node| node.has_answered() && self.has_any(&node.ranks()))
    }

    fn has_any(&self, ranks: &[u32]) -> bool {
        ranks.iter().any(|&rank| self.ended.get(rank as usize) == Some(&false))
    }

    /// Ends the job because these ranks are lost, unless all have ended. While gateways are awaited, the loss
    /// of any agent or gateway ends the job.
    pub(super) fn give_up(&mut self, ranks: &[u32], text: &str) {
        self.expect_no_events(ranks);
        let gateway = self.missing_gateway().map(|(_, first)| first);
        if !self.has_any(ranks) && gateway.is_none() {
            return;
        }
        match gateway.filter(|_| ranks.is_empty()) {
            Some(first) => self.fail_spawns_of(&[first], text),
            None => self.fail_spawns_of(ranks, text),
        }
        if !self.has_any(ranks) && self.missing_gateway().is_none() {
            return;
        }
        if !self.explained {
            self.explain(ranks, text.to_owned());
        }
        self.count_as_ended(ranks);
        self.end(1, Cause::First);
    }

    /// Counts ranks as ended that cannot report their end.
    pub(super) fn count_as_ended(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if self.ended.get(rank as usize) == Some(&false) {
                self.ended[rank as usize] = true;
                self.left -= 1;
                self.note_ended(rank);
            }
        }
    }
}

/// Time that ranks have to end themselves before they are killed: enough to save a small state.
const GRACE: Duration = Duration::from_secs(3);
/// Time within which the end of killed ranks must be reported.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which the end of a missed rank must become known.
const MISSING_GRACE: Duration = Duration::from_millis(250);
