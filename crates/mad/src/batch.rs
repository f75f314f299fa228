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

use memory::{Page, Region};

use crate::{Constraints, Receive, Send};

/// The longest batch in bytes: short enough for every rail to copy it into a frame at once.
pub const BATCH_MAX: usize = 4 << 10;

/// Packets up to this length in bytes are copied into the batch: two copies more cost less than a
/// message of their own.
pub const INLINE_MAX: usize = 1 << 10;

/// A packet, as its record describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Constraints of the packet.
    pub constraints: Constraints,
    /// Its length in bytes.
    pub bytes: u64,
    /// Place of its data.
    pub form: Form,
}

/// Place of a packet's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the batch, behind the record.
    Inline,
    /// In a message of their own.
    Apart,
}

/// Entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A packet.
    Packet(Record),
    /// The message has no more packets.
    End,
}

/// A batch that no sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

/// A batch being written.
#[derive(Debug, Default)]
pub struct Batch {
    page: Page<BATCH_MAX>,
    len: usize,
}

impl Batch {
    /// True if the batch is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes written so far.
    pub fn written(&self) -> Region {
        self.page.region().slice(0, self.len)
    }

    /// Begins it again, on the same memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// True if the batch has room for a packet of `len` bytes and for the end mark.
    #[inline(always)]
    pub fn has_room(&self, len: usize) -> bool {
        let needed = if len <= INLINE_MAX { WORD_LEN + len } else { APART_LEN };
        self.len + needed + WORD_LEN <= BATCH_MAX
    }

    /// Writes a packet of at most [`INLINE_MAX`] bytes, if there is room for it and the end behind it; whether it
    /// has.
    #[inline(always)]
    pub fn put_inline(&mut self, constraints: Constraints, data: &[u8]) -> bool {
        let word = word_of(constraints, data.len()).to_le_bytes();
        let is_put =
            data.len() <= INLINE_MAX && self.page.try_write(self.len, word, data, WORD_LEN);
        if is_put {
            self.len += WORD_LEN + data.len();
        }
        is_put
    }

    /// Writes a short packet of any memory.
    pub fn put_region(&mut self, constraints: Constraints, data: &Region) {
        self.put(&word_of(constraints, data.len()).to_le_bytes());
        self.page.region().copy_piece(self.len, data, 0, data.len());
        self.len += data.len();
    }

    /// Writes that the data of a packet of `bytes` bytes come apart.
    pub fn put_apart(&mut self, constraints: Constraints, bytes: u64) {
        self.put(&(APART | word_of(constraints, 0)).to_le_bytes());
        self.put(&bytes.to_le_bytes());
    }

    /// Writes the end, for which [`Batch::has_room`] has left room.
    pub fn put_end(&mut self) {
        self.put(&END.to_le_bytes());
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.page.write(self.len, bytes);
        self.len += bytes.len();
    }
}

/// A reader of consecutive batches.
#[derive(Debug, Default)]
pub struct Reader {
    page: Page<BATCH_MAX>,
    /// The batch is this long, and was read up to there.
    len: usize,
    at: usize,
}

impl Reader {
    /// Returns the buffer for the next batch. Nothing can be read until it is opened.
    pub fn receive(&mut self) -> &Region {
        self.open(0);
        self.page.region()
    }

    /// Begins to read a batch of `len` bytes.
    pub fn open(&mut self, len: usize) {
        (self.len, self.at) = (len, 0);
    }

    /// Returns the next entry; `None` at the end of the batch.
    ///
    /// # Errors
    /// When the bytes are no entry, or something follows the end.
    #[inline]
    pub fn entry(&self) -> Result<Option<Entry>, Strange> {
        let left = self.len - self.at;
        if left == 0 {
            return Ok(None);
        }
        let word = u32::from_le_bytes(self.bytes(0)?);
        let len = (word >> LENGTH_SHIFT) as usize;
        let packet = |bytes, form| {
            let constraints = constraints_of(word).ok_or(Strange)?;
            Ok(Some(Entry::Packet(Record { constraints, bytes, form })))
        };
        match word & FORM_MASK {
            INLINE if len <= left - WORD_LEN => packet(len as u64, Form::Inline),
            APART if len == 0 => packet(u64::from_le_bytes(self.bytes(WORD_LEN)?), Form::Apart),
            END if left == WORD_LEN && word == END => Ok(Some(Entry::End)),
            _ => Err(Strange),
        }
    }

    /// Takes the next packet, if its data are here and it has that length and these constraints; whether it has.
    #[inline(always)]
    pub fn take_inline(&mut self, constraints: Constraints, into: &mut [u8]) -> bool {
        let word = word_of(constraints, into.len()).to_le_bytes();
        let is_taken =
            into.len() <= INLINE_MAX && self.page.try_read(self.at, self.len, word, into);
        if is_taken {
            self.at += WORD_LEN + into.len();
        }
        is_taken
    }

    /// Copies the data of the next packet, which has that record.
    pub fn copy(&self, record: &Record, into: &Region) {
        into.copy_piece(0, self.page.region(), self.at + WORD_LEN, record.bytes as usize);
    }

