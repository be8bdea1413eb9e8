//! Secrets that a host uses: BMC credentials, and the data of the config drive.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::metal3::{BareMetalHost, Image, SecretReference, finalizer, label};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch};
use kube::{Client, Resource, ResourceExt};
use provisioner::{ConfigDrive, SecretText};
use serde_json::{Map, Value, json};

use super::bodies::{Bodies, Body, Login};
use super::context::Context;

/// Largest user data, network data or meta data, in bytes (a Secret holds 1 MiB).
const MAX_DATA: usize = 1 << 20;
/// How often a Secret is let go of that others write meanwhile.
const LET_GO_TRIES: u32 = 4;
/// Most values in one of them: network data of the largest hosts has some hundreds.
const MAX_NODES: usize = 20_000;

/// BMC credentials as found.
#[derive(Clone)]
pub enum FoundCredentials {
    /// The host names none.
    NotNeeded,
    /// There is no such Secret.
    Missing {
        /// Its name.
        name: String,
    },
    /// The server may not read it.
    Forbidden {
        /// Its name.
        name: String,
    },
    /// The Secret lacks something.
    Invalid {
        /// Its name.
        name: String,
        /// What is wrong, a clause.
        what: String,
    },
    /// Usable.
    Present(Credentials),
}

/// A Secret that holds user and password.
#[derive(Clone)]
pub struct Credentials(Arc<Body>);

impl Credentials {
    /// Those of this Secret; else what it lacks.
    fn of(body: Arc<Body>) -> Result<Self, &'static str> {
        match body.login() {
            Ok(_) => Ok(Self(body)),
            Err(missing) => Err(missing),
        }
    }

    /// The Secret.
    pub fn body(&self) -> &Body {
        &self.0
    }

    /// The Secret's metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    /// User and password.
    pub fn login(&self) -> Option<&Login> {
        self.0.login().as_ref().ok()
    }
}

/// How a Secret is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetGo {
    /// The host names another now, and was an owner of this one: it stays.
    Former,
    /// The host goes, whether it has come to be an owner or not. If it is the last host that is one it stays that, as upstream has it, so that the Secret
    /// is collected with it.
    WithHost,
}

/// A field of the host that names a Secret with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataField {
    /// `spec.userData`.
    User,
    /// `spec.networkData`.
    Network,
    /// `spec.metaData`.
    Meta,
    /// `spec.preprovisioningNetworkDataName`.
    AgentNetwork,
    /// `spec.image.ociAuthSecretName`.
    Registry,
    /// What is set for images of the whole namespace, in no field of the host.
    Images,
}

impl DataField {
    /// What upstream's metric calls it: the network of the agent's system goes by the name of the other.
    pub const fn label(self) -> &'static str {
        match self {
            Self::User => "userData",
            Self::Network | Self::AgentNetwork => "networkData",
            Self::Meta => "metaData",
            Self::Registry => "ociAuthSecretName",
            Self::Images => "images",
        }
    }
}

impl std::fmt::Display for DataField {
    /// Its name below `spec`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::User => "userData",
            Self::Network => "networkData",
            Self::Meta => "metaData",
            Self::AgentNetwork => "preprovisioningNetworkDataName",
            Self::Registry => "image.ociAuthSecretName",
            Self::Images => "image",
        })
    }
}

/// A Secret cannot be used for the config drive, for the agent's network or for a registry.
#[derive(Debug, thiserror::Error)]
pub enum HostDataError {
    /// It is not there, or does not hold what it should.
    #[error("{what} — create or correct that Secret; the host goes on as soon as it is there")]
    Unusable {
        /// The field that names it.
        field: DataField,
        /// What was attempted and found.
        what: String,
    },
    /// The server may not read it.
    #[error("{what}, which the server may not read — allow it to get Secrets in this namespace")]
    Forbidden {
        /// The field that names it.
        field: DataField,
        /// What was attempted.
        what: String,
    },
    /// The settings of images, mirrors and proxy, cannot be used.
    #[error("{0} — put that right; the host goes on as soon as it is")]
    Sources(String),
    /// The Kubernetes API failed: nothing is known of the Secret.
    #[error("{what} (Kubernetes API)")]
    Api {
        /// What was attempted.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
}

impl HostDataError {
    fn unusable(field: DataField, what: String) -> Self {
        Self::Unusable { field, what }
    }
}

/// Secrets in the host's namespace.
pub struct HostSecrets<'a> {
    context: &'a Context,
    client: &'a Client,
    bodies: &'a Bodies,
    host: &'a BareMetalHost,
    namespace: String,
}

