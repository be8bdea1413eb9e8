//! What a provisioner is told of a host, as far as the host itself says it.

use api::metal3::{
    BareMetalHost, CustomDeploy, DiskFormat, HardwareData, Image, ProvisioningState as State, REPORTED_BY, annotation,
};
use api::metamorph::OperationType;
use host_lifecycle::{is_upstreams_default, wished_root_device_hints};
use inventory::RootDeviceHints;
use kube::ResourceExt;
use provisioner::in_use::Past;
use provisioner::{Deployed, HostFacts, HostKey, Method};
use sha2::{Digest, Sha256};

/// What is known of the host, except the contents of Secrets.
pub fn facts(host: &BareMetalHost, hardware: Option<&HardwareData>) -> HostFacts {
    let (spec, provisioning) = (&host.spec, host.status.as_ref().map(|status| &status.provisioning));
    HostFacts {
        key: key(host),
        address: spec.bmc.as_ref().map(|bmc| bmc.address.clone()).unwrap_or_default(),
        provisioning_id: provisioning.map(|provisioning| provisioning.id.clone()).unwrap_or_default(),
        past: past(host),
        boot_mode: provisioning.and_then(|provisioning| provisioning.boot_mode).or(spec.boot_mode).unwrap_or_default(),
        boot_mac: spec.boot_mac_address.clone().filter(|mac| !mac.is_empty()),
        architecture: spec.architecture.clone().filter(|architecture| !architecture.is_empty()),
        agent_network: None,
        disable_power_off: spec.disable_power_off.unwrap_or(false),
        cleaning: spec.automated_cleaning_mode.unwrap_or_default(),
        agent_image: None,
        deleting: host.is_deleting(),
        // Inspection writes both: the status stands for HardwareData that was lost, or not restored.
        // What a machine has told of itself is anybody's word.
        hardware: hardware
            .filter(|data| !data.annotations().contains_key(REPORTED_BY))
            .and_then(|data| data.spec.hardware.clone())
            .or_else(|| host.status.as_ref().and_then(|status| status.hardware.clone())),
        deployed: Some(deployed(host)),
        listens: None,
        accept_machine: host.annotation(annotation::ACCEPT_MACHINE).map(ToOwned::to_owned),
    }
}

/// What the status tells of the machine's past.
fn past(host: &BareMetalHost) -> Past {
    let ended = host.status.as_ref().and_then(|status| status.operation_history.deprovision.end.as_ref());
    let removing = began(host, OperationType::Deprovision).filter(|_| host.state() == State::Deprovisioning);
    Past {
        made: host.metadata.creation_timestamp.as_ref().map(|made| made.0),
        removing: removing.map(|began| began.0),
        externally: host.spec.externally_provisioned == Some(true),
        provisioned: began(host, OperationType::Provision).map(|began| began.0),
        emptied: ended.map(|end| end.0),
        runs: provisioned(host),
        consent: host.annotation(annotation::OVERWRITE_OWNER).map(ToOwned::to_owned),
    }
}

/// What is on the machine, as the host says.
pub fn deployed(host: &BareMetalHost) -> Deployed {
    let Some(status) = &host.status else { return Deployed::default() };
    let provisioning = &status.provisioning;
    let method = provisioning.custom_deploy.as_ref();
    Deployed {
        image: Some(provisioning.image.clone()).filter(|image| !image.url.is_empty()),
        method: method_of(method, &provisioning.image),
        externally: host.state() == State::ExternallyProvisioned || host.spec.externally_provisioned == Some(true),
        wish: provisioned_by(host),
    }
}

/// The wish that what the status says is provisioned was provisioned by, as [`wish`] said it then, and as [`asked_for`] says it: where baremetal-operator has
/// named its default disk, the host asks for none.
fn provisioned_by(host: &BareMetalHost) -> Option<String> {
    let began = jiff::Timestamp::from_second(began(host, OperationType::Provision)?.0.as_second()).ok()?;
    provisioned(host).map(|provisioned| format!("{began} {provisioned}"))
}

/// What the status says is provisioned: the wish without its time.
fn provisioned(host: &BareMetalHost) -> Option<String> {
    let provisioned = &host.status.as_ref()?.provisioning;
    let image = Some(&provisioned.image).filter(|image| !image.url.is_empty());
    let hints = provisioned.root_device_hints.as_ref().filter(|hints| !is_upstreams_default(host, hints));
    (image.is_some() || provisioned.custom_deploy.is_some()).then(|| identity(image, hints))
}

/// How a system gets onto the machine.
pub fn method_of(custom: Option<&CustomDeploy>, image: &Image) -> Method {
    match custom.map(|custom| custom.method.as_str()).filter(|method| !method.is_empty()) {
        Some(method) => Method::Custom(method.to_owned()),
        None if image.format == Some(DiskFormat::LiveIso) => Method::LiveIso,
        None => Method::Disk,
    }
}

/// The host's identity.
pub fn key(host: &BareMetalHost) -> HostKey {
    HostKey {
        namespace: host.namespace().unwrap_or_default(),
        name: host.name_any(),
        uid: host.uid().unwrap_or_default(),
    }
}

