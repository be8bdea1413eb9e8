//! The changing catalog: built-in kinds, and resources added and removed by definitions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use core_kinds::Defs;

use crate::crd::compiled::Compiled;
use crate::jsonpath::JsonPath;
use crate::resource::{Catalog, Flavor, Resource};
use crate::strategy::Kind;

/// How many revisions a deleted definition is remembered: no overtaken write is noted later.
const MARK_AGE: u64 = 100_000;

/// The changing catalog.
pub struct Registry {
    now: RwLock<Arc<Catalog>>,
    /// Newest known revision of each definition, by name (`plural.group`).
    seen: Mutex<HashMap<String, u64>>,
    /// Locked while names of a definition are accepted, so that no two definitions get the same ones.
    pub naming: tokio::sync::Mutex<()>,
    /// Definitions compiled by any server that shares this cache.
    pub compiled: Compiled,
}

impl Registry {
    /// With these built-in kinds.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self::with(kinds, Compiled::default())
    }

    /// Like [`Registry::new`], with a cache of compiled definitions.
    pub fn with(kinds: impl IntoIterator<Item = Kind>, compiled: Compiled) -> Self {
        let mut catalog = Catalog::first();
        for resource in kinds.into_iter().filter_map(resource) {
            catalog.insert(Arc::new(resource));
        }
        let now = RwLock::new(Arc::new(catalog));
        Self { now, seen: Mutex::default(), naming: tokio::sync::Mutex::default(), compiled }
    }

    /// The present catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all versions of `plural.group` by those of the definition's revision `rev`; none removes the
    /// resource. Outdated revisions are ignored.
    pub fn replace<R: Into<Arc<Resource>>>(
        &self,
        group: &str,
        plural: &str,
        rev: u64,
        resources: impl IntoIterator<Item = R>,
    ) {
        let resources: Vec<Arc<Resource>> = resources.into_iter().map(Into::into).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.entry(format!("{plural}.{group}")).or_default();
        if *known > rev {
            return;
        }
        *known = rev;
        if resources.is_empty() {
            let served = self.catalog();
            let serves = |name: &str| served.all().any(|r| name == format!("{}.{}", r.plural, r.group));
            seen.retain(|name, at| at.saturating_add(MARK_AGE) > rev || serves(name));
        }
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(now.replaced(group, plural, resources));
    }
}

/// The kind of the `scale` subresource.
pub fn scale() -> Option<Resource> {
    resource(Kind { group: "autoscaling", kind: "Scale", plural: "scales", ..Kind::NEW })
}

/// The kind of `serviceaccounts/token`, which is served only there.
pub fn token_request() -> Option<Resource> {
    resource(Kind { group: "authentication.k8s.io", kind: "TokenRequest", plural: "tokenrequests", ..Kind::NEW })
}

/// A built-in kind as a resource; `None` if its fields are unknown.
fn resource(kind: Kind) -> Option<Resource> {
    let def = Defs::get().kind(kind.group, Kind::VERSION, kind.kind)?;
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let selectable = kind.strategy.selectable().iter().filter_map(|(label, path)| {
        let path = if path.is_empty() { label } else { path };
        Some(((*label).to_owned(), JsonPath::parse(&format!(".{path}")).ok()?))
    });
    let storage = match kind.strategy.view_of().unwrap_or(kind.group) {
        "" => kind.plural.to_owned(),
        group => format!("{group}/{}", kind.plural),
    };
    Some(Resource {
        group: kind.group.to_owned(),
        version: Kind::VERSION.to_owned(),
        plural: kind.plural.to_owned(),
        singular: kind.kind.to_lowercase(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        storage: storage.into(),
        status: kind.status,
        scale: None,
        terminating: false,
        columns: Vec::new(),
        selectable: selectable.collect(),
        deprecation: kind.deprecation.map(str::to_owned),
        strategy: kind.strategy,
        flavor: Flavor::Builtin(def),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategies;

    #[test]
    fn a_definition_that_was_overtaken_changes_nothing() {
        let things = |rev: u64| {
            let crd = serde_json::json!({"spec": {"group": "g.example.com", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": format!("v{rev}"), "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
                "status": {"conditions": [{"type": "Established", "status": "True"}]}});
            crate::crd::resources(crd.as_object().unwrap(), rev)
        };
        let registry = Registry::new(strategies::kinds());
        let served = || -> Vec<String> {
            let catalog = registry.catalog();
            catalog.all().filter(|r| r.group == "g.example.com").map(|r| r.version.clone()).collect()
        };
        registry.replace("g.example.com", "things", 2, things(2));
        registry.replace("g.example.com", "things", 1, things(1));
        assert_eq!(served(), ["v2"]);
        registry.replace("g.example.com", "things", 4, Vec::<Resource>::new());
        registry.replace("g.example.com", "things", 3, things(3));
        assert!(served().is_empty(), "what is gone does not come back by a write from before");
        registry.replace("g.example.com", "things", 5, things(5));
        assert_eq!(served(), ["v5"]);
        for rev in 6..20_000 {
            registry.replace("g.example.com", &format!("x{rev}"), rev * 100, Vec::<Resource>::new());
        }
        assert!(registry.seen.lock().unwrap().len() < 2_000);
        assert_eq!(served(), ["v5"]);
    }

    #[test]
    fn all_builtin_kinds_have_a_definition() {
        assert_eq!(Registry::new(strategies::kinds()).catalog().all().count(), strategies::kinds().count());
    }
}
