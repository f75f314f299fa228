//! Datagrams of strangers that are dropped, by the process or by its filter in the kernel ([`Strangers`]).

use std::net::SocketAddr;
use std::time::Instant;

use rail::Refusal;

use crate::endpoint::EndpointDriver;
use crate::first_packet::FirstPacket;
use crate::reports::QuicReport;
use crate::socket::Socket;
use crate::strangers::FLOOD_ENDS;
#[cfg(doc)]
use crate::strangers::Strangers;

impl EndpointDriver {
    /// True if a datagram is a stranger's and is to be dropped.
    pub(super) fn is_strange(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) -> bool {
        let has_mark = self.strangers.has_mark(datagram);
        let Some(packet) = FirstPacket::of(datagram) else {
            return !has_mark && self.count_stranger(from, true, now);
        };
        let nonce = packet.nonce();
        if nonce.is_some_and(|nonce| self.strangers.is_denied(nonce)) {
            return self.count_stranger(from, true, now);
        }
        let is_repeated = nonce.is_some_and(|nonce| self.strangers.is_repeated(nonce, now));
        let knows_sender =
            || self.connections.values().any(|one| one.protocol.remote_address() == from);
        let is_made = |id: &[u8]| self.keys.maker(id).is_some();
        if has_mark && !is_repeated && packet.may_be_ours(is_made, knows_sender) {
            if let Some(nonce) = nonce {
                self.strangers.note_first(nonce, now);
            }
            return false;
        }
        let is_flood = self.count_stranger(from, !has_mark, now);
        if let Some(nonce) = nonce.filter(|_| is_repeated)
            && self.strangers.deny(nonce)
        {
            self.filter_sockets();
        }
        is_flood || self.has_many_pending()
    }

    /// Reports a stranger that was dropped, unless other reports wait.
    pub(super) fn note_strange(&mut self, from: SocketAddr) {
        if self.reports.is_empty() {
            self.note_refusal(from, Refusal::TooMany);
        }
    }

    /// Counts a datagram of a stranger; returns true if there is a flood. `is_filtered` is true if the filter in the
    /// kernel drops datagrams of this kind.
    fn count_stranger(&mut self, from: SocketAddr, is_filtered: bool, now: Instant) -> bool {
        if self.strangers.count(from, is_filtered, now) {
            self.filter_sockets();
        }
        self.strangers.is_flood()
    }

    /// Gives the sockets the filter of a flood, if there is one.
    pub(super) fn filter_sockets(&mut self) {
        let Some(filter) = self.strangers.filter() else { return };
        let attached = filter.and_then(|filter| {
            let attach = |socket: &Socket| socket.attach(&filter);
            self.sockets.iter().try_for_each(attach).map_err(|error| error.to_string())
        });
        self.strangers.set_filtered(attached);
    }

    /// Looks whether a flood goes on, and tells the user once.
    pub(super) fn review_strangers(&mut self, now: Instant) {
        let Some(rate) = self.strangers.rate(now) else { return };
        if rate < FLOOD_ENDS {
            self.strangers.end_flood();
            self.sockets.iter().for_each(Socket::detach);
        } else if let Some(reason) = self.strangers.text(rate) {
            self.reports.push_back(QuicReport::Hampered { reason });
        }
    }
}
