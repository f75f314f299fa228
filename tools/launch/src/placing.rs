//! Placement of ranks on hosts by recorded traffic, and by the speeds of hosts (`-place`).

use std::fs;
use std::path::Path;

use place::{Capacity, Host};

use crate::options::Options;
use crate::pattern::{Crossing, Pattern};

/// Result of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placing {
    /// Host of every rank, as an index into the hosts.
    pub homes: Vec<usize>,
    /// Summary of the predicted change: one line, and another if hosts are of unequal speed.
    pub summary: Vec<String>,
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
        let in_turn: Vec<u32> = options.placement().into_iter().map(|host| host as u32).collect();
        let sites = sites_of(options, pattern);
        let speeds = Speeds::of(options, pattern);
        let (limits, before) = match speeds.limits(options) {
            Some(limits) => {
                let hosts = (0u32..).zip(&limits);
                let filled = hosts.flat_map(|(host, &limit)| vec![host; limit as usize]);
                let before = filled.take(in_turn.len()).collect();
                (limits, before)
            }
            None => {
                // If there are fewer slots than ranks, hosts take as many ranks as without a pattern.
                let taken = counts(&in_turn, sites.len());
                let limit = |(host, &taken): (usize, &u32)| options.slots(host).max(taken);
                (taken.iter().enumerate().map(limit).collect(), in_turn.clone())
            }
        };
        let hosts = sites.iter().zip(&limits).map(|(&site, &slots)| Host { site, slots });
        let hosts: Vec<Host> = hosts.collect();
        let homes = place::place(&pattern.graph(), &hosts, &before);
        let [then, now] = [&in_turn, &homes].map(|homes| pattern.crossing(homes, &sites));
        let traffic = format!(
            "{} ranks on {} hosts of {} sites: {} instead of {}",
            pattern.ranks(),
            hosts.len(),
            sites.iter().max().map_or(0, |last| last + 1),
            crossing_text(now),
            crossing_text(then),
        );
        let by_speed = speeds.text(options, &counts(&homes, hosts.len()), &in_turn);
        let summary = std::iter::once(traffic).chain(by_speed).collect();
        Self { homes: homes.into_iter().map(|home| home as usize).collect(), summary }
    }
}

/// Speed of every host in hundredths of a usual core, if it is known.
struct Speeds(Vec<Option<u32>>);

impl Speeds {
    /// Takes the speeds of the grid file, and those measured when the pattern was recorded.
    fn of(options: &Options, pattern: &Pattern) -> Self {
        let sites = options.grid.iter().flat_map(|grid| &grid.sites);
        let given = sites.flat_map(|site| site.hosts.iter().map(|_| site.speed_percent));
        let measured =
            |host: &str| pattern.hosts().iter().find(|place| place.host == host)?.speed_percent;
        let given = given.chain(std::iter::repeat(None));
        Self(options.host_names().zip(given).map(|(host, own)| own.or(measured(host))).collect())
    }

    /// Returns the most ranks of each host. None if the speeds of hosts do not differ, or if the
    /// order of hosts was asked for. A host of unknown speed counts as the fastest.
    fn limits(&self, options: &Options) -> Option<Vec<u32>> {
        if options.mapping.by_host {
            return None;
        }
        let fastest = self.0.iter().flatten().copied().max()?;
        let capacity = |(host, speed): (usize, &Option<u32>)| Capacity {
            slots: options.slots(host),
            speed: speed.unwrap_or(fastest),
        };
        let hosts: Vec<Capacity> = self.0.iter().enumerate().map(capacity).collect();
        place::limits(&hosts, options.size())
    }

    /// Returns the ranks and the speed of the hosts, if speeds have changed the numbers of ranks.
    fn text(&self, options: &Options, counts: &[u32], in_turn: &[u32]) -> Option<String> {
        self.limits(options).filter(|_| counts != self::counts(in_turn, counts.len()))?;
        let hosts = options.host_names().zip(counts).zip(&self.0);
        let host = |((host, count), speed): ((&str, &u32), &Option<u32>)| match speed {
            Some(percent) => format!("{host} takes {count} (speed {})", decimal(*percent)),
            None => format!("{host} takes {count} (speed unknown)"),
        };
        let mut words: Vec<String> = hosts.take(NAMED_MAX).map(host).collect();
        if counts.len() > NAMED_MAX {
            words.push(format!("and {} hosts more", counts.len() - NAMED_MAX));
        }
        Some(format!("ranks by the speeds of hosts: {}", words.join(", ")))
    }
}

