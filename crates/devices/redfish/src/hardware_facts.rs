//! One resource of the hardware, read leniently: processor, memory, disk, interface. Each source names the schema's properties that it goes by.

use inventory::{Bios, Cpu, DiskType, ListedGpu, Nic, Storage, Tpm};
use serde_json::Value;

use crate::json::{flag, link_at, text, word};
use crate::resources::permanent_mac;

/// Largest number that is taken for one: of bytes, a pebibyte a thousand times.
const MOST: i64 = 1 << 60;
/// Largest number that a JSON number of a BMC holds exactly, 2⁵³.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Most trusted modules that are looked at.
const MAX_MODULES: usize = 16;

/// A positive whole number; some BMCs write numbers as text, or with a fraction.
pub fn count(value: &Value, field: &str) -> Option<i64> {
    let number = match value.get(field)? {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(floor))?,
        Value::String(digits) => digits.trim().parse().ok()?,
        _ => return None,
    };
    (1..=MOST).contains(&number).then_some(number)
}

/// A positive number that may have a fraction.
fn measure(value: &Value, field: &str) -> Option<f64> {
    value.get(field)?.as_f64().filter(|number| *number > 0.0 && *number <= EXACT)
}

fn floor(number: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "it is within what is exact")]
    (number.is_finite() && number.abs() <= EXACT).then(|| number.floor() as i64)
}

/// `Status.State` is `Absent`: an empty socket or bay.
pub fn is_absent(value: &Value) -> bool {
    let state = value.get("Status").and_then(|status| word(status, "State"));
    state.is_some_and(|state| state.eq_ignore_ascii_case("Absent"))
}

/// The processors that were read.
#[derive(Default)]
pub struct Processors {
    found: Cpu,
    threads: i64,
    /// One of them does not say how many threads it has.
    unknown: bool,
    gpus: Vec<ListedGpu>,
}

impl Processors {
    /// Adds one (Processor: `ProcessorType`, `InstructionSet`, `ProcessorArchitecture`, `MaxSpeedMHz`, `Model`, `TotalThreads`). GPUs and
    /// accelerators are no processors of the system, and listed beside it; FPGAs and others are neither.
    pub fn take(&mut self, value: &Value) {
        let is_cpu = word(value, "ProcessorType").is_none_or(|kind| kind.eq_ignore_ascii_case("CPU"));
        if is_absent(value) {
            return;
        }
        if !is_cpu {
            let kind = word(value, "ProcessorType").unwrap_or_default();
            if ["GPU", "Accelerator"].iter().any(|gpu| kind.eq_ignore_ascii_case(gpu)) {
                self.gpus.push(ListedGpu { manufacturer: text(value, "Manufacturer"), model: text(value, "Model") });
            }
            return;
        }
        self.found.model = self.found.model.take().or_else(|| text(value, "Model"));
        self.found.arch = self.found.arch.take().or_else(|| architecture(value));
        let clock = measure(value, "MaxSpeedMHz").or_else(|| measure(value, "OperatingSpeedMHz"));
        self.found.clock_megahertz = match (self.found.clock_megahertz, clock) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        match count(value, "TotalThreads").or_else(|| count(value, "TotalCores")) {
            Some(threads) => self.threads = self.threads.saturating_add(threads),
            None => self.unknown = true,
        }
    }

    /// GPUs and accelerators among them; none are left.
    pub fn gpus(&mut self) -> Vec<ListedGpu> {
        std::mem::take(&mut self.gpus)
    }

    /// The kernel's name of their architecture.
    pub fn architecture(&self) -> Option<&str> {
        self.found.arch.as_deref()
    }

    /// What is known of all of them, with what the system says where they do not (ComputerSystem: `ProcessorSummary`). `None` if nothing is.
    pub fn known(self, system: &Value) -> Option<Cpu> {
        let summary = system.get("ProcessorSummary").unwrap_or(&Value::Null);
        let mut cpu = self.found;
        cpu.count = (self.threads > 0 && !self.unknown)
            .then_some(self.threads.min(MOST))
            .or_else(|| count(summary, "LogicalProcessorCount"));
        cpu.model = cpu.model.or_else(|| text(summary, "Model"));
        (cpu != Cpu::default()).then_some(cpu)
    }
}

