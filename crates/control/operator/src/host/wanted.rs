//! Whether an effect that was decided on is still wanted.

use api::metal3::{BareMetalHost, annotation};
use api::metamorph::HostOperation;
use host_lifecycle::{erase_of, inspection_disabled, steps_of, wished_root_device_hints};
use jiff::Timestamp;
use kube::ResourceExt;

/// The request to erase is not what it was.
pub(super) const WITHDRAWN: &str = "the request to erase has been withdrawn, or another has come";
/// The same of a request for steps of hardware managers.
pub(super) const STEPS_WITHDRAWN: &str = "the request for steps has been withdrawn, or another has come";

/// What has happened to a host that makes an effect unwanted which was decided on `decided`; `switches`: it is the power that the host itself asks for.
pub(super) fn changed(decided: &BareMetalHost, now: Option<&BareMetalHost>, switches: bool) -> Option<&'static str> {
    let Some(now) = now.filter(|now| now.uid() == decided.uid()) else { return Some("the host has gone") };
    let has = |host: &BareMetalHost, key: &str| host.annotation(key).is_some();
    if has(now, annotation::PAUSED) {
        return Some("the host has been paused");
    }
    if has(now, annotation::DETACHED) != has(decided, annotation::DETACHED) {
        return Some("the host has been detached or attached");
    }
    if now.is_deleting() != decided.is_deleting() {
        return Some("the host's deletion has been asked for");
    }
    if now.annotation(annotation::OVERWRITE_OWNER) != decided.annotation(annotation::OVERWRITE_OWNER) {
        return Some("the consent to overwrite has changed");
    }
    if now.annotation(annotation::ERASE) != decided.annotation(annotation::ERASE) {
        return Some(WITHDRAWN);
    }
    if now.annotation(annotation::STEPS) != decided.annotation(annotation::STEPS) {
        return Some(STEPS_WITHDRAWN);
    }
    if now.spec.bmc != decided.spec.bmc {
        return Some("spec.bmc has changed");
    }
    if now.spec.automated_cleaning_mode != decided.spec.automated_cleaning_mode {
        return Some("spec.automatedCleaningMode has changed");
    }
    if inspection_disabled(now) != inspection_disabled(decided) {
        return Some("inspection has been disabled or enabled");
    }
    if now.spec.disable_power_off != decided.spec.disable_power_off {
        return Some("spec.disablePowerOff has changed");
    }
    if wished_root_device_hints(now) != wished_root_device_hints(decided) {
        return Some("spec.rootDeviceHints has changed");
    }
    if now.spec.externally_provisioned != decided.spec.externally_provisioned {
        return Some("spec.externallyProvisioned has changed");
    }
    let data = |host: &BareMetalHost| {
        let spec = &host.spec;
        (spec.user_data.clone(), spec.network_data.clone(), spec.meta_data.clone(), spec.custom_deploy.clone())
    };
    if data(now) != data(decided) {
        return Some("the data or the method of the deployment has changed");
    }
    if switches && (now.spec.online != decided.spec.online || !reboots(now).eq(reboots(decided))) {
        return Some("the wish for the machine's power has changed");
    }
    (now.spec.image != decided.spec.image).then_some("spec.image has changed")
}

/// Whether this HostOperation, which the host's annotation names, asks for its disks to be erased.
pub(super) fn is_asked_to_erase(now: &BareMetalHost, asked: Option<&HostOperation>, time: Timestamp) -> bool {
    now.annotation(annotation::ERASE).is_some_and(|value| erase_of(value, asked, now, time).is_some())
}

/// Whether this HostOperation, which the host's annotation names, asks for steps of hardware managers.
pub(super) fn is_asked_for_steps(now: &BareMetalHost, asked: Option<&HostOperation>, time: Timestamp) -> bool {
    now.annotation(annotation::STEPS).is_some_and(|value| steps_of(value, asked, now, time).is_some())
}

