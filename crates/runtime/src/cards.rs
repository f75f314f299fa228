//! Business cards: what each process publishes of itself, and the directory of what others have published.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use boot::Job;
use netpath::TcpNetworks;
use progress::Directory;
use rail::Rail;
use rail_shm::{machine_identity, node_identity};
use relay::Gateways;
use topo::sites::{Locality, Network, SiteMap};
use wire::PeerId;

use crate::context::{self, Contexts};
use crate::life::ProcessLife;
use crate::modex::{Modex, QuicFirst};

/// Makes the business card of this process: the addresses of some rails, its locality, its gateways.
pub(super) fn make_card(
    rails: &[Box<dyn Rail>],
    locality: &Locality,
    gateways: &Gateways,
) -> Vec<u8> {
    let mut card = Vec::new();
    for rail in rails {
        append(&mut card, rail.name().as_bytes());
        append(&mut card, &rail.address());
    }
    append(&mut card, LOCALITY.as_bytes());
    append(&mut card, &locality.emit());
    append(&mut card, LIFE.as_bytes());
    append(&mut card, ProcessLife::this().emit().as_bytes());
    append(&mut card, GATEWAYS.as_bytes());
    append(&mut card, &gateways.publish());
    card
}

/// Returns the addresses of a business card in the order in which both processes try them; `own` is this process's
/// order of rails. QUIC goes before TCP if either process or the modex (for this pair of sites) says so.
fn agree(own: &[(String, Vec<u8>)], addresses: &mut [(String, Vec<u8>)], is_quic_first: bool) {
    let place =
        |list: &[(String, Vec<u8>)], rail: &str| list.iter().position(|(name, _)| name == rail);
    let (Some(quic), Some(tcp)) = (place(addresses, "quic"), place(addresses, "tcp")) else {
        return;
    };
    let is_first_here = place(own, "quic") < place(own, "tcp");
    if (is_first_here || is_quic_first) && quic > tcp {
        addresses[tcp..=quic].rotate_right(1);
    }
}

/// Locality of this process.
pub(super) fn locality(rails: &TcpNetworks) -> Result<Locality, String> {
    let site = settings::SITE.given().map(|name| name.to_string_lossy().into_owned());
    if let Some(name) = site.as_deref().filter(|name| !(1..=SITE_NAME_MAX).contains(&name.len())) {
        let variable = settings::SITE.variable();
        return Err(format!(
            "{variable}={name}: the name of a site has 1 to {SITE_NAME_MAX} bytes"
        ));
    }
    let found;
    let networks = match rails.all() {
        // Hosts have networks even without rails over TCP.
        [] => {
            let interface = settings::IFACE.given().map(|given| given.to_string_lossy());
            found = TcpNetworks::find(interface.as_deref()).unwrap_or_default();
            found.all()
        }
        networks => networks,
    };
    let networks = networks.iter().map(|one| Network::new(one.address(), one.prefix())).collect();
    Ok(Locality { node: node_identity(), machine: machine_identity(), site, networks })
}

/// The gateways of this process's site.
pub(super) fn gateways() -> Result<Gateways, String> {
    let list = settings::GATEWAYS.given().map(|list| list.to_string_lossy()).unwrap_or_default();
    let variable = settings::GATEWAYS.variable();
    Gateways::parse(&list).map_err(|error| format!("{variable}={list}: {error}"))
}

/// Locality that a process has published.
pub(super) fn locality_of(job: &Job, rank: u32) -> Result<Locality, String> {
    let card = job.fetch(rank, CARD).map_err(|error| error.to_string())?;
    locality_in(&card).ok_or_else(|| format!("process {rank} published nonsense"))
}

/// Locality in a business card.
pub(super) fn locality_in(card: &[u8]) -> Option<Locality> {
    let mut entries = parse_card(card)?.into_iter();
    let (_, bytes) = entries.find(|(name, _)| name == LOCALITY)?;
    Locality::parse(&bytes)
}

