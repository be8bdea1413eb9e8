//! Configuration of a simulator: its machines, their hardware, and the initial behaviour of their BMCs.
//!
//! Everything is plain JSON in camelCase with defaults, so that `{"machines":[{"id":"node-0","kind":"fake"}]}` is a
//! complete configuration.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    faults::Rule,
    settings::Settings,
    switch_port::{self, NeighbourConfig},
};

/// Most machines one simulator holds.
pub const MAX_MACHINES: usize = 4096;

/// A whole simulator.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The machines, each with a BMC and a listener of its own.
    pub machines: Vec<MachineConfig>,
    /// Folder that keeps disks, NVRAM and consoles between runs. None: a temporary folder, removed when the simulator ends.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
    /// Address that all listeners bind.
    #[serde(default = "loopback")]
    pub listen: IpAddr,
    /// Port of the control API; 0 lets the system choose.
    #[serde(default)]
    pub control_port: u16,
    /// Whether the BMCs speak https, with certificates by the simulator's own authority.
    #[serde(default)]
    pub tls: bool,
    /// User name of every BMC that does not name its own.
    #[serde(default = "default_username")]
    pub username: String,
    /// Password of every BMC that does not name its own.
    #[serde(default = "default_password")]
    pub password: String,
    /// The agent program that fake machines boot from a medium.
    #[serde(default)]
    pub agent: Option<PathBuf>,
    /// Additional environment variables for the agents of fake machines.
    #[serde(default)]
    pub agent_environment: Vec<(String, String)>,
    /// Whether the BMCs check the certificate of https media. Most real BMCs do not.
    #[serde(default)]
    pub media_verify_tls: bool,
    /// PEM file of the authority that is trusted for https media when they are checked.
    #[serde(default)]
    pub media_ca: Option<PathBuf>,
    /// QEMU's program for x86_64 machines.
    #[serde(default = "default_qemu")]
    pub qemu: PathBuf,
    /// Folder of the OVMF firmware files (Debian's package `ovmf`).
    #[serde(default = "default_firmware")]
    pub firmware_dir: PathBuf,
    /// QEMU's program for aarch64 machines.
    #[serde(default = "default_qemu_aarch64")]
    pub qemu_aarch64: PathBuf,
    /// Folder of the AAVMF firmware files (Debian's package `qemu-efi-aarch64`).
    #[serde(default = "default_firmware_aarch64")]
    pub firmware_dir_aarch64: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            machines: Vec::new(),
            state_dir: None,
            listen: loopback(),
            control_port: 0,
            tls: false,
            username: default_username(),
            password: default_password(),
            agent: None,
            agent_environment: Vec::new(),
            media_verify_tls: false,
            media_ca: None,
            qemu: default_qemu(),
            firmware_dir: default_firmware(),
            qemu_aarch64: default_qemu_aarch64(),
            firmware_dir_aarch64: default_firmware_aarch64(),
        }
    }
}

/// Kind of machine behind a BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MachineKind {
    /// The agent program as a process over a made-up Linux tree, with files as disks.
    Fake,
    /// A QEMU machine with UEFI firmware under software emulation.
    Qemu,
}

/// Architecture of a machine's processors. A fake machine's BMC tells it; what runs there is a program of this system all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Architecture {
    /// 64-bit x86.
    #[default]
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[serde(rename = "aarch64")]
    Aarch64,
}

/// The bus a disk hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskBus {
    /// SCSI (`sda`).
    Scsi,
    /// NVM Express (`nvme0n1`).
    Nvme,
    /// virtio block device (`vda`).
    Virtio,
}

/// How a disk's file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskFormat {
    /// The bytes of the disk.
    Raw,
    /// QEMU's qcow2; the file must exist. QEMU machines only.
    Qcow2,
}

/// How QEMU presents the virtual CD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CdBus {
    /// SATA, quickest under emulation; on an aarch64 machine by a controller of its own.
    #[default]
    Ahci,
    /// USB, as most real BMCs do.
    Usb,
    /// virtio SCSI.
    VirtioScsi,
}

