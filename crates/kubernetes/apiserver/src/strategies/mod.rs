//! The server's own kinds, one file a kind: its row in the table, what is filled in, what must hold, what clients are warned of, which
//! fields can be selected by, and what its deletion takes (`pkg/apis/*/validation` and `pkg/registry/*/strategy.go` of kube-apiserver).
//! Their fields are the table of the crate `core_kinds`.
//!
//! Nobody asks for a kind by its name: [`kinds`] is what the [`Registry`](crate::registry::Registry) begins with, and each
//! [`Resource`](crate::resource::Resource) knows its [`Strategy`](crate::strategy::Strategy).

mod admission;
mod certificate_signing_request;
mod config_map;
pub mod custom_resource_definition;
mod data;
mod endpoint_slice;
mod endpoints;
mod event;
mod ingress;
mod ingress_class;
mod lease;
mod limit_range;
mod namespace;
mod network_policy;
mod node;
mod pod_disruption_budget;
pub mod priority_class;
mod resource_quota;
mod reviews;
mod role;
mod role_binding;
mod runtime_class;
mod secret;
pub mod service;
mod service_account;
mod validating_admission_policy;
mod validating_admission_policy_binding;
mod webhook_configuration;

use crate::strategy::Kind;

/// All but the reviews.
const STORED: [Kind; 29] = [
    namespace::KIND,
    secret::KIND,
    config_map::KIND,
    service_account::KIND,
    event::CORE,
    event::KIND,
    node::KIND,
    service::KIND,
    endpoints::KIND,
    endpoint_slice::KIND,
    lease::KIND,
    custom_resource_definition::KIND,
    resource_quota::KIND,
    limit_range::KIND,
    certificate_signing_request::KIND,
    ingress::KIND,
    ingress_class::KIND,
    network_policy::KIND,
    runtime_class::KIND,
    pod_disruption_budget::KIND,
    priority_class::KIND,
    role::ROLE,
    role_binding::ROLE_BINDING,
    role::CLUSTER_ROLE,
    role_binding::CLUSTER_ROLE_BINDING,
    webhook_configuration::MUTATING,
    webhook_configuration::VALIDATING,
    validating_admission_policy::KIND,
    validating_admission_policy_binding::KIND,
];

/// All kinds.
pub fn kinds() -> impl Iterator<Item = Kind> {
    STORED.into_iter().chain(reviews::KINDS)
}
