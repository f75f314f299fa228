//! Batches: the records of a message's packets, in order, and the data of the short ones.
//!
//! A record is a word, little-endian:
//!
//! | bits | |
//! |---|---|
//! | 0–1 | form: 0 the data follow, 1 the data come apart, 2 the message ends |
//! | 2–3 | send constraint: 1 `SAFER`, 2 `LATER`, 3 `CHEAPER` |
//! | 4 | receive constraint: 1 `EXPRESS`, 0 `CHEAPER` |
//! | 8–31 | length of data that follow, in bytes |
//!
//! Behind it stand the data, or the length of data that come apart in 64 bits. The record of the end is
//! the last of the last batch.

use memory::Region;

use crate::{Constraints, Receive, Send};

/// The longest batch in bytes: short enough for every rail to copy it into a frame at once.
pub const BATCH_MAX: usize = 4 << 10;

/// Packets up to this length in bytes are copied into the batch: two copies more cost less than a
/// message of their own.
pub const INLINE_MAX: usize = 1 << 10;

/// A packet, as its record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What holds for it.
    pub constraints: Constraints,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where its data are.
    pub form: Form,
}

/// Where the data of a packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the batch, from this place on.
    Inline {
        /// Offset of their first byte.
        at: usize,
    },
    /// In a message of their own.
    Apart,
}

/// What stands in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A packet, and where the next entry begins.
    Packet(Record, usize),
    /// The message has no more packets.
    End,
}

/// A batch that no sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

/// A batch being written.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    /// Whether nothing is written in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is written in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins it again.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Whether a packet of `len` bytes can be written, and the end behind it.
    #[inline]
    pub fn has_room(&self, len: usize) -> bool {
        let needed = if len <= INLINE_MAX { WORD_LEN + len } else { APART_LEN };
        self.bytes.len() + needed + WORD_LEN <= BATCH_MAX
    }

    /// Writes a short packet.
    #[inline]
    pub fn put_inline(&mut self, constraints: Constraints, data: &Region) {
        let word = INLINE | word_of(constraints) | (data.len() as u32) << LENGTH_SHIFT;
        self.bytes.extend_from_slice(&word.to_le_bytes());
        data.append_to(&mut self.bytes);
    }

    /// Writes that the data of a packet of `bytes` bytes come apart.
    pub fn put_apart(&mut self, constraints: Constraints, bytes: u64) {
        self.bytes.extend_from_slice(&(APART | word_of(constraints)).to_le_bytes());
        self.bytes.extend_from_slice(&bytes.to_le_bytes());
    }

    /// Writes the end, for which [`Batch::has_room`] has left room.
    pub fn put_end(&mut self) {
        self.bytes.extend_from_slice(&END.to_le_bytes());
    }
}

/// The entry of a batch that begins at `at`; none when the batch has been read.
///
/// # Errors
/// When the bytes are no entry, or something follows the end.
#[inline]
pub fn entry(batch: &[u8], at: usize) -> Result<Option<Entry>, Strange> {
    let rest = batch.get(at..).ok_or(Strange)?;
    if rest.is_empty() {
        return Ok(None);
    }
    let (word, rest) = rest.split_first_chunk::<WORD_LEN>().ok_or(Strange)?;
    let word = u32::from_le_bytes(*word);
    let len = (word >> LENGTH_SHIFT) as usize;
    let at = at + WORD_LEN;
    match word & FORM_MASK {
        INLINE if len <= rest.len() => {
            let form = Form::Inline { at };
            let constraints = constraints_of(word).ok_or(Strange)?;
            let record = Record { constraints, bytes: len as u64, form };
            Ok(Some(Entry::Packet(record, at + len)))
        }
        APART if len == 0 => {
            let (bytes, _) = rest.split_first_chunk::<8>().ok_or(Strange)?;
            let constraints = constraints_of(word).ok_or(Strange)?;
            let bytes = u64::from_le_bytes(*bytes);
            let record = Record { constraints, bytes, form: Form::Apart };
            Ok(Some(Entry::Packet(record, at + 8)))
        }
        END if rest.is_empty() && word == END => Ok(Some(Entry::End)),
        _ => Err(Strange),
    }
}

