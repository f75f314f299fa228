//! Report of a rank for its launcher: the calls in which its threads wait, what is unmatched, and its traffic.
//!
//! The launcher passes a socket (`CANELE_REPORT_SOCKET`, descriptor and inode) and writes a number and a line feed. A second
//! number asks for the traffic, which is counted from then on for as many milliseconds. The rank answers with lines of words
//! separated by tabs, and ends with the first number. All lengths are bounded.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::identity;
use crate::rank_load::RankLoad;

/// State of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankReport {
    /// Threads that wait in a call.
    pub waits: Vec<RankWait>,
    /// Lines about unmatched receives and messages, and about links that are down.
    pub notes: Vec<String>,
    /// Its traffic and queues, if they were asked for.
    pub load: Option<RankLoad>,
}

/// A request for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRequest {
    /// Number of the request, which ends the answer.
    pub number: u64,
    /// Time for which traffic is to be counted, if it is asked for.
    pub watch: Option<Duration>,
}

/// A thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankWait {
    /// Name of the call, such as `MPI_Recv`; empty if unknown.
    pub call: String,
    /// Place in the program that has called it; empty if unknown.
    pub place: String,
    /// Milliseconds in which nothing has completed in the process.
    pub quiet_ms: u64,
    /// Text of what it waits for.
    pub what: String,
    /// Ranks of the job that it waits for.
    pub ranks: Vec<u32>,
    /// True if one of the ranks suffices.
    pub is_any: bool,
}

impl RankReport {
    /// Returns the text of the answer to a request.
    pub fn text(&self, number: u64) -> String {
        let mut text = String::new();
        for wait in self.waits.iter().take(LINES_MAX) {
            let ranks: Vec<String> =
                wait.ranks.iter().take(RANKS_MAX).map(u32::to_string).collect();
            let kind = if wait.is_any { "any" } else { "all" };
            let words = [&wait.call, &wait.place, &wait.what].map(|text| word(text));
            let [call, place, what] = words;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "wait\t{call}\t{place}\t{}\t{kind}\t{}\t{what}",
                wait.quiet_ms,
                ranks.join(",")
            );
        }
        for note in self.notes.iter().take(LINES_MAX) {
            let _ = writeln!(text, "note\t{}", word(note));
        }
        if let Some(load) = &self.load {
            load.write(&mut text);
        }
        let _ = writeln!(text, "end\t{number}");
        text
    }

    /// Reads lines of an answer, without its last. Lines that are not understood are left out.
    pub fn parse(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines().take(ANSWER_LINES_MAX) {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["wait", call, place, quiet, kind, ranks, what] => {
                    let ranks = ranks.split(',').filter_map(|rank| rank.parse().ok());
                    report.waits.push(RankWait {
                        call: call.into(),
                        place: place.into(),
                        quiet_ms: quiet.parse().unwrap_or(0),
                        what: what.into(),
                        ranks: ranks.take(RANKS_MAX).collect(),
                        is_any: kind == "any",
                    });
                }
                ["note", note] => report.notes.push(note.into()),
                ["load", ref words @ ..] => {
                    report.load.get_or_insert_default().parse_counts(words);
                }
                ["sent", ref words @ ..] => {
                    report.load.get_or_insert_default().parse_sent(words);
                }
                _ => {}
            }
        }
        report
    }
}

/// The socket on which a launcher asks for reports.
#[derive(Debug)]
pub struct ReportSocket(UnixStream);

impl ReportSocket {
    /// Takes the socket that the launcher has passed; none if there is none. The process must have taken the launcher's
    /// connection.
    pub(crate) fn take() -> Option<Self> {
        let value = std::env::var(REPORT_VARIABLE).ok()?;
        let (fd, inode) = value.split_once(':')?;
        let (fd, inode): (i32, u64) = (fd.parse().ok()?, inode.parse().ok()?);
        let is_passed = identity::socket_inode(fd) == Some(inode);
        is_passed.then(|| identity::take(fd).ok().map(Self)).flatten()
    }