/// Its reboot annotations.
fn reboots(host: &BareMetalHost) -> impl Iterator<Item = (&String, &String)> {
    host.metadata.annotations.iter().flatten().filter(|(key, _)| key.starts_with(annotation::REBOOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Time;

    #[test]
    fn an_effect_is_unwanted_when_the_host_has_changed() {
        let mut decided = BareMetalHost::new("h", api::metal3::BareMetalHostSpec::default());
        decided.status = Some(api::metal3::BareMetalHostStatus::default());
        decided.metadata.uid = Some("u".to_owned());
        assert_eq!(changed(&decided, Some(&decided), true), None);
        assert!(changed(&decided, None, false).is_some());
        let hints = serde_json::json!({ "deviceName": "/dev/sda" });
        decided.spec.root_device_hints = Some(serde_json::from_value(hints).unwrap());
        let edits: [fn(&mut BareMetalHost); 14] = [
            |h| h.metadata.uid = Some("v".to_owned()),
            |h| h.annotations_mut().insert(annotation::ERASE.to_owned(), "a/b".to_owned()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::STEPS.to_owned(), "a/b".to_owned()).map_or((), drop),
            |h| h.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            |h| h.annotations_mut().insert(annotation::PAUSED.to_owned(), String::new()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::DETACHED.to_owned(), String::new()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::INSPECT.to_owned(), "disabled".to_owned()).map_or((), drop),
            |h| h.spec.automated_cleaning_mode = Some(api::metal3::CleaningMode::Disabled),
            |h| h.spec.disable_power_off = Some(true),
            |h| h.spec.root_device_hints = None,
            |h| h.spec.externally_provisioned = Some(true),
            |h| h.spec.user_data = Some(api::metal3::SecretReference::default()),
            |h| h.spec.image = Some(api::metal3::Image::default()),
            |h| h.spec.bmc = Some(api::metal3::Bmc { address: "redfish://x".to_owned(), ..Default::default() }),
        ];
        for (index, edit) in edits.into_iter().enumerate() {
            let mut now = decided.clone();
            edit(&mut now);
            assert!(changed(&decided, Some(&now), false).is_some(), "edit {index}");
        }
        let mut now = decided.clone();
        now.spec.online = !now.spec.online;
        now.labels_mut().insert("rack".to_owned(), "1".to_owned());
        now.annotations_mut().insert(annotation::REBOOT.to_owned(), String::new());
        assert_eq!(changed(&decided, Some(&now), false), None, "what does not matter to it");
        // The power that the host asks for is another matter.
        assert!(changed(&decided, Some(&now), true).is_some());
        now.spec.online = decided.spec.online;
        assert!(changed(&decided, Some(&now), true).is_some());
        now.annotations_mut().clear();
        assert_eq!(changed(&decided, Some(&now), true), None);
    }

    #[test]
    fn an_erase_is_asked_for_by_its_request_and_not_by_the_annotation() {
        let time = Timestamp::UNIX_EPOCH;
        let request = |phase: &str| -> HostOperation {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": {"name": "r", "uid": "ru"},
                "spec": {"type": "Erase", "host": {"name": "h"}, "erase": {"method": "Purge"}},
                "status": {"phase": phase, "hostUID": "u", "startTime": "1970-01-01T00:00:00Z"},
            }))
            .unwrap()
        };
        let mut host = BareMetalHost::new("h", api::metal3::BareMetalHostSpec::default());
        host.metadata.uid = Some("u".to_owned());
        let status = serde_json::json!({"provisioning": {"state": "deprovisioning"}});
        host.status = Some(serde_json::from_value(status).unwrap());
        host.annotations_mut().insert(annotation::ERASE.to_owned(), host_lifecycle::mark(&request("Running")));
        assert!(is_asked_to_erase(&host, Some(&request("Running")), time));
        assert!(!is_asked_to_erase(&host, None, time), "it was deleted");
        assert!(!is_asked_to_erase(&host, Some(&request("Cancelled")), time), "it has ended");
    }
}
