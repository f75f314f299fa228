//! Machine and time of a measurement.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A machine at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Date (RFC 3339, UTC).
    pub date: String,
    /// The kernel's name and release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Load over the last minute before the measurement.
    pub load_before: f64,
    /// Load over the last minute after it.
    pub load_after: f64,
    /// The version of this tool.
    pub version: String,
    /// Dates at which an interrupted measurement was taken up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued: Vec<String>,
}

impl Environment {
    /// Describes this machine, now.
    pub fn now() -> Self {
        let load = load();
        Self {
            date: date(),
            kernel: format!(
                "{} {}",
                first_line("/proc/sys/kernel/ostype"),
                first_line("/proc/sys/kernel/osrelease")
            ),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load,
            load_after: load,
            version: env!("CARGO_PKG_VERSION").into(),
            continued: Vec::new(),
        }
    }

    /// Notes that an interrupted measurement is taken up.
    pub fn go_on(&mut self) {
        self.continued.push(date());
    }

    /// Returns the date, and those at which it was taken up.
    pub fn when(&self) -> String {
        let continued = self.continued.iter().map(|date| format!(", continued {date}"));
        format!("{}{}", self.date, continued.collect::<String>())
    }

    /// Notes the load at the end.
    pub fn end(&mut self) {
        self.load_after = load();
    }
}

fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn load() -> f64 {
    let text = first_line("/proc/loadavg");
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn processor(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(processor(""), "unknown");
    }

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let environment = Environment::now();
        assert!(environment.kernel.starts_with("Linux "), "{}", environment.kernel);
        assert!(environment.cores > 0);
        assert!(environment.date.ends_with('Z'), "{}", environment.date);
    }
}
