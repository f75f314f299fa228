//! Tests of grid files: the documentation's example, and mistakes.

use super::*;

#[test]
fn a_remote_shell_gets_the_path_of_an_agent_whole() {
    let word = |launcher: &str, agent: &str| {
        Launcher::parse(launcher).unwrap().command("h", agent).pop().unwrap()
    };
    assert_eq!(word("ssh", "~/canele/bin/canele-agent"), "~/canele/bin/canele-agent");
    assert_eq!(word("/usr/bin/ssh -p 7", "/my dir/agent"), "'/my dir/agent'");
    assert_eq!(word("ssh", "/it's/agent"), r"'/it'\''s/agent'");
    assert_eq!(word("slurm", "/my dir/agent"), "/my dir/agent");
    assert_eq!(word("go {host} --", "/my dir/agent"), "/my dir/agent");
}

#[test]
fn hosts_may_be_addresses() {
    let text = "[[site]]\nname = \"a\"\nhosts = [\"::1\", \"[::2]:3\", \"[::3]:0\"]\n\
        networks = [\"l\", \"w\"]\n[[site.gateway]]\nhost = \"[::1]\"\ninside = \"[fd00::1]:7\"\n\
        [[site]]\nname = \"b\"\nhosts = [\"c\"]\nnetworks = [\"w\"]\n\
        [[network]]\nname = \"l\"\nsubnets = [\"fd00::/8\"]\n[[network]]\nname = \"w\"\n";
    let grid = Grid::parse(text, "g").unwrap();
    let hosts: Vec<_> =
        grid.sites[0].hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect();
    assert_eq!(hosts, [("::1", None), ("::2", Some(3)), ("::3", Some(0))]);
    assert_eq!(grid.sites[0].gateways[0].host, "::1");
    assert_eq!(Grid::parse(&grid.text(), "g").unwrap(), grid);
}

fn example() -> &'static str {
    let text = include_str!("../../../../docs/user/grid-files.md");
    let (_, rest) = text.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_example_of_the_documentation_is_parsed() {
    let grid = Grid::parse(example(), "grid.toml").unwrap();
    assert_eq!(
        grid.sites.iter().map(|site| site.name.as_str()).collect::<Vec<_>>(),
        ["rennes", "nancy"]
    );
    let slots =
        |site: usize| grid.sites[site].hosts.iter().map(|host| host.slots).collect::<Vec<_>>();
    assert_eq!((slots(0), slots(1)), (vec![Some(2), Some(4)], vec![Some(8); 3]));
    let nancy = &grid.sites[1];
    let spread = nancy.spread.as_ref().unwrap().command("grillon-2", "agent");
    assert_eq!(spread[spread.len() - 2..], ["--nodelist=grillon-2", "agent"]);
    let launch = nancy.launch.as_ref().unwrap().command("grillon-1", "agent");
    assert_eq!(launch[launch.len() - 3..], ["2222", "grillon-1", "agent"]);
    assert_eq!(nancy.environment["OMP_NUM_THREADS"], "4");
    assert_eq!((nancy.speed_percent, grid.sites[0].speed_percent), (Some(60), None));
    assert_eq!(grid.networks.len(), 3);
    assert_eq!(Grid::parse(&grid.text(), "again").unwrap(), grid, "{}", grid.text());
}

#[test]
fn every_key_of_the_documentation_is_known() {
    let text = include_str!("../../../../docs/user/grid-files.md");
    let keys = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let keys: Vec<&str> = keys.map(|(key, _)| key).collect();
    assert!(keys.len() == 14, "{keys:?}");
    for key in keys {
        let line = format!("[[site]]\nname = \"a\"\nhosts = [\"h\"]\n{key} = [1.5]\n");
        let report = Grid::parse(&line, "g").unwrap_err().to_string();
        assert!(!report.contains("unknown field"), "{report}");
    }
}

