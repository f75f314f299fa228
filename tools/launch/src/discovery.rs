//! Discovery of a grid by measurement: hosts with short round trips between them form a site.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::channel::{Message, MessageKind};
use crate::grid::{Grid, Host, Site};
use crate::launch_context::{LaunchContext, random};
use crate::node::{Node, Report};
use crate::options::Options;
use crate::probe::Token;
use crate::tree;
use crate::usage::UsageError;

/// Result of a discovery.
#[derive(Debug)]
pub struct Discovery {
    /// Grid of the sites found, their hosts in the order given.
    pub grid: Grid,
    /// Hosts in the order given.
    hosts: Vec<String>,
    /// Round trip in microseconds for each pair of hosts, by their indices, the lower first; none if neither
    /// could connect.
    round_trips: Vec<(usize, usize, Option<u64>)>,
    /// Longest round trip within a site, in microseconds.
    pub near_us: u64,
}

/// Request to an agent to measure a round trip.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub addresses: Vec<SocketAddr>,
    pub token: Token,
}

impl Discovery {
    /// Starts agents on the hosts of this command line and measures between them. The options are those of
    /// `mpiexec -hosts`, `-hostfile`, `-launcher` and `-launcher-exec`, without a program.
    ///
    /// # Errors
    /// Fails if the command line is wrong or a host has no agent; one line says what to do.
    pub fn between(options: &Options) -> Result<Self, String> {
        let hosts: Vec<&str> = options.hosts.iter().map(|(host, _)| host.as_str()).collect();
        if !(2..=HOSTS_MAX).contains(&hosts.len()) {
            return Err(format!("{} hosts: name 2 to {HOSTS_MAX}", hosts.len()));
        }
        if let Some(at) = (1..hosts.len()).find(|&at| hosts[..at].contains(&hosts[at])) {
            return Err(format!("host {} is named twice", hosts[at]));
        }
        let mut agents = Agents::start(options)?;
        let round_trips = agents.measure();
        agents.close();
        let round_trips = round_trips?;
        let near_us = near_us(round_trips.iter().filter_map(|(.., time)| *time));
        let sites = group(hosts.len(), &round_trips, near_us);
        let mut grid = Grid::default();
        for ((name, slots), site) in options.hosts.iter().zip(sites) {
            if site == grid.sites.len() {
                let launch = options.launcher.clone();
                grid.sites.push(Site { name: format!("site{site}"), launch, ..Site::default() });
            }
            grid.sites[site].hosts.push(Host { name: name.clone(), slots: *slots });
        }
        let hosts = hosts.into_iter().map(str::to_owned).collect();
        Ok(Self { grid, hosts, round_trips, near_us })
    }
}

impl Discovery {
    /// Returns the round trips between the hosts of two sites of the grid, or within one.
    pub fn between_sites(&self, one: &Site, other: &Site) -> Vec<Option<u64>> {
        let is_of = |host: usize, site: &Site| {
            site.hosts.iter().any(|known| known.name == self.hosts[host])
        };
        let pairs = self.round_trips.iter().filter(|&&(here, there, _)| {
            is_of(here, one) && is_of(there, other) || is_of(here, other) && is_of(there, one)
        });
        pairs.map(|(.., time)| *time).collect()
    }
}

/// Agents started to measure.
struct Agents {
    nodes: Vec<Node>,
    reports: Receiver<(usize, Report)>,
    patience_s: u64,
}

impl Agents {
    fn start(options: &Options) -> Result<Self, String> {
        let patience_s = settings::CONNECT_TIMEOUT.number().map_err(|error| error.to_string())?;
        let here = LaunchContext::new(options, patience_s)?;
        let (sender, reports) = mpsc::sync_channel(REPORTS_MAX);
        let mut agents = Self { nodes: Vec::new(), reports, patience_s };
        for (index, branch) in tree::bare(options, &here).iter().enumerate() {
            let sender = sender.clone();
            // The receiver may have given up.
            let report = move |report| sender.send((index, report)).is_ok();
            match Node::start(branch, None, report) {
                Ok(node) => agents.nodes.push(node),
                Err(text) => {
                    agents.close();
                    return Err(text);
                }
            }
        }
        Ok(agents)
    }

