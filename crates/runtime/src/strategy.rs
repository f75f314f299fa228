//! Strategies by name, for the setting: the engine's own, and those that a program has registered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::strategy::{NAMES, Strategy, named};

/// Makes a strategy.
pub type Maker = fn() -> Box<dyn Strategy>;

/// Makes a strategy known by a name, which [`settings::STRATEGY`] may then give: to be called before the process
/// joins its job. A name that is known already gets the new meaning.
pub fn register(name: &'static str, make: Maker) {
    registered().insert(0, (name, make));
}

/// The strategy that the environment names; `auto` where it names none.
pub(crate) fn of_environment() -> Result<Box<dyn Strategy>, String> {
    let name = settings::STRATEGY.text();
    find(&name).map_err(|known| {
        let (variable, known) = (settings::STRATEGY.variable(), known.join(", "));
        format!("{variable}={name}: no such strategy ({known})")
    })
}

/// The strategy of a name; else the names that are known.
fn find(name: &str) -> Result<Box<dyn Strategy>, Vec<&'static str>> {
    let own = registered();
    match own.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make()),
        None => {
            named(name).ok_or_else(|| own.iter().map(|(known, _)| *known).chain(NAMES).collect())
        }
    }
}

fn registered() -> MutexGuard<'static, Vec<(&'static str, Maker)>> {
    static REGISTERED: Mutex<Vec<(&'static str, Maker)>> = Mutex::new(Vec::new());
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use engine::strategy::{Choice, View};

    use super::*;

    #[derive(Debug)]
    struct Mine;

    impl Strategy for Mine {
        fn name(&self) -> &'static str {
            "mine"
        }

        fn choose(&mut self, _: &View<'_>, _: &mut Choice) {}
    }

    #[test]
    fn strategies_are_found_by_name_and_others_told() {
        for name in NAMES {
            assert!(find(name).is_ok(), "{name}");
            assert!(settings::STRATEGY.values().contains(name), "{name}");
        }
        let known = find("mine").expect_err("not known yet");
        assert_eq!(known, NAMES);
        register("mine", || Box::new(Mine));
        assert_eq!(find("mine").expect("known now").name(), "mine");
        assert_eq!(find("theirs").expect_err("never known")[0], "mine");
    }
}
