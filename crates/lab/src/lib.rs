//! The emulated grid: sites and nodes as namespaces, links with delay, rate and loss.
