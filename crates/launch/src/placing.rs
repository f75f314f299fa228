//! Which host each rank goes to, by traffic that was recorded (`-place`).

use std::fs;
use std::path::Path;

use place::Host;

use crate::options::Options;
use crate::pattern::{Crossing, Pattern};

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placing {
    /// The host of every rank, as an index into the hosts.
    pub homes: Vec<usize>,
    /// What it is predicted to change, in a line.
    pub summary: String,
}

impl Placing {
    /// The hosts for the ranks of a run, by the pattern in a file.
    ///
    /// # Errors
    /// When the file cannot be read, is no pattern or that of another number of ranks; a line that names it.
    pub fn by_file(path: &Path, options: &Options) -> Result<Self, String> {
        let name = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| format!("-place {name}: cannot be read: {error}"))?;
        let pattern = Pattern::parse(&text).map_err(|error| format!("-place {name}: {error}"))?;
        let size = options.size();
        if pattern.ranks() != size {
            let ranks = pattern.ranks();
            return Err(format!("-place {name}: is of {ranks} ranks, this job has {size}"));
        }
        Ok(Self::by(&pattern, options))
    }

    /// The hosts for as many ranks as the pattern has.
    fn by(pattern: &Pattern, options: &Options) -> Self {
        let before: Vec<u32> = options.placement().into_iter().map(|host| host as u32).collect();
        let sites = sites_of(options, pattern);
        let mut taken = vec![0; sites.len()];
        before.iter().for_each(|&home| taken[home as usize] += 1);
        // Where there are fewer slots than ranks, hosts take as many as they would.
        let host = |(index, (&site, &taken)): (usize, (&u32, &u32))| Host {
            site,
            slots: options.slots(index).max(taken),
        };
        let hosts: Vec<Host> = sites.iter().zip(&taken).enumerate().map(host).collect();
        let homes = place::place(&pattern.graph(), &hosts, &before);
        let [then, now] = [&before, &homes].map(|homes| pattern.crossing(homes, &sites));
        let summary = format!(
            "{} ranks on {} hosts of {} sites: {} instead of {}",
            pattern.ranks(),
            hosts.len(),
            sites.iter().max().map_or(0, |last| last + 1),
            told(now),
            told(then),
        );
        Self { homes: homes.into_iter().map(|home| home as usize).collect(), summary }
    }
}

/// The site of every host, by dense numbers. Without a grid it is what was found when the pattern was recorded;
/// hosts that were not there are of one site together.
fn sites_of(options: &Options, pattern: &Pattern) -> Vec<u32> {
    let Some(grid) = &options.grid else {
        let mut known: Vec<Option<u32>> = Vec::new();
        let number = |host: &str| {
            let place = pattern.hosts().iter().find(|place| place.host == host);
            let site = place.map(|place| place.site);
            known.iter().position(|one| *one == site).unwrap_or_else(|| {
                known.push(site);
                known.len() - 1
            }) as u32
        };
        return options.host_names().map(number).collect();
    };
    let sites = (0u32..).zip(&grid.sites);
    sites.flat_map(|(number, site)| vec![number; site.hosts.len()]).collect()
}

fn told(crossing: Crossing) -> String {
    let Crossing { sites_bytes, hosts_bytes } = crossing;
    format!("{sites_bytes} bytes between sites and {hosts_bytes} between hosts of a site")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use place::traffic::{Counted, Kind, Sent};

    use super::*;
    use crate::grid::Grid;
    use crate::options::Parsed;

    fn options(line: &str) -> Options {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match Options::parse(&words).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// Even ranks exchange with even ones, odd ones with odd ones, in a ring; recorded where these ran.
    fn pattern(size: u32, hosts: &[(&str, u32)]) -> Pattern {
        let counted = |rank: u32| {
            let to = (rank + 2) % size;
            let kind = Kind::PointToPoint;
            let sent = vec![Sent { level: 1, kind, to, messages: 1, bytes: 100 }];
            Counted { site: hosts[rank as usize % hosts.len()].1, sent }
        };
        let counted: Vec<Counted> = (0..size).map(counted).collect();
        let names = hosts.iter().map(|host| host.0.to_owned()).cycle().take(size as usize);
        Pattern::of(&counted, &names.collect::<Vec<_>>())
    }

    #[test]
    fn who_exchanges_something_is_on_one_host() {
        let placing = Placing::by(&pattern(8, &[("here", 0)]), &options("-n 8 -hosts a:4,b:4 x"));
        assert!((0..8).all(|rank| placing.homes[rank] == placing.homes[rank % 2]));
        assert_ne!(placing.homes[0], placing.homes[1]);
        let told = "0 bytes between sites and 0 between hosts of a site instead of";
        assert!(
            placing.summary.starts_with("8 ranks on 2 hosts of 1 sites: "),
            "{}",
            placing.summary
        );
        assert!(placing.summary.contains(told), "{}", placing.summary);
    }

    #[test]
    fn sites_are_those_that_were_found_when_it_was_recorded() {
        let hosts = [("a", 0), ("b", 1), ("c", 0), ("d", 1)];
        let placing = Placing::by(&pattern(8, &hosts), &options("-n 8 -hosts a,b,c,d x"));
        let site = |rank: usize| hosts[placing.homes[rank]].1;
        assert!((0..8).all(|rank| site(rank) == site(rank % 2)));
        let told = "0 bytes between sites and 400 between hosts";
        assert!(placing.summary.contains(told), "{}", placing.summary);
        let strangers = sites_of(&options("-n 8 -hosts x,b,y,a m"), &pattern(8, &hosts));
        assert_eq!(strangers, [0, 1, 0, 2]);
    }

    #[test]
    fn a_grid_says_which_hosts_are_near() {
        let mut options = options("-n 6 x");
        let grid = "[[site]]\nname = \"n\"\nhosts = [\"a:2\", \"b:1\"]\n\
            [[site]]\nname = \"s\"\nhosts = [\"c:3\"]\n";
        options.take_grid(Grid::parse(grid, "g").unwrap());
        let placing = Placing::by(&pattern(6, &[("x", 0)]), &options);
        let far = placing.homes[0] == 2;
        assert!((0..6).all(|rank| (placing.homes[rank] == 2) == (far == (rank % 2 == 0))));
    }
}
