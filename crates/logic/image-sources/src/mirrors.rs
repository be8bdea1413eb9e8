//! Mirrors: rules that put other addresses before, or in place of, those below a prefix, as `registries.conf` of containers does it.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::fault::Fault;

/// Most rules.
pub(crate) const MAX_RULES: usize = 64;
/// Most mirrors of a rule: each that does not answer costs every attempt some seconds.
pub(crate) const MAX_LOCATIONS: usize = 4;
/// Longest address, in bytes.
const MAX_ADDRESS: usize = 1024;

/// One rule. Of those that fit an address, the one with the longest prefix counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Beginning of addresses, in whole parts: `https://images.example/os`, `oci://registry.example/team`.
    pub prefix: String,
    /// What stands in its place, in the order in which they are asked; of the same kind, files or registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<String>,
    /// Whether the address itself is asked when no mirror serves.
    #[serde(default = "yes")]
    pub fallback: bool,
    /// Nothing below the prefix is read.
    #[serde(default)]
    pub blocked: bool,
    /// The mirrors are believed about what a name stands for, too: which manifest a tag is, which digests a checksum file lists. Whoever says that
    /// chooses what is written.
    #[serde(default)]
    pub tags: bool,
}

const fn yes() -> bool {
    true
}

/// An address that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address.
    pub url: String,
    /// It is a mirror's.
    pub mirror: bool,
    /// It is believed about what a name stands for, a tag or a checksum file's address: the address itself is, and mirrors of a rule that says `tags`.
    pub believed: bool,
}

/// Why nothing is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// A rule forbids the address.
    #[error("a rule blocks what is below {prefix}")]
    Blocked {
        /// Its prefix.
        prefix: String,
    },
    /// The settings cannot be used.
    #[error("{0}")]
    Faulty(String),
}

/// Beginning of addresses, in parts that are compared.
struct Place {
    /// `http`, `https` or `oci`.
    scheme: String,
    /// Host and port; of http and https with the port that is meant.
    authority: String,
    /// Without slashes around it.
    path: String,
}

impl Place {
    fn read(text: &str) -> Result<Self, Fault> {
        let shown: String =
            addresses::text_without_secrets(text).chars().filter(|c| !c.is_control()).take(200).collect();
        let fault = |what: &str| Fault(format!("{shown:?} {what}"));
        if text.len() > MAX_ADDRESS {
            return Err(fault("is too long"));
        }
        if let Some(rest) = registry(text) {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
            if authority.is_empty() || !authority.bytes().all(is_host) {
                return Err(fault("names no registry as host[:port]"));
            }
            let is_path = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b'/')
            };
            let path = path.trim_end_matches('/');
            if !path.bytes().all(is_path)
                || path.split('/').any(|part| part.is_empty() || part == "..") && !path.is_empty()
            {
                return Err(fault("has a repository that is none, or a tag or digest, which is the image's"));
            }
            return Ok(Self { scheme: "oci".into(), authority: authority.to_ascii_lowercase(), path: path.to_owned() });
        }
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| fault("begins with none of http://, https:// and oci://"))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(fault("has a user, a query or a fragment, which cannot be compared or shown"));
        }
        Ok(Self {
            scheme: url.scheme().to_owned(),
            authority: authority_of(&url),
            path: url.path().trim_matches('/').to_owned(),
        })
    }

    /// What follows this beginning in an address: empty, or beginning with a slash, or of an image in a registry with its tag or digest.
    fn rest(&self, url: &str) -> Option<String> {
        if let Some(rest) = registry(url) {
            let (authority, path) = rest.split_once('/')?;
            let same = self.scheme == "oci" && authority.eq_ignore_ascii_case(&self.authority);
            return if same { below(path, &self.path, &['/', ':', '@']) } else { None };
        }
        let url = Url::parse(url).ok()?;
        let same = url.scheme() == self.scheme && authority_of(&url) == self.authority;
        if same { below(url.path().trim_start_matches('/'), &self.path, &['/']) } else { None }
    }

    /// The address with this beginning.
    fn with(&self, rest: &str) -> String {
        let rest = if self.path.is_empty() { rest.trim_start_matches('/') } else { rest };
        format!("{}://{}/{}{rest}", self.scheme, self.authority, self.path)
    }
}

