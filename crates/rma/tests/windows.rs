//! Windows of several processes within one, over TCP on the loopback interface. The targets make no calls.

use std::sync::Arc;
use std::thread;

use datatype::{Builtin, Datatype, Predefined};
use engine::{Config, Engine};
use memory::{Layout, Region, Segment};
use progress::{Directory, Policy, Progress, Worker};
use rail::{LoopbackRail, Rail};
use rail_tcp::{TcpConfig, TcpRail};
use rma::{
    AccessFault, Combination, LockKind, NodeMemory, Served, TargetPlace, Window, WindowMemory,
};
use testing::Random;
use wire::PeerId;

/// Returns the windows of three processes, each with the memory that `memory` gives for its rank.
fn windows(memory: impl Fn(u32) -> WindowMemory) -> [(Window, Arc<Progress>); 3] {
    let processes = processes();
    let mut ranks = 0..;
    let exposed = processes.map(|progress| {
        let rank = ranks.next().unwrap_or(0);
        let served = Served::new(&progress);
        (Window::expose(&progress, &served, rank, memory(rank), 1), progress)
    });
    let cards = exposed.each_ref().map(|((_, card), _)| *card);
    exposed.map(|((mut window, _), progress)| {
        window.open((0..3).map(PeerId).collect(), &cards);
        (window, progress)
    })
}

/// Returns three processes with a TCP link between any two, and one of each to itself.
fn processes() -> [Arc<Progress>; 3] {
    let rails: [[Box<dyn Rail>; 2]; 3] = std::array::from_fn(|rank| {
        let rank = PeerId(rank as u32);
        let interface = Some("127.0.0.1".into());
        let config = TcpConfig { interface, ..TcpConfig::new(rank, 7, [9; 32]) };
        let tcp = TcpRail::new(config).expect("a rail over the loopback interface");
        let own: Box<dyn Rail> = Box::new(LoopbackRail::new(rank).expect("a rail to oneself"));
        [own, Box::new(tcp)]
    });
    let addresses = rails
        .each_ref()
        .map(|rails| rails.iter().map(|rail| (rail.name().to_owned(), rail.address())).collect());
    let mut ranks = 0..;
    rails.map(|rails| {
        let rank = PeerId(ranks.next().unwrap_or(0));
        let directory = Box::new(Addresses(addresses.to_vec()));
        let engine = Engine::new(Config::new(3));
        let worker = Worker::new(engine, rank, 3, rails.into(), directory);
        Progress::new(worker, Policy::for_node(3, 1)).expect("descriptors")
    })
}

struct Addresses(Vec<Vec<(String, Vec<u8>)>>);

impl Directory for Addresses {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(self.0[peer.0 as usize].clone())
    }
}

fn int() -> Arc<Layout> {
    Arc::clone(Datatype::builtin(Builtin::Int64T).layout())
}

fn place(rank: u32, displacement: i64, count: usize, layout: &Arc<Layout>) -> TargetPlace<'_> {
    TargetPlace::elements(rank, displacement, count, layout)
}

fn sum() -> &'static Combination {
    Combination::find(Builtin::Int64T, Predefined::Sum).expect("a sum of integers")
}

fn number(value: i64) -> Region {
    Region::from_box(Box::new(value.to_ne_bytes()))
}

fn value(region: &Region) -> i64 {
    i64::from_ne_bytes(region.to_vec().try_into().expect("eight bytes"))
}

#[test]
fn puts_and_gets_of_any_layout_move_the_bytes_they_name() {
    let memories = [0, 1, 2].map(|_| Region::owned(WINDOW_LEN));
    let windows = windows(|rank| WindowMemory::Own(memories[rank as usize].clone()));
    let mut models = [0, 1, 2].map(|_| vec![0; WINDOW_LEN]);
    let mut random = Random::new(1);
    for round in 0..300 {
        let segments = (0..1 + random.below(4)).map(|at| Segment {
            offset: (at * 50 + random.below(20)) as isize,
            len: 1 + random.below(30),
        });
        let layout =
            Arc::new(Layout::new(segments.collect::<Vec<_>>(), 200 + random.below(50) as isize));
        let (count, rank) = (random.below(20), random.below(3));
        let displacement = random.below(WINDOW_LEN - 6000) as i64;
        let (window, _) = &windows[random.below(2)];
        let place = place(rank as u32, displacement, count, &layout);
        let len = layout.size() * count;
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let expected = Region::from_box(models[rank].clone().into());
        let stream = expected.typed(displacement as isize, count, &layout).expect("inside");
        if random.one_in(2) {
            window.put(&Region::from_box(bytes.clone().into()), place).unwrap();
            stream.write(0, &bytes);
            models[rank] = expected.to_vec();
            window.flush(rank as u32).unwrap();
            assert_eq!(memories[rank].to_vec(), models[rank], "round {round}");
        } else {
            let into = Region::owned(len);
            window.get(&into, place).unwrap();
            window.flush_local(rank as u32).unwrap();
            assert_eq!(into.to_vec(), stream.to_vec(), "round {round}");
        }
    }
}

