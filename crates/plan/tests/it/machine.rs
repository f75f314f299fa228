//! Executes the schedules of all ranks, message by message, on a machine that buffers nothing: a
//! send ends only after its receive has begun. Memory in flight may be read only at the sender, and
//! not at all at the receiver.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use plan::{Buffer, Distance, Fold, Operand, Schedule, Span, Step, Topology};

/// Symbol for one unit of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Never written.
    Nothing,
    /// A distinct datum.
    Datum { from: u32, to: u32, index: u64 },
    /// The operands of consecutive ranks, combined in order.
    Run { first: u32, end: u32 },
    /// The operands of ranks, combined in an order of which `history` is a digest.
    Set { ranks: u64, history: u64 },
}

impl Unit {
    /// Returns the operand of a rank.
    pub fn operand(rank: u32, commutes: bool) -> Self {
        match commutes {
            true => Self::Set { ranks: 1 << rank, history: u64::from(rank) },
            false => Self::Run { first: rank, end: rank + 1 },
        }
    }

    /// True if it is the combination of the operands of ranks `0..end`, in any order if that does
    /// not matter.
    pub fn is_all_below(self, end: u32) -> bool {
        match self {
            Self::Run { first, end: found } => (first, found) == (0, end),
            Self::Set { ranks, .. } => ranks == u64::MAX.checked_shr(64 - end).unwrap_or(0),
            Self::Nothing | Self::Datum { .. } => false,
        }
    }

    fn combined(self, right: Self) -> Self {
        match (self, right) {
            (Self::Run { first, end }, Self::Run { first: next, end: last }) => {
                assert_eq!(end, next, "operands combined out of order");
                Self::Run { first, end: last }
            }
            (Self::Set { ranks, history }, Self::Set { ranks: others, history: other_history }) => {
                assert_eq!(ranks & others, 0, "an operand is combined twice");
                let history = history.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                let history = (history ^ other_history).wrapping_mul(0xd6e8_feb8_6659_fd93);
                Self::Set { ranks: ranks | others, history }
            }
            (left, right) => panic!("{left:?} and {right:?} combined"),
        }
    }
}

/// A rank with its data and its schedule.
pub struct TestRank {
    pub schedule: Schedule,
    pub input: Vec<Unit>,
    pub output: Vec<Unit>,
    /// True if temporaries hold remains of earlier data, which may be sent but are correct nowhere.
    pub has_remains: bool,
    temporaries: Vec<Vec<Unit>>,
    /// Index of the next step.
    at: usize,
    begun: Vec<Begun>,
    /// Data posted in the shared segment, by round, and the ranks met in the last round.
    posts: Vec<Vec<Unit>>,
    met: Vec<Range<u32>>,
    /// Further pieces posted in each round, pieces released in each round, the announced units
    /// still to come, and their reader.
    pieces: HashMap<(usize, u32), Vec<Unit>>,
    released: HashMap<usize, u32>,
    announced: u64,
    reader: usize,
    /// Maximum number of crossings between sites behind any message received so far.
    depth: u32,
}

struct Begun {
    step: usize,
    span: Span,
    is_send: bool,
    has_ended: bool,
    depth: u32,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub outputs: Vec<Vec<Unit>>,
    /// Units sent from one site to another.
    pub crossed: HashMap<(u32, u32), u64>,
    /// Number of messages between sites.
    pub messages: u64,
    /// Longest chain of crossings.
    pub depth: u32,
}

impl TestRank {
    pub fn new(schedule: Schedule, input: Vec<Unit>, output: Vec<Unit>) -> Self {
        let reduces = schedule.steps.iter().any(|step| matches!(step, Step::Reduce { .. }));
        let most = input.len().max(output.len()) as u64;
        assert!(
            !reduces || schedule.temporaries.iter().all(|&len| len <= most),
            "elements beyond the caller's count may lie on each other"
        );
        let temporaries =
            schedule.temporaries.iter().map(|&len| vec![Unit::Nothing; len as usize]).collect();
        Self {
            schedule,
            at: 0,
            input,
            output,
            has_remains: false,
            temporaries,
            begun: Vec::new(),
            posts: Vec::new(),
            met: Vec::new(),
            pieces: HashMap::new(),
            released: HashMap::new(),
            announced: 0,
            reader: 0,
            depth: 0,
        }
    }

    fn units(&mut self, span: Span) -> &mut [Unit] {
        let buffer = match span.buffer {
            Buffer::Input => &mut self.input,
            Buffer::Output => &mut self.output,
            Buffer::Temporary(index) => &mut self.temporaries[index as usize],
        };
        &mut buffer[span.start as usize..(span.start + span.len) as usize]
    }

