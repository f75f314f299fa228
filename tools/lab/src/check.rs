//! Check of a lab's links: round trips and goodput of TCP, measured inside it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::grid::Lab;

/// One measurement, and its expected result.
struct Measurement {
    name: String,
    from: String,
    to: String,
    /// Addresses of the server; several are measured at once.
    addresses: Vec<String>,
    /// None if links disturb one another.
    rtt: Option<Duration>,
    rate: u64,
}

/// Returns the measurements: each LAN of a site, all of them at once, and the path to another site.
fn measurements(lab: &Lab) -> Vec<Measurement> {
    let spec = &lab.spec;
    let mut all = Vec::new();
    let (from, neighbour) = (spec.host(0, 0), spec.host(0, 1));
    let mut add = |name: String, to: &str, addresses, rtt, rate| {
        all.push(Measurement { name, from: from.clone(), to: to.into(), addresses, rtt, rate });
    };
    if spec.nodes > 1 {
        let addresses: Vec<String> = (0..spec.nics).map(|nic| spec.address(0, 1, nic)).collect();
        for (nic, address) in addresses.iter().enumerate() {
            let name = if nic == 0 { "in a site".into() } else { format!("by eth{nic}") };
            add(name, &neighbour, vec![address.clone()], Some(Duration::ZERO), spec.lan_rate);
        }
        if spec.nics > 1 {
            let rate = spec.lan_rate * u64::from(spec.nics);
            add("by all".into(), &neighbour, addresses, None, rate);
        }
    }
    for site in 1..spec.sites {
        let name = if spec.sites == 2 { "wide area".into() } else { format!("to site{site}") };
        let rate = spec.wan_rate.min(spec.lan_rate);
        let (rtt, addresses) = (spec.rtt_between(0, site), vec![spec.address(site, 0, 0)]);
        add(name, &spec.host(site, 0), addresses, Some(rtt), rate);
    }
    all
}

/// Measures and prints. True if all results lie within five per cent.
///
/// # Errors
/// Fails if nothing could be measured.
pub(crate) fn check_links(lab: &Lab) -> Result<bool, String> {
    write_line!("  link       round trip asked / measured      goodput possible / measured");
    let mut good = true;
    for one in measurements(lab) {
        let possible = one.rate as f64 * GOODPUT;
        let is_rtt_good = |found| one.rtt.is_none_or(|asked| is_rtt_good(found, asked));
        let (mut found, mut goodput) = probe(lab, &one)?;
        // Other work on the machine delays packets, so the best probe counts.
        for _ in 1..PROBES {
            if is_rtt_good(found) && is_rate_good(goodput, possible) {
                break;
            }
            let (again, rate) = probe(lab, &one)?;
            found = found.min(again);
            goodput = goodput.max(rate);
        }
        let rate_good = is_rate_good(goodput, possible);
        good &= is_rtt_good(found) && rate_good;
        let verdict = |good| if good { "ok" } else { "OFF" };
        let round_trip = one.rtt.map_or_else(String::new, |asked| {
            let (asked_ms, found_ms) = (asked.as_secs_f64() * 1e3, found.as_secs_f64() * 1e3);
            format!("{asked_ms:9.3} ms / {found_ms:.3} ms {}", verdict(is_rtt_good(found)))
        });
        write_line!(
            "  {:9}  {round_trip:27}     {:.0} Mb/s / {:.0} Mb/s {}",
            one.name,
            possible / 1e6,
            goodput / 1e6,
            verdict(rate_good),
        );
    }
    Ok(good)
}

fn is_rtt_good(found: Duration, asked: Duration) -> bool {
    found.abs_diff(asked) <= asked.mul_f64(TOLERANCE).max(RTT_FLOOR)
}

fn is_rate_good(found: f64, possible: f64) -> bool {
    (found - possible).abs() <= possible * TOLERANCE
}