fn word_of(constraints: Constraints) -> u32 {
    let send = match constraints.send {
        Send::Safer => 1 << SEND_SHIFT,
        Send::Later => 2 << SEND_SHIFT,
        Send::Cheaper => 3 << SEND_SHIFT,
    };
    let receive = match constraints.receive {
        Receive::Express => EXPRESS,
        Receive::Cheaper => 0,
    };
    send | receive
}

fn constraints_of(word: u32) -> Option<Constraints> {
    let send = match word >> SEND_SHIFT & 3 {
        1 => Send::Safer,
        2 => Send::Later,
        3 => Send::Cheaper,
        _ => return None,
    };
    let receive = if word & EXPRESS != 0 { Receive::Express } else { Receive::Cheaper };
    (word & UNUSED == 0).then_some(Constraints { send, receive })
}

const WORD_LEN: usize = 4;
const APART_LEN: usize = WORD_LEN + 8;
const FORM_MASK: u32 = 3;
const INLINE: u32 = 0;
const APART: u32 = 1;
const END: u32 = 2;
const SEND_SHIFT: u32 = 2;
const EXPRESS: u32 = 1 << 4;
const UNUSED: u32 = 0xe0;
const LENGTH_SHIFT: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Constraints; 6] = {
        const fn both(send: Send) -> [Constraints; 2] {
            let express = Constraints { send, receive: Receive::Express };
            [express, Constraints { send, receive: Receive::Cheaper }]
        }
        let ([a, b], [c, d]) = (both(Send::Safer), both(Send::Later));
        let [e, f] = both(Send::Cheaper);
        [a, b, c, d, e, f]
    };

    #[test]
    fn what_is_written_is_read() {
        let mut batch = Batch::default();
        for (len, constraints) in ALL.into_iter().enumerate() {
            batch.put_inline(constraints, &Region::from_box(vec![len as u8; len].into()));
            batch.put_apart(constraints, 1 << (10 * len));
        }
        batch.put_end();
        let mut at = 0;
        for (len, constraints) in ALL.into_iter().enumerate() {
            let Ok(Some(Entry::Packet(record, next))) = entry(batch.bytes(), at) else {
                panic!("no packet at {at}")
            };
            assert_eq!((record.constraints, record.bytes), (constraints, len as u64));
            let Form::Inline { at: data } = record.form else { panic!("{record:?}") };
            assert_eq!(batch.bytes()[data..][..len], vec![len as u8; len]);
            let apart = Record { constraints, bytes: 1 << (10 * len), form: Form::Apart };
            assert_eq!(entry(batch.bytes(), next), Ok(Some(Entry::Packet(apart, next + 12))));
            at = next + 12;
        }
        assert_eq!(entry(batch.bytes(), at), Ok(Some(Entry::End)));
        assert_eq!(entry(&batch.bytes()[..at], at), Ok(None));
    }

    #[test]
    fn a_full_batch_has_room_for_the_end() {
        for len in [0, 1, INLINE_MAX, INLINE_MAX + 1] {
            let mut batch = Batch::default();
            let data = Region::owned(len.min(INLINE_MAX));
            while batch.has_room(len) {
                if len <= INLINE_MAX {
                    batch.put_inline(ALL[0], &data);
                } else {
                    batch.put_apart(ALL[0], len as u64);
                }
            }
            batch.put_end();
            assert!(batch.bytes().len() <= BATCH_MAX);
        }
    }

    #[test]
    fn no_bytes_of_a_peer_panic() {
        let mut batch = Batch::default();
        batch.put_inline(ALL[1], &Region::owned(5));
        batch.put_apart(ALL[4], u64::MAX);
        batch.put_end();
        for cut in 0..batch.bytes().len() {
            for bit in 0..8 * cut {
                let mut damaged = batch.bytes()[..cut].to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let mut at = 0;
                while let Ok(Some(Entry::Packet(_, next))) = entry(&damaged, at) {
                    assert!(next > at && next <= cut);
                    at = next;
                }
            }
        }
        assert_eq!(entry(&[2, 0, 0, 0, 0], 0), Err(Strange), "something behind the end");
        assert_eq!(entry(&[0, 0, 0, 0], 0), Err(Strange), "no send constraint");
        assert_eq!(entry(&[], 1), Err(Strange));
    }
}
