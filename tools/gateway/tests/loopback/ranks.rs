//! Ranks that reach each other through gateways only.

use std::time::{Duration, Instant};

use auth::Encryption;
use gateway::Between;
use rail::{Event, Fault, Post, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use relay::Gateways;
use wire::{Frame, PeerId, ProcessId};

use crate::common::{Daemon, PATIENCE};

/// Two ranks of job 1, each of a site of its own.
struct RankPair {
    rails: [TcpRail; 2],
    gateways: [Gateways; 2],
    up: [u32; 2],
    down: Vec<Fault>,
    latency_ns: [u64; 2],
    heard: [u64; 2],
}

impl RankPair {
    /// Ranks whose gateways are listed in the words of the setting.
    fn new(gateways: [String; 2], encryption: Encryption, patience: Duration) -> Self {
        let rails = [0, 1].map(|rank| {
            let usual = TcpConfig::new(PeerId(rank), 1, [7; 32]);
            let interface = Some("127.0.0.1".into());
            let encryption = encryption.clone();
            let config = TcpConfig { interface, encryption, connect_timeout: patience, ..usual };
            TcpRail::new(config).unwrap()
        });
        let gateways = gateways.map(|list| Gateways::parse(&list).unwrap());
        let (down, latency_ns) = (Vec::new(), [0; 2]);
        Self { rails, gateways, up: [0; 2], down, latency_ns, heard: [0; 2] }
    }

    /// Processes of two jobs that share a key; the first is rank 0 of job 1.
    fn of_two_jobs(gateways: [String; 2], patience: Duration) -> Self {
        let mut pair = Self::new(gateways, Encryption::All, patience);
        let usual = TcpConfig::new(PeerId(3), 2, [8; 32]);
        let (interface, encryption) = (Some("127.0.0.1".into()), Encryption::All);
        let config = TcpConfig { interface, encryption, connect_timeout: patience, ..usual };
        pair.rails[1] = TcpRail::new(config).unwrap();
        let processes = [ProcessId { job: 1, rank: 0 }, ProcessId { job: 2, rank: 3 }];
        for rank in 0..2 {
            let peer = 1 - rank;
            pair.rails[rank].add_peer(PeerId(peer as u32), processes[peer], &[5; 32]);
        }
        pair
    }

    fn connect(&mut self, rank: usize) {
        let peer = 1 - rank;
        let published = vec![("tcp".to_owned(), self.rails[peer].address())];
        let far = self.gateways[peer].publish();
        let led = self.gateways[rank].lead(published, &far).unwrap();
        self.rails[rank].connect(PeerId(peer as u32), &led[0].1).unwrap();
    }

    fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !is_so(self) {
            for rank in 0..2 {
                let Self { rails, up, down, latency_ns, heard, .. } = self;
                rails[rank].poll(&mut |event| match event {
                    Event::Up { .. } => up[rank] += 1,
                    Event::Down { fault, .. } => down.push(fault),
                    Event::Cost { cost, .. } => latency_ns[rank] = cost.latency_ns(),
                    Event::Frame { bytes, .. } => {
                        assert_eq!(bytes, heard[rank].to_le_bytes());
                        heard[rank] += 1;
                    }
                    Event::Room { .. } | Event::Hampered { .. } => {}
                    other => panic!("{other:?}"),
                });
            }
            assert!(Instant::now() < limit, "up {:?}, down {:?}", self.up, self.down);
        }
    }

    /// Sends frames in both directions, alternately.
    fn exchange(&mut self) {
        for _ in 0..50 {
            for rank in 0..2 {
                let number = self.heard[1 - rank];
                let head = number.to_le_bytes().to_vec();
                let frame = Frame { head, body: None, token: None };
                let peer = PeerId(1 - rank as u32);
                assert_eq!(self.rails[rank].post(peer, &frame), Post::Done);
                self.until(|pair| pair.heard[1 - rank] > number);
            }
        }
    }
}

#[test]
fn private_ranks_meet_through_the_gateways_of_both_sites_encrypted_or_not() {
    for encryption in [Encryption::None, Encryption::All] {
        let gateways = [Daemon::start(Between::Auto), Daemon::start(Between::Auto)];
        let lists = gateways.each_ref().map(|one| format!("{0}={0}", one.address));
        let mut pair = RankPair::new(lists, encryption, PATIENCE);
        pair.connect(0);
        pair.until(|pair| pair.up == [1, 1]);
        pair.exchange();
        // On a busy machine the other attempted path, through the peer's gateway alone, may be faster.
        pair.until(|_| gateways[1].carries() == 1 && gateways[0].carries() <= 1);
    }
}

