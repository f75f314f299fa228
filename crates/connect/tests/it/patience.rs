//! One patience with a peer, however many rails lead to it and in whatever way they fail.

use std::collections::BTreeMap;
use std::time::Duration;

use connect::{Action, Candidate, Fault, Patience, PeerFacts, Peers, Purpose, RailTraits};
use wire::{PeerId, RailId};

#[test]
fn a_peer_that_never_answers_is_reported_when_its_time_is_up() {
    for_each_case(|case| {
        let mut process = LoneProcess::new(&case);
        let due = process.lose_all(&case);
        let reported = process.run(due + 10 * STEP, |_| false).expect("it is reported");
        assert!((due..=due + STEP).contains(&reported), "{case:?}: {reported:?}, {due:?} is due");
        assert_eq!(process.failed.as_deref(), Some(TOO_LATE), "{case:?}");
    });
}

#[test]
fn a_peer_that_answers_in_time_is_not_reported() {
    for_each_case(|case| {
        for answers in 0..case.rails {
            let mut process = LoneProcess::new(&case);
            let due = process.lose_all(&case);
            process.run(due - 2 * STEP, |_| false);
            if !process.asked[answers as usize] {
                continue;
            }
            process.up(RailId(answers));
            process.has_heard = true;
            assert_eq!(process.run(due + 10 * PATIENCE.limit, |_| false), None, "{case:?}");
        }
    });
}

#[test]
fn a_link_that_opens_and_delivers_nothing_does_not_extend_the_patience() {
    for_each_case(|case| {
        let mut process = LoneProcess::new(&case);
        let due = process.lose_all(&case);
        // Each link that is asked for opens and is lost again at once.
        let reported = process.run(due + 10 * STEP, |process| {
            let asked = process.asked.iter().position(|asked| *asked);
            asked.is_some_and(|rail| {
                process.up(RailId(rail as u8));
                process.down(RailId(rail as u8), Fault::Lost("cut again".into()));
                false
            })
        });
        assert!(reported.is_some(), "{case:?}");
    });
}

#[test]
fn a_link_that_survives_the_loss_of_another_starts_no_clock() {
    let case = Case { rails: 2, is_team: true, order: vec![0, 1], refusing: 0, gap: 1 };
    let mut process = LoneProcess::new(&case);
    process.down(RailId(0), Fault::Lost("gone".into()));
    // The peer computes and acknowledges nothing, but its link is open.
    assert_eq!(process.run(process.now + 100 * PATIENCE.limit, |_| false), None);
    process.down(RailId(1), Fault::Lost("gone".into()));
    let due = process.now + PATIENCE.limit;
    assert_eq!(process.run(due + 10 * STEP, |_| false), Some(due));
}

/// However the rails notice it, and however long the clock of connections has run before: it runs only while they need
/// it, so that a long silence may have begun before it.
#[test]
fn the_patience_counts_from_the_last_sign_of_life() {
    for seconds in [0, 2, 4, 8, 12, 60] {
        for notices in [
            &[STEP][..],
            &[6 * STEP],
            &[20 * STEP],
            &[20 * STEP, 22 * STEP],
            &[6 * STEP, 24 * STEP],
        ] {
            for clock in [Duration::ZERO, STEP, 400 * STEP] {
                let rails = notices.len() as u8;
                let order = (0..rails).collect();
                let case = Case { rails, is_team: true, order, refusing: 0, gap: 0 };
                let mut process = LoneProcess::new(&case);
                let patience = Patience { limit: Duration::from_secs(seconds), ..PATIENCE };
                process.peers.set_patience(patience);
                process.now = clock;
                // The first rail notices a silence when the clock starts to run.
                let first = notices[0];
                for (rail, silent) in (0..).zip(notices) {
                    process.run(clock + (*silent - first), |_| false);
                    process.down(RailId(rail), Fault::Silent("no sign of life".into(), *silent));
                }
                let lasted = first
                    + process.run(process.now + 400 * STEP, |_| false).expect("an end")
                    - clock;
                // The rail of the last link has some time in any case.
                let detour = patience.detour.min(patience.limit);
                let due = patience.limit.max(notices[notices.len() - 1] + detour);
                assert!(
                    lasted >= due && lasted <= due + STEP,
                    "{patience:?}, {notices:?}: {lasted:?}"
                );
            }
        }
    }
}

