//! The lab's daemon: the process that forwards packets between sites, and changes links while they carry traffic.
//! It runs in the router and answers on a socket, one line of JSON for each request.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::link::{Direction, Source};
use crate::namespace::tool;
use crate::spec::{self, Spec};
use crate::wire::{Conditions, Counts};

/// Changes of links; everything else stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct Change {
    /// Share of packets lost, below 100%, such as 0.1% or 0.001
    #[arg(long, value_parser = spec::share)]
    pub loss: Option<f64>,
    /// Share of packets duplicated, below 100%
    #[arg(long, value_parser = spec::share)]
    pub duplicate: Option<f64>,
    /// Share of packets reordered, below 100%
    #[arg(long, value_parser = spec::share)]
    pub reorder: Option<f64>,
    /// Extra delay of reordered packets, at most 10s, such as 1ms
    #[arg(long, value_parser = spec::duration)]
    pub reorder_delay: Option<Duration>,
    /// One-way delay, at most 10s, such as 5.8ms
    #[arg(long, value_parser = spec::duration)]
    pub delay: Option<Duration>,
    /// Rate, from 100kbit to 10Gbit, such as 100Mbit
    #[arg(long, value_parser = spec::rate)]
    pub rate: Option<u64>,
    /// Buffer of the link, such as 2MB
    #[arg(long, value_parser = spec::bytes)]
    pub buffer: Option<u64>,
    /// Longest IP packet in bytes, from 576 to 1500; longer ones are dropped without ICMP
    #[arg(long, value_parser = clap::value_parser!(u32).range(576..=1500))]
    pub mtu: Option<u32>,
    /// Drop all UDP
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub udp_forbidden: Option<bool>,
    /// Drop all TCP
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tcp_forbidden: Option<bool>,
}

impl Change {
    fn apply(&self, to: &mut Conditions) {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut to.loss, self.loss);
        set(&mut to.duplicate, self.duplicate);
        set(&mut to.reorder, self.reorder);
        set(&mut to.reorder_delay, self.reorder_delay);
        set(&mut to.delay, self.delay);
        set(&mut to.rate_bits_per_s, self.rate);
        set(&mut to.buffer_bytes, self.buffer);
        set(&mut to.mtu_bytes, self.mtu);
        set(&mut to.is_udp_forbidden, self.udp_forbidden);
        set(&mut to.is_tcp_forbidden, self.tcp_forbidden);
    }
}

/// A selection of links: all, those from a site, or those to a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct Which {
    /// Links from this site only, such as 0
    #[arg(long, value_name = "SITE")]
    pub from: Option<u32>,
    /// Links to this site only
    #[arg(long, value_name = "SITE")]
    pub to: Option<u32>,
}

impl Which {
    fn has(&self, from: u32, to: u32) -> bool {
        self.from.is_none_or(|site| site == from) && self.to.is_none_or(|site| site == to)
    }
}

/// Direction of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Way {
    /// Incoming packets
    In,
    /// Outgoing packets
    Out,
    /// Both
    Both,
}

/// A cut of a site or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The site, from all others.
    pub site: u32,
    /// Only this node of it, from its own site too.
    pub node: Option<u32>,
    /// Direction of the lost packets.
    pub way: Way,
}

impl Cut {
    fn goes_in(&self) -> bool {
        self.way != Way::Out
    }

    fn goes_out(&self) -> bool {
        self.way != Way::In
    }

    fn has_link(&self, from: u32, to: u32) -> bool {
        let is_of_site = self.node.is_none();
        is_of_site
            && ((self.goes_in() && to == self.site) || (self.goes_out() && from == self.site))
    }

    /// Returns the ports that drop for it: `egress` is the traffic to the node.
    fn ports(&self, nics: u32) -> Vec<(String, &'static str)> {
        let hooks = [("egress", self.goes_in()), ("ingress", self.goes_out())];
        let hooks = hooks.into_iter().filter(|(_, drops)| *drops).map(|(hook, _)| hook);
        let of = |node: u32| {
            hooks.flat_map(move |hook| {
                (0..nics).map(move |nic| (spec::port(self.site, node, nic), hook))
            })
        };
        self.node.map(of).into_iter().flatten().collect()
    }
}

/// One direction between two sites.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The site it leads from.
    pub from: u32,
    /// The site it leads to.
    pub to: u32,
    /// Present conditions.
    pub conditions: Conditions,
    /// True if it is cut.
    pub is_cut: bool,
    /// Packets carried, lost and dropped.
    pub counts: Counts,
}

