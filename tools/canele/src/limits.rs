//! The cost of this system's settings for a link over TCP or UDP, and better settings.

use std::path::Path;

use cost::Cost;
use rail_quic::{QuicBuffers, QuicNeeds};
use topo::transport::Sockets;

/// The kernel's settings for TCP, as far as it tells them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Limits of TCP socket buffers.
    pub sockets: Sockets,
    /// Largest receive buffer, in bytes.
    pub receive_max: Option<u64>,
    /// True if a congestion control keeps its rate over silence.
    pub is_steady: bool,
    /// True if the others restart after silence.
    pub restarts: bool,
}

impl System {
    /// Settings of this process's network namespace.
    pub fn here() -> Self {
        Self::at(Path::new("/proc/sys/net/ipv4"))
    }

    fn at(place: &Path) -> Self {
        let read = |name| std::fs::read_to_string(place.join(name)).unwrap_or_default();
        let last = |name| read(name).split_whitespace().last()?.parse().ok();
        let names = read("tcp_available_congestion_control");
        Self {
            sockets: Sockets::at(place),
            receive_max: last("tcp_rmem"),
            is_steady: names.split_whitespace().any(|name| name == "bbr"),
            restarts: last("tcp_slow_start_after_idle") != Some(0),
        }
    }

    /// Formats a line for each setting that costs a link of this cost something.
    pub fn limits(&self, cost: &Cost) -> String {
        let mut text = String::new();
        let round_trip_ns = 2 * cost.latency_ns();
        let carried = cost.bytes_within(round_trip_ns);
        // The kernel advertises half of a buffer as window; it needs the rest itself.
        let buffers = [
            ("tcp_wmem", self.sockets.send_max, carried),
            ("tcp_rmem", self.receive_max, 2 * carried),
        ];
        for (name, max, needed) in buffers {
            if let Some(max) = max.filter(|max| *max < needed) {
                text += &format!(
                    "  {name:<14}{:>8}  too little for what the link carries in a round trip: \
                     net.ipv4.{name} with {needed} as its last number helps\n",
                    crate::units::size(max)
                );
            }
        }
        if round_trip_ns > FAR_NS && !self.is_steady && self.restarts {
            text += "  after silence    slow  TCP begins anew: modprobe tcp_bbr, or \
                     net.ipv4.tcp_slow_start_after_idle=0, helps\n";
        }
        text
    }
}

/// Formats a link over UDP of this cost: its window, its congestion control, and the cost of the system's
/// buffers.
pub fn of_datagrams(cost: &Cost, got: Option<QuicBuffers>) -> String {
    let needs = QuicNeeds::of(cost);
    let mut text = format!(
        "  window        {:>8}  what is carried in two round trips, and what comes while a process is late\n  \
         congestion    {:>8}  paced at the rate that trains of packets have shown; the system's has no part in it\n",
        crate::units::size(needs.window),
        "ours"
    );
    let Some(got) = got else { return text };
    let lost = "what comes in 20 ms, in which a process may not look: it is lost, and sent again";
    let late = "what leaves in a millisecond: it waits for the next look";
    let buffers =
        [("rmem_max", got.receive, needs.receive, lost), ("wmem_max", got.send, needs.send, late)];
    for (name, got, needed, costs) in buffers {
        if got < needed {
            text += &format!(
                "  {name:<14}{:>8}  less than {costs}: net.core.{name}={needed} helps\n",
                crate::units::size(got)
            );
        }
    }
    text
}

/// Round trip from which links are long and get a congestion control of their own.
const FAR_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(system: &System, cost: &Cost) -> Vec<String> {
        system.limits(cost).lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn settings_too_small_for_a_link_are_printed_with_advice() {
        let far = Cost::linear(5_800_000, 2_000, 125_000_000);
        let near = Cost::linear(20_000, 2_000, 125_000_000);
        let small = System {
            sockets: Sockets { send_max: Some(1 << 20) },
            receive_max: Some(2 << 20),
            is_steady: false,
            restarts: true,
        };
        let printed = lines(&small, &far);
        assert_eq!(printed.len(), 3, "{printed:?}");
        assert!(printed[0].starts_with("tcp_wmem         1 MiB") && printed[0].contains("helps"));
        assert!(printed[1].starts_with("tcp_rmem         2 MiB"));
        assert!(printed[2].contains("modprobe tcp_bbr"));
        assert!(lines(&small, &near).is_empty());
        let sockets = Sockets { send_max: Some(4 << 20) };
        let large = System { sockets, receive_max: Some(6 << 20), ..small };
        assert_eq!(lines(&large, &far).len(), 1);
        assert!(lines(&System { is_steady: true, ..large }, &far).is_empty());
    }

    #[test]
    fn a_link_over_udp_tells_its_window_and_what_buffers_cost() {
        let far = Cost::linear(5_800_000, 2_000, 125_000_000);
        let printed = |receive, send| {
            let text = of_datagrams(&far, Some(QuicBuffers { receive, send }));
            text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        let small = printed(416 << 10, 64 << 10);
        assert_eq!(small.len(), 4, "{small:?}");
        assert!(small[0].starts_with("window           8 MiB"), "{small:?}");
        assert!(small[1].starts_with("congestion        ours"), "{small:?}");
        assert!(
            small[2].starts_with("rmem_max       416 KiB")
                && small[2].contains("net.core.rmem_max=")
        );
        assert!(
            small[3].starts_with("wmem_max        64 KiB")
                && small[3].contains("net.core.wmem_max=")
        );
        assert_eq!(printed(16 << 20, 16 << 20).len(), 2);
        assert_eq!(of_datagrams(&far, None).lines().count(), 2);
    }

    #[test]
    fn the_kernel_is_read_and_what_it_does_not_tell_is_no_limit() {
        let place = tempfile::tempdir().unwrap();
        let write = |name, text| std::fs::write(place.path().join(name), text).unwrap();
        write("tcp_wmem", "4096\t16384\t4194304\n");
        write("tcp_available_congestion_control", "reno cubic bbr\n");
        write("tcp_slow_start_after_idle", "0\n");
        let found = System::at(place.path());
        let (sockets, is_steady) = (Sockets { send_max: Some(4 << 20) }, true);
        assert_eq!(found, System { sockets, receive_max: None, is_steady, restarts: false });
        let nothing = System::at(&place.path().join("nowhere"));
        assert_eq!(nothing, System { restarts: true, ..System::default() });
    }
}
