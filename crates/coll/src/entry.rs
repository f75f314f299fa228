//! Entry of collective calls: they are numbered, and one of the first creates the shared segment.

use std::sync::OnceLock;

use crate::call::Call;
use crate::check;
use crate::shm_coll::{self, CREATED_AFTER};
use crate::team::{Form, Team};

impl<T: Team> Call<T> {
    /// Numbers a call of a team.
    #[inline]
    pub fn new(team: T, form: Form) -> Self {
        // With checks on, processes may wrongly mix blocking and nonblocking calls: both share one counter.
        let form = match form {
            Form::Nonblocking if check::is_on() => Form::Blocking,
            form => form,
        };
        let tag = team.collectives().next_tag(form);
        if tag == CREATED_AFTER && form == Form::Blocking {
            shm_coll::create_once(&team, tag);
        }
        Self { team, tag, form, arguments: OnceLock::new() }
    }
}