/// A request to the daemon.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Only the answer.
    Report,
    /// Change links.
    Set(Which, Change),
    /// Take the time that the machine adds off the delay.
    Lead(Which, Duration),
    /// Cut, for a time or until healed.
    Cut(Cut, Option<Duration>),
    /// End all cuts.
    Heal,
}

/// Answer: the links after the request, or the reason of a refusal.
pub(crate) type Answer = Result<Vec<Link>, String>;

/// Sends a request to the daemon at a socket.
pub(crate) fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Carries the packets between the sites of `spec`, if `carries` is set, and serves requests until the
/// process ends.
pub(crate) fn serve(spec: &Spec, carries: bool, socket: &Path) -> io::Result<()> {
    // A link does not wait for the hosts' cores; without precedence it has to.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut links = Vec::new();
    for (number, (from, to)) in (0..).zip(spec.directions()).filter(|_| carries) {
        let direction = Arc::new(Direction::new(spec.conditions(from, to))?);
        let source = Source::open(number)?;
        let (carried, seed) = (Arc::clone(&direction), spec.seed + u64::from(number));
        std::thread::spawn(move || {
            if source.carry(seed, &carried).is_err() {
                // A lab without one of its links is broken, and visibly so.
                std::process::exit(1);
            }
        });
        links.push((from, to, direction));
    }
    // The socket opens once the links are open.
    let listener = UnixListener::bind(socket)?;
    let (nics, cuts, ports) = (spec.nics, Vec::new(), BTreeSet::new());
    Daemon { links, nics, cuts, ports }.run(&listener)
}

