//! Fault by fault: what is found first, and that without its evidence nobody claims it.

use diagnosis::{Certainty, Code, Evidence, diagnose};
use serde_json::{Value, json};

use crate::kit::{base, evidence};

/// A fault: its phase, what is read of it, and what has to come first: code, who fixes it, the part's place, and words of the advice.
struct Row {
    phase: &'static str,
    change: Value,
    wanted: [&'static str; 4],
}

fn row(phase: &'static str, change: Value, wanted: &'static str) -> Row {
    let mut words = wanted.split('|').map(str::trim);
    let wanted = [(); 4].map(|()| words.next().unwrap());
    Row { phase, change, wanted }
}

fn contact(contact: &str) -> Value {
    json!({ "access": { "read": { "connection": { "read": { "contact": contact, "status": null, "text": "it did not answer" } } } } })
}

fn answer(status: u16, id: &str) -> Value {
    let messages = if id.is_empty() { json!([]) } else { json!([{ "id": id, "text": "no" }]) };
    json!({ "access": { "read": { "answers": [{ "call": "POST /redfish/v1/SessionService/Sessions", "signIn": true, "status": status, "messages": messages }] } } })
}

fn entry(id: &str, text: &str) -> Value {
    let entry = json!({
        "log": "Sel", "id": "900", "created": "2026-03-01T11:50:00Z", "written": "2026-03-01T11:50:00Z", "severity": "Critical", "messageId": id, "text": text,
    });
    json!({ "logs": { "read": { "entries": [entry] } } })
}

fn cause(cause: &str, message: &str) -> Value {
    json!({ "failure": { "cause": cause, "message": message } })
}

fn part(part: &Value) -> Value {
    json!({ "parts": { "read": [part] } })
}

fn progress(state: &str) -> Value {
    json!({ "boot": { "read": { "progress": { "lastState": state, "unchangedSeconds": 900 } } } })
}

fn agent(agent: &Value) -> Value {
    json!({ "ours": { "agent": { "read": agent } } })
}

fn image(fault: &str) -> Value {
    json!({ "ours": { "image": { "read": { "host": "images:80", "fault": fault, "text": "no" } } } })
}

fn power(power: Value) -> Value {
    json!({ "power": { "read": power } })
}

fn order(status: u16, reset: &str, seconds: Option<u64>) -> Value {
    power(json!({ "orders": [{ "reset": reset, "status": status, "notFollowedSeconds": seconds }] }))
}

fn medium(medium: Value) -> Value {
    json!({ "ours": { "medium": { "read": medium } } })
}

fn slot(slot: Value) -> Value {
    json!({ "media": { "read": { "slots": [slot] } } })
}

fn probe(target: &str, outcome: &str) -> Value {
    agent(&json!({ "probes": [{ "target": target, "address": "s:1", "outcome": outcome }] }))
}

fn smart(smart: Value) -> Value {
    json!({ "ours": { "smart": { "read": [smart] } } })
}

fn gone(kind: &str, slot: &str) -> Value {
    json!({ "differences": { "read": [{ "kind": kind, "change": "Missing", "slot": slot, "was": "something" }] } })
}

/// Something else runs, and nobody has read the medium.
fn ignored() -> Value {
    json!({
        "boot": { "read": { "wantedTarget": "UsbCd", "progress": { "lastState": "OSRunning" }, "bootOverride": { "target": "None" } } },
        "ours": { "medium": { "read": { "inserted": "2026-03-01T11:30:00Z" } } },
    })
}

fn stalled() -> Value {
    json!({
        "failure": { "cause": "AgentSilent" },
        "ours": {
            "medium": { "read": { "first": "2026-03-01T11:01:00Z", "last": "2026-03-01T11:02:00Z", "bytes": 5, "size": 50 } },
            "agent": { "read": { "started": "2026-03-01T11:00:00Z" } },
        },
    })
}

fn task(kind: &str) -> Value {
    let task = json!({
        "id": "J1", "kind": kind, "name": "job", "state": "Exception", "ended": "2026-03-01T11:58:00Z", "messages": [{ "id": "X", "text": "no" }],
    });
    json!({ "tasks": { "read": [task] } })
}

fn access_rows() -> Vec<Row> {
    let r = "registration";
    let found = |change, wanted| row(r, change, wanted);
    let root = |root: Value| json!({ "access": { "read": { "root": { "read": root } } } });
    vec![
        found(contact("refused"), "BmcConnectionRefused | Configuration |  | spec.bmc.address"),
        found(contact("timedOut"), "BmcTimeout | Network |  | firewalls"),
        found(contact("nameNotFound"), "BmcNameUnknown | Configuration |  | DNS"),
        found(contact("unreachable"), "BmcNoRoute | Network |  | routes"),
        found(contact("reset"), "BmcConnectionReset | BMC |  | reset the BMC"),
        found(contact("unknownAuthority"), "BmcAuthorityUnknown | Configuration |  | authority"),
        found(contact("expired"), "BmcCertificateExpired | BMC |  | new certificate"),
        found(contact("notYetValid"), "BmcCertificateNotYetValid | BMC |  | clocks"),
        found(contact("wrongName"), "BmcCertificateWrongName | Configuration |  | name of the certificate"),
        found(contact("notThePinned"), "BmcCertificateChanged | Configuration |  | same BMC"),
        found(contact("handshake"), "BmcTlsFailed | BMC |  | version of TLS"),
        found(contact("noRedfish"), "BmcNotRedfish | Configuration |  | scheme"),
        found(
            json!({ "access": { "read": { "connection": { "read": { "contact": "answered", "status": 503 } } } } }),
            "BmcStarting | BMC |  | wait",
        ),
        found(answer(401, ""), "CredentialsWrong | Configuration |  | Secret"),
        found(answer(401, "Base.1.8.AccountLockedOut"), "AccountLocked | BMC |  | unlock"),
        found(answer(403, "Base.1.8.InsufficientPrivilege"), "PrivilegeMissing | BMC |  | Administrator"),
        found(answer(403, "Base.1.8.PasswordChangeRequired"), "PasswordChangeRequired | BMC |  | change the password"),
        found(answer(503, "Base.1.8.SessionLimitExceeded"), "SessionLimit | BMC |  | sessions"),
        found(answer(403, "IDRAC.2.8.SYS407"), "PrivilegeMissing | BMC |  | Administrator"),
        found(answer(400, "Oem.LicenseKeyRequired"), "LicenseMissing | BMC |  | licence"),
        found(
            json!({ "access": { "read": { "account": { "read": { "locked": true } } } } }),
            "AccountLocked | BMC |  | unlock",
        ),
        found(
            json!({ "access": { "read": { "account": { "read": { "enabled": false } } } } }),
            "AccountDisabled | BMC |  | enable",
        ),
        found(
            root(json!({ "systems": ["2"], "systemKnown": false })),
            "SystemNotNamed | Configuration |  | Systems/ID",
        ),
        found(root(json!({ "systemKnown": false })), "SystemNotFound | Configuration |  | correct the path"),
        found(root(json!({ "virtualMedia": false })), "NoVirtualMedia | BMC |  | firmware"),
        found(cause("BmcAddressInvalid", "no scheme"), "BmcAddressInvalid | Configuration |  | spec.bmc.address"),
        found(
            cause("Other", "the Secret bmc-1 was not found"),
            "SecretInvalid | Configuration |  | username and password",
        ),
        found(cause("AnotherMachine", "another"), "AnotherMachine | Configuration |  | accept-machine"),
        found(cause("MachineUnknown", "nobody"), "MachineNotRecognized | BMC |  | UUID"),
        found(cause("RecordUnavailable", "conflict"), "RecordUnavailable | Metamorph |  | Kubernetes API"),
        found(cause("Internal", "oops"), "OwnFault | Metamorph |  | report"),
        found(cause("ProvisionerUnavailable", "gone"), "ProvisionerUnavailable | Metamorph |  | provisioner"),
    ]
}

fn power_rows() -> Vec<Row> {
    let p = "power";
    vec![
        row(
            p,
            part(&json!({ "kind": "PowerSupply", "slot": "PSU 1", "serial": "P1", "inputGood": false })),
            "PowerInputLost | Hardware | PSU 1 | PSU 1",
        ),
        row(
            p,
            part(&json!({ "kind": "PowerSupply", "slot": "PSU 1", "health": "Critical" })),
            "PowerSupplyFailed | Hardware | PSU 1 | replace PowerSupply PSU 1",
        ),
        row(
            p,
            entry("PSU0003", "The power input for power supply 2 is lost."),
            "PowerInputLost | Hardware |  | circuit",
        ),
        row(
            p,
            entry("iLOEvents.0.9.X", "System Power Supply: General Failure (PSU 2)"),
            "PowerSupplyFailed | Hardware | PSU 2 | replace",
        ),
        row(p, power(json!({ "cap": { "limitWatts": 400, "drawnWatts": 400 } })), "PowerCapped | BMC |  | limit"),
        row(p, power(json!({ "intrusion": "HardwareIntrusion" })), "ChassisOpen | Hardware |  | close"),
        row(p, power(json!({ "blocked": "RMC denies power" })), "PowerOnBlocked | BMC |  | grant"),
        row(p, order(400, "GracefulRestart", None), "ResetNotAllowed | BMC |  | firmware"),
        row(p, order(204, "On", Some(300)), "PowerStuck | BMC |  | mains"),
        row(p, entry("CPU0000", "CPU 1 has an internal error (IERR)."), "ProcessorFailed | Hardware | CPU 1 | CPU 1"),
        row(p, entry("", "Temperature Upper Critical - going high"), "OverTemperature | Hardware |  | air"),
        row(
            p,
            part(&json!({ "kind": "Temperature", "slot": "Inlet", "reading": 60.0, "criticalAt": 47.0 })),
            "OverTemperature | Hardware | Inlet | Inlet",
        ),
        row(
            p,
            part(&json!({ "kind": "Fan", "slot": "Fan 9", "health": "Critical" })),
            "FanFailed | Hardware | Fan 9 | replace Fan Fan 9",
        ),
        row(
            p,
            entry("FAN0001", "Fan 3 RPM is less than the lower critical threshold."),
            "FanFailed | Hardware | Fan 3 | Fan 3",
        ),
        row(
            p,
            entry("VLT0204", "The system board voltage is outside of range."),
            "VoltageFailed | Hardware |  | board",
        ),
    ]
}

fn boot_rows() -> Vec<Row> {
    let i = "inspection";
    vec![
        row(i, progress("MemoryInitializationStarted"), "StuckInMemoryInit | Hardware |  | reseat memory"),
        row(i, progress("PCIResourceConfigStarted"), "StuckInPciInit | Hardware |  | cards"),
        row(i, progress("OSBootStarted"), "StuckInOsStart | Image |  | boot loader"),
        row(i, progress("SetupEntered"), "StuckInSetup | Configuration |  | leave the setup"),
        row(i, ignored(), "BootOverrideIgnored | BMC |  | boot mode"),
        row(i, json!({ "boot": { "read": { "options": [] } } }), "NoBootDevice | Configuration |  | boot order"),
        row(i, entry("UEFI0082", "No bootable device."), "NoBootDevice | Configuration |  | boot order"),
        row(i, entry("", "Secure Boot violation: image was not signed"), "SecureBootRefused | Image |  | sign"),
        row(i, medium(json!({ "inserted": "2026-03-01T11:30:00Z" })), "MediumNeverRead | Network |  | media address"),
        row(
            i,
            medium(json!({ "inserted": "2026-03-01T11:30:00Z", "tlsRefused": 3 })),
            "MediaCertificateRefused | Configuration |  | HTTP",
        ),
    ]
}

fn agent_rows() -> Vec<Row> {
    let i = "inspection";
    vec![
        row(
            i,
            slot(json!({ "id": "Cd", "message": "Unable to locate the ISO: connection timed out" })),
            "MediaUnreachable | Network |  | port",
        ),
        row(
            i,
            slot(json!({ "id": "Cd", "message": "The SSL certificate could not be verified" })),
            "MediaCertificateRefused | Configuration |  | authority",
        ),
        row(
            i,
            slot(json!({ "id": "Cd", "inserted": true, "ours": false, "imageHost": "other:80" })),
            "MediaSlotInUse | BMC |  | eject",
        ),
        row(
            i,
            agent(&json!({ "links": [["aa:bb:cc:dd:ee:01", "down"]] })),
            "LinkDown | Network | aa:bb:cc:dd:ee:01 | cable",
        ),
        row(
            i,
            part(&json!({ "kind": "NetworkPort", "slot": "NIC 1-1", "link": "LinkDown" })),
            "LinkDown | Network | NIC 1-1 | switch port",
        ),
        row(i, agent(&json!({ "addresses": [] })), "AgentNoAddress | Network |  | DHCP"),
        row(i, probe("server", "noName"), "ServerNameUnknownOnHost | Network |  | DNS"),
        row(i, probe("server", "timedOut"), "ServerUnreachableFromHost | Network |  | routes"),
        row(i, probe("server", "tls"), "ServerCertificateRefusedByHost | Configuration |  | clock"),
        row(
            i,
            part(&json!({ "kind": "Memory", "slot": "DIMM B2", "serial": "S9", "health": "Critical" })),
            "MemoryFailed | Hardware | DIMM B2 | replace Memory DIMM B2",
        ),
        row(
            i,
            entry("MEM0001", "Multi-bit memory errors detected on DIMM A1."),
            "MemoryUncorrectable | Hardware | DIMM A1 | DIMM A1",
        ),
        row(i, entry("", "Uncorrectable ECC @DIMMC3"), "MemoryUncorrectable | Hardware | DIMMC3 | DIMMC3"),
        row(i, gone("Memory", "DIMM A4"), "MemoryMissing | Hardware | DIMM A4 | reseat"),
        row(
            i,
            part(&json!({ "kind": "Processor", "slot": "CPU 2", "health": "Critical" })),
            "ProcessorFailed | Hardware | CPU 2 | CPU 2",
        ),
        row(
            i,
            part(&json!({ "kind": "PcieDevice", "slot": "Slot 4", "health": "Critical" })),
            "PcieDeviceFailed | Hardware | Slot 4 | reseat",
        ),
        row(i, gone("NetworkPort", "NIC 2"), "NetworkPortMissing | Hardware | NIC 2 | card"),
    ]
}

fn disk_rows() -> Vec<Row> {
    let p = "provisioning";
    vec![
        row(
            p,
            part(&json!({ "kind": "Drive", "slot": "Bay 7", "serial": "D7", "health": "Critical" })),
            "DriveFailed | Hardware | Bay 7 | replace Drive Bay 7",
        ),
        row(
            p,
            part(&json!({ "kind": "Drive", "slot": "Bay 7", "failurePredicted": true })),
            "DriveFailurePredicted | Hardware | Bay 7 | soon",
        ),
        row(
            p,
            part(&json!({ "kind": "Drive", "slot": "Bay 7", "lifeLeftPercent": 0 })),
            "DriveWornOut | Hardware | Bay 7 | replace",
        ),
        row(
            p,
            part(&json!({ "kind": "Drive", "slot": "Bay 7", "raidState": "Foreign" })),
            "DriveForeign | Configuration | Bay 7 | foreign",
        ),
        row(
            p,
            part(&json!({ "kind": "StorageController", "slot": "RAID 1", "health": "Critical" })),
            "StorageControllerFailed | Hardware | RAID 1 | battery",
        ),
        row(
            p,
            part(&json!({ "kind": "Volume", "slot": "VD 0", "health": "Critical" })),
            "VolumeDegraded | Hardware | VD 0 | rebuilt",
        ),
        row(p, gone("Drive", "Bay 2"), "DriveMissing | Hardware | Bay 2 | reseat"),
        row(p, entry("PDR1001", "Fault detected on drive Bay 1."), "DriveFailed | Hardware | Bay 1 | Bay 1"),
        row(
            p,
            entry("StorageDevice.1.1.DriveFailurePredicted", "soon: Bay 1"),
            "DriveFailurePredicted | Hardware | Bay 1 | soon",
        ),
        row(
            p,
            smart(json!({ "name": "/dev/sda", "serial": "D1", "passed": false })),
            "DriveFailurePredicted | Hardware | /dev/sda | soon",
        ),
        row(
            p,
            smart(json!({ "name": "/dev/sda", "pendingSectors": 8 })),
            "DriveMediaErrors | Hardware | /dev/sda | replace",
        ),
        row(p, image("notFound"), "ImageNotFound | Image |  | spec.image.url"),
        row(p, image("denied"), "ImageDenied | Image |  | credentials"),
        row(p, image("digest"), "ImageDigestMismatch | Image |  | checksum"),
        row(p, image("unavailable"), "ImageUnavailable | Image |  | server"),
        row(p, image("tls"), "ImageTlsRefused | Configuration |  | authority"),
        row(p, cause("ImageInvalid", "the checksum differs"), "ImageDigestMismatch | Image |  | checksum"),
        row(p, cause("NoSuitableDisk", "none of 3 disks"), "HintsFitNone | Configuration |  | rootDeviceHints"),
        row(p, cause("ForeignOwner", "disk of n/h"), "DiskOfAnotherOwner | Configuration |  | overwrite-owner"),
        row(
            p,
            agent(&json!({ "probes": [{ "target": "image", "address": "i:80", "outcome": "timedOut" }] })),
            "ImageUnreachableFromHost | Network |  | image's server",
        ),
        row(p, stalled(), "MediumStalled | Network |  | rate"),
        row("preparation", task("bios"), "BiosSettingsRefused | Configuration |  | FirmwareSchema"),
        row("preparation", task("raid"), "RaidTaskFailed | Configuration |  | spec.raid"),
        row("servicing", task("firmware"), "FirmwareUpdateFailed | BMC |  | messages"),
        row("servicing", entry("SUP0518", "Firmware update failed"), "FirmwareUpdateFailed | BMC |  | messages"),
    ]
}

fn rows() -> Vec<Row> {
    [access_rows(), power_rows(), boot_rows(), agent_rows(), disk_rows()].into_iter().flatten().collect()
}

#[test]
fn each_fault_is_found_first_with_its_part_its_fixer_and_what_to_do() {
    let rows = rows();
    assert!(rows.len() >= 90, "{}", rows.len());
    for row in &rows {
        let verdict = diagnose(&evidence(row.phase, &row.change));
        let first = verdict.first().unwrap_or_else(|| panic!("{:?} in {}: {verdict:#?}", row.wanted, row.phase));
        let part = first.component.as_ref().map_or("", |part| part.slot.as_str());
        let [code, fixer, wanted, advice] = row.wanted;
        assert_eq!([first.code.as_str(), first.fixer.as_str(), part], [code, fixer, wanted], "{verdict:#?}");
        assert!(first.certainty >= Certainty::Likely, "{first:?}");
        assert!(first.advice.contains(advice), "{code}: {}", first.advice);
        assert!(!first.evidence.is_empty() && !first.rule.is_empty());
    }
}

#[test]
fn without_its_evidence_nobody_claims_a_fault() {
    for row in rows() {
        let bare: Evidence = serde_json::from_value(base(row.phase)).unwrap();
        let verdict = diagnose(&bare);
        let first = verdict.first();
        assert!(first.is_none_or(|first| first.certainty == Certainty::Possible), "{first:?}");
        assert!(first.is_none_or(|first| first.code.as_str() != row.wanted[0]), "{first:?}");
    }
}

/// What is told beside causes, or where nothing else tells more: the code is among the causes, and without its evidence it is not.
fn hints() -> Vec<(&'static str, Value, &'static str)> {
    let (r, i, p) = ("registration", "inspection", "provisioning");
    let pcie = |field: &str| part(&json!({ "kind": "PcieDevice", "slot": "Slot 4", field: "x4 of x16" }));
    vec![
        (r, cause("BmcUnreachable", "no"), "BmcUnreachable"),
        (r, cause("BmcRefused", "no"), "BmcRefusedCall"),
        (p, cause("AgentSilent", "no"), "AgentSilent"),
        (p, cause("KeyRemoved", "no"), "BootKeyRemoved"),
        (p, cause("NotErased", "no"), "DriveNotErased"),
        (p, cause("HardwareFailed", "no"), "HardwareFailed"),
        (p, cause("ImageInvalid", "no"), "ImageInvalid"),
        (p, cause("NoSuitableDisk", "the image does not fit"), "ImageTooLarge"),
        (p, cause("MachineInUse", "no"), "MachineInUse"),
        (p, cause("NotServed", "no"), "NotServed"),
        (p, cause("InvalidRequest", "no"), "RequestInvalid"),
        (p, image("noName"), "ImageNameUnknown"),
        (r, json!({ "manager": { "read": { "clockSkewSeconds": 90_000 } } }), "BmcClockWrong"),
        (r, json!({ "manager": { "read": { "fullLogs": ["Sel"] } } }), "BmcLogFull"),
        (r, json!({ "manager": { "read": { "health": "Critical" } } }), "BmcUnhealthy"),
        (
            i,
            json!({
                "media": { "read": { "slots": [{ "id": "Cd", "inserted": false }] } },
                "ours": { "medium": { "read": { "inserted": "2026-03-01T11:30:00Z" } } },
            }),
            "MediumNotInserted",
        ),
        (i, gone("PcieDevice", "Slot 4"), "PcieDeviceMissing"),
        (i, gone("Processor", "CPU 2"), "ProcessorMissing"),
        (i, pcie("degradedLink"), "PcieLinkDegraded"),
        (i, part(&json!({ "kind": "Processor", "slot": "CPU 2", "throttled": true })), "ProcessorThrottled"),
        ("power", power(json!({ "redundancy": "Critical" })), "PowerRedundancyLost"),
        (i, progress("SystemHardwareInitializationComplete"), "StuckInPost"),
        (i, progress("PrimaryProcessorInitializationStarted"), "StuckInProcessorInit"),
        (p, json!({ "tasks": { "read": [{ "id": "1", "name": "n", "state": "Suspended" }] } }), "TaskStuck"),
    ]
}

/// An old log tells of the like for each machine, so that only the count is this module's.
#[test]
fn errors_that_were_corrected_are_told_of_their_module_and_are_no_cause() {
    let change = part(&json!({ "kind": "Memory", "slot": "DIMM B2", "correctableErrors": 7 }));
    let verdict = diagnose(&evidence("inspection", &change));
    let is_here = |cause: &&diagnosis::Cause| cause.component.as_ref().is_some_and(|part| part.slot == "DIMM B2");
    let told = verdict.causes.iter().find(is_here).unwrap();
    assert_eq!((told.code.as_str(), told.background, told.count), ("MemoryCorrectable", true, 7));
}

#[test]
fn a_service_without_a_system_is_reached_by_the_wrong_driver() {
    let mut bare = base("registration");
    let root = &mut bare["access"]["read"]["root"]["read"];
    (root["systems"], root["systemKnown"]) = (json!([]), json!(false));
    assert!(has_code(&serde_json::from_value(bare).unwrap(), "WrongDriver"));
}

fn has_code(evidence: &Evidence, code: &str) -> bool {
    diagnose(evidence).causes.iter().any(|cause| cause.code.as_str() == code)
}

#[test]
fn each_hint_is_told_and_without_its_evidence_it_is_not() {
    for (phase, change, code) in hints() {
        assert!(has_code(&evidence(phase, &change), code), "{code}: {:#?}", diagnose(&evidence(phase, &change)));
        let mut bare = base(phase);
        bare["failure"]["cause"] = json!("Other");
        assert!(!has_code(&serde_json::from_value(bare).unwrap(), code), "{code}");
    }
}

#[test]
fn each_code_is_found_by_some_row_and_the_table_is_whole() {
    let mut found: std::collections::BTreeSet<&str> = rows().iter().map(|row| row.wanted[0]).collect();
    found.extend(hints().into_iter().map(|(.., code)| code).chain(["MemoryCorrectable", "WrongDriver"]));
    let all: std::collections::BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let without: Vec<&str> = all.difference(&found).copied().collect();
    assert!(without.is_empty(), "no row has {without:?}");
    let mut names = std::collections::BTreeSet::new();
    for code in Code::ALL {
        assert!(names.insert(code.as_str()) && code.meaning().len() > 10 && code.advice().len() > 5, "{code:?}");
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert!(diagnosis::table().contains(&format!("| `{}` |", code.as_str())));
    }
}

#[test]
fn what_a_look_was_refused_beside_explains_no_failure() {
    let beside = |status: u16, id: &str, text: &str| {
        json!({ "access": { "read": { "answers": [{
            "call": "GET /redfish/v1/AccountService/Accounts", "status": status, "messages": [{ "id": id, "text": text }],
        }] } } })
    };
    for change in [
        beside(401, "", "there is no valid session"),
        beside(403, "Base.1.8.InsufficientPrivilege", "no"),
        beside(409, "", "the resource is locked by another job"),
        beside(400, "", "this needs a license"),
        beside(503, "", "try again"),
    ] {
        for phase in ["registration", "inspection", "provisioning"] {
            let verdict = diagnose(&evidence(phase, &change));
            let bare: Evidence = serde_json::from_value(base(phase)).unwrap();
            assert_eq!(verdict.first(), diagnose(&bare).first());
            assert!(verdict.causes.iter().any(|cause| cause.background && cause.rule.starts_with("access.")));
        }
    }
    let mut needed = beside(403, "Base.1.8.InsufficientPrivilege", "no");
    needed["access"]["read"]["answers"][0]["needed"] = json!(true);
    let verdict = diagnose(&evidence("registration", &needed));
    assert_eq!(
        verdict.first().map(|first| (first.code, first.certainty)),
        Some((Code::PrivilegeMissing, Certainty::Certain))
    );
}