/// The kernel's name of the architecture. A server whose BMC names the family alone is a 64-bit one.
fn architecture(value: &Value) -> Option<String> {
    let set = word(value, "InstructionSet").unwrap_or_default().to_ascii_lowercase();
    let family = word(value, "ProcessorArchitecture").unwrap_or_default().to_ascii_lowercase();
    let name = match (set.as_str(), family.as_str()) {
        ("x86-64", _) | ("" | "x86", "x86") => "x86_64",
        ("arm-a64", _) | ("", "arm") => "aarch64",
        _ => return None,
    };
    Some(name.to_owned())
}

/// The TPM, if there is one in force (ComputerSystem: `TrustedModules[].InterfaceType`). What the BMC does not list, or has switched off, may be there for all it says.
pub fn tpm(system: &Value) -> Option<Tpm> {
    let modules = system.get("TrustedModules")?.as_array()?;
    let found = modules.iter().take(MAX_MODULES).find_map(|module| {
        let state = module.get("Status").and_then(|status| word(status, "State"));
        let version = match word(module, "InterfaceType")? {
            "TPM2_0" => "2.0",
            "TPM1_2" => "1.2",
            _ => return None,
        };
        state.is_some_and(|state| state.eq_ignore_ascii_case("Enabled")).then_some(version)
    });
    found.map(|version| Tpm { present: true, version: Some(version.to_owned()), manufacturer: None })
}

/// Memory in MiB by the system's summary (ComputerSystem: `MemorySummary.TotalSystemMemoryGiB`).
pub fn memory_of_system(system: &Value) -> Option<i64> {
    let gib = measure(system.get("MemorySummary")?, "TotalSystemMemoryGiB")?;
    floor(gib * 1024.0).filter(|mebibytes| (1..=MOST).contains(mebibytes))
}

/// Memory of one module in MiB (Memory: `CapacityMiB`); 0 for an empty slot.
pub fn memory_of_module(value: &Value) -> i64 {
    if is_absent(value) { 0 } else { count(value, "CapacityMiB").unwrap_or(0) }
}

/// The system's firmware (ComputerSystem: `BiosVersion`). HPE and others write the date behind the version, Dell has it in `Oem`. No schema names who
/// made it.
pub fn bios(system: &Value) -> Option<Bios> {
    let version = text(system, "BiosVersion")?;
    let dell = system.pointer("/Oem/Dell/DellSystem").and_then(|system| text(system, "BIOSReleaseDate"));
    let behind = version.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).map(ToOwned::to_owned);
    let date = dell.or(behind).filter(|date| is_date(date));
    Some(Bios { date, vendor: None, version: Some(version) })
}

fn is_date(text: &str) -> bool {
    text.len() <= 10 && text.contains(['/', '-']) && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '/' | '-'))
}

/// A disk (Drive: `CapacityBytes`, `Identifiers`, `Manufacturer`, `MediaType`, `Model`, `Protocol`, `RotationSpeedRPM`, `SerialNumber`); `None` for an
/// empty bay and for what says nothing of itself. Its names are the kernel's business: `Name` and `Id` of a drive are none of them. With `swapped`, an
/// EUI-64 is written from its last byte on.
pub fn disk(value: &Value, swapped: bool) -> Option<Storage> {
    if is_absent(value) {
        return None;
    }
    let is = |field: &str, wanted: &str| word(value, field).is_some_and(|word| word.eq_ignore_ascii_case(wanted));
    let spins = count(value, "RotationSpeedRPM").is_some() || is("MediaType", "HDD") || is("MediaType", "SMR");
    let flash = is("MediaType", "SSD") || is("MediaType", "NVMe");
    let nvme = is("Protocol", "NVMe") || is("Protocol", "NVMeOverFabrics") || is("Protocol", "PCIe") && flash;
    let disk_type = match (nvme, spins, flash) {
        (true, _, _) => Some(DiskType::NVME),
        (_, true, _) => Some(DiskType::HDD),
        (_, _, true) => Some(DiskType::SSD),
        _ => None,
    };
    let mut disk = Storage {
        model: text(value, "Model"),
        rotational: disk_type.map(|kind| kind == DiskType::HDD),
        serial_number: text(value, "SerialNumber"),
        size_bytes: count(value, "CapacityBytes"),
        disk_type,
        vendor: text(value, "Manufacturer"),
        ..Storage::default()
    };
    for identifier in value.get("Identifiers").and_then(Value::as_array).into_iter().flatten().take(8) {
        name_worldwide(&mut disk, identifier, swapped);
    }
    (disk.size_bytes.is_some() || disk.serial_number.is_some()).then_some(disk)
}

