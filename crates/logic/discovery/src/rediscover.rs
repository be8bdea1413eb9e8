//! The wish to have hosts of dismissed machines made again.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::metamorph::DiscoveredMachine;

use crate::place::Place;
use crate::shown::identity;

/// Which dismissed machines may become hosts again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rediscover {
    all: bool,
    named: BTreeSet<String>,
}

/// Longest list of them that is read, bytes.
const MAX_REDISCOVER: usize = 16 << 10;

impl Rediscover {
    /// Reads `all`, or UUIDs and addresses with commas between them.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let text = text.get(..text.floor_char_boundary(MAX_REDISCOVER)).unwrap_or_default();
        let words = text.split([',', ' ', '\n']).map(str::trim).filter(|word| !word.is_empty());
        let named: BTreeSet<String> = words.map(|word| identity(word).unwrap_or_else(|| word.to_owned())).collect();
        let spoken = |word: &str| text.trim().eq_ignore_ascii_case(word);
        Self { all: spoken("all"), named: named.into_iter().chain(addresses(text)).collect() }
    }

    pub(crate) fn means(&self, machine: &DiscoveredMachine) -> bool {
        let by_uuid = machine.uuid.as_deref().and_then(identity).is_some_and(|identity| self.named.contains(&identity));
        let by_ip = || Place::parse(&machine.address).is_some_and(|place| self.named.contains(&place.ip.to_string()));
        self.all || by_uuid || self.named.contains(&machine.address) || by_ip()
    }
}

/// The addresses in the text, as they are listed or by number alone: they are no identities, though they may look like ones.
fn addresses(text: &str) -> impl Iterator<Item = String> {
    text.split([',', ' ', '\n']).map(str::trim).filter_map(|word| match word.parse::<IpAddr>() {
        Ok(ip) => Some(ip.to_canonical().to_string()),
        Err(_) => word.contains("://").then(|| word.to_owned()),
    })
}
