//! Routes between sites: networks in common, gateways that can be called, and gateways of sites in between.

use std::collections::VecDeque;

use super::{Gateway, Grid, Site};

/// Two sites that meet only through the gateways of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitRoute<'a> {
    /// Site whose ranks connect.
    pub from: &'a Site,
    /// Site that they connect to.
    pub to: &'a Site,
    /// Sites in between, whose gateways pass the connection on, in order.
    pub between: Vec<&'a Site>,
}

impl Grid {
    /// Returns the routes of all pairs of sites that meet only through the gateways of others.
    pub fn transit_routes(&self) -> Vec<TransitRoute<'_>> {
        let mut routes = Vec::new();
        for from in &self.sites {
            for to in self.sites.iter().filter(|to| !self.meet(from, to)) {
                routes.extend(self.between(from, to).map(|between| TransitRoute {
                    from,
                    to,
                    between,
                }));
            }
        }
        routes
    }

    /// Returns two sites between which there is no route, if there are any.
    pub(super) fn unconnected_pair(&self) -> Option<(&str, &str)> {
        let pairs = self.sites.iter().enumerate();
        let mut pairs =
            pairs.flat_map(|(at, one)| self.sites[at + 1..].iter().map(move |other| (one, other)));
        let has_route = |one, other| {
            self.meet(one, other)
                || self.between(one, other).is_some()
                || self.between(other, one).is_some()
        };
        let pair = pairs.find(|(one, other)| !has_route(one, other));
        pair.map(|(one, other)| (one.name.as_str(), other.name.as_str()))
    }

    /// True if the hosts of two sites reach each other, or those of one the gateways of the other.
    fn meet(&self, one: &Site, other: &Site) -> bool {
        let is_open = one.networks.is_empty() || other.networks.is_empty();
        one.name == other.name
            || is_open
            || self.leads(&one.networks, &other.networks)
            || self.calls(one, other)
            || self.calls(other, one)
    }

    fn calls(&self, from: &Site, to: &Site) -> bool {
        self.callable(from, to).next().is_some()
    }

    /// Returns the gateways of a site that the hosts of another can call.
    pub(crate) fn callable(
        &self,
        from: &Site,
        to: &Site,
    ) -> impl Iterator<Item = &Gateway> + use<'_> {
        let networks = from.networks.clone();
        let to = self.sites.iter().find(|site| site.name == to.name);
        let gateways = to.into_iter().flat_map(|site| &site.gateways);
        gateways.filter(move |gateway| {
            let is_everywhere = gateway.networks.is_empty() || networks.is_empty();
            let is_reached = is_everywhere || self.leads(&networks, &gateway.networks);
            gateway.outside.is_some() && is_reached
        })
    }

    /// Returns the fewest sites in between whose gateways lead from one site to another; of several such routes,
    /// the first in the order of the file.
    fn between(&self, from: &Site, to: &Site) -> Option<Vec<&Site>> {
        let mut before: Vec<Option<usize>> = vec![None; self.sites.len()];
        let start = self.sites.iter().position(|site| site.name == from.name)?;
        let mut reached = VecDeque::from([start]);
        while let Some(at) = reached.pop_front() {
            for (next, site) in self.sites.iter().enumerate() {
                if next == start || before[next].is_some() || !self.calls(&self.sites[at], site) {
                    continue;
                }
                before[next] = Some(at);
                reached.push_back(next);
            }
        }
        let end = self.sites.iter().position(|site| site.name == to.name)?;
        let mut between = Vec::new();
        let mut at = before[end]?;
        while at != start {
            between.insert(0, &self.sites[at]);
            at = before[at]?;
        }
        (between.len() <= BETWEEN_MAX).then_some(between)
    }

    /// True if one of these networks is one of the others, or routed to it.
    fn leads(&self, networks: &[String], others: &[String]) -> bool {
        let is_routed = |from: &String, to: &String| {
            let network = self.networks.iter().find(|network| network.name == *from);
            network.is_some_and(|network| network.reaches.contains(to))
        };
        networks.iter().any(|one| {
            others
                .iter()
                .any(|other| one == other || is_routed(one, other) || is_routed(other, one))
        })
    }
}

/// Maximum number of sites in between, as requests to gateways hold them (`relay::STAGES_MAX`).
const BETWEEN_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sites in a chain: each shares a network with the next, where its gateway is called.
    fn chain(sites: usize) -> Result<Grid, String> {
        let mut text = String::new();
        for site in 0..sites {
            let shared: Vec<String> = (site.max(1) - 1..=site)
                .filter(|link| *link + 1 < sites)
                .map(|link| format!("\"w{link}\""))
                .collect();
            let shared = shared.join(", ");
            text += &format!(
                "[[site]]\nname = \"s{site}\"\nhosts = [\"h{site}\"]\nnetworks = [\"l{site}\"]\n\
                 [[site.gateway]]\nhost = \"h{site}\"\ninside = \"10.{site}.0.1:7\"\n\
                 outside = \"192.0.2.{site}:7\"\nnetworks = [{shared}]\n"
            );
        }
        for site in 0..sites {
            text += &format!(
                "[[network]]\nname = \"l{site}\"\nsubnets = [\"10.{site}.0.0/16\"]\nreaches = [{}]\n",
                (site.max(1) - 1..=site)
                    .filter(|link| *link + 1 < sites)
                    .map(|link| format!("\"w{link}\""))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        for link in 0..sites - 1 {
            text += &format!("[[network]]\nname = \"w{link}\"\n");
        }
        Grid::parse(&text, "g").map_err(|error| error.to_string())
    }

    fn names(route: &TransitRoute<'_>) -> String {
        let between: Vec<&str> = route.between.iter().map(|site| &site.name[..]).collect();
        format!("{} > {} > {}", route.from.name, between.join(" > "), route.to.name)
    }

    #[test]
    fn gateways_in_between_connect_sites_that_do_not_meet() {
        let grid = chain(3).unwrap();
        let routes = grid.transit_routes();
        assert_eq!(routes.iter().map(names).collect::<Vec<_>>(), ["s0 > s1 > s2", "s2 > s1 > s0"]);
        assert_eq!(Grid::parse(&grid.text(), "again"), Ok(grid.clone()));
        let grid = chain(5).unwrap();
        let routes = grid.transit_routes();
        assert_eq!(routes.len(), 12);
        assert_eq!(
            routes.iter().map(names).max_by_key(String::len).unwrap(),
            "s4 > s3 > s2 > s1 > s0"
        );
    }

    #[test]
    fn a_route_has_few_gateways() {
        let report = chain(6).unwrap_err();
        assert!(report.contains("none leads from site `s0` to site `s5`"), "{report}");
        assert_eq!(report.lines().count(), 1);
    }

    #[test]
    fn a_site_without_a_gateway_is_no_way_through() {
        let text = chain(3).unwrap().text();
        let gateway = text.find("[[site.gateway]]\nhost = \"h1\"").unwrap();
        let end = gateway + text[gateway..].find("[[site]]").unwrap();
        let report = Grid::parse(&format!("{}{}", &text[..gateway], &text[end..]), "g");
        let report = report.unwrap_err().to_string();
        assert!(report.contains("from site `s0` to site `s2`"), "{report}");
    }
}
