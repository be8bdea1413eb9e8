//! The variables of rules: their types, how large they are taken to be, and their values for one host.
//!
//! What is not known is absent, and never empty or zero: a rule that needs it has no result, unless it asks with `has()` or `?`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use api::metal3::{BareMetalHost, DEVICES, HardwareData, HostFirmwareComponents, NOT_LISTED, annotation, label};
use cel::schema::decl::DeclType;
use cel::schema::value::to_value;
use cel::{Env, Sizes, Value, Vars};
use inventory::{Devices, PciDevice};
use serde_json::{Map, Value as Json, json};

use super::labels::Ledger;
use crate::board::{Facts, HostError};

/// Entries of a list, when the cost of a rule is estimated.
const ITEMS: u64 = 128;
/// Characters of a text, then.
const TEXT: u64 = 128;
/// Longest summary of a diagnosis that is read, bytes (the one that writes it has the same limit).
const MAX_SUMMARY: usize = 4096;
/// Most codes of causes that are told of a host.
const MAX_CODES: usize = 16;
/// Most components whose firmware is told of a host.
const MAX_COMPONENTS: usize = 128;
/// Labels of this prefix are told to no rule: they follow from what rules say.
const OWN_PREFIX: &str = "metamorph.metal3.io/";

fn text() -> Json {
    json!({ "type": "string", "maxLength": TEXT })
}

fn whole() -> Json {
    json!({ "type": "integer" })
}

fn truth() -> Json {
    json!({ "type": "boolean" })
}

fn list(of: &Json) -> Json {
    json!({ "type": "array", "maxItems": ITEMS, "items": of })
}

fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    let fields: Map<String, Json> = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({ "type": "object", "properties": fields })
}

fn host_schema() -> Json {
    object([
        ("name", text()),
        ("labels", json!({ "type": "object", "maxProperties": ITEMS, "additionalProperties": text() })),
        ("bootMode", text()),
        ("architecture", text()),
        ("bmcScheme", text()),
        ("state", text()),
        ("operationalStatus", text()),
        ("errorType", text()),
        ("online", truth()),
        ("poweredOn", truth()),
        ("consumerKind", text()),
    ])
}

