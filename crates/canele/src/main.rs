//! The `canele` command.
fn main() {}
