//! Rails to the other process, and waiting for what they bring.

use std::time::{Duration, Instant};

use rail::{Event, Neighbours, Rail};
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::{Capabilities, PeerId};

/// Opens a rail of the kind named; rails of one kind differ by the number of their job.
pub fn open_rail(
    name: &str,
    rank: u32,
    job: u8,
    secret: [u8; 32],
) -> Result<Box<dyn Rail>, String> {
    let failed = |error: rail::RailError| format!("rail {name}: {error}");
    let rank = PeerId(rank);
    if name == "shm" {
        let rail =
            ShmRail::new(ShmConfig { rank, job: [job; 16], host: cost::HostCost::default() });
        return Ok(Box::new(rail.map_err(failed)?));
    }
    let interface = Some(LOOPBACK.into());
    let usual = TcpConfig::new(rank, job.into(), secret);
    let config = TcpConfig { interface, connect_timeout: PATIENCE, ..usual };
    Ok(Box::new(TcpRail::new(config).map_err(failed)?))
}

/// Waits between two polls without result, as progress does: a peer on the same core can only answer once it
/// runs.
pub fn pause(polls: u32, shares_core: impl FnOnce() -> bool) {
    if polls.is_multiple_of(POLLS_PER_LOOK) && (polls >= POLLS_MAX || shares_core()) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// True if the peer last ran on the core of this process, as far as the rail knows.
pub fn shares_core(rail: &mut dyn Rail) -> bool {
    rail.neighbours().is_some_and(Neighbours::shares_core)
}

/// Opens the only link of a rail; rank 0 connects. Returns its capabilities.
pub fn open_link(rail: &mut dyn Rail, rank: u32, address: &[u8]) -> Result<Capabilities, String> {
    if rank == 0 {
        rail.connect(PeerId(1), address).map_err(|error| error.to_string())?;
    }
    let since = Instant::now();
    let mut link = None;
    loop {
        rail.poll(&mut |event| {
            if let Event::Up { capabilities, .. } = event {
                link = Some(capabilities);
            }
        });
        if let Some(capabilities) = link {
            return Ok(capabilities);
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("rail {}: no link", rail.name()));
        }
        std::thread::yield_now();
    }
}

const LOOPBACK: &str = "127.0.0.1";
/// Polls between yields: more than an answer takes from a peer with a core of its own.
const POLLS_PER_LOOK: u32 = 64;
/// Polls until the core is yielded in any case, about 100 µs.
const POLLS_MAX: u32 = 4096;
/// Time limit for links to come up.
const PATIENCE: Duration = Duration::from_secs(10);
