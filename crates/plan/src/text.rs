//! A topology as a line of text, from which tools plan the same as a job:
//! `0.0*4,1.0*4 roomy 600,4000000000,…`. It gives the ranks' nodes and sites in runs, whether ranks outnumber the
//! cores, and the costs. Two fields may follow. One gives the costs between sites that differ:
//! `0-1:5000000,117000000,4000;0-2:…`. The other gives the bytes of a page of each node's shared
//! segment.

use std::fmt;
use std::str::FromStr;

use crate::costs::{Costs, MessageCost};
use crate::crossings::Pairs;
use crate::topology::{Location, Topology};

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rank = 0;
        while rank < self.size() {
            let Location { node, site } = self.location(rank);
            let is_other = |other: &u32| self.location(*other) != Location { node, site };
            let end = (rank..self.size()).find(is_other).unwrap_or(self.size());
            let comma = if rank == 0 { "" } else { "," };
            write!(f, "{comma}{node}.{site}*{}", end - rank)?;
            rank = end;
        }
        let numbers = self.costs().numbers().map(|number| number.to_string()).join(",");
        write!(f, " {} {numbers}", if self.outnumbers_cores() { OVERSUBSCRIBED } else { ROOMY })?;
        for (index, (one, other, cost)) in self.pairs().iter().enumerate() {
            let MessageCost { latency_ns, bytes_per_s, overhead_ns } = cost;
            let begin = if index == 0 { ' ' } else { ';' };
            write!(f, "{begin}{one}-{other}:{latency_ns},{bytes_per_s},{overhead_ns}")?;
        }
        self.page_bytes().map_or(Ok(()), |page_bytes| write!(f, " {page_bytes}"))
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no topology, such as `0.0*4 roomy` and ten costs");
        let words: Vec<&str> = text.split(' ').collect();
        let [runs, room, costs, more @ ..] = &words[..] else { return Err(wrong()) };
        let (pairs, page_bytes) = match more {
            [] => (None, None),
            [pairs] if pairs.contains('-') => (Some(*pairs), None),
            [page_bytes] => (None, Some(*page_bytes)),
            [pairs, page_bytes] => (Some(*pairs), Some(*page_bytes)),
            _ => return Err(wrong()),
        };
        let pairs =
            pairs.map(pairs_of).unwrap_or_else(|| Some(Pairs::default())).ok_or_else(wrong)?;
        let page_bytes = page_bytes.map(|bytes| bytes.parse::<u64>().map_err(|_| wrong()));
        let is_oversubscribed = match *room {
            OVERSUBSCRIBED => true,
            ROOMY => false,
            _ => return Err(wrong()),
        };
        let mut locations = Vec::new();
        for run in runs.split(',') {
            let (location, count) = run_of(run).ok_or_else(wrong)?;
            if locations.len() + count > RANKS_MAX {
                return Err(format!("more than {RANKS_MAX} ranks"));
            }
            locations.extend(std::iter::repeat_n(location, count));
        }
        let costs = costs.split(',').map(|number| number.parse::<u64>().map(u64::to_le_bytes));
        let costs: Vec<[u8; 8]> = costs.collect::<Result<_, _>>().map_err(|_| wrong())?;
        let costs = Costs::parse(costs.as_flattened()).ok_or_else(wrong)?;
        let topology = Self::with_pairs(&locations, is_oversubscribed, costs, &pairs);
        Ok(match page_bytes.transpose()? {
            Some(page_bytes) => topology.with_shm_coll(page_bytes),
            None => topology,
        })
    }
}

fn run_of(text: &str) -> Option<(Location, usize)> {
    let (place, count) = text.split_once('*')?;
    let (node, site) = place.split_once('.')?;
    let location = Location { node: node.parse().ok()?, site: site.parse().ok()? };
    Some((location, count.parse().ok().filter(|count| *count > 0)?))
}

fn pairs_of(text: &str) -> Option<Pairs> {
    let pair = |text: &str| {
        let (sites, figures) = text.split_once(':')?;
        let (one, other) = sites.split_once('-')?;
        let figures: Vec<u64> =
            figures.split(',').map(|one| one.parse().ok()).collect::<Option<_>>()?;
        let &[latency_ns, bytes_per_s, overhead_ns] = &figures[..] else { return None };
        let cost = MessageCost { latency_ns, bytes_per_s, overhead_ns };
        Some((one.parse().ok()?, other.parse().ok()?, cost.bounded()))
    };
    Some(Pairs::new(text.split(';').map(pair).collect::<Option<Vec<_>>>()?))
}

const OVERSUBSCRIBED: &str = "oversubscribed";

const ROOMY: &str = "roomy";

/// Maximum number of ranks that a tool plans for.
const RANKS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Call, Operation};

    #[test]
    fn a_written_topology_gives_the_same_plans() {
        let at = |(node, site)| Location { node, site };
        let locations = [(0, 0), (0, 0), (1, 0), (2, 1), (2, 1), (0, 0)].map(at);
        let costs = Costs { wake_ns: 7, ..Costs::default() };
        let grid = Topology::new(&locations, false, costs);
        let oversubscribed = Topology::flat(5, true, costs);
        assert!(
            oversubscribed.to_string().starts_with("0.0*5 oversubscribed 600,4000000000,400,"),
            "{oversubscribed}"
        );
        let with_shm_coll = Topology::flat(4, false, costs).with_shm_coll(4096);
        let sites = [(0, 7), (1, 7), (2, 3), (3, 5)].map(at);
        let pairs =
            Pairs::new([(3, 7, costs.site), (5, 3, MessageCost { latency_ns: 9, ..costs.wide })]);
        let unlike = Topology::with_pairs(&sites, false, costs, &pairs);
        let text = " 0-1:20000,117000000,4000;0-2:6000000,117000000,4000;1-2:9,117000000,4000";
        assert!(unlike.to_string().ends_with(text), "{unlike}");
        let with_shm_colls = unlike.clone().with_shm_coll(64 << 10);
        for topology in [grid, oversubscribed, with_shm_coll, unlike, with_shm_colls] {
            let read: Topology = topology.to_string().parse().unwrap();
            assert_eq!(read.to_string(), topology.to_string());
            for operation in Operation::ALL {
                let call = Call::of(operation, 1000);
                assert_eq!(read.candidates(&call), topology.candidates(&call), "{operation}");
            }
        }
    }

    #[test]
    fn invalid_topologies_are_refused() {
        let numbers = "1,1,1,1,1,1,1,1,1,1";
        assert!(format!("0.0*2 roomy {numbers}").parse::<Topology>().is_ok());
        for text in
            ["", "0.0*2", "0*2 roomy 1", "0.0*0 roomy 1", "0.0*2 roomy 1,2", "0.0*x roomy 1"]
        {
            assert!(text.parse::<Topology>().unwrap_err().contains("is no topology"), "{text}");
        }
        for text in ["0.0*2 empty", "0.0* roomy", "0.0*99999999999999999999 roomy"] {
            assert!(format!("{text} {numbers}").parse::<Topology>().is_err(), "{text}");
        }
        for page in ["many", "4096 1", "0-1", "0-1:1,2", "0-x:1,2,3", "0-1:1,2,3;", "-"] {
            assert!(format!("0.0*2 roomy {numbers} {page}").parse::<Topology>().is_err(), "{page}");
        }
        let many = format!("0.0*65536,1.0*1 roomy {numbers}").parse::<Topology>();
        assert!(many.unwrap_err().contains("more than 65536"));
    }
}
