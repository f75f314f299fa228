use super::*;
use crate::Segment;

fn pairs() -> Arc<Layout> {
    let segments = [Segment { offset: 4, len: 2 }, Segment { offset: 0, len: 1 }];
    Arc::new(Layout::new(segments, 8))
}

#[test]
fn a_strided_region_reads_in_type_map_order() {
    let mut memory: Vec<u8> = (0..24).collect();
    // SAFETY: three elements of extent 8 fit the 24 bytes, which outlive the region.
    let region = unsafe { Region::elements(memory.as_mut_ptr(), 3, &pairs()) };
    assert_eq!(region.to_vec(), [4, 5, 0, 12, 13, 8, 20, 21, 16]);
    assert_eq!(region.slice(2, 4).to_vec(), [0, 12, 13, 8]);
}

#[test]
fn every_split_of_a_write_gives_the_same_memory() {
    for cut in 0..=9 {
        let mut memory = vec![0xff; 24];
        // SAFETY: three elements of extent 8 fit the 24 bytes, which outlive the region.
        let region = unsafe { Region::elements(memory.as_mut_ptr(), 3, &pairs()) };
        let data: Vec<u8> = (1..=9).collect();
        region.write(0, &data[..cut]);
        region.write(cut, &data[cut..]);
        assert_eq!(region.to_vec(), data);
        assert_eq!(memory[1..4], [0xff; 3]);
    }
}

