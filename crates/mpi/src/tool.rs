//! The tool interface MPI_T (MPI-5.0 §15.3): settings as control variables, counters as performance variables, and
//! the categories of both.
//!
//! The library always counts. A session computes its value of a counter as a difference of two readings ([`Watch`]).
//! The interface works before initialisation, when all counters are zero, and after finalisation, when they stand
//! still.

use handles::{Handle, Kind, Objects, Table};
use settings::Setting;

use crate::process::Process;

/// Reason for the failure of a call of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An argument is NULL.
    InvalidArgument,
    /// No variable or category has this index.
    InvalidIndex,
    /// None has this name.
    InvalidName,
    /// The handle is none, or of another session.
    InvalidHandle,
    /// There is no such session.
    InvalidSession,
    /// There are too many handles.
    OutOfHandles,
    /// There are too many sessions.
    OutOfSessions,
    /// The environment's value of a setting is none.
    NotAccessible,
    /// Settings are not changed by tools.
    SetNever,
    /// The variable cannot be written or reset.
    NoWrite,
    /// It cannot be started or stopped.
    NoStartStop,
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Refusal>;

/// Class of a counter (MPI-5.0 §15.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Events.
    Counter,
    /// Time, in nanoseconds here.
    Timer,
    /// The most there was of something at once, in bytes. It is what it is: nobody starts or resets it.
    HighWatermark,
}

/// A performance variable.
#[derive(Debug)]
pub struct Counter {
    /// Its name.
    pub name: &'static str,
    /// Class of the counter.
    pub class: Class,
    /// Description in one line.
    pub meaning: &'static str,
    value: fn(&Counts) -> u64,
}

impl Counter {
    /// True if it runs continuously, independent of sessions, and cannot be written.
    pub fn is_continuous(&self) -> bool {
        match self.class {
            Class::Counter | Class::Timer => false,
            Class::HighWatermark => true,
        }
    }
}

/// All settings.
pub fn settings() -> &'static [&'static Setting] {
    &settings::ALL
}

/// All counters.
pub fn counters() -> &'static [Counter] {
    &COUNTERS
}

/// A category: a name, a description, and the indices of its settings and counters.
#[derive(Debug)]
pub struct Category {
    /// Its name.
    pub name: &'static str,
    /// Description in one line.
    pub meaning: &'static str,
    /// Indices of its settings.
    pub settings: std::ops::Range<usize>,
    /// Indices of its counters.
    pub counters: std::ops::Range<usize>,
}

/// All categories.
pub fn categories() -> &'static [Category] {
    &CATEGORIES
}

/// Gives a setting a handle.
///
/// # Errors
/// For an index that no setting has, or too many handles.
pub fn open_setting(index: usize) -> Result<Handle> {
    let setting = *settings::ALL.get(index).ok_or(Refusal::InvalidIndex)?;
    OBJECTS.insert(Object::Setting(setting)).map_err(|_| Refusal::OutOfHandles)
}

/// The setting behind a handle.
///
/// # Errors
/// For a handle that is none.
pub fn setting(handle: Handle) -> Result<&'static Setting> {
    match OBJECTS.lock().find(handle) {
        Ok(Object::Setting(setting)) => Ok(setting),
        Ok(Object::Session(_) | Object::Watch(_)) | Err(_) => Err(Refusal::InvalidHandle),
    }
}

/// Gives a setting's handle back.
///
/// # Errors
/// For a handle that is none.
pub fn close_setting(handle: Handle) -> Result<()> {
    setting(handle)?;
    OBJECTS.remove(handle).map(drop).map_err(|_| Refusal::InvalidHandle)
}

/// Begins a session, which has its own view of every counter.
///
/// # Errors
/// When there are too many.
pub fn begin_session() -> Result<Handle> {
    OBJECTS.insert(Object::Session(Vec::new())).map_err(|_| Refusal::OutOfSessions)
}

