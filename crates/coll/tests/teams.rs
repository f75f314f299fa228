//! Collectives of teams that are no communicators: ranks of one process, over shared memory and over TCP.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use coll::{Call, Collective, Collectives, Elements, Failure, Fault, Form, Routine, Shape, Team};
use datatype::{Builtin, Datatype, Op, Predefined};
use engine::{Config, Engine};
use memory::Region;
use plan::{Costs, Operands, Topology};
use progress::{Directory, Policy, Progress, Worker};
use rail::Rail;
use rail_shm::{ShmConfig, ShmRail};
use rail_tcp::{TcpConfig, TcpRail};
use wire::PeerId;

#[test]
fn all_ranks_have_the_result_in_each_form() {
    for (transport, size) in
        [(Transport::Shm, 2), (Transport::Shm, 5), (Transport::Tcp, 2), (Transport::Tcp, 3)]
    {
        each_of(transport, size, |rank| {
            for round in 0..ROUNDS {
                let sum = Region::owned(8 * LEN);
                rank.summing(Form::Blocking, round, &sum).run().expect("all ranks live");
                assert_eq!(sum.to_vec(), rank.expected(round), "{transport:?}, round {round}");
            }
            let has_segment = rank.collectives().shared_places().is_some();
            assert_eq!(has_segment, transport == Transport::Shm, "{transport:?}, {size} ranks");
            let sums = [Region::owned(8 * LEN), Region::owned(8 * LEN)];
            let kept = Arc::new(rank.summing(Form::Persistent, 7, &sums[0]));
            for _ in 0..2 {
                let ended = Arc::new(AtomicBool::new(false));
                let then = Arc::clone(&ended);
                let then = Box::new(move |is_ok| then.store(is_ok, Ordering::Relaxed));
                let others = Arc::new(rank.summing(Form::Nonblocking, 9, &sums[1]));
                let first = Arc::clone(&kept).start().followed_by(&rank.progress, then);
                let pending = [first, others.start()];
                for one in &pending {
                    let end = rank.progress.wait(|_| one.end().cloned());
                    assert_eq!(end, None);
                }
                assert!(ended.load(Ordering::Relaxed));
                assert_eq!(sums.each_ref().map(Region::to_vec), [7, 9].map(|it| rank.expected(it)));
            }
        });
    }
}

#[test]
fn rank_that_expects_another_length_names_the_sender_and_both_lengths() {
    each_of(Transport::Tcp, 2, |rank| {
        let len = if rank.rank == 0 { 8 } else { 4 };
        let call = Call::new(Arc::clone(rank), Form::Blocking);
        let shape = Shape::of(Routine::Bcast).with_len(len);
        let plan = call.plan(shape, |rank, places| plan::broadcast(rank, places, 0, len));
        let end = call.bytes(plan, Region::empty(), Region::owned(len as usize)).run();
        let text =
            "rank 0 sent 8 bytes where 4 were expected: counts or types differ between processes";
        let unfit = Box::new(Failure { fault: Fault::Length, message: text.into() });
        assert_eq!(end, if rank.rank == 0 { Ok(()) } else { Err(unfit) });
    });
}

#[test]
fn a_revocation_ends_the_collectives_of_all_ranks() {
    for transport in [Transport::Shm, Transport::Tcp] {
        each_of(transport, 3, |rank| {
            let sum = Region::owned(8 * LEN);
            let has_failed = |end: Result<(), Box<Failure>>| {
                assert_eq!(
                    end.map_err(|failure| failure.fault),
                    Err(Fault::PeerGone),
                    "{transport:?}"
                );
            };
            if rank.rank == 2 {
                // The others wait for this rank, and then find it gone.
                rank.progress.submit(|worker| worker.revoke_context(CONTEXT, PeerId(2)));
            }
            has_failed(rank.summing(Form::Blocking, 0, &sum).run());
            has_failed(rank.summing(Form::Blocking, 0, &sum).run());
        });
    }
}

/// Rails between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Shm,
    Tcp,
}

/// A rank of a team.
struct Rank {
    progress: Arc<Progress>,
    rank: u32,
    size: u32,
    places: Topology,
    wants_shm_coll: bool,
    collectives: Collectives,
}

