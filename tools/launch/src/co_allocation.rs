//! Co-allocation: the hosts of several sites, each from the site's Slurm, held until all are there and given back
//! together (Czajkowski, Foster and Kesselman, "Resource co-allocation in computational grids", 1999).
//!
//! An agent on the login host of each site requests the hosts and holds them for as long as its channel is open
//! (`slurm_holder`). So the end of `mpiexec`, whatever ends it, gives them back.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use signal_hook::consts::signal::*;
use signal_hook::iterator::Signals;

use crate::allocation;
use crate::channel::{Branch, MessageKind, Start};
use crate::grid::{Grid, Host, Site};
use crate::launch_context::{LaunchContext, random};
use crate::launcher::Launcher;
use crate::node::{Node, Report};
use crate::options::Options;
use crate::slurm_holder::{AllocationEvent, AllocationRequest};
use crate::tree;

/// Hosts of several sites that this process holds. They are given back when this is dropped.
#[derive(Default)]
pub(crate) struct CoAllocation {
    sites: Vec<SiteAllocation>,
    /// Reports of the agents that hold them, each with its index.
    reports: Option<Receiver<(usize, Report)>>,
}

/// A failure on hosts of Slurm, which is told unless Slurm has taken the hosts back.
pub(crate) struct Unexplained {
    pub text: String,
    /// Time at which it is told.
    pub due: Instant,
}

/// Reason why there are no hosts, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAllocated {
    pub code: u8,
    pub text: String,
}

/// A request of one site.
struct SiteAllocation {
    /// Index of the site in the grid.
    site: usize,
    name: String,
    /// Name of its job.
    job_name: String,
    /// Launcher of the agent on the login host, and the name of that host.
    launcher: Launcher,
    login: String,
    /// The agent that holds the hosts.
    node: Node,
    /// Number of the job, once it is known.
    job: Option<String>,
    /// State of the job in the queue, once it is known.
    state: Option<String>,
    /// The hosts, once they are there.
    hosts: Option<Vec<Host>>,
}

impl CoAllocation {
    /// Requests the hosts of all sites that have them from Slurm, waits until all are there, and completes the options.
    ///
    /// # Errors
    /// A site refuses, does not answer or takes too long, or a signal ends the wait. All hosts are given back then.
    pub fn of(options: &mut Options, signals: &mut Signals) -> Result<Self, NotAllocated> {
        let Some(mut grid) = options.grid.clone().filter(Grid::awaits_hosts) else {
            return Ok(Self::default());
        };
        let connect_timeout = settings::CONNECT_TIMEOUT.number();
        let patience_s = connect_timeout.map_err(|error| failed(error.to_string()))?;
        let here = LaunchContext::new(options, patience_s).map_err(failed)?;
        let (sender, reports) = mpsc::sync_channel(REPORTS_MAX);
        let mut all = Self::default();
        for (index, site) in grid.sites.iter().enumerate().filter(|(_, site)| site.awaits_hosts()) {
            let at = all.sites.len();
            let begun = SiteAllocation::begin((index, site), options, &here, (at, sender.clone()));
            all.sites.push(begun.map_err(|text| failed(format!("site {}: {text}", site.name)))?);
        }
        drop(sender);
        let wait = Wait {
            began: Instant::now(),
            limit: options.wait_s.map(Duration::from_secs),
            patience_s,
        };
        all.wait(&reports, signals, &wait)?;
        for one in &all.sites {
            one.equip(&mut grid.sites[one.site]);
        }
        options.hosts.clear();
        options.take_grid(grid);
        let completed = options.complete();
        completed.map_err(|error| NotAllocated { code: 2, text: error.to_string() })?;
        all.reports = Some(reports);
        Ok(all)
    }

    /// True if this process holds the hosts of the site.
    pub fn has(&self, site: &str) -> bool {
        self.sites.iter().any(|one| one.name == site)
    }

