//! Creation and removal of a lab.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::daemon::{self, Change, Cut, Link, Request, Which};
use crate::error::LabError;
use crate::namespace::{Holder, MARK, Rights, end_all, spawn};
use crate::netem;
use crate::spec::{Spec, lan, port};
use crate::speed::SpeedGroup;

/// A lab that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    /// Specification.
    pub spec: Spec,
    /// Its nodes, site by site.
    pub nodes: Vec<Node>,
    rights: Rights,
    /// Mark in the environment of its processes.
    mark: String,
    /// Holder of the router, and process of the links.
    router: Holder,
    daemon: Option<Holder>,
    /// Implementation of delay: `netem` or `user space`.
    pub delay_by: String,
}

/// A node: its place and its holder process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its host name.
    pub host: String,
    /// Its site.
    pub site: u32,
    /// Its address, by which all nodes reach it.
    pub address: String,
    /// Its addresses on further LANs of its site.
    #[serde(default)]
    pub further: Vec<String>,
    holder: Holder,
    /// Limit of its speed.
    #[serde(default)]
    speed: Option<SpeedGroup>,
}

impl Node {
    /// Returns its addresses, one for each network interface.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        [&self.address].into_iter().chain(&self.further).map(String::as_str)
    }
}

impl Lab {
    /// Creates a lab; one of the same name is removed first.
    ///
    /// # Errors
    /// Fails if privileges or tools are missing. Nothing is left behind then.
    pub fn up(spec: &Spec) -> Result<Self, LabError> {
        spec.check().map_err(LabError::Spec)?;
        if let Ok(old) = Self::find(&spec.name) {
            old.down()?;
        }
        let rights = Rights::get()?;
        // Unique among labs of all users.
        let mark = format!("{}-{}", spec.name, std::process::id());
        let router = match rights.hold(&["-n"], "true", &mark) {
            Ok(router) => router,
            Err(error) => {
                rights.holder().map(Holder::end);
                return Err(error);
            }
        };
        let mut lab = Self {
            spec: spec.clone(),
            nodes: Vec::new(),
            rights,
            mark,
            router,
            daemon: None,
            delay_by: String::new(),
        };
        if let Err(error) = lab.build() {
            // Everything created is removed; the first error counts.
            let _ = lab.down();
            return Err(error);
        }
        Ok(lab)
    }