/// Ends a session; its handles end with it.
///
/// # Errors
/// For a session that is none.
pub fn end_session(session: Handle) -> Result<()> {
    let mut objects = OBJECTS.lock();
    for handle in std::mem::take(handles_of(&mut objects, session)?) {
        // It was there as long as the session.
        let _ = objects.remove(handle);
    }
    objects.remove(session).map(drop).map_err(|_| Refusal::InvalidSession)
}

/// Gives a counter a handle in a session.
///
/// # Errors
/// For a session that is none, an index that no counter has, or too many handles.
pub fn watch(session: Handle, index: usize) -> Result<Handle> {
    let mut objects = OBJECTS.lock();
    handles_of(&mut objects, session)?;
    let counter = COUNTERS.get(index).ok_or(Refusal::InvalidIndex)?;
    let handle = objects.insert(Object::Watch(Watch::new(counter)));
    let handle = handle.map_err(|_| Refusal::OutOfHandles)?;
    handles_of(&mut objects, session)?.push(handle);
    Ok(handle)
}

/// Gives a counter's handle back.
///
/// # Errors
/// For a session that is none, or a handle that is not of this session.
pub fn unwatch(session: Handle, handle: Handle) -> Result<()> {
    let mut objects = OBJECTS.lock();
    let handles = handles_of(&mut objects, session)?;
    let at = handles.iter().position(|known| *known == handle).ok_or(Refusal::InvalidHandle)?;
    handles.swap_remove(at);
    objects.remove(handle).map(drop).map_err(|_| Refusal::InvalidHandle)
}

/// Does something with a counter of a session, given the current values.
///
/// # Errors
/// For a session that is none, a handle that is not of this session, and what `act` refuses.
pub fn with_one<T>(
    counts: &Counts,
    session: Handle,
    handle: Handle,
    act: impl FnOnce(&mut Watch, &Counts) -> Result<T>,
) -> Result<T> {
    let mut objects = OBJECTS.lock();
    if !handles_of(&mut objects, session)?.contains(&handle) {
        return Err(Refusal::InvalidHandle);
    }
    act(watch_of(&mut objects, handle)?, counts)
}

/// Does something with all counters of a session, given the current values; those that refuse are passed over.
///
/// # Errors
/// For a session that is none.
pub fn with_all(
    counts: &Counts,
    session: Handle,
    act: impl Fn(&mut Watch, &Counts) -> Result<()>,
) -> Result<()> {
    let mut objects = OBJECTS.lock();
    for handle in handles_of(&mut objects, session)?.clone() {
        let _ = act(watch_of(&mut objects, handle)?, counts);
    }
    Ok(())
}

/// Object behind a handle.
#[derive(Debug)]
enum Object {
    /// A session, with the handles of its counters.
    Session(Vec<Handle>),
    Setting(&'static Setting),
    Watch(Watch),
}

static OBJECTS: Table<Object> = Table::new(Kind::Tool);

/// The handles of a session's counters.
fn handles_of(objects: &mut Objects<Object>, session: Handle) -> Result<&mut Vec<Handle>> {
    match objects.find(session) {
        Ok(Object::Session(handles)) => Ok(handles),
        Ok(Object::Setting(_) | Object::Watch(_)) | Err(_) => Err(Refusal::InvalidSession),
    }
}

fn watch_of(objects: &mut Objects<Object>, handle: Handle) -> Result<&mut Watch> {
    match objects.find(handle) {
        Ok(Object::Watch(watch)) => Ok(watch),
        Ok(Object::Session(_) | Object::Setting(_)) | Err(_) => Err(Refusal::InvalidHandle),
    }
}

/// Values of all counters of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    progress: progress::Counters,
    engine: engine::Counters,
}

impl Counts {
    /// Reads the current values of a process; without one all are zero.
    pub fn of(process: Option<&Process>) -> Self {
        let (progress, engine) = process.map(|process| process.counters()).unwrap_or_default();
        Self { progress, engine }
    }
}

