//! Strangers, other versions, changed and recorded bytes, silence.

use std::time::Duration;

use auth::{
    ANSWER_LEN, Credentials, DECLINES, HELLO_LEN, Handshake, HandshakeEnd, Keyring, Outcome,
    PROOF_LEN, Step, VERDICT_LEN, answer_to, verdict,
};
use connect::{DialFailure, Links, Refusal, other_version};
use proptest::prelude::*;
use testing::Random;
use wire::PROTOCOL_VERSION;

use crate::pipe::{
    ACCEPTOR, CALLER, DEADLINE, JOB, PROOFS, Party, Proof, credentials, first_opening, introduce,
    keys, refusal,
};

fn links() -> Links<usize> {
    Links::new(CALLER, DEADLINE)
}

fn caller(proof: Proof, own: Credentials, random: &mut Random) -> Party {
    let asked = first_opening(own.rank, ACCEPTOR);
    Party::caller(proof, Keyring::new(own), asked, random)
}

#[test]
fn honest_ends_agree_and_frames_behind_the_verdict_are_left() {
    let mut random = Random::new(1);
    for proof in PROOFS {
        let (mut caller, acceptor, step) = introduce(proof, &mut random);
        assert_eq!(step, Step::Identified { peer: CALLER, generation: 1 });
        assert!(acceptor.handshake.is_known() && caller.handshake.is_proved());
        let said = [&verdict(5)[..], b"frames"].concat();
        let mut bytes = &said[..];
        let asked = first_opening(CALLER, ACCEPTOR);
        assert_eq!(
            caller.hear(&mut bytes, &mut random),
            Ok(Step::Accepted { asked, generation: 5 })
        );
        assert_eq!(bytes, b"frames");
        let (mut caller, ..) = introduce(proof, &mut random);
        assert_eq!(caller.hear(&mut &DECLINES[..], &mut random), Err(HandshakeEnd::Declined));
    }
}

#[test]
fn strangers_are_refused_for_their_reason() {
    let mut random = Random::new(2);
    let own = credentials(CALLER);
    for proof in PROOFS {
        let mut judged = |said: &[u8]| {
            let mut acceptor = Party::acceptor(proof, keys(ACCEPTOR));
            let end = acceptor.hear(&mut &*said, &mut random);
            let (refusal, mut links) = (refusal(end.clone()), links());
            let outcome = end.err().map(|end| acceptor.handshake.end(end, &mut links));
            assert_eq!(outcome, refusal.map(Outcome::Stranger), "it is reported");
            refusal
        };
        let mut random = Random::new(3);
        let mut hello = |own: Credentials| caller(proof, own, &mut random).said;
        assert_eq!(judged(&hello(Credentials { job: JOB + 1, ..own.clone() })), Some(Refusal::Job));
        assert_eq!(judged(b"GET / HTTP/1.1\r\n\r\n"), Some(Refusal::Protocol));
        assert_eq!(judged(&[0xff; 1 << 12]), Some(Refusal::Protocol));
        // A hello of a version with a shorter one is not awaited for ever.
        for version in (0..=u8::MAX).filter(|version| *version != PROTOCOL_VERSION) {
            let mut said = hello(own.clone());
            said[7] = version;
            let refusal = Refusal::Version { theirs: version, own: PROTOCOL_VERSION };
            for len in [8, 28, HELLO_LEN] {
                assert_eq!(judged(&said[..len]), Some(refusal), "{proof:?}, {len} bytes");
            }
            // The answer makes the other end name both versions, too.
            let answer = answer_to(refusal).expect("the own version");
            assert_eq!(other_version(&answer), None);
        }
        for other in [Refusal::Job, Refusal::Secret, Refusal::Protocol, Refusal::Slow] {
            assert_eq!(answer_to(other), None);
        }
    }
}

#[test]
fn a_wrong_secret_is_noticed_by_both_ends() {
    let mut random = Random::new(4);
    let thief = Credentials { secret: [0; 32].into(), ..credentials(CALLER) };
    let mut stranger = caller(Proof::Codes, thief, &mut random);
    let mut acceptor = Party::acceptor(Proof::Codes, keys(ACCEPTOR));
    assert_eq!(acceptor.hear(&mut &stranger.said[..], &mut random), Ok(Step::Waits));
    let end = stranger.hear(&mut &acceptor.said[..], &mut random);
    assert_eq!(refusal(end.clone()), Some(Refusal::Secret));
    // It is not what it looks for either; three such rounds end the search.
    let failure = DialFailure::stranger(Refusal::Secret.to_string());
    let outcome = stranger.handshake.end(end.unwrap_err(), &mut links());
    assert_eq!(outcome, Outcome::Attempt(ACCEPTOR, failure));
    // A proof of any bytes does not help.
    let end = acceptor.hear(&mut &[7; PROOF_LEN][..], &mut random);
    assert_eq!(refusal(end.clone()), Some(Refusal::Secret));
    let outcome = acceptor.handshake.end(end.unwrap_err(), &mut links());
    assert_eq!(outcome, Outcome::Stranger(Refusal::Secret));
}

