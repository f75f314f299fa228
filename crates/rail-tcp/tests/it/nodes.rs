//! Nodes for tests: network namespaces, in which a test program runs again as one part of the test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs a script in namespaces of its own, with the right to configure them, and returns its output. PROGRAM in the
/// script is this program; everything ends with the script. `None` if the kernel refuses.
pub fn run(script: &str) -> Option<String> {
    if let Some(reason) = reason_to_skip() {
        testing::skip(format_args!("no namespaces: {reason}"));
        return None;
    }
    let program = std::env::current_exe().expect("this program");
    let script = script.replace("PROGRAM", &program.display().to_string());
    let script = format!("{MEETING}\n{script}");
    let output =
        unshare().args(["timeout", "200", "sh", "-ec", &script]).output().expect("unshare");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{text}\n{errors}");
    assert!(output.status.success(), "{text}\n{errors}");
    Some(text)
}

/// A directory through which the parts of a test exchange files.
pub struct Meeting {
    directory: PathBuf,
    limit: Instant,
}

impl Meeting {
    /// Returns the directory of the script that runs this program.
    pub fn of_script() -> Self {
        let directory = std::env::var_os("MEETING").expect("run by the test of namespaces").into();
        Self { directory, limit: Instant::now() + Duration::from_secs(90) }
    }

    /// Leaves `bytes` under a name.
    pub fn leave(&self, name: &str, bytes: &[u8]) {
        let new = self.directory.join(format!("{name}.new"));
        std::fs::write(&new, bytes).expect("a file");
        std::fs::rename(new, self.directory.join(name)).expect("a file");
    }

    /// Returns the bytes under a name, if any yet.
    pub fn find(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.directory.join(name)).ok()
    }

    /// Waits for the bytes under a name.
    pub fn wait(&self, name: &str) -> Vec<u8> {
        loop {
            if let Some(bytes) = self.find(name) {
                return bytes;
            }
            self.check(name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fails the test if it takes too long to wait for `what`.
    pub fn check(&self, what: &str) {
        assert!(Instant::now() < self.limit, "waiting for {what}");
    }
}

/// Returns both ends of this node's IPv4 connections.
pub fn established() -> Vec<(String, String)> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
    let address = |text: &str| {
        let digits = u32::from_str_radix(&text[..8], 16).expect("an address");
        std::net::Ipv4Addr::from(digits.swap_bytes()).to_string()
    };
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[3] == "01").map(|row| (address(row[1]), address(row[2]))).collect()
}

/// Returns a command that runs another in namespaces of its own, with the right to configure them.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"]);
    command.args(["--kill-child", "--mount-proc"]).stdin(Stdio::null());
    command
}

fn reason_to_skip() -> Option<String> {
    let probe = "ip link add one type veth peer name two";
    match unshare().args(["sh", "-c", probe]).output() {
        Err(error) => Some(format!("no unshare: {error}")),
        Ok(output) if !output.status.success() => {
            Some(String::from_utf8_lossy(&output.stderr).trim().into())
        }
        Ok(_) => None,
    }
}

/// A directory to meet in, and a second node, `$other`, entered by `there COMMAND`.
const MEETING: &str = r#"
MEETING=$(mktemp -d); export MEETING
trap 'rm -rf "$MEETING"' EXIT
unshare --net sleep 220 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
there() { nsenter --target $other --net "$@"; }
"#;
