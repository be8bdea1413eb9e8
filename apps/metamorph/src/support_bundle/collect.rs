//! What goes into a bundle, part by part.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use super::{Bundle, Scope};
use crate::api_reader::{Reader, Unread, secret_keys};
use crate::probe::{self, Question};

/// Kinds of these groups are ours or Metal³'s.
const GROUPS: [&str; 4] = ["metal3.io", "metamorph.metal3.io", "infrastructure.cluster.x-k8s.io", "ironic.metal3.io"];
/// Of Cluster API's group, the kinds of Metal³'s provider begin so.
const PROVIDERS: &str = "metal3";
/// Most objects of a kind.
const MOST_OBJECTS: usize = 50_000;
/// Most Events, and most bytes of them.
const MOST_EVENTS: usize = 20_000;
const EVENT_BYTES: usize = 6 << 20;
/// Newest lines of a container's log that are asked for, and most bytes of them that are sent.
const LOG_LINES: u32 = 20_000;
const LOG_BYTES: u32 = 32 << 20;
/// Newest bytes of them that are kept.
const LOG_KEPT: usize = 4 << 20;
/// Containers whose logs are read.
const MOST_LOGS: usize = 20;
/// Most bytes of metrics.
const MAX_METRICS: usize = 7 << 20;

const JSON: &str = "application/json";
/// Rows of a table: what `kubectl get` shows, and of the objects their metadata.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Why nothing more is read.
pub const LATE: &str = "the time for collecting is over";

/// A kind of objects.
struct Kind {
    group: String,
    version: String,
    plural: String,
    namespaced: bool,
}

impl Kind {
    fn path(&self, namespace: Option<&str>) -> String {
        let base = format!("/apis/{}/{}", self.group, self.version);
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }
}

/// Names of Secrets that objects refer to, by namespace.
type Referred = BTreeMap<String, BTreeSet<String>>;

/// What helps most, before the objects, which may fill the bundle: the server's pods and logs, definitions, Leases, webhooks.
pub async fn site(bundle: &mut Bundle, reader: &Reader, scope: &Scope) -> anyhow::Result<()> {
    server(bundle, reader, &scope.own_namespace).await?;
    cluster(bundle, reader, &scope.own_namespace).await
}

/// The objects, their namespaces, and what is to be known of the Secrets that they name.
pub async fn all(bundle: &mut Bundle, reader: &Reader, scope: &Scope) -> anyhow::Result<()> {
    let mut namespaces = BTreeSet::new();
    let mut referred = Referred::new();
    for group in GROUPS {
        for kind in kinds(bundle, reader, group).await {
            objects(bundle, reader, scope, &kind, &mut namespaces, &mut referred).await?;
        }
    }
    // An empty list of each kind would be the only trace of a name that is wrong.
    if namespaces.is_empty() && bundle.over().is_none() {
        let place =
            scope.namespace.as_ref().map_or_else(|| "any namespace".to_owned(), |name| format!("the namespace {name}"));
        let of_host = scope.host.as_ref().map(|host| format!(" of the host {host}")).unwrap_or_default();
        let why = format!("none was found{of_host}, of those that may be read: is the name right (--namespace)?");
        bundle.left_out(&format!("objects in {place}"), &why);
    }
    namespaces.extend(scope.namespace.clone());
    for namespace in &namespaces {
        if let Some(why) = bundle.over() {
            bundle.left_out("namespaces", why);
            break;
        }
        one(bundle, reader, "namespaces", namespace, &format!("/api/v1/namespaces/{namespace}")).await?;
    }
    secrets(bundle, reader, &referred).await
}

