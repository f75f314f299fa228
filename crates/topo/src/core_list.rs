//! Lists of cores as the kernel writes them.

/// Parses a list of cores such as `0-3,8`.
pub fn numbers(text: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < CORES_MAX).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Returns the text of a sorted list of cores, as the kernel writes it.
pub fn text(cores: &[usize]) -> String {
    let ranges = cores.chunk_by(|one, next| one + 1 == *next).filter_map(|range| {
        let (first, last) = (range.first()?, range.last()?);
        Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// Upper limit, above the maximum of any Linux build.
const CORES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-1"), Some(vec![0, 1]));
        assert_eq!(numbers("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for text in ["", "3-1", "a", "0-", "0-99999999"] {
            assert_eq!(numbers(text), None, "{text}");
        }
    }

    #[test]
    fn lists_of_cores_are_written() {
        for list in ["", "0", "0-1", "0-3,8,10-11"] {
            assert_eq!(text(&numbers(list).unwrap_or_default()), list);
        }
    }
}
