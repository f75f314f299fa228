//! The conformance kit: the promises of the `Rail` trait, on every rail.

mod kit;
mod processes;
mod scenarios;

use std::time::Duration;

use auth::{Encryption, Identity};
use connect::Patience;
use kit::{Field, Ground};
use netpath::TcpNetworks;
use rail::{LoopbackRail, Rail, SimLoss, SimNetwork, SimPath};
use rail_ofi::{OfiConfig, OfiNetwork, OfiRail};
use rail_quic::{QuicConfig, QuicRail};
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::PeerId;

/// The rail to oneself.
struct Own;

impl Ground for Own {
    fn field(&self, _: u32) -> Field {
        let rail: Box<dyn Rail> = Box::new(LoopbackRail::new(PeerId(0)).expect("an event"));
        Field { rails: vec![rail], pass: Box::new(|| {}) }
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// Shared memory.
struct Shm;

impl Ground for Shm {
    fn field(&self, count: u32) -> Field {
        Field { rails: (0..count).map(shm_rail).collect(), pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// TCP over the loopback.
struct Tcp;

impl Ground for Tcp {
    fn field(&self, count: u32) -> Field {
        Field { rails: (0..count).map(tcp_rail).collect(), pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// TCP over the loopback, encrypted.
struct Private;

impl Ground for Private {
    fn field(&self, count: u32) -> Field {
        Field { rails: (0..count).map(private_rail).collect(), pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// TCP over one network alone, which is the loopback.
struct OneNetwork;

impl Ground for OneNetwork {
    fn field(&self, count: u32) -> Field {
        Field { rails: (0..count).map(network_rail).collect(), pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// QUIC over the loopback.
struct Quic;

impl Ground for Quic {
    fn field(&self, count: u32) -> Field {
        Field { rails: (0..count).map(quic_rail).collect(), pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }
}

/// A provider of libfabric over the loopback.
struct Ofi(&'static str);

impl Ground for Ofi {
    fn field(&self, count: u32) -> Field {
        let rails = (0..count).map(|rank| ofi_rail(self.0, rank)).collect();
        Field { rails, pass: Box::new(|| {}) }
    }

    fn wakes(&self) -> bool {
        true
    }

    fn lack(&self) -> Option<String> {
        OfiNetwork::find(Some(self.0), Some(LOOPBACK)).err().map(|reason| reason.to_string())
    }
}

/// Virtual time, over a network that delays and loses.
struct Sim;

impl Ground for Sim {
    fn field(&self, count: u32) -> Field {
        let network = SimNetwork::new(u64::from(count));
        let loss = SimLoss::Delays { per_million: 30_000, by: Duration::from_millis(4) };
        let usual = SimPath::default();
        let capabilities = wire::Capabilities { remote_read: true, ..usual.capabilities };
        network.set_usual_path(SimPath { loss, capabilities, ..usual });
        let rails =
            (0..count).map(|rank| -> Box<dyn Rail> { Box::new(network.rail(PeerId(rank))) });
        let rails = rails.collect();
        Field {
            rails,
            pass: Box::new(move || {
                network.step();
            }),
        }
    }
}

fn shm_rail(rank: u32) -> Box<dyn Rail> {
    let rail = ShmRail::new(ShmConfig {
        rank: PeerId(rank),
        job: [7; 16],
        host: cost::HostCost::default(),
    });
    Box::new(rail.expect("shared memory"))
}

fn tcp_rail(rank: u32) -> Box<dyn Rail> {
    Box::new(TcpRail::new(tcp_config(rank)).expect("sockets"))
}

fn private_rail(rank: u32) -> Box<dyn Rail> {
    let config = TcpConfig { encryption: Encryption::All, ..tcp_config(rank) };
    Box::new(TcpRail::new(config).expect("sockets"))
}

fn network_rail(rank: u32) -> Box<dyn Rail> {
    let networks = TcpNetworks::find(Some(LOOPBACK)).expect("interfaces");
    let network = networks.all().first().expect("the loopback");
    Box::new(TcpRail::on(network, tcp_config(rank)).expect("sockets"))
}

fn quic_rail(rank: u32) -> Box<dyn Rail> {
    let rail = QuicRail::new(QuicConfig {
        rank: PeerId(rank),
        job: 11,
        identity: Identity::of(&[3; 32].into(), 11),
        interface: Some(LOOPBACK.into()),
        connect_timeout: Duration::from_secs(20),
        silence: Patience::default().silence(),
        passes: false,
        costs: std::sync::Arc::new(cost::NoStore),
    });
    Box::new(rail.expect("sockets"))
}

fn ofi_rail(provider: &str, rank: u32) -> Box<dyn Rail> {
    let network = OfiNetwork::find(Some(provider), Some(LOOPBACK)).expect("a network");
    let rail = OfiRail::new(
        network,
        OfiConfig {
            rank: PeerId(rank),
            job: 11,
            secret: [3; 32].into(),
            connect_timeout: Duration::from_secs(20),
            encryption: Encryption::None,
        },
    );
    Box::new(rail.expect("an endpoint"))
}

fn tcp_config(rank: u32) -> TcpConfig {
    TcpConfig {
        interface: Some(LOOPBACK.into()),
        connect_timeout: Duration::from_secs(20),
        ..TcpConfig::new(PeerId(rank), 11, [3; 32])
    }
}

const LOOPBACK: &str = "127.0.0.1";

macro_rules! conformance {
    ($rail:ident, $ground:expr; $($scenario:ident)*; $($duet:ident)*) => {
        mod $rail {
            use super::*;

            $(#[test]
            fn $scenario() {
                scenarios::run($ground, scenarios::$scenario);
            })*

            $(#[test]
            fn $duet() {
                if let Some(reason) = $ground.lack() {
                    return testing::skip(reason);
                }
                processes::$duet(stringify!($rail));
            })*
        }
    };
}

conformance!(own, Own; order sizes many bursts remote_read farewell disconnection wake full room;);
conformance!(shm, Shm; costs order sizes many bursts remote_read farewell disconnection wake full room readiness_probe blindness cores; echo death deafness);
conformance!(tcp, Tcp; costs order sizes many bursts remote_read farewell disconnection wake full room readiness_probe blindness; echo death deafness);
conformance!(private, Private; costs order sizes many bursts remote_read farewell disconnection wake full room readiness_probe; echo death deafness);
conformance!(network, OneNetwork; costs order sizes many bursts remote_read farewell disconnection wake full room readiness_probe; echo death deafness);
conformance!(quic, Quic; costs order sizes many bursts remote_read farewell disconnection wake full room readiness_probe; echo death deafness);
conformance!(ofi, Ofi("tcp;ofi_rxm"); costs order sizes many bursts remote_read farewell disconnection wake full room; echo death deafness);
conformance!(ofi_rxd, Ofi("udp;ofi_rxd"); costs order sizes many bursts remote_read farewell disconnection wake full room;);
conformance!(ofi_sockets, Ofi("sockets"); costs order sizes many bursts remote_read farewell disconnection wake full room; echo death deafness);
conformance!(sim, Sim; order sizes many bursts remote_read farewell disconnection wake full room;);

#[test]
#[ignore = "a part in the tests of two processes, which start it"]
fn the_other_process() {
    processes::play();
}
