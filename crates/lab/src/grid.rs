//! Raising and taking down a lab.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// Why a lab could not be raised or found.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A command of the system failed.
    #[error("`{command}` failed: {text}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        text: String,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Its error.
        source: io::Error,
    },
    /// There is no such lab.
    #[error("no lab `{0}` is up: raise it with `canele lab up`")]
    Missing(String),
    /// There is no such node.
    #[error("no node `{0}`: there are {1}")]
    Node(String, String),
    /// Not allowed here.
    #[error("the lab needs root (or `unshare -Urnm` where the kernel allows it): {0}")]
    Privilege(String),
}

/// A lab that is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lab {
    /// What it is like.
    pub spec: Spec,
    /// Its nodes, site by site.
    pub nodes: Vec<Node>,
    /// The router's holder and the links' process.
    router: Holder,
    link: Option<Holder>,
    /// How delay is made: `netem` or `user space`.
    pub delay_by: String,
}

/// A node: where it is and who keeps it alive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its host name.
    pub host: String,
    /// Its site.
    pub site: u32,
    /// Its address.
    pub address: String,
    holder: Holder,
}

/// A process of ours, told from a later one with the same id by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    started: u64,
}

impl Lab {
    /// Raises a lab; one of the same name is taken down first.
    ///
    /// # Errors
    /// When privileges or tools are missing. Nothing is left behind then.
    pub fn up(spec: &Spec) -> Result<Self, LabError> {
        if let Ok(old) = Self::find(&spec.name) {
            old.down()?;
        }
        let router = hold(&["-n"], "exec sleep infinity")?;
        let mut lab = Self {
            spec: spec.clone(),
            nodes: Vec::new(),
            router,
            link: None,
            delay_by: String::new(),
        };
        if let Err(error) = lab.build() {
            // What was made is taken down; the first error is the one that counts.
            let _ = lab.down();
            return Err(error);
        }
        lab.save()?;
        Ok(lab)
    }

