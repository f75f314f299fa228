//! Output of the ranks, printed line by line.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::label::{Label, LabelFacts, OutputStream};
use crate::output_files::OutputFiles;
use crate::system;

/// Worlds and hosts of the processes, as labels name them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Host of each process, and its number.
    hosts: Vec<(String, usize)>,
    /// Numbers of the hosts.
    nodes: HashMap<String, usize>,
    /// First process of each world.
    worlds: Vec<u32>,
}

/// Output streams of all ranks. Whole lines are printed at once. An unfinished line waits until it ends,
/// exceeds [`LINE_MAX`] or is flushed. While a longer line is printed in pieces, the others wait for its end.
#[derive(Debug)]
pub(crate) struct Outputs {
    label: Option<Label>,
    places: Places,
    files: OutputFiles,
    partial: HashMap<(u32, OutputStream), PartialLine>,
    /// The line that is printed in pieces, on each of the two streams.
    long: HashMap<OutputStream, LongLine>,
    /// True if some output could not be printed.
    lost: bool,
    /// True if nobody reads our standard output any more.
    unread: bool,
}

/// An unfinished line.
#[derive(Debug, Default)]
struct PartialLine {
    bytes: Vec<u8>,
    /// True if its beginning was printed already.
    is_printed: bool,
    /// True if it is printed although it is unfinished.
    is_last: bool,
}

/// A line that is printed in pieces.
#[derive(Debug)]
struct LongLine {
    rank: u32,
    /// Time of its last piece.
    last: Instant,
    /// Bytes of other ranks that wait for its end.
    held_bytes: usize,
}

impl Outputs {
    /// Creates empty streams. With a label, every line begins with it.
    pub fn new(label: Option<Label>, files: OutputFiles) -> Self {
        let (partial, long, places) = (HashMap::new(), HashMap::new(), Places::default());
        Self { label, places, files, partial, long, lost: false, unread: false }
    }

    /// Prints the whole lines of a rank's output and keeps the rest.
    pub fn print(&mut self, rank: u32, stream: OutputStream, bytes: &[u8]) {
        let written = self.files.write(self.places.facts(rank, stream), bytes);
        let is_printed = written.unwrap_or_else(|text| {
            self.tell_lost(&text);
            true
        });
        if !is_printed {
            return;
        }
        let text = self.take_lines(rank, stream, bytes, Instant::now());
        self.print_text(stream, &text);
    }

    /// Prints unfinished lines while no other output arrives, because they may be prompts. Labelled ones wait
    /// for their end, so that labels begin lines only. A long line that does
    /// not go on is broken off for those that wait for its end.
    pub fn flush_prompts(&mut self) {
        let now = Instant::now();
        for stream in [OutputStream::Output, OutputStream::Error] {
            if self.long.get(&stream).is_some_and(|long| long.is_awaited(now)) {
                continue;
            }
            let text = self.break_long(stream, now);
            self.print_text(stream, &text);
            if self.label.is_none() {
                self.flush_stream(stream);
            }
        }
    }

    /// Prints all unfinished lines.
    pub fn flush_all(&mut self) {
        self.flush_stream(OutputStream::Output);
        self.flush_stream(OutputStream::Error);
    }

    fn flush_stream(&mut self, stream: OutputStream) {
        for rank in self.ranks_of(stream) {
            self.flush(rank, stream);
        }
    }

    /// Prints the unfinished line of one stream, behind the long line of another rank.
    pub fn flush(&mut self, rank: u32, stream: OutputStream) {
        let text = self.take_rest(rank, stream, Instant::now());
        self.print_text(stream, &text);
    }

    /// Adds a world, whose ranks are on these hosts.
    pub fn add_world(&mut self, hosts: &[String]) {
        self.places.worlds.push(self.places.hosts.len() as u32);
        for host in hosts {
            let next = self.places.nodes.len();
            let node = *self.places.nodes.entry(host.clone()).or_insert(next);
            self.places.hosts.push((host.clone(), node));
        }
    }

