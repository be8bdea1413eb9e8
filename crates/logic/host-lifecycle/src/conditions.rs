//! The six conditions of a BareMetalHost (baremetal-operator `apis/metal3.io/v1alpha1`, `internal/controller/metal3.io`).

use api::Time;
use api::metal3::{BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState as State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::view::View;

/// A condition's type, status and reason.
type Fact = (&'static str, &'static str, &'static str);

/// Brings the conditions up to date; a transition time moves only when its status does.
pub(crate) fn update(view: &View<'_>, status: &mut BareMetalHostStatus) {
    for (kind, value, reason) in facts(status) {
        let generation = view.host.metadata.generation;
        match status.conditions.iter_mut().find(|c| c.type_ == kind) {
            Some(old) => {
                if old.status != value {
                    old.last_transition_time = Time(view.now);
                }
                value.clone_into(&mut old.status);
                reason.clone_into(&mut old.reason);
                old.message.clear();
                old.observed_generation = generation;
            }
            None => status.conditions.push(Condition {
                last_transition_time: Time(view.now),
                message: String::new(),
                observed_generation: generation,
                reason: reason.to_owned(),
                status: value.to_owned(),
                type_: kind.to_owned(),
            }),
        }
    }
}

fn facts(status: &BareMetalHostStatus) -> [Fact; 6] {
    [manageable(status), available(status), provisioned(status), ready(status), progressing(status), healthy()]
}

fn manageable(status: &BareMetalHostStatus) -> Fact {
    let (value, reason) = match (status.provisioning.state, status.error_type) {
        (State::None | State::Unmanaged, _) => ("False", "NotManaged"),
        _ if status.operational_status == OperationalStatus::Detached => ("False", "NotManaged"),
        (_, Some(ErrorType::Registration | ErrorType::ProvisionedRegistration)) => ("False", "RegistrationFailed"),
        (_, Some(ErrorType::PowerManagement)) => ("False", "PowerFailure"),
        (State::Registering, _) => ("False", "Registering"),
        _ if status.provisioning.id.is_empty() => ("False", "NotManaged"),
        _ => ("True", "Managed"),
    };
    ("Manageable", value, reason)
}

fn available(status: &BareMetalHostStatus) -> Fact {
    match status.provisioning.state {
        State::Available | State::Ready => ("AvailableForProvisioning", "True", "Available"),
        _ => ("AvailableForProvisioning", "False", "NotAvailable"),
    }
}

fn provisioned(status: &BareMetalHostStatus) -> Fact {
    match status.provisioning.state {
        State::Provisioned | State::ExternallyProvisioned => ("Provisioned", "True", "Provisioned"),
        _ => ("Provisioned", "False", "NotProvisioned"),
    }
}

fn ready(status: &BareMetalHostStatus) -> Fact {
    let settled = matches!(status.provisioning.state, State::Provisioned | State::ExternallyProvisioned);
    let (value, reason) = match status.operational_status {
        _ if !settled => ("False", "NotProvisioned"),
        OperationalStatus::Error => ("False", "Error"),
        OperationalStatus::Servicing => ("False", "Servicing"),
        OperationalStatus::Detached => ("False", "Detached"),
        _ => ("True", "Ready"),
    };
    ("Ready", value, reason)
}

fn progressing(status: &BareMetalHostStatus) -> Fact {
    let (value, reason) = match status.provisioning.state {
        State::Registering => ("True", "Registering"),
        State::Inspecting => ("True", "Inspecting"),
        State::MatchProfile | State::Preparing => ("True", "Preparing"),
        State::Provisioning => ("True", "Provisioning"),
        State::Deprovisioning => ("True", "Deprovisioning"),
        State::PoweringOffBeforeDelete => ("True", "PoweringOff"),
        State::Deleting => ("True", "Deleting"),
        _ if status.operational_status == OperationalStatus::Detached => ("False", "Detached"),
        _ => ("False", "NotProgressing"),
    };
    ("Progressing", value, reason)
}

/// Nobody reports a machine's health yet: unknown, as upstream says of a provisioner that does not.
fn healthy() -> Fact {
    ("Healthy", "Unknown", "HealthUnknown")
}
