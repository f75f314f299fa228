//! Options of a world that ranks spawn: its programs, and where they run.

use crate::binding::{Binding, Domain};
use crate::host;
use crate::input::InputRanks;
use crate::launch_context::LaunchContext;
use crate::options::{Options, Program};
use crate::placing::Placing;
use crate::soft::Soft;
use crate::spawn_request::{SpawnRequest, SpawnedProgram};
use crate::tree;

/// Returns the options of the world that a request of a rank spawns. `others` has the number of running ranks on each
/// host. Hosts of the request that are new are added to those of the job.
///
/// # Errors
/// Fails if the request cannot be met, with one line.
pub(crate) fn spawned(
    options: &mut Options,
    here: &LaunchContext,
    request: &SpawnRequest,
    others: &[u32],
) -> Result<Options, String> {
    let mut busy = others.to_vec();
    let (mut programs, mut homes) = (Vec::new(), Vec::new());
    for one in &request.programs {
        let program = program(one)?;
        let allowed = hosts_for(options, here, one)?;
        busy.resize(options.host_names().count(), 0);
        let own = place(options, program.ranks, &allowed, &busy);
        own.iter().for_each(|host| busy[*host] += 1);
        homes.extend(own);
        programs.push(program);
    }
    Ok(Options {
        programs,
        placing: Some(Placing { homes, summary: Vec::new() }),
        input: InputRanks::Listed(Vec::new()),
        // These files are those of the first world.
        record: None,
        trace: None,
        profile: None,
        ..options.clone()
    })
}

fn program(one: &SpawnedProgram) -> Result<Program, String> {
    let ranks = match one.info("soft") {
        Some(text) => {
            let soft = Soft::parse(text).map_err(|mistake| format!("soft={text}: {mistake}"))?;
            let none = || format!("soft={text}: no number of ranks up to {}", one.ranks);
            soft.largest(one.ranks).ok_or_else(none)?
        }
        None => one.ranks,
    };
    if let Some(arch) = one.info("arch").filter(|arch| !arch.eq_ignore_ascii_case(ARCH)) {
        return Err(format!("arch={arch}: only hosts of {ARCH} are known"));
    }
    let all = Binding::Domains { of: Domain::Machine, count: 1 };
    let binding = one.info("bind").map(|text| {
        let parsed = Binding::parse(text).map_err(|mistake| format!("bind={text}: {mistake}"))?;
        Ok::<_, String>(parsed.unwrap_or(all))
    });
    let path = one.info("path").into_iter().flat_map(|path| path.split(':'));
    Ok(Program {
        ranks,
        command: one.command.clone(),
        directory: one.info("wdir").map(str::to_owned),
        path: path.filter(|folder| !folder.is_empty()).map(str::to_owned).collect(),
        binding: binding.transpose()?,
        ..Program::default()
    })
}

/// Returns the hosts that may take the ranks of a program, by their indices.
fn hosts_for(
    options: &mut Options,
    here: &LaunchContext,
    one: &SpawnedProgram,
) -> Result<Vec<usize>, String> {
    let mut named = Vec::new();
    for name in one.info("hosts").or(one.info("host")).into_iter().flat_map(|list| list.split(','))
    {
        let (name, _) =
            host::parse(name.trim()).map_err(|mistake| format!("host `{name}` {mistake}"))?;
        named.extend(known_as(options, here, &name)?);
    }
    let Some(wanted) = one.info("site") else {
        let with_slots = |host: &usize| options.slots(*host) > 0;
        let all = || (0..options.host_names().count()).filter(with_slots).collect();
        return Ok(if named.is_empty() { all() } else { named });
    };
    let sites = tree::sites_of(options);
    let is_there = |host: &usize| {
        let site = sites.get(*host).copied().flatten();
        site.is_some_and(|site| site.name == wanted)
    };
    let with_slots = |host: &usize| options.slots(*host) > 0;
    let found: Vec<usize> = match named.is_empty() {
        true => (0..sites.len()).filter(is_there).filter(with_slots).collect(),
        false => named.into_iter().filter(is_there).collect(),
    };
    match found.is_empty() {
        true => Err(format!("site={wanted}: no such host in the grid of this job")),
        false => Ok(found),
    }
}

/// Returns the hosts of this name. One that is new is added, unless a grid names all.
fn known_as(options: &mut Options, here: &LaunchContext, name: &str) -> Result<Vec<usize>, String> {
    let is_here = |name: &str| host::is_loopback(name) || name == here.host;
    let all = || options.host_names().enumerate();
    let same: Vec<usize> = all().filter(|(_, one)| *one == name).map(|(at, _)| at).collect();
    if !same.is_empty() {
        return Ok(same);
    }
    if let Some((at, _)) = all().find(|(_, one)| is_here(name) && is_here(one)) {
        return Ok(vec![at]);
    }
    if options.grid.is_some() {
        return Err(format!("host {name} is not in the grid of this job"));
    }
    if options.hosts.is_empty() {
        options.hosts.push(("localhost".into(), None));
    }
    options.hosts.push((name.to_owned(), None));
    Ok(vec![options.hosts.len() - 1])
}

