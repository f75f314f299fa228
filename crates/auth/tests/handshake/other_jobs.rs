//! Processes of two jobs, which share a key of their own.

use auth::{Credentials, Handshake, HandshakeEnd, Keyring, Opening, OtherJobs, Own, Step};
use connect::Refusal;
use testing::Random;
use wire::{PeerId, ProcessId};

use crate::pipe::{self, DEADLINE, Party, Proof, first_opening};

const ONE: ProcessId = ProcessId { job: 7, rank: 2 };
const OTHER: ProcessId = ProcessId { job: 9, rank: 4 };
/// Number under which `ONE` knows `OTHER`.
const THERE: PeerId = PeerId(5);
/// Number under which `OTHER` knows `ONE`.
const HERE: PeerId = PeerId(8);

/// Returns a process of a job whose secret is its number.
fn process(ProcessId { job, rank }: ProcessId) -> Keyring {
    Keyring::new(Credentials { rank: PeerId(rank), job, secret: [job as u8; 32].into() })
}

/// Returns `ONE`, which shares this key with `OTHER`.
fn one(key: u8) -> Keyring {
    let mut one = process(ONE);
    one.add(THERE, OTHER, &[key; 32]);
    one
}

/// Returns `OTHER`, which shares this key with `ONE`.
fn other(key: u8) -> Keyring {
    let mut other = process(OTHER);
    other.add(HERE, ONE, &[key; 32]);
    other
}

/// Carries out a handshake, in which the caller finds the acceptor under this number. Returns the number under which the
/// acceptor knows the caller.
fn meet(
    proof: Proof,
    caller: Keyring,
    wanted: PeerId,
    acceptor: Keyring,
) -> Result<PeerId, Refusal> {
    let mut random = Random::new(1);
    let asked = first_opening(caller.own().rank, wanted);
    let mut caller = Party::caller(proof, caller, asked, &mut random);
    let mut acceptor = Party::acceptor(proof, acceptor);
    match pipe::meet(&mut caller, &mut acceptor, &mut random) {
        Ok(Step::Identified { peer, .. }) => Ok(peer),
        Err(HandshakeEnd::Refused(refusal)) => Err(refusal),
        end => panic!("{end:?}"),
    }
}

#[test]
fn processes_of_two_jobs_meet_with_the_key_of_the_two_only() {
    let meet = |caller, wanted, acceptor| meet(Proof::Codes, caller, wanted, acceptor);
    assert_eq!(meet(process(ONE), PeerId(OTHER.rank), process(OTHER)), Err(Refusal::Job));
    assert_eq!(meet(one(1), THERE, process(OTHER)), Err(Refusal::Job), "not known there");
    assert_eq!(meet(one(1), THERE, other(1)), Ok(HERE));
    assert_eq!(meet(other(1), HERE, one(1)), Ok(THERE));
    assert_eq!(meet(one(1), THERE, other(2)), Err(Refusal::Secret), "another key");
    assert_eq!(meet(other(2), HERE, one(1)), Err(Refusal::Secret), "another key");
}

#[test]
fn the_key_of_two_jobs_opens_no_other_link() {
    // The other job knows this key, but not the secret of ours.
    let liar = Credentials { rank: PeerId(0), job: ONE.job, secret: [1; 32].into() };
    let own = PeerId(ONE.rank);
    assert_eq!(meet(Proof::Codes, Keyring::new(liar), own, one(1)), Err(Refusal::Secret));
    // Another process of that job is not known.
    let sibling = process(ProcessId { rank: 5, ..OTHER });
    assert_eq!(meet(Proof::Codes, sibling, own, one(1)), Err(Refusal::Job));
    // Both ends make the same identity of it, which differs from that of either job.
    let id = |keys: Keyring, peer| keys.identity(peer).first_ids().make([0; 8]);
    assert_eq!(id(one(1), THERE), id(other(1), HERE));
    assert_ne!(id(one(1), THERE), id(one(1), PeerId(0)));
}

#[test]
fn a_channel_that_has_proved_one_job_carries_no_other() {
    let own = PeerId(OTHER.rank);
    assert_eq!(meet(Proof::Channel, one(1), own, other(1)), Err(Refusal::Job));
}

#[test]
fn a_channel_that_has_proved_a_shared_key_carries_its_holders_only() {
    let mut holders = OtherJobs::new(OTHER);
    holders.add(HERE, ONE, &[1; 32]);
    assert!(holders.share(ONE.job, &[1; 32]));
    assert!(!holders.share(ONE.job, &[2; 32]) && !holders.share(OTHER.job, &[1; 32]));
    let channel = |process: ProcessId, others| {
        let rank = PeerId(process.rank);
        Own::Channel { job: process.job, rank, known_as: rank, others }
    };
    let meet = |caller: ProcessId, wanted| {
        let asked = first_opening(PeerId(caller.rank), wanted);
        let opening = Opening { asked, wanted, encrypts: true, note: [0; 4], nonce: [0; 32] };
        let (_, hello) = Handshake::call(&channel(caller, None), &opening, DEADLINE);
        let (mut acceptor, own) = (Handshake::listen(DEADLINE), channel(OTHER, Some(&holders)));
        acceptor.handle_bytes(&own, &mut &hello[..], || unreachable!("the channel has proved both"))
    };
    let own = PeerId(OTHER.rank);
    assert_eq!(meet(ONE, own), Ok(Step::Identified { peer: HERE, generation: 1 }));
    let (sibling, stranger) = (ProcessId { rank: 3, ..OTHER }, ProcessId { rank: 3, ..ONE });
    for (caller, wanted) in [(sibling, own), (stranger, own), (ONE, PeerId(OTHER.rank + 1))] {
        assert_eq!(meet(caller, wanted), Err(Refusal::Job.into()), "{caller} wants {wanted:?}");
    }
}

#[test]
fn processes_of_a_job_meet_as_if_there_were_no_other() {
    let sibling = || process(ProcessId { rank: 3, ..ONE });
    assert_eq!(meet(Proof::Codes, one(1), PeerId(3), sibling()), Ok(PeerId(ONE.rank)));
    assert_eq!(meet(Proof::Codes, sibling(), PeerId(ONE.rank), one(1)), Ok(PeerId(3)));
    assert_eq!(meet(Proof::Codes, one(1), PeerId(4), sibling()), Err(Refusal::Job));
}
