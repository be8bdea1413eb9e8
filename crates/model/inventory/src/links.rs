//! What an agent has heard on a machine's ports while it listened for LLDP.
//!
//! Upstream's `HardwareDetails` has a place for what a switch has said, and none for silence: whether nobody spoke, the cable was out, or nobody listened. That is
//! an annotation of the HardwareData ([`words`]), in which people read it, too: `eno1: heard; eno2: no LLDP seen; eno3: link down`.

use serde::{Deserialize, Serialize};
use terms::is_printable;

/// Most ports that are told of.
const MAX_LINKS: usize = 256;
/// Longest name of an interface, in characters (Linux has 15).
const MAX_NAME: usize = 32;
/// Most neighbours that are counted.
const MAX_NEIGHBOURS: u32 = 64;

/// What has become of listening on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkSeen {
    /// A neighbour was heard.
    Heard,
    /// The link was up for as long as neighbours take to speak, and none did.
    Silent,
    /// The link was down although the port was up: no cable, or nothing at its other end.
    Down,
    /// It could not be listened on, or not for long enough.
    Unheard,
}

impl LinkSeen {
    const ALL: [Self; 4] = [Self::Heard, Self::Silent, Self::Down, Self::Unheard];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Heard => "heard",
            Self::Silent => "no LLDP seen",
            Self::Down => "link down",
            Self::Unheard => "not listened to the end",
        }
    }
}

/// A port, and what has become of listening on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkReport {
    /// The kernel's name of the interface.
    pub nic: String,
    /// What was found.
    pub seen: LinkSeen,
    /// Different neighbours that were heard: a port has one, and more than one are a hub, or somebody who pretends.
    #[serde(default, skip_serializing_if = "is_at_most_one")]
    pub neighbours: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
const fn is_at_most_one(number: &u32) -> bool {
    *number <= 1
}

/// Reports such as can be shown and written: of at most 256 ports, each once, with printable names.
#[must_use]
pub fn bounded(links: &[LinkReport]) -> Vec<LinkReport> {
    let mut kept: Vec<LinkReport> = Vec::new();
    for link in links.iter().take(MAX_LINKS) {
        let name = |c: &char| is_printable(*c) && !c.is_whitespace() && *c != ';';
        let nic: String = link.nic.chars().filter(name).take(MAX_NAME).collect();
        if !nic.is_empty() && !kept.iter().any(|other| other.nic == nic) {
            kept.push(LinkReport { nic, seen: link.seen, neighbours: link.neighbours.min(MAX_NEIGHBOURS) });
        }
    }
    kept
}

/// The reports in words; `None` if there are none.
#[must_use]
pub fn words(links: &[LinkReport]) -> Option<String> {
    let said = links.iter().map(|link| match link.neighbours {
        0 | 1 => format!("{}: {}", link.nic, link.seen.words()),
        more => format!("{}: {} {more} neighbours", link.nic, link.seen.words()),
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The reports behind such words. What is none is left out: anybody may edit an annotation.
#[must_use]
pub fn read(words: &str) -> Vec<LinkReport> {
    let reports = words.split("; ").take(MAX_LINKS).filter_map(|part| {
        let (nic, said) = part.rsplit_once(": ")?;
        let seen = LinkSeen::ALL.into_iter().find(|seen| said.starts_with(seen.words()))?;
        let rest = said[seen.words().len()..].trim();
        let neighbours = rest.strip_suffix(" neighbours").and_then(|number| number.parse().ok()).unwrap_or(0);
        Some(LinkReport { nic: nic.to_owned(), seen, neighbours })
    });
    bounded(&reports.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(nic: &str, seen: LinkSeen, neighbours: u32) -> LinkReport {
        LinkReport { nic: nic.into(), seen, neighbours }
    }

    #[test]
    fn words_are_read_back() {
        let links = [
            link("eno1", LinkSeen::Heard, 0),
            link("eno2", LinkSeen::Heard, 3),
            link("enp1s0:1", LinkSeen::Silent, 0),
            link("eno4", LinkSeen::Down, 0),
            link("eno5", LinkSeen::Unheard, 0),
        ];
        let said = words(&links).unwrap();
        assert_eq!(
            said,
            "eno1: heard; eno2: heard 3 neighbours; enp1s0:1: no LLDP seen; eno4: link down; eno5: not listened to the end"
        );
        assert_eq!(read(&said), links);
        assert_eq!((words(&[]), read("").len(), read("nonsense; a: b; : heard").len()), (None, 0, 0));
    }

    #[test]
    fn reports_are_bounded() {
        let odd = [link("a\u{1b}[2J; b", LinkSeen::Silent, u32::MAX), link("", LinkSeen::Down, 0)];
        let kept = bounded(&odd);
        assert_eq!(kept, [link("a[2Jb", LinkSeen::Silent, MAX_NEIGHBOURS)]);
        let many: Vec<LinkReport> =
            (0..9999).map(|n| link(&format!("{n}{}", "x".repeat(99)), LinkSeen::Down, 0)).collect();
        let kept = bounded(&many);
        assert!(kept.len() == MAX_LINKS && kept.iter().all(|link| link.nic.len() == MAX_NAME));
        assert_eq!(bounded(&[kept[0].clone(), kept[0].clone()]).len(), 1);
    }
}
