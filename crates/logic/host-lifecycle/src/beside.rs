//! What is said of the objects beside hosts before they are stored: HostClaims, HostNetworkAttachments, BMCEventSubscriptions, DataImages,
//! HostFirmwareComponents.
//!
//! Refused is what upstream's webhooks refuse (baremetal-operator `internal/webhooks/metal3.io/v1alpha1`), with two exceptions: an object that is
//! being deleted is let go on its way, and a BMCEventSubscription with `httpHeadersRef` may be changed beside its spec (upstream compares pointers,
//! so that not even its finalizers can be). Objects are read as JSON: a field that is not there is empty, types are the schema's business.

use std::collections::BTreeMap;

use addresses::text_without_secrets;
use api::metal3::{BareMetalHost, HostClaim, HostNetworkAttachmentSpec, annotation, request_has_path, request_scheme};
use serde_json::Value;

use crate::admission::Review;
use crate::{annotations, host_rules};

/// A kind that is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// HostClaim.
    HostClaim,
    /// HostNetworkAttachment.
    HostNetworkAttachment,
    /// BMCEventSubscription.
    BmcEventSubscription,
    /// DataImage.
    DataImage,
    /// HostFirmwareComponents.
    HostFirmwareComponents,
}

impl Beside {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::HostClaim,
        Self::HostNetworkAttachment,
        Self::BmcEventSubscription,
        Self::DataImage,
        Self::HostFirmwareComponents,
    ];

    /// The kind's name.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::HostClaim => "HostClaim",
            Self::HostNetworkAttachment => "HostNetworkAttachment",
            Self::BmcEventSubscription => "BMCEventSubscription",
            Self::DataImage => "DataImage",
            Self::HostFirmwareComponents => "HostFirmwareComponents",
        }
    }

    /// Its plural.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::HostClaim => "hostclaims",
            Self::HostNetworkAttachment => "hostnetworkattachments",
            Self::BmcEventSubscription => "bmceventsubscriptions",
            Self::DataImage => "dataimages",
            Self::HostFirmwareComponents => "hostfirmwarecomponents",
        }
    }

    /// Whether deletions are reviewed, and changes are against the hosts that there are.
    #[must_use]
    pub const fn is_held_by_hosts(self) -> bool {
        matches!(self, Self::HostNetworkAttachment)
    }
}

/// Reviews a new object, the new state of one, or, without `new`, a deletion. `hosts` names the places that refer to the object, as
/// [`references`]; why that is not known otherwise.
pub fn review_beside(
    kind: Beside,
    new: Option<&Value>,
    old: Option<&Value>,
    hosts: impl FnOnce(&str, &str) -> Result<Vec<String>, String>,
) -> Review {
    let mut review = Review::default();
    let Some(new) = new else {
        if let Some(old) = old.filter(|_| kind.is_held_by_hosts()) {
            held(old, "deleted", hosts, &mut review);
        }
        return review;
    };
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return review;
    }
    match kind {
        Beside::HostClaim => host_claim(new, &mut review),
        Beside::HostNetworkAttachment => attachment(new, old, hosts, &mut review),
        Beside::BmcEventSubscription => subscription(new, old, &mut review),
        Beside::DataImage => address("spec.url", text(&new["spec"]["url"]), &mut review),
        Beside::HostFirmwareComponents => {
            for (index, update) in new["spec"]["updates"].as_array().into_iter().flatten().enumerate() {
                address(&format!("spec.updates[{index}].url"), text(&update["url"]), &mut review);
            }
        }
    }
    review
}

