//! Short messages that follow one another share frames, and leave though their sender stays away.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use driver::{Rail, TcpConfig, TcpRail};
use engine::{Config, Engine, Envelope, Selector, SendMode};
use memory::Region;
use progress::{Core, Directory, Policy, Progress};
use wire::GateId;

#[test]
fn what_is_gathered_leaves_though_the_sender_stays_away() {
    let [sender, receiver] = pair();
    let other = thread::spawn(move || {
        // The first one opens the link.
        (0..=MESSAGES).all(|number| receive(&receiver).is_some_and(|got| got == [number; 8]))
    });
    send(&sender, 0);
    for number in 1..=MESSAGES {
        let data = Region::from_box([number; 8].into());
        if !sender.send_short(GateId(1), envelope(), &data) {
            send(&sender, number);
        }
    }
    // No call of the sender's from here on.
    assert!(other.join().unwrap(), "all messages arrive, in order");
    let counters = sender.look(|core| core.engine.counters());
    assert_eq!(counters.eager, u64::from(MESSAGES) + 1);
    assert!(counters.frames < counters.eager, "{counters:?}");
}

fn send(progress: &Progress, number: u8) {
    let data = Region::from_box([number; 8].into());
    let mode = SendMode::Standard;
    progress.submit_and_wait(
        |core| core.engine.submit_send(GateId(1), envelope(), &data, mode),
        |core, &op| core.engine.take(op),
    );
}

fn receive(progress: &Progress) -> Option<Vec<u8>> {
    let into = Region::owned(8);
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    let op = progress.submit(|core| core.engine.submit_receive(Some(GateId(0)), selector, &into));
    progress.wait_for(PATIENCE, |core| core.engine.take(op))?;
    Some(into.to_vec())
}

fn envelope() -> Envelope {
    Envelope { context: 0, source: 0, tag: 0, is_urgent: false }
}

/// Two ends of a TCP link over the loopback, in one process.
fn pair() -> [Arc<Progress>; 2] {
    let rails = [0, 1].map(|rank| {
        let config = TcpConfig {
            rank: GateId(rank),
            job: 7,
            secret: [9; 32],
            interface: Some("127.0.0.1".into()),
            connect_timeout: PATIENCE,
        };
        TcpRail::new(config).expect("a rail over the loopback")
    });
    let addresses = rails.each_ref().map(Rail::address);
    let mut ranks = 0..;
    rails.map(|rail| {
        let rank = GateId(ranks.next().unwrap_or(0));
        let engine = Engine::new(Config::new(2));
        let directory = Box::new(Both(addresses.clone()));
        let core = Core::new(engine, rank, 2, vec![Box::new(rail)], directory);
        Progress::new(core, Policy::for_node(2, 1)).expect("descriptors")
    })
}

struct Both([Vec<u8>; 2]);

impl Directory for Both {
    fn addresses(&mut self, peer: GateId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("tcp".into(), self.0[peer.0 as usize].clone())])
    }
}

const MESSAGES: u8 = 200;
const PATIENCE: Duration = Duration::from_secs(20);
