//! The view as text, as graphs and as a picture.

mod dot;
mod mermaid;
mod svg;
mod tree;

use crate::build::{NicView, Topology};
use crate::findings::{Level, vlans};

/// Tagged VLANs that are named beside an interface.
const NAMED_VLANS: usize = 4;

impl Topology {
    /// A tree for people: switches, their ports, and who is there; then interfaces whose port is not known, and the findings.
    #[must_use]
    pub fn tree(&self) -> String {
        tree::of(self)
    }

    /// A graph in Graphviz' language.
    #[must_use]
    pub fn dot(&self) -> String {
        dot::of(self)
    }

    /// A graph in Mermaid's language.
    #[must_use]
    pub fn mermaid(&self) -> String {
        mermaid::of(self)
    }

    /// JSON.
    ///
    /// # Errors
    /// Never: the view has names as keys.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// A picture (SVG 1.1): the hosts that share switches below these, a line from each interface to its port.
    #[must_use]
    pub fn svg(&self) -> String {
        svg::of(self)
    }

    /// Messages of this level.
    fn said(&self, level: Level) -> Vec<&str> {
        let of_level = self.findings.iter().filter(|finding| finding.level == level);
        of_level.map(|finding| finding.message.as_str()).collect()
    }
}

/// Speed, bond and VLANs of an interface.
fn traits(nic: &NicView) -> Vec<String> {
    let speed = nic.speed_gbps.map(|speed| format!("{speed} Gbit/s"));
    [speed, nic.bond.clone(), vlans(nic, NAMED_VLANS)].into_iter().flatten().collect()
}
