//! Output of the ranks, printed line by line.

use std::collections::HashMap;
use std::io::ErrorKind;

use crate::system;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OutputStream {
    Output,
    Error,
}

/// Output streams of all ranks. Whole lines are printed at once. An unfinished line waits until it ends,
/// exceeds [`LINE_MAX`] or is flushed.
#[derive(Debug)]
pub(crate) struct Outputs {
    label: bool,
    partial: HashMap<(u32, OutputStream), PartialLine>,
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
}

impl Outputs {
    /// Creates empty streams. With `label`, every line begins with its rank.
    pub fn new(label: bool) -> Self {
        Self { label, partial: HashMap::new(), lost: false, unread: false }
    }

    /// Prints the whole lines of a rank's output and keeps the rest.
    pub fn print(&mut self, rank: u32, stream: OutputStream, bytes: &[u8]) {
        let text = self.take_lines(rank, stream, bytes);
        self.print_text(stream, &text);
    }

    /// Prints unfinished lines while no other output arrives, because they may be prompts. Labelled ones wait
    /// for their end, so that labels begin lines only.
    pub fn flush_prompts(&mut self) {
        if !self.label {
            self.flush_all();
        }
    }

    /// Prints all unfinished lines.
    pub fn flush_all(&mut self) {
        let streams: Vec<(u32, OutputStream)> = self.partial.keys().copied().collect();
        for (rank, stream) in streams {
            self.flush(rank, stream);
        }
    }

    /// Prints the unfinished line of one stream.
    pub fn flush(&mut self, rank: u32, stream: OutputStream) {
        let text = self.take_rest(rank, stream);
        self.print_text(stream, &text);
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
                if !std::mem::replace(&mut self.lost, true) {
                    tell!("mpiexec: output of the ranks cannot be written: {error}");
                }
            }
        }
    }

    fn take_lines(&mut self, rank: u32, stream: OutputStream, bytes: &[u8]) -> Vec<u8> {
        let line = self.partial.entry((rank, stream)).or_default();
        line.bytes.extend_from_slice(bytes);
        let whole = match line.bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if line.bytes.len() > LINE_MAX => line.bytes.len(),
            None => return Vec::new(),
        };
        let lines: Vec<u8> = line.bytes.drain(..whole).collect();
        labelled(self.label.then_some(rank), &lines, &mut line.is_printed)
    }

    fn take_rest(&mut self, rank: u32, stream: OutputStream) -> Vec<u8> {
        let Some(line) = self.partial.get_mut(&(rank, stream)) else { return Vec::new() };
        let rest = std::mem::take(&mut line.bytes);
        labelled(self.label.then_some(rank), &rest, &mut line.is_printed)
    }
}

/// Returns the text with labels at the beginning of lines. `inside` is true if the text begins within a line,
/// and then if it ends within one.
fn labelled(label: Option<u32>, text: &[u8], inside: &mut bool) -> Vec<u8> {
    let mut labelled = Vec::with_capacity(text.len() + 16);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(rank) = label
            && !*inside
        {
            labelled.extend(format!("[{rank}] ").bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(outputs: &mut Outputs, rank: u32, text: &str) -> String {
        String::from_utf8(outputs.take_lines(rank, OutputStream::Output, text.as_bytes())).unwrap()
    }

    #[test]
    fn lines_are_printed_whole_and_labelled_once() {
        let mut outputs = Outputs::new(true);
        assert_eq!(printed(&mut outputs, 1, "a\nb"), "[1] a\n");
        assert_eq!(printed(&mut outputs, 2, "c\n"), "[2] c\n");
        assert_eq!(printed(&mut outputs, 1, "\nd\n"), "[1] b\n[1] d\n");
    }

    #[test]
    fn a_long_line_is_printed_in_pieces_with_one_label() {
        let mut outputs = Outputs::new(true);
        let piece = "x".repeat(LINE_MAX + 1);
        assert_eq!(printed(&mut outputs, 0, &piece), format!("[0] {piece}"));
        assert_eq!(printed(&mut outputs, 0, "end\nnext\n"), "end\n[0] next\n");
        assert_eq!(printed(&mut outputs, 0, "rest"), "");
        assert_eq!(outputs.take_rest(0, OutputStream::Output), b"[0] rest");
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let mut outputs = Outputs::new(false);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut seen = Vec::new();
        for piece in bytes.chunks(777) {
            seen.extend(outputs.take_lines(3, OutputStream::Output, piece));
        }
        seen.extend(outputs.take_rest(3, OutputStream::Output));
        assert_eq!(seen, bytes);
    }
}
