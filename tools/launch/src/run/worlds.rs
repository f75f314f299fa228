//! Worlds of a job: the ranks that `mpiexec` starts first, and those that ranks spawn (MPI-5.0 §11.8).

use std::collections::HashMap;
use std::sync::mpsc::SyncSender;

use boot::Secret;
use signal_hook::consts::SIGKILL;

use super::{Run, RunEvent};
use crate::channel::{Message, MessageKind};
use crate::node::{Node, Report};
use crate::options::Options;
use crate::pmi::{Server, Values};
use crate::spawn_options::spawned;
use crate::spawn_request::SpawnRequest;
use crate::tree::{self, Tree, TreeWorld};
use crate::world::{self, Birth, World, WorldName};

impl Run {
    /// Adds a world with its ranks, which are not started yet.
    pub(super) fn add_world(&mut self, job: u64, server: Server, birth: Birth, hosts: &[String]) {
        let (first, size) = (self.ended.len() as u32, hosts.len());
        self.hosts.extend_from_slice(hosts);
        self.outputs.add_world(hosts);
        self.node_of_rank.resize(self.ended.len() + size, None);
        self.ended.resize(self.ended.len() + size, false);
        self.aborting.resize(self.ended.len(), false);
        if let Some(codes) = &mut self.codes {
            codes.resize(self.ended.len(), 0);
        }
        self.left += size;
        self.worlds.push(World::new((first, size as u32), job, server, birth));
    }

    /// Starts the ranks of the newest world, by agents that run or by new ones.
    ///
    /// # Errors
    /// Fails if an agent cannot be started, with one line. Ranks of others may have been started.
    pub(super) fn start_world(&mut self, tree: Tree, secret: &Secret) -> Result<(), String> {
        let first = self.worlds.last().map_or(0, |world| world.first);
        let mut node_of_branch = Vec::new();
        self.gateways.extend(tree.gateways.into_iter().map(|one| (one, first, Vec::new())));
        for branch in &tree.branches {
            let is_known = |node: &Node| !node.is_lost() && node.host() == branch.host;
            let known = self.nodes.iter().position(is_known);
            let index = known.unwrap_or(self.nodes.len());
            match known {
                Some(known) => self.nodes[known].channel().start(&branch.start, Some(secret))?,
                None => {
                    let report = reporter(&self.sender, index);
                    self.nodes.push(Node::start(branch, Some(secret), report)?);
                }
            }
            node_of_branch.push(index);
        }
        for (rank, branch) in tree.branch_of_rank.iter().enumerate() {
            self.node_of_rank[first as usize + rank] = node_of_branch.get(*branch).copied();
        }
        self.share_values(first);
        Ok(())
    }

    /// The world of a process, and its rank there.
    pub(super) fn world_of(&self, process: u32) -> (usize, u32) {
        let after = self.worlds.partition_point(|world| world.first <= process);
        let world = after.saturating_sub(1);
        (world, process - self.worlds[world].first)
    }

    /// Name of a process in messages: its rank and host, behind the number of its world if that is not the first.
    pub(super) fn name(&self, process: u32) -> String {
        let host = &self.hosts[process as usize];
        match self.world_of(process) {
            (0, rank) => format!("rank {rank} on {host}"),
            (world, rank) => format!("rank {world}.{rank} on {host}"),
        }
    }

    /// Handles a part of a request to spawn, with one program. The last one starts them all.
    pub(super) fn handle_spawn(&mut self, parent: u32, part: &[u8]) {
        let mut request = self.requests.remove(&parent).unwrap_or_default();
        match request.add(part) {
            Ok(false) => drop(self.requests.insert(parent, request)),
            Ok(true) => {
                if let Err(text) = self.spawn(parent, &request) {
                    self.refuse_spawn(parent, &text);
                }
            }
            Err(text) => self.refuse_spawn(parent, &format!("the request is malformed: {text}")),
        }
    }

    fn spawn(&mut self, parent: u32, request: &SpawnRequest) -> Result<(), String> {
        let (parents, _) = self.world_of(parent);
        if self.worlds[parents].is_ending() {
            return Err("the job is ending".into());
        }
        let name = WorldName::draw()?;
        let others = self.ranks_on_hosts();
        let options = spawned(&mut self.options, &self.here, request, &others)?;
        let (first, size) = (self.ended.len() as u32, options.size());
        if size == 0 {
            return Err("no rank is wanted".into());
        }
        if first.checked_add(size).is_none_or(|end| end > PROCESSES_MAX) {
            return Err(format!("this job has had {first} ranks already"));
        }
        let job = name.job();
        let world = TreeWorld {
            job,
            first,
            is_spawned: true,
            leaders: self.leaders(),
            gateways: self.gateways.len(),
            others,
        };
        let mut here = self.here.clone();
        let directory = request.programs.iter().find_map(|one| one.info(DIRECTORY));
        here.directory = directory.map(str::to_owned).or(here.directory);
        let tree = Tree::of(&options, &here, &world);
        let values = Values::from_iter(request.values.iter().cloned());
        let server = world::server(&name, &options, &tree, values, self.options.universe_size());
        let hosts = tree.hosts.clone();
        if self.worlds.len() == 1 {
            self.tell_unrecorded();
        }
        if self.options.verbose {
            let world = self.worlds.len();
            for (rank, host) in hosts.iter().enumerate() {
                tell!("mpiexec: rank {world}.{rank} is spawned on {host}");
            }
        }
        self.add_world(job, server, Birth::Awaited { parent, missing: size }, &hosts);
        // Its processes meet those that have spawned them, and end this connection when they disconnect.
        if let Some(world) = self.worlds.last_mut()
            && request.values.iter().any(|(key, _)| key == boot::PARENT_KEY)
        {
            world.unmet = (first..first + size).collect();
        }
        let parents = self.worlds[parents].job;
        for process in first..first + size {
            self.connections.add(process, parents);
        }
        let homes = options.placement();
        self.homes.extend(homes);
        if let Err(text) = self.start_world(tree, &name.secret) {
            self.fail_spawn(self.worlds.len() - 1, &text);
            // No agent has these ranks.
            let led: Vec<u32> = self.nodes.iter().flat_map(Node::ranks).collect();
            let lost: Vec<u32> = (first..first + size).filter(|one| !led.contains(one)).collect();
            self.count_as_ended(&lost);
        }
        Ok(())
    }