/// The kinds of a group that can be listed.
async fn kinds(bundle: &mut Bundle, reader: &Reader, group: &str) -> Vec<Kind> {
    let found = match reader.object(&format!("/apis/{group}")).await {
        Ok(found) => found,
        // Not every site has each group.
        Err(Unread::Absent) => return Vec::new(),
        Err(why) => {
            bundle.left_out(group, &why.to_string());
            return Vec::new();
        }
    };
    let Some(version) = found["preferredVersion"]["version"].as_str() else { return Vec::new() };
    let resources = match reader.object(&format!("/apis/{group}/{version}")).await {
        Ok(resources) => resources,
        Err(why) => {
            bundle.left_out(group, &why.to_string());
            return Vec::new();
        }
    };
    let listed = resources["resources"].as_array().into_iter().flatten();
    let of_metal3 = |plural: &str| group != "infrastructure.cluster.x-k8s.io" || plural.starts_with(PROVIDERS);
    listed
        .filter_map(|resource| {
            let plural = resource["name"].as_str().filter(|name| !name.contains('/') && of_metal3(name))?;
            let lists = resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            lists.then(|| Kind {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                namespaced: resource["namespaced"].as_bool().unwrap_or(true),
            })
        })
        .collect()
}

/// The text of a field that is a part of a file's name.
fn safe(text: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') { c } else { '_' };
    let name: String = text.chars().take(253).map(safe).collect();
    // Neither a folder above nor a hidden file.
    name.trim_start_matches('.').to_owned()
}

/// Kinds whose objects say by rules which hosts they mean, and name none, or which name what hosts are cabled to.
const BY_RULE: [&str; 4] = ["hostclasses", "hardwareclassifications", "hostdiscoveries", "baremetalswitches"];

/// Whether an object is of the host, or names it.
fn concerns(object: &Value, host: &str) -> bool {
    fn names(value: &Value, host: &str) -> bool {
        match value {
            Value::String(said) => said == host,
            Value::Array(items) => items.iter().any(|item| names(item, host)),
            Value::Object(fields) => fields.values().any(|field| names(field, host)),
            _ => false,
        }
    }
    object["metadata"]["name"] == host
        || names(&object["spec"], host)
        || names(&object["status"], host)
        || names(&object["metadata"]["ownerReferences"], host)
        || names(&object["metadata"]["labels"], host)
}

