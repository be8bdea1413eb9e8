//! The Rust types agree with upstream's schemas: an object that has every field the schema knows survives the types unchanged,
//! and whatever the types write is known to the schema.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

fn schema(yaml: &str) -> Value {
    let crd: Value = serde_saphyr::from_str(yaml).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// A value with every property of the schema; `pick` chooses among enum values.
fn fill(schema: &Value, pick: usize) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return values[pick % values.len()].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if pick.is_multiple_of(2) { json!(pick) } else { json!("text") };
    }
    match schema["type"].as_str().unwrap() {
        "object" => {
            if let Some(each) = schema.get("additionalProperties").filter(|p| p.is_object()) {
                return json!({ "key": fill(each, pick) });
            }
            let fields = schema["properties"].as_object().cloned().unwrap_or_default();
            Value::Object(fields.iter().map(|(k, s)| (k.clone(), fill(s, pick))).collect::<Map<_, _>>())
        }
        "array" => json!([fill(&schema["items"], pick)]),
        "string" if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        "string" => json!("00:11:22:33:44:55"),
        "integer" => json!(1 + pick),
        "number" => json!(1.5),
        "boolean" => json!(pick.is_multiple_of(2)),
        other => panic!("schema type {other} is not covered"),
    }
}

fn object(schema: &Value, pick: usize) -> Value {
    let mut value = fill(schema, pick);
    value["metadata"] = json!({ "name": "h", "namespace": "n" });
    if let Some(state) = value.pointer_mut("/status/provisioning/state") {
        *state = json!("provisioned");
    }
    value
}

fn survives<T: serde::Serialize + serde::de::DeserializeOwned>(yaml: &str, kind: &str, version: &str) {
    let schema = schema(yaml);
    for pick in 0..8 {
        let mut value = object(&schema, pick);
        value["kind"] = json!(kind);
        value["apiVersion"] = json!(version);
        let typed: T = serde_json::from_value(value.clone()).unwrap();
        let back = serde_json::to_value(&typed).unwrap();
        assert_eq!(back, value);
    }
}

#[test]
fn bare_metal_host_keeps_every_field_of_upstreams_schema() {
    survives::<api::metal3::BareMetalHost>(api::crds::BARE_METAL_HOST, "BareMetalHost", "metal3.io/v1alpha1");
}

#[test]
fn hardware_data_keeps_every_field_of_upstreams_schema() {
    survives::<api::metal3::HardwareData>(api::crds::HARDWARE_DATA, "HardwareData", "metal3.io/v1alpha1");
}

#[test]
fn the_kinds_beside_a_host_keep_every_field_of_upstreams_schemas() {
    use api::metal3::{
        BMCEventSubscription, DataImage, FirmwareSchema, HostFirmwareComponents, HostFirmwareSettings,
        HostUpdatePolicy, PreprovisioningImage,
    };
    let version = "metal3.io/v1alpha1";
    survives::<HostFirmwareSettings>(api::crds::HOST_FIRMWARE_SETTINGS, "HostFirmwareSettings", version);
    survives::<FirmwareSchema>(api::crds::FIRMWARE_SCHEMA, "FirmwareSchema", version);
    survives::<HostFirmwareComponents>(api::crds::HOST_FIRMWARE_COMPONENTS, "HostFirmwareComponents", version);
    survives::<HostUpdatePolicy>(api::crds::HOST_UPDATE_POLICY, "HostUpdatePolicy", version);
    survives::<PreprovisioningImage>(api::crds::PREPROVISIONING_IMAGE, "PreprovisioningImage", version);
    survives::<DataImage>(api::crds::DATA_IMAGE, "DataImage", version);
    survives::<BMCEventSubscription>(api::crds::BMC_EVENT_SUBSCRIPTION, "BMCEventSubscription", version);
}

