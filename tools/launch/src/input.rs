//! Standard input of `mpiexec`, and the ranks that get it.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::system;

/// Ranks that get standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InputRanks {
    /// Rank 0, as with other launchers.
    #[default]
    First,
    /// All ranks.
    All,
    /// These ranks.
    Listed(Vec<usize>),
}

impl InputRanks {
    /// Reads the value of `-s`.
    ///
    /// # Errors
    /// Fails for anything else; the text continues "-s VALUE: …".
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::Listed(Vec::new())),
            _ => {
                let ranks = topo::core_list::numbers(text);
                ranks.map(Self::Listed).ok_or("not all, none or a list of ranks such as 0,3-5")
            }
        }
    }

    /// Largest rank that is named.
    pub(crate) fn largest(&self) -> Option<usize> {
        match self {
            Self::First | Self::All => None,
            Self::Listed(ranks) => ranks.iter().copied().max(),
        }
    }

    /// True if the rank gets input.
    pub(crate) fn has(&self, rank: u32) -> bool {
        match self {
            Self::First => rank == 0,
            Self::All => true,
            Self::Listed(ranks) => ranks.contains(&(rank as usize)),
        }
    }
}

/// Starts a thread that reads standard input in pieces, the last of them empty. It reads the next one for each permit.
/// It ends if `take` returns false.
///
/// # Errors
/// Fails if the thread cannot be started, with one line.
pub(crate) fn read(
    mut take: impl FnMut(Vec<u8>) -> bool + Send + 'static,
) -> Result<Sender<()>, String> {
    let (permits, permitted) = mpsc::channel();
    let body = move || {
        let mut piece = vec![0; PIECE];
        loop {
            let count = read_piece(&mut piece);
            if !take(piece[..count].to_vec()) || count == 0 || permitted.recv().is_err() {
                return;
            }
        }
    };
    // With SIGTTIN blocked, a read from the background fails. It would stop `mpiexec` otherwise.
    cpu::without_signals(|| system::start_thread(body))
        .map_err(|error| format!("a thread for the input: {error}"))?;
    Ok(permits)
}

/// Reads a piece of standard input. In the background of a terminal it waits for the foreground. Returns 0 at the end
/// of the input.
fn read_piece(piece: &mut [u8]) -> usize {
    let input = std::io::stdin();
    loop {
        match rustix::io::read(&input, &mut *piece) {
            Ok(count) => return count,
            Err(Errno::INTR) => {}
            // Another process has made the open file non-blocking.
            Err(Errno::AGAIN) => drop(system::await_input(&input, None)),
            Err(Errno::IO) if system::is_in_background(&input) => thread::sleep(BACKGROUND_TICK),
            // The terminal has gone, or the input is closed or write-only, as `nohup` leaves it.
            Err(Errno::IO | Errno::BADF) => return 0,
            Err(error) => {
                tell!("mpiexec: standard input cannot be read: {}", std::io::Error::from(error));
                return 0;
            }
        }
    }
}

const PIECE: usize = 16 << 10;
/// Interval of attempts to read from a terminal in the background.
const BACKGROUND_TICK: Duration = Duration::from_millis(250);