#[test]
fn a_chain_is_the_concatenation_of_its_parts() {
    let parts = [vec![1, 2], vec![], vec![3], vec![4, 5, 6]];
    let chain = Region::chain(parts.into_iter().map(|p| Region::from_box(p.into())));
    assert_eq!(chain.to_vec(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(chain.slice(1, 3).to_vec(), [2, 3, 4]);
    chain.slice(1, 3).copy_from(&Region::from_box(Box::new([7, 8, 9])));
    assert_eq!(chain.to_vec(), [1, 7, 8, 9, 5, 6]);
}

#[test]
fn contiguous_parts_of_a_chain_are_one_span() {
    let mut memory = *b"abcdefgh";
    let address = memory.as_mut_ptr();
    // SAFETY: the bytes are the array's, which outlives the regions.
    let part = |start, len| unsafe { Region::new(address.wrapping_add(start), len) };
    let spans = |region: &Region| {
        let mut lens = Vec::new();
        region.visit(0, region.len(), &mut |span| {
            lens.push(span.len);
            true
        });
        lens
    };
    let whole = Region::chain([part(0, 3), part(3, 0), part(3, 2), part(5, 3)]);
    assert!(matches!(whole.shape, RegionShape::Flat(_)));
    assert_eq!(whole.to_vec(), b"abcdefgh");
    let apart = Region::chain([part(4, 2), part(6, 2), part(0, 3)]);
    assert_eq!((spans(&apart), apart.to_vec()), (vec![4, 3], b"efghabc".to_vec()));
    assert!(matches!(apart.slice(1, 3).shape, RegionShape::Flat(_)));
    assert_eq!(apart.slice(1, 3).to_vec(), b"fgh");
    assert_eq!(apart.slice(4, 3).as_span().map(|span| span.address), Some(address));
    assert_eq!(apart.slice(3, 2).to_vec(), b"ha");
    assert_eq!(apart.slice(1, 5).slice(3, 2).to_vec(), b"ab");
    assert_eq!(Region::chain([part(2, 0)]).to_vec(), b"");
}

#[test]
fn a_chain_may_hold_strided_parts_and_chains() {
    let memory = Region::from_box((0..24).collect());
    let pairs = memory.typed(0, 3, &pairs()).expect("it fits");
    let inner = Region::chain([Region::from_box(Box::new([90])), pairs.slice(1, 7)]);
    let chain = Region::chain([inner.slice(0, 4), Region::empty(), inner.slice(4, 4), pairs]);
    let expected = [90, 5, 0, 12, 13, 8, 20, 21, 4, 5, 0, 12, 13, 8, 20, 21, 16];
    assert_eq!(chain.to_vec(), expected);
    for start in 0..=expected.len() {
        for end in start..=expected.len() {
            let piece = chain.slice(start, end - start);
            assert_eq!(piece.to_vec(), expected[start..end]);
            assert_eq!(piece.slice(piece.len() / 2, 0).to_vec(), []);
        }
    }
}

#[test]
fn writing_a_chain_in_pieces_reaches_every_part() {
    for first in 0..=6 {
        for second in first..=6 {
            let parts = [1, 3, 0, 2].map(Region::owned);
            let chain = Region::chain(parts.clone());
            chain.write(second, &[1, 2, 3, 4, 5, 6][second..]);
            chain.write(0, &[1, 2, 3, 4, 5, 6][..first]);
            chain.slice(first, second - first).write(0, &[1, 2, 3, 4, 5, 6][first..second]);
            assert_eq!(parts.map(|part| part.to_vec()).concat(), [1, 2, 3, 4, 5, 6]);
        }
    }
}

#[test]
fn pieces_of_any_length_are_copied_between_any_shapes() {
    let source = Region::from_box((1..=40).collect());
    let scattered = Region::chain([source.slice(0, 7), source.slice(7, 33)]);
    for len in 0..=38 {
        let (flat, parts) = (Region::owned(40), [Region::owned(3), Region::owned(37)]);
        let chain = Region::chain(parts);
        flat.copy_piece(1, &source, 2, len);
        let expected: Vec<u8> = std::iter::once(0).chain(3..3 + len as u8).collect();
        assert_eq!(flat.slice(0, len + 1).to_vec(), expected);
        assert_eq!(flat.slice(len + 1, 39 - len).to_vec(), vec![0; 39 - len]);
        for (target, source) in [(&flat, &scattered), (&chain, &source), (&chain, &scattered)] {
            target.write(0, &[0; 40]);
            target.copy_piece(1, source, 2, len);
            assert_eq!(target.to_vec()[..len + 1], expected);
            assert_eq!(target.to_vec()[len + 1..], vec![0; 39 - len]);
        }
    }
}

#[test]
fn visitors_see_each_run_once_and_may_stop() {
    let memory = Region::owned(24);
    let base = memory.as_span().expect("owned memory is one run").address;
    let region = memory.typed(0, 3, &pairs()).expect("it fits");
    let spans = |offset, len, most: usize| {
        let mut seen = Vec::new();
        let finished = region.visit(offset, len, &mut |span| {
            seen.push((span.address as usize - base as usize, span.len));
            seen.len() < most
        });
        (finished, seen)
    };
    assert_eq!(spans(1, 4, 9), (true, vec![(5, 1), (0, 1), (12, 2)]));
    assert_eq!(spans(0, 9, 2), (false, vec![(4, 2), (0, 1)]));
    assert_eq!(spans(9, 0, 9), (true, vec![]));
}

#[test]
fn memory_in_one_run_is_one_span() {
    let memory = Region::owned(8);
    let address = memory.as_span().expect("owned memory is one run").address;
    let chain = Region::chain([memory.slice(1, 2), memory.slice(3, 4)]);
    assert_eq!(chain.as_span(), Some(Span { address: address.wrapping_add(1), len: 6 }));
    assert_eq!(Region::chain([memory.slice(0, 2), memory.slice(3, 1)]).as_span(), None);
    assert_eq!(Region::chain([memory.slice(2, 2), memory.slice(0, 2)]).as_span(), None);
    let single = Arc::new(Layout::new([Segment { offset: 2, len: 3 }], 8));
    let one = memory.typed(0, 1, &single).expect("it fits");
    assert_eq!(one.as_span(), Some(Span { address: address.wrapping_add(2), len: 3 }));
    assert_eq!(Region::chain([]).as_span().map(|span| span.len), Some(0));
}

#[test]
fn elements_outside_their_memory_are_refused() {
    let memory = Region::owned(24);
    let fits = |start, count, layout: &Arc<Layout>| memory.typed(start, count, layout).is_some();
    assert!(fits(0, 3, &pairs()) && fits(18, 1, &pairs()));
    assert!(fits(2, 3, &pairs()) && !fits(3, 3, &pairs()));
    assert!(!fits(19, 1, &pairs()) && !fits(0, 4, &pairs()));
    assert!(fits(999, 0, &pairs()), "no elements lie nowhere");
    let down = Arc::new(Layout::new([Segment { offset: -4, len: 4 }], -8));
    assert!(fits(20, 3, &down) && !fits(20, 4, &down) && !fits(3, 1, &down));
    let scattered = Region::chain([memory.slice(0, 4), memory.slice(8, 4)]);
    assert!(scattered.typed(0, 1, &pairs()).is_none(), "elements lie in one piece of memory");
}

#[test]
fn elements_that_wrap_around_the_address_space_are_refused() {
    let memory = Region::owned(24);
    let far = Arc::new(Layout::new([Segment { offset: 0, len: 2 }], 1 << 62));
    assert!(memory.typed(0, 5, &far).is_none(), "the fifth is at 0 again, the second is not");
    let heaped = Arc::new(Layout::new([Segment { offset: 0, len: 2 }], 0));
    assert!(memory.typed(0, 1 << 63, &heaped).is_none(), "too long a stream");
    let off = Arc::new(Layout::new([Segment { offset: isize::MAX, len: 2 }], 4));
    assert!(memory.typed(4, 1, &off).is_none() && memory.typed(isize::MAX, 1, &off).is_none());
}

#[test]
fn contiguous_copies_may_overlap() {
    let memory = Region::from_box((0..8).collect());
    memory.slice(2, 6).copy_from(&memory.slice(0, 6));
    assert_eq!(memory.to_vec(), [0, 1, 0, 1, 2, 3, 4, 5]);
    memory.slice(0, 6).copy_from(&memory.slice(2, 6));
    assert_eq!(memory.to_vec(), [0, 1, 2, 3, 4, 5, 4, 5]);
}

#[test]
fn pieces_are_moved_whatever_their_shape_and_overlap() {
    for len in [0, 1, 2, 3, 4, 5, 8, 9, 16, 24, 32, 33, 200] {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (3, 250), (250, 3)] {
            let bytes: Vec<u8> = (0..500).map(|at| (at * 7 % 251) as u8).collect();
            let memory = Region::from_box(bytes.clone().into());
            let mut expected = bytes.clone();
            expected.copy_within(from..from + len, to);
            memory.move_piece(to, &memory, from, len);
            assert_eq!(memory.to_vec(), expected, "{len} bytes from {from} to {to}");
        }
    }
    let memory = Region::owned(24);
    let elements = memory.typed(0, 3, &pairs()).expect("they fit");
    elements.move_piece(1, &Region::from_box(Box::new([9, 1, 2, 3])), 1, 3);
    assert_eq!(elements.slice(0, 5).to_vec(), [0, 1, 2, 3, 0]);
}

#[test]
fn owned_memory_lives_as_long_as_a_clone() {
    let piece = Region::chain([Region::from_box(Box::new([1, 2, 3]))]).slice(1, 2).clone();
    assert_eq!(piece.to_vec(), [2, 3]);
}

#[test]
fn slicing_past_the_end_is_refused_even_where_the_sum_overflows() {
    for (offset, len) in [(0, 5), (5, 0), (3, 2), (usize::MAX, 2), (2, usize::MAX)] {
        let region = Region::owned(4);
        let sliced = std::panic::catch_unwind(|| region.slice(offset, len));
        assert!(sliced.is_err(), "{offset}..+{len}");
    }
}

#[test]
fn reading_is_the_same_past_the_caches_and_across_them() {
    let whole = Region::owned(10_000);
    let bytes: Vec<u8> = (0..10_000).map(|at| (at * 7 + at / 251) as u8).collect();
    whole.write(0, &bytes);
    let mut target = vec![0; 10_100];
    for (offset, len) in [(0, 10_000), (5, 9000), (17, 4097), (100, 63), (10_000, 0)] {
        for at in [0, 1, 16, 63] {
            for read in [Region::read, Region::read_past, Region::read_across] {
                target.fill(0xee);
                read(&whole, offset, &mut target[at..at + len]);
                assert_eq!(target[at..at + len], bytes[offset..offset + len]);
                assert!(target[at + len..].iter().all(|&byte| byte == 0xee));
            }
        }
    }
    for read in [Region::read_past, Region::read_across] {
        let outside = std::panic::catch_unwind(|| read(&Region::owned(4), 2, &mut [0; 3]));
        assert!(outside.is_err());
    }
}

#[test]
#[should_panic(expected = "lie outside")]
fn reading_past_the_end_is_refused() {
    Region::owned(4).read(2, &mut [0; 3]);
}
