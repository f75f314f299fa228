//! Reading of a whole command line.

use std::collections::VecDeque;
use std::ffi::OsString;

use super::Reading;
use super::flag::Text;
use crate::grid::Grid;
use crate::launcher::Launcher;
use crate::options::Options;
use crate::usage::UsageError;

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A run.
    Run(Box<Options>),
    /// A text to print.
    Print(Text),
}

impl Options {
    /// Reads a command line, without the program's own name.
    ///
    /// # Errors
    /// For an unknown option, a missing or malformed value, a hosts file that cannot be read, or no
    /// program.
    pub fn parse(arguments: &[OsString]) -> Result<Parsed, UsageError> {
        Self::parse_within(arguments, &|name| std::env::var(name).ok())
    }

    /// Reads a command line, where `variable` looks up what an allocation has left in the environment.
    pub(crate) fn parse_within(
        arguments: &[OsString],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, UsageError> {
        let mut reading = Reading::default();
        let mut rest: VecDeque<OsString> = arguments.iter().cloned().collect();
        let mut is_in_file = false;
        while let Some(argument) = rest.pop_front() {
            let Reading { options, program, .. } = &mut reading;
            if argument == ":" {
                options.end_program(program)?;
                continue;
            }
            let has_options = program.command.is_empty();
            if has_options && argument == "--" {
                // The program's name may begin with a dash.
                program.command.extend(rest.pop_front());
                continue;
            }
            let is_option = has_options && argument.as_encoded_bytes().starts_with(b"-");
            if !is_option {
                program.command.push(argument);
                continue;
            }
            reading.take(&argument, &mut rest)?;
            if let Some(text) = reading.text {
                return Ok(Parsed::Print(text));
            }
            if let Some(mut words) = reading.inserted.take() {
                if std::mem::replace(&mut is_in_file, true) {
                    return Err(UsageError("-configfile may be given once".into()));
                }
                words.extend((!rest.is_empty()).then(|| ":".into()));
                words.into_iter().rev().for_each(|word| rest.push_front(word));
            }
        }
        let Reading { mut options, mut program, exported, launcher_exec, .. } = reading;
        options.end_program(&mut program)?;
        let of_grid = options.grid.iter().flat_map(|grid| &grid.sites).map(|site| site.hosts.len());
        if options.grid.is_some() && options.hosts.len() != of_grid.sum::<usize>() {
            return Err(UsageError("-grid names the hosts: leave -hosts and -hostfile out".into()));
        }
        if options.launcher != Some(Launcher::Fork) {
            options.launcher = launcher_exec.or(options.launcher);
        }
        options.export(exported, variable);
        options.take_hydra(variable)?;
        options.take_allocation(variable)?;
        options.take_timeout(variable)?;
        let awaits_hosts = options.grid.as_ref().is_some_and(Grid::awaits_hosts);
        if options.wait_s.is_some() && !awaits_hosts {
            return Err(UsageError("-wait: no site of a -grid has its hosts from Slurm".into()));
        }
        if !awaits_hosts {
            options.complete()?;
        }
        Ok(Parsed::Run(Box::new(options)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::{Binding, Domain};
    use crate::label::Label;

    fn parse(line: &str) -> Result<Parsed, UsageError> {
        within(line, &[])
    }

    fn within(line: &str, variables: &[(&str, &str)]) -> Result<Parsed, UsageError> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Options::parse_within(&words, &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn a_program_alone_takes_all_that_its_hosts_do() {
        let size = |line: &str| run(line).size();
        assert_eq!(
            (size("./a"), size("-hosts a:2,b ./a"), size("-ppn 3 -hosts a,b ./a")),
            (1, 3, 6)
        );
        assert_eq!((size("-n 2 -hosts a:2,b ./a"), size("-hosts a:2 ./a : ./b")), (2, 2));
        assert!(parse("-hosts a:1000000,b:1000000 ./a").is_err());
    }

    #[test]
    fn an_allocation_gives_hosts_where_none_are_named() {
        let slurm = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "2,1")];
        let run = |line: &str| match within(line, &slurm).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        };
        assert_eq!(run("./a").placement(), [0, 0, 1]);
        assert_eq!(run("-ppn 1 ./a").placement(), [0, 1]);
        assert_eq!(run("-n 2 ./a").hosts[1].0, "n2");
        assert_eq!(run("-hosts n2 ./a").hosts, [("n2".to_owned(), None)]);
        assert!(run("-launcher fork ./a").hosts.is_empty());
        let wrong = within("./a", &[("SLURM_JOB_NODELIST", "n[")]).unwrap_err().to_string();
        assert!(wrong.contains("SLURM_JOB_NODELIST=n["), "{wrong}");
    }

    fn run(line: &str) -> Options {
        match parse(line).unwrap() {
            Parsed::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let options = run("-n 2 -l -genv A b ./a -n 3 : -np 1 -env C d ./b");
        assert_eq!(options.size(), 3);
        assert_eq!(options.programs[0].command, ["./a", "-n", "3"]);
        assert_eq!(options.programs[1].environment, [("C".into(), "d".into())]);
        assert_eq!(options.label, Some(Label::rank()));
    }

    #[test]
    fn a_value_may_stand_in_the_word_of_its_option() {
        for line in ["--encrypt=all -n 2 ./a --b=c", "-encrypt all --n=2 ./a --b=c"] {
            let options = run(line);
            let variable = settings::ENCRYPT.variable().to_owned();
            assert_eq!(options.environment, [(variable, "all".to_owned())]);
            assert_eq!((options.size(), options.programs[0].command.len()), (2, 2));
        }
    }

    #[test]
    fn values_may_be_joined_as_other_launchers_permit() {
        for line in ["-n2 ./a", "-n=2 ./a", "--np=2 ./a", "-np2 ./a", "-n 2 -- ./a"] {
            let options = run(line);
            assert_eq!(
                (options.size(), &options.programs[0].command[..]),
                (2, &["./a".into()][..])
            );
        }
        let options = run("-genv A=b -env C=d=e -genv F g ./a");
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options.environment, [variable("A", "b"), variable("F", "g")]);
        assert_eq!(options.programs[0].environment, [variable("C", "d=e")]);
        assert_eq!(run("-- -x -n 3").programs[0].command, ["-x", "-n", "3"]);
        for (line, word) in [("-l2 ./a", "-l2"), ("-n2x ./a", "-n2x"), ("-n 2 --", "no program")] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn arguments_of_programs_are_bytes_and_options_text() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = || OsString::from_vec(vec![b'-', 0xff, 0xfe]);
        let words = [OsString::from("./a"), bytes()];
        let Ok(Parsed::Run(options)) = Options::parse(&words) else { panic!("no run") };
        assert_eq!(options.programs[0].command, words);
        for words in [vec![bytes()], vec!["-wdir".into(), bytes(), "./a".into()]] {
            assert!(Options::parse(&words).is_err());
        }
    }

    #[test]
    fn ranks_are_bound_if_that_is_asked_for() {
        assert_eq!(run("-n 2 x").binding, None);
        let one = |of| Some(Binding::Domains { of, count: 1 });
        assert_eq!(run("-bind-to core -n 2 x").binding, one(Domain::Core));
        assert_eq!(run("--bind-to=l3cache -n 2 x").binding, one(Domain::LastCache));
        assert_eq!(run("-bind-to numa -bind-to none -n 2 x").binding, None);
        assert!(parse("-bind-to pony x").unwrap_err().to_string().contains("numa"));
    }

    #[test]
    fn ranks_fill_hosts_in_turn() {
        assert_eq!(run("-n 3 -hosts ::1,[::2]:2 x").placement(), [0, 1, 1]);
        assert_eq!(run("-n 5 -hosts a:2,b:1 x").placement(), [0, 0, 1, 0, 0]);
        assert_eq!(run("-n 4 -ppn 2 -hosts a,b x").placement(), [0, 0, 1, 1]);
        assert_eq!(run("-n 2 x").placement(), [0, 0]);
    }

    #[test]
    fn no_hosts_are_not_this_machine() {
        let words = ["-hosts", "", "./a"].map(OsString::from);
        let error = Options::parse(&words).unwrap_err().to_string();
        assert!(error.contains("-hosts: `` names no host"), "{error}");
    }

    /// Options of Hydra and Open MPI with what they change. Each is also given with two dashes.
    #[test]
    fn options_of_other_launchers_are_taken() {
        type Facts = fn(&Options) -> String;
        let ranks: Facts = |options| options.size().to_string();
        let placement: Facts = |options| format!("{:?}", options.placement());
        let binding: Facts = |options| format!("{:?}", options.binding());
        let environment: Facts = |options| format!("{:?}", options.environment);
        let inherited: Facts = |options| format!("{:?}", options.inherited);
        let own: Facts = |options| format!("{:?}", options.programs[0].inherited);
        let label: Facts = |options| format!("{}", options.label.is_some());
        let notes: Facts = |options| format!("{:?}", options.notes);
        let hosts: Facts = |options| format!("{:?}", options.hosts);
        for (line, fact, expected) in [
            ("-ntasks 3", ranks, "3"),
            ("-n 8 -soft 1:8:3", ranks, "7"),
            ("-soft 2", ranks, "2"),
            ("-H a:2,b", ranks, "3"),
            ("-machines a,b", hosts, "[(\"a\", None), (\"b\", None)]"),
            ("-hosts a:4,b:4 -N 1", placement, "[0, 1]"),
            ("-hosts a,b -npernode 2", placement, "[0, 0, 1, 1]"),
            ("-hosts a,b -perhost 2", placement, "[0, 0, 1, 1]"),
            ("-hosts a:2,b:2 -rr", placement, "[0, 1]"),
            ("-hosts a:2,b:2 -map-by node", placement, "[0, 1, 0, 1]"),
            ("-hosts a:2,b:2 -map-by node -rank-by slot", placement, "[0, 0, 1, 1]"),
            ("-hosts a,b -map-by ppr:2:node", placement, "[0, 0, 1, 1]"),
            ("-bind-to hwthread", binding, "Some(Domains { of: Thread, count: 1 })"),
            ("-bind-to socket", binding, "Some(Domains { of: Package, count: 1 })"),
            ("-bind-to user:0+1,2", binding, "Some(Listed([[0, 1], [2]]))"),
            ("-map-by core:PE=2", binding, "Some(Domains { of: Core, count: 2 })"),
            ("-x A=b=c", environment, "[(\"A\", \"b=c\")]"),
            ("-x A", environment, "[(\"A\", \"here\")]"),
            ("-x NONE", notes, "[\"-x NONE: no such variable is set here\"]"),
            ("-genvlist A,B", inherited, "Only([\"A\", \"B\"])"),
            ("-genvexcl A,B", inherited, "Except([\"A\", \"B\"])"),
            ("-genvnone", inherited, "Only([])"),
            ("-genvnone -genvall", inherited, "All"),
            ("-envlist A", own, "Some(Only([\"A\"]))"),
            ("-envexcl A", own, "Some(Except([\"A\"]))"),
            ("-envnone", own, "Some(Only([]))"),
            ("-envall", own, "Some(All)"),
            ("-path /a:/b", |options| options.programs[0].path.join(" "), "/a /b"),
            ("-usize 9", |options| format!("{:?}", options.universe_size()), "Some(9)"),
            ("-usize INFINITE", |options| format!("{:?}", options.universe_size()), "None"),
            (
                "-n 1 -usize SYSTEM -hosts a:3,b:2",
                |options| format!("{:?}", options.universe_size()),
                "Some(5)",
            ),
            ("-n 2 -arch ARCH-linux", ranks, "2"),
            ("-tag-output", label, "true"),
            ("-timestamp-output", label, "true"),
            ("-prepend-pattern %r:", label, "true"),
            ("-s all", |options| format!("{}", options.input.has(7)), "true"),
            ("-stdin none", |options| format!("{}", options.input.has(0)), "false"),
            ("-n 4 -s 1,3", |options| format!("{}", options.input.has(3)), "true"),
            ("-report-bindings", |options| options.reports_bindings.to_string(), "true"),
            ("-print-rank-map", |options| options.prints_map.to_string(), "true"),
            ("-print-all-exitcodes", |options| options.prints_codes.to_string(), "true"),
            ("-outfile-pattern o.%r", |options| options.files.output.is_some().to_string(), "true"),
            ("-errfile-pattern e.%r", |options| options.files.error.is_some().to_string(), "true"),
            ("-output-filename d", |options| options.files.copies.to_string(), "true"),
            ("-output-filename d:nocopy", |options| options.files.copies.to_string(), "false"),
            ("-prefix /p/", |options| options.prefix.clone().unwrap_or_default(), "/p"),
            ("-localhost me", |options| options.own_name.clone().unwrap_or_default(), "me"),
            ("-dac", |options| options.recovers.to_string(), "true"),
            ("-with-ft ulfm", |options| options.recovers.to_string(), "true"),
            ("-dac -with-ft none", |options| options.recovers.to_string(), "false"),
            ("-dac -enable-auto-cleanup", |options| options.recovers.to_string(), "false"),
            ("-oversubscribe -allow-run-as-root", notes, "[]"),
            (
                "-mca btl self -mca btl self",
                |options| options.notes[0].replacen("--mca", "-mca", 1),
                "-mca btl self: no effect: Canele has settings of its own (canele info --settings)",
            ),
            ("-mca btl self -mca btl self", |options| options.notes.len().to_string(), "1"),
        ] {
            for line in [line.to_owned(), line.replace(" -", " --").replacen('-', "--", 1)] {
                let line = line.replace("ARCH", std::env::consts::ARCH);
                let parsed = within(&format!("{line} ./a"), &[("A", "here")]);
                let Ok(Parsed::Run(options)) = parsed else { panic!("{line}: {parsed:?}") };
                assert_eq!(fact(&options), expected, "{line}");
            }
        }
    }

    #[test]
    fn a_file_holds_programs_with_their_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("programs");
        std::fs::write(&path, "# two\n-n 2 ./a x\n\n-n 3 -env A b ./b\n").unwrap();
        let options = run(&format!("-l -configfile {}", path.display()));
        assert_eq!((options.size(), options.programs.len()), (5, 2));
        assert_eq!(options.programs[0].command, ["./a", "x"]);
        assert!(options.label.is_some());
        let options = run(&format!("-configfile {} -n 1 ./c", path.display()));
        assert_eq!((options.size(), &options.programs[2].command[0]), (6, &"./c".into()));
        std::fs::write(&path, format!("-configfile {}", path.display())).unwrap();
        let again = parse(&format!("-configfile {}", path.display())).unwrap_err().to_string();
        assert!(again.contains("may be given once"), "{again}");
        std::fs::write(&path, "# none\n").unwrap();
        assert!(parse(&format!("-configfile {}", path.display())).is_err());
    }

    #[test]
    fn variables_of_hydra_stand_in_for_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, "a:2\n").unwrap();
        let variables = [
            ("HYDRA_HOST_FILE", path.to_str().unwrap()),
            ("HYDRA_LAUNCH_EXTRA_ARGS", "-o ConnectionAttempts=10"),
            ("HYDRA_IFACE", "eth0"),
            ("SLURM_JOB_NODELIST", "n1"),
        ];
        let Ok(Parsed::Run(options)) = within("./a", &variables) else { panic!("no run") };
        assert_eq!((options.size(), &options.hosts[0].0[..]), (2, "a"));
        assert_eq!(options.launcher_arguments, ["-o", "ConnectionAttempts=10"]);
        assert_eq!(options.environment, [(settings::IFACE.variable().into(), "eth0".into())]);
        let Ok(Parsed::Run(options)) = within("-hosts b -iface lo ./a", &variables) else {
            panic!("no run")
        };
        assert_eq!((&options.hosts[0].0[..], &options.environment[0].1[..]), ("b", "lo"));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("-n x ./a", "-n x"),
            ("-n 0 ./a", "-n 0"),
            ("-frobnicate ./a", "-frobnicate"),
            ("-hotfile h ./a", "unknown option -hotfile; did you mean -hostfile?"),
            ("-n 2", "no program"),
            ("-n", "-n needs"),
            ("-launcher pony ./a", "pony"),
            ("-encrypt some ./a", "-encrypt some: not one of sites, all, none"),
            ("--encrypt ./a", "-encrypt ./a"),
            ("--l=yes ./a", "-l takes no value"),
            ("-grid /nowhere ./a", "/nowhere: cannot be read"),
            ("-place /nowhere ./a", "-place /nowhere: cannot be read"),
            ("-place Cargo.toml ./a", "-place Cargo.toml: is no recorded pattern"),
            ("-record", "-record needs"),
            ("-gdb ./a", "mpiexec -n 2 xterm -e gdb PROGRAM"),
            ("-file x ./a", "-file x: not supported: use -configfile FILE"),
            ("-membind none ./a", "numactl"),
            ("-soft 4 -n 2 ./a", "-soft: no number of ranks up to -n 2"),
            ("-soft x ./a", "-soft x: not a list of N"),
            ("-arch sparc ./a", "-arch sparc: the programs of a job are all for"),
            ("-s 2 -n 2 ./a", "-s names rank 2 of 2 ranks"),
            ("-s some ./a", "-s some: not all, none or a list"),
            ("-map-by ppr:2:socket ./a", "-ppn N"),
            ("-rank-by pony ./a", "-rank-by pony: not one of slot, node"),
            ("-bind-to user:x ./a", "-bind-to user:x: not a list of processors"),
            ("-prepend-pattern %x ./a", "-prepend-pattern %x: after % comes"),
            ("-output-filename a:b ./a", "-output-filename a:b: not DIR or DIR:nocopy"),
            ("-usize many ./a", "-usize many: not a positive number"),
            ("-configfile /nowhere", "-configfile /nowhere: "),
            ("-trace", "-trace needs"),
            ("-profile", "-profile needs"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert_eq!(parse("--help"), Ok(Parsed::Print(Text::Help(None))));
    }
}
