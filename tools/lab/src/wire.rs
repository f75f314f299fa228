//! A wire: computes when each packet leaves it, or if it is dropped. Pure; times are arguments, in
//! nanoseconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Conditions of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Rate, including Ethernet overhead.
    pub rate_bits_per_s: u64,
    /// Propagation delay.
    pub delay: Duration,
    /// Buffer in front of it; packets that do not fit are dropped.
    pub buffer_bytes: u64,
    /// Share of packets lost.
    pub loss: f64,
    /// Share of packets duplicated.
    pub duplicate: f64,
    /// Share of packets reordered: delivered after later ones.
    pub reorder: f64,
    /// Extra delay of reordered packets.
    pub reorder_delay: Duration,
    /// Longest IP packet; longer ones are dropped without ICMP.
    pub mtu_bytes: u32,
    /// True if UDP is dropped.
    pub is_udp_forbidden: bool,
    /// True if TCP is dropped.
    pub is_tcp_forbidden: bool,
}

impl Conditions {
    fn forbids(&self, protocol: u8) -> bool {
        let of_udp = self.is_udp_forbidden && protocol == UDP;
        of_udp || (self.is_tcp_forbidden && protocol == TCP)
    }

    /// Returns the detail of packets that the conditions need.
    pub fn detail(&self) -> Detail {
        if self.duplicate > 0.0 {
            Detail::Contents
        } else if self.loss > 0.0 || self.reorder > 0.0 {
            Detail::Packets
        } else {
            Detail::Lengths
        }
    }
}

/// Detail of the packets that the kernel passes to user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Lengths of packets before segmentation.
    Lengths,
    /// Lengths of segmented packets, as on a real link.
    Packets,
    /// Whole packets, so that they can be sent again.
    Contents,
}

/// Counters of one direction of a link since the lab was created, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Packets carried, with duplicates. Long ones count as their segments.
    pub packets: u64,
    /// Bytes of these, from the IP header on.
    pub bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped by the full buffer.
    pub overflowed: u64,
    /// Dropped while the link was cut.
    pub cut_off: u64,
    /// Dropped as UDP or TCP.
    pub forbidden: u64,
    /// Carried once more.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
}

/// Properties of a packet that a wire needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Length of the IP packet, before segmentation.
    pub bytes: u64,
    /// Its protocol number.
    pub protocol: u8,
}

impl Size {
    /// Returns the number of segments and their bytes together: each has headers of its own.
    fn segmented(self) -> (u64, u64) {
        if self.bytes <= SEGMENT_BYTES {
            return (1, self.bytes);
        }
        let header = if self.protocol == TCP { TCP_HEADERS_BYTES } else { UDP_HEADERS_BYTES };
        let packets = (self.bytes - header).div_ceil(SEGMENT_BYTES - header);
        (packets, self.bytes + (packets - 1) * header)
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is dropped.
    Dropped,
    /// The packet leaves in order.
    Passes {
        /// Time, in nanoseconds.
        at_ns: u64,
        /// True if a duplicate leaves with it.
        is_doubled: bool,
    },
    /// The packet leaves after packets that followed it.
    Late {
        /// Time, in nanoseconds.
        at_ns: u64,
    },
}

/// One direction of a link: a first-in first-out queue in front of a wire.
#[derive(Debug)]
pub struct Wire {
    seed: u64,
    /// Time when the last accepted packet has left the sender.
    free_at_ns: u64,
    /// Time when the last packet in order leaves. No later packet overtakes it, whatever changes.
    last_out_ns: u64,
}

impl Wire {
    /// Creates a wire that is free at time 0; the seed decides which packets are lost.
    pub fn new(seed: u64) -> Self {
        // The generator needs a state other than zero.
        Self { seed: seed | 1 << 63, free_at_ns: 0, last_out_ns: 0 }
    }

