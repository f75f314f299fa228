//! Child agents of an agent: their messages are forwarded to the parent, and their end is reported.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use boot::Secret;
use signal_hook::consts::SIGKILL;

use crate::agent::{Out, Sent, send};
use crate::channel::{Branch, Lost, Message, MessageKind, Start};
use crate::node::{Node, NodeChannel, Report};
use crate::signals::bit;
use crate::system;

/// Agents that this agent has started.
#[derive(Default)]
pub(crate) struct ChildAgents {
    channels: Vec<NodeChannel>,
    /// Index of the channel that leads to a rank.
    channel_of_rank: HashMap<u32, usize>,
    /// Receivers that disconnect when their agent has ended.
    ended: Vec<Receiver<()>>,
}

impl ChildAgents {
    /// Starts the branches: by an agent that runs on the host, or else by a new one.
    pub fn start(&mut self, start: &Start, secret: Option<&Secret>, sent: &Sent, out: &Out) {
        for branch in &start.branches {
            let runs = |at: usize| self.ended[at].try_recv() == Err(TryRecvError::Empty);
            let mut known = (0..self.channels.len()).filter(|at| runs(*at));
            let known = known.find(|at| self.channels[*at].host == branch.host);
            let started = match known {
                Some(known) => self.channels[known].start(&branch.start, secret).map(|()| known),
                None => self.start_one((branch, secret), start.patience_s, sent, out),
            };
            let ranks = branch.start.all_ranks();
            match started {
                Ok(at) => self.channel_of_rank.extend(ranks.into_iter().map(|rank| (rank, at))),
                Err(text) => report_lost(out, ranks, text),
            }
        }
    }

    fn start_one(
        &mut self,
        (branch, secret): (&Branch, Option<&Secret>),
        patience_s: u64,
        sent: &Sent,
        out: &Out,
    ) -> Result<usize, String> {
        let (reports, received) = mpsc::sync_channel(REPORTS_MAX);
        let node = Node::start(branch, secret, move |report| reports.send(report).is_ok())?;
        let channel = node.channel().clone();
        let (done, ended) = mpsc::channel();
        let (sent, out) = (sent.clone(), out.clone());
        system::start_thread(move || {
            forward_reports(node, &received, patience_s, &sent, &out);
            // The receiver may be gone.
            let _ = done.send(());
        })
        .map_err(|error| format!("a thread for host {}: {error}", branch.host))?;
        self.channels.push(channel);
        self.ended.push(ended);
        Ok(self.channels.len() - 1)
    }

    /// True if a child agent leads to the rank.
    pub fn has(&self, rank: u32) -> bool {
        self.channel_of_rank.contains_key(&rank)
    }

    /// Forwards a message for a rank of a child agent.
    pub fn send(&self, message: Message) {
        if let Some(&channel) = self.channel_of_rank.get(&message.rank) {
            self.channels[channel].send(message);
        }
    }

    /// Forwards a message to all child agents.
    pub fn send_to_all(&self, message: &Message) {
        self.channels.iter().for_each(|channel| channel.send(message.clone()));
    }

    /// Closes the channels and waits until the agents have ended everything that they started.
    pub fn close(self) {
        drop(self.channels);
        let end = Instant::now() + END_TIMEOUT;
        for ended in self.ended {
            let _ = ended.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}

/// Forwards an agent's messages until it has ended, and reports it if it is lost.
fn forward_reports(
    mut node: Node,
    received: &Receiver<Report>,
    patience_s: u64,
    sent: &Sent,
    out: &Out,
) {
    // The sender belongs to the owner of all agents, whose end closes the channels.
    node.hang_up();
    let deadline = Instant::now() + Duration::from_secs(patience_s);
    let lost = loop {
        let report = match received.recv_timeout(TICK) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => {
                let is_killed = sent.load(Ordering::Relaxed) & bit(SIGKILL) != 0;
                if !node.has_answered() && (is_killed || Instant::now() > deadline) {
                    break node.silence_text(patience_s);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => Report::Closed,
        };
        match report {
            Report::Message(message) if message.kind == MessageKind::Hello => {
                if let Err(text) = node.handle_hello(&message.body) {
                    break text;
                }
            }
            Report::Message(message) => send(out, &message),
            Report::Closed => break node.loss_text(),
            Report::Foreign(said) => break node.stranger_text(&said),
        }
    };
    // Nobody misses it if its ranks have ended.
    report_lost(out, node.ranks(), lost);
    node.close();
}

fn report_lost(out: &Out, ranks: Vec<u32>, text: String) {
    let body = serde_json::to_vec(&Lost { ranks, text }).unwrap_or_default();
    send(out, &Message::new(MessageKind::Lost, 0, body));
}

/// Maximum number of waiting reports of one agent; it blocks beyond it.
const REPORTS_MAX: usize = 16;
/// Interval of the checks while an agent is silent.
const TICK: Duration = Duration::from_millis(100);
/// Time in which child agents must end everything that they started.
const END_TIMEOUT: Duration = Duration::from_secs(2);
