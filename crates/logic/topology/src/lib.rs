//! Which host is at which port of which switch, and what contradicts itself there: pure.
//!
//! [`Topology::of`] takes what is known of hosts ([`Host`]: facts of an inspection, what was declared, network data) and gives switches with their ports, hosts
//! with their interfaces, and [`Finding`]s. Nothing is stored: it is a view, computed anew by whoever wants to see it. The renderers tell the same thing as a tree
//! of text, for Graphviz, for Mermaid, as JSON and as a picture.
//!
//! What a switch is called is what it says of itself, and whoever is on a cable can say anything. So a switch is known by its chassis id (by its name where
//! it gives none), a port by the switch and its port id; two hosts on one port, a switch of two names and the like are told and not decided. What a
//! person has declared (`spec.networkInterfaces[].switchPort`) goes before what was heard, as upstream has it, and a difference is told.
//!
//! All texts are printable and bounded, the order of everything depends on names alone, and the work grows with the number of interfaces.

mod build;
mod findings;
mod host;
mod order;
mod render;

pub use build::{Attached, HostView, NicView, Place, SeenAs, Switch, SwitchPort, Topology, VlanView};
pub use findings::{Finding, Kind, Level};
pub use host::{Declared, Host, SwitchObject};