    /// Returns the data that a step posts.
    fn posted(&mut self, me: u32, step: Step) -> Vec<Unit> {
        let spans = match step {
            Step::Post { span } => vec![span],
            Step::PostParts { first, count } => {
                self.schedule.blocks[first as usize..][..count as usize].to_vec()
            }
            _ => self.schedule.blocks.clone(),
        };
        let posted = spans.into_iter().map(|span| {
            self.check(me, span, false);
            self.units(span).to_vec()
        });
        posted.collect::<Vec<_>>().concat()
    }

    fn has_met(&self, other: u32) -> bool {
        self.met.iter().any(|met| met.contains(&other))
    }

    /// Checks that a span is not in flight; `writes` forbids sends too.
    fn check(&self, me: u32, span: Span, writes: bool) {
        for other in self.begun.iter().filter(|other| writes || !other.is_send) {
            assert!(
                !overlaps(other.span, span),
                "rank {me}, step {}: {span:?} is on its way",
                self.at
            );
        }
    }

    fn begin(&mut self, me: u32, span: Span, is_send: bool) {
        self.check(me, span, !is_send);
        let depth = self.depth;
        self.begun.push(Begun { step: self.at, span, is_send, has_ended: false, depth });
    }

    /// True if the operation that one step started has ended, or all have.
    fn settles(&mut self, step: Option<usize>) -> bool {
        let counts = |begun: &Begun| step.is_none_or(|step| begun.step == step);
        if self.begun.iter().any(|begun| counts(begun) && !begun.has_ended) {
            return false;
        }
        let heard = self.begun.iter().filter(|begun| counts(begun) && !begun.is_send);
        self.depth = heard.map(|begun| begun.depth).fold(self.depth, u32::max);
        self.begun.retain(|begun| !counts(begun));
        true
    }
}

/// True if two spans have a unit in common.
fn overlaps(one: Span, other: Span) -> bool {
    one.buffer == other.buffer
        && one.start < other.start + other.len
        && other.start < one.start + one.len
}

type Wires = HashMap<(u32, u32), [VecDeque<usize>; 2]>;

/// Runs all ranks to their end.
pub fn run(mut ranks: Vec<TestRank>, topology: &Topology) -> Outcome {
    let near_ranks: Vec<Vec<u32>> =
        (0..ranks.len() as u32).map(|rank| topology.neighbours(rank)).collect();
    let before = Unit::Datum { from: u32::MAX, to: u32::MAX, index: u64::MAX };
    for rank in ranks.iter_mut().filter(|rank| rank.has_remains) {
        rank.temporaries.iter_mut().for_each(|units| units.fill(before));
    }
    let (wires, outcome) = (Wires::new(), Outcome::default());
    let mut machine = Machine { ranks, wires, near_ranks, topology, outcome };
    loop {
        let mut moved = false;
        for me in 0..machine.ranks.len() as u32 {
            while let Some(step) = machine.next_step(me)
                && machine.execute(me, step)
            {
                machine.ranks[me as usize].at += 1;
                moved = true;
            }
        }
        if machine.ranks.iter().all(|rank| rank.at == rank.schedule.steps.len()) {
            break;
        }
        assert!(moved, "deadlock");
    }
    machine.finish()
}

/// All ranks, and the messages between them.
struct Machine<'a> {
    ranks: Vec<TestRank>,
    wires: Wires,
    /// Ranks on each rank's node.
    near_ranks: Vec<Vec<u32>>,
    topology: &'a Topology,
    outcome: Outcome,
}

