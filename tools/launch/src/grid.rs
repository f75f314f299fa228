//! The grid file: sites with their hosts, networks, and how agents are started there.
//!
//! `docs/user/grid-files.md` describes it. An error in a file is reported in one line, with file, line and
//! key.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use netpath::ListenAddress;
use serde::{Deserialize, Serialize, Serializer};
use toml::Spanned;

use crate::host::{self, RANKS_MAX};
use crate::launcher::Launcher;

/// Sites and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grid {
    /// Sites in the order in which ranks fill them.
    #[serde(rename = "site")]
    pub sites: Vec<Site>,
    /// Networks that the sites name.
    #[serde(rename = "network", skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
}

/// A site: hosts that are near each other, reached and equipped alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Site {
    /// Name of the site, which its ranks find in `CANELE_SITE`.
    pub name: String,
    /// Hosts, `host` or `host:ranks`; none before Slurm has given them.
    #[serde(serialize_with = "as_words", skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Options of `salloc`, if the hosts come from the site's Slurm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slurm: Option<String>,
    /// Host where Slurm takes requests, if it is not this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// Ranks on each host that Slurm gives, instead of its tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Launcher with which `mpiexec` starts the agent on the first host, if the file names one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_command")]
    pub launch: Option<Launcher>,
    /// Launcher with which that agent starts the agents on the other hosts, if the file names one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_command")]
    pub spread: Option<Launcher>,
    /// Path of the agent there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Working directory of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Directory where programs are looked for first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binaries: Option<String>,
    /// Speed of a rank on its hosts, in hundredths of a usual core.
    #[serde(rename = "speed", skip_serializing_if = "Option::is_none", serialize_with = "as_part")]
    pub speed_percent: Option<u32>,
    /// Names of its networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// Variables for its ranks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Gateways that relay connections between its hosts and other sites.
    #[serde(rename = "gateway", skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<Gateway>,
}

/// A gateway of a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gateway {
    /// Host that it runs on, one of the site's.
    pub host: String,
    /// Address at which the site's ranks call it.
    #[serde(serialize_with = "write_address")]
    pub inside: ListenAddress,
    /// Address at which others call it to reach the site's hosts, if these need it.
    #[serde(serialize_with = "write_outside", skip_serializing_if = "Option::is_none")]
    pub outside: Option<ListenAddress>,
    /// Networks from which `outside` is reached; if empty, every site reaches it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// Addresses at which it listens; if empty, `inside` and `outside`.
    #[serde(serialize_with = "write_addresses", skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<ListenAddress>,
}

/// A host, and the number of ranks that it takes, if given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the host for the launcher.
    pub name: String,
    /// Number of ranks.
    pub slots: Option<u32>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Name of the network in sites.
    pub name: String,
    /// Its subnets, `address/bits`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<String>,
    /// Other networks that it is routed to, in both directions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reaches: Vec<String>,
}

/// An error in a grid file: one line with file, line and key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct GridError(String);

