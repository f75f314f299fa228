//! Ranks of one node by a shmem that all of them read: whoever contributes writes once, and whoever needs it
//! reads it where it is. Everybody waits once at most, and for nobody who only reads. Ranks are named by their
//! *positions* at the shmem: where it is that of one of several nodes, in the order of ranks.
//!
//! With more ranks than cores that is the least there is: the last to come finds all there, and the others
//! when they have their core again.

use std::ops::Range;

use crate::algorithms::pairs::Tree;
use crate::schedule::{Buffer, Fold, Operand, Schedule, Span, Step, part};

/// How long a contribution to a shmem of so many ranks may be, in bytes; none where they have no shmem.
pub fn page_bytes(ranks: u32) -> Option<u64> {
    let even = PAGES_BYTES / u64::from(ranks.max(8).next_power_of_two());
    (2..=RANKS_MOST).contains(&ranks.into()).then_some(even + LISTED * RANKS_MOST)
}

/// How many ranks share a shmem at most.
const RANKS_MOST: u64 = 64;

/// One page of each rank, without the list of where blocks end: what is longer saves no more turns.
const PAGES_BYTES: u64 = 4 << 20;

/// How long pieces of what follows piece by piece are at most on such pages, in bytes: while one is read the next is
/// written.
pub(crate) fn link_bytes(page_bytes: u64) -> u64 {
    page_bytes.min(64 << 10)
}

/// In how many rounds blocks of so many units together are posted, a part of each in a round, on pages of so many; none
/// where they do not fit.
pub(crate) fn dealt_rounds(units: u64, page: u64, ranks: u64) -> Option<u64> {
    // A part is longer than its share by less than a unit.
    let room = page.saturating_sub(ranks);
    if units <= page { Some(1) } else { (room > 0).then(|| units.div_ceil(room)) }
}

/// The rank at position `me` of `size` at a shmem with pages of so many units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub me: u32,
    pub size: u32,
    pub page: u64,
    /// Units of a piece of what ranks do beside each other: a page where they share cores, since every wait is a turn of
    /// all who do.
    pub piece: u64,
    /// Units of a piece of what ranks do one after the other.
    pub link: u64,
    /// Ranks share cores, so that they come one after the other.
    pub shares_cores: bool,
}

impl Seat {
    /// Nobody leaves before all have come.
    pub(crate) fn barrier(self, schedule: &mut Schedule) {
        self.show(schedule, NOTHING);
    }

    /// The head hears that all have come.
    pub(crate) fn collect(self, schedule: &mut Schedule, head: u32) {
        schedule.post(NOTHING);
        if self.me == head {
            schedule.meet(0..self.size);
        }
    }

    /// The head lets all go on.
    pub(crate) fn release(self, schedule: &mut Schedule, head: u32) {
        self.share(schedule, head, NOTHING, (0, NOTHING));
    }

    /// A rank's block, a page at most, for the head, which [takes it in](Self::take_in).
    pub(crate) fn hand_in(self, schedule: &mut Schedule, own: Span) {
        schedule.post(own);
    }

    /// The blocks that all others hand in, to the head's, where `place` says.
    pub(crate) fn take_in(self, schedule: &mut Schedule, place: &dyn Fn(u32) -> Span) {
        schedule.post(NOTHING);
        schedule.meet(0..self.size);
        for from in self.others() {
            schedule.take(from, 0, place(from));
        }
    }

    /// Everyone's operands, a page at most, combined at the head one after the other in the order of positions. Answers
    /// where: nobody else needs what is there.
    pub(crate) fn fold(self, schedule: &mut Schedule, head: u32, own: Span) -> Option<Span> {
        if self.me != head {
            schedule.post(own);
            return None;
        }
        schedule.post(NOTHING);
        schedule.meet(0..self.size);
        self.fold_posted(schedule, own, 0)
    }

    /// The same of what all have posted, who were met, from unit `at` on.
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

    /// Everyone shows everyone what it has, a page at most.
    pub(crate) fn show(self, schedule: &mut Schedule, own: Span) {
        schedule.post(own);
        schedule.meet(0..self.size);
    }

    /// The root's `span` to everyone's, in pieces of a page.
    pub(crate) fn broadcast(self, schedule: &mut Schedule, root: u32, span: Span) {
        for (start, len) in pieces(span.len, self.piece) {
            let piece = span.part(start, len);
            self.share(schedule, root, piece, (0, piece));
        }
    }

    /// The blocks of all to the root's, where `place` says, those longer than a page piece by piece, and the very longest
    /// straight. A rank knows its own, and the root all.
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

    /// Posts what the root [takes piece by piece](Self::take_pieces), in one round.
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

    /// Takes what others have posted that is so long at most: of each the first piece, and of each the next. What follows the
    /// next they post when all of one have been taken.
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