struct Daemon {
    links: Vec<(u32, u32, Arc<Direction>)>,
    nics: u32,
    /// Cuts with the times of their ends.
    cuts: Vec<(Cut, Option<Instant>)>,
    /// Ports that drop packets at present.
    ports: BTreeSet<(String, &'static str)>,
}

impl Daemon {
    fn run(mut self, listener: &UnixListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        loop {
            self.wait(listener)?;
            let now = Instant::now();
            let before = self.cuts.len();
            self.cuts.retain(|(_, until)| until.is_none_or(|until| until > now));
            if self.cuts.len() < before {
                // Nobody can be told now; the next answer reports it.
                let _ = self.settle();
            }
            match listener.accept() {
                // A client that hangs up early gets no answer.
                Ok((stream, _)) => drop(self.answer(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until a request arrives or a cut ends.
    fn wait(&self, listener: &UnixListener) -> io::Result<()> {
        let until = self.cuts.iter().filter_map(|(_, until)| *until).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn answer(&mut self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new(Read::by_ref(&mut stream).take(MOST_BYTES)).read_line(&mut line)?;
        let answer = match serde_json::from_str(&line) {
            Ok(request) => self.handle(request),
            Err(error) => Err(format!("not understood: {error}")),
        };
        stream.write_all(serde_json::to_string(&answer)?.as_bytes())
    }

    fn handle(&mut self, request: Request) -> Answer {
        match request {
            Request::Report => {}
            Request::Set(which, change) => self.set(which, &change)?,
            Request::Lead(which, lead) => {
                self.chosen(which)?.for_each(|(_, _, direction)| {
                    direction.change(|state| state.lead = lead);
                });
            }
            Request::Cut(Cut { node: None, .. }, _) if self.links.is_empty() => {
                return Err("there is no link that could be cut".into());
            }
            Request::Cut(cut, duration) => {
                self.cuts.push((cut, duration.map(|duration| Instant::now() + duration)));
                self.settle()?;
            }
            Request::Heal => {
                self.cuts.clear();
                self.settle()?;
            }
        }
        let report = |(from, to, direction): &(u32, u32, Arc<Direction>)| {
            let state = direction.state();
            let (conditions, is_cut, counts) = (state.conditions, state.is_cut, state.counts);
            Link { from: *from, to: *to, conditions, is_cut, counts }
        };
        Ok(self.links.iter().map(report).collect())
    }

    fn chosen(
        &self,
        which: Which,
    ) -> Result<impl Iterator<Item = &(u32, u32, Arc<Direction>)>, String> {
        let is_chosen = move |link: &&(u32, u32, Arc<Direction>)| which.has(link.0, link.1);
        let mut chosen = self.links.iter().filter(is_chosen).peekable();
        match chosen.peek() {
            Some(_) => Ok(chosen),
            None => Err("there is no such link whose conditions could be changed".into()),
        }
    }

    fn set(&self, which: Which, change: &Change) -> Result<(), String> {
        for (_, to, direction) in self.chosen(which)? {
            if let Some(mtu) = change.mtu {
                let mtu = mtu.to_string();
                system("ip", &["link", "set", "dev", &spec::lan(*to, 0), "mtu", &mtu])?;
            }
            direction.change(|state| change.apply(&mut state.conditions));
        }
        Ok(())
    }

    /// Applies the cuts to links and ports.
    fn settle(&mut self) -> Result<(), String> {
        for (from, to, direction) in &self.links {
            let is_cut = self.cuts.iter().any(|(cut, _)| cut.has_link(*from, *to));
            if direction.state().is_cut != is_cut {
                direction.change(|state| state.is_cut = is_cut);
            }
        }
        let wanted: BTreeSet<_> =
            self.cuts.iter().flat_map(|(cut, _)| cut.ports(self.nics)).collect();
        for (port, hook) in self.ports.difference(&wanted) {
            system("nft", &[&format!("delete table netdev {}", table(port, hook))])?;
        }
        for (port, hook) in wanted.difference(&self.ports) {
            let name = table(port, hook);
            let script = format!(
                "add table netdev {name}; add chain netdev {name} cut {{ type filter hook {hook} device \"{port}\" priority 0; policy drop; }}"
            );
            system("nft", &[&script])?;
        }
        self.ports = wanted;
        Ok(())
    }
}

/// Name of the table of rules by which a port drops packets.
fn table(port: &str, hook: &str) -> String {
    format!("{}_{hook}", port.replace('-', "_"))
}

/// Runs a command in the router, where this process is.
fn system(name: &str, words: &[&str]) -> Result<(), String> {
    let output = tool(name).args(words).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if name == "nft" => {
            "nft is missing: install the package nftables".to_owned()
        }
        _ => format!("{name}: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Nice value of the daemon.
const NICENESS: i32 = -15;
/// Time that either side waits for the other's line.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line.
const MOST_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_of_a_site_is_of_its_links_and_one_of_a_node_of_its_ports() {
        let site = |way| Cut { site: 1, node: None, way };
        let links = [(0, 1), (1, 0), (0, 2)];
        let of = |cut: Cut| links.map(|(from, to)| cut.has_link(from, to));
        assert_eq!(of(site(Way::In)), [true, false, false]);
        assert_eq!(of(site(Way::Out)), [false, true, false]);
        assert_eq!(of(site(Way::Both)), [true, true, false]);
        assert!(site(Way::Both).ports(2).is_empty());
        let node = |way| Cut { node: Some(3), ..site(way) };
        assert_eq!(of(node(Way::Both)), [false; 3]);
        assert_eq!(node(Way::In).ports(1), [("p1-3-0".to_owned(), "egress")]);
        assert_eq!(node(Way::Both).ports(2).len(), 4);
        assert_eq!(table("p1-3-0", "egress"), "p1_3_0_egress");
    }

    #[test]
    fn conditions_that_a_change_does_not_name_stay() {
        let before = Spec::default().conditions(0, 1);
        let mut after = before;
        let change = Change { loss: Some(0.01), udp_forbidden: Some(true), ..Change::default() };
        change.apply(&mut after);
        assert_eq!(after, Conditions { loss: 0.01, is_udp_forbidden: true, ..before });
    }

    #[test]
    fn a_daemon_answers_until_it_is_spoken_to_no_more() {
        let folder = std::env::temp_dir().join(format!("canele-daemon-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let direction = Arc::new(Direction::new(Spec::default().conditions(0, 1)).unwrap());
        let daemon = Daemon {
            links: vec![(0, 1, direction)],
            nics: 1,
            cuts: Vec::new(),
            ports: BTreeSet::new(),
        };
        std::thread::spawn(move || daemon.run(&listener));
        let ask = |request| ask(&socket, &request).unwrap();
        let change = Change { loss: Some(0.5), ..Change::default() };
        let links = ask(Request::Set(Which::default(), change)).unwrap();
        assert_eq!((links.len(), links[0].conditions.loss), (1, 0.5));
        let nowhere = Which { from: Some(7), to: None };
        assert!(ask(Request::Set(nowhere, change)).is_err());
        let cut = Cut { site: 0, node: None, way: Way::Both };
        let short = Some(Duration::from_secs(1));
        assert!(ask(Request::Cut(cut, short)).unwrap()[0].is_cut);
        let since = Instant::now();
        while ask(Request::Report).unwrap()[0].is_cut {
            assert!(since.elapsed() < Duration::from_secs(20), "a cut ends by itself");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(ask(Request::Cut(cut, None)).unwrap()[0].is_cut);
        assert!(!ask(Request::Heal).unwrap()[0].is_cut);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
