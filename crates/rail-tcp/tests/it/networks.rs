//! Two nodes with two networks between them: each rail keeps to its own, and a network that is dead
//! keeps nobody from the other.
//!
//! The nodes are network namespaces; each runs this program again, with a rail for all addresses and one
//! for every further network, as a process of a job has them.

use std::time::Duration;

use netpath::TcpNetworks;
use rail::{Event, Fault, Post, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::{Frame, PeerId};

use crate::nodes::{self, Meeting};

#[test]
fn each_rail_uses_its_own_network() {
    let Some(text) = run(NetworkChange { before: "", after: "" }) else { return };
    for (own, other) in [(1, 2), (2, 1)] {
        assert_eq!(text.matches("node: tcp1 heard").count(), 2, "{text}");
        for network in ["10.8.0", "10.9.0"] {
            said(&text, &format!("{network}.{own} reached {network}.{other}"));
        }
        let [first, second] = ["eth0", "eth1"].map(|device| received_by(&text, own, device));
        assert!(first < BULK / 2 && second > BULK, "by eth0 came {first}, by eth1 {second}");
    }
}

#[test]
fn a_cable_that_is_out_makes_one_network() {
    let before = "ip link set eth1 down
        settle 1";
    let Some(text) = run(NetworkChange { before, after: "" }) else { return };
    assert_eq!(text.matches("rails: tcp.").count(), 2, "{text}");
}

#[test]
fn a_cable_that_is_pulled_before_the_link_is_up_concerns_its_rail_alone() {
    for cut in ["ip link set eth1 down", "there ip link set eth1 down"] {
        check_without_second(NetworkChange { before: "", after: cut });
    }
}

/// The second network loses all frames silently, as behind a firewall: the address of the peer is gone.
#[test]
fn a_network_that_swallows_everything_concerns_its_rail_alone() {
    let nowhere = "lladdr 02:00:00:00:00:99 nud permanent dev eth1";
    let before = format!(
        "ip neigh add 10.9.0.2 {nowhere}
        there ip neigh add 10.9.0.1 {nowhere}"
    );
    check_without_second(NetworkChange { before: &before, after: "" });
}

#[test]
fn two_networks_of_the_same_numbers_concern_their_rail_alone() {
    let before = "ip link add other0 type veth peer name other1 netns $other
        ip link set other0 up
        ip link del eth1
        for side in '' there; do $side ip link add eth1 type veth peer name end1; done
        ip addr add 10.9.0.1/24 dev eth1
        there ip addr add 10.9.0.2/24 dev eth1
        for side in '' there; do for end in eth1 end1; do $side ip link set $end up; done; done
        settle 2";
    check_without_second(NetworkChange { before, after: "" });
}

/// The rail for all addresses takes the second network instead.
#[test]
fn a_first_network_that_swallows_everything_is_passed_over() {
    let nowhere = "lladdr 02:00:00:00:00:99 nud permanent dev eth0";
    let before = format!(
        "ip neigh add 10.8.0.2 {nowhere}
        there ip neigh add 10.8.0.1 {nowhere}"
    );
    let Some(text) = run(NetworkChange { before: &before, after: "" }) else { return };
    assert_eq!(text.matches("10.9.0.1 reached 10.9.0.2").count(), 2, "{text}");
    assert!(!text.contains("10.8.0.1 reached"), "{text}");
}

/// Changes to the networks before the nodes look at them, and after.
struct NetworkChange<'a> {
    before: &'a str,
    after: &'a str,
}

fn run(change: NetworkChange<'_>) -> Option<String> {
    let script = SCRIPT.replace("BEFORE", change.before).replace("AFTER", change.after);
    let text = nodes::run(&script)?;
    assert_eq!(text.matches("node: tcp heard").count(), 2, "{text}");
    Some(text)
}

fn check_without_second(change: NetworkChange<'_>) {
    let Some(text) = run(change) else { return };
    assert!(!text.contains("tcp1 heard"), "{text}");
    assert_eq!(text.matches("node: tcp1 unreachable").count(), 2, "{text}");
    let (first, down) = (text.rfind("tcp heard"), text.find("tcp1 unreachable"));
    assert!(first < down, "the first rail waited for the second: {text}");
    for (own, other) in [(1, 2), (2, 1)] {
        said(&text, &format!("10.8.0.{own} reached 10.8.0.{other}"));
        said(&text, &format!("from 10.9.0.{other}"));
    }
}

fn said(text: &str, line: &str) {
    assert!(text.contains(line), "{line} is missing: {text}");
}