/// When the host began with its present work of this kind.
fn began(host: &BareMetalHost, operation: OperationType) -> Option<api::Time> {
    let history = &host.status.as_ref()?.operation_history;
    match operation {
        OperationType::Inspect => history.inspect.start.clone(),
        OperationType::Provision => history.provision.start.clone(),
        OperationType::Deprovision | OperationType::Erase | OperationType::Steps => history.deprovision.start.clone(),
        // The host does not say when. The last five are no work of a provisioner's on the host.
        OperationType::Prepare
        | OperationType::Service
        | OperationType::Reboot
        | OperationType::Rebuild
        | OperationType::CollectLogs
        | OperationType::Diagnose
        | OperationType::Locate => None,
    }
}

/// Identity of the host's wish: when its work began and, for provisioning, the image and the disk. `None` if the status does not record when.
pub fn wish(host: &BareMetalHost, operation: OperationType) -> Option<String> {
    let began = jiff::Timestamp::from_second(began(host, operation)?.0.as_second()).ok()?;
    if operation == OperationType::Erase {
        // Another request is another wish, whatever the clock has done.
        return Some(format!("{began} {}", host.annotation(annotation::ERASE).unwrap_or_default()));
    }
    if operation == OperationType::Steps {
        return Some(format!("{began} {}", host.annotation(annotation::STEPS).unwrap_or_default()));
    }
    if operation != OperationType::Provision {
        return Some(began.to_string());
    }
    let status = host.status.as_ref()?;
    let asked = identity(status.last_attempted_image.as_ref(), status.provisioning.root_device_hints.as_ref());
    Some(format!("{began} {asked}"))
}

/// Identity of an image and the disk that it goes to.
fn identity(image: Option<&Image>, hints: Option<&RootDeviceHints>) -> String {
    let digest = Sha256::digest(serde_json::json!([image, hints]).to_string().as_bytes());
    hex::encode(&digest[..8])
}

/// What a host that has never been registered asks to be provisioned with, as [`wish`] says it; for a host that asks for no image, what no wish says.
pub fn asked_for(host: &BareMetalHost) -> String {
    let image = host.spec.image.as_ref().filter(|image| !image.url.is_empty());
    match image.filter(|_| host.spec.custom_deploy.as_ref().is_none_or(|custom| custom.method.is_empty())) {
        Some(image) => identity(Some(image), wished_root_device_hints(host).as_ref()),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(history: serde_json::Value) -> BareMetalHost {
        let mut host = BareMetalHost::new("h", api::metal3::BareMetalHostSpec::default());
        host.status = Some(serde_json::from_value(serde_json::json!({ "operationHistory": history })).unwrap());
        host
    }

    #[test]
    fn the_hardware_in_the_status_counts_where_there_is_no_other() {
        let mut host = host(serde_json::json!({}));
        assert_eq!(facts(&host, None).hardware, None);
        let named = |name: &str| {
            std::sync::Arc::new(inventory::HardwareDetails { hostname: Some(name.into()), ..Default::default() })
        };
        host.status.as_mut().unwrap().hardware = Some(named("status"));
        let mut data = HardwareData::new("h", serde_json::from_value(serde_json::json!({})).unwrap());
        assert_eq!(facts(&host, None).hardware, Some(named("status")));
        assert_eq!(facts(&host, Some(&data)).hardware, Some(named("status")));
        data.spec.hardware = Some(named("data"));
        assert_eq!(facts(&host, Some(&data)).hardware, Some(named("data")));
    }

    #[test]
    fn a_wish_is_of_its_time_and_of_what_was_asked_for() {
        let at = |time: &str| host(serde_json::json!({ "provision": { "start": time, "end": null } }));
        let one = at("2026-01-01T00:00:00Z");
        let kind = OperationType::Provision;
        assert_eq!(wish(&one, kind), wish(&at("2026-01-01T00:00:00Z"), kind));
        assert_ne!(wish(&one, kind), wish(&at("2026-01-01T00:00:01Z"), kind));
        assert_eq!(wish(&one, OperationType::Deprovision), None);
        let mut other = one.clone();
        let image = api::metal3::Image { url: "http://images/other".to_owned(), ..Default::default() };
        other.status.as_mut().unwrap().last_attempted_image = Some(image);
        assert_ne!(wish(&one, kind), wish(&other, kind));
    }

    #[test]
    fn a_host_without_status_asks_for_what_its_wish_was() {
        let mut host = host(serde_json::json!({ "provision": { "start": "2026-01-01T00:00:00Z", "end": null } }));
        assert_eq!(asked_for(&host), "nothing");
        let image = api::metal3::Image { url: "http://images/one".to_owned(), ..Default::default() };
        let hints = RootDeviceHints { device_name: Some("/dev/sdb".to_owned()), ..RootDeviceHints::default() };
        for hints in [None, Some(hints)] {
            host.spec.root_device_hints.clone_from(&hints);
            host.spec.image = Some(image.clone());
            let status = host.status.as_mut().unwrap();
            status.last_attempted_image = Some(image.clone());
            status.provisioning.root_device_hints = hints;
            let wish = wish(&host, OperationType::Provision).unwrap();
            assert_eq!(wish.split_once(' ').unwrap().1, asked_for(&host));
        }
        host.spec.custom_deploy = Some(CustomDeploy { method: "burn".into() });
        assert_eq!(asked_for(&host), "nothing");
    }
}
