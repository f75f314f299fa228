//! Address changes of this host under open connections.
//!
//! A socket stays bound to its address. When the host loses that address, the kernel refuses to send, and the rail
//! opens a socket for the address that the route to the peer now uses. The client end of a connection migrates it
//! (RFC 9000, §9). The server end cannot migrate; it reopens the link.

use std::net::IpAddr;
use std::time::Instant;

use quinn_proto::Side;

use rail::Fault;

use crate::endpoint::{EndpointDriver, open_sockets};

impl EndpointDriver {
    /// Migrates the links of sockets whose addresses are gone.
    pub(super) fn check_addresses(&mut self, now: Instant) {
        for index in 0..self.sockets.len() {
            if std::mem::take(&mut self.sockets[index].is_doubtful)
                && !self.sockets[index].has_address()
            {
                self.migrate_from(index, now);
            }
        }
    }

    /// Migrates the links of one socket.
    pub(super) fn migrate_from(&mut self, index: usize, now: Instant) {
        let concerned =
            self.connections.iter().filter(|(_, connection)| connection.socket == index);
        let links: Vec<usize> = concerned
            .filter(|(_, connection)| connection.peer().is_some())
            .map(|(&key, _)| key)
            .collect();
        for key in links {
            let Some(address) =
                self.connections.get(&key).map(|connection| connection.protocol.remote_address())
            else {
                continue;
            };
            // Without a route, the next send fails too and triggers another check.
            let Some(new) = self.socket_for(address) else { continue };
            let Some(connection) = self.connections.get(&key) else { continue };
            match connection.protocol.side() {
                Side::Client => self.migrate(key, new),
                Side::Server if connection.is_wan => {
                    let text = "this host has another address now";
                    self.lose(key, Fault::Lost(text.into()), now);
                }
                Side::Server => {}
            }
        }
    }

    /// Makes a connection that this process opened use another socket from now on.
    pub(super) fn migrate(&mut self, key: usize, socket: usize) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.socket = socket;
        connection.protocol.local_address_changed();
        connection.probe();
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
        self.filter_sockets();
        Some(index)
    }
}

/// Maximum number of local addresses over the life of a process; later ones get no QUIC links.
const SOCKETS_MAX: usize = 64;
