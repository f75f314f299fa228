//! Routes from peers to rails. The connection manager ([`connect::Peers`]) decides; this module feeds it with events
//! and carries out its actions.

use std::time::Instant;

use connect::{Action, Candidate, Fault, PeerFacts, Purpose};
use engine::{Engine, Loss};
use lock::Uncancelled;
use tracing::debug;
use wire::{PeerId, RailId};

use super::{Directory, PolledRail, Worker};

/// A problem with a peer on a rail, handled after the rail has reported all its events.
pub(super) enum Trouble {
    /// The peer has broken the protocol.
    Misbehaved(String),
    /// The link is down, or could not be opened.
    Down(Fault),
    /// No problem: the rail is up while others are still reopening links.
    TakesOver,
}

impl Trouble {
    pub(super) fn is_misbehaviour(&self) -> bool {
        matches!(self, Self::Misbehaved(_))
    }
}

/// Knowledge about peers: links from the engine, addresses and ends of processes from the directory.
struct Known<'a> {
    engine: &'a Engine,
    directory: &'a mut dyn Directory,
    rails: &'a [PolledRail],
}

impl PeerFacts for Known<'_> {
    fn addresses(&mut self, peer: PeerId) -> Vec<Candidate> {
        candidates(self.rails, self.directory.addresses(peer).unwrap_or_default())
    }

    fn has_ended(&mut self, peer: PeerId) -> bool {
        self.directory.has_ended(peer)
    }

    fn is_down(&self, peer: PeerId) -> bool {
        self.engine.is_down(peer)
    }

    fn is_cut_off(&self, peer: PeerId) -> bool {
        self.engine.is_cut_off(peer)
    }

    fn is_restored(&self, peer: PeerId) -> bool {
        self.engine.is_restored(peer)
    }

    fn may_reopen(&self, peer: PeerId, rail: RailId) -> bool {
        self.engine.may_reopen(peer, rail)
    }

    fn has_been_open(&self, peer: PeerId, rail: RailId) -> bool {
        self.engine.has_been_open(peer, rail)
    }

    fn carries(&self, peer: PeerId, rail: RailId) -> bool {
        self.engine.carries(peer, rail)
    }
}

/// Events.
impl Worker {
    /// Handles the problems that a rail has reported.
    #[cold]
    pub(super) fn handle_troubles(&mut self, rail: RailId, troubles: Vec<(PeerId, Trouble)>) {
        for (peer, trouble) in troubles {
            match trouble {
                Trouble::Misbehaved(text) => {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                    self.fail(peer, &Fault::Misbehaved(text));
                }
                Trouble::Down(fault) => self.handle_down(rail, peer, &fault),
                Trouble::TakesOver => {
                    let Self { peers, engine, directory, rails, .. } = self;
                    let known = Known { engine, directory: &mut **directory, rails };
                    peers.handle_takeover(peer, rail, &known);
                }
            }
            self.carry_out();
        }
    }

    /// Closes a link that has fallen far behind another one to the same peer. Time passes for peers without links.
    #[cold]
    pub(super) fn judge_links(&mut self) {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        while let Some((peer, rail)) = self.engine.handle_time(now_ns) {
            let name = self.rails[rail.0 as usize].name;
            self.close_link(rail, peer, format!("{name} delivers nothing, another does"));
            self.carry_out();
        }
        if !self.peers.is_timed() {
            return;
        }
        let now = self.clock.look(Instant::now());
        let Self { peers, engine, directory, rails, .. } = self;
        peers.handle_time(now, &mut Known { engine, directory: &mut **directory, rails });
        self.carry_out();
    }

    /// Closes links that their peers have given up.
    #[cold]
    pub(super) fn close_severed(&mut self) {
        while let Some((peer, rail)) = self.engine.poll_severed() {
            self.close_link(rail, peer, "the other end has lost it".into());
            self.carry_out();
        }
    }

    /// Closes a link that its rail may count as open.
    fn close_link(&mut self, rail: RailId, peer: PeerId, reason: String) {
        let PolledRail { rail: link, name, .. } = &mut self.rails[rail.0 as usize];
        debug!(peer = %self.peers.name(peer), rail = name, reason, "the link is closed");
        link.disconnect(peer);
        self.handle_down(rail, peer, &Fault::Lost(reason));
    }

