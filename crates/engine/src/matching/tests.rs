//! Matching compared with lists searched from the front, and the number of slots a step looks at.

use super::blocks::TOUCHED;
use super::key::{Key, Pattern};
use super::queues::Queues;
use super::*;
use testing::{Random, seeds};

/// Reference: receives and messages in one list each, oldest first.
#[derive(Default)]
struct Lists {
    posted: Vec<(Option<PeerId>, Selector, OpId)>,
    waiting: Vec<(PeerId, Header)>,
}

impl Lists {
    fn take_posted(&mut self, peer: PeerId, header: &Header) -> Option<OpId> {
        let takes = |(named, selector, _): &(Option<PeerId>, Selector, OpId)| {
            accepts(*named, selector, peer, header)
        };
        let at = self.posted.iter().position(takes)?;
        Some(self.posted.remove(at).2)
    }

    fn find(&self, peer: Option<PeerId>, selector: &Selector) -> Option<usize> {
        self.waiting.iter().position(|(from, header)| accepts(peer, selector, *from, header))
    }
}

fn accepts(named: Option<PeerId>, selector: &Selector, peer: PeerId, header: &Header) -> bool {
    named.is_none_or(|named| named == peer)
        && selector.context == header.context
        && selector.source.is_none_or(|source| source == header.source)
        && selector.tag.is_none_or(|tag| tag == header.tag)
}

/// Every fourth message is an RTS.
fn is_rts(header: &Header) -> bool {
    header.sequence.is_multiple_of(4)
}

/// A random program that asks matching and the lists the same.
struct PostedPair {
    matching: Matching,
    lists: Lists,
    matched: Matched,
    taken: Vec<(MatchedId, (PeerId, Header))>,
    /// Operations in use have this generation; other indices are free.
    generations: Vec<u32>,
    free: Vec<u32>,
    sequence: u32,
    /// Number of contexts, sources, tags and peers: a small number gives many matches.
    kinds: [usize; 4],
}

impl PostedPair {
    fn new(random: &mut Random) -> Self {
        Self {
            matching: Matching::new(),
            lists: Lists::default(),
            matched: Matched::default(),
            taken: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            kinds: [2, 4, 5, 4].map(|most| 1 + random.below(most)),
        }
    }

    fn selector(&self, random: &mut Random) -> (Option<PeerId>, Selector) {
        let (peer, Header { context, source, tag, .. }) = self.message(random);
        let source = (!random.one_in(3)).then_some(source);
        let tag = (!random.one_in(3)).then_some(tag);
        // MPI's patterns, and now and then any other.
        let names_peer = if random.one_in(10) { random.one_in(2) } else { source.is_some() };
        (names_peer.then_some(peer), Selector { context, source, tag })
    }

    fn message(&self, random: &mut Random) -> (PeerId, Header) {
        let [context, source, tag, peer] = self.kinds.map(|kinds| random.below(kinds));
        // Some messages lie about their source.
        let peer = if random.one_in(8) { peer } else { source };
        let (context, tag) = ((context as u64) << 32, (tag as i32 - 1) << random.pick(&[0, 20]));
        let header = Header { context, source: source as u32, tag, sequence: self.sequence };
        (PeerId(peer as u32), header)
    }

    fn act(&mut self, random: &mut Random) {
        match random.below(12) {
            0..4 => self.arrive(random),
            4..8 => self.receive(random),
            8 => self.cancel(random),
            9 => self.probe(random),
            10 => self.matched_probe(random),
            _ => self.matched_receive(random),
        }
    }

    fn arrive(&mut self, random: &mut Random) {
        let (peer, header) = self.message(random);
        self.sequence += 1;
        let found = self.matching.take_posted(peer, &header);
        assert_eq!(found, self.lists.take_posted(peer, &header), "the receive of {header:?}");
        match found {
            Some(op) => self.vacate(op),
            None => {
                self.lists.waiting.push((peer, header));
                self.matching.arrive(Self::unexpected(random, peer, header));
            }
        }
    }

    fn unexpected(random: &mut Random, peer: PeerId, header: Header) -> Unexpected {
        let content = if is_rts(&header) {
            Content::Rts { op: header.sequence, bytes: 1 << 20, rndv: RndvKind::Stream }
        } else {
            let bytes = vec![header.sequence as u8; random.below(64)];
            Content::Eager { data: bytes[..].into(), acknowledge: None }
        };
        Unexpected { peer, header, content }
    }

    fn receive(&mut self, random: &mut Random) {
        let (peer, selector) = self.selector(random);
        let found = self.matching.take_waiting(peer, &selector);
        let expected = self.lists.find(peer, &selector).map(|at| self.lists.waiting.remove(at));
        assert_eq!(found.as_ref().map(named), expected, "the message of {peer:?} {selector:?}");
        if found.is_none() {
            let index = self.free.pop().unwrap_or(self.generations.len() as u32);
            if index as usize == self.generations.len() {
                self.generations.push(0);
            }
            let op = OpId { index, generation: self.generations[index as usize] };
            self.matching.post(peer, selector, op);
            self.lists.posted.push((peer, selector, op));
        }
    }