/// An idle link was heard last before the others were, and may be found lost before them.
#[test]
fn the_last_sign_of_life_over_any_link_counts() {
    for (first, second) in [(20, 20), (20, 16), (20, 30), (6, 20), (20, 1)] {
        for gap in [0, 1, 8] {
            let case = Case { rails: 2, is_team: true, order: vec![0, 1], refusing: 0, gap: 0 };
            let mut process = LoneProcess::new(&case);
            let lost = [process.now, process.now + gap * STEP];
            for (rail, silent) in [(0, first), (1, second)] {
                process.run(lost[rail as usize], |_| false);
                process.down(RailId(rail), Fault::Silent("silent".into(), silent * STEP));
            }
            let sign = (lost[0] - first * STEP).max(lost[1] - second * STEP);
            // A link that opens and is silent again shows nothing.
            process.run(process.now + STEP, |_| false);
            process.up(RailId(0));
            process.run(process.now + STEP, |_| false);
            process.down(RailId(0), Fault::Silent("silent".into(), Duration::ZERO));
            let down = process.now;
            let end = process.run(process.now + 400 * STEP, |_| false).expect("an end");
            let due = (sign + PATIENCE.limit).max(down + PATIENCE.detour);
            assert!(end >= due && end <= due + STEP, "{first}, {second}, {gap}: {end:?}, {due:?}");
        }
    }
}

#[test]
fn a_rail_notices_silence_soon_enough_to_reopen_the_link_in_time() {
    for seconds in 1..100 {
        let patience = Patience { limit: Duration::from_secs(seconds), ..PATIENCE };
        let silence = patience.silence();
        assert!(
            silence + patience.detour <= patience.limit.max(2 * patience.detour),
            "{patience:?}"
        );
        assert!(silence >= patience.detour, "{patience:?}: a short outage is no loss");
    }
}

#[test]
fn each_rail_is_asked_once_in_a_search_that_fails() {
    for_each_case(|case| {
        let mut process = LoneProcess::closed(&case);
        process.search();
        let mut order = case.order.iter().cycle();
        while process.failed.is_none() {
            let asked = |rail: &&u8| process.asked[**rail as usize];
            let rail = *order.by_ref().take(4).find(asked).expect("some rail is asked");
            process.now += STEP;
            process.down(RailId(rail), Fault::Unreachable("nobody there".into()));
        }
        assert!(
            process.attempts.iter().all(|count| *count == 1),
            "{case:?} {:?}",
            process.attempts
        );
        let text = process.failed.unwrap_or_default();
        let names: Vec<_> =
            NAMES[..case.rails as usize].iter().filter(|it| text.contains(**it)).collect();
        assert!(case.rails == 1 || names.len() == case.rails as usize, "{text}");
    });
}

#[test]
fn a_search_ends_with_the_first_answer() {
    for_each_case(|case| {
        let mut process = LoneProcess::closed(&case);
        process.search();
        for rail in &case.order {
            if process.asked[*rail as usize] && *rail % 2 == 0 && case.rails > 1 {
                process.down(RailId(*rail), Fault::Unreachable("nobody there".into()));
            }
        }
        if let Some(rail) = process.asked.iter().position(|asked| *asked) {
            process.up(RailId(rail as u8));
            assert_eq!(process.peers.leading_rail(PEER), Some(RailId(rail as u8)));
            assert_eq!(process.run(process.now + 10 * PATIENCE.limit, |_| false), None, "{case:?}");
        }
    });
}