    /// The lab of this name, if it is up.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(name: &str) -> Result<Self, LabError> {
        let text = fs::read(state_path(name)).map_err(|_| LabError::Missing(name.into()))?;
        serde_json::from_slice(&text).map_err(|_| LabError::Missing(name.into()))
    }

    /// Whether all its processes are alive.
    pub fn is_whole(&self) -> bool {
        self.holders().all(Holder::is_alive)
    }

    /// Takes the lab down. Namespaces end with the processes that hold them.
    ///
    /// # Errors
    /// When its state cannot be removed.
    pub fn down(&self) -> Result<(), LabError> {
        for holder in self.holders() {
            holder.end();
        }
        let path = state_path(&self.spec.name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::System { what: format!("remove {}", path.display()), source: error })
            }
            _ => {
                let _ = fs::remove_file(hosts_path(&self.spec.name));
                Ok(())
            }
        }
    }

    /// A command that runs in a node, in the current directory.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn command(&self, host: &str, words: &[String]) -> Result<Command, LabError> {
        let node = self.nodes.iter().find(|node| node.host == host).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.host.as_str()).collect();
            LabError::Node(host.into(), known.join(", "))
        })?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &node.holder.pid.to_string(), "-n", "-u", "-i", "-m"]);
        if let Ok(directory) = std::env::current_dir() {
            command.arg(format!("--wdns={}", directory.display()));
        }
        command.arg("--").args(words);
        Ok(command)
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        let nodes = self.nodes.iter().map(|node| &node.holder);
        self.link.iter().chain(nodes).chain([&self.router])
    }

    fn build(&mut self) -> Result<(), LabError> {
        let spec = self.spec.clone();
        self.write_hosts()?;
        self.in_router("sysctl -qw net.ipv4.ip_forward=1 && ip link set lo up")?;
        // Sites may choose the congestion control of the report's time.
        let _ = fs::write("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic bbr");
        for site in 0..spec.sites {
            self.in_router(&format!(
                "ip link add site{site} type bridge && ip addr add 10.77.{site}.1/24 dev site{site} && ip link set site{site} up"
            ))?;
            for node in 0..spec.nodes {
                self.add_node(site, node)?;
            }
        }
        self.make_links()
    }

    fn add_node(&mut self, site: u32, index: u32) -> Result<(), LabError> {
        let spec = self.spec.clone();
        let host = spec.host(site, index);
        let hosts = hosts_path(&spec.name);
        let script = format!(
            "hostname {host} && mount -t tmpfs -o size=50% tmpfs /dev/shm && mount --bind {} /etc/hosts && exec sleep infinity",
            hosts.display()
        );
        let holder = hold(&["-n", "-u", "-i", "-m", "--propagation", "private"], &script)?;
        let address = spec.address(site, index);
        self.nodes.push(Node { host, site, address: address.clone(), holder });
        let inside = holder.pid;
        let port = format!("p{site}-{index}");
        // A token bucket holds what goes at line speed; a long segment must fit it.
        let rate = spec.lan_rate;
        let limit = format!("tbf rate {rate}bit burst 96kb limit 1mb");
        self.in_router(&format!(
            "ip link add {port} type veth peer name eth0 netns {inside} && ip link set {port} master site{site} up && tc qdisc add dev {port} root {limit}"
        ))?;
        let script = format!(
            "ip link set lo up && ip addr add {address}/24 dev eth0 && ip link set eth0 up && ip route add default via 10.77.{site}.1 && tc qdisc add dev eth0 root {limit} && sysctl -qw net.ipv4.tcp_congestion_control=cubic"
        );
        within(inside, &script)
    }

    fn make_links(&mut self) -> Result<(), LabError> {
        let Spec { sites, rtt, wan_rate, wan_buffer, wan_loss, .. } = self.spec.clone();
        if sites < 2 {
            self.delay_by = "nothing".into();
            return Ok(());
        }
        self.delay_by = "user space".into();
        let iptables = ["/usr/sbin/iptables-legacy", "/sbin/iptables-legacy"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists());
        let iptables = iptables.ok_or_else(|| LabError::Command {
            command: "iptables-legacy".into(),
            text: "not found: install the package iptables".into(),
        })?;
        let mut words = vec![];
        let mut number = 0;
        for from in 0..sites {
            for to in (0..sites).filter(|to| *to != from) {
                self.in_router(&format!(
                    "{iptables} -A FORWARD -i site{from} -o site{to} -j NFQUEUE --queue-num {number}"
                ))?;
                number += 1;
            }
        }
        let own = std::env::current_exe()
            .map_err(|source| LabError::System { what: "own path".into(), source })?;
        words.push(own.display().to_string());
        words.extend(["lab".into(), "link".into(), number.to_string(), wan_rate.to_string()]);
        words.push((rtt / 2).as_nanos().to_string());
        words.extend([wan_buffer.to_string(), wan_loss.to_string()]);
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.router.pid.to_string(), "-n", "--"]).args(&words);
        self.link = Some(spawn(command, "lab link")?);
        // The queue drops what comes before somebody listens.
        thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    fn in_router(&self, script: &str) -> Result<(), LabError> {
        within(self.router.pid, script)
    }

    fn write_hosts(&self) -> Result<(), LabError> {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
        for site in 0..self.spec.sites {
            for node in 0..self.spec.nodes {
                let (address, host) = (self.spec.address(site, node), self.spec.host(site, node));
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

impl Holder {
    fn of(pid: u32) -> Self {
        Self { pid, started: start_of(pid).unwrap_or(0) }
    }

    fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    fn end(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32)
            && self.is_alive()
        {
            // It may end between the look and the signal.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let since = Instant::now();
            while self.is_alive() && since.elapsed() < Duration::from_secs(2) {
                let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Clock ticks from boot to the start of a process; none when it has ended.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}

/// A process in new namespaces that keeps them alive.
fn hold(namespaces: &[&str], script: &str) -> Result<Holder, LabError> {
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["--", "sh", "-ec", script]);
    let holder = spawn(command, "unshare")?;
    // The script ends as `sleep`: then its namespaces are as wanted.
    let since = Instant::now();
    loop {
        let name = fs::read_to_string(format!("/proc/{}/comm", holder.pid)).unwrap_or_default();
        if name.trim() == "sleep" {
            return Ok(holder);
        }
        if !holder.is_alive() || since.elapsed() > Duration::from_secs(5) {
            let text = "new namespaces are refused, or `hostname`, `mount` failed";
            return Err(LabError::Privilege(text.into()));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn spawn(mut command: Command, what: &str) -> Result<Holder, LabError> {
    use std::os::unix::process::CommandExt;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command
        .spawn()
        .map_err(|source| LabError::System { what: format!("start {what}"), source })?;
    Ok(Holder::of(child.id()))
}

/// Runs a script in the network namespace of a process.
fn within(pid: u32, script: &str) -> Result<(), LabError> {
    let output = Command::new("nsenter")
        .args(["-t", &pid.to_string(), "-n", "--", "sh", "-ec", script])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LabError::System { what: "start nsenter".into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Command { command: script.into(), text })
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<(), LabError> {
    let what = || format!("write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|source| LabError::System { what: what(), source })?;
    }
    fs::write(path, bytes).map_err(|source| LabError::System { what: what(), source })
}

fn state_path(name: &str) -> PathBuf {
    PathBuf::from(STATE).join(format!("{name}.json"))
}

fn hosts_path(name: &str) -> PathBuf {
    PathBuf::from(STATE).join(format!("{name}.hosts"))
}

/// Where labs that are up are written down.
const STATE: &str = "/run/canele-lab";
