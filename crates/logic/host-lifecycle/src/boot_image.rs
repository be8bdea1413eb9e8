//! The image that a host boots for work on it, if its provisioner does not bring its own: a PreprovisioningImage, which another controller
//! builds (baremetal-operator `getPreprovImage`).
//!
//! Work that boots it requests it and waits for it, except provisioning: the machine may have booted it already.

use api::metal3::{
    ErrorType, InspectionMode, PreprovisioningImage, PreprovisioningImageSpec, PreprovisioningImageStatus,
};

use crate::children::ChildWrite;
use crate::draft::{Draft, idle};
use crate::step::{Action, Next, Step};
use crate::view::View;
use crate::wishes;

/// How soon to look again after a request, if the work does not wait for the image.
const SOON: std::time::Duration = std::time::Duration::from_secs(1);

/// The step that must precede this action, if any.
pub(crate) fn before(view: &View<'_>, action: &Action) -> Option<Step> {
    if view.settings.served.boot_images.is_empty() {
        return None;
    }
    let waits = match action {
        // Fast inspection boots nothing.
        Action::Inspect { .. } if view.host.spec.inspection_mode == Some(InspectionMode::Fast) => return None,
        Action::Inspect { .. } => true,
        Action::Deprovision { clean: true, .. }
        | Action::Erase { .. }
        | Action::RunSteps { .. }
        | Action::Prepare { .. }
        | Action::Service { .. } => true,
        Action::Provision => false,
        _ => return None,
    };
    // A deletion does not wait for an image that may never be built.
    let waits = waits && !view.host.is_deleting();
    let served = &view.settings.served;
    let wished = wishes::boot_image(view.host, &served.boot_images, served.architectures.first());
    let Some(image) = view.children.boot_image else { return Some(ask(view, wished, waits)) };
    if image.metadata.deletion_timestamp.is_none() && image.spec != wished {
        return Some(ask(view, wished, waits));
    }
    if !waits {
        return None;
    }
    match ready(view, image) {
        Ok(true) => None,
        Ok(false) => Some(idle(view, Next::After(view.settings.image_poll))),
        Err(message) => {
            let mut draft = Draft::new(view);
            draft.fault(
                ErrorType::Registration,
                &format!("The host's PreprovisioningImage cannot be built: {message} — see that object's conditions"),
            );
            Some(draft.step(Next::After(view.settings.image_poll)))
        }
    }
}

fn ask(view: &View<'_>, wished: PreprovisioningImageSpec, waits: bool) -> Step {
    let mut draft = Draft::new(view);
    draft.write_child(ChildWrite::BootImage(Box::new(wished)));
    draft.step(Next::After(if waits { view.settings.image_poll } else { SOON }))
}

/// Whether the image is what its spec asks for.
///
/// # Errors
/// Why it cannot be built.
fn ready(view: &View<'_>, image: &PreprovisioningImage) -> Result<bool, String> {
    let Some(status) = &image.status else { return Ok(false) };
    if image.metadata.deletion_timestamp.is_some() {
        // The host's finalizer keeps it, and it is usable until it is deleted.
        let held = image.metadata.finalizers.as_ref().is_some_and(|held| !held.is_empty());
        return Ok(held && status.image_url.as_ref().is_some_and(|url| !url.is_empty()));
    }
    if !is_as_requested(view, image, status) {
        return Ok(false);
    }
    let condition =
        |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True");
    if let Some(error) = condition("Error") {
        return Err(error.message.chars().take(1024).collect());
    }
    Ok(condition("Ready").is_some_and(|ready| ready.observed_generation == image.metadata.generation))
}

fn is_as_requested(view: &View<'_>, image: &PreprovisioningImage, status: &PreprovisioningImageStatus) -> bool {
    let built_in = status.network_data.clone().unwrap_or_default();
    let (name, version) = (built_in.name.unwrap_or_default(), built_in.version.unwrap_or_default());
    let wished = image.spec.network_data_name.clone().unwrap_or_default();
    status.architecture.clone().unwrap_or_default() == image.spec.architecture.clone().unwrap_or_default()
        && status.format.is_some_and(|format| image.spec.accept_formats.contains(&format))
        && name == wished
        && (wished.is_empty() || view.children.network_data_version == Some(version.as_str()))
}
