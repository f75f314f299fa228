//! Patterns of labels and file names of a rank's output.

use crate::system;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A text with places for facts about the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Rank,
    /// The rank with as many digits as the last one has.
    PaddedRank,
    Host,
    /// Number of the host among those with ranks.
    Node,
    /// Number of the world: those that are spawned follow the first.
    World,
    /// Local time.
    Time,
    Stream,
}

/// Facts about the rank and the stream that a label is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelFacts<'a> {
    /// Number of the rank's world.
    pub world: u32,
    pub rank: u32,
    /// Number of ranks of the world.
    pub size: u32,
    pub host: &'a str,
    pub node: usize,
    pub stream: OutputStream,
}

impl Label {
    /// Reads a pattern of Hydra: `%r` is the rank, `%h` its host, `%p` the number of its host, `%g` that of the job.
    ///
    /// # Errors
    /// Fails for another letter; the text continues "-prepend-pattern VALUE: …".
    pub(crate) fn parse(pattern: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            let piece = match letter {
                '%' => match letters.next() {
                    Some('r') => Piece::Rank,
                    Some('h') => Piece::Host,
                    Some('p') => Piece::Node,
                    Some('g') => Piece::World,
                    Some('%') => Piece::Text("%".into()),
                    _ => return Err("after % comes one of r, h, p, g, %".into()),
                },
                _ => {
                    text.push(letter);
                    continue;
                }
            };
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(piece);
        }
        pieces.push(Piece::Text(text));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        Ok(Self(pieces))
    }

    /// Hydra's label `[RANK] `.
    pub(crate) fn rank() -> Self {
        Self(vec![Piece::Text("[".into()), Piece::Rank, Piece::Text("] ".into())])
    }

    /// Open MPI's label `[1,RANK]<STREAM>:`, behind the time if that is asked for.
    pub(crate) fn tag(has_time: bool) -> Self {
        let tag = [Piece::Text("[1,".into()), Piece::Rank, Piece::Text("]<".into())];
        let end = [Piece::Stream, Piece::Text(">:".into())];
        Self(has_time.then_some(Piece::Time).into_iter().chain(tag).chain(end).collect())
    }

    /// The time before another label, or Open MPI's label `TIME<STREAM>:`.
    pub(crate) fn with_time(label: Option<Self>) -> Self {
        let alone = || [Piece::Text("<".into()), Piece::Stream, Piece::Text(">:".into())].into();
        let rest = label.map_or_else(alone, |label| label.0);
        Self(
            [Piece::Time]
                .into_iter()
                .chain(rest.into_iter().filter(|one| *one != Piece::Time))
                .collect(),
        )
    }

    /// Open MPI's name of a file: `FOLDER/1/rank.RANK/NAME`.
    pub(crate) fn file(folder: &str, name: &str) -> Self {
        let (before, after) = (format!("{folder}/1/rank."), format!("/{name}"));
        Self(vec![Piece::Text(before), Piece::PaddedRank, Piece::Text(after)])
    }

    /// True if the time is part of it.
    pub(crate) fn has_time(&self) -> bool {
        self.0.contains(&Piece::Time)
    }

    /// Returns the text for a rank's stream.
    pub(crate) fn text(&self, facts: LabelFacts<'_>) -> String {
        let LabelFacts { world, rank, size, host, node, stream } = facts;
        // Ranks of a spawned world stand behind its number.
        let of_world = if world == 0 { String::new() } else { format!("{world}.") };
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Rank => format!("{of_world}{rank}"),
            Piece::PaddedRank => {
                let digits = size.saturating_sub(1).to_string().len();
                format!("{of_world}{rank:0digits$}")
            }
            Piece::Host => host.to_owned(),
            Piece::Node => node.to_string(),
            Piece::World => world.to_string(),
            Piece::Time => system::local_time(),
            Piece::Stream => match stream {
                OutputStream::Output => "stdout".into(),
                OutputStream::Error => "stderr".into(),
            },
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: LabelFacts<'_> = LabelFacts {
        world: 0,
        rank: 7,
        size: 101,
        host: "b",
        node: 1,
        stream: OutputStream::Error,
    };

    #[test]
    fn labels_name_rank_host_and_stream() {
        let text = |pattern: &str| Label::parse(pattern).map(|label| label.text(FACTS));
        assert_eq!(text("%r@%h/%p.%g: 100%% ").unwrap(), "7@b/1.0: 100% ");
        assert_eq!((text("").unwrap(), text("x").unwrap()), (String::new(), "x".to_owned()));
        assert!(text("%").is_err() && text("a%x").is_err());
        assert_eq!(Label::rank().text(FACTS), "[7] ");
        assert_eq!(Label::tag(false).text(FACTS), "[1,7]<stderr>:");
        assert_eq!(Label::file("d", "stderr").text(FACTS), "d/1/rank.007/stderr");
        let spawned = LabelFacts { world: 2, ..FACTS };
        assert_eq!(Label::parse("%g:%r").unwrap().text(spawned), "2:2.7");
        assert_eq!(Label::file("d", "stderr").text(spawned), "d/1/rank.2.007/stderr");
    }

    #[test]
    fn the_time_is_before_all_else_and_there_once() {
        let timed = Label::with_time(Some(Label::rank()));
        assert!(timed.has_time() && timed.text(FACTS).ends_with("[7] "), "{timed:?}");
        assert_eq!(Label::with_time(Some(timed.clone())), timed);
        assert!(Label::with_time(None).text(FACTS).ends_with("<stderr>:"));
        assert!(Label::tag(true).text(FACTS).ends_with("[1,7]<stderr>:"));
    }
}
