//! What is served: one [`Resource`] per group, version and plural, and the catalog of all.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use core_kinds::{Def, Defs, canonical};
use structural_schema::rules::CelRules;
use structural_schema::schema::Schema;

use crate::builtin::strategy;
use crate::conversion::Versions;
use crate::crd::compiled::Compiled;
use crate::jsonpath::JsonPath;
use crate::object::{self, Object};
use crate::store::Key;

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

/// How objects are checked and changed.
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
    pub scale: Option<crate::crd::scale::Scale>,
    /// Its definition is on its way out: nothing new may be made.
    pub terminating: bool,
    /// Columns after the name, in order; without any, the age is shown.
    pub columns: Vec<Column>,
    /// Fields for selectors besides name and namespace.
    pub selectable: Vec<(String, JsonPath)>,
    /// Text of the warning that users of a deprecated version get.
    pub deprecation: Option<String>,
    /// How objects are checked and changed.
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
        matches!(self.flavor, Flavor::Builtin(_))
            && matches!(self.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
    }

    /// Whether a stored tail can be served as it is.
    pub fn serves_raw(&self, rev: u64) -> bool {
        match &self.flavor {
            Flavor::Builtin(_) => !self.is("events.k8s.io", "events"),
            Flavor::Custom { fresh_since, .. } => rev >= *fresh_since,
        }
    }

    /// The object of a stored tail, in this version.
    pub fn load(&self, rev: u64, tail: &[u8]) -> Result<Object, serde_json::Error> {
        let mut object = object::from_tail(&self.api_version(), &self.kind, rev, tail)?;
        match &self.flavor {
            Flavor::Builtin(_) if self.group == "events.k8s.io" => strategy::event_to_events_v1(&mut object),
            Flavor::Custom { fresh_since, .. } if rev < *fresh_since => self.settle(&mut object),
            _ => {}
        }
        Ok(object)
    }

    /// Prunes and defaults a custom resource by this version's schema.
    pub fn settle(&self, object: &mut Object) {
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
            Flavor::Builtin(_) if self.group == "events.k8s.io" => strategy::event_from_events_v1(&mut object),
            Flavor::Builtin(def) => canonical::settle(def, &mut object),
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
        let mut all = self.by_path.values().filter(|r| &*r.storage == storage && r.group != "events.k8s.io");
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

/// Revisions of definitions that are gone are remembered for so long: a write that was overtaken comes no later.
const MARK_AGE: u64 = 100_000;

/// The catalog as it changes.
pub struct Registry {
    now: RwLock<Arc<Catalog>>,
    /// Revision of the definition seen last, by name of the resource (`plural.group`).
    seen: Mutex<HashMap<String, u64>>,
    /// Held while a definition's names are accepted: two at once could both be given the same.
    pub naming: tokio::sync::Mutex<()>,
    /// What other servers may have compiled already.
    pub compiled: Compiled,
}

impl Registry {
    /// With the server's own kinds.
    pub fn new() -> Self {
        Self::with(Compiled::default())
    }

    /// As [`Registry::new`]; definitions are compiled with others.
    pub fn with(compiled: Compiled) -> Self {
        let mut catalog = Catalog { generation: 1, ..Catalog::default() };
        for resource in builtins() {
            insert(&mut catalog, Arc::new(resource));
        }
        let now = RwLock::new(Arc::new(catalog));
        Self { now, seen: Mutex::default(), naming: tokio::sync::Mutex::default(), compiled }
    }

    /// What is served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all versions of `plural.group` by these (none removes it), as the definition of revision `rev` has them.
    /// One that was overtaken by a newer revision changes nothing.
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
        let mut by_path = now.by_path.clone();
        by_path.retain(|_, r| r.group != group || r.plural != plural);
        let mut next = Catalog { by_path, generation: now.generation + 1 };
        for resource in resources {
            insert(&mut next, resource);
        }
        *now = Arc::new(next);
    }
}

fn insert(catalog: &mut Catalog, resource: Arc<Resource>) {
    let path = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
    catalog.by_path.insert(path, resource);
}

/// Group, version, kind, plural, short names, namespaced, status.
type Own = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str], bool, bool);

const OWN: &[Own] = &[
    ("", "v1", "Namespace", "namespaces", &["ns"], false, true),
    ("", "v1", "Secret", "secrets", &[], true, false),
    ("", "v1", "ConfigMap", "configmaps", &["cm"], true, false),
    ("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], true, false),
    ("", "v1", "Event", "events", &["ev"], true, false),
    ("events.k8s.io", "v1", "Event", "events", &["ev"], true, false),
    ("", "v1", "Node", "nodes", &["no"], false, true),
    ("", "v1", "Service", "services", &["svc"], true, true),
    ("", "v1", "Endpoints", "endpoints", &["ep"], true, false),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], true, false),
    ("coordination.k8s.io", "v1", "Lease", "leases", &[], true, false),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        false,
        true,
    ),
    ("", "v1", "ResourceQuota", "resourcequotas", &["quota"], true, true),
    ("", "v1", "LimitRange", "limitranges", &["limits"], true, false),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", &["csr"], false, true),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], true, true),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", &[], false, false),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], true, false),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", &[], false, false),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], true, true),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], false, false),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], true, false),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], true, false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], false, false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], false, false),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", &[], false, false),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", &[], true, false),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], false, false),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", &[], false, false),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", &[], false, false),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", &[], false, false),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &[],
        false,
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        &[],
        false,
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        &[],
        false,
        true,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        &[],
        false,
        false,
    ),
];

/// What `scale` takes and gives.
pub fn scale() -> Option<Resource> {
    builtin(&("autoscaling", "v1", "Scale", "scales", &[], true, false))
}

/// What `serviceaccounts/token` takes and gives: served there alone.
pub fn token_request() -> Option<Resource> {
    builtin(&("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", &[], true, false))
}

fn builtins() -> impl Iterator<Item = Resource> {
    OWN.iter().filter_map(builtin)
}

fn builtin(&(group, version, kind, plural, short, namespaced, status): &Own) -> Option<Resource> {
    let def = Defs::get().kind(group, version, kind)?;
    let storage = match group {
        "" | "events.k8s.io" => plural.to_owned(),
        group => format!("{group}/{plural}"),
    };
    Some(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        short_names: short.iter().map(|s| (*s).to_owned()).collect(),
        categories: categories(group, plural).iter().map(|c| (*c).to_owned()).collect(),
        namespaced,
        storage: storage.into(),
        status,
        scale: None,
        terminating: false,
        columns: Vec::new(),
        selectable: strategy::selectable(group, plural),
        deprecation: (kind == "Endpoints")
            .then(|| "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()),
        flavor: Flavor::Builtin(def),
    })
}

fn categories(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "services") => &["all"],
        ("apiextensions.k8s.io" | "admissionregistration.k8s.io", _) => &["api-extensions"],
        _ => &[],
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
        let registry = Registry::new();
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
    fn all_own_kinds_have_a_definition() {
        assert_eq!(Registry::new().catalog().all().count(), OWN.len());
    }
}