/// What [`devices_of`] gives.
fn devices_schema() -> [(&'static str, Json); 5] {
    let pci = list(&object([
        ("address", text()),
        ("class", text()),
        ("vendorID", text()),
        ("deviceID", text()),
        ("subsystemVendorID", text()),
        ("subsystemDeviceID", text()),
        ("driver", text()),
        ("numaNode", whole()),
    ]));
    let node = object([
        ("node", whole()),
        ("cpus", text()),
        ("cpuCount", whole()),
        ("memoryMebibytes", whole()),
        ("gpus", whole()),
    ]);
    [
        ("gpus", pci.clone()),
        ("pci", pci),
        ("tpm", object([("present", truth()), ("version", text()), ("manufacturer", text())])),
        ("numa", list(&node)),
        ("started", object([("uefi", truth()), ("secureBoot", truth())])),
    ]
}

/// As `inventory::HardwareDetails` has them (a test compares), with what is told beside.
fn hardware_schema() -> Json {
    let lldp = object([("switchID", text()), ("portID", text()), ("switchSystemName", text())]);
    let nic = object([
        ("ip", text()),
        ("lldp", lldp),
        ("mac", text()),
        ("model", text()),
        ("name", text()),
        ("pciAddress", text()),
        ("pxe", truth()),
        ("speedGbps", whole()),
        ("vlanId", whole()),
        ("vlans", list(&object([("id", whole()), ("name", text())]))),
    ]);
    let disk = object([
        ("alternateNames", list(&text())),
        ("hctl", text()),
        ("model", text()),
        ("name", text()),
        ("rotational", truth()),
        ("serialNumber", text()),
        ("sizeBytes", whole()),
        ("type", text()),
        ("vendor", text()),
        ("wwn", text()),
        ("wwnVendorExtension", text()),
        ("wwnWithExtension", text()),
    ]);
    let [gpus, pci, tpm, numa, started] = devices_schema();
    object([
        gpus,
        pci,
        tpm,
        numa,
        started,
        (
            "cpu",
            object([
                ("arch", text()),
                ("clockMegahertz", json!({ "type": "number" })),
                ("count", whole()),
                ("flags", list(&text())),
                ("model", text()),
            ]),
        ),
        ("firmware", object([("bios", object([("date", text()), ("vendor", text()), ("version", text())]))])),
        ("hostname", text()),
        ("nics", list(&nic)),
        ("ramMebibytes", whole()),
        ("storage", list(&disk)),
        ("systemVendor", object([("manufacturer", text()), ("productName", text()), ("serialNumber", text())])),
    ])
}

fn diagnosis_schema() -> Json {
    object([
        ("code", text()),
        ("codes", list(&text())),
        ("fixer", text()),
        ("certainty", text()),
        ("component", object([("kind", text()), ("slot", text())])),
    ])
}

fn firmware_schema() -> Json {
    let component = object([("component", text()), ("version", text()), ("initialVersion", text())]);
    object([("components", list(&component))])
}

struct Variable {
    name: &'static str,
    schema: Json,
    decl: DeclType,
}

/// The variables, with the environment that has them.
pub(crate) struct Variables {
    all: Vec<Variable>,
    pub(crate) env: Env,
}

static VARIABLES: LazyLock<Variables> = LazyLock::new(|| {
    let schemas = [
        ("host", host_schema()),
        ("hardware", hardware_schema()),
        ("firmware", firmware_schema()),
        ("diagnosis", diagnosis_schema()),
    ];
    let all: Vec<Variable> = schemas
        .into_iter()
        .filter_map(|(name, schema)| {
            let decl = DeclType::from_schema(&schema, false, &format!("{name}.type"))?;
            Some(Variable { name, schema, decl })
        })
        .collect();
    let env = all.iter().fold(Env::new(), |env, variable| env.declared(variable.name, &variable.decl));
    Variables { all, env }
});

/// The variables that there are.
pub(crate) fn variables() -> &'static Variables {
    &VARIABLES
}

impl Variables {
    fn value(&self, name: &str, json: &Json) -> Value {
        let schema = self.all.iter().find(|variable| variable.name == name).map(|variable| &variable.schema);
        schema.map_or(Value::Null, |schema| to_value(json, schema, false))
    }
}

impl Sizes for Variables {
    fn max_size(&self, path: &[String]) -> Option<u64> {
        let name = path.first()?;
        self.all.iter().find(|variable| variable.name == name)?.decl.max_size(path)
    }
}

/// What rules may know of a host beside its hardware.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Own {
    fields: Map<String, Json>,
    diagnosis: Map<String, Json>,
    firmware: Map<String, Json>,
    pub(crate) error: Option<HostError>,
}

impl Own {
    /// That of the host; labels that classes have given it are not among it, as they follow from the rules.
    pub(crate) fn of(host: &BareMetalHost, ledger: &Ledger, firmware: Option<&HostFirmwareComponents>) -> Self {
        let (spec, status) = (&host.spec, host.status.as_ref());
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                fields.insert(name.to_owned(), Json::String(value));
            }
        };
        let in_words = |value: Option<Json>| value.and_then(|value| value.as_str().map(ToOwned::to_owned));
        put("name", host.metadata.name.clone());
        put("bootMode", in_words(serde_json::to_value(spec.boot_mode.unwrap_or_default()).ok()));
        put("architecture", spec.architecture.clone());
        let address = spec.bmc.as_ref().map(|bmc| bmc.address.as_str());
        put("bmcScheme", address.and_then(|address| address.split_once("://")).map(|(scheme, _)| scheme.to_owned()));
        put("state", Some(host.state().as_str().to_owned()));
        put("operationalStatus", in_words(status.and_then(|s| serde_json::to_value(s.operational_status).ok())));
        put("errorType", status.and_then(|status| status.error_type).map(|kind| kind.as_str().to_owned()));
        put("consumerKind", spec.consumer_ref.as_ref().and_then(|consumer| consumer.kind.clone()));
        let labels: Map<String, Json> = host
            .metadata
            .labels
            .iter()
            .flatten()
            .filter(|(key, value)| !key.starts_with(OWN_PREFIX) && !ledger.has_given(key, value))
            .map(|(key, value)| (key.clone(), Json::String(value.clone())))
            .collect();
        fields.insert("labels".to_owned(), Json::Object(labels));
        fields.insert("online".to_owned(), Json::Bool(spec.online));
        if let Some(status) = status {
            fields.insert("poweredOn".to_owned(), Json::Bool(status.powered_on));
        }
        let firmware = firmware.map(versions).unwrap_or_default();
        Self { fields, diagnosis: diagnosis_of(host), firmware, error: HostError::of(status) }
    }

    /// The code of the first cause.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.diagnosis.get("code").and_then(Json::as_str)
    }
}

