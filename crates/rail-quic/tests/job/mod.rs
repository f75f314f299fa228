//! Ranks of one job on the loopback interface.

use std::sync::Arc;
use std::time::Duration;

use auth::Identity;
use connect::Patience;
use rail_quic::{QuicConfig, QuicRail};
use wire::PeerId;

pub fn rail(rank: u32) -> QuicRail {
    QuicRail::new(QuicConfig {
        rank: PeerId(rank),
        job: JOB,
        identity: identity(),
        interface: Some("127.0.0.1".into()),
        connect_timeout: PATIENCE,
        silence: Patience::default().silence(),
        passes: false,
        costs: Arc::new(cost::NoStore),
    })
    .unwrap()
}

pub fn identity() -> Identity {
    Identity::of(&SECRET.into(), JOB)
}

/// Number and secret of the job.
pub const JOB: u64 = 9;
pub const SECRET: [u8; 32] = [3; 32];
/// Time in which everything has happened.
pub const PATIENCE: Duration = Duration::from_secs(60);