    fn cancel(&mut self, random: &mut Random) {
        if self.generations.is_empty() {
            return;
        }
        let index = random.below(self.generations.len() + 1) as u32;
        let generation = self.generations.get(index as usize).copied().unwrap_or(0);
        let op = OpId { index, generation: generation.wrapping_sub(u32::from(random.one_in(4))) };
        let expected = self.lists.posted.iter().position(|(_, _, posted)| *posted == op);
        assert_eq!(self.matching.cancel(op), expected.is_some(), "whether {op:?} is posted");
        if let Some(at) = expected {
            self.lists.posted.remove(at);
            self.vacate(op);
        }
    }

    fn probe(&mut self, random: &mut Random) {
        let (peer, selector) = self.selector(random);
        let expected = self.lists.find(peer, &selector).map(|at| self.lists.waiting[at]);
        let found = self.matching.peek(peer, &selector).map(named);
        assert_eq!(found, expected, "what a probe of {peer:?} {selector:?} finds");
    }

    fn matched_probe(&mut self, random: &mut Random) {
        let (peer, selector) = self.selector(random);
        let expected = self.lists.find(peer, &selector).map(|at| self.lists.waiting.remove(at));
        let found = self.matching.take_waiting(peer, &selector);
        assert_eq!(found.as_ref().map(named), expected, "what {peer:?} {selector:?} takes");
        self.taken.extend(found.map(|message| (self.matched.insert(message), expected.unwrap())));
    }

    fn matched_receive(&mut self, random: &mut Random) {
        if self.taken.is_empty() {
            return;
        }
        let (id, expected) = self.taken.swap_remove(random.below(self.taken.len()));
        assert_eq!(self.matched.take(id).as_ref().map(named), Some(expected));
        assert!(self.matched.take(id).is_none(), "a message is received once");
    }

    /// Drops the RTSs of a failed peer.
    fn drop_rts(&mut self, peer: PeerId) {
        self.matching.drop_rts(peer);
        self.lists.waiting.retain(|(from, header)| *from != peer || !is_rts(header));
    }

    fn vacate(&mut self, op: OpId) {
        self.generations[op.index as usize] += 1;
        self.free.push(op.index);
    }

    fn check(&mut self) {
        let mut found: Vec<_> =
            self.matching.messages_mut().map(|one| one.header.sequence).collect();
        found.sort_unstable();
        let expected: Vec<_> = self.lists.waiting.iter().map(|(_, one)| one.sequence).collect();
        assert_eq!(found, expected, "the messages that wait");
    }
}

fn named(message: &Unexpected) -> (PeerId, Header) {
    if let Content::Eager { data, .. } = &message.content {
        assert!(data.iter().all(|byte| *byte == message.header.sequence as u8));
    }
    (message.peer, message.header)
}

#[test]
fn matching_equals_lists() {
    for seed in seeds(400) {
        let mut random = Random::new(seed);
        let mut pair = PostedPair::new(&mut random);
        for _ in 0..random.below(1500) {
            pair.act(&mut random);
            if random.one_in(300) {
                pair.drop_rts(PeerId(random.below(4) as u32));
            }
        }
        pair.check();
    }
}

/// Receive or message number `number`; different numbers do not match.
fn distinct(number: u32) -> Header {
    Header { context: 8, source: number, tag: number as i32, sequence: number }
}

/// Selector of a receive that accepts a message, with or without its source and tag.
fn selecting(header: &Header, source: bool, tag: bool) -> (Option<PeerId>, Selector) {
    let Header { context, source: from, tag: with, .. } = *header;
    let selector = Selector { context, source: source.then_some(from), tag: tag.then_some(with) };
    (source.then_some(PeerId(from)), selector)
}

const PATTERNS: [(bool, bool); 4] = [(true, true), (false, true), (true, false), (false, false)];

/// Slots looked at in a step, on average and at most.
fn looked_at(steps: u32, mut step: impl FnMut(u32)) -> (f64, u64) {
    let (mut sum, mut most) = (0, 0);
    for number in 0..steps {
        let before = TOUCHED.get();
        step(number);
        let looked_at = TOUCHED.get() - before;
        sum += looked_at;
        most = most.max(looked_at);
    }
    (sum as f64 / f64::from(steps), most)
}

/// Checks that a step looks at as many slots with many other entries as alone, except for
/// neighbours in its buckets.
fn assert_equal_work(what: &str, alone: (f64, u64), oversubscribed: (f64, u64)) {
    println!("{what}: {alone:?} slots looked at alone, {oversubscribed:?} among many");
    assert!(
        oversubscribed.0 <= alone.0 + 4.0,
        "{what}: {alone:?} slots looked at, then {oversubscribed:?}"
    );
    assert!(
        oversubscribed.1 <= alone.1 + 40,
        "{what}: {alone:?} slots looked at, then {oversubscribed:?}"
    );
}

