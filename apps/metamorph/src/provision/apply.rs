//! Applies manifests to the embedded API: first all of them as a dry run, so that nothing is stored if one is rejected; then for real.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ErrorType, SecretReference};
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Request,
};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::manifests::{Object, Problem};

/// Owner of the fields that manifests set.
const MANAGER: &str = "metamorph-provision";
/// Largest answer, bytes: an object of the largest size, with some room.
const MAX_ANSWER: usize = 16 << 20;

/// Kinds that controllers act on; objects of other kinds are only stored.
const SERVED: [(&str, &str); 14] = [
    ("v1", "Namespace"),
    ("v1", "Secret"),
    ("metal3.io/v1alpha1", "BareMetalHost"),
    ("metal3.io/v1alpha1", "HardwareData"),
    ("metal3.io/v1alpha1", "HostFirmwareSettings"),
    ("metal3.io/v1alpha1", "HostFirmwareComponents"),
    ("metal3.io/v1alpha1", "FirmwareSchema"),
    ("metal3.io/v1alpha1", "HostUpdatePolicy"),
    ("metal3.io/v1alpha1", "HostClaim"),
    ("metal3.io/v1alpha1", "HostDeployPolicy"),
    ("metal3.io/v1alpha1", "HardwareClassification"),
    ("metamorph.metal3.io/v1alpha1", "HostClass"),
    ("metamorph.metal3.io/v1alpha1", "MachineRecord"),
    ("metamorph.metal3.io/v1alpha1", "HostOperation"),
];

/// An object and its API resource.
struct Placed {
    object: Object,
    resource: ApiResource,
    /// Its namespace, if its kind has them.
    namespace: Option<String>,
}

/// Manifests that passed the dry run.
pub struct Checked {
    placed: Vec<Placed>,
    force: bool,
    /// The API's warnings about them.
    pub warnings: Vec<Problem>,
}

/// The result of applying them.
#[derive(Debug, Default)]
pub struct Applied {
    /// Objects created.
    pub made: usize,
    /// Objects changed.
    pub changed: usize,
    /// Objects that were the same already.
    pub same: usize,
    /// The hosts among them: namespace, name, uid.
    pub hosts: Vec<[String; 3]>,
    /// Hosts in the state that are in no manifest: namespace and name.
    pub others: Vec<[String; 2]>,
}

/// One answer of the API.
struct Answer {
    status: StatusCode,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    /// Whether it is a refusal that names this field among its causes.
    fn refuses(&self, field: &str) -> bool {
        let causes = self.body["details"]["causes"].as_array();
        causes.is_some_and(|causes| causes.iter().any(|cause| cause["field"] == field))
    }
}

/// What a check found.
pub enum Review {
    /// All objects may be applied.
    Sound(Checked),
    /// What is wrong with them.
    Wrong(Vec<Problem>),
}

