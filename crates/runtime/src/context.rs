//! Context numbers, which tell the messages of communicators apart.
//!
//! A context is drawn by one process, the leader: `leader << 34 | counter << 2`. Bit 0 marks the messages of
//! collectives, bit 1 those that create communicators. Bit 61 marks partitioned messages, whose kind is in bits 0 and 1.
//! Numbers with bit 63 belong to the native interface.
//!
//! Such numbers are unique in one job. Among processes of several jobs a number is random, with bit 62, which no leader
//! reaches. Two of the 2^59 numbers are equal once in some 10^9 communicators (birthday problem).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use wire::PeerId;

/// Context of all processes of the job: `MPI_COMM_WORLD`.
pub const WORLD: u64 = 0;
/// Marks the messages of collectives.
pub const COLLECTIVES: u64 = 1;
/// Marks the messages that create communicators.
pub const CREATION: u64 = 2;

/// Marks partitioned messages. No leader reaches this bit.
pub const PARTITIONED: u64 = 1 << 61;
/// All marks.
pub const MARKS: u64 = COLLECTIVES | CREATION | PARTITIONED;

/// First counter of drawn numbers; lower ones belong to the predefined communicators.
pub(crate) const FIRST_DRAWN: u32 = 16;

/// Facts that an interface tells of the contexts that it has drawn.
#[derive(Clone, Copy, Debug)]
pub struct Contexts {
    /// Returns the processes that exchange messages of a context, this one (`own`) first and the others in ring order;
    /// none if the context is unknown.
    pub members: fn(context: u64, own: PeerId) -> Option<Vec<PeerId>>,
    /// Notes that the application has revoked a context, here or in another process.
    pub note_revoked: fn(context: u64),
}

/// Returns the name of the communicator that a context belongs to; none if it is unknown or has no name.
pub type NameContext = fn(context: u64) -> Option<String>;

/// Composes a context number.
pub fn number(leader: u32, counter: u32) -> u64 {
    u64::from(leader) << 34 | u64::from(counter) << 2
}

/// Draws a number for communicators of several jobs.
pub(crate) fn drawn_at_random() -> u64 {
    // Keys of `RandomState` come from the system's random numbers, and differ from call to call.
    let random = RandomState::new().hash_one(std::process::id());
    RANDOM | random & (RANDOM - 1) & !MARKS
}

/// True if the number was drawn at random.
pub fn is_random(context: u64) -> bool {
    context & RANDOM != 0 && context >> 63 == 0
}

/// Marks numbers that were drawn at random.
const RANDOM: u64 = 1 << 62;

/// True if the context is one of collective messages.
pub fn has_collectives(context: u64) -> bool {
    context & (COLLECTIVES | CREATION) == COLLECTIVES && is_of_communicator(context)
}

/// True if the bits of collectives and creation mean that.
fn is_of_communicator(context: u64) -> bool {
    context >> 63 == 0 && context & PARTITIONED == 0
}

/// Returns the context without its marks, if it is that of collectives or of the creation of communicators.
pub fn if_collective(context: u64) -> Option<u64> {
    let is_ours = context & (COLLECTIVES | CREATION) != 0 && is_of_communicator(context);
    is_ours.then_some(context & !(COLLECTIVES | CREATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ_from_those_of_jobs_and_carry_no_mark() {
        let drawn: Vec<u64> = (0..1000).map(|_| drawn_at_random()).collect();
        for (at, number) in drawn.iter().enumerate() {
            assert!(is_random(*number) && number & 3 == 0, "{number:x}");
            assert!(!drawn[..at].contains(number), "{number:x} twice");
            assert!(has_collectives(number | COLLECTIVES) && number & PARTITIONED == 0);
            assert!(!has_collectives(number | COLLECTIVES | PARTITIONED));
        }
        assert!(!is_random(number(u32::MAX >> 4, u32::MAX)) && !is_random(WORLD));
    }
}
