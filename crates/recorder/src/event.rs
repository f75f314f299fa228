//! Events, and their layout in a cell of eight words.

/// An event of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The text for a number that other events use.
    Name {
        /// The numbers that it belongs to.
        kind: NameKind,
        /// The number.
        id: u32,
        /// The text, of which 56 bytes are kept.
        text: String,
    },
    /// A call of MPI.
    Call {
        /// Number of the function.
        function: u16,
        /// Calling thread.
        thread: u32,
        /// Begin of the call.
        begin_ns: u64,
        /// Its end; 0 if it has not returned.
        end_ns: u64,
        /// Facts about the call.
        call: MpiCall,
    },
    /// A frame that a rail has accepted.
    Sent {
        /// Number of the rail's name.
        rail: u16,
        /// Receiver of the frame, by its rank in the job.
        peer: u32,
        /// Time at which the rail was given the frame.
        begin_ns: u64,
        /// Time at which it returned.
        end_ns: u64,
        /// Time at which it had sent or copied all bytes; 0 if unknown.
        done_ns: u64,
        /// Length of the frame.
        bytes: u64,
        /// Predicted time from posting to arrival on an idle link; 0 if the link's cost is unknown.
        predicted_ns: u64,
        /// Number of the name of the strategy that chose the contents; 0 if none was asked.
        strategy: u16,
        /// Number of the name of its kinds of packets.
        kinds: u16,
        /// Number of packets.
        packets: u32,
    },
    /// A frame that has arrived.
    Arrived {
        /// Number of the rail's name.
        rail: u16,
        /// Sender of the frame, by its rank in the job.
        peer: u32,
        /// Time at which its last byte was there.
        arrived_ns: u64,
        /// Time at which the engine began to handle it.
        begin_ns: u64,
        /// Time at which it had done so.
        end_ns: u64,
        /// Length of the frame.
        bytes: u64,
    },
    /// A piece of a message read from its sender's memory.
    Read {
        /// Number of the rail's name.
        rail: u16,
        /// Process whose memory was read.
        peer: u32,
        /// Thread that read.
        thread: u32,
        /// Begin of the read.
        begin_ns: u64,
        /// Its end.
        end_ns: u64,
        /// Bytes read.
        bytes: u64,
    },
    /// A link that has opened or ended.
    Link {
        /// Number of the rail's name.
        rail: u16,
        /// The process at the other end.
        peer: u32,
        /// Time of the change.
        at_ns: u64,
        /// True if the link is open now.
        is_open: bool,
    },
}

/// Kind of numbers that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum NameKind {
    /// Functions of MPI.
    Function = 1,
    /// Threads, by the kernel's number.
    Thread,
    /// Rails.
    Rail,
    /// Strategies.
    Strategy,
    /// Kinds of packets in a frame.
    Packets,
}

/// Facts about a call of MPI, as far as the function has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MpiCall {
    /// Rank that is sent to, received from or is the root, in the communicator.
    pub peer: Option<i32>,
    /// Rank that is received from, if `peer` is sent to.
    pub source: Option<i32>,
    /// Tag of the message.
    pub tag: Option<i32>,
    /// True if `peer` is the root of a collective.
    pub is_root: bool,
    /// Bytes sent or received.
    pub bytes: Option<u64>,
    /// True if `bytes` is the length of the receiver's buffer.
    pub is_room: bool,
    /// Handle of the communicator.
    pub comm: Option<u64>,
    /// Error code that was returned.
    pub code: i32,
}

/// Words of a cell. The first one holds the kind of the event.
pub(crate) type Words = [u64; WORDS];