/// One disk of a machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskConfig {
    /// Its file. None: a sparse raw file in the state folder.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Size in bytes of a file that has to be made.
    #[serde(default = "default_disk_size")]
    pub size_bytes: u64,
    /// Layout of the file.
    #[serde(default = "default_disk_format")]
    pub format: DiskFormat,
    /// Bus.
    #[serde(default = "default_disk_bus")]
    pub bus: DiskBus,
    /// Serial number; made from machine and position when absent.
    #[serde(default)]
    pub serial: Option<String>,
    /// World-wide name, such as `0x5000c50015ea71ab`; made up when absent.
    #[serde(default)]
    pub wwn: Option<String>,
    /// Logical sector size in bytes: 512 or 4096.
    #[serde(default = "default_sector")]
    pub logical_sector_size: u32,
    /// Whether it turns.
    #[serde(default)]
    pub rotational: bool,
    /// Model name that the machine sees (fake machines).
    #[serde(default = "default_disk_model")]
    pub model: String,
    /// Vendor name that the machine sees (fake machines).
    #[serde(default = "default_disk_vendor")]
    pub vendor: String,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            path: None,
            size_bytes: default_disk_size(),
            format: DiskFormat::Raw,
            bus: default_disk_bus(),
            serial: None,
            wwn: None,
            logical_sector_size: default_sector(),
            rotational: false,
            model: default_disk_model(),
            vendor: default_disk_vendor(),
        }
    }
}

/// One network card of a machine.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NicConfig {
    /// Interface name in a fake machine; `eno1`, `eno2`, … when absent.
    #[serde(default)]
    pub name: Option<String>,
    /// MAC address; made from machine and position when absent.
    #[serde(default)]
    pub mac: Option<String>,
    /// QEMU user network, such as `10.0.2.0/24`.
    #[serde(default)]
    pub network: Option<String>,
    /// The address by which the guest reaches the host; QEMU's default is 10.0.2.2.
    #[serde(default)]
    pub host: Option<String>,
    /// Port forwards in QEMU's form, such as `tcp:127.0.0.1:2222-:22`.
    #[serde(default)]
    pub forwards: Vec<String>,
    /// Whether to capture this card's traffic in a pcap file, one per start of QEMU.
    #[serde(default)]
    pub capture: bool,
    /// Whether the cable is unplugged.
    #[serde(default)]
    pub unplugged: bool,
    /// What a fake machine's card hears by LLDP; more than one where the cable leads to a hub.
    #[serde(default)]
    pub lldp: Vec<NeighbourConfig>,
}

/// One machine and its BMC.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineConfig {
    /// Name, also the Redfish system's id: letters, digits, `-`, `_` and `.`, at most 63.
    pub id: String,
    /// Kind of machine behind the BMC.
    pub kind: MachineKind,
    /// Architecture of its processors.
    #[serde(default)]
    pub architecture: Architecture,
    /// Port of the BMC; 0 lets the system choose.
    #[serde(default)]
    pub port: u16,
    /// User name, when not the simulator's.
    #[serde(default)]
    pub username: Option<String>,
    /// Password, when not the simulator's.
    #[serde(default)]
    pub password: Option<String>,
    /// SMBIOS UUID; made from the id when absent.
    #[serde(default)]
    pub uuid: Option<Uuid>,
    /// System serial number; made from the id when absent.
    #[serde(default)]
    pub serial: Option<String>,
    /// Manufacturer.
    #[serde(default = "default_manufacturer")]
    pub manufacturer: String,
    /// Product name.
    #[serde(default = "default_model")]
    pub model: String,
    /// Whether Secure Boot is on initially.
    #[serde(default)]
    pub secure_boot: bool,
    /// Processors.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Memory in MiB.
    #[serde(default = "default_memory")]
    pub memory_mib: u32,
    /// Network cards; one when absent.
    #[serde(default = "one_nic")]
    pub nics: Vec<NicConfig>,
    /// Disks; one when absent.
    #[serde(default = "one_disk")]
    pub disks: Vec<DiskConfig>,
    /// How QEMU presents the virtual CD.
    #[serde(default)]
    pub cd_bus: CdBus,
    /// Where a program answers what a QEMU machine of x86_64 asks its BMC by IPMI over registers of its own (KCS), such as OpenIPMI's `ipmi_sim`, whose
    /// protocol for virtual machines is spoken over TCP. Without it the machine has no such registers.
    #[serde(default)]
    pub local_bmc: Option<SocketAddr>,
    /// Files with an SMBIOS structure each (DSP0134, 6.1) that a QEMU machine's firmware tells beside its own; they are read at each start.
    #[serde(default)]
    pub smbios: Vec<PathBuf>,
    /// The BMC's behaviour at the start; the control API changes it at run time.
    #[serde(default)]
    pub settings: Settings,
    /// Faults that are set from the start, in this order.
    #[serde(default)]
    pub faults: Vec<Rule>,
}