/// What stands behind `oci://`.
fn registry(url: &str) -> Option<&str> {
    let scheme = url.get(..6).filter(|scheme| scheme.eq_ignore_ascii_case("oci://"));
    scheme.and_then(|_| url.get(6..))
}

fn authority_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port_or_known_default().unwrap_or_default())
}

/// What follows `beginning`, if that ends with a part of `path`.
fn below(path: &str, beginning: &str, ends: &[char]) -> Option<String> {
    if beginning.is_empty() {
        return Some(format!("/{path}"));
    }
    let rest = path.strip_prefix(beginning)?;
    (rest.is_empty() || rest.starts_with(ends)).then(|| rest.to_owned())
}

/// Checks rules.
pub(crate) fn check(rules: &[Rule]) -> Result<(), Fault> {
    if rules.len() > MAX_RULES {
        return Err(Fault(format!("mirrors: it has {} rules, of which {MAX_RULES} are taken", rules.len())));
    }
    let mut seen = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let fault = |what: String| Fault(format!("mirrors[{index}]: {what}"));
        let place = Place::read(&rule.prefix).map_err(|error| fault(format!("prefix {error}")))?;
        let key = (place.scheme.clone(), place.authority.clone(), place.path.clone());
        if seen.contains(&key) {
            return Err(fault(format!("another rule has the prefix {} as well", rule.prefix)));
        }
        seen.push(key);
        if rule.blocked && !rule.locations.is_empty() {
            return Err(fault("it has locations and is blocked".to_owned()));
        }
        if rule.blocked && rule.tags {
            return Err(fault("it says who is believed about tags, and is blocked".to_owned()));
        }
        if !rule.blocked && rule.locations.is_empty() {
            return Err(fault("it names no locations, and is not blocked".to_owned()));
        }
        if rule.locations.len() > MAX_LOCATIONS {
            return Err(fault(format!(
                "it has {} locations, of which {MAX_LOCATIONS} are asked",
                rule.locations.len()
            )));
        }
        for location in &rule.locations {
            let mirror = Place::read(location).map_err(|error| fault(format!("location {error}")))?;
            if (mirror.scheme == "oci") != (place.scheme == "oci") {
                return Err(fault(
                    "a registry is mirrored by registries (oci://), and files by files (http, https)".to_owned(),
                ));
            }
            if mirror.scheme == "oci" && mirror.path.is_empty() && !place.path.is_empty() {
                return Err(fault(format!("location {location} names no repository, and its prefix does")));
            }
        }
    }
    Ok(())
}

