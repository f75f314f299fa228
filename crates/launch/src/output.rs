//! What the ranks say, shown line by line.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// The streams of all ranks. Whole lines are shown as they come; a line that was begun is kept until
/// it ends, grows beyond [`LINE_MAX`], or is flushed.
#[derive(Debug)]
pub(crate) struct Outputs {
    label: bool,
    begun: HashMap<(u32, Stream), Line>,
    /// Some of it could not be shown.
    lost: bool,
    /// Whoever read our standard output has gone.
    unread: bool,
}

/// A line that has not ended.
#[derive(Debug, Default)]
struct Line {
    kept: Vec<u8>,
    /// Its beginning was shown already.
    shown: bool,
}

impl Outputs {
    /// With `label`, every line begins with its rank.
    pub fn new(label: bool) -> Self {
        Self { label, begun: HashMap::new(), lost: false, unread: false }
    }

    /// Shows the whole lines among what a rank has said, and keeps the rest.
    pub fn print(&mut self, rank: u32, stream: Stream, bytes: &[u8]) {
        let text = self.take_in(rank, stream, bytes);
        self.show(stream, &text);
    }

    /// Shows lines that were begun, when nothing else comes: they may ask for an answer. Labelled
    /// ones wait for their end, so that labels stand at the beginning of lines only.
    pub fn flush_prompts(&mut self) {
        if !self.label {
            self.flush_all();
        }
    }

    /// Shows all that is kept.
    pub fn flush_all(&mut self) {
        let streams: Vec<(u32, Stream)> = self.begun.keys().copied().collect();
        for (rank, stream) in streams {
            self.flush(rank, stream);
        }
    }

    /// Shows what is kept of one stream.
    pub fn flush(&mut self, rank: u32, stream: Stream) {
        let text = self.take_rest(rank, stream);
        self.show(stream, &text);
    }

    /// Whether some of what was said could not be shown.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// Whether whoever read our standard output has gone.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    fn show(&mut self, stream: Stream, text: &[u8]) {
        match write(stream, text) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => match stream {
                Stream::Output => self.unread = true,
                // Messages are no result: the job goes on without.
                Stream::Error => {}
            },
            Err(error) => {
                if !std::mem::replace(&mut self.lost, true) {
                    tell!("mpiexec: output of the ranks cannot be written: {error}");
                }
            }
        }
    }

    fn take_in(&mut self, rank: u32, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let line = self.begun.entry((rank, stream)).or_default();
        line.kept.extend_from_slice(bytes);
        let whole = match line.kept.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if line.kept.len() > LINE_MAX => line.kept.len(),
            None => return Vec::new(),
        };
        let lines: Vec<u8> = line.kept.drain(..whole).collect();
        labelled(self.label.then_some(rank), &lines, &mut line.shown)
    }

    fn take_rest(&mut self, rank: u32, stream: Stream) -> Vec<u8> {
        let Some(line) = self.begun.get_mut(&(rank, stream)) else { return Vec::new() };
        let rest = std::mem::take(&mut line.kept);
        labelled(self.label.then_some(rank), &rest, &mut line.shown)
    }
}

/// The text with labels where lines begin; `inside` tells whether the text goes on with a line that
/// was begun, and then whether it ends within one.
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

fn write(stream: Stream, text: &[u8]) -> std::io::Result<()> {
    match stream {
        _ if text.is_empty() => Ok(()),
        Stream::Output => {
            let mut out = std::io::stdout().lock();
            out.write_all(text).and_then(|()| out.flush())
        }
        Stream::Error => std::io::stderr().lock().write_all(text),
    }
}

/// Longer lines are shown in pieces.
const LINE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outputs: &mut Outputs, rank: u32, text: &str) -> String {
        String::from_utf8(outputs.take_in(rank, Stream::Output, text.as_bytes())).unwrap()
    }

    #[test]
    fn lines_come_whole_and_labelled_once() {
        let mut outputs = Outputs::new(true);
        assert_eq!(said(&mut outputs, 1, "a\nb"), "[1] a\n");
        assert_eq!(said(&mut outputs, 2, "c\n"), "[2] c\n");
        assert_eq!(said(&mut outputs, 1, "\nd\n"), "[1] b\n[1] d\n");
    }

    #[test]
    fn a_long_line_comes_in_pieces_with_one_label() {
        let mut outputs = Outputs::new(true);
        let piece = "x".repeat(LINE_MAX + 1);
        assert_eq!(said(&mut outputs, 0, &piece), format!("[0] {piece}"));
        assert_eq!(said(&mut outputs, 0, "end\nnext\n"), "end\n[0] next\n");
        assert_eq!(said(&mut outputs, 0, "rest"), "");
        assert_eq!(outputs.take_rest(0, Stream::Output), b"[0] rest");
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let mut outputs = Outputs::new(false);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut seen = Vec::new();
        for piece in bytes.chunks(777) {
            seen.extend(outputs.take_in(3, Stream::Output, piece));
        }
        seen.extend(outputs.take_rest(3, Stream::Output));
        assert_eq!(seen, bytes);
    }
}
