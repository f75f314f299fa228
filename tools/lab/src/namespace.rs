//! Namespaces and the processes that keep them alive.
//!
//! As root they are created directly. Otherwise everything is created inside a user namespace in which the
//! caller is root, kept alive by a process of its own. To enter another namespace, a process enters that one
//! first.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// A process of the lab, distinguished by its start time from a later one with the same ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub pid: u32,
    started: u64,
}

/// Rights with which namespaces are created and entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rights {
    /// The caller's own.
    Own,
    /// Rights of root in a user namespace, kept alive by this process.
    User(Holder),
}

impl Rights {
    /// Returns the rights that this process has or can get.
    ///
    /// # Errors
    /// Fails if the kernel refuses namespaces; the text names the obstacle.
    pub fn get() -> Result<Self, LabError> {
        let own = tool("unshare").args(["-n", "-u", "-i", "-m", "true"]).output();
        let own =
            own.map_err(|source| LabError::System { what: "start unshare".into(), source })?;
        if own.status.success() {
            return Ok(Self::Own);
        }
        let mut command = tool("unshare");
        command.args(["-U", "-r", "--", "sleep", "infinity"]);
        hold(command, "unshare -U").map(Self::User).map_err(|error| {
            let settings = SETTINGS.iter().filter_map(|(path, refusing)| {
                let value = fs::read_to_string(path).ok()?;
                (value.trim() == *refusing).then(|| format!("{path} is {refusing}"))
            });
            let obstacle = settings.reduce(|one, other| format!("{one}, {other}"));
            LabError::Privilege(obstacle.unwrap_or_else(|| error.to_string()))
        })
    }

    /// Returns the process to be ended with the lab, if the rights need one.
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Own => None,
            Self::User(holder) => Some(holder),
        }
    }

    /// Creates a process in new namespaces, by options of `unshare`; it keeps them alive once `script` has
    /// prepared them.
    pub fn hold(&self, namespaces: &[&str], script: &str, mark: &str) -> Result<Holder, LabError> {
        let mut command = match self {
            Self::Own => tool("unshare"),
            Self::User(keeper) => {
                let mut command = tool("nsenter");
                command.args(["-t", &keeper.pid.to_string(), "-U", "--preserve-credentials"]);
                command.args(["--", "unshare"]);
                command
            }
        };
        command.args(namespaces).args([
            "--",
            "sh",
            "-ec",
            &format!("{script}\nexec sleep infinity"),
        ]);
        command.env(MARK, mark);
        hold(command, script)
    }

    /// Returns a command that enters namespaces of a holder, by options of `nsenter`.
    pub fn enter(&self, holder: &Holder, namespaces: &[&str]) -> Command {
        let mut command = tool("nsenter");
        command.args(["-t", &holder.pid.to_string()]);
        if let Self::User(_) = self {
            command.arg("--preserve-credentials");
            // A process cannot enter its own user namespace again.
            let user = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/user")).ok();
            if user("self") != user(&holder.pid.to_string()) {
                command.arg("-U");
            }
        }
        command.args(namespaces);
        command
    }

    /// Runs a script in the network namespace of a holder.
    pub fn run_in(&self, holder: &Holder, script: &str) -> Result<(), LabError> {
        let output = self
            .enter(holder, &["-n", "--", "sh", "-ec", script])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| LabError::System { what: "start nsenter".into(), source })?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LabError::Command { command: script.into(), text })
    }
}

impl Holder {
    pub fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.started)
    }

    /// Ends the process and waits until it is gone.
    pub fn end(&self) {
        let Some(pid) = Pid::from_raw(self.pid as i32).filter(|_| self.is_alive()) else { return };
        // The process may end before the signal.
        let _ = kill_process(pid, Signal::KILL);
        let since = Instant::now();
        while self.is_alive() && since.elapsed() < FAREWELL {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            thread::sleep(TICK);
        }
    }

    /// Returns its network namespace, while it is alive.
    pub fn network(&self) -> Option<OsString> {
        let network = network_of(self.pid)?;
        self.is_alive().then_some(network)
    }
}

/// Starts a process of the lab in the background, without output.
pub(crate) fn spawn(mut command: Command, what: &str) -> Result<Holder, LabError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let child = command
        .spawn()
        .map_err(|source| LabError::System { what: format!("start {what}"), source })?;
    Ok(holder_of(child.id()))
}

/// Ends all processes in one of `networks` or with `mark` in their environment, except this one.
pub(crate) fn end_all(networks: &[OsString], mark: &str) {
    let mark = format!("{MARK}={mark}");
    let here = network_of(std::process::id());
    let networks: Vec<_> = networks.iter().filter(|one| Some(*one) != here.as_ref()).collect();
    let is_marked = |id: u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    for _ in 0..SWEEPS {
        let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let found: Vec<Holder> = ids
            .filter(|id| *id != std::process::id())
            .filter(|id| {
                network_of(*id).is_some_and(|own| networks.contains(&&own)) || is_marked(*id)
            })
            .map(holder_of)
            .collect();
        if found.is_empty() {
            return;
        }
        for one in found {
            one.end();
        }
    }
}

/// Returns a command of the system; administrators' tools are often not in a user's path.
pub(crate) fn tool(name: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new(name);
    command.env("PATH", path);
    command
}

/// Waits until a process has become `sleep`: its namespaces are then ready.
fn hold(mut command: Command, what: &str) -> Result<Holder, LabError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command
        .spawn()
        .map_err(|source| LabError::System { what: format!("start {what}"), source })?;
    let holder = holder_of(child.id());
    let since = Instant::now();
    loop {
        let name = fs::read_to_string(format!("/proc/{}/comm", holder.pid)).unwrap_or_default();
        if name.trim() == "sleep" {
            return Ok(holder);
        }
        if !holder.is_alive() || since.elapsed() > PREPARATION {
            holder.end();
            let mut text = String::new();
            if let Some(errors) = &mut child.stderr {
                // The output is for the message only.
                let _ = errors.read_to_string(&mut text);
            }
            return Err(LabError::Command { command: what.into(), text: text.trim().into() });
        }
        thread::sleep(TICK);
    }
}

fn holder_of(pid: u32) -> Holder {
    Holder { pid, started: start_of(pid).unwrap_or(0) }
}

fn network_of(pid: u32) -> Option<OsString> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok().map(Into::into)
}

/// Returns the clock ticks from boot to the start of a process; none if it has ended.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}

/// Variable that marks the processes of a lab.
pub(crate) const MARK: &str = "CANELE_LAB_MARK";

/// Settings of the kernel that refuse user namespaces, and the value that does.
const SETTINGS: [(&str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
];
/// Maximum number of sweeps: ended processes may have started others meanwhile.
const SWEEPS: usize = 20;
const PREPARATION: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(2);