    /// The root's blocks, which lie where `place` says, to everyone's `own`. Long ones go straight.
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

    /// Everyone's blocks for everyone else, which lie where `input` says, to where `output` says. Long ones go straight.
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

    /// Equal parts of the root's `whole`, in the order of ranks, to everyone's `own`, those of all together in pieces of a
    /// page.
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

    /// Everyone's `own` to everyone else's, where `place` says, in pieces of a page of the `longest`.
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

    /// Equal parts of everyone's `whole` to everyone else's, where `place` says, those for all together in pieces of a page.
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

    /// Everyone's operands, combined in pairs in the order of ranks from `first` on, around the end, to the root's
    /// `result`, in pieces of a page. The root's own, if they are not in the result, are `own`. The root combines them, or
    /// each a part that the root takes, where the work `is_shared`.
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

    /// Everyone's operands, combined in pairs in the order of ranks, to everyone's `result`, in pieces of a page. Each
    /// combines all of a piece, or a part of it that the others take, where the work `is_shared`.
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

    /// Everyone's operands, combined in pairs in the order of ranks; the block of them that `lies` names for each, by its
    /// start and length, to its `result`, those of all together in pieces of a page.
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

    /// The operands of ranks below this one, and its own where `with_own`, combined as over doubling distances.
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

    /// What the operands of ranks below come to, to `before`, if that is wanted, and with `own` to `through`: each hears the
    /// one of the rank below and posts the other for the one above, in pieces of a page. In round `k` rank `r` posts piece
    /// `k − r`, so that nobody waits for those above, but some rounds later. `own` may be where `before` or `through` is.
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

    /// Has operands combined as the tree says, at whose position 0 is rank `first`: all that combine the same find the
    /// same. Its own operand is at hand, or posted if that is where the result goes.
    fn combine_as(self, schedule: &mut Schedule, tree: &Tree, first: u32, has_own: bool) {
        let operand = |position: u32| match (first + position) % self.size {
            rank if has_own && rank == self.me => Operand::Own,
            rank => Operand::Posted(rank),
        };
        order(tree, &operand, &mut schedule.order);
    }

    /// The root posts, the others take a part of that.
    fn share(self, schedule: &mut Schedule, root: u32, whole: Span, (at, to): (u64, Span)) {
        if self.me == root {
            schedule.post(whole);
        } else {
            schedule.post(NOTHING);
            schedule.meet(root..root + 1);
            schedule.take(root, at, to);
        }
    }

    /// Everybody posts, and takes from each other where `take` says to where it says.
    fn exchange(self, schedule: &mut Schedule, own: Span, take: &dyn Fn(u32) -> (u64, Span)) {
        schedule.post(own);
        schedule.meet(0..self.size);
        for from in self.others() {
            let (at, to) = take(from);
            schedule.take(from, at, to);
        }
    }

    /// Posts a part of a block for each, one behind the other.
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

    /// Parts of blocks of so many units, of which one for each rank fits on a page.
    fn parts(self, block: u64) -> impl Iterator<Item = (u64, u64)> {
        pieces(block, (self.page / u64::from(self.size)).max(1))
    }

    /// How long a block may be so that one for each rank fits on a page, with the list of where they end.
    fn block_most(self) -> u64 {
        (self.page / u64::from(self.size)).saturating_sub(LISTED)
    }

    /// Posts the blocks for the others that are so long at most.
    fn post_blocks(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        let block = |to| Some(place(to)).filter(|span| to != self.me && span.len <= most);
        schedule.blocks = (0..self.size).map(|to| block(to).unwrap_or(NOTHING)).collect();
        schedule.steps.push(Step::PostBlocks);
    }

    /// Takes those that others have posted for this rank.
    fn take_up_to(self, schedule: &mut Schedule, most: u64, place: &dyn Fn(u32) -> Span) {
        for from in self.others() {
            let to = place(from);
            if (1..=most).contains(&to.len) {
                schedule.steps.push(Step::TakeBlock { from, to });
            }
        }
    }

    /// Waits for those that have posted something for this rank.
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

    /// All others, from the next one on: not all read the same at once.
    fn others(self) -> impl Iterator<Item = u32> {
        (1..self.size).map(move |distance| (self.me + distance) % self.size)
    }
}

/// So many units in pieces: where each begins, and its length.
fn pieces(len: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(most)).map(move |index| {
        let start = index * most;
        (start, most.min(len - start))
    })
}

/// The order of a tree of operands. Whose is where says `operand`, by position.
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

/// More pieces follow each other in no round.
pub(crate) const PIECES_MOST: u64 = 256;

/// Bytes for where each block ends that is posted beside others.
const LISTED: u64 = 4;

const NOTHING: Span = Span { buffer: Buffer::Output, start: 0, len: 0 };