#[test]
fn claims_and_policies_keep_every_field_of_upstreams_schemas() {
    use api::metal3::{HostClaim, HostDeployPolicy};
    let version = "metal3.io/v1alpha1";
    survives::<HostClaim>(api::crds::HOST_CLAIM, "HostClaim", version);
    survives::<HostDeployPolicy>(api::crds::HOST_DEPLOY_POLICY, "HostDeployPolicy", version);
}

#[test]
fn switches_and_attachments_keep_every_field_of_upstreams_schemas() {
    use api::metal3::{BareMetalSwitch, HostNetworkAttachment};
    let version = "metal3.io/v1alpha1";
    survives::<BareMetalSwitch>(api::crds::BARE_METAL_SWITCH, "BareMetalSwitch", version);
    survives::<HostNetworkAttachment>(api::crds::HOST_NETWORK_ATTACHMENT, "HostNetworkAttachment", version);
}

#[test]
fn classifications_keep_every_field_of_upstreams_schema() {
    let version = "metal3.io/v1alpha1";
    survives::<api::metal3::HardwareClassification>(
        api::crds::HARDWARE_CLASSIFICATION,
        "HardwareClassification",
        version,
    );
}

#[test]
fn an_object_beside_a_host_is_read_without_a_spec() {
    let bare = json!({ "metadata": { "name": "h" } });
    assert_eq!(serde_json::from_value::<api::metal3::DataImage>(bare.clone()).unwrap().spec.url, "");
    let schema: api::metal3::FirmwareSchema = serde_json::from_value(bare.clone()).unwrap();
    assert_eq!(schema, api::metal3::FirmwareSchema::new("h", Default::default()));
    let settings: api::metal3::HostFirmwareSettings = serde_json::from_value(bare).unwrap();
    assert_eq!(settings, api::metal3::HostFirmwareSettings::new("h", Default::default()));
}

#[test]
fn a_fresh_status_beside_a_host_is_known_to_its_schema() {
    let statuses = [
        (api::crds::HOST_FIRMWARE_SETTINGS, json!(api::metal3::HostFirmwareSettingsStatus::default())),
        (api::crds::HOST_FIRMWARE_COMPONENTS, json!(api::metal3::HostFirmwareComponentsStatus::default())),
        (api::crds::DATA_IMAGE, json!(api::metal3::DataImageStatus::default())),
        (api::crds::HOST_CLAIM, json!(api::metal3::HostClaimStatus::default())),
        (api::crds::HARDWARE_CLASSIFICATION, json!(full_classification_status())),
        (api::crds::BARE_METAL_SWITCH, json!(api::metal3::BareMetalSwitchStatus::default())),
    ];
    for (yaml, status) in statuses {
        let schema = schema(yaml);
        let sub = &schema["properties"]["status"];
        known(sub, &status, "status");
        for required in sub["required"].as_array().into_iter().flatten() {
            assert!(status.get(required.as_str().unwrap()).is_some(), "status lacks the required {required}");
        }
    }
}

/// A status of a HardwareClassification as it is written.
fn full_classification_status() -> api::metal3::HardwareClassificationStatus {
    let some = Some(0);
    api::metal3::HardwareClassificationStatus {
        detach_error_hosts: some,
        error_hosts: some,
        error_message: Some(String::new()),
        error_type: Some(String::new()),
        introspection_error_hosts: some,
        matched_count: some,
        power_mgmt_error_hosts: some,
        preparation_error_hosts: some,
        profile_match_status: Some(String::new()),
        provisioned_registration_error_hosts: some,
        provisioning_error_hosts: some,
        registration_error_hosts: some,
        unmatched_count: some,
    }
}

