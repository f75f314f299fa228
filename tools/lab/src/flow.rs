//! A competing flow: a foreign bulk transfer over the lab's links.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::grid::Lab;
use crate::spec;

/// Options of a TCP flow between two nodes.
#[derive(Debug, Args)]
#[group(id = "stream")]
pub(crate) struct Flow {
    /// Length of the flow, at most 3600s, such as 10s
    #[arg(long = "for", value_parser = spec::span, default_value = "10s")]
    duration: Duration,
    /// Congestion control: cubic, bbr or reno
    #[arg(long, default_value = "cubic", hide_possible_values = true)]
    congestion: Congestion,
    /// Sending node [default: the last of the first site]
    #[arg(long)]
    from: Option<String>,
    /// Receiving node [default: the last of the last site]
    #[arg(long)]
    to: Option<String>,
}

/// A congestion control of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// Loss-based, the default of Linux
    Cubic,
    /// Model-based, by bandwidth and round trip
    Bbr,
    /// Loss-based, classic
    Reno,
}

impl Congestion {
    /// Returns the kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Reno => "reno",
        }
    }
}

impl Flow {
    /// Runs the flow to its end and prints its goodput.
    pub fn run(&self, lab: &Lab) -> Result<(), String> {
        let (first, last) = Stream::usual(lab);
        let (from, to) = (self.from.clone().unwrap_or(first), self.to.clone().unwrap_or(last));
        let stream = Stream::between(lab, [&from, &to], self.congestion, self.duration)?;
        let got = stream.wait()?;
        write_line!(
            "{} {from} to {to}: {:.1} Mb/s, {} bytes in {:.3} s",
            self.congestion.name(),
            got.mbit_per_s(),
            got.bytes,
            got.seconds,
        );
        Ok(())
    }
}

/// A flow that is under way, and ends when it is dropped.
#[derive(Debug)]
pub struct Stream {
    source: Ended,
    _sink: Ended,
    said: BufReader<ChildStdout>,
}

/// Goodput of a flow, from its first received byte to its last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Received bytes.
    pub bytes: u64,
    /// Time between first and last byte.
    pub seconds: f64,
}

impl Goodput {
    /// Rate in 10⁶ bits per second.
    pub fn mbit_per_s(self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds.max(1e-9)
    }
}

impl Stream {
    /// Starts a flow from the last node of the first site to the last node of the last.
    ///
    /// # Errors
    /// Fails if a node is missing, or a process cannot be started; the text names it.
    pub fn start(lab: &Lab, congestion: Congestion) -> Result<Self, String> {
        let (from, to) = Self::usual(lab);
        Self::between(lab, [&from, &to], congestion, FOR_EVER)
    }

    fn usual(lab: &Lab) -> (String, String) {
        let spec = &lab.spec;
        let last = |site| spec.host(site, spec.nodes - 1);
        (last(0), last(spec.sites - 1))
    }

    fn between(
        lab: &Lab,
        [from, to]: [&str; 2],
        congestion: Congestion,
        duration: Duration,
    ) -> Result<Self, String> {
        if from == to {
            return Err(format!("a flow from {from} to itself crosses no link"));
        }
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let own = own.display().to_string();
        let words = |words: &[&str]| -> Vec<String> {
            [&own, "lab"].iter().chain(words).map(|word| (*word).to_owned()).collect()
        };
        let sink = lab.link_tool(to, &words(&["sink"])).map_err(|error| error.to_string())?;
        let mut sink = Ended::start(sink)?;
        let mut said = BufReader::new(sink.0.stdout.take().ok_or("the sink has no output")?);
        let mut port = String::new();
        said.read_line(&mut port).map_err(|error| error.to_string())?;
        let address = lab.nodes.iter().find(|node| node.host == to).map(|node| &node.address);
        let address = format!("{}:{}", address.ok_or("the node has no address")?, port.trim());
        let seconds = duration.as_secs_f64().to_string();
        let words = words(&["source", &address, &seconds, congestion.name()]);
        let source = lab.link_tool(from, &words).map_err(|error| error.to_string())?;
        Ok(Self { source: Ended::start(source)?, _sink: sink, said })
    }

    /// Waits for its end.
    fn wait(mut self) -> Result<Goodput, String> {
        let status = self.source.0.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("the flow ended with {status}: see above"));
        }
        self.got()
    }

    /// Ends it now.
    ///
    /// # Errors
    /// Fails if its end does not arrive, as over a link that is cut.
    pub fn end(mut self) -> Result<Goodput, String> {
        // The process may have ended; the goodput is reported all the same.
        let _ = self.source.0.kill();
        self.got()
    }

    fn got(&mut self) -> Result<Goodput, String> {
        let mut got = String::new();
        self.said.read_line(&mut got).map_err(|error| error.to_string())?;
        let mut words = got.split_whitespace();
        let bytes = words.next().and_then(|word| word.parse().ok());
        let seconds = words.next().and_then(|word| word.parse().ok());
        match (bytes, seconds) {
            (Some(bytes), Some(seconds)) => Ok(Goodput { bytes, seconds }),
            _ => Err("the flow's end was not seen: nothing came for a while".into()),
        }
    }
}

/// A child that does not outlive its owner.
#[derive(Debug)]
struct Ended(Child);

impl Ended {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map(Self).map_err(|error| format!("start a flow: {error}"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives a flow: prints its port, reads a stream, and prints bytes and seconds from the first byte to the last.
pub(crate) fn sink() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    write_line!("{}", listener.local_addr()?.port());
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(SILENCE))?;
    let mut buffer = vec![0; 1 << 20];
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                last = Instant::now();
                first.get_or_insert(last);
                bytes += count;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    write_line!("{bytes} {}", last.duration_since(first.unwrap_or(last)).as_secs_f64());
    Ok(())
}

/// The sending process of a flow.
#[derive(Debug, Args)]
#[group(id = "end")]
pub(crate) struct Source {
    address: SocketAddr,
    seconds: f64,
    congestion: Congestion,
}

impl Source {
    /// Sends at full rate for the given time.
    pub fn run(&self) -> io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&self.address, SILENCE)?;
        let name = self.congestion.name();
        rustix::net::sockopt::set_tcp_congestion(&socket, name).map_err(|error| {
            io::Error::other(format!("the kernel does not let this node use {name}: {error}"))
        })?;
        socket.set_write_timeout(Some(GLANCE))?;
        let piece = vec![0; 256 << 10];
        let since = Instant::now();
        while since.elapsed().as_secs_f64() < self.seconds {
            match socket.write(&piece) {
                Ok(_) => {}
                Err(error) if is_late(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Duration of a flow until it is ended: longer than any measurement.
const FOR_EVER: Duration = Duration::from_secs(1 << 20);
/// Longest silence of a stream, such as over a link that is cut.
const SILENCE: Duration = Duration::from_secs(60);
/// Interval at which a blocked source reads the clock.
const GLANCE: Duration = Duration::from_millis(100);