/// Interfaces of hosts that name the HostNetworkAttachment, each as `namespace/host[interface]`; hosts of other namespaces without their names.
pub fn references<'a>(hosts: impl IntoIterator<Item = &'a BareMetalHost>, namespace: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for host in hosts {
        let host_namespace = host.metadata.namespace.as_deref().unwrap_or_default();
        for interface in &host.spec.network_interfaces {
            let Some(reference) = &interface.host_network_attachment else { continue };
            let its =
                reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or(host_namespace);
            if its == namespace && reference.name.as_deref() == Some(name) && host_namespace != namespace {
                found.push("a host of another namespace".to_owned());
            } else if its == namespace && reference.name.as_deref() == Some(name) {
                let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
                let which = filled(&interface.name).or_else(|| filled(&interface.mac_address)).unwrap_or_default();
                found.push(format!("{host_namespace}/{}[{which}]", host.metadata.name.as_deref().unwrap_or_default()));
            }
        }
    }
    found.dedup();
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn address(field: &str, address: &str, review: &mut Review) {
    match request_scheme(address) {
        Some(scheme) if matches!(scheme.as_str(), "http" | "https" | "ftp" | "gopher" | "oci") => {}
        Some(scheme) => review
            .denials
            .push(format!("{field} has the scheme {scheme:?}; allowed are http, https, ftp, gopher and oci")),
        None => review.denials.push(format!("{field} is not a URL: {:?}", text_without_secrets(address))),
    }
}

fn host_claim(new: &Value, review: &mut Review) {
    let claim: HostClaim = match serde_json::from_value(new.clone()) {
        Ok(claim) => claim,
        Err(error) => {
            review.denials.push(format!("read the HostClaim: {error}"));
            return;
        }
    };
    let selector = &claim.spec.host_selector;
    for (key, value) in &selector.match_labels {
        let wrong = names::qualified_name(key).into_iter().chain(names::label_value(value));
        review.denials.extend(wrong.map(|what| format!("spec.hostSelector.matchLabels: {key}={value}: {what}")));
    }
    for (index, expression) in selector.match_expressions.iter().enumerate() {
        let at = format!("spec.hostSelector.matchExpressions[{index}]");
        let mut wrong = names::qualified_name(&expression.key);
        wrong.extend(operator(&expression.operator, &expression.values));
        review.denials.extend(wrong.into_iter().map(|what| format!("{at}: {what}")));
    }
    let empty = BTreeMap::new();
    let all = claim.metadata.annotations.as_ref().unwrap_or(&empty);
    review.denials.extend(annotations::reboot_faults_in(all).into_iter().map(|(_, fault)| fault));
    if let Some(image) = &claim.spec.image {
        if image.url.is_empty() {
            review.denials.push("spec.image.url is empty — give the image's address, or remove spec.image".to_owned());
        }
        for violation in host_rules::image_violations(image) {
            let to = if violation.denied { &mut review.denials } else { &mut review.warnings };
            to.push(violation.message);
        }
    }
    let claim_namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    for (field, reference) in [
        ("userData", &claim.spec.user_data),
        ("networkData", &claim.spec.network_data),
        ("metaData", &claim.spec.meta_data),
    ] {
        let namespace = reference.as_ref().and_then(|reference| reference.namespace.as_deref()).unwrap_or_default();
        if !namespace.is_empty() && namespace != claim_namespace {
            review.warnings.push(format!(
                "spec.{field}.namespace is {namespace}: nothing is done until it is the claim's own ({claim_namespace}), or empty"
            ));
        }
    }
    for key in [annotation::DETACHED, annotation::INSPECT] {
        if all.contains_key(key) {
            review
                .warnings
                .push(format!("annotation {key} has no effect on a HostClaim: it belongs on the BareMetalHost"));
        }
    }
}

/// What is wrong with an operator and its values (apimachinery `pkg/selection`); operators are written in lower case.
fn operator(operator: &str, values: &[String]) -> Vec<String> {
    let values_are_labels = || values.iter().flat_map(|value| names::label_value(value)).collect();
    match operator {
        "=" | "==" | "!=" if values.len() != 1 => vec![format!("the operator {operator} takes exactly one value")],
        "in" | "notin" if values.is_empty() => vec![format!("the operator {operator} takes at least one value")],
        "=" | "==" | "!=" | "in" | "notin" => values_are_labels(),
        "exists" | "!" if values.is_empty() => Vec::new(),
        "exists" | "!" => vec![format!("the operator {operator} takes no values")],
        _ => vec![format!("there is no operator {operator:?}; there are =, ==, !=, in, notin, exists and !")],
    }
}