impl MachineConfig {
    /// A machine of `kind` named `id`, with defaults for everything else.
    #[must_use]
    pub fn new(id: impl Into<String>, kind: MachineKind) -> Self {
        Self {
            id: id.into(),
            kind,
            architecture: Architecture::default(),
            port: 0,
            username: None,
            password: None,
            uuid: None,
            serial: None,
            manufacturer: default_manufacturer(),
            model: default_model(),
            secure_boot: false,
            cpus: default_cpus(),
            memory_mib: default_memory(),
            nics: one_nic(),
            disks: one_disk(),
            cd_bus: CdBus::default(),
            local_bmc: None,
            smbios: Vec::new(),
            settings: Settings::default(),
            faults: Vec::new(),
        }
    }

    /// The SMBIOS UUID: the configured one, else one derived from the id.
    #[must_use]
    pub fn system_uuid(&self) -> Uuid {
        self.uuid.unwrap_or_else(|| self.derived("system"))
    }

    /// The system's serial number: the configured one, else one derived from the id.
    #[must_use]
    pub fn system_serial(&self) -> String {
        self.serial.clone().unwrap_or_else(|| format!("MM{}", short(&self.derived("serial"))))
    }

    /// MAC address of card `index`: the configured one, else a locally administered one derived from the id.
    #[must_use]
    pub fn mac(&self, index: usize) -> String {
        if let Some(mac) = self.nics.get(index).and_then(|nic| nic.mac.clone()) {
            return mac.to_lowercase();
        }
        let bytes = self.derived(&format!("nic{index}")).into_bytes();
        format!("52:54:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3])
    }

    /// Interface name of card `index` in a fake machine.
    #[must_use]
    pub fn nic_name(&self, index: usize) -> String {
        let named = self.nics.get(index).and_then(|nic| nic.name.clone());
        named.unwrap_or_else(|| format!("eno{}", index + 1))
    }

    /// Serial number of disk `index`, at most 20 characters, the limit of virtio-blk.
    #[must_use]
    pub fn disk_serial(&self, index: usize) -> String {
        let given = self.disks.get(index).and_then(|disk| disk.serial.clone());
        given.unwrap_or_else(|| format!("D{index}{}", short(&self.derived(&format!("disk{index}")))))
    }

    /// World-wide name of disk `index`, with `0x`.
    #[must_use]
    pub fn disk_wwn(&self, index: usize) -> String {
        let given = self.disks.get(index).and_then(|disk| disk.wwn.clone());
        given.unwrap_or_else(|| {
            let bytes = self.derived(&format!("wwn{index}")).into_bytes();
            let low = bytes.iter().take(7).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
            format!("0x5{:015x}", low & 0x0fff_ffff_ffff_ffff)
        })
    }

    fn derived(&self, what: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("bmc-sim/{}/{what}", self.id).as_bytes())
    }
}

fn short(uuid: &Uuid) -> String {
    uuid.simple().to_string().to_uppercase().chars().take(8).collect()
}

/// Why a configuration cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The id is not a name.
    #[error("machine id {0:?} must be 1 to 63 letters, digits, '-', '_' or '.', and must not begin with '.'")]
    Id(String),
    /// Two machines share an id.
    #[error("two machines are called {0:?}; give each its own id")]
    Duplicate(String),
    /// Too many machines.
    #[error("{0} machines were asked for; one simulator holds at most {MAX_MACHINES}")]
    TooMany(usize),
    /// A fake machine without an agent.
    #[error("machine {0:?} is a fake machine, which boots the agent program: say where it is (agent)")]
    NoAgent(String),
    /// A sector size no disk has.
    #[error("machine {machine:?}: logical sector size {found} of disk {disk} is neither 512 nor 4096")]
    Sector {
        /// Which machine.
        machine: String,
        /// Which disk, from 0.
        disk: usize,
        /// What was given.
        found: u32,
    },
    /// A value that would inject options into QEMU's command line.
    #[error("machine {machine:?}: {what} {value:?} contains a comma, blank or control character")]
    Unsafe {
        /// Which machine.
        machine: String,
        /// Which setting.
        what: &'static str,
        /// What was given.
        value: String,
    },
    /// A fake machine cannot read this layout.
    #[error("machine {0:?} is a fake machine: its disks must be raw files")]
    FakeFormat(String),
    /// A field that means nothing for a machine of its kind.
    #[error("machine {machine:?} cannot have {field}: only {whose} have it")]
    NotForIt {
        /// Which machine.
        machine: String,
        /// The field.
        field: &'static str,
        /// Which machines have it.
        whose: &'static str,
    },
    /// No disk or too many.
    #[error("machine {0:?} must have 0 to 26 disks and 1 to 8 network cards")]
    Counts(String),
}

