//! Identities of machine and node, and the address of a process's inbox.

use std::os::unix::fs::MetadataExt;

/// Returns the boot identity of the kernel, which all processes on one machine share; empty if unavailable.
pub fn machine_identity() -> Vec<u8> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().as_bytes().to_vec()
}

/// Returns what processes that can share memory have in common: the machine, the pid and IPC namespaces, and the
/// device of `/dev/shm`. Attaching may still fail.
pub fn node_identity() -> Vec<u8> {
    let inode = |path| std::fs::metadata(path).map_or(0, |metadata| metadata.ino());
    let device = std::fs::metadata("/dev/shm").map_or(0, |metadata| metadata.dev());
    let mut identity = machine_identity();
    for number in [inode("/proc/self/ns/pid"), inode("/proc/self/ns/ipc"), device] {
        identity.extend(number.to_le_bytes());
    }
    identity
}

/// Descriptors of a process's inbox and doorbell, and the token that proves the right memory was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub pid: i32,
    pub inbox: i32,
    pub doorbell: i32,
    pub token: [u8; 16],
    pub identity: Vec<u8>,
}

impl Address {
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.pid, self.inbox, self.doorbell] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.token);
        bytes.extend(&self.identity);
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&[VERSION])?;
        let (numbers, rest) = rest.split_first_chunk::<12>()?;
        let (token, identity) = rest.split_first_chunk::<16>()?;
        let number = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&numbers[at..at + 4]);
            i32::from_le_bytes(word)
        };
        let (pid, inbox, doorbell) = (number(0), number(4), number(8));
        let identity = identity.to_vec();
        Some(Self { pid, inbox, doorbell, token: *token, identity })
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_malformed_bytes_are_refused() {
        let identity = node_identity();
        let address = Address { pid: 7, inbox: 3, doorbell: 4, token: [9; 16], identity };
        let bytes = address.emit();
        assert!(bytes.len() < 200);
        assert_eq!(Address::parse(&bytes), Some(address));
        assert_eq!(Address::parse(&bytes[..20]), None);
        assert_eq!(Address::parse(b""), None);
    }
}
