//! The file by which `mpiexec -grid` runs a job on a lab.

use crate::spec::Spec;

/// Returns a lab's grid file. `command` runs the words that follow it on a node.
pub fn grid_file(spec: &Spec, command: &str) -> String {
    let has_networks = spec.sites > 1 && !spec.private_sites.is_empty();
    let mut text = String::new();
    for site in 0..spec.sites {
        let hosts: Vec<_> = (0..spec.nodes).map(|node| spec.host(site, node)).collect();
        text += &format!("[[site]]\nname = \"site{site}\"\nhosts = {hosts:?}\n");
        text += &format!("launch = {command:?}\n");
        if has_networks {
            text += &format!("networks = [\"lan{site}\"]\n");
        }
        if has_networks && spec.private_sites.contains(&site) {
            // Connections into the site reach its first node only.
            let (host, address) = (spec.host(site, 0), spec.address(site, 0, 0));
            text += &format!("\n[[site.gateway]]\nhost = \"{host}\"\n");
            text += &format!("inside = \"{address}\"\noutside = \"{address}\"\n");
        }
        text.push('\n');
    }
    for site in (0..spec.sites).filter(|_| has_networks) {
        text += &network(spec, site);
    }
    text
}

/// Describes the networks of a site. The router leads from each public site to each other one.
fn network(spec: &Spec, site: u32) -> String {
    let subnets: Vec<_> = (0..spec.nics).map(|nic| spec.subnet(site, nic)).collect();
    let is_public = |site: &u32| !spec.private_sites.contains(site);
    let others = (0..spec.sites).filter(|other| *other != site && is_public(other));
    let reached = others.filter(|_| is_public(&site)).map(|other| format!("lan{other}"));
    let reached: Vec<_> = reached.collect();
    format!("[[network]]\nname = \"lan{site}\"\nsubnets = {subnets:?}\nreaches = {reached:?}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_site_has_a_gateway_and_public_ones_reach_each_other() {
        let spec = Spec { sites: 3, nodes: 1, private_sites: vec![1], ..Spec::default() };
        let text = grid_file(&spec, "run");
        assert_eq!(text.matches("[[site.gateway]]\nhost = \"site1-node0\"").count(), 1, "{text}");
        assert!(text.contains("inside = \"10.77.1.10\"\noutside = \"10.77.1.10\"\n"), "{text}");
        for (lan, reaches) in [(0, "[\"lan2\"]"), (1, "[]"), (2, "[\"lan0\"]")] {
            let end = format!("subnets = [\"10.77.{lan}.0/24\"]\nreaches = {reaches}\n");
            assert!(text.contains(&format!("name = \"lan{lan}\"\n{end}")), "{text}");
        }
    }

    #[test]
    fn without_private_sites_nothing_is_said_of_networks() {
        let text = grid_file(&Spec::default(), "run");
        assert!(!text.contains("network") && !text.contains("gateway"), "{text}");
    }
}