    /// True if some output could not be printed.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// True if nobody reads our standard output any more.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    fn print_text(&mut self, stream: OutputStream, text: &[u8]) {
        match write(stream, text) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => match stream {
                OutputStream::Output => self.unread = true,
                // Messages are no result, so the job goes on without them.
                OutputStream::Error => {}
            },
            Err(error) => {
                self.tell_lost(&format!("output of the ranks cannot be written: {error}"));
            }
        }
    }

    fn tell_lost(&mut self, text: &str) {
        if !std::mem::replace(&mut self.lost, true) {
            tell!("mpiexec: {text}");
        }
    }

    fn ranks_of(&self, stream: OutputStream) -> Vec<u32> {
        let ranks = self.partial.keys().filter(|(_, of)| *of == stream).map(|(rank, _)| *rank);
        let mut ranks: Vec<u32> = ranks.collect();
        ranks.sort_unstable();
        ranks
    }

    /// Takes bytes of a rank. Returns the text to print now.
    fn take_lines(
        &mut self,
        rank: u32,
        stream: OutputStream,
        bytes: &[u8],
        now: Instant,
    ) -> Vec<u8> {
        self.partial.entry((rank, stream)).or_default().bytes.extend_from_slice(bytes);
        let mut text = Vec::new();
        match self.long.get_mut(&stream) {
            Some(long) if long.rank == rank => long.last = now,
            Some(long) => {
                long.held_bytes += bytes.len();
                if long.is_awaited(now) {
                    return text;
                }
                text = self.break_long(stream, now);
            }
            None => {}
        }
        text.extend(self.take_own(rank, stream, now));
        text
    }

    /// Takes what is ready of a rank, and what others have held back if its long line ends.
    fn take_own(&mut self, rank: u32, stream: OutputStream, now: Instant) -> Vec<u8> {
        let was_long = self.long.contains_key(&stream);
        let mut text = self.take_ready(rank, stream, now);
        if was_long {
            text.extend(self.take_held(stream, now));
        }
        text
    }

    /// Takes the whole lines of a rank, or a piece of a long one.
    fn take_ready(&mut self, rank: u32, stream: OutputStream, now: Instant) -> Vec<u8> {
        let Some(line) = self.partial.get_mut(&(rank, stream)) else { return Vec::new() };
        let len = line.bytes.len();
        let whole = match line.bytes.iter().rposition(|byte| *byte == b'\n') {
            _ if line.is_last => len,
            Some(last) => last + 1,
            None if len > LINE_MAX => len,
            None => return Vec::new(),
        };
        let lines: Vec<u8> = line.bytes.drain(..whole).collect();
        let label = self.label.as_ref().map(|label| label.text(self.places.facts(rank, stream)));
        let text = labelled(label.as_deref(), &lines, &mut line.is_printed);
        if std::mem::take(&mut line.is_last) || !line.is_printed {
            self.long.remove(&stream);
        } else {
            let long = LongLine { rank, last: now, held_bytes: 0 };
            self.long.entry(stream).or_insert(long);
        }
        text
    }

    /// Takes what ranks have held back while a long line was printed, up to the next long line.
    fn take_held(&mut self, stream: OutputStream, now: Instant) -> Vec<u8> {
        let mut text = Vec::new();
        for rank in self.ranks_of(stream) {
            if self.long.contains_key(&stream) {
                break;
            }
            text.extend(self.take_ready(rank, stream, now));
        }
        text
    }

    /// Breaks the long line off if others wait for its end, and takes what they have. A labelled line ends there, and
    /// its rest gets a label. Without labels, bytes remain as the ranks have written them.
    fn break_long(&mut self, stream: OutputStream, now: Instant) -> Vec<u8> {
        let Some(LongLine { rank, .. }) = self.long.remove(&stream) else { return Vec::new() };
        let mut text = self.take_held(stream, now);
        let line = self.partial.get_mut(&(rank, stream));
        if let Some(line) = line.filter(|_| self.label.is_some() && !text.is_empty()) {
            line.is_printed = false;
            text.insert(0, b'\n');
        }
        text
    }

    fn take_rest(&mut self, rank: u32, stream: OutputStream, now: Instant) -> Vec<u8> {
        let Some(line) = self.partial.get_mut(&(rank, stream)) else { return Vec::new() };
        line.is_last = true;
        if self.long.get(&stream).is_some_and(|long| long.rank != rank) {
            return Vec::new();
        }
        self.take_own(rank, stream, now)
    }
}

impl Places {
    fn facts(&self, process: u32, stream: OutputStream) -> LabelFacts<'_> {
        let host = self.hosts.get(process as usize);
        let world = self.worlds.partition_point(|first| *first <= process).saturating_sub(1);
        let first = self.worlds.get(world).copied().unwrap_or(0);
        let end = self.worlds.get(world + 1).copied().unwrap_or(self.hosts.len() as u32);
        LabelFacts {
            world: world as u32,
            rank: process - first,
            size: end - first,
            host: host.map_or("", |(name, _)| name.as_str()),
            node: host.map_or(0, |(_, node)| *node),
            stream,
        }
    }
}

impl LongLine {
    /// True if other ranks still wait for the end of the line.
    fn is_awaited(&self, now: Instant) -> bool {
        self.held_bytes <= HELD_MAX && now.saturating_duration_since(self.last) < LONG_PATIENCE
    }
}

/// Returns the text with labels at the beginning of lines. `inside` is true if the text begins within a line,
/// and then if it ends within one.
fn labelled(label: Option<&str>, text: &[u8], inside: &mut bool) -> Vec<u8> {
    let mut labelled = Vec::with_capacity(text.len() + 16);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(label) = label
            && !*inside
        {
            labelled.extend(label.bytes());
        }
        labelled.extend(line);
        *inside = !line.ends_with(b"\n");
    }
    labelled
}

