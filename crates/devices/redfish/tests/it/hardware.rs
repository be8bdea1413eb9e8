//! The hardware as BMCs list it: recorded machines, and BMCs that list badly.

use std::sync::Arc;

use bmc::ErrorKind;
use inventory::{DiskType, HardwareDetails, Inspected, Part, Storage};
use serde_json::{Value, json};

use crate::kit::{Bmc, PASSWORD, SYSTEM, dropped, error_body, odd, rig};

const DELL: &str = "/redfish/v1/Systems/System.Embedded.1";
const HPE: &str = "/redfish/v1/Systems/1";

/// A disk: serial number, world wide name, gigabytes, kind.
type Disk = (&'static str, Option<&'static str>, i64, DiskType);

/// What a recorded machine has, by its tree.
struct Machine {
    tree: &'static str,
    system: &'static str,
    /// Threads, MHz, and a part of the model.
    cpu: (i64, f64, &'static str),
    mebibytes: i64,
    /// How many, and one of them.
    disks: (usize, Option<Disk>),
    /// All MAC addresses, and the speed of the first.
    macs: &'static [&'static str],
    speed: Option<i64>,
    /// Version and date.
    bios: (&'static str, Option<&'static str>),
    /// Maker, model, serial number.
    vendor: (&'static str, &'static str, Option<&'static str>),
    not_listed: &'static [Part],
}

const MACHINES: [Machine; 4] = [
    Machine {
        tree: "dell-r750",
        system: DELL,
        cpu: (72, 4000.0, "Gold 6354"),
        mebibytes: 524_288,
        disks: (3, Some(("61X0A002TCD8", None, 1920, DiskType::NVME))),
        macs: &[
            "70:b5:e8:f0:52:dc",
            "e4:3d:1a:13:27:f1",
            "e4:3d:1a:13:27:f0",
            "70:b5:e8:f0:52:dd",
            "b8:3f:d2:90:97:c4",
        ],
        speed: None,
        bios: ("1.8.2", Some("09/14/2022")),
        // The service tag, which SMBIOS has.
        vendor: ("Dell Inc.", "PowerEdge R750", Some("F54P1G3")),
        not_listed: &[],
    },
    Machine {
        tree: "hpe",
        system: HPE,
        // Two processors; the GPUs beside them are none.
        cpu: (128, 4000.0, "XEON(R) GOLD 6530"),
        mebibytes: 524_288,
        // Eight bays, of which one is empty.
        disks: (7, Some(("S70XNN0XC14012", Some("eui.0025381c4171581a"), 6401, DiskType::NVME))),
        macs: &["58:a2:e1:03:96:f2", "58:a2:e1:03:96:f3"],
        speed: None,
        bios: ("U58 v2.44 (01/17/2025)", Some("01/17/2025")),
        vendor: ("HPE", "ProLiant DL380a Gen11 -- SIMULATED", Some("2M2D2J00L4")),
        not_listed: &[],
    },
    Machine {
        tree: "supermicro-x10",
        system: HPE,
        cpu: (16, 4000.0, "Xeon(R) CPU D-1541"),
        mebibytes: 65_536,
        // Its Storage answers 404, and its SimpleStorage is empty.
        disks: (0, None),
        macs: &["ac:1f:6b:18:a4:5a", "ac:1f:6b:18:a4:5b", "ac:1f:6b:18:a6:b2", "ac:1f:6b:18:a6:b3"],
        speed: None,
        bios: ("1.2", None),
        vendor: ("Supermicro", "Super Server", None),
        not_listed: &[Part::Disks],
    },
    Machine {
        tree: "dmtf-generic",
        system: SYSTEM,
        // One socket is empty, and an FPGA is no processor.
        cpu: (16, 3700.0, "Multi-Core Intel(R) Xeon(R)"),
        mebibytes: 98_304,
        disks: (0, None),
        // Not the VLAN, and not the interface towards the BMC.
        macs: &["12:44:6a:3b:04:11", "12:44:6a:3b:88:90"],
        speed: Some(1),
        bios: ("P79 v1.45 (12/06/2017)", Some("12/06/2017")),
        vendor: ("Contoso", "3500", Some("437XR1138R2")),
        not_listed: &[Part::Disks],
    },
];

async fn listed(bmc: &Arc<Bmc>, system: &str) -> Inspected {
    rig(bmc, system).client.hardware().await.unwrap()
}

fn macs(hardware: &HardwareDetails) -> Vec<&str> {
    hardware.nics.iter().map(|nic| nic.mac.as_deref().unwrap()).collect()
}

#[tokio::test]
async fn recorded_machines_are_listed_as_their_trees_show_them() {
    for machine in MACHINES {
        let tree = machine.tree;
        let bmc = Bmc::new(tree);
        let Inspected { hardware, not_listed, .. } = listed(&bmc, machine.system).await;
        let cpu = hardware.cpu.clone().unwrap();
        assert_eq!((cpu.count, cpu.clock_megahertz), (Some(machine.cpu.0), Some(machine.cpu.1)), "{tree}");
        assert!(cpu.model.as_ref().unwrap().contains(machine.cpu.2), "{tree}: {cpu:?}");
        assert_eq!(cpu.arch.as_deref(), Some("x86_64"), "{tree}");
        assert_eq!(hardware.ram_mebibytes, Some(machine.mebibytes), "{tree}");
        assert_eq!(hardware.storage.len(), machine.disks.0, "{tree}: {:?}", hardware.storage);
        if let Some((serial, wwn, gigabytes, kind)) = machine.disks.1 {
            let is = |disk: &&Storage| disk.serial_number.as_deref() == Some(serial);
            let disk = hardware.storage.iter().find(is).unwrap();
            assert_eq!((disk.wwn.as_deref(), disk.disk_type), (wwn, Some(kind)), "{tree}");
            assert_eq!(disk.size_bytes.unwrap() / 1_000_000_000, gigabytes, "{tree}");
            assert_eq!((disk.rotational, &disk.name, &disk.hctl), (Some(false), &None, &None), "{tree}");
        }
        assert_eq!((macs(&hardware).as_slice(), hardware.nics[0].speed_gbps), (machine.macs, machine.speed), "{tree}");
        let bios = hardware.firmware.clone().unwrap().bios.unwrap();
        assert_eq!((bios.version.as_deref(), bios.date.as_deref()), (Some(machine.bios.0), machine.bios.1), "{tree}");
        let vendor = hardware.system_vendor.clone().unwrap();
        let told = (vendor.manufacturer.unwrap(), vendor.product_name.unwrap(), vendor.serial_number);
        let (maker, model, serial) = machine.vendor;
        assert_eq!(told, (maker.to_owned(), model.to_owned(), serial.map(ToOwned::to_owned)), "{tree}");
        assert_eq!(not_listed, machine.not_listed, "{tree}");
        assert!(!hardware.is_from_system(), "{tree}: only a running system has names");
        let seen = bmc.take_seen();
        let reads = seen.iter().all(|seen| seen.method == "GET" || seen.path.ends_with("/Sessions"));
        assert!(reads && seen.len() < 40, "{tree}: {} requests", seen.len());
    }
}

#[tokio::test]
async fn the_architecture_is_told_by_few_calls() {
    for machine in MACHINES {
        let bmc = Bmc::new(machine.tree);
        let client = rig(&bmc, machine.system).client;
        assert_eq!(client.architecture().await.unwrap().as_deref(), Some("x86_64"), "{}", machine.tree);
        let asked = bmc.take_seen().iter().filter(|seen| seen.path.contains("/Processors")).count();
        assert!((1..=3).contains(&asked), "{}: {asked} requests", machine.tree);
    }
    let told = async |set: Option<&str>, family: Option<&str>| {
        let bmc = Bmc::new("supermicro-x10");
        bmc.edit(&format!("{HPE}/Processors/1"), |cpu| {
            cpu["InstructionSet"] = json!(set);
            cpu["ProcessorArchitecture"] = json!(family);
        });
        rig(&bmc, HPE).client.architecture().await.unwrap()
    };
    assert_eq!(told(Some("ARM-A64"), Some("ARM")).await.as_deref(), Some("aarch64"));
    assert_eq!(told(None, Some("ARM")).await.as_deref(), Some("aarch64"));
    assert_eq!(told(Some("PowerISA"), Some("Power")).await, None);
    assert_eq!(told(None, None).await, None);
    // What is refused tells nothing; a BMC that cannot be reached has not answered.
    for (reached, told) in [(true, Some(None)), (false, None)] {
        let bmc = Bmc::new("supermicro-x10");
        for _ in 0..8 {
            let refused = || odd(404, error_body("ResourceMissingAtURI", "No."));
            bmc.script("GET", "/Processors", if reached { refused() } else { dropped() });
        }
        assert_eq!(rig(&bmc, HPE).client.architecture().await.ok(), told);
    }
}

#[tokio::test]
async fn a_machine_that_is_off_lists_less_and_that_is_told() {
    // Many BMCs know drives and interfaces only of a machine that is on.
    for (answer, why) in [
        (json!({"Members": [], "Members@odata.count": 0}), "empty"),
        (json!({"Members": null}), "no list"),
        (json!({}), "nothing"),
    ] {
        let bmc = Bmc::new("dell-r750");
        bmc.edit(DELL, |system| {
            system["PowerState"] = "Off".into();
            for field in ["NetworkInterfaces", "SimpleStorage"] {
                system.as_object_mut().unwrap().remove(field);
            }
        });
        for list in ["EthernetInterfaces", "Storage"] {
            bmc.edit(&format!("{DELL}/{list}"), |collection| {
                let id = collection["@odata.id"].clone();
                *collection = answer.clone();
                collection["@odata.id"] = id;
            });
        }
        let found = listed(&bmc, DELL).await;
        assert_eq!((found.hardware.nics.len(), found.hardware.storage.len()), (0, 0), "{why}");
        assert_eq!(found.not_listed, [Part::Disks, Part::Interfaces], "{why}");
        assert_eq!(found.hardware.cpu.unwrap().count, Some(72));
    }
}

#[tokio::test]
async fn what_fails_or_is_refused_is_not_listed_and_the_rest_is() {
    for (status, key) in [(404, "ResourceMissingAtURI"), (403, "InsufficientPrivilege"), (500, "InternalError")] {
        let bmc = Bmc::new("dell-r750");
        for _ in 0..8 {
            bmc.script("GET", "/EthernetInterfaces/NIC.Slot.5-1", odd(status, error_body(key, "No.")));
            bmc.script("GET", "/Processors", odd(status, error_body(key, "No.")));
        }
        // Members are read one by one.
        bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"] = json!({}));
        let found = listed(&bmc, DELL).await;
        assert_eq!(found.not_listed, [Part::Processors, Part::Interfaces], "{status}");
        assert_eq!(found.hardware.nics.len(), 4, "{status}");
        // The system's own summary is left.
        assert_eq!(found.hardware.cpu.unwrap().count, Some(72), "{status}");
    }
    // A BMC that cannot be reached has listed nothing.
    let bmc = Bmc::new("dell-r750");
    for _ in 0..8 {
        bmc.script("GET", "/EthernetInterfaces", dropped());
    }
    let error = rig(&bmc, DELL).client.hardware().await.unwrap_err();
    assert!(!error.kind.is_refusal(), "{error}");
}

#[tokio::test]
async fn the_adapters_functions_stand_in_for_interfaces_that_are_not_listed() {
    let bmc = Bmc::new("hpe");
    bmc.edit(HPE, |system| drop(system.as_object_mut().unwrap().remove("EthernetInterfaces")));
    let found = listed(&bmc, HPE).await;
    assert_eq!(macs(&found.hardware), ["58:a2:e1:03:96:f2", "58:a2:e1:03:96:f3"]);
    assert_eq!(found.hardware.nics[0].speed_gbps, Some(100), "of its port");
    assert_eq!(found.not_listed, []);
    // The same by the list that the system has of its own.
    bmc.edit("/redfish/v1/Systems/1/NetworkInterfaces", |list| list["Members"] = json!([{"@odata.id": "/n"}]));
    let functions = "/redfish/v1/Chassis/1/NetworkAdapters/DE081000/NetworkDeviceFunctions";
    bmc.set(|inner| {
        let own = json!({"@odata.id": "/n", "NetworkDeviceFunctions": {"@odata.id": functions}});
        inner.resources.insert("/n".into(), own);
        inner.resources.remove("/redfish/v1/Chassis/1");
    });
    assert_eq!(macs(&listed(&bmc, HPE).await.hardware).len(), 2);
}

#[tokio::test]
async fn memory_is_added_up_where_the_system_has_no_sum() {
    for summary in [json!(null), json!({"TotalSystemMemoryGiB": 0}), json!({"TotalSystemMemoryGiB": "much"})] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["MemorySummary"] = summary);
        let found = listed(&bmc, SYSTEM).await;
        assert_eq!(found.hardware.ram_mebibytes, Some(3 * 32_768), "one of four slots is empty");
        assert!(!found.not_listed.contains(&Part::Memory));
    }
}

