//! The log about the hardware, in the style of the machine's maker: a SEL at the system, Dell's Lclog at the manager, HPE's IML at the system. Ailments write into it; it is paged.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{
    paths::{MANAGER, system_path},
    recorded::{RECORDED_ID, served},
};
use crate::{
    ailments::{Ailment, Ailments},
    bmc::{Bmc, lock},
};

/// Type of entries.
const ENTRY_TYPE: &str = "#LogEntry.v1_16_0.LogEntry";
/// Entries of a page.
const PAGE: u64 = 50;
/// Entries of a log that is very long.
const MANY: u64 = 100_000;
/// Old corrections of memory errors.
const NOISE: u64 = 64;

/// How a maker's log is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Records of sensors.
    Sel,
    /// Dell's life cycle log: the newest first.
    Lclog,
    /// HPE's integrated management log.
    Iml,
}

/// The log's style and path.
fn home(bmc: &Bmc) -> (Style, String) {
    let system = system_path(&bmc.config.id);
    let maker = bmc.config.manufacturer.to_ascii_lowercase();
    match () {
        () if maker.starts_with("dell") => (Style::Lclog, format!("{MANAGER}/LogServices/Lclog")),
        () if maker.starts_with("hp") => (Style::Iml, format!("{system}/LogServices/IML")),
        () => (Style::Sel, format!("{system}/LogServices/Log1")),
    }
}

/// What the log says of one thing.
struct Line {
    severity: &'static str,
    /// Dell's message id, and whether the entry names it as DMTF's registries do.
    id: &'static str,
    /// Class and code of HPE.
    hpe: (u32, u32),
    sensor: &'static str,
    args: &'static [&'static str],
    text: &'static str,
    /// The part below system or chassis.
    origin: &'static str,
}

/// What ailments write. Ids are those of Dell's registry where there is one; the sentences are the simulator's.
#[rustfmt::skip]
fn line(ailment: Ailment) -> Option<Line> {
    let new = |severity, id, hpe, sensor, args, text, origin| Some(Line { severity, id, hpe, sensor, args, text, origin });
    let (supply, fan) = ("chassis:/PowerSubsystem/PowerSupplies/Bay2", "chassis:/ThermalSubsystem/Fans/Bay1");
    match ailment {
        Ailment::PsuLost => new("Critical", "PSU0001", (11, 5), "Power Supply / Converter", &["2"], "Power supply 2 has failed.", supply),
        Ailment::PsuInputLost => new("Critical", "PSU0003", (11, 6), "Power Supply / Converter", &["2"], "Power supply 2 receives no input power.", supply),
        Ailment::PowerCapped => new("Critical", "PWR1008", (11, 9), "PowerUnit", &[], "The machine is slowed down: it draws more power than it is allowed.", "chassis:"),
        Ailment::FanFailed => new("Critical", "FAN0001", (2, 2), "Fan", &["1"], "The speed of fan 1 is below its lower critical threshold.", fan),
        Ailment::OverTemperature => new("Critical", "TMP0121", (2, 5), "Temperature", &[], "The temperature of the intake is above its upper critical threshold.", "chassis:/Sensors/AmbientTemp"),
        Ailment::DimmFailed => new("Critical", "UEFI0107", (10, 511), "Memory", &["DIMM 1"], "Memory module DIMM 1 has failed and was disabled.", "system:/Memory/DIMM1"),
        Ailment::DimmMissing => new("Warning", "MEM0022", (10, 470), "Memory", &["DIMM 3"], "Memory module DIMM 3 is not there any more.", "system:/Memory/DIMM3"),
        Ailment::UncorrectableEcc => new("Critical", "MEM0001", (1, 3), "Memory", &["DIMM 1"], "Memory errors of several bits were found in DIMM 1 (uncorrectable ECC).", "system:/Memory/DIMM1"),
        Ailment::CpuFailed => new("Critical", "CPU0005", (10, 61), "Processor", &["1"], "Processor CPU 1 has an internal error.", "system:/Processors/CPU1"),
        Ailment::DriveFailed => new("Critical", "PDR1001", (19, 1), "Drive Slot/Bay", &["0", "0"], "The disk in bay 0 has a fault.", "system:/Storage/1/Drives/0"),
        Ailment::DrivePredicted => new("Warning", "PDR16", (19, 6), "Drive Slot/Bay", &["Bay 0", "C123-1111"], "The disk in bay 0 predicts its failure.", "system:/Storage/1/Drives/0"),
        Ailment::DriveMissing => new("Critical", "PDR1016", (19, 2), "Drive Slot/Bay", &["0", "0"], "The disk in bay 0 was removed.", "system:"),
        Ailment::DriveForeign => new("Warning", "PDR60", (19, 8), "Drive Slot/Bay", &["Bay 0"], "The disk in bay 0 has a foreign configuration.", "system:/Storage/1/Drives/0"),
        Ailment::ControllerFailed => new("Critical", "HWC2003", (19, 12), "Critical Interrupt", &["controller in slot 1"], "The storage controller in slot 1 does not answer.", "system:/Storage/1/Controllers/1"),
        Ailment::NicLinkDown => new("Warning", "NIC100", (17, 4), "Cable/Interconnect", &["OCP 1", "1"], "Port 1 of the network card in OCP 1 has no link.", "chassis:/NetworkAdapters/1"),
        Ailment::NicMissing => new("Critical", "HWC3005", (17, 9), "Slot/Connector", &["OCP 1"], "The network card in OCP 1 is not there any more.", "chassis:"),
        Ailment::Intrusion => new("Critical", "SEC0031", (2, 8), "Physical Chassis Security", &[], "The chassis is open while the machine is on.", "chassis:"),
        _ => None,
    }
}

