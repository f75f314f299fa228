//! Sessions stay in their job, and leave it only after a collective user.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runtime::shared::{self, JobPlace};
use runtime::{Instance, Needs};

fn begin() -> Arc<Instance> {
    shared::begin_session(&Needs::default()).expect("a session");
    assert_eq!(shared::place(), Ok(JobPlace { rank: 0, size: 1 }));
    shared::of_session(&Needs::default()).expect("an instance")
}

fn is_present(instance: &Arc<Instance>) -> bool {
    shared::present().is_some_and(|present| Arc::ptr_eq(&present, instance))
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists threads").count()
}

#[test]
fn a_process_stays_after_its_sessions_but_not_after_a_collective_user() {
    let threads_before = threads();
    assert!(shared::end_session().is_err() && shared::leave().is_err());
    let first = begin();
    shared::begin_session(&Needs::default()).expect("another session");
    shared::end_session().expect("an end");
    shared::end_session().expect("an end");
    assert!(is_present(&first), "for later sessions");
    assert!(Arc::ptr_eq(&first, &begin()));
    // The World Model comes and goes beside it.
    let joined = shared::join(&Needs::default()).expect("an instance");
    assert!(Arc::ptr_eq(&first, &joined));
    shared::leave().expect("an end");
    assert!(is_present(&first), "a session goes on");
    shared::end_session().expect("an end");
    assert!(shared::present().is_none(), "other processes wait for it in MPI_Finalize");
    let second = begin();
    assert!(!Arc::ptr_eq(&first, &second));
    shared::end_session().expect("an end");
    assert!(is_present(&second));
    shared::leave_at_exit();
    assert!(shared::present().is_none());
    // A collective user may come and go before the thread has begun that joins for a session.
    let is_over = Arc::new(AtomicBool::new(false));
    let spin = |is_over: Arc<AtomicBool>| while !is_over.load(Ordering::Relaxed) {};
    let spinning = [(); 8].map(|()| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || spin(is_over))
    });
    for _ in 0..50 {
        shared::begin_session(&Needs::default()).expect("a session");
        shared::join(&Needs::default()).expect("an instance");
        shared::end_session().expect("an end");
        shared::leave().expect("an end");
        assert!(shared::present().is_none());
    }
    is_over.store(true, Ordering::Relaxed);
    for thread in spinning {
        thread.join().expect("no panic");
    }
    // Until the last of the threads that join has ended.
    while threads() > threads_before {
        assert!(shared::present().is_none(), "it joins all the same");
        std::thread::yield_now();
    }
    assert!(shared::present().is_none(), "it joins all the same");
}
