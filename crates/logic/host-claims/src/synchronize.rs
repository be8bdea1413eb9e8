//! What of a claim goes to its host: image, custom deploy, data, power.

use api::metal3::{BareMetalHost, HostClaim, Image, ObjectReference, SecretReference, annotation};
use serde_json::{Map, Value, json};

/// A Secret that a claim names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `spec.userData`.
    UserData,
    /// `spec.metaData`.
    MetaData,
    /// `spec.networkData`.
    NetworkData,
    /// `spec.image.ociAuthSecretName`.
    Registry,
}

impl Role {
    /// All, in the order in which they are looked at.
    pub const ALL: [Self; 4] = [Self::UserData, Self::MetaData, Self::NetworkData, Self::Registry];

    /// The field that names it.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::UserData => "spec.userData",
            Self::MetaData => "spec.metaData",
            Self::NetworkData => "spec.networkData",
            Self::Registry => "spec.image.ociAuthSecretName",
        }
    }

    /// Reason of the condition Synchronized when it cannot be had (upstream's `Bad…SecretReason`; the last is ours).
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::UserData => "UserDataSecretSyncFailure",
            Self::MetaData => "MetaDataSecretSyncFailure",
            Self::NetworkData => "NetworkDataSecretSyncFailure",
            Self::Registry => "ImageSecretSyncFailure",
        }
    }

    /// A word for names.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::UserData => "user-data",
            Self::MetaData => "meta-data",
            Self::NetworkData => "network-data",
            Self::Registry => "registry",
        }
    }

    /// Name of the Secret in the claim's namespace; `None` if the claim names none.
    ///
    /// # Errors
    /// A sentence, when it names one of another namespace: a claim's owner must not read other tenants' Secrets through a host.
    pub fn named(self, claim: &HostClaim) -> Result<Option<&str>, String> {
        let reference = match self {
            Self::UserData => claim.spec.user_data.as_ref(),
            Self::MetaData => claim.spec.meta_data.as_ref(),
            Self::NetworkData => claim.spec.network_data.as_ref(),
            Self::Registry => {
                let name = claim.spec.image.as_ref().and_then(|image| image.oci_auth_secret_name.as_deref());
                return Ok(name.filter(|name| !name.is_empty()));
            }
        };
        let Some(reference) = reference else { return Ok(None) };
        let claim_namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        match reference.namespace.as_deref().filter(|namespace| !namespace.is_empty() && *namespace != claim_namespace)
        {
            Some(other) => Err(format!(
                "{}.namespace is {other}; it must be the claim's own ({claim_namespace}), or empty",
                self.field()
            )),
            None => Ok(reference.name.as_deref().filter(|name| !name.is_empty())),
        }
    }
}

/// Names, in the host's namespace, of the Secrets that the claim names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// For `spec.userData`.
    pub user_data: Option<String>,
    /// For `spec.metaData`.
    pub meta_data: Option<String>,
    /// For `spec.networkData`.
    pub network_data: Option<String>,
    /// For `spec.image.ociAuthSecretName`.
    pub registry: Option<String>,
}

impl Data {
    /// Takes the name for this role.
    pub fn set(&mut self, role: Role, name: Option<String>) {
        *match role {
            Role::UserData => &mut self.user_data,
            Role::MetaData => &mut self.meta_data,
            Role::NetworkData => &mut self.network_data,
            Role::Registry => &mut self.registry,
        } = name;
    }
}

/// Whether the claim asks for more than power.
#[must_use]
pub fn wants_work(claim: &HostClaim) -> bool {
    image(claim).is_some() || claim.spec.custom_deploy.as_ref().is_some_and(|deploy| !deploy.method.is_empty())
}

fn image(claim: &HostClaim) -> Option<&Image> {
    claim.spec.image.as_ref().filter(|image| !image.url.is_empty())
}

/// The reference by which a host names the claim.
#[must_use]
pub fn consumer(claim: &HostClaim) -> ObjectReference {
    let metadata = &claim.metadata;
    ObjectReference {
        api_version: Some("metal3.io/v1alpha1".to_owned()),
        kind: Some("HostClaim".to_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The JSON merge patch that brings the host's spec to what the claim asks for; `None` if it is there.
#[must_use]
pub fn change(claim: &HostClaim, host: &BareMetalHost, data: &Data) -> Option<Value> {
    let mut wanted = host.spec.clone();
    wanted.consumer_ref = Some(consumer(claim));
    wanted.image = image(claim).map(|image| Image { oci_auth_secret_name: data.registry.clone(), ..image.clone() });
    wanted.custom_deploy = claim.spec.custom_deploy.clone().filter(|deploy| !deploy.method.is_empty());
    let reference = |name: &Option<String>| {
        name.as_ref()
            .map(|name| SecretReference { name: Some(name.clone()), namespace: host.metadata.namespace.clone() })
    };
    wanted.user_data = reference(&data.user_data);
    wanted.meta_data = reference(&data.meta_data);
    wanted.network_data = reference(&data.network_data);
    // A host that must not be powered off stays on: admission would refuse the whole patch.
    wanted.online = claim.spec.powered_on || host.spec.disable_power_off == Some(true);
    merge_patch(&json!(host.spec), &json!(wanted))
}

/// The reboot annotations of a claim (`reboot.metal3.io`, and with keys), which its host gets.
pub fn reboots(claim: &HostClaim) -> impl Iterator<Item = (&str, &str)> {
    let all = claim.metadata.annotations.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, _)| {
        key.strip_prefix(annotation::REBOOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The JSON merge patch (RFC 7396) that turns one object into the other; `None` if they are equal.
#[must_use]
pub fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return (from != to).then(|| to.clone()) };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let other = new.iter().filter_map(|(key, value)| {
        let change = match old.get(key) {
            Some(before) => merge_patch(before, value)?,
            None => value.clone(),
        };
        Some((key.clone(), change))
    });
    let patch: Map<String, Value> = gone.chain(other).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}
