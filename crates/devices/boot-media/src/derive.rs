//! Secrets derived from one: the token and the address of a medium, the same after every restart of the server.
//!
//! HMAC-SHA256 (RFC 2104) over a domain, the host's uid, its boot generation and, of an address, the medium's digest, in base64url
//! without padding (RFC 4648 5): 43 characters. A derived value reveals neither the secret nor another value.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Characters of a derived value.
pub const LEN: usize = 43;

/// Path segment between the shard and the derived part of a medium's address.
pub const PATH_PREFIX: &str = "/media/";

/// Prefix of the shard number, at the beginning of all addresses given to a host's BMC and agent.
const SHARD_PREFIX: &str = "/shard/";

/// The shard of every host, as long as one server serves all.
pub const SHARD: u32 = 0;

/// Suffix of a medium's address: BMCs refuse an address without it.
pub const PATH_SUFFIX: &str = ".iso";

/// Longest host uid, in bytes.
const MAX_UID: usize = 256;

const TOKEN: &str = "metamorph/agent-token/v1";
const PATH: &str = "metamorph/media-path/v2";
const DISCOVERY: &str = "metamorph/discovery-token/v1";
const CLAIM: &str = "metamorph/subject/v1";
const EVENTS: &str = "metamorph/events-path/v1";
const EVENTS_CONTEXT: &str = "metamorph/events-context/v1";

/// Path segment between the shard and the derived part of the address that a host's BMC posts events to.
pub const EVENTS_PREFIX: &str = "/events/";

/// The token with which the agent of this host and boot generation authenticates.
pub fn token(secret: &[u8; 32], host_uid: &str, generation: u64) -> String {
    derive(secret, TOKEN, &[host_uid.as_bytes(), &generation.to_be_bytes()])
}

/// The agent's credential: its token with the host and generation for which it is valid, so that the server can check it before it reads the body:
/// `<generation>.<token>.<host uid>`.
pub fn credential(secret: &[u8; 32], host_uid: &str, generation: u64) -> String {
    format!("{generation}.{}.{host_uid}", token(secret, host_uid, generation))
}

/// Host uid and generation of a credential that is genuine.
pub fn holder<'a>(secret: &[u8; 32], credential: &'a str) -> Option<(&'a str, u64)> {
    let (generation, rest) = credential.split_once('.')?;
    let (given, host_uid) = rest.split_once('.')?;
    let generation = generation.parse().ok()?;
    let genuine = host_uid.len() <= MAX_UID && equal(given, &token(secret, host_uid, generation));
    genuine.then_some((host_uid, generation))
}

/// The credential of a HostDiscovery's medium, by the HostDiscovery's uid and the medium's revision: `<revision>.<token>.<uid>`. It is no host's.
pub fn discovery_credential(secret: &[u8; 32], uid: &str, revision: u64) -> String {
    format!("{revision}.{}.{uid}", derive(secret, DISCOVERY, &[uid.as_bytes(), &revision.to_be_bytes()]))
}

/// uid of the HostDiscovery and revision of the medium of such a credential that is genuine.
pub fn discovery_holder<'a>(secret: &[u8; 32], credential: &'a str) -> Option<(&'a str, u64)> {
    let (revision, rest) = credential.split_once('.')?;
    let (_, uid) = rest.split_once('.')?;
    let revision = revision.parse().ok()?;
    let genuine = uid.len() <= MAX_UID && equal(credential, &discovery_credential(secret, uid, revision));
    genuine.then_some((uid, revision))
}

/// Proof that the host of this namespace and name uses `subject`, possibly an earlier host's uid: only a holder of the secret can have written it.
pub fn claim(secret: &[u8; 32], namespace: &str, name: &str, subject: &str) -> String {
    derive(secret, CLAIM, &[namespace.as_bytes(), name.as_bytes(), subject.as_bytes()])
}

/// Where the host's BMC posts events: the derived part of the address, and the context that it is to send along.
pub fn events(secret: &[u8; 32], host_uid: &str) -> (String, String) {
    (derive(secret, EVENTS, &[host_uid.as_bytes()]), derive(secret, EVENTS_CONTEXT, &[host_uid.as_bytes()]))
}

/// Path of the address for events with this derived part: `/shard/<number>/events/<43 characters>`.
pub fn events_path(derived: &str) -> String {
    format!("{}{EVENTS_PREFIX}{derived}", shard(SHARD))
}

/// Path prefix of a shard. Nothing is derived from it: any server of any shard finds a medium by the derived part of its path, and accepts an agent's
/// token.
pub fn shard(number: u32) -> String {
    format!("{SHARD_PREFIX}{number}")
}

/// Path of the medium on the media server: `/shard/<number>/media/<43 characters>.iso`. It changes with the boot generation and with everything that
/// the medium's bytes depend on (`digest`: [`crate::Medium::digest`]), so that an address never has other bytes than it had before.
pub fn path(secret: &[u8; 32], host_uid: &str, generation: u64, digest: &[u8; 32]) -> String {
    let derived = derive(secret, PATH, &[host_uid.as_bytes(), &generation.to_be_bytes(), digest]);
    format!("{}{PATH_PREFIX}{derived}{PATH_SUFFIX}", shard(SHARD))
}