/// What the summary of the host's diagnosis says, whoever has written it.
fn diagnosis_of(host: &BareMetalHost) -> Map<String, Json> {
    let summary = host.annotation(annotation::DIAGNOSIS).filter(|text| text.len() <= MAX_SUMMARY);
    let summary: Json = summary.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut all = Map::new();
    for name in ["code", "fixer", "certainty"] {
        if let Some(text) = summary[name].as_str() {
            all.insert(name.to_owned(), Json::String(text.to_owned()));
        }
    }
    let others = summary["others"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let codes: Vec<&str> = summary["code"].as_str().into_iter().chain(others).take(MAX_CODES).collect();
    if summary.is_object() {
        all.insert("codes".to_owned(), json!(codes));
    }
    let part = &summary["component"];
    if part.is_object() {
        let text = |name: &str| part[name].as_str().map(|text| (name.to_owned(), Json::String(text.to_owned())));
        all.insert("component".to_owned(), Json::Object(["kind", "slot"].into_iter().filter_map(text).collect()));
    }
    all
}

/// The versions of firmware that have been read; nothing where none have.
fn versions(object: &HostFirmwareComponents) -> Map<String, Json> {
    let components = object.status.iter().flat_map(|status| &status.components).take(MAX_COMPONENTS);
    let all: Vec<Json> = components
        .map(|one| {
            let version = one.current_version.as_ref().unwrap_or(&one.initial_version);
            json!({ "component": one.component, "version": version, "initialVersion": one.initial_version })
        })
        .collect();
    let is_known = !all.is_empty();
    is_known.then(|| ("components".to_owned(), Json::Array(all))).into_iter().collect()
}

/// The HardwareData that facts are of, where they are of one.
fn data_of(facts: Option<&Facts>) -> Option<&Arc<HardwareData>> {
    match facts {
        Some(Facts::Data(data)) => Some(data),
        _ => None,
    }
}

fn annotated<'a>(facts: Option<&'a Facts>, key: &str) -> Option<&'a str> {
    data_of(facts)?.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the two say the same of a host.
pub(crate) fn are_same(one: Option<&Facts>, other: Option<&Facts>) -> bool {
    let is_same = match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_same(other),
        _ => false,
    };
    is_same && [NOT_LISTED, DEVICES].iter().all(|key| annotated(one, key) == annotated(other, key))
}

/// Whether a reason is about what stands in that annotation, which inspections of earlier versions, and those by the BMC alone, leave out.
pub(crate) fn is_of_devices(reason: &str) -> bool {
    devices_schema().iter().any(|(name, _)| {
        let rest = reason.strip_prefix("hardware.").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with([' ', '.']))
    })
}

