//! End of a job: signals, time limits, and what is lost.

use std::collections::BTreeSet;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::signal::*;

use super::{Cause, Run, TICK, exit_code};
use crate::channel::{ALL_WORLDS, Message, MessageKind};
use crate::node::Node;
use crate::rank_map::joined;
use crate::system;
use crate::world::{World, WorldEnd};

impl Run {
    /// Ends a world and those that are connected with it; the first failure of the job gives its exit code. If ranks
    /// only miss a peer, the peer's end has a moment to become known, because a rank's connections break before its
    /// parent learns of its end.
    pub(super) fn end(&mut self, world: usize, code: u8, cause: Cause) {
        match cause {
            Cause::First => {
                let group = self.connections.of_world(world, &self.worlds);
                self.explain_end(&group, code);
                self.begin_to_end(&group);
            }
            Cause::Consequence => {
                let end = &mut self.worlds[world].end;
                if !end.explained && end.missing.is_none() {
                    end.missing = Some(Instant::now());
                    if self.code == 0 {
                        self.code = code;
                    }
                }
            }
        }
    }

    /// Ends all worlds.
    pub(super) fn end_all(&mut self, code: u8) {
        let all: Vec<usize> = (0..self.worlds.len()).collect();
        self.explain_end(&all, code);
        self.begin_to_end(&all);
    }

    fn explain_end(&mut self, group: &[usize], code: u8) {
        let mut was_explained = false;
        for world in group {
            was_explained |= mem::replace(&mut self.worlds[*world].end.explained, true);
        }
        if !was_explained && !mem::replace(&mut self.is_explained, true) {
            self.code = code;
        }
    }

    fn begin_to_end(&mut self, group: &[usize]) {
        let is_new = |world: &usize| !self.worlds[*world].is_ending();
        let new: Vec<usize> = group.iter().copied().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        self.signal_end(&new, SIGTERM);
        if let Some(singleton) = self.singleton.as_ref().filter(|_| new[0] == 0) {
            singleton.signal(Signal::TERM);
        }
    }

    /// True if all worlds in which ranks are left are being ended.
    pub(super) fn is_ending(&self) -> bool {
        self.worlds.iter().all(|world| world.left == 0 || world.is_ending())
    }

    /// Returns what a message of a failure in a world says of the end of others.
    pub(super) fn ending_text(&self, world: usize) -> String {
        let group = self.connections.of_world(world, &self.worlds);
        let mut numbered = self.worlds.iter().enumerate();
        let is_left = |(at, one): (usize, &World)| !group.contains(&at) && one.left > 0;
        if numbered.any(is_left) {
            let is_running = |at: &usize| *at == world || self.worlds[*at].left > 0;
            let ends: Vec<usize> = group.iter().copied().filter(is_running).collect();
            let word = if ends.len() == 1 { "world" } else { "worlds" };
            let ends = joined(&ends);
            return format!("; ending {word} {ends}; the others are disconnected and go on");
        }
        String::from(if self.left > 0 { "; ending the job" } else { "" })
    }

    /// Sends worlds a signal that is to end them. Ranks that do not end in time are killed.
    fn signal_end(&mut self, group: &[usize], signal: i32) {
        for world in group {
            self.worlds[*world].end.ending.get_or_insert_with(Instant::now);
        }
        self.signal_worlds(group, signal);
        // Stopped ranks take the signal once they continue.
        self.signal_worlds(group, SIGCONT);
    }