/// The derived part of a medium's path, if its form is valid; the medium itself may be unknown. Paths from the previous version have no shard.
pub fn path_id(path: &str) -> Option<&str> {
    let path = match path.strip_prefix(SHARD_PREFIX) {
        Some(rest) => {
            let (number, _) = rest.split_once('/')?;
            let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            rest.strip_prefix(number).filter(|_| plain && number.parse::<u32>().is_ok())?
        }
        None => path,
    };
    let id = path.strip_prefix(PATH_PREFIX)?.strip_suffix(PATH_SUFFIX)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (id.len() == LEN && id.bytes().all(plain)).then_some(id)
}

/// Whether two values are equal, in a time that depends on their lengths only.
pub fn equal(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

fn derive(secret: &[u8; 32], domain: &str, fields: &[&[u8]]) -> String {
    // a key shorter than the hash's block is filled with zeros (RFC 2104, 2)
    let mut key = [0; 64];
    key[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&key.into());
    for field in [domain.as_bytes()].iter().chain(fields) {
        mac.update(&(field.len() as u64).to_be_bytes());
        mac.update(field);
    }
    URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    #[test]
    fn every_input_matters() {
        let mut seen = std::collections::BTreeSet::new();
        for secret in [SECRET, [8; 32]] {
            for uid in ["a", "b", ""] {
                let (address, context) = events(&secret, uid);
                assert!(seen.insert(address) && seen.insert(context));
                for generation in [0, 1, u64::MAX] {
                    assert!(seen.insert(token(&secret, uid, generation)));
                    for digest in [[0; 32], [1; 32]] {
                        assert!(seen.insert(path_id(&path(&secret, uid, generation, &digest)).unwrap().to_owned()));
                    }
                }
            }
        }
        assert!(seen.iter().all(|value| value.len() == LEN));
    }

    #[test]
    fn values_are_those_of_another_implementation() {
        // computed with Python's hmac over the three fields, each behind its length as eight bytes, big end first
        assert_eq!(token(&SECRET, "uid", 3), "rK-Cu7trSYGCArbb76OplbfM8qjgw7nfQrMnUuF5tQE");
    }

    #[test]
    fn a_credential_holds_for_its_host_and_generation_only() {
        let good = credential(&SECRET, "some.uid", 12);
        assert_eq!(holder(&SECRET, &good), Some(("some.uid", 12)));
        assert_eq!(holder(&[8; 32], &good), None);
        for bad in [
            good.replacen("12.", "13.", 1),
            good.replace("some.uid", "some.uie"),
            good.replacen("12.", "+12.", 1).replace("+12", "x"),
            format!("12..{}", "u".repeat(300)),
            String::new(),
        ] {
            assert_eq!(holder(&SECRET, &bad), None, "{bad}");
        }
    }

    #[test]
    fn a_discoverys_credential_is_no_hosts() {
        let good = discovery_credential(&SECRET, "uid", 3);
        assert_eq!(discovery_holder(&SECRET, &good), Some(("uid", 3)));
        assert_eq!(holder(&SECRET, &good), None);
        assert_eq!(discovery_holder(&SECRET, &credential(&SECRET, "uid", 3)), None);
        for bad in [good.replacen("3.", "4.", 1), good.replacen("3.", "03.", 1), format!("{good}x"), String::new()] {
            assert_eq!(discovery_holder(&SECRET, &bad), None, "{bad}");
        }
        assert_eq!(discovery_holder(&[8; 32], &good), None);
    }

    #[test]
    fn only_the_right_shape_is_a_path() {
        let good = path(&SECRET, "uid", 1, &[0; 32]);
        let id = path_id(&good).unwrap();
        let [without, another] = ["", "/shard/4294967295"].map(|shard| format!("{shard}/media/{id}.iso"));
        assert_eq!([&without, &another].map(|path| path_id(path)), [Some(id); 2]);
        let [named, none, double, large] =
            ["/shard/x", "/shard/", "/shard/0/shard/0", "/shard/4294967296"].map(|shard| format!("{shard}{without}"));
        for bad in [&named, &none, &double, &large, "/shard/0"] {
            assert!(path_id(bad).is_none(), "{bad}");
        }
        for bad in ["/media/.iso", "/media/x.iso", &good[1..], &good[..good.len() - 1], &format!("{good}x")] {
            assert!(path_id(bad).is_none(), "{bad}");
        }
        let odd = good.replacen(|c: char| c.is_ascii_alphanumeric(), "m", 1).replace("/media/", "/media/.");
        assert!(path_id(&odd).is_none());
    }

    #[test]
    fn comparison_compares() {
        assert!(equal("abc", "abc"));
        assert!(!equal("abc", "abd"));
        assert!(!equal("abc", "ab"));
    }
}
