//! Hosts of a command line and of hosts files.

use std::path::Path;

use crate::host;
use crate::usage::{UsageError, number};

/// Hosts, each with its number of ranks if it has one.
pub(crate) type HostList = Vec<(String, Option<u32>)>;

/// Reads a list such as `a:2,b`.
pub(crate) fn named(list: &str) -> Result<HostList, UsageError> {
    let hosts: Vec<&str> = list.split(',').filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return Err(UsageError(format!("-hosts: `{list}` names no host")));
    }
    let hosts: Result<HostList, _> =
        hosts.into_iter().map(|host| host_of(host, "-hosts")).collect();
    hosts.map(merged)
}

/// Reads a hosts file.
pub(crate) fn in_file(path: &Path) -> Result<HostList, UsageError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| UsageError(format!("hosts file {}: {error}", path.display())))?;
    from_text(&text, &path.display().to_string())
}

/// Reads a host that takes ranks.
fn host_of(text: &str, place: &str) -> Result<(String, Option<u32>), UsageError> {
    match host::parse(text) {
        Ok((_, Some(0))) => {
            Err(UsageError(format!("{place}: `{text}` takes no ranks: leave it out")))
        }
        Ok(host) => Ok(host),
        Err(mistake) => Err(UsageError(format!("{place}: `{text}` {mistake}"))),
    }
}

fn from_text(text: &str, name: &str) -> Result<HostList, UsageError> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{name}:{number}");
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(first) = words.next() else { continue };
        let mut host = host_of(first, &place)?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", count)) => {
                    let wrong =
                        |_| UsageError(format!("{place}: `{word}`: the count is no number"));
                    host.1 = Some(self::number("slots", count).map_err(wrong)?);
                }
                _ => return Err(UsageError(format!("{place}: `{word}` is not understood"))),
            }
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        return Err(UsageError(format!("hosts file {name} names no host")));
    }
    Ok(merged(hosts))
}

/// Adds up the ranks of a host that is named several times in a row.
fn merged(hosts: HostList) -> HostList {
    let mut list: HostList = Vec::new();
    for (name, count) in hosts {
        match list.last_mut().filter(|(last, _)| *last == name) {
            Some((_, sum)) => *sum = Some(sum.unwrap_or(1).saturating_add(count.unwrap_or(1))),
            None => list.push((name, count)),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_files_have_comments_and_slots() {
        let hosts = from_text("# all\na\nb:2 # two\n\nc slots=3\n", "f").unwrap();
        assert_eq!(hosts, [("a".into(), None), ("b".into(), Some(2)), ("c".into(), Some(3))]);
        let error = |text: &str| from_text(text, "f").unwrap_err().to_string();
        assert!(error("a\nb weight=2\n").starts_with("f:2: `weight=2` is not"));
        assert!(error("a\n[::1\n").starts_with("f:2: `[::1` has colons"));
        assert!(error("a:0\n").starts_with("f:1: `a:0` takes no ranks"));
        let hosts = from_text("::1\n[::2]:3\nfe80::1%eth0 slots=4", "f").unwrap();
        assert_eq!(
            hosts,
            [("::1".into(), None), ("::2".into(), Some(3)), ("fe80::1%eth0".into(), Some(4))]
        );
    }

    #[test]
    fn a_host_in_consecutive_lines_has_all_their_ranks() {
        let hosts = from_text("a\na\na:2\nb\na\n", "f").unwrap();
        assert_eq!(hosts, [("a".into(), Some(4)), ("b".into(), None), ("a".into(), None)]);
        assert_eq!(named("a,a,b").unwrap(), [("a".into(), Some(2)), ("b".into(), None)]);
    }
}