impl TraceEvent {
    /// Lays the event out. The first word is never 0.
    pub(crate) fn encode(&self) -> Words {
        match self {
            Self::Name { kind, id, text } => {
                let mut words = [0; WORDS];
                words[0] = head(NAME, *kind as u8, 0, *id);
                let mut text = text.as_bytes();
                for word in &mut words[1..] {
                    let (taken, rest) = text.split_at(text.len().min(8));
                    let mut bytes = [0; 8];
                    bytes[..taken.len()].copy_from_slice(taken);
                    (*word, text) = (u64::from_le_bytes(bytes), rest);
                }
                words
            }
            Self::Call { function, thread, begin_ns, end_ns, call } => {
                let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
                let flags = flag(call.peer.is_some(), 0)
                    | flag(call.source.is_some(), 1)
                    | flag(call.tag.is_some(), 2)
                    | flag(call.is_root, 3)
                    | flag(call.bytes.is_some(), 4)
                    | flag(call.is_room, 5)
                    | flag(call.comm.is_some(), 6);
                [
                    head(CALL, flags, *function, *thread),
                    *begin_ns,
                    *end_ns,
                    pair(call.peer.unwrap_or(0), call.tag.unwrap_or(0)),
                    call.bytes.unwrap_or(0),
                    call.comm.unwrap_or(0),
                    pair(call.source.unwrap_or(0), call.code),
                    0,
                ]
            }
            Self::Sent {
                rail,
                peer,
                begin_ns,
                end_ns,
                done_ns,
                bytes,
                predicted_ns,
                strategy,
                kinds,
                packets,
            } => {
                let contents = head(0, 0, *kinds, *packets);
                let (head, strategy) = (head(SENT, 0, *rail, *peer), u64::from(*strategy));
                [head, *begin_ns, *end_ns, *done_ns, *bytes, *predicted_ns, strategy, contents]
            }
            Self::Arrived { rail, peer, arrived_ns, begin_ns, end_ns, bytes } => {
                let head = head(ARRIVED, 0, *rail, *peer);
                [head, *begin_ns, *end_ns, *arrived_ns, *bytes, 0, 0, 0]
            }
            Self::Read { rail, peer, thread, begin_ns, end_ns, bytes } => {
                let head = head(READ, 0, *rail, *peer);
                [head, *begin_ns, *end_ns, u64::from(*thread), *bytes, 0, 0, 0]
            }
            Self::Link { rail, peer, at_ns, is_open } => {
                [head(LINK, u8::from(*is_open), *rail, *peer), *at_ns, 0, 0, 0, 0, 0, 0]
            }
        }
    }

    /// Reads a cell. None if its event was never completed, or is of an unknown kind.
    fn decode(words: &Words) -> Option<Self> {
        let [first, begin_ns, end_ns, third, bytes, fifth, sixth, last] = *words;
        let (kind, flags) = (first as u8, (first >> 8) as u8);
        let (id, who) = ((first >> 16) as u16, (first >> 32) as u32);
        Some(match kind {
            NAME => {
                let bytes: Vec<u8> =
                    words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                Self::Name { kind: NameKind::of(flags)?, id: who, text }
            }
            CALL => {
                let is_set = |bit: u8| flags & 1 << bit != 0;
                let ((peer, tag), (source, code)) = (halves(third), halves(sixth));
                let call = MpiCall {
                    peer: is_set(0).then_some(peer),
                    source: is_set(1).then_some(source),
                    tag: is_set(2).then_some(tag),
                    is_root: is_set(3),
                    bytes: is_set(4).then_some(bytes),
                    is_room: is_set(5),
                    comm: is_set(6).then_some(fifth),
                    code,
                };
                Self::Call { function: id, thread: who, begin_ns, end_ns, call }
            }
            SENT => Self::Sent {
                rail: id,
                peer: who,
                begin_ns,
                end_ns,
                done_ns: third,
                bytes,
                predicted_ns: fifth,
                strategy: sixth as u16,
                kinds: (last >> 16) as u16,
                packets: (last >> 32) as u32,
            },
            ARRIVED => {
                Self::Arrived { rail: id, peer: who, arrived_ns: third, begin_ns, end_ns, bytes }
            }
            READ => {
                let thread = third as u32;
                Self::Read { rail: id, peer: who, thread, begin_ns, end_ns, bytes }
            }
            LINK => Self::Link { rail: id, peer: who, at_ns: begin_ns, is_open: flags != 0 },
            _ => return None,
        })
    }
}

impl NameKind {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Function, Self::Thread, Self::Rail, Self::Strategy, Self::Packets];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The events of a rank that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Events in the order in which they took their cells.
    pub events: Vec<TraceEvent>,
    /// Number of events for which there was no cell.
    pub dropped: u64,
}