    /// Returns a line about a site whose hosts are gone, as after Slurm's time limit.
    pub fn poll_ended(&mut self) -> Option<String> {
        let (at, report) = self.reports.as_ref()?.try_recv().ok()?;
        self.sites[at].handle(report).err()
    }

    /// Waits until each site has its hosts.
    fn wait(
        &mut self,
        reports: &Receiver<(usize, Report)>,
        signals: &mut Signals,
        wait: &Wait,
    ) -> Result<(), NotAllocated> {
        let mut progress = Progress::new(wait.began);
        while self.waiting().next().is_some() {
            let waited = wait.began.elapsed();
            if let Some(signal) = signals.pending().find(|signal| ENDING.contains(signal)) {
                let text = format!("interrupted while {}; {GIVEN_BACK}", self.waiting_text());
                return Err(NotAllocated { code: 128 + signal as u8, text });
            }
            if wait.limit.is_some_and(|limit| waited >= limit) {
                let (seconds, text) = (waited.as_secs(), self.waiting_text());
                return Err(failed(format!("{text} after {seconds} s (-wait); {GIVEN_BACK}")));
            }
            let is_silent = |one: &&SiteAllocation| !one.node.has_answered();
            if waited.as_secs() > wait.patience_s
                && let Some(silent) = self.sites.iter().find(is_silent)
            {
                let text = silent.node.silence_text(wait.patience_s);
                return Err(failed(format!("{text}; {GIVEN_BACK}")));
            }
            progress.tell(self, Instant::now());
            let Ok((at, report)) = reports.recv_timeout(TICK) else { continue };
            let refused = |text: String| failed(format!("{text}; {GIVEN_BACK}"));
            self.sites[at].handle(report).map_err(refused)?;
        }
        progress.finish(self);
        Ok(())
    }

    /// Sites without hosts.
    fn waiting(&self) -> impl Iterator<Item = &SiteAllocation> {
        self.sites.iter().filter(|one| one.hosts.is_none())
    }

    /// Names the sites that wait, and the states of their jobs.
    fn waiting_text(&self) -> String {
        let names: Vec<String> = self.waiting().map(SiteAllocation::text).collect();
        let sites = if names.len() == 1 { "site" } else { "sites" };
        format!("waiting for Slurm at {sites} {}", names.join(", "))
    }

    /// Gives all hosts back at the same time, and waits until that is done.
    fn give_back(&mut self) {
        self.sites.iter_mut().for_each(|one| one.node.hang_up());
        for mut one in std::mem::take(&mut self.sites) {
            let has_answered = one.node.has_answered();
            if !one.node.close_within(RELEASE_TIMEOUT) && has_answered {
                let (name, job) = (&one.name, &one.job_name);
                tell!(
                    "mpiexec: site {name}: its hosts may not be given back: run `scancel --name={job}` there"
                );
            }
        }
    }
}

impl Drop for CoAllocation {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Limits of a wait for hosts.
struct Wait {
    began: Instant,
    limit: Option<Duration>,
    /// Time within which agents must answer.
    patience_s: u64,
}

impl SiteAllocation {
    /// Sends the request of a site to its login host.
    fn begin(
        (index, site): (usize, &Site),
        options: &Options,
        here: &LaunchContext,
        (at, reports): (usize, SyncSender<(usize, Report)>),
    ) -> Result<Self, String> {
        let login = site.login_host().to_owned();
        let launcher = tree::launcher(&login, Some(site), false, options, here);
        let job_name = format!("canele-{}", &hex::encode(random()?)[..16]);
        let words = site.slurm.iter().flat_map(|words| words.split_whitespace());
        let allocation = AllocationRequest {
            name: job_name.clone(),
            options: words.map(str::to_owned).collect(),
        };
        let branch = Branch {
            host: tree::name_of(&login, site),
            command: launcher.command(&login, &tree::agent(Some(site), &launcher, options, here)),
            start: Start { allocation: Some(allocation), ..Start::default() },
        };
        // The receiver may have given up.
        let node = Node::start(&branch, None, move |report| reports.send((at, report)).is_ok())?;
        let name = site.name.clone();
        let (job, state, hosts) = (None, None, None);
        Ok(Self { site: index, name, job_name, launcher, login, node, job, state, hosts })
    }