/// All fourteen are installed byte for byte as upstream has them: by the SHA-256 of its files (`config/base/crds/bases`, and `config/crd/bases` of
/// hardware-classification-controller, at the commits that `crds/upstream/README.md` names).
#[test]
fn every_kind_is_installed_as_upstream_defines_it() {
    let all = api::crds::all().unwrap();
    let hex = |text: &String| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digests: Vec<String> = all.iter().map(hex).collect();
    for (plural, digest) in [
        ("baremetalhosts", "594a32340172c71f82005676c5ef4efce4fd9edb0226dae9df64afd033a7631b"),
        ("baremetalswitches", "50588cc8223a1200605110e89a1e3d343a12ab8e5089491e58583dab336bc17e"),
        ("bmceventsubscriptions", "8be6fd6d4262b15a04c7f4c60c33a0795395cec9176d46bb8b55168425f0da63"),
        ("dataimages", "cf009c4c49829f625c051deb7d348002f20bb5fc10aabf59051635a89179f3d6"),
        ("firmwareschemas", "6c32ebc5997646ad89ec80e8a76884398d26b2baa7db75e14fcc1c869a7ec64b"),
        ("hardwareclassifications", "6fe370446c6c85cf44b3cf654d743792f3172f67e6cdc5ffeb77ac90746b26fe"),
        ("hardwaredata", "065b02a72757686d8c1eb076afc98df82496f9722f72febebe15cd08d7fab602"),
        ("hostclaims", "d2a424fe9d1a465aa5dc1424a8a97494a44fc6c8fcc5fcf415f38f09916ac36a"),
        ("hostdeploypolicies", "f687fb81e69f9a299d24afcf9b2f5018cdfda5728983db0a86ddf8ec65b1e84a"),
        ("hostfirmwarecomponents", "9625e7039c964cb2e75e88d5eaf1003c0ea9c74c90c7d61c70633c75c9ac81dd"),
        ("hostfirmwaresettings", "b0d38b20f4db9c72a93f647631fa44d133bde077ee97b9fbbc5eda0bbcb76cd0"),
        ("hostnetworkattachments", "3ca1c2c429f11683278fa8f929e063619d3d60c68a48f84d137f3ef880f6d598"),
        ("hostupdatepolicies", "5c308a88484b61abe19619aaa9c70c9ee9617d958249f927c3e8036ade25c90a"),
        ("preprovisioningimages", "11a7c8d5e1752507a99ddeef899b0acdc4536cfd20fff876bb8caea00eb59e57"),
    ] {
        assert_eq!(digests.iter().filter(|found| *found == digest).count(), 1, "{plural}");
    }
}

/// Every key of `value` must be a property of `schema`.
fn known(schema: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(fields) if schema.get("properties").is_some() => {
            for (key, inner) in fields {
                let Some(sub) = schema["properties"].get(key) else { panic!("{path}.{key} is not in the schema") };
                known(sub, inner, &format!("{path}.{key}"));
            }
        }
        Value::Array(items) => items.iter().for_each(|i| known(&schema["items"], i, path)),
        _ => {}
    }
}

#[test]
fn a_fresh_status_is_known_to_the_schema_and_has_what_it_requires() {
    let schema = schema(api::crds::BARE_METAL_HOST);
    let status = serde_json::to_value(api::metal3::BareMetalHostStatus::default()).unwrap();
    let sub = &schema["properties"]["status"];
    known(sub, &status, "status");
    for required in sub["required"].as_array().unwrap() {
        assert!(status.get(required.as_str().unwrap()).is_some(), "status lacks the required {required}");
    }
}

#[test]
fn our_own_definition_is_structural_and_has_its_columns() {
    let all = api::crds::all().unwrap();
    let mut all = all.iter().map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let crd = all.find(|crd| crd["metadata"]["name"] == "hostoperations.metamorph.metal3.io").unwrap();
    let version = &crd["spec"]["versions"][0];
    assert!(version["subresources"]["status"].is_object());
    let columns: Vec<&str> =
        version["additionalPrinterColumns"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(columns, ["Host", "Type", "Phase", "Step", "Done", "BMC Calls", "Cause", "Message", "Age"]);
    let text = version["schema"].to_string();
    assert!(!text.contains("$ref") && !text.contains("uint"), "{text}");
}
