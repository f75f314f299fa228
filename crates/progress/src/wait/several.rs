//! Waiting on several VCIs of the process at once.
//!
//! A thread that waits on one VCI polls for all that wait there. A thread that waits on several polls each
//! of them in turn for a while. It then sleeps like a thread that leaves polling to others: the progress thread polls
//! each of them and wakes it.

use std::time::{Duration, Instant};

use crate::parker::Parker;
use crate::wait::{MAX_SLEEP, Progress};
use crate::waiters::Awaited;
use crate::worker::Worker;

impl Progress {
    /// Polls each of `all`, at most 64, until `ready` answers; its argument is the index of the polled one.
    pub fn wait_in_any<T>(
        all: &[&Self],
        mut ready: impl FnMut(usize, &mut Worker) -> Option<T>,
    ) -> T {
        // Bit set of those whose peers know that this thread stays until its offered messages are sent.
        let mut attentive = 0u64;
        let answer = loop {
            for (index, one) in all.iter().enumerate() {
                let is_new = attentive >> index & 1 == 0;
                if is_new && one.cores.has_a_core() && one.begin_to_attend() {
                    attentive |= 1 << index;
                }
            }
            let answer = Self::poll_all(all, &mut ready);
            if let Some(answer) = answer.or_else(|| Self::sleep_in_all(all, &mut ready)) {
                break answer;
            }
        };
        for (_, one) in all.iter().enumerate().filter(|(index, _)| attentive >> index & 1 == 1) {
            one.lock().set_attentive(false);
        }
        answer
    }

    /// Tells peers that this thread stays until its offered messages are sent; false if there are none.
    fn begin_to_attend(&self) -> bool {
        let mut worker = self.lock();
        let has_offers = worker.engine.has_offers();
        if has_offers {
            worker.set_attentive(true);
        }
        has_offers
    }

    /// Polls each in turn for as long as a thread polls before it sleeps.
    fn poll_all<T>(
        all: &[&Self],
        ready: &mut impl FnMut(usize, &mut Worker) -> Option<T>,
    ) -> Option<T> {
        let mut began = None;
        loop {
            for (index, one) in all.iter().enumerate() {
                let answer = one.test(|worker| ready(index, worker));
                if answer.is_some() {
                    return answer;
                }
            }
            let began = *began.get_or_insert_with(Instant::now);
            let spin =
                |one: &&Self| if one.has_a_core() { one.cores.spin() } else { Duration::ZERO };
            if all.iter().map(spin).max().is_none_or(|spin| began.elapsed() >= spin) {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps until an event that `ready` asks for may have come to one of them, unless it is there already.
    fn sleep_in_all<T>(
        all: &[&Self],
        ready: &mut impl FnMut(usize, &mut Worker) -> Option<T>,
    ) -> Option<T> {
        let parker = Parker::of_this_thread();
        let mut answer = None;
        let mut asleep = 0;
        for (index, one) in all.iter().enumerate() {
            let mut worker = one.lock();
            let before = worker.engine.event_count();
            worker.awaited = Awaited::Events;
            worker.asker_polls = false;
            answer = ready(index, &mut worker);
            worker.settle();
            one.report(&mut worker, before);
            if answer.is_none() {
                worker.note_wait();
                let awaited = std::mem::take(&mut worker.awaited);
                worker.waiters.add(&parker, awaited);
                worker.counters.waits_without_polling += 1;
                asleep += 1;
            }
            one.leave(&mut worker);
            drop(worker);
            if answer.is_some() {
                break;
            }
        }
        if answer.is_none() {
            let rest = all[0].siblings.rest(MAX_SLEEP);
            if !parker.sleep(Duration::ZERO, Some(Instant::now() + rest)) {
                all[0].poll_siblings();
            }
        }
        for one in &all[..asleep] {
            one.lock().waiters.remove(&parker);
        }
        parker.restore_affinity();
        answer
    }
}