#[tokio::test]
async fn the_older_list_of_disks_stands_in_for_the_newer() {
    let bmc = Bmc::new("supermicro-x10");
    bmc.edit("/redfish/v1/Systems/1/SimpleStorage", |list| list["Members"] = json!([{"@odata.id": "/s"}]));
    let device = |name: &str, bytes: Value, state: &str| json!({"Name": name, "Model": "M", "CapacityBytes": bytes, "Status": {"State": state}});
    let devices = json!([
        device("Bay 1", 8_000_000_000_000_u64.into(), "Enabled"),
        device("Bay 2", 4_000_000_000_000_u64.into(), "Absent"),
        device("Backplane", Value::Null, "Enabled"),
    ]);
    bmc.set(|inner| drop(inner.resources.insert("/s".into(), json!({"@odata.id": "/s", "Devices": devices}))));
    let found = listed(&bmc, "/redfish/v1/Systems/1").await;
    let [disk] = &found.hardware.storage[..] else { panic!("{:?}", found.hardware.storage) };
    assert_eq!((disk.size_bytes, &disk.name), (Some(8_000_000_000_000), &None));
    assert_eq!(found.not_listed, []);
}

/// Collections without end, members that lead to themselves or to each other, values of any kind: it ends, and says that there may be more.
#[tokio::test]
async fn hostile_lists_end() {
    let endless = |path: &str| {
        let members: Vec<Value> = (0..5000).map(|n| json!({"@odata.id": format!("{path}/{n}")})).collect();
        json!({"@odata.id": path, "Members": members})
    };
    let storage = format!("{DELL}/Storage");
    for hostile in [
        endless(&storage),
        // The list is its own only member.
        json!({"@odata.id": storage, "Members": [{"@odata.id": storage}]}),
        // A page leads to itself.
        json!({"@odata.id": storage, "Members": [{"@odata.id": format!("{storage}/CPU.1")}], "Members@odata.nextLink": storage}),
        json!({"@odata.id": storage, "Members": "many"}),
        json!({"@odata.id": storage, "Members": [5, null, "x", [], {"@odata.id": 7}, {"@odata.id": "//elsewhere/x"}]}),
        json!([1, 2, 3]),
        json!("text"),
        Value::Null,
    ] {
        let bmc = Bmc::new("dell-r750");
        bmc.set(|inner| drop(inner.resources.insert(storage.clone(), hostile.clone())));
        bmc.edit(DELL, |system| drop(system.as_object_mut().unwrap().remove("SimpleStorage")));
        if !hostile.is_object() {
            bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"] = json!({}));
        }
        let found = listed(&bmc, DELL).await;
        assert!(found.not_listed.contains(&Part::Disks), "{hostile}");
        assert_eq!(found.hardware.nics.len(), 5);
        assert!(bmc.take_seen().len() < 200, "{hostile}");
    }
    // More drives than are looked at, each a link back to the system.
    let bmc = Bmc::new("dell-r750");
    let many: Vec<Value> = (0..120).map(|n| json!({"@odata.id": format!("/d/{n}")})).collect();
    bmc.edit(&format!("{storage}/CPU.1"), |controller| controller["Drives"] = many.into());
    bmc.edit(&format!("{storage}/AHCI.Embedded.1-1"), |controller| {
        controller["Drives"] = (0..120).map(|n| json!({"@odata.id": format!("/e/{n}")})).collect::<Vec<_>>().into();
        controller["Drives@odata.count"] = 100_000.into();
    });
    bmc.set(|inner| {
        for path in (0..120).flat_map(|n| [format!("/d/{n}"), format!("/e/{n}")]) {
            inner.resources.insert(path.clone(), json!({"@odata.id": path, "SerialNumber": path, "CapacityBytes": 1}));
        }
    });
    let found = listed(&bmc, DELL).await;
    assert_eq!(found.hardware.storage.len(), 128);
    assert_eq!(found.not_listed, [Part::Disks]);
    assert!(bmc.take_seen().len() < 330);
}

