//! Testbed of a measurement: this machine, or a lab that exists or is created for it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::{Change, Lab, LabError, Spec, Which};

use crate::launch::{LabNodes, Testbed};
use crate::programs::{ProgramError, Programs};
use crate::run::{Interruption, RunError, run, tell};
use crate::scenario::{Crossing, IdealLink, Place};

/// Finds and creates testbeds. Created labs are removed on drop.
#[derive(Debug)]
pub struct Testbeds {
    canele: PathBuf,
    borrowed: Option<String>,
    raised: Option<Lab>,
    check: Vec<String>,
}

/// Requirements on a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// Network interfaces of each node.
    pub nics: u32,
    /// Nodes of each site, in a lab that is created; an existing one keeps its own.
    pub nodes: u32,
    /// Number of sites, likewise.
    pub sites: u32,
    /// The link between sites, likewise.
    pub crossing: Crossing,
    /// Pairs of sites with round trips of their own.
    pub pairs: Vec<lab::Pair>,
}

impl Needs {
    /// Returns the smallest such lab of this name.
    pub fn spec(&self, name: &str) -> Spec {
        let Self { nics, nodes, sites, crossing, pairs } = self.clone();
        Spec { nics, nodes, sites, pairs, ..crossing.spec(name) }
    }
}

/// Links with artificial loss, restored on drop.
#[derive(Debug)]
pub struct Weather {
    lab: Lab,
    before: Vec<lab::Link>,
}

impl Weather {
    /// Sets the loss of all links between the sites of a lab.
    ///
    /// # Errors
    /// Fails if the lab's links cannot be changed.
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

/// Errors of a testbed.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The lab to use does not exist.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A lab of our name exists already.
    #[error(
        "a lab `{RAISED}` is up already, of a measurement that runs or was killed: use it with --lab {RAISED}, or take it down with `CANELE_LAB={RAISED} canele lab down`"
    )]
    Taken,
    /// It could not be created.
    #[error("the lab cannot be raised: {0}")]
    Raise(RunError),
    /// Its links cannot be changed as requested.
    #[error("--loss: the lab's links cannot be changed: {0}")]
    Weather(LabError),
    /// Its nodes have too few network interfaces.
    #[error("the lab `{lab}` has {nics} network interfaces in each node: {needed} are needed")]
    Interfaces {
        /// Name of the lab.
        lab: String,
        /// Number of interfaces.
        nics: u32,
        /// Number needed.
        needed: u32,
    },
    /// It is too small.
    #[error("the lab `{lab}` has no two nodes {where_}")]
    TooSmall {
        /// Name of the lab.
        lab: String,
        /// Kind of nodes.
        where_: &'static str,
    },
    /// The script that enters its nodes could not be written.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Prepared testbed of a measurement.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Hosts for the launchers.
    pub testbed: Testbed,
    /// Lab, if there is one.
    pub lab: Option<Lab>,
    /// Limits of its links.
    pub link: Option<IdealLink>,
    /// Lines of its check.
    pub check: Vec<String>,
}

impl Testbeds {
    /// Uses the lab of this name, or creates one when it is first needed.
    pub fn new(canele: &Path, borrowed: Option<String>) -> Self {
        Self { canele: canele.to_path_buf(), borrowed, raised: None, check: Vec::new() }
    }

    /// Checks that the lab to be used exists, if it was named.
    ///
    /// # Errors
    /// Names the lab that does not.
    pub fn check(&self) -> Result<(), TestbedError> {
        self.borrowed.as_ref().map_or(Ok(()), |name| Ok(Lab::find(name).map(drop)?))
    }

