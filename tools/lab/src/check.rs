//! Check of a lab's links: their round trips and rates, measured inside it.

use std::process::Stdio;
use std::time::Duration;

use crate::daemon::Which;
use crate::error::LabError;
use crate::grid::Lab;
use crate::probe::{GOODPUT, duration};

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
    /// The other site, of a link between sites.
    site: Option<u32>,
}

/// Returns the measurements: each LAN of a site, all of them at once, and the path to another site.
fn measurements(lab: &Lab) -> Vec<Measurement> {
    let spec = &lab.spec;
    let mut all = Vec::new();
    let (from, neighbour) = (spec.host(0, 0), spec.host(0, 1));
    let mut add = |name: String, to: &str, addresses, rtt, rate, site| {
        let from = from.clone();
        all.push(Measurement { name, from, to: to.into(), addresses, rtt, rate, site });
    };
    if spec.nodes > 1 {
        let addresses: Vec<String> = (0..spec.nics).map(|nic| spec.address(0, 1, nic)).collect();
        for (nic, address) in addresses.iter().enumerate() {
            let name = if nic == 0 { "in a site".into() } else { format!("by eth{nic}") };
            add(name, &neighbour, vec![address.clone()], Some(Duration::ZERO), spec.lan_rate, None);
        }
        if spec.nics > 1 {
            let rate = spec.lan_rate * u64::from(spec.nics);
            add("by all".into(), &neighbour, addresses, None, rate, None);
        }
    }
    for site in 1..spec.sites {
        let name = if spec.sites == 2 { "wide area".into() } else { format!("to site{site}") };
        let rate = spec.wan_rate.min(spec.lan_rate);
        let (rtt, addresses) = (spec.rtt_between(0, site), vec![spec.address(site, 0, 0)]);
        add(name, &spec.host(site, 0), addresses, Some(rtt), rate, Some(site));
    }
    all
}

/// Measures and prints. True if all results lie within five per cent.
///
/// # Errors
/// Fails if nothing could be measured.
pub(crate) fn check_links(lab: &Lab) -> Result<bool, String> {
    let all = measurements(lab);
    let lasting: Duration = all.iter().map(|one| duration(one.rate)).sum();
    let count = match all.len() {
        1 => "one link".to_owned(),
        count => format!("{count} links"),
    };
    write_line!("  measuring {count}, for {:.0} s or more", lasting.as_secs_f64().ceil());
    write_line!("  link       round trip asked / measured      goodput possible / measured");
    let (mut good, mut is_slow) = (true, false);
    for one in all {
        let result = check_link(lab, &one)?;
        good &= result.is_good(&one);
        is_slow |= result.goodput < one.possible() * (1.0 - TOLERANCE);
        let verdict = |good| if good { "ok" } else { "OFF" };
        let round_trip = one.rtt.map_or_else(String::new, |asked| {
            let (asked_ms, found_ms) = (asked.as_secs_f64() * 1e3, result.rtt.as_secs_f64() * 1e3);
            let is_good = is_rtt_good(result.rtt, asked);
            format!("{asked_ms:9.3} ms / {found_ms:.3} ms {}", verdict(is_good))
        });
        write_line!(
            "  {:9}  {round_trip:27}     {} Mb/s / {} Mb/s {}",
            one.name,
            mbit(one.possible()),
            mbit(result.goodput),
            verdict(is_rate_good(result.goodput, one.possible())),
        );
    }
    if is_slow {
        write_line!("  {}", busy_hint());
    }
    Ok(good)
}

/// Result of a measurement.
#[derive(Clone, Copy)]
struct LinkResult {
    rtt: Duration,
    goodput: f64,
}

impl LinkResult {
    fn is_good(&self, one: &Measurement) -> bool {
        let is_rtt_good = one.rtt.is_none_or(|asked| is_rtt_good(self.rtt, asked));
        is_rtt_good && is_rate_good(self.goodput, one.possible())
    }
}

impl Measurement {
    fn possible(&self) -> f64 {
        self.rate as f64 * GOODPUT
    }
}

