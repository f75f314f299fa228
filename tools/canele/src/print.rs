//! Standard output of the commands: the text that a user has asked for, or a line about why it is not there.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Prints the text that a user has asked for. Fails with one line if it cannot be written. A reader that has gone, such as
/// `head`, wants no more.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout();
    result_of(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Returns the result of a command that has written its text.
pub(crate) fn result_of(written: io::Result<()>) -> ExitCode {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // A message that nobody can read is lost.
            let _ = writeln!(io::stderr(), "canele: standard output cannot be written: {error}");
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}
