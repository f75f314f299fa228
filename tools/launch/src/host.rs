//! Names of hosts with their numbers of ranks, as command lines, hosts files and grid files write them.

use std::net::{IpAddr, Ipv6Addr};

/// Reads `name` or `name:count`. An IPv6 address is written without a count, or in brackets: `::1`, `[::1]:2`.
///
/// # Errors
/// Fails for anything else; the text continues "HOST …".
pub(crate) fn parse(text: &str) -> Result<(String, Option<u32>), &'static str> {
    let (name, count) = match text.split_once('[') {
        Some((user, rest)) => {
            let (address, rest) = rest.split_once(']').ok_or(NO_ADDRESS)?;
            if !is_ipv6(address) {
                return Err(NO_ADDRESS);
            }
            let count = match rest {
                "" => None,
                _ => Some(rest.strip_prefix(':').ok_or(NO_COUNT)?),
            };
            (format!("{user}{address}"), count)
        }
        None => match text.split_once(':') {
            Some(_) if is_ipv6(text.rsplit('@').next().unwrap_or(text)) => (text.into(), None),
            Some((_, rest)) if rest.contains(':') => return Err(NO_ADDRESS),
            Some((name, count)) => (name.into(), Some(count)),
            None => (text.into(), None),
        },
    };
    if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
        return Err("is no name of a host");
    }
    let number = |count: &str| count.parse().ok().filter(|count| *count <= RANKS_MAX);
    let count = count.map(|count| number(count).ok_or(NO_COUNT)).transpose()?;
    Ok((name, count))
}

/// Returns the text that [`parse`] reads as this host.
pub(crate) fn text(name: &str, count: Option<u32>) -> String {
    match count {
        Some(count) if name.contains(':') => {
            let user = name.rfind('@').map_or(0, |at| at + 1);
            format!("{}[{}]:{count}", &name[..user], &name[user..])
        }
        Some(count) => format!("{name}:{count}"),
        None => name.into(),
    }
}

/// True if a host is this machine by its name alone.
pub(crate) fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// True for an IPv6 address, also with a zone such as `%eth0`.
fn is_ipv6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

/// Largest number of ranks in one job.
pub(crate) const RANKS_MAX: u32 = 1 << 20;

const NO_COUNT: &str = "has no number of ranks behind its colon: write host:4";
const NO_ADDRESS: &str = "has colons, but is no IPv6 address: write host:4, ::1, [::1] or [::1]:4";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_with_and_without_counts() {
        for (written, name, count) in [
            ("a", "a", None),
            ("a:2", "a", Some(2)),
            ("u@a:2", "u@a", Some(2)),
            ("10.0.0.1:3", "10.0.0.1", Some(3)),
            ("::1", "::1", None),
            ("2001:db8::1:2", "2001:db8::1:2", None),
            ("[2001:db8::1]:2", "2001:db8::1", Some(2)),
            ("[::1]", "::1", None),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%eth0]:4", "fe80::1%eth0", Some(4)),
            ("u@[::1]:4", "u@::1", Some(4)),
            ("u@::1", "u@::1", None),
        ] {
            assert_eq!(parse(written), Ok((name.to_owned(), count)), "{written}");
            assert_eq!(parse(&text(name, count)), Ok((name.to_owned(), count)), "{written}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let names = ["", ":2", "-o", "a b", "-[::1]"];
        let counts = ["a:", "a:x", "a:-1", "a:9999999", "[::1]:", "[::1]2", "[::1]:x"];
        let addresses = ["a:b:2", "1::2::3", "[::1", "[a]:2", "[10.0.0.1]", "a:1:2"];
        for text in names {
            assert_eq!(parse(text), Err("is no name of a host"), "{text}");
        }
        for text in counts {
            assert_eq!(parse(text), Err(NO_COUNT), "{text}");
        }
        for text in addresses {
            assert_eq!(parse(text), Err(NO_ADDRESS), "{text}");
        }
    }

    #[test]
    fn loopback_addresses_are_this_machine() {
        assert!(["localhost", "127.0.0.1", "127.1.2.3", "::1"].into_iter().all(is_loopback));
        assert!(!["127.example", "10.0.0.1", "::2", "a"].into_iter().any(is_loopback));
    }
}
