//! BMCEventSubscription: where a host's BMC is to send its events.

use serde::{Deserialize, Serialize};

use super::SecretReference;
use super::kind::kind;

kind! {
    /// A subscription to the events of a host's BMC. Its spec cannot be changed.
    BMCEventSubscription, "bmceventsubscriptions", BmcEventSubscriptionSpec, BmcEventSubscriptionStatus
}

/// `spec` of a BMCEventSubscription (baremetal-operator `apis/metal3.io/v1alpha1/bmceventsubscription_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcEventSubscriptionSpec {
    /// The host, in the same namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host_name: String,
    /// URL that takes the events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub destination: String,
    /// Sent along with each event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Secret whose keys and values are HTTP headers to send along, in the same namespace.
    #[serde(default, rename = "httpHeadersRef", skip_serializing_if = "Option::is_none")]
    pub http_headers_ref: Option<SecretReference>,
}

/// `status` of a BMCEventSubscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BmcEventSubscriptionStatus {
    /// Why there is no subscription, or why it cannot be ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Its id on the BMC.
    #[serde(default, rename = "subscriptionID", skip_serializing_if = "String::is_empty")]
    pub subscription_id: String,
}
