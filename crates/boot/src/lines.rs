//! Lines of a stream, read through memory that is wiped: one of them holds the job's secret.

use std::io::{self, ErrorKind, Read, Write};

use zeroize::{Zeroize, Zeroizing};

/// A stream that is read and written line by line. Nothing of a line stays behind.
pub(crate) struct Lines<S> {
    stream: S,
    /// Room that doubles up to that for the longest line. Zeroed memory is not free: glibc writes zeroes to what the heap
    /// has already.
    buffer: Zeroizing<Vec<u8>>,
    /// Number of bytes read that are no line yet, at the start of the buffer.
    filled: usize,
}

impl<S: Read + Write> Lines<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: Zeroizing::new(vec![0; LINE_FIRST]), filled: 0 }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The stream fails.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(line.len() + 1));
        bytes.extend(line.as_bytes());
        bytes.push(b'\n');
        self.stream.write_all(&bytes)
    }

    /// Writes whole lines.
    ///
    /// # Errors
    /// The stream fails.
    pub fn write_all(&mut self, lines: &[u8]) -> io::Result<()> {
        self.stream.write_all(lines)
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// The stream fails or ends, or the line is too long or no text.
    pub fn read(&mut self) -> io::Result<Zeroizing<String>> {
        let mut searched = 0;
        let end = loop {
            let found = self.buffer[searched..self.filled].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                break searched + at;
            }
            searched = self.filled;
            if self.filled == self.buffer.len() {
                self.grow()?;
            }
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let line = str::from_utf8(&self.buffer[..end]).map_err(|_| ErrorKind::InvalidData.into());
        let line = line.map(|text| Zeroizing::new(text.to_owned()));
        self.buffer.copy_within(end + 1..self.filled, 0);
        let left = self.filled - (end + 1);
        self.buffer[left..self.filled].zeroize();
        self.filled = left;
        line
    }

    /// Doubles the room, and wipes the old one.
    fn grow(&mut self) -> io::Result<()> {
        let len = self.buffer.len();
        if len == LINE_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut larger = Zeroizing::new(vec![0; (2 * len).min(LINE_MAX)]);
        larger[..len].copy_from_slice(&self.buffer);
        self.buffer = larger;
        Ok(())
    }
}

/// The longest line a server may send.
const LINE_MAX: usize = 64 << 10;
/// Length of the line that there is room for at first: most are shorter.
const LINE_FIRST: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A stream that brings pieces, and takes what is written.
    struct Pieces(VecDeque<Vec<u8>>, Vec<u8>);

    impl Pieces {
        fn of(pieces: &[&[u8]]) -> Lines<Self> {
            let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
            Lines::new(Self(pieces, Vec::new()))
        }
    }

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else { return Ok(0) };
            let count = piece.len().min(to.len());
            to[..count].copy_from_slice(&piece[..count]);
            if count < piece.len() {
                self.0.push_front(piece.split_off(count));
            }
            Ok(count)
        }
    }

    impl Write for Pieces {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.1.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let whole = b"one\n\ntwo words\nthree\n";
        for cut in 1..whole.len() {
            let pieces: Vec<&[u8]> = whole.chunks(cut).collect();
            let mut lines = Pieces::of(&pieces);
            let read: Vec<_> = (0..4).map(|_| lines.read().unwrap().to_string()).collect();
            assert_eq!(read, ["one", "", "two words", "three"]);
            assert_eq!(lines.read().unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert!(lines.buffer.iter().all(|byte| *byte == 0), "nothing of a line stays behind");
        }
    }

    #[test]
    fn room_is_taken_for_long_lines_only() {
        let mut lines = Pieces::of(&[b"short\n", &[b'x'; LINE_MAX - 1], b"\nend\n"]);
        assert_eq!(lines.read().unwrap().as_str(), "short");
        assert_eq!(lines.buffer.len(), LINE_FIRST);
        assert_eq!(lines.read().unwrap().len(), LINE_MAX - 1);
        assert_eq!(lines.read().unwrap().as_str(), "end");
        assert!(lines.buffer.iter().all(|byte| *byte == 0), "nothing of a line stays behind");
    }

    #[test]
    fn lines_without_end_and_bytes_without_sense_are_errors() {
        let long = vec![b'x'; LINE_MAX + 1];
        let kinds = [&long[..], b"\xff\n"].map(|wrong| Pieces::of(&[wrong]).read().unwrap_err());
        assert_eq!(kinds.map(|error| error.kind()), [ErrorKind::InvalidData; 2]);
    }

    #[test]
    fn a_line_is_written_with_its_end() {
        let mut lines = Pieces::of(&[]);
        lines.write("a b").unwrap();
        assert_eq!(lines.stream.1, b"a b\n");
    }
}
