//! `canele info`: the installation, and the measured costs of this machine and its links.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use cost::thresholds::{Explained, PEER_BUDGET_BYTES};
use cost::{Cost, HostCost, Traffic, are_alike, finish_ns, split};
use rail_quic::QuicBuffers;
use settings::{Kind, Origin};
use topo::cache::Listing;
use topo::transport::{First, LOSSY, PathFacts};
use topo::{Cache, Entry, Ignored, Pair};

use crate::limits::{self, System};
use crate::print::print;
use crate::units::{duration, size, time};

/// Options of `canele info`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print the settings as a table, in Markdown
    #[arg(long, conflicts_with_all = ["link", "progress", "plan"])]
    settings: bool,
    /// Print the cost of links and the sizes derived from it: all, or those of one or two hosts
    #[arg(long, num_args = 0..=2, value_names = ["HERE", "THERE"])]
    link: Option<Vec<String>>,
    /// Print how ranks wait on this node, and why; under mpiexec, for its ranks here
    #[arg(long, conflicts_with = "link")]
    progress: bool,
    /// Print settings of this system that cost much, and the commands that mend them
    #[arg(long, conflicts_with_all = ["settings", "link", "progress", "plan"])]
    system: bool,
    /// Print the schedule and predicted time of a collective, such as bcast 64KiB
    #[arg(long, num_args = 2, value_names = ["OPERATION", "BYTES"], conflicts_with_all = ["link", "progress"])]
    plan: Option<Vec<String>>,
    /// Sites x nodes per site x ranks per node, at most 1024 ranks in all
    #[arg(long, value_name = "SHAPE", default_value = "2x2x2", requires = "plan", help_heading = PLAN)]
    on: crate::plan::Grid,
    /// All ranks on one machine, and more of them than cores
    #[arg(long, requires = "plan", help_heading = PLAN)]
    oversubscribed: bool,
    /// Round trip, at most 10s, and rate, 100kbit to 10Gbit, of two sites, such as 0-2=40ms,20Mbit; may be
    /// repeated
    #[arg(long = "pair", value_name = "SITE-SITE=RTT,RATE", requires = "plan", help_heading = PLAN)]
    pairs: Vec<crate::plan::Pair>,
}

const PLAN: &str = "Options of --plan";

pub fn run(arguments: &Arguments) -> ExitCode {
    let printed = match &arguments.link {
        None if let Some([operation, bytes]) = arguments.plan.as_deref() => {
            let here = crate::plan::Here::remembered(Cache::of_environment().as_ref());
            let grid = arguments.on.when_oversubscribed(arguments.oversubscribed);
            crate::plan::text(operation, bytes, grid, &arguments.pairs, &here)
        }
        None if arguments.settings => Ok(settings::manual()),
        None if arguments.system => Ok(crate::system_report::text()),
        None if arguments.progress => {
            Ok(format!("{}\n{}", crate::progress_report::text(), knobs()))
        }
        None => installation(),
        Some(ends) => links(Cache::of_environment().as_ref(), ends, &topo::sample::host()),
    };
    let text = match printed {
        Ok(text) => text,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "canele: {reason}");
            return ExitCode::FAILURE;
        }
    };
    print(&text)
}

fn installation() -> Result<String, String> {
    let version = env!("CARGO_PKG_VERSION");
    if let Some(text) = launch::replaced_library() {
        // A message that nobody can read is lost.
        let _ = writeln!(io::stderr(), "canele: {text}");
    }
    Ok(format!("Canele {version}: MPI 5.0, ABI 1.0\n\n{}", knobs()))
}

/// Settings with their values, and the origin of each value.
fn knobs() -> String {
    let mut text = String::from("settings\n");
    for setting in settings::ALL {
        let origin = match setting.origin() {
            Origin::Default => "default",
            Origin::Environment => "environment",
        };
        let value = match (setting.origin(), setting.kind()) {
            (Origin::Environment, Kind::Bytes(_) | Kind::Seconds(_)) => {
                setting.number().map_or_else(|error| error.to_string(), |number| number.to_string())
            }
            (Origin::Environment, Kind::Text(_) | Kind::Found(_)) => setting.text().into_owned(),
            (Origin::Default, kind) => kind.to_string(),
        };
        text += &format!("  {:<23} {value} ({origin})\n", setting.variable());
    }
    text
}

