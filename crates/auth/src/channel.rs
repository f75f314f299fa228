//! The bytes of a connection, unencrypted or through TLS; users of a channel need not know which.
//!
//! Written bytes are encrypted without copying in records of up to 16 KiB, as many as one call sends. Each is offered
//! to the socket before more is encrypted, so the bytes behind a full socket are bounded by [`ENCRYPTED_MAX`], and
//! the written memory is free. Reading takes many records from the socket in one call. No complete record stays
//! behind unless the reader had no room.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;

use connect::Refusal;
use rail::Unshared;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::credentials::Binding;
use crate::identity::{ALPN, Identity};

/// A bidirectional byte channel.
#[derive(Debug)]
pub struct Channel {
    /// The connected socket.
    pub socket: Unshared<TcpStream>,
    /// True if each write ends a packet, which the next write does not share.
    pub ends_packets: bool,
    tls: Option<Box<Tls>>,
}

impl Channel {
    /// Creates an unencrypted channel.
    pub fn new(socket: TcpStream) -> Self {
        Self { socket: Unshared::new(socket), ends_packets: false, tls: None }
    }

    /// Encrypts from here on, as the initiator.
    pub fn encrypt_as_client(&mut self, identity: &Identity) -> Result<(), Refusal> {
        let connection = ClientConnection::new(identity.client(), Identity::name());
        self.encrypt(connection.map_err(refusal_of)?.into());
        Ok(())
    }

    /// Encrypts from here on, as the acceptor.
    pub fn encrypt_as_server(&mut self, identity: &Identity) -> Result<(), Refusal> {
        let connection = ServerConnection::new(identity.server());
        self.encrypt(connection.map_err(refusal_of)?.into());
        Ok(())
    }

    fn encrypt(&mut self, connection: Connection) {
        let tls = self.tls.insert(Box::new(Tls::new(connection)));
        // The next reader finds out if the other end is gone.
        let _ = tls.flush(&mut Unsignalled(&self.socket, false));
    }

    /// Continues the key exchange; returns true when it is complete.
    pub fn agree(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.agree(&mut Unsignalled(&self.socket, false)),
        }
    }

    /// Returns the channel binding, which proofs cover: both ends share one connection, and no man in the middle has
    /// one with each (RFC 9266).
    pub fn binding(&self) -> Result<Binding, Refusal> {
        match &self.tls {
            None => Ok([0; 32]),
            Some(tls) => tls.binding(),
        }
    }

    /// True if received bytes are buffered here that the socket does not report.
    pub fn holds_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.holds_more())
    }

    /// True if all written bytes have gone to the kernel.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.connection.wants_write())
    }

    /// Offers the kernel the bytes that it did not take before; returns true if it took any.
    pub fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(false),
            Some(tls) => tls.flush(&mut Unsignalled(&self.socket, self.ends_packets)),
        }
    }

    /// Reads into `slices`, one after the other, as much as the socket has. Zero at the end of the stream.
    ///
    /// # Errors
    /// As for [`Read::read`]; nothing was read then.
    pub fn read_slices(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read_vectored(slices),
            Some(tls) => {
                let socket = &mut Unsignalled(&self.socket, false);
                let mut count = 0;
                for slice in slices {
                    // What was read counts; the next call finds the same error.
                    let read = match tls.read(socket, slice) {
                        Err(_) if count > 0 => break,
                        read => read?,
                    };
                    count += read;
                    if read < slice.len() {
                        break;
                    }
                }
                Ok(count)
            }
        }
    }

    /// Writes as much of `slices` as the socket takes.
    pub fn write_slices(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => Unsignalled(&self.socket, self.ends_packets).write_vectored(slices),
            Some(tls) => {
                tls.write_slices(&mut Unsignalled(&self.socket, self.ends_packets), slices)
            }
        }
    }
}

/// A socket whose writes to a closed peer return an error and raise no SIGPIPE in the application. Each write may end
/// a packet.
struct Unsignalled<'a>(&'a TcpStream, bool);

impl Read for Unsignalled<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.0;
        socket.read(room)
    }
}

