//! Copies, in a host's namespace, of the Secrets that a claim of another namespace names.
//!
//! A copy is found by its name, which is made of the uids of claim and host; it bears the claim's uid as a label, the host as its owner, and where it
//! comes from. A Secret of that name without that label is somebody else's, and left alone.

use std::collections::BTreeSet;

use api::metal3::{BareMetalHost, HostClaim, annotation, label};
use host_claims::{Data, Fact, Role};
use host_lifecycle::is_name;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Resource as _, ResourceExt as _};
use sha2::{Digest as _, Sha256};

use super::claims::Claims;
use super::write::LookError;

/// Name of the copy for this role, in the host's namespace.
fn name(claim: &HostClaim, host: &BareMetalHost, role: Role) -> String {
    let uids = format!("{}/{}", claim.uid().unwrap_or_default(), host.uid().unwrap_or_default());
    let digest = hex::encode(Sha256::digest(uids));
    format!("hostclaim-{}-{}", role.word(), digest.get(..16).unwrap_or_default())
}

fn is_of(metadata: &ObjectMeta, claim: &HostClaim) -> bool {
    let found = metadata.labels.as_ref().and_then(|labels| labels.get(label::CLAIM));
    found.is_some() && found == claim.metadata.uid.as_ref()
}

fn annotated<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The Secret that a host is to name for a role.
pub enum Provided {
    /// None: the claim names none.
    Nothing,
    /// The Secret of this name in the host's namespace.
    Secret(String),
    /// There is none yet, and this says why.
    Missing(Fact),
}

