//! Messages of any packets with any constraints and hints arrive as they were packed. Seeds are printed;
//! `CANELE_SEED=n cargo test -p mad --test it messages` begins with one.

use std::thread;

use mad::{Channel, Constraints, Next, Receive, Send};
use memory::Region;
use testing::Random;

use crate::processes::{RankProcess, job};

#[test]
fn packed_data_are_unpacked() {
    for seed in testing::seeds(SEEDS) {
        println!("seed {seed}");
        let processes = job(2);
        all_exchange(&processes, 1, seed);
    }
}

#[test]
fn threads_have_channels_of_their_own() {
    all_exchange(&job(2), THREADS, 77);
}

#[test]
fn short_packets_are_one_message_of_the_engine() {
    let alone = &job(1)[0];
    let channel = alone.node.open(0).expect("a channel");
    let constraints = Constraints { send: Send::Cheaper, receive: Receive::Express };
    let packets: Vec<Packet> = (0..64)
        .map(|content| Packet { len: 16, constraints, next: Next::Unknown, content })
        .collect();
    for round in 1..4 {
        pack(&channel, 0, &packets);
        unpack(&channel, 0, &packets, true);
        let sent = alone.progress.look(|worker| worker.engine.counters().eager);
        assert_eq!(sent, round);
    }
}

/// In each process so many threads, and each meets one of the other process.
fn all_exchange(processes: &[RankProcess], threads: u32, seed: u64) {
    thread::scope(|scope| {
        for process in processes {
            for thread in 0..threads {
                scope.spawn(move || exchange(process, thread, seed + u64::from(thread)));
            }
        }
    });
}

/// Sends and receives the same messages in turn: both sides draw the same numbers.
fn exchange(process: &RankProcess, thread: u32, seed: u64) {
    let mut random = Random::new(seed);
    let open = |number| process.node.open(3 * thread + number).expect("a channel");
    let channels: Vec<Channel> = (0..3).map(open).collect();
    for _ in 0..MESSAGES {
        let channel = &channels[random.below(3)];
        let from = random.below(2) as u32;
        let packets = 1 + random.below(30);
        let packets: Vec<Packet> = (0..packets).map(|_| Packet::draw(&mut random)).collect();
        let from_any = random.below(2) == 0;
        if process.node.rank() == from {
            pack(channel, 1 - from, &packets);
        } else {
            unpack(channel, from, &packets, from_any);
        }
    }
}

fn pack(channel: &Channel, to: u32, packets: &[Packet]) {
    let packing = channel.begin_packing(to).expect("a connection");
    let mut late = Vec::new();
    let mut all = Vec::new();
    for packet in packets {
        let memory = Region::owned(packet.len);
        if packet.constraints.send != Send::Later {
            memory.write(0, &packet.bytes());
        }
        packing.pack(&memory, packet.constraints, packet.next).expect("a packet");
        match packet.constraints.send {
            Send::Safer => memory.write(0, &vec![0xee; packet.len]),
            Send::Later => late.push((memory.clone(), packet)),
            Send::Cheaper => {}
        }
        all.push(memory);
    }
    for (memory, packet) in late {
        memory.write(0, &packet.bytes());
    }
    packing.end().expect("a whole message");
    for (memory, packet) in all.iter().zip(packets) {
        memory.write(0, &vec![0xee; packet.len]);
    }
}

fn unpack(channel: &Channel, from: u32, packets: &[Packet], from_any: bool) {
    let unpacking =
        if from_any { channel.begin_unpacking() } else { channel.begin_unpacking_from(from) };
    let unpacking = unpacking.expect("a message");
    assert_eq!(unpacking.peer(), from);
    let mut all = Vec::new();
    for packet in packets {
        let memory = Region::owned(packet.len);
        unpacking.unpack(&memory, packet.constraints, packet.next).expect("a packet");
        if packet.constraints.receive == Receive::Express {
            assert_eq!(memory.to_vec(), packet.bytes(), "{packet:?}");
        }
        all.push(memory);
    }
    unpacking.end().expect("a whole message");
    for (memory, packet) in all.iter().zip(packets) {
        assert_eq!(memory.to_vec(), packet.bytes(), "{packet:?}");
    }
}

#[derive(Debug)]
struct Packet {
    len: usize,
    constraints: Constraints,
    next: Next,
    content: u8,
}

impl Packet {
    fn draw(random: &mut Random) -> Self {
        let len = match random.below(8) {
            0 => 0,
            1..5 => random.below(40),
            5 => random.below(1100),
            6 => 1000 + random.below(5000),
            _ => random.below(150_000),
        };
        let next = match random.below(4) {
            0 => Next::Computing,
            1 => Next::Packet(constraints(random)),
            _ => Next::Unknown,
        };
        Self { len, constraints: constraints(random), next, content: random.below(256) as u8 }
    }

    fn bytes(&self) -> Vec<u8> {
        (0..self.len).map(|at| self.content.wrapping_add((at * 7 + at / 251) as u8)).collect()
    }
}

fn constraints(random: &mut Random) -> Constraints {
    let send = [Send::Safer, Send::Later, Send::Cheaper][random.below(3)];
    let receive = [Receive::Express, Receive::Cheaper][random.below(2)];
    Constraints { send, receive }
}

const SEEDS: u64 = 8;
const MESSAGES: usize = 60;
const THREADS: u32 = 4;
