//! First packets of connections, told from those of strangers before any other work.
//!
//! A first packet makes the endpoint derive keys, decrypt, and answer. Processes of the job therefore choose
//! connection IDs that prove their key ([`auth::FirstIds`]). While many connections are pending, or strangers flood this
//! process, first packets with other IDs are dropped. At other times strangers are answered, and told why they are refused.

use auth::{FIRST_ID_LEN, MARK_LEN};

use crate::marks::{CONNECTION_ID_LEN, Nonce};

/// The header of an Initial packet (RFC 9000 §17.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstPacket<'a> {
    /// Destination connection ID.
    id: &'a [u8],
    /// True if it has a token, which a Retry packet has given to its sender.
    has_token: bool,
}

impl<'a> FirstPacket<'a> {
    /// Reads the header of a datagram, if it begins with an Initial packet.
    pub fn of(datagram: &'a [u8]) -> Option<Self> {
        let (head, rest) = datagram.split_at_checked(5)?;
        if head[0] & 0xf0 != 0xc0 || head[1..] != [0, 0, 0, 1] {
            return None;
        }
        let (id, rest) = counted(rest)?;
        let (_, rest) = counted(rest)?;
        Some(Self { id, has_token: *rest.first()? != 0 })
    }

    /// The nonce in an ID of the length that processes of a job choose.
    pub fn nonce(&self) -> Option<Nonce> {
        if self.id.len() == FIRST_ID_LEN {
            self.id[MARK_LEN..].first_chunk().copied()
        } else {
            None
        }
    }

    /// True if a process with one of this end's keys may have sent it. `is_made` tells if an ID was made with such a key,
    /// and `knows_sender` if the sender has a connection.
    pub fn may_be_ours(
        &self,
        is_made: impl FnOnce(&[u8]) -> bool,
        knows_sender: impl FnOnce() -> bool,
    ) -> bool {
        if self.id.len() == CONNECTION_ID_LEN {
            // The ID is one that this end has chosen: in a Retry, or for a connection.
            return self.has_token || knows_sender();
        }
        is_made(self.id)
    }
}

/// Splits bytes behind those that their first byte counts.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked((*len).into())
}

#[cfg(test)]
mod tests {
    use auth::Identity;
    use testing::Random;

    use super::*;

    fn packet(id: &[u8], token: u8) -> Vec<u8> {
        let len = id.len() as u8;
        [&[0xc3, 0, 0, 0, 1, len][..], id, &[2, 7, 7, token, 1]].concat()
    }

    #[test]
    fn packets_of_the_job_are_told_from_others() {
        let ids = Identity::of(&[7; 32].into(), 1).first_ids();
        let ours = |datagram: &[u8], knows| {
            FirstPacket::of(datagram)
                .map(|packet| packet.may_be_ours(|id| ids.is_made(id), || knows))
        };
        assert_eq!(ours(&packet(&ids.make([5; 8]), 0), false), Some(true));
        assert_eq!(ours(&packet(&[5; 20], 0), true), Some(false));
        assert_eq!(ours(&packet(&[5; 8], 1), true), Some(false));
        let chosen = [1; CONNECTION_ID_LEN];
        assert_eq!(ours(&packet(&chosen, 0), false), Some(false));
        assert_eq!(ours(&packet(&chosen, 0), true), Some(true));
        assert_eq!(ours(&packet(&chosen, 1), false), Some(true));
        // A short header, a handshake packet, another version.
        for head in [[0x43, 0, 0, 0, 1], [0xe3, 0, 0, 0, 1], [0xc3, 0, 0, 0, 2]] {
            let mut other = packet(&[5; 20], 0);
            other[..5].copy_from_slice(&head);
            assert_eq!(ours(&other, false), None);
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        for seed in testing::seeds(2000) {
            let mut random = Random::new(seed);
            let mut bytes: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
            let head = [0xc0, 0, 0, 0, 1];
            let kept = bytes.len().min(head.len());
            bytes[..kept].copy_from_slice(&head[..kept]);
            if let Some(packet) = FirstPacket::of(&bytes) {
                assert!(packet.id.len() + 8 <= bytes.len());
            }
        }
    }
}
