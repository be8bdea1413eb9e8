//! Helpers that several commands share: a Kubernetes client, definitions, readable errors.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::say;

/// How long a connection may be silent while an answer is awaited: an API behind a load balancer that hangs would hold each call for ever. Longer
/// than a watch without events, which the API server ends after 290 s.
const SILENCE: Duration = Duration::from_secs(295);

/// Objects that are asked for at once.
const PAGE: u32 = 200;

/// A client for this kubeconfig, or for the environment's default.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("use the kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context(
            "find a Kubernetes API (KUBECONFIG, ~/.kube/config or in a cluster); name one with --kubeconfig",
        )?,
    };
    (config.read_timeout, config.reset_reader_on_write) = (Some(SILENCE), true);
    Client::try_from(config).context("make a Kubernetes client")
}

/// Shows all objects of a kind, a page at a time: `what` is their name in errors.
pub async fn each<K>(client: &Client, namespace: Option<&str>, what: &str, mut see: impl FnMut(K)) -> anyhow::Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = api.list(&page).await.with_context(|| format!("list the {what}"))?;
        let next = listed.metadata.continue_.clone().filter(|next| !next.is_empty());
        listed.items.into_iter().for_each(&mut see);
        let Some(next) = next else { return Ok(()) };
        page = page.continue_token(&next);
    }
}

/// Why these objects are not read, where the caller may not or there is no definition of them: what is missing, a sentence. `None` of other failures.
pub fn not_read(error: &anyhow::Error, verb: &str, resource: &str, namespace: Option<&str>) -> Option<String> {
    let kube::Error::Api(status) = error.downcast_ref::<kube::Error>()? else { return None };
    let place = namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in the namespace {name}"));
    match status.code {
        403 => Some(format!("you have no right to: it needs the verb {verb} on {resource} {place}")),
        404 => Some(format!("there is no definition of {resource}: apply those of this version (metamorph crds)")),
        _ => None,
    }
}

/// Whether there is a definition, and no object of that name: without the definition the API names none.
pub fn is_no_object(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// A client of the administrator for the API that this process serves: its calls take the same way as those of others, without a connection.
pub fn of_served(api: &apiserver::Server) -> Client {
    Client::new(api.caller(apiserver::Identity::administrator()), "default")
}

/// Installs the admission policies.
pub async fn apply_policies(client: &Client) -> anyhow::Result<()> {
    for document in api::crds::POLICIES.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).context("read the admission policies")?;
        let object: DynamicObject = serde_json::from_value(object).context("read the admission policies")?;
        let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let name = object.metadata.name.clone().unwrap_or_default();
        let how = PatchParams::apply("metamorph").force();
        api.patch(&name, &how, &Patch::Apply(&object))
            .await
            .with_context(|| format!("install the {} {name}", kind.kind))?;
    }
    Ok(())
}

/// Prints the custom resource definitions and admission policies.
pub fn print_crds() -> anyhow::Result<()> {
    for crd in api::crds::all()? {
        say::out(&format!("---\n{}\n", crd.trim_start().trim_start_matches("---\n").trim_end()))?;
    }
    say::out(&format!("---\n{}\n", api::crds::POLICIES.trim_end()))
}