impl Recording {
    /// Reads the used cells of a recording, which was made with room for `len` bytes. Bytes that are no event are left
    /// out.
    pub fn parse(bytes: &[u8], len: u64) -> Self {
        let mut cells = bytes.chunks_exact(CELL_LEN).map(|cell| {
            let mut words = [0; WORDS];
            for (word, bytes) in words.iter_mut().zip(cell.chunks_exact(8)) {
                *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            }
            words
        });
        let Some([MAGIC, count, ..]) = cells.next() else { return Self::default() };
        let room = (len / CELL_LEN as u64).saturating_sub(1);
        let events = cells.filter_map(|words| TraceEvent::decode(&words)).collect();
        Self { events, dropped: count.saturating_sub(room) }
    }
}

/// First word of an event: its kind, flags, a short number and a long one.
fn head(kind: u8, flags: u8, id: u16, who: u32) -> u64 {
    u64::from(kind) | u64::from(flags) << 8 | u64::from(id) << 16 | u64::from(who) << 32
}

fn pair(low: i32, high: i32) -> u64 {
    u64::from(low as u32) | u64::from(high as u32) << 32
}

fn halves(word: u64) -> (i32, i32) {
    (word as u32 as i32, (word >> 32) as u32 as i32)
}

const NAME: u8 = 1;
const CALL: u8 = 2;
const SENT: u8 = 3;
const ARRIVED: u8 = 4;
const READ: u8 = 5;
const LINK: u8 = 6;

/// First word of every recording; it also tells versions of the layout apart.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"canele 1");
/// Word of a sent frame with the time at which all its bytes had been sent.
pub(crate) const SENT_DONE: usize = 3;
/// Number of words of a cell.
pub(crate) const WORDS: usize = 8;
/// Length of a cell in bytes.
pub(crate) const CELL_LEN: usize = 8 * WORDS;
/// Length of an event in a recording, and of what precedes the first, in bytes.
pub const EVENT_LEN: u64 = CELL_LEN as u64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls() -> impl Strategy<Value = MpiCall> {
        let ranks = (any::<Option<i32>>(), any::<Option<i32>>(), any::<Option<i32>>());
        let flags = (any::<bool>(), any::<bool>(), any::<i32>());
        (ranks, any::<Option<u64>>(), any::<Option<u64>>(), flags).prop_map(
            |((peer, source, tag), bytes, comm, (is_root, is_room, code))| MpiCall {
                peer,
                source,
                tag,
                is_root,
                bytes,
                is_room,
                comm,
                code,
            },
        )
    }

    proptest! {
        #[test]
        fn events_are_read_as_written(
            (id, who, flag) in any::<(u16, u32, bool)>(),
            (one, two, three, four) in any::<(u64, u64, u64, u64)>(),
            (call, text) in (calls(), "[a-zA-Z_ ]{0,56}"),
        ) {
            let events = [
                TraceEvent::Name { kind: NameKind::Rail, id: who, text },
                TraceEvent::Call { function: id, thread: who, begin_ns: one, end_ns: two, call },
                TraceEvent::Sent {
                    rail: id,
                    peer: who,
                    begin_ns: one,
                    end_ns: two,
                    done_ns: three,
                    bytes: four,
                    predicted_ns: one,
                    strategy: id,
                    kinds: id,
                    packets: who,
                },
                TraceEvent::Arrived {
                    rail: id,
                    peer: who,
                    arrived_ns: one,
                    begin_ns: two,
                    end_ns: three,
                    bytes: four,
                },
                TraceEvent::Read {
                    rail: id,
                    peer: who,
                    thread: who,
                    begin_ns: one,
                    end_ns: two,
                    bytes: four,
                },
                TraceEvent::Link { rail: id, peer: who, at_ns: one, is_open: flag },
            ];
            for event in events {
                prop_assert_ne!(event.encode()[0], 0);
                prop_assert_eq!(TraceEvent::decode(&event.encode()), Some(event));
            }
        }

        #[test]
        fn no_bytes_are_fatal(bytes in prop::collection::vec(any::<u8>(), 0..1000), len: u64) {
            let mut recording = MAGIC.to_le_bytes().to_vec();
            Recording::parse(&bytes, len);
            recording.extend(bytes);
            Recording::parse(&recording, len);
        }
    }

    #[test]
    fn a_long_name_is_cut() {
        let text = "é".repeat(100);
        let words = TraceEvent::Name { kind: NameKind::Thread, id: 1, text }.encode();
        let Some(TraceEvent::Name { text, .. }) = TraceEvent::decode(&words) else {
            panic!("no name")
        };
        assert_eq!(text, "é".repeat(28));
    }
}