/// This machine, and the links between these ends.
fn links(cache: Option<&Cache>, ends: &[String], host: &HostCost) -> Result<String, String> {
    let listing = match cache {
        Some(cache) => {
            let reason = |reason| format!("{} {reason}", cache.directory().display());
            cache.links().map_err(reason)?
        }
        None => Listing::default(),
    };
    let chosen: Vec<_> = listing.links.iter().filter(|(pair, _)| is_between(pair, ends)).collect();
    let is_new = |pair: &&Pair| chosen.iter().all(|(known, _)| known != *pair);
    let lossy: Vec<_> =
        listing.traffic.keys().filter(|pair| is_between(pair, ends)).filter(is_new).collect();
    if chosen.is_empty() && lossy.is_empty() && !ends.is_empty() {
        return Err(match cache {
            Some(cache) => format!(
                "no link of {} is remembered in {} (without names all are shown)",
                ends.join(" and "),
                cache.directory().display()
            ),
            None => {
                let variable = settings::CACHE_DIR.variable();
                format!("nothing is remembered: {variable}, XDG_CACHE_HOME and HOME are unset")
            }
        });
    }
    let system = System::here();
    let buffers = QuicBuffers::here().ok();
    let mut text = machine(cache, host);
    if ends.is_empty() {
        text +=
            "\nshm within this host, as predicted; it keeps sizes of its own, those of its ring\n";
        text += &link(&host.shared_memory(HostCost::NEIGHBOUR_NS), host);
    }
    for (pair, Entry { value, age }) in &chosen {
        let (rail, here, there) = (pair.rail(), pair.here(), pair.there());
        text += &format!("\n{rail} {here} → {there}, {} ago\n", duration(*age));
        text += &link(value, host);
        if let Some(cache) = cache {
            text += &seen(cache.traffic(pair));
        }
        if value.latency_ns() >= FAR_NS {
            let loss = |rail| listing.traffic.get(&Pair::new(rail, here, there))?.chance();
            text += &first(PathFacts {
                by_tcp: loss("tcp"),
                by_quic: loss("quic"),
                fills_sockets: system.sockets.are_filled_by(value),
            });
        }
        if rail.starts_with("tcp") {
            text += &system.limits(value);
        }
        if rail == "quic" {
            text += &limits::of_datagrams(value, buffers);
        }
    }
    // Over QUIC, much may be sent before the path's rate is known.
    for pair in lossy {
        text +=
            &format!("\n{} {} → {}, no rate is known\n", pair.rail(), pair.here(), pair.there());
        if let Some(cache) = cache {
            text += &seen(cache.traffic(pair));
        }
    }
    text += &together(&chosen);
    for (path, reason) in &listing.ignored {
        text += &format!("\nignored: {} {reason}\n", path.display());
    }
    Ok(text)
}

/// Shares of messages on parallel links between two hosts.
fn together(links: &[&(Pair, Entry<Cost>)]) -> String {
    let host = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let mut routes: BTreeMap<(String, String), Vec<(&str, &Cost)>> = BTreeMap::new();
    for (pair, entry) in links.iter().filter(|(pair, _)| pair.rail().starts_with("tcp")) {
        let interface = pair.here().split_once('/').map_or(pair.here(), |(_, name)| name);
        let route = (host(pair.here()), host(pair.there()));
        routes.entry(route).or_default().push((interface, &entry.value));
    }
    let several = routes.into_iter().filter(|(_, links)| links.len() > 1);
    several.map(|((here, there), links)| shares(&here, &there, &links)).collect()
}

