//! What contradicts itself, and what is worth knowing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::build::{HostView, NO_PORT, NicView, SeenAs, Switch};
use crate::order::natural;

/// Most names in one sentence.
const MAX_NAMES: usize = 6;

/// How much it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Two things that cannot both be so.
    Contradiction,
    /// Something that may be meant, and that an outage would show.
    Note,
}

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// One port, and interfaces of two hosts at it.
    PortOfTwoHosts,
    /// A declared port is another than the switch has told.
    DeclaredDiffers,
    /// Several neighbours were heard on one interface.
    SeveralNeighbours,
    /// The legs of a bond have different VLANs.
    BondOfDifferentVlans,
    /// The legs of a bond have different speeds.
    BondOfDifferentSpeeds,
    /// All legs of a bond are at one switch.
    BondOnOneSwitch,
    /// A leg of a bond has no link.
    BondLegDown,
    /// All interfaces of a host are at one switch.
    NoSwitchRedundancy,
    /// A switch has told different names.
    SwitchOfTwoNames,
    /// Two switches have told one name.
    NameOfTwoSwitches,
    /// Two interfaces of one host are at one port.
    PortOfTwoInterfaces,
    /// A port is declared for an interface that no inspection has found.
    DeclaredUnknown,
    /// The facts are old.
    Stale,
    /// The host's network data cannot be read.
    NetworkDataUnreadable,
}

impl Kind {
    fn level(self) -> Level {
        match self {
            Self::PortOfTwoHosts
            | Self::DeclaredDiffers
            | Self::SeveralNeighbours
            | Self::BondOfDifferentVlans
            | Self::BondOfDifferentSpeeds => Level::Contradiction,
            _ => Level::Note,
        }
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How much it means.
    pub level: Level,
    /// What it is.
    pub kind: Kind,
    /// In words.
    pub message: String,
    /// Hosts that it is about, `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The switch's id.
    #[serde(rename = "switch", skip_serializing_if = "Option::is_none")]
    pub switch_id: Option<String>,
    /// The switch's port.
    #[serde(rename = "port", skip_serializing_if = "Option::is_none")]
    pub port_id: Option<String>,
}

fn finding(kind: Kind, message: String, hosts: Vec<String>) -> Finding {
    Finding { level: kind.level(), kind, message, hosts, switch_id: None, port_id: None }
}

/// The first names, and how many more there are.
fn list(names: &[String]) -> String {
    let mut said = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        said = format!("{said} and {} more", names.len() - MAX_NAMES);
    }
    said
}

/// All findings, contradictions first.
pub fn of(switches: &[Switch], hosts: &[HostView]) -> Vec<Finding> {
    let mut found = Vec::new();
    of_switches(switches, &mut found);
    let titles: BTreeMap<&str, &str> = switches.iter().map(|switch| (switch.id.as_str(), switch.title())).collect();
    for host in hosts {
        of_host(host, &titles, &mut found);
    }
    // Stable: within a kind the order of switches and hosts.
    found.sort_by_key(|finding| (finding.level, finding.kind));
    found
}

fn of_switches(switches: &[Switch], found: &mut Vec<Finding>) {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for switch in switches {
        if switch.names.len() > 1 {
            let message = format!("the switch {} calls itself {}", switch.id, list(&switch.names));
            let of = finding(Kind::SwitchOfTwoNames, message, Vec::new());
            found.push(Finding { switch_id: Some(switch.id.clone()), ..of });
        }
        for name in &switch.names {
            by_name.entry(name).or_default().push(switch.id.clone());
        }
        for port in &switch.ports {
            if port.id == NO_PORT {
                // Their switch has told no port: it need not be one.
                continue;
            }
            let mut hosts: Vec<String> = port.nics.iter().map(|nic| nic.host.clone()).collect();
            hosts.sort_by(|a, b| natural(a, b));
            hosts.dedup();
            let nics: Vec<String> = port.nics.iter().map(|nic| format!("{} {}", nic.host, nic.nic)).collect();
            let place = format!("{} {}", switch.title(), port.id);
            let of = match (hosts.len(), nics.len()) {
                (2.., _) => finding(Kind::PortOfTwoHosts, format!("{place} is where {} are", list(&nics)), hosts),
                (_, 2..) => finding(Kind::PortOfTwoInterfaces, format!("{place} is where {} are", list(&nics)), hosts),
                _ => continue,
            };
            found.push(Finding { switch_id: Some(switch.id.clone()), port_id: Some(port.id.clone()), ..of });
        }
    }
    for (name, ids) in by_name.into_iter().filter(|(_, ids)| ids.len() > 1) {
        found.push(finding(
            Kind::NameOfTwoSwitches,
            format!("the switches {} call themselves {name}", list(&ids)),
            Vec::new(),
        ));
    }
}

