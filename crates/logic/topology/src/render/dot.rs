//! Graphviz: `dot -Tsvg`.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::build::Topology;
use crate::findings::Kind;

/// A quoted string of the language; `\n` between the lines.
fn quoted(lines: &[&str]) -> String {
    let escaped: Vec<String> = lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", escaped.join("\\n"))
}

pub(super) fn of(view: &Topology) -> String {
    let mut out = String::from(
        "graph topology {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
    );
    out.push_str("  { rank=same;\n");
    for (at, switch) in view.switches.iter().enumerate() {
        let lines: Vec<&str> =
            if switch.title() == switch.id { vec![&switch.id] } else { vec![switch.title(), &switch.id] };
        let _ = writeln!(out, "    s{at} [label={}, style=filled, fillcolor=\"#dbe9f6\"];", quoted(&lines));
    }
    out.push_str("  }\n");
    for (at, host) in view.hosts.iter().enumerate() {
        let _ = writeln!(out, "  h{at} [label={}, style=rounded];", quoted(&[&host.key()]));
    }
    let wrong = view.findings.iter().filter(|finding| finding.kind == Kind::PortOfTwoHosts);
    let wrong: HashSet<(&str, &str)> =
        wrong.filter_map(|finding| Some((finding.switch_id.as_deref()?, finding.port_id.as_deref()?))).collect();
    for (at, switch) in view.switches.iter().enumerate() {
        for port in &switch.ports {
            let color =
                if wrong.contains(&(switch.id.as_str(), port.id.as_str())) { ", color=red, fontcolor=red" } else { "" };
            for one in &port.nics {
                let label = quoted(&[&port.id, &one.nic]);
                let _ = writeln!(out, "  s{at} -- h{} [label={label}{color}];", one.at.0);
            }
        }
    }
    out.push_str("}\n");
    out
}
