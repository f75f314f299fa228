//! A terminal on which a table is drawn again and again.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use super::rates::JobRates;
use super::table;

/// A terminal in use. It is as before once this is dropped.
pub(super) struct Screen {
    /// Modes of the terminal that keys come from, if there is one.
    modes: Option<Termios>,
    /// Becomes readable with each signal that ends.
    endings: UnixStream,
    /// Becomes readable with each change of the size.
    sizes: UnixStream,
    last: Option<JobRates>,
}

impl Screen {
    /// Takes the terminal.
    pub fn begin() -> io::Result<Self> {
        let (endings, ending) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, ending.try_clone()?)?;
        }
        let (sizes, size) = UnixStream::pair()?;
        pipe::register(SIGWINCH, size)?;
        sizes.set_nonblocking(true)?;
        let mut screen = Self { modes: None, endings, sizes, last: None };
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&mut self) -> io::Result<()> {
        if io::stdin().is_terminal() {
            let modes = tcgetattr(io::stdin())?;
            let mut own = modes.clone();
            own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Ctrl-Z comes as a key, so that the terminal is given back before this process stops.
            own.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &own)?;
            self.modes = Some(modes);
        }
        put(ENTER)
    }

    fn leave(&mut self) {
        // A terminal that has gone needs nothing.
        let _ = put(LEAVE);
        if let Some(modes) = self.modes.take() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
        }
    }

    /// Gives the terminal back; returns what was shown last.
    pub fn end(mut self) -> Option<JobRates> {
        self.last.take()
    }

    /// Shows an interval. False if the terminal has gone.
    pub fn show(&mut self, rates: JobRates) -> bool {
        self.last = Some(rates);
        self.draw().is_ok()
    }

    fn draw(&self) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row, size.ws_col));
        let (rows, columns) = size.ok().filter(|size| size.0 > 0 && size.1 > 0).unwrap_or(USUAL);
        // A line feed in the last row would scroll.
        let (rows, columns) = (usize::from(rows), usize::from(columns));
        let text = match &self.last {
            Some(rates) => table::text(rates, Some((rows, columns))),
            None => "the first interval ...".chars().take(columns).collect(),
        };
        let rest_of_line = format!("{CLEAR_LINE}\r\n");
        let text = text.trim_end_matches('\n').replace('\n', &rest_of_line);
        put(&format!("{HOME}{text}{CLEAR_LINE}{CLEAR_BELOW}"))
    }

    /// Waits for the end of an interval. False if the user ends it.
    pub fn wait(&mut self, due: Instant) -> bool {
        if self.last.is_none() && self.draw().is_err() {
            return false;
        }
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let stdin = io::stdin();
            let mut events = [
                PollFd::new(&self.endings, PollFlags::IN),
                PollFd::new(&self.sizes, PollFlags::IN),
                PollFd::new(&stdin, PollFlags::IN),
            ];
            let count = if self.modes.is_some() { 3 } else { 2 };
            // A signal interrupts the wait, and has written to its pipe.
            let _ = poll(&mut events[..count], Some(&left));
            let [has_ended, has_resized, has_key] = events.map(|event| !event.revents().is_empty());
            if has_ended || (has_resized && !self.resize()) || (has_key && !self.take_keys()) {
                return false;
            }
        }
    }

    fn resize(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!((&self.sizes).read(&mut bytes), Ok(1..)) {}
        put(CLEAR).and_then(|()| self.draw()).is_ok()
    }

    /// Obeys keys. False if one of them ends, or the terminal has gone.
    fn take_keys(&mut self) -> bool {
        let mut keys = [0; 64];
        let count = rustix::io::read(io::stdin(), &mut keys).unwrap_or(0);
        let keys = &keys[..count];
        if keys.is_empty() || keys.iter().any(|key| QUIT.contains(key)) {
            return false;
        }
        match keys.contains(&CTRL_Z) {
            true => self.stop(),
            false => true,
        }
    }

    /// Stops this process as Ctrl-Z does, and takes the terminal once it goes on.
    fn stop(&mut self) -> bool {
        self.leave();
        let stopped = kill_process(getpid(), Signal::TSTP);
        stopped.is_ok() && self.enter().and_then(|()| self.draw()).is_ok()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Keys that end.
const QUIT: &[u8] = b"qQ\x03";
const CTRL_Z: u8 = 0x1a;
/// Size of a terminal that does not know its own: rows and columns.
const USUAL: (u16, u16) = (24, 80);

/// Control sequences of ECMA-48, and xterm's alternate screen: enter it without a cursor, and leave it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[2J";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
