//! Over which protocol a way between sites is tried first, by what gets lost on it.
//!
//! TCP costs a host less, and where little is lost it is as fast. Where more is, the kernel's repeats are later than QUIC's,
//! which are this library's, and its congestion control finds out later what the way carries.
//!
//! Losses are remembered of each protocol by itself, for each may lose what the other would not: a sender that overflows a
//! buffer, or a network that treats one worse. What both have lost counts as the way's, and what one has as its own.

/// What is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// Which part of what is sent a way loses by chance, by each protocol that has sent enough to say: what a buffer loses at once
/// where it overflows says nothing of the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    /// By TCP.
    pub by_tcp: Option<f64>,
    /// By QUIC.
    pub by_quic: Option<f64>,
}

impl Losses {
    /// The way's own; none where nothing is known.
    pub fn of_the_way(self) -> Option<f64> {
        match (self.by_tcp, self.by_quic) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// What follows from it, where both lead there and TCP would be first otherwise.
    pub fn first(self) -> First {
        match self.of_the_way() {
            Some(loss) if loss >= LOSSY => First::Quic,
            Some(_) | None => First::Tcp,
        }
    }
}

/// From such losses on messages arrive clearly sooner by QUIC.
pub const LOSSY: f64 = 0.0025;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_loses_much_is_tried_by_quic_first() {
        let first = |by_tcp, by_quic| Losses { by_tcp, by_quic }.first();
        assert_eq!(first(None, None), First::Tcp, "nothing is known");
        assert_eq!(first(Some(0.001), None), First::Tcp);
        assert_eq!(first(Some(LOSSY), None), First::Quic);
        assert_eq!(first(None, Some(0.01)), First::Quic, "it stays so while it loses");
        assert_eq!(first(Some(0.01), Some(0.01)), First::Quic);
        assert_eq!(
            first(Some(0.01), Some(0.0)),
            First::Tcp,
            "it loses no longer, or lost by its own fault"
        );
        assert_eq!(first(Some(0.0), Some(0.05)), First::Tcp, "UDP is treated worse");
    }
}