    /// Handles the end of a link or of an attempt.
    fn handle_down(&mut self, rail: RailId, peer: PeerId, fault: &Fault) {
        let now = self.clock.look(Instant::now());
        let Self { peers, engine, directory, rails, .. } = self;
        let mut known = Known { engine, directory: &mut **directory, rails };
        if let Some(lost) = peers.handle_down(peer, rail, fault, &mut known) {
            let is_final = engine.handle_link_down(peer, rail, lost.ends) == Loss::Final;
            let mut known = Known { engine, directory: &mut **directory, rails };
            peers.handle_loss(lost, is_final, fault, now, &mut known);
        }
    }

    /// Fails a peer: no route leads to it any more.
    pub(super) fn fail(&mut self, peer: PeerId, fault: &Fault) {
        self.peers.fail(peer, fault);
        self.carry_out();
    }

    /// Opens a route to a peer that has none.
    #[cold]
    pub(super) fn open(&mut self, peer: PeerId, purpose: Purpose) {
        let _uncancelled = Uncancelled::begin();
        if self.peers.is_failed(peer) {
            return self.fail_peer(peer);
        }
        if !self.peers.is_closed(peer) {
            return;
        }
        let addresses = self.directory.addresses(peer).unwrap_or_else(|text| {
            let text = format!("{}: no address: {text}", self.peers.name(peer));
            self.journal.note_fault(Instant::now(), text);
            Vec::new()
        });
        debug!(peer = %self.peers.name(peer), ?purpose, "a route is opened");
        self.peers.submit_search(peer, purpose, candidates(&self.rails, addresses));
        self.carry_out();
    }

    /// Opens a `passing` link, once, so that short messages bypass long ones. This applies to links whose frames
    /// are held until acknowledged.
    pub(super) fn open_passing(&mut self, peer: PeerId, rail: RailId, passing: RailId) {
        if !self.engine.keeps(peer, rail) || !self.passed.insert(peer) {
            return;
        }
        let _uncancelled = Uncancelled::begin();
        let addresses = self.directory.addresses(peer).unwrap_or_default();
        let PolledRail { rail, name, .. } = &mut self.rails[passing.0 as usize];
        if let Some((_, address)) = addresses.iter().find(|(own, _)| own == name) {
            // Without the bypass link, short messages wait behind long ones.
            let _ = rail.connect(peer, address);
        }
    }
}

/// Actions.
impl Worker {
    /// Carries out what the connection manager has decided.
    pub(super) fn carry_out(&mut self) {
        while let Some(action) = self.peers.poll_action() {
            match action {
                Action::Connect { peer, rail, address } => self.connect(peer, rail, &address),
                Action::Disconnect { peer, rail } => {
                    self.rails[rail.0 as usize].rail.disconnect(peer);
                }
                Action::Close { peer, rail, reason } => self.close_link(rail, peer, reason),
                Action::Fail { peer, text } => {
                    debug!(peer = %self.peers.name(peer), ?text, "the peer has failed");
                    if let Some(text) = text.filter(|_| !self.may_end.contains(&peer)) {
                        self.journal.note_fault(Instant::now(), text);
                    }
                    self.fail_peer(peer);
                }
                Action::EndSearch { peer } => self.engine.handle_no_path(peer),
                Action::NoteUnreachable { peer, rail } => {
                    self.directory.note_unreachable(peer, self.rails[rail.0 as usize].name);
                }
                Action::Print(line) => self.journal.print(&[line]),
            }
        }
    }

    fn connect(&mut self, peer: PeerId, rail: RailId, address: &[u8]) {
        let PolledRail { rail: asked, name, .. } = &mut self.rails[rail.0 as usize];
        match asked.connect(peer, address) {
            Ok(()) => {
                debug!(peer = %self.peers.name(peer), rail = name, "a link is being opened");
                self.has_loose_ends |= self.peers.is_reopening();
            }
            Err(error) => {
                debug!(peer = %self.peers.name(peer), rail = name, %error, "the rail does not lead there");
                let now = self.clock.look(Instant::now());
                self.peers.handle_no_attempt(peer, rail, &error.to_string(), now);
            }
        }
    }
}

/// Returns the addresses with the rails of these names that exist here.
fn candidates(rails: &[PolledRail], addresses: Vec<(String, Vec<u8>)>) -> Vec<Candidate> {
    let rail_named = |name: &str| rails.iter().position(|polled| polled.name == name);
    let candidate =
        |(name, address): (String, Vec<u8>)| Some((RailId(rail_named(&name)? as u8), address));
    addresses.into_iter().filter_map(candidate).collect()
}
