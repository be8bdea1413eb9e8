//! The addresses of this server that BMCs and machines get: one set for all, and rules for those that reach it elsewhere.
//!
//! A rule is chosen by the host's namespace or its BMC's address; the first match counts. What a rule does not name is as for all.

use std::net::IpAddr;
use std::str::FromStr;

use addresses::{Range, RangeError};
use bmc::{Address, HostName};

/// Most entries of one rule.
const MAX_ENTRIES: usize = 64;

/// Base addresses, without a slash at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bases {
    /// Of the media endpoint as BMCs reach it, in the order in which they are tried: `http://192.0.2.1:6180`. Addresses of both families
    /// may stand here.
    pub media: Vec<String>,
    /// Of the agent endpoint as servers reach it, tried in order: `https://192.0.2.1:6385`.
    pub agents: Vec<String>,
    /// Of the operating system images that this server offers: `http://192.0.2.1:6180/images`. An image whose address begins with that of
    /// the bases for all is fetched from here.
    pub images: Option<String>,
}

impl Bases {
    /// Where a machine with these bases fetches an image: one that the server offers to all (`for_all`), from the address that its network
    /// has for images; any other, as it is written.
    #[must_use]
    pub fn image_url(&self, for_all: &Self, url: &str) -> String {
        let default = for_all.images.as_ref().and_then(|default| url.strip_prefix(default.as_str()));
        match (default.filter(|rest| rest.starts_with('/')), &self.images) {
            (Some(rest), Some(base)) => format!("{base}{rest}"),
            _ => url.to_owned(),
        }
    }
}

/// BMCs for which a rule holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BmcRange {
    /// All addresses of this range.
    Net(Range),
    /// This DNS name, and all below it.
    Domain(String),
}

/// A rule as it is written: `bmc=10.1.0.0/16,media=10.1.0.5,agent=10.1.0.5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRule {
    /// Namespaces of hosts; any if empty.
    pub namespaces: Vec<String>,
    /// BMCs; any if empty.
    pub bmcs: Vec<BmcRange>,
    /// Where they reach this server. As parsed, hosts with or without ports or whole base addresses.
    pub bases: Bases,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write for example bmc=10.1.0.0/16,media=10.1.0.5,agent=10.1.0.5")]
pub struct RuleError(String);

fn wrong<T>(text: impl Into<String>) -> Result<T, RuleError> {
    Err(RuleError(text.into()))
}

impl FromStr for BmcRange {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text.parse() {
            Ok(range) => return Ok(Self::Net(range)),
            Err(RangeError::Address) => {}
            Err(error) => return wrong(format!("{text:?} {error}")),
        }
        let name = text.trim_start_matches('.').to_ascii_lowercase();
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        let numeric = name.rsplit('.').next().is_none_or(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if name.is_empty() || !plain || numeric {
            return wrong(format!("{text:?} is neither a range of addresses nor a DNS name"));
        }
        Ok(Self::Domain(name))
    }
}

impl BmcRange {
    /// Whether a BMC at this host is one of them.
    #[must_use]
    pub fn holds(&self, host: &HostName) -> bool {
        match (self, host) {
            (Self::Net(rule), HostName::V4(ip)) => rule.holds(IpAddr::V4(*ip)),
            (Self::Net(rule), HostName::V6(ip)) => rule.holds(IpAddr::V6(*ip)),
            (Self::Domain(rule), HostName::Dns(name)) => {
                name.strip_suffix(rule.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
            }
            _ => false,
        }
    }
}

impl FromStr for NetworkRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut rule = Self::default();
        for entry in text.split(',') {
            let Some((key, value)) = entry.split_once('=').filter(|(_, value)| !value.is_empty()) else {
                return wrong(format!("{entry:?} is not of the form key=value"));
            };
            match key.trim() {
                "namespace" => rule.namespaces.push(value.to_owned()),
                "bmc" => rule.bmcs.push(value.parse()?),
                "media" => rule.bases.media.push(value.to_owned()),
                "agent" => rule.bases.agents.push(value.to_owned()),
                "images" if rule.bases.images.is_none() => rule.bases.images = Some(value.to_owned()),
                "images" => return wrong("images= stands there twice"),
                other => return wrong(format!("{other:?} is none of namespace, bmc, media, agent and images")),
            }
        }
        let entries = rule.namespaces.len() + rule.bmcs.len() + rule.bases.media.len() + rule.bases.agents.len();
        if entries > MAX_ENTRIES {
            return wrong(format!("{entries} entries are more than the {MAX_ENTRIES} that are taken"));
        }
        if rule.namespaces.is_empty() && rule.bmcs.is_empty() {
            return wrong("neither namespace= nor bmc= says for which hosts it is");
        }
        if rule.bases == Bases::default() {
            return wrong("neither media= nor agent= nor images= says which address they get");
        }
        Ok(rule)
    }
}

impl NetworkRule {
    fn holds(&self, namespace: &str, bmc: Option<&HostName>) -> bool {
        let named = self.namespaces.is_empty() || self.namespaces.iter().any(|listed| listed == namespace);
        let ranged = self.bmcs.is_empty() || bmc.is_some_and(|bmc| self.bmcs.iter().any(|range| range.holds(bmc)));
        named && ranged
    }
}

