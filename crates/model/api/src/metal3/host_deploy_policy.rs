//! HostDeployPolicy: whose HostClaims the hosts of a namespace may be given to.

use serde::{Deserialize, Serialize};

use super::kind::kind;

kind! {
    /// Admits the HostClaims of some namespaces to the BareMetalHosts of its own.
    HostDeployPolicy, "hostdeploypolicies", HostDeployPolicySpec, HostDeployPolicyStatus
}

/// `spec` of a HostDeployPolicy (baremetal-operator `apis/metal3.io/v1alpha1/hostdeploypolicy_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDeployPolicySpec {
    /// The namespaces; without it nobody is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_claim_namespaces: Option<HostClaimNamespaces>,
}

/// Namespaces of claims: all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimNamespaces {
    /// Labels that the namespace must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub has_labels: Vec<NameValuePair>,
    /// A regular expression that must match somewhere in its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_matches: Option<String>,
    /// Names of which it must be one; an empty list admits none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
}

/// A label that must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameValuePair {
    /// Its key.
    pub name: String,
    /// Its value; any, if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// `status` of a HostDeployPolicy: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDeployPolicyStatus {}
