//! Tests of the list of ready partitions by one thread.

use crate::fault::Misuse;
use crate::ready::Ready;

fn taken(ready: &Ready) -> Vec<u32> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while ready.take(&mut batch) {
        all.append(&mut batch);
    }
    all.sort_unstable();
    all
}

#[test]
fn partitions_wait_until_the_receiver_has_started() {
    let ready = Ready::new(4).unwrap();
    assert_eq!(ready.mark([1].into_iter()), Err(Misuse::Inactive));
    ready.begin();
    assert_eq!(ready.mark([1, 3].into_iter()), Ok(false));
    assert!(ready.open());
    assert_eq!(ready.mark([0].into_iter()), Ok(false), "somebody takes already");
    assert_eq!(taken(&ready), [0, 1, 3]);
    assert_eq!(ready.mark([2].into_iter()), Ok(true));
    assert_eq!(taken(&ready), [2]);
}

#[test]
fn a_wrong_partition_leaves_the_others_unmarked() {
    let ready = Ready::new(4).unwrap();
    ready.begin();
    assert_eq!(ready.mark([2].into_iter()), Ok(false));
    assert_eq!(ready.mark([0, 1, 2].into_iter()), Err(Misuse::ReadyTwice(2)));
    assert_eq!(ready.mark([0, 1, 0].into_iter()), Err(Misuse::ReadyTwice(0)));
    assert_eq!(ready.mark([0, 4].into_iter()), Err(Misuse::NoPartition(4)));
    assert_eq!(ready.mark([0, 1].into_iter()), Ok(false));
    assert!(ready.open());
    assert_eq!(taken(&ready), [0, 1, 2]);
    ready.end();
    assert_eq!(ready.mark([0].into_iter()), Err(Misuse::Inactive));
    ready.begin();
    assert_eq!(ready.mark([0].into_iter()), Ok(false), "not open in the next run");
}

#[test]
fn no_partition_is_no_mark() {
    let ready = Ready::new(0).unwrap();
    assert_eq!(ready.mark([].into_iter()), Err(Misuse::Inactive));
    ready.begin();
    assert_eq!(ready.mark([].into_iter()), Ok(false));
    assert!(!ready.open());
}
