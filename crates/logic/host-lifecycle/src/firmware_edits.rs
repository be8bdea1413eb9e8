//! Edits of what is wished of the firmware.

use api::Time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::view::View;

/// Condition of HostFirmwareSettings and HostFirmwareComponents: what is wished is not what there is.
pub(crate) const CHANGED: &str = "ChangeDetected";

/// The condition of this type.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether what is wished of the firmware was edited after work had `failed`: nobody has looked at it yet, or its look is younger than that.
pub(crate) fn was_edited_since(view: &View<'_>, failed: &Time) -> bool {
    let (served, children) = (&view.settings.served, &view.children);
    let is_new = |generation: Option<i64>, conditions: &[Condition], read: Option<&Time>| {
        let Some(judged) = find(conditions, CHANGED) else { return false };
        if judged.observed_generation == generation {
            read.is_some_and(|read| read.0 > failed.0)
        } else {
            // A look that has failed is work that has failed.
            !view.firmware_tried
        }
    };
    let settings = children.firmware_settings.filter(|_| served.firmware_settings).is_some_and(|object| {
        let status = object.status.as_ref();
        status.is_some_and(|s| is_new(object.metadata.generation, &s.conditions, s.last_updated.as_ref()))
    });
    let components = children.firmware_components.filter(|_| served.firmware_updates).is_some_and(|object| {
        let status = object.status.as_ref();
        status.is_some_and(|s| is_new(object.metadata.generation, &s.conditions, s.last_updated.as_ref()))
    });
    settings || components
}