    /// Tells which recordings do not have spawned ranks.
    fn tell_unrecorded(&self) {
        let Options { trace, profile, record, .. } = &self.options;
        let wanted = [("-trace", trace), ("-profile", profile), ("-record", record)];
        let wanted: Vec<&str> =
            wanted.iter().filter(|(_, file)| file.is_some()).map(|(name, _)| *name).collect();
        if !wanted.is_empty() {
            let wanted = wanted.join(", ");
            tell!("mpiexec: {wanted}: ranks that are spawned are not in the file");
        }
    }

    /// Notes that a spawned rank was started. Its parent goes on once all are.
    pub(super) fn note_started(&mut self, process: u32) {
        let (world, _) = self.world_of(process);
        let Birth::Awaited { parent, missing } = self.worlds[world].birth else { return };
        if missing > 1 {
            self.worlds[world].birth = Birth::Awaited { parent, missing: missing - 1 };
            return;
        }
        self.worlds[world].birth = Birth::Done;
        self.answer_spawn(parent, "cmd=spawn_result rc=0");
    }

    /// Gives up a world that cannot be started whole: its parent learns it, and what was started of it ends.
    pub(super) fn fail_spawn(&mut self, world: usize, text: &str) {
        let Birth::Awaited { parent, .. } = self.worlds[world].birth else { return };
        let first = self.worlds[world].first;
        self.worlds[world].birth = Birth::Failed;
        self.send_to_all(&Message::new(MessageKind::Signal, first, [SIGKILL as u8]));
        self.refuse_spawn(parent, text);
    }

    fn refuse_spawn(&mut self, parent: u32, text: &str) {
        tell!("mpiexec: {}: its spawn failed: {text}", self.name(parent));
        self.answer_spawn(parent, "cmd=spawn_result rc=-1 msg=mpiexec_says_why");
    }

    fn answer_spawn(&self, parent: u32, line: &str) {
        self.send(parent, MessageKind::PmiAnswer, format!("{line}\n").into());
    }

    /// Gives up the worlds whose start is awaited and that have one of these processes, which are lost.
    pub(super) fn fail_spawns_of(&mut self, processes: &[u32], text: &str) {
        let mut worlds: Vec<usize> =
            processes.iter().map(|process| self.world_of(*process).0).collect();
        worlds.dedup();
        worlds.into_iter().for_each(|world| self.fail_spawn(world, text));
        let is_of_failed =
            |process: &u32| self.worlds[self.world_of(*process).0].birth == Birth::Failed;
        let lost: Vec<u32> = processes.iter().copied().filter(is_of_failed).collect();
        self.count_as_ended(&lost);
    }

    /// Notes that a rank of a world has ended. Agents forget a spawned world of which none is left.
    pub(super) fn note_ended(&mut self, process: u32) {
        let (at, _) = self.world_of(process);
        let world = &mut self.worlds[at];
        world.left -= 1;
        if at > 0 && world.left == 0 {
            world.server.clear();
            let first = world.first;
            self.send_to_all(&Message::new(MessageKind::WorldEnded, first, Vec::new()));
        }
    }

    /// Notes that a process of job `from` has communicators with another job, or none any more. Returns the answer.
    pub(super) fn note_connection(
        &mut self,
        process: u32,
        from: u64,
        (job, is_connected): (u64, bool),
    ) -> &'static str {
        let (world, _) = self.world_of(process);
        let world = &mut self.worlds[world];
        if world.job == 0 {
            world.job = from;
        }
        if self.connections.has(process, job) {
            // It has met those that have spawned it.
            world.unmet.remove(&process);
        }
        if !is_connected {
            self.connections.remove(process, job);
            return "cmd=disconnected rc=0";
        }
        // A world is connected with itself.
        match from == job || self.connections.add(process, job) {
            true => "cmd=connected rc=0",
            false => "cmd=connected rc=-1 msg=too_many_connections",
        }
    }

    /// Host in messages that leads to the others of a site, by the name of the site.
    fn leaders(&self) -> HashMap<String, String> {
        let running = self.nodes.iter().filter(|node| !node.is_lost());
        let leaders = running.filter_map(|node| {
            let (_, site) = tree::host_and_site(node.host());
            Some((site?.to_owned(), node.host().to_owned()))
        });
        leaders.collect()
    }

    /// Number of ranks that run on each host.
    fn ranks_on_hosts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.options.host_names().count()];
        let running = self.homes.iter().zip(&self.ended).filter(|(_, ended)| !**ended);
        running.for_each(|(host, _)| counts[*host] += 1);
        counts
    }
}

/// Returns the function that passes an agent's reports to the loop, which may have ended already.
fn reporter(
    events: &SyncSender<RunEvent>,
    node: usize,
) -> impl FnMut(Report) -> bool + Send + use<> {
    let events = events.clone();
    move |report| events.send(RunEvent::From(node, report)).is_ok()
}

/// Info key with the directory of the spawning rank, which is that of programs without one of their own.
const DIRECTORY: &str = "canele_directory";
/// Maximum number of processes that a job starts, one after the other.
const PROCESSES_MAX: u32 = 1 << 30;
