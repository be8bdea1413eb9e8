//! Whether a host is as declared, for clients that wait for it.

use addresses::text_without_secrets;
use api::metal3::{
    BareMetalHost, BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState as State, annotation,
};

use crate::access;
use crate::annotations;
use crate::host_rules;
use crate::power_wish;
use crate::retry::edited_since;
use crate::targets;
use crate::wishes;

/// How a host stands to its spec and annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is as declared: what that is, in a few words.
    AsDeclared(String),
    /// Not yet: the error that is waited out, or what it waits for; empty while work is simply under way.
    NotYet(String),
    /// Only a change of the host will bring it there: why, and what to change.
    NeedsChange(String),
}

/// How this host stands. The power is the one last seen.
#[must_use]
pub fn standing(host: &BareMetalHost) -> Standing {
    let status = host.status.clone().unwrap_or_default();
    if host.is_deleting() {
        return Standing::NotYet("The host is being deleted — declare it again when it is gone".to_owned());
    }
    if host.annotation(annotation::PAUSED).is_some() {
        return match reached(host, &status) {
            Some(what) if status.error_type.is_none() => Standing::AsDeclared(format!("{what}; paused")),
            _ => Standing::NeedsChange(format!(
                "The host is paused, and nothing is done to it — remove the annotation {}",
                annotation::PAUSED
            )),
        };
    }
    if let Some(kind) = status.error_type {
        // A provisioning error of an available host concerns the image itself, or the count of attempts at it.
        let refused =
            kind == ErrorType::Provisioning && matches!(status.provisioning.state, State::Available | State::Ready);
        let edited = edited_since(host, &status);
        let message = status.error_message;
        return if refused && !edited { Standing::NeedsChange(message) } else { Standing::NotYet(message) };
    }
    match reached(host, &status) {
        Some(what) => Standing::AsDeclared(what),
        None => Standing::NotYet(status.error_message),
    }
}

/// What the host has come to, if that is what is declared.
fn reached(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<String> {
    let detached = status.operational_status == OperationalStatus::Detached;
    let wish = annotations::detached(host);
    if wish.is_some() || detached {
        let let_go = detached && wish.is_some_and(|wish| wish.applies(host.state()));
        return let_go.then(|| "detached".to_owned());
    }
    let held = matches!(status.operational_status, OperationalStatus::Delayed | OperationalStatus::Servicing);
    if held || status.conditions.is_empty() || edited_since(host, status) {
        return None;
    }
    let spec = &host.spec;
    let state = status.provisioning.state;
    if state == State::Unmanaged {
        let named = spec.bmc.as_ref().is_some_and(|b| !b.address.is_empty() || !b.credentials_name.is_empty());
        return (!named).then(|| "known, and not managed: it has no spec.bmc".to_owned());
    }
    if !power_wish::is_as_wished(host, status) {
        return None;
    }
    let external = spec.externally_provisioned == Some(true);
    match state {
        State::ExternallyProvisioned if external && !access::owes_adoption(status) => {
            Some("provisioned by somebody else".to_owned())
        }
        State::Available | State::Ready
            if !external
                && !annotations::inspection_requested(host)
                && !wishes::hints_differ(host, status)
                && !targets::raid_differs(host, status)
                && !wishes::deployment(host, status)
                && host_rules::first(host, &[ErrorType::Preparation]).is_none() =>
        {
            Some(match wishes::image(host) {
                Some(_) => "available; the image is written when spec.online is true".to_owned(),
                None => "available".to_owned(),
            })
        }
        State::Provisioned if !wishes::removal(host, status) && !access::owes_adoption(status) => {
            Some(provisioned(host, status))
        }
        _ => None,
    }
}

/// Only another URL makes another image; other differences are reported.
fn provisioned(host: &BareMetalHost, status: &BareMetalHostStatus) -> String {
    let there = &status.provisioning.image;
    match wishes::image(host) {
        Some(wished) if wished != there && !there.url.is_empty() => format!(
            "provisioned with {}; checksum or format were edited afterwards, which writes nothing anew",
            text_without_secrets(&there.url)
        ),
        Some(wished) => format!("provisioned with {}", text_without_secrets(&wished.url)),
        None => "provisioned".to_owned(),
    }
}