    /// Takes a report of the agent.
    ///
    /// # Errors
    /// Fails if the site gives no hosts, with one line.
    fn handle(&mut self, report: Report) -> Result<(), String> {
        let message = match report {
            Report::Message(message) => message,
            Report::Closed => {
                let (text, job) = (self.node.loss_text(), self.job.as_deref());
                let held = job.map(|job| format!("; it held allocation {job} of Slurm"));
                return Err(text + &held.unwrap_or_default());
            }
            Report::Foreign(said) => return Err(self.node.stranger_text(&said)),
        };
        match message.kind {
            MessageKind::Hello => self.node.handle_hello(&message.body),
            MessageKind::Allocation => match serde_json::from_slice(&message.body) {
                Ok(event) => self.take(event).map_err(|text| format!("site {}: {text}", self.name)),
                Err(error) => Err(format!("site {}: {error}", self.name)),
            },
            _ => Ok(()),
        }
    }

    fn take(&mut self, event: AllocationEvent) -> Result<(), String> {
        match event {
            AllocationEvent::Queued(job) => self.job = Some(job),
            AllocationEvent::State(text) => self.state = Some(text),
            AllocationEvent::Granted { job, nodes, tasks } => {
                let variable = |name: &str| match name {
                    allocation::NODES => Some(nodes.clone()),
                    allocation::TASKS => tasks.clone(),
                    _ => None,
                };
                let hosts = allocation::hosts(&variable)?.into_iter();
                self.hosts = Some(hosts.map(|(name, slots)| Host { name, slots }).collect());
                self.job = Some(job);
            }
            AllocationEvent::Ended(reason) => {
                return Err(match (&self.hosts, &self.job) {
                    (Some(_), Some(job)) => format!("Slurm has ended allocation {job}: {reason}"),
                    _ => format!("no hosts from Slurm: {reason}"),
                });
            }
        }
        Ok(())
    }

    /// Gives the site its hosts, and launchers that reach them.
    fn equip(&self, site: &mut Site) {
        let (own, hosts) = (site.slots, self.hosts.iter().flatten().cloned());
        let hosts = hosts.map(|one| Host { slots: own.or(one.slots), ..one });
        site.hosts = hosts.collect();
        let job = self.job.as_deref().unwrap_or_default();
        let srun = Launcher::slurm().with(&[format!("--jobid={job}")]);
        site.launch = Some(self.launcher.through(&self.login, &srun));
        site.spread.get_or_insert(srun);
    }

    /// Name of the site, with the state of its job.
    fn text(&self) -> String {
        match (&self.job, &self.state) {
            (None, _) => self.name.clone(),
            (Some(job), None) => format!("{} (job {job})", self.name),
            (Some(job), Some(state)) => format!("{} (job {job}: {state})", self.name),
        }
    }
}

/// Lines for somebody who waits.
struct Progress {
    next: Instant,
    /// Text that was told last.
    told: Option<String>,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { next: now + TELL_AFTER, told: None }
    }

    /// Tells which sites wait: after a while, when that changes, and each minute.
    fn tell(&mut self, all: &CoAllocation, now: Instant) {
        let text = all.waiting_text();
        let has_changed = self.told.as_ref().is_some_and(|told| *told != text);
        if now >= self.next || has_changed {
            tell!("mpiexec: {text}");
            (self.told, self.next) = (Some(text), now + TELL_EVERY);
        }
    }