/// What the annotation of the HardwareData says: of each list all or, where that is not known, nothing. What nobody has looked for is absent.
fn devices_of(facts: Option<&Facts>) -> Map<String, Json> {
    let found = annotated(facts, DEVICES).map(Devices::read).unwrap_or_default();
    let function = |device: &PciDevice| {
        let subsystem = device.subsystem.as_ref();
        let fields = [
            ("address", Some(json!(device.address))),
            ("class", Some(json!(device.class))),
            ("vendorID", Some(json!(device.vendor))),
            ("deviceID", Some(json!(device.device))),
            ("subsystemVendorID", subsystem.map(|(vendor, _)| json!(vendor))),
            ("subsystemDeviceID", subsystem.map(|(_, device)| json!(device))),
            ("driver", device.driver.as_ref().map(|driver| json!(driver))),
            ("numaNode", device.numa_node.map(|node| json!(node))),
        ];
        Json::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    };
    let gpus = found.gpus();
    // One of which the firmware does not say where it is may be near any node.
    let placed = gpus.as_ref().filter(|all| all.iter().all(|gpu| gpu.numa_node.is_some()));
    let nodes = found.numa.as_ref().filter(|_| found.numa_left_out == 0).map(|nodes| {
        nodes
            .iter()
            .map(|node| {
                let near = placed.map(|all| all.iter().filter(|gpu| gpu.numa_node == Some(node.node)).count());
                let fields = [
                    ("node", Some(json!(node.node))),
                    ("cpus", node.cpus.as_ref().map(|cpus| json!(cpus))),
                    ("cpuCount", node.cpu_count().map(|count| json!(count))),
                    ("memoryMebibytes", node.memory_mebibytes.map(|mebibytes| json!(mebibytes))),
                    ("gpus", near.map(|count| json!(count))),
                ];
                fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
            })
            .map(Json::Object)
            .collect()
    });
    let pci = found.pci.as_ref().filter(|_| found.pci_left_out == 0);
    let fields = [
        ("gpus", gpus.as_ref().map(|all| all.iter().map(|gpu| function(gpu)).collect())),
        ("pci", pci.map(|all| all.iter().map(function).collect())),
        ("tpm", found.tpm.as_ref().and_then(|tpm| serde_json::to_value(tpm).ok())),
        ("numa", nodes),
        ("started", found.started.as_ref().and_then(|started| serde_json::to_value(started).ok())),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The values for one host.
pub(crate) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(crate) fn of(own: &Own, facts: Option<&Facts>) -> Self {
        let known = variables();
        let mut hardware = facts.and_then(Facts::details).and_then(|found| serde_json::to_value(found).ok());
        if let Some(Json::Object(fields)) = &mut hardware {
            // What was looked for and not found is an empty list; what may not have been listed whole is not known: of a part of it "all" and "none" are no
            // answers. Whether the status of a host without HardwareData has all, nobody says.
            let gaps = annotated(facts, NOT_LISTED).unwrap_or_default();
            for (name, part) in [("nics", "network interfaces"), ("storage", "disks")] {
                if gaps.contains(part) {
                    fields.remove(name);
                } else if data_of(facts).is_some() {
                    fields.entry(name).or_insert_with(|| json!([]));
                }
            }
            if gaps.contains("memory") {
                fields.remove("ramMebibytes");
            }
            if gaps.contains("processors")
                && let Some(Json::Object(cpu)) = fields.get_mut("cpu")
            {
                cpu.remove("count");
            }
        }
        let mut hardware = hardware.unwrap_or_else(|| json!({}));
        if let Json::Object(fields) = &mut hardware {
            fields.extend(devices_of(facts));
        }
        Self(BTreeMap::from([
            ("host", known.value("host", &Json::Object(own.fields.clone()))),
            ("hardware", known.value("hardware", &hardware)),
            ("firmware", known.value("firmware", &Json::Object(own.firmware.clone()))),
            ("diagnosis", known.value("diagnosis", &Json::Object(own.diagnosis.clone()))),
        ]))
    }

    /// What is there at the end of a path of fields and keys.
    pub(crate) fn at(&self, path: &[String]) -> Option<&Value> {
        let (name, rest) = path.split_first()?;
        let mut at = self.0.get(name.as_str())?;
        for step in rest {
            let Value::Map(map) = at else { return None };
            at = map.entries.get(&cel::Key::String(step.as_str().into()))?;
        }
        Some(at)
    }
}

impl Vars for Values {
    fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

/// What the label `error-detect` of a host, a class or a namespace says of the diagnosis of errors; another word than the two that are known says nothing, of
/// which people are warned ([`api::metal3::detection_fault`]).
#[must_use]
pub fn detection(labels: Option<&BTreeMap<String, String>>) -> Option<bool> {
    match labels?.get(label::ERROR_DETECT)?.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field that an inspection can find is a field of the variable, of the same kind.
    #[test]
    fn hardware_has_the_fields_of_what_inspections_find() {
        let found = json!({
            "cpu": { "arch": "x86_64", "clockMegahertz": 2400.5, "count": 8, "flags": ["sse"], "model": "m" },
            "firmware": { "bios": { "date": "d", "vendor": "v", "version": "1" } }, "hostname": "h",
            "nics": [{ "ip": "192.0.2.1", "lldp": { "switchID": "a", "portID": "b", "switchSystemName": "c" }, "mac": "02:00:00:00:00:01",
                "model": "0x1 0x2", "name": "eth0", "pciAddress": "0000:00:03.0", "pxe": true, "speedGbps": 10, "vlanId": 1,
                "vlans": [{ "id": 1, "name": "v" }] }],
            "ramMebibytes": 1024,
            "storage": [{ "alternateNames": ["/dev/sda"], "hctl": "0:0:0:0", "model": "m", "name": "/dev/sda", "rotational": true,
                "serialNumber": "s", "sizeBytes": 1, "type": "HDD", "vendor": "v", "wwn": "w", "wwnVendorExtension": "x", "wwnWithExtension": "y" }],
            "systemVendor": { "manufacturer": "m", "productName": "p", "serialNumber": "s" },
        });
        let details: inventory::HardwareDetails = serde_json::from_value(found.clone()).unwrap();
        assert_eq!(serde_json::to_value(&details).unwrap(), found, "nothing is left out of this test's hardware");
        // Debug text of each field that the type has is there: a new field fails here.
        assert!(!format!("{details:?}").contains("None"), "a field of the type is not in this test: {details:?}");
        let value = variables().value("hardware", &found);
        fn compare(value: &Value, json: &Json, at: &str) {
            match (value, json) {
                (Value::Map(map), Json::Object(fields)) => {
                    assert_eq!((map.entries.len(), map.hidden), (fields.len(), 0), "{at}");
                    for (name, json) in fields {
                        compare(&map.entries[&cel::Key::String(name.as_str().into())], json, &format!("{at}.{name}"));
                    }
                }
                (Value::List(list), Json::Array(items)) => {
                    assert_eq!(list.items.len(), items.len());
                    list.items.iter().zip(items).for_each(|(value, json)| compare(value, json, at));
                }
                (Value::Broken(fault), _) => panic!("{at}: {fault}"),
                _ => {}
            }
        }
        compare(&value, &found, "hardware");
    }

    #[test]
    fn what_nobody_has_looked_for_is_not_known_and_not_none() {
        let of = |annotations: Json| {
            let data = json!({ "metadata": { "name": "a", "annotations": annotations }, "spec": { "hardware": {} } });
            let facts = Facts::Data(Arc::new(serde_json::from_value::<HardwareData>(data).unwrap()));
            Values::of(&Own::default(), Some(&facts))
        };
        let path = |text: &str| text.split('.').map(ToOwned::to_owned).collect::<Vec<_>>();
        let size = |values: &Values, name: &str| match values.at(&path(name)) {
            Some(Value::List(list)) => Some(list.items.len()),
            _ => None,
        };
        // An inspection of an earlier version, by the BMC alone, and an annotation that somebody has edited.
        let listed = r#"{"listedGpus":[{"model":"H100"}],"tpm":{"present":true,"version":"2.0"}}"#;
        for (annotations, tpm) in
            [(json!({}), false), (json!({ DEVICES: listed }), true), (json!({ DEVICES: "[" }), false)]
        {
            let values = of(annotations);
            for name in ["hardware.gpus", "hardware.pci", "hardware.numa", "hardware.started"] {
                assert!(values.at(&path(name)).is_none(), "{name}");
            }
            assert_eq!(values.at(&path("hardware.tpm.present")).is_some(), tpm);
        }
        let gpu = "0000:3b:00.0 030200 10de:2330 10de:16c1 nvidia 1";
        let all = json!({ "pci": [gpu, "0000:00:1f.0 060100 8086:a1c1 - - -"], "tpm": { "present": false },
            "numa": [{ "node": 0, "cpus": "0-7", "memoryMebibytes": 1024 }, { "node": 1, "cpus": "" }],
            "started": { "uefi": true, "secureBoot": true } });
        let values = of(json!({ DEVICES: all.to_string() }));
        assert_eq!((size(&values, "hardware.gpus"), size(&values, "hardware.pci")), (Some(1), Some(2)));
        assert_eq!(size(&values, "hardware.numa"), Some(2));
        let gpus_near = |values: &Values| -> Vec<bool> {
            let Some(Value::List(nodes)) = values.at(&path("hardware.numa")) else { panic!("nodes are known") };
            let key = cel::Key::String("gpus".into());
            let has = |node: &Value| matches!(node, Value::Map(map) if map.entries.contains_key(&key));
            nodes.items.iter().map(has).collect()
        };
        assert_eq!(gpus_near(&values), [true, true]);
        // One more, of which nobody knows where it is.
        let mut lost = all.clone();
        lost["pci"][1] = json!("0000:5e:00.0 030200 10de:2330 10de:16c1 nvidia -");
        let values = of(json!({ DEVICES: lost.to_string() }));
        assert_eq!((size(&values, "hardware.gpus"), gpus_near(&values)), (Some(2), vec![false, false]));
        // The GPUs are the last to be left out: they are all there, and the devices are not.
        let some = json!({ "pci": [gpu, "0000:00:1f.0 060100 8086:a1c1 - - -"], "pciLeftOut": 3, "numa": [], "numaLeftOut": 1 });
        let values = of(json!({ DEVICES: some.to_string() }));
        assert_eq!((size(&values, "hardware.gpus"), size(&values, "hardware.pci")), (Some(1), None));
        assert_eq!(size(&values, "hardware.numa"), None);
    }

    #[test]
    fn what_was_not_listed_is_not_known_and_what_was_not_found_is_none() {
        let data = |annotations: Json| {
            let data = json!({ "metadata": { "name": "a", "annotations": annotations }, "spec": { "hardware": { "ramMebibytes": 1 } } });
            Facts::Data(Arc::new(serde_json::from_value::<HardwareData>(data).unwrap()))
        };
        let path = |text: &str| text.split('.').map(ToOwned::to_owned).collect::<Vec<_>>();
        let all = Values::of(&Own::default(), Some(&data(json!({}))));
        assert!(matches!(all.at(&path("hardware.nics")), Some(Value::List(list)) if list.items.is_empty()));
        let some = Values::of(&Own::default(), Some(&data(json!({ NOT_LISTED: "disks" }))));
        assert!(some.at(&path("hardware.storage")).is_none() && some.at(&path("hardware.nics")).is_some());
        // A list that was read in part is no list, and a sum of it no sum.
        let part = json!({ "metadata": { "name": "a", "annotations": { (NOT_LISTED): "processors, memory, disks, network interfaces" } },
            "spec": { "hardware": { "cpu": { "arch": "x86_64", "count": 8 }, "ramMebibytes": 1024, "storage": [{ "name": "/dev/sda", "rotational": false }],
                "nics": [{ "name": "eth0" }] } } });
        let part = Facts::Data(Arc::new(serde_json::from_value::<HardwareData>(part).unwrap()));
        let part = Values::of(&Own::default(), Some(&part));
        for name in ["hardware.storage", "hardware.nics", "hardware.ramMebibytes", "hardware.cpu.count"] {
            assert!(part.at(&path(name)).is_none(), "{name}");
        }
        assert!(part.at(&path("hardware.cpu.arch")).is_some());
        let none = Values::of(&Own::default(), None);
        assert!(none.at(&path("hardware.nics")).is_none() && none.at(&path("hardware")).is_some());
    }
}