    /// Returns the round trip of each pair of hosts.
    fn measure(&mut self) -> Result<Vec<(usize, usize, Option<u64>)>, String> {
        let count = self.nodes.len();
        self.await_all(MessageKind::Hello)?;
        let mut tokens = Vec::new();
        for node in &self.nodes {
            let token: Token = random()?;
            node.send(Message::new(MessageKind::Listen, 0, token));
            tokens.push(token);
        }
        let addresses = self.await_all(MessageKind::Listening)?;
        let mut probes = Vec::new();
        for (host, (addresses, token)) in addresses.iter().zip(tokens).enumerate() {
            let addresses = serde_json::from_slice::<Result<Vec<SocketAddr>, String>>(addresses);
            let addresses = addresses.unwrap_or_else(|error| Err(error.to_string()));
            let host = self.nodes[host].host();
            let addresses =
                addresses.map_err(|error| format!("listening on host {host}: {error}"))?;
            probes.push(Probe { addresses, token });
        }
        let mut found = Vec::new();
        for round in rounds(count) {
            let mut times = self.probe(&round, &probes)?;
            // A host that cannot be reached may be able to connect itself.
            let missed = (0..round.len()).filter(|&at| times[at].is_none()).collect::<Vec<_>>();
            let reversed: Vec<_> = missed.iter().map(|&at| (round[at].1, round[at].0)).collect();
            for (at, time) in missed.into_iter().zip(self.probe(&reversed, &probes)?) {
                times[at] = time;
            }
            let pairs = round.into_iter().zip(times);
            found.extend(pairs.map(|((one, other), time)| (one.min(other), one.max(other), time)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Measures pairs without a common host at the same time.
    fn probe(
        &mut self,
        pairs: &[(usize, usize)],
        probes: &[Probe],
    ) -> Result<Vec<Option<u64>>, String> {
        for &(from, to) in pairs {
            let body = serde_json::to_vec(&probes[to]).map_err(|error| error.to_string())?;
            self.nodes[from].send(Message::new(MessageKind::Probe, 0, body));
        }
        let from: Vec<usize> = pairs.iter().map(|(from, _)| *from).collect();
        let answers = self.await_from(&from, MessageKind::Probed)?;
        Ok(answers.iter().map(|body| serde_json::from_slice(body).unwrap_or(None)).collect())
    }

    fn await_all(&mut self, kind: MessageKind) -> Result<Vec<Vec<u8>>, String> {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.await_from(&all, kind)
    }

    /// Waits for a message of this kind from each of these agents and returns the bodies.
    fn await_from(&mut self, from: &[usize], kind: MessageKind) -> Result<Vec<Vec<u8>>, String> {
        let mut bodies: Vec<Option<Vec<u8>>> = vec![None; from.len()];
        let deadline = Instant::now() + Duration::from_secs(self.patience_s);
        while let Some(missing) = bodies.iter().position(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((index, report)) = self.reports.recv_timeout(left) else {
                return Err(self.nodes[from[missing]].silence_text(self.patience_s));
            };
            let node = &mut self.nodes[index];
            match report {
                Report::Message(message) => {
                    if message.kind == MessageKind::Hello {
                        node.handle_hello(&message.body)?;
                    }
                    if let Some(at) = from.iter().position(|one| *one == index)
                        && message.kind == kind
                    {
                        bodies[at] = Some(message.body);
                    }
                }
                Report::Closed => return Err(node.loss_text()),
                Report::Foreign(said) => return Err(node.stranger_text(&said)),
            }
        }
        Ok(bodies.into_iter().flatten().collect())
    }

    fn close(mut self) {
        self.nodes.iter_mut().for_each(Node::hang_up);
        self.nodes.iter_mut().for_each(Node::close);
    }
}

impl Options {
    /// Returns options that name hosts and their launcher, without a program.
    ///
    /// # Errors
    /// Returns the errors of [`Options::parse`].
    pub fn of_hosts(hosts: &str, launcher_exec: Option<&str>) -> Result<Self, UsageError> {
        let mut words: Vec<std::ffi::OsString> = vec!["-hosts".into(), hosts.into()];
        if let Some(command) = launcher_exec {
            words.extend(["-launcher-exec".into(), command.into()]);
        }
        words.push("no program".into());
        match Self::parse(&words)? {
            crate::command_line::Parsed::Run(options) => Ok(*options),
            crate::command_line::Parsed::Print(_) => Ok(Self::default()),
        }
    }
}

/// Returns all pairs of `count` hosts, in rounds in which each host is in at most one pair (round-robin
/// tournament, circle method).
fn rounds(count: usize) -> impl Iterator<Item = Vec<(usize, usize)>> {
    let seats = count + count % 2;
    (0..seats.saturating_sub(1)).map(move |round| {
        let at = |seat: usize| match seat {
            0 => 0,
            seat => (seat + round - 1) % (seats - 1) + 1,
        };
        let pairs = (0..seats / 2).map(|seat| (at(seat), at(seats - 1 - seat)));
        pairs.filter(|(one, other)| one.max(other) < &count).collect()
    })
}

/// Returns the longest round trip within a site: the lower end of the widest gap between sorted round trips.
/// Only gaps that end above [`SITE_US`] count. Without such a gap, all hosts form one site.
fn near_us(times: impl Iterator<Item = u64>) -> u64 {
    // Adds the round trip of two hosts of a site.
    let mut times: Vec<u64> = times.map(|time| time.max(SITE_US)).chain([SITE_US]).collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| (pair[1] as f64 / pair[0] as f64, pair[0]));
    let wide = gaps.filter(|(ratio, _)| *ratio >= GAP_MIN);
    let widest = wide.fold(None, |widest: Option<(f64, u64)>, gap| match widest {
        Some(known) if known.0 >= gap.0 => Some(known),
        Some(_) | None => Some(gap),
    });
    match widest {
        Some((_, below)) => below,
        None => times.last().copied().unwrap_or(SITE_US),
    }
}

/// Returns the site of each host: the transitive closure of short round trips.
fn group(count: usize, round_trips: &[(usize, usize, Option<u64>)], near_us: u64) -> Vec<usize> {
    let mut first: Vec<usize> = (0..count).collect();
    for &(one, other, time) in round_trips {
        if time.is_some_and(|time| time <= near_us) {
            let (lower, upper) = (first[one].min(first[other]), first[one].max(first[other]));
            first.iter_mut().filter(|it| **it == upper).for_each(|it| *it = lower);
        }
    }
    let mut leaders: Vec<usize> = Vec::new();
    let site = |leader: usize| match leaders.iter().position(|known| *known == leader) {
        Some(site) => site,
        None => {
            leaders.push(leader);
            leaders.len() - 1
        }
    };
    first.into_iter().map(site).collect()
}

/// Longest usual round trip within a site: half a millisecond, also in busy virtual machines.
const SITE_US: u64 = 500;
/// Least ratio between round trips within and between sites.
const GAP_MIN: f64 = 2.0;
/// Maximum number of hosts.
const HOSTS_MAX: usize = 64;
/// Maximum number of waiting reports.
const REPORTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sites for these round trips, in the order of pairs (0,1), (0,2), … (1,2), ….
    fn sites(count: usize, times: &[u64]) -> Vec<usize> {
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
        let all: Vec<_> = pairs
            .zip(times)
            .map(|((one, other), &time)| (one, other, (time > 0).then_some(time)))
            .collect();
        assert_eq!(all.len(), count * (count - 1) / 2);
        group(count, &all, near_us(times.iter().copied().filter(|time| *time > 0)))
    }

    #[test]
    fn hosts_are_grouped_where_round_trips_have_a_gap() {
        // Two and two, 11.6 ms apart.
        assert_eq!(sites(4, &[60, 11_650, 11_700, 11_640, 11_690, 85]), [0, 0, 1, 1]);
        // All near, if unevenly so.
        assert_eq!(sites(3, &[30, 90, 420]), [0, 0, 0]);
        assert_eq!(sites(3, &[30, 700, 900]), [0, 0, 0]);
        // All far.
        assert_eq!(sites(3, &[9_000, 10_000, 11_000]), [0, 1, 2]);
        assert_eq!(sites(2, &[5_000]), [0, 1]);
        // Interleaved, and one host alone.
        assert_eq!(sites(4, &[20_000, 70, 21_000, 20_500, 19_000, 20_700]), [0, 1, 0, 2]);
        // The wider of two gaps separates continents.
        assert_eq!(sites(3, &[2_000, 150_000, 152_000]), [0, 0, 1]);
        // An unreachable host is a site of its own.
        assert_eq!(sites(3, &[50, 0, 0]), [0, 0, 1]);
    }

    #[test]
    fn each_pair_occurs_once_and_no_host_twice_in_a_round() {
        for count in 2..12 {
            let mut met = Vec::new();
            for round in rounds(count) {
                let mut busy: Vec<usize> =
                    round.iter().flat_map(|&(one, other)| [one, other]).collect();
                busy.sort_unstable();
                assert!(busy.windows(2).all(|pair| pair[0] != pair[1]), "{round:?}");
                met.extend(round.into_iter().map(|(one, other)| (one.min(other), one.max(other))));
            }
            met.sort_unstable();
            let all = (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other)));
            assert_eq!(met, all.collect::<Vec<_>>());
        }
    }
}
