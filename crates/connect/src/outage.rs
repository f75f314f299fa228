//! The time for which a peer that has lost links is waited for, whatever its rails do.

use std::time::Duration;

use wire::RailId;

use crate::rails::RailSet;

/// Limits of an outage.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time without an open link after which a peer has failed.
    pub limit: Duration,
    /// Time after which other rails are asked for a path, and again after each such time; not 0.
    pub detour: Duration,
}

impl Patience {
    /// Silence after which a rail that sends probes reports a link to another site as lost. The rail can then reopen it
    /// in time. A short outage is no loss if there is time.
    pub fn silence(&self) -> Duration {
        if self.limit.is_zero() {
            return SILENCE_MAX;
        }
        self.limit.saturating_sub(self.detour).clamp(self.detour.min(SILENCE_MAX), SILENCE_MAX)
    }
}

impl Default for Patience {
    /// A minute; and as long as a network may drop the packets that open the first link.
    fn default() -> Self {
        Self { limit: Duration::from_secs(60), detour: Duration::from_millis(1500) }
    }
}

/// Outage of a peer: it has lost a link and has not shown since that another one works.
///
/// The clock starts with the last sign of life over the lost links. These are often found lost one after the other, since
/// each rail finds out by itself. A link that has opened since shows nothing: it may open and deliver nothing, again and
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Time at which a loss was noticed, and the silence before it: of the lost links, that with the last sign of life.
    /// The silence may have begun before the clock did, which runs only while connections need it.
    noticed: Duration,
    silence: Duration,
    /// Time of the latest loss.
    lost: Duration,
    /// Time since which no link is open.
    down: Option<Duration>,
    /// Number of detours so far.
    detours: u32,
    /// Rails whose links have opened since the begin.
    opened: RailSet,
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
    /// An outage that begins with the loss of a link, noticed after a time of silence.
    pub fn new(now: Duration, silence: Duration) -> Self {
        let opened = RailSet::EMPTY;
        Self { noticed: now, silence, lost: now, down: None, detours: 0, opened }
    }

    /// Notes that a link has opened.
    pub fn note_opening(&mut self, rail: RailId) {
        self.opened.insert(rail);
    }

    /// Notes the loss of another link, after so long a silence if that is the reason.
    pub fn note_loss(&mut self, rail: RailId, now: Duration, silence: Option<Duration>) {
        self.lost = now;
        let is_old = !self.opened.contains(rail);
        if let Some(silence) = silence.filter(|silence| is_old && *silence < self.lasted(now)) {
            (self.noticed, self.silence) = (now, silence);
        }
    }

    /// Time since the last sign of life.
    fn lasted(&self, now: Duration) -> Duration {
        now.saturating_sub(self.noticed).saturating_add(self.silence)
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
        let lasted = self.lasted(now);
        if lasted >= limit && now >= down + detour.min(limit) {
            return OutageStep::Fails;
        }
        let detours = (lasted.as_nanos() / detour.as_nanos()) as u32;
        if detours > self.detours {
            self.detours = detours;
            return OutageStep::Detour;
        }
        OutageStep::Waits
    }
}

/// Time after which a link that has survived the loss of others works: a rail finds a silent link lost sooner.
const PROVED_AFTER: Duration = Duration::from_secs(20);
/// Longest silence that a probed link survives.
const SILENCE_MAX: Duration = Duration::from_secs(5);