/// The world wide name, as the agent writes it: `0x…` of a SCSI disk, with the vendor's half apart, and `eui.…` of an NVMe namespace (Resource:
/// `Identifier`).
fn name_worldwide(disk: &mut Storage, identifier: &Value, swapped: bool) {
    let Some(name) = word(identifier, "DurableName").filter(|name| name.len() <= 64 && disk.wwn.is_none()) else {
        return;
    };
    let lower = name.trim().to_ascii_lowercase();
    let bare = lower.strip_prefix("0x").or_else(|| lower.strip_prefix("eui.")).or_else(|| lower.strip_prefix("naa."));
    let digits: String = bare.unwrap_or(&lower).chars().filter(|c| !matches!(c, ':' | '-' | ' ')).collect();
    let blank = digits.bytes().all(|digit| digit == b'0');
    if blank || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return;
    }
    match (word(identifier, "DurableNameFormat").unwrap_or_default(), digits.len()) {
        ("EUI", 16 | 32) => {
            let eui = if swapped { reversed(&digits) } else { digits };
            disk.wwn = Some(format!("eui.{eui}"));
        }
        ("NAA", 16) => {
            disk.wwn = Some(format!("0x{digits}"));
            disk.wwn_with_extension.clone_from(&disk.wwn);
        }
        ("NAA", 32) => {
            let (name, extension) = digits.split_at(16);
            disk.wwn = Some(format!("0x{name}"));
            disk.wwn_vendor_extension = Some(format!("0x{extension}"));
            disk.wwn_with_extension = Some(format!("0x{digits}"));
        }
        _ => {}
    }
}

/// Hexadecimal digits, with their bytes in the other order.
fn reversed(digits: &str) -> String {
    let pairs: Vec<&str> = (0..digits.len() / 2).rev().filter_map(|at| digits.get(at * 2..at * 2 + 2)).collect();
    pairs.concat()
}

/// A disk in the older list (SimpleStorage: `Devices`), which has neither serial numbers nor names. What has no capacity is a backplane.
pub fn simple_disk(device: &Value) -> Option<Storage> {
    disk(device, false).filter(|disk| disk.size_bytes.is_some())
}

/// An interface of the system (EthernetInterface: `PermanentMACAddress`, `MACAddress`, `SpeedMbps`, `EthernetInterfaceType`); `None` for VLANs, bonds and
/// the interface towards the BMC.
pub fn interface(value: &Value) -> Option<Nic> {
    let is_virtual = word(value, "EthernetInterfaceType").is_some_and(|kind| kind.eq_ignore_ascii_case("Virtual"));
    if is_virtual || is_absent(value) {
        return None;
    }
    let mac = mac(&permanent_mac(value)?)?;
    let speed_gbps = count(value, "SpeedMbps").map(|speed| speed / 1000).filter(|speed| *speed > 0);
    Some(Nic { mac: Some(mac), speed_gbps, ..Nic::default() })
}

/// A function of a network adapter, with the path of its port (NetworkDeviceFunction: `Ethernet`, `Links.PhysicalNetworkPortAssignment`); `None` for
/// those without Ethernet.
pub fn function(value: &Value) -> Option<(Nic, Option<String>)> {
    if flag(value, "DeviceEnabled") == Some(false) || is_absent(value) {
        return None;
    }
    let ethernet = value.get("Ethernet")?;
    let written = text(ethernet, "PermanentMACAddress").or_else(|| text(ethernet, "MACAddress"))?;
    let links = value.get("Links").unwrap_or(&Value::Null);
    let port = ["PhysicalNetworkPortAssignment", "PhysicalPortAssignment"]
        .iter()
        .find_map(|name| link_at(links, name).or_else(|| link_at(value, name)));
    Some((Nic { mac: Some(mac(&written)?), ..Nic::default() }, port))
}

/// The speed of a port in Gbit/s, rounded down (Port: `CurrentSpeedGbps`; NetworkPort: `CurrentLinkSpeedMbps`).
pub fn speed(port: &Value) -> Option<i64> {
    let speed =
        count(port, "CurrentSpeedGbps").or_else(|| count(port, "CurrentLinkSpeedMbps").map(|speed| speed / 1000));
    speed.filter(|speed| *speed > 0)
}