/// A session's view of a counter: the sum of what it counted while the session had it started.
#[derive(Clone, Debug)]
pub struct Watch {
    counter: &'static Counter,
    /// Value when it was last stopped, or the value last written.
    sum: u64,
    /// Value of the counter when it was started.
    since: Option<u64>,
}

impl Watch {
    fn new(counter: &'static Counter) -> Self {
        Self { counter, sum: 0, since: counter.is_continuous().then_some(0) }
    }

    /// The counter.
    pub fn counter(&self) -> &'static Counter {
        self.counter
    }

    /// The value.
    pub fn read(&self, counts: &Counts) -> u64 {
        let now = (self.counter.value)(counts);
        // Another thread may have stored a newer reading already.
        self.sum + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Starts the counter.
    ///
    /// # Errors
    /// [`Refusal::NoStartStop`] for a continuous counter.
    pub fn start(&mut self, counts: &Counts) -> Result<()> {
        self.may_start_or_stop()?;
        self.since.get_or_insert((self.counter.value)(counts));
        Ok(())
    }

    /// Stops the counter.
    ///
    /// # Errors
    /// [`Refusal::NoStartStop`] for a continuous counter.
    pub fn stop(&mut self, counts: &Counts) -> Result<()> {
        self.may_start_or_stop()?;
        self.sum = self.read(counts);
        self.since = None;
        Ok(())
    }

    /// Sets the value, and continues from it.
    ///
    /// # Errors
    /// [`Refusal::NoWrite`] for a continuous counter.
    pub fn write(&mut self, value: u64, counts: &Counts) -> Result<()> {
        if self.counter.is_continuous() {
            return Err(Refusal::NoWrite);
        }
        self.sum = value;
        self.since = self.since.map(|_| (self.counter.value)(counts));
        Ok(())
    }

    fn may_start_or_stop(&self) -> Result<()> {
        if self.counter.is_continuous() { Err(Refusal::NoStartStop) } else { Ok(()) }
    }
}

const fn counts(name: &'static str, value: fn(&Counts) -> u64, meaning: &'static str) -> Counter {
    Counter { name, class: Class::Counter, meaning, value }
}

const fn times(name: &'static str, value: fn(&Counts) -> u64, meaning: &'static str) -> Counter {
    Counter { name, class: Class::Timer, meaning, value }
}

const fn most(name: &'static str, value: fn(&Counts) -> u64, meaning: &'static str) -> Counter {
    Counter { name, class: Class::HighWatermark, meaning, value }
}

