//! The tree.

use std::fmt::Write as _;

use super::traits;
use crate::build::{NicView, SeenAs, Switch, Topology};
use crate::findings::Level;

fn branch(is_last: bool) -> (&'static str, &'static str) {
    if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

fn end(nic: &NicView) -> String {
    let mut words = traits(nic);
    if nic.seen == SeenAs::Declared {
        let and = if nic.is_down() { ", link down" } else { ", not heard" };
        words.push(format!("declared{}", if nic.heard.is_some() { "" } else { and }));
    }
    if words.is_empty() { String::new() } else { format!("  {}", words.join("  ")) }
}

fn switch(out: &mut String, view: &Topology, switch: &Switch) {
    let _ = write!(out, "{}", switch.title());
    if switch.title() != switch.id {
        let _ = write!(out, "  {}", switch.id);
    }
    if let Some(object) = &switch.object {
        let _ = write!(out, "  BareMetalSwitch {object}");
    }
    out.push('\n');
    for (at, port) in switch.ports.iter().enumerate() {
        let (fork, below) = branch(at + 1 == switch.ports.len());
        if let [one] = &port.nics[..] {
            let nic = &view.hosts[one.at.0].nics[one.at.1];
            let _ = writeln!(out, "{fork}{}  {} {}{}", port.id, one.host, one.nic, end(nic));
            continue;
        }
        let _ = writeln!(out, "{fork}{}  {} interfaces", port.id, port.nics.len());
        for (at, one) in port.nics.iter().enumerate() {
            let nic = &view.hosts[one.at.0].nics[one.at.1];
            let _ = writeln!(out, "{below}{}{} {}{}", branch(at + 1 == port.nics.len()).0, one.host, one.nic, end(nic));
        }
    }
}

pub(super) fn of(view: &Topology) -> String {
    let mut out = String::new();
    for one in &view.switches {
        switch(&mut out, view, one);
    }
    let unknown = |nic: &&NicView| nic.switch_id.is_none();
    let hosts: Vec<_> =
        view.hosts.iter().filter(|host| host.nics.is_empty() || host.nics.iter().any(|nic| unknown(&nic))).collect();
    if !hosts.is_empty() {
        out.push_str("at no known switch\n");
    }
    for (at, host) in hosts.iter().enumerate() {
        let (fork, below) = branch(at + 1 == hosts.len());
        let nics: Vec<&NicView> = host.nics.iter().filter(unknown).collect();
        let none = if nics.is_empty() { "  no interface is known" } else { "" };
        let _ = writeln!(out, "{fork}{}{none}", host.key());
        for (at, nic) in nics.iter().enumerate() {
            let _ = writeln!(
                out,
                "{below}{}{}  {}{}",
                branch(at + 1 == nics.len()).0,
                nic.name,
                nic.seen.words(),
                end(nic)
            );
        }
    }
    for (level, heading) in [(Level::Contradiction, "contradictions"), (Level::Note, "notes")] {
        let said = view.said(level);
        if !said.is_empty() {
            let _ = writeln!(out, "{heading}");
        }
        for (at, message) in said.iter().enumerate() {
            let _ = writeln!(out, "{}{message}", branch(at + 1 == said.len()).0);
        }
    }
    if out.is_empty() {
        out.push_str("there are no hosts\n");
    }
    out
}
