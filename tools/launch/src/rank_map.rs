//! Ranks of each host: as text, and in the format of PMI.

/// Returns the hosts with their ranks, in the order of their numbers.
pub(crate) fn rank_map(hosts: &[String], nodes: &[usize]) -> Vec<(String, Vec<usize>)> {
    let count = nodes.iter().max().map_or(0, |last| last + 1);
    let mut map = vec![(String::new(), Vec::new()); count];
    for (rank, (host, node)) in hosts.iter().zip(nodes).enumerate() {
        map[*node].0.clone_from(host);
        map[*node].1.push(rank);
    }
    map
}

/// Joins numbers by commas.
pub(crate) fn joined(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the ranks per node in PMI's format: blocks of (first node, nodes, ranks on each).
pub(crate) fn mapping(homes: &[usize]) -> String {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for &home in homes {
        match blocks.last_mut() {
            Some((last, ranks)) if *last == home => *ranks += 1,
            _ => blocks.push((home, 1)),
        }
    }
    let blocks: Vec<String> =
        blocks.iter().map(|(home, ranks)| format!("({home},1,{ranks})")).collect();
    format!("(vector,{})", blocks.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_names_blocks_of_ranks() {
        assert_eq!(mapping(&[0, 0, 1, 1, 1]), "(vector,(0,1,2),(1,1,3))");
    }

    #[test]
    fn hosts_have_their_ranks() {
        let hosts = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(
            rank_map(&hosts, &[0, 1, 0]),
            [("a".to_owned(), vec![0, 2]), ("b".to_owned(), vec![1])]
        );
        assert_eq!(joined(&[0, 2]), "0,2");
    }
}