/// Sends all objects to the API as a dry run, which stores none.
///
/// # Errors
/// When the API does not answer.
pub async fn check(client: &Client, objects: Vec<Object>, force: bool) -> anyhow::Result<Review> {
    let known = Discovery::new(client.clone()).run_aggregated().await.context("ask the embedded API for its kinds")?;
    let (mut placed, mut problems) = (Vec::new(), Vec::new());
    for object in objects {
        match place(&known, object) {
            Ok(found) => placed.push(found),
            Err(problem) => problems.push(problem),
        }
    }
    // Namespaces first, then the objects that hosts refer to, then the hosts.
    placed.sort_by_key(|p| match p.object.kind.as_str() {
        "Namespace" => 0,
        "BareMetalHost" => 2,
        _ => 1,
    });
    let made = make_namespaces(client, &placed, &mut problems).await?;
    let mut warnings = Vec::new();
    for one in &placed {
        if one.namespace.as_ref().is_some_and(|namespace| made.refused.contains(namespace)) {
            continue;
        }
        let answer = patch(client, one, force, true).await?;
        let at = |message| Problem { source: one.object.source.clone(), message };
        let title = one.object.title();
        warnings.extend(answer.warnings.iter().map(|text| at(format!("{title}: {text}"))));
        if !SERVED.contains(&(one.object.api_version.as_str(), one.object.kind.as_str())) {
            warnings.push(at(format!("{title} is stored, and nothing is done for it")));
        }
        let mut wrong: Vec<String> = outlasts(&one.object).into_iter().collect();
        if !answer.status.is_success() {
            wrong.push(refusal(&answer));
        }
        wrong.extend(unsaid(&one.object, !wrong.is_empty(), answer.refuses("metadata.name")));
        problems.extend(wrong.into_iter().map(|text| at(format!("{title}: {text}"))));
    }
    missing_secrets(client, &placed, &mut problems).await?;
    if !placed.iter().any(|p| p.object.is("metal3.io/v1alpha1", "BareMetalHost")) && problems.is_empty() {
        let message = "there is no BareMetalHost in it, so there is nothing to provision".to_owned();
        problems.push(Problem { source: "all files".to_owned(), message });
    }
    if problems.is_empty() {
        return Ok(Review::Sound(Checked { placed, force, warnings }));
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in &made.names {
        namespaces.delete(name, &DeleteParams::default()).await.with_context(|| format!("remove namespace {name}"))?;
    }
    Ok(Review::Wrong(problems))
}

/// Why an object is refused whose work a run does not wait for, as that ends with the hosts.
fn outlasts(object: &Object) -> Option<String> {
    let is = |kind| object.is("metal3.io/v1alpha1", kind);
    let stays = |what: &str| Some(format!("a run {what} to a server that stays (`metamorph up`)"));
    match () {
        () if is("HostClaim") => stays(
            "waits for hosts only, and would end before the claim has one — declare the image on a BareMetalHost, or apply the HostClaim",
        ),
        () if is("DataImage") => {
            stays("reboots no host that is provisioned, and a data image is attached at a reboot — apply the DataImage")
        }
        () if is("BMCEventSubscription") => {
            stays("would leave the subscription on the BMC with nobody to end it — apply the BMCEventSubscription")
        }
        () if is_request(object) => stays(
            "brings hosts to what is declared, and would not wait for what is asked for once — create the HostOperation",
        ),
        () => None,
    }
}

/// Whether it is a HostOperation that asks for work, and not one that a host's controller has written.
fn is_request(object: &Object) -> bool {
    let owners = object.value["metadata"]["ownerReferences"].as_array();
    let controlled = owners.into_iter().flatten().any(|owner| owner["controller"] == Value::Bool(true));
    object.is("metamorph.metal3.io/v1alpha1", "HostOperation") && !controlled
}

/// Finds the API resource of the object's kind.
fn place(known: &Discovery, object: Object) -> Result<Placed, Problem> {
    let (group, version) = object.api_version.split_once('/').unwrap_or(("", &object.api_version));
    let found = known.resolve_gvk(&GroupVersionKind::gvk(group, version, &object.kind));
    let unserved = group == "metal3.io" && operator::UNSERVED.iter().any(|(kind, _)| *kind == object.kind);
    let found = found.filter(|(_, abilities)| !unserved && abilities.supports_operation(verbs::PATCH));
    let Some((resource, abilities)) = found else {
        let why = if unserved {
            "this version of Metamorph does not serve this kind: what it asks for would have no effect"
        } else {
            "this kind is not known here (kind and apiVersion must both be right)"
        };
        let message = format!("{} ({}): {why}", object.title(), object.api_version);
        return Err(Problem { source: object.source, message });
    };
    let namespace = (abilities.scope == Scope::Namespaced).then(|| object.namespace.clone());
    Ok(Placed { object, resource, namespace })
}

/// Namespaces that this run has created, and those that the API refuses.
#[derive(Default)]
struct Made {
    names: Vec<String>,
    refused: BTreeSet<String>,
}

/// Creates missing namespaces: even a dry run needs them.
async fn make_namespaces(client: &Client, placed: &[Placed], problems: &mut Vec<Problem>) -> anyhow::Result<Made> {
    let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
    for one in placed {
        if let Some(namespace) = &one.namespace {
            wanted.entry(namespace).or_insert(&one.object.source);
        }
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut made = Made::default();
    for (name, source) in wanted {
        if namespaces.get_opt(name).await.context("read a namespace")?.is_some() {
            continue;
        }
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
            Ok(_) => made.names.push(name.to_owned()),
            Err(kube::Error::Api(status)) => {
                made.refused.insert(name.to_owned());
                let message = format!("the namespace {name}: {}", status.message);
                problems.push(Problem { source: source.to_owned(), message });
            }
            Err(error) => return Err(error).context("make a namespace"),
        }
    }
    Ok(made)
}

/// Applies one object.
async fn patch(client: &Client, one: &Placed, force: bool, dry_run: bool) -> anyhow::Result<Answer> {
    let attempt = || format!("apply {}", one.object.title());
    let mut value = one.object.value.clone();
    if let (Some(namespace), Some(metadata)) = (&one.namespace, value["metadata"].as_object_mut()) {
        metadata.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let mut how = PatchParams::apply(MANAGER).validation_strict();
    (how.force, how.dry_run) = (force, dry_run);
    let path = DynamicObject::url_path(&one.resource, one.namespace.as_deref());
    let request = Request::new(path).patch(&one.object.name, &how, &Patch::Apply(&value)).with_context(attempt)?;
    send(client, request).await.with_context(attempt)
}

/// One request, with the answer's warnings, which a typed client drops.
async fn send(client: &Client, request: axum::http::Request<Vec<u8>>) -> anyhow::Result<Answer> {
    let (parts, body) = request.into_parts();
    let request = axum::http::Request::from_parts(parts, kube::client::Body::from(body));
    let (parts, body) = client.send(request).await?.into_parts();
    let body = axum::body::to_bytes(Body::new(body), MAX_ANSWER).await.context("read the answer")?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Answer { status: parts.status, body, warnings: warnings(&parts.headers) })
}

/// Texts of warnings: `299 - "text"` (RFC 7234 5.5).
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &str| {
        let inner = value.split_once('"')?.1.rsplit_once('"')?.0;
        Some(inner.replace("\\\"", "\"").replace("\\\\", "\\"))
    };
    // The text is UTF-8, which an HTTP header may contain.
    let all = headers.get_all(header::WARNING).iter();
    all.filter_map(|value| text(&String::from_utf8_lossy(value.as_bytes()))).collect()
}