impl<'a> HostSecrets<'a> {
    /// Secrets of this host.
    pub fn new(context: &'a Context, host: &'a BareMetalHost) -> Self {
        let (client, bodies) = (&context.client, &context.bodies);
        Self { context, client, bodies, host, namespace: host.namespace().unwrap_or_default() }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn body(&self, name: &str) -> Result<Option<Arc<Body>>, kube::Error> {
        match self.bodies.known(&self.namespace, name) {
            Some(known) => Ok(Some(known)),
            None => self.bodies.get(&self.api(), &self.namespace, name).await,
        }
    }

    /// Reads the BMC's credentials.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn credentials(&self) -> Result<FoundCredentials, kube::Error> {
        let Some(bmc) = &self.host.spec.bmc else { return Ok(FoundCredentials::NotNeeded) };
        let name = bmc.credentials_name.clone();
        if name.is_empty() {
            return Ok(FoundCredentials::Invalid {
                name,
                what: "is not named: spec.bmc.credentialsName is empty".to_owned(),
            });
        }
        let body = match self.body(&name).await {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(FoundCredentials::Missing { name }),
            Err(kube::Error::Api(e)) if e.code == 403 => return Ok(FoundCredentials::Forbidden { name }),
            Err(error) => return Err(error),
        };
        Ok(match Credentials::of(body) {
            Ok(credentials) => FoundCredentials::Present(credentials),
            Err(missing) => FoundCredentials::Invalid { name, what: format!("has no {missing}") },
        })
    }