fn write(stream: OutputStream, text: &[u8]) -> std::io::Result<()> {
    match stream {
        _ if text.is_empty() => Ok(()),
        OutputStream::Output => system::write_all(&std::io::stdout(), text),
        OutputStream::Error => system::write_all(&std::io::stderr(), text),
    }
}

/// Length above which lines are printed in pieces.
const LINE_MAX: usize = 64 << 10;
/// Bytes of other ranks that may wait for the end of a long line.
const HELD_MAX: usize = 4 << 20;
/// Time for which others wait for the next piece of a long line.
const LONG_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(outputs: &mut Outputs, rank: u32, text: &str) -> String {
        printed_at(outputs, rank, text, Instant::now())
    }

    fn printed_at(outputs: &mut Outputs, rank: u32, text: &str, now: Instant) -> String {
        let bytes = outputs.take_lines(rank, OutputStream::Output, text.as_bytes(), now);
        String::from_utf8(bytes).unwrap()
    }

    fn outputs(label: bool) -> Outputs {
        let label = label.then(Label::rank);
        Outputs::new(label, OutputFiles::default())
    }

    fn rest(outputs: &mut Outputs, rank: u32) -> String {
        let bytes = outputs.take_rest(rank, OutputStream::Output, Instant::now());
        String::from_utf8(bytes).unwrap()
    }

    fn long() -> String {
        "x".repeat(LINE_MAX + 1)
    }

    #[test]
    fn lines_are_printed_whole_and_labelled_once() {
        let mut outputs = self::outputs(true);
        assert_eq!(printed(&mut outputs, 1, "a\nb"), "[1] a\n");
        assert_eq!(printed(&mut outputs, 2, "c\n"), "[2] c\n");
        assert_eq!(printed(&mut outputs, 1, "\nd\n"), "[1] b\n[1] d\n");
    }

    #[test]
    fn a_long_line_is_printed_in_pieces_with_one_label() {
        let mut outputs = self::outputs(true);
        assert_eq!(printed(&mut outputs, 0, &long()), format!("[0] {}", long()));
        assert_eq!(printed(&mut outputs, 0, "end\nnext\n"), "end\n[0] next\n");
        assert_eq!(printed(&mut outputs, 0, "rest"), "");
        assert_eq!(rest(&mut outputs, 0), "[0] rest");
        assert_eq!((rest(&mut outputs, 1), printed(&mut outputs, 1, "a")), Default::default());
    }

    #[test]
    fn others_wait_for_the_end_of_a_long_line() {
        for label in [true, false] {
            let mut outputs = self::outputs(label);
            let of = |rank: u32| if label { format!("[{rank}] ") } else { String::new() };
            assert_eq!(printed(&mut outputs, 0, &long()), of(0) + &long());
            assert_eq!(printed(&mut outputs, 1, "a\nb"), "");
            assert_eq!(printed(&mut outputs, 2, &long()), "");
            assert_eq!(rest(&mut outputs, 1), "", "rank 1 has ended");
            let all = format!("end\n{}a\n{0}b{}{}", of(1), of(2), long());
            assert_eq!(printed(&mut outputs, 0, "end\n"), all);
            // Now the line of rank 2 is printed in pieces.
            assert_eq!(printed(&mut outputs, 0, "c\n"), "");
            assert_eq!(rest(&mut outputs, 2), format!("{}c\n", of(0)));
        }
    }

    #[test]
    fn a_long_line_is_broken_off_for_those_that_wait_too_long() {
        for (label, broken) in [(true, "\n[1] a\n[1] b\n"), (false, "a\nb\n")] {
            let mut outputs = self::outputs(label);
            let start = Instant::now();
            printed_at(&mut outputs, 0, &long(), start);
            assert_eq!(printed_at(&mut outputs, 1, "a\n", start), "");
            assert_eq!(printed_at(&mut outputs, 1, "b\n", start + LONG_PATIENCE), broken);
            let end = if label { "[0] end\n" } else { "end\n" };
            assert_eq!(printed(&mut outputs, 0, "end\n"), end);
        }
    }

    #[test]
    fn bytes_that_wait_are_bounded() {
        let mut outputs = self::outputs(true);
        let start = Instant::now();
        printed_at(&mut outputs, 0, &long(), start);
        let line = format!("{}\n", "y".repeat(999));
        let mut waiting = 0;
        while printed_at(&mut outputs, 1, &line, start).is_empty() {
            waiting += line.len();
        }
        assert!(waiting <= HELD_MAX, "{waiting}");
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let mut outputs = self::outputs(false);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut seen = Vec::new();
        let now = Instant::now();
        for piece in bytes.chunks(777) {
            seen.extend(outputs.take_lines(3, OutputStream::Output, piece, now));
        }
        seen.extend(outputs.take_rest(3, OutputStream::Output, now));
        assert_eq!(seen, bytes);
    }
}