/// What a BMC tells of an ailment when it comes.
pub struct Told {
    /// `Warning` or `Critical`.
    pub severity: &'static str,
    /// Id of the message.
    pub id: String,
    /// A sentence.
    pub text: &'static str,
    /// Path of the part.
    pub origin: String,
}

/// What a BMC tells of this ailment, if it notices it.
#[must_use]
pub fn told(bmc: &Bmc, ailment: Ailment) -> Option<Told> {
    let line = line(ailment)?;
    let origin =
        line.origin.replace("system:", &system_path(&bmc.config.id)).replace("chassis:", "/redfish/v1/Chassis/1U");
    Some(Told { severity: line.severity, id: format!("IDRAC.2.8.{}", line.id), text: line.text, origin })
}

/// Time at the BMC's clock: its epoch and `offset` seconds if it has lost the time.
#[must_use]
pub fn epoch(bmc: &Bmc, offset: i64) -> Timestamp {
    let up = i64::try_from(bmc.shared.started.elapsed().as_secs()).unwrap_or_default();
    Timestamp::from_second(up + offset).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When an ailment was written down: since when the BMC has it.
fn written(bmc: &Bmc, ailments: &Ailments) -> Timestamp {
    let since = *lock(&bmc.ailing);
    if ailments.has(Ailment::Clock1970) { epoch(bmc, 10) } else { since }
}

/// Entries that ailments add, oldest first.
fn added(bmc: &Bmc, ailments: &Ailments) -> Vec<Value> {
    let (style, home) = home(bmc);
    let at = written(bmc, ailments);
    let mut out: Vec<Value> = Vec::new();
    let bare = ailments.has(Ailment::RegistryMissing);
    for line in ailments.iter().filter_map(line) {
        out.push(entry(bmc, style, &line, at));
    }
    if ailments.has(Ailment::LogEscapes) {
        for text in [
            "\u{1b}[2J\u{1b}]0;owned\u{7}<script>alert(1)</script>",
            "%s%n%x {{7*7}} ${HOME} $(id)",
            "\u{202e}txt.exe\r\nHost: x",
        ] {
            out.push(plain(at, "Critical", text));
        }
    }
    if ailments.has(Ailment::LogLongMessage) {
        out.push(plain(at, "Critical", &"x".repeat(10 << 20)));
    }
    if bare {
        for entry in &mut out {
            entry["MessageId"] = json!("ContosoHardware.2.1.PartFault");
            entry["Message"] = Value::Null;
        }
    }
    for entry in &mut out {
        entry["@odata.type"] = json!(ENTRY_TYPE);
        entry["@odata.id"] = json!(format!("{home}/Entries/"));
    }
    out
}

fn plain(at: Timestamp, severity: &str, text: &str) -> Value {
    json!({ "EntryType": "Event", "Severity": severity, "Created": at.to_string(), "Message": text,
        "MessageId": "ResourceEvent.1.3.ResourceErrorsDetected", "MessageArgs": ["x", "y"] })
}

fn entry(bmc: &Bmc, style: Style, line: &Line, at: Timestamp) -> Value {
    let system = system_path(&bmc.config.id);
    let origin = line.origin.replace("system:", &system).replace("chassis:", "/redfish/v1/Chassis/1U");
    let mut entry = json!({
        "Created": at.to_string(), "Severity": line.severity, "Message": line.text,
        "Links": { "OriginOfCondition": { "@odata.id": origin } },
    });
    match style {
        Style::Sel => {
            entry["EntryType"] = json!("SEL");
            entry["EntryCode"] = json!("Assert");
            entry["SensorType"] = json!(line.sensor);
            entry["SensorNumber"] = json!(7);
            entry["MessageId"] = json!(format!("0x{:06X}", line.hpe.0 << 8 | line.hpe.1));
        }
        Style::Lclog => {
            entry["EntryType"] = json!("Oem");
            entry["OemRecordFormat"] = json!("Dell");
            entry["MessageId"] = json!(format!("IDRAC.2.8.{}", line.id));
            entry["MessageArgs"] = json!(line.args);
            entry["Oem"] = json!({ "Dell": {
                "@odata.type": "#DellLCLogEntry.v1_1_0.DellLCLogEntry", "Category": "System Health",
            } });
        }
        Style::Iml => {
            let (class, code) = line.hpe;
            entry["EntryType"] = json!("Oem");
            entry["OemRecordFormat"] = json!("Hpe-IML");
            entry["MessageId"] = json!(format!("{class}.{code}"));
            entry["MessageArgs"] = json!([]);
            entry["Oem"] = json!({ "Hpe": {
                "@odata.type": "#HpeLogEntry.v2_4_0.HpeLogEntry", "Categories": ["Hardware"], "Class": class, "Code": code,
                "Count": 1, "EventNumber": code, "Severity": line.severity, "Repaired": false,
                "RecommendedAction": "Look at the part that the entry names.", "Updated": at.to_string(),
            } });
        }
    }
    entry
}

/// Entry `number` of those before the ailments' own, from 1.
fn earlier(bmc: &Bmc, ailments: &Ailments, number: u64) -> Option<Value> {
    let old = |seconds: u64| {
        let since = SignedDuration::from_hours(9 * 365 * 24) - SignedDuration::from_secs(i64::try_from(seconds).ok()?);
        (bmc.shared.now)().checked_sub(since).ok()
    };
    if ailments.has(Ailment::Log100k) {
        let text = format!("Nothing of note, number {number}.");
        return (number <= MANY).then(|| plain(old(number).unwrap_or_default(), "OK", &text));
    }
    if ailments.has(Ailment::CorrectableEccNoise) {
        let line = Line {
            severity: "OK",
            id: "MEM0702",
            hpe: (1, 1),
            sensor: "Memory",
            args: &["DIMM 1"],
            text: "Correctable ECC @DIMM 1",
            origin: "system:/Memory/DIMM1",
        };
        return (number <= NOISE).then(|| entry(bmc, home(bmc).0, &line, old(number).unwrap_or_default()));
    }
    if home(bmc).0 == Style::Sel {
        let path = format!("/redfish/v1/Systems/{RECORDED_ID}/LogServices/Log1/Entries/{number}");
        return served(&path).and_then(|text| serde_json::from_str(text).ok());
    }
    let audit = json!({
        "EntryType": "Oem", "Severity": "OK", "Created": bmc.shared.made.to_string(), "MessageId": "IDRAC.2.8.USR0030",
        "Message": "The user root has signed in from 192.0.2.77.", "MessageArgs": ["root", "192.0.2.77", "REDFISH"],
        "OemRecordFormat": "Dell", "Oem": { "Dell": {
            "@odata.type": "#DellLCLogEntry.v1_1_0.DellLCLogEntry", "Category": "Audit",
        } },
    });
    (number == 1 && home(bmc).0 == Style::Lclog).then_some(audit)
}

/// How many entries there are before the ailments' own.
fn earlier_count(bmc: &Bmc, ailments: &Ailments) -> u64 {
    match home(bmc).0 {
        _ if ailments.has(Ailment::Log100k) => MANY,
        _ if ailments.has(Ailment::CorrectableEccNoise) => NOISE,
        Style::Sel => 2,
        Style::Lclog => 1,
        Style::Iml => 0,
    }
}

/// Entry `number`, from 1 in the order of time.
fn numbered(bmc: &Bmc, ailments: &Ailments, number: u64) -> Option<Value> {
    let (_, home) = home(bmc);
    let before = earlier_count(bmc, ailments);
    let mut entry = if number <= before {
        earlier(bmc, ailments, number)?
    } else {
        added(bmc, ailments).into_iter().nth(usize::try_from(number - before - 1).ok()?)?
    };
    entry["@odata.type"] = json!(ENTRY_TYPE);
    entry["@odata.id"] = json!(format!("{home}/Entries/{number}"));
    entry["Id"] = json!(number.to_string());
    entry["Name"] = json!(format!("Log Entry {number}"));
    if let Some(fields) = entry.as_object_mut() {
        fields.shift_remove("@Redfish.Copyright");
    }
    Some(entry)
}

/// A page of the log: the query's `$skip` and `$top` select it. None if the path is not that of the entries.
#[must_use]
pub fn page(bmc: &Bmc, path: &str, query: &str, ailments: &Ailments) -> Option<Value> {
    let (style, home) = home(bmc);
    // Of a machine that is well, a SEL is as recorded.
    if path != format!("{home}/Entries") || style == Style::Sel && ailments.iter().next().is_none() {
        return None;
    }
    let number =
        |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok());
    let total = earlier_count(bmc, ailments) + added(bmc, ailments).len() as u64;
    let skip = number("$skip").or_else(|| number("%24skip")).unwrap_or(0).min(total);
    let top = number("$top").or_else(|| number("%24top")).unwrap_or(PAGE).clamp(1, PAGE);
    let end = (skip + top).min(total);
    let order = |place: u64| if style == Style::Lclog { total - place } else { place + 1 };
    let members: Vec<Value> = (skip..end).filter_map(|place| numbered(bmc, ailments, order(place))).collect();
    let mut body = json!({
        "@odata.type": "#LogEntryCollection.LogEntryCollection",
        "@odata.id": path,
        "Name": "Log Service Collection",
        "Description": "Entries of the log",
        "Members@odata.count": total,
        "Members": members,
    });
    if ailments.has(Ailment::LogLoop) {
        body["Members@odata.nextLink"] = json!(path);
    } else if end < total {
        body["Members@odata.nextLink"] = json!(format!("{path}?$skip={end}"));
    }
    Some(body)
}