/// An Ethernet address in lower case with colons; `None` for blanks, broadcast and group addresses.
fn mac(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-' | '.' | ' ')).take(13).collect();
    let bytes = digits.as_bytes();
    if bytes.len() != 12 || !bytes.iter().all(u8::is_ascii_hexdigit) || bytes.iter().all(|digit| *digit == b'0') {
        return None;
    }
    let is_group = digits.get(..2).and_then(|first| u8::from_str_radix(first, 16).ok()).is_none_or(|b| b & 1 == 1);
    let pairs: Vec<String> =
        (0..6).filter_map(|at| digits.get(at * 2..at * 2 + 2)).map(str::to_ascii_lowercase).collect();
    (!is_group).then(|| pairs.join(":"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_the_wrong_kind_are_none() {
        for (value, expected) in [
            (json!(5), Some(5)),
            (json!("7"), Some(7)),
            (json!(2.9), Some(2)),
            (json!(0), None),
            (json!(-1), None),
            (json!(1e300), None),
            (json!(u64::MAX), None),
            (json!("many"), None),
            (json!([1]), None),
            (json!(null), None),
            (json!(true), None),
        ] {
            assert_eq!(count(&json!({ "N": value }), "N"), expected, "{value}");
        }
    }

    #[test]
    fn architectures_have_the_kernels_names() {
        for (set, family, expected) in [
            ("x86-64", "x86", Some("x86_64")),
            ("x86", "x86", Some("x86_64")),
            ("", "x86", Some("x86_64")),
            ("ARM-A64", "ARM", Some("aarch64")),
            ("", "ARM", Some("aarch64")),
            ("ARM-A32", "ARM", None),
            ("PowerISA", "Power", None),
            ("", "", None),
        ] {
            let value = json!({ "InstructionSet": set, "ProcessorArchitecture": family });
            assert_eq!(architecture(&value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn threads_are_counted_or_taken_from_the_summary() {
        let summary = json!({ "ProcessorSummary": { "LogicalProcessorCount": 72, "Model": "M" } });
        let known = |members: &[Value], system: &Value| {
            let mut all = Processors::default();
            members.iter().for_each(|member| all.take(member));
            all.known(system)
        };
        let cpu = |threads: Value| json!({ "ProcessorType": "CPU", "TotalThreads": threads, "MaxSpeedMHz": 4000 });
        let count = |found: Option<Cpu>| found.and_then(|cpu| cpu.count);
        assert_eq!(count(known(&[cpu(36.into()), cpu(36.into())], &json!({}))), Some(72));
        assert_eq!(count(known(&[cpu(36.into()), cpu(Value::Null)], &summary)), Some(72), "one of two says nothing");
        assert_eq!(count(known(&[cpu(36.into()), cpu(Value::Null)], &json!({}))), None);
        assert_eq!(count(known(&[json!({"ProcessorType": "GPU", "TotalThreads": 9000})], &json!({}))), None);
        assert_eq!(known(&[], &json!({})), None);
        let empty = json!({ "ProcessorType": "CPU", "TotalThreads": 8, "Status": { "State": "Absent" } });
        assert_eq!(known(&[empty], &json!({})), None, "an empty socket");
    }

    #[test]
    fn gpus_are_listed_beside_processors_and_a_tpm_only_where_it_is_in_force() {
        let mut all = Processors::default();
        for member in [
            json!({ "ProcessorType": "GPU", "Manufacturer": "NVIDIA", "Model": "H100", "TotalThreads": 9000 }),
            json!({ "ProcessorType": "Accelerator", "Model": 5 }),
            json!({ "ProcessorType": "FPGA", "Model": "F" }),
            json!({ "ProcessorType": "GPU", "Model": "gone", "Status": { "State": "Absent" } }),
            json!({ "ProcessorType": "CPU", "TotalThreads": 8 }),
        ] {
            all.take(&member);
        }
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(all.gpus(), [ListedGpu { manufacturer: some("NVIDIA"), model: some("H100") }, ListedGpu::default()]);
        assert_eq!(all.known(&json!({})).unwrap().count, Some(8));
        let version = |modules: Value| tpm(&json!({ "TrustedModules": modules })).and_then(|tpm| tpm.version);
        let module = |kind: &str, state: &str| json!({ "InterfaceType": kind, "Status": { "State": state } });
        assert_eq!(version(json!([module("TPM2_0", "Enabled")])), some("2.0"));
        assert_eq!(version(json!([module("TPM1_2", "Absent"), module("TPM1_2", "Enabled")])), some("1.2"));
        for unknown in [
            json!([]),
            json!(7),
            json!([{ "InterfaceType": "TPM2_0" }]),
            json!([module("TPM2_0", "Disabled")]),
            json!([module("TCM1_0", "Enabled")]),
        ] {
            assert_eq!(version(unknown), None);
        }
    }

    #[test]
    fn world_wide_names_are_written_as_the_agent_writes_them() {
        let wwn = |format: &str, name: &str, swapped: bool| {
            let identifiers = json!([{ "DurableNameFormat": format, "DurableName": name }]);
            let disk = disk(&json!({ "CapacityBytes": 1, "Identifiers": identifiers }), swapped).unwrap();
            (disk.wwn, disk.wwn_vendor_extension, disk.wwn_with_extension)
        };
        let some = |text: &str| Some(text.to_owned());
        let scsi = some("0x5000c500a1b2c3d4");
        for written in ["5000C500A1B2C3D4", "0x5000c500a1b2c3d4", "50:00:C5:00:A1:B2:C3:D4", "naa.5000c500a1b2c3d4"] {
            assert_eq!(wwn("NAA", written, false), (scsi.clone(), None, scsi.clone()), "{written}");
        }
        let long = "600508b1001c4d5f0102030405060708";
        let halves = (some("0x600508b1001c4d5f"), some("0x0102030405060708"), Some(format!("0x{long}")));
        assert_eq!(wwn("NAA", long, false), halves);
        assert_eq!(wwn("EUI", "00-25-38-5B-71-B0-0C-3F", false).0, some("eui.0025385b71b00c3f"));
        assert_eq!(wwn("EUI", "1A:58:71:41:1C:38:25:00", true).0, some("eui.0025381c4171581a"));
        for (format, name) in
            [("NAA", "0000000000000000"), ("NAA", "5000"), ("UUID", "5000C500A1B2C3D4"), ("EUI", "not hexadecimal!")]
        {
            assert_eq!(wwn(format, name, false).0, None, "{format} {name}");
        }
    }

    #[test]
    fn kinds_of_disks() {
        for (drive, expected) in [
            (json!({ "Protocol": "NVMe", "MediaType": "SSD" }), Some(DiskType::NVME)),
            (json!({ "Protocol": "PCIe", "MediaType": "SSD" }), Some(DiskType::NVME)),
            (json!({ "Protocol": "SATA", "MediaType": "SSD" }), Some(DiskType::SSD)),
            (json!({ "Protocol": "SAS", "MediaType": "HDD" }), Some(DiskType::HDD)),
            (json!({ "RotationSpeedRPM": 7200 }), Some(DiskType::HDD)),
            (json!({ "Protocol": "SAS", "RotationSpeedRPM": null }), None),
            (json!({ "Protocol": 5, "MediaType": [] }), None),
        ] {
            let mut drive = drive;
            drive["CapacityBytes"] = 1.into();
            let found = disk(&drive, false).unwrap();
            assert_eq!((found.disk_type, found.name), (expected, None), "{drive}");
            assert_eq!(found.rotational, expected.map(|kind| kind == DiskType::HDD), "{drive}");
        }
        assert_eq!(disk(&json!({ "CapacityBytes": 1, "Status": { "State": "Absent" } }), false), None);
        assert_eq!(disk(&json!({ "Model": "Backplane" }), false), None);
    }

    #[test]
    fn addresses_that_no_interface_has_are_none() {
        assert_eq!(mac("E4-3D-1A-13-27-F0").as_deref(), Some("e4:3d:1a:13:27:f0"));
        assert_eq!(mac("52:54:00:12:34:56").as_deref(), Some("52:54:00:12:34:56"));
        for none in
            ["", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "e4:3d:1a", "e4:3d:1a:13:27:f0:11", "x"]
        {
            assert_eq!(mac(none), None, "{none}");
        }
    }

    #[test]
    fn the_date_of_a_firmware_is_where_its_maker_writes_it() {
        let date = |system: Value| bios(&system).and_then(|bios| bios.date);
        assert_eq!(date(json!({ "BiosVersion": "U58 v2.44 (01/17/2025)" })).as_deref(), Some("01/17/2025"));
        let dell =
            json!({ "BiosVersion": "1.8.2", "Oem": { "Dell": { "DellSystem": { "BIOSReleaseDate": "09/14/2022" } } } });
        assert_eq!(date(dell).as_deref(), Some("09/14/2022"));
        assert_eq!(date(json!({ "BiosVersion": "2.1 (beta)" })), None);
        assert_eq!(bios(&json!({ "BiosVersion": "" })), None);
    }
}
