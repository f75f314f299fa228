//! Messages between two gateways about the channels of their link; each channel carries a connection.
//!
//! A message is a kind, a channel and the kind's contents. Either side opens channels and numbers its own.
//! Each channel has its own credit ([`WINDOW_BYTES`]) for bytes in flight or waiting at the other side, so a
//! channel whose reader is slow holds up no other.

/// A channel of a link, as this side numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChannelId(u32);

impl ChannelId {
    /// Returns the channel that this side opens after `count` others.
    pub fn own(count: u32) -> Self {
        Self(OPENED_HERE | count & !OPENED_HERE)
    }

    /// True if this side has opened it.
    pub fn is_own(self) -> bool {
        self.0 & OPENED_HERE != 0
    }

    fn of_other_side(self) -> Self {
        Self(self.0 ^ OPENED_HERE)
    }
}

/// A message about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrunkMessage<'a> {
    /// Opens the channel with a request.
    Open(&'a [u8]),
    /// Reply to the request.
    Reply(&'a [u8]),
    /// Bytes of the connection.
    Data(&'a [u8]),
    /// Grants credit for more bytes.
    Grant(u32),
    /// Ends the data of the sender.
    End,
    /// Closes the channel: the connection has broken off, or nobody relays it.
    Break,
}

impl<'a> TrunkMessage<'a> {
    /// Returns the message as bytes, without those of [`TrunkMessage::Data`], which follow it.
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

    /// Parses a received message; returns the channel, too.
    pub fn parse(bytes: &'a [u8]) -> Option<(ChannelId, Self)> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let [kind, channel @ ..] = *head;
        let channel = ChannelId(u32::from_le_bytes(channel)).of_other_side();
        let message = match (kind, rest) {
            (OPEN, request) => Self::Open(request),
            (REPLY, reply) => Self::Reply(reply),
            (DATA, bytes) => Self::Data(bytes),
            (GRANT, bytes) => Self::Grant(u32::from_le_bytes(bytes.try_into().ok()?)),
            (END, []) => Self::End,
            (BREAK, []) => Self::Break,
            _ => return None,
        };
        Some((channel, message))
    }
}

/// True if a message must be sealed, because it can open a connection.
pub(super) fn is_sealed(message: &[u8]) -> bool {
    matches!(message.first(), Some(&(OPEN | REPLY)))
}

/// Returns a message without contents, sent to measure the path's bandwidth.
pub(super) fn padding() -> Vec<u8> {
    let mut message = vec![0; PADDING_LEN];
    message[0] = PADDING;
    message
}

/// True if a message is padding.
pub(super) fn is_padding(message: &[u8]) -> bool {
    message.first() == Some(&PADDING)
}

/// Credit of one channel, in both directions.
#[derive(Debug)]
pub(super) struct Credit {
    /// Bytes that the other side can still accept.
    room: u64,
    /// Bytes received but not yet consumed.
    received: u64,
    /// Bytes consumed since the last grant.
    consumed: u64,
}

impl Credit {
    pub fn new() -> Self {
        Self { room: WINDOW_BYTES, received: 0, consumed: 0 }
    }

    /// Returns the number of bytes that may be sent.
    pub fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    /// Notes bytes sent, within the credit.
    pub fn note_sent(&mut self, len: usize) {
        self.room -= len as u64;
    }

    /// Adds credit that the other side grants. False if it exceeds what it may grant.
    pub fn note_grant(&mut self, bytes: u32) -> bool {
        self.room += u64::from(bytes);
        self.room <= WINDOW_BYTES
    }

    /// Notes bytes received. False if they exceed the credit granted.
    pub fn note_received(&mut self, len: usize) -> bool {
        self.received += len as u64;
        self.received + self.consumed <= WINDOW_BYTES
    }

    /// Notes bytes consumed. Returns the credit to grant, if it is worth a message.
    pub fn note_consumed(&mut self, len: usize) -> Option<u32> {
        self.received -= len as u64;
        self.consumed += len as u64;
        (self.consumed >= GRANT_BYTES).then(|| std::mem::take(&mut self.consumed) as u32)
    }
}

/// Bit of channels that the sender of the message has opened.
const OPENED_HERE: u32 = 1 << 31;

const OPEN: u8 = 1;
const REPLY: u8 = 2;
const DATA: u8 = 3;
const GRANT: u8 = 4;
const END: u8 = 5;
const BREAK: u8 = 6;
const PADDING: u8 = 7;

pub(super) const HEAD_LEN: usize = 5;
/// Length of a padding message: the longest that a later message waits behind it.
pub(super) const PADDING_LEN: usize = 16 << 10;
/// Bytes of one channel that may be in flight or wait for a slow reader: 1 Gb/s for 130 ms.
pub(super) const WINDOW_BYTES: u64 = 16 << 20;
/// Credit from which a grant is sent.
const GRANT_BYTES: u64 = WINDOW_BYTES / 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_parsed_as_sent_and_names_the_channel_by_the_receivers_number() {
        let own = ChannelId::own(7);
        let messages = [
            TrunkMessage::Open(b"request"),
            TrunkMessage::Reply(b""),
            TrunkMessage::Data(b"bytes"),
            TrunkMessage::Grant(0x0102_0304),
            TrunkMessage::End,
            TrunkMessage::Break,
        ];
        for message in messages {
            let mut sent = message.head(own);
            if let TrunkMessage::Data(bytes) = message {
                sent.extend(bytes);
            }
            let (channel, parsed) = TrunkMessage::parse(&sent).unwrap();
            assert_eq!(parsed, message);
            assert!(own.is_own() && !channel.is_own());
            // A reply to it names the same channel.
            assert_eq!(
                TrunkMessage::parse(&TrunkMessage::End.head(channel)),
                Some((own, TrunkMessage::End))
            );
        }
        for nonsense in
            [&[][..], &[END, 0, 0, 0], &[0; 5], &[END, 0, 0, 0, 0, 0], &[GRANT; 8], &[7; 9]]
        {
            assert_eq!(TrunkMessage::parse(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn consumed_bytes_are_granted_again_and_no_more() {
        let (mut here, mut there) = (Credit::new(), Credit::new());
        let (mut sent, mut granted) = (0, 0);
        while sent < 10 * WINDOW_BYTES {
            let len = here.room().min(100_000);
            here.note_sent(len);
            assert!(there.note_received(len));
            sent += len as u64;
            if let Some(grant) = there.note_consumed(len) {
                granted += u64::from(grant);
                assert!(here.note_grant(grant));
            }
        }
        assert!(sent - granted < GRANT_BYTES);
        assert!(!here.note_grant(u32::MAX), "more than was consumed");
        assert!(!there.note_received(WINDOW_BYTES as usize), "more than was granted");
    }
}