/// Order and manner in which the rails of a peer fail.
#[derive(Clone, Debug)]
struct Case {
    rails: u8,
    /// True if all rails are one team, so that all links are open at first.
    is_team: bool,
    /// Order in which links are found lost, and attempts end.
    order: Vec<u8>,
    /// Bit set of the rails that refuse attempts; the others are silent.
    refusing: u8,
    /// Steps between two losses.
    gap: u32,
}

/// Runs every number of rails, order of losses, and choice of rails that refuse.
fn for_each_case(mut test: impl FnMut(Case)) {
    for rails in 1..=4 {
        for order in orders((0..rails).collect()) {
            for refusing in 0..1 << rails {
                for (is_team, gap) in [(true, 0), (true, 1), (true, 25), (false, 1)] {
                    test(Case { rails, is_team, order: order.clone(), refusing, gap });
                }
            }
        }
    }
}

/// Returns all orders of the items.
fn orders(items: Vec<u8>) -> Vec<Vec<u8>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let after = |first: &u8| {
        let rest = items.iter().copied().filter(|other| other != first).collect();
        orders(rest).into_iter().map(|rest| [vec![*first], rest].concat()).collect::<Vec<_>>()
    };
    items.iter().flat_map(after).collect()
}

/// A process with one peer.
struct LoneProcess {
    peers: Peers,
    rails: u8,
    refusing: u8,
    now: Duration,
    /// Rails with an attempt under way, and the number of attempts so far.
    asked: Vec<bool>,
    attempts: Vec<u32>,
    /// Links that were ever open: true if open, and true if they may reopen.
    links: BTreeMap<u8, (bool, bool)>,
    /// True if the peer has acknowledged something since the last loss.
    has_heard: bool,
    failed: Option<String>,
}

impl LoneProcess {
    fn closed(case: &Case) -> Self {
        let mut peers = Peers::new(2, PATIENCE);
        let traits = |rail: u8| {
            let team = if case.is_team { RailId(0) } else { RailId(rail) };
            RailTraits { name: NAMES[rail as usize], team, passes: false }
        };
        peers.set_rails((0..case.rails).map(traits).collect());
        let none = vec![false; case.rails.into()];
        Self {
            peers,
            rails: case.rails,
            refusing: case.refusing,
            now: Duration::from_secs(100),
            asked: none,
            attempts: vec![0; case.rails.into()],
            links: BTreeMap::new(),
            has_heard: true,
            failed: None,
        }
    }

    /// A process with an open link on each rail of the first team.
    fn new(case: &Case) -> Self {
        let mut process = Self::closed(case);
        process.search();
        for rail in 0..if case.is_team { case.rails } else { 1 } {
            process.up(RailId(rail));
        }
        process
    }

    fn search(&mut self) {
        let candidates = self.facts().addresses(PEER);
        self.peers.submit_search(PEER, Purpose::Wanted, candidates);
        self.carry_out();
    }

    /// Loses all links in the order of the case; returns the time at which the peer is to be reported.
    fn lose_all(&mut self, case: &Case) -> Duration {
        let (first, mut last) = (self.now, self.now);
        for rail in &case.order {
            if self.links.get(rail).is_some_and(|(is_open, _)| *is_open) {
                self.run(self.now + case.gap * STEP, |_| false);
                last = self.now;
                self.down(RailId(*rail), Fault::Lost("gone".into()));
            }
        }
        let first = if case.is_team { first + case.gap * STEP } else { last };
        (first + PATIENCE.limit).max(last + PATIENCE.detour)
    }

    /// Lets time pass until `end`, a report, or `is_done`. Returns the time of the report.
    fn run(
        &mut self,
        end: Duration,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) -> Option<Duration> {
        while self.failed.is_none() {
            let refused = |rail: &u8| self.asked[*rail as usize] && self.refusing & 1 << rail != 0;
            for rail in (0..self.rails).filter(refused).collect::<Vec<_>>() {
                self.down(RailId(rail), Fault::Unreachable("refused".into()));
            }
            let Self { peers, links, has_heard, rails, now, .. } = self;
            peers.handle_time(*now, &mut Facts { links, has_heard: *has_heard, rails: *rails });
            self.carry_out();
            if self.failed.is_some() {
                break;
            }
            if self.now >= end || is_done(self) {
                return None;
            }
            self.now += STEP;
        }
        Some(self.now)
    }

