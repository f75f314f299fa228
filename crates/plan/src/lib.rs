//! Collective algorithms as pure functions from sizes to schedules.