#[test]
fn operations_outside_the_window_have_no_effect() {
    let memories = [0, 1, 2].map(|_| Region::owned(100));
    let windows = windows(|rank| WindowMemory::Own(memories[rank as usize].clone()));
    let (window, _) = &windows[0];
    for rank in 0..3 {
        for displacement in [93, -1, i64::MAX, i64::MIN] {
            let (int, data) = (int(), number(-1));
            let to = || place(rank, displacement, 1, &int);
            let results = [
                window.put(&data, to()),
                window.get(&data, to()),
                window.accumulate(&data, to(), sum()),
                window.compare_and_swap(&data, &data, &data, to(), sum()),
            ];
            for result in results {
                assert!(matches!(result, Err(AccessFault::Range { len: 100, .. })), "{result:?}");
            }
        }
    }
    window.flush_all().unwrap();
    assert!(memories.iter().all(|memory| memory.to_vec() == [0; 100]));
}

#[test]
fn combinations_from_all_sides_lose_nothing() {
    let (node, _) = NodeMemory::create(&[64, 64], false).unwrap();
    // Ranks 0 and 1 share memory; rank 2 comes over the network. Rank 1 demands no order.
    let mut windows = windows(|rank| match rank {
        2 => WindowMemory::Own(Region::owned(64)),
        _ => WindowMemory::Node(node.clone(), vec![0, 1]),
    });
    windows[1].0.ignore_accumulate_order();
    const ROUNDS: i64 = 2000;
    let tickets: Vec<i64> = thread::scope(|scope| {
        let workers = windows.each_ref().map(|(window, _)| {
            scope.spawn(move || {
                let (int, mut tickets) = (int(), Vec::new());
                for _ in 0..ROUNDS {
                    for rank in 0..2 {
                        let to = place(rank, 8, 2, &int);
                        let two =
                            Region::from_box([1_i64, 2].map(i64::to_ne_bytes).concat().into());
                        window.accumulate(&two, to, sum()).unwrap();
                        let one = place(rank, 48, 1, &int);
                        window.accumulate(&number(3), one, sum()).unwrap();
                    }
                    let (ticket, to) = (Region::owned(8), place(1, 32, 1, &int));
                    window.get_accumulate(Some(&number(1)), &ticket, to, sum()).unwrap();
                    window.flush_local(1).unwrap();
                    tickets.push(value(&ticket));
                }
                window.flush_all().unwrap();
                tickets
            })
        });
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    let mut sorted = tickets;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..3 * ROUNDS), "each ticket is drawn once");
    for position in 0..2 {
        let memory = node.part(position);
        assert_eq!(value(&memory.slice(8, 8)), 3 * ROUNDS);
        assert_eq!(value(&memory.slice(16, 8)), 6 * ROUNDS);
        assert_eq!(value(&memory.slice(48, 8)), 9 * ROUNDS);
    }
}

#[test]
fn a_flush_of_any_thread_applies_accumulates_that_wait() {
    let memory = Region::owned(800);
    let mut windows = windows(|_| WindowMemory::Own(memory.clone()));
    windows[0].0.ignore_accumulate_order();
    let window = &windows[0].0;
    let mut random = Random::new(3);
    let mut model = [0; 100];
    for _ in 0..500 {
        for _ in 0..random.below(40) {
            let element = random.below(100);
            let to = &int();
            window.accumulate(&number(1), place(0, 8 * element as i64, 1, to), sum()).unwrap();
            model[element] += 1;
        }
        thread::scope(|scope| scope.spawn(|| window.flush(0)).join().expect("a thread")).unwrap();
        for (element, expected) in (0..).zip(model) {
            assert_eq!(value(&memory.slice(8 * element, 8)), expected, "element {element}");
        }
    }
}

#[test]
fn a_lock_excludes_others_whichever_way_they_come() {
    let (node, _) = NodeMemory::create(&[8, 8], false).unwrap();
    let windows = windows(|rank| match rank {
        2 => WindowMemory::Own(Region::owned(8)),
        _ => WindowMemory::Node(node.clone(), vec![0, 1]),
    });
    const ROUNDS: i64 = 300;
    thread::scope(|scope| {
        for (window, _) in &windows {
            scope.spawn(move || {
                let int = int();
                for round in 0..ROUNDS {
                    for rank in [0, 2] {
                        window.lock(rank, LockKind::Exclusive).unwrap();
                        let read = Region::owned(8);
                        window.get(&read, place(rank, 0, 1, &int)).unwrap();
                        window.flush(rank).unwrap();
                        window.put(&number(value(&read) + 1), place(rank, 0, 1, &int)).unwrap();
                        window.unlock(rank, LockKind::Exclusive).unwrap();
                    }
                    if round % 7 == 0 {
                        window.lock(1, LockKind::Shared).unwrap();
                        window.unlock(1, LockKind::Shared).unwrap();
                    }
                }
            });
        }
    });
    for rank in [0, 2] {
        let (window, int, read) = (&windows[1].0, int(), Region::owned(8));
        window.get(&read, place(rank, 0, 1, &int)).unwrap();
        window.flush(rank).unwrap();
        assert_eq!(value(&read), 3 * ROUNDS);
    }
}

