//! Hosts that baremetal-operator has left, in every state that it brings them to, gone on with in place: what is at rest stays as it is, unfinished work is
//! begun anew, and no machine in use is touched. The objects are the real operator's (`recorded/baremetal-operator`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::metal3::{BareMetalHost, HardwareData, ProvisioningState as State};
use api::metamorph::MachineRecord;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use scenarios::plant::{Plant, Standing};
use scenarios::{Effect, Machines, Site, fixture};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("../../recorded/baremetal-operator/states.json");
/// After all of it was recorded.
const THEN: &str = "2026-11-26T12:00:00Z";
/// The name of each recorded host.
const HOST: &str = "host";
/// Longest way to a state, in seconds.
const LONGEST: u32 = 4 * 3600;
/// Nothing more happens after this.
const REST: Duration = Duration::from_secs(2 * 3600);
/// An id as Ironic makes them.
const IRONICS: &str = "5b0c1c9e-52b7-4f0b-9d0a-6a4e0a3a7f21";
/// What the recorded hosts were provisioned with.
const IMAGE: &str = "http://192.0.2.8/image.raw";

/// What becomes of a host that was left so.
struct Way {
    left: &'static str,
    /// Where it comes to rest; `None` if it is deleted.
    ends: Option<State>,
    /// What is done to the fixture's machine.
    effects: &'static [Effect],
}

const fn way(left: &'static str, ends: Option<State>, effects: &'static [Effect]) -> Way {
    Way { left, ends, effects }
}

/// All that was recorded. Upstream's fixture has its machines in memory: empty ones come back off, and are switched on as their hosts wish.
const WAYS: &[Way] = &[
    way("registering", Some(State::Available), &[Effect::Inspect, Effect::On]),
    way("registered", Some(State::Available), &[Effect::Inspect, Effect::On]),
    way("inspecting", Some(State::Available), &[Effect::Inspect, Effect::On]),
    way("preparing", Some(State::Available), &[Effect::On]),
    way("available", Some(State::Available), &[Effect::On]),
    way("inspection-disabled", Some(State::Available), &[Effect::On]),
    way("provisioning", Some(State::Provisioned), &[Effect::Provision]),
    way("provisioned", Some(State::Provisioned), &[]),
    way("user-data", Some(State::Provisioned), &[]),
    way("custom-deploy", Some(State::Provisioned), &[]),
    way("data-image", Some(State::Provisioned), &[]),
    way("powered-off", Some(State::Provisioned), &[Effect::Off]),
    way("paused", Some(State::Provisioned), &[]),
    way("detached", Some(State::Provisioned), &[]),
    way("externally-provisioned", Some(State::ExternallyProvisioned), &[]),
    way("unmanaged", Some(State::Unmanaged), &[]),
    way("registration-error", Some(State::Registering), &[]),
    way("deprovisioning", Some(State::Available), &[Effect::Deprovision, Effect::On]),
    way("deprovisioning-failed", Some(State::Provisioned), &[Effect::Deprovision, Effect::Provision]),
    way("deprovisioning-cancelled", Some(State::Available), &[Effect::Deprovision, Effect::On]),
    way("deleting-deprovisioning", None, &[Effect::Deprovision]),
    way("deleting-attempt", None, &[Effect::Deprovision]),
    way("powering-off", None, &[]),
    way("deleting", None, &[]),
];

/// Those at rest: of their hosts nothing but the words of the status may change.
const AT_REST: &[&str] = &[
    "available",
    "inspection-disabled",
    "provisioned",
    "user-data",
    "custom-deploy",
    "data-image",
    "paused",
    "detached",
    "externally-provisioned",
    "unmanaged",
];

fn recorded() -> BTreeMap<String, Vec<Value>> {
    serde_json::from_str(RECORDED).unwrap()
}