/// Measures a link until it is as asked, a few times at most. Other work on the machine delays packets, so the best probe
/// counts. The time that this machine adds to a round trip is taken off the delay.
fn check_link(lab: &Lab, one: &Measurement) -> Result<LinkResult, String> {
    let mut best = probe(lab, one)?;
    let mut lead = Duration::ZERO;
    for _ in 1..PROBES {
        if let (Some(asked), Some(site)) = (one.rtt, one.site)
            && best.rtt.abs_diff(asked) > asked.mul_f64(LEAD_FROM)
            // Both directions share it. Links of the kernel's emulator cannot be changed.
            && set_lead(lab, site, (lead + best.rtt / 2).saturating_sub(asked / 2))
        {
            lead = (lead + best.rtt / 2).saturating_sub(asked / 2);
            best.rtt = Duration::MAX;
        } else if best.is_good(one) {
            break;
        }
        let again = probe(lab, one)?;
        best.rtt = best.rtt.min(again.rtt);
        best.goodput = best.goodput.max(again.goodput);
    }
    Ok(best)
}

/// Takes time off the delay of the links between the first site and another. True if the links allow it.
fn set_lead(lab: &Lab, site: u32, lead: Duration) -> bool {
    [(0, site), (site, 0)]
        .into_iter()
        .all(|(from, to)| lab.lead(Which { from: Some(from), to: Some(to) }, lead).is_ok())
}

/// Says what else a link that is too slow may suffer from.
fn busy_hint() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "less than asked: the machine may be too busy (load {load:.1} on {cores} cores); end other work, or ask for a lower rate"
    )
}

/// Formats a rate: with a decimal if it is low.
fn mbit(bits_per_s: f64) -> String {
    let mbit = bits_per_s / 1e6;
    if mbit < 20.0 { format!("{mbit:.2}") } else { format!("{mbit:.0}") }
}

fn is_rtt_good(found: Duration, asked: Duration) -> bool {
    let tolerance = if asked.is_zero() { RTT_FLOOR } else { asked.mul_f64(TOLERANCE) };
    found.abs_diff(asked) <= tolerance
}

fn is_rate_good(found: f64, possible: f64) -> bool {
    (found - possible).abs() <= possible * TOLERANCE
}

/// Returns the longest round trip and the sum of the goodputs, over all of the server's addresses at once.
fn probe(lab: &Lab, one: &Measurement) -> Result<LinkResult, String> {
    let rate = one.rate / one.addresses.len() as u64;
    let results: Vec<_> = std::thread::scope(|scope| {
        let hosts = (&*one.from, &*one.to);
        let start = |address| scope.spawn(move || probe_one(lab, hosts, address, rate));
        let probes: Vec<_> = one.addresses.iter().map(String::as_str).map(start).collect();
        let failed = |_| Err("the measurement has panicked".into());
        probes.into_iter().map(|probe| probe.join().unwrap_or_else(failed)).collect()
    });
    let none = LinkResult { rtt: Duration::ZERO, goodput: 0.0 };
    results.into_iter().try_fold(none, |all, result: Result<LinkResult, String>| {
        let one = result?;
        Ok(LinkResult { rtt: one.rtt.max(all.rtt), goodput: all.goodput + one.goodput })
    })
}

fn probe_one(
    lab: &Lab,
    (from, to): (&str, &str),
    address: &str,
    rate: u64,
) -> Result<LinkResult, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?.display().to_string();
    let text = |error: LabError| error.to_string();
    let mut server = lab.link_tool(to, &[&*own, "lab", "serve", address]).map_err(text)?;
    let mut server = server.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let rate = rate.to_string();
    let mut client =
        lab.link_tool(from, &[&*own, "lab", "measure", address, &rate]).map_err(text)?;
    let output = client.output();
    // The server has answered its only client, or never will.
    let _ = server.kill();
    let _ = server.wait();
    let output = output.map_err(|error| error.to_string())?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(seconds), Some(goodput)) => {
            Ok(LinkResult { rtt: Duration::from_secs_f64(seconds), goodput })
        }
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Relative tolerance of a result.
const TOLERANCE: f64 = 0.05;
/// Longest round trip without configured delay.
const RTT_FLOOR: Duration = Duration::from_micros(200);
/// Deviation of a round trip, in relation to what is asked, from which the delay is adjusted.
const LEAD_FROM: f64 = 0.02;
/// Number of measurements of a link that misses its target.
const PROBES: usize = 6;
