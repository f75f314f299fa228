//! Collectives of one node's ranks by a shared segment that all of them read. A rank writes its
//! contribution once, and readers read it in place. Each rank waits at most once, and never for a
//! rank that only reads. Ranks are named by their *positions* in the segment: on one of several
//! nodes, in the order of ranks.
//!
//! With more ranks than cores this is the minimum. The last rank to arrive finds everything there,
//! and the others do when they get their core back.

use std::ops::Range;

use crate::algorithms::pairs::Tree;
use crate::schedule::{Buffer, Fold, Operand, Schedule, Span, Step, part};

/// Returns the maximum contribution in bytes to a shared segment of so many ranks; none if they
/// have no segment.
pub fn page_bytes(ranks: u32) -> Option<u64> {
    let even = PAGES_BYTES / u64::from(ranks.max(8).next_power_of_two());
    (2..=RANKS_MOST).contains(&ranks.into()).then_some(even + LISTED * RANKS_MOST)
}

/// Maximum number of ranks that share a segment.
const RANKS_MOST: u64 = 64;

/// Total bytes of one page for each rank, without the list of block ends. Longer pages save no
/// further waits.
const PAGES_BYTES: u64 = 4 << 20;

/// Returns the maximum bytes of a piece on such pages if pieces follow each other: while one is
/// read the next is written.
pub(crate) fn link_bytes(page_bytes: u64) -> u64 {
    page_bytes.min(64 << 10)
}

/// Returns the number of rounds in which blocks of `units` units in total are posted, a part of
/// each block per round. None if they do not fit.
pub(crate) fn dealt_rounds(units: u64, page: u64, ranks: u64) -> Option<u64> {
    // A part is longer than its share by less than a unit.
    let room = page.saturating_sub(ranks);
    if units <= page { Some(1) } else { (room > 0).then(|| units.div_ceil(room)) }
}

/// Access of the rank at position `me` of `size` to a shared segment with pages of `page` units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShmAccess {
    pub me: u32,
    pub size: u32,
    pub page: u64,
    /// Units of a piece in work that ranks do in parallel. It is a page if they share cores, since
    /// every wait then costs a turn of all of them.
    pub piece: u64,
    /// Units of a piece in work that ranks do one after the other.
    pub link: u64,
    /// True if ranks share cores and so run one after the other.
    pub shares_cores: bool,
}

impl ShmAccess {
    /// Waits until all ranks have arrived.
    pub(crate) fn barrier(self, schedule: &mut Schedule) {
        self.show(schedule, NOTHING);
    }

    /// Lets the leader wait for all ranks.
    pub(crate) fn collect(self, schedule: &mut Schedule, leader: u32) {
        schedule.post(NOTHING);
        if self.me == leader {
            schedule.meet(0..self.size);
        }
    }

    /// Lets the leader release all ranks.
    pub(crate) fn release(self, schedule: &mut Schedule, leader: u32) {
        self.share(schedule, leader, NOTHING, (0, NOTHING));
    }

    /// Posts a rank's block, a page at most, for the leader, which [takes it in](Self::take_in).
    pub(crate) fn hand_in(self, schedule: &mut Schedule, own: Span) {
        schedule.post(own);
    }

    /// Copies the blocks of all other ranks to the leader's `place` for them.
    pub(crate) fn take_in(self, schedule: &mut Schedule, place: &dyn Fn(u32) -> Span) {
        schedule.post(NOTHING);
        schedule.meet(0..self.size);
        for from in self.others() {
            schedule.take(from, 0, place(from));
        }
    }

    /// Combines everyone's operands, a page at most, at the leader, one after the other in the
    /// order of positions. Returns the span of the result, which nobody else needs.
    pub(crate) fn fold(self, schedule: &mut Schedule, leader: u32, own: Span) -> Option<Span> {
        if self.me != leader {
            schedule.post(own);
            return None;
        }
        schedule.post(NOTHING);
        schedule.meet(0..self.size);
        self.fold_posted(schedule, own, 0)
    }

    /// Combines posted operands of ranks that were met, from unit `at` on.
    pub(crate) fn fold_posted(self, schedule: &mut Schedule, own: Span, at: u64) -> Option<Span> {
        let rooms = [schedule.room(own.len), schedule.room(own.len)];
        let mut sum = None;
        for position in 0..self.size {
            let next = rooms[position as usize % 2];
            if position == self.me {
                schedule.copy(own, next);
            } else {
                schedule.take(position, at, next);
            }
            if let Some(sum) = sum.replace(next) {
                schedule.reduce(sum, next);
            }
        }
        sum
    }