#[tokio::test]
async fn values_of_the_wrong_kind_are_no_facts_and_secrets_are_hidden() {
    let bmc = Bmc::new("dell-r750");
    let drive = format!("{DELL}/Storage/CPU.1/Drives/Disk.Bay.0:Enclosure.Internal.0-1");
    bmc.edit(&drive, |drive| {
        (drive["Model"], drive["Manufacturer"]) = (format!("M {PASSWORD}").into(), json!(["x"]));
        (drive["CapacityBytes"], drive["MediaType"]) = (json!(-1), json!({"a": 1}));
        drive["Identifiers"] = json!([null, 5, {"DurableName": 7}, {"DurableNameFormat": "NAA", "DurableName": "z"}]);
    });
    bmc.edit(&format!("{DELL}/Processors/CPU.Socket.1"), |cpu| {
        (cpu["TotalThreads"], cpu["MaxSpeedMHz"], cpu["Model"]) = (json!(1e300), json!("fast"), json!(7));
    });
    bmc.edit(&format!("{DELL}/EthernetInterfaces/NIC.Slot.5-1"), |nic| {
        (nic["PermanentMACAddress"], nic["MACAddress"]) = (json!("ff:ff:ff:ff:ff:ff"), json!(12));
    });
    let Inspected { hardware, .. } = listed(&bmc, DELL).await;
    let disk = hardware.storage.iter().find(|disk| disk.serial_number.as_deref() == Some("61X0A002TCD8")).unwrap();
    let nothing = (None, None, None, None);
    assert_eq!((disk.size_bytes, disk.wwn.clone(), disk.vendor.clone(), disk.disk_type), nothing);
    assert!(!format!("{hardware:?}").contains(PASSWORD), "{disk:?}");
    let cpu = hardware.cpu.unwrap();
    assert!(cpu.model.unwrap().contains("Gold 6354"), "the other one's");
    assert_eq!(hardware.nics.len(), 4);
}

#[tokio::test]
async fn a_bmc_that_lists_nothing_at_all_says_what_to_do() {
    let bmc = Bmc::new("supermicro-x10");
    bmc.edit("/redfish/v1/Systems/1", |system| {
        for field in ["Processors", "ProcessorSummary", "MemorySummary", "Memory", "EthernetInterfaces"] {
            system.as_object_mut().unwrap().remove(field);
        }
    });
    let error = rig(&bmc, "/redfish/v1/Systems/1").client.hardware().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.advice.contains("spec.inspectionMode"), "{}", error.advice);
}
