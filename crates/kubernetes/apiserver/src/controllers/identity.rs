//! Objects for workloads: the service account `default` and the ConfigMap `kube-root-ca.crt` of each namespace,
//! tokens in Secrets, and aggregated cluster roles.
//!
//! Follows the controllers serviceaccount, serviceaccount-token, root-ca-certificate-publisher and
//! clusterrole-aggregation of `k8s.io/kubernetes/pkg/controller`.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::gc::unversioned;
use crate::auth::tokens::{self, ACCOUNT_NAME, ACCOUNT_UID, SECRET_TYPE};
use crate::change::Change;
use crate::decode;
use crate::fields::views::Views;
use crate::fields::{Scope, apply};
use crate::object::{self, Object, child, metadata_mut};
use crate::rbac::index::GROUP;
use crate::rbac::rules::{self, Rule};
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::Event;
use crate::verbs::Backend;
use crate::verbs::deletion::Options;

/// Namespaces processed at once: each waits for its writes, and possibly for a webhook.
const AT_ONCE: usize = 16;
/// Name of the ConfigMap with the CA.
const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// Description of the ConfigMap, as upstream's.
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
    Kubernetes clusters.";
/// Name of the service account of each namespace.
const DEFAULT: &str = "default";
/// Rounds of aggregation at the start. Longer chains of aggregated roles are complete shortly after.
const PASSES: usize = 4;

/// Namespace and name.
type Place = (String, String);

/// Objects to process.
#[derive(Default)]
struct Todo {
    namespaces: BTreeSet<String>,
    secrets: BTreeSet<Place>,
    roles: bool,
}

/// The controllers' state.
#[derive(Default)]
pub struct Identity {
    todo: Todo,
    /// Objects whose processing failed.
    failed: Todo,
    /// Secrets with tokens, by service account.
    by_account: BTreeMap<Place, BTreeSet<String>>,
}

impl Identity {
    /// Notes a change.
    pub fn see(&mut self, event: &Event) {
        let load = || object::from_tail("", "", event.rev, &event.body).unwrap_or_default();
        match &*event.resource {
            "namespaces" => {
                if event.deleted || object::is_deleting(&load()) {
                    self.todo.namespaces.remove(&event.name);
                } else {
                    self.todo.namespaces.insert(event.name.clone());
                }
            }
            "configmaps" if event.name == ROOT_CA => {
                self.todo.namespaces.insert(event.ns.clone());
            }
            "serviceaccounts" => {
                if event.deleted && event.name == DEFAULT {
                    self.todo.namespaces.insert(event.ns.clone());
                }
                let place = (event.ns.clone(), event.name.clone());
                let secrets = self.by_account.get(&place).into_iter().flatten();
                self.todo.secrets.extend(secrets.map(|name| (event.ns.clone(), name.clone())));
            }
            "secrets" => self.see_secret(event, &load),
            "rbac.authorization.k8s.io/clusterroles" => self.todo.roles = true,
            _ => {}
        }
    }

    fn see_secret(&mut self, event: &Event, load: &dyn Fn() -> Object) {
        // Most Secrets hold no token: avoid parsing them.
        if !event.body.windows(SECRET_TYPE.len()).any(|w| w == SECRET_TYPE.as_bytes()) {
            return;
        }
        let secret = load();
        if secret.get("type").and_then(Value::as_str) != Some(SECRET_TYPE) {
            return;
        }
        let account = (event.ns.clone(), annotation(&secret, ACCOUNT_NAME).to_owned());
        let place = (event.ns.clone(), event.name.clone());
        if event.deleted {
            if let Some(names) = self.by_account.get_mut(&account) {
                names.remove(&event.name);
                if names.is_empty() {
                    self.by_account.remove(&account);
                }
            }
            self.todo.secrets.remove(&place);
            return;
        }
        self.by_account.entry(account).or_default().insert(event.name.clone());
        self.todo.secrets.insert(place);
    }