    /// Marks the Secret as used by this host: label, owner, finalizer; one write, none if it is so already. Whether
    /// it was written.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn claim(&self, secret: &ObjectMeta) -> Result<bool, kube::Error> {
        let mark = secret.labels.as_ref().and_then(|labels| labels.get(label::ENVIRONMENT));
        let labelled = mark.is_some_and(|value| value == label::ENVIRONMENT_VALUE);
        let owned = self.owns(secret);
        let held = secret.finalizers.iter().flatten().any(|held| held == finalizer::SECRET);
        // One that is going takes no finalizer any more.
        if labelled && owned && held || secret.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let mut owners = secret.owner_references.clone().unwrap_or_default();
        let mut finalizers = secret.finalizers.clone().unwrap_or_default();
        if !owned && let Some(owner) = self.host.owner_ref(&()) {
            owners.push(owner);
        }
        if !held {
            finalizers.push(finalizer::SECRET.to_owned());
        }
        let patch = json!({ "metadata": {
            "resourceVersion": secret.resource_version,
            "labels": { label::ENVIRONMENT: label::ENVIRONMENT_VALUE },
            "ownerReferences": owners,
            "finalizers": finalizers,
        }});
        let name = secret.name.clone().unwrap_or_default();
        self.bodies.patch(&self.api(), &self.namespace, &name, &Patch::Merge(patch)).await?;
        Ok(true)
    }

    /// Keeps the Secret with the network of the agent's system from going while the host names it: label and finalizer, without an owner, as
    /// baremetal-operator does (`acquirePreprovisioningNetworkDataSecret`).
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn hold_network(&self) -> Result<(), kube::Error> {
        let Some(name) = network_of(self.host) else { return Ok(()) };
        let Some(body) = self.body(name).await? else { return Ok(()) };
        let secret = &body.metadata;
        let labelled = secret.labels.as_ref().is_some_and(|labels| labels.contains_key(label::ENVIRONMENT));
        let mut finalizers = secret.finalizers.clone().unwrap_or_default();
        let held = finalizers.iter().any(|held| held == finalizer::SECRET);
        if labelled && held || secret.deletion_timestamp.is_some() {
            return Ok(());
        }
        if !held {
            finalizers.push(finalizer::SECRET.to_owned());
        }
        let patch = json!({ "metadata": {
            "resourceVersion": secret.resource_version,
            "labels": { label::ENVIRONMENT: label::ENVIRONMENT_VALUE },
            "finalizers": finalizers,
        }});
        self.bodies.patch(&self.api(), &self.namespace, name, &Patch::Merge(patch)).await
    }

    /// Lets go of all Secrets that are held for the host.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn release(&self) -> Result<(), kube::Error> {
        for name in self.former().union(&self.held_by_another_name()) {
            // It is let go a while after its deletion (see `leaving`): no reason to keep the host.
            if let Err(error) = self.let_go(name, LetGo::Former).await {
                tracing::warn!(host = %self.host.name_any(), secret = name, %error, "let go of a Secret that the host has named before");
            }
        }
        if let Some(network) = network_of(self.host) {
            self.let_go(network, LetGo::WithHost).await?;
        }
        let named = self.named();
        if named.is_empty() { Ok(()) } else { self.let_go(named, LetGo::WithHost).await }
    }

    /// Lets go of the Secret that the host has named before, as its status says. Costs no call where it names the same.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn release_former(&self) -> Result<(), kube::Error> {
        for name in self.former() {
            let is_gone = self.bodies.in_step.get() && self.bodies.watched(&self.namespace, &name).is_none();
            if !is_gone && self.body(&name).await?.is_some_and(|body| self.owns(&body.metadata)) {
                self.let_go(&name, LetGo::Former).await?;
            }
        }
        Ok(())
    }

    /// Lets go of the Secrets that are held for the host under another name than the one that it names, as the watch shows them.
    ///
    /// # Errors
    /// When the Kubernetes API fails.
    pub async fn release_others(&self) -> Result<(), kube::Error> {
        for name in self.held_by_another_name() {
            self.let_go(&name, LetGo::Former).await?;
        }
        Ok(())
    }

    /// The Secret that the host names; empty if it names none.
    fn named(&self) -> &'a str {
        self.host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str()).unwrap_or_default()
    }

    /// The Secrets whose user and password the host had last, by its status, where it names another.
    fn former(&self) -> BTreeSet<String> {
        let status = self.host.status.iter();
        let had = status.flat_map(|status| [&status.good_credentials, &status.tried_credentials]);
        let names = had.filter_map(|had| had.credentials.as_ref()?.name.clone());
        names.filter(|name| !name.is_empty() && name != self.named()).collect()
    }

    fn held_by_another_name(&self) -> BTreeSet<String> {
        let held = self.bodies.watched_matching(|secret| {
            secret.namespace.as_ref() == Some(&self.namespace)
                && secret.name.as_deref() != Some(self.named())
                && secret.name.as_deref() != network_of(self.host)
                // A host owns other Secrets, too: copies for its claim, and what its user lets be collected with it.
                && secret.finalizers.iter().flatten().any(|held| held == finalizer::SECRET)
                && secret.labels.as_ref().is_none_or(|labels| !labels.contains_key(label::CLAIM))
                && self.owns(secret)
        });
        held.iter().map(|secret| secret.name_any()).collect()
    }

    /// Whether the Secret is held for the host.
    pub fn owns(&self, secret: &ObjectMeta) -> bool {
        let mut owners = secret.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == self.host.metadata.uid.as_ref())
    }

    /// Removes the host from a Secret's owners, and the finalizer if no other host is one.
    async fn let_go(&self, name: &str, how: LetGo) -> Result<(), kube::Error> {
        for _ in 1..LET_GO_TRIES {
            match self.try_let_go(name, how).await {
                // Somebody else writes it, too.
                Err(kube::Error::Api(error)) if error.code == 409 => {}
                done => return done,
            }
        }
        self.try_let_go(name, how).await
    }

    async fn try_let_go(&self, name: &str, how: LetGo) -> Result<(), kube::Error> {
        let Some(secret) = self.api().get_opt(name).await? else { return Ok(()) };
        if how == LetGo::Former && !self.owns(&secret.metadata) {
            return Ok(());
        }
        let mut owners: Vec<_> =
            secret.owner_references().iter().filter(|o| Some(&o.uid) != self.host.metadata.uid.as_ref()).collect();
        // A host that is paused, for instance, has not come to be an owner.
        let others = self.is_named_by_another(name) || self.is_anothers_network(name);
        let shared = owners.iter().any(|o| o.kind == "BareMetalHost") || others;
        if how == LetGo::WithHost && !shared {
            owners = secret.owner_references().iter().collect();
        }
        let finalizers: Vec<_> = secret.finalizers().iter().filter(|f| shared || *f != finalizer::SECRET).collect();
        if owners.len() == secret.owner_references().len() && finalizers.len() == secret.finalizers().len() {
            return Ok(());
        }
        let patch = json!({ "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "ownerReferences": owners,
            "finalizers": finalizers,
        }});
        match self.bodies.patch(&self.api(), &self.namespace, name, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
            patched => patched,
        }
    }

    /// Whether another host names the Secret for the network of its agent's system.
    fn is_anothers_network(&self, name: &str) -> bool {
        let all = networks(self.context, &self.namespace, name);
        all.iter().any(|other| other.metadata.uid != self.host.metadata.uid)
    }

    /// Whether another host that is to stay signs in with the Secret, as the watch shows. One that goes, too, counts while it is an owner.
    fn is_named_by_another(&self, name: &str) -> bool {
        let Some(hosts) = self.context.hosts.store() else { return false };
        let others = self.context.index.signs_in(&self.namespace, name);
        let mut others = others.iter().filter(|other| other.name != self.host.name_any());
        others.any(|other| hosts.get(other).is_some_and(|host| !host.is_deleting()))
    }

    /// The Secret that this field of the host refers to; `None` if it refers to none.
    async fn referred(
        &self,
        reference: &SecretReference,
        field: DataField,
    ) -> Result<Option<(String, Arc<Body>)>, HostDataError> {
        let Some(name) = reference.name.as_deref().filter(|n| !n.is_empty()) else { return Ok(None) };
        if reference.namespace.as_deref().is_some_and(|n| !n.is_empty() && n != self.namespace) {
            return Err(HostDataError::unusable(
                field,
                format!("read spec.{field}: it names another namespace than the host's, which is not allowed"),
            ));
        }
        let what = || format!("read spec.{field}: Secret {name}");
        let secret = self.body(name).await.map_err(|error| match error {
            kube::Error::Api(refused) if refused.code == 403 => HostDataError::Forbidden { field, what: what() },
            error => HostDataError::Api { what: what(), source: Box::new(error) },
        })?;
        let Some(secret) = secret else {
            return Err(HostDataError::unusable(
                field,
                format!("read spec.{field}: there is no Secret {name} in namespace {}", self.namespace),
            ));
        };
        Ok(Some((name.to_owned(), secret)))
    }

    /// A text from a Secret that the host refers to; the first of the keys that is there. An empty one is none, as if the host referred to no Secret.
    async fn data(
        &self,
        reference: &SecretReference,
        field: DataField,
        keys: &[&str],
    ) -> Result<Option<Document>, HostDataError> {
        let Some((name, secret)) = self.referred(reference, field).await? else { return Ok(None) };
        let Some(key) = keys.iter().find(|key| secret.has(key)) else {
            return Err(HostDataError::unusable(
                field,
                format!("read spec.{field}: the Secret {name} has none of the keys {}", keys.join(", ")),
            ));
        };
        match secret.text(key) {
            Some(text) if text.len() <= MAX_DATA => {
                let from = format!("spec.{field}: {key} of the Secret {name}");
                Ok(Some(Document { field, from, text: text.to_owned() }))
            }
            Some(text) => Err(HostDataError::unusable(
                field,
                format!("read spec.{field}: {} bytes in Secret {name}, {MAX_DATA} are accepted", text.len()),
            )),
            None if secret.is_empty(key) => Ok(None),
            None => Err(HostDataError::unusable(
                field,
                format!("read spec.{field}: what the Secret {name} has as {key} is no text (UTF-8)"),
            )),
        }
    }

    /// Users and passwords for the registry of an image, as `.dockerconfigjson`; `None` for an image that is in none, or names none.
    ///
    /// # Errors
    /// When the Secret is missing or holds no such thing.
    pub async fn pull_secret(&self, image: &Image) -> Result<Option<SecretText>, HostDataError> {
        let field = DataField::Registry;
        if !image.url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://")) {
            return Ok(None);
        }
        let reference = SecretReference { name: image.oci_auth_secret_name.clone(), namespace: None };
        let Some((name, secret)) = self.referred(&reference, field).await? else { return Ok(None) };
        // The types and keys are Kubernetes' (`core/v1`, SecretType).
        let (key, is_older) = match secret.kind.as_str() {
            "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", false),
            "kubernetes.io/dockercfg" => (".dockercfg", true),
            _ => {
                let what = format!(
                    "read spec.{field}: the Secret {name} is of another type than kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg"
                );
                return Err(HostDataError::unusable(field, what));
            }
        };
        let unusable = |what: &str| {
            HostDataError::unusable(field, format!("read spec.{field}: {key} of the Secret {name} {what}"))
        };
        let text = secret.text(key).ok_or_else(|| unusable("is missing or empty"))?;
        let auths = |value: &Value| value.get("auths").is_some_and(Value::is_object);
        // An error's own text would quote the Secret.
        match serde_json::from_str::<Value>(text) {
            Ok(value) if !is_older && auths(&value) => Ok(Some(SecretText(text.to_owned()))),
            Ok(value) if is_older && value.is_object() => Ok(Some(SecretText(json!({ "auths": value }).to_string()))),
            _ => Err(unusable("is not JSON with users and passwords by registry")),
        }
    }

    /// Network of the agent's system.
    ///
    /// # Errors
    /// When the Secret is missing or does not hold usable network data.
    pub async fn agent_network(&self) -> Result<Option<Value>, HostDataError> {
        self.preprovisioning_network().await?.map(|document| document.value()).transpose()
    }

    async fn preprovisioning_network(&self) -> Result<Option<Document>, HostDataError> {
        let reference =
            SecretReference { name: self.host.spec.preprovisioning_network_data_name.clone(), namespace: None };
        self.data(&reference, DataField::AgentNetwork, &["networkData", "value"]).await
    }

    /// The config drive's files.
    ///
    /// # Errors
    /// When a Secret is missing or unusable.
    pub async fn config_drive(&self) -> Result<ConfigDrive, HostDataError> {
        let empty = SecretReference::default();
        let spec = &self.host.spec;
        let user_data =
            self.data(spec.user_data.as_ref().unwrap_or(&empty), DataField::User, &["userData", "value"]).await?;
        let network = match self
            .data(spec.network_data.as_ref().unwrap_or(&empty), DataField::Network, &["networkData", "value"])
            .await?
        {
            Some(document) => Some(document),
            None => self.preprovisioning_network().await?,
        };
        let network = network.map(|document| document.value()).transpose()?;
        let extra =
            self.data(spec.meta_data.as_ref().unwrap_or(&empty), DataField::Meta, &["metaData", "value"]).await?;
        let mut meta_data = self.default_meta_data();
        if let Some(document) = extra {
            let Value::Object(fields) = document.value()? else {
                return Err(document.unusable("is no mapping"));
            };
            meta_data.extend(fields);
        }
        Ok(ConfigDrive {
            meta_data: Value::Object(meta_data).to_string(),
            network_data: network.map(|n| n.to_string()),
            user_data: user_data.map(|document| document.text),
        })
    }

    /// What baremetal-operator puts into meta data by default (`host_config_data.go`).
    fn default_meta_data(&self) -> Map<String, Value> {
        let name = self.host.name_any();
        let fields = [
            ("uuid", self.host.uid().unwrap_or_default()),
            ("metal3-namespace", self.namespace.clone()),
            ("metal3-name", name.clone()),
            ("local-hostname", name.clone()),
            ("local_hostname", name.clone()),
            ("name", name),
        ];
        fields.into_iter().map(|(k, v)| (k.to_owned(), Value::from(v))).collect()
    }
}

