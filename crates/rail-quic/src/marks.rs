//! Marks in connection IDs, by which packets for this process are told from those of strangers at the first glance.
//!
//! A packet of an open connection has an ID that this end has chosen: it begins with a mark that this process has drawn. A
//! first packet has an ID that its sender has chosen: it begins with a mark that follows from the key that both have
//! ([`auth::FirstIds::mark`]). Comparing takes no hash, and the kernel can do it ([`Marks::filter`]). Who overhears a
//! packet knows its mark, so a mark proves nothing; it keeps those out who cannot overhear.

use auth::{FIRST_ID_LEN, MARK_LEN};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};
use socket2::SockFilter;

/// The marks of packets that may be for this process.
pub(super) struct Marks {
    own: OwnMark,
    keys: Vec<[u8; MARK_LEN]>,
}

/// First bytes of the connection IDs of one endpoint.
pub(super) type OwnMark = [u8; 2];

/// First bytes of the nonce in the ID of a first packet, by which repeated packets are told.
pub(super) type Nonce = [u8; 4];

impl Marks {
    pub fn new(own: OwnMark, keys: impl Iterator<Item = [u8; MARK_LEN]>) -> Self {
        Self { own, keys: keys.collect() }
    }

    /// True if a datagram begins with a packet that has a mark.
    pub fn are_on(&self, datagram: &[u8]) -> bool {
        let Some((first, rest)) = datagram.split_first() else { return false };
        if first & LONG_HEADER == 0 {
            return rest.starts_with(&self.own);
        }
        // Version, and the length of the ID.
        let Some((head, id)) = rest.split_at_checked(5) else { return false };
        match usize::from(head[4]) {
            CONNECTION_ID_LEN => id.starts_with(&self.own),
            FIRST_ID_LEN if id.len() >= MARK_LEN + size_of::<Nonce>() => {
                self.keys.iter().any(|mark| id.starts_with(mark))
            }
            _ => false,
        }
    }

    /// Returns a filter for a socket that drops datagrams without a mark, and first packets with a nonce that begins
    /// with one of `denied`. It lets one in [`SAMPLED`] of these pass, so that the process knows whether more come.
    /// `None` if there are more keys than a filter takes.
    pub fn filter(&self, denied: &[Nonce], samples: bool) -> Option<Vec<SockFilter>> {
        let own = u16::from_be_bytes(self.own).into();
        // One comparison and one jump for each.
        let (denied_len, keys_len) = (2 * denied.len() as u32, 2 * self.keys.len() as u32);
        let mut program = vec![
            load(BYTE, PAYLOAD),
            when(bpf(libc::BPF_JSET), LONG_HEADER.into(), 4, 0),
            // Short header.
            load(HALF, PAYLOAD + 1),
            when(EQUAL, own, 0, 1),
            give(ACCEPT),
            skip(FROM_SHORT + denied_len + keys_len),
            // Long header: the length of the ID says who has chosen it.
            load(BYTE, PAYLOAD + 5),
            when(EQUAL, FIRST_ID_LEN as u32, 5, 0),
            when(EQUAL, CONNECTION_ID_LEN as u32, 0, 3),
            load(HALF, PAYLOAD + 6),
            when(EQUAL, own, 0, 1),
            give(ACCEPT),
            skip(FROM_LONG + denied_len + keys_len),
            load(WORD, PAYLOAD + 6 + MARK_LEN as u32),
        ];
        for (index, nonce) in denied.iter().enumerate() {
            program.push(when(EQUAL, u32::from_be_bytes(*nonce), 0, 1));
            let rest = denied_len - 2 * index as u32 - 2;
            program.push(skip(rest + 1 + keys_len));
        }
        program.push(load(WORD, PAYLOAD + 6));
        for mark in &self.keys {
            program.push(when(EQUAL, u32::from_be_bytes(*mark), 0, 1));
            program.push(give(ACCEPT));
        }
        // A stranger's.
        if samples {
            program.extend([
                load(WORD, RANDOM),
                when(bpf(libc::BPF_JSET), SAMPLED - 1, 1, 0),
                give(ACCEPT),
            ]);
        }
        program.push(give(DROP));
        (program.len() <= LEN_MAX).then_some(program)
    }
}

/// Maker of the connection IDs of one endpoint, which begin with its mark.
pub(super) struct MarkedIds {
    mark: OwnMark,
    random: RandomConnectionIdGenerator,
}

impl MarkedIds {
    pub fn new(mark: OwnMark) -> Self {
        Self { mark, random: RandomConnectionIdGenerator::new(CONNECTION_ID_LEN - mark.len()) }
    }
}

impl ConnectionIdGenerator for MarkedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&[&self.mark, &self.random.generate_cid()[..]].concat())
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if id.starts_with(&self.mark) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Draws the mark of an endpoint.
pub(super) fn draw() -> OwnMark {
    let mut mark = OwnMark::default();
    let random = RandomConnectionIdGenerator::new(mark.len()).generate_cid();
    mark.copy_from_slice(&random);
    mark
}

/// Loads `size` bytes at `offset` from the UDP header.
fn load(size: u32, offset: u32) -> SockFilter {
    SockFilter::new(bpf(libc::BPF_LD | size | libc::BPF_ABS), 0, 0, offset)
}

