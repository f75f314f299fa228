//! The estimated rate behind token buckets.

use std::time::Duration;

use testing::Random;

use crate::bottleneck_tests::{BottleneckLink, World, link};

/// Checks paths from 1 Mb/s to 1 Gb/s, behind token buckets of up to 1 MiB.
#[test]
fn four_megabytes_show_the_rate_behind_any_bucket() {
    for seed in testing::seeds(12) {
        let mut random = Random::new(seed);
        let bytes_per_s = 125_000.0 * 1000_f64.powf(random.unit());
        let bucket_bytes = if random.one_in(3) { 0.0 } else { 1_048_576.0 * random.unit() };
        let delay = Duration::from_micros(50).mul_f64(100_f64.powf(random.unit()));
        let link = BottleneckLink { bytes_per_s, delay, bucket_bytes, ..link() };
        let mut world = World::new(link, None, seed);
        world.send(4 << 20);
        let (_, connection) = world.ends[0].connection.as_ref().expect("a connection");
        let found = connection.controller.lock().model.path().expect("an estimate");
        // The headers of IP and UDP do not count.
        let ratio = found.bytes_per_s / (bytes_per_s * 1472.0 / 1500.0);
        assert!(
            (ratio - 1.0).abs() < 0.15 && found.is_conclusive,
            "{ratio:.3} of {bytes_per_s:.0} bytes/s, {delay:?} away, bucket {bucket_bytes:.0}"
        );
    }
}