    /// Returns the testbed for a place.
    ///
    /// # Errors
    /// Fails if the lab does not exist, none can be created, or it lacks nodes or interfaces.
    pub fn prepare(
        &mut self,
        place: Place,
        needs: Needs,
        programs: &Programs,
        interruption: &Interruption,
    ) -> Result<Prepared, TestbedError> {
        if place == Place::Shm {
            let testbed = Testbed::Machine;
            return Ok(Prepared { testbed, lab: None, link: None, check: Vec::new() });
        }
        let lab = self.lab(needs, interruption)?;
        let nodes = nodes(&lab.spec, place);
        if nodes.len() < 2 {
            let where_ = match place {
                Place::Lan => "in one site",
                Place::Shm | Place::Wan => "in two sites",
            };
            return Err(TestbedError::TooSmall { lab: lab.spec.name, where_ });
        }
        let name = lab.spec.name.clone();
        let enter = programs.enter(&self.canele, &name)?;
        let (spec, canele) = (Box::new(lab.spec.clone()), self.canele.clone());
        let grid = LabNodes { lab: spec, nodes, canele, enter, file: None };
        // Links may have been changed since the lab was created.
        let links = if place == Place::Wan { lab.links().unwrap_or_default() } else { Vec::new() };
        let conditions = |from, to| {
            let found = links.iter().find(|link| (link.from, link.to) == (from, to));
            found.map_or_else(|| lab.spec.conditions(from, to), |link| link.conditions)
        };
        let link = match place {
            Place::Wan => Some(IdealLink::between(&lab.spec, &conditions)),
            Place::Shm | Place::Lan => IdealLink::of(place, &lab.spec),
        };
        Ok(Prepared {
            testbed: Testbed::Grid(grid),
            lab: Some(lab),
            link,
            check: self.check.clone(),
        })
    }

    fn lab(&mut self, needs: Needs, interruption: &Interruption) -> Result<Lab, TestbedError> {
        let (needed, asked) = (needs.nics, needs.spec(RAISED));
        if let Some(name) = &self.borrowed {
            let lab = Lab::find(name)?;
            let (nics, lab_name) = (lab.spec.nics, lab.spec.name.clone());
            let error = TestbedError::Interfaces { lab: lab_name, nics, needed };
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
            return Err(TestbedError::Taken);
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
        // A lab that misses its specification stays up and says so: its check goes into the report.
        let lab = match (Lab::find(RAISED), raising) {
            (Ok(lab), Err(error @ RunError::Failed { .. })) if lab.is_whole() => {
                tell(&error.to_string());
                check.push(error.to_string());
                lab
            }
            (Ok(lab), Err(error)) => {
                self.raised = Some(lab);
                return Err(TestbedError::Raise(error));
            }
            (Err(_), Err(error)) => return Err(TestbedError::Raise(error)),
            (found, Ok(())) => found?,
        };
        self.check = check;
        self.raised = Some(lab.clone());
        Ok(lab)
    }
}

impl Drop for Testbeds {
    fn drop(&mut self) {
        if let Some(lab) = &self.raised
            && let Err(error) = lab.down()
        {
            tell(&format!("canele bench: the lab `{RAISED}` stays: {error}"));
        }
    }
}

/// Returns the arguments that create a lab.
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

/// Returns the nodes of a place: within the first site, or one site's and then the other's.
fn nodes(spec: &Spec, place: Place) -> Vec<String> {
    let of = |site: u32| (0..spec.nodes).map(move |node| spec.host(site, node));
    match place {
        Place::Shm => Vec::new(),
        Place::Lan => of(0).collect(),
        Place::Wan if spec.sites < 2 => Vec::new(),
        Place::Wan => (0..spec.sites).flat_map(of).collect(),
    }
}

/// Name of the created lab.
const RAISED: &str = "bench";
/// Time limit to create and measure it.
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
        let mut testbeds = Testbeds::new(Path::new("/none/canele"), Some("nowhere".into()));
        let crossing = Crossing::default();
        let needs = Needs { nics: 1, nodes: 2, sites: 2, crossing, pairs: Vec::new() };
        let error = testbeds
            .prepare(Place::Wan, needs.clone(), &programs, &Interruption::default())
            .unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        let machine =
            testbeds.prepare(Place::Shm, needs, &programs, &Interruption::default()).unwrap();
        assert_eq!(machine.testbed, Testbed::Machine);
    }
}
