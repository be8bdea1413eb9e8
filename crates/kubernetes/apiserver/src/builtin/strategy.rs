//! Rules of the server's own kinds: what is filled in, what may not change, what must hold.

use serde_json::json;

use super::events::event_from_events_v1;
use super::rules;
use crate::object::{Object, child, metadata_mut, name};
use crate::resource::Resource;
use crate::status::FieldError;

/// Fills in what a new or changed object of this kind needs, after decoding.
pub fn defaults(resource: &Resource, object: &mut Object) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => rules::config::secret_defaults(object),
        ("", "nodes") => rules::node::defaults(object),
        ("", "services") => rules::service::defaults(object),
        ("", "endpoints") => rules::endpoints::endpoints_defaults(object),
        ("discovery.k8s.io", "endpointslices") => rules::endpoints::slice_defaults(object),
        ("", "namespaces") => {
            let label = name(object).to_owned();
            if !label.is_empty() {
                child(metadata_mut(object), "labels").insert("kubernetes.io/metadata.name".into(), json!(label));
            }
        }
        ("", "limitranges") => rules::quota::limit_defaults(object),
        ("networking.k8s.io", "ingressclasses") => rules::networking::class_defaults(object),
        ("networking.k8s.io", "networkpolicies") => rules::networking::policy_defaults(object),
        ("scheduling.k8s.io", _) => rules::scheduling::priority_defaults(object),
        ("apiextensions.k8s.io", _) => crate::crd::lifecycle::defaults(object),
        (crate::auth::index::GROUP, plural) => super::rbac::defaults(plural, object),
        (crate::admission::GROUP, plural) => crate::admission::kinds::defaults(plural, object),
        _ => {}
    }
}

/// Sets what only the server may set on a new object.
pub fn prepare_create(resource: &Resource, object: &mut Object) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            // A name that was made only now has no label yet.
            let label = name(object).to_owned();
            child(metadata_mut(object), "labels").insert("kubernetes.io/metadata.name".into(), json!(label));
            let finalizers = child(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers.as_array_mut()
                && !list.contains(&json!("kubernetes"))
            {
                list.push(json!("kubernetes"));
            }
            object.insert("status".into(), json!({"phase": "Active"}));
        }
        ("", "services") => rules::service::prepare_create(object),
        ("", "nodes") => {
            rules::node::prepare_create(object);
        }
        ("discovery.k8s.io", "endpointslices") => rules::endpoints::slice_prepare(object, None),
        ("coordination.k8s.io", "leases") => rules::lease::prepare(object, None),
        ("apiextensions.k8s.io", _) => crate::crd::lifecycle::first_status(object),
        _ => {}
    }
}

/// Keeps what an update may not change.
pub fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            for key in ["spec", "status"] {
                match old.get(key) {
                    Some(value) => object.insert(key.into(), value.clone()),
                    None => object.shift_remove(key),
                };
            }
        }
        ("", "services") => rules::service::prepare_update(object, old),
        ("discovery.k8s.io", "endpointslices") => rules::endpoints::slice_prepare(object, Some(old)),
        ("coordination.k8s.io", "leases") => rules::lease::prepare(object, Some(old)),
        ("certificates.k8s.io", _) => rules::signing::prepare_update(object, old),
        ("apiextensions.k8s.io", _) => crate::crd::lifecycle::remember_storage(object),
        _ => {}
    }
}

/// Keeps of the status what a write by `sub` may not change.
pub fn prepare_part(resource: &Resource, object: &mut Object, old: &Object, sub: &str) {
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        rules::signing::prepare_part(object, old, sub);
    }
}

/// Checks an object; `old` is its former state, `sub` the subresource that it is written by.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>, sub: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => rules::config::secret(object, old, &mut errors),
        ("", "configmaps") => rules::config::config_map(object, old, &mut errors),
        ("", "namespaces") => rules::namespace::namespace(object, sub, &mut errors),
        ("", "nodes") => rules::node::node(object, old, &mut errors),
        ("", "services") => rules::service::service(object, old, sub, &mut errors),
        ("", "endpoints") => rules::endpoints::endpoints(object, old, &mut errors),
        ("discovery.k8s.io", "endpointslices") => rules::endpoints::slice(object, old, &mut errors),
        ("", "events") => rules::event::event(object, old, false, &mut errors),
        ("events.k8s.io", "events") => {
            let core = |event: &Object| {
                let mut event = event.clone();
                event_from_events_v1(&mut event);
                event
            };
            rules::event::event(&core(object), old.map(core).as_ref(), true, &mut errors);
        }
        ("coordination.k8s.io", "leases") => rules::lease::lease(object, &mut errors),
        ("", "resourcequotas") => rules::quota::quota(object, old, sub, &mut errors),
        ("", "limitranges") => rules::quota::limits(object, &mut errors),
        ("certificates.k8s.io", _) => rules::signing::request(object, old, sub, &mut errors),
        ("networking.k8s.io", "ingresses") => rules::networking::ingress(object, old, sub, &mut errors),
        ("networking.k8s.io", "ingressclasses") => rules::networking::class(object, old, &mut errors),
        ("networking.k8s.io", "networkpolicies") => rules::networking::policy(object, &mut errors),
        ("node.k8s.io", _) => rules::scheduling::runtime(object, old, &mut errors),
        ("policy", _) => rules::scheduling::budget(object, sub, &mut errors),
        ("scheduling.k8s.io", _) => rules::scheduling::priority(object, old, &mut errors),
        ("apiextensions.k8s.io", _) => errors = crate::crd::definition::validate(object, old),
        (crate::auth::index::GROUP, plural) => errors = super::rbac::validate(plural, object, old),
        (crate::admission::GROUP, plural) => errors = crate::admission::kinds::validate(plural, object, old, sub),
        _ => {}
    }
    errors
}

/// What the client of a valid object is told besides.
pub fn warnings(resource: &Resource, object: &Object, created: bool) -> Vec<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => rules::config::secret_warnings(object),
        ("", "nodes") => rules::node::warnings(object),
        ("", "services") => rules::service::warnings(object),
        ("", "endpoints") => rules::endpoints::endpoints_warnings(object),
        ("discovery.k8s.io", "endpointslices") => rules::endpoints::slice_warnings(object, created),
        _ => Vec::new(),
    }
}
