//! Placement of ranks on hosts by recorded traffic (`-place`).

use std::fs;
use std::path::Path;

use place::Host;

use crate::options::Options;
use crate::pattern::{Crossing, Pattern};

/// Result of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placing {
    /// Host of every rank, as an index into the hosts.
    pub homes: Vec<usize>,
    /// Summary of the predicted change, in one line.
    pub summary: String,
}

impl Placing {
    /// Places the ranks of a run by the pattern in a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is no pattern of this number of ranks; one line names it.
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

    /// Places the ranks of the pattern.
    fn by(pattern: &Pattern, options: &Options) -> Self {
        let before: Vec<u32> = options.placement().into_iter().map(|host| host as u32).collect();
        let sites = sites_of(options, pattern);
        let mut taken = vec![0; sites.len()];
        before.iter().for_each(|&home| taken[home as usize] += 1);
        // If there are fewer slots than ranks, hosts take as many ranks as without a pattern.
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
            crossing_text(now),
            crossing_text(then),
        );
        Self { homes: homes.into_iter().map(|home| home as usize).collect(), summary }
    }
}

/// Returns the site of every host, as dense numbers. Without a grid, the pattern has recorded the sites;
/// hosts unknown to it form one site together.
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

fn crossing_text(crossing: Crossing) -> String {
    let Crossing { sites_bytes, hosts_bytes } = crossing;
    format!("{sites_bytes} bytes between sites and {hosts_bytes} between hosts of a site")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use place::traffic::{Counted, Sent, TrafficKind};

    use super::*;
    use crate::command_line::Parsed;
    use crate::grid::Grid;

    fn options(line: &str) -> Options {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match Options::parse(&words).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// Returns a pattern in which even ranks exchange in a ring, and odd ranks in another, recorded on these
    /// hosts.
    fn pattern(size: u32, hosts: &[(&str, u32)]) -> Pattern {
        let counted = |rank: u32| {
            let to = (rank + 2) % size;
            let kind = TrafficKind::PointToPoint;
            let sent = vec![Sent { level: 1, kind, to, messages: 1, bytes: 100 }];
            Counted { site: hosts[rank as usize % hosts.len()].1, sent }
        };
        let counted: Vec<Counted> = (0..size).map(counted).collect();
        let names = hosts.iter().map(|host| host.0.to_owned()).cycle().take(size as usize);
        Pattern::of(&counted, &names.collect::<Vec<_>>())
    }

    #[test]
    fn ranks_that_exchange_data_share_a_host() {
        let placing = Placing::by(&pattern(8, &[("here", 0)]), &options("-n 8 -hosts a:4,b:4 x"));
        assert!((0..8).all(|rank| placing.homes[rank] == placing.homes[rank % 2]));
        assert_ne!(placing.homes[0], placing.homes[1]);
        let expected = "0 bytes between sites and 0 between hosts of a site instead of";
        assert!(
            placing.summary.starts_with("8 ranks on 2 hosts of 1 sites: "),
            "{}",
            placing.summary
        );
        assert!(placing.summary.contains(expected), "{}", placing.summary);
    }

    #[test]
    fn sites_are_those_of_the_recording() {
        let hosts = [("a", 0), ("b", 1), ("c", 0), ("d", 1)];
        let placing = Placing::by(&pattern(8, &hosts), &options("-n 8 -hosts a,b,c,d x"));
        let site = |rank: usize| hosts[placing.homes[rank]].1;
        assert!((0..8).all(|rank| site(rank) == site(rank % 2)));
        let expected = "0 bytes between sites and 400 between hosts";
        assert!(placing.summary.contains(expected), "{}", placing.summary);
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