#[test]
fn both_may_call_at_once() {
    let gateways = [Daemon::start(Between::Auto), Daemon::start(Between::Auto)];
    let lists = gateways.each_ref().map(|one| format!("{0}={0}", one.address));
    let mut pair = RankPair::new(lists, Encryption::All, PATIENCE);
    (0..2).for_each(|rank| pair.connect(rank));
    pair.until(|pair| pair.up == [1, 1]);
    pair.exchange();
    // The attempts that are not the link are closed.
    pair.until(|_| {
        let [one, other] = gateways.each_ref().map(Daemon::carries);
        one.max(other) == 1
    });
}

#[test]
fn a_site_without_a_gateway_calls_the_other_sites() {
    let gateway = Daemon::start(Between::Auto);
    let list = format!("127.0.0.1:1={}", gateway.address);
    let mut pair = RankPair::new([String::new(), list], Encryption::None, PATIENCE);
    pair.connect(0);
    pair.until(|pair| pair.up == [1, 1]);
    pair.exchange();
    gateway.until_account_has("connections: 1 now, 1 in all");
}

#[test]
fn a_process_reaches_another_job_through_a_gateway_of_its_own() {
    let gateway = Daemon::start(Between::Auto);
    let list = format!("127.0.0.1:1={}", gateway.address);
    let mut pair = RankPair::of_two_jobs([String::new(), list], PATIENCE);
    pair.connect(0);
    pair.until(|pair| pair.up == [1, 1]);
    pair.exchange();
    gateway.until_account_has("connections: 1 now, 1 in all");
}

#[test]
fn a_gateway_of_another_job_refuses_and_is_named() {
    let gateway = Daemon::start(Between::Auto);
    let list = format!("127.0.0.1:1={}", gateway.address);
    let mut pair = RankPair::of_two_jobs([list, String::new()], Duration::from_secs(4));
    pair.connect(1);
    pair.until(|pair| !pair.down.is_empty());
    let Fault::Unreachable(text) = &pair.down[0] else { panic!("{:?}", pair.down) };
    assert!(text.contains(&gateway.address.to_string()), "{text}");
    let account = gateway.account();
    assert!(account.contains("refused, job: "), "{account}");
}

#[test]
fn a_link_is_lost_with_its_gateway_and_another_gateway_replaces_it() {
    let first = Daemon::start(Between::Auto);
    let second = Daemon::start(Between::Auto);
    let list = format!("{0}={0},{1}={1}", first.address, second.address);
    let mut pair = RankPair::new([String::new(), list], Encryption::None, PATIENCE);
    pair.connect(0);
    pair.until(|pair| pair.up == [1, 1]);
    pair.exchange();
    pair.until(|_| first.carries() + second.carries() == 1);
    let (dies, lives) = if first.carries() == 1 { (first, second) } else { (second, first) };
    drop(dies);
    pair.until(|pair| pair.down.len() == 2);
    assert!(pair.down.iter().all(|fault| matches!(fault, Fault::Lost(_))), "{:?}", pair.down);
    pair.heard = [0; 2];
    pair.connect(0);
    pair.until(|pair| pair.up == [2, 2]);
    pair.exchange();
    pair.until(|_| lives.carries() == 1);
}

#[test]
fn a_gateway_that_leads_nowhere_is_not_asked_to_connect() {
    let start = |calls| {
        Daemon::calling("127.0.0.1:0".parse().unwrap(), Between::Auto, "127.0.0.0/8", calls)
    };
    let (strange, good, far) = (start("127.0.5.0/24"), start("127.0.0.1"), start("127.0.5.0/24"));
    let far_list = format!("{0}={0}", far.address);
    // In either order.
    for near in [
        format!("{0},{1}", strange.address, good.address),
        format!("{1},{0}", strange.address, good.address),
    ] {
        let mut pair = RankPair::new([near, far_list.clone()], Encryption::None, PATIENCE);
        pair.connect(0);
        pair.until(|pair| pair.up == [1, 1]);
        pair.exchange();
    }
    let account = strange.account();
    assert!(!account.contains("refused, estranged"), "{account}");
}

#[test]
fn a_gateways_refusal_is_reported() {
    let gateway = Daemon::on("127.0.0.1:0".parse().unwrap(), Between::Auto, "127.0.5.0/24");
    let list = format!("{0}={0}", gateway.address);
    // Long enough for the answer of a busy gateway.
    let patience = Duration::from_secs(4);
    let mut pair = RankPair::new([String::new(), list], Encryption::None, patience);
    pair.connect(0);
    pair.until(|pair| !pair.down.is_empty());
    let Fault::Unreachable(text) = &pair.down[0] else { panic!("{:?}", pair.down) };
    assert!(text.contains("gateway: rank 1") && text.contains("127.0.5.0/24"), "{text}");
}