    /// Schedules failed objects again.
    pub fn again(&mut self) {
        let mut failed = std::mem::take(&mut self.failed);
        self.todo.namespaces.append(&mut failed.namespaces);
        self.todo.secrets.append(&mut failed.secrets);
        self.todo.roles |= failed.roles;
    }

    /// Processes noted changes. True if something must be retried.
    pub async fn work(&mut self, backend: &Backend) -> bool {
        let Todo { namespaces, secrets, roles } = std::mem::take(&mut self.todo);
        let failed = &mut self.failed;
        let results =
            stream::iter(namespaces).map(|ns| async move { (done(create_defaults(backend, &ns).await, &ns), ns) });
        let failures = results.buffer_unordered(AT_ONCE).filter_map(async |(done, ns)| (!done).then_some(ns));
        failed.namespaces.extend(failures.collect::<Vec<_>>().await);
        for (ns, name) in secrets {
            if !done(fill(backend, &ns, &name).await, &name) {
                failed.secrets.insert((ns, name));
            }
        }
        failed.roles |= roles && !done(aggregate(backend).await.map(drop), "cluster roles");
        failed.roles || !failed.namespaces.is_empty() || !failed.secrets.is_empty()
    }
}

fn done(result: ApiResult<()>, what: &str) -> bool {
    match result {
        Ok(()) => true,
        // Deleted, terminating or changed in the meantime: that change has an event of its own.
        Err(ApiError { code: 404 | 409, .. }) => true,
        Err(error) if error.details.iter().any(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating")) => true,
        Err(error) => {
            tracing::debug!(%error, what, "identity is tried again");
            false
        }
    }
}

fn annotation<'a>(object: &'a Object, key: &str) -> &'a str {
    let all = object::metadata(object).get("annotations");
    all.and_then(|a| a.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Creates the account and the ConfigMap of a namespace, each even if the other fails.
async fn create_defaults(backend: &Backend, ns: &str) -> ApiResult<()> {
    let (account, map) = futures::join!(account(backend, ns), root_ca(backend, ns));
    account.and(map)
}

async fn account(backend: &Backend, ns: &str) -> ApiResult<()> {
    if uid_of_account(backend, ns, DEFAULT).await?.is_some() {
        return Ok(());
    }
    let catalog = backend.registry.catalog();
    let accounts = catalog.find("", "v1", "serviceaccounts").ok_or_else(ApiError::unknown_path)?;
    let change = Change::by_controller(Verb::Create, "service-account-controller");
    made(backend.insert(&change, accounts, named(ns, DEFAULT), ns).await)
}

async fn root_ca(backend: &Backend, ns: &str) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let maps = catalog.find("", "v1", "configmaps").ok_or_else(ApiError::unknown_path)?;
    let fresh = |mut map: Object| {
        map.insert("data".into(), json!({"ca.crt": backend.auth.ca()}));
        map.shift_remove("binaryData");
        child(metadata_mut(&mut map), "annotations").insert(DESCRIPTION.into(), json!(DESCRIBED));
        map
    };
    let publisher = |verb| Change::by_controller(verb, "root-ca-cert-publisher");
    match backend.stored(&maps.key(ns, ROOT_CA)).await? {
        None => made(backend.insert(&publisher(Verb::Create), maps, fresh(named(ns, ROOT_CA)), ns).await),
        Some(stored) => {
            let map = backend.load(maps, &stored)?;
            let good = map.get("data") == Some(&json!({"ca.crt": backend.auth.ca()}));
            if good && !annotation(&map, DESCRIPTION).is_empty() {
                return Ok(());
            }
            let make = |before: &Object| Ok(fresh(unversioned(before)));
            backend.change(&publisher(Verb::Update), maps, ns, ROOT_CA, make).await.map(drop)
        }
    }
}

/// Reads the store, because the index may learn of a deletion later than this task.
async fn uid_of_account(backend: &Backend, ns: &str, name: &str) -> ApiResult<Option<String>> {
    let catalog = backend.registry.catalog();
    let accounts = catalog.find("", "v1", "serviceaccounts").ok_or_else(ApiError::unknown_path)?;
    let Some(stored) = backend.stored(&accounts.key(ns, name)).await? else { return Ok(None) };
    Ok(Some(object::meta_str(&backend.load(accounts, &stored)?, "uid").to_owned()))
}