/// Stores what was left in this state in the namespace `default`, the hosts changed as a test wants it; gives the objects as they are then.
async fn put(site: &Site, left: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
    let objects = serde_json::to_string(&recorded()[left]).unwrap().replace(&format!("\"t-{left}\""), "\"default\"");
    let mut objects: Vec<Value> = serde_json::from_str(&objects).unwrap();
    objects.iter_mut().for_each(&change);
    // Versions are of the server that stores: the Secret's own is the one that the host was registered with.
    objects.sort_by_key(|object| match object["kind"].as_str() {
        Some("Secret") => 0,
        Some("BareMetalHost") => 1,
        // What a host owns is collected where there is no host.
        _ => 2,
    });
    let secrets: Api<Secret> = Api::default_namespaced(site.observer());
    for mut object in objects {
        if object["kind"] == "BareMetalHost"
            && let Some(secret) = secrets.get_opt("bmc").await.unwrap()
        {
            for known in ["goodCredentials", "triedCredentials"] {
                if object["status"][known].get("credentialsVersion").is_some() {
                    object["status"][known]["credentialsVersion"] = json!(secret.metadata.resource_version);
                }
            }
        }
        site.put_as_left(object).await;
    }
    all(site).await
}

/// All objects that a host has beside it.
async fn all(site: &Site) -> Vec<Value> {
    let mut found = Vec::new();
    for (version, kind, plural) in [
        ("metal3.io/v1alpha1", "BareMetalHost", "baremetalhosts"),
        ("metal3.io/v1alpha1", "HardwareData", "hardwaredata"),
        ("metal3.io/v1alpha1", "HostFirmwareSettings", "hostfirmwaresettings"),
        ("metal3.io/v1alpha1", "FirmwareSchema", "firmwareschemas"),
        ("metal3.io/v1alpha1", "DataImage", "dataimages"),
        ("v1", "Secret", "secrets"),
    ] {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource =
            ApiResource::from_gvk_with_plural(&kube::core::GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &resource);
        for mut object in api.list(&ListParams::default()).await.unwrap().items {
            object.metadata.managed_fields = None;
            let mut object = serde_json::to_value(object).unwrap();
            object["kind"] = json!(kind);
            found.push(object);
        }
    }
    found
}

/// The pointers at which two values differ. Conditions go by their type.
fn changed(before: &Value, after: &Value, at: &str, found: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let (a, b) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                changed(a, b, &format!("{at}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if at.ends_with("/conditions") => {
            let by_type = |all: &[Value]| {
                let typed = all.iter().map(|one| (one["type"].as_str().unwrap_or_default().to_owned(), one.clone()));
                Value::Object(typed.collect())
            };
            changed(&by_type(a), &by_type(b), at, found);
        }
        _ if before != after => {
            found.insert(at.to_owned());
        }
        _ => {}
    }
}

/// What has changed of the objects that were there: their names, with the pointers.
fn all_changed(before: &[Value], after: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let name = |object: &Value| format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"]);
    let after: BTreeMap<String, &Value> = after.iter().map(|object| (name(object), object)).collect();
    let mut all = BTreeMap::new();
    for object in before {
        let mut found = BTreeSet::new();
        match after.get(&name(object)) {
            Some(now) => changed(object, now, "", &mut found),
            None => found.extend(["gone".to_owned()]),
        }
        if !found.is_empty() {
            all.insert(name(object), found);
        }
    }
    all
}

/// Whether a field of a host at rest may be written when another program takes it over: what its conditions say, and when that was written.
fn is_words(left: &str, pointer: &str) -> bool {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    match parts.as_slice() {
        ["metadata", "resourceVersion"] | ["status", "lastUpdated"] => true,
        ["status", "conditions", _, "message" | "observedGeneration"] => true,
        // What the machine says of itself.
        ["status", "conditions", "Healthy", _] => true,
        // A detached host is not manageable.
        ["status", "conditions", "Manageable", _] => left == "detached",
        _ => false,
    }
}

fn run<T>(scenario: impl AsyncFnOnce(Site) -> T) -> T {
    scenarios::run_at(THEN.parse::<Timestamp>().unwrap(), 61, scenario)
}

