//! Path costs that gateways report.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use gateway::Between;
use relay::{PathCost, Reply, Request};

use crate::common::{Daemon, PATIENCE, call, echo, exchange, open, request};

fn path_costs(gateway: &Daemon, others: &[SocketAddr]) -> Vec<PathCost> {
    match call(gateway.address, &Request::of_path_costs(others.to_vec())).unwrap().1 {
        Reply::PathCosts(path_costs) => path_costs,
        other => panic!("{other:?}"),
    }
}

/// An address where nobody listens, on a host without stored path properties.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.9:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_gateway_measures_path_costs_when_asked() {
    for between in [Between::Tcp, Between::Udp] {
        let start =
            |calls| Daemon::calling("127.0.0.1:0".parse().unwrap(), between, "127.0.0.0/8", calls);
        let (near, far) = (start("127.0.0.0/28"), start("127.0.0.1"));
        let others = [far.address, nobody(), "192.0.2.1:7".parse().unwrap()];
        assert_eq!(path_costs(&near, &others)[2], PathCost::Closed, "it may not call that one");
        let limit = Instant::now() + PATIENCE;
        loop {
            match path_costs(&near, &others)[..] {
                [
                    PathCost::Costs { round_trip, bytes_per_s },
                    PathCost::Closed,
                    PathCost::Closed,
                ] => {
                    assert!(round_trip < Duration::from_secs(1) && bytes_per_s > 0);
                    break;
                }
                [_, PathCost::Costs { .. }, _]
                | [_, _, PathCost::Unknown | PathCost::Costs { .. }] => {
                    panic!("nobody is there")
                }
                _ => assert!(Instant::now() < limit),
            }
            thread::yield_now();
        }
        // Measuring relays no connection, and later connections share the link.
        assert_eq!((near.carries(), far.carries()), (0, 0));
        let mut stream = open(near.address, &request(echo(), &[far.address]));
        exchange(&mut stream);
        assert!(near.account().contains("1 connections"), "{}", near.account());
    }
}

#[test]
fn an_empty_query_gets_an_empty_reply() {
    assert_eq!(path_costs(&Daemon::start(Between::Auto), &[]), []);
}
