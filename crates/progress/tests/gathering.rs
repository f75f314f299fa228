//! Short messages that follow one another share frames, and leave though their sender stays away.

mod pair;

use std::thread;

use engine::{Envelope, Selector, SendMode};
use memory::Region;
use pair::{PATIENCE, pair};
use progress::Progress;
use wire::GateId;

#[test]
fn what_is_gathered_leaves_though_the_sender_stays_away() {
    let [sender, receiver] = pair();
    let other = thread::spawn(move || {
        // The first one opens the link.
        (0..=MESSAGES).all(|number| receive(&receiver).is_some_and(|got| got == [number; 8]))
    });
    send(&sender, 0);
    for number in 1..=MESSAGES {
        let data = Region::from_box([number; 8].into());
        if !sender.send_short(GateId(1), envelope(), &data) {
            send(&sender, number);
        }
    }
    // No call of the sender's from here on.
    assert!(other.join().unwrap(), "all messages arrive, in order");
    let counters = sender.look(|core| core.engine.counters());
    assert_eq!(counters.eager, u64::from(MESSAGES) + 1);
    assert!(counters.frames < counters.eager, "{counters:?}");
}

fn send(progress: &Progress, number: u8) {
    let data = Region::from_box([number; 8].into());
    let mode = SendMode::Standard;
    progress.submit_and_wait(
        |core| core.engine.submit_send(GateId(1), envelope(), &data, mode),
        |core, &op| core.engine.take(op),
    );
}

fn receive(progress: &Progress) -> Option<Vec<u8>> {
    let into = Region::owned(8);
    let selector = Selector { context: 0, source: Some(0), tag: Some(0) };
    let op = progress.submit(|core| core.engine.submit_receive(Some(GateId(0)), selector, &into));
    progress.wait_for(PATIENCE, |core| core.engine.take(op))?;
    Some(into.to_vec())
}

fn envelope() -> Envelope {
    Envelope { context: 0, source: 0, tag: 0, is_urgent: false }
}

const MESSAGES: u8 = 200;
