//! The time for which a peer that has lost links is waited for, whatever its rails do.

use std::time::Duration;

/// Limits of an outage.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time without an open link after which a peer has failed.
    pub limit: Duration,
    /// Time after which other rails are asked for a path, and again after each such time; not 0.
    pub detour: Duration,
}

impl Default for Patience {
    /// A minute; and as long as a network may drop the packets that open the first link.
    fn default() -> Self {
        Self { limit: Duration::from_secs(60), detour: Duration::from_millis(1500) }
    }
}

/// Outage of a peer: it has lost a link and has not shown since that another one works.
///
/// The clock starts with the last sign of life of the first lost link. The links of a peer are often found lost one after the other, since each
/// rail finds out by itself, and an idle link only once something is sent over it.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Begin of the first loss, and time of the latest.
    since: Duration,
    lost: Duration,
    /// Time since which no link is open.
    down: Option<Duration>,
    /// Number of detours so far.
    detours: u32,
}

/// Next action in an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageStep {
    /// The peer is waited for.
    Waits,
    /// Other rails may reach the peer.
    Detour,
    /// The peer has failed.
    Fails,
    /// A link works.
    Ends,
}

impl Outage {
    /// An outage that begins with the loss of a link.
    pub fn new(now: Duration) -> Self {
        Self { since: now, lost: now, down: None, detours: 0 }
    }

    /// Notes the loss of another link.
    pub fn note_loss(&mut self, now: Duration) {
        self.lost = now;
    }

    /// Looks at a peer that `is_down`, without an open link, or `is_restored`: it has acknowledged something. A rail
    /// has some time to reopen the last lost link, even if the patience with the peer is over.
    pub fn look(
        &mut self,
        now: Duration,
        (is_down, is_restored): (bool, bool),
        patience: &Patience,
    ) -> OutageStep {
        let Patience { limit, detour } = *patience;
        if !is_down {
            self.down = None;
            let is_proved = is_restored || now.saturating_sub(self.lost) >= PROVED_AFTER;
            return if is_proved { OutageStep::Ends } else { OutageStep::Waits };
        }
        let down = *self.down.get_or_insert(now);
        if now >= self.since.saturating_add(limit).max(down + detour.min(limit)) {
            return OutageStep::Fails;
        }
        let detours = (now.saturating_sub(self.since).as_nanos() / detour.as_nanos()) as u32;
        if detours > self.detours {
            self.detours = detours;
            return OutageStep::Detour;
        }
        OutageStep::Waits
    }
}

/// Time after which a link that has survived the loss of others works: a rail finds a silent link lost sooner.
const PROVED_AFTER: Duration = Duration::from_secs(20);