/// The addresses to ask for `url`.
pub(crate) fn route(rules: &[Rule], url: &str) -> Result<Vec<Candidate>, NotRead> {
    let itself = Candidate { url: url.to_owned(), mirror: false, believed: true };
    let fitting = rules.iter().filter_map(|rule| {
        let place = Place::read(&rule.prefix).ok()?;
        let rest = place.rest(url)?;
        Some((place.path.len(), rule, rest))
    });
    let Some((_, rule, rest)) = fitting.max_by_key(|(length, ..)| *length) else { return Ok(vec![itself]) };
    if rule.blocked {
        return Err(NotRead::Blocked { prefix: rule.prefix.clone() });
    }
    let mirrors = rule.locations.iter().filter_map(|location| Place::read(location).ok());
    let of_mirror = |place: Place| Candidate { url: place.with(&rest), mirror: true, believed: rule.tags };
    let mut asked: Vec<_> = mirrors.map(of_mirror).collect();
    if rule.fallback || asked.is_empty() {
        asked.push(itself);
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(prefix: &str, locations: &[&str]) -> Rule {
        let locations = locations.iter().map(|location| (*location).to_owned()).collect();
        Rule { prefix: prefix.into(), locations, fallback: true, blocked: false, tags: false }
    }

    fn mirrored(prefix: &str, location: &str, url: &str) -> Option<String> {
        let rules = [Rule { fallback: false, ..rule(prefix, &[location]) }];
        check(&rules).unwrap();
        let asked = route(&rules, url).unwrap();
        assert_eq!(asked.len(), 1);
        asked.into_iter().find(|candidate| candidate.mirror).map(|candidate| candidate.url)
    }

    #[test]
    fn what_is_below_a_prefix_is_found_below_its_mirror() {
        for (prefix, location, url, found) in [
            ("https://i.example", "http://m:81", "https://i.example/a/b.img", Some("http://m:81/a/b.img")),
            ("https://i.example/", "http://m:81/x/", "https://i.example:443/a.img", Some("http://m:81/x/a.img")),
            ("https://i.example/os", "http://m:81/x", "https://i.example/os/a.img", Some("http://m:81/x/a.img")),
            ("https://i.example/os", "http://m:81", "https://i.example/os/a.img", Some("http://m:81/a.img")),
            ("https://i.example/os", "http://m:81/x", "https://i.example/oslo/a.img", None),
            ("https://i.example/os", "http://m:81/x", "https://i.example/a.img", None),
            (
                "https://i.example/os/a.img",
                "http://m:81/b.img",
                "https://i.example/os/a.img",
                Some("http://m:81/b.img"),
            ),
            ("https://i.example", "http://m:81", "http://i.example/a.img", None),
            ("https://i.example", "http://m:81", "https://i.example.evil/a.img", None),
            ("https://i.example", "http://m:81", "https://i.example:8443/a.img", None),
            // Neither user and password nor what may be a signature go to a mirror.
            (
                "https://i.example",
                "http://m:81",
                "https://u:p@I.example/a%20b.img?sig=s#f",
                Some("http://m:81/a%20b.img"),
            ),
            ("https://i.example/os", "http://m:81/x", "https://i.example/os/../a.img", None),
            ("oci://r.example", "oci://m:5000", "oci://r.example/t/os:1", Some("oci://m:5000/t/os:1")),
            ("oci://r.example", "oci://m:5000/cache", "OCI://R.example/t/os:1", Some("oci://m:5000/cache/t/os:1")),
            ("oci://r.example/t", "oci://m/x/y", "oci://r.example/t/os@sha256:12", Some("oci://m/x/y/os@sha256:12")),
            ("oci://r.example/t/os", "oci://m/x", "oci://r.example/t/os:1", Some("oci://m/x:1")),
            ("oci://r.example/t/os", "oci://m/x", "oci://r.example/t/os", Some("oci://m/x")),
            ("oci://r.example/t/os", "oci://m/x", "oci://r.example/t/os2:1", None),
            ("oci://r.example", "oci://m", "oci://r.example:5000/t/os:1", None),
            ("oci://r.example", "oci://m", "https://r.example/t/os", None),
        ] {
            assert_eq!(mirrored(prefix, location, url).as_deref(), found, "{prefix} {url}");
        }
    }

    #[test]
    fn mirrors_come_first_in_their_order_and_the_longest_prefix_counts() {
        let mut rules = vec![
            rule("https://i.example", &["http://a", "http://b"]),
            rule("https://i.example/os", &["http://c"]),
            Rule { locations: vec![], blocked: true, ..rule("https://i.example/os/old", &[]) },
        ];
        check(&rules).unwrap();
        let asked = |rules: &[Rule], url: &str| {
            route(rules, url).map(|all| all.into_iter().map(|one| one.url).collect::<Vec<_>>())
        };
        let all = ["http://a:80/x", "http://b:80/x", "https://i.example/x"];
        assert_eq!(asked(&rules, "https://i.example/x").unwrap(), all);
        assert_eq!(asked(&rules, "https://i.example/os/x").unwrap(), ["http://c:80/x", "https://i.example/os/x"]);
        assert_eq!(asked(&rules, "https://other.example/x").unwrap(), ["https://other.example/x"]);
        let blocked = asked(&rules, "https://i.example/os/old/x").unwrap_err();
        assert_eq!(blocked.to_string(), "a rule blocks what is below https://i.example/os/old");
        rules[0].fallback = false;
        assert_eq!(asked(&rules, "https://i.example/x").unwrap(), all[..2]);
    }

    #[test]
    fn a_mirror_is_believed_about_names_only_where_its_rule_says_so() {
        let mut rules = vec![rule("https://i.example", &["http://a"])];
        let believed = |rules: &[Rule]| {
            let asked = route(rules, "https://i.example/SHA256SUMS").unwrap();
            asked.iter().map(|one| (one.mirror, one.believed)).collect::<Vec<_>>()
        };
        assert_eq!(believed(&rules), [(true, false), (false, true)]);
        rules[0].tags = true;
        assert_eq!(believed(&rules), [(true, true), (false, true)]);
    }

    #[test]
    fn rules_that_mean_nothing_are_refused() {
        let many = ["http://m"; MAX_LOCATIONS + 1];
        for (faulty, says) in [
            (rule("ftp://i.example", &["http://m"]), "none of http://"),
            (rule("i.example", &["http://m"]), "none of http://"),
            (rule("https://u:hunter2@i.example", &["http://m"]), "user"),
            (rule("https://i.example?a=hunter2", &["http://m"]), "query"),
            (rule("https://i.example", &["http://u:hunter2@m"]), "location"),
            (rule("https://i.example", &[]), "no locations"),
            (rule("https://i.example", &["oci://m"]), "registries"),
            (rule("oci://r.example", &["https://m"]), "registries"),
            (rule("oci://r.example/t:1", &["oci://m/x"]), "tag"),
            (rule("oci://u@r.example/t", &["oci://m/x"]), "no registry"),
            (rule("oci://r.example/t/../x", &["oci://m/x"]), "repository"),
            (rule("oci://r.example/t", &["oci://m"]), "no repository"),
            (rule("https://i.example", &many), "locations, of which"),
            (Rule { blocked: true, ..rule("https://i.example", &["http://m"]) }, "is blocked"),
            (Rule { blocked: true, tags: true, ..rule("https://i.example", &[]) }, "is blocked"),
        ] {
            let error = check(std::slice::from_ref(&faulty)).unwrap_err().to_string();
            assert!(error.contains(says) && error.starts_with("mirrors[0]: "), "{faulty:?}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let twice = [rule("https://i.example/a", &["http://m"]), rule("https://I.example:443/a/", &["http://n"])];
        assert!(check(&twice).unwrap_err().to_string().contains("another rule"));
        assert!(check(&vec![rule("http://i", &["http://m"]); MAX_RULES + 1]).is_err());
    }

    proptest! {
        /// An address goes to the mirror's host, below its path, or stays what it is.
        #[test]
        fn no_address_leads_elsewhere(path in "[a-z0-9./@:%?#\\\\-]{0,30}") {
            let rules = [Rule { fallback: false, ..rule("https://i.example/os", &["http://m.example:81/x"]) }];
            let url = format!("https://i.example/{path}");
            let asked = route(&rules, &url).unwrap();
            if asked[0].mirror {
                let at = Url::parse(&asked[0].url).unwrap();
                prop_assert_eq!((at.host_str(), at.port()), (Some("m.example"), Some(81)));
                prop_assert!(at.path().starts_with("/x") && at.query().is_none() && at.username().is_empty());
            } else {
                prop_assert_eq!(&asked[0].url, &url);
            }
        }
    }
}
