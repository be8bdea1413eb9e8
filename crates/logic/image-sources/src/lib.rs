//! Where images are read from: a [`Document`] of a namespace or of the server names mirrors and a proxy, and of the addresses that a host names
//! [`Sources::route`] makes those that are asked, in order.
//!
//! Pure: nothing is read here. A mirror is trusted with nothing: what comes from it has to have the digest that the host, the manifest or the checksum
//! file names.

mod document;
mod mirrors;
mod no_proxy;
mod proxy;

use serde::{Deserialize, Serialize};

pub use document::{CONFIG_MAP, Document, KEY, MAX_DOCUMENT, ProxyChoice};
pub use mirrors::{Blocked, Candidate, MAX_LOCATIONS, MAX_RULES, Rule};
pub use no_proxy::{MAX_NO_PROXY, NoProxy};
pub use proxy::{Login, Proxy, Route};

/// What is wrong with a setting: a clause without the setting's secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// How one host's images are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// By way of this proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// From these mirrors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Rule>,
}

impl Sources {
    /// The addresses to ask for `url`, in order: at least one.
    ///
    /// # Errors
    /// [`Blocked`] if a rule forbids it.
    pub fn route(&self, url: &str) -> Result<Vec<Candidate>, Blocked> {
        mirrors::route(&self.mirrors, url)
    }
}