    /// Returns the fate of a packet that arrives at `now_ns`; while the wire is cut, all are dropped.
    pub fn pass(
        &mut self,
        conditions: &Conditions,
        is_cut: bool,
        now_ns: u64,
        size: Size,
        counts: &mut Counts,
    ) -> Fate {
        let (packets, bytes) = size.segmented();
        let dropped = if is_cut {
            Some(&mut counts.cut_off)
        } else if conditions.forbids(size.protocol) {
            Some(&mut counts.forbidden)
        } else if self.happens(conditions.loss) {
            Some(&mut counts.lost)
        } else if !self.has_room(conditions, now_ns, bytes) {
            Some(&mut counts.overflowed)
        } else {
            None
        };
        if let Some(dropped) = dropped {
            *dropped += packets;
            return Fate::Dropped;
        }
        let on_wire = packets * OVERHEAD_BYTES + bytes;
        let serial = u128::from(on_wire) * 8_000_000_000 / u128::from(conditions.rate_bits_per_s);
        self.free_at_ns = self.free_at_ns.max(now_ns) + serial as u64;
        let at_ns = self.last_out_ns.max(self.free_at_ns + conditions.delay.as_nanos() as u64);
        counts.packets += packets;
        counts.bytes += bytes;
        if self.happens(conditions.reorder) {
            counts.reordered += packets;
            return Fate::Late { at_ns: at_ns + conditions.reorder_delay.as_nanos() as u64 };
        }
        self.last_out_ns = at_ns;
        let is_doubled = self.happens(conditions.duplicate);
        if is_doubled {
            counts.duplicated += packets;
            counts.packets += packets;
            counts.bytes += bytes;
        }
        Fate::Passes { at_ns, is_doubled }
    }

    /// True if a packet fits the buffer; an empty buffer takes every packet.
    fn has_room(&self, conditions: &Conditions, now_ns: u64, bytes: u64) -> bool {
        let backlog_ns = self.free_at_ns.saturating_sub(now_ns);
        let backlog = u128::from(backlog_ns) * u128::from(conditions.rate_bits_per_s);
        let backlog = (backlog / 8_000_000_000) as u64;
        backlog == 0 || backlog + bytes <= conditions.buffer_bytes
    }

    /// Draws a random boolean: true with this probability.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.draw() < share
    }