    fn signal_worlds(&self, group: &[usize], signal: i32) {
        let mut numbered = self.worlds.iter().enumerate();
        if numbered.all(|(at, world)| world.left == 0 || group.contains(&at)) {
            return self.signal_all(signal);
        }
        for world in group {
            let first = self.worlds[*world].first;
            self.send_to_all(&Message::new(MessageKind::Signal, first, [signal as u8]));
        }
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
            _ if self.is_ending() => {
                self.tell_unexplained();
                (0..self.worlds.len()).for_each(|world| self.kill(world));
            }
            _ => {
                let all: Vec<usize> = (0..self.worlds.len()).collect();
                self.explain_end(&all, 0);
                self.signal_end(&all, signal);
                (self.code, self.is_explained) = (exit_code(128 + signal), true);
            }
        }
    }

    /// Checks time limits: an ending world is killed, and silent agents are given up.
    pub(super) fn check_time_limits(&mut self, now: Instant) {
        for world in 0..self.worlds.len() {
            self.check_end(world, now);
        }
        self.end_report();
        if self.deadline.is_some_and(|deadline| now > deadline) && !self.is_ending() {
            self.deadline = None;
            self.report_and_end();
        }
        let patience = Duration::from_secs(self.connect_timeout_s);
        if let Some((ranks, text)) = self.silent(patience) {
            self.give_up(&ranks, &text);
        }
    }

    fn check_end(&mut self, world: usize, now: Instant) {
        let WorldEnd { missing, ending, killed, .. } = self.worlds[world].end;
        if missing.is_some_and(|since| now - since > MISSING_GRACE) && ending.is_none() {
            let group = self.connections.of_world(world, &self.worlds);
            self.begin_to_end(&group);
        }
        if ending.is_some_and(|since| now - since > GRACE || !self.has_running(world))
            && killed.is_none()
        {
            self.kill(world);
        }
        if let Some(since) = killed {
            // Ranks of a silent node were never started.
            let silent = self.nodes.iter().filter(|node| !node.has_answered());
            let ranks: Vec<u32> = silent.flat_map(Node::ranks).collect();
            self.count_as_ended(&self.ranks_of(world, &ranks));
            if now - since > END_TIMEOUT && self.worlds[world].left > 0 {
                self.give_up_unreported(world);
            }
        }
    }

    /// Returns those of some ranks that are of a world.
    fn ranks_of(&self, world: usize, ranks: &[u32]) -> Vec<u32> {
        let is_of_it = |rank: &u32| self.world_of(*rank).0 == world;
        ranks.iter().copied().filter(is_of_it).collect()
    }

    /// Returns what has not answered in time, an agent with its ranks, or a gateway.
    fn silent(&self, patience: Duration) -> Option<(Vec<u32>, String)> {
        let seconds = self.connect_timeout_s;
        if self.is_ending() {
            return None;
        }
        let is_going_on = |rank: &u32| !self.worlds[self.world_of(*rank).0].is_ending();
        let is_awaited = |node: &Node| {
            let ranks: Vec<u32> = node.ranks().into_iter().filter(is_going_on).collect();
            node.ranks().is_empty() || self.has_any(&ranks)
        };
        let mut nodes = self.nodes.iter();
        let silent = nodes.find(|node| node.is_silent(patience) && is_awaited(node));
        silent.map(|node| (node.ranks(), node.silence_text(seconds))).or_else(|| {
            let (name, first) = self.missing_gateway()?;
            let (world, _) = self.world_of(first);
            let world = &self.worlds[world];
            let is_late = world.since.elapsed() > patience && !world.is_ending();
            let text = format!("{name} does not serve within {seconds} s");
            is_late.then(|| (Vec::new(), text))
        })
    }

    fn kill(&mut self, world: usize) {
        self.worlds[world].end.killed.get_or_insert_with(Instant::now);
        self.signal_worlds(&[world], SIGKILL);
        if let Some(singleton) = self.singleton.as_ref().filter(|_| world == 0) {
            singleton.signal(Signal::KILL);
        }
    }

    /// Gives up agents that do not report their ranks' end. They may be unreachable; their ranks end with the
    /// channels.
    fn give_up_unreported(&mut self, world: usize) {
        let all = (0u32..).zip(&self.ended);
        let left: Vec<u32> = all.filter(|(_, ended)| !**ended).map(|(rank, _)| rank).collect();
        let left = self.ranks_of(world, &left);
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
    fn has_running(&self, world: usize) -> bool {
        let mut answered = self.nodes.iter().filter(|node| node.has_answered());
        answered.any(|node| self.has_any(&self.ranks_of(world, &node.ranks())))
    }

    fn has_any(&self, ranks: &[u32]) -> bool {
        ranks.iter().any(|&rank| self.ended.get(rank as usize) == Some(&false))
    }

    /// Ends the worlds of these ranks, which are lost, unless all have ended. While gateways are awaited, the loss
    /// of any agent or gateway ends their world.
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
        let is_left = |rank: &&u32| self.has_any(&[**rank]);
        let lost = ranks.iter().filter(is_left).map(|rank| self.world_of(*rank).0);
        let missing = self.missing_gateway().map(|(_, first)| self.world_of(first).0);
        let worlds: BTreeSet<usize> = lost.chain(missing).collect();
        if worlds.iter().any(|world| !self.worlds[*world].end.explained) {
            self.explain(ranks, text.to_owned());
        }
        self.count_as_ended(ranks);
        worlds.into_iter().for_each(|world| self.end(world, 1, Cause::First));
        ranks.iter().for_each(|rank| self.connections.forget(*rank));
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