/// Number of bytes that a node reports for a device.
fn received_by(text: &str, node: u32, device: &str) -> usize {
    let line = format!("node {node} received by {device}: ");
    let rest = text.split(&line).nth(1).unwrap_or_else(|| panic!("{line}is missing: {text}"));
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Part of one node in the test.
#[test]
#[ignore = "a part in the tests of networks, which start it"]
fn a_node() {
    let rank: u32 = std::env::var("NODE").expect("run by the tests of networks").parse().unwrap();
    let meeting = Meeting::of_script();
    let networks = TcpNetworks::find(None).expect("interfaces");
    let mut rails = open(rank, &networks);
    let names: Vec<&str> = rails.iter().map(|one| one.rail.name()).collect();
    tell(&format!("rails: {}.", names.join(" ")));
    meeting.leave(&format!("card{rank}"), card(&rails).as_bytes());
    meeting.wait("go");
    let card = String::from_utf8(meeting.wait(&format!("card{}", 1 - rank))).expect("a card");
    connect(&mut rails, networks.pair(addresses(&card)), PeerId(1 - rank));
    let mut over = false;
    while !over || meeting.find(&format!("done{}", 1 - rank)).is_none() {
        rails.iter_mut().for_each(|one| one.poll(PeerId(1 - rank)));
        if !over && rails.iter().all(|one| one.outcome.is_some()) {
            over = true;
            report(rank);
            meeting.leave(&format!("done{rank}"), b"");
        }
        let outcomes: Vec<_> = rails.iter().map(|one| &one.outcome).collect();
        meeting.check(&format!("what becomes of the rails; so far {outcomes:?}"));
    }
}

/// A rail and its state.
struct RailState {
    rail: TcpRail,
    heard: usize,
    posted: usize,
    up: bool,
    outcome: Option<String>,
}

impl RailState {
    /// Sends the rail's share of bytes, and counts those received.
    fn poll(&mut self, peer: PeerId) {
        let name = self.rail.name();
        let Self { rail, heard, up, outcome, .. } = self;
        rail.poll(&mut |event| match event {
            Event::Up { .. } => *up = true,
            Event::Frame { bytes, .. } => *heard += bytes.len(),
            Event::Room { .. } => {}
            Event::Down { fault: Fault::Unreachable(text), .. } => {
                *outcome = Some(tell(&format!("{name} unreachable")));
                tell(&format!("from {text}").replace("no answer within 5 s from ", ""));
            }
            // The other node has finished.
            Event::Down { fault: Fault::Closed, .. } if outcome.is_some() => {}
            Event::Cost { .. } | Event::Hampered { .. } => {}
            other => panic!("{name}: {other:?}"),
        });
        let bytes = if name == "tcp" { PIECE } else { BULK };
        while self.up && self.posted < bytes {
            let frame = Frame { head: vec![7; PIECE], body: None, token: None };
            match self.rail.post(peer, &frame) {
                Post::Done | Post::Held => self.posted += PIECE,
                Post::Full => break,
            }
        }
        if self.outcome.is_none() && self.heard == bytes && self.posted == bytes {
            self.outcome = Some(tell(&format!("{name} heard")));
        }
    }
}

fn open(rank: u32, networks: &TcpNetworks) -> Vec<RailState> {
    let config = TcpConfig {
        connect_timeout: Duration::from_secs(20),
        ..TcpConfig::new(PeerId(rank), 1, [1; 32])
    };
    let mut rails = vec![TcpRail::new(config.clone()).expect("sockets")];
    let further = networks.all().iter().skip(1);
    rails.extend(further.map(|one| TcpRail::on(one, config.clone()).expect("sockets")));
    let way = |rail| RailState { rail, heard: 0, posted: 0, up: false, outcome: None };
    rails.into_iter().map(way).collect()
}

fn connect(rails: &mut [RailState], addresses: Vec<(String, Vec<u8>)>, peer: PeerId) {
    for (name, address) in addresses {
        let rail = rails.iter_mut().find(|one| one.rail.name() == name).expect("a rail of ours");
        rail.rail.connect(peer, &address).expect("an address to try");
    }
}

/// Names and addresses of rails, one in a line.
fn card(rails: &[RailState]) -> String {
    let line =
        |one: &RailState| format!("{} {}\n", one.rail.name(), hex::encode(one.rail.address()));
    rails.iter().map(line).collect()
}

fn addresses(card: &str) -> Vec<(String, Vec<u8>)> {
    let parse = |line: &str| {
        let (name, text) = line.split_once(' ').expect("two words");
        (name.into(), hex::decode(text).expect("hexadecimal digits"))
    };
    card.lines().map(parse).collect()
}

/// Prints the connections of this node, and the bytes received by each device.
fn report(rank: u32) {
    for (own, other) in nodes::established() {
        tell(&format!("{own} reached {other}"));
    }
    let table = std::fs::read_to_string("/proc/self/net/dev").expect("the kernel's table");
    for line in table.lines().skip(2) {
        let (device, numbers) = line.split_once(':').expect("a device");
        let received = numbers.split_whitespace().next().expect("a count");
        tell(&format!("node {} received by {}: {received}", rank + 1, device.trim()));
    }
}

/// Returns a line to be printed at once, because two nodes write to the same place.
fn tell(text: &str) -> String {
    print!("\nnode: {text}\n");
    text.into()
}

/// Bytes sent over the rail for all addresses.
const PIECE: usize = 1 << 10;
/// Bytes sent over the other rails: much more than connection setup takes.
const BULK: usize = 1 << 20;

/// Raises the two nodes with two networks between them and runs a rank on each.
const SCRIPT: &str = r#"
for side in '' there; do $side ip link set lo up; done
for number in 0 1; do
    ip link add eth$number type veth peer name eth$number netns $other
    ip addr add 10.$((8 + number)).0.1/24 dev eth$number
    there ip addr add 10.$((8 + number)).0.2/24 dev eth$number
    for side in '' there; do $side ip link set eth$number up; done
done
# The kernel takes its time to see which cables are in.
settle() { for side in '' there; do until [ $($side ip -br link | grep -c '^eth.* UP ') = $1 ]; do sleep 0.01; done; done; }
settle 2
BEFORE
part='PROGRAM --ignored --exact networks::a_node --nocapture'
NODE=1 there $part & node=$!
NODE=0 $part & first=$!
until [ -e $MEETING/card0 ] && [ -e $MEETING/card1 ]; do sleep 0.05; done
AFTER
touch $MEETING/go
wait $first
wait $node
kill $other
"#;
