//! Links made by the kernel's own emulator, where it has one.

use crate::spec::{Spec, lan};

/// Returns the commands that configure a router's port towards site `to`: delay, rate, buffer and loss. Each
/// sending site has a band with an emulator of its own, and the rest has one without.
pub(crate) fn commands(spec: &Spec, to: u32) -> Vec<String> {
    let Spec { sites, wan_rate, wan_buffer, wan_loss, .. } = spec;
    let port = lan(to, 0);
    let rest = vec![sites.to_string(); 16].join(" ");
    let bands = sites + 1;
    let mut lines =
        vec![format!("tc qdisc add dev {port} root handle 1: prio bands {bands} priomap {rest}")];
    for from in (0..*sites).filter(|from| *from != to) {
        let band = from + 1;
        // The emulator's limit counts packets, including those in flight.
        let delay_s = spec.rtt_between(from, to).as_secs_f64() / 2.0;
        let held_bytes = *wan_buffer as f64 + *wan_rate as f64 / 8.0 * delay_s;
        let packets = (held_bytes / PACKET_BYTES).ceil().max(1.0) as u64;
        lines.push(format!(
            "tc qdisc add dev {port} parent 1:{band} handle {}: netem delay {}us limit {packets} loss {}% rate {wan_rate}bit {OVERHEAD_BYTES}",
            10 + from,
            (delay_s * 1e6).round(),
            wan_loss * 100.0,
        ));
        lines.push(format!(
            "tc filter add dev {port} parent 1: protocol ip prio 1 u32 match ip src 10.77.{from}.0/24 flowid 1:{band}"
        ));
    }
    lines
}

/// Script that succeeds if the kernel has the emulator.
pub(crate) const PROBE: &str =
    "tc qdisc add dev lo root netem delay 1ms && tc qdisc del dev lo root";

const PACKET_BYTES: f64 = 1500.0;
/// Ethernet overhead beyond the kernel's count: preamble, check sequence and gap.
const OVERHEAD_BYTES: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_other_site_has_a_band_with_an_emulator() {
        let spec = Spec {
            sites: 3,
            rtt: Duration::from_millis(10),
            wan_rate: 1_200_000,
            wan_buffer: 2250,
            wan_loss: 0.25,
            ..Spec::default()
        };
        let lines = commands(&spec, 1);
        assert_eq!(
            lines,
            [
                "tc qdisc add dev site1 root handle 1: prio bands 4 priomap 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3",
                "tc qdisc add dev site1 parent 1:1 handle 10: netem delay 5000us limit 2 loss 25% rate 1200000bit 24",
                "tc filter add dev site1 parent 1: protocol ip prio 1 u32 match ip src 10.77.0.0/24 flowid 1:1",
                "tc qdisc add dev site1 parent 1:3 handle 12: netem delay 5000us limit 2 loss 25% rate 1200000bit 24",
                "tc filter add dev site1 parent 1: protocol ip prio 1 u32 match ip src 10.77.2.0/24 flowid 1:3",
            ]
        );
    }
}
