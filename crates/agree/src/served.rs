//! Agreements of a process, and the handler of the calls of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{CallError, Engine, ExposedMemory, Handler, HandlerId, IncomingCall, Replies};
use lock::Lock;

use crate::instance::AgreementState;
use crate::record::AgreementRecord;

/// Agreements of one VCI of a process.
#[derive(Debug, Default)]
pub struct Agreements {
    /// By context. Locked after the worker.
    contexts: Lock<BTreeMap<u64, ContextAgreements>>,
}

/// Agreements of a context.
#[derive(Debug, Default)]
pub(crate) struct ContextAgreements {
    /// Number of the next agreement that this process takes part in.
    pub next: u32,
    /// Number of agreements that have ended here.
    pub ended: u32,
    /// Those that are not over, and the last ones that are, by number.
    pub states: BTreeMap<u32, AgreementState>,
}

impl Agreements {
    /// Makes the agreements of a VCI, and sets the handler of its engine. All processes do so before they communicate.
    pub fn new(engine: &mut Engine) -> Arc<Self> {
        let agreements = Arc::new(Self::default());
        engine.set_handler(HANDLER, Box::new(CallHandler(Arc::clone(&agreements))));
        agreements
    }

    /// Numbers an agreement of a context.
    pub(crate) fn draw(&self, context: u64) -> u32 {
        self.with(context, |agreements| {
            agreements.next = agreements.next.wrapping_add(1);
            agreements.next.wrapping_sub(1)
        })
    }

    pub(crate) fn with<T>(
        &self,
        context: u64,
        access: impl FnOnce(&mut ContextAgreements) -> T,
    ) -> T {
        access(self.contexts.lock().entry(context).or_default())
    }
}

impl ContextAgreements {
    /// State of an agreement that is not over, or whose decision is kept.
    pub fn state(&mut self, number: u32) -> Option<&mut AgreementState> {
        let is_gone = self.ended.wrapping_sub(number).cast_signed() > 0;
        match is_gone {
            true => self.states.get_mut(&number),
            false => Some(self.states.entry(number).or_default()),
        }
    }

    /// Notes that an agreement has ended here, and forgets all but the last two.
    pub fn end(&mut self, number: u32) {
        self.ended = number.wrapping_add(1);
        let oldest = self.ended.wrapping_sub(DECISIONS_KEPT);
        self.states.retain(|number, _| number.wrapping_sub(oldest).cast_signed() >= 0);
    }
}

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A member tells the coordinator what it knows, and waits for the decision.
    Join,
    /// A coordinator asks a member what it knows.
    Collect,
    /// A coordinator proposes an answer.
    Propose,
}

impl CallKind {
    /// Arguments of a call.
    pub fn arguments(self, context: u64, number: u32, ballot: u32) -> [u64; 3] {
        let kind = match self {
            Self::Join => 0,
            Self::Collect => 1,
            Self::Propose => 2,
        };
        [context, u64::from(number) << 32 | u64::from(ballot), kind]
    }

    fn of(argument: u64) -> Option<Self> {
        [Self::Join, Self::Collect, Self::Propose].get(argument as usize).copied()
    }
}

#[derive(Debug)]
struct CallHandler(Arc<Agreements>);

impl Handler for CallHandler {
    fn handle(
        &mut self,
        call: &IncomingCall<'_>,
        _memory: &ExposedMemory,
        replies: &mut Replies,
    ) -> Result<(), CallError> {
        let [context, place, kind] = call.arguments;
        let (number, ballot) = ((place >> 32) as u32, place as u32);
        let kind = CallKind::of(kind).ok_or("a call of no kind in an agreement")?;
        let mut contexts = self.0.contexts.lock();
        if contexts.len() == CONTEXTS_MAX && !contexts.contains_key(&context) {
            return Err("agreements in too many contexts".into());
        }
        let agreements = contexts.entry(context).or_default();
        if number.wrapping_sub(agreements.ended) > AHEAD_MAX
            && agreements.ended.wrapping_sub(number) > AHEAD_MAX
        {
            return Err("an agreement far ahead".into());
        }
        let state = agreements.state(number).ok_or(CallError::Refused)?;
        match kind {
            CallKind::Join => state.join(call.peer, call.payload, call.reply_to, replies)?,
            CallKind::Collect => state.collect(ballot, call.reply_to, replies)?,
            CallKind::Propose => {
                // Who proposes has asked all members, so this one has called and knows the size of the group.
                let size = state.size().ok_or("a proposal to a member that has not called")?;
                let record =
                    AgreementRecord::parse(call.payload, size).ok_or("a malformed proposal")?;
                match state.accept(ballot, record) {
                    true => replies.send(call.reply_to, &[]),
                    false => replies.refuse(call.reply_to),
                }
            }
        }
        Ok(())
    }
}

/// Number of the handler. Those of windows have lower ones; 64 is that of files, and 65 that of partitioned messages.
pub(crate) const HANDLER: HandlerId = HandlerId(66);

/// Number of decisions that a member keeps of a context.
const DECISIONS_KEPT: u32 = 2;

/// Maximal number of contexts with agreements.
const CONTEXTS_MAX: usize = 1 << 16;

/// Maximal distance of an agreement from those that have ended here: others may have begun the next one.
const AHEAD_MAX: u32 = 2;
