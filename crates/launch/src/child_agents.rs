//! The agents below an agent: what they say is passed on upwards, and their end is told.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::agent::{Out, Sent, bit, tell};
use crate::channel::{Branch, Kind, Lost, Message, Start};
use crate::node::{Node, Report};
use crate::system;

/// The agents that were started below this one.
#[derive(Default)]
pub(crate) struct Below {
    channels: Vec<Sender<Message>>,
    /// Which of the channels leads to a rank.
    ways: HashMap<u32, usize>,
    /// Each ends when its agent has.
    tended: Vec<Receiver<()>>,
}

impl Below {
    /// Starts the agents of a start's branches.
    pub fn start(&mut self, start: &Start, sent: &Sent, out: &Out) {
        for branch in &start.branches {
            if let Err(text) = self.start_one(branch, start.patience_s, sent, out) {
                report_lost(out, branch.start.all_ranks(), text);
            }
        }
    }

    fn start_one(
        &mut self,
        branch: &Branch,
        patience_s: u64,
        sent: &Sent,
        out: &Out,
    ) -> Result<(), String> {
        let (reports, heard) = mpsc::sync_channel(REPORTS_MAX);
        let node = Node::start(branch, move |report| reports.send(report).is_ok())?;
        let (channel, ranks) = (node.channel(), node.ranks.clone());
        let (done, ended) = mpsc::channel();
        let (sent, out) = (sent.clone(), out.clone());
        system::start_thread(move || {
            tend(node, &heard, patience_s, &sent, &out);
            // Who does not wait for it any more has ended.
            let _ = done.send(());
        })
        .map_err(|error| format!("a thread for host {}: {error}", branch.host))?;
        self.ways.extend(ranks.into_iter().map(|rank| (rank, self.channels.len())));
        self.channels.push(channel);
        self.tended.push(ended);
        Ok(())
    }

    /// Passes on a message for a rank that is not of this agent's own.
    pub fn send(&self, message: Message) {
        if let Some(&way) = self.ways.get(&message.rank) {
            // An agent that has gone was reported.
            let _ = self.channels[way].send(message);
        }
    }

    /// Passes on a message for all ranks.
    pub fn send_to_all(&self, message: &Message) {
        for channel in &self.channels {
            let _ = channel.send(message.clone());
        }
    }

    /// Closes the channels, upon which the agents end all that they have started, and waits for that.
    pub fn close(self) {
        drop(self.channels);
        let end = Instant::now() + FAREWELL;
        for ended in self.tended {
            let _ = ended.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}

/// Passes on what an agent says until it has ended, and tells if it is lost.
fn tend(mut node: Node, heard: &Receiver<Report>, patience_s: u64, sent: &Sent, out: &Out) {
    // The other end of the channel is the agent's that owns all of them: its end closes them.
    node.hang_up();
    let deadline = Instant::now() + Duration::from_secs(patience_s);
    let lost = loop {
        let report = match heard.recv_timeout(TICK) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => {
                let is_killed = sent.load(Ordering::Relaxed) & bit(libc::SIGKILL) != 0;
                if !node.is_greeted() && (is_killed || Instant::now() > deadline) {
                    break node.silence(patience_s);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => Report::Closed,
        };
        match report {
            Report::Message(message) if message.kind == Kind::Hello => {
                if let Err(text) = node.greet(&message.body) {
                    break text;
                }
            }
            Report::Message(message) => tell(out, &message),
            Report::Closed => break node.obituary(),
            Report::Strange(said) => break node.stranger(&said),
        }
    };
    // Where its ranks have ended nobody misses it.
    report_lost(out, node.ranks.clone(), lost);
    node.close();
}

fn report_lost(out: &Out, ranks: Vec<u32>, text: String) {
    let body = serde_json::to_vec(&Lost { ranks, text }).unwrap_or_default();
    tell(out, &Message::new(Kind::Lost, 0, body));
}

/// Reports of one agent that wait; it waits with more.
const REPORTS_MAX: usize = 16;
/// How often time is looked at while an agent is silent.
const TICK: Duration = Duration::from_millis(100);
/// How long agents below may take to end what they have started.
const FAREWELL: Duration = Duration::from_secs(2);