impl Grid {
    /// Reads a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or contains an error.
    pub fn read(path: &Path) -> Result<Self, GridError> {
        let name = path.display();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &name.to_string()),
            Err(error) => Err(GridError(format!("{name}: cannot be read: {error}"))),
        }
    }

    /// Parses a grid; errors call the text `name`.
    ///
    /// # Errors
    /// Fails if the text contains an error.
    pub fn parse(text: &str, name: &str) -> Result<Self, GridError> {
        let source = GridSource { text, name };
        let file: File = toml::from_str(text).map_err(|error| source.refuse(&error))?;
        let networks = source.networks(file.network)?;
        let mut sites: Vec<Site> = Vec::new();
        for site in file.site {
            let site = source.site(site, &sites, &networks)?;
            sites.push(site);
        }
        let grid = Self { sites, networks };
        grid.check().map_err(|reason| GridError(format!("{name}: {reason}")))?;
        Ok(grid)
    }

    /// True if hosts of a site come from Slurm, and are not there yet.
    pub(crate) fn awaits_hosts(&self) -> bool {
        self.sites.iter().any(Site::awaits_hosts)
    }

    /// Returns the text of a file that describes the grid.
    pub fn text(&self) -> String {
        // All keys are strings, and nothing is nested but tables at the end.
        toml::to_string(self).unwrap_or_default()
    }

    /// Checks the grid as a whole.
    fn check(&self) -> Result<(), String> {
        if self.sites.is_empty() {
            return Err("site: there is none: begin with [[site]], a name and hosts".into());
        }
        let hosts = || self.sites.iter().flat_map(|site| &site.hosts);
        if !self.awaits_hosts() && hosts().all(|host| host.slots == Some(0)) {
            return Err("hosts: none takes a rank: leave out `:0` of one at least".into());
        }
        if let Some((one, other)) = self.unconnected_pair() {
            return Err(format!(
                "networks: none leads from site `{one}` to site `{other}`, and no gateways of up to three sites in \
                 between: name one in common, say what reaches what, or give one of them a gateway with an address \
                 outside"
            ));
        }
        let is_idle = |site: &&Site| !site.gateways.is_empty() && self.own_subnets(site).is_empty();
        match self.sites.iter().find(is_idle) {
            Some(Site { name, .. }) => Err(format!(
                "gateway: those of site `{name}` may connect to nobody: name a network in `networks` \
                 that is this site's alone, with its subnets"
            )),
            None => Ok(()),
        }
    }

    /// Returns the subnets of a site's networks that no other site is on. Its gateways may connect there.
    pub fn own_subnets(&self, site: &Site) -> Vec<&str> {
        let is_shared = |name: &String| {
            self.sites.iter().any(|other| other.name != site.name && other.networks.contains(name))
        };
        let own = site.networks.iter().filter(|name| !is_shared(name));
        let networks =
            own.flat_map(|name| self.networks.iter().filter(move |one| one.name == *name));
        networks.flat_map(|network| &network.subnets).map(String::as_str).collect()
    }
}

impl Site {
    /// True if its hosts come from Slurm, and are not there yet.
    pub(crate) fn awaits_hosts(&self) -> bool {
        self.slurm.is_some() && self.hosts.is_empty()
    }

    /// Returns the hosts that can be asked now: its own, or where Slurm takes requests for them.
    pub(crate) fn known_hosts(&self) -> Vec<&str> {
        match self.awaits_hosts() {
            true => vec![self.login_host()],
            false => self.hosts.iter().map(|host| host.name.as_str()).collect(),
        }
    }

    /// Returns the host where its Slurm takes requests.
    pub(crate) fn login_host(&self) -> &str {
        self.login.as_deref().unwrap_or("localhost")
    }
}

impl Gateway {
    /// Returns the addresses at which it listens.
    pub fn listen_addresses(&self) -> Vec<ListenAddress> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        let outside = self.outside.iter().filter(|outside| **outside != self.inside);
        [&self.inside].into_iter().chain(outside).cloned().collect()
    }

    /// Returns the gateway's entry in `CANELE_GATEWAYS`, with the addresses `got` at which it now listens.
    pub(crate) fn setting(&self, got: &[SocketAddr]) -> Option<String> {
        let inside = self.address(&self.inside, got)?;
        match &self.outside {
            Some(outside) => Some(format!("{inside}={}", self.address(outside, got)?)),
            None => Some(inside.to_string()),
        }
    }

    /// Returns the address for other sites, with the addresses `got` at which it now listens.
    pub(crate) fn outside_address(&self, got: &[SocketAddr]) -> Option<SocketAddr> {
        self.address(self.outside.as_ref()?, got)
    }

    fn address(&self, address: &ListenAddress, got: &[SocketAddr]) -> Option<SocketAddr> {
        let own = self.listen_addresses().iter().position(|own| own == address);
        own.map_or(address.only(), |own| got.get(own).copied())
    }
}

fn write_address<S: Serializer>(address: &ListenAddress, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(address)
}

fn write_outside<S: Serializer>(address: &Option<ListenAddress>, to: S) -> Result<S::Ok, S::Error> {
    address.as_ref().map_or_else(String::new, ListenAddress::to_string).serialize(to)
}

fn write_addresses<S: Serializer>(
    listen_addresses: &[ListenAddress],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(listen_addresses.iter().map(ListenAddress::to_string))
}