/// The API's reason for a refusal, with advice where possible.
fn refusal(answer: &Answer) -> String {
    let message = answer.body["message"].as_str().unwrap_or("the API gives no reason");
    match answer.status {
        StatusCode::CONFLICT => format!("{message} — leave these fields out, or take them over with --force-conflicts"),
        _ => message.to_owned(),
    }
}

/// Problems that the API does not report: it checks no name if it cannot decode the body, and only warns of a host's image that can never be written.
fn unsaid(object: &Object, is_refused: bool, is_named: bool) -> Vec<String> {
    let mut found = Vec::new();
    // Roles and their bindings may have other names; for other kinds, the API reports invalid names.
    if is_refused && !is_named && SERVED.contains(&(object.api_version.as_str(), object.kind.as_str())) {
        let wrong = if object.kind == "Namespace" {
            names::dns_1123_label(&object.name)
        } else {
            names::dns_1123_subdomain(&object.name)
        };
        found.extend(wrong.iter().map(|wrong| format!("metadata.name: {wrong}")));
    }
    if object.is("metal3.io/v1alpha1", "BareMetalHost")
        && let Ok(host) = serde_json::from_value::<BareMetalHost>(object.value.clone())
    {
        let violations = host_lifecycle::validate(&host).err().unwrap_or_default();
        let lasting = violations.into_iter().filter(|v| !v.denied && v.error_type == Some(ErrorType::Provisioning));
        found.extend(lasting.map(|violation| violation.message));
    }
    found
}

/// Secrets that hosts refer to and that are neither given nor stored: no other client would create them during the run.
async fn missing_secrets(client: &Client, placed: &[Placed], problems: &mut Vec<Problem>) -> anyhow::Result<()> {
    let mut given: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for one in placed.iter().filter(|p| p.object.is("v1", "Secret")) {
        given.insert((&one.object.namespace, &one.object.name), &one.object.value["data"]);
    }
    for one in placed.iter().filter(|p| p.object.is("metal3.io/v1alpha1", "BareMetalHost")) {
        // Objects that do not decode as a BareMetalHost have been refused already.
        let Ok(host) = serde_json::from_value::<BareMetalHost>(one.object.value.clone()) else { continue };
        for (field, namespace, name) in references(&host, &one.object.namespace) {
            let stored;
            let data = if let Some(data) = given.get(&(namespace.as_str(), name.as_str())) {
                Some(*data)
            } else {
                let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
                stored = secrets.get_opt(&name).await.context("read a Secret")?.map(|secret| json!(secret.data));
                stored.as_ref()
            };
            let filled = |key: &str| data.is_some_and(|data| data[key].as_str().is_some_and(|text| !text.is_empty()));
            let wrong = if data.is_none() {
                Some("is neither given nor in the state".to_owned())
            } else if field == "spec.bmc.credentialsName" && !(filled("username") && filled("password")) {
                Some("needs username and password, neither empty".to_owned())
            } else {
                None
            };
            if let Some(wrong) = wrong {
                let message = format!("{}: {field} names Secret {namespace}/{name}, which {wrong}", one.object.title());
                problems.push(Problem { source: one.object.source.clone(), message });
            }
        }
    }
    Ok(())
}