fn subscription(new: &Value, old: Option<&Value>, review: &mut Review) {
    let spec = &new["spec"];
    if let Some(old) = old {
        if said(&old["spec"]) != said(spec) {
            review.denials.push("spec cannot be changed: delete the subscription and make another".to_owned());
        }
        return;
    }
    if text(&spec["hostName"]).is_empty() {
        review.denials.push("spec.hostName is empty".to_owned());
    }
    let headers = &spec["httpHeadersRef"];
    let (theirs, own_namespace) = (text(&headers["namespace"]), text(&new["metadata"]["namespace"]));
    if headers.is_object() && theirs != own_namespace {
        review.denials.push(format!(
            "spec.httpHeadersRef.namespace is {theirs:?}; it must be the subscription's own ({own_namespace})"
        ));
    }
    let destination = text(&spec["destination"]);
    if destination.is_empty() {
        review.denials.push("spec.destination is empty".to_owned());
    } else if request_scheme(destination).is_none() {
        review.denials.push(format!("spec.destination is not a URL: {:?}", text_without_secrets(destination)));
    } else if !request_has_path(destination) {
        let printable = text_without_secrets(destination);
        review.denials.push(format!("spec.destination is {printable}; one without a path must end with a slash"));
    }
}

/// A value without the fields that say nothing, as Go's types hold it.
fn said(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let filled = fields.iter().map(|(key, value)| (key.clone(), said(value)));
            Value::Object(filled.filter(|(_, value)| !matches!(value, Value::Null) && *value != "").collect())
        }
        other => other.clone(),
    }
}

fn attachment(
    new: &Value,
    old: Option<&Value>,
    hosts: impl FnOnce(&str, &str) -> Result<Vec<String>, String>,
    review: &mut Review,
) {
    let read = |object: &Value| serde_json::from_value::<HostNetworkAttachmentSpec>(object["spec"].clone());
    let spec = match read(new) {
        Ok(spec) => spec,
        Err(error) => {
            review.denials.push(format!("read the HostNetworkAttachment: {error}"));
            return;
        }
    };
    if old.is_some_and(|old| read(old).is_ok_and(|old| old == spec)) {
        return;
    }
    if spec.mode == api::metal3::SwitchPortMode::Access && !spec.allowed_vlans.is_empty() {
        review.denials.push("spec.allowedVLANs cannot be given where spec.mode is access".to_owned());
    }
    for (index, entry) in spec.allowed_vlans.iter().enumerate() {
        if let Some(what) = vlans(entry) {
            review.denials.push(format!("spec.allowedVLANs[{index}] is {entry:?}: {what}"));
        }
    }
    match old {
        Some(old) if review.denials.is_empty() => held(old, "changed", hosts, review),
        _ => {}
    }
    review.warnings.push("no provisioner sets up switches yet: a HostNetworkAttachment has no effect".to_owned());
}

/// What is wrong with a VLAN or a range of them.
fn vlans(entry: &str) -> Option<String> {
    let number = |text: &str| match text.parse::<i64>() {
        Ok(id @ 1..=4094) => Ok(id),
        Ok(id) => Err(format!("{id} is no VLAN, which has a number from 1 to 4094")),
        Err(_) => Err("it is neither a number nor two with a hyphen between them".to_owned()),
    };
    let Some((first, last)) = entry.split_once('-') else { return number(entry).err() };
    match (number(first), number(last)) {
        (Err(what), _) | (_, Err(what)) => Some(what),
        (Ok(first), Ok(last)) => (first >= last).then(|| format!("the range begins with {first} and ends with {last}")),
    }
}

/// Refuses what would be done to an attachment that hosts name, or of which that is not known.
fn held(old: &Value, done: &str, hosts: impl FnOnce(&str, &str) -> Result<Vec<String>, String>, review: &mut Review) {
    let (namespace, name) = (text(&old["metadata"]["namespace"]), text(&old["metadata"]["name"]));
    match hosts(namespace, name) {
        Ok(found) if found.is_empty() => {}
        Ok(found) => review.denials.push(format!(
            "the HostNetworkAttachment cannot be {done} while interfaces of BareMetalHosts name it: {}",
            found.join(", ")
        )),
        Err(why) => review.denials.push(format!(
            "the HostNetworkAttachment cannot be {done}, because it is not known whether a BareMetalHost names it: {why}"
        )),
    }
}