fn of_host(host: &HostView, titles: &BTreeMap<&str, &str>, found: &mut Vec<Finding>) {
    let key = host.key();
    let mut say = |kind, message: String| found.push(finding(kind, message, vec![key.clone()]));
    if host.stale {
        say(Kind::Stale, format!("{key} was inspected long ago: cables may be elsewhere by now"));
    }
    if host.is_network_data_unreadable {
        let message =
            format!("{key}: what is bonded is not known, as the host's network data is none that can be used");
        say(Kind::NetworkDataUnreadable, message);
    }
    for nic in &host.nics {
        if nic.is_unknown {
            let message = format!("{key}: a switch port is declared for {}, which no inspection has found", nic.name);
            say(Kind::DeclaredUnknown, message);
        }
        if let Some(number) = nic.neighbours {
            say(
                Kind::SeveralNeighbours,
                format!("{key} {} has heard {number} neighbours where a cable has one", nic.name),
            );
        }
        if let (SeenAs::Declared, Some(heard), Some(switch), Some(port)) =
            (nic.seen, &nic.heard, &nic.switch_id, &nic.port_id)
            && (heard.switch != *switch || heard.port != *port && heard.port != NO_PORT)
        {
            let heard = format!("{} {}", heard.switch, heard.port);
            say(
                Kind::DeclaredDiffers,
                format!("{key} {} is declared to be at {switch} {port}, and has heard {heard}", nic.name),
            );
        }
    }
    let mut bonds: BTreeMap<&str, Vec<&NicView>> = BTreeMap::new();
    for nic in &host.nics {
        if let Some(bond) = &nic.bond {
            bonds.entry(bond).or_default().push(nic);
        }
    }
    for (bond, legs) in &bonds {
        of_bond(&format!("{key} {bond}"), legs, titles, &mut say);
    }
    let attached: Vec<&NicView> = host.nics.iter().filter(|nic| nic.switch_id.is_some()).collect();
    if bonds.is_empty()
        && !host.is_network_data_unreadable
        && attached.len() > 1
        && let Some(switch) = only(attached.iter().map(|nic| nic.switch_id.as_deref()))
    {
        let title = switch.and_then(|switch| titles.get(switch)).copied().unwrap_or("?");
        say(
            Kind::NoSwitchRedundancy,
            format!("{key}: all {} interfaces that are known are at {title}", attached.len()),
        );
    }
}

/// The one value that all have.
fn only<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

fn of_bond(bond: &str, legs: &[&NicView], titles: &BTreeMap<&str, &str>, say: &mut impl FnMut(Kind, String)) {
    for leg in legs.iter().filter(|leg| leg.is_down()) {
        say(Kind::BondLegDown, format!("{bond}: its leg {} has no link", leg.name));
    }
    let known: Vec<&&NicView> = legs.iter().filter(|leg| leg.switch_id.is_some()).collect();
    if known.len() < 2 {
        return;
    }
    let told = |legs: &[&&NicView], of: &dyn Fn(&NicView) -> String| {
        legs.iter().map(|leg| format!("{} {}", leg.name, of(leg))).collect::<Vec<_>>()
    };
    if let Some(switch) = only(known.iter().map(|leg| leg.switch_id.as_deref())) {
        let title = switch.and_then(|switch| titles.get(switch)).copied().unwrap_or("?");
        let message = format!("{bond}: all its legs are at {title}, be it one switch or a stack that calls itself one");
        say(Kind::BondOnOneSwitch, message);
    }
    let ids = |leg: &NicView| leg.vlans.iter().map(|vlan| vlan.id).collect::<Vec<_>>();
    // Who tells no VLAN may have some: many switches send these TLVs only when told to.
    let with_vlans = known.iter().filter(|leg| leg.untagged_vlan.is_some() || !leg.vlans.is_empty());
    let with_vlans: Vec<&&NicView> = with_vlans.copied().collect();
    if with_vlans.len() > 1 && only(with_vlans.iter().map(|leg| (leg.untagged_vlan, ids(leg)))).is_none() {
        let words = told(&with_vlans, &|leg| vlans(leg, MAX_NAMES).unwrap_or_default());
        say(Kind::BondOfDifferentVlans, format!("{bond}: the VLANs of its legs differ: {}", list(&words)));
    }
    if only(known.iter().filter_map(|leg| leg.speed_gbps)).is_none() && known.iter().any(|leg| leg.speed_gbps.is_some())
    {
        let words =
            told(&known, &|leg| leg.speed_gbps.map_or_else(|| "?".to_owned(), |speed| format!("{speed} Gbit/s")));
        say(Kind::BondOfDifferentSpeeds, format!("{bond}: the speeds of its legs differ: {}", list(&words)));
    }
}

/// VLANs of an interface in words, of which at most so many tagged ones are named.
pub fn vlans(nic: &NicView, most: usize) -> Option<String> {
    let tagged: Vec<&crate::VlanView> = nic.vlans.iter().filter(|vlan| Some(vlan.id) != nic.untagged_vlan).collect();
    let mut parts: Vec<String> = Vec::new();
    if let Some(untagged) = nic.untagged_vlan {
        parts.push(format!("{untagged} untagged"));
    }
    parts.extend(tagged.iter().take(most).map(|vlan| match &vlan.name {
        Some(name) => format!("{} {name}", vlan.id),
        None => vlan.id.to_string(),
    }));
    if tagged.len() > most {
        parts.push(format!("{} more", tagged.len() - most));
    }
    (!parts.is_empty()).then(|| format!("VLAN {}", parts.join(", ")))
}
