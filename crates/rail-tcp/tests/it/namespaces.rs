//! Two nodes with addresses in common find each other by the addresses that differ.
//!
//! The nodes are network namespaces. On each, a bridge to guests and a network of another name have
//! the same addresses as on the other; one network joins them. Each node runs this program again.

use std::time::Duration;

use rail::{Event, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::{Frame, PeerId};

use crate::nodes::{self, Meeting};

#[test]
fn addresses_that_both_nodes_have_are_passed_over() {
    let Some(text) = nodes::run(SCRIPT) else { return };
    for (own, other) in [("10.9.0.1", "10.9.0.2"), ("10.9.0.2", "10.9.0.1")] {
        assert!(text.contains(&format!("{own} reached {other}")), "{text}");
    }
    assert!(!text.contains("172.17.0.1"), "the bridge was offered: {text}");
}

/// One node's part: its address on a line, the other's from the next node's output.
#[test]
#[ignore = "a part in the test of namespaces, which starts it"]
fn a_node() {
    let rank: u32 = std::env::var("NODE").expect("run by the test of namespaces").parse().unwrap();
    let peer = PeerId(1 - rank);
    let mut rail = TcpRail::new(TcpConfig {
        connect_timeout: Duration::from_secs(10),
        ..TcpConfig::new(PeerId(rank), 1, [1; 32])
    })
    .expect("sockets");
    let meeting = Meeting::of_script();
    meeting.leave(&format!("address{rank}"), &rail.address());
    let address = meeting.wait(&format!("address{}", peer.0));
    println!("\noffered {:?}", listeners(&rail.address()));
    rail.connect(peer, &address).expect("an address to try");
    let (mut up, mut heard) = (false, false);
    while !heard {
        let was_up = up;
        rail.poll(&mut |event| match event {
            Event::Up { .. } => up = true,
            Event::Frame { bytes, .. } => heard = bytes == b"hello",
            Event::Cost { .. } | Event::Hampered { .. } => {}
            other => panic!("{other:?}"),
        });
        if up && !was_up {
            rail.post(peer, &Frame { head: b"hello".to_vec(), body: None, token: None });
        }
        meeting.check("the other's word");
    }
    for (own, other) in nodes::established() {
        println!("\n{own} reached {other}");
    }
    // The other may still be reading.
    meeting.leave(&format!("done{rank}"), b"");
    while meeting.find(&format!("done{}", peer.0)).is_none() {
        rail.poll(&mut |_| {});
        meeting.check("the other node's end");
    }
}

/// The addresses of IPv4 listeners in a published address.
fn listeners(address: &[u8]) -> Vec<String> {
    let known = address[17..].chunks(7).filter(|one| one[0] == 4);
    known.map(|one| format!("{}.{}.{}.{}", one[1], one[2], one[3], one[4])).collect()
}

/// Raises the two nodes and runs a rank on each.
const SCRIPT: &str = r#"
common='ip link set lo up
ip link add docker0 type veth peer name guest0 && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up
ip link add corp0 type veth peer name guest1 && ip addr add 10.0.0.1/24 dev corp0 && ip link set corp0 up
ip link set eth0 up'
ip link add eth0 type veth peer name eth0 netns $other
ip addr add 10.9.0.1/24 dev eth0
there ip addr add 10.9.0.2/24 dev eth0
sh -ec "$common"
there sh -ec "$common"
part='PROGRAM --ignored --exact namespaces::a_node --nocapture'
NODE=1 there $part & node=$!
NODE=0 $part
wait $node
kill $other
"#;