    /// Shows everyone's data, a page at most, to everyone.
    pub(crate) fn show(self, schedule: &mut Schedule, own: Span) {
        schedule.post(own);
        schedule.meet(0..self.size);
    }

    /// Sends the root's `span` to all, in pieces of a page.
    pub(crate) fn broadcast(self, schedule: &mut Schedule, root: u32, span: Span) {
        for (start, len) in pieces(span.len, self.piece) {
            let piece = span.part(start, len);
            self.share(schedule, root, piece, (0, piece));
        }
    }

    /// Gathers everyone's block at the root's `place` for it. Blocks longer than a page go piece by
    /// piece, and the very longest as messages. A rank knows its own block, and the root all.
    pub(crate) fn gather(
        self,
        schedule: &mut Schedule,
        root: u32,
        own: Span,
        place: &dyn Fn(u32) -> Span,
    ) {
        let most = self.page.saturating_mul(PIECES_MOST);
        if self.me == root {
            self.receive_longer(schedule, most, place);
            schedule.post(NOTHING);
            self.meet_up_to(schedule, most, place);
            self.take_pieces(schedule, most, place);
            if self.others().any(|from| place(from).len > most) {
                schedule.wait();
            }
        } else if own.len <= most {
            self.post_pieces(schedule, root, own);
        } else {
            schedule.post(NOTHING);
            schedule.send(root, own);
            schedule.wait();
        }
    }

    /// Posts, in one round, pieces that the root [takes one by one](Self::take_pieces).
    fn post_pieces(self, schedule: &mut Schedule, root: u32, own: Span) {
        if own.len > self.page {
            schedule.steps.push(Step::Announce { units: own.len, reader: root });
        }
        schedule.post(own.part(0, own.len.min(self.page)));
        for (piece, (start, len)) in (0..).zip(pieces(own.len, self.page)).skip(1) {
            let span = own.part(start, len);
            schedule.steps.push(Step::PostMore { piece, span });
        }
    }

    /// Takes posted blocks up to `most` units: the first piece of each, then the next of each. The
    /// pieces after that are posted when all of one index have been taken.
    fn take_pieces(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        let blocks = || self.others().map(|from| (from, place(from)));
        let blocks = || blocks().filter(|(_, block)| block.len <= most);
        let longest = blocks().map(|(_, block)| block.len).max().unwrap_or(0);
        for (piece, (start, _)) in (0..).zip(pieces(longest, self.page)) {
            for (from, block) in blocks().filter(|(_, block)| block.len > start) {
                let to = block.part(start, self.page.min(block.len - start));
                match piece {
                    0 => schedule.take(from, 0, to),
                    _ => schedule.steps.push(Step::TakeMore { from, piece, to }),
                }
            }
            if longest > start + self.page {
                schedule.steps.push(Step::Release { piece });
            }
        }
    }

    /// Sends the root's blocks at `place` to everyone's `own`. Long ones go as messages.
    pub(crate) fn scatter_blocks(
        self,
        schedule: &mut Schedule,
        root: u32,
        place: &dyn Fn(u32) -> Span,
        own: Span,
    ) {
        let most = self.block_most();
        if self.me == root {
            self.post_blocks(schedule, most, place);
            self.send_longer(schedule, most, place);
            schedule.wait();
        } else {
            let place = |from: u32| if from == root { own } else { NOTHING };
            self.receive_longer(schedule, most, &place);
            schedule.post(NOTHING);
            self.meet_up_to(schedule, most, &place);
            self.take_up_to(schedule, most, &place);
            schedule.wait();
        }
    }

    /// Sends everyone's blocks at `input` to the others' `output`. Long ones go as messages.
    pub(crate) fn alltoall_blocks(
        self,
        schedule: &mut Schedule,
        input: &dyn Fn(u32) -> Span,
        output: &dyn Fn(u32) -> Span,
    ) {
        let most = self.block_most();
        self.receive_longer(schedule, most, output);
        self.post_blocks(schedule, most, input);
        self.send_longer(schedule, most, input);
        self.meet_up_to(schedule, most, output);
        self.take_up_to(schedule, most, output);
        schedule.wait();
    }

    /// Sends equal parts of the root's `whole`, in the order of ranks, to everyone's `own`, in
    /// pieces that together fill a page.
    pub(crate) fn scatter(self, schedule: &mut Schedule, root: u32, whole: Span, own: Span) {
        let place = |to: u32| whole.part(u64::from(to) * own.len, own.len);
        for (start, len) in self.parts(own.len) {
            if self.me == root {
                self.post_parts(schedule, &|to| place(to).part(start, len));
            } else {
                schedule.post(NOTHING);
                schedule.meet(root..root + 1);
                schedule.take(root, u64::from(self.me) * len, own.part(start, len));
            }
        }
    }