impl Config {
    /// Checks all that can be checked without touching the machine it runs on.
    ///
    /// # Errors
    /// The first thing that is wrong, naming the machine.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.machines.len() > MAX_MACHINES {
            return Err(ConfigError::TooMany(self.machines.len()));
        }
        let mut seen = std::collections::HashSet::new();
        for machine in &self.machines {
            if !valid_id(&machine.id) {
                return Err(ConfigError::Id(machine.id.clone()));
            }
            if !seen.insert(machine.id.as_str()) {
                return Err(ConfigError::Duplicate(machine.id.clone()));
            }
            if machine.kind == MachineKind::Fake && self.agent.is_none() {
                return Err(ConfigError::NoAgent(machine.id.clone()));
            }
            validate_machine(machine)?;
        }
        Ok(())
    }
}

fn validate_machine(machine: &MachineConfig) -> Result<(), ConfigError> {
    if machine.disks.len() > 26 || machine.nics.is_empty() || machine.nics.len() > 8 {
        return Err(ConfigError::Counts(machine.id.clone()));
    }
    let is_qemu = machine.kind == MachineKind::Qemu;
    let not_for_it = |field, whose| ConfigError::NotForIt { machine: machine.id.clone(), field, whose };
    if machine.local_bmc.is_some() && !(is_qemu && machine.architecture == Architecture::X86_64) {
        return Err(not_for_it("localBmc", "QEMU machines of x86_64"));
    }
    if !machine.smbios.is_empty() && !is_qemu {
        return Err(not_for_it("smbios", "QEMU machines"));
    }
    let refuse = |what, value: &str| ConfigError::Unsafe { machine: machine.id.clone(), what, value: value.to_owned() };
    for (index, disk) in machine.disks.iter().enumerate() {
        if !matches!(disk.logical_sector_size, 512 | 4096) {
            let (machine, found) = (machine.id.clone(), disk.logical_sector_size);
            return Err(ConfigError::Sector { machine, disk: index, found });
        }
        if machine.kind == MachineKind::Fake && disk.format != DiskFormat::Raw {
            return Err(ConfigError::FakeFormat(machine.id.clone()));
        }
        for (what, value) in [("disk serial", &disk.serial), ("disk wwn", &disk.wwn)] {
            if let Some(value) = value.as_deref().filter(|value| !plain(value)) {
                return Err(refuse(what, value));
            }
        }
    }
    for nic in &machine.nics {
        let fields = [("interface name", &nic.name), ("MAC", &nic.mac), ("network", &nic.network), ("host", &nic.host)];
        for (what, value) in fields {
            if let Some(value) = value.as_deref().filter(|value| !plain(value)) {
                return Err(refuse(what, value));
            }
        }
        if nic.name.as_deref().is_some_and(|name| name.contains('/') || name.starts_with('.')) {
            return Err(refuse("interface name", nic.name.as_deref().unwrap_or_default()));
        }
        if let Some(value) = nic.forwards.iter().find(|value| !plain(value)) {
            return Err(refuse("forward", value));
        }
        for neighbour in &nic.lldp {
            if switch_port::mac(&neighbour.chassis).is_none() {
                return Err(refuse("LLDP chassis", &neighbour.chassis));
            }
            // With its subtype the longest id is 255 bytes, and so is the longest name.
            let name = neighbour.name.as_ref().into_iter();
            if let Some(text) = name.chain([&neighbour.port]).find(|text| text.is_empty() || text.len() > 255) {
                return Err(refuse("LLDP name", text));
            }
        }
    }
    for (what, value) in [("manufacturer", &machine.manufacturer), ("model", &machine.model)] {
        if value.contains(',') || value.chars().any(char::is_control) {
            return Err(refuse(what, value));
        }
    }
    if let Some(value) = machine.serial.as_deref().filter(|value| !plain(value)) {
        return Err(refuse("serial", value));
    }
    Ok(())
}

