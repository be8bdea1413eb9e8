//! What a BMC shows to anybody.

use api::metamorph::{DiscoveryNaming, NamedFrom};
use machine_identity::normal;
use sha2::{Digest as _, Sha256};
use terms::clean;

use crate::place::Place;

/// Longest text of a service root that is kept, characters.
pub const MAX_TEXT: usize = 64;

/// A service root, read without a password: anybody's word, in one line each and of bounded length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// `Vendor`.
    pub vendor: String,
    /// `Product`.
    pub product: String,
    /// `UUID`; of an iDRAC, which has none, the service tag.
    pub uuid: Option<String>,
    /// `RedfishVersion`.
    pub redfish_version: String,
    /// SHA-256 of the public key that TLS has proved, lower-case hex.
    pub key_sha256: Option<String>,
}

impl Shown {
    /// The same, with texts cut to what is kept.
    #[must_use]
    pub fn bounded(self) -> Self {
        let text = |text: &str, most| clean(text, most);
        Self {
            vendor: text(&self.vendor, MAX_TEXT),
            product: text(&self.product, MAX_TEXT),
            // One that is cut is another one.
            uuid: self.uuid.filter(|uuid| uuid.chars().count() <= MAX_TEXT && clean(uuid, MAX_TEXT) == *uuid),
            redfish_version: text(&self.redfish_version, 32),
            key_sha256: self
                .key_sha256
                .filter(|key| key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit())),
        }
    }
}

/// What asking a place has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A service root.
    Shown(Shown),
    /// A service that shows nothing without a password.
    Hidden,
    /// The address is one that this server does not call.
    NotAllowed,
    /// Nothing there, or something else than Redfish.
    Nothing,
}

/// Which machine it is, in normal form: by a UUID in any order of its bytes, or by a service tag; `None` for want of one, and for a placeholder.
#[must_use]
pub fn identity(uuid: &str) -> Option<String> {
    normal::uuid(uuid).or_else(|| normal::serial(uuid).filter(|_| !normal::is_uuid(uuid)))
}

/// What a host is called: the same for the same machine, or the same address.
#[must_use]
pub fn host_name(naming: &DiscoveryNaming, identity: &str, place: &Place) -> String {
    let digest = |text: &str| hex::encode(Sha256::digest(text).get(..6).unwrap_or_default());
    let rest = match naming.from {
        NamedFrom::Uuid => digest(identity),
        NamedFrom::Address => {
            let usual = if place.tls { 443 } else { 80 };
            let ip = place.ip.to_string();
            // Colons are no part of a name, and two at an end would be dashes there.
            let named = if place.ip.is_ipv6() { format!("v6-{}", digest(&ip)) } else { ip.replace('.', "-") };
            if place.port == usual { named } else { format!("{named}-{}", place.port) }
        }
    };
    format!("{}{rest}", naming.prefix)
}
