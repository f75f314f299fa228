//! Agreement of processes that may fail at any moment: all that live get the same answer (uniform consensus).
//!
//! An agreement is one of several in a context, and has a number there. Its *coordinator* is the lowest rank that is
//! believed alive. As with Paxos, each message of a coordinator carries a ballot, here its rank:
//!
//! 1. Each member calls the coordinator with its contribution (`Join`). The answer is the decision.
//! 2. When all members have joined or failed, the coordinator proposes an answer to all (`Propose`). A member accepts
//!    it, unless it has heard of a higher ballot.
//! 3. When all have accepted or failed, the answer is decided, and the coordinator answers.
//!
//! If the coordinator fails, the next one takes over. It asks for what each member knows (`Collect`); a member answers
//! once it has called itself. A decision is taken over, or else the accepted answer of the highest ballot, or else a
//! new answer is composed. A decided answer was accepted by all that live, so no other one can be proposed.
//!
//! A member keeps its last two decisions for those that have not heard of them. Two are enough: an agreement begins
//! when the one before is decided here, and then all members have taken part in it.
//!
//! All this holds if nobody who lives is taken for failed. Where a network falls apart for longer than the patience,
//! each part may decide on its own, and takes the other part for failed.
#![forbid(unsafe_code)]

mod instance;
mod ranks;
mod record;
mod served;
mod task;

pub use ranks::RankSet;
pub use record::AgreementRecord;
pub use served::Agreements;
pub use task::{AgreementFault, Membership, Then, agreement};
