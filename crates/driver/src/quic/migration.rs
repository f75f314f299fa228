//! Addresses of this host that change under its connections.
//!
//! A socket stays bound to the address that it was opened for. When the host loses that, what leaves is refused by
//! the kernel, and a socket for the address that leads to the peer now takes its place. The end that has opened a
//! connection takes it along (RFC 9000, §9); the other cannot, and opens the link anew.

use std::net::IpAddr;
use std::time::Instant;

use quinn_proto::Side;

use super::endpoint::{Core, open_sockets};

impl Core {
    /// Moves the links of sockets whose addresses are gone.
    pub(super) fn look_for_moves(&mut self, now: Instant) {
        for index in 0..self.sockets.len() {
            if std::mem::take(&mut self.sockets[index].is_doubtful)
                && !self.sockets[index].is_at_home()
            {
                self.move_from(index, now);
            }
        }
    }

    /// Moves the links of one socket.
    pub(super) fn move_from(&mut self, index: usize, now: Instant) {
        let concerned = self.lines.iter().filter(|(_, line)| line.socket == index);
        let links: Vec<usize> =
            concerned.filter(|(_, line)| line.peer().is_some()).map(|(&key, _)| key).collect();
        for key in links {
            let Some(address) = self.lines.get(&key).map(|line| line.connection.remote_address())
            else {
                continue;
            };
            // Until there is a way again, what is sent fails again, and is looked at again.
            let Some(new) = self.way_to(address) else { continue };
            let Some(line) = self.lines.get(&key) else { continue };
            match line.connection.side() {
                Side::Client => self.take_along(key, new),
                Side::Server if line.is_far => {
                    self.lose(key, "this host has another address now".into(), now);
                }
                Side::Server => {}
            }
        }
    }

    /// Has a connection that this process has opened leave by another socket from now on.
    pub(super) fn take_along(&mut self, key: usize, socket: usize) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.socket = socket;
        line.connection.local_address_changed();
        line.knock();
        self.list_to_serve(key);
    }

    /// Opens a socket for an address that this host did not have before.
    pub(super) fn add_socket(&mut self, address: IpAddr) -> Option<usize> {
        if self.sockets.len() >= SOCKETS_MAX {
            return None;
        }
        let index = self.sockets.len();
        let opened = open_sockets(vec![address], &self.epoll, index).ok()?;
        self.sockets.extend(opened);
        Some(index)
    }
}

/// Addresses that a process has had; more have no links by UDP.
const SOCKETS_MAX: usize = 64;
