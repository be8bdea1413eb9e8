//! What is served: one [`Resource`] per group, version and plural, and the catalog of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use core_kinds::{Def, canonical};
use serde::de::Error as _;
use structural_schema::rules::CelRules;
use structural_schema::schema::Schema;

use crate::jsonpath::JsonPath;
use crate::object::{self, Object};
use crate::scale::Scale;
use crate::store::Key;
use crate::strategy::Strategy;
use crate::versions::Versions;

/// A column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// OpenAPI type of the cells.
    pub ty: String,
    /// OpenAPI format of the cells, or `name`.
    pub format: String,
    /// Text for people.
    pub description: String,
    /// 0 is always shown.
    pub priority: i64,
    /// Where the value is; `None` for columns made by code.
    pub path: Option<JsonPath>,
}

/// What objects look like.
#[derive(Debug)]
pub enum Flavor {
    /// A kind of the server's own.
    Builtin(&'static Def),
    /// A version of a custom resource.
    Custom {
        /// Its schema; absent means that everything is kept.
        schema: Schema,
        /// Its rules in CEL.
        rules: Box<CelRules>,
        /// Rows written at or after this revision, in this version, need no pruning or defaulting when read.
        fresh_since: u64,
        /// What it has in common with the kind's other versions, if there are any.
        versions: Option<Arc<Versions>>,
    },
}

/// A served resource.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Resource name.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Short names for clients.
    pub short_names: Vec<String>,
    /// Groups of resources for clients.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Storage name of the resource.
    pub storage: Arc<str>,
    /// Has the status subresource.
    pub status: bool,
    /// Has the scale subresource.
    pub scale: Option<Scale>,
    /// Its definition is on its way out: nothing new may be made.
    pub terminating: bool,
    /// Columns after the name, in order; without any, the age is shown.
    pub columns: Vec<Column>,
    /// Fields for selectors besides name and namespace.
    pub selectable: Vec<(String, JsonPath)>,
    /// Text of the warning that users of a deprecated version get.
    pub deprecation: Option<String>,
    /// The rules of its kind.
    pub strategy: &'static dyn Strategy,
    /// What its objects look like.
    pub flavor: Flavor,
}

impl Resource {
    /// `group/version`, or `version`.
    pub fn api_version(&self) -> String {
        object::api_version(&self.group, &self.version)
    }

    /// The storage key of a name.
    pub fn key(&self, ns: &str, name: &str) -> Key {
        Key { resource: Arc::clone(&self.storage), ns: ns.to_owned(), name: name.to_owned() }
    }

    /// Whether this is a kind of the server's own with this group and plural.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether objects are questions: created, answered and never stored.
    pub fn is_review(&self) -> bool {
        self.strategy.is_review()
    }

    /// Whether a stored tail can be served as it is.
    pub fn serves_raw(&self, rev: u64) -> bool {
        match &self.flavor {
            Flavor::Builtin(_) => self.strategy.view_of().is_none(),
            Flavor::Custom { fresh_since, .. } => rev >= *fresh_since,
        }
    }

    /// The object of a stored tail, in this version.
    pub fn load(&self, rev: u64, tail: &[u8]) -> Result<Object, serde_json::Error> {
        let mut object = object::from_tail(&self.api_version(), &self.kind, rev, tail)?;
        match &self.flavor {
            Flavor::Builtin(_) => self.strategy.view_stored(&mut object),
            Flavor::Custom { fresh_since, .. } if rev < *fresh_since => self.prune_and_default(&mut object),
            Flavor::Custom { .. } => {}
        }
        Ok(object)
    }

    /// Prunes and defaults a custom resource by this version's schema.
    pub fn prune_and_default(&self, object: &mut Object) {
        let Flavor::Custom { schema, .. } = &self.flavor else { return };
        structural_schema::prune::prune(schema, object, &mut Vec::new());
        structural_schema::default::apply_object(schema, object);
    }

    /// The encoded object of a stored tail, in this version.
    pub fn encode(&self, rev: u64, tail: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        if self.serves_raw(rev) {
            return Ok(object::join(&self.api_version(), &self.kind, rev, tail));
        }
        serde_json::to_vec(&self.load(rev, tail)?)
    }

    /// The encoded `PartialObjectMetadata` of a stored tail.
    pub fn encode_partial(&self, rev: u64, tail: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        if self.serves_raw(rev) {
            return object::partial_of(rev, tail).ok_or_else(|| serde_json::Error::custom("its metadata does not end"));
        }
        Ok(gotext::encode(&object::partial(&self.load(rev, tail)?)))
    }

