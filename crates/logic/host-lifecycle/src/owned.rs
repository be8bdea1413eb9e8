//! Ownership of the objects beside a host: those of its firmware are created once it is registered, and each is deleted with the host, its owner
//! (baremetal-operator `registerHost`). If one asks for what the provisioner does not serve, an Event says so when the host becomes its owner.

use api::metal3::{BareMetalHost, ProvisioningState as State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::children::ChildWrite;
use crate::data_image;
use crate::draft::Draft;
use crate::step::{Next, Step};
use crate::view::View;

/// Whether the host is among the object's owners.
pub(crate) fn is_owned(object: &ObjectMeta, host: &BareMetalHost) -> bool {
    host.metadata.uid.as_ref().is_some_and(|uid| has_owner(object, uid))
}

/// Whether whatever has this uid is among the object's owners.
pub(crate) fn has_owner(object: &ObjectMeta, uid: &str) -> bool {
    object.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// Creates missing objects, and makes the host the owner of existing ones.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let state = view.host.state();
    let early = matches!(state, State::None | State::Unmanaged | State::Registering | State::Deleting);
    if view.host.is_deleting() || early || !view.is_registered() {
        return None;
    }
    let (served, children) = (&view.settings.served, &view.children);
    let lacks = |object: Option<&ObjectMeta>, made: bool| object.map_or(made, |object| !is_owned(object, view.host));
    let settings = children.firmware_settings.map(|object| &object.metadata);
    let components = children.firmware_components.map(|object| &object.metadata);
    let policy = children.update_policy.map(|object| &object.metadata);
    let mut draft = Draft::new(view);
    let mut any = false;
    let wanted = [
        (lacks(settings, served.firmware_settings), ChildWrite::OwnFirmwareSettings),
        (lacks(components, served.reads_components()), ChildWrite::OwnFirmwareComponents),
        (lacks(policy, false), ChildWrite::OwnUpdatePolicy),
    ];
    for (wanted, write) in wanted {
        if wanted {
            let unserved = match write {
                ChildWrite::OwnFirmwareSettings if !served.firmware_settings => {
                    Some("HostFirmwareSettings asks for settings")
                }
                // One that is created here asks for nothing.
                ChildWrite::OwnFirmwareComponents if !served.firmware_updates && components.is_some() => {
                    Some("HostFirmwareComponents asks for updates")
                }
                ChildWrite::OwnUpdatePolicy if !served.service => Some("HostUpdatePolicy asks for changes at a reboot"),
                _ => None,
            };
            if let Some(what) = unserved {
                let then = if matches!(write, ChildWrite::OwnUpdatePolicy) {
                    "it has no effect"
                } else {
                    "until that is removed, the host is not prepared, and so is given no image"
                };
                let text = format!("The host's {what}, which the provisioner of this host cannot make; {then}");
                draft.warn("NotServed", &text);
            }
            draft.write_child(write);
            any = true;
        }
    }
    if served.data_images
        && let Some(write) = data_image(view)
    {
        if matches!(write, ChildWrite::HoldDataImage) {
            draft.event(
                "DataImageWaits",
                "The data image is attached when the machine is powered on next after an image was provisioned: reboot the host then (annotation reboot.metal3.io)",
            );
        }
        draft.write_child(write);
        any = true;
    }
    any.then(|| draft.step(Next::Now))
}

/// A DataImage is its host's from the beginning, as upstream has it, and not only when it is attached. Where nothing can be attached it goes at once.
/// Hosts at rest do that with the rest of what they do with it ([`crate::data_image`]).
fn data_image(view: &View<'_>) -> Option<ChildWrite> {
    let image = view.children.data_image?;
    let held = view.children.holds_data_image();
    let works = matches!(view.host.state(), State::Inspecting | State::Preparing | State::Provisioning);
    let is_empty = works || matches!(view.host.state(), State::Available | State::Ready);
    match image.metadata.deletion_timestamp {
        None => (is_empty && !held).then_some(ChildWrite::HoldDataImage),
        Some(_) => (works && held && data_image::is_out(image)).then_some(ChildWrite::ReleaseDataImage),
    }
}
