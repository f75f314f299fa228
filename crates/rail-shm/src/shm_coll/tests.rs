//! Tests of the shared segment for collectives.

use std::os::unix::fs::MetadataExt;

use crate::shm_coll::*;

const PAGE: usize = 4 << 10;
const BRIEF: usize = Segment::BRIEF_LEN;
const SHORT: usize = Segment::SHORT_LEN;

#[test]
fn memory_of_pages_is_allocated_on_first_use() {
    const LONG: usize = 512 << 10;
    let (mut shm_coll, invitation) = ShmColl::create(1, LONG).unwrap();
    let path = format!("/proc/self/fd/{}", invitation.descriptor);
    let taken = || 512 * std::fs::metadata(&path).unwrap().blocks() as usize;
    let initial = taken();
    assert!(initial < LONG / 2, "{initial} bytes");
    for len in [BRIEF, SHORT] {
        shm_coll.reserve(len).unwrap();
        shm_coll.post(len, |bytes, _| bytes.fill(1));
    }
    assert_eq!(taken(), initial);
    for len in [SHORT + 1, 100 << 10, LONG] {
        assert!(shm_coll.has_room(len));
        let before = taken();
        shm_coll.reserve(len).unwrap();
        let reserved = taken();
        shm_coll.post(len, |bytes, _| bytes.fill(2));
        let posted = taken();
        assert!((initial + len..=initial + PAGES * LONG).contains(&posted), "{posted} bytes");
        // Kernels before Linux 5.14 reserve nothing.
        assert!(reserved == posted || reserved == before, "{before}, {reserved}, {posted} bytes");
    }
}

fn pair() -> [ShmColl; 2] {
    let (mut first, invitation) = ShmColl::create(2, PAGE).unwrap();
    let invitation = ShmCollInvitation::parse(invitation.emit());
    let second = ShmColl::join(invitation, 2, 1, PAGE).unwrap();
    first.close_invitation();
    [first, second]
}

#[test]
fn members_read_what_others_have_posted() {
    let [mut one, mut other] = pair();
    for (round, len) in (1u8..).zip([0, 1, BRIEF, BRIEF + 1, SHORT, SHORT + 1, PAGE]) {
        assert!(one.has_room(len) && other.has_room(0));
        one.post(len, |bytes, _| bytes.fill(round));
        assert!(!one.has(0..2) && one.has(0..1));
        other.post(0, |_, _| unreachable!("nothing is to be written"));
        assert!(other.has(0..2) && one.has(1..2));
        assert_eq!(other.contribution(0).to_vec(), vec![round; len]);
        assert!(one.contribution(1).is_empty());
    }
}

#[test]
fn the_first_member_waits_for_the_last() {
    let short = Segment::SHORT_ROUNDS;
    for (len, places) in [(BRIEF, Segment::ROUNDS), (SHORT, short)] {
        let [mut one, mut other] = pair();
        for _ in 0..places {
            assert!(one.has_room(len), "the place was never used");
            one.post(len, |bytes, _| bytes.fill(1));
        }
        assert!(!one.has_room(len));
        other.post(0, |_, _| ());
        assert!(!one.has_room(len), "it may be reading");
        let spare = places / 2 - 2;
        for _ in 0..=spare {
            assert!(!one.has_room(len), "too few are free to be worth a turn");
            other.post(0, |_, _| ());
        }
        for _ in 0..=spare {
            assert!(one.has_room(len));
            one.post(len, |bytes, _| bytes.fill(2));
        }
        assert!(!one.has_room(len));
    }
}

#[test]
fn long_contributions_go_behind_unread_ones_or_to_the_other_page() {
    let [mut one, mut other] = pair();
    let room = |one: &mut ShmColl, len: usize| {
        let has_room = one.has_room(len);
        assert!(has_room || !one.take_due());
        has_room.then(|| {
            one.post(len, |bytes, _| bytes.fill(one_more(len)));
            let Layout { first_page, page_len, .. } = one.layout;
            let at = one.locate(0).0 - first_page;
            (at / page_len, at % page_len)
        })
    };
    let third = PAGE / 3;
    let stride = third.next_multiple_of(LINE);
    assert_eq!(room(&mut one, third), Some((1, 0)));
    assert_eq!(room(&mut one, third), Some((0, 0)), "nobody has ever written there");
    assert_eq!(room(&mut one, third), Some((0, stride)), "the other may be unread");
    assert_eq!(room(&mut one, PAGE), None, "it is not on two pages");
    other.post(0, |_, _| ());
    assert_eq!(room(&mut one, PAGE), None, "it may be reading");
    other.post(0, |_, _| ());
    assert_eq!(room(&mut one, PAGE), Some((1, 0)), "it has read the first");
    assert_eq!(room(&mut one, third), None, "two on a page are unread");
    other.post(0, |_, _| ());
    other.post(0, |_, _| ());
    assert_eq!(other.contribution(0).to_vec(), vec![one_more(PAGE); PAGE]);
    assert_eq!(room(&mut one, third), Some((0, 0)));
    assert_eq!(room(&mut one, third), Some((0, stride)));
    assert_eq!(room(&mut one, third), None, "neither has room");
}

