//! Processes of two jobs exchange messages, each proving the key that the two jobs share.

mod hub;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use engine::{Envelope, Outcome, Selector, SendMode};
use memory::Region;
use runtime::{Contact, Instance, Needs, context};
use wire::PeerId;

/// Contacts of the processes of two jobs, and a barrier for all of them.
struct Meeting {
    contacts: [Mutex<Vec<Contact>>; 2],
    all: Barrier,
    /// Number of processes that need no polling of the others any more.
    done: AtomicUsize,
}

impl Meeting {
    fn of(processes: usize) -> Arc<Self> {
        let (contacts, done) = (Default::default(), AtomicUsize::new(0));
        Arc::new(Self { contacts, all: Barrier::new(processes), done })
    }

    /// Tells the contact of a process of job `job`, and returns those of the other job in order of rank.
    fn exchange(&self, job: usize, instance: &Instance) -> Vec<Contact> {
        let own = instance.contact().expect("rails to others");
        let contact = Contact::parse(&own.emit()).expect("a contact");
        assert_eq!(contact, own);
        self.contacts[job].lock().unwrap().push(contact);
        self.all.wait();
        let mut others = self.contacts[1 - job].lock().unwrap().clone();
        others.sort_by_key(Contact::process);
        others
    }
}

/// Runs two jobs, each of so many processes, which are threads of this one.
fn run_jobs(sizes: [u32; 2], process: impl Fn(usize, &Instance, &Meeting) + Send + Sync + 'static) {
    let meeting = Meeting::of(sizes.iter().sum::<u32>() as usize);
    let process = Arc::new(process);
    let mut threads = Vec::new();
    for (job, size) in sizes.into_iter().enumerate() {
        for join in hub::job(size) {
            let (meeting, process) = (Arc::clone(&meeting), Arc::clone(&process));
            threads.push(thread::spawn(move || {
                let needs = Needs { is_multithreaded: true, ..Needs::default() };
                let instance = Instance::new(join(), &needs).expect("an instance");
                process(job, &instance, &meeting);
                instance.end().expect("an end");
            }));
        }
    }
    for thread in threads {
        thread.join().expect("a process");
    }
}

/// Sends `len` bytes to a peer and receives as many; returns how both ended.
fn swap(instance: &Instance, (own, peer): (u32, PeerId), source: u32, len: usize) -> [Outcome; 2] {
    let envelope = Envelope { context: CONTEXT, source: own, tag: 7, is_urgent: false };
    let bytes = Region::from_box(vec![own as u8; len].into());
    let progress = instance.progress();
    let send = progress
        .submit(|worker| worker.engine.submit_send(peer, envelope, &bytes, SendMode::Standard));
    let region = Region::owned(len);
    let selector = Selector { context: CONTEXT, source: Some(source), tag: Some(7) };
    let received = progress.submit_and_wait(
        |worker| worker.engine.submit_receive(Some(peer), selector, &region),
        |worker, op| worker.take_or_await(*op),
    );
    if received.outcome == Outcome::Ok {
        assert_eq!(region.to_vec(), vec![source as u8; len]);
    }
    let sent = progress.wait(|worker| worker.take_or_await(send));
    [sent.outcome, received.outcome]
}

/// Runs a test of this program once over each kind of rail, in a process of its own. Returns the rail in these processes.
fn on_each_rail(test: &str) -> Option<String> {
    let rail = std::env::var(VARIABLE).ok();
    if rail.is_none() {
        for rail in ["shm", "tcp", "quic"] {
            run_alone(test, &[(VARIABLE, rail)]);
        }
    }
    rail
}

/// Runs a test of this program in a process of its own, with these variables.
fn run_alone(test: &str, variables: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().expect("its path"));
    child.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
    assert!(child.status().expect("a process").success(), "with {variables:?}");
}

/// Sends a message that cannot arrive; returns what is said of it.
fn send_in_vain(instance: &Instance, peer: PeerId) -> String {
    let envelope = Envelope { context: CONTEXT, source: 0, tag: 7, is_urgent: false };
    let bytes = Region::from_box(vec![0; 100].into());
    let sent = instance.progress().submit_and_wait(
        |it| it.engine.submit_send(peer, envelope, &bytes, SendMode::Synchronous),
        |worker, op| worker.take_or_await(*op),
    );
    assert_eq!(sent.outcome, Outcome::PeerFailed);
    instance.progress().look(|worker| worker.take_notices()).join("; ")
}

