//! The ground a measurement stands on: the machine, or a lab that is borrowed or raised for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::{Change, Lab, LabError, Spec, Which};

use crate::launch::{Grid, Ground};
use crate::programs::{ProgramError, Programs};
use crate::run::{Interruption, RunError, run, tell};
use crate::scenario::{Crossing, Link, Place};

/// Finds and raises grounds. What it has raised is taken down when it is dropped.
#[derive(Debug)]
pub struct Grounds {
    canele: PathBuf,
    borrowed: Option<String>,
    raised: Option<Lab>,
    check: Vec<String>,
}

/// What a lab must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// Network interfaces of each node.
    pub nics: u32,
    /// Nodes of each site, in a lab that is raised; one that is borrowed has what it has.
    pub nodes: u32,
    /// How many sites, likewise.
    pub sites: u32,
    /// The link between sites, likewise.
    pub crossing: Crossing,
    /// Round trips of two sites each that are others.
    pub pairs: Vec<lab::Pair>,
}

impl Needs {
    /// A lab of this name that is no more than that.
    pub fn spec(&self, name: &str) -> Spec {
        let Self { nics, nodes, sites, crossing, pairs } = self.clone();
        Spec { nics, nodes, sites, pairs, ..crossing.spec(name) }
    }
}

/// Links that are worse for a while, and as they were when this is dropped.
#[derive(Debug)]
pub struct Weather {
    lab: Lab,
    before: Vec<lab::Link>,
}

impl Weather {
    /// Has all links between the sites of a lab lose this share of packets.
    ///
    /// # Errors
    /// When the lab's links cannot be changed.
    pub fn bad(lab: &Lab, loss: f64) -> Result<Self, LabError> {
        let before = lab.links()?;
        lab.set(Which::default(), Change { loss: Some(loss), ..Change::default() })?;
        Ok(Self { lab: lab.clone(), before })
    }
}

impl Drop for Weather {
    fn drop(&mut self) {
        for link in &self.before {
            let which = Which { from: Some(link.from), to: Some(link.to) };
            let change = Change { loss: Some(link.conditions.loss), ..Change::default() };
            if let Err(error) = self.lab.set(which, change) {
                tell(&format!("canele bench: the lab's links stay as they are: {error}"));
            }
        }
    }
}

/// Why there is no ground.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    /// The lab to be borrowed is not there.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A lab of our name is up already.
    #[error(
        "a lab `{RAISED}` is up already, of a measurement that runs or was killed: use it with --lab {RAISED}, or take it down with `CANELE_LAB={RAISED} canele lab down`"
    )]
    Taken,
    /// It could not be raised.
    #[error("the lab cannot be raised: {0}")]
    Raise(RunError),
    /// Its links cannot be as asked.
    #[error("--loss: the lab's links cannot be changed: {0}")]
    Weather(LabError),
    /// Its nodes have too few network interfaces.
    #[error("the lab `{lab}` has {nics} network interfaces in each node: {needed} are needed")]
    Interfaces {
        /// Its name.
        lab: String,
        /// How many.
        nics: u32,
        /// How many are needed.
        needed: u32,
    },
    /// It is too small.
    #[error("the lab `{lab}` has no two nodes {where_}")]
    TooSmall {
        /// Its name.
        lab: String,
        /// Of what kind.
        where_: &'static str,
    },
    /// The way into its nodes could not be written.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Where a measurement runs.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// For the launchers.
    pub ground: Ground,
    /// The lab, where there is one.
    pub lab: Option<Lab>,
    /// What its links allow.
    pub link: Option<Link>,
    /// What its check said.
    pub check: Vec<String>,
}

impl Grounds {
    /// Uses the lab of this name, or raises one when it is first needed.
    pub fn new(canele: &Path, borrowed: Option<String>) -> Self {
        Self { canele: canele.to_path_buf(), borrowed, raised: None, check: Vec::new() }
    }

    /// The ground for a place.
    ///
    /// # Errors
    /// When there is no lab of the name, none can be raised, or it lacks nodes or interfaces.
    pub fn prepare(
        &mut self,
        place: Place,
        needs: Needs,
        programs: &Programs,
        interruption: &Interruption,
    ) -> Result<Prepared, GroundError> {
        if place == Place::Shm {
            let ground = Ground::Machine;
            return Ok(Prepared { ground, lab: None, link: None, check: Vec::new() });
        }
        let lab = self.lab(needs, interruption)?;
        let nodes = nodes(&lab.spec, place);
        if nodes.len() < 2 {
            let where_ = match place {
                Place::Lan => "in one site",
                Place::Shm | Place::Wan => "in two sites",
            };
            return Err(GroundError::TooSmall { lab: lab.spec.name, where_ });
        }
        let name = lab.spec.name.clone();
        let enter = programs.enter(&self.canele, &name)?;
        let (spec, canele) = (Box::new(lab.spec.clone()), self.canele.clone());
        let grid = Grid { lab: spec, nodes, canele, enter, file: None };
        // Links may have been changed since the lab is up.
        let links = if place == Place::Wan { lab.links().unwrap_or_default() } else { Vec::new() };
        let conditions = |from, to| {
            let found = links.iter().find(|link| (link.from, link.to) == (from, to));
            found.map_or_else(|| lab.spec.conditions(from, to), |link| link.conditions)
        };
        let link = match place {
            Place::Wan => Some(Link::between(&lab.spec, &conditions)),
            Place::Shm | Place::Lan => Link::of(place, &lab.spec),
        };
        Ok(Prepared { ground: Ground::Grid(grid), lab: Some(lab), link, check: self.check.clone() })
    }

