//! One window for the connections of a process that share a path: a congestion manager (RFC 3124).
//!
//! The congestion control of each connection keeps as much in flight as the path holds. In an exchange of all with
//! all, many connections send at once. Together they overflow the buffer of the path, and repairs of the last
//! packets take several round trips. So all of them together keep no more in flight than a window.
//!
//! The window is adapted while it limits them, after each time that all of it has been acknowledged. This takes a
//! round trip, or longer if a queue stands (TCP Vegas, Brakmo & Peterson 1995). Other processes send over the same
//! path, too. Each finds its own part by the same queue.

use std::time::{Duration, Instant};

/// The window of a path.
#[derive(Debug)]
pub struct PathWindow {
    bytes: u64,
    /// True once a queue stood: the window grows slowly from then on.
    has_queued: bool,
    /// Bytes by which it grows then. Steps of the same length for all processes make their windows alike.
    step: u64,
    /// Begin of the current turn of the window, and the bytes acknowledged before.
    turn: Option<(Instant, u64)>,
    /// Packets lost until the last turn ended.
    lost: Option<u64>,
}

/// Round trips and losses of the connections of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathState {
    /// Minimum round trip.
    pub least: Duration,
    /// Excess over the minimum now.
    pub waits: Duration,
    /// Packets lost on all connections in all.
    pub lost: u64,
}

impl Default for PathWindow {
    fn default() -> Self {
        Self { bytes: LEAST_BYTES, has_queued: false, step: STEP_BYTES, turn: None, lost: None }
    }
}

impl PathWindow {
    /// Bytes that the connections may have in flight together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins with a part of what the path holds, as far as that is known: other processes send over it, too.
    pub fn expect(&mut self, path_bytes: u64) {
        self.step = self.step.max(path_bytes / STEPS);
        if !self.has_queued {
            self.bytes = self.bytes.max(path_bytes / FIRST_SHARE).min(MOST_BYTES);
        }
    }

    /// Records that the window does not limit the connections.
    pub fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Records the bytes acknowledged on all connections in all, while the window limits them. `state` is asked at the
    /// end of a turn.
    pub fn look(
        &mut self,
        now: Instant,
        confirmed: u64,
        state: impl FnOnce() -> Option<PathState>,
    ) {
        let (begin, before) = *self.turn.get_or_insert((now, confirmed));
        let turned = confirmed.saturating_sub(before);
        if turned < self.bytes {
            return;
        }
        self.turn = Some((now, confirmed));
        if let Some(state) = state() {
            let took = (now - begin).as_nanos() * u128::from(self.bytes) / u128::from(turned);
            self.adapt(Duration::from_nanos(u64::try_from(took).unwrap_or(u64::MAX)), state);
        }
    }

    /// Adapts the window after a turn. A busy host makes turns longer, and shows no queue.
    fn adapt(&mut self, took: Duration, PathState { least, waits, lost }: PathState) {
        // Losses without a queue are not of a full path.
        let has_lost = self.lost.is_some_and(|before| lost > before);
        let overflows = has_lost && waits > least / 8;
        let is_queued = took > least / 4 * 7 && waits > least / 2;
        self.lost = Some(lost);
        self.has_queued |= overflows || is_queued;
        let bytes = match self.has_queued {
            _ if overflows => self.bytes / 8 * 5,
            _ if is_queued => self.bytes / 8 * 7,
            true => self.bytes + self.step,
            false => self.bytes + self.bytes / 2,
        };
        self.bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
    }
}