async fn get(site: &Site) -> Option<BareMetalHost> {
    site.hosts().get_opt(HOST).await.unwrap()
}

fn address(left: &str) -> String {
    format!("redfish-virtualmedia+http://192.0.2.7/redfish/v1/Systems/t-{left}")
}

#[test]
fn every_recorded_state_is_gone_on_with_and_what_is_at_rest_stays_as_it_is() {
    let names: BTreeSet<String> = recorded().into_keys().collect();
    assert_eq!(names, WAYS.iter().map(|way| way.left.to_owned()).collect());
    for way in WAYS {
        run(async |site| {
            let before = put(&site, way.left, |_| ()).await;
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            match way.ends {
                Some(state) => {
                    site.wait(HOST, LONGEST, |host| host.state() == state).await;
                }
                None => site.gone(HOST, LONGEST).await,
            }
            tokio::time::sleep(REST).await;
            let (left, host) = (way.left, get(&site).await);
            assert_eq!(host.as_ref().map(BareMetalHost::state), way.ends, "{left}");
            assert_eq!(machines.effects(&address(left)), way.effects, "{left}");
            let error = host.as_ref().and_then(|host| host.status.as_ref()?.error_type);
            assert_eq!(error.is_some(), left == "registration-error", "{left}: {host:?}");
            let after = all(&site).await;
            let mut changes = all_changed(&before, &after);
            if way.ends.is_none() {
                // Everybody's hold on what is left has ended.
                let held = after.iter().filter(|object| !object["metadata"]["finalizers"].is_null());
                assert_eq!(held.collect::<Vec<_>>(), Vec::<&Value>::new(), "{left}");
                return;
            }
            if AT_REST.contains(&left) {
                // The fixture's machines have settings of their firmware, which upstream's have not.
                changes
                    .retain(|name, _| !name.starts_with("HostFirmwareSettings") && !name.starts_with("FirmwareSchema"));
                let host = changes.remove(&format!("BareMetalHost \"{HOST}\"")).unwrap_or_default();
                let unasked: Vec<_> = host.iter().filter(|pointer| !is_words(left, pointer)).collect();
                assert!(unasked.is_empty(), "{left}: {unasked:?}");
                assert!(left != "paused" || host.is_empty(), "{left}: {host:?}");
                assert_eq!(changes, BTreeMap::new(), "{left}");
            }
            // What upstream holds is held as before.
            let kept = |kind: &str, field: &str| {
                let of = |all: &[Value]| {
                    let found = all.iter().filter(|object| object["kind"] == kind);
                    found.map(|object| object["metadata"][field].clone()).collect::<Vec<_>>()
                };
                (of(&before), of(&after))
            };
            if left != "registering" {
                for (kind, field) in [("Secret", "labels"), ("Secret", "finalizers"), ("Secret", "ownerReferences")] {
                    let (then, now) = kept(kind, field);
                    assert_eq!(then, now, "{left}: {field} of the {kind}");
                }
            }
            let (then, now) = kept("BareMetalHost", "finalizers");
            assert_eq!(then, now, "{left}");
        });
    }
}

#[test]
fn a_secret_that_was_missing_is_found_when_it_appears() {
    run(async |site| {
        put(&site, "registration-error", |_| ()).await;
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        site.wait(HOST, LONGEST, |host| {
            host.status.as_ref().is_some_and(|status| status.error_message.starts_with("Secret missing"))
        })
        .await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "missing"}, "stringData": {"username": "u", "password": "p"}});
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        secrets.create(&kube::api::PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        site.wait(HOST, LONGEST, |host| host.state() == State::Available).await;
    });
}