impl Rank {
    /// Makes an allreduce of `LEN` integers, which depend on rank and round.
    fn summing(self: &Arc<Self>, form: Form, round: u64, sum: &Region) -> Collective<Arc<Self>> {
        let call = Call::new(Arc::clone(self), form);
        let (len, element) = (LEN as u64, 8);
        let operands = Operands { len, element, commutes: true, is_exact: true, in_place: false };
        let shape =
            Shape { element, commutes: true, is_exact: true, ..Shape::of(Routine::Allreduce) };
        let plan =
            call.plan(shape.with_len(len), |rank, places| plan::allreduce(rank, places, operands));
        call.elements(
            plan,
            Elements {
                input: Region::from_box(bytes(|place| u64::from(self.rank) * round + place).into()),
                output: sum.clone(),
                datatype: Cow::Owned(Datatype::builtin(Builtin::Uint64T)),
                handle: 0,
                op: Op::Predefined(Predefined::Sum),
            },
        )
    }

    fn expected(&self, round: u64) -> Vec<u8> {
        let ranks = u64::from(self.size);
        bytes(|place| ranks * (ranks - 1) / 2 * round + ranks * place)
    }
}

fn bytes(number: impl Fn(u64) -> u64) -> Vec<u8> {
    (0..LEN as u64).flat_map(|place| number(place).to_le_bytes()).collect()
}

impl Team for Rank {
    fn context(&self) -> u64 {
        CONTEXT
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn peer(&self, rank: u32) -> PeerId {
        PeerId(rank)
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn places(&self) -> &Topology {
        &self.places
    }

    fn wants_shm_coll(&self) -> bool {
        self.wants_shm_coll
    }

    fn collectives(&self) -> &Collectives {
        &self.collectives
    }
}

/// Runs `body` in a thread for each rank of a team.
fn each_of(transport: Transport, size: u32, body: impl Fn(&Arc<Rank>) + Sync) {
    testing::end_together(PATIENCE);
    let rails: Vec<Box<dyn Rail>> = (0..size).map(|rank| rail(transport, rank)).collect();
    let addresses = rails.iter().map(|rail| (rail.name().into(), rail.address()));
    let addresses: Vec<(String, Vec<u8>)> = addresses.collect();
    let open = |(rank, rail): (u32, Box<dyn Rail>)| {
        let engine = Engine::new(Config::new(size as usize));
        let directory = Box::new(All { own: rank, addresses: addresses.clone() });
        let worker = Worker::new(engine, PeerId(rank), size as usize, vec![rail], directory);
        let progress = Progress::new(worker, Policy::for_node(size as usize, 1));
        Arc::new(Rank {
            progress: progress.expect("descriptors"),
            rank,
            size,
            places: Topology::flat(size, true, Costs::default()),
            wants_shm_coll: transport == Transport::Shm,
            collectives: Collectives::default(),
        })
    };
    let ranks: Vec<Arc<Rank>> = (0..).zip(rails).map(open).collect();
    let all_are_done = Barrier::new(ranks.len());
    thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(|| {
                body(rank);
                all_are_done.wait();
            });
        }
    });
}

fn rail(transport: Transport, rank: u32) -> Box<dyn Rail> {
    let rank = PeerId(rank);
    match transport {
        Transport::Shm => {
            let config = ShmConfig { rank, job: [7; 16], host: cost::HostCost::default() };
            Box::new(ShmRail::new(config).expect("shared memory"))
        }
        Transport::Tcp => {
            let config = TcpConfig {
                interface: Some("127.0.0.1".into()),
                connect_timeout: Duration::from_secs(20),
                ..TcpConfig::new(rank, 7, [9; 32])
            };
            Box::new(TcpRail::new(config).expect("a rail over the loopback"))
        }
    }
}

/// Addresses of all ranks.
struct All {
    own: u32,
    addresses: Vec<(String, Vec<u8>)>,
}

impl Directory for All {
    fn addresses(&mut self, peer: PeerId) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![self.addresses[peer.0 as usize].clone()])
    }

    fn members(&mut self, _context: u64) -> Option<Vec<PeerId>> {
        let size = self.addresses.len() as u32;
        Some((0..size).map(|step| PeerId((self.own + step) % size)).collect())
    }
}

/// Upper limit for all tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// Context of the team's messages.
const CONTEXT: u64 = 5;

/// Number of blocking collectives, more than without a shared segment.
const ROUNDS: u64 = 9;

/// Integers of each rank.
const LEN: usize = 300;