/// Returns the host of each rank of a program: slots without a rank first, then the hosts in turns as at the start of
/// the job.
fn place(options: &Options, ranks: u32, allowed: &[usize], busy: &[u32]) -> Vec<usize> {
    let slots = |host: usize| if allowed.contains(&host) { options.slots(host).max(1) } else { 0 };
    let all: Vec<u32> = (0..busy.len()).map(slots).collect();
    let free: Vec<u32> =
        all.iter().zip(busy).map(|(all, busy)| all.saturating_sub(*busy)).collect();
    let without_wait = ranks.min(free.iter().copied().fold(0, u32::saturating_add));
    let mut homes = options.mapping.hosts(without_wait as usize, &free);
    homes.extend(options.mapping.hosts((ranks - without_wait) as usize, &all));
    homes
}

/// Architecture of the programs of this installation.
const ARCH: &str = std::env::consts::ARCH;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::command_line::Parsed;
    use crate::grid::Grid;

    fn options(line: &str) -> Options {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match Options::parse(&words).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    fn here() -> LaunchContext {
        LaunchContext {
            agent: "/here/agent".into(),
            host: "head".into(),
            directory: None,
            environment: Vec::new(),
            patience_s: 30,
        }
    }

    fn request(ranks: u32, info: &[(&str, &str)]) -> SpawnRequest {
        let mut part = format!("mcmd=spawn\nnprocs={ranks}\nexecname=x\ninfo_num={}\n", info.len());
        for (at, (key, value)) in info.iter().enumerate() {
            part += &format!("info_key_{at}={key}\ninfo_val_{at}={value}\n");
        }
        let mut request = SpawnRequest::default();
        assert_eq!(request.add(part.as_bytes()), Ok(true));
        request
    }

    fn homes(
        options: &mut Options,
        ranks: u32,
        info: &[(&str, &str)],
        others: &[u32],
    ) -> Vec<usize> {
        let spawned = spawned(options, &here(), &request(ranks, info), others).unwrap();
        assert!(!spawned.input.has(0));
        spawned.placement()
    }

    #[test]
    fn ranks_take_free_slots_first() {
        let mut two = options("-n 3 -hosts a:2,b:3 x");
        assert_eq!(homes(&mut two, 2, &[], &[2, 1]), [1, 1]);
        assert_eq!(homes(&mut two, 5, &[], &[2, 1]), [1, 1, 0, 0, 1]);
        assert_eq!(homes(&mut two, 2, &[("host", "a")], &[2, 1]), [0, 0]);
        assert_eq!(homes(&mut two, 3, &[("hosts", "b,a")], &[1, 3]), [0, 0, 0]);
        assert_eq!(homes(&mut options("-n 1 x"), 3, &[], &[1]), [0, 0, 0]);
    }

    #[test]
    fn new_hosts_are_added_and_this_one_is_known_by_its_names() {
        let mut alone = options("-n 1 x");
        assert_eq!(homes(&mut alone, 1, &[("host", "head")], &[1]), [0]);
        assert_eq!(homes(&mut alone, 1, &[("host", "127.0.0.1")], &[1]), [0]);
        assert!(alone.hosts.is_empty());
        assert_eq!(homes(&mut alone, 2, &[("host", "far")], &[1]), [1, 1]);
        assert_eq!(alone.host_names().collect::<Vec<_>>(), ["localhost", "far"]);
    }

    #[test]
    fn sites_and_programs_are_those_of_the_request() {
        let mut grid = options("-n 2 x");
        let text = "[[site]]\nname = \"n\"\nhosts = [\"a:0\", \"b:2\"]\n\
            [[site]]\nname = \"s\"\nhosts = [\"c\", \"d\"]\n";
        grid.take_grid(Grid::parse(text, "g").unwrap());
        assert_eq!(homes(&mut grid, 3, &[("site", "s")], &[0, 2, 0, 0]), [2, 3, 2]);
        assert_eq!(homes(&mut grid, 3, &[("site", "n")], &[0, 2, 0, 0]), [1, 1, 1]);
        assert_eq!(homes(&mut grid, 1, &[("site", "s"), ("host", "d")], &[0; 4]), [3]);
        let all =
            [("soft", "1:9:2"), ("wdir", "/w"), ("path", "/p:/q"), ("bind", "core:2"), ("x", "y")];
        let one = spawned(&mut grid, &here(), &request(4, &all), &[0; 4]).unwrap();
        let [program] = &one.programs[..] else { panic!("{one:?}") };
        assert_eq!((program.ranks, program.directory.as_deref()), (3, Some("/w")));
        assert_eq!(program.path, ["/p", "/q"]);
        assert_eq!(program.binding, Some(Binding::Domains { of: Domain::Core, count: 2 }));
        for (info, words) in [
            (("site", "x"), "site=x: no such host"),
            (("host", "z"), "host z is not in the grid"),
            (("host", "-o"), "is no name of a host"),
            (("arch", "vax"), "arch=vax: only hosts of"),
            (("soft", "9"), "no number of ranks up to 4"),
            (("bind", "pony"), "bind=pony: not one of"),
        ] {
            let refused = spawned(&mut grid, &here(), &request(4, &[info]), &[0; 4]).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