#[test]
fn a_recorded_opening_proves_nothing() {
    let mut random = Random::new(5);
    let (caller, ..) = introduce(Proof::Codes, &mut random);
    assert_eq!(caller.said.len(), HELLO_LEN + PROOF_LEN);
    let mut acceptor = Party::acceptor(Proof::Codes, keys(ACCEPTOR));
    let end = acceptor.hear(&mut &caller.said[..], &mut random);
    assert_eq!(refusal(end), Some(Refusal::Secret));
}

#[test]
fn a_proof_over_other_keys_proves_nothing() {
    let mut random = Random::new(8);
    let (recorded, ..) = introduce(Proof::Keys, &mut random);
    assert_eq!(recorded.said.len(), HELLO_LEN + PROOF_LEN);
    // Who is between two ends has other keys with each, and an end without keys takes no proof by them.
    for (binding, reason) in [([8; 32], Refusal::Secret), ([0; 32], Refusal::Clear)] {
        let mut acceptor = Party::acceptor(Proof::Keys, keys(ACCEPTOR));
        acceptor.binding = binding;
        let end = acceptor.hear(&mut &recorded.said[..], &mut random);
        assert_eq!(refusal(end), Some(reason));
    }
    // Nor does another hello fit, for example one that wants another process.
    let mut acceptor = Party::acceptor(Proof::Keys, keys(ACCEPTOR));
    let other = caller(Proof::Keys, credentials(CALLER), &mut random).said;
    let said = [&other[..], &recorded.said[HELLO_LEN..]].concat();
    assert_eq!(refusal(acceptor.hear(&mut &said[..], &mut random)), Some(Refusal::Secret));
}

#[test]
fn each_message_may_stop_short_anywhere_and_silence_has_an_end() {
    let mut random = Random::new(6);
    for proof in PROOFS {
        let (whole, ..) = introduce(proof, &mut random);
        for len in 0..whole.said.len() {
            let mut acceptor = Party::acceptor(proof, keys(ACCEPTOR));
            let said = match len {
                0..HELLO_LEN => &whole.said[..len],
                // The proof of this connection, not of a recorded one.
                _ => &whole.said[..HELLO_LEN],
            };
            assert_eq!(acceptor.hear(&mut &*said, &mut random), Ok(Step::Waits));
            let handshake = acceptor.handshake;
            assert!(!handshake.is_late(DEADLINE - Duration::from_nanos(1), || true));
            assert!(handshake.is_late(DEADLINE, || true));
            // Who has said a valid hello may compute, or have found a better path.
            let is_known = len >= HELLO_LEN;
            assert_eq!(handshake.is_known(), is_known);
            let outcome = handshake.end(HandshakeEnd::Late, &mut links());
            let reported = Outcome::Stranger(Refusal::Slow);
            assert_eq!(outcome, if is_known { Outcome::Excused } else { reported });
        }
    }
}

/// A caller that has proved itself waits for the verdict as long as the host of the acceptor is alive. If the
/// connection ends before, the next opening has a later number.
#[test]
fn an_opening_without_a_verdict_may_have_succeeded() {
    let mut random = Random::new(7);
    for proof in PROOFS {
        for (end, is_answered) in [
            (HandshakeEnd::Late, false),
            (HandshakeEnd::Failed("reset".into()), false),
            (HandshakeEnd::Refused(Refusal::Closed), false),
            (HandshakeEnd::Refused(Refusal::Protocol), false),
            (HandshakeEnd::Refused(Refusal::Version { theirs: 1, own: 2 }), true),
            (HandshakeEnd::Declined, true),
        ] {
            let (proved, ..) = introduce(proof, &mut random);
            assert!(!proved.handshake.is_late(10 * DEADLINE, || true));
            assert!(proved.handshake.is_late(DEADLINE, || false));
            let mut links = links();
            let outcome = proved.handshake.end(end.clone(), &mut links);
            assert_eq!(outcome, Outcome::Attempt(ACCEPTOR, end.into()));
            let next = if is_answered { 1 } else { 2 };
            assert_eq!(links.ask(ACCEPTOR, false).generation(), next);
        }
    }
    for proof in [Proof::Codes, Proof::Keys] {
        let called = caller(proof, credentials(CALLER), &mut random);
        assert!(called.handshake.is_late(DEADLINE, || true));
        let mut links = links();
        called.handshake.end(HandshakeEnd::Late, &mut links);
        assert_eq!(links.ask(ACCEPTOR, false).generation(), 1, "it has proved nothing");
    }
}