/// The process in a business card.
fn life_in(card: &[u8]) -> Option<ProcessLife> {
    let (_, bytes) = parse_card(card)?.into_iter().find(|(name, _)| name == LIFE)?;
    ProcessLife::parse(&String::from_utf8(bytes).ok()?)
}

/// The published addresses of the job's processes.
pub(super) struct Cards {
    job: Arc<Job>,
    card: String,
    own: Vec<(String, Vec<u8>)>,
    /// Cards of peers, fetched once: the launcher may be busy with the end of the job when a link has to be opened
    /// again. Those of other jobs are there from the start.
    known: HashMap<PeerId, Vec<u8>>,
    networks: TcpNetworks,
    gateways: Gateways,
    sites: SiteMap,
    quic_first: QuicFirst,
    /// Sites, and rails that do not reach other sites and are tried last.
    barred: Vec<(u32, String)>,
    /// Facts about contexts other than that of all, once somebody knows them.
    contexts: Arc<OnceLock<Contexts>>,
}

impl Cards {
    /// A directory for rails with the addresses `own`, whose peers published a card of this name.
    pub(super) fn new(
        (job, card): (&Arc<Job>, &str),
        own: Vec<(String, Vec<u8>)>,
        (networks, gateways): (TcpNetworks, Gateways),
        modex: &Modex,
        contexts: Arc<OnceLock<Contexts>>,
    ) -> Self {
        Self {
            job: Arc::clone(job),
            card: card.to_owned(),
            own,
            known: HashMap::new(),
            networks,
            gateways,
            sites: modex.sites.clone(),
            quic_first: modex.quic_first.clone(),
            barred: Vec::new(),
            contexts,
        }
    }

    /// The rank of a peer of the own job.
    fn rank_of(&self, peer: PeerId) -> Option<u32> {
        (peer.0 < self.job.size()).then_some(peer.0)
    }
}

impl Directory for Cards {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        if peer.0 == self.job.rank() {
            return Ok(self.own.clone());
        }
        let rank = self.rank_of(peer);
        let card = match (self.known.entry(peer), rank) {
            (Entry::Occupied(known), _) => known.into_mut(),
            (Entry::Vacant(place), Some(rank)) => {
                let card = self.job.fetch(rank, &self.card).map_err(|error| error.to_string())?;
                place.insert(card)
            }
            (Entry::Vacant(_), None) => return Err("it is in no job that this one knows".into()),
        };
        let nonsense = || "its business card is nonsense".to_owned();
        let mut addresses = parse_card(card).ok_or_else(nonsense)?;
        let far = addresses.extract_if(.., |(name, _)| name == GATEWAYS).next();
        let (_, far) = far.ok_or_else(nonsense)?;
        let mut paired = self.networks.pair(addresses);
        let Some(rank) = rank else {
            if !far.is_empty() {
                return Err(FAR_GATEWAYS.into());
            }
            agree(&self.own, &mut paired, false);
            return self.gateways.lead(paired, &[]).ok_or_else(nonsense);
        };
        let own = self.job.rank();
        if self.sites.site(own) == self.sites.site(rank) {
            if settings::RAILS.given().is_none() {
                paired.retain(|(name, _)| name != "quic");
            }
            return Gateways::default().lead(paired, &[]).ok_or_else(nonsense);
        }
        let (here, site) = (self.sites.site(own), self.sites.site(rank));
        let is_quic_first = self.quic_first.contains(&(here.min(site), here.max(site)));
        agree(&self.own, &mut paired, is_quic_first);
        paired
            .sort_by_key(|(name, _)| self.barred.iter().any(|bar| bar.0 == site && bar.1 == *name));
        self.gateways.lead(paired, &far).ok_or_else(nonsense)
    }

    fn add_peer(&mut self, peer: PeerId, card: Vec<u8>) {
        self.known.insert(peer, card);
    }

    fn note_unreachable(&mut self, peer: PeerId, rail: &str) {
        let Some(rank) = self.rank_of(peer) else { return };
        let bar = (self.sites.site(rank), rail.to_owned());
        if !self.barred.contains(&bar) {
            self.barred.push(bar);
        }
    }

    fn has_ended(&mut self, peer: PeerId) -> bool {
        if let Some(rank) = self.rank_of(peer) {
            return self.job.has_ended(rank);
        }
        // No launcher tells of other jobs; on this host the kernel does.
        let life = self.known.get(&peer).and_then(|card| life_in(card));
        life.is_some_and(|life| life.has_ended())
    }

    fn expects_soon(&self, context: u64) -> bool {
        context::has_collectives(context)
    }

    fn members(&mut self, context: u64) -> Option<Vec<PeerId>> {
        let (size, own) = (self.job.size(), self.job.rank());
        if context & !context::MARKS == context::WORLD {
            return Some((0..size).map(|step| PeerId((own + step) % size)).collect());
        }
        self.contexts.get().and_then(|contexts| (contexts.members)(context, PeerId(own)))
    }

    fn note_revoked(&mut self, context: u64) {
        if let Some(contexts) = self.contexts.get() {
            (contexts.note_revoked)(context);
        }
    }
}

fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u16).to_le_bytes());
    to.extend(bytes);
}

/// True if the process of a card is reached through gateways only.
pub(super) fn has_gateways(card: &[u8]) -> bool {
    let mut entries = parse_card(card).into_iter().flatten();
    entries.any(|(name, bytes)| name == GATEWAYS && !bytes.is_empty())
}

/// True if the bytes are a business card.
pub(super) fn is_card(bytes: &[u8]) -> bool {
    let is_there = |entries: Vec<(String, _)>| entries.iter().any(|(name, _)| name == GATEWAYS);
    parse_card(bytes).is_some_and(is_there) && locality_in(bytes).is_some()
}

fn parse_card(mut card: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut take = || {
        let (len, rest) = card.split_first_chunk::<2>()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        card = rest;
        Some((bytes.to_vec(), rest.is_empty()))
    };
    let mut addresses = Vec::new();
    loop {
        let (name, _) = take()?;
        let (address, last) = take()?;
        addresses.push((String::from_utf8(name).ok()?, address));
        if last {
            return Some(addresses);
        }
    }
}

/// Key of the card of the first VCI; those of others have their number behind it.
pub(super) const CARD: &str = "rails";
/// Key of the locality in a business card.
const LOCALITY: &str = "home";
/// Key of the process in a business card.
const LIFE: &str = "life";
/// Key of the gateways in a business card.
const GATEWAYS: &str = "gateways";

/// Reason for which a process of another job is not reached.
const FAR_GATEWAYS: &str = "its site is reached through gateways only, and these serve no job but its own: let that \
     process send first, or run both jobs where they share a network";

const SITE_NAME_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_calls_over_quic_first_decides_for_both() {
        let list = |rails: &str| -> Vec<_> {
            rails.split(',').map(|name| (name.to_owned(), Vec::new())).collect()
        };
        for (own, card, tried) in [
            ("shm,tcp,quic", "shm,tcp,tcp1,quic", "shm,tcp,tcp1,quic"),
            ("shm,quic,tcp,tcp1", "shm,tcp,tcp1,quic", "shm,quic,tcp,tcp1"),
            ("shm,tcp,tcp1,quic", "shm,quic,tcp", "shm,quic,tcp"),
            ("shm,quic,tcp", "shm,quic,tcp,tcp1", "shm,quic,tcp,tcp1"),
            ("shm,quic,tcp", "shm,tcp", "shm,tcp"),
            ("shm,tcp", "quic,tcp", "quic,tcp"),
        ] {
            let mut addresses = list(card);
            agree(&list(own), &mut addresses, false);
            assert_eq!(addresses, list(tried), "{own} meets {card}");
        }
        let mut addresses = list("shm,tcp,tcp1,quic");
        agree(&list("shm,tcp,quic"), &mut addresses, true);
        assert_eq!(addresses, list("shm,quic,tcp,tcp1"), "much is lost between the two");
    }
}
