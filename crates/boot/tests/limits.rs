//! The limit of open files, which this program changes.

use boot::raise_open_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_needed_and_permitted() {
    let limits = |current, maximum| Rlimit { current: Some(current), maximum: Some(maximum) };
    setrlimit(Resource::Nofile, limits(40, 60)).expect("lower limits");
    assert_eq!(raise_open_files(30), Some(40));
    assert_eq!(raise_open_files(50), Some(50));
    assert_eq!(raise_open_files(70), Some(60));
    assert_eq!(getrlimit(Resource::Nofile), limits(60, 60));
}
