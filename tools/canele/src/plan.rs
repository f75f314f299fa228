//! `canele info --plan`: the schedule of a collective on a grid, and its predicted time.

use std::fmt::Write;
use std::hint::black_box;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use cost::HostCost;
use plan::{
    Call, Costs, Location, MessageCost, Operands, Operation, Pairs, Plans, Schedule, Span, Step,
    Topology, watch,
};
use topo::{Cache, CachedCosts, Entry, LinkCost};

use crate::chart::chart;

/// Sites of equal numbers of nodes and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    sites: u32,
    nodes: u32,
    ranks: u32,
    /// True if all ranks are on one machine with fewer cores.
    is_oversubscribed: bool,
}

impl FromStr for Grid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split('x').map(|part| part.parse::<u32>().ok().filter(|&n| n > 0));
        let (Some(Some(sites)), Some(Some(nodes)), Some(Some(ranks)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(format!("`{text}`: say sites x nodes x ranks, as in 2x2x2"));
        };
        let size = u64::from(sites) * u64::from(nodes) * u64::from(ranks);
        if size > RANKS_MAX {
            return Err(format!("`{text}` are {size} ranks, more than {RANKS_MAX}"));
        }
        Ok(Self { sites, nodes, ranks, is_oversubscribed: false })
    }
}

/// Two sites that are nearer or farther than others, or have another rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    sites: [u32; 2],
    latency_ns: u64,
    bytes_per_s: Option<u64>,
}

/// The cost of messages within a node, within a site and between sites, and of waking; each with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    costs: Costs,
    origins: [String; 3],
}

impl Here {
    /// Measured costs of this machine, and typical ones for the rest.
    pub fn remembered(cache: Option<&Cache>) -> Self {
        let host = cache.and_then(|cache| cache.host().ok().flatten());
        let listing = cache.and_then(|cache| cache.links().ok()).unwrap_or_default();
        Self::of(host, CachedCosts::of(&listing))
    }

