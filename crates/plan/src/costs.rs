//! Costs of messages by distance.

/// Cost of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCost {
    /// From the end of the sender's work to the beginning of the receiver's.
    pub latency_ns: u64,
    /// Bandwidth of the link.
    pub bytes_per_s: u64,
    /// Work of either side (LogGP's `o`).
    pub overhead_ns: u64,
}

/// Costs of messages by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Within a node.
    pub node: MessageCost,
    /// Between nodes of a site.
    pub site: MessageCost,
    /// Between sites. [`Pairs`](crate::Pairs) holds pairs of sites about which more is known.
    pub wide: MessageCost,
    /// Wake-up latency of a sleeping rank. A rank that waits for another site has gone to sleep.
    pub wake_ns: u64,
}

/// Distance between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// They share memory.
    Node,
    /// They are in one site.
    Site,
    /// They are in different sites.
    Wide,
}

impl Costs {
    /// Returns the cost of a message over a distance.
    pub fn at(&self, distance: Distance) -> MessageCost {
        match distance {
            Distance::Node => self.node,
            Distance::Site => self.site,
            Distance::Wide => self.wide,
        }
    }

    /// Returns the costs for `ranks` ranks, on several nodes, that share the cores of one machine.
    /// A rank that works on a message keeps the other ranks from their core.
    pub(crate) fn when_oversubscribed(self, ranks: u32) -> Self {
        let per_core = (u64::from(ranks) / OVERSUBSCRIBED_CORES).max(1);
        let of = |cost: MessageCost| MessageCost {
            overhead_ns: cost.overhead_ns.saturating_mul(per_core),
            ..cost
        };
        Self { site: of(self.site).bounded(), wide: of(self.wide).bounded(), ..self }
    }

    /// Length of the encoded costs in bytes.
    pub const LEN: usize = 80;

    /// Encodes the costs as bytes, for ranks that have to plan from the same.
    pub fn emit(&self) -> Vec<u8> {
        self.numbers().into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the costs, clamped so that sums cannot overflow; none if the bytes are not valid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let numbers: Vec<u64> = numbers.collect();
        let &[
            n_latency,
            n_rate,
            n_work,
            s_latency,
            s_rate,
            s_work,
            w_latency,
            w_rate,
            w_work,
            wake,
        ] = &numbers[..]
        else {
            return None;
        };
        let cost = |latency_ns: u64, bytes_per_s: u64, overhead_ns: u64| {
            MessageCost { latency_ns, bytes_per_s, overhead_ns }.bounded()
        };
        Some(Self {
            node: cost(n_latency, n_rate, n_work),
            site: cost(s_latency, s_rate, s_work),
            wide: cost(w_latency, w_rate, w_work),
            wake_ns: wake.min(TIME_MAX_NS),
        })
    }

    pub(crate) fn numbers(&self) -> [u64; 10] {
        let of = |cost: MessageCost| [cost.latency_ns, cost.bytes_per_s, cost.overhead_ns];
        let [node, site, wide] = [of(self.node), of(self.site), of(self.wide)];
        [
            node[0],
            node[1],
            node[2],
            site[0],
            site[1],
            site[2],
            wide[0],
            wide[1],
            wide[2],
            self.wake_ns,
        ]
    }
}

impl Default for Costs {
    /// Shared memory, gigabit Ethernet, and a medium distance within a continent at the same rate.
    fn default() -> Self {
        let gigabit = 117_000_000;
        Self {
            node: MessageCost { latency_ns: 600, bytes_per_s: 4_000_000_000, overhead_ns: 400 },
            site: MessageCost { latency_ns: 20_000, bytes_per_s: gigabit, overhead_ns: 4_000 },
            wide: MessageCost { latency_ns: 6_000_000, bytes_per_s: gigabit, overhead_ns: 4_000 },
            wake_ns: 30_000,
        }
    }
}

impl MessageCost {
    /// Returns the cost of messages over links between two systems with a measured latency and gap,
    /// at the measured rate or else the usual one. The gap is the sender's share of the work, in
    /// its system. The receiver's system does as much, and the receiver polls and reads, which are
    /// two system calls as well: three halves of a gap on either side. The latency, half of a round
    /// trip between the two systems, is mostly their work.
    #[must_use]
    pub fn over_links(latency_ns: u64, gap_ns: u64, shown: Option<u64>, usual: Self) -> Self {
        let overhead_ns = gap_ns * 3 / 2;
        let latency_ns = latency_ns.saturating_sub(overhead_ns);
        Self { latency_ns, bytes_per_s: shown.unwrap_or(usual.bytes_per_s), overhead_ns }
    }

    /// Returns the transfer time of `bytes` after the first.
    pub fn stream_ns(&self, bytes: u64) -> u64 {
        let takes_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.max(1));
        u64::try_from(takes_ns).unwrap_or(u64::MAX)
    }

    /// Returns the same cost, clamped so that sums cannot overflow.
    pub(crate) fn bounded(self) -> Self {
        Self {
            latency_ns: self.latency_ns.min(TIME_MAX_NS),
            bytes_per_s: self.bytes_per_s.max(RATE_LEAST),
            overhead_ns: self.overhead_ns.min(TIME_MAX_NS),
        }
    }
}

/// Number of cores that oversubscribed ranks share, at least.
pub(crate) const OVERSUBSCRIBED_CORES: u64 = 2;

/// A minute. No message takes longer.
const TIME_MAX_NS: u64 = 60_000_000_000;

/// Rate of a slow modem, in bytes per second.
const RATE_LEAST: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reads_the_costs_that_were_told() {
        let costs = Costs::default();
        assert_eq!(Costs::parse(&costs.emit()), Some(costs));
        assert_eq!(Costs::parse(&costs.emit()[1..]), None);
        assert_eq!(Costs::parse(&[]), None);
        let wild = Costs::parse(&[0xff; 80]).unwrap();
        assert_eq!((wild.wake_ns, wild.wide.latency_ns), (TIME_MAX_NS, TIME_MAX_NS));
        assert_eq!(Costs::parse(&[0; 80]).unwrap().node.bytes_per_s, RATE_LEAST);
    }
}