#[test]
fn a_flush_returns_no_sooner_for_the_flushes_of_other_threads() {
    let memories = [0, 1, 2].map(|_| Region::owned(64));
    let windows = windows(|rank| WindowMemory::Own(memories[rank as usize].clone()));
    let (window, memories) = (&windows[0].0, &memories);
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let (int, at) = (int(), 8 * thread);
                for round in 0..150 {
                    for rank in [1, 2] {
                        let place = place(rank, at, 1, &int);
                        window.put(&number(round), place).unwrap();
                        window.flush(rank).unwrap();
                        let memory = memories[rank as usize].slice(at as usize, 8);
                        assert_eq!(value(&memory), round, "a put of thread {thread}");
                        let read = Region::owned(8);
                        window.get(&read, place).unwrap();
                        window.flush_local(rank).unwrap();
                        assert_eq!(value(&read), round, "a get of thread {thread}");
                    }
                }
            });
        }
    });
}

/// The memory of the targets is read by their own handlers only, so that a thread sanitizer sees all that orders it.
#[test]
fn threads_share_a_window() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 100;
    let windows = windows(|_| WindowMemory::Own(Region::owned(8 + 8 * THREADS as usize)));
    let window = &windows[0].0;
    let read = |rank, at| {
        let (int, into) = (int(), Region::owned(8));
        let from = place(rank, at, 1, &int);
        let mut request = window.with_request(|window| window.get(&into, from)).unwrap();
        windows[0].1.wait(|worker| request.poll(worker)).unwrap();
        value(&into)
    };
    let tickets: Vec<i64> = thread::scope(|scope| {
        let workers = (1..=THREADS).map(|thread| {
            scope.spawn(move || {
                let (int, own, mut tickets) = (int(), 8 * thread, Vec::new());
                for round in 0..ROUNDS {
                    let (rank, ticket) = ((thread + round) as u32 % 3, Region::owned(8));
                    window.put(&number(round), place(rank, own, 1, &int)).unwrap();
                    let counter = place(1, 0, 1, &int);
                    window.get_accumulate(Some(&number(1)), &ticket, counter, sum()).unwrap();
                    window.flush(rank).unwrap();
                    window.flush_local(1).unwrap();
                    tickets.push(value(&ticket));
                    assert_eq!(read(rank, own), round, "a put of thread {thread}");
                }
                window.flush_all().unwrap();
                tickets
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a thread")).collect()
    });
    let mut sorted = tickets;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..THREADS * ROUNDS), "each ticket is drawn once");
    assert_eq!(read(1, 0), THREADS * ROUNDS);
}

#[test]
fn one_of_many_swaps_succeeds() {
    let windows = windows(|_| WindowMemory::Own(Region::owned(8)));
    let won: usize = thread::scope(|scope| {
        let workers = (1..).zip(&windows).map(|(me, (window, _))| {
            scope.spawn(move || {
                let (int, old) = (int(), Region::owned(8));
                let to = place(1, 0, 1, &int);
                window.compare_and_swap(&number(me), &number(0), &old, to, sum()).unwrap();
                window.flush(1).unwrap();
                usize::from(value(&old) == 0)
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    });
    assert_eq!(won, 1);
}

#[test]
fn attached_memory_is_named_by_its_address_and_requests_end_by_themselves() {
    let windows = windows(|_| WindowMemory::Dynamic);
    let [(window, progress), (target, _), _] = &windows;
    let memory = Region::owned(100_000);
    let address = memory.as_span().expect("one span").address as u64;
    target.attach(memory.clone()).unwrap();
    assert_eq!(target.attach(memory.slice(10, 10)), Err(AccessFault::Attach));
    let bytes: Arc<Layout> = Arc::clone(Datatype::builtin(Builtin::Byte).layout());
    let data = Region::from_box(vec![7; 50_000].into());
    let to = |at: i64, count| place(1, address as i64 + at, count, &bytes);
    let mut put = window.with_request(|window| window.put(&data, to(100, 50_000))).unwrap();
    assert_eq!(progress.wait(|worker| put.poll(worker)), Ok(()));
    window.flush(1).unwrap();
    let into = Region::owned(50_010);
    let mut get = window.with_request(|window| window.get(&into, to(95, 50_010))).unwrap();
    window.flush(1).unwrap();
    assert!(progress.look(|worker| get.is_complete(worker)));
    assert_eq!(progress.wait(|worker| get.poll(worker)), Ok(()));
    assert_eq!(into.to_vec(), memory.slice(95, 50_010).to_vec());
    assert_eq!(memory.slice(99, 2).to_vec(), [0, 7]);
    assert_eq!(
        (target.detach(address + 1), target.detach(address)),
        (Err(AccessFault::Attach), Ok(()))
    );
    windows.iter().for_each(|(window, _)| window.close());
}

const WINDOW_LEN: usize = 20_000;