/// Returns the longest round trip and the sum of the goodputs, over all of the server's addresses at once.
fn probe(lab: &Lab, one: &Measurement) -> Result<(Duration, f64), String> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let start = |address| scope.spawn(move || probe_one(lab, &one.from, &one.to, address));
        let probes: Vec<_> = one.addresses.iter().map(String::as_str).map(start).collect();
        let failed = |_| Err("the measurement has panicked".into());
        probes.into_iter().map(|probe| probe.join().unwrap_or_else(failed)).collect()
    });
    results.into_iter().try_fold((Duration::ZERO, 0.0), |(rtt, goodput), result| {
        let (this_rtt, this_goodput) = result?;
        Ok((this_rtt.max(rtt), goodput + this_goodput))
    })
}

fn probe_one(lab: &Lab, from: &str, to: &str, address: &str) -> Result<(Duration, f64), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?.display().to_string();
    let words = |what: &str| [&own, "lab", what, address].map(str::to_owned);
    let text = |error: LabError| error.to_string();
    let mut server = lab.command(to, &words("serve")).map_err(text)?;
    let mut server = server.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let output = lab.command(from, &words("measure")).map_err(text)?.output();
    // The server has answered its only client, or never will.
    let _ = server.kill();
    let _ = server.wait();
    let output = output.map_err(|error| error.to_string())?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(seconds), Some(rate)) => Ok((Duration::from_secs_f64(seconds), rate)),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Answers a client at this address and port [`PORT`]: echoes single bytes and drops the rest.
pub(crate) fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind((address, PORT))?;
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut byte = [0];
    for _ in 0..ECHOES {
        socket.read_exact(&mut byte)?;
        socket.write_all(&byte)?;
    }
    let mut buffer = vec![0; 1 << 20];
    while socket.read(&mut buffer)? > 0 {}
    socket.write_all(&[1])?;
    Ok(())
}

/// Returns the shortest round trip and the goodput in bits per second, towards a server.
pub(crate) fn measure(address: &str) -> io::Result<(Duration, f64)> {
    let mut socket = connect(address)?;
    socket.set_nodelay(true)?;
    let mut least = Duration::MAX;
    let mut byte = [0];
    for _ in 0..ECHOES {
        let start = Instant::now();
        socket.write_all(&byte)?;
        socket.read_exact(&mut byte)?;
        least = least.min(start.elapsed());
    }
    let piece = vec![0; 64 << 10];
    let (start, mut sent, mut half) = (Instant::now(), 0, None);
    while sent < BULK && start.elapsed() < BULK_PATIENCE {
        socket.write_all(&piece)?;
        sent += piece.len();
        // Only the second half counts: by then TCP has found its rate.
        let is_half = sent >= BULK / 2 || start.elapsed() >= BULK_PATIENCE / 2;
        if is_half && half.is_none() {
            half = Some((Instant::now(), sent));
        }
    }
    socket.shutdown(Shutdown::Write)?;
    socket.read_exact(&mut byte)?;
    let (since, from) = half.unwrap_or((Instant::now(), 0));
    Ok((least, (sent - from) as f64 * 8.0 / since.elapsed().as_secs_f64()))
}

/// The server may need a moment to listen.
fn connect(address: &str) -> io::Result<TcpStream> {
    let since = Instant::now();
    loop {
        match TcpStream::connect((address, PORT)) {
            Err(_) if since.elapsed() < Duration::from_secs(2) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

const PORT: u16 = 7077;
const ECHOES: usize = 30;
/// Bytes sent to measure goodput: nearly a second at 1 Gb/s for the half that counts.
const BULK: usize = 192 << 20;
/// Time after which sending stops, if the link or its sockets are slower.
const BULK_PATIENCE: Duration = Duration::from_secs(6);
/// TCP's share of a rate on Ethernet with packets of 1500 bytes.
const GOODPUT: f64 = 0.941;
/// Relative tolerance of a result.
const TOLERANCE: f64 = 0.05;
/// Longest round trip without configured delay.
const RTT_FLOOR: Duration = Duration::from_micros(200);
/// Number of measurements of a link that misses its target.
const PROBES: usize = 3;