#[test]
fn a_receive_costs_the_same_however_many_are_posted() {
    for (source, tag) in PATTERNS {
        for (others_source, others_tag) in PATTERNS {
            let work = |depth: u32| {
                let mut matching = Matching::new();
                for number in 0..depth {
                    let op = OpId { index: number + 1, generation: 0 };
                    let mut header = distinct(number);
                    header.context += u64::from(number);
                    let (peer, selector) = selecting(&header, others_source, others_tag);
                    matching.post(peer, selector, op);
                }
                looked_at(1000, |number| {
                    let header = Header { context: 7, ..distinct(number) };
                    let (peer, selector) = selecting(&header, source, tag);
                    let op = OpId { index: 0, generation: number };
                    matching.post(peer, selector, op);
                    if number % 2 == 0 {
                        assert!(matching.cancel(op));
                    } else {
                        assert_eq!(matching.take_posted(PeerId(number), &header), Some(op));
                    }
                })
            };
            let what = format!("{source} {tag} beside {others_source} {others_tag}");
            assert_equal_work(&what, work(1), work(10_000));
        }
    }
}

#[test]
fn a_message_costs_the_same_however_many_wait() {
    for (source, tag) in PATTERNS {
        let work = |depth| {
            let mut matching = Matching::new();
            for (source, tag) in PATTERNS {
                let (peer, selector) = selecting(&distinct(0), source, tag);
                matching.arrive(unexpected(0, distinct(0)));
                assert!(matching.peek(peer, &selector).is_some());
            }
            for number in 0..depth {
                matching.arrive(unexpected(number, distinct(number)));
            }
            looked_at(1000, |number| {
                let header = Header { context: 7, ..distinct(number) };
                let (peer, selector) = selecting(&header, source, tag);
                matching.arrive(unexpected(number, header));
                assert!(matching.peek(peer, &selector).is_some());
                let taken = matching.take_waiting(peer, &selector).expect("it has arrived");
                assert_eq!(taken.header, header);
            })
        };
        assert_equal_work(&format!("a probe naming {source} {tag}"), work(1), work(10_000));
    }
}

#[test]
fn equal_entries_are_taken_in_order_at_constant_cost() {
    for (source, tag) in PATTERNS {
        let (peer, selector) = selecting(&distinct(3), source, tag);
        let work = |depth| {
            let mut matching = Matching::new();
            let op = |index| OpId { index, generation: 0 };
            for number in 0..depth {
                matching.post(peer, selector, op(number));
            }
            let posted = looked_at(depth, |number| {
                assert_eq!(matching.take_posted(PeerId(3), &distinct(3)), Some(op(number)));
            });
            for sequence in 0..depth {
                matching.arrive(unexpected(3, Header { sequence, ..distinct(3) }));
            }
            assert!(matching.peek(peer, &selector).is_some());
            let waiting = looked_at(depth, |number| {
                let taken = matching.take_waiting(peer, &selector).expect("many wait");
                assert_eq!(taken.header.sequence, number);
            });
            [posted, waiting]
        };
        for (few, many) in work(10).into_iter().zip(work(10_000)) {
            assert_equal_work(&format!("naming {source} {tag}"), few, many);
        }
    }
}

/// Tags, sources and contexts of programs have a stride, often a power of two.
#[test]
fn regular_keys_spread_over_the_buckets() {
    const KEYS: u32 = 4096;
    let spreads = |what: String, header: &dyn Fn(u32) -> Header| {
        let mut queues = Queues::new();
        let key_of = |slot| Key::of_message(Pattern::EXACT, PeerId(0), &header(slot));
        for number in 0..KEYS {
            queues.push(number, key_of);
        }
        let (average, most) = looked_at(KEYS, |number| {
            assert_eq!(queues.first(key_of(number), key_of), Some(number));
        });
        println!("{what}: {average} links followed on average, {most} at most");
        assert!(average <= 0.75 && most <= 12, "{what}: {average} links followed, at most {most}");
    };
    let plain = Header { context: 5, source: 1, tag: 1, sequence: 0 };
    for shift in 0..=19 {
        spreads(format!("tags << {shift}"), &|number| Header {
            tag: (number << shift) as i32,
            ..plain
        });
        spreads(format!("sources << {shift}"), &|number| Header {
            source: number << shift,
            ..plain
        });
        spreads(format!("64 sources by 64 tags << {shift}"), &|number| Header {
            source: (number % 64) << shift,
            tag: ((number / 64) << shift) as i32,
            ..plain
        });
        spreads(format!("16 contexts by 256 tags << {shift}"), &|number| Header {
            context: u64::from(number % 16) << (2 * shift),
            tag: ((number / 16) << shift) as i32,
            ..plain
        });
        spreads(format!("contexts << {}", 2 * shift), &|number| Header {
            context: u64::from(number) << (2 * shift),
            ..plain
        });
    }
}

fn unexpected(peer: u32, header: Header) -> Unexpected {
    let content = Content::Eager { data: [1; 8][..].into(), acknowledge: None };
    Unexpected { peer: PeerId(peer), header, content }
}