    /// Sends everyone's `own` to `place` at all others, in pieces of a page of the `longest`.
    pub(crate) fn allgather(
        self,
        schedule: &mut Schedule,
        (own, longest): (Span, u64),
        place: &dyn Fn(u32) -> Span,
    ) {
        let piece = |of: Span, (start, len): (u64, u64)| {
            let start = start.min(of.len);
            of.part(start, len.min(of.len - start))
        };
        for at in pieces(longest.max(1), self.page) {
            self.exchange(schedule, piece(own, at), &|from| (0, piece(place(from), at)));
        }
    }

    /// Sends equal parts of everyone's `whole` to `place` at the others, in pieces that together
    /// fill a page.
    pub(crate) fn alltoall(
        self,
        schedule: &mut Schedule,
        whole: Span,
        place: &dyn Fn(u32) -> Span,
    ) {
        let block = whole.len / u64::from(self.size);
        for (start, len) in self.parts(block) {
            let part = |to: u32| whole.part(u64::from(to) * block + start, len);
            self.post_parts(schedule, &part);
            schedule.meet(0..self.size);
            for from in self.others() {
                let at = u64::from(self.me) * len;
                schedule.take(from, at, place(from).part(start, len));
            }
        }
    }

    /// Combines everyone's operands to the root's `result`, in pieces of a page. The order is in
    /// pairs of ranks from `first` on, around the end. `own` holds the root's operand if the result
    /// does not. The root combines alone, or each rank a part that the root takes if the work
    /// `is_shared`.
    pub(crate) fn reduce(
        self,
        schedule: &mut Schedule,
        (root, first): (u32, u32),
        (own, result): (Span, Span),
        is_shared: bool,
    ) {
        let is_root = self.me == root;
        self.combine_as(schedule, &Tree::of(self.size), first, own != result);
        if is_shared {
            return self.reduce_shared(schedule, root, own, result);
        }
        for (start, len) in pieces(own.len, self.link) {
            let (piece, into) = (own.part(start, len), result.part(start, len));
            if !is_root {
                schedule.post(piece);
                continue;
            }
            schedule.post(if own == result { piece } else { NOTHING });
            schedule.meet(0..self.size);
            schedule.combine(piece, 0, into);
        }
    }

    fn reduce_shared(self, schedule: &mut Schedule, root: u32, own: Span, result: Span) {
        let room = match self.me == root {
            true => result,
            false => schedule.room(self.piece.min(own.len).div_ceil(u64::from(self.size))),
        };
        for (start, len) in pieces(own.len, self.piece) {
            let own = own.part(start, len);
            schedule.post(own);
            schedule.meet(0..self.size);
            let (start_of_mine, len_of_mine) = part(len, self.size, self.me);
            let mine = match self.me == root {
                true => result.part(start + start_of_mine, len_of_mine),
                false => room.part(0, len_of_mine),
            };
            schedule.combine(own.part(start_of_mine, len_of_mine), start_of_mine, mine);
            if self.me != root {
                schedule.post(mine);
                continue;
            }
            schedule.post(NOTHING);
            schedule.meet(0..self.size);
            for from in self.others() {
                let (at, len) = part(len, self.size, from);
                schedule.take(from, 0, result.part(start + at, len));
            }
        }
    }

    /// Combines everyone's operands in pairs in the order of ranks to everyone's `result`, in
    /// pieces of a page. Each rank combines a whole piece, or a part that the others take if the
    /// work `is_shared`.
    pub(crate) fn allreduce(
        self,
        schedule: &mut Schedule,
        own: Span,
        result: Span,
        is_shared: bool,
    ) {
        self.combine_as(schedule, &Tree::of(self.size), 0, own != result);
        for (start, len) in pieces(own.len, self.piece) {
            let (own, result) = (own.part(start, len), result.part(start, len));
            schedule.post(own);
            schedule.meet(0..self.size);
            if !is_shared {
                let (at, to, for_all) = (0, result, self.shares_cores);
                schedule.steps.push(Step::Combine { own, at, to, for_all });
                continue;
            }
            let share = |of: Span, rank: u32| {
                let (start, len) = part(len, self.size, rank);
                of.part(start, len)
            };
            let (mine, whole) = (share(result, self.me), share(own, self.me));
            schedule.combine(whole, mine.start - result.start, mine);
            self.exchange(schedule, mine, &|from| (0, share(result, from)));
        }
    }

