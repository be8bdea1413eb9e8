//! ResourceQuotas, as far as they are about numbers of objects: `count/RESOURCE.GROUP` of every kind, and the short names
//! of some core kinds. What is there is counted when something is to be made, in turns, so that two at once cannot both
//! be the last that fits; nothing is kept but the quotas themselves.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use core_kinds::quantity;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use crate::builtin::rules::service::{needs_node_port, node_port};
use crate::builtin::rules::{list, member, text};
use crate::object::{self, Object};
use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, ListQuery, Stored};

/// Kinds that are counted by their plural alone, too.
const SHORT: [&str; 4] = ["configmaps", "resourcequotas", "secrets", "services"];
/// Storage name of quotas.
pub const STORAGE: &str = "resourcequotas";
/// Objects read at once.
const PAGE: usize = 256;

/// Amounts by name of what is counted.
pub type Amounts = BTreeMap<String, i64>;

/// The quotas of a namespace by name.
type OfNamespace = BTreeMap<String, (u64, Arc<Amounts>)>;

/// All quotas.
#[derive(Default)]
pub struct Quotas {
    known: Mutex<HashMap<String, OfNamespace>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// What a quota limits. One with scopes is about pods alone.
fn hard(quota: &Object) -> Amounts {
    let spec = member(quota, "spec");
    if !list(spec, "scopes").is_empty() || spec.get("scopeSelector").is_some_and(|s| !s.is_null()) {
        return Amounts::new();
    }
    let whole = |amount: &Value| {
        let nanos = quantity::nanos(amount.as_str()?)?;
        i64::try_from(nanos.div_euclid(1_000_000_000)).ok()
    };
    let all = spec.get("hard").and_then(Value::as_object).into_iter().flatten();
    all.filter_map(|(name, amount)| Some((name.clone(), whole(amount)?))).collect()
}

impl Quotas {
    /// Notes a committed write: the object's tail, or `None` if it is gone. Other kinds are passed over, and so are writes
    /// older than what is known.
    pub fn see(&self, key: &Key, rev: u64, tail: Option<&[u8]>) {
        if &*key.resource != STORAGE {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let quotas = known.entry(key.ns.clone()).or_default();
        if quotas.get(&key.name).is_some_and(|(seen, _)| *seen > rev) {
            return;
        }
        match tail {
            Some(tail) => {
                let amounts = hard(&object::from_tail("", "", rev, tail).unwrap_or_default());
                quotas.insert(key.name.clone(), (rev, Arc::new(amounts)));
            }
            None => {
                quotas.remove(&key.name);
            }
        }
        if quotas.is_empty() {
            known.remove(&key.ns);
            self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.ns);
        }
    }

    /// The quotas of a namespace with what they limit.
    pub fn of(&self, ns: &str) -> Vec<(String, Arc<Amounts>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let quotas = known.get(ns).into_iter().flatten();
        quotas.map(|(name, (_, amounts))| (name.clone(), Arc::clone(amounts))).collect()
    }

    fn turn(&self, ns: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(ns.to_owned()).or_default())
    }
}

/// The names by which an object of a resource is counted.
fn names_of(resource: &Resource) -> Vec<String> {
    let qualified = match resource.group.as_str() {
        // Both groups of Events are one kind, which is counted as the core one.
        "" | "events.k8s.io" => format!("count/{}", resource.plural),
        group => format!("count/{}.{group}", resource.plural),
    };
    let short = resource.group.is_empty() && SHORT.contains(&resource.plural.as_str());
    short.then(|| resource.plural.clone()).into_iter().chain([qualified]).collect()
}

/// What one object takes.
fn usage(resource: &Resource, object: &Object) -> Amounts {
    let mut out: Amounts = names_of(resource).into_iter().map(|name| (name, 1)).collect();
    if resource.is("", "services") {
        let spec = member(object, "spec");
        let ports = list(spec, "ports");
        let given = ports.iter().filter(|port| node_port(port) != 0).count();
        let count = if needs_node_port(spec) { ports.len() } else { given };
        let exposed = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
        out.insert("services.nodeports".into(), if exposed { i64::try_from(count).unwrap_or(i64::MAX) } else { 0 });
        out.insert("services.loadbalancers".into(), i64::from(text(spec, "type") == "LoadBalancer"));
    }
    out
}