/// What stood in Ironic's place: its id, and the machine of the plant.
fn ironics(object: &mut Value) {
    let mac = "00:1b:21:aa:bb:01";
    let hardware = match object["kind"].as_str().unwrap() {
        "BareMetalHost" => {
            let id = &mut object["status"]["provisioning"]["ID"];
            if *id == "temporary-fake-id" {
                *id = json!(IRONICS);
            }
            object["spec"]["bootMACAddress"] = json!(mac);
            &mut object["status"]["hardware"]
        }
        "HardwareData" => &mut object["spec"]["hardware"],
        _ => return,
    };
    if !hardware.is_null() {
        hardware["nics"] = json!([{"name": "eno1", "mac": mac, "ip": "192.0.2.20"}]);
        hardware["storage"] = json!([{"name": "/dev/vda", "serialNumber": "DISK-1", "sizeBytes": 1u64 << 40}]);
    }
}

/// A machine that Ironic has provisioned: it runs a system on whose disk nobody's mark is.
fn in_use(site: &Site) -> Plant {
    let plant = Plant::new(site.weather.clone());
    plant.stands(standing(json!({"runs": "Disk", "disk": [IMAGE, ""]})));
    plant
}

fn standing(how: Value) -> Standing {
    let mut standing = serde_json::to_value(Standing::default()).unwrap();
    standing.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
    serde_json::from_value(standing).unwrap()
}

fn count(plant: &Plant, what: &str) -> usize {
    plant.effects().iter().filter(|effect| effect.starts_with(what)).count()
}

#[test]
fn a_machine_that_ironic_has_provisioned_is_adopted_and_left_as_it_runs() {
    for left in
        ["provisioned", "user-data", "custom-deploy", "data-image", "externally-provisioned", "detached", "paused"]
    {
        run(async |site| {
            let before = put(&site, left, ironics).await;
            let plant = in_use(&site);
            let server = plant.serve(&site);
            tokio::time::sleep(REST).await;
            // Another process of this server takes it over the same way.
            server.kill();
            let _server = plant.serve(&site);
            tokio::time::sleep(REST).await;
            assert_eq!(plant.effects(), Vec::<String>::new(), "{left}");
            let host = get(&site).await.unwrap();
            let status = host.status.clone().unwrap();
            assert_eq!((status.error_type, status.provisioning.id.as_str()), (None, IRONICS), "{left}: {status:?}");
            let changes = all_changed(&before, &all(&site).await);
            let host = changes.get(&format!("BareMetalHost \"{HOST}\"")).cloned().unwrap_or_default();
            let unasked: Vec<_> = host.iter().filter(|pointer| !is_words(left, pointer)).collect();
            assert!(unasked.is_empty(), "{left}: {unasked:?}");
            let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
            let known = records.get_opt(HOST).await.unwrap().and_then(|record| record.spec.bmc);
            // Who is let alone is not even asked.
            let is_let_alone = matches!(left, "detached" | "paused");
            assert_eq!(known.and_then(|bmc| bmc.serial_number).is_some(), !is_let_alone, "{left}");
        });
    }
}