impl Claims {
    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.host.client.clone(), namespace)
    }

    /// Ensures that the Secret for this role exists in the host's namespace.
    pub async fn provide(&self, claim: &HostClaim, host: &BareMetalHost, role: Role) -> Result<Provided, LookError> {
        let source = match role.named(claim) {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(Provided::Nothing),
            Err(what) => return Ok(Provided::Missing(Fact::no(role.reason(), what))),
        };
        let (from_namespace, theirs) = (claim.namespace().unwrap_or_default(), host.namespace().unwrap_or_default());
        if from_namespace == theirs {
            return Ok(Provided::Secret(source.to_owned()));
        }
        if !is_name(source) {
            let what = format!("{}: it names a Secret by what no Secret can be called", role.field());
            return Ok(Provided::Missing(Fact::no(role.reason(), what)));
        }
        let copy = name(claim, host, role);
        if self.is_current(claim, (&from_namespace, source), (&theirs, &copy)) {
            return Ok(Provided::Secret(copy));
        }
        let found = match self.secrets(&from_namespace).get_opt(source).await {
            Err(kube::Error::Api(error)) if error.code == 403 => {
                let what =
                    format!("{} is Secret {from_namespace}/{source}, which the server may not read", role.field());
                return Ok(Provided::Missing(Fact::no(role.reason(), what)));
            }
            found => found.map_err(LookError::api("read a Secret of the claim"))?,
        };
        let before = self.secrets(&theirs).get_opt(&copy).await.map_err(LookError::api("read a copy of a Secret"))?;
        let from = format!("{from_namespace}/{source}");
        if let Some(before) = &before
            && !is_of(&before.metadata, claim)
        {
            let what = format!(
                "{}: there is a Secret {theirs}/{copy} of somebody else, where the copy would be",
                role.field()
            );
            return Ok(Provided::Missing(Fact::no(role.reason(), what)));
        }
        if before.as_ref().is_some_and(|before| before.metadata.deletion_timestamp.is_some()) {
            let what = format!(
                "{}: the copy {theirs}/{copy} of an earlier version is being removed, and somebody's finalizers hold it: it is made anew when it is gone",
                role.field()
            );
            return Ok(Provided::Missing(Fact::no(role.reason(), what)));
        }
        let Some(found) = found else {
            // The source was deleted: the copy stays while the claim asks for it.
            if before.is_some_and(|before| annotated(&before.metadata, annotation::COPIED_FROM) == Some(&from)) {
                return Ok(Provided::Secret(copy));
            }
            let what = format!(
                "{} is Secret {from}, which does not exist: the claim goes on as soon as it is there",
                role.field()
            );
            return Ok(Provided::Missing(Fact::no(role.reason(), what)));
        };
        self.copy(claim, host, (&copy, &from), found, before).await.map(|()| Provided::Secret(copy))
    }

    /// Whether the caches show that the copy matches the source's current version.
    fn is_current(&self, claim: &HostClaim, source: (&str, &str), copy: (&str, &str)) -> bool {
        let bodies = &self.host.bodies;
        let (Some(source_now), Some(copy_now)) = (bodies.watched(source.0, source.1), bodies.watched(copy.0, copy.1))
        else {
            return false;
        };
        is_of(&copy_now.metadata, claim)
            && annotated(&copy_now.metadata, annotation::COPIED_FROM) == Some(&format!("{}/{}", source.0, source.1))
            && annotated(&copy_now.metadata, annotation::COPIED_VERSION) == Some(&version(&source_now.metadata))
    }

    async fn copy(
        &self,
        claim: &HostClaim,
        host: &BareMetalHost,
        (name, from): (&str, &str),
        source: Secret,
        before: Option<Secret>,
    ) -> Result<(), LookError> {
        if !(self.host.settings.may_act)() {
            return Err(LookError::NotLeading);
        }
        let api = self.secrets(&host.namespace().unwrap_or_default());
        let version = version(&source.metadata);
        let mut copy = Secret { type_: source.type_, data: source.data, ..Secret::default() };
        copy.metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: host.namespace(),
            labels: Some(
                [
                    (label::CLAIM.to_owned(), claim.uid().unwrap_or_default()),
                    (label::ENVIRONMENT.to_owned(), label::ENVIRONMENT_VALUE.to_owned()),
                ]
                .into(),
            ),
            annotations: Some(
                [
                    (annotation::COPIED_FROM.to_owned(), from.to_owned()),
                    (annotation::COPIED_VERSION.to_owned(), version),
                ]
                .into(),
            ),
            owner_references: host
                .owner_ref(&())
                .map(|owner| vec![OwnerReference { block_owner_deletion: None, controller: None, ..owner }]),
            ..ObjectMeta::default()
        };
        let Some(before) = before else {
            let made = api.create(&PostParams::default(), &copy).await;
            return made.map(|_| ()).map_err(LookError::api("copy a Secret of the claim"));
        };
        if before.type_ != copy.type_ {
            // A Secret's type is immutable: delete the copy, and the next look recreates it.
            self.remove(&api, &before.metadata).await?;
            return Err(LookError::Moved);
        }
        copy.metadata.resource_version = before.metadata.resource_version;
        copy.metadata.uid = before.metadata.uid;
        // Keep finalizers of other controllers.
        copy.metadata.finalizers = before.metadata.finalizers;
        let written = api.replace(name, &PostParams::default(), &copy).await;
        written.map(|_| ()).map_err(LookError::api("bring a copy of a Secret up to date"))
    }

    async fn remove(&self, api: &Api<Secret>, metadata: &ObjectMeta) -> Result<(), LookError> {
        if !(self.host.settings.may_act)() {
            return Err(LookError::NotLeading);
        }
        let this = Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        match api.delete(metadata.name.as_deref().unwrap_or_default(), &params).await {
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
            deleted => deleted.map(|_| ()).map_err(LookError::api("remove a copy of a Secret")),
        }
    }

    /// Removes copies that the claim no longer asks for, including those for other hosts in any namespace.
    pub async fn clear(&self, claim: &HostClaim, host: &BareMetalHost, data: &Data) -> Result<(), LookError> {
        let namespace = host.namespace();
        let kept = [&data.user_data, &data.meta_data, &data.network_data, &data.registry];
        let is_kept = |metadata: &ObjectMeta| {
            metadata.namespace == namespace && kept.iter().any(|name| name.is_some() && **name == metadata.name)
        };
        for copy in self.host.bodies.watched_matching(|metadata| is_of(metadata, claim) && !is_kept(metadata)) {
            if copy.metadata.deletion_timestamp.is_none() {
                self.remove(&self.secrets(&copy.namespace().unwrap_or_default()), &copy.metadata).await?;
            }
        }
        Ok(())
    }

    /// Removes all copies made for the claim, in these namespaces and wherever the watch shows any.
    pub async fn clear_all(&self, claim: &HostClaim, namespaces: impl Iterator<Item = &str>) -> Result<(), LookError> {
        let copies = self.host.bodies.watched_matching(|metadata| is_of(metadata, claim));
        let copies = copies.iter().filter_map(|copy| copy.metadata.namespace.clone());
        let all: BTreeSet<String> = namespaces.map(ToOwned::to_owned).chain(copies).collect();
        let wanted = ListParams::default().labels(&format!("{}={}", label::CLAIM, claim.uid().unwrap_or_default()));
        for namespace in all {
            let api = self.secrets(&namespace);
            let found = api.list_metadata(&wanted).await.map_err(LookError::api("list copies of Secrets"))?;
            for copy in found.items.iter().filter(|copy| copy.metadata.deletion_timestamp.is_none()) {
                self.remove(&api, &copy.metadata).await?;
            }
        }
        Ok(())
    }
}

/// Identifies a version of a Secret, even across a recreation.
fn version(metadata: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        metadata.uid.as_deref().unwrap_or_default(),
        metadata.resource_version.as_deref().unwrap_or_default()
    )
}