/// Skips `yes` instructions if the comparison of what was loaded with `value` holds, or else `no`.
fn when(comparison: u16, value: u32, yes: u8, no: u8) -> SockFilter {
    SockFilter::new(bpf(libc::BPF_JMP | libc::BPF_K) | comparison, yes, no, value)
}

fn skip(count: u32) -> SockFilter {
    SockFilter::new(bpf(libc::BPF_JMP | libc::BPF_JA), 0, 0, count)
}

/// Ends with the number of bytes that the socket gets.
fn give(bytes: u32) -> SockFilter {
    SockFilter::new(bpf(libc::BPF_RET | libc::BPF_K), 0, 0, bytes)
}

const fn bpf(code: u32) -> u16 {
    code as u16
}

/// Half the usual length of a connection ID; every packet carries it.
pub(super) const CONNECTION_ID_LEN: usize = 5;
/// One in so many datagrams of strangers passes the filter; a power of two.
pub(super) const SAMPLED: u32 = 256;
/// Bit in the first byte of a QUIC packet.
const LONG_HEADER: u8 = 0x80;

const EQUAL: u16 = bpf(libc::BPF_JEQ);
const BYTE: u32 = libc::BPF_B;
const HALF: u32 = libc::BPF_H;
const WORD: u32 = libc::BPF_W;
/// Filters of UDP sockets begin at the UDP header.
const PAYLOAD: u32 = 8;
/// Offset at which the kernel gives a random number.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
const ACCEPT: u32 = u32::MAX;
const DROP: u32 = 0;
/// Instructions between the two jumps to the end and their target, without those of nonces and keys.
const FROM_SHORT: u32 = 9;
const FROM_LONG: u32 = 2;
/// Maximum length of a program (`BPF_MAXINSNS`).
const LEN_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use socket2::SockRef;
    use testing::Random;

    use super::*;

    /// Returns datagrams of all kinds: random ones, and some that miss a mark in one byte or end in the middle of it.
    fn datagram(random: &mut Random, own: OwnMark, keys: &[[u8; MARK_LEN]]) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
        let mut put = |at: usize, word: &[u8]| {
            for (byte, &new) in bytes.iter_mut().skip(at).zip(word) {
                *byte = new;
            }
        };
        match random.below(6) {
            0 => put(0, &[0x43, own[0], own[1]]),
            1 => put(0, &[0xc3, 0, 0, 0, 1, CONNECTION_ID_LEN as u8, own[0], own[1]]),
            2 | 3 if !keys.is_empty() => {
                let key = keys[random.below(keys.len() as u64) as usize];
                put(0, &[&[0xc3, 0, 0, 0, 1, FIRST_ID_LEN as u8][..], &key, &NONCE].concat());
                if random.below(2) == 0 {
                    put(10, &[random.next() as u8]);
                }
            }
            _ => {}
        }
        if random.below(3) == 0 && !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        bytes
    }

    fn has_denied_nonce(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first & LONG_HEADER != 0)
            && datagram.get(5) == Some(&(FIRST_ID_LEN as u8))
            && datagram.get(10..14) == Some(&NONCE)
    }

    #[test]
    fn the_kernel_tells_packets_as_this_process_does() {
        let own = [7, 9];
        for keys in [&[][..], &[[1, 2, 3, 4]], &[[1, 2, 3, 4], [0xff; 4], [0; 4]]] {
            let marks = Marks::new(own, keys.iter().copied());
            for denied in [&[][..], &[NONCE], &[[0; 4], NONCE, [1; 4]]] {
                let [from, to] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
                let filter = marks.filter(denied, false).unwrap();
                if let Err(error) = SockRef::from(&to).attach_filter(&filter) {
                    println!("skip the_kernel_tells_packets_as_this_process_does: {error}");
                    return;
                }
                to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let mut random = Random::new(denied.len() as u64);
                let mut passed = 0;
                for _ in 0..3000 {
                    let bytes = datagram(&mut random, own, keys);
                    let passes =
                        marks.are_on(&bytes) && (denied.is_empty() || !has_denied_nonce(&bytes));
                    // Behind each comes one that passes.
                    let last = [0x43, own[0], own[1], 0xee];
                    from.send_to(&bytes, to.local_addr().unwrap()).unwrap();
                    from.send_to(&last, to.local_addr().unwrap()).unwrap();
                    let mut room = [0; 64];
                    let mut receive =
                        || to.recv(&mut room).map(|len| room[..len].to_vec()).unwrap();
                    if passes {
                        assert_eq!(receive(), bytes);
                        passed += 1;
                    }
                    assert_eq!(receive(), last, "{bytes:x?}");
                }
                assert!((300..2700).contains(&passed), "{passed}");
            }
        }
    }

    #[test]
    fn own_ids_have_the_mark_and_others_are_invalid() {
        let mut ids = MarkedIds::new([7, 9]);
        let id = ids.generate_cid();
        assert!(id.len() == CONNECTION_ID_LEN && ids.validate(&id).is_ok());
        assert!(ids.validate(&ConnectionId::new(&[7, 8, 1, 2, 3])).is_err());
    }

    #[test]
    fn no_filter_is_longer_than_the_kernel_takes() {
        let marks = |count: u32| Marks::new([0; 2], (0..count).map(u32::to_be_bytes));
        assert!(marks(2000).filter(&[[1; 4]; 16], true).is_some());
        assert!(marks(2040).filter(&[[1; 4]; 16], true).is_none());
    }

    const NONCE: Nonce = [5, 6, 7, 8];
}
