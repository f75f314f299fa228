//! The cache in directories of all kinds: invalid files are ignored with a reason.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use cost::{Cost, HostCost, Traffic};
use proptest::prelude::*;
use topo::cache::{Stored, host_cost};
use topo::{Cache, Ignored, Pair};

#[test]
fn costs_come_back_from_a_directory_made_for_them() {
    let place = tempfile::tempdir().unwrap();
    let cache = Cache::at(place.path().join("deep/canele"));
    assert!(matches!(cache.link(&pair()), Ok(None)));
    assert!(matches!(cache.host(), Ok(None)));
    assert!(cache.links().unwrap().links.is_empty());
    assert_eq!(cache.keep_link(&pair(), &cost()).unwrap(), Stored::Written);
    cache.keep_host(&HostCost::default()).unwrap();
    let entry = cache.link(&pair()).unwrap().unwrap();
    assert_eq!(entry.value, cost());
    assert!(entry.age < Duration::from_secs(3600));
    assert_eq!(cache.host().unwrap().unwrap().value, HostCost::default());
    assert!(matches!(cache.link(&Pair::new("tcp", "b/eth0", "a/eth0")), Ok(None)), "the way back");
    let mode = fs::metadata(cache.directory()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_measured_rate_replaces_a_guess_at_once() {
    let (_place, cache) = new();
    let guessed = Cost::linear(1_000, 2_000, 125_000_000);
    let mut seen = guessed;
    seen.learn(1 << 20, 80_000_000);
    assert_eq!(cache.keep_link(&pair(), &guessed).unwrap(), Stored::Written);
    assert_eq!(cache.keep_link(&pair(), &seen).unwrap(), Stored::Written);
    assert_eq!(cache.keep_link(&pair(), &guessed).unwrap(), Stored::Recent);
    assert_eq!(cache.keep_link(&pair(), &seen).unwrap(), Stored::Recent);
    let mut faster = guessed;
    (0..16).for_each(|_| faster.learn(1 << 20, seen.busy_ns(1 << 20) / 2));
    assert_eq!(cache.keep_link(&pair(), &faster).unwrap(), Stored::Written, "a higher rate");
    assert_eq!(cache.keep_link(&pair(), &seen).unwrap(), Stored::Recent, "and no lower one");
    assert_eq!(cache.link(&pair()).unwrap().unwrap().value, faster);
}

#[test]
fn recent_costs_are_not_written_again() {
    let (_place, cache) = new();
    assert_eq!(cache.keep_link(&pair(), &cost()).unwrap(), Stored::Written);
    assert_eq!(cache.keep_link(&pair(), &Cost::linear(1, 2, 3)).unwrap(), Stored::Recent);
    assert_eq!(cache.link(&pair()).unwrap().unwrap().value, cost());
    rewrite(&cache, |text| aged(text, 3600));
    let entry = cache.link(&pair()).unwrap().unwrap();
    assert!(entry.age >= Duration::from_secs(3600));
    let newer = Cost::linear(1, 2, 3);
    assert_eq!(cache.keep_link(&pair(), &newer).unwrap(), Stored::Written);
    assert_eq!(cache.link(&pair()).unwrap().unwrap().value, newer);
}

#[test]
fn names_of_all_kinds_are_one_word() {
    let (_place, cache) = new();
    let odd = Pair::new("", "a b\n/../..", &"ü".repeat(500));
    assert_eq!(odd.rail(), "-");
    assert_eq!(odd.here(), "a_b_/../..");
    cache.keep_link(&odd, &cost()).unwrap();
    let listing = cache.links().unwrap();
    assert_eq!(listing.links[0].0, odd);
    assert!(listing.ignored.is_empty());
}

#[test]
fn hostile_files_are_ignored_with_a_reason() {
    type Damage = fn(&Path);
    type Expected = fn(&Ignored) -> bool;
    let cases: &[(&str, Damage, Expected)] = &[
        ("writable", |path| mode(path, 0o622), |r| matches!(r, Ignored::Writable { mode: 0o622 })),
        ("empty", |path| fs::write(path, "").unwrap(), |r| matches!(r, Ignored::Damaged(_))),
        (
            "binary",
            |path| fs::write(path, [0xff; 99]).unwrap(),
            |r| matches!(r, Ignored::Damaged(_)),
        ),
        (
            "long",
            |path| fs::write(path, "x".repeat(9999)).unwrap(),
            |r| matches!(r, Ignored::Oversized),
        ),
        (
            "long and cut within a character",
            |path| fs::write(path, "ü".repeat(1500).replacen('ü', "x", 1)).unwrap(),
            |r| matches!(r, Ignored::Oversized),
        ),
        (
            "endless",
            |path| replace_by_link(path, "/dev/zero"),
            |r| matches!(r, Ignored::Kind("file")),
        ),
        ("linked", replace_by_linked_copy, |r| matches!(r, Ignored::Kind("file"))),
        ("directory", replace_by_directory, |r| matches!(r, Ignored::Kind("file"))),
        ("pipe", replace_by_pipe, |r| matches!(r, Ignored::Kind("file"))),
        (
            "newer",
            |path| edit(path, |text| text.replace("canele 1", "canele 2")),
            |r| matches!(r, Ignored::Version),
        ),
        (
            "newer cost",
            |path| edit(path, |text| text.replace("cost/1", "cost/2")),
            |r| matches!(r, Ignored::Damaged(_)),
        ),
        (
            "cut",
            |path| edit(path, |text| text[..text.len() - 1].into()),
            |r| matches!(r, Ignored::Damaged(_)),
        ),
        (
            "of another link",
            |path| edit(path, |text| text.replace("a/eth0", "c/eth0")),
            |r| matches!(r, Ignored::Damaged(_)),
        ),
        (
            "old",
            |path| edit(path, |text| aged(text, 100 * 24 * 3600)),
            |r| matches!(r, Ignored::Stale),
        ),
        (
            "from the future",
            |path| edit(path, |text| aged(text, -3 * 24 * 3600)),
            |r| matches!(r, Ignored::Damaged(_)),
        ),
    ];
    for (name, damage, expected) in cases {
        let (_place, cache) = new();
        cache.keep_link(&pair(), &cost()).unwrap();
        damage(&only_link(&cache));
        let reason = cache.link(&pair()).expect_err(name);
        assert!(expected(&reason), "{name}: {reason}");
        cache.links().unwrap();
    }
}

#[test]
fn traffic_statistics_add_up_beside_link_costs() {
    let (_place, cache) = new();
    let traffic = |bytes| Traffic::new(bytes, bytes / 1024, 1 << 18);
    let known = || cache.traffic(&pair()).map(|entry| entry.map(|entry| entry.value));
    cache.keep_link(&pair(), &cost()).unwrap();
    assert!(matches!(known(), Ok(None)));
    assert_eq!(cache.keep_traffic(&pair(), &traffic(1000)).unwrap(), Stored::Recent, "too little");
    assert_eq!(cache.keep_traffic(&pair(), &traffic(2 << 20)).unwrap(), Stored::Written);
    assert_eq!(known().unwrap(), Some(traffic(2 << 20)));
    assert_eq!(cache.keep_traffic(&pair(), &traffic(1 << 20)).unwrap(), Stored::Recent);
    assert_eq!(cache.keep_traffic(&pair(), &traffic(4 << 20)).unwrap(), Stored::Written, "more");
    edit(&only(&cache, "traffic-"), |text| aged(text, 3600));
    assert_eq!(cache.keep_traffic(&pair(), &traffic(2 << 20)).unwrap(), Stored::Written);
    assert_eq!(known().unwrap(), Some(traffic(8 << 20)));
    assert_eq!(cache.traffic(&Pair::new("tcp", "b/eth0", "a/eth0")).unwrap(), None, "the way back");
    assert_eq!(cache.link(&pair()).unwrap().unwrap().value, cost());
    assert_eq!(cache.links().unwrap().links.len(), 1);
    assert!(cache.links().unwrap().ignored.is_empty());
}

#[test]
fn damaged_traffic_statistics_do_not_affect_link_costs() {
    let (_place, cache) = new();
    let traffic = Traffic::new(2 << 20, 0, 0);
    cache.keep_link(&pair(), &cost()).unwrap();
    for (text, reason) in [
        ("nonsense".to_owned(), "no such file"),
        ("traffic/2 5 6 0 0 0".to_owned(), "field 2"),
        ("traffic/2 5".to_owned(), "1 fields where 5 belong"),
        (cost().to_string(), "no cost of this version"),
    ] {
        cache.keep_traffic(&pair(), &traffic).unwrap();
        let file = only(&cache, "traffic-");
        let value = traffic.to_string();
        edit(
            &file,
            |whole| if text == "nonsense" { text.clone() } else { whole.replace(&value, &text) },
        );
        let said = cache.traffic(&pair()).unwrap_err();
        assert!(matches!(&said, Ignored::Damaged(why) if why.contains(reason)), "{said}");
        assert_eq!(cache.link(&pair()).unwrap().unwrap().value, cost());
    }
    assert_eq!(cache.keep_traffic(&pair(), &traffic).unwrap(), Stored::Written);
    assert_eq!(cache.traffic(&pair()).unwrap().unwrap().value, traffic);
}

#[test]
fn damaged_files_are_replaced() {
    let (_place, cache) = new();
    cache.keep_link(&pair(), &cost()).unwrap();
    rewrite(&cache, |_| "nonsense".into());
    let listing = cache.links().unwrap();
    assert!(listing.links.is_empty());
    assert!(matches!(listing.ignored[..], [(_, Ignored::Damaged(_))]));
    assert_eq!(cache.keep_link(&pair(), &cost()).unwrap(), Stored::Written);
    assert_eq!(cache.link(&pair()).unwrap().unwrap().value, cost());
}

#[test]
fn a_directory_that_others_may_write_to_is_not_used() {
    let (_place, cache) = new();
    cache.keep_link(&pair(), &cost()).unwrap();
    mode(cache.directory(), 0o777);
    assert!(matches!(cache.link(&pair()), Err(Ignored::Writable { mode: 0o777 })));
    let refused = cache.keep_link(&pair(), &cost()).unwrap_err().to_string();
    assert!(refused.contains("can be written by others"), "{refused}");
    assert!(host_cost(Some(&cache)).near_ps_per_byte > 0, "sampled, not read");
    mode(cache.directory(), 0o700);
    assert!(matches!(cache.host(), Ok(None)), "nothing was written");
}

#[test]
fn files_of_other_users_are_not_used() {
    let (_place, cache) = new();
    cache.keep_link(&pair(), &cost()).unwrap();
    if chown(only_link(&cache), Some(12345), None).is_err() {
        // Only root can give files away; others find that all of / belongs to root.
        assert!(matches!(Cache::at("/".into()).link(&pair()), Err(Ignored::Foreign { .. })));
        return testing::skip("only root can give files away");
    }
    let reason = cache.link(&pair()).unwrap_err();
    assert!(matches!(reason, Ignored::Foreign { owner: 12345, .. }), "{reason}");
}

#[test]
fn a_file_where_the_directory_belongs_is_an_error() {
    let place = tempfile::NamedTempFile::new().unwrap();
    for directory in [place.path().to_path_buf(), place.path().join("below")] {
        let cache = Cache::at(directory);
        assert!(matches!(cache.link(&pair()), Err(Ignored::Kind("directory"))));
        assert!(cache.keep_link(&pair(), &cost()).is_err());
        assert!(host_cost(Some(&cache)).near_ps_per_byte > 0);
    }
}

#[test]
fn the_oldest_links_make_room() {
    let (_place, cache) = new();
    let name = |at: usize| Pair::new("tcp", "a/eth0", &format!("n{at}/eth0"));
    for at in 0..520 {
        assert_eq!(cache.keep_link(&name(at), &cost()).unwrap(), Stored::Written);
    }
    let listing = cache.links().unwrap();
    assert_eq!(listing.links.len(), 512);
    assert!(matches!(cache.link(&name(519)), Ok(Some(_))), "the last is there");
    assert!(listing.ignored.is_empty());
}

#[test]
fn files_of_dead_writers_are_removed() {
    let (_place, cache) = new();
    cache.keep_host(&HostCost::default()).unwrap();
    let [dead, busy] = [".new-dead", ".new-busy"].map(|name| cache.directory().join(name));
    fs::write(&busy, "half").unwrap();
    let file = fs::File::create(&dead).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
    cache.keep_link(&pair(), &cost()).unwrap();
    assert!(!dead.exists());
    assert!(busy.exists());
}

#[test]
fn readers_see_whole_files_while_writers_write() {
    let (_place, cache) = new();
    thread::scope(|scope| {
        for writer in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for at in 0..40 {
                    let one = Pair::new("tcp", "a", &format!("{writer}-{at}"));
                    cache.keep_link(&one, &cost()).unwrap();
                    cache.keep_host(&HostCost { copy_ns: writer, ..HostCost::default() }).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let listing = cache.links().unwrap();
                    assert!(listing.ignored.is_empty(), "{:?}", listing.ignored);
                    assert!(cache.host().unwrap().is_none_or(|entry| entry.value.copy_ns < 4));
                }
            });
        }
    });
    let left = fs::read_dir(cache.directory()).unwrap().flatten();
    let unfinished = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".new-"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn ranks_that_start_at_once_sample_once() {
    let (_place, cache) = new();
    let costs: Vec<HostCost> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..16).map(|_| scope.spawn(|| host_cost(Some(&cache)))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let sampled = cache.host().unwrap().unwrap().value;
    let strangers = costs.iter().filter(|&&cost| cost != sampled && cost != HostCost::default());
    assert_eq!(strangers.count(), 0, "{costs:?}");
    assert!(costs.contains(&sampled));
}

