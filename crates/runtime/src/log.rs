//! The log: what happens to this rank and its links, on standard error, if the user asks for it.

use std::io::{self, Write};

use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::time::uptime;

/// Begins the log of rank `rank` at the level of the setting. Later calls of the process have no effect.
pub(crate) fn begin(rank: u32) -> Result<(), String> {
    let Some(level) = level(&settings::LOG.text())? else { return Ok(()) };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_timer(uptime())
        .with_writer(Lines { rank })
        .finish();
    // Another instance of this process has begun it already.
    let _ = tracing::subscriber::set_global_default(log);
    Ok(())
}

fn level(text: &str) -> Result<Option<Level>, String> {
    match text.trim() {
        "off" => Ok(None),
        "error" => Ok(Some(Level::ERROR)),
        "warn" => Ok(Some(Level::WARN)),
        "info" => Ok(Some(Level::INFO)),
        "debug" => Ok(Some(Level::DEBUG)),
        _ => {
            let (variable, values) = (settings::LOG.variable(), settings::LOG.values());
            Err(format!("{variable}={text}: one of {values} is needed"))
        }
    }
}

/// Writes each event as one line that begins with the rank.
#[derive(Clone, Copy)]
struct Lines {
    rank: u32,
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut whole = format!("canele: rank {}:", self.rank).into_bytes();
        whole.extend_from_slice(line);
        io::stderr().write_all(&whole)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names_and_others_are_refused() {
        assert_eq!(level("off"), Ok(None));
        assert_eq!(level(" debug "), Ok(Some(Level::DEBUG)));
        let error = level("loud").unwrap_err();
        assert!(error.contains("CANELE_LOG=loud") && error.contains("debug"), "{error}");
    }
}
