//! The default roles and bindings (`bootstrap.txt`). Missing ones are created, and lost rules and subjects restored
//! unless an annotation opts out.
//!
//! Reconciliation follows component-helpers' `auth/rbac/reconciliation`.

use std::collections::HashMap;

use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::change::Change;
use crate::object::{self, Object, child, metadata_mut};
use crate::rbac::index::{GROUP, KEPT};
use crate::rbac::rules::{self, Rule};
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::user::User;
use crate::verbs::Backend;
use crate::verbs::deletion::Options;

/// Annotation: `false` opts out of reconciliation.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Prefix of the labels by which cluster roles are aggregated.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Objects reconciled at once: enough for the store to commit many together.
const AT_ONCE: usize = 256;

/// Loads everything stored into the index, then reconciles the defaults.
pub async fn ensure(backend: &Backend) -> ApiResult<()> {
    let mut stored = load(backend).await?;
    let objects = parse(include_str!("bootstrap.txt"));
    let work: Vec<_> = objects
        .into_iter()
        .map(|(plural, wanted)| {
            let found = stored.remove(&(plural, place(&wanted)));
            reconcile(backend, plural, wanted, found)
        })
        .collect();
    let made: Vec<ApiResult<()>> = stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
    made.into_iter().collect()
}

/// Roles and bindings that are stored, by plural name and [`place`].
type Loaded = HashMap<(&'static str, (String, String)), Object>;

/// Namespace and name.
fn place(object: &Object) -> (String, String) {
    (object::meta_str(object, "namespace").to_owned(), object::name(object).to_owned())
}

async fn load(backend: &Backend) -> ApiResult<Loaded> {
    let catalog = backend.registry.catalog();
    let mut out = Loaded::new();
    for storage in KEPT {
        let (group, plural) = storage.split_once('/').unwrap_or(("", storage));
        let resource = catalog.find(group, "v1", plural).ok_or_else(ApiError::unknown_path)?;
        for row in backend.select(resource, "", &Selector::default()).await?.1 {
            let Ok(object) = resource.load(row.rev, &row.body) else {
                backend.auth.index.see(storage, &row.ns, &row.name, row.rev, Some(&row.body));
                continue;
            };
            backend.auth.index.see_loaded(storage, &row.ns, &row.name, row.rev, &object);
            if group == GROUP {
                out.insert((plural, place(&object)), object);
            }
        }
    }
    Ok(out)
}

/// Creates or completes an object of the table; `found` is what [`load`] has read of it.
async fn reconcile(backend: &Backend, plural: &'static str, wanted: Object, found: Option<Object>) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let resource = catalog.find(GROUP, "v1", plural).ok_or_else(ApiError::unknown_path)?;
    let (ns, name) = place(&wanted);
    let found = match found {
        Some(found) => found,
        None => match backend.stored(&resource.key(&ns, &name)).await? {
            Some(stored) => backend.load(resource, &stored)?,
            None => return insert(backend, resource, wanted, &ns).await,
        },
    };
    if annotation(&found) == Some("false") {
        return Ok(());
    }
    if wanted.get("roleRef").is_some() && found.get("roleRef") != wanted.get("roleRef") {
        let change = rbac_change(Verb::Delete);
        backend.remove(&change, resource, &ns, &name, &Options::default()).await?;
        return insert(backend, resource, wanted, &ns).await;
    }
    if complete(&found, &wanted).is_none() {
        return Ok(());
    }
    let make = |before: &Object| Ok(complete(before, &wanted).unwrap_or_else(|| before.clone()));
    backend.change(&rbac_change(Verb::Update), resource, &ns, &name, make).await?;
    Ok(())
}

fn rbac_change(verb: Verb) -> Change {
    let mut change = Change::by_controller(verb, "rbac");
    change.user = User::server();
    "kube-apiserver".clone_into(&mut change.manager);
    change
}

async fn insert(backend: &Backend, resource: &Resource, wanted: Object, ns: &str) -> ApiResult<()> {
    match backend.insert(&rbac_change(Verb::Create), resource, wanted, ns).await {
        Err(error) if error.reason != StatusReason::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn annotation(object: &Object) -> Option<&str> {
    object::metadata(object).get("annotations")?.get(AUTOUPDATE)?.as_str()
}

/// The present object with everything of the wanted one that it lacks; `None` if nothing is missing.
fn complete(found: &Object, wanted: &Object) -> Option<Object> {
    let has = |key: &str, name: &String| object::metadata(found).get(key).is_some_and(|all| all.get(name).is_some());
    let words =
        ["labels", "annotations"].map(|key| (key, object::metadata(wanted).get(key).and_then(Value::as_object)));
    let same = |key| found.get(key) == wanted.get(key);
    if same("aggregationRule")
        && (same("rules") || wanted.contains_key("aggregationRule"))
        && same("subjects")
        && words.iter().all(|&(key, all)| all.into_iter().flatten().all(|(name, _)| has(key, name)))
    {
        return None;
    }
    let mut next = found.clone();
    for (key, all) in words {
        for (name, value) in all.into_iter().flatten() {
            child(metadata_mut(&mut next), key).entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    if let Some(rule) = wanted.get("aggregationRule") {
        next.insert("aggregationRule".into(), rule.clone());
    } else if wanted.contains_key("rules") && found.get("aggregationRule").is_none() {
        let mut rules: Vec<Rule> = rules::rules_of(found);
        let missing = rules::missing(&rules, &rules::rules_of(wanted));
        if !missing.is_empty() {
            rules.extend(missing);
            next.insert("rules".into(), rules::to_json(&rules));
        }
    }
    if let Some(wanted) = wanted.get("subjects").and_then(Value::as_array) {
        let mut subjects = found.get("subjects").and_then(Value::as_array).cloned().unwrap_or_default();
        let before = subjects.len();
        for subject in wanted {
            if !subjects.contains(subject) {
                subjects.push(subject.clone());
            }
        }
        if subjects.len() > before {
            next.insert("subjects".into(), json!(subjects));
        }
    }
    (next != *found).then_some(next)
}

/// The objects of the table, each with its resource.
fn parse(text: &str) -> Vec<(&'static str, Object)> {
    let mut out: Vec<(&'static str, Object)> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["role", name, rest @ ..] => out.push(role(name, rest)),
            ["binding", name, role, subjects @ ..] => out.push(binding(name, role, subjects)),
            words => {
                if let Some((_, last)) = out.last_mut()
                    && let Some(Value::Array(rules)) = last.get_mut("rules")
                {
                    rules.push(rules::to_json(&[rule(words)])[0].take());
                }
            }
        }
    }
    out
}

fn list(words: &str) -> Vec<String> {
    words.split(',').map(|w| if w == "core" { String::new() } else { w.to_owned() }).collect()
}

fn rule(words: &[&str]) -> Rule {
    let mut out = Rule::default();
    for (at, word) in words.iter().enumerate() {
        match (at, word.split_once('=')) {
            (_, Some(("urls", urls))) => out.non_resource_urls = list(urls),
            (_, Some(("names", names))) => out.resource_names = list(names),
            (0, _) => out.verbs = list(word),
            (1, _) => out.api_groups = list(word),
            _ => out.resources = list(word),
        }
    }
    out
}

fn start(kind: &str, place: &str) -> Object {
    let mut out = Object::new();
    let (ns, name) = place.split_once('/').unwrap_or(("", place));
    let cluster = if ns.is_empty() { "Cluster" } else { "" };
    out.insert("apiVersion".into(), json!(format!("{GROUP}/v1")));
    out.insert("kind".into(), json!(format!("{cluster}{kind}")));
    let meta = metadata_mut(&mut out);
    meta.insert("name".into(), json!(name));
    if !ns.is_empty() {
        meta.insert("namespace".into(), json!(ns));
    }
    meta.insert("annotations".into(), json!({AUTOUPDATE: "true"}));
    meta.insert("labels".into(), json!({"kubernetes.io/bootstrapping": "rbac-defaults"}));
    out
}

fn role(place: &str, rest: &[&str]) -> (&'static str, Object) {
    let mut out = start("Role", place);
    let mut from = Vec::new();
    for word in rest {
        match word.split_once('=') {
            Some(("into", role)) => {
                let labels = child(metadata_mut(&mut out), "labels");
                labels.insert(format!("{AGGREGATE}{role}"), json!("true"));
            }
            Some(("from", role)) => from.push(json!({"matchLabels": {format!("{AGGREGATE}{role}"): "true"}})),
            _ => {}
        }
    }
    if from.is_empty() {
        out.insert("rules".into(), json!([]));
    } else {
        out.insert("aggregationRule".into(), json!({"clusterRoleSelectors": from}));
    }
    (if place.contains('/') { "roles" } else { "clusterroles" }, out)
}

fn binding(place: &str, role: &str, subjects: &[&str]) -> (&'static str, Object) {
    let mut out = start("RoleBinding", place);
    let (kind, name) = role.split_once('=').unwrap_or(("ClusterRole", role));
    out.insert("roleRef".into(), json!({"apiGroup": GROUP, "kind": kind, "name": name}));
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|word| match word.split_once('=')? {
            ("user", name) => Some(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
            ("group", name) => Some(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
            (_, account) => {
                let (ns, name) = account.split_once('/')?;
                Some(json!({"kind": "ServiceAccount", "name": name, "namespace": ns}))
            }
        })
        .collect();
    if !subjects.is_empty() {
        out.insert("subjects".into(), json!(subjects));
    }
    (if place.contains('/') { "rolebindings" } else { "clusterrolebindings" }, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::Attributes;

    #[test]
    fn the_table_is_read_whole() {
        let all = parse(include_str!("bootstrap.txt"));
        let of = |plural: &str, name: &str| {
            let found = all.iter().find(|(p, o)| *p == plural && object::name(o) == name);
            json!(found.unwrap_or_else(|| panic!("{plural} {name}")).1)
        };
        assert_eq!(
            of("clusterroles", "cluster-admin")["rules"],
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}])
        );
        assert_eq!(of("clusterroles", "edit")["metadata"]["labels"][format!("{AGGREGATE}admin")], "true");
        assert_eq!(of("clusterrolebindings", "system:public-info-viewer")["subjects"].as_array().unwrap().len(), 2);
        assert_eq!(
            of("clusterrolebindings", "system:kube-dns")["subjects"],
            json!([{"kind": "ServiceAccount", "name": "kube-dns", "namespace": "kube-system"}])
        );
        assert_eq!(of("roles", "extension-apiserver-authentication-reader")["metadata"]["namespace"], "kube-system");
        for (_, object) in &all {
            let rules = rules::rules_of(object);
            assert!(rules.iter().all(|r| r.resources.is_empty() != r.non_resource_urls.is_empty()), "{object:?}");
            assert!(rules.iter().all(|r| r.api_groups.is_empty() == r.resources.is_empty()), "{object:?}");
        }
    }

    #[tokio::test]
    async fn lost_rules_and_subjects_come_back_unless_unwanted() {
        let (backend, _dir) = Backend::for_tests();
        crate::controllers::ensure_namespaces(&backend).await.unwrap();
        ensure(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let roles = catalog.find(GROUP, "v1", "clusterroles").unwrap();
        let bindings = catalog.find(GROUP, "v1", "clusterrolebindings").unwrap();
        let change = rbac_change(Verb::Update);
        for (name, keep) in [("system:basic-user", "true"), ("system:discovery", "false")] {
            let make = |before: &Object| {
                let mut next = before.clone();
                next.insert("rules".into(), json!([]));
                child(metadata_mut(&mut next), "annotations").insert(AUTOUPDATE.into(), json!(keep));
                Ok(next)
            };
            backend.change(&change, roles, "", name, make).await.unwrap();
        }
        let make = |before: &Object| {
            let mut next = before.clone();
            next.insert("subjects".into(), json!([{"apiGroup": GROUP, "kind": "User", "name": "x"}]));
            Ok(next)
        };
        backend.change(&change, bindings, "", "system:basic-user", make).await.unwrap();
        let asked = Attributes::of("create", "authorization.k8s.io", "selfsubjectaccessreviews", "");
        let somebody = User { name: "y".into(), groups: vec!["system:authenticated".into()], ..User::default() };
        assert!(!backend.auth.decide(&somebody, &asked).allowed);
        let before = backend.store.revision();
        ensure(&backend).await.unwrap();
        assert_eq!(backend.store.revision(), before + 2);
        assert!(backend.auth.decide(&somebody, &asked).allowed);
        let x = User { name: "x".into(), ..User::default() };
        assert!(backend.auth.decide(&x, &asked).allowed);
        let path = Attributes { verb: "get".into(), path: "/api".into(), ..Attributes::default() };
        assert!(!backend.auth.decide(&somebody, &path).allowed);
        ensure(&backend).await.unwrap();
        assert_eq!(backend.store.revision(), before + 2);
    }
}