/// Returns the number of ranks on each host.
fn counts(homes: &[u32], hosts: usize) -> Vec<u32> {
    let mut counts = vec![0; hosts];
    homes.iter().for_each(|&home| counts[home as usize] += 1);
    counts
}

/// Returns hundredths as a decimal number without zeros at its end.
fn decimal(percent: u32) -> String {
    (f64::from(percent) / 100.0).to_string()
}

/// Maximum number of hosts that are named.
const NAMED_MAX: usize = 8;

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
            Counted { site: hosts[rank as usize % hosts.len()].1, speed_percent: 100, sent }
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
            placing.summary[0].starts_with("8 ranks on 2 hosts of 1 sites: "),
            "{:?}",
            placing.summary
        );
        assert!(placing.summary[0].contains(expected), "{:?}", placing.summary);
        assert_eq!(placing.summary.len(), 1, "hosts are equally fast");
    }

    #[test]
    fn sites_are_those_of_the_recording() {
        let hosts = [("a", 0), ("b", 1), ("c", 0), ("d", 1)];
        let placing = Placing::by(&pattern(8, &hosts), &options("-n 8 -hosts a,b,c,d x"));
        let site = |rank: usize| hosts[placing.homes[rank]].1;
        assert!((0..8).all(|rank| site(rank) == site(rank % 2)));
        let expected = "0 bytes between sites and 400 between hosts";
        assert!(placing.summary[0].contains(expected), "{:?}", placing.summary);
        let strangers = sites_of(&options("-n 8 -hosts x,b,y,a m"), &pattern(8, &hosts));
        assert_eq!(strangers, [0, 1, 0, 2]);
    }

    /// Returns the pattern of a ring, recorded on hosts `a` of speed 1 and `b` of speed 0.5.
    fn ring_on_unequal_hosts(size: u32) -> Pattern {
        let counted = |rank: u32| {
            let (to, kind) = ((rank + 1) % size, TrafficKind::PointToPoint);
            let sent = vec![Sent { level: 1, kind, to, messages: 1, bytes: 100 }];
            Counted { site: 0, speed_percent: [100, 50][rank as usize % 2], sent }
        };
        let names = ["a", "b"].map(str::to_owned).into_iter().cycle().take(size as usize);
        Pattern::of(&(0..size).map(counted).collect::<Vec<_>>(), &names.collect::<Vec<_>>())
    }

    #[test]
    fn slower_hosts_take_fewer_ranks_where_the_user_leaves_the_choice() {
        for (line, expected) in [
            ("-n 6 -hosts b,a x", vec![2, 4]),
            ("-n 6 -hosts b:6,a:6 x", vec![0, 6]),
            // The user has decided.
            ("-n 6 -hosts b:3,a:3 x", vec![3, 3]),
            ("-n 6 -ppn 3 -hosts b,a x", vec![3, 3]),
            ("-n 6 -map-by node -hosts b,a x", vec![3, 3]),
            // One of unknown speed counts as the fastest.
            ("-n 5 -hosts b,a,c x", vec![1, 2, 2]),
        ] {
            let options = options(line);
            let placing = Placing::by(&ring_on_unequal_hosts(options.size()), &options);
            let mut found = vec![0; expected.len()];
            placing.homes.iter().for_each(|&home| found[home] += 1);
            assert_eq!(found, expected, "{line}: {:?}", placing.summary);
        }
        let placing = Placing::by(&ring_on_unequal_hosts(6), &options("-n 6 -hosts b,a x"));
        let [traffic, speeds] = &placing.summary[..] else { panic!("{:?}", placing.summary) };
        assert!(traffic.contains(": 0 bytes between sites and 200 between hosts"), "{traffic}");
        let expected = "ranks by the speeds of hosts: b takes 2 (speed 0.5), a takes 4 (speed 1)";
        assert_eq!(speeds, expected);
    }

    #[test]
    fn speeds_of_the_grid_file_count_before_measured_ones() {
        let grid = |speed: &str| {
            let mut options = options("-n 6 x");
            let text = format!(
                "[[site]]\nname = \"n\"\nhosts = [\"a\"]\n{speed}\
                 [[site]]\nname = \"s\"\nhosts = [\"b\"]\n"
            );
            options.take_grid(Grid::parse(&text, "g").unwrap());
            let placing = Placing::by(&ring_on_unequal_hosts(6), &options);
            placing.homes.iter().filter(|&&home| home == 0).count()
        };
        assert_eq!((grid(""), grid("speed = 0.25\n"), grid("speed = 0.5\n")), (4, 2, 3));
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
