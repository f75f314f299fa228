//! Numbers of ranks that will do (`-soft`, MPI-5.0 §11.5).

use crate::host::RANKS_MAX;

/// Ranges of numbers, each with first, last and step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soft(Vec<(u32, u32, u32)>);

impl Soft {
    /// Reads ranges such as `2,4:16:4`.
    ///
    /// # Errors
    /// Fails for anything else; the text continues "-soft VALUE: …".
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const MISTAKE: &str = "not a list of N, FROM:TO or FROM:TO:STEP";
        let number = |word: &str| word.parse::<u32>().ok().filter(|one| *one <= RANKS_MAX);
        let range = |word: &str| {
            let numbers: Option<Vec<u32>> = word.split(':').map(number).collect();
            match numbers?[..] {
                [one] => Some((one, one, 1)),
                [from, to] => Some((from, to, 1)),
                [from, to, step] if step > 0 => Some((from, to, step)),
                _ => None,
            }
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Self).ok_or(MISTAKE)
    }

    /// Returns the largest positive number of the set that is at most `most`.
    pub(crate) fn largest(&self, most: u32) -> Option<u32> {
        let below = |&(from, to, step): &(u32, u32, u32)| {
            let end = to.min(most);
            end.checked_sub(from).map(|span| from + span / step * step)
        };
        self.0.iter().filter_map(below).max().filter(|one| *one > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_that_will_do_is_found() {
        for (text, most, found) in [
            ("2", 8, Some(2)),
            ("2,4:16:4", 15, Some(12)),
            ("2,4:16:4", 3, Some(2)),
            ("2,4:16:4", 1, None),
            ("0:3", 0, None),
            ("1:1000000", 7, Some(7)),
        ] {
            assert_eq!(Soft::parse(text).unwrap().largest(most), found, "{text} {most}");
        }
        for text in ["", "a", "1:", "1:2:0", "1:2:3:4", "-1", "9999999"] {
            assert!(Soft::parse(text).is_err(), "{text}");
        }
    }
}