    /// Answers requests until the launcher closes the socket.
    pub fn serve(&self, mut report: impl FnMut(ReportRequest) -> RankReport) {
        let mut lines = BufReader::new(&self.0);
        let mut line = String::new();
        while matches!((&mut lines).take(REQUEST_MAX).read_line(&mut line), Ok(1..)) {
            let Some(request) = ReportRequest::parse(&line) else { return };
            line.clear();
            let text = report(request).text(request.number);
            if (&self.0).write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

impl ReportRequest {
    /// Reads the text of a request; none if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let watch = words.next().map(str::parse).transpose().ok()?;
        Some(Self { number, watch: watch.map(Duration::from_millis) })
    }

    /// Returns the text of the request.
    pub fn text(&self) -> String {
        let watch = self.watch.map(|watch| format!(" {}", watch.as_millis()));
        format!("{}{}", self.number, watch.unwrap_or_default())
    }
}

/// Asks a rank for its report, and waits for it. None if it does not answer in time.
pub fn ask_rank(
    socket: &UnixStream,
    request: ReportRequest,
    patience: Duration,
) -> Option<RankReport> {
    let number = request.number;
    let ask = || -> io::Result<String> {
        socket.set_write_timeout(Some(patience))?;
        (&mut &*socket).write_all(format!("{}\n", request.text()).as_bytes())?;
        socket.set_read_timeout(Some(patience))?;
        let mut lines = BufReader::new(socket.take(ANSWER_MAX));
        let (mut text, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end().strip_prefix("end\t") {
                Some(end) if end == number.to_string() => return Ok(text),
                // The answer to an earlier request, which came late.
                Some(_) => text.clear(),
                None => text += &line,
            }
        }
    };
    ask().ok().map(|text| RankReport::parse(&text))
}

/// Shortens a text to one word of a line.
fn word(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    clean.take(TEXT_MAX).collect()
}

/// Variable with the socket: `descriptor:inode`.
pub const REPORT_VARIABLE: &str = "CANELE_REPORT_SOCKET";

/// Maximum number of waits, and of notes, in an answer.
const LINES_MAX: usize = 32;
/// Maximum number of lines that are read of an answer.
const ANSWER_LINES_MAX: usize = 256;
/// Maximum number of ranks that a wait names.
const RANKS_MAX: usize = 256;
/// Longest text in an answer, in letters.
const TEXT_MAX: usize = 200;
/// Longest request.
const REQUEST_MAX: u64 = 48;
/// Longest answer, with late ones to earlier requests.
const ANSWER_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::rank_load::{Reach, SentTo};

    fn ask(number: u64) -> ReportRequest {
        ReportRequest { number, watch: None }
    }

    fn report() -> RankReport {
        let wait = RankWait {
            call: "MPI_Recv".into(),
            place: "ring+0x12".into(),
            quiet_ms: 1234,
            what: "a message\tfrom\nrank 1".into(),
            ranks: vec![1, 3],
            is_any: true,
        };
        let sent =
            SentTo { reach: Reach::Far, rank: 7, messages: 3, bytes: 1 << 40, ..SentTo::default() };
        let load =
            RankLoad { at_us: 9, samples: 4, posted: 2, sent: vec![sent], ..RankLoad::default() };
        RankReport {
            waits: vec![wait, RankWait::default()],
            notes: vec!["1 receive".into()],
            load: Some(load),
        }
    }

    #[test]
    fn a_report_is_read_as_written() {
        let mut expected = report();
        expected.waits[0].what = "a message from rank 1".into();
        assert_eq!(RankReport::parse(&report().text(7)), expected);
    }

    #[test]
    fn texts_are_bounded() {
        let long = RankWait {
            what: "x".repeat(9999),
            ranks: (0..99_999).collect(),
            ..RankWait::default()
        };
        let sent = vec![SentTo { bytes: u64::MAX, ..SentTo::default() }; 9999];
        let all = RankReport {
            waits: vec![long; 999],
            notes: vec!["y".repeat(9999); 999],
            load: Some(RankLoad { sent, ..RankLoad::default() }),
        };
        let text = all.text(1);
        assert!(text.len() < ANSWER_MAX as usize / 4, "{}", text.len());
        assert_eq!(RankReport::parse(&text).waits.len(), LINES_MAX);
    }

    #[test]
    fn nonsense_is_left_out() {
        for text in ["", "wait", "wait\ta\tb", "note", "pony\tx", "\t\t\t\t\t\t\t\t"] {
            assert_eq!(ReportRequest::parse(text), None, "{text}");
            assert_eq!(RankReport::parse(text), RankReport::default(), "{text}");
        }
        let odd = RankReport::parse("wait\ta\tb\tx\ty\t1,z,2\tc");
        assert_eq!((odd.waits[0].quiet_ms, &odd.waits[0].ranks[..]), (0, &[1, 2][..]));
        for text in [
            "load",
            "load\tpony=1\tposted=x\t=\t",
            "sent",
            "sent\tnode\t1",
            "sent\ta\t1\t1\t1\t1\t1",
        ] {
            assert_eq!(RankReport::parse(text).load, Some(RankLoad::default()), "{text}");
        }
    }

    #[test]
    fn requests_are_read_as_written() {
        for watch in [None, Some(Duration::from_millis(2500))] {
            let request = ReportRequest { number: 7, watch };
            assert_eq!(ReportRequest::parse(&request.text()), Some(request));
        }
        assert_eq!(ReportRequest::parse("7 soon"), None);
        assert_eq!(ReportRequest::parse("-7"), None);
    }

    #[test]
    fn a_late_answer_is_not_taken_for_the_next() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (given_up, has_given_up) = mpsc::channel();
        let server = thread::spawn(move || {
            let mut count = 0;
            ReportSocket(theirs).serve(|_| {
                count += 1;
                if count == 1 {
                    has_given_up.recv().unwrap();
                }
                RankReport { notes: vec![count.to_string()], ..RankReport::default() }
            });
        });
        assert_eq!(ask_rank(&ours, ask(1), Duration::from_millis(20)), None);
        given_up.send(()).unwrap();
        let second = ask_rank(&ours, ask(2), Duration::from_secs(20)).unwrap();
        assert_eq!(second.notes, ["2"]);
        drop(ours);
        server.join().unwrap();
    }
}