    /// Returns a random number from 0 to 1 (xorshift64*; Vigna 2016).
    fn draw(&mut self) -> f64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        (self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Ethernet overhead of an IP packet: preamble, header, check sequence and gap.
const OVERHEAD_BYTES: u64 = 38;
/// Length of segments of long packets, from the IP header on.
const SEGMENT_BYTES: u64 = 1500;
/// Length of IP and TCP headers, with time stamps.
const TCP_HEADERS_BYTES: u64 = 52;
/// Length of IP and UDP headers.
const UDP_HEADERS_BYTES: u64 = 28;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: Conditions = Conditions {
        rate_bits_per_s: 1_000_000_000,
        delay: Duration::from_millis(5),
        buffer_bytes: 2_000_000,
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_delay: Duration::from_millis(1),
        mtu_bytes: 1500,
        is_udp_forbidden: false,
        is_tcp_forbidden: false,
    };

    struct Link {
        wire: Wire,
        conditions: Conditions,
        is_cut: bool,
        counts: Counts,
    }

    impl Link {
        fn new(conditions: Conditions) -> Self {
            Self { wire: Wire::new(42), conditions, is_cut: false, counts: Counts::default() }
        }

        fn pass(&mut self, now_ns: u64, bytes: u64) -> Fate {
            self.pass_of(now_ns, bytes, TCP)
        }

        fn pass_of(&mut self, now_ns: u64, bytes: u64, protocol: u8) -> Fate {
            let size = Size { bytes, protocol };
            self.wire.pass(&self.conditions, self.is_cut, now_ns, size, &mut self.counts)
        }
    }

    fn at(fate: Fate) -> Option<u64> {
        match fate {
            Fate::Passes { at_ns, .. } | Fate::Late { at_ns } => Some(at_ns),
            Fate::Dropped => None,
        }
    }

    #[test]
    fn a_packet_takes_its_serialisation_and_the_delay() {
        let mut link = Link::new(GOOD);
        let serial = (1500 + 38) * 8;
        assert_eq!(at(link.pass(0, 1500)), Some(5_000_000 + serial));
        assert_eq!(at(link.pass(0, 1500)), Some(5_000_000 + 2 * serial));
        assert_eq!(at(link.pass(1_000_000, 1500)), Some(6_000_000 + serial));
        assert_eq!((link.counts.packets, link.counts.bytes), (3, 4500));
    }

    #[test]
    fn a_long_packet_is_counted_as_those_it_is_cut_into() {
        // Ten segments of TCP and eleven of UDP: as many headers less one are not yet there.
        for (bytes, protocol, packets, header) in [
            (52 + 10 * 1448, TCP, 10, TCP_HEADERS_BYTES),
            (28 + 10 * 1472 + 1, UDP, 11, UDP_HEADERS_BYTES),
        ] {
            let mut link = Link::new(GOOD);
            let all = bytes + (packets - 1) * header;
            let at_ns = 5_000_000 + (all + packets * 38) * 8;
            assert_eq!(at(link.pass_of(0, bytes, protocol)), Some(at_ns));
            assert_eq!((link.counts.packets, link.counts.bytes), (packets, all));
        }
    }

    #[test]
    fn a_full_buffer_drops_its_tail() {
        let mut link = Link::new(Conditions {
            rate_bits_per_s: 8_000_000,
            delay: Duration::ZERO,
            buffer_bytes: 4_000,
            ..GOOD
        });
        let passed = (0..10).filter(|_| at(link.pass(0, 1500)).is_some()).count();
        assert!((2..=4).contains(&passed), "{passed}");
        assert_eq!(link.counts.overflowed, 10 - passed as u64);
        assert!(at(link.pass(10_000_000_000, 1500)).is_some());
    }

    #[test]
    fn losses_duplicates_and_reordering_have_the_requested_shares() {
        let bad = Conditions { loss: 0.1, duplicate: 0.05, reorder: 0.02, ..GOOD };
        let run = |seed| {
            let mut link = Link { wire: Wire::new(seed), ..Link::new(bad) };
            let fates: Vec<Fate> = (0..20_000).map(|i| link.pass(i * 100_000, 100)).collect();
            (fates, link.counts)
        };
        let (fates, counts) = run(42);
        assert!((1800..2200).contains(&counts.lost), "{counts:?}");
        assert!((780..1000).contains(&counts.duplicated), "{counts:?}");
        assert!((290..430).contains(&counts.reordered), "{counts:?}");
        assert_eq!(counts.packets, 20_000 - counts.lost + counts.duplicated);
        assert_eq!(fates, run(42).0, "a seed repeats");
        assert_ne!(fates, run(43).0, "another one does not");
    }

    #[test]
    fn a_late_packet_comes_after_those_behind_it() {
        let mut link = Link::new(Conditions { reorder: 1.0, ..GOOD });
        let Fate::Late { at_ns } = link.pass(0, 100) else { panic!("not late") };
        link.conditions.reorder = 0.0;
        let next = at(link.pass(1000, 100)).unwrap();
        assert!(next < at_ns, "{next} {at_ns}");
    }

    #[test]
    fn a_cut_or_a_ban_drops_what_it_is_for() {
        let mut link = Link::new(Conditions { is_udp_forbidden: true, ..GOOD });
        assert_eq!(link.pass_of(0, 100, UDP), Fate::Dropped);
        assert!(at(link.pass_of(0, 100, TCP)).is_some());
        link.conditions.is_tcp_forbidden = true;
        assert_eq!(link.pass_of(0, 100, TCP), Fate::Dropped);
        assert!(at(link.pass_of(0, 100, 1)).is_some(), "a ping");
        link.is_cut = true;
        assert_eq!(link.pass_of(0, 100, TCP), Fate::Dropped);
        assert_eq!((link.counts.forbidden, link.counts.cut_off, link.counts.packets), (2, 1, 2));
    }

    proptest! {
        #[test]
        fn in_their_turn_nothing_overtakes_even_where_the_delay_changes(
            packets in proptest::collection::vec((0u64..100_000, 1u64..65_000, 0u64..5), 1..200)
        ) {
            let mut link = Link::new(Conditions { loss: 0.05, buffer_bytes: 300_000, ..GOOD });
            let (mut now, mut last) = (0, 0);
            for (gap, bytes, delay_ms) in packets {
                now += gap;
                link.conditions.delay = Duration::from_millis(delay_ms);
                if let Some(out) = at(link.pass(now, bytes)) {
                    prop_assert!(out >= last && out >= now + delay_ms * 1_000_000);
                    last = out;
                }
            }
        }
    }
}
