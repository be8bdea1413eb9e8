//! HostClaim: a request for a host, possibly in another namespace, and for what is to run on it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::kind::kind;
use super::{CustomDeploy, Image, ObjectReference, SecretReference};
use crate::Time;

kind! {
    /// A claim to one BareMetalHost that a HostDeployPolicy of the host's namespace admits.
    HostClaim, "hostclaims", HostClaimSpec, HostClaimStatus
}

/// `spec` of a HostClaim (baremetal-operator `apis/metal3.io/v1alpha1/hostclaim_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimSpec {
    /// Who uses the claim; for people and other controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// Custom deploy method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Failure domain that is preferred, by the hosts' label [`super::label::FAILURE_DOMAIN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Which hosts will do.
    #[serde(default, skip_serializing_if = "HostSelector::is_empty")]
    pub host_selector: HostSelector,
    /// Image to provision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Secret with `metaData`, of the claim's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// Secret with `networkData`, of the claim's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Whether the host should run.
    #[serde(default)]
    pub powered_on: bool,
    /// Secret with `userData`, of the claim's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
}

/// Which hosts will do: all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSelector {
    /// The only namespace to choose hosts from; empty for all whose policies admit the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_namespace: Option<String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<HostSelectorRequirement>,
    /// Labels that a host must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

impl HostSelector {
    /// Whether the selector has no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A requirement on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// `=`, `==`, `!=`, `in`, `notin`, `exists` or `!` (apimachinery `pkg/selection`).
    pub operator: String,
    /// The number of values depends on the operator.
    #[serde(default)]
    pub values: Vec<String>,
}

/// `status` of a HostClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostClaimStatus {
    /// The host; until the condition [`condition::ASSOCIATED`] is true, the one being claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bare_metal_host: Option<BoundObject>,
    /// The types are in [`condition`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The host's HardwareData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_data: Option<BoundObject>,
    /// When this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Whether the host's machine was seen to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub powered_on: Option<bool>,
}

/// An object that belongs to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BoundObject {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl std::fmt::Display for BoundObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Types of a claim's conditions.
pub mod condition {
    /// The claim has a host.
    pub const ASSOCIATED: &str = "Associated";
    /// The host's spec matches the claim.
    pub const SYNCHRONIZED: &str = "Synchronized";
    /// The host is provisioned with the claim's image.
    pub const PROVISIONED: &str = "Provisioned";
    /// All others are true.
    pub const READY: &str = "Ready";
}

impl HostClaim {
    /// Value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it carries the finalizer [`super::finalizer::HOST_CLAIM`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().flatten().any(|name| name == super::finalizer::HOST_CLAIM)
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
    }
}
