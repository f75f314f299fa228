//! The networks that libfabric reaches, and the choice among them.

use std::path::Path;

use rail::RailError;

use crate::fabric::Provider;
use crate::message::{FRAME_MAX, Head};

/// A network that a rail can be opened on: a provider with a domain.
#[derive(Debug)]
pub struct OfiNetwork {
    pub(crate) provider: Provider,
}

impl OfiNetwork {
    /// Finds the network of a provider by its name, or the first fast one. `interfaces` restricts the domains, by
    /// names or addresses separated by commas.
    ///
    /// # Errors
    /// The library is missing or too old, or offers none.
    pub fn find(name: Option<&str>, interfaces: Option<&str>) -> Result<Self, RailError> {
        let unreachable = |text: String| RailError::Unreachable(text);
        let mut found = Provider::all(name).map_err(|text| {
            unreachable(match name {
                Some(name) => {
                    format!("provider `{name}` of libfabric (CANELE_OFI_PROVIDER): {text}")
                }
                None => format!("libfabric: {text}"),
            })
        })?;
        found.retain(|one| one.message_max() >= Head::LEN + FRAME_MAX);
        if name.is_none() {
            found.retain(|one| is_fast(&one.name()));
        }
        if let Some(interfaces) = interfaces {
            let is_named = |one: &Provider| {
                let (domain, source) = (one.domain(), one.source());
                interfaces.split(',').map(str::trim).any(|wanted| {
                    domain == wanted || source.is_some_and(|at| wanted == at.ip().to_string())
                })
            };
            // The names may be those of other networks.
            if name.is_some() || found.iter().any(is_named) {
                found.retain(is_named);
            }
        }
        let is_local = |one: &Provider| one.source().is_some_and(|at| at.ip().is_loopback());
        found.sort_by_key(is_local);
        match found.into_iter().next() {
            Some(provider) => Ok(Self { provider }),
            None => Err(unreachable(match name {
                Some(name) => format!("libfabric's provider `{name}` has no usable network here"),
                None => "libfabric finds no fast network here (fi_info lists all; CANELE_OFI_PROVIDER names one)".into(),
            })),
        }
    }

    /// Name of the provider.
    pub fn provider(&self) -> String {
        self.provider.name()
    }

    /// Name of the domain.
    pub fn domain(&self) -> String {
        self.provider.domain()
    }
}

/// True if a provider drives a fast network. Others carry messages over sockets or within a node, which other rails do
/// better.
fn is_fast(provider: &str) -> bool {
    provider.split(';').any(|part| FAST.contains(&part))
}

/// True if this node has a device of a fast network, so that the library is worth loading.
pub fn has_fast_device() -> bool {
    CLASSES.iter().any(|class| {
        Path::new("/sys/class")
            .join(class)
            .read_dir()
            .is_ok_and(|mut devices| devices.next().is_some())
    })
}

/// Providers of fast networks.
const FAST: [&str; 7] = ["cxi", "psm2", "psm3", "opx", "efa", "verbs", "gni"];
/// Kernel's classes of the devices of such networks.
const CLASSES: [&str; 3] = ["infiniband", "cxi", "hfi1"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_over_sockets_are_not_fast() {
        for slow in ["tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets", "shm", "net", "verbsx"] {
            assert!(!is_fast(slow), "{slow}");
        }
        for fast in ["verbs;ofi_rxm", "psm3", "efa", "cxi"] {
            assert!(is_fast(fast), "{fast}");
        }
    }
}
