//! Operations that the submitter knows by their identifiers alone, as an application knows its
//! requests.
//!
//! A note tells what an operation belongs to. These functions accept any identifier: stale or
//! invalid ones, and operations without a note, are recognised.

use super::Engine;
use crate::op::{Completion, Op, OpId, OpState};

impl Engine {
    /// Sets the note of a known operation: any number but 0.
    #[inline]
    pub fn note(&mut self, op: OpId, note: u64) {
        if let Some(op) = self.ops.find_mut(op) {
            op.note = note;
        }
    }

    /// Note of an operation; `None` for an invalid identifier.
    #[inline]
    pub fn noted(&self, op: OpId) -> Option<u64> {
        self.ops.find(op).map(|op| op.note).filter(|note| *note != 0)
    }

    /// Takes the completion and note of an operation, once. The inner `None` means pending, the
    /// outer one an invalid identifier.
    #[inline]
    pub fn take_noted(&mut self, id: OpId) -> Option<Option<(Completion, u64)>> {
        let &Op { note, ref state, .. } = self.ops.find(id)?;
        match *state {
            _ if note == 0 => None,
            OpState::Done(completion) => {
                self.ops.vacate(id.index);
                Some(Some((completion, note)))
            }
            OpState::Free
            | OpState::Posted
            | OpState::Receiving { .. }
            | OpState::RemoteReading { .. }
            | OpState::Send(_) => Some(None),
        }
    }

    /// Identifier of the operation with a note at this index.
    pub fn noted_at(&self, place: u32) -> Option<OpId> {
        self.ops.name(place).filter(|op| self.noted(*op).is_some())
    }

    /// Adds an operation to the list being built; false if it is in the list already, `None` for an
    /// invalid identifier.
    #[inline]
    pub fn enlist(&mut self, op: OpId) -> Option<bool> {
        let op = self.ops.find_mut(op).filter(|op| op.note != 0)?;
        Some(!std::mem::replace(&mut op.is_listed, true))
    }

    /// Removes an operation from the list, if it is known.
    #[inline]
    pub fn strike(&mut self, op: OpId) {
        if let Some(op) = self.ops.find_mut(op) {
            op.is_listed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::Region;
    use wire::PeerId;

    use crate::{Config, Engine, OpId, Outcome, Selector};

    #[test]
    fn invalid_identifiers_are_recognised() {
        let mut engine = Engine::new(Config::new(2));
        let (noted, other) = (receive(&mut engine), receive(&mut engine));
        engine.note(noted, 7);
        assert_eq!(engine.take_noted(noted), Some(None), "under state");
        assert_eq!(engine.noted(noted), Some(7));
        assert_eq!(engine.take_noted(other), None, "nothing is noted");
        assert!(engine.submit_cancel(noted) && engine.submit_cancel(other));
        let (completion, note) = engine.take_noted(noted).flatten().expect("it has ended");
        assert_eq!((completion.outcome, note), (Outcome::Cancelled, 7));
        assert_eq!(engine.take_noted(noted), None, "only once");
        assert_eq!(engine.noted(noted), None);
        let again = receive(&mut engine);
        assert_eq!(engine.noted(again), None, "its place had a note before");
        assert_eq!(engine.take_noted(OpId::from_bits(u64::MAX)), None);
        assert!(engine.take(other).is_some());
    }

    #[test]
    fn a_released_operation_loses_its_note() {
        let mut engine = Engine::new(Config::new(2));
        let op = receive(&mut engine);
        engine.note(op, 7);
        engine.release(op);
        assert_eq!(engine.noted(op), None);
        assert!(engine.submit_cancel(op));
        assert_eq!(engine.take_noted(op), None);
    }

    #[test]
    fn an_operation_stands_in_a_list_once() {
        let mut engine = Engine::new(Config::new(2));
        let op = receive(&mut engine);
        assert_eq!(engine.enlist(op), None, "nothing is noted");
        engine.note(op, 7);
        assert_eq!(engine.enlist(op), Some(true));
        assert_eq!(engine.enlist(op), Some(false));
        engine.strike(op);
        assert_eq!(engine.enlist(op), Some(true));
    }

    #[test]
    fn a_name_is_found_by_its_place() {
        let mut engine = Engine::new(Config::new(2));
        let op = receive(&mut engine);
        assert_eq!(OpId::from_bits(op.to_bits()), op);
        let place = op.to_bits() as u32;
        assert_eq!(engine.noted_at(place), None, "nothing is noted");
        engine.note(op, 7);
        assert_eq!(engine.noted_at(place), Some(op));
        assert_eq!(engine.noted_at(place + 1), None);
    }

    fn receive(engine: &mut Engine) -> OpId {
        let selector = Selector { context: 0, source: Some(1), tag: None };
        engine.submit_receive(Some(PeerId(1)), selector, &Region::owned(8))
    }
}