/// The first window, and the least. Buffers on a long path can hold so much of each of a few processes. A process that
/// gets a core only now and then fills a narrower one too late.
const LEAST_BYTES: u64 = 512 << 10;
const MOST_BYTES: u64 = 1 << 30;
/// Share (1/n) of what the path holds, for the first window.
const FIRST_SHARE: u64 = 4;
/// The least step, and steps for all that a path holds.
const STEP_BYTES: u64 = 16 << 10;
const STEPS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(10);
    const PATH_BYTES: f64 = 4e6;

    /// Simulates a path of 400 kB/ms that processes share. It holds 4 MB, and as much more as its buffer, so also the
    /// least windows of 16 processes. Each process pauses after ten round trips. Returns the share of the path that was
    /// used in the later half, the share of the round trips in which packets were lost, and the windows.
    fn share(mut windows: Vec<PathWindow>, buffer: f64, rounds: u32) -> (f64, f64, Vec<u64>) {
        let (mut now, mut losses, mut lost, mut used) = (Instant::now(), 0.0, 0, 0.0);
        let mut confirmed = vec![0; windows.len()];
        for round in 0..rounds {
            let flight: f64 = windows.iter().map(|window| window.bytes as f64).sum();
            let queued = (flight - PATH_BYTES).clamp(0.0, buffer);
            // A repair takes one round trip more.
            let repairs = if flight - PATH_BYTES > buffer { 2.0 } else { 1.0 };
            let waits = LEAST.mul_f64(queued / PATH_BYTES);
            let took = (LEAST + waits).mul_f64(repairs);
            now += took;
            lost += u64::from(repairs > 1.0);
            if round >= rounds / 2 {
                losses += (repairs - 1.0) / f64::from(rounds - rounds / 2);
                used += flight.min(PATH_BYTES) / PATH_BYTES / f64::from(rounds - rounds / 2);
            }
            for (window, confirmed) in windows.iter_mut().zip(&mut confirmed) {
                *confirmed += window.bytes;
                window.look(now, *confirmed, || Some(PathState { least: LEAST, waits, lost }));
                if round % 10 == 9 {
                    window.end_turn();
                }
            }
        }
        (used, losses, windows.iter().map(PathWindow::bytes).collect())
    }

    #[test]
    fn processes_share_a_path_without_overflow() {
        for processes in [1, 2, 3, 4, 8, 16] {
            let windows = std::iter::repeat_with(PathWindow::default).take(processes).collect();
            let (used, losses, _) = share(windows, 6e6, 400);
            assert!(used > 0.98, "{processes} processes use {used} of the path");
            assert!(losses == 0.0, "{processes} processes lose packets in {losses} of the rounds");
        }
    }

    #[test]
    fn losses_of_a_short_buffer_are_rare() {
        for processes in [1, 2, 4, 8] {
            let windows = std::iter::repeat_with(PathWindow::default).take(processes).collect();
            let (used, losses, _) = share(windows, 1.2e6, 400);
            assert!(used > 0.85, "{processes} processes use {used} of the path");
            assert!(losses < 0.3, "{processes} processes lose packets in {losses} of the rounds");
        }
    }

    #[test]
    fn the_first_window_of_a_long_path_is_long() {
        let mut window = PathWindow::default();
        window.expect(1 << 20);
        assert_eq!(window.bytes(), LEAST_BYTES);
        window.expect(400 << 20);
        assert_eq!(window.bytes(), 100 << 20);
        let mut queued = PathWindow { has_queued: true, ..PathWindow::default() };
        queued.expect(400 << 20);
        assert_eq!(queued.bytes(), LEAST_BYTES, "its part is known");
    }

    #[test]
    fn windows_become_alike() {
        let mut small = PathWindow::default();
        small.expect(PATH_BYTES as u64);
        let large = PathWindow { bytes: 4 << 20, step: small.step, ..PathWindow::default() };
        let (_, _, windows) = share(vec![large, small], 6e6, 1000);
        assert!(windows[0] < 2 * windows[1], "{windows:?}");
    }

    #[test]
    fn busy_hosts_and_lossy_links_do_not_shrink_the_window() {
        let mut window = PathWindow::default();
        let start = Instant::now();
        let mut confirmed = 0;
        for turn in 0..40 {
            let lost = u64::from(turn);
            let state = PathState { least: LEAST, waits: LEAST / 10, lost };
            window.look(start + LEAST * 5 * turn, confirmed, || Some(state));
            confirmed += window.bytes();
        }
        assert_eq!(window.bytes(), MOST_BYTES);
    }
}
