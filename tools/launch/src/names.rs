//! Names of ports that ranks have published with us (PMI-1), for all worlds of the job.

use std::collections::HashMap;

use zeroize::Zeroizing;

use crate::pmi::words;

/// Ports by the names of services. The name of a port is a secret.
#[derive(Default)]
pub(crate) struct Names(HashMap<String, PublishedPort>);

struct PublishedPort {
    process: u32,
    port: Zeroizing<String>,
}

impl Names {
    /// Handles a line of a process: to publish a name, to look it up, or to withdraw it. Returns the answer.
    pub fn handle(&mut self, process: u32, line: &str) -> Zeroizing<String> {
        let words = words(line);
        let word = |key: &str| words.get(key).copied().unwrap_or("");
        let (service, port) = (word("service"), word("port"));
        Zeroizing::new(match word("cmd") {
            boot::PUBLISH_NAME => match self.publish(process, service, port) {
                Ok(()) => "cmd=publish_result rc=0 msg=success info=ok".into(),
                Err(why) => format!("cmd=publish_result rc=-1 msg={why} info={why}"),
            },
            boot::LOOKUP_NAME => match self.0.get(service) {
                Some(found) => format!("cmd=lookup_result rc=0 port={} info=ok", *found.port),
                None => "cmd=lookup_result rc=-1 msg=not_found info=not_found".into(),
            },
            _ => match self.withdraw(service, port) {
                true => "cmd=unpublish_result rc=0 msg=success info=ok".into(),
                false => "cmd=unpublish_result rc=-1 msg=not_found info=not_found".into(),
            },
        })
    }

    fn publish(&mut self, process: u32, service: &str, port: &str) -> Result<(), &'static str> {
        if service.is_empty() || self.0.len() >= NAMES_MAX {
            return Err("refused");
        }
        if self.0.contains_key(service) {
            return Err("taken");
        }
        let port = Zeroizing::new(port.to_owned());
        self.0.insert(service.to_owned(), PublishedPort { process, port });
        Ok(())
    }

    /// Withdraws a name. Clients of other libraries name no port.
    fn withdraw(&mut self, service: &str, port: &str) -> bool {
        let is_it = |found: &PublishedPort| port.is_empty() || *found.port == port;
        self.0.get(service).is_some_and(is_it) && self.0.remove(service).is_some()
    }

    /// Withdraws the names of a process that has ended.
    pub fn forget(&mut self, process: u32) {
        self.0.retain(|_, published| published.process != process);
    }
}

/// Maximum number of names: as many as there can be ports of a job.
const NAMES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_processes_that_live() {
        let mut names = Names::default();
        let mut ask = |process, line: &str| names.handle(process, line).to_string();
        let look = "cmd=lookup_name service=sea%20ice";
        assert!(ask(1, look).contains("rc=-1"));
        assert!(ask(1, "cmd=publish_name service= port=p").contains("rc=-1"));
        assert!(ask(1, "cmd=publish_name service=sea%20ice port=p=1").contains("rc=0"));
        assert!(ask(2, "cmd=publish_name service=sea%20ice port=q").contains("msg=taken"));
        assert!(ask(2, look).contains("rc=0 port=p=1 "));
        assert!(ask(1, "cmd=unpublish_name service=sea%20ice port=q").contains("rc=-1"));
        assert!(ask(1, "cmd=unpublish_name service=sea%20ice port=p=1").contains("rc=0"));
        assert!(ask(2, look).contains("rc=-1"));
        assert!(ask(2, "cmd=publish_name service=sea%20ice port=q").contains("rc=0"));
        names.forget(1);
        assert!(names.handle(1, look).contains("port=q"));
        names.forget(2);
        assert!(names.0.is_empty());
    }
}
