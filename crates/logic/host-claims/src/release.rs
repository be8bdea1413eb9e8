//! How a host is given back: emptied first, then released.

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use serde_json::{Value, json};

use crate::association::place;
use crate::synchronize::merge_patch;

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Release {
    /// The host's spec still asks for the claim's work: a JSON merge patch of it.
    Clear(Value),
    /// The host is being emptied; what is waited for, a sentence.
    Wait(String),
    /// Nothing of the claim is on it.
    LetGo,
}

/// Judges by the host as it is.
#[must_use]
pub fn release(host: &BareMetalHost) -> Release {
    let mut wanted = host.spec.clone();
    (wanted.image, wanted.custom_deploy) = (None, None);
    (wanted.user_data, wanted.meta_data, wanted.network_data) = (None, None, None);
    // A machine that somebody else looks after is not switched off for this.
    if host.spec.externally_provisioned != Some(true) {
        wanted.online = host.spec.disable_power_off == Some(true);
    }
    if let Some(patch) = merge_patch(&json!(host.spec), &json!(wanted)) {
        return Release::Clear(patch);
    }
    if unused(host) { Release::LetGo } else { Release::Wait(awaited(host)) }
}

/// Whether nothing of the host's last user is on it.
#[must_use]
pub fn unused(host: &BareMetalHost) -> bool {
    let Some(status) = &host.status else { return true };
    // What runs on it does not come from the claim.
    if host.spec.externally_provisioned == Some(true) {
        return true;
    }
    let busy = matches!(host.state(), State::Provisioning | State::Provisioned | State::Deprovisioning);
    let given = !status.provisioning.image.url.is_empty()
        || status.provisioning.custom_deploy.as_ref().is_some_and(|deploy| !deploy.method.is_empty());
    !busy && !given
}

fn awaited(host: &BareMetalHost) -> String {
    let place = place(host);
    let held = |key: &str| host.annotation(key).is_some();
    let status = host.status.as_ref();
    let error = status.and_then(|status| status.error_type);
    let why = match error {
        _ if held(annotation::PAUSED) => {
            format!("it is paused (annotation {}), and nothing is done to it", annotation::PAUSED)
        }
        _ if held(annotation::DETACHED) => {
            format!("it is detached (annotation {}), and nothing is done to it", annotation::DETACHED)
        }
        Some(error) => format!("it is in error ({}), of which its own status tells more", error.as_str()),
        None => format!("it is {}", host.state().as_str()),
    };
    format!("BareMetalHost {place} is to be deprovisioned before it is given back: {why}")
}
