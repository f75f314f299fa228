use std::sync::Arc;

use crate::simulated_device::SimulatedDevice;
use crate::{Layout, Region, Segment};

fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn filled(len: usize, seed: u64) -> Arc<SimulatedDevice> {
    let device = SimulatedDevice::new(len, seed);
    device.fill(&random_bytes(len, seed));
    device
}

#[test]
fn reads_and_writes_in_pieces_give_the_streams_bytes() {
    let segments = [Segment { offset: 4, len: 2 }, Segment { offset: 0, len: 3 }];
    let layout = Arc::new(Layout::new(segments, 8));
    for seed in 1..200 {
        let device = filled(4096, seed);
        let before = device.contents();
        let region = device.elements(16, 100, &layout);
        let expected: Vec<u8> = (0..100)
            .flat_map(|i| [20 + 8 * i, 21 + 8 * i, 16 + 8 * i, 17 + 8 * i, 18 + 8 * i])
            .map(|at| before[at])
            .collect();
        let cut = (seed as usize * 37) % 500;
        region.fetch(0, cut);
        region.fetch(cut, 500 - cut);
        let mut read = vec![0; 500];
        region.read(0, &mut read[..cut]);
        region.read(cut, &mut read[cut..]);
        assert_eq!(read, expected, "seed {seed}");
        assert_eq!(region.to_vec(), expected, "seed {seed}");
        let data = random_bytes(500, seed + 1000);
        region.begin_write(cut, &data[cut..]);
        region.begin_write(0, &data[..cut]);
        region.settle();
        assert_eq!(region.to_vec(), data, "seed {seed}");
        let after = device.contents();
        assert!((0..4096).all(|at| {
            let inside = (16..816).contains(&at) && [0, 1, 2, 4, 5].contains(&((at - 16) % 8));
            inside || after[at] == before[at]
        }));
    }
}

#[test]
fn a_read_sees_writes_that_have_begun() {
    for seed in 1..100 {
        let device = filled(1000, seed);
        let region = device.bytes(100, 800);
        region.begin_write(0, &[7; 500]);
        region.fetch(400, 200);
        let mut read = [0; 200];
        region.read(400, &mut read);
        assert_eq!(read[..100], [7; 100], "seed {seed}");
        assert_eq!(read[100..], random_bytes(1000, seed)[600..700], "seed {seed}");
    }
}

#[test]
fn what_was_fetched_is_forgotten_when_the_operation_ends() {
    for seed in 1..100 {
        let device = filled(1000, seed);
        let region = device.bytes(0, 1000);
        region.fetch(0, 1000);
        region.settle();
        device.fill(&[9; 1000]);
        assert_eq!(region.to_vec(), [9; 1000], "seed {seed}");
    }
}

#[test]
fn a_write_that_nobody_waits_for_is_late() {
    let late = (1..100).filter(|&seed| {
        let device = filled(64, seed);
        let region = device.bytes(0, 64);
        region.begin_write(0, &[1; 64]);
        device.contents() != [1; 64]
    });
    assert!(
        late.count() > 10,
        "the simulated device copies at once: tests of settling would not notice anything"
    );
}

#[test]
fn copies_between_all_kinds_of_memory() {
    let pairs = Arc::new(Layout::new([Segment { offset: 1, len: 2 }], 4));
    for seed in 1..4 {
        let (one, other) = (filled(600_000, seed), filled(600_000, seed + 1));
        let mut host = random_bytes(600_000, seed + 2);
        // SAFETY: the memory outlives the regions.
        let scattered = unsafe { Region::elements(host.as_mut_ptr(), 75_000, &pairs) };
        let kinds = [
            one.bytes(8, 150_000),
            other.elements(0, 75_000, &pairs),
            Region::chain([
                one.bytes(300_000, 70_000),
                Region::owned(10_000),
                other.bytes(400_000, 70_000),
            ]),
            scattered,
            Region::from_box(random_bytes(150_000, seed + 3).into()),
        ];
        for (a, from) in kinds.iter().enumerate() {
            for (b, to) in kinds.iter().enumerate().filter(|(b, _)| *b != a) {
                let data = random_bytes(150_000, seed ^ (a * 8 + b) as u64);
                from.write(0, &data);
                to.copy_from(from);
                assert_eq!(to.to_vec(), data, "seed {seed}, from {a} to {b}");
                to.copy_piece(1000, from, 20_000, 50_000);
                assert_eq!(
                    to.to_vec()[1000..51_000],
                    data[20_000..70_000],
                    "seed {seed}, from {a} to {b}"
                );
            }
        }
    }
}

#[test]
fn regions_of_devices_have_no_spans() {
    let device = filled(100, 1);
    let region = device.bytes(10, 50);
    assert!(region.as_span().is_none() && !region.is_on_host());
    assert!(Region::chain([Region::owned(5), region.slice(0, 5)]).as_span().is_none());
    assert!(region.slice(3, 0).as_span().is_some_and(|span| span.len == 0));
    let mut appended = vec![1];
    region.slice(40, 10).append_to(&mut appended);
    assert_eq!(appended[1..], device.contents()[50..60]);
    assert_eq!(region.clone().staged().to_vec(), region.to_vec());
    assert!(region.clone().staged().is_on_host());
}