#[test]
fn further_pieces_wait_for_the_release_of_the_last_but_one() {
    let [mut one, mut other] = pair();
    let page_of = |shm_coll: &ShmColl, at: usize| (at - shm_coll.layout.first_page) / PAGE;
    for round in 0..2 {
        one.announce(2 * PAGE + 9, 1);
        assert!(one.has_room(PAGE));
        one.post(PAGE, |bytes, _| bytes.fill(round));
        assert!(one.has_room_for_more());
        one.post_more(1, PAGE, |bytes, _| bytes.fill(round + 1));
        assert!(!one.has_room_for_more());
        other.post(0, |_, _| ());
        assert!(other.has(0..1) && other.has_more(0, 1) && !other.has_more(0, 2));
        let pages = [other.locate(0).0, other.locate_piece(0, 1, PAGE).unwrap()];
        assert_eq!(pages.map(|at| page_of(&other, at)).iter().sum::<usize>(), 1);
        assert!(!one.take_due(), "the other may be reading");
        other.release(0);
        assert!(one.take_due() && one.has_room_for_more());
        one.post_more(2, 9, |bytes, _| bytes.fill(round + 2));
        assert!(other.take_due() && other.has_more(0, 2));
        for (piece, len) in [(1, PAGE), (2, 9)] {
            let more = other.more(0, piece, len).unwrap().to_vec();
            assert_eq!(more, vec![round + piece as u8; len]);
        }
        let short = other.more(0, 2, 10).map(|more| more.len());
        assert_eq!(short, Err((2 * PAGE + 9, 2 * PAGE + 10)));
        assert!(other.has_more(0, 3), "no more was announced");
        assert!(!one.has_room(PAGE), "it may be reading the last ones");
        other.release(1);
        assert!(one.has_room(PAGE));
        other.release(2);
    }
}

#[test]
fn awaited_conditions_round_trip() {
    for what in [
        Condition::Post,
        Condition::More(1),
        Condition::Taken(0),
        Condition::More((1 << PIECE_BITS) - 1),
    ] {
        for (round, near) in [(1, 1), (7, 9), (9, 7), ((1 << 40) + 3, (1 << 40) - 3)] {
            let awaited = Awaited { round, members: 2..255, what };
            let told = Awaited::decode(awaited.encode(), near);
            assert_eq!((told.round, told.members, told.what), (round, 2..255, what));
        }
    }
}

fn one_more(len: usize) -> u8 {
    len as u8 + 1
}

#[test]
fn many_members_have_fewer_lines_each() {
    let rounds = |size| Layout::of::<Segment>(size, PAGE).lines.count;
    assert_eq!([1, 8, 9, 16, 31, 255].map(rounds), [64, 64, 32, 32, 16, 16]);
}

#[test]
fn a_sleeping_member_is_woken_once_when_its_condition_holds() {
    let (mut first, invitation) = ShmColl::create(3, PAGE).unwrap();
    let [mut second, mut third] = [1, 2].map(|me| ShmColl::join(invitation, 3, me, PAGE).unwrap());
    first.post(0, |_, _| ());
    assert!(!first.has(0..3) && first.begin_sleep());
    let rung = |shm_coll: &ShmColl| {
        let mut rung = Vec::new();
        shm_coll.wake_members(|member| rung.push(member));
        rung
    };
    second.post(0, |_, _| ());
    assert_eq!(rung(&second), [0u32; 0], "the third is missing");
    third.post(0, |_, _| ());
    assert_eq!((rung(&third), rung(&third)), (vec![0], vec![]));
    assert!(!first.begin_sleep() && first.take_due() && !first.take_due());
    first.end_sleep();
    assert!(first.has(0..3));
}

#[test]
fn an_ended_member_is_missing_unless_it_has_posted() {
    let [mut one, other] = pair();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = other.memory.word32(other.control(1) + PID_AT);
    pid.store(child.id(), Ordering::Relaxed);
    one.liveness[1] = Some(Liveness::of(child.id() as i32));
    child.wait().unwrap();
    one.post(0, |_, _| ());
    assert!(!one.has(0..2));
    one.end_sleep();
    assert_eq!(one.missing(), Some(1));
    one.lost = None;
    one.end_sleep();
    assert_eq!(one.missing(), None, "it was looked just now");
    other.memory.word64(other.line(1, 1)).store(mark(1, 0), Ordering::Release);
    one.end_sleep();
    one.next_look = Instant::now();
    assert_eq!(one.missing(), None);
    assert!(one.has(0..2));
}