/// The counters, ordered by category.
static COUNTERS: [Counter; OF_PROGRESS + OF_MESSAGES] = [
    counts("polls", |all| all.progress.polls, "polls of all rails"),
    counts("polls_by_tests", |all| all.progress.polls_by_tests, "polls by calls that test"),
    counts(
        "polls_by_progress_thread",
        |all| all.progress.polls_by_progress_thread,
        "polls by the progress thread",
    ),
    counts(
        "checks_by_progress_thread",
        |all| all.progress.checks_by_progress_thread,
        "checks of the progress thread whether it is needed",
    ),
    times(
        "time_spinning",
        |all| all.progress.spinning.as_nanos() as u64,
        "time that waiting threads spent spinning, in waits of at least 64 polls",
    ),
    counts("yields", |all| all.progress.yields, "yields of the core by waiting threads"),
    times("time_yielding", |all| all.progress.yielding.as_nanos() as u64, "time spent in yields"),
    counts(
        "sleeps",
        |all| all.progress.sleeps,
        "sleeps in the kernel of the thread that polls for all waiting threads",
    ),
    times("time_sleeping", |all| all.progress.sleeping.as_nanos() as u64, "time they took"),
    counts(
        "sleeps_by_progress_thread",
        |all| all.progress.sleeps_by_progress_thread,
        "sleeps in the kernel of the progress thread while work is left to it",
    ),
    times(
        "time_progress_thread_sleeping",
        |all| all.progress.progress_thread_sleeping.as_nanos() as u64,
        "time they took",
    ),
    counts(
        "wakeups",
        |all| all.progress.wakeups,
        "times that a thread which slept in the kernel was woken by another of its process",
    ),
    counts(
        "polls_by_idle_pollers",
        |all| all.progress.polls_by_idle_pollers,
        "polls by idle pollers",
    ),
    counts(
        "wakeups_by_idle_pollers",
        |all| all.progress.wakeups_by_idle_pollers,
        "threads woken by idle pollers",
    ),
    counts(
        "oversubscription_changes",
        |all| all.progress.oversubscription_changes,
        "changes between oversubscribed and not oversubscribed",
    ),
    counts(
        "submissions_delegated",
        |all| all.progress.submissions_delegated,
        "sends and receives left to the thread that held the library's lock",
    ),
    counts(
        "waits_without_polling",
        |all| all.progress.waits_without_polling,
        "waits of threads while another polled for all",
    ),
    counts(
        "wakes",
        |all| all.progress.woken,
        "waiting threads woken, because their operation completed or to take over polling",
    ),
    counts(
        "request_looks",
        |all| all.progress.request_looks,
        "requests that calls for any or some of several looked at",
    ),
    counts(
        "task_steps_in_calls",
        |all| all.progress.tasks_in_calls.advances,
        "steps of nonblocking collectives in calls that submit or test",
    ),
    counts(
        "task_steps_in_waits",
        |all| all.progress.tasks_in_waits.advances,
        "steps of nonblocking collectives by threads that wait",
    ),
    counts(
        "task_steps_by_progress_thread",
        |all| all.progress.tasks_by_progress_thread.advances,
        "steps of nonblocking collectives by the progress thread",
    ),
    counts(
        "task_works_in_calls",
        |all| all.progress.tasks_in_calls.works,
        "computations of nonblocking collectives in calls that submit or test",
    ),
    counts(
        "task_works_in_waits",
        |all| all.progress.tasks_in_waits.works,
        "computations of nonblocking collectives in threads that wait",
    ),
    counts(
        "task_works_by_progress_thread",
        |all| all.progress.tasks_by_progress_thread.works,
        "computations of nonblocking collectives in the progress thread",
    ),
    times(
        "time_task_works_in_calls",
        |all| all.progress.tasks_in_calls.working.as_nanos() as u64,
        "time that nonblocking collectives computed in calls that submit or test",
    ),
    times(
        "time_task_works_in_waits",
        |all| all.progress.tasks_in_waits.working.as_nanos() as u64,
        "time that nonblocking collectives computed in threads that wait",
    ),
    times(
        "time_task_works_by_progress_thread",
        |all| all.progress.tasks_by_progress_thread.working.as_nanos() as u64,
        "time that nonblocking collectives computed in the progress thread",
    ),
    counts(
        "pieces_copied_in_calls",
        |all| all.progress.tasks_in_calls.pieces,
        "pieces of messages copied from a neighbour's memory in calls that submit or test",
    ),
    counts(
        "pieces_copied_in_waits",
        |all| all.progress.tasks_in_waits.pieces,
        "pieces of messages copied from a neighbour's memory by threads that wait",
    ),
    counts(
        "pieces_copied_by_progress_thread",
        |all| all.progress.tasks_by_progress_thread.pieces,
        "pieces of messages copied from a neighbour's memory by the progress thread",
    ),
    times(
        "time_copying_in_calls",
        |all| all.progress.tasks_in_calls.copying.as_nanos() as u64,
        "time that these copies took in calls that submit or test",
    ),
    times(
        "time_copying_in_waits",
        |all| all.progress.tasks_in_waits.copying.as_nanos() as u64,
        "time that these copies took in threads that wait",
    ),
    times(
        "time_copying_by_progress_thread",
        |all| all.progress.tasks_by_progress_thread.copying.as_nanos() as u64,
        "time that these copies took in the progress thread",
    ),
    counts(
        "work_stolen_same_core",
        |all| all.progress.work_stolen_same_core,
        "computations and pieces to copy that a thread took on the core where they were offered",
    ),
    counts(
        "work_stolen_same_cache",
        |all| all.progress.work_stolen_same_cache,
        "those taken on another core with the same cache and memory, or where all cores are such",
    ),
    counts(
        "work_stolen_same_numa",
        |all| all.progress.work_stolen_same_numa,
        "those taken on a core with another cache, of the same node of memory",
    ),
    counts(
        "work_stolen_remote_numa",
        |all| all.progress.work_stolen_remote_numa,
        "those taken on another node of memory",
    ),
    counts("frames_sent", |all| all.engine.frames, "frames given to rails"),
    counts(
        "packets_sent",
        |all| all.engine.packets(),
        "packets in these frames: messages, RTS, CTS and pieces",
    ),
    counts(
        "messages_sent_whole",
        |all| all.engine.eager,
        "messages sent eagerly, with their envelope",
    ),
    counts("messages_sent_in_pieces", |all| all.engine.rendezvous, "messages sent by rendezvous"),
    counts(
        "messages_out_of_credit",
        |all| all.engine.out_of_credit,
        "messages sent by rendezvous only because credit was used up",
    ),
    counts("puts_sent", |all| all.engine.puts, "puts to exposed memory of peers"),
    counts("gets_sent", |all| all.engine.gets, "gets from exposed memory of peers"),
    counts("calls_sent", |all| all.engine.calls, "calls of handlers of peers"),
    counts("pieces_sent", |all| all.engine.pieces, "pieces of rendezvous messages"),
    counts("pieces_compressed", |all| all.engine.compressed, "pieces sent compressed"),
    counts(
        "bytes_before_compression",
        |all| all.engine.uncompressed_bytes,
        "bytes of these pieces before they were compressed",
    ),
    counts(
        "bytes_after_compression",
        |all| all.engine.compressed_bytes,
        "bytes of these pieces after compression",
    ),
    counts(
        "bytes_incompressible",
        |all| all.engine.incompressible_bytes,
        "bytes whose compression saved too little, sent uncompressed",
    ),
    counts(
        "strategy_violations",
        |all| all.engine.violations,
        "peers whose strategy built an invalid frame and was replaced by fifo",
    ),
    counts(
        "messages_unexpected",
        |all| all.engine.unexpected,
        "messages that arrived before their receive was posted",
    ),
    counts(
        "messages_retracted",
        |all| all.engine.retracted,
        "messages among these that their senders cancelled",
    ),
    most(
        "unexpected_bytes_most",
        |all| all.engine.unexpected_bytes_max.0 as u64,
        "maximum bytes of unexpected messages held at once",
    ),
];