    /// Passes over the next packet, which has that record.
    pub fn pass(&mut self, record: &Record) {
        let behind = match record.form {
            Form::Inline => record.bytes as usize,
            Form::Apart => APART_LEN - WORD_LEN,
        };
        self.at += WORD_LEN + behind;
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, after: usize) -> Result<[u8; N], Strange> {
        let from = self.at + after;
        if from + N > self.len {
            return Err(Strange);
        }
        let mut bytes = [0; N];
        self.page.read(from, &mut bytes);
        Ok(bytes)
    }
}

/// The record of a packet, but for its form; `len` bytes follow.
#[inline(always)]
fn word_of(constraints: Constraints, len: usize) -> u32 {
    let Constraints { send, receive } = constraints;
    (send as u32) << SEND_SHIFT | (receive as u32) << RECEIVE_SHIFT | (len as u32) << LENGTH_SHIFT
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
const RECEIVE_SHIFT: u32 = 4;
const EXPRESS: u32 = (Receive::Express as u32) << RECEIVE_SHIFT;
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
    fn written_entries_are_read_back() {
        let mut batch = Batch::default();
        for (len, constraints) in ALL.into_iter().enumerate() {
            if len % 2 == 0 {
                assert!(batch.put_inline(constraints, &bytes_of(len)));
            } else {
                batch.put_region(constraints, &Region::from_box(bytes_of(len).into()));
            }
            batch.put_apart(constraints, 1 << (10 * len));
        }
        batch.put_end();
        let mut reader = reader_of(&batch.written().to_vec());
        for (len, constraints) in ALL.into_iter().enumerate() {
            let short = Record { constraints, bytes: len as u64, form: Form::Inline };
            assert_eq!(reader.entry(), Ok(Some(Entry::Packet(short))));
            let into = Region::owned(len);
            reader.copy(&short, &into);
            assert_eq!(into.to_vec(), bytes_of(len));
            reader.pass(&short);
            let apart = Record { constraints, bytes: 1 << (10 * len), form: Form::Apart };
            assert_eq!(reader.entry(), Ok(Some(Entry::Packet(apart))));
            reader.pass(&apart);
        }
        assert_eq!(reader.entry(), Ok(Some(Entry::End)));
        reader.receive();
        assert_eq!(reader.entry(), Ok(None));
    }

    #[test]
    fn directly_taken_packets_equal_packed_ones() {
        let mut batch = Batch::default();
        for (len, constraints) in ALL.into_iter().enumerate() {
            assert!(batch.put_inline(constraints, &bytes_of(len)));
        }
        batch.put_apart(ALL[0], 3);
        let mut reader = reader_of(&batch.written().to_vec());
        for (len, constraints) in ALL.into_iter().enumerate() {
            for other in ALL.into_iter().filter(|other| *other != constraints) {
                assert!(!reader.take_inline(other, &mut vec![0; len]));
            }
            for wrong in (0..300).filter(|wrong| *wrong != len) {
                assert!(!reader.take_inline(constraints, &mut vec![0; wrong]));
            }
            let mut into = vec![0; len];
            assert!(reader.take_inline(constraints, &mut into));
            assert_eq!(into, bytes_of(len));
        }
        for len in [0, 3] {
            assert!(!reader.take_inline(ALL[0], &mut vec![0; len]), "its data come apart");
        }
        reader.receive();
        assert!(!reader.take_inline(ALL[0], &mut []), "nothing has come");
    }

    #[test]
    fn a_full_batch_has_room_for_the_end() {
        for len in [0, 1, INLINE_MAX, INLINE_MAX + 1] {
            let mut batch = Batch::default();
            let data = vec![0; len.min(INLINE_MAX)];
            while batch.has_room(len) {
                if len <= INLINE_MAX {
                    assert!(batch.put_inline(ALL[0], &data));
                } else {
                    batch.put_apart(ALL[0], len as u64);
                }
            }
            assert!(len > INLINE_MAX || !batch.put_inline(ALL[0], &data));
            batch.put_end();
            assert!(batch.written().len() <= BATCH_MAX);
        }
        assert!(!Batch::default().put_inline(ALL[0], &[0; INLINE_MAX + 1]), "it goes apart");
    }

    #[test]
    fn no_bytes_of_a_peer_panic() {
        let mut batch = Batch::default();
        assert!(batch.put_inline(ALL[1], &[0; 5]));
        batch.put_apart(ALL[4], u64::MAX);
        batch.put_end();
        let written = batch.written().to_vec();
        for cut in 0..written.len() {
            for bit in 0..8 * cut {
                let mut damaged = written[..cut].to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let mut reader = reader_of(&damaged);
                let mut into = [0; 5];
                ALL.into_iter().find(|constraints| reader.take_inline(*constraints, &mut into));
                while let Ok(Some(Entry::Packet(record))) = reader.entry() {
                    let before = reader.at;
                    reader.pass(&record);
                    assert!(reader.at > before && reader.at <= cut);
                }
            }
        }
        let strange = |bytes: &[u8]| assert_eq!(reader_of(bytes).entry(), Err(Strange));
        strange(&[2, 0, 0, 0, 0]);
        strange(&[0, 0, 0, 0]);
        strange(&[4, 1, 0, 0]);
        strange(&[4, 0, 0]);
    }

    fn bytes_of(len: usize) -> Vec<u8> {
        vec![len as u8; len]
    }

    fn reader_of(bytes: &[u8]) -> Reader {
        let mut reader = Reader::default();
        reader.receive().write(0, bytes);
        reader.open(bytes.len());
        reader
    }
}