impl Objects {
    /// How much of what `names` limit is used in a namespace; names that count nothing here are left out.
    pub async fn quota_used(&self, ns: &str, names: &Amounts) -> ApiResult<Amounts> {
        let catalog = self.registry.catalog();
        let mut used = Amounts::new();
        for resource in catalog.all().filter(|r| r.namespaced && !r.is_review() && r.group != "events.k8s.io") {
            let wanted: Vec<String> = names_of(resource).into_iter().filter(|n| names.contains_key(n)).collect();
            if !wanted.is_empty() && !wanted.iter().all(|name| used.contains_key(name)) {
                let storage = Arc::clone(&resource.storage);
                let query = ListQuery {
                    resource: storage,
                    ns: Some(ns.to_owned()),
                    after: None,
                    at: None,
                    limit: 0,
                    pick: None,
                };
                let count = self.store.count(query).await.map_err(store_failed)?;
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                used.extend(wanted.into_iter().map(|name| (name, count)));
            }
        }
        let of_services = ["services.nodeports", "services.loadbalancers"];
        if of_services.iter().any(|name| names.contains_key(*name)) {
            let sums = self.services_used(ns).await?;
            used.extend(sums.into_iter().filter(|(name, _)| names.contains_key(name)));
        }
        Ok(used)
    }

    async fn services_used(&self, ns: &str) -> ApiResult<Amounts> {
        let catalog = self.registry.catalog();
        let services = catalog.find("", "v1", "services").ok_or_else(ApiError::unknown_path)?;
        let mut sums: Amounts = ["services.nodeports", "services.loadbalancers"].map(|n| (n.to_owned(), 0)).into();
        let (storage, only) = (Arc::clone(&services.storage), Some(ns.to_owned()));
        let mut query = ListQuery { resource: storage, ns: only, after: None, at: None, limit: PAGE, pick: None };
        loop {
            let page = self.store.list(query.clone()).await.map_err(store_failed)?;
            let last = page.rows.last().map(|row| (row.ns.clone(), row.name.clone()));
            for row in page.rows {
                let object = self.load(services, &Stored { rev: row.rev, tail: row.body })?;
                for (name, amount) in usage(services, &object) {
                    sums.entry(name).and_modify(|sum| *sum += amount);
                }
            }
            match last {
                Some(last) if page.more => (query.after, query.at) = (Some(last), Some(page.rev)),
                _ => return Ok(sums),
            }
        }
    }
}

impl Quotas {
    /// Whether the quotas of its namespace let an object be stored; `old` is its former state. Whoever holds the answer is
    /// the only one who stores what is limited there.
    pub async fn within(
        &self,
        objects: &Objects,
        resource: &Resource,
        ns: &str,
        object: &Object,
        old: Option<&Object>,
    ) -> ApiResult<Option<OwnedMutexGuard<()>>> {
        // An update takes more only of what a Service asks for.
        if ns.is_empty() || old.is_some() && !resource.is("", "services") || self.of(ns).is_empty() {
            return Ok(None);
        }
        let mut more = usage(resource, object);
        if let Some(old) = old {
            let before = usage(resource, old);
            more.iter_mut().for_each(|(name, amount)| *amount -= before.get(name).copied().unwrap_or(0));
        }
        more.retain(|_, amount| *amount > 0);
        let limited = |quota: &Amounts| more.keys().any(|name| quota.contains_key(name));
        if !self.of(ns).iter().any(|(_, quota)| limited(quota)) {
            return Ok(None);
        }
        let turn = self.turn(ns).lock_owned().await;
        for (name, quota) in self.of(ns) {
            let asked: Amounts =
                more.iter().filter(|(n, _)| quota.contains_key(*n)).map(|(n, a)| (n.clone(), *a)).collect();
            if asked.is_empty() {
                continue;
            }
            let used = objects.quota_used(ns, &asked).await?;
            let beyond = |name: &&String| used.get(*name).copied().unwrap_or(0) + asked[*name] > quota[*name];
            let beyond: Vec<&String> = asked.keys().filter(beyond).collect();
            if !beyond.is_empty() {
                let shown = |amounts: &Amounts| {
                    let one = |n: &&String| format!("{n}={}", amounts.get(*n).copied().unwrap_or(0));
                    beyond.iter().map(one).collect::<Vec<_>>().join(",")
                };
                let why = format!(
                    "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                    shown(&asked),
                    shown(&used),
                    shown(&quota)
                );
                return Err(ApiError::forbidden(&resource.group, &resource.plural, object::name(object), &why));
            }
        }
        Ok(Some(turn))
    }
}

/// What a quota's status says of it.
pub fn status(quota: &Object, used: &Amounts) -> Value {
    let hard = member(quota, "spec").get("hard").cloned().unwrap_or_else(|| json!({}));
    let names = hard.as_object().into_iter().flatten().map(|(name, _)| name);
    let used: serde_json::Map<String, Value> =
        names.filter_map(|name| Some((name.clone(), json!(used.get(name)?.to_string())))).collect();
    json!({"hard": hard, "used": used})
}