    /// The encoded object of a stored tail as an item of a list: own kinds do not name themselves there.
    pub fn encode_item(&self, rev: u64, tail: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        if matches!(self.flavor, Flavor::Custom { .. }) {
            return self.encode(rev, tail);
        }
        if self.serves_raw(rev) {
            let mut out = format!("{{\"metadata\":{{\"resourceVersion\":\"{rev}\"").into_bytes();
            out.extend_from_slice(tail);
            return Ok(out);
        }
        let mut object = self.load(rev, tail)?;
        object.shift_remove("apiVersion");
        object.shift_remove("kind");
        serde_json::to_vec(&object)
    }

    /// The tail to store.
    pub fn tail(&self, mut object: Object) -> bytes::Bytes {
        match &self.flavor {
            Flavor::Builtin(_) if self.strategy.view_of().is_some() => self.strategy.to_stored(&mut object),
            Flavor::Builtin(def) => canonical::canonicalize(def, &mut object),
            Flavor::Custom { .. } => {}
        }
        let tail = object::to_tail(object);
        match &self.flavor {
            Flavor::Custom { versions: Some(_), .. } => object::mark(&self.version, &tail),
            _ => tail,
        }
    }
}

/// Everything served at one moment.
#[derive(Default)]
pub struct Catalog {
    /// By group, version and plural.
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
    /// Grows with every change.
    pub generation: u64,
}

impl Catalog {
    /// The first one, with nothing in it.
    pub fn first() -> Self {
        Self { generation: 1, ..Self::default() }
    }

    /// Adds a resource.
    pub fn insert(&mut self, resource: Arc<Resource>) {
        let path = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        self.by_path.insert(path, resource);
    }

    /// The next catalog: with these as all versions of `plural.group`.
    pub fn replaced(&self, group: &str, plural: &str, resources: Vec<Arc<Resource>>) -> Self {
        let mut by_path = self.by_path.clone();
        by_path.retain(|_, r| r.group != group || r.plural != plural);
        let mut next = Self { by_path, generation: self.generation + 1 };
        resources.into_iter().for_each(|resource| next.insert(resource));
        next
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// All, by group, version and plural.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }

    /// Any version of the resource stored under this name.
    pub fn by_storage(&self, storage: &str) -> Option<&Arc<Resource>> {
        let mut all = self.by_path.values().filter(|r| &*r.storage == storage && r.strategy.view_of().is_none());
        // The version in which objects are stored needs no conversion; any other is as good.
        let first = all.next()?;
        let stored =
            |r: &&Arc<Resource>| matches!(r.flavor, Flavor::Custom { fresh_since, .. } if fresh_since < u64::MAX);
        if stored(&first) { Some(first) } else { all.find(stored).or(Some(first)) }
    }

    /// The storage version of a custom resource, if it is served and another one than this.
    pub fn storage_version(&self, resource: &Resource) -> Option<&Arc<Resource>> {
        let Flavor::Custom { fresh_since: u64::MAX, .. } = resource.flavor else { return None };
        self.by_path.values().find(|r| {
            r.storage == resource.storage
                && matches!(r.flavor, Flavor::Custom { fresh_since, .. } if fresh_since < u64::MAX)
        })
    }

    /// The resource of an object's `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let exact = self.by_path.values().find(|r| r.group == group && r.version == version && r.kind == kind);
        exact.or_else(|| self.by_path.values().find(|r| r.group == group && r.kind == kind))
    }

    /// Groups in order, each with its versions in order of preference.
    pub fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for resource in self.by_path.values().filter(|r| !r.group.is_empty()) {
            let versions = groups.entry(&resource.group).or_default();
            if !versions.contains(&resource.version.as_str()) {
                versions.push(&resource.version);
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        }
        groups
    }
}

/// Order of preference of versions: v2 before v1 before v1beta2 before v1beta1 before v1alpha1 before others.
pub fn version_rank(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let plain = std::cmp::Reverse(version.to_owned());
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0, plain) };
    for (stage, rank) in [("alpha", 1), ("beta", 2)] {
        if let Some((major, minor)) = rest.split_once(stage)
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            return (rank, major, minor, plain);
        }
    }
    match rest.parse() {
        Ok(major) => (3, major, 0, plain),
        Err(_) => (0, 0, 0, plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_by_maturity() {
        let mut versions = vec!["v1alpha1", "foo", "v1beta2", "v2", "v1", "v1beta10"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(versions, ["v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }
}
