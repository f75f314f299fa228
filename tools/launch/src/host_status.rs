//! State of a host, as its agent reports it.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use netpath::ListenAddress;
use serde::{Deserialize, Serialize};

use crate::slurm_holder;

/// Request for the state of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusRequest {
    /// Number under which the agent answers.
    pub number: u32,
    /// Listen addresses of each gateway that it is to run.
    pub gateways: Vec<Vec<String>>,
    /// True if hosts are requested from Slurm there.
    pub has_slurm: bool,
}

/// State of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Version of Canele there.
    pub version: String,
    /// Number of runnable and waiting threads, averaged over the last minute; none if the system does not tell.
    pub load: Option<f64>,
    /// Number of cores that ranks may use.
    pub cores: usize,
    /// Memory in bytes; 0 if the system does not tell.
    pub memory_bytes: u64,
    /// Memory that programs can get without swapping, in bytes.
    pub available_bytes: u64,
    /// Version of Slurm, or why hosts cannot be requested, if that is where they are.
    pub slurm: Option<Result<String, String>>,
    /// For each gateway the reason why it cannot run, if there is one.
    pub gateways: Vec<Option<String>>,
}

impl HostState {
    /// Looks at this host.
    pub(crate) fn here(request: &StatusRequest) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo");
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            load: read("/proc/loadavg").split_whitespace().next().and_then(|it| it.parse().ok()),
            cores: boot::own_cores(),
            memory_bytes: bytes_of(&memory, "MemTotal:"),
            available_bytes: bytes_of(&memory, "MemAvailable:"),
            slurm: request.has_slurm.then(slurm_holder::version),
            gateways: request.gateways.iter().map(|listen| gateway_fault(listen)).collect(),
        }
    }
}

/// Value of a line of `/proc/meminfo` in bytes; 0 if there is none.
fn bytes_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes << 10)
}

/// Reason why a gateway with these listen addresses could not run here now.
fn gateway_fault(listen: &[String]) -> Option<String> {
    let program = std::env::current_exe().ok()?.with_file_name("canele-gateway");
    if !program.is_file() {
        return Some(format!("{} is missing", program.display()));
    }
    listen.iter().find_map(|text| match text.parse::<ListenAddress>() {
        Ok(address) => listen_fault(&address).map(|reason| format!("{text}: {reason}")),
        Err(error) => Some(error.to_string()),
    })
}

/// Reason why nobody can listen at an address, for TCP and UDP at the same port.
fn listen_fault(address: &ListenAddress) -> Option<String> {
    let listen = |at: SocketAddr| {
        let listener = TcpListener::bind(at)?;
        UdpSocket::bind(listener.local_addr()?)
    };
    let mut last = None;
    for at in address.addresses() {
        match listen(at) {
            Ok(_) => return None,
            Err(error) => last = Some(error.to_string()),
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_cores_and_memory() {
        let gateways = vec![vec!["127.0.0.1".into()]];
        let state = HostState::here(&StatusRequest { number: 0, gateways, has_slurm: false });
        assert!(state.cores > 0 && state.memory_bytes >= state.available_bytes, "{state:?}");
        assert_eq!(state.gateways.len(), 1);
        assert_eq!(bytes_of("MemTotal:  12 kB\nMemFree: 3 kB\n", "MemFree:"), 3072);
        assert_eq!(bytes_of("MemTotal: many kB", "MemTotal:"), 0);
    }

    #[test]
    fn an_address_that_is_taken_is_a_fault_and_another_of_its_range_is_none() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let fault = |text: &str| listen_fault(&text.parse().unwrap());
        assert_eq!(fault(&taken.to_string()), None, "closed again");
        let holder = TcpListener::bind(taken).unwrap();
        assert!(fault(&taken.to_string()).is_some());
        assert_eq!(fault("127.0.0.1"), None, "any port");
        drop(holder);
        // An address of no interface here (TEST-NET-1).
        assert!(fault("192.0.2.1:7").is_some());
    }
}