/// What Ironic has provisioned stands in its host's status alone until Metamorph has looked at it.
#[test]
fn a_machine_that_ironic_has_provisioned_is_recognized_when_its_status_is_lost_later() {
    const OTHER: &str = "http://192.0.2.8/other.raw";
    for way in ["on", "off", "not inspected", "another image", "external"] {
        run(async |mut site| {
            let left = if way == "external" { "externally-provisioned" } else { "provisioned" };
            put(&site, left, ironics).await;
            let plant = in_use(&site);
            let server = plant.serve(&site);
            tokio::time::sleep(REST).await;
            server.kill();
            let client = site.observer();
            let secret: Secret = Api::default_namespaced(client.clone()).get("bmc").await.unwrap();
            let record: MachineRecord = Api::default_namespaced(client.clone()).get(HOST).await.unwrap();
            let hardware: Option<HardwareData> = Api::default_namespaced(client).get_opt(HOST).await.unwrap();
            let mut host = serde_json::to_value(get(&site).await.unwrap()).unwrap();
            site.empty().await;
            let new = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let (client, post) = (site.observer(), PostParams::default());
            let secret = Secret { metadata: new("bmc"), data: secret.data, ..Secret::default() };
            Api::default_namespaced(client.clone()).create(&post, &secret).await.unwrap();
            let record = MachineRecord { metadata: new(HOST), spec: record.spec };
            Api::default_namespaced(client.clone()).create(&post, &record).await.unwrap();
            if let Some(hardware) = hardware.filter(|_| way != "not inspected") {
                let hardware = HardwareData { metadata: new(HOST), spec: hardware.spec };
                Api::default_namespaced(client).create(&post, &hardware).await.unwrap();
            }
            host["metadata"] = json!({"name": HOST});
            host.as_object_mut().unwrap().remove("status");
            match way {
                "off" => plant.stands(standing(json!({"runs": "Nothing", "disk": [IMAGE, ""]}))),
                "not inspected" => host["spec"]["inspectionMode"] = json!("disabled"),
                "another image" => host["spec"]["image"]["url"] = json!(OTHER),
                "external" => {
                    host["spec"]["externallyProvisioned"] = json!(false);
                    host["spec"]["image"] =
                        json!({"url": OTHER, "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"});
                }
                _ => {}
            }
            let before = plant.effects();
            site.hosts().create(&post, &serde_json::from_value(host).unwrap()).await.unwrap();
            let _server = plant.serve(&site);
            if matches!(way, "another image" | "external") {
                let is_held = |host: &BareMetalHost| {
                    host.status.as_ref().is_some_and(|status| status.error_message.contains("it is in use by what was"))
                };
                site.wait(HOST, LONGEST, is_held).await;
                tokio::time::sleep(REST).await;
                assert!(get(&site).await.as_ref().is_some_and(is_held));
                assert_eq!(plant.effects(), before, "{way}");
                return;
            }
            let found = site.wait(HOST, LONGEST, |host| host.state() == State::Provisioned).await;
            assert_eq!(found.status.unwrap().provisioning.id, IRONICS, "{way}");
            tokio::time::sleep(REST).await;
            let done = [count(&plant, "write "), count(&plant, "wipe ")];
            assert_eq!((done, plant.image().as_deref()), ([0, 0], Some(IMAGE)), "{way}: {:#?}", plant.effects());
            // It is switched on as its host wishes, and boots its disk.
            assert_eq!(plant.effects().len() > before.len(), way == "off", "{way}: {:#?}", plant.effects());
            let change = json!({"spec": {"image": null}});
            site.hosts().patch(HOST, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            site.wait(HOST, LONGEST, |host| host.state() == State::Available).await;
            assert_eq!((plant.image(), count(&plant, "wipe")), (None, 1), "{way}: {:#?}", plant.effects());
        });
    }
}

#[test]
fn a_machine_that_ironic_has_provisioned_is_emptied_when_its_image_is_taken_away_and_not_before() {
    run(async |site| {
        put(&site, "provisioned", ironics).await;
        let plant = in_use(&site);
        let _server = plant.serve(&site);
        tokio::time::sleep(REST).await;
        assert_eq!(plant.effects(), Vec::<String>::new());
        let change = json!({"spec": {"image": null}});
        site.hosts().patch(HOST, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        site.wait(HOST, LONGEST, |host| host.state() == State::Available).await;
        assert_eq!((plant.image(), count(&plant, "wipe")), (None, 1), "{:#?}", plant.effects());
        // The disk that Ironic has written to, by upstream's default, which has no mark.
        let names_it = |effect: &String| effect.starts_with("wipe") && effect.ends_with(" naming /dev/sda");
        assert!(plant.effects().iter().any(names_it), "{:#?}", plant.effects());
    });
}

#[test]
fn what_ironic_had_begun_is_begun_anew() {
    // How it was left, where it ends, writes, wipes, and the image at the end.
    let ways = [
        ("registering", Some(State::Available), (0, 0), None),
        ("inspecting", Some(State::Available), (0, 0), None),
        ("preparing", Some(State::Available), (0, 0), None),
        ("available", Some(State::Available), (0, 0), None),
        ("provisioning", Some(State::Provisioned), (1, 0), Some(IMAGE)),
        ("deprovisioning", Some(State::Available), (0, 1), None),
        ("deprovisioning-failed", Some(State::Provisioned), (1, 1), Some(IMAGE)),
        ("deprovisioning-cancelled", Some(State::Available), (0, 1), None),
        ("deleting-deprovisioning", None, (0, 1), None),
        ("deleting-attempt", None, (0, 1), None),
        ("powering-off", None, (0, 0), None),
        ("deleting", None, (0, 0), None),
    ];
    for (left, ends, (writes, wipes), image) in ways {
        run(async |site| {
            put(&site, left, ironics).await;
            let plant = Plant::new(site.weather.clone());
            let with = if wipes > 0 { json!([IMAGE, ""]) } else { Value::Null };
            plant.stands(standing(json!({"disk": with})));
            let _server = plant.serve(&site);
            match ends {
                Some(state) => {
                    site.wait(HOST, LONGEST, |host| host.state() == state).await;
                }
                None => site.gone(HOST, LONGEST).await,
            }
            tokio::time::sleep(REST).await;
            assert_eq!(get(&site).await.map(|host| host.state()), ends, "{left}");
            let done = (count(&plant, "write "), count(&plant, "wipe "));
            assert_eq!((done, plant.image().as_deref()), ((writes, wipes), image), "{left}: {:#?}", plant.effects());
            // The status says what is there, so that it is removed when it is no longer wished.
            let said = get(&site).await.and_then(|host| Some(host.status?.provisioning.image.url));
            assert_eq!(said.as_deref().filter(|url| !url.is_empty()), image, "{left}");
        });
    }
}

/// The hardware that Ironic's inspection has found is what a machine is held against where nothing else is known of it.
#[test]
fn a_machine_that_ironic_has_not_inspected_is_let_alone() {
    for left in ["provisioned", "available", "provisioning", "deprovisioning"] {
        run(async |site| {
            let elsewhere = |object: &mut Value| {
                ironics(object);
                for hardware in ["/status/hardware/nics/0/mac", "/spec/hardware/nics/0/mac"] {
                    if let Some(mac) = object.pointer_mut(hardware) {
                        *mac = json!("00:1b:21:cc:cc:cc");
                    }
                }
                if object["kind"] == "BareMetalHost" {
                    object["spec"]["bootMACAddress"] = json!("00:1b:21:cc:cc:cc");
                }
            };
            put(&site, left, elsewhere).await;
            let plant = in_use(&site);
            let _server = plant.serve(&site);
            let refused = |host: &BareMetalHost| {
                host.status.as_ref().is_some_and(|status| status.error_message.contains("HardwareData"))
            };
            site.wait(HOST, LONGEST, refused).await;
            tokio::time::sleep(REST).await;
            assert_eq!(plant.effects(), Vec::<String>::new(), "{left}");
        });
    }
}

/// No HardwareData, or none any more: what the host itself says counts.
#[test]
fn a_machine_that_contradicts_its_host_is_let_alone_without_hardware_data() {
    const ELSEWHERE: &str = "00:1b:21:cc:cc:cc";
    // Whether the status has the hardware, what its interface has, and spec.bootMACAddress.
    let ways = [
        (true, Some(ELSEWHERE), "", Some("HardwareData")),
        (true, None, ELSEWHERE, Some("spec.bootMACAddress")),
        (false, None, ELSEWHERE, Some("spec.bootMACAddress")),
        (false, None, "00:1b:21:aa:bb:01", None),
        (false, None, "", None),
        // Made up: it tells nothing.
        (false, None, "02:00:00:00:00:01", None),
    ];
    for (inspected, nic, boot_mac, refused) in ways {
        run(async |site| {
            let change = |object: &mut Value| {
                ironics(object);
                if object["kind"] == "HardwareData" {
                    object["spec"] = json!({});
                }
                if object["kind"] == "BareMetalHost" {
                    object["spec"]["bootMACAddress"] = json!(boot_mac);
                    let mut hardware = object["status"]["hardware"].take();
                    hardware["nics"] = nic.map_or_else(|| json!([]), |mac| json!([{"name": "eno1", "mac": mac}]));
                    hardware.as_object_mut().unwrap().remove("systemVendor");
                    if inspected {
                        object["status"]["hardware"] = hardware;
                    } else {
                        object["status"].as_object_mut().unwrap().remove("hardware");
                    }
                }
            };
            put(&site, "provisioned", change).await;
            let plant = in_use(&site);
            let _server = plant.serve(&site);
            tokio::time::sleep(REST).await;
            let off = json!({"spec": {"online": false}});
            site.hosts().patch(HOST, &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
            tokio::time::sleep(REST).await;
            let what = format!("{inspected}, {nic:?}, {boot_mac}");
            let message = get(&site).await.unwrap().status.unwrap().error_message;
            match refused {
                Some(why) => {
                    assert!(message.contains("it is not the machine") && message.contains(why), "{what}: {message}");
                    assert_eq!(plant.effects(), Vec::<String>::new(), "{what}");
                }
                None => assert_eq!((message.as_str(), plant.is_on()), ("", false), "{what}"),
            }
        });
    }
}

#[test]
fn a_host_whose_bmc_speaks_no_redfish_says_so_and_is_left_alone() {
    run(async |site| {
        let by_ipmi = |object: &mut Value| {
            ironics(object);
            if object["kind"] == "BareMetalHost" {
                object["spec"]["bmc"]["address"] = json!("ipmi://192.0.2.7");
            }
        };
        put(&site, "provisioned", by_ipmi).await;
        let plant = in_use(&site);
        let _server = plant.serve(&site);
        let says_so =
            |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_message.contains("ipmi"));
        let host = site.wait(HOST, LONGEST, says_so).await;
        assert_eq!(host.state(), State::Provisioned);
        tokio::time::sleep(REST).await;
        assert_eq!((plant.effects(), get(&site).await.map(|host| host.state())), (vec![], Some(State::Provisioned)));
    });
}

/// As upstream writes it when Ironic has said that work failed.
#[test]
fn what_had_failed_is_tried_again_and_the_error_goes() {
    let ways = [
        ("inspecting", "inspection error", State::Available, false),
        ("preparing", "preparation error", State::Available, false),
        ("provisioning", "provisioning error", State::Provisioned, false),
        ("deprovisioning", "provisioning error", State::Available, true),
        ("provisioned", "power management error", State::Provisioned, true),
        ("provisioned", "provisioned registration error", State::Provisioned, true),
        ("externally-provisioned", "provisioned registration error", State::ExternallyProvisioned, true),
    ];
    for (left, error, ends, runs) in ways {
        run(async |site| {
            let failed = |object: &mut Value| {
                ironics(object);
                if object["kind"] == "BareMetalHost" {
                    let status = &mut object["status"];
                    status["operationalStatus"] = json!("error");
                    status["errorType"] = json!(error);
                    status["errorMessage"] = json!("said by Ironic");
                    status["errorCount"] = json!(3);
                }
            };
            put(&site, left, failed).await;
            let plant = if runs { in_use(&site) } else { Plant::new(site.weather.clone()) };
            let _server = plant.serve(&site);
            let is_well = |host: &BareMetalHost| {
                host.state() == ends && host.status.as_ref().is_some_and(|status| status.error_type.is_none())
            };
            site.wait(HOST, LONGEST, is_well).await;
            tokio::time::sleep(REST).await;
            assert!(get(&site).await.as_ref().is_some_and(is_well), "{left}, {error}");
            if left.ends_with("provisioned") {
                assert_eq!(plant.effects(), Vec::<String>::new(), "{left}, {error}");
            }
        });
    }
}