    fn finish(&self, all: &CoAllocation) {
        if self.told.is_some() {
            tell!("mpiexec: Slurm has given the hosts of all {} sites", all.sites.len());
        }
    }
}

fn failed(text: String) -> NotAllocated {
    NotAllocated { code: 1, text }
}

/// End of a line about hosts that are not there.
const GIVEN_BACK: &str = "all hosts are given back";
/// Signals that end the wait.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Interval of the checks for signals.
const TICK: Duration = Duration::from_millis(50);
/// Time after which it is told that sites wait, and the interval in which it is told again.
const TELL_AFTER: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Time in which an agent gives hosts back.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(25);
/// Maximum number of waiting reports.
const REPORTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn site(launch: &str) -> SiteAllocation {
        let branch =
            Branch { host: "login".into(), command: vec!["true".into()], start: Start::default() };
        SiteAllocation {
            site: 0,
            name: "n".into(),
            job_name: "canele-0".into(),
            launcher: Launcher::parse(launch).unwrap(),
            login: "login".into(),
            node: Node::start(&branch, None, |_| true).unwrap(),
            job: None,
            state: None,
            hosts: None,
        }
    }

    fn granted(job: &str, nodes: &str, tasks: &str) -> AllocationEvent {
        AllocationEvent::Granted { job: job.into(), nodes: nodes.into(), tasks: Some(tasks.into()) }
    }

    #[test]
    fn agents_on_hosts_of_slurm_are_started_through_the_login_host() {
        let words = |launch: &str| {
            let mut one = site(launch);
            one.take(granted("7", "a[1-2]", "4,2")).unwrap();
            let mut of_grid = Site { slurm: Some("-N2".into()), ..Site::default() };
            one.equip(&mut of_grid);
            let hosts: Vec<_> =
                of_grid.hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
            assert_eq!(hosts, [("a1", Some(4)), ("a2", Some(2))]);
            let spread = of_grid.spread.unwrap().command("a2", "agent").join(" ");
            assert!(
                spread.starts_with("srun ") && spread.ends_with("--nodelist=a2 --jobid=7 agent")
            );
            of_grid.launch.unwrap().command("a1", "agent").join(" ")
        };
        let end = "--nodelist=a1 --jobid=7 agent";
        assert!(words("fork").starts_with("srun ") && words("fork").ends_with(end));
        assert!(words("ssh").starts_with("ssh -x ") && words("ssh").contains(" login srun "));
        assert!(words("ssh").ends_with(end));
        assert!(words("enter {host} --").starts_with("enter login -- srun "));
    }

    #[test]
    fn slots_of_the_file_replace_those_of_slurm() {
        let mut one = site("fork");
        one.take(granted("7", "a", "4")).unwrap();
        let mut of_grid = Site { slots: Some(9), ..Site::default() };
        one.equip(&mut of_grid);
        assert_eq!(of_grid.hosts, [Host { name: "a".into(), slots: Some(9) }]);
    }

    #[test]
    fn sites_that_wait_are_told_with_their_states() {
        let mut all = CoAllocation { sites: vec![site("fork"), site("fork")], reports: None };
        all.sites[1].name = "s".into();
        assert_eq!(all.waiting_text(), "waiting for Slurm at sites n, s");
        all.sites[0].take(AllocationEvent::Queued("3".into())).unwrap();
        all.sites[0].take(AllocationEvent::State("PENDING, Priority".into())).unwrap();
        all.sites[1].take(granted("4", "b", "1")).unwrap();
        assert_eq!(all.waiting_text(), "waiting for Slurm at site n (job 3: PENDING, Priority)");
        let refused = all.sites[0].take(AllocationEvent::Ended("no such partition".into()));
        assert_eq!(refused, Err("no hosts from Slurm: no such partition".into()));
        let mut wrong = site("fork");
        assert!(wrong.take(granted("4", "b[", "1")).unwrap_err().contains("SLURM_JOB_NODELIST"));
    }
}