impl Machine<'_> {
    fn next_step(&self, me: u32) -> Option<Step> {
        let rank = &self.ranks[me as usize];
        rank.schedule.steps.get(rank.at).copied()
    }

    /// Executes a step; false if it has to wait.
    fn execute(&mut self, me: u32, step: Step) -> bool {
        let rank = &mut self.ranks[me as usize];
        match step {
            Step::Send { to, span } => self.send(me, to, span),
            Step::Receive { from, span } => {
                let at = rank.at;
                rank.begin(me, span, false);
                self.wires.entry((from, me)).or_default()[1].push_back(at);
                self.transfer(from, me);
            }
            Step::Wait => return rank.settles(None),
            Step::Await { step } => return rank.settles(Some(step as usize)),
            Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks => {
                return self.post(me, step);
            }
            Step::Announce { units, reader } => {
                (rank.announced, rank.reader) = (units, reader as usize);
            }
            Step::PostMore { piece, span } => return self.post_more(me, piece, span),
            Step::TakeMore { from, piece, to } => return self.take_more(me, from, piece, to),
            Step::Release { piece } => {
                let rounds = rank.posts.len();
                rank.released.insert(rounds, piece);
            }
            Step::Meet { first, end } => {
                let rounds = rank.posts.len();
                let mut met = self.near_ranks[me as usize][first as usize..end as usize].iter();
                if met.any(|&other| self.ranks[other as usize].posts.len() < rounds) {
                    return false;
                }
                self.ranks[me as usize].met.push(first..end);
            }
            Step::Take { from, at, to } => {
                rank.check(me, to, true);
                let near = &self.near_ranks[me as usize];
                let data = taken(&self.ranks, (me, near), from, at, to.len);
                self.ranks[me as usize].units(to).copy_from_slice(&data);
            }
            Step::Combine { own, at, to, .. } => self.combine(me, own, at, to),
            Step::TakeBlock { from, to } => self.take_block(me, from, to),
            Step::Copy { from, to } => {
                assert_eq!(from.len, to.len);
                rank.check(me, from, false);
                rank.check(me, to, true);
                let data = rank.units(from).to_vec();
                rank.units(to).copy_from_slice(&data);
            }
            Step::Reduce { input, inout } => {
                assert_eq!(input.len, inout.len);
                assert_ne!(input.buffer, inout.buffer, "elements may be interlaced");
                rank.check(me, input, false);
                rank.check(me, inout, true);
                let left = rank.units(input).to_vec();
                for (left, right) in left.into_iter().zip(rank.units(inout)) {
                    *right = left.combined(*right);
                }
            }
        }
        true
    }

    fn send(&mut self, me: u32, to: u32, span: Span) {
        let rank = &mut self.ranks[me as usize];
        let at = rank.at;
        assert!(
            rank.units(span).iter().all(|unit| *unit != Unit::Nothing),
            "rank {me}, step {at} sends units that it does not have: {span:?}"
        );
        rank.begin(me, span, true);
        self.wires.entry((me, to)).or_default()[0].push_back(at);
        self.transfer(me, to);
    }

    fn transfer(&mut self, from: u32, to: u32) {
        let Self { ranks, wires, topology, outcome, .. } = self;
        transfer(ranks, wires, (from, to), topology, outcome);
    }

    fn post(&mut self, me: u32, step: Step) -> bool {
        let rank = &mut self.ranks[me as usize];
        let (data, round) = (rank.posted(me, step), rank.posts.len());
        assert!(data.iter().all(|unit| *unit != Unit::Nothing));
        // The shared segment has two pages for each rank: all must have read the last but one.
        let mut others = self.near_ranks[me as usize].iter();
        if others.any(|&other| self.ranks[other as usize].posts.len() + 1 < round) {
            return false;
        }
        let rank = &mut self.ranks[me as usize];
        rank.announced = rank.announced.saturating_sub(data.len() as u64);
        rank.posts.push(data);
        rank.met.clear();
        true
    }

    fn post_more(&mut self, me: u32, piece: u32, span: Span) -> bool {
        let rank = &mut self.ranks[me as usize];
        rank.check(me, span, false);
        let (data, rounds) = (rank.units(span).to_vec(), rank.posts.len());
        let rank = &self.ranks[me as usize];
        let near = &self.near_ranks[me as usize];
        // The page of the last but one is used. All ranks that have begun this round have read the
        // post before the last.
        let has_read = match piece.checked_sub(2) {
            None => near.iter().all(|&other| self.ranks[other as usize].posts.len() >= rounds),
            Some(before) => {
                let reader = &self.ranks[near[rank.reader] as usize];
                let released = reader.released.get(&rounds);
                reader.posts.len() > rounds || released.is_some_and(|&to| to >= before)
            }
        };
        if !has_read {
            return false;
        }
        let rank = &mut self.ranks[me as usize];
        rank.announced -= data.len() as u64;
        rank.pieces.insert((rounds, piece), data);
        true
    }

    fn take_more(&mut self, me: u32, from: u32, piece: u32, to: Span) -> bool {
        let rank = &self.ranks[me as usize];
        assert!(rank.has_met(from), "{me} takes from {from}, not met");
        rank.check(me, to, true);
        let rounds = rank.posts.len();
        let other = &self.ranks[self.near_ranks[me as usize][from as usize] as usize];
        let Some(data) = other.pieces.get(&(rounds, piece)).cloned() else { return false };
        self.ranks[me as usize].units(to).copy_from_slice(&data);
        true
    }

    fn take_block(&mut self, me: u32, from: u32, to: Span) {
        let rank = &self.ranks[me as usize];
        assert!(rank.has_met(from), "{me} takes from {from}, not met");
        rank.check(me, to, true);
        let near = &self.near_ranks[me as usize];
        let posted = &self.ranks[near[from as usize] as usize];
        let at = near.iter().position(|rank| *rank == me).unwrap();
        let blocks = &posted.schedule.blocks;
        let before: u64 = blocks[..at].iter().map(|span| span.len).sum();
        assert_eq!(blocks[at].len, to.len);
        let round = self.ranks[me as usize].posts.len() - 1;
        let data = posted.posts[round][before as usize..][..to.len as usize].to_vec();
        self.ranks[me as usize].units(to).copy_from_slice(&data);
    }

    fn combine(&mut self, me: u32, own: Span, at: u64, to: Span) {
        let rank = &mut self.ranks[me as usize];
        assert_eq!(own.len, to.len);
        // The own operand may be at the destination of the combination if the order begins with it.
        let order = match &rank.schedule.order[..] {
            [Fold::Begin(Operand::Own), rest @ ..] if own == to => rest,
            order => order,
        };
        let is_own =
            |fold: &Fold| matches!(fold, Fold::Begin(Operand::Own) | Fold::Put(Operand::Own));
        assert!(
            !order.iter().any(is_own) || !overlaps(own, to),
            "rank {me}: the combination overwrites an operand"
        );
        rank.check(me, own, false);
        rank.check(me, to, true);
        let own = rank.units(own).to_vec();
        let data = folded(&self.ranks, (me, &self.near_ranks[me as usize]), own, at);
        self.ranks[me as usize].units(to).copy_from_slice(&data);
    }

    /// Checks that nothing is left over, and returns the outcome.
    fn finish(self) -> Outcome {
        let Self { ranks, wires, near_ranks, mut outcome, .. } = self;
        assert!(wires.values().flatten().all(VecDeque::is_empty), "messages nobody received");
        for me in 0..ranks.len() {
            let mut rounds = near_ranks[me].iter().map(|&other| ranks[other as usize].posts.len());
            assert!(rounds.all(|count| count == ranks[me].posts.len()), "rounds differ on a node");
        }
        assert!(ranks.iter().all(|rank| rank.begun.is_empty()), "begun and not waited for");
        assert!(ranks.iter().all(|rank| rank.announced == 0), "announced and not posted");
        outcome.depth = ranks.iter().map(|rank| rank.depth).max().unwrap_or(0);
        outcome.outputs = ranks.into_iter().map(|rank| rank.output).collect();
        outcome
    }
}