    fn up(&mut self, rail: RailId) {
        self.asked[rail.0 as usize] = false;
        let opened = self.peers.handle_up(PEER, rail).expect("it is wanted");
        if opened.takes_over {
            let Self { peers, links, has_heard, rails, .. } = self;
            let facts = Facts { links, has_heard: *has_heard, rails: *rails };
            peers.handle_takeover(PEER, rail, &facts);
        }
        self.links.insert(rail.0, (true, true));
        self.carry_out();
    }

    fn down(&mut self, rail: RailId, fault: Fault) {
        self.asked[rail.0 as usize] = false;
        let Self { peers, links, has_heard, rails, now, .. } = self;
        let mut facts = Facts { links, has_heard: *has_heard, rails: *rails };
        if let Some(lost) = peers.handle_down(PEER, rail, &fault, &mut facts) {
            if let Some(link) = links.get_mut(&rail.0) {
                *link = (false, !lost.ends);
                *has_heard = false;
            }
            let is_final = !links.values().any(|(is_open, reopens)| *is_open || *reopens);
            let mut facts = Facts { links, has_heard: *has_heard, rails: *rails };
            peers.handle_loss(lost, is_final, &fault, *now, &mut facts);
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.peers.poll_action() {
            match action {
                Action::Connect { rail, .. } => {
                    self.attempts[rail.0 as usize] += u32::from(!self.asked[rail.0 as usize]);
                    self.asked[rail.0 as usize] = true;
                }
                Action::Disconnect { rail, .. } => self.asked[rail.0 as usize] = false,
                Action::Close { rail, reason, .. } => self.down(rail, Fault::Lost(reason)),
                Action::Fail { text, .. } => {
                    assert!(self.failed.is_none(), "failed twice");
                    self.failed = text;
                }
                Action::EndSearch { .. } => panic!("the search is wanted"),
                Action::NoteUnreachable { .. } | Action::Print(_) => {}
            }
        }
    }

    fn facts(&mut self) -> Facts<'_> {
        Facts { links: &self.links, has_heard: self.has_heard, rails: self.rails }
    }
}

struct Facts<'a> {
    links: &'a BTreeMap<u8, (bool, bool)>,
    has_heard: bool,
    rails: u8,
}

impl PeerFacts for Facts<'_> {
    fn addresses(&mut self, _: PeerId) -> Vec<Candidate> {
        (0..self.rails).map(|rail| (RailId(rail), vec![rail])).collect()
    }

    fn has_ended(&mut self, _: PeerId) -> bool {
        false
    }

    fn is_down(&self, _: PeerId) -> bool {
        !self.links.is_empty() && self.links.values().all(|(is_open, _)| !is_open)
    }

    fn is_cut_off(&self, peer: PeerId) -> bool {
        self.is_down(peer) && self.links.values().any(|(_, reopens)| *reopens)
    }

    fn is_restored(&self, _: PeerId) -> bool {
        self.has_heard
    }

    fn may_reopen(&self, _: PeerId, rail: RailId) -> bool {
        self.links.get(&rail.0) == Some(&(false, true))
    }

    fn has_been_open(&self, _: PeerId, rail: RailId) -> bool {
        self.links.contains_key(&rail.0)
    }

    fn carries(&self, _: PeerId, rail: RailId) -> bool {
        self.links.get(&rail.0).is_some_and(|(is_open, _)| *is_open)
    }
}

const PEER: PeerId = PeerId(1);
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const TOO_LATE: &str = "link to rank 1 lost: no link has opened again in time";
const STEP: Duration = Duration::from_millis(250);
const PATIENCE: Patience =
    Patience { limit: Duration::from_secs(8), detour: Duration::from_millis(1500) };
