//! Recordings of ranks, collected through their agents when the ranks have ended.

/// The recordings of all ranks, as far as they have come.
pub(crate) struct Collected {
    parts: Vec<RankRecording>,
    /// Room for each, in bytes.
    room: usize,
}

/// The recording of a rank.
#[derive(Default)]
struct RankRecording {
    /// Name of its host in messages.
    host: String,
    bytes: Vec<u8>,
    state: RecordingState,
}

/// State of a rank's recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecordingState {
    /// Its rank runs, or was never started.
    #[default]
    Unknown,
    /// Its rank has ended.
    Awaited,
    /// All of it has come.
    Whole,
    /// Its agent is lost.
    Lost,
}

impl Collected {
    /// Expects recordings of at most `room` bytes from ranks on these hosts.
    pub fn new(hosts: &[String], room: u64) -> Self {
        let part = |host: &String| RankRecording { host: host.clone(), ..RankRecording::default() };
        Self { parts: hosts.iter().map(part).collect(), room: room as usize }
    }

    /// Notes that a rank has ended, after which its recording comes.
    pub fn expect(&mut self, rank: u32) {
        if let Some(part) = self.parts.get_mut(rank as usize)
            && part.state == RecordingState::Unknown
        {
            part.state = RecordingState::Awaited;
        }
    }

    /// Takes a piece of a rank's recording; an empty one ends it.
    pub fn take_piece(&mut self, rank: u32, piece: &[u8]) {
        let Some(part) = self.parts.get_mut(rank as usize) else { return };
        if piece.is_empty() {
            part.state = RecordingState::Whole;
        } else if part.bytes.len() + piece.len() <= self.room {
            part.bytes.extend_from_slice(piece);
        }
    }

    /// Expects nothing more of ranks whose agent is lost.
    pub fn give_up(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if let Some(part) = self.parts.get_mut(rank as usize)
                && part.state != RecordingState::Whole
            {
                part.state = RecordingState::Lost;
            }
        }
    }

    /// True while a recording of an ended rank is to come.
    pub fn is_awaiting(&self) -> bool {
        self.parts.iter().any(|part| part.state == RecordingState::Awaited)
    }

    /// Returns the ranks whose recordings have not come, with their hosts.
    pub fn missing(&self) -> Vec<String> {
        (0u32..)
            .zip(&self.parts)
            .filter(|(_, part)| {
                matches!(part.state, RecordingState::Awaited | RecordingState::Lost)
            })
            .map(|(rank, part)| format!("{rank} on {}", part.host))
            .collect()
    }

    /// Returns the host and the recording of each rank.
    pub fn into_parts(self) -> impl Iterator<Item = (String, Vec<u8>)> {
        self.parts.into_iter().map(|part| (part.host, part.bytes))
    }
}

/// Returns the first of these in one line.
pub(crate) fn some(all: &[String]) -> String {
    let shown = all[..all.len().min(SHOWN)].join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} others"),
    }
}

/// Number of ranks that a message names.
const SHOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(room: u64) -> Collected {
        Collected::new(&["here".into(), "here".into(), "far".into(), "far".into()], room)
    }

    #[test]
    fn a_recording_is_awaited_from_the_end_of_its_rank_until_it_is_whole_or_lost() {
        let mut all = collected(100);
        assert!(!all.is_awaiting());
        all.expect(1);
        all.expect(2);
        all.take_piece(1, b"some");
        all.take_piece(1, b"");
        assert!(all.is_awaiting());
        all.expect(1);
        all.give_up(&[1, 2, 3, 99]);
        assert!(!all.is_awaiting());
        assert_eq!(all.missing(), ["2 on far", "3 on far"]);
        let parts: Vec<_> = all.into_parts().collect();
        assert_eq!(parts[1], ("here".to_owned(), b"some".to_vec()));
    }

    #[test]
    fn recordings_are_bounded_whatever_an_agent_sends() {
        let mut all = collected(1000);
        let piece = vec![0; 300];
        (0..100).for_each(|_| all.take_piece(0, &piece));
        all.take_piece(77, &piece);
        assert_eq!(all.into_parts().next().map(|(_, bytes)| bytes.len()), Some(900));
    }

    #[test]
    fn many_ranks_are_named_in_one_line() {
        let all: Vec<String> = (0..9).map(|rank| rank.to_string()).collect();
        assert_eq!(some(&all), "0, 1, 2, 3 and 5 others");
        assert_eq!(some(&all[..2]), "0, 1");
    }
}