#[test]
fn errors_are_one_line_with_line_number_and_key() {
    let site = "[[site]]\nname = \"a\"\nhosts = [\"h\"]\n";
    let gateway = "[[site.gateway]]\n";
    let slurm = "[[site]]\nname = \"a\"\n";
    for (text, expected) in [
        ("", "g: site: there is none"),
        (
            "[[site]]\nname = 3\nhosts = [\"h\"]",
            "g:2: name: invalid type: integer `3`, expected a string",
        ),
        ("[[site]]\nhosts = [\"h\"]", "missing field `name`"),
        ("[[site]]\nname = \"a\"\n", "g:2: name: `a` has no hosts: name them in `hosts`"),
        (&format!("{site}slurm = \"-N 2\"\n"), "g:3: hosts: they come from Slurm here"),
        (&format!("{slurm}slurm = \"batch\"\n"), "g:3: slurm: `batch` is no option of salloc"),
        (&format!("{slurm}slurm = \"-N2 --no-shell\"\n"), "g:3: slurm: `-N2 --no-shell` has"),
        (&format!("{slurm}slurm = \"-N2\"\nlogin = \"a:2\"\n"), "g:4: login: `a:2` is no name"),
        (&format!("{site}login = \"a\"\n"), "g:4: login: `a` is of no use without `slurm`"),
        (
            &format!("{slurm}slurm = \"-N2\"\n{gateway}host = \"h\"\ninside = \"10.0.0.1:7\"\n"),
            "g:5: host: `h` is not known before Slurm gives hosts",
        ),
        ("[[site]]\nname = \"a b\"\nhosts = [\"h\"]", "g:2: name: `a b` is no name"),
        ("[[site]]\nname = \"a\"\nhosts = []", "g:3: hosts: there is none"),
        ("[[site]]\nname = \"a\"\nhosts = [\"h\",\n \"i:x\"]", "g:4: hosts: `i:x` has no number"),
        ("[[site]]\nname = \"a\"\nhosts = [\"h:0\"]", "g: hosts: none takes a rank"),
        ("[[site]]\nname = \"a\"\nhosts = [\"h\", \"h\"]", "g:3: hosts: `h` is named before"),
        (
            "[[site]]\nname = \"a\"\nhosts = [\"-oProxyCommand=x\"]",
            "g:3: hosts: `-oProxyCommand=x` is no name",
        ),
        (&format!("{site}slotz = 3\n"), "g:4: slotz: unknown field `slotz`, expected one of"),
        (&format!("{site}slots = 0\n"), "g:4: slots: `0` is not a number from 1"),
        (&format!("{site}slots = \"4\"\n"), "g:4: slots: invalid type: string"),
        (&format!("{site}speed = 0\n"), "g:4: speed: `0` is not a number from 0.01 to 100"),
        (&format!("{site}speed = nan\n"), "g:4: speed: `NaN` is not a number from 0.01 to 100"),
        (&format!("{site}launch = \" \"\n"), "g:4: launch: ` ` is no launcher"),
        (&format!("{site}agent = \"\"\n"), "g:4: agent: `` is no path"),
        (
            &format!("{site}{gateway}host = \"x\"\ninside = \"10.0.0.1:7\"\n"),
            "g:5: host: `x` is none of this site's hosts",
        ),
        (
            &format!("{site}{gateway}host = \"h\"\ninside = \"10.0.0.1:\"\n"),
            "g:6: inside: `10.0.0.1:` is no address with a port",
        ),
        (
            &format!(
                "{site}{gateway}host = \"h\"\ninside = \"10.0.0.1\"\noutside = \"192.0.2.1\"\n\
                 listen = [\"10.0.0.1\"]\n"
            ),
            "g:7: outside: `192.0.2.1` leaves the port open",
        ),
        (
            &format!("{site}{gateway}host = \"h\"\ninside = \"10.0.0.1:7\"\n"),
            "g: gateway: those of site `a` may connect to nobody",
        ),
        (&format!("{site}{gateway}host = \"h\"\n"), "missing field `inside`"),
        (&format!("{site}networks = [\"x\"]\n"), "g:4: networks: `x` is no [[network]]"),
        (
            &format!("{site}environment = {{ \"A=B\" = \"\" }}\n"),
            "g:4: environment: `A=B` is no name",
        ),
        (&format!("{site}environment = {{ CANELE_SITE = \"x\" }}\n"), "is set to the site's name"),
        (&format!("{site}{site}"), "g:5: name: `a` is there twice"),
        (
            &format!("{site}[[network]]\nname = \"n\"\nsubnets = [\"10.0.0.0/33\"]"),
            "g:6: subnets: `10.0.0.0/33`",
        ),
        (
            &format!("{site}[[network]]\nname = \"n\"\nreaches = [\"m\"]"),
            "g:6: reaches: `m` is no [[network]]",
        ),
        ("[[site]\n", "g:1: [[site]"),
    ] {
        let report = Grid::parse(text, "g").unwrap_err().to_string();
        assert!(report.contains(expected), "{text}\n{report}\n{expected}");
        assert_eq!(report.lines().count(), 1, "{report}");
    }
}

#[test]
fn sites_with_networks_must_be_connected() {
    let grid = |more: &str, gateway: &str| {
        let text = format!(
            "[[site]]\nname = \"a\"\nhosts = [\"h\"]\nnetworks = [\"n\"]\n{gateway}\n\
             [[site]]\nname = \"b\"\nhosts = [\"i\"]\nnetworks = [\"m\"]\n\
             [[network]]\nname = \"n\"\nsubnets = [\"10.1.0.0/16\"]\n\
             [[network]]\nname = \"m\"\n{more}",
        );
        Grid::parse(&text, "g")
    };
    let report = grid("", "").unwrap_err().to_string();
    assert!(report.contains("none leads from site `a` to site `b`"), "{report}");
    assert!(grid("reaches = [\"n\"]", "").is_ok());
    let inside = "[[site.gateway]]\nhost = \"h\"\ninside = \"10.1.0.1:7\"\n";
    assert!(grid("", inside).is_err());
    let known = grid("", &format!("{inside}outside = \"192.0.2.1:7-9\"\n")).unwrap();
    assert_eq!(known.own_subnets(&known.sites[0]), ["10.1.0.0/16"]);
    assert_eq!(Grid::parse(&known.text(), "again"), Ok(known));
}
