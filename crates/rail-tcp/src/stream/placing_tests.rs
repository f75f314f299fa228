//! Frames whose bytes are read where they belong, whatever the peer sends and whatever becomes of their receives.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use testing::{Random, seeds};

use super::tests::{pair, private_pair};
use super::*;

/// End of a peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    Goodbye,
    /// After a whole frame, or in the middle of one.
    Cut,
    /// By a header that contradicts itself.
    Nonsense,
}

/// A receive: memory in pieces, in the order of their addresses or not.
struct PlacedReceive {
    number: u64,
    /// Length of the frame, and of its bytes that have come.
    len: usize,
    come: usize,
    memory: Region,
    /// Offset in the memory of each byte that the receive has room for.
    places: Vec<usize>,
    target: Region,
    /// Number of bytes after which the receive ends, as if it had failed.
    ends_at: usize,
    /// Number of bytes that it got before.
    written: usize,
}

#[test]
fn bytes_go_where_they_belong_and_nowhere_else() {
    let mut placed = 0;
    for seed in seeds(150) {
        placed += receive_stream(seed);
    }
    if !testing::is_seed_given() {
        assert!(placed > 10_000_000, "only {placed} bytes were placed");
    }
}

/// Sends a random stream of frames and receives it; returns the number of bytes in the memory of receives.
fn receive_stream(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let (mut one, mut other) = if random.one_in(2) { pair() } else { private_pair() };
    let (bytes, frames, end) = stream(&mut random);
    let (mut sent, mut seen, mut placed) = (0, 0, 0);
    let mut receive: Option<PlacedReceive> = None;
    let limit = Instant::now() + Duration::from_secs(30);
    let fault = loop {
        assert!(Instant::now() < limit, "seed {seed}: {seen} of {frames} frames");
        if sent < bytes.len() {
            let until = bytes.len().min(sent + 1 + random.below(200_000));
            match one.channel.write(&bytes[sent..until]) {
                Ok(count) => sent += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        } else if one.channel.is_flushed() {
            // The receiver may have closed the connection already.
            let _ = one.channel.socket.shutdown(Shutdown::Write);
        }
        one.channel.flush().unwrap();
        let received = if other.is_through() {
            let receive = receive.as_mut().expect("only frames that were taken");
            other.receive_rest(&mut |incoming| receive.store(incoming))
        } else if other.has_frame() {
            Received::Bytes
        } else {
            other.receive()
        };
        match received {
            Received::Nothing => continue,
            Received::End(fault) => break fault,
            Received::Bytes => {}
        }
        if !other.is_through()
            && let Some(whole) = receive.take()
        {
            placed += whole.check(seed);
            seen += 1;
        }
        let delivered = other.deliver(&mut |arrival| match arrival {
            Arrival::Frame(bytes) => {
                assert!(bytes == content(seen, bytes.len()), "seed {seed}: frame {seen}");
                seen += 1;
            }
            Arrival::Begun { bytes, len, taken } => {
                *taken = !random.one_in(4);
                if *taken {
                    receive = Some(PlacedReceive::begin(&mut random, seen, (bytes, len)));
                }
            }
        });
        if let Err(fault) = delivered {
            break fault;
        }
    };
    if let Some(part) = receive {
        placed += part.check(seed);
    }
    assert!(seen == frames, "seed {seed}: {seen} of {frames} frames before {end:?}");
    match (end, fault) {
        (StreamEnd::Goodbye, Fault::Closed)
        | (StreamEnd::Cut, Fault::Lost(_))
        | (StreamEnd::Nonsense, Fault::Misbehaved(_)) => {}
        (end, fault) => panic!("seed {seed}: {fault:?} after {end:?}"),
    }
    placed
}

/// Makes a stream of frames and padding, with its number of whole frames.
fn stream(random: &mut Random) -> (Vec<u8>, u64, StreamEnd) {
    let (mut bytes, mut frames) = (Vec::new(), 0);
    for _ in 0..1 + random.below(12) {
        if random.one_in(5) {
            let len = random.below(PADDING_LEN + 1);
            bytes.extend(header_of(PADDING | len));
            bytes.resize(bytes.len() + len, 0);
        }
        let len = random.pick(&[0, 1, 100, 5000, 20_000, 65_000, 150_000, FRAME_MAX]);
        bytes.extend(header_of(len));
        bytes.extend(content(frames, len));
        frames += 1;
    }
    let end = random.pick(&[StreamEnd::Goodbye, StreamEnd::Cut, StreamEnd::Nonsense]);
    match end {
        StreamEnd::Goodbye => bytes.extend(GOODBYE),
        StreamEnd::Cut => {
            let len = random.pick(&[0, 30_000, FRAME_MAX]);
            let part = random.below(HEADER_LEN + len);
            let frame = [&header_of(len)[..], &content(frames, len)].concat();
            bytes.extend(&frame[..part]);
        }
        StreamEnd::Nonsense => bytes.extend((random.next() | 1 << 32 | 1).to_le_bytes()),
    }
    (bytes, frames, end)
}

/// Returns the bytes of a frame.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(number);
    let words = std::iter::repeat_with(|| random.next().to_le_bytes());
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

impl PlacedReceive {
    /// Begins to receive a frame of which the first bytes have come.
    fn begin(random: &mut Random, number: u64, (bytes, len): (&[u8], usize)) -> Self {
        let room = random.pick(&[len, len, len / 2, bytes.len() / 2, 0]);
        let piece = random.pick(&[len, 8, 700, 1024, 5000]).max(1);
        let (count, rest) = (room / piece, room % piece);
        let is_descending = random.one_in(4);
        let start = |at: usize| 2 * piece * if is_descending { count - 1 - at } else { at };
        let memory = Region::from_box(vec![UNTOUCHED; 2 * piece * count + rest + 100].into());
        let all = (0..count).map(|at| (start(at), piece)).chain([(2 * piece * count, rest)]);
        let target = Region::chain(all.clone().map(|(start, len)| memory.slice(start, len)));
        let places = all.flat_map(|(start, len)| start..start + len).collect();
        let ends_at = if random.one_in(4) { random.below(len) } else { usize::MAX };
        let come = bytes.len();
        let written = come.min(room);
        target.write(0, &bytes[..written]);
        Self { number, len, come, memory, places, target, ends_at, written }
    }

    fn store(&mut self, incoming: Incoming<'_>) {
        // A receive that has ended leaves the rest to the rail.
        if self.come < self.ends_at {
            let from = self.come.min(self.target.len());
            self.come += incoming.store(&self.target.slice(from, self.target.len() - from));
            assert!(self.come <= self.len);
            self.written = self.come.min(self.target.len());
        }
    }

    /// Checks all bytes of the memory; returns the number of those that were received.
    fn check(self, seed: u64) -> usize {
        let Self { number, len, memory, places, written, .. } = self;
        let mut expected = vec![UNTOUCHED; memory.len()];
        for (place, byte) in places.into_iter().zip(&content(number, len)[..written]) {
            expected[place] = *byte;
        }
        assert!(memory.to_vec() == expected, "seed {seed}: the memory of frame {number}");
        written
    }
}

const UNTOUCHED: u8 = 0xee;