    /// Combines everyone's operands in pairs in the order of ranks. Each rank's `result` gets the
    /// block that `lies` names by start and length, in pieces that together fill a page.
    pub(crate) fn reduce_scatter(
        self,
        schedule: &mut Schedule,
        own: Span,
        lies: &dyn Fn(u32) -> (u64, u64),
        result: Span,
    ) {
        self.combine_as(schedule, &Tree::of(self.size), 0, true);
        let rounds = dealt_rounds(own.len, self.page, u64::from(self.size));
        let rounds = rounds.unwrap_or_else(|| unreachable!("blocks fit")) as u32;
        for round in 0..rounds {
            let piece = |rank: u32| {
                let (start, len) = lies(rank);
                let (at, len) = part(len, rounds, round);
                own.part(start + at, len)
            };
            self.post_parts(schedule, &piece);
            schedule.meet(0..self.size);
            let at = (0..self.me).map(|rank| piece(rank).len).sum();
            let (start, len) = part(result.len, rounds, round);
            schedule.combine(piece(self.me), at, result.part(start, len));
        }
    }

    /// Combines the operands of the ranks below, and its own if `with_own`, in the order of
    /// doubling distances.
    pub(crate) fn prefix(self, schedule: &mut Schedule, own: Span, with_own: bool, result: Span) {
        let end = self.me + u32::from(with_own);
        schedule.post(own);
        schedule.meet(0..end);
        let tree = match with_own {
            true => Some(Tree::prefix(self.me, u32::MAX)),
            false => Tree::prefix_below(self.me),
        };
        if let Some(tree) = tree {
            self.combine_as(schedule, &tree, 0, own != result);
            schedule.combine(own, 0, result);
        }
    }

    /// Passes prefixes from rank to rank in pieces of a page. The combination of the ranks below
    /// goes to `before`, if given, and combined with `own` to `through`, which is posted for the
    /// rank above. In round `k` rank `r` posts piece `k − r`. So no rank waits for those above,
    /// except to reuse a page some rounds later. `own` may be the same span as `before` or
    /// `through`.
    pub(crate) fn pass_prefix(
        self,
        schedule: &mut Schedule,
        own: Span,
        before: Option<Span>,
        through: Span,
    ) {
        let pieces: Vec<_> = pieces(own.len, self.link).collect();
        let piece_of = |round: u32, rank: u32| {
            let index = round.checked_sub(rank)? as usize;
            pieces.get(index).copied()
        };
        let (is_first, is_last) = (self.me == 0, self.me + 1 == self.size);
        let posted = if is_first { own } else { through };
        let below = self.me.saturating_sub(1);
        schedule.order = vec![Fold::Begin(Operand::Own), Fold::Put(Operand::Posted(below))];
        for round in 0..self.size - 2 + pieces.len() as u32 {
            let piece = piece_of(round, self.me).filter(|_| !is_last);
            schedule.post(piece.map_or(NOTHING, |(start, len)| posted.part(start, len)));
            if let Some((start, len)) = piece_of(round, below).filter(|_| !is_first) {
                schedule.meet(below..self.me);
                if before.is_none() || !is_last {
                    schedule.combine(own.part(start, len), 0, through.part(start, len));
                }
                if let Some(before) = before {
                    schedule.take(below, 0, before.part(start, len));
                }
            }
        }
        if is_first && before.is_none() && own != through {
            schedule.copy(own, through);
        }
    }

    /// Sets the order of combining to the tree, at whose position 0 is rank `first`. All ranks that
    /// combine the same get the same. The own operand is local, or posted if the result goes to its
    /// place.
    fn combine_as(self, schedule: &mut Schedule, tree: &Tree, first: u32, has_own: bool) {
        let operand = |position: u32| match (first + position) % self.size {
            rank if has_own && rank == self.me => Operand::Own,
            rank => Operand::Posted(rank),
        };
        order(tree, &operand, &mut schedule.order);
    }

    /// Lets the root post, and the others take a part of it.
    fn share(self, schedule: &mut Schedule, root: u32, whole: Span, (at, to): (u64, Span)) {
        if self.me == root {
            schedule.post(whole);
        } else {
            schedule.post(NOTHING);
            schedule.meet(root..root + 1);
            schedule.take(root, at, to);
        }
    }

    /// Lets every rank post, and take from each other what `take` names.
    fn exchange(self, schedule: &mut Schedule, own: Span, take: &dyn Fn(u32) -> (u64, Span)) {
        schedule.post(own);
        schedule.meet(0..self.size);
        for from in self.others() {
            let (at, to) = take(from);
            schedule.take(from, at, to);
        }
    }