fn plain(value: &str) -> bool {
    !value.is_empty() && value.len() <= 128 && !value.chars().any(|c| c == ',' || c.is_whitespace() || c.is_control())
}

fn valid_id(id: &str) -> bool {
    (1..=63).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}
fn default_username() -> String {
    "admin".to_owned()
}
fn default_password() -> String {
    "password".to_owned()
}
fn default_qemu() -> PathBuf {
    PathBuf::from("qemu-system-x86_64")
}
fn default_firmware() -> PathBuf {
    PathBuf::from("/usr/share/OVMF")
}
fn default_qemu_aarch64() -> PathBuf {
    PathBuf::from("qemu-system-aarch64")
}
fn default_firmware_aarch64() -> PathBuf {
    PathBuf::from("/usr/share/AAVMF")
}
fn default_disk_size() -> u64 {
    4 << 30
}
fn default_disk_format() -> DiskFormat {
    DiskFormat::Raw
}
fn default_disk_bus() -> DiskBus {
    DiskBus::Scsi
}
fn default_sector() -> u32 {
    512
}
fn default_disk_model() -> String {
    "Virtual Disk".to_owned()
}
fn default_disk_vendor() -> String {
    "Contoso".to_owned()
}
fn default_manufacturer() -> String {
    "Contoso".to_owned()
}
fn default_model() -> String {
    "3500".to_owned()
}
fn default_cpus() -> u32 {
    2
}
fn default_memory() -> u32 {
    512
}
fn one_nic() -> Vec<NicConfig> {
    vec![NicConfig::default()]
}
fn one_disk() -> Vec<DiskConfig> {
    vec![DiskConfig::default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(machine: MachineConfig) -> Config {
        Config { machines: vec![machine], agent: Some("agent".into()), ..Config::default() }
    }

    #[test]
    fn a_short_file_is_enough() {
        let config: Config =
            serde_json::from_str(r#"{"agent":"/a","machines":[{"id":"n0","kind":"fake"},{"id":"n1","kind":"qemu"}]}"#)
                .unwrap();
        config.validate().unwrap();
        assert_ne!(config.machines[0].mac(0), config.machines[1].mac(0));
        assert_ne!(config.machines[0].system_uuid(), config.machines[1].system_uuid());
        assert_eq!(config.machines[0].mac(0), config.machines[0].mac(0));
        assert_eq!(config.machines[0].disk_wwn(0).len(), 18);
    }

    #[test]
    fn bad_values_are_refused() {
        for id in ["", "../x", "a/b", ".hidden", "a b"] {
            assert!(config(MachineConfig::new(id, MachineKind::Fake)).validate().is_err(), "{id}");
        }
        let mut machine = MachineConfig::new("n", MachineKind::Qemu);
        machine.nics[0].network = Some("10.0.2.0/24,restrict=on".to_owned());
        assert!(matches!(config(machine).validate(), Err(ConfigError::Unsafe { what: "network", .. })));
        let mut machine = MachineConfig::new("n", MachineKind::Qemu);
        machine.disks[0].logical_sector_size = 1024;
        assert!(matches!(config(machine).validate(), Err(ConfigError::Sector { .. })));
        for (kind, architecture) in
            [(MachineKind::Fake, Architecture::X86_64), (MachineKind::Qemu, Architecture::Aarch64)]
        {
            let local_bmc = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
            let machine = MachineConfig { architecture, local_bmc, ..MachineConfig::new("n", kind) };
            assert!(matches!(config(machine).validate(), Err(ConfigError::NotForIt { field: "localBmc", .. })));
        }
        let mut machine = MachineConfig::new("n", MachineKind::Fake);
        machine.smbios = vec!["/nonexistent".into()];
        assert!(matches!(config(machine).validate(), Err(ConfigError::NotForIt { field: "smbios", .. })));
        let mut twice = config(MachineConfig::new("n", MachineKind::Qemu));
        twice.machines.push(MachineConfig::new("n", MachineKind::Qemu));
        assert!(matches!(twice.validate(), Err(ConfigError::Duplicate(_))));
        let mut no_agent = config(MachineConfig::new("n", MachineKind::Fake));
        no_agent.agent = None;
        assert!(matches!(no_agent.validate(), Err(ConfigError::NoAgent(_))));
    }
}