impl Write for Unsignalled<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut none = SendAncillaryBuffer::default();
        let ends = if self.1 { SendFlags::EOR } else { SendFlags::empty() };
        Ok(sendmsg(self.0, slices, &mut none, SendFlags::NOSIGNAL | ends)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Channel {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(room),
            Some(tls) => tls.read(&mut Unsignalled(&self.socket, false), room),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_slices(&mut [IoSlice::new(bytes)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Channel::flush(self).map(|_| ())
    }
}

/// One end of an encrypted connection.
#[derive(Debug)]
struct Tls {
    connection: Connection,
    /// Received and not yet decrypted bytes: `raw[start..end]`.
    raw: Vec<u8>,
    start: usize,
    end: usize,
    /// True if decrypted bytes remain for which the reader had no room.
    has_more: bool,
}

impl Tls {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(ENCRYPTED_MAX));
        // Before authentication no more memory than the handshake needs.
        let raw = vec![0; RAW_FIRST];
        Self { connection, raw, start: 0, end: 0, has_more: false }
    }

    fn agree<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        while self.connection.is_handshaking() {
            if self.start == self.end
                && let Err(error) = self.fetch(socket)
            {
                return if error.kind() == ErrorKind::WouldBlock { Ok(false) } else { Err(error) };
            }
            let decrypted = self.decrypt();
            // Handshake messages, or an alert.
            let flushed = self.flush(socket);
            decrypted?;
            flushed?;
        }
        Ok(true)
    }

    fn binding(&self) -> Result<Binding, Refusal> {
        if self.connection.alpn_protocol() != Some(ALPN) {
            return Err(Refusal::Protocol);
        }
        self.connection.export_keying_material([0; 32], BINDING, None).map_err(refusal_of)
    }

    fn holds_more(&self) -> bool {
        self.has_more || self.start < self.end
    }

    fn read<S: Read + Write>(&mut self, socket: &mut S, room: &mut [u8]) -> io::Result<usize> {
        if !self.agree(socket)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut count = self.take(room)?;
        while count < room.len() {
            if self.start == self.end {
                if count > 0 {
                    break;
                }
                self.raw.resize(RAW_MAX, 0);
                if let Err(error) = self.fetch(socket) {
                    let is_end = error.kind() == ErrorKind::UnexpectedEof;
                    return if is_end { Ok(0) } else { Err(error) };
                }
            }
            self.decrypt()?;
            count += self.take(&mut room[count..])?;
        }
        Ok(count)
    }

    /// Refills the empty buffer from the socket, in one call.
    fn fetch<S: Read>(&mut self, socket: &mut S) -> io::Result<()> {
        match socket.read(&mut self.raw)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                (self.start, self.end) = (0, count);
                Ok(())
            }
        }
    }

    /// Decrypts part of the received bytes, little more than a record.
    fn decrypt(&mut self) -> io::Result<()> {
        let mut rest = &self.raw[self.start..self.end];
        match self.connection.read_tls(&mut rest)? {
            // The other end has ended the stream, which no honest peer does.
            0 => return Err(ErrorKind::ConnectionAborted.into()),
            count => self.start += count,
        }
        let state = self.connection.process_new_packets();
        self.has_more = state
            .map_err(|error| io::Error::other(CorruptRecord(error)))?
            .plaintext_bytes_to_read()
            > 0;
        Ok(())
    }

    /// Copies decrypted bytes to the reader.
    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !self.has_more {
            return Ok(0);
        }
        let mut count = 0;
        while count < room.len() {
            match self.connection.reader().read(&mut room[count..]) {
                Ok(0) => break,
                Ok(taken) => count += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.has_more = count == room.len();
        Ok(count)
    }

    fn flush<S: Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        let mut moved = false;
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(count) => moved |= count > 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved)
    }

    fn write_slices<S: Write>(
        &mut self,
        socket: &mut S,
        mut slices: &mut [IoSlice<'_>],
    ) -> io::Result<usize> {
        self.flush(socket)?;
        let mut count = 0;
        while !self.connection.wants_write() && !slices.is_empty() {
            let taken = self.connection.writer().write_vectored(slices)?;
            count += taken;
            IoSlice::advance_slices(&mut slices, taken);
            self.flush(socket)?;
        }
        if count > 0 || slices.is_empty() { Ok(count) } else { Err(ErrorKind::WouldBlock.into()) }
    }
}

