//! Tests of nodes that are network namespaces, in one program.
//!
//! Tests that fork, or that use up their process's descriptors, are programs of their own.

mod nodes;

mod namespaces;
mod networks;