async fn objects(
    bundle: &mut Bundle,
    reader: &Reader,
    scope: &Scope,
    kind: &Kind,
    namespaces: &mut BTreeSet<String>,
    referred: &mut Referred,
) -> anyhow::Result<()> {
    let what = format!("{}.{}", kind.plural, kind.group);
    if let Some(why) = bundle.over() {
        bundle.left_out(&what, why);
        return Ok(());
    }
    let (mut number, mut failed) = (0, None);
    let read = reader
        .each(&kind.path(scope.namespace.as_deref()), JSON, "items", |mut object| {
            let is_by_rule = BY_RULE.contains(&kind.plural.as_str());
            if !is_by_rule && scope.host.as_deref().is_some_and(|host| !concerns(&object, host)) {
                return true;
            }
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or("_cluster").to_owned();
            if kind.namespaced {
                refers(&object, &namespace, referred);
                namespaces.insert(namespace.clone());
            }
            let name = safe(object["metadata"]["name"].as_str().unwrap_or_default());
            let file = format!("objects/{}/{}/{name}.json", safe(&namespace), kind.plural);
            match bundle.add_value(&file, &mut object) {
                Ok(true) => number += 1,
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            failed.is_none() && number < MOST_OBJECTS && bundle.over().is_none()
        })
        .await;
    if let Some(error) = failed {
        return Err(error);
    }
    match read {
        Err(why) => bundle.left_out(&what, &why.to_string()),
        Ok(()) if number >= MOST_OBJECTS => bundle.left_out(&what, "there are more than are taken"),
        Ok(()) => {
            if let Some(why) = bundle.over() {
                bundle.left_out(&format!("further objects of {what}"), why);
            }
        }
    }
    bundle.part(&what, number);
    Ok(())
}

/// Notes the Secrets that an object names.
fn refers(object: &Value, namespace: &str, referred: &mut Referred) {
    let spec = &object["spec"];
    let plain = [
        &spec["bmc"]["credentialsName"],
        &spec["credentialsName"],
        &spec["preprovisioningNetworkDataName"],
        &spec["image"]["ociAuthSecretName"],
    ];
    let all = ["userData", "networkData", "metaData", "httpHeadersRef"].map(|field| &spec[field]);
    let named = plain.into_iter().filter_map(Value::as_str).map(|name| (namespace, name));
    let pairs = all.into_iter().filter_map(|reference| {
        Some((reference["namespace"].as_str().unwrap_or(namespace), reference["name"].as_str()?))
    });
    // They become parts of paths, and any text may stand in the object.
    let is_one = |(namespace, name): &(&str, &str)| {
        names::dns_1123_label(namespace).is_empty() && names::dns_1123_subdomain(name).is_empty()
    };
    for (namespace, name) in named.chain(pairs).filter(is_one) {
        referred.entry(namespace.to_owned()).or_default().insert(name.to_owned());
    }
}

async fn one(bundle: &mut Bundle, reader: &Reader, what: &str, name: &str, path: &str) -> anyhow::Result<()> {
    match reader.object(path).await {
        Ok(mut object) => {
            bundle.add_value(&format!("{what}/{}.json", safe(name)), &mut object)?;
        }
        Err(why) => bundle.left_out(&format!("{what}/{name}"), &why.to_string()),
    }
    Ok(())
}

/// Events about objects of our groups: the newest, a line each.
pub async fn events(bundle: &mut Bundle, reader: &Reader, scope: &Scope, until: Instant) -> anyhow::Result<()> {
    let path = match &scope.namespace {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/events"),
        None => "/api/v1/events".to_owned(),
    };
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    let (mut dropped, mut late) = (0_usize, false);
    let read = reader
        .each(&path, JSON, "items", |event| {
            let about = &event["involvedObject"];
            let group = about["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
            let of_host = scope.host.as_deref().is_none_or(|host| about["name"] == host);
            if !GROUPS.contains(&group) || !of_host {
                return true;
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let time =
                ["lastTimestamp", "eventTime"].iter().map(|field| text(&event[*field])).find(|time| !time.is_empty());
            let time = time.unwrap_or_else(|| text(&event["metadata"]["creationTimestamp"]));
            let line = format!(
                "{time} {} {}/{} {} {} x{}: {}",
                text(&event["type"]),
                text(&about["namespace"]),
                text(&about["name"]),
                text(&about["kind"]),
                text(&event["reason"]),
                event["count"].as_u64().unwrap_or(1),
                text(&event["message"])
            );
            found.insert((time, terms::clean(&line, 2000)));
            if found.len() > MOST_EVENTS {
                found.pop_first();
                dropped += 1;
            }
            late = Instant::now() >= until;
            !late
        })
        .await;
    if let Err(why) = read {
        bundle.left_out("events", &why.to_string());
    }
    if late {
        bundle.left_out("events", LATE);
    }
    if dropped > 0 {
        bundle.left_out("events", &format!("{dropped} older ones"));
    }
    bundle.part("events", found.len());
    let mut room = EVENT_BYTES;
    let fits = |(_, line): &&(String, String)| {
        let left = room.checked_sub(line.len() + 1);
        room = left.unwrap_or(0);
        left.is_some()
    };
    let kept: Vec<&(String, String)> = found.iter().rev().take_while(fits).collect();
    if kept.len() < found.len() {
        bundle.left_out("events", &format!("{} older ones", found.len() - kept.len()));
    }
    let lines: String = kept.into_iter().rev().map(|(_, line)| format!("{line}\n")).collect();
    bundle.add_text("events.txt", &lines)
}

/// Names, types and keys of the Secrets that are referred to: of a table, in which no bodies are.
async fn secrets(bundle: &mut Bundle, reader: &Reader, referred: &Referred) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for (namespace, names) in referred {
        if !bundle.has_time() {
            bundle.left_out(&format!("Secrets of the namespace {namespace}"), LATE);
            continue;
        }
        let mut missing = names.clone();
        let read = reader
            .each(&format!("/api/v1/namespaces/{namespace}/secrets"), TABLE, "rows", |row| {
                let metadata = &row["object"]["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default();
                if missing.remove(name) {
                    all.push(json!({
                        "namespace": namespace, "name": name, "type": row["cells"][1], "keys": secret_keys(metadata), "created": metadata["creationTimestamp"],
                    }));
                }
                !missing.is_empty() && bundle.has_time()
            })
            .await;
        match read {
            Ok(()) if !missing.is_empty() && !bundle.has_time() => {
                bundle.left_out(&format!("Secrets of the namespace {namespace}"), LATE);
            }
            Err(why) => bundle.left_out(&format!("Secrets of the namespace {namespace}"), &why.to_string()),
            Ok(()) => {
                all.extend(missing.iter().map(|name| json!({ "namespace": namespace, "name": name, "missing": true })))
            }
        }
    }
    bundle.part("secrets (names, types and keys)", all.len());
    let text = serde_json::to_vec_pretty(&all)?;
    bundle.add_last("secrets.json", &text)?;
    Ok(())
}

/// What is not in a namespace of hosts: definitions, webhooks, Leases.
async fn cluster(bundle: &mut Bundle, reader: &Reader, own_namespace: &str) -> anyhow::Result<()> {
    let mut definitions = Vec::new();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let read = reader
        .each(path, JSON, "items", |object| {
            let spec = &object["spec"];
            if spec["group"].as_str().is_some_and(|group| GROUPS.contains(&group)) {
                let served = spec["versions"].as_array().into_iter().flatten();
                definitions.push(json!({
                    "name": object["metadata"]["name"], "generation": object["metadata"]["generation"],
                    "versions": served.map(|version| json!({ "name": version["name"], "served": version["served"], "storage": version["storage"] })).collect::<Vec<_>>(),
                    "stored": object["status"]["storedVersions"], "conditions": object["status"]["conditions"],
                    "annotations": object["metadata"]["annotations"],
                }));
            }
            true
        })
        .await;
    if let Err(why) = read {
        bundle.left_out("definitions", &why.to_string());
    }
    bundle.part("definitions", definitions.len());
    bundle.add_value("definitions.json", &mut Value::from(definitions))?;
    let lists = [
        ("leases", format!("/apis/coordination.k8s.io/v1/namespaces/{own_namespace}/leases"), ""),
        ("webhooks", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".to_owned(), "metal3"),
    ];
    for (what, path, word) in lists {
        let mut all = Vec::new();
        let read = reader.each(&path, JSON, "items", |object| {
            if word.is_empty() || object.to_string().contains(word) {
                all.push(object);
            }
            all.len() < 200
        });
        if let Err(why) = read.await {
            bundle.left_out(what, &why.to_string());
            continue;
        }
        bundle.part(what, all.len());
        all.iter_mut().for_each(super::redact::object);
        bundle.add_value(&format!("{what}.json"), &mut Value::from(all))?;
    }
    Ok(())
}

/// The server's pods: images, arguments and ends, and the last lines of their logs.
async fn server(bundle: &mut Bundle, reader: &Reader, namespace: &str) -> anyhow::Result<()> {
    let (mut pods, mut logs) = (Vec::new(), Vec::new());
    let base = format!("/api/v1/namespaces/{namespace}/pods");
    let read = reader
        .each(&base, JSON, "items", |pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let containers: Vec<Value> = containers
                .map(|one| json!({ "name": one["name"], "image": one["image"], "command": one["command"], "args": one["args"], "resources": one["resources"] }))
                .collect();
            logs.extend(containers.iter().filter_map(|one| Some((name.to_owned(), one["name"].as_str()?.to_owned()))));
            pods.push(json!({
                "name": name, "labels": pod["metadata"]["labels"], "node": pod["spec"]["nodeName"], "phase": pod["status"]["phase"],
                "containers": containers, "statuses": pod["status"]["containerStatuses"], "conditions": pod["status"]["conditions"],
            }));
            pods.len() < 100
        })
        .await;
    match read {
        Ok(()) => {
            bundle.part("pods of the server's namespace", pods.len());
            if pods.is_empty() {
                let why = format!(
                    "there are no pods in {namespace}: name the server's namespace by --own-namespace (`metamorph up` has none, and its logs are where it runs)"
                );
                bundle.left_out("logs of the server", &why);
            }
        }
        Err(Unread::Absent) => {
            let why = "this Kubernetes API knows no pods: the server runs elsewhere, as with `metamorph up`, and its logs are there";
            bundle.left_out("logs of the server", why);
            return Ok(());
        }
        Err(why) => bundle.left_out("pods of the server's namespace", &why.to_string()),
    }
    bundle.add_value("pods.json", &mut Value::from(pods))?;
    if logs.len() > MOST_LOGS {
        bundle.left_out("logs", &format!("of {} further containers", logs.len() - MOST_LOGS));
    }
    for (pod, container) in logs.into_iter().take(MOST_LOGS) {
        let path = format!(
            "{base}/{}/log?container={}&tailLines={LOG_LINES}&limitBytes={LOG_BYTES}&timestamps=true",
            safe(&pod),
            safe(&container)
        );
        let file = format!("logs/{}-{}.txt", safe(&pod), safe(&container));
        if !bundle.has_time() {
            bundle.left_out(&file, LATE);
            continue;
        }
        match reader.text(&path, "*/*").await {
            Ok(text) => {
                let kept = newest(&text);
                if kept.len() < text.len() {
                    bundle.left_out(&file, "all but the newest 4 MiB");
                }
                bundle.add_text(&file, kept)?;
            }
            Err(why) => bundle.left_out(&file, &why.to_string()),
        }
    }
    Ok(())
}

/// The newest whole lines: what a line says of a secret stands before it.
fn newest(text: &str) -> &str {
    if text.len() <= LOG_KEPT {
        return text;
    }
    let kept = text.get(text.ceil_char_boundary(text.len() - LOG_KEPT)..).unwrap_or_default();
    kept.split_once('\n').map_or("", |(_, whole)| whole)
}

/// The server's metrics, from this address. They name hosts and namespaces, and no secrets.
pub async fn metrics(bundle: &mut Bundle, url: &Url) -> anyhow::Result<()> {
    let what = format!("metrics of {}", ::addresses::without_secrets(url));
    match probe::ask(&Question { body: MAX_METRICS, ..Question::get(url) }).await {
        // Their long names are no secrets.
        Ok(answer) if answer.status == 200 => {
            let text = super::redact::printable(&String::from_utf8_lossy(&answer.body));
            bundle.add("metrics.txt", text.as_bytes())?;
            bundle.part("metrics", text.lines().count());
            if answer.body.len() >= MAX_METRICS {
                bundle.left_out("metrics.txt", "all but the first 7 MiB");
            }
        }
        Ok(answer) => bundle.left_out(&what, &format!("it answers {}", answer.status)),
        Err(trouble) => bundle.left_out(&what, &trouble.to_string()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_their_folder() {
        assert_eq!(safe("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(safe(".."), "");
        assert_eq!(safe("node-0.rack"), "node-0.rack");
        assert_eq!(safe(&"x".repeat(1000)).len(), 253);
    }

    #[test]
    fn a_long_log_is_cut_at_a_line() {
        assert_eq!(newest("a\nb\n"), "a\nb\n");
        let long = format!("password: {}\nnew\n", "ä".repeat(LOG_KEPT));
        assert_eq!(newest(&long), "new\n");
    }

    #[test]
    fn an_object_concerns_the_host_that_it_names() {
        let operation = json!({ "metadata": { "name": "o" }, "spec": { "host": { "name": "node-0" } } });
        assert!(concerns(&operation, "node-0") && !concerns(&operation, "node-"));
        let owned = json!({ "metadata": { "name": "x", "ownerReferences": [{ "name": "node-0" }] } });
        assert!(concerns(&owned, "node-0"));
    }

    #[test]
    fn the_secrets_of_a_host_are_named_and_their_keys_are_known_by_their_writers() {
        let mut referred = Referred::new();
        let host = json!({ "spec": {
            "bmc": { "credentialsName": "bmc" }, "userData": { "name": "user", "namespace": "other" }, "networkData": { "name": "net" }, "image": { "ociAuthSecretName": "" },
        } });
        refers(&host, "n", &mut referred);
        let names = |namespace: &str| referred[namespace].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((names("n"), names("other")), (vec!["bmc", "net"], vec!["user"]));
        let path = json!({ "spec": {
            "userData": { "name": "x", "namespace": "kube-system/services/http:x:80/proxy/do?a=" }, "networkData": { "name": "../../x" },
        } });
        let before = referred.clone();
        refers(&path, "n", &mut referred);
        assert_eq!(referred, before);
        let metadata = json!({ "managedFields": [{ "fieldsV1": { "f:data": { ".": {}, "f:username": {}, "f:password": {} }, "f:type": {} } }] });
        assert_eq!(secret_keys(&metadata).into_iter().collect::<Vec<_>>(), ["password", "username"]);
    }
}