/// The received bytes are not what the other end has encrypted.
#[derive(Debug, thiserror::Error)]
#[error("what came is not what the peer has encrypted: {0}")]
struct CorruptRecord(rustls::Error);

/// Returns the refusal in an error of a [`Channel`], if the network is not the cause.
pub fn refusal_in(error: &io::Error) -> Option<Refusal> {
    let CorruptRecord(error) = error.get_ref()?.downcast_ref()?;
    Some(refusal_of(error.clone()))
}

/// Converts a TLS error to the refusal that blames the other end, as far as this end can tell.
fn refusal_of(error: rustls::Error) -> Refusal {
    use rustls::{AlertDescription as Alert, Error};
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Refusal::Secret,
        // The other end refuses our key, which is not that of its job.
        Error::AlertReceived(Alert::AccessDenied | Alert::BadCertificate) => Refusal::Secret,
        Error::DecryptError | Error::AlertReceived(Alert::BadRecordMac | Alert::DecryptError) => {
            Refusal::Altered
        }
        _ => Refusal::Protocol,
    }
}

/// The label of RFC 9266, "tls-exporter".
const BINDING: &[u8] = b"EXPORTER-Channel-Binding";
/// Limit on encrypted bytes that the socket has not taken. A chunk of 64 KiB leaves together with its header, which
/// otherwise would cost a call, a packet and a wake-up at the other end.
const ENCRYPTED_MAX: usize = 65 << 10;
/// Size of one read from the socket: during the handshake, and for records.
const RAW_FIRST: usize = 2 << 10;
const RAW_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A simulated network with two directions, which takes and gives any number of bytes.
    #[derive(Default)]
    struct Network {
        bytes: [Vec<u8>; 2],
        /// Numbers of bytes that it takes and gives, chosen at random from a seed.
        whims: Vec<usize>,
        state: u64,
    }

    /// The connection of one end to the network.
    struct Wire<'a> {
        network: &'a mut Network,
        side: usize,
    }

    impl Network {
        fn random_count(&mut self) -> usize {
            // Knuth's MMIX generator.
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.whims[(self.state >> 33) as usize % self.whims.len()]
        }
    }

    impl Read for Wire<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let random_count = self.network.random_count();
            let bytes = &mut self.network.bytes[self.side];
            match random_count.min(bytes.len()).min(room.len()) {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => {
                    room[..count].copy_from_slice(&bytes[..count]);
                    bytes.drain(..count);
                    Ok(count)
                }
            }
        }
    }

    impl Write for Wire<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.network.random_count().min(bytes.len()) {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => {
                    self.network.bytes[1 - self.side].extend(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns two ends after their key exchange.
    fn agreed(network: &mut Network) -> [Tls; 2] {
        let identity = Identity::of(&[1; 32].into(), 2);
        let client = ClientConnection::new(identity.client(), Identity::name()).unwrap();
        let server = ServerConnection::new(identity.server()).unwrap();
        let mut ends = [Tls::new(client.into()), Tls::new(server.into())];
        let mut looks = 0;
        while ends.iter().any(|end| end.connection.is_handshaking()) {
            for (side, end) in ends.iter_mut().enumerate() {
                end.flush(&mut Wire { network, side }).unwrap();
                end.agree(&mut Wire { network, side }).unwrap();
            }
            looks += 1;
            assert!(looks < 100_000, "no agreement");
        }
        ends
    }

    /// Carries pieces from one end to the other, whose reads have `room` bytes.
    fn carry(network: &mut Network, ends: &mut [Tls; 2], pieces: &[usize], room: usize) {
        let sent: Vec<u8> = (0..pieces.iter().sum()).map(|i: usize| ((i * 7) >> 3) as u8).collect();
        let (mut written, mut piece, mut received) = (0, 0, Vec::<u8>::new());
        let mut room = vec![0; room];
        let mut looks = 0;
        while received.len() < sent.len() {
            let [from, to] = ends;
            if piece < pieces.len() {
                let end: usize = pieces[..=piece].iter().sum();
                let rest = &sent[written..end];
                let (head, body) = rest.split_at(rest.len() / 3);
                let mut slices = [IoSlice::new(head), IoSlice::new(body)];
                match from.write_slices(&mut Wire { network, side: 0 }, &mut slices) {
                    Ok(count) => written += count,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                piece += usize::from(written == end);
            } else {
                from.flush(&mut Wire { network, side: 0 }).unwrap();
            }
            match to.read(&mut Wire { network, side: 1 }, &mut room) {
                Ok(count) => received.extend(&room[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert!(!to.holds_more(), "bytes stay behind of which no socket knows");
                }
            }
            assert_eq!(received[..], sent[..received.len()]);
            looks += 1;
            assert!(looks < 1_000_000, "{} of {} bytes", received.len(), sent.len());
        }
    }

    #[test]
    fn bytes_behind_a_full_socket_are_bounded() {
        let mut network = Network { whims: vec![1 << 30], ..Network::default() };
        let mut ends = agreed(&mut network);
        network.whims = vec![0];
        let bytes = vec![5; 1 << 20];
        let mut wire = Wire { network: &mut network, side: 0 };
        let taken = ends[0].write_slices(&mut wire, &mut [IoSlice::new(&bytes)]).unwrap();
        assert_eq!(taken, ENCRYPTED_MAX);
        let refused = ends[0].write_slices(&mut wire, &mut [IoSlice::new(&bytes)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        network.whims = vec![1 << 30];
        let mut wire = Wire { network: &mut network, side: 0 };
        assert!(ends[0].flush(&mut wire).unwrap());
        assert!(network.bytes[1].len() < ENCRYPTED_MAX + 1000);
        assert!(!network.bytes[1].windows(64).any(|window| window == [5; 64]), "in clear");
    }

    #[test]
    fn keys_are_renewed_under_way() {
        let mut network = Network { whims: vec![1 << 30, 100, 0], ..Network::default() };
        let mut ends = agreed(&mut network);
        for _ in 0..5 {
            carry(&mut network, &mut ends, &[100, 50_000], 7000);
            ends[0].connection.refresh_traffic_keys().unwrap();
            carry(&mut network, &mut ends, &[30_000, 3], 7000);
            ends.reverse();
            network.bytes.reverse();
        }
    }

    #[test]
    fn a_changed_bit_and_a_repeated_record_end_the_connection() {
        for attack in 0..2 {
            let mut network = Network { whims: vec![1 << 30], ..Network::default() };
            let mut ends = agreed(&mut network);
            carry(&mut network, &mut ends, &[1000], 2000);
            let mut wire = Wire { network: &mut network, side: 0 };
            ends[0].write_slices(&mut wire, &mut [IoSlice::new(&[1; 100])]).unwrap();
            if attack == 0 {
                network.bytes[1][50] ^= 4;
            } else {
                network.bytes[1].extend_from_within(..);
            }
            let mut wire = Wire { network: &mut network, side: 1 };
            let mut room = [0; 1000];
            let error = (0..2).find_map(|_| ends[1].read(&mut wire, &mut room).err()).unwrap();
            assert_eq!(refusal_in(&error), Some(Refusal::Altered), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: testing::cases(64), failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that bytes arrive complete and in order for any split by the network.
        #[test]
        fn any_pieces_pass_any_network(
            pieces in proptest::collection::vec(prop_oneof![1usize..40, 16_000..17_000usize, 1..200_000usize], 1..6),
            whims in proptest::collection::vec(prop_oneof![Just(0usize), 1..9000usize, Just(1 << 30)], 1..12),
            room in 1usize..100_000,
        ) {
            let whims = whims.into_iter().chain([1000]).collect();
            let mut network = Network { whims, ..Network::default() };
            let mut ends = agreed(&mut network);
            carry(&mut network, &mut ends, &pieces, room);
        }
    }
}