/// The bases for a host of this namespace with this BMC: those of the first matching rule, completed by those `for_all`; only media addresses of
/// the BMC's own family, if there are any.
#[must_use]
pub fn bases_for(for_all: &Bases, rules: &[NetworkRule], namespace: &str, bmc_address: Option<&str>) -> Bases {
    let bmc = bmc_address.and_then(|address| Address::parse(address).ok()).map(|address| address.host().clone());
    let mut bases = for_all.clone();
    if let Some(rule) = rules.iter().find(|rule| rule.holds(namespace, bmc.as_ref())) {
        if !rule.bases.media.is_empty() {
            bases.media.clone_from(&rule.bases.media);
        }
        if !rule.bases.agents.is_empty() {
            bases.agents.clone_from(&rule.bases.agents);
        }
        if rule.bases.images.is_some() {
            bases.images.clone_from(&rule.bases.images);
        }
    }
    let reached: Vec<String> = bases.media.iter().filter(|base| is_of_family(base, bmc.as_ref())).cloned().collect();
    if !reached.is_empty() {
        bases.media = reached;
    }
    bases
}

/// A BMC with an address of one family does not reach addresses of the other; of names nothing is known.
fn is_of_family(base: &str, bmc: Option<&HostName>) -> bool {
    let host = url::Url::parse(base).ok().and_then(|url| url.host().map(|host| host.to_owned()));
    !matches!(
        (bmc, host),
        (Some(HostName::V4(_)), Some(url::Host::Ipv6(_))) | (Some(HostName::V6(_)), Some(url::Host::Ipv4(_)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> NetworkRule {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_counts_and_is_completed() {
        let for_all = Bases {
            media: vec!["http://192.0.2.1:6180".into(), "http://[2001:db8::1]:6180".into()],
            agents: vec!["https://192.0.2.1:6385".into()],
            images: Some("http://192.0.2.1:6180/images".into()),
        };
        let rules = [
            rule("bmc=10.1.0.0/16,bmc=.site-a.example,media=http://10.1.0.5:6180,agent=https://10.1.0.5:6385"),
            rule("namespace=edge,bmc=fd00::/8,media=http://[fd00::5]:6180"),
            rule("namespace=edge,images=http://10.9.0.5/images"),
        ];
        let chosen = |namespace: &str, bmc: &str| {
            let bases = bases_for(&for_all, &rules, namespace, Some(&format!("redfish-virtualmedia://{bmc}")));
            (bases.media.join(" "), bases.agents.join(" "), bases.images.unwrap())
        };
        let all = ("https://192.0.2.1:6385", "http://192.0.2.1:6180/images");
        for (namespace, bmc, media, agents, images) in [
            ("metal", "10.2.0.1", "http://192.0.2.1:6180", all.0, all.1),
            ("metal", "[2001:db8::7]", "http://[2001:db8::1]:6180", all.0, all.1),
            ("metal", "bmc.example", "http://192.0.2.1:6180 http://[2001:db8::1]:6180", all.0, all.1),
            ("metal", "10.1.255.7", "http://10.1.0.5:6180", "https://10.1.0.5:6385", all.1),
            ("metal", "bmc-7.site-a.example", "http://10.1.0.5:6180", "https://10.1.0.5:6385", all.1),
            ("metal", "notsite-a.example", "http://192.0.2.1:6180 http://[2001:db8::1]:6180", all.0, all.1),
            // No address of the BMC's family: what there is.
            ("edge", "[fd00::9]", "http://[fd00::5]:6180", all.0, all.1),
            ("edge", "10.3.0.1", "http://192.0.2.1:6180", all.0, "http://10.9.0.5/images"),
            ("metal", "[fd00::9]", "http://[2001:db8::1]:6180", all.0, all.1),
        ] {
            let found = chosen(namespace, bmc);
            assert_eq!(
                (found.0.as_str(), found.1.as_str(), found.2.as_str()),
                (media, agents, images),
                "{namespace} {bmc}"
            );
        }
        assert_eq!(bases_for(&for_all, &rules, "metal", None), for_all);
        let edge = bases_for(&for_all, &rules, "edge", None);
        for (written, fetched) in [
            ("http://192.0.2.1:6180/images/a.raw", "http://10.9.0.5/images/a.raw"),
            ("http://192.0.2.1:6180/imagesx/a.raw", "http://192.0.2.1:6180/imagesx/a.raw"),
            ("http://192.0.2.1/images/a.raw", "http://192.0.2.1/images/a.raw"),
        ] {
            assert_eq!(edge.image_url(&for_all, written), fetched);
            assert_eq!(for_all.image_url(&for_all, written), written);
        }
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        for (text, what) in [
            ("", "key=value"),
            ("media=10.0.0.1", "for which hosts"),
            ("bmc=10.0.0.0/8", "which address"),
            ("bmc=10.0.0.1/8,media=x", "beyond its prefix"),
            ("bmc=10.0.0.0/33,media=x", "from 0 to 32"),
            ("bmc=10.0.0,media=x", "neither a range"),
            ("bmc=::1/129,media=x", "from 0 to 128"),
            ("bmc=a_b,media=x", "neither a range"),
            ("namespace=a,images=x,images=y", "twice"),
            ("host=a,media=x", "none of namespace"),
            ("namespace=,media=x", "key=value"),
        ] {
            let error = text.parse::<NetworkRule>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert!("0.0.0.0/0".parse::<BmcRange>().unwrap().holds(&HostName::V4([10, 1, 2, 3].into())));
        assert!(!"0.0.0.0/0".parse::<BmcRange>().unwrap().holds(&HostName::V6(1.into())));
        assert!("2001:db8::/33".parse::<BmcRange>().unwrap().holds(&HostName::V6("2001:db8:7fff::1".parse().unwrap())));
        assert!(
            !"2001:db8::/33".parse::<BmcRange>().unwrap().holds(&HostName::V6("2001:db8:8000::1".parse().unwrap()))
        );
    }
}