/// The file before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    site: Vec<SiteEntry>,
    #[serde(default)]
    network: Vec<NetworkEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteEntry {
    name: Spanned<String>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    slurm: Option<Spanned<String>>,
    login: Option<Spanned<String>>,
    slots: Option<Spanned<u32>>,
    launch: Option<Spanned<String>>,
    spread: Option<Spanned<String>>,
    agent: Option<Spanned<String>>,
    directory: Option<Spanned<String>>,
    binaries: Option<Spanned<String>>,
    speed: Option<Spanned<f64>>,
    #[serde(default)]
    environment: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    networks: Vec<Spanned<String>>,
    #[serde(default)]
    gateway: Vec<GatewayEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewayEntry {
    host: Spanned<String>,
    inside: Spanned<String>,
    outside: Option<Spanned<String>>,
    #[serde(default)]
    networks: Vec<Spanned<String>>,
    #[serde(default)]
    listen: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkEntry {
    name: Spanned<String>,
    #[serde(default)]
    subnets: Vec<Spanned<String>>,
    #[serde(default)]
    reaches: Vec<Spanned<String>>,
}

/// The text and its name.
struct GridSource<'a> {
    text: &'a str,
    name: &'a str,
}

impl GridSource<'_> {
    fn networks(&self, entries: Vec<NetworkEntry>) -> Result<Vec<Network>, GridError> {
        let names: HashSet<String> = entries.iter().map(|one| one.name.get_ref().clone()).collect();
        let mut seen = HashSet::new();
        let mut networks = Vec::new();
        for entry in entries {
            let name = self.name_of("name", &entry.name, &mut seen)?;
            let advice = "is no subnet: write an address and its bits, such as 10.77.0.0/24";
            let subnets = self.all("subnets", entry.subnets, is_subnet, advice)?;
            let is_known = |name: &str| names.contains(name);
            let reaches = self.all("reaches", entry.reaches, is_known, NO_NETWORK)?;
            networks.push(Network { name, subnets, reaches });
        }
        Ok(networks)
    }

    fn site(
        &self,
        entry: SiteEntry,
        before: &[Site],
        networks: &[Network],
    ) -> Result<Site, GridError> {
        let mut taken = before.iter().map(|site| site.name.clone()).collect();
        let name = self.name_of("name", &entry.name, &mut taken)?;
        let hosts = self.hosts(&entry, before)?;
        let is_known = |name: &str| networks.iter().any(|network| network.name == name);
        let networks = self.all("networks", entry.networks, is_known, NO_NETWORK)?;
        let gateways = entry.gateway.iter().map(|one| self.gateway(one, &hosts, &is_known));
        let gateways = gateways.collect::<Result<Vec<_>, _>>()?;
        let slurm = self.salloc_options(entry.slurm)?;
        Ok(Site {
            name,
            hosts,
            login: self.login(entry.login, slurm.is_some())?,
            slots: entry.slots.filter(|_| slurm.is_some()).map(Spanned::into_inner),
            slurm,
            launch: self.launcher("launch", entry.launch)?,
            spread: self.launcher("spread", entry.spread)?,
            agent: self.filled("agent", entry.agent)?,
            directory: self.filled("directory", entry.directory)?,
            binaries: self.filled("binaries", entry.binaries)?,
            speed_percent: self.speed(entry.speed)?,
            environment: self.environment(entry.environment)?,
            networks,
            gateways,
        })
    }

    /// Returns a speed in hundredths.
    fn speed(&self, entry: Option<Spanned<f64>>) -> Result<Option<u32>, GridError> {
        let Some(speed) = entry else { return Ok(None) };
        match (SPEED_MIN..=SPEED_MAX).contains(speed.get_ref()) {
            true => Ok(Some((100.0 * speed.get_ref()).round() as u32)),
            false => {
                let advice = format!("is not a number from {SPEED_MIN} to {SPEED_MAX}");
                Err(self.at("speed", &speed, &advice))
            }
        }
    }

    /// Parses the hosts with their numbers of ranks.
    fn hosts(&self, entry: &SiteEntry, before: &[Site]) -> Result<Vec<Host>, GridError> {
        let slots = entry.slots.as_ref();
        if let Some(slots) = slots.filter(|slots| !(1..=RANKS_MAX).contains(slots.get_ref())) {
            return Err(self.at("slots", slots, &format!("is not a number from 1 to {RANKS_MAX}")));
        }
        let listed = match (&entry.hosts, &entry.slurm) {
            (Some(listed), None) => listed,
            (None, Some(_)) => return Ok(Vec::new()),
            (Some(listed), Some(_)) => {
                let place = self.place(listed.span().start);
                return Err(GridError(format!(
                    "{place}: hosts: they come from Slurm here: leave out `hosts` or `slurm`"
                )));
            }
            (None, None) => {
                let advice = "has no hosts: name them in `hosts`, or request them by `slurm`";
                return Err(self.at("name", &entry.name, advice));
            }
        };
        if listed.get_ref().is_empty() {
            let place = self.place(listed.span().start);
            return Err(GridError(format!("{place}: hosts: there is none: name one at least")));
        }
        let known = before.iter().flat_map(|site| &site.hosts).map(|host| host.name.clone());
        let mut known: HashSet<String> = known.collect();
        let mut hosts = Vec::new();
        for one in listed.get_ref() {
            let parsed = host::parse(one.get_ref());
            let (name, own) = parsed.map_err(|mistake| self.at("hosts", one, mistake))?;
            if !known.insert(name.clone()) {
                return Err(self.at(
                    "hosts",
                    one,
                    "is named before: a host is of one site, and there once",
                ));
            }
            hosts.push(Host { name, slots: own.or(slots.map(|slots| *slots.get_ref())) });
        }
        Ok(hosts)
    }

    /// Returns options of `salloc` that make it hold hosts.
    fn salloc_options(&self, entry: Option<Spanned<String>>) -> Result<Option<String>, GridError> {
        let Some(options) = entry else { return Ok(None) };
        let mut words = options.get_ref().split_whitespace();
        if !options.get_ref().trim().starts_with('-') {
            let advice = "is no option of salloc: write such as -N 2 -n 8 -t 30";
            return Err(self.at("slurm", &options, advice));
        }
        if words.any(|word| word == "--no-shell" || word == "--") {
            let advice = "has `--no-shell` or `--`, by which nobody would give the hosts back";
            return Err(self.at("slurm", &options, advice));
        }
        Ok(Some(options.into_inner()))
    }

    fn login(
        &self,
        entry: Option<Spanned<String>>,
        has_slurm: bool,
    ) -> Result<Option<String>, GridError> {
        let Some(login) = entry else { return Ok(None) };
        match host::parse(login.get_ref()) {
            Ok((_, None)) if !has_slurm => {
                Err(self.at("login", &login, "is of no use without `slurm`: leave it out"))
            }
            Ok((name, None)) => Ok(Some(name)),
            Ok((_, Some(_))) => Err(self.at("login", &login, "is no name of a host")),
            Err(mistake) => Err(self.at("login", &login, mistake)),
        }
    }

    fn environment(
        &self,
        entries: BTreeMap<Spanned<String>, Spanned<String>>,
    ) -> Result<BTreeMap<String, String>, GridError> {
        let mut environment = BTreeMap::new();
        for (name, value) in entries {
            if name.get_ref() == settings::SITE.variable() {
                return Err(self.at(
                    "environment",
                    &name,
                    "is set to the site's name: leave it out",
                ));
            }
            if name.get_ref().is_empty() || name.get_ref().contains(['=', '\0']) {
                return Err(self.at("environment", &name, "is no name of a variable"));
            }
            if value.get_ref().contains('\0') {
                return Err(self.at("environment", &name, "has a value with a zero byte"));
            }
            environment.insert(name.into_inner(), value.into_inner());
        }
        Ok(environment)
    }

    fn launcher(
        &self,
        key: &str,
        text: Option<Spanned<String>>,
    ) -> Result<Option<Launcher>, GridError> {
        let advice = "is no launcher: write ssh, slurm, fork or a command";
        let Some(text) = text else { return Ok(None) };
        Launcher::parse(text.get_ref()).map(Some).ok_or_else(|| self.at(key, &text, advice))
    }

    fn filled(
        &self,
        key: &str,
        text: Option<Spanned<String>>,
    ) -> Result<Option<String>, GridError> {
        match text {
            Some(text) if text.get_ref().is_empty() || text.get_ref().contains('\0') => {
                Err(self.at(key, &text, "is no path: name one, or leave the key out"))
            }
            text => Ok(text.map(Spanned::into_inner)),
        }
    }

    /// Parses a name that was not used before.
    fn name_of(
        &self,
        key: &str,
        name: &Spanned<String>,
        taken: &mut HashSet<String>,
    ) -> Result<String, GridError> {
        let text = name.get_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !(1..=NAME_MAX).contains(&text.len()) || !text.chars().all(is_plain) {
            let advice = format!("is no name: take 1 to {NAME_MAX} letters, digits, dots, - and _");
            return Err(self.at(key, name, &advice));
        }
        match taken.insert(text.clone()) {
            true => Ok(text.clone()),
            false => Err(self.at(key, name, "is there twice: choose another name")),
        }
    }

    fn gateway(
        &self,
        entry: &GatewayEntry,
        hosts: &[Host],
        is_network: &impl Fn(&str) -> bool,
    ) -> Result<Gateway, GridError> {
        let host = host::parse(entry.host.get_ref()).map(|(name, _)| name).unwrap_or_default();
        if !hosts.iter().any(|known| known.name == host) {
            let advice = match hosts.is_empty() {
                true => "is not known before Slurm gives hosts: name the site's hosts in `hosts`",
                false => "is none of this site's hosts: add it there",
            };
            return Err(self.at("host", &entry.host, advice));
        }
        let address = |key: &str, text: &Spanned<String>| {
            let advice = "is no address with a port: write 10.77.1.10:7000, 10.77.1.10:7000-7009 or, for \
                          any port, 10.77.1.10";
            text.get_ref().parse().map_err(|_| self.at(key, text, advice))
        };
        let outside = entry.outside.as_ref().map(|text| address("outside", text)).transpose()?;
        let listen = entry.listen.iter().map(|text| address("listen", text));
        let inside = address("inside", &entry.inside)?;
        let listen = listen.collect::<Result<_, _>>()?;
        let networks = self.all("networks", entry.networks.clone(), is_network, NO_NETWORK)?;
        let gateway = Gateway { host, inside, outside, networks, listen };
        let outside = entry.outside.as_ref().map(|text| ("outside", text));
        let called = outside.into_iter().chain([("inside", &entry.inside)]);
        for (key, text) in called.filter(|_| !gateway.listen.is_empty()) {
            let advice =
                "leaves the port open: name one, for `listen` says nothing of this address";
            let address = address(key, text)?;
            if address.only().is_none() && !gateway.listen.contains(&address) {
                return Err(self.at(key, text, advice));
            }
        }
        Ok(gateway)
    }

    /// Returns the values if all of them are allowed.
    fn all(
        &self,
        key: &str,
        values: Vec<Spanned<String>>,
        may_be: impl Fn(&str) -> bool,
        advice: &str,
    ) -> Result<Vec<String>, GridError> {
        match values.iter().find(|value| !may_be(value.get_ref())) {
            Some(stranger) => Err(self.at(key, stranger, advice)),
            None => Ok(values.into_iter().map(Spanned::into_inner).collect()),
        }
    }

    /// Returns the error about a value.
    fn at(&self, key: &str, value: &Spanned<impl std::fmt::Display>, advice: &str) -> GridError {
        let place = self.place(value.span().start);
        GridError(format!("{place}: {key}: `{}` {advice}", value.get_ref()))
    }

    /// Returns an error of the parser. Its text names unknown and missing keys, but not keys with a value of
    /// the wrong type.
    fn refuse(&self, error: &toml::de::Error) -> GridError {
        let said = error.message().lines().collect::<Vec<_>>().join(" ");
        let Some(start) = error.span().map(|span| span.start.min(self.text.len())) else {
            return GridError(format!("{}: {said}", self.name));
        };
        let begin = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[begin..].lines().next().unwrap_or("");
        let key = match line.split_once('=') {
            Some((key, _)) => key.trim(),
            None => line.trim(),
        };
        GridError(format!(
            "{}: {key}: {said} (docs/user/grid-files.md lists the keys)",
            self.place(start)
        ))
    }

    fn place(&self, offset: usize) -> String {
        let line = self.text[..offset].matches('\n').count() + 1;
        format!("{}:{line}", self.name)
    }
}

fn is_subnet(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    match (address.parse(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn as_words<S: serde::Serializer>(hosts: &[Host], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(hosts.iter().map(|host| host::text(&host.name, host.slots)))
}

fn as_command<S: serde::Serializer>(launcher: &Option<Launcher>, to: S) -> Result<S::Ok, S::Error> {
    match launcher {
        Some(Launcher::Fork) => to.serialize_str("fork"),
        Some(Launcher::Command(words)) => to.serialize_str(&words.join(" ")),
        None => to.serialize_none(),
    }
}

fn as_part<S: Serializer>(percent: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
    percent.map(|percent| f64::from(percent) / 100.0).serialize(to)
}

const NO_NETWORK: &str = "is no [[network]] of this file: add it";

/// Longest name of a site or network.
const NAME_MAX: usize = 64;

/// Limits of speeds.
const SPEED_MIN: f64 = 0.01;
const SPEED_MAX: f64 = 100.0;

pub(crate) mod routes;
#[cfg(test)]
mod tests;
