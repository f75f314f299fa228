//! Plans of measurements: what is measured, where, on which libraries, and how often.

use crate::instrument::Workload;
use crate::library::{LibraryKind, Variant};
use crate::report::Entry;
use crate::scenario::{IdealLink, Place, Surroundings};
use crate::testbed::Needs;

/// Plan of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Workload.
    pub workload: Workload,
    /// Place.
    pub place: Place,
    /// Conditions.
    pub surroundings: Surroundings,
    /// Libraries, with plain TCP if it can do the same.
    pub kinds: Vec<LibraryKind>,
    /// Settings of Canele, each measured beside the others; empty for the default settings.
    pub variants: Vec<Variant>,
    /// True if each peer is also measured with its settings for long links.
    pub tuned: bool,
    /// Number of turns of each library.
    pub rounds: u32,
    /// Time per size in each round.
    pub seconds: f64,
    /// Number of nodes per site in a lab that is created.
    pub nodes: u32,
    /// Pairs of sites in it with round trips of their own.
    pub pairs: Vec<lab::Pair>,
}

impl Plan {
    /// Returns the workload, the place and the conditions.
    pub fn title(&self) -> String {
        let (workload, place) = (self.workload.title(), self.place.title());
        format!("{workload}, {place}{}", self.surroundings.title())
    }

    /// Returns the number of turns of all libraries.
    pub fn turns(&self) -> u32 {
        self.rounds * self.entries().len() as u32
    }

    /// Returns the requested link; none if it is the lab's.
    pub fn link(&self) -> Option<IdealLink> {
        self.surroundings.crossing?;
        IdealLink::of(self.place, &self.needs().spec(""))
    }

    /// Returns the lab that the plan needs.
    pub fn needs(&self) -> Needs {
        let Surroundings { crossing, sites, .. } = self.surroundings;
        Needs {
            nics: self.workload.description().nics,
            nodes: self.nodes,
            sites: sites.unwrap_or(lab::Spec::default().sites),
            crossing: crossing.unwrap_or_default(),
            pairs: self.pairs.clone(),
        }
    }

    /// Returns the entries to measure.
    pub fn entries(&self) -> Vec<Entry> {
        let of = |kind: &LibraryKind| -> Vec<Entry> {
            match kind {
                LibraryKind::Canele if !self.variants.is_empty() => {
                    let variants = self.variants.iter().cloned();
                    variants.map(|variant| Entry::new(LibraryKind::Canele, Some(variant))).collect()
                }
                LibraryKind::RawTcp => {
                    let mut relayed: Vec<Variant> =
                        self.variants.iter().filter_map(Variant::relayed).collect();
                    relayed.sort_by_key(Variant::gateways);
                    relayed.dedup_by_key(|variant| variant.gateways());
                    let relayed =
                        relayed.into_iter().map(|variant| Entry::new(*kind, Some(variant)));
                    std::iter::once(Entry::new(*kind, None)).chain(relayed).collect()
                }
                _ => {
                    let tuned = Variant::tuned(*kind).filter(|_| self.tuned);
                    let tuned = tuned.map(|variant| Entry::new(*kind, Some(variant)));
                    std::iter::once(Entry::new(*kind, None)).chain(tuned).collect()
                }
            }
        };
        self.kinds.iter().flat_map(of).collect()
    }
}