fn named(ns: &str, name: &str) -> Object {
    let mut out = Object::new();
    out.insert("metadata".into(), json!({"name": name, "namespace": ns}));
    out
}

fn made<T>(result: ApiResult<T>) -> ApiResult<()> {
    match result {
        Err(error) if error.reason != StatusReason::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Adds a token to a Secret that requests one, or deletes the Secret if its service account is absent.
async fn fill(backend: &Backend, ns: &str, name: &str) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let secrets = catalog.find("", "v1", "secrets").ok_or_else(ApiError::unknown_path)?;
    let Some(stored) = backend.stored(&secrets.key(ns, name)).await? else { return Ok(()) };
    let secret = backend.load(secrets, &stored)?;
    if object::is_deleting(&secret) {
        return Ok(());
    }
    let (account, wanted) = (annotation(&secret, ACCOUNT_NAME), annotation(&secret, ACCOUNT_UID));
    let found = uid_of_account(backend, ns, account).await?;
    let Some(uid) = found.filter(|uid| wanted.is_empty() || uid == wanted) else {
        let options = Options { uid: Some(object::meta_str(&secret, "uid").to_owned()), ..Options::default() };
        let change = Change::by_controller(Verb::Delete, "tokens-controller");
        return backend.remove(&change, secrets, ns, name, &options).await.map(drop);
    };
    let mut next = secret.clone();
    let data = child(&mut next, "data");
    data.insert("ca.crt".into(), json!(STANDARD.encode(backend.auth.ca())));
    let absent = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
    if absent(data.get("namespace")) {
        data.insert("namespace".into(), json!(STANDARD.encode(ns)));
    }
    if absent(data.get("token")) {
        let claims = tokens::legacy_claims(ns, account, &uid, name);
        let token = backend.auth.keys.sign(&claims).map_err(ApiError::internal)?;
        data.insert("token".into(), json!(STANDARD.encode(token)));
    }
    if Some(&json!(data)) == secret.get("data") {
        return Ok(());
    }
    child(metadata_mut(&mut next), "annotations").insert(ACCOUNT_UID.into(), json!(uid));
    // Keeps the resourceVersion: a concurrent change causes a conflict, and its event another run.
    backend
        .change(&Change::by_controller(Verb::Update, "tokens-controller"), secrets, ns, name, |_| Ok(next.clone()))
        .await
        .map(drop)
}

/// Runs once before the first request, so that namespaces and cluster roles are complete from the start.
pub async fn initialize(backend: &Backend, namespaces: &[&str]) -> ApiResult<()> {
    futures::future::try_join_all(namespaces.iter().map(|ns| create_defaults(backend, ns))).await?;
    for _ in 0..PASSES {
        if !aggregate(backend).await? {
            break;
        }
    }
    Ok(())
}

/// Runs one round of aggregation of cluster roles. True if something changed, which other roles may aggregate in
/// turn.
async fn aggregate(backend: &Backend) -> ApiResult<bool> {
    let catalog = backend.registry.catalog();
    let roles = catalog.find(GROUP, "v1", "clusterroles").ok_or_else(ApiError::unknown_path)?;
    let mut all = Vec::new();
    for row in backend.select(roles, "", &Selector::default()).await?.1 {
        all.push(roles.load(row.rev, &row.body).map_err(ApiError::internal)?);
    }
    let mut changed = false;
    for at in 0..all.len() {
        let role = &all[at];
        let selectors = role.get("aggregationRule").and_then(|r| r.get("clusterRoleSelectors"));
        let Some(selectors) = selectors.and_then(Value::as_array) else { continue };
        let mut wanted = Vec::new();
        for selector in selectors {
            for other in all.iter().filter(|o| object::name(o) != object::name(role) && matches(selector, o)) {
                for rule in rules::rules_of(other) {
                    if !wanted.contains(&rule) {
                        wanted.push(rule);
                    }
                }
            }
        }
        if wanted != rules::rules_of(role) {
            collect(backend, roles, object::name(role), &wanted).await?;
            // Otherwise roles that aggregate each other would swap their rules forever.
            all[at].insert("rules".into(), rules::to_json(&wanted));
            changed = true;
        }
    }
    Ok(changed)
}

/// Applies the rules with force, as the controller's own field manager.
async fn collect(backend: &Backend, roles: &Resource, name: &str, wanted: &[Rule]) -> ApiResult<()> {
    let manager = "clusterrole-aggregation-controller";
    let mut change = Change::by_controller(Verb::Patch, manager);
    change.applied = true;
    manager.clone_into(&mut change.manager);
    let mut config = Object::new();
    config.insert("apiVersion".into(), json!(roles.api_version()));
    config.insert("kind".into(), json!(roles.kind));
    config.insert("metadata".into(), json!({"name": name}));
    if !wanted.is_empty() {
        config.insert("rules".into(), rules::to_json(wanted));
    }
    let catalog = backend.registry.catalog();
    let (views, now) = (Views::none(), backend.given.now());
    let scope = Scope { resource: roles, catalog: &catalog, sub: "", manager, views, now };
    let make = |before: &Object| {
        let mut next = apply::apply(&scope, Some(before), &config, true)?;
        decode::decode(roles, &mut next, &mut Vec::new())?;
        Ok(next)
    };
    backend.change(&change, roles, "", name, make).await.map(drop)
}

/// Whether an object's labels match a `meta/v1` selector. An empty selector matches all.
fn matches(selector: &Value, object: &Object) -> bool {
    let label = |key: &str| object::metadata(object).get("labels").and_then(|l| l.get(key));
    let mut exact = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut others = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    exact.all(|(key, value)| label(key) == Some(value))
        && others.all(|expression| {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let found = label(text("key"));
            let listed = expression.get("values").and_then(Value::as_array);
            let among = found.is_some_and(|f| listed.is_some_and(|l| l.contains(f)));
            match text("operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn roles_that_collect_each_other_come_to_rest() {
        let (backend, _dir) = Backend::for_tests();
        super::super::ensure_namespaces(&backend).await.unwrap();
        super::super::bootstrap::ensure(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let roles = catalog.find(GROUP, "v1", "clusterroles").unwrap();
        for (name, other, verb) in [("a", "b", "get"), ("b", "a", "list")] {
            let role = json!({"metadata": {"name": name, "labels": {"is": name}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"is": other}}]},
                "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["secrets"]}]});
            let Value::Object(role) = role else { panic!() };
            let mut change = Change::by_controller(Verb::Create, "test");
            change.user = crate::user::User::server();
            backend.insert(&change, roles, role, "").await.unwrap();
        }
        let mut rounds = 0;
        while aggregate(&backend).await.unwrap() {
            rounds += 1;
            assert!(rounds < 6, "they never come to rest");
        }
        let rules = async |name: &str| {
            let stored = backend.stored(&roles.key("", name)).await.unwrap().unwrap();
            rules::rules_of(&backend.load(roles, &stored).unwrap())
        };
        assert_eq!(rules("a").await, rules("b").await);
        assert_eq!(rules("a").await.len(), 1);
    }

    #[test]
    fn selectors_match_labels() {
        let Value::Object(object) = json!({"metadata": {"labels": {"a": "1", "b": "2"}}}) else { panic!() };
        let selected = |selector: Value| matches(&selector, &object);
        assert!(selected(json!({})) && selected(json!({"matchLabels": {"a": "1"}})));
        assert!(!selected(json!({"matchLabels": {"a": "1", "b": "1"}})));
        let by = |operator: &str, key: &str, values: &[&str]| {
            selected(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(by("In", "a", &["1", "2"]) && !by("In", "a", &["2"]) && !by("In", "c", &["1"]));
        assert!(by("NotIn", "c", &["1"]) && !by("NotIn", "a", &["1"]));
        assert!(by("Exists", "a", &[]) && by("DoesNotExist", "c", &[]) && !by("Odd", "a", &[]));
    }
}