    /// Posts a part of a block for each rank, one behind the other.
    fn post_parts(self, schedule: &mut Schedule, place: &dyn Fn(u32) -> Span) {
        let parts: Vec<Span> = (0..self.size).map(place).collect();
        let follows = |pair: &[Span]| pair[0].part(pair[0].len, pair[1].len) == pair[1];
        if parts.windows(2).all(follows) {
            return schedule.post(parts[0].part(0, parts.iter().map(|part| part.len).sum()));
        }
        let first = schedule.blocks.len() as u32;
        schedule.blocks.extend(parts);
        schedule.steps.push(Step::PostParts { first, count: self.size });
    }

    /// Splits blocks of so many units into parts, of which one for each rank fits on a page.
    fn parts(self, block: u64) -> impl Iterator<Item = (u64, u64)> {
        pieces(block, (self.page / u64::from(self.size)).max(1))
    }

    /// Maximum length of a block if one for each rank fits on a page, with the list of their ends.
    fn block_most(self) -> u64 {
        (self.page / u64::from(self.size)).saturating_sub(LISTED)
    }

    /// Posts the blocks for the others up to `most` units.
    fn post_blocks(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        let block = |to| Some(place(to)).filter(|span| to != self.me && span.len <= most);
        schedule.blocks = (0..self.size).map(|to| block(to).unwrap_or(NOTHING)).collect();
        schedule.steps.push(Step::PostBlocks);
    }

    /// Takes the blocks up to `most` units that others have posted for this rank.
    fn take_up_to(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        for from in self.others() {
            let to = place(from);
            if (1..=most).contains(&to.len) {
                schedule.steps.push(Step::TakeBlock { from, to });
            }
        }
    }

    /// Waits for the ranks that have posted something for this rank.
    fn meet_up_to(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        let is_met = |from: u32| from == self.me || (1..=most).contains(&place(from).len);
        let ranks: Vec<u32> = (0..self.size).filter(|rank| is_met(*rank)).collect();
        let runs = ranks.chunk_by(|one, next| one + 1 == *next);
        for run in runs.filter(|run| *run != [self.me]) {
            schedule.meet(run[0]..run[0] + run.len() as u32);
        }
    }

    fn send_longer(self, schedule: &mut Schedule, than: u64, place: &dyn Fn(u32) -> Span) {
        for to in self.others().filter(|to| place(*to).len > than) {
            schedule.send(to, place(to));
        }
    }

    fn receive_longer(self, schedule: &mut Schedule, than: u64, place: &dyn Fn(u32) -> Span) {
        for from in self.others().filter(|from| place(*from).len > than) {
            schedule.receive(from, place(from));
        }
    }

    /// All others, from the next one on, so that not all read the same at once.
    fn others(self) -> impl Iterator<Item = u32> {
        (1..self.size).map(move |distance| (self.me + distance) % self.size)
    }
}

/// Splits `len` units into pieces and returns the start and length of each.
fn pieces(len: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(most)).map(move |index| {
        let start = index * most;
        (start, most.min(len - start))
    })
}

/// Appends the order of a tree of operands. `operand` gives the operand of a position.
fn order(tree: &Tree, operand: &dyn Fn(u32) -> Operand, folds: &mut Vec<Fold>) {
    let both = match tree {
        Tree::Operand(position) => return folds.push(Fold::Begin(operand(*position))),
        Tree::Both(both) => both,
    };
    let [left, right] = &**both;
    order(right, operand, folds);
    match left {
        Tree::Operand(position) => folds.push(Fold::Put(operand(*position))),
        Tree::Both(_) => {
            order(left, operand, folds);
            folds.push(Fold::Join);
        }
    }
}

impl Schedule {
    fn post(&mut self, span: Span) {
        self.steps.push(Step::Post { span });
    }

    fn meet(&mut self, ranks: Range<u32>) {
        if !ranks.is_empty() {
            self.steps.push(Step::Meet { first: ranks.start, end: ranks.end });
        }
    }

    fn take(&mut self, from: u32, at: u64, to: Span) {
        if to.len > 0 {
            self.steps.push(Step::Take { from, at, to });
        }
    }

    fn combine(&mut self, own: Span, at: u64, to: Span) {
        if to.len > 0 {
            self.steps.push(Step::Combine { own, at, to, for_all: false });
        }
    }
}

/// Maximum number of pieces in one round.
pub(crate) const PIECES_MOST: u64 = 256;

/// Bytes for the end of each block that is posted with others.
const LISTED: u64 = 4;

const NOTHING: Span = Span { buffer: Buffer::Output, start: 0, len: 0 };