/// The log and its entries.
pub fn resource(bmc: &Bmc, path: &str, ailments: &Ailments) -> Option<Value> {
    let (style, home) = home(bmc);
    let rest = path.strip_prefix(home.as_str())?;
    if let Some(number) = rest.strip_prefix("/Entries/") {
        return numbered(bmc, ailments, number.parse().ok()?);
    }
    if rest == "/Entries" {
        return page(bmc, path, "", ailments);
    }
    let recorded = served(&format!("/redfish/v1/Systems/{RECORDED_ID}/LogServices/Log1")).filter(|_| rest.is_empty());
    let mut body: Value = serde_json::from_str(recorded?).ok()?;
    body["@odata.id"] = json!(path);
    body["Id"] = json!(path.rsplit('/').next());
    body["Entries"] = json!({ "@odata.id": format!("{path}/Entries") });
    body["Actions"]["#LogService.ClearLog"]["target"] = json!(format!("{path}/Actions/LogService.ClearLog"));
    let now = if ailments.has(Ailment::Clock1970) { epoch(bmc, 0) } else { (bmc.shared.now)() };
    if style != Style::Sel || ailments.has(Ailment::Clock1970) {
        (body["DateTime"], body["DateTimeLocalOffset"]) = (json!(now.to_string()), json!("+00:00"));
    }
    if ailments.has(Ailment::LogFull) {
        body["OverWritePolicy"] = json!("NeverOverWrites");
        body["MaxNumberOfRecords"] = json!(earlier_count(bmc, ailments) + added(bmc, ailments).len() as u64);
    }
    Some(body)
}

/// Adds the log to the collections.
pub fn link(bmc: &Bmc, path: &str, body: &mut Value) {
    let (style, home) = home(bmc);
    let list = home.rsplit_once('/').map(|(list, _)| list);
    if style != Style::Sel
        && Some(path) == list
        && let Some(members) = body["Members"].as_array_mut()
    {
        members.push(json!({ "@odata.id": home }));
        body["Members@odata.count"] = json!(body["Members"].as_array().map(Vec::len));
    }
}