    fn of(host: Option<Entry<HostCost>>, CachedCosts { near, far }: CachedCosts) -> Self {
        let mut costs = Costs::default();
        let mut origins = [(); 3].map(|()| "usual".to_owned());
        if let Some(Entry { value: host, age }) = host {
            let LinkCost { latency_ns, gap_ns: overhead_ns, bytes_per_s } =
                LinkCost::in_memory(&host);
            let bytes_per_s = bytes_per_s.unwrap_or(costs.node.bytes_per_s);
            costs.node = MessageCost { latency_ns, bytes_per_s, overhead_ns };
            costs.wake_ns = host.wake_ns;
            origins[0] = format!("remembered, {} ago", crate::units::duration(age));
        }
        let linked = |LinkCost { latency_ns, gap_ns, bytes_per_s }, usual| {
            MessageCost::over_links(latency_ns, gap_ns, bytes_per_s, usual)
        };
        if let Some((links, count)) = near {
            costs.site = linked(links, costs.site);
            origins[1] = format!("remembered of {count} links");
        }
        if let Some((links, pair)) = far {
            costs.wide = linked(links, costs.wide);
            origins[2] = format!("remembered of {} → {}", pair.here(), pair.there());
        }
        Self { costs, origins }
    }
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}`: say two sites, a round trip and a rate, as in 0-2=40ms,20Mbit");
        let (sites, figures) = text.split_once('=').ok_or_else(wrong)?;
        let (one, other) = sites.split_once('-').ok_or_else(wrong)?;
        let [Some(one), Some(other)] = [one, other].map(|site| site.parse().ok()) else {
            return Err(wrong());
        };
        let (rtt, rate) =
            figures.split_once(',').map_or((figures, None), |(rtt, rate)| (rtt, Some(rate)));
        let latency_ns = lab::duration(rtt).map_err(|_| wrong())?.as_nanos() as u64 / 2;
        let rate = rate.map(lab::rate).transpose().map_err(|_| wrong())?;
        let bytes_per_s = rate.map(|bits_per_s| bits_per_s / 8);
        Ok(Self { sites: [one, other], latency_ns, bytes_per_s })
    }
}

impl Pair {
    fn cost(&self, usual: MessageCost) -> MessageCost {
        let bytes_per_s = self.bytes_per_s.unwrap_or(usual.bytes_per_s);
        MessageCost { latency_ns: self.latency_ns, bytes_per_s, ..usual }
    }
}

impl Grid {
    /// Returns the same costs for one oversubscribed machine.
    pub fn when_oversubscribed(self, is_oversubscribed: bool) -> Self {
        Self { is_oversubscribed, ..self }
    }

    fn topology(self, pairs: &[Pair], costs: Costs) -> Topology {
        let location = |rank: u32| {
            let node = rank / self.ranks;
            Location { node, site: node / self.nodes }
        };
        let locations: Vec<Location> =
            (0..self.sites * self.nodes * self.ranks).map(location).collect();
        let pair = |pair: &Pair| (pair.sites[0], pair.sites[1], pair.cost(costs.wide));
        let pairs = Pairs::new(pairs.iter().map(pair));
        let topology = Topology::with_pairs(&locations, self.is_oversubscribed, costs, &pairs);
        match plan::page_bytes(topology.node_ranks()) {
            Some(page_bytes) => topology.with_shm_coll(page_bytes),
            None => topology,
        }
    }
}

/// Returns the plan of an operation on `bytes` of each rank, or of the root, as text, with the other
/// candidates.
///
/// # Errors
/// Fails if the operation, its length or the table of the setting is not understood.
pub fn text(
    operation: &str,
    bytes: &str,
    grid: Grid,
    pairs: &[Pair],
    here: &Here,
) -> Result<String, String> {
    let bytes = length(bytes)?;
    let outside = |pair: &&Pair| pair.sites.iter().any(|site| *site >= grid.sites);
    if let Some(Pair { sites: [one, other], .. }) = pairs.iter().find(outside) {
        return Err(format!("sites {one} and {other}: there are {}", grid.sites));
    }
    let topology = grid.topology(pairs, here.costs).with_plans(Arc::new(wanted()?));
    let (call, unit, make) = maker(operation, bytes)?;
    let schedules: Vec<Schedule> = (0..topology.size()).map(|rank| make(rank, &topology)).collect();
    let mut deeds = Vec::new();
    let found = watch(&schedules, &topology, unit, &mut |deed| deeds.push(deed));
    let Grid { sites, nodes, ranks, is_oversubscribed } = grid;
    let oversubscribed = if is_oversubscribed { ", more than cores" } else { "" };
    let mut text = format!(
        "{operation} of {bytes} bytes on {sites} x {nodes} x {ranks} ranks{oversubscribed}\n  \
         predicted      {:.3} ms, all ranks beginning at once\n  \
         between sites  {} messages, {} bytes\n  \
         between nodes  {} messages, those included\n",
        found.time_ns as f64 * 1e-6,
        found.wide_messages,
        found.wide_bytes,
        found.messages
    );
    text += &costs(&topology, here, pairs);
    let _ = writeln!(
        text,
        "planning         {:.1} us for rank 0 where the shape is new",
        planning_us(|| make(0, &topology))
    );
    text += &origin(&topology, &call);
    text += &candidates(&topology, &call);
    text += &chart(&deeds, &topology, found.time_ns);
    text += "rank 0\n";
    for (at, step) in schedules[0].steps.iter().enumerate() {
        let _ = writeln!(text, "  {at:>4}  {}", printed(step));
    }
    Ok(text)
}

/// Formats the cost of messages; for each pair of sites if these differ.
fn costs(topology: &Topology, here: &Here, given: &[Pair]) -> String {
    let Costs { node, site, wide, wake_ns } = *topology.costs();
    let [of_node, of_site, of_sites] = &here.origins;
    let mut printed =
        vec![("in a node".to_owned(), node, of_node.as_str()), ("in a site".into(), site, of_site)];
    let pair = |(one, other, cost)| {
        let is = |pair: &&Pair| pair.sites == [one, other] || pair.sites == [other, one];
        let origin = given.iter().find(is).map_or(of_sites.as_str(), |_| "given");
        (format!("sites {one}, {other}"), cost, origin)
    };
    printed.extend(topology.pairs().iter().map(pair));
    if printed.len() == 2 {
        printed.push(("between sites".into(), wide, of_sites));
    }
    let mut text = String::new();
    for (name, cost, origin) in printed {
        let (latency_us, rate) = (cost.latency_ns as f64 / 1e3, cost.bytes_per_s as f64 * 1e-6);
        let _ = writeln!(
            text,
            "  {name:<13}  {latency_us} us, {rate:.0} MB/s, {} us of work a message ({origin})",
            cost.overhead_ns as f64 / 1e3
        );
    }
    let _ = writeln!(text, "  to wake        {} us ({of_node})", wake_ns / 1000);
    text
}

/// Measures the undisturbed time of planning.
fn planning_us(make: impl Fn() -> Schedule) -> f64 {
    let once = || {
        let start = Instant::now();
        black_box(make());
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..PLANNED).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// Formats the reason of the selection.
fn origin(topology: &Topology, call: &Call) -> String {
    let (choice, variable) = (topology.choice(call), settings::PLANS.variable());
    let table = settings::PLANS.text();
    match topology.wanted(call) {
        Some(wanted) if wanted == choice => {
            format!("chosen           {choice}, by {variable}={table}\n")
        }
        Some(wanted) => format!(
            "chosen           {choice}, by formula: {variable}={table} says {wanted}, which cannot carry it out here\n"
        ),
        None => format!("chosen           {choice}, by formula\n"),
    }
}

/// Formats the candidate algorithms, by formula; the selected one is marked.
fn candidates(topology: &Topology, call: &Call) -> String {
    let mut text = String::from("algorithms, by formula\n");
    let choice = topology.choice(call);
    for (algorithm, predicted_ns) in topology.candidates(call) {
        let mark = if algorithm == choice { '*' } else { ' ' };
        let _ = writeln!(text, "{mark} {algorithm:<13}  {:.3} ms", predicted_ns as f64 * 1e-6);
    }
    text
}

/// Reads the table that the setting names.
fn wanted() -> Result<Plans, String> {
    let Some(path) = settings::PLANS.given() else { return Ok(Plans::default()) };
    let wrong = |reason: String| {
        format!("{}={}: {reason}", settings::PLANS.variable(), path.to_string_lossy())
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    text.parse().map_err(wrong)
}

type Maker = Box<dyn Fn(u32, &Topology) -> Schedule>;

/// Returns the planner of an operation, the call, and the bytes of its unit. The root is rank 0. Reductions
/// combine elements of eight bytes, or fewer if these do not divide the length. Their operation is commutative and
/// associative.
fn maker(name: &str, bytes: u64) -> Result<(Call, u64, Maker), String> {
    let all = Operation::ALL;
    let Some(operation) = all.into_iter().find(|operation| operation.name() == name) else {
        let names = all.map(Operation::name).join(", ");
        let near = settings::nearest(name, all.map(Operation::name));
        let advice = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
        return Err(format!("no plan for `{name}`{advice}: there are {names}"));
    };
    let element = element(bytes);
    let operands =
        Operands { len: bytes / element, element, commutes: true, is_exact: true, in_place: false };
    let sizes = move |_: u32| bytes;
    let make: Maker = match operation {
        Operation::Barrier => Box::new(plan::barrier),
        Operation::Broadcast => Box::new(move |rank, on| plan::broadcast(rank, on, 0, bytes)),
        Operation::Gather => {
            Box::new(move |rank, on| plan::gather(rank, on, 0, &sizes, true, false))
        }
        Operation::Scatter => {
            Box::new(move |rank, on| plan::scatter(rank, on, 0, &sizes, true, false))
        }
        Operation::Allgather => Box::new(move |rank, on| plan::allgather(rank, on, &sizes, false)),
        Operation::Alltoall => {
            Box::new(move |rank, on| plan::alltoall(rank, on, &sizes, &sizes, true))
        }
        Operation::Reduce => Box::new(move |rank, on| plan::reduce(rank, on, 0, operands)),
        Operation::Allreduce => Box::new(move |rank, on| plan::allreduce(rank, on, operands)),
        Operation::ReduceScatter => Box::new(move |rank, on| {
            let begin = |rank: u32| operands.len * u64::from(rank) / u64::from(on.size());
            let counts = |rank: u32| begin(rank + 1) - begin(rank);
            plan::reduce_scatter(rank, on, &counts, operands)
        }),
        Operation::Scan => Box::new(move |rank, on| plan::scan(rank, on, operands)),
        Operation::Exscan => Box::new(move |rank, on| plan::exscan(rank, on, operands)),
    };
    let (call, unit) = match operation {
        Operation::Reduce => (operands.call(operation).with_root(0), element),
        Operation::Allreduce | Operation::ReduceScatter | Operation::Scan | Operation::Exscan => {
            (operands.call(operation), element)
        }
        Operation::Broadcast | Operation::Gather | Operation::Scatter => {
            (Call::of(operation, bytes).with_root(0), 1)
        }
        Operation::Barrier | Operation::Allgather | Operation::Alltoall => {
            (Call::of(operation, bytes), 1)
        }
    };
    Ok((call, unit, make))
}

/// Parses a number of bytes, plain or with a unit.
fn length(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].trim() {
        "" | "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        _ => return Err(format!("`{text}`: say bytes, or a number of KiB, MiB or GiB")),
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|&bytes| bytes <= BYTES_MAX)
        .ok_or_else(|| format!("`{text}`: say a number of bytes, up to {} GiB", BYTES_MAX >> 30))
}

fn printed(step: &Step) -> String {
    let span = |span: &Span| format!("{:?}[{}; {}]", span.buffer, span.start, span.len);
    match step {
        Step::Send { to, span: what } => format!("send     to {to} {}", span(what)),
        Step::Receive { from, span: what } => format!("receive  from {from} {}", span(what)),
        Step::Wait => "wait     for all".into(),
        Step::Await { step } => format!("wait     for {step}"),
        Step::Post { span: what } => format!("post     {}", span(what)),
        Step::PostParts { count, .. } => format!("post     parts of {count} blocks"),
        Step::PostBlocks => "post     a block for each".into(),
        Step::Announce { units, reader } => format!("announce {units} for {reader}"),
        Step::PostMore { piece, span: what } => format!("post     piece {piece}: {}", span(what)),
        Step::Release { piece } => format!("let go   pieces to {piece}"),
        Step::Meet { first, end } => format!("wait     for {first}..{end} at the segment"),
        Step::Take { from, at, to } => format!("take     of {from} from {at} to {}", span(to)),
        Step::TakeBlock { from, to } => {
            format!("take     of {from} what is for it to {}", span(to))
        }
        Step::TakeMore { from, piece, to } => {
            format!("take     of {from} piece {piece} to {}", span(to))
        }
        Step::Combine { at, to, .. } => {
            format!("combine  what was posted from {at} to {}", span(to))
        }
        Step::Copy { from, to } => format!("copy     {} to {}", span(from), span(to)),
        Step::Reduce { input, inout } => format!("reduce   {} into {}", span(input), span(inout)),
    }
}

/// Returns the length of the elements of a reduction: eight bytes, or the greatest that divides the whole.
fn element(bytes: u64) -> u64 {
    let fits = |element: &u64| bytes.is_multiple_of(*element);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Number of repetitions; the fastest counts.
const PLANNED: u32 = 5;

/// Maximum number of ranks of a printed plan.
const RANKS_MAX: u64 = 1024;

const BYTES_MAX: u64 = 64 << 30;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(operation: &str, bytes: &str, grid: Grid, pairs: &[Pair]) -> Result<String, String> {
        super::text(operation, bytes, grid, pairs, &Here::remembered(None))
    }

    #[test]
    fn a_plan_says_what_crosses() {
        let grid = "2x2x2".parse().unwrap();
        let text = text("allreduce", "1MiB", grid, &[]).unwrap();
        assert!(text.starts_with("allreduce of 1048576 bytes on 2 x 2 x 2 ranks\n"), "{text}");
        assert!(text.contains(" messages, 2097152 bytes\n"), "{text}");
        assert!(text.contains("\n* multisite "), "{text}");
        assert!(text.contains("\nchosen           multisite, by formula\n"), "{text}");
        let within = self::text("allreduce", "1MiB", "1x1x8".parse().unwrap(), &[]).unwrap();
        let marked = within.lines().filter(|line| line.starts_with("* ")).count();
        assert!(
            marked == 1 && within.contains(" doubling ") && within.contains(" ring "),
            "{within}"
        );
        let barrier = self::text("barrier", "0", grid, &[]).unwrap();
        assert!(barrier.contains("between sites  2 messages, 0 bytes\n"), "{barrier}");
    }

    #[test]
    fn messages_are_expensive_if_oversubscribed() {
        let grid: Grid = "2x2x2".parse().unwrap();
        let plan = |is_oversubscribed| {
            text("allreduce", "1M", grid.when_oversubscribed(is_oversubscribed), &[]).unwrap()
        };
        let [alone, oversubscribed] = [false, true].map(plan);
        assert!(
            oversubscribed
                .starts_with("allreduce of 1048576 bytes on 2 x 2 x 2 ranks, more than cores\n")
        );
        let work = |text: &str, us: u64| {
            text.contains(&format!("\n  in a site      20 us, 117 MB/s, {us} us of work a message"))
        };
        assert!(work(&alone, 4) && work(&oversubscribed, 16), "{oversubscribed}");
        let messages = |text: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with("  between nodes")).unwrap();
            line.split_whitespace().nth(2).unwrap().parse().unwrap()
        };
        assert!(messages(&oversubscribed) * 2 < messages(&alone) + 8, "{oversubscribed}");
        let one: Grid = "1x1x8".parse().unwrap();
        assert!(
            text("barrier", "0", one.when_oversubscribed(true), &[])
                .unwrap()
                .contains("\n* shmem ")
        );
    }

    #[test]
    fn sites_may_have_costs_of_their_own() {
        let grid = "3x1x1".parse().unwrap();
        let slow: Pair = "2-0=40ms,16Mbit".parse().unwrap();
        let text = text("bcast", "1MiB", grid, &[slow]).unwrap();
        let printed = |line: &str, origin: &str| {
            text.contains(&format!("\n  {line}, 4 us of work a message ({origin})\n"))
        };
        assert!(printed("sites 0, 2     20000 us, 2 MB/s", "given"), "{text}");
        assert!(printed("sites 1, 2     6000 us, 117 MB/s", "usual"), "{text}");
        assert!(text.contains("send     to 1 ") && !text.contains("send     to 2 "), "{text}");
        let far = "0-3=40ms".parse().unwrap();
        assert!(self::text("bcast", "8", grid, &[far]).unwrap_err().contains("there are 3"));
        for wrong in ["", "0-1", "0=40ms", "0-1=40", "0-1=40ms,fast", "0-x=40ms", "0-1=40ms,"] {
            assert!(wrong.parse::<Pair>().unwrap_err().contains("0-2=40ms,20Mbit"), "{wrong}");
        }
    }

    #[test]
    fn it_is_planned_from_what_is_remembered_and_said_what_that_is() {
        let far = LinkCost { latency_ns: 9_000_000, gap_ns: 2_000, bytes_per_s: Some(30_000_000) };
        let pair = topo::Pair::new("tcp", "a/10.0.0.1", "10.1.0.1");
        let known = CachedCosts { near: None, far: Some((far, pair)) };
        let host = HostCost { wake_ns: 70_000, ..HostCost::default() };
        let age = Duration::from_secs(180);
        let here = Here::of(Some(Entry { value: host, age }), known);
        let text = super::text("bcast", "1MiB", "2x1x2".parse().unwrap(), &[], &here).unwrap();
        for part in [
            "of work a message (remembered, 3 min ago)\n",
            "\n  in a site      20 us, 117 MB/s, 4 us of work a message (usual)\n",
            "\n  between sites  8997 us, 30 MB/s, 3 us of work a message (remembered of a/10.0.0.1 → 10.1.0.1)\n",
            "\n  to wake        70 us (remembered, 3 min ago)\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_plan_is_drawn() {
        let text = text("bcast", "1MiB", "2x1x2".parse().unwrap(), &[]).unwrap();
        assert!(text.contains("\nchart, a column is ") && text.contains("\n>     0 |"), "{text}");
    }

    #[test]
    fn it_is_said_what_a_choice_comes_from() {
        let plans = Arc::new("allreduce * leaders\nbcast * chain".parse::<Plans>().unwrap());
        let grid: Grid = "1x1x8".parse().unwrap();
        let topology = grid.topology(&[], Costs::default()).with_plans(plans);
        let printed = |operation| origin(&topology, &Call::of(operation, 1 << 20));
        assert!(printed(Operation::Broadcast).contains("chain, by CANELE_PLANS="));
        let cannot = printed(Operation::Allreduce);
        assert!(
            cannot.contains(", by formula: CANELE_PLANS=")
                && cannot.contains(" says leaders, which"),
            "{cannot}"
        );
        assert!(printed(Operation::Scan).ends_with(", by formula\n"));
    }

    #[test]
    fn invalid_arguments_are_named() {
        let grid: Grid = "3x1x4".parse().unwrap();
        assert!(text("fetch", "8", grid, &[]).unwrap_err().contains("no plan for `fetch`"));
        assert!(text("bcast", "8 ells", grid, &[]).unwrap_err().contains("`8 ells`"));
        assert!(text("bcast", "99999999999GiB", grid, &[]).unwrap_err().contains("up to 64 GiB"));
        for shape in ["", "2x2", "2x0x2", "1x1x1x1", "a"] {
            assert!(shape.parse::<Grid>().unwrap_err().contains("sites x nodes x ranks"));
        }
        assert!("64x64x64".parse::<Grid>().unwrap_err().contains("more than 1024"));
    }
}