/// Returns the shares of messages on idle links, beside the best of them alone.
fn shares(here: &str, there: &str, links: &[(&str, &Cost)]) -> String {
    let names: Vec<&str> = links.iter().map(|(name, _)| *name).collect();
    let mut text = format!("\n{here} → {there} over {} together\n", names.join(" and "));
    let (_, first) = links[0];
    let alike = are_alike(links.iter().map(|(_, cost)| *cost));
    let costs: Vec<(&Cost, u64)> =
        links.iter().map(|(_, cost)| (if alike { first } else { *cost }, 0)).collect();
    for bytes in [16 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let shares = split(bytes, &costs);
        let all_ns = costs.iter().zip(&shares).map(|(link, share)| finish_ns(*link, *share)).max();
        let best_ns = costs.iter().map(|link| finish_ns(*link, bytes)).min();
        let shares: Vec<String> = shares.into_iter().map(size).collect();
        text += &format!(
            "  {:<14}{:>8}, in {}; in {} over the best alone\n",
            size(bytes),
            shares.join(" + "),
            time(all_ns.unwrap_or(0)),
            time(best_ns.unwrap_or(0)),
        );
    }
    text
}

/// True if a link has these ends, in either direction. A host stands for all its interfaces.
fn is_between(pair: &Pair, ends: &[String]) -> bool {
    let is = |end: &str, name: &str| {
        end.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match ends {
        [] => true,
        [one] => is(pair.here(), one) || is(pair.there(), one),
        [one, other, ..] => {
            (is(pair.here(), one) && is(pair.there(), other))
                || (is(pair.here(), other) && is(pair.there(), one))
        }
    }
}

fn machine(cache: Option<&Cache>, sampled: &HostCost) -> String {
    let nowhere = || format!("none ({})", settings::CACHE_DIR.variable());
    let place = cache.map_or_else(nowhere, |one| one.directory().display().to_string());
    let cached = match cache.map(Cache::host) {
        None | Some(Ok(None)) => "nothing".into(),
        Some(Ok(Some(Entry { value, age }))) => {
            format!("{}, {} ago", host(&value), duration(age))
        }
        Some(Err(reason)) => format!("the file {reason}"),
    };
    format!(
        "host     {}\n\
         cache    {place}\n\
         sampled  {}\n\
         cached   {cached}\n\
         speed    {}\n",
        topo::sample::host_name(),
        host(sampled),
        speed(sampled),
    )
}

/// Formats the speed of a rank alone on this host, by which `mpiexec -place` counts ranks.
fn speed(cost: &HostCost) -> String {
    let speed = f64::from(topo::sample::speed_percent(cost)) / 100.0;
    let computation = time(cost.work_ns);
    match topo::quota_percent().filter(|percent| *percent < 100) {
        Some(percent) => format!(
            "{speed} of a usual core: a fixed computation takes {computation}, and processes here \
             may use {} cores",
            f64::from(percent) / 100.0
        ),
        None => format!("{speed} of a usual core: a fixed computation takes {computation}"),
    }
}

fn host(cost: &HostCost) -> String {
    let HostCost { copy_ns, near_ps_per_byte, far_ps_per_byte, vector_ns, call_ns, .. } = cost;
    let HostCost { compress_ps_per_byte, decompress_ps_per_byte, wake_ns, .. } = cost;
    format!(
        "copy {copy_ns} ns + {near_ps_per_byte} ps/B up to {}, {far_ps_per_byte} ps/B beyond; \
         vector element {vector_ns} ns; system call {call_ns} ns; pack {compress_ps_per_byte} ps/B, \
         unpack {decompress_ps_per_byte} ps/B; woken {wake_ns} ns late",
        size(HostCost::NEAR_MAX)
    )
}

/// Formats a link's costs, with a line for each threshold and its reason.
fn link(cost: &Cost, host: &HostCost) -> String {
    let mut text = format!("  latency {}, gap {}", time(cost.latency_ns()), time(cost.gap_ns()));
    for bytes in [1 << 10, 64 << 10, 1 << 20] {
        let rate = cost.bytes_per_s(bytes) as f64 / 1e6;
        let digits = if rate < 10.0 { 2 } else { 0 };
        text += &format!("; {} at {rate:.digits$} MB/s", size(bytes));
    }
    text.push('\n');
    let explained = Explained::derive(cost, host, PEER_BUDGET_BYTES);
    for (name, limit) in explained.all() {
        text += &format!("  {name:<14}{:>8}  {}\n", size(limit.bytes), limit.because);
    }
    text + &company(cost, explained.piece_min.bytes) + &packing(cost, host)
}

/// Formats the link's loss and the buffer before its bottleneck, a line each.
fn seen(traffic: Result<Option<Entry<Traffic>>, Ignored>) -> String {
    let traffic = match traffic {
        Ok(entry) => entry.map_or(Traffic::default(), |entry| entry.value),
        Err(reason) => return format!("  loss           unknown  what is remembered {reason}\n"),
    };
    let Some(loss) = traffic.loss() else {
        return "  loss           unknown  no connection has sent enough to tell\n".into();
    };
    let chance = match traffic.chance() {
        Some(chance) if chance < loss => {
            format!(", {:.3} % by chance and the rest at once", 100.0 * chance)
        }
        Some(_) if loss > 0.0 => ", all by chance".into(),
        Some(_) | None => String::new(),
    };
    let loss = format!("{:.3} %", 100.0 * loss);
    let sent = size(traffic.sent_bytes());
    let mut text = format!("  loss          {loss:>8}  of {sent} that were sent{chance}\n");
    if traffic.queue_bytes() > 0 {
        let buffer = format!("≥ {}", size(traffic.queue_bytes()));
        text += &format!("  buffer        {buffer:>8}  what has waited on the way when most did\n");
    } else {
        text += "  buffer         unknown  no queue has been seen\n";
    }
    text
}

/// Formats the protocol that is tried first between named sites, with the reason.
fn first(signs: PathFacts) -> String {
    let name = match signs.first() {
        First::Tcp => "TCP",
        First::Quic => "QUIC",
    };
    if signs.first() != (PathFacts { fills_sockets: false, ..signs }).first() {
        return format!(
            "  first         {name:>8}  as much is under way on the link as TCP's sockets here hold: a larger net.ipv4.tcp_wmem, or QUIC, helps\n"
        );
    }
    let most = format!("from {:.2} % on QUIC is faster", 100.0 * LOSSY);
    let because = match signs {
        PathFacts { by_tcp: Some(one), by_quic: Some(other), .. } => {
            let [one, other] = [one, other].map(|loss| 100.0 * loss);
            format!("of {one:.3} % by TCP and {other:.3} % by QUIC the less counts; {most}")
        }
        PathFacts { by_tcp: Some(loss), .. } => {
            format!("{:.3} % by TCP; {most}", 100.0 * loss)
        }
        PathFacts { by_quic: Some(loss), .. } => {
            format!("{:.3} % by QUIC; {most}", 100.0 * loss)
        }
        PathFacts { .. } => format!("is unknown; {most}"),
    };
    format!(
        "  first         {name:>8}  between named sites with BBR what gets lost by chance decides: {because}\n"
    )
}

/// Formats whether a short message shares the frame of a long piece: the saved gap against the added delay.
fn company(cost: &Cost, piece: u64) -> String {
    let (gap_ns, late_ns) = (cost.gap_ns(), cost.busy_ns(piece));
    let word = if late_ns > gap_ns { "apart" } else { "together" };
    format!(
        "  short, long   {word:>8}  a frame of its own costs a piece {}, its company a short message {}\n",
        time(gap_ns),
        time(late_ns)
    )
}

/// Returns the ratio from which a piece of a long message is compressed on an idle link.
fn packing(cost: &Cost, host: &HostCost) -> String {
    match host.compressed_max(cost, PIECE, 0, false) * 100 / PIECE {
        0 => "  packed           never  the link is faster than packing\n".into(),
        part => format!("  packed        ≤ {part:>4} %  what gets so short by it arrives sooner\n"),
    }
}

/// Least latency of a link between sites.
const FAR_NS: u64 = 200_000;
/// Length of a long piece, in bytes.
const PIECE: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let place = tempfile::tempdir().unwrap();
        let cache = Cache::at(place.path().join("canele"));
        let wan = Cost::linear(5_800_000, 2_000, 118_000_000);
        cache.keep_link(&Pair::new("tcp", "a/eth0", "b/eth0"), &wan).unwrap();
        cache.keep_link(&Pair::new("tcp", "a/eth1", "ab/eth0"), &wan).unwrap();
        cache.keep_link(&Pair::new("quic", "f/eth0", "g/eth0"), &wan).unwrap();
        (place, cache)
    }

    fn printed(cache: &Cache, ends: &[&str]) -> Result<String, String> {
        let ends: Vec<String> = ends.iter().map(ToString::to_string).collect();
        links(Some(cache), &ends, &HostCost::default())
    }

    #[test]
    fn every_remembered_link_is_told_with_its_thresholds_and_why() {
        let (_place, cache) = cache();
        let text = printed(&cache, &[]).unwrap();
        let expected = [
            "shm within this host",
            "tcp a/eth0 → b/eth0, ",
            "latency 5.8 ms, gap 2.0 µs",
            "1 MiB at 118 MB/s",
            "credit_bytes     8 MiB  four times what the link carries in a round trip",
            "packed           never  the link is faster than packing",
            "quic f/eth0 → g/eth0, ",
            "congestion        ours  paced",
            "%  what gets so short by it arrives sooner",
            "cached   nothing",
            " of a usual core: a fixed computation takes ",
        ];
        for part in expected {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        cache.keep_host(&HostCost { copy_ns: 7654, ..HostCost::default() }).unwrap();
        assert!(printed(&cache, &[]).unwrap().contains("cached   copy 7654 ns + 50 ps/B"));
    }

    #[test]
    fn results_of_traffic_are_printed_with_the_link() {
        let (_place, cache) = cache();
        let pair = Pair::new("tcp", "a/eth0", "b/eth0");
        assert_eq!(
            printed(&cache, &["b"]).unwrap().matches("  loss           unknown  no ").count(),
            1
        );
        cache
            .keep_traffic(
                &pair,
                &Traffic::new(64 << 20, 64 << 10, 300 << 10).with_stretches((256, 40)),
            )
            .unwrap();
        let text = printed(&cache, &["b"]).unwrap();
        assert!(text.contains("  loss           0.098 %  of 64 MiB that were sent, 0.090 % by chance and the rest at once\n"), "{text}");
        assert!(text.contains("  buffer        ≥ 300 KiB  what has waited"), "{text}");
        let first = "  first              TCP  between named sites with BBR what gets lost by chance decides: 0.090 % by TCP; from ";
        assert!(text.contains(first), "{text}");
        let file = std::fs::read_dir(cache.directory())
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("traffic-"));
        std::fs::write(file.unwrap().path(), "nonsense").unwrap();
        let text = printed(&cache, &["b"]).unwrap();
        assert!(text.contains("  loss           unknown  what is remembered is damaged"), "{text}");
        assert!(text.contains("latency 5.8 ms"), "the rest is known");
        for (rail, lost) in [("tcp", 1), ("quic", 2)] {
            let pair = Pair::new(rail, "c/eth0", "d/eth0");
            cache.keep_link(&pair, &Cost::linear(5_800_000, 2_000, 118_000_000)).unwrap();
            cache
                .keep_traffic(&pair, &Traffic::new(1 << 24, lost << 18, 0).with_stretches((64, 62)))
                .unwrap();
        }
        let both = printed(&cache, &["c"]).unwrap();
        let first = "  first             QUIC  between named sites with BBR what gets lost by chance decides: of 1.562 % by TCP and 1.173 % ";
        assert_eq!(both.matches(first).count(), 2, "{both}");
        let alone = Pair::new("quic", "e/eth0", "f/eth0");
        cache.keep_traffic(&alone, &Traffic::new(1 << 24, 1 << 18, 0)).unwrap();
        let text = printed(&cache, &["e"]).unwrap();
        let known = "quic e/eth0 → f/eth0, no rate is known\n  loss           1.562 %  of 16 MiB";
        assert!(text.contains(known), "{text}");
    }

    #[test]
    fn the_first_protocol_is_printed_with_its_reason() {
        let full = PathFacts { fills_sockets: true, ..PathFacts::default() };
        let text = first(full);
        assert!(text.starts_with("  first             QUIC  as much is under way"), "{text}");
        assert!(text.contains("net.ipv4.tcp_wmem"), "{text}");
        let lossy = PathFacts { by_tcp: Some(0.01), ..PathFacts::default() };
        assert_eq!(
            first(PathFacts { fills_sockets: true, ..lossy }),
            first(lossy),
            "that would do"
        );
        assert!(first(PathFacts::default()).starts_with("  first              TCP"));
    }

    #[test]
    fn names_choose_links_in_either_direction() {
        let (_place, cache) = cache();
        let count = |ends: &[&str]| printed(&cache, ends).unwrap().matches("\ntcp ").count();
        assert_eq!(count(&["a"]), 2);
        assert_eq!(count(&["a/eth1"]), 1);
        assert_eq!(count(&["b", "a"]), 1);
        assert_eq!(count(&["a", "ab/eth0"]), 1);
        for strangers in [&["eth0"][..], &["a/eth"], &["b", "ab"], &[""]] {
            let reason = printed(&cache, strangers).unwrap_err();
            assert!(reason.starts_with("no link of "), "{reason}");
            assert_eq!(reason.lines().count(), 1);
        }
    }

    #[test]
    fn links_between_the_same_hosts_are_told_with_their_shares() {
        let (_place, cache) = cache();
        let lan = |mb_per_s: u64| Cost::linear(30_000, 2_000, mb_per_s * 1_000_000);
        cache.keep_link(&Pair::new("tcp", "c/eth0", "d/eth0"), &lan(118)).unwrap();
        cache.keep_link(&Pair::new("tcp", "c/eth1", "d/eth1"), &lan(118)).unwrap();
        cache.keep_link(&Pair::new("tcp", "c/eth0", "e/eth0"), &lan(300)).unwrap();
        cache.keep_link(&Pair::new("tcp", "c/eth1", "e/eth1"), &lan(100)).unwrap();
        let text = printed(&cache, &["c"]).unwrap();
        let (_, even) = text.split_once("c → d over eth0 and eth1 together").unwrap();
        let line = even.lines().find(|line| line.starts_with("  64 KiB")).unwrap();
        assert!(line.contains("32 KiB + 32 KiB, in 309.7 µs; in 587.4 µs"), "{line}");
        let (_, uneven) = text.split_once("c → e over eth0 and eth1 together").unwrap();
        let line = uneven.lines().find(|line| line.starts_with("  16 MiB")).unwrap();
        assert!(line.contains("12 MiB + 4 MiB"), "{line}");
        assert!(!printed(&cache, &["a"]).unwrap().contains(" and "), "one link each");
    }

    #[test]
    fn unusable_parts_are_printed() {
        let (_place, cache) = cache();
        let name = std::fs::read_dir(cache.directory())
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("link-"));
        std::fs::write(name.unwrap().path(), "nonsense").unwrap();
        assert!(printed(&cache, &[]).unwrap().contains("is damaged"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let reason = printed(&Cache::at(file.path().into()), &[]).unwrap_err();
        assert!(reason.ends_with("is not a directory"), "{reason}");
        let variable = settings::CACHE_DIR.variable();
        assert!(links(None, &["a".into()], &HostCost::default()).unwrap_err().contains(variable));
        assert!(links(None, &[], &HostCost::default()).unwrap().contains("cache    none"));
    }
}
