//! The catalog as it changes: the server's own kinds, and what definitions add and take away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use core_kinds::Defs;

use crate::builtin::selectable;
use crate::crd::compiled::Compiled;
use crate::resource::{Catalog, Flavor, Resource};

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
        let mut catalog = Catalog::first();
        for resource in builtins() {
            catalog.insert(Arc::new(resource));
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
        *now = Arc::new(now.replaced(group, plural, resources));
    }
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
        selectable: selectable::fields(group, plural),
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
