//! Two nodes that have addresses in common find each other by those that they have not.
//!
//! The nodes are network namespaces. On each, a bridge to guests and a network of another name have
//! the same addresses as on the other; one network joins them. Each node runs this program again.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use driver::{Event, Rail, TcpConfig, TcpRail};
use wire::{Frame, GateId};

#[test]
fn addresses_that_both_nodes_have_are_passed_over() {
    if let Some(reason) = reason_to_skip() {
        println!("skipped: {reason}");
        eprintln!("driver/namespaces: skipped: {reason}");
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let script = SCRIPT.replace("PROGRAM", &program.display().to_string());
    let output = unshare().args(["sh", "-ec", &script]).output().expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}\n{errors}");
    assert!(output.status.success(), "{text}\n{errors}");
    for (own, other) in [("10.9.0.1", "10.9.0.2"), ("10.9.0.2", "10.9.0.1")] {
        assert!(text.contains(&format!("{own} reached {other}")), "{text}\n{errors}");
    }
    assert!(!text.contains("172.17.0.1"), "the bridge was offered: {text}");
}

/// One node's part: its address on a line, the other's from the next node's output.
#[test]
#[ignore = "a part in the test of namespaces, which starts it"]
fn a_node() {
    let rank: u32 = std::env::var("NODE").expect("run by the test of namespaces").parse().unwrap();
    let peer = GateId(1 - rank);
    let mut rail = TcpRail::new(TcpConfig {
        rank: GateId(rank),
        job: 1,
        secret: [1; 32],
        interface: None,
        connect_timeout: Duration::from_secs(10),
    })
    .expect("sockets");
    let directory = std::env::var("MEETING").expect("a directory");
    let file = |rank: u32| format!("{directory}/{rank}");
    std::fs::write(file(rank) + ".new", rail.address()).unwrap();
    std::fs::rename(file(rank) + ".new", file(rank)).unwrap();
    let limit = Instant::now() + Duration::from_secs(15);
    let address = loop {
        match std::fs::read(file(1 - rank)) {
            Ok(address) => break address,
            Err(_) => assert!(Instant::now() < limit, "the other node's address"),
        }
    };
    println!("\noffered {:?}", listeners(&rail.address()));
    rail.connect(peer, &address).expect("an address to try");
    let (mut up, mut heard) = (false, false);
    while !heard {
        let was_up = up;
        rail.poll(&mut |event| match event {
            Event::Up { .. } => up = true,
            Event::Frame { bytes, .. } => heard = bytes == b"hello",
            other => panic!("{other:?}"),
        });
        if up && !was_up {
            rail.post(peer, &Frame { head: b"hello".to_vec(), body: None, token: None });
        }
        assert!(Instant::now() < limit, "up: {up}");
    }
    for (own, other) in established() {
        println!("\n{own} reached {other}");
    }
    // The other may still be reading.
    std::fs::write(file(2 + rank), "").unwrap();
    while std::fs::metadata(file(3 - rank)).is_err() {
        rail.poll(&mut |_| {});
        assert!(Instant::now() < limit, "the other node ends");
    }
}

/// The addresses of IPv4 listeners in a published address.
fn listeners(address: &[u8]) -> Vec<String> {
    let known = address[17..].chunks(7).filter(|one| one[0] == 4);
    known.map(|one| format!("{}.{}.{}.{}", one[1], one[2], one[3], one[4])).collect()
}

/// Both ends of the connections of this node.
fn established() -> Vec<(String, String)> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    let address = |text: &str| {
        let digits = u32::from_str_radix(&text[..8], 16).expect("an address");
        std::net::Ipv4Addr::from(digits.swap_bytes()).to_string()
    };
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == "01").map(|row| (address(row[1]), address(row[2]))).collect()
}

/// A command that runs another in namespaces of its own, with the right to configure them.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
    command.arg("--mount-proc").stdin(Stdio::null());
    command
}

fn reason_to_skip() -> Option<String> {
    let probe = "ip link add one type veth peer name two";
    match unshare().args(["sh", "-c", probe]).output() {
        Err(error) => Some(format!("no unshare: {error}")),
        Ok(output) if !output.status.success() => {
            Some(String::from_utf8_lossy(&output.stderr).trim().into())
        }
        Ok(_) => None,
    }
}

/// Raises the two nodes and runs a rank on each; everything ends with the namespaces.
const SCRIPT: &str = r#"
MEETING=$(mktemp -d); export MEETING
trap 'rm -rf "$MEETING"' EXIT
common='ip link set lo up
ip link add docker0 type veth peer name guest0 && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up
ip link add corp0 type veth peer name guest1 && ip addr add 10.0.0.1/24 dev corp0 && ip link set corp0 up
ip link set eth0 up'
unshare --net sleep 60 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add eth0 type veth peer name eth0 netns $other
ip addr add 10.9.0.1/24 dev eth0
nsenter --target $other --net ip addr add 10.9.0.2/24 dev eth0
sh -ec "$common"
nsenter --target $other --net sh -ec "$common"
part='PROGRAM --ignored --exact a_node --nocapture'
NODE=1 nsenter --target $other --net $part & node=$!
NODE=0 $part
wait $node
kill $other
"#;