#[test]
fn processes_that_start_at_once_agree() {
    let (_place, cache) = new();
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(&program)
                .args(["--ignored", "--exact", "a_starting_process", "--nocapture"])
                .env("CANELE_CACHE_DIR", cache.directory())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let costs: Vec<HostCost> = children.into_iter().map(cost_of).collect();
    let sampled = cache.host().unwrap().unwrap().value;
    let strangers = costs.iter().filter(|&&cost| cost != sampled && cost != HostCost::default());
    assert_eq!(strangers.count(), 0, "{costs:?}");
    assert!(costs.contains(&sampled));
    assert!(matches!(cache.link(&pair()), Ok(Some(_))), "one of them has written the link");
    assert!(cache.links().unwrap().ignored.is_empty());
}

fn cost_of(child: Child) -> HostCost {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // The harness has begun the line.
    let line = text.lines().find_map(|line| Some(&line[line.find("host/4")?..]));
    line.expect("a cost").parse().unwrap()
}

#[test]
#[ignore = "one of the processes of another test"]
fn a_starting_process() {
    let cache = Cache::of_environment().expect("the other test's");
    println!("{}", host_cost(Some(&cache)));
    cache.keep_link(&pair(), &cost()).unwrap();
}

#[test]
fn costs_of_before_the_machine_was_started_are_sampled_anew() {
    let (_place, cache) = new();
    let odd = HostCost { copy_ns: 987, ..HostCost::default() };
    cache.keep_host(&odd).unwrap();
    assert_eq!(host_cost(Some(&cache)), odd, "remembered");
    let path = only(&cache, "host-");
    edit(&path, |text| text.replace(" boot ", " boot 0"));
    assert!(matches!(cache.host(), Err(Ignored::Stale)));
    assert_ne!(host_cost(Some(&cache)), odd);
    assert_ne!(cache.host().unwrap().unwrap().value, odd, "replaced");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(testing::cases(200)) })]

    #[test]
    fn any_bytes_are_costs_or_a_reason(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (_place, cache) = new();
        cache.keep_link(&pair(), &cost()).unwrap();
        let path = only_link(&cache);
        let mut bytes = fs::read(&path).unwrap();
        fs::write(&path, noise).unwrap();
        prop_assert!(cache.link(&pair()).is_err());
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, bytes).unwrap();
        let _ = cache.link(&pair());
        let listing = cache.links().unwrap();
        prop_assert_eq!(listing.links.len() + listing.ignored.len(), 1);
    }
}

