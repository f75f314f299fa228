//! The open links of the rail: reading, writing and closing their connections.

use std::net::TcpStream;
use std::time::Duration;

use auth::{Channel, Handshake};
use connect::Agreed;
use netpath::{DropWatch, LONG_FRAME, Pacing, RelayInfo, path_probe};
use rail::{Event, Fault};
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use tracing::debug;
use wire::PeerId;

use crate::open::Open;
use crate::shared_paths::Prefix;
use crate::stream::{Arrival, FrameStream, Received};
use crate::{CAPABILITIES, MEASURED_AT_ONCE, PADDING_OF_ALL, SHORT_LIFE, Socket, TcpRail};

impl TcpRail {
    pub(super) fn open(
        &mut self,
        key: u64,
        agreed: Agreed,
        (channel, verdict): (Channel, Option<Handshake>),
        relay_info: RelayInfo,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let peer = agreed.peer();
        let data = epoll::EventData::new_u64(key);
        // Fails only for lack of kernel memory; the peer's timeout then finds the link silent.
        let _ = epoll::modify(&self.epoll, &channel.socket, data, epoll::EventFlags::IN);
        if let Some(readiness_probe) = &self.readiness_probe {
            readiness_probe.add(&channel.socket);
        }
        let pacing = Pacing::new(&channel.socket, relay_info, &self.knowledge, &self.congestion);
        // Cannot fail for a TCP socket; otherwise a vanished host is noticed at the next send.
        let _ = if pacing.is_wan {
            path_probe::watch_wan(&channel.socket)
        } else {
            path_probe::watch(&channel.socket, self.silence())
        };
        let cost = pacing.cost();
        if let (Ok(here), Ok(there)) = (channel.socket.local_addr(), channel.socket.peer_addr()) {
            let (is_wan, round_trip_us) =
                (pacing.is_wan, cost.map(|cost| cost.round_trip_ns() / 1000));
            debug!(peer = peer.0, %here, %there, is_wan, round_trip_us, "TCP: is connected");
        }
        // The path behind a gateway is the gateway's.
        let is_long = pacing.is_wan && relay_info.round_trip.is_zero();
        let path = channel.socket.peer_addr().ok().filter(|_| is_long).map(Prefix::of);
        if let Some(path) = path {
            let held = cost.map_or(0, |cost| cost.bytes_within(cost.round_trip_ns()));
            self.paths.add(path, key, held);
        }
        let stream = FrameStream::new(channel);
        if pacing.is_wan {
            self.next_path_probe =
                self.next_path_probe.min(self.clock.now() + path_probe::LOOK_WAN_EVERY);
        }
        let (is_backlogged, wants_write, since) = (false, false, self.clock.now());
        let mut open = Open {
            peer,
            stream,
            pacing,
            since,
            drop_watch: DropWatch::default(),
            path,
            is_backlogged,
            wants_write,
            heard: None,
            verdict,
        };
        open.update_burst();
        // With many links, paths are probed only when long frames need it.
        let measures = open.pacing.probe.is_due()
            && self.may_measure()
            && open.begin_probe(&self.knowledge, true);
        self.sockets.insert(key, Socket::Open(Box::new(open)));
        self.links.open(agreed, key);
        if measures {
            self.watch_beginning(key);
        }
        self.drop_dials(peer);
        self.unread.push(key);
        sink(Event::Up { peer, capabilities: CAPABILITIES });
        if let Some(cost) = cost {
            sink(Event::Cost { peer, cost });
        }
    }

    /// True if few links are being measured, so that a new one may be.
    pub(super) fn may_measure(&self) -> bool {
        let is_measured = |socket: &&Socket| matches!(socket, Socket::Open(open) if open.pacing.probe.is_beginning());
        let measured = self.sockets.values().filter(is_measured).count();
        measured < MEASURED_AT_ONCE && self.padding_left > PADDING_OF_ALL / 2
    }