#[test]
fn processes_of_two_jobs_exchange_messages() {
    let Some(rail) = on_each_rail("processes_of_two_jobs_exchange_messages") else { return };
    run_jobs([2, 3], move |job, instance, meeting| {
        let contacts = meeting.exchange(job, instance);
        let peers = contacts.iter().map(|contact| instance.add_peer(contact));
        let peers: Vec<PeerId> = peers.collect::<Result<_, _>>().expect("valid keys");
        let first = instance.size();
        assert_eq!(peers[0], PeerId(first), "after those of the job");
        assert_eq!(instance.add_peer(&contacts[0]), Ok(peers[0]), "known already");
        let name = instance.peer_name(peers[1]).to_string();
        assert_eq!(name, format!("rank 1 of job {:016x}", contacts[1].process().job));
        // A process is not known before all have added it.
        meeting.all.wait();
        let own = 10 * job as u32 + instance.rank();
        for len in [8, 3_000, 100_000, 3_000_000] {
            for (rank, peer) in peers.iter().enumerate() {
                let source = 10 * (1 - job) as u32 + rank as u32;
                assert_eq!(swap(instance, (own, *peer), source, len), [Outcome::Ok; 2]);
            }
        }
        for peer in &peers {
            let name = instance.progress().look(|worker| worker.rail_name(*peer));
            assert_eq!(name, Some(&*rail));
        }
        // The job's own processes are reached as before.
        for other in instance.job_peers().filter(|peer| *peer != instance.own_peer()) {
            let swapped = swap(instance, (own, other), 10 * job as u32 + other.0, 100);
            assert_eq!(swapped, [Outcome::Ok; 2]);
        }
        meeting.all.wait();
    });
}

#[test]
fn processes_alone_in_their_jobs_open_rails_when_they_meet_others() {
    let test = "processes_alone_in_their_jobs_open_rails_when_they_meet_others";
    let Some(rail) = on_each_rail(test) else { return };
    run_jobs([1, 1], move |job, instance, meeting| {
        // The link to itself is there before and after.
        let own = job as u32;
        assert_eq!(swap(instance, (own, instance.own_peer()), own, 100), [Outcome::Ok; 2]);
        assert!(!instance.knows_other_jobs() && !context::is_random(instance.draw_context()));
        let contacts = meeting.exchange(job, instance);
        let peer = instance.add_peer(&contacts[0]).expect("a valid key");
        assert!(context::is_random(instance.draw_context()));
        meeting.all.wait();
        for len in [8, 100_000] {
            assert_eq!(swap(instance, (own, peer), 1 - own, len), [Outcome::Ok; 2]);
        }
        let name = instance.progress().look(|worker| worker.rail_name(peer));
        assert_eq!(name, Some(&*rail));
        assert_eq!(swap(instance, (own, instance.own_peer()), own, 100), [Outcome::Ok; 2]);
        let both = [instance.own_peer(), peer];
        let places = instance.surroundings(both.into_iter()).expect("contacts");
        assert_eq!((places.sites.nodes(), places.sites.sites()), (1, 1));
        meeting.all.wait();
    });
}

#[test]
fn a_process_with_another_key_is_refused_and_told_why() {
    let Some(rail) = on_each_rail("a_process_with_another_key_is_refused_and_told_why") else {
        return;
    };
    let reason = match &*rail {
        "shm" => "it has not been told of this process, or of another key",
        _ => "it does not know the secret that the two must share",
    };
    run_jobs([2, 2], move |job, instance, meeting| {
        let contacts = meeting.exchange(job, instance);
        let strange = |contact: &Contact| {
            let mut bytes = contact.emit();
            // Behind job and rank.
            bytes[12] ^= job as u8;
            Contact::parse(&bytes).expect("a contact with another key")
        };
        let peers = contacts.iter().map(|contact| instance.add_peer(&strange(contact)));
        let peer = peers.collect::<Result<Vec<_>, _>>().expect("valid keys")[0];
        meeting.all.wait();
        if job == 0 {
            let notices = send_in_vain(instance, peer);
            let name = instance.peer_name(peer).to_string();
            assert!(notices.starts_with(&format!("{name} cannot be reached: ")), "{notices}");
            assert!(notices.contains(reason), "{notices}");
        }
        meeting.done.fetch_add(1, Ordering::Relaxed);
        while meeting.done.load(Ordering::Relaxed) < 4 {
            // A process that does not poll refuses nobody.
            let _: Option<()> = instance.progress().test(|_| None);
            thread::yield_now();
        }
        // Each job goes on.
        let other = PeerId(1 - instance.rank());
        let own = instance.rank();
        assert_eq!(swap(instance, (own, other), other.0, 5_000), [Outcome::Ok; 2]);
        meeting.all.wait();
    });
}

#[test]
fn a_site_that_only_gateways_of_another_job_reach_is_named() {
    let test = "a_site_that_only_gateways_of_another_job_reach_is_named";
    let gateways = ("CANELE_GATEWAYS", "127.0.0.1:1=127.0.0.1:1");
    if std::env::var(gateways.0).is_err() {
        return run_alone(test, &[(VARIABLE, "tcp"), gateways]);
    }
    run_jobs([2, 2], |job, instance, meeting| {
        let contacts = meeting.exchange(job, instance);
        let peer = instance.add_peer(&contacts[0]).expect("a valid key");
        let notices = send_in_vain(instance, peer);
        let name = instance.peer_name(peer).to_string();
        assert!(notices.contains(&name), "{notices}");
        assert!(notices.contains("gateways only, and these serve no job but its own"), "{notices}");
        meeting.all.wait();
    });
}

/// Setting of the rails.
const VARIABLE: &str = "CANELE_RAILS";
const CONTEXT: u64 = 0x40;