/// The Secret that the host names for the network of its agent's system.
pub fn network_of(host: &BareMetalHost) -> Option<&str> {
    host.spec.preprovisioning_network_data_name.as_deref().filter(|name| !name.is_empty())
}

/// The hosts that name the Secret for that, as the watch shows them.
pub fn networks(context: &Context, namespace: &str, name: &str) -> Vec<Arc<BareMetalHost>> {
    let Some(hosts) = context.hosts.store() else { return Vec::new() };
    let found = context.index.takes_data(namespace, name);
    found.iter().filter_map(|host| hosts.get(host)).filter(|host| network_of(host) == Some(name)).collect()
}

/// What a Secret has for a field.
struct Document {
    field: DataField,
    /// The field, the key and the Secret, for messages.
    from: String,
    text: String,
}

impl Document {
    /// YAML or JSON as JSON. What its aliases stand for counts as often as they stand there.
    fn value(&self) -> Result<Value, HostDataError> {
        let limits = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_total_scalar_bytes: MAX_DATA, max_nodes: MAX_NODES },
        };
        serde_saphyr::from_str_with_options(&self.text, limits).map_err(|error| {
            // The error's own text quotes the document, which is a Secret's.
            let place = error.location().map(|l| format!(" (line {}, column {})", l.line(), l.column()));
            self.unusable(&format!(
                "is neither YAML nor JSON, or stands for more than {MAX_DATA} bytes or {MAX_NODES} values{}",
                place.unwrap_or_default()
            ))
        })
    }

    fn unusable(&self, what: &str) -> HostDataError {
        HostDataError::unusable(self.field, format!("{} {what}", self.from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_aliases_stand_for_is_counted() {
        let read = |text: &str| {
            let from = "spec.networkData: networkData of the Secret net".to_owned();
            Document { field: DataField::Network, from, text: text.to_owned() }.value()
        };
        assert_eq!(read("a: &x 1\nb: *x").unwrap(), json!({"a": 1, "b": 1}));
        let text = format!("x: &a \"{}\"\nall: [{}]", "y".repeat(MAX_DATA / 10), ["*a"; 20].join(", "));
        let error = read(&text).unwrap_err().to_string();
        let named = error.contains("networkData of the Secret net is neither YAML nor JSON");
        assert!(named && error.contains("stands for more than") && !error.contains("yy"), "{error}");
        assert!(read(&format!("[{}]", "1,".repeat(MAX_NODES + 1))).is_err());
    }

    #[test]
    fn a_field_is_counted_by_the_name_that_upstreams_metric_has_for_it() {
        for (field, name, label) in [
            (DataField::User, "userData", "userData"),
            (DataField::Network, "networkData", "networkData"),
            (DataField::Meta, "metaData", "metaData"),
            (DataField::AgentNetwork, "preprovisioningNetworkDataName", "networkData"),
            (DataField::Registry, "image.ociAuthSecretName", "ociAuthSecretName"),
            (DataField::Images, "image", "images"),
        ] {
            assert_eq!((field.to_string().as_str(), field.label()), (name, label));
        }
    }
}