const OF_PROGRESS: usize = 38;
const OF_MESSAGES: usize = 17;

static CATEGORIES: [Category; 3] = [
    Category {
        name: "settings",
        meaning: "settings from environment variables",
        settings: 0..settings::ALL.len(),
        counters: 0..0,
    },
    Category {
        name: "progress",
        meaning: "polls, sleeps, computations and copies, with their times",
        settings: 0..0,
        counters: 0..OF_PROGRESS,
    },
    Category {
        name: "messages",
        meaning: "messages: frames, packets, credit, compression",
        settings: 0..0,
        counters: OF_PROGRESS..OF_PROGRESS + OF_MESSAGES,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(polls: u64) -> Counts {
        let mut counts = Counts::default();
        counts.progress.polls = polls;
        counts
    }

    #[test]
    fn session_counts_only_while_its_counter_is_started() {
        let mut watch = Watch::new(&COUNTERS[0]);
        assert_eq!(watch.read(&counted(10)), 0);
        watch.start(&counted(10)).unwrap();
        watch.start(&counted(11)).unwrap();
        assert_eq!(watch.read(&counted(15)), 5);
        watch.stop(&counted(17)).unwrap();
        watch.stop(&counted(18)).unwrap();
        assert_eq!(watch.read(&counted(30)), 7);
        watch.start(&counted(40)).unwrap();
        assert_eq!(watch.read(&counted(41)), 8);
        watch.write(100, &counted(50)).unwrap();
        assert_eq!(watch.read(&counted(51)), 101);
        assert_eq!(watch.read(&counted(49)), 100, "an older look");
    }

    #[test]
    fn high_watermark_is_continuous() {
        let index = COUNTERS.iter().position(Counter::is_continuous).unwrap();
        let mut watch = Watch::new(&COUNTERS[index]);
        let engine =
            engine::Counters { unexpected_bytes_max: engine::Peak(7), ..Default::default() };
        let counts = Counts { engine, ..Counts::default() };
        assert_eq!(watch.read(&counts), 7);
        assert_eq!(watch.start(&counts), Err(Refusal::NoStartStop));
        assert_eq!(watch.stop(&counts), Err(Refusal::NoStartStop));
        assert_eq!(watch.write(0, &counts), Err(Refusal::NoWrite));
        assert_eq!(watch.read(&counts), 7);
    }

    #[test]
    fn handles_end_with_their_session_and_are_of_no_other() {
        let [one, other] = [begin_session().unwrap(), begin_session().unwrap()];
        let handle = watch(one, 0).unwrap();
        assert_eq!(watch(one, COUNTERS.len()).unwrap_err(), Refusal::InvalidIndex);
        let counts = Counts::default();
        let read =
            |session, handle| with_one(&counts, session, handle, |one, all| Ok(one.read(all)));
        assert_eq!(read(one, handle), Ok(0));
        assert_eq!(read(other, handle), Err(Refusal::InvalidHandle));
        assert_eq!(unwatch(other, handle), Err(Refusal::InvalidHandle));
        let second = watch(one, 1).unwrap();
        unwatch(one, second).unwrap();
        assert_eq!(unwatch(one, second), Err(Refusal::InvalidHandle));
        with_all(&counts, one, Watch::start).unwrap();
        end_session(one).unwrap();
        assert_eq!(read(one, handle), Err(Refusal::InvalidSession));
        assert_eq!(end_session(one), Err(Refusal::InvalidSession));
        assert!(OBJECTS.lock().find(handle).is_err());
        end_session(other).unwrap();
    }

    #[test]
    fn names_are_unique_and_every_variable_has_one_category() {
        for (at, counter) in COUNTERS.iter().enumerate() {
            let same = COUNTERS.iter().filter(|other| other.name == counter.name).count();
            assert_eq!(same, 1, "{}", counter.name);
            let of = CATEGORIES.iter().filter(|one| one.counters.contains(&at)).count();
            assert_eq!(of, 1, "{}", counter.name);
            assert!(!counter.meaning.is_empty());
        }
        for at in 0..settings::ALL.len() {
            let of = CATEGORIES.iter().filter(|one| one.settings.contains(&at)).count();
            assert_eq!(of, 1, "setting {at}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_parts_that_they_are_for() {
        let bytes = settings::Kind::Bytes(engine::BUDGET_BYTES as u64);
        assert_eq!(settings::UNMATCHED_BYTES.kind(), bytes);
    }

    #[test]
    fn settings_have_handles() {
        let handle = open_setting(0).unwrap();
        assert_eq!(setting(handle).unwrap().variable(), settings::ALL[0].variable());
        assert_eq!(watch(handle, 0), Err(Refusal::InvalidSession), "of another kind");
        close_setting(handle).unwrap();
        assert_eq!(setting(handle).unwrap_err(), Refusal::InvalidHandle);
        assert_eq!(open_setting(settings::ALL.len()).unwrap_err(), Refusal::InvalidIndex);
    }
}
