//! Entry of collective calls: they take their numbers, and one of the first creates the shared segment.

use std::sync::OnceLock;

use crate::call::Call;
use crate::check;
use crate::shm_coll::{self, CREATED_AFTER};
use crate::team::{Form, Team};

impl<T: Team> Call<T> {
    /// A call of a team, which has the next number.
    #[inline]
    pub fn new(team: T, form: Form) -> Self {
        // With checks on, processes may wrongly mix blocking and nonblocking calls: both share one counter.
        let form = match form {
            Form::Nonblocking if check::is_on() => Form::Blocking,
            form => form,
        };
        let tag = team.collectives().next_tag(form);
        Self { team, tag, form, arguments: OnceLock::new() }
    }

    /// Takes the call's number. One of the first calls also creates the shared segment.
    #[inline]
    pub(crate) fn count(&self) {
        self.team.collectives().count(self.form);
        if self.tag == CREATED_AFTER && self.form == Form::Blocking {
            shm_coll::create_once(&self.team, self.tag);
        }
    }
}