/// The Secrets that a host refers to: field, namespace, name.
fn references(host: &BareMetalHost, namespace: &str) -> Vec<(&'static str, String, String)> {
    let spec = &host.spec;
    let of = |reference: &Option<SecretReference>| {
        let reference = reference.as_ref()?;
        let name = reference.name.clone().filter(|name| !name.is_empty())?;
        let stated = reference.namespace.clone().filter(|stated| !stated.is_empty());
        Some((stated.unwrap_or_else(|| namespace.to_owned()), name))
    };
    let near =
        |name: Option<&String>| name.filter(|name| !name.is_empty()).map(|name| (namespace.to_owned(), name.clone()));
    [
        ("spec.bmc.credentialsName", near(spec.bmc.as_ref().map(|bmc| &bmc.credentials_name))),
        ("spec.userData", of(&spec.user_data)),
        ("spec.networkData", of(&spec.network_data)),
        ("spec.metaData", of(&spec.meta_data)),
        ("spec.preprovisioningNetworkDataName", near(spec.preprovisioning_network_data_name.as_ref())),
    ]
    .into_iter()
    .filter_map(|(field, found)| found.map(|(namespace, name)| (field, namespace, name)))
    .collect()
}

impl Checked {
    /// Stores all of them.
    ///
    /// # Errors
    /// When the API does not answer, or refuses an object that it accepted as a dry run.
    pub async fn apply(self, client: &Client) -> anyhow::Result<Applied> {
        let mut applied = Applied::default();
        for one in &self.placed {
            let before = version(client, one).await?;
            let answer = patch(client, one, self.force, false).await?;
            if !answer.status.is_success() {
                bail!("{}: {}", one.object.title(), refusal(&answer));
            }
            let metadata = &answer.body["metadata"];
            let field = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
            match before {
                None => applied.made += 1,
                Some(version) if version == field("resourceVersion") => applied.same += 1,
                Some(_) => applied.changed += 1,
            }
            if one.object.is("metal3.io/v1alpha1", "BareMetalHost") {
                ensure!(!field("uid").is_empty(), "{} has no uid", one.object.title());
                applied.hosts.push([one.object.namespace.clone(), one.object.name.clone(), field("uid")]);
            }
        }
        let all = Api::<BareMetalHost>::all(client.clone()).list(&ListParams::default()).await.context("list hosts")?;
        for host in all {
            let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
            if !applied.hosts.iter().any(|[n, h, _]| (n, h) == (&namespace, &name)) {
                applied.others.push([namespace, name]);
            }
        }
        Ok(applied)
    }
}

/// The resourceVersion of the stored object.
async fn version(client: &Client, one: &Placed) -> anyhow::Result<Option<String>> {
    let api: Api<DynamicObject> = match &one.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &one.resource),
        None => Api::all_with(client.clone(), &one.resource),
    };
    let found = api.get_metadata_opt(&one.object.name).await.with_context(|| format!("read {}", one.object.title()))?;
    Ok(found.and_then(|object| object.resource_version()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_as_they_were_meant() {
        let mut headers = HeaderMap::new();
        headers.append(header::WARNING, r#"299 - "spec.taints says \"x\" and \\""#.parse().unwrap());
        headers.append(header::WARNING, "nonsense".parse().unwrap());
        assert_eq!(warnings(&headers), [r#"spec.taints says "x" and \"#]);
    }

    #[test]
    fn a_claim_is_refused_with_a_sentence() {
        let object = |kind: &str| Object {
            source: "x".to_owned(),
            api_version: "metal3.io/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            namespace: "default".to_owned(),
            name: "c".to_owned(),
            value: Value::Null,
        };
        assert!(outlasts(&object("HostClaim")).unwrap().contains("waits for hosts only"));
        assert!(outlasts(&object("DataImage")).unwrap().contains("attached at a reboot"));
        assert!(outlasts(&object("BMCEventSubscription")).unwrap().contains("nobody to end it"));
        assert!(outlasts(&object("BareMetalHost")).is_none() && outlasts(&object("HostDeployPolicy")).is_none());
        let mut request = Object { api_version: "metamorph.metal3.io/v1alpha1".to_owned(), ..object("HostOperation") };
        assert!(outlasts(&request).unwrap().contains("asked for once"));
        request.value = json!({ "metadata": { "ownerReferences": [{ "uid": "u", "controller": true }] } });
        assert!(outlasts(&request).is_none());
    }

    #[test]
    fn all_secrets_of_a_host_are_looked_for() {
        let host = json!({ "metadata": { "name": "a" }, "spec": { "online": true,
            "bmc": { "address": "x", "credentialsName": "c" }, "userData": { "name": "u", "namespace": "other" },
            "networkData": { "name": "n" }, "metaData": { "name": "" }, "preprovisioningNetworkDataName": "p" } });
        let found = references(&serde_json::from_value(host).unwrap(), "own");
        let found: Vec<String> =
            found.iter().map(|(field, namespace, name)| format!("{field} {namespace}/{name}")).collect();
        assert_eq!(
            found,
            [
                "spec.bmc.credentialsName own/c",
                "spec.userData other/u",
                "spec.networkData own/n",
                "spec.preprovisioningNetworkDataName own/p"
            ]
        );
    }
}
