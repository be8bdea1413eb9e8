//! How the images of one host are read.

use serde::{Deserialize, Serialize};

use crate::mirrors::{self, Candidate, NotRead, Rule};
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
    /// The proxy's login is for the server's own requests alone: no agent gets it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub login_withheld: bool,
    /// A ConfigMap names the proxy, and no Secret does: whoever chose it need not be one who may read Secrets.
    #[serde(default, skip_serializing_if = "is_false")]
    pub proxy_unnamed: bool,
    /// The settings cannot be used, and why: nothing is to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Sources {
    /// The addresses to ask for `url`, in order: at least one.
    ///
    /// # Errors
    /// [`NotRead`] if a rule forbids it, or the settings cannot be used.
    pub fn route(&self, url: &str) -> Result<Vec<Candidate>, NotRead> {
        if let Some(fault) = &self.fault {
            return Err(NotRead::Faulty(fault.clone()));
        }
        mirrors::route(&self.mirrors, url)
    }
}
