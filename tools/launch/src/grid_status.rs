//! State of the hosts of a grid: an agent on each reports what it has, or a line says why there is none.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::channel::{Lost, Message, MessageKind};
use crate::grid::{Gateway, Grid, Site};
use crate::host_status::HostState;
use crate::launch_context::LaunchContext;
use crate::node::{Node, Report};
use crate::options::Options;
use crate::tree;

/// A host of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct GridHost {
    /// Its name.
    pub name: String,
    /// Name of its site.
    pub site: String,
    /// Addresses of the gateways that it is to run, for ranks of the site and for others.
    pub gateways: Vec<String>,
    /// Its state, or why it does not answer, in one line.
    pub state: Result<HostState, String>,
}

/// Asks all hosts of a grid at the same time. Returns them in the order of the grid, after this time at the latest.
///
/// # Errors
/// Fails if nobody can be asked, because this installation is incomplete.
pub fn grid_status(grid: &Grid, patience_s: u64) -> Result<Vec<GridHost>, String> {
    let mut options = Options::default();
    options.take_grid(grid.clone());
    let here = LaunchContext::new(&options, patience_s)?;
    let (sender, reports) = mpsc::sync_channel(REPORTS_MAX);
    let mut answers = Answers::default();
    let mut nodes: Vec<Node> = Vec::new();
    for branch in &tree::status(&options, &here) {
        let (sender, index) = (sender.clone(), nodes.len());
        // The receiver may have given up.
        let report = move |report| sender.send((index, report)).is_ok();
        match Node::start(branch, None, report) {
            Ok(node) => nodes.push(node),
            Err(text) => answers.lose(&branch.start.all_ranks(), &text),
        }
    }
    drop(sender);
    let hosts = hosts(grid);
    // Agents report silent hosts that they have started themselves a little later.
    let deadline = Instant::now() + Duration::from_secs(patience_s) + GRACE;
    while answers.0.len() < hosts.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((index, report)) = reports.recv_timeout(left) else { break };
        answers.handle(&mut nodes[index], report);
    }
    for node in &nodes {
        let text = match node.has_answered() {
            true => format!("no answer within {patience_s} s (--timeout)"),
            false => node.silence_text(patience_s),
        };
        answers.lose(&node.ranks(), &text);
    }
    nodes.iter_mut().for_each(Node::hang_up);
    nodes.iter_mut().for_each(Node::close);
    let with_state = |(number, host): (u32, GridHost)| GridHost {
        state: answers.0.remove(&number).unwrap_or(host.state),
        ..host
    };
    Ok((0..).zip(hosts).map(with_state).collect())
}

/// Answers of the hosts with these numbers, or why there are none.
#[derive(Default)]
struct Answers(HashMap<u32, Result<HostState, String>>);

impl Answers {
    fn handle(&mut self, node: &mut Node, report: Report) {
        match report {
            Report::Message(message) => self.take(node, message),
            Report::Closed => self.lose(&node.ranks(), &node.loss_text()),
            Report::Foreign(said) => self.lose(&node.ranks(), &node.stranger_text(&said)),
        }
    }

    fn take(&mut self, node: &mut Node, message: Message) {
        match message.kind {
            MessageKind::Hello => {
                if let Err(text) = node.handle_hello(&message.body) {
                    self.lose(&node.ranks(), &text);
                }
            }
            MessageKind::HostState => {
                if let Ok(state) = serde_json::from_slice(&message.body) {
                    // An agent of another version was refused before.
                    self.0.entry(message.rank).or_insert(Ok(state));
                }
            }
            MessageKind::Lost => {
                if let Ok(Lost { ranks, text }) = serde_json::from_slice(&message.body) {
                    self.lose(&ranks, &text);
                }
            }
            // No agent without ranks sends others.
            _ => {}
        }
    }

    /// Notes why hosts have not answered, if they have not. The first of them leads to the others.
    fn lose(&mut self, numbers: &[u32], text: &str) {
        let Some((first, others)) = numbers.split_first() else { return };
        let has_first = self.0.entry(*first).or_insert_with(|| Err(text.to_owned())).is_ok();
        let reason = match has_first {
            true => text.to_owned(),
            false => format!("it is reached through the first host of its site: {text}"),
        };
        for number in others {
            self.0.entry(*number).or_insert_with(|| Err(reason.clone()));
        }
    }
}

/// Returns the hosts of a grid in its order, before they are asked.
fn hosts(grid: &Grid) -> Vec<GridHost> {
    let text = |gateway: &Gateway| match &gateway.outside {
        Some(outside) if *outside != gateway.inside => {
            format!("{} for others {outside}", gateway.inside)
        }
        Some(_) | None => gateway.inside.to_string(),
    };
    let of_host = |site: &Site, host: &str| {
        let own = site.gateways.iter().filter(|gateway| gateway.host == host);
        GridHost {
            name: host.to_owned(),
            site: site.name.clone(),
            gateways: own.map(text).collect(),
            state: Err("it has not been asked".into()),
        }
    };
    let known = |site: &Site| -> Vec<GridHost> {
        site.known_hosts().into_iter().map(|host| of_host(site, host)).collect()
    };
    grid.sites.iter().flat_map(known).collect()
}

/// Time for reports about silent hosts to come.
const GRACE: Duration = Duration::from_millis(500);
/// Maximum number of waiting reports.
const REPORTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_behind_a_lost_one_are_lost_with_it() {
        let mut answers = Answers(HashMap::from([(1, Ok(HostState::default()))]));
        answers.lose(&[0, 1, 2], "gone");
        assert_eq!(answers.0[&0], Err("gone".into()));
        assert_eq!(answers.0[&1], Ok(HostState::default()), "it has answered before");
        let reason = "it is reached through the first host of its site: gone";
        assert_eq!(answers.0[&2], Err(reason.into()));
        let mut answers = Answers(HashMap::from([(0, Ok(HostState::default()))]));
        answers.lose(&[0, 1], "silent");
        assert_eq!(answers.0[&1], Err("silent".into()));
    }

    #[test]
    fn hosts_are_in_the_order_of_the_file_with_their_gateways() {
        let grid = Grid::parse(
            "[[site]]\nname = \"n\"\nhosts = [\"a\", \"b\"]\nnetworks = [\"l\"]\n\
             [[site.gateway]]\nhost = \"b\"\ninside = \"10.1.0.2:7\"\noutside = \"192.0.2.2:7\"\n\
             [[site]]\nname = \"s\"\nhosts = [\"c:0\", \"d\"]\n\
             [[site]]\nname = \"t\"\nslurm = \"-N 2\"\nlogin = \"e\"\n\
             [[network]]\nname = \"l\"\nsubnets = [\"10.1.0.0/16\"]\n",
            "g",
        );
        let hosts = hosts(&grid.unwrap());
        let names: Vec<_> =
            hosts.iter().map(|host| format!("{}.{}", host.name, host.site)).collect();
        assert_eq!(names, ["a.n", "b.n", "c.s", "d.s", "e.t"]);
        assert_eq!(hosts[1].gateways, ["10.1.0.2:7 for others 192.0.2.2:7"]);
        assert!(hosts[0].gateways.is_empty());
    }
}
