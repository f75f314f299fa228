//! A process whose wait is over leaves the library; the frames that its peers need have been sent by then.

use engine::{Config, Engine, Envelope, Selector, SendMode};
use memory::Region;
use progress::{Directory, Worker};
use rail::{Rail, SimNetwork, SimPath};
use wire::{Capabilities, PeerId};

#[test]
fn receiver_of_a_message_has_told_its_sender() {
    for (remote_read, received_first) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let network = SimNetwork::new(0);
        let usual = SimPath::default();
        let capabilities = Capabilities { remote_read, ..usual.capabilities };
        network.set_usual_path(SimPath { capabilities, ..usual });
        let [mut sender, mut receiver] = [0, 1].map(|rank| worker(&network, PeerId(rank)));

        let data = Region::from_box(vec![7; BYTES].into());
        let into = Region::owned(BYTES);
        let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
        let envelope = Envelope { context: 0, source: 0, tag: 0, is_urgent: false };
        let early = received_first
            .then(|| receiver.engine.submit_receive(Some(PeerId(0)), selector, &into));
        let send = sender.engine.submit_send(PeerId(1), envelope, &data, SendMode::Synchronous);
        sender.flush();
        if !received_first {
            turns(&network, |_| {
                sender.advance();
                receiver.advance();
            });
        }
        let receive = early
            .unwrap_or_else(|| receiver.engine.submit_receive(Some(PeerId(0)), selector, &into));
        receiver.flush();
        turns(&network, |_| {
            sender.advance();
            if !receiver.engine.is_complete(receive) {
                receiver.advance();
            }
        });
        assert!(receiver.engine.take(receive).is_some(), "remote_read: {remote_read}");
        assert_eq!(into.to_vec(), data.to_vec());
        assert!(
            sender.engine.take(send).is_some(),
            "remote_read: {remote_read}, posted first: {received_first}"
        );
    }
}

/// Advances simulated time, and calls `act` after every event.
fn turns(network: &SimNetwork, mut act: impl FnMut(usize)) {
    for turn in 0..1000 {
        network.step();
        act(turn);
    }
}

fn worker(network: &SimNetwork, rank: PeerId) -> Worker {
    let rails: Vec<Box<dyn Rail>> = vec![Box::new(network.rail(rank))];
    Worker::new(Engine::new(Config::new(2)), rank, 2, rails, Box::new(RankDirectory))
}

/// On the simulated rail a rank is its own address.
struct RankDirectory;

impl Directory for RankDirectory {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("sim".into(), peer.0.to_le_bytes().into())])
    }
}

/// Length of the message; waiting threads would copy a longer one.
const BYTES: usize = 50_000;