/// Returns units of a rank's post in the round that `me` is in; the rank is at position `from` of
/// `near`.
fn taken(ranks: &[TestRank], (me, near): (u32, &[u32]), from: u32, at: u64, len: u64) -> Vec<Unit> {
    let rank = &ranks[me as usize];
    assert!(rank.has_met(from), "{me} takes from {from}, not met");
    let posted = &ranks[near[from as usize] as usize].posts[rank.posts.len() - 1];
    posted[at as usize..][..len as usize].to_vec()
}

/// Returns the combination of the operands in `me`'s order, of which `own` is one.
fn folded(ranks: &[TestRank], (me, near): (u32, &[u32]), own: Vec<Unit>, at: u64) -> Vec<Unit> {
    let operand = |operand| match operand {
        Operand::Own => own.clone(),
        Operand::Posted(from) => taken(ranks, (me, near), from, at, own.len() as u64),
    };
    let put = |left: Vec<Unit>, right: &mut [Unit]| {
        for (left, right) in left.into_iter().zip(right) {
            *right = left.combined(*right);
        }
    };
    let mut stack: Vec<Vec<Unit>> = Vec::new();
    for fold in &ranks[me as usize].schedule.order {
        let left = match *fold {
            Fold::Begin(begins) => {
                stack.push(operand(begins));
                assert!(stack.len() <= 8, "more combinations at once than there is room for");
                continue;
            }
            Fold::Put(left) => operand(left),
            Fold::Join => stack.pop().expect("two combinations"),
        };
        put(left, stack.last_mut().expect("a combination"));
    }
    assert_eq!(stack.len(), 1, "one result");
    stack.remove(0)
}

/// Transfers messages that both sides have begun.
fn transfer(
    ranks: &mut [TestRank],
    wires: &mut Wires,
    (from, to): (u32, u32),
    topology: &Topology,
    outcome: &mut Outcome,
) {
    let [sends, receives] = wires.entry((from, to)).or_default();
    let (Some(&sent), Some(&received)) = (sends.front(), receives.front()) else { return };
    sends.pop_front();
    receives.pop_front();
    let send = begun(&mut ranks[from as usize], sent);
    send.has_ended = true;
    let (source, mut depth) = (send.span, send.depth);
    if topology.distance(from, to) == Distance::Wide {
        depth += 1;
        outcome.messages += 1;
        *outcome.crossed.entry((from, to)).or_default() += source.len;
    }
    let data = ranks[from as usize].units(source).to_vec();
    let receive = begun(&mut ranks[to as usize], received);
    receive.has_ended = true;
    receive.depth = depth;
    let place = receive.span;
    assert_eq!(source.len, place.len, "{from} to {to}");
    ranks[to as usize].units(place).copy_from_slice(&data);
}

fn begun(rank: &mut TestRank, step: usize) -> &mut Begun {
    rank.begun.iter_mut().find(|begun| begun.step == step).expect("it was begun")
}