    fn lab(&mut self, needs: Needs, interruption: &Interruption) -> Result<Lab, GroundError> {
        let (needed, asked) = (needs.nics, needs.spec(RAISED));
        if let Some(name) = &self.borrowed {
            let lab = Lab::find(name)?;
            let (nics, lab_name) = (lab.spec.nics, lab.spec.name.clone());
            let error = GroundError::Interfaces { lab: lab_name, nics, needed };
            return if nics < needed { Err(error) } else { Ok(lab) };
        }
        match self.raised.take() {
            Some(lab) if lab.spec == asked => {
                return Ok(self.raised.insert(lab).clone());
            }
            Some(lab) => lab.down()?,
            None => {}
        }
        if Lab::find(RAISED).is_ok_and(|lab| lab.is_whole()) {
            return Err(GroundError::Taken);
        }
        let mut check = Vec::new();
        let raising = run(
            Command::new(&self.canele).args(["lab", "up"]).args(words(&asked)),
            RAISING,
            interruption,
            &mut |line| {
                tell(line);
                check.push(line.to_owned());
                Ok(())
            },
        );
        // A lab that does not keep to what was asked says so and stays up: its own words go into the report.
        let lab = match (Lab::find(RAISED), raising) {
            (Ok(lab), Err(error @ RunError::Failed { .. })) if lab.is_whole() => {
                tell(&error.to_string());
                check.push(error.to_string());
                lab
            }
            (Ok(lab), Err(error)) => {
                self.raised = Some(lab);
                return Err(GroundError::Raise(error));
            }
            (Err(_), Err(error)) => return Err(GroundError::Raise(error)),
            (found, Ok(())) => found?,
        };
        self.check = check;
        self.raised = Some(lab.clone());
        Ok(lab)
    }
}

impl Drop for Grounds {
    fn drop(&mut self) {
        if let Some(lab) = &self.raised
            && let Err(error) = lab.down()
        {
            tell(&format!("canele bench: the lab `{RAISED}` stays: {error}"));
        }
    }
}

/// How a lab that is raised is asked for.
fn words(asked: &Spec) -> Vec<String> {
    let words = [
        ("--name", asked.name.clone()),
        ("--nics", asked.nics.to_string()),
        ("--nodes", asked.nodes.to_string()),
        ("--sites", asked.sites.to_string()),
        ("--rtt", format!("{}us", asked.rtt.as_secs_f64() * 1e6)),
        ("--wan-rate", format!("{}kbit", asked.wan_rate as f64 / 1e3)),
        ("--lan-rate", format!("{}kbit", asked.lan_rate as f64 / 1e3)),
        ("--wan-buffer", format!("{}B", asked.wan_buffer)),
    ];
    let sockets = asked.socket_max.map(|bytes| ("--socket-max", format!("{bytes}B")));
    let pair = |pair: &lab::Pair| {
        let [one, other] = pair.sites;
        ("--pair", format!("{one}-{other}={}us", pair.rtt.as_secs_f64() * 1e6))
    };
    let words = words.into_iter().chain(sockets).chain(asked.pairs.iter().map(pair));
    words.flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// The nodes of a place: within the first site, or one site's and then the other's.
fn nodes(spec: &Spec, place: Place) -> Vec<String> {
    let of = |site: u32| (0..spec.nodes).map(move |node| spec.host(site, node));
    match place {
        Place::Shm => Vec::new(),
        Place::Lan => of(0).collect(),
        Place::Wan if spec.sites < 2 => Vec::new(),
        Place::Wan => (0..spec.sites).flat_map(of).collect(),
    }
}

/// The name of the lab that is raised.
const RAISED: &str = "bench";
/// How long raising and measuring it may take.
const RAISING: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_those_of_the_place() {
        let spec = Spec::default();
        assert_eq!(nodes(&spec, Place::Lan), ["site0-node0", "site0-node1"]);
        assert_eq!(nodes(&spec, Place::Wan).len(), 4);
        assert!(nodes(&Spec { sites: 1, ..spec }, Place::Wan).is_empty());
    }

    #[test]
    fn the_lab_that_is_raised_is_the_one_that_was_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            spec: Spec,
        }
        let crossing = Crossing { rtt: Duration::from_micros(300_500), ..Crossing::default() };
        let fast = Crossing { rate_bits_per_s: 10_000_000_000, buffer_bytes: 123_456, ..crossing };
        let held = Crossing { socket_max: Some(300_000), ..fast };
        for crossing in [Crossing::default(), crossing, fast, held] {
            let pairs = vec![lab::Pair { sites: [0, 2], rtt: Duration::from_micros(20_500) }];
            let needs = Needs { nics: 2, nodes: 3, sites: 3, crossing, pairs };
            let asked = needs.spec(RAISED);
            let words = std::iter::once("up".to_owned()).chain(words(&asked));
            assert_eq!(<Line as clap::Parser>::parse_from(words).spec, asked);
        }
    }

    #[test]
    fn a_lab_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path(), Path::new("/none")).unwrap();
        let mut grounds = Grounds::new(Path::new("/none/canele"), Some("nowhere".into()));
        let crossing = Crossing::default();
        let needs = Needs { nics: 1, nodes: 2, sites: 2, crossing, pairs: Vec::new() };
        let error = grounds
            .prepare(Place::Wan, needs.clone(), &programs, &Interruption::default())
            .unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        let machine =
            grounds.prepare(Place::Shm, needs, &programs, &Interruption::default()).unwrap();
        assert_eq!(machine.ground, Ground::Machine);
    }
}
