//! What two gateways say to each other: words about the channels of their link, of which each carries a connection.
//!
//! A word is a kind, the channel and what belongs to the kind. Either side opens channels and numbers its own. So much
//! of a channel may be under way, or wait at the other side for who does not read, and not more before that side grants
//! it: a channel that waits holds up no other.

/// A channel of a link, as this side names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChannelId(u32);

impl ChannelId {
    /// The one that this side opens next behind `count` others.
    pub fn own(count: u32) -> Self {
        Self(OPENED_HERE | count & !OPENED_HERE)
    }

    /// Whether this side has opened it.
    pub fn is_own(self) -> bool {
        self.0 & OPENED_HERE != 0
    }

    fn turned(self) -> Self {
        Self(self.0 ^ OPENED_HERE)
    }
}

/// What one side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// Opens the channel: a request.
    Open(&'a [u8]),
    /// What became of the request.
    Reply(&'a [u8]),
    /// Bytes of the connection.
    Data(&'a [u8]),
    /// There is room for so many more.
    Grant(u32),
    /// That was all.
    End,
    /// The connection has broken off, or nobody carries it.
    Break,
}

impl<'a> Word<'a> {
    /// The word on its way, without the bytes of [`Word::Data`], which go behind it.
    pub fn head(self, channel: ChannelId) -> Vec<u8> {
        let grant: [u8; 4];
        let (kind, rest): (u8, &[u8]) = match self {
            Self::Open(request) => (OPEN, request),
            Self::Reply(reply) => (REPLY, reply),
            Self::Data(_) => (DATA, &[]),
            Self::Grant(bytes) => {
                grant = bytes.to_le_bytes();
                (GRANT, &grant)
            }
            Self::End => (END, &[]),
            Self::Break => (BREAK, &[]),
        };
        let mut head = Vec::with_capacity(HEAD_LEN + rest.len());
        head.push(kind);
        head.extend(channel.0.to_le_bytes());
        head.extend(rest);
        head
    }

    /// The word that has come, and the channel.
    pub fn parse(bytes: &'a [u8]) -> Option<(ChannelId, Self)> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let [kind, channel @ ..] = *head;
        let channel = ChannelId(u32::from_le_bytes(channel)).turned();
        let word = match (kind, rest) {
            (OPEN, request) => Self::Open(request),
            (REPLY, reply) => Self::Reply(reply),
            (DATA, bytes) => Self::Data(bytes),
            (GRANT, bytes) => Self::Grant(u32::from_le_bytes(bytes.try_into().ok()?)),
            (END, []) => Self::End,
            (BREAK, []) => Self::Break,
            _ => return None,
        };
        Some((channel, word))
    }
}

/// Whether a word opens connections, so that nobody on the way may have said it.
pub(super) fn is_weighty(word: &[u8]) -> bool {
    matches!(word.first(), Some(&(OPEN | REPLY)))
}

/// A word that says nothing, and shows what the way carries.
pub(super) fn padding() -> Vec<u8> {
    let mut word = vec![0; PADDING_LEN];
    word[0] = PADDING;
    word
}

/// Whether a word says nothing.
pub(super) fn is_padding(word: &[u8]) -> bool {
    word.first() == Some(&PADDING)
}

/// What may still be said on a channel, and what may still come.
#[derive(Debug)]
pub(super) struct Credit {
    /// The other side has room for so much.
    room: u64,
    /// Has come, and nobody has taken it yet.
    held: u64,
    /// Taken since the last grant.
    taken: u64,
}

impl Credit {
    pub fn new() -> Self {
        Self { room: WINDOW_BYTES, held: 0, taken: 0 }
    }

    /// Bytes that may be said.
    pub fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    /// So much was said, and there was room for it.
    pub fn note_said(&mut self, len: usize) {
        self.room -= len as u64;
    }

    /// The other side grants so much; whether it may.
    pub fn note_grant(&mut self, bytes: u32) -> bool {
        self.room += u64::from(bytes);
        self.room <= WINDOW_BYTES
    }

    /// So much has come; whether it was granted.
    pub fn note_come(&mut self, len: usize) -> bool {
        self.held += len as u64;
        self.held + self.taken <= WINDOW_BYTES
    }

    /// So much of it was taken; what is to be granted for it, if it is worth a word.
    pub fn note_taken(&mut self, len: usize) -> Option<u32> {
        self.held -= len as u64;
        self.taken += len as u64;
        (self.taken >= GRANT_BYTES).then(|| std::mem::take(&mut self.taken) as u32)
    }
}

/// On the wire, of who speaks.
const OPENED_HERE: u32 = 1 << 31;

const OPEN: u8 = 1;
const REPLY: u8 = 2;
const DATA: u8 = 3;
const GRANT: u8 = 4;
const END: u8 = 5;
const BREAK: u8 = 6;
const PADDING: u8 = 7;

pub(super) const HEAD_LEN: usize = 5;
/// Padding at once: what a word waits for at the longest that comes behind it.
pub(super) const PADDING_LEN: usize = 16 << 10;
/// What one channel may have under way, or waiting for a rank that does not read: 1 Gb/s for 130 ms.
pub(super) const WINDOW_BYTES: u64 = 16 << 20;
/// A grant is worth a word from here on.
const GRANT_BYTES: u64 = WINDOW_BYTES / 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_as_it_was_said_about_the_channel_as_the_other_names_it() {
        let own = ChannelId::own(7);
        let words = [
            Word::Open(b"request"),
            Word::Reply(b""),
            Word::Data(b"bytes"),
            Word::Grant(0x0102_0304),
            Word::End,
            Word::Break,
        ];
        for word in words {
            let mut said = word.head(own);
            if let Word::Data(bytes) = word {
                said.extend(bytes);
            }
            let (channel, heard) = Word::parse(&said).unwrap();
            assert_eq!(heard, word);
            assert!(own.is_own() && !channel.is_own());
            // The answer is about the same.
            assert_eq!(Word::parse(&Word::End.head(channel)), Some((own, Word::End)));
        }
        for nonsense in
            [&[][..], &[END, 0, 0, 0], &[0; 5], &[END, 0, 0, 0, 0, 0], &[GRANT; 8], &[7; 9]]
        {
            assert_eq!(Word::parse(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn what_was_taken_is_granted_again_and_no_more() {
        let (mut here, mut there) = (Credit::new(), Credit::new());
        let (mut said, mut granted) = (0, 0);
        while said < 10 * WINDOW_BYTES {
            let len = here.room().min(100_000);
            here.note_said(len);
            assert!(there.note_come(len));
            said += len as u64;
            if let Some(grant) = there.note_taken(len) {
                granted += u64::from(grant);
                assert!(here.note_grant(grant));
            }
        }
        assert!(said - granted < GRANT_BYTES);
        assert!(!here.note_grant(u32::MAX), "more than was taken");
        assert!(!there.note_come(WINDOW_BYTES as usize), "more than was granted");
    }
}
