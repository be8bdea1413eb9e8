//! ResourceQuotas for numbers of objects: `count/RESOURCE.GROUP` of every kind, the short names of some core kinds,
//! and Services by their node ports and type. Usage is counted at each write under a lock per namespace, so that
//! concurrent writes cannot exceed a limit together. Only the quotas themselves are kept in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use core_kinds::quantity;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use crate::checks::{list, member};
use crate::object::{self, Object};
use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, ListQuery, Stored};

/// Kinds that are also counted by their plural alone.
const SHORT: [&str; 4] = ["configmaps", "resourcequotas", "secrets", "services"];
/// Storage name of quotas.
pub const STORAGE: &str = "resourcequotas";
/// Objects read at once.
const PAGE: usize = 256;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, i64>;

/// The quotas of a namespace by name.
type OfNamespace = BTreeMap<String, (u64, Arc<Amounts>)>;

/// All quotas.
#[derive(Default)]
pub struct Quotas {
    known: Mutex<HashMap<String, OfNamespace>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The limits of a quota. A quota with scopes limits pods only, so it has none here.
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
    /// Notes a committed write: the object's tail, or `None` if it was deleted. Other kinds and outdated writes are
    /// ignored.
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

    /// The quotas of a namespace with their limits.
    pub fn of(&self, ns: &str) -> Vec<(String, Arc<Amounts>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let quotas = known.get(ns).into_iter().flatten();
        quotas.map(|(name, (_, amounts))| (name.clone(), Arc::clone(amounts))).collect()
    }

    fn turn(&self, ns: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(ns.to_owned()).or_default())
    }
}

/// The names that an object of a resource counts for.
fn names_of(resource: &Resource) -> Vec<String> {
    let qualified = match resource.strategy.view_of().unwrap_or(&resource.group) {
        "" => format!("count/{}", resource.plural),
        group => format!("count/{}.{group}", resource.plural),
    };
    let short = resource.group.is_empty() && SHORT.contains(&resource.plural.as_str());
    short.then(|| resource.plural.clone()).into_iter().chain([qualified]).collect()
}

/// The amounts that one object uses.
fn usage(resource: &Resource, object: &Object) -> Amounts {
    let counted = names_of(resource).into_iter().map(|name| (name, 1));
    let used = resource.strategy.usage(object).into_iter().map(|(name, amount)| (name.to_owned(), amount));
    counted.chain(used).collect()
}

impl Objects {
    /// The usage in a namespace of everything in `names`; names that are not counted here are left out.
    pub async fn quota_used(&self, ns: &str, names: &Amounts) -> ApiResult<Amounts> {
        let catalog = self.registry.catalog();
        let mut used = Amounts::new();
        for resource in catalog.all().filter(|r| r.namespaced && !r.is_review() && r.strategy.view_of().is_none()) {
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
    /// Checks an object against the quotas of its namespace; `old` is its former state. The returned lock excludes
    /// other limited writes there.
    pub async fn within(
        &self,
        objects: &Objects,
        resource: &Resource,
        ns: &str,
        object: &Object,
        old: Option<&Object>,
    ) -> ApiResult<Option<OwnedMutexGuard<()>>> {
        // An update can only use more of what depends on the object's fields.
        let same = || resource.strategy.usage(object).is_empty();
        if ns.is_empty() || old.is_some() && same() || self.of(ns).is_empty() {
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
                let printed = |amounts: &Amounts| {
                    let one = |n: &&String| format!("{n}={}", amounts.get(*n).copied().unwrap_or(0));
                    beyond.iter().map(one).collect::<Vec<_>>().join(",")
                };
                let why = format!(
                    "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                    printed(&asked),
                    printed(&used),
                    printed(&quota)
                );
                return Err(ApiError::forbidden(&resource.group, &resource.plural, object::name(object), &why));
            }
        }
        Ok(Some(turn))
    }
}

/// The status of a quota with this usage.
pub fn status(quota: &Object, used: &Amounts) -> Value {
    let hard = member(quota, "spec").get("hard").cloned().unwrap_or_else(|| json!({}));
    let names = hard.as_object().into_iter().flatten().map(|(name, _)| name);
    let used: serde_json::Map<String, Value> =
        names.filter_map(|name| Some((name.clone(), json!(used.get(name)?.to_string())))).collect();
    json!({"hard": hard, "used": used})
}