    /// Finds the lab of this name.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn find(name: &str) -> Result<Self, LabError> {
        let path = state_path(name);
        let owner = fs::metadata(&path).map(|found| found.uid());
        if owner.is_ok_and(|owner| owner != rustix::process::geteuid().as_raw()) {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            let what = format!("{} is another user's", path.display());
            return Err(LabError::System { what, source });
        }
        let text = fs::read(path).map_err(|_| LabError::Missing(name.into()))?;
        serde_json::from_slice(&text).map_err(|_| LabError::Missing(name.into()))
    }

    /// True if all its processes are alive.
    pub fn is_whole(&self) -> bool {
        self.holders().all(Holder::is_alive)
    }

    /// Removes the lab. Namespaces end with the processes that hold them.
    ///
    /// # Errors
    /// Fails if its state cannot be removed.
    pub fn down(&self) -> Result<(), LabError> {
        let networks: Vec<_> = self.nodes.iter().filter_map(|node| node.holder.network()).collect();
        end_all(&networks, &self.mark);
        for holder in self.holders() {
            holder.end();
        }
        self.nodes.iter().filter_map(|node| node.speed.as_ref()).for_each(SpeedGroup::remove);
        let path = state_path(&self.spec.name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::System { what: format!("remove {}", path.display()), source: error })
            }
            _ => {
                let _ = fs::remove_file(hosts_path(&self.spec.name));
                let _ = fs::remove_file(lock_path(&self.spec.name));
                let _ = fs::remove_file(socket_path(&self.spec.name));
                // The folder stays while other labs use it.
                let _ = fs::remove_dir(state_folder());
                Ok(())
            }
        }
    }

    /// Returns a command that runs in a node, with its speed, in the current directory.
    ///
    /// # Errors
    /// Fails if there is no such node.
    pub fn command(&self, host: &str, words: &[impl AsRef<OsStr>]) -> Result<Command, LabError> {
        let node = self.node(host)?;
        let mut command = self.enter(node);
        command.args(node.speed.iter().flat_map(SpeedGroup::prefix)).args(words);
        Ok(command)
    }

    /// Returns a command that measures or loads links from a node: the node's speed does not limit it.
    ///
    /// # Errors
    /// Fails if there is no such node.
    pub(crate) fn link_tool(
        &self,
        host: &str,
        words: &[impl AsRef<OsStr>],
    ) -> Result<Command, LabError> {
        let mut command = self.enter(self.node(host)?);
        command.args(words);
        Ok(command)
    }

    fn node(&self, host: &str) -> Result<&Node, LabError> {
        self.nodes.iter().find(|node| node.host == host).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.host.as_str()).collect();
            LabError::Node(host.into(), known.join(", "))
        })
    }

    /// Returns a command that enters a node; the words that it runs are still to come.
    fn enter(&self, node: &Node) -> Command {
        let mut command = self.rights.enter(&node.holder, &["-n", "-u", "-i", "-m"]);
        if let Ok(directory) = std::env::current_dir() {
            command.arg(format!("--wdns={}", directory.display()));
        }
        command.arg("--").env(MARK, &self.mark).env(FOLDER, state_folder());
        command
    }

    /// Returns the conditions and counters of the links between sites.
    ///
    /// # Errors
    /// Fails if the daemon does not answer.
    pub fn links(&self) -> Result<Vec<Link>, LabError> {
        self.ask(&Request::Report)
    }

    /// Changes links, from the next packet on.
    ///
    /// # Errors
    /// Fails if there are no such links, or they are the kernel's.
    pub fn set(&self, which: Which, change: Change) -> Result<Vec<Link>, LabError> {
        self.ask(&Request::Set(which, change))
    }

    /// Takes time that the machine adds to packets off the delay of links.
    ///
    /// # Errors
    /// Fails if there are no such links, or they are the kernel's.
    pub(crate) fn lead(&self, which: Which, lead: Duration) -> Result<Vec<Link>, LabError> {
        self.ask(&Request::Lead(which, lead))
    }

    /// Cuts a site off from all others, or a node from everything outside it, for a time or until
    /// [`Lab::heal`].
    ///
    /// # Errors
    /// Fails if there is no such site or node, or the system refuses.
    pub fn cut(&self, cut: Cut, duration: Option<Duration>) -> Result<Vec<Link>, LabError> {
        let Spec { sites, nodes, .. } = self.spec;
        if cut.site >= sites || cut.node.is_some_and(|node| node >= nodes) {
            let text = format!("there are {sites} sites of {nodes} nodes, counted from 0");
            return Err(LabError::Spec(text));
        }
        self.ask(&Request::Cut(cut, duration))
    }

    /// Ends all cuts.
    ///
    /// # Errors
    /// Fails if the daemon does not answer, or the system refuses.
    pub fn heal(&self) -> Result<Vec<Link>, LabError> {
        self.ask(&Request::Heal)
    }

    fn ask(&self, request: &Request) -> Result<Vec<Link>, LabError> {
        let answer = daemon::ask(&socket_path(&self.spec.name), request);
        let what = || "ask the process of the links".to_owned();
        let answer = answer.map_err(|source| LabError::System { what: what(), source })?;
        answer.map_err(LabError::Refused)
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        let nodes = self.nodes.iter().map(|node| &node.holder);
        self.daemon.iter().chain(nodes).chain([&self.router]).chain(self.rights.holder())
    }

    fn build(&mut self) -> Result<(), LabError> {
        let spec = self.spec.clone();
        // State is saved at once: if this process is killed meanwhile, `down` knows what to end.
        self.save()?;
        self.write_hosts()?;
        self.in_router("echo 1 >/proc/sys/net/ipv4/ip_forward && ip link set lo up")?;
        // A LAN is a switch: the router's rules do not apply to its traffic.
        let _ = self.in_router("echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables");
        // Allows the congestion controls of the report's time.
        let _ = fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic bbr");
        for site in 0..spec.sites {
            for nic in 0..spec.nics {
                let lan = lan(site, nic);
                self.in_router(&format!("ip link add {lan} type bridge && ip link set {lan} up"))?;
            }
            // Only first LANs lead to other sites.
            let first = lan(site, 0);
            self.in_router(&format!("ip addr add 10.77.{site}.1/24 dev {first}"))?;
            for node in 0..spec.nodes {
                self.add_node(site, node)?;
            }
        }
        self.make_links()?;
        self.save()
    }

    fn add_node(&mut self, site: u32, index: u32) -> Result<(), LabError> {
        let spec = self.spec.clone();
        let host = spec.host(site, index);
        let hosts = hosts_path(&spec.name);
        let script = format!(
            "hostname {host} && mount -t tmpfs -o size=50% tmpfs /dev/shm && mount --bind {} /etc/hosts",
            hosts.display()
        );
        let namespaces = ["-n", "-u", "-i", "-m", "--propagation", "private"];
        let holder = self.rights.hold(&namespaces, &script, &self.mark)?;
        let mut addresses = (0..spec.nics).map(|nic| spec.address(site, index, nic));
        let address = addresses.next().unwrap_or_default();
        let further = addresses.collect();
        self.nodes.push(Node { host, site, address, further, holder, speed: None });
        self.save()?;
        if let (Some(speed), Some(made)) = (spec.speed_of(site, index), self.nodes.last_mut()) {
            let name = format!("canele-{}-{}", self.mark, made.host);
            made.speed = Some(SpeedGroup::make(&name, speed)?);
            self.save()?;
        }
        self.rights.run_in(&holder, "ip link set lo up")?;
        for nic in 0..spec.nics {
            self.plug_in(&holder, site, index, nic)?;
        }
        let script = format!(
            "ip route add default via 10.77.{site}.1 && echo cubic >/proc/sys/net/ipv4/tcp_congestion_control"
        );
        self.rights.run_in(&holder, &script)?;
        let sockets = spec.socket_max.map(socket_script);
        sockets.map_or(Ok(()), |script| self.rights.run_in(&holder, &script))
    }

    /// Gives a node an interface on one of its site's LANs.
    fn plug_in(&self, holder: &Holder, site: u32, node: u32, nic: u32) -> Result<(), LabError> {
        let (port, lan, inside) = (port(site, node, nic), lan(site, nic), holder.pid);
        let address = self.spec.address(site, node, nic);
        // A token bucket passes a burst at line speed; a long segment must fit into it.
        let limit = format!("tbf rate {}bit burst 96kb limit 1mb", self.spec.lan_rate);
        self.in_router(&format!(
            "ip link add {port} type veth peer name eth{nic} netns {inside} && ip link set {port} master {lan} up && tc qdisc add dev {port} root {limit}"
        ))?;
        let script = format!(
            "ip addr add {address}/24 dev eth{nic} && ip link set eth{nic} up && tc qdisc add dev eth{nic} root {limit}"
        );
        self.rights.run_in(holder, &script)
    }

    /// Creates the links. If the kernel can queue packets to user space, links can be changed and counted;
    /// otherwise its own emulator makes them.
    fn make_links(&mut self) -> Result<(), LabError> {
        self.keep_private()?;
        if self.spec.sites < 2 {
            self.delay_by = "nothing".into();
            return self.start_daemon(false);
        }
        self.delay_by = "user space".into();
        let Err(refusal) = self.queue_packets() else { return Ok(()) };
        if self.in_router(netem::PROBE).is_err() {
            return Err(refusal);
        }
        self.delay_by = "netem".into();
        if let Some(daemon) = self.daemon.take() {
            daemon.end();
        }
        for (from, to) in self.spec.directions() {
            // Rules that were never added cannot be deleted.
            let _ = self.in_router(&self.queue_rule("-D", from, to, 0));
        }
        for site in 0..self.spec.sites {
            for command in netem::commands(&self.spec, site) {
                self.in_router(&command)?;
            }
        }
        self.start_daemon(false)
    }

    /// Queues the packets between sites to the daemon.
    fn queue_packets(&mut self) -> Result<(), LabError> {
        self.need(IPTABLES, "iptables")?;
        for (number, (from, to)) in (0..).zip(self.spec.directions()) {
            self.in_router(&self.queue_rule("-A", from, to, number))?;
        }
        // No ICMP reports a shorter MTU, as behind many firewalls.
        self.in_router(&self.rule("-A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP"))?;
        self.start_daemon(true)
    }

    fn queue_rule(&self, word: &str, from: u32, to: u32, number: u32) -> String {
        let (from, to) = (lan(from, 0), lan(to, 0));
        self.rule(&format!("{word} FORWARD -i {from} -o {to} -j NFQUEUE --queue-num {number}"))
    }

    /// Allows connections into private sites to their first nodes only, and hides the other nodes by NAT.
    fn keep_private(&self) -> Result<(), LabError> {
        for site in &self.spec.private_sites {
            self.need(IPTABLES, "iptables")?;
            let (lan, gateway) = (lan(*site, 0), self.spec.address(*site, 0, 0));
            for rule in [
                format!(
                    "-A FORWARD ! -i {lan} -o {lan} ! -d {gateway} -m conntrack --ctstate NEW,INVALID -j DROP"
                ),
                format!("-t nat -A POSTROUTING -s {gateway} -j ACCEPT"),
                format!(
                    "-t nat -A POSTROUTING -s 10.77.{site}.0/24 ! -o {lan} -j SNAT --to-source 10.77.{site}.1"
                ),
            ] {
                self.in_router(&self.rule(&rule))?;
            }
        }
        Ok(())
    }

    /// Returns a command that adds or deletes a rule of the router.
    fn rule(&self, words: &str) -> String {
        // The default lock file belongs to root; this router has its own.
        format!("XTABLES_LOCKFILE={} {IPTABLES} {words}", lock_path(&self.spec.name).display())
    }

    fn need(&self, tool: &str, package: &str) -> Result<(), LabError> {
        self.in_router(&format!(
            "command -v {tool} >/dev/null || {{ echo {tool} is missing: install the package {package} >&2; exit 1; }}"
        ))
    }

    fn start_daemon(&mut self, carries: bool) -> Result<(), LabError> {
        let own = std::env::current_exe()
            .map_err(|source| LabError::System { what: "own path".into(), source })?;
        let socket = socket_path(&self.spec.name);
        let _ = fs::remove_file(&socket);
        let mut command = self.rights.enter(&self.router, &["-n", "--"]);
        command.arg(own).args(["lab", "daemon", &carries.to_string()]);
        command.arg(serde_json::to_string(&self.spec).unwrap_or_default()).arg(socket);
        command.env(MARK, &self.mark);
        let daemon = spawn(command, "lab daemon")?;
        self.daemon = Some(daemon);
        let since = Instant::now();
        while self.links().is_err() {
            if !daemon.is_alive() || since.elapsed() > START {
                let text = "packets cannot be queued to user space".into();
                return Err(LabError::Refused(text));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn in_router(&self, script: &str) -> Result<(), LabError> {
        self.rights.run_in(&self.router, script)
    }

    fn write_hosts(&self) -> Result<(), LabError> {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for site in 0..self.spec.sites {
            for node in 0..self.spec.nodes {
                let (address, host) =
                    (self.spec.address(site, node, 0), self.spec.host(site, node));
                text.push_str(&format!("{address} {host}\n"));
            }
        }
        write(&hosts_path(&self.spec.name), text.as_bytes())
    }

    fn save(&self) -> Result<(), LabError> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        write(&state_path(&self.spec.name), &text)
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<(), LabError> {
    let what = || format!("write {}", path.display());
    if let Some(folder) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(|source| LabError::System { what: what(), source })?;
    }
    fs::write(path, bytes).map_err(|source| LabError::System { what: what(), source })
}

fn state_path(name: &str) -> PathBuf {
    state_folder().join(format!("{name}.json"))
}

fn hosts_path(name: &str) -> PathBuf {
    state_folder().join(format!("{name}.hosts"))
}

fn socket_path(name: &str) -> PathBuf {
    state_folder().join(format!("{name}.socket"))
}

fn lock_path(name: &str) -> PathBuf {
    state_folder().join(format!("{name}.lock"))
}

/// Returns the folder with the state of a user's labs. On a node, the user may seem to be another.
fn state_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return folder.into();
    }
    let user = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_dir()) {
        _ if user.is_root() => "/run/canele-lab".into(),
        Some(path) => path.join("canele-lab"),
        None => format!("/tmp/canele-lab-{}", user.as_raw()).into(),
    }
}

/// Returns a script that bounds TCP socket buffers; the initial size is bounded, too.
fn socket_script(most_bytes: u64) -> String {
    let most_bytes = most_bytes.clamp(SOCKET_LEAST_BYTES, i32::MAX as u64);
    let of = |name: &str, usual_bytes: u64| {
        let usual_bytes = usual_bytes.min(most_bytes);
        format!("echo {SOCKET_LEAST_BYTES} {usual_bytes} {most_bytes} >/proc/sys/net/ipv4/{name}")
    };
    // Initial sizes of the kernel.
    format!("{} && {}", of("tcp_rmem", 131_072), of("tcp_wmem", 16_384))
}

/// Minimum socket buffer of TCP.
const SOCKET_LEAST_BYTES: u64 = 4096;

/// The tool that supports queues; its successor needs a kernel that does, too.
const IPTABLES: &str = "iptables-legacy";
/// Variable by which processes on nodes find the state of labs.
const FOLDER: &str = "CANELE_LAB_FOLDER";
/// Time in which the daemon must first answer.
const START: Duration = Duration::from_secs(5);
