//! How the images of one host are read.

use serde::{Deserialize, Serialize};

use crate::mirrors::{self, Blocked, Candidate, Rule};
use crate::proxy::Proxy;

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