#[test]
fn keys_that_nobody_awaits_are_refused() {
    let own = keys(ACCEPTOR);
    let end = Handshake::listen(DEADLINE).handle_keys(&own, &[0; 32], [1; 32]);
    assert_eq!(end, Err(HandshakeEnd::Refused(Refusal::Protocol)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, in whatever pieces, nobody is identified, and no more than a message is kept.
    #[test]
    fn random_bytes_identify_nobody(
        seed: u64,
        honest in 0..HELLO_LEN + 1,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut random = Random::new(seed);
        let hello = caller(Proof::Codes, credentials(CALLER), &mut random).said;
        let mut said = hello[..honest].to_vec();
        said.extend(noise);
        let mut acceptor = Party::acceptor(Proof::Codes, keys(ACCEPTOR));
        match acceptor.hear(&mut &said[..], &mut random) {
            Ok(Step::Waits) | Err(HandshakeEnd::Refused(_)) => {}
            other => prop_assert!(false, "{other:?}"),
        }
        prop_assert!(acceptor.handshake.missing() <= HELLO_LEN);
        // Nor does an acceptor that says anything get a proof.
        let mut called = caller(Proof::Codes, credentials(CALLER), &mut random);
        let said_before = called.said.len();
        let end = called.hear(&mut &said[..], &mut random);
        prop_assert!(matches!(end, Ok(Step::Waits) | Err(HandshakeEnd::Refused(Refusal::Secret))), "{end:?}");
        prop_assert_eq!(called.said.len(), said_before);
        // A verdict is a verdict, or the end.
        let (mut proved, ..) = introduce(Proof::Channel, &mut random);
        let end = proved.hear(&mut &said[..], &mut random);
        let is_short = said.len() < VERDICT_LEN;
        prop_assert!(is_short == (end == Ok(Step::Waits)), "{end:?}");
    }

    /// A network that changes, repeats, drops or exchanges bytes of an honest exchange identifies nobody.
    #[test]
    fn a_network_that_alters_anything_is_noticed(seed: u64, at in 0..HELLO_LEN + ANSWER_LEN + PROOF_LEN, kind in 0..4, len in 1usize..40) {
        let mut random = Random::new(seed);
        let mut alter = |said: &[u8], at: usize| {
            let (mut altered, end) = (said.to_vec(), (at + len).min(said.len()));
            match kind {
                0 => altered[at] ^= 1 << random.below(8),
                1 => drop(altered.splice(end..end, said[at..end].iter().copied())),
                2 => drop(altered.drain(at..end)),
                _ => altered[at..end].reverse(),
            }
            altered
        };
        let mut random = Random::new(seed + 1);
        let mut called = caller(Proof::Codes, credentials(CALLER), &mut random);
        let mut acceptor = Party::acceptor(Proof::Codes, keys(ACCEPTOR));
        let hello = if at < HELLO_LEN { alter(&called.said, at) } else { called.said.clone() };
        let mut was_altered = hello != called.said;
        let mut heard = acceptor.hear(&mut &hello[..], &mut random);
        let mut answer = acceptor.said.clone();
        if let Some(at) = at.checked_sub(HELLO_LEN).filter(|at| *at < ANSWER_LEN) {
            answer = alter(&answer, at);
            was_altered |= answer != acceptor.said;
        }
        if heard == Ok(Step::Waits) {
            let _ = called.hear(&mut &answer[..], &mut random);
            let mut proof = called.said[HELLO_LEN..].to_vec();
            if let Some(at) = at.checked_sub(HELLO_LEN + ANSWER_LEN).filter(|_| !proof.is_empty()) {
                proof = alter(&proof, at);
                was_altered |= proof[..] != called.said[HELLO_LEN..];
            }
            heard = acceptor.hear(&mut &proof[..], &mut random);
        }
        let is_identified = matches!(heard, Ok(Step::Identified { .. }));
        // Bytes behind an intact answer or proof are not part of it.
        let answer_end = HELLO_LEN + ANSWER_LEN;
        let end = if at < answer_end { answer_end } else { answer_end + PROOF_LEN };
        let is_behind = kind == 1 && at >= HELLO_LEN && at + len >= end;
        prop_assert!(is_identified != was_altered || is_behind, "{heard:?}");
    }
}