fn new() -> (tempfile::TempDir, Cache) {
    let place = tempfile::tempdir().unwrap();
    let cache = Cache::at(place.path().join("canele"));
    (place, cache)
}

fn pair() -> Pair {
    Pair::new("tcp", "a/eth0", "b/eth0")
}

fn cost() -> Cost {
    let mut cost = Cost::linear(5_800_000, 2_000, 118_000_000);
    cost.learn(1 << 20, 9_000_000);
    cost
}

fn only_link(cache: &Cache) -> PathBuf {
    only(cache, "link-")
}

fn only(cache: &Cache, prefix: &str) -> PathBuf {
    let entries = fs::read_dir(cache.directory()).unwrap().flatten();
    let mut alike = entries.filter(|one| one.file_name().to_string_lossy().starts_with(prefix));
    let found = alike.next().unwrap().path();
    assert!(alike.next().is_none());
    found
}

fn rewrite(cache: &Cache, with: impl Fn(&str) -> String) {
    edit(&only_link(cache), with);
}

fn edit(path: &Path, with: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let edited = with(&text);
    assert_ne!(edited, text);
    fs::write(path, edited).unwrap();
}

/// Returns the text as if written so many seconds earlier.
fn aged(text: &str, by_s: i64) -> String {
    let (before, rest) = text.split_once("written ").unwrap();
    let (written, after) = rest.split_once('\n').unwrap();
    format!("{before}written {}\n{after}", written.parse::<i64>().unwrap() - by_s)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn replace_by_link(path: &Path, target: &str) {
    fs::remove_file(path).unwrap();
    symlink(target, path).unwrap();
}

fn replace_by_linked_copy(path: &Path) {
    let copy = path.with_extension("copy");
    fs::rename(path, &copy).unwrap();
    symlink(copy, path).unwrap();
}

fn replace_by_directory(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

fn replace_by_pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    fs::remove_file(path).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}
