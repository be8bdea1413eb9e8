//! Mermaid: a flow chart, which forges show in Markdown.

use std::fmt::Write as _;

use crate::build::Topology;

/// A quoted text: what means something to Mermaid or HTML is an entity.
fn quoted(lines: &[&str]) -> String {
    let escape = |line: &&str| {
        let mut out = String::new();
        for c in line.chars() {
            match c {
                '"' => out.push_str("#quot;"),
                '#' | '<' | '>' | '&' | '`' | '\\' => drop(write!(out, "#{};", u32::from(c))),
                c => out.push(c),
            }
        }
        out
    };
    format!("\"{}\"", lines.iter().map(escape).collect::<Vec<_>>().join("<br/>"))
}

pub(super) fn of(view: &Topology) -> String {
    let mut out = String::from("flowchart TB\n");
    for (at, switch) in view.switches.iter().enumerate() {
        let lines: Vec<&str> =
            if switch.title() == switch.id { vec![&switch.id] } else { vec![switch.title(), &switch.id] };
        let _ = writeln!(out, "  s{at}[{}]", quoted(&lines));
    }
    for (at, host) in view.hosts.iter().enumerate() {
        let _ = writeln!(out, "  h{at}({})", quoted(&[&host.key()]));
    }
    for (at, switch) in view.switches.iter().enumerate() {
        for port in &switch.ports {
            for one in &port.nics {
                let _ = writeln!(out, "  s{at} ---|{}| h{}", quoted(&[&port.id, &one.nic]), one.at.0);
            }
        }
    }
    out
}