    /// Reads one open link and reports its frames.
    pub(super) fn read(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        if open.verdict.is_some() {
            return match self.hear_verdict(key) {
                Ok(true) => self.read(key, sink),
                Ok(false) => false,
                Err(fault) => {
                    self.close(key, fault);
                    true
                }
            };
        }
        let peer = open.peer;
        let received = if open.stream.is_through() {
            open.stream.receive_rest(&mut |bytes| sink(Event::Rest { peer, bytes }))
        } else if open.stream.has_frame() {
            Received::Bytes
        } else {
            open.stream.receive()
        };
        let fault = match received {
            Received::Nothing => return false,
            Received::Bytes => {
                self.hot_socket.note_read(key);
                let (mut long_bytes, polls) = (0, self.polls);
                let heard = &mut open.heard;
                let mut show = |arrival: Arrival<'_>| match arrival {
                    Arrival::Frame(bytes) => {
                        *heard = Some(polls);
                        long_bytes += if bytes.len() < LONG_FRAME { 0 } else { bytes.len() as u64 };
                        sink(Event::Frame { peer, bytes });
                    }
                    Arrival::Begun { bytes, len, taken } => {
                        long_bytes += len as u64;
                        sink(Event::Begun { peer, bytes, len, taken });
                    }
                };
                match open.stream.deliver(&mut show) {
                    Ok(_) => {
                        if let Some(path) = open.path.filter(|_| long_bytes > 0) {
                            self.paths.note_received(path, long_bytes);
                        }
                        // The peer measures its direction; only this side can measure the other.
                        if std::mem::take(&mut open.stream.padded)
                            && open.begin_probe(&self.knowledge, false)
                        {
                            if let Some(cost) = open.pacing.cost() {
                                sink(Event::Cost { peer, cost });
                            }
                            self.watch_beginning(key);
                        }
                        return true;
                    }
                    Err(fault) => fault,
                }
            }
            Received::End(fault) => fault,
        };
        self.close(key, fault);
        true
    }

    /// Watches a link whose measurement or cwnd warm-up begins.
    pub(super) fn watch_beginning(&mut self, key: u64) {
        if let Some(Socket::Open(open)) = self.sockets.get_mut(&key)
            && open.pacing.probe.is_warming_up()
            && open.drop_watch.begin()
        {
            self.look_after_long(key);
        }
        self.watch(key);
    }

    /// Looks at an unwatched link, and watches it if it needs further looks.
    pub(super) fn look_after_long(&mut self, key: u64) {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return };
        // A changed cost is reported with the next look.
        if open.look_after_long(self.clock.now()).0 {
            self.qdisc_drops.add(key);
            self.unfinished += usize::from(open.is_unfinished());
        }
    }

    /// Asks epoll for EPOLLOUT if a link has bytes to send, and updates the counters.
    pub(super) fn watch(&mut self, key: u64) {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return };
        let is_backlogged = !open.stream.is_flushed();
        if is_backlogged != open.is_backlogged {
            open.is_backlogged = is_backlogged;
            self.backlogged = if is_backlogged { self.backlogged + 1 } else { self.backlogged - 1 };
        }
        let wants_write = is_backlogged || open.pacing.probe.is_running();
        if wants_write != open.wants_write {
            open.wants_write = wants_write;
            self.writing = if wants_write { self.writing + 1 } else { self.writing - 1 };
            let out = if wants_write { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(key);
            let socket = &open.stream.channel.socket;
            // Fails only for lack of kernel memory; the next post tries again.
            let _ = epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | out);
        }
    }

    /// Marks a link with more frames to be read at the next poll.
    pub(super) fn note_unread(&mut self, key: u64) {
        if let Some(Socket::Open(open)) = self.sockets.get(&key)
            && open.stream.has_more()
            && !self.unread.contains(&key)
        {
            self.unread.push(key);
        }
    }

    /// Closes an open link, whose end the poll then reports.
    pub(super) fn close(&mut self, key: u64, fault: Fault) {
        if let Some(peer) = self.forget(key) {
            self.links.remove(peer);
            self.ended.push_back((peer, fault));
        }
    }

    /// Closes the connection of an open link; returns its peer.
    pub(super) fn forget(&mut self, key: u64) -> Option<PeerId> {
        let Some(Socket::Open(mut open)) = self.sockets.remove(&key) else { return None };
        open.keep(&self.knowledge);
        if let Some(path) = open.path {
            self.paths.remove(path, key);
        }
        let was_reopened = self.links.generation(open.peer) > 1;
        if open.pacing.is_wan && was_reopened && self.clock.now() - open.since < SHORT_LIFE {
            // Short-lived links indicate that packets of full length are lost silently (RFC 2923, §2.1).
            self.short_segments.insert(open.peer);
        }
        self.backlogged -= usize::from(open.is_backlogged);
        self.writing -= usize::from(open.wants_write);
        Some(open.peer)
    }

    /// Returns the allowed silence of hosts. A rail with a network of its own allows less, because other rails
    /// remain.
    pub(super) fn silence(&self) -> Duration {
        if self.network.is_some() { path_probe::SILENCE_NEARBY } else { path_probe::SILENCE }
    }

    /// Closes links to hosts that have vanished with bytes in flight.
    pub(super) fn close_vanished(&mut self) {
        let silence = self.silence();
        let vanished = self.sockets.iter().filter_map(|(&key, socket)| match socket {
            Socket::Open(open) => {
                let silence = if open.pacing.is_wan { path_probe::SILENCE_WAN } else { silence };
                Some((key, path_probe::has_vanished(&open.stream.channel.socket, silence)?))
            }
            Socket::PendingConnection(_) => None,
        });
        let vanished: Vec<_> = vanished.collect();
        for (key, silence) in vanished {
            self.close(key, Fault::Silent(path_probe::text(silence), silence));
        }
    }

    /// Sends the queued bytes of one link.
    pub(super) fn write(&mut self, key: u64, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get_mut(&key) else { return false };
        let peer = open.peer;
        match open.stream.flush(&mut |token| sink(Event::Sent { peer, token })) {
            Ok(mut moved) => {
                let is_invited = open.stream.invite(self.polls);
                moved |= is_invited;
                if is_invited {
                    if open.pacing.look(&open.stream.channel.socket, true)
                        && let Some(cost) = open.pacing.cost()
                    {
                        sink(Event::Cost { peer, cost });
                        open.update_burst();
                    }
                    sink(Event::Room { peer });
                }
                let left = if open.pacing.probe.is_behind() {
                    // Links to gateways share the budget of one.
                    let left = &mut self.padding_left_behind;
                    *left = open.pacing.probe.allowance().min(*left);
                    left
                } else {
                    &mut self.padding_left
                };
                // Refused frames, and answers to what has just arrived, go before more padding.
                if open.pacing.probe.is_running()
                    && !is_invited
                    && open.heard != Some(self.polls)
                    && let Some(cost) = open.pad(left, &self.knowledge, self.clock.now())
                {
                    sink(Event::Cost { peer, cost });
                    moved = true;
                }
                self.watch(key);
                moved
            }
            Err(error) => {
                self.close(key, Fault::Lost(error.to_string()));
                true
            }
        }
    }

    /// Reports room on links that refused a frame although they have room.
    pub(super) fn invite_deferred(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = false;
        for key in std::mem::take(&mut self.deferred) {
            if let Some(Socket::Open(open)) = self.sockets.get_mut(&key)
                && open.stream.invite(self.polls)
            {
                sink(Event::Room { peer: open.peer });
                moved = true;
            }
        }
        moved
    }

    /// True if the window of a link's path holds back a long frame. The link is watched until it is invited.
    pub(super) fn holds(&mut self, key: u64) -> bool {
        let Some(Socket::Open(open)) = self.sockets.get(&key) else { return false };
        let Some(path) = open.path else { return false };
        let find = |key| connection(&self.sockets, key);
        if self.paths.admit(path, key, (&find, self.polls)) {
            return false;
        }
        if let Some(Socket::Open(open)) = self.sockets.get_mut(&key) {
            open.stream.refused = true;
            if open.drop_watch.begin() {
                self.qdisc_drops.add(key);
            }
        }
        true
    }

    /// Reports room on links whose frames the window of a path held back.
    pub(super) fn invite_held(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut moved = false;
        let find = |key| connection(&self.sockets, key);
        for key in self.paths.invite(&find, self.polls) {
            if let Some(Socket::Open(open)) = self.sockets.get_mut(&key)
                && open.stream.invite(self.polls)
            {
                sink(Event::Room { peer: open.peer });
                moved = true;
            }
        }
        moved
    }

    /// Looks at links with long frames, and pushes those with a qdisc drop. True if a cost was reported.
    pub(super) fn push_dropped(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> bool {
        let mut has_reported = false;
        let now = self.clock.now();
        let Self { sockets, qdisc_drops, unfinished, paths, .. } = self;
        *unfinished = 0;
        let mut widened = Vec::new();
        qdisc_drops.look(|key| {
            let Some(Socket::Open(open)) = sockets.get_mut(key) else { return false };
            if open.pacing.probe.is_warming_up() {
                widened.push(*key);
            }
            let (goes_on, cost) = open.look_after_long(now);
            if let Some(cost) = cost {
                sink(Event::Cost { peer: open.peer, cost });
                has_reported = true;
            }
            *unfinished += usize::from(open.is_unfinished());
            // The window of its path opens with the ACKs.
            let is_held = open.path.is_some_and(|path| paths.holds(path, *key));
            goes_on || is_held && open.drop_watch.begin()
        });
        for key in widened {
            self.watch(key);
        }
        has_reported
    }
}

/// Finds the connection of an open link.
fn connection(sockets: &FxHashMap<u64, Socket>, key: u64) -> Option<&TcpStream> {
    match sockets.get(&key)? {
        Socket::Open(open) => Some(&open.stream.channel.socket),
        Socket::PendingConnection(_) => None,
    }
}
