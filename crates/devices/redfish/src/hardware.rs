//! The machine's hardware as its BMC lists it: processors, memory, disks, network interfaces, firmware and maker, by reading alone.
//!
//! Every source may be missing, refuse, or list a part of what is there; many list neither drives nor interfaces while the machine is off. What is not
//! seen is therefore told apart from what is not there ([`Inspected::not_listed`]). Calls and members are bounded.

use bmc::{BmcError, Capability, Lacking};
use inventory::{Devices, Firmware, HardwareDetails, Inspected, ListedGpu, Nic, Part, Storage, SystemVendor};
use serde_json::Value;

use crate::client::Client;
use crate::exchange::Fault;
use crate::hardware_facts::{
    Processors, bios, disk, function, interface, memory_of_module, memory_of_system, simple_disk, speed, tpm,
};
use crate::json::{link_at, links, same_path};
use crate::resources::{System, tells_of_macs};

const WHAT: &str = "read the hardware";
/// Most requests of one reading.
const MAX_REQUESTS: u32 = 320;
/// Most members of a collection that are looked at.
const MAX_MEMBERS: usize = 64;
/// Most processors that are asked for their architecture: GPUs and accelerators may stand before the first one.
const MAX_TELLING: usize = 16;
/// Most drives.
const MAX_DRIVES: usize = 128;
/// Most chassis in which network adapters are looked for.
const MAX_CHASSIS: usize = 4;

impl Client {
    /// What the machine is made of, as far as the BMC lists it.
    ///
    /// # Errors
    /// [`BmcError`] when a request fails, or when the BMC lists no processors, memory, disks and interfaces at all; what it refuses to show is not listed.
    pub async fn hardware(&self) -> Result<Inspected, BmcError> {
        let system = self.known_system(WHAT).await?;
        let value = self.core.get(WHAT, &system.path).await.map_err(BmcError::from)?.value;
        let mut found =
            Reader { client: self, first: self.calls(), value: &value, not_listed: Vec::new(), gpus: Vec::new() };
        let (cpu, ram_mebibytes) = (found.processors().await?, found.memory().await?);
        let (storage, nics) = (found.disks().await?, found.interfaces().await?);
        if cpu.is_none() && ram_mebibytes.is_none() && storage.is_empty() && nics.is_empty() {
            let looked_for = format!("{} lists no processors, memory, disks and interfaces", system.path);
            return Err(Lacking::new(Capability::Hardware, looked_for).keeps_from(WHAT));
        }
        let bios = found.known(Part::Firmware, bios(&value));
        let system_vendor = found.known(Part::Vendor, vendor(&system));
        let listed_gpus = std::mem::take(&mut found.gpus);
        let devices = Devices { listed_gpus, tpm: tpm(&value), ..Devices::default() };
        let mut not_listed = found.not_listed;
        not_listed.sort_unstable();
        let mut hardware = HardwareDetails {
            cpu,
            firmware: bios.map(|bios| Firmware { bios: Some(bios) }),
            nics,
            ram_mebibytes,
            storage,
            system_vendor,
            ..HardwareDetails::default()
        };
        let mut devices = devices.bounded();
        self.hide(&mut hardware, &mut devices);
        Ok(Inspected { hardware, not_listed, devices, ..Inspected::default() })
    }

    /// The kernel's name of the processors' architecture, by the first processor that tells: usually two requests.
    ///
    /// # Errors
    /// [`BmcError`] when a request fails; what the BMC refuses to show tells nothing.
    pub async fn architecture(&self) -> Result<Option<String>, BmcError> {
        let system = self.known_system(WHAT).await?;
        let Some(list) = &system.processors else { return Ok(None) };
        let members = match self.core.listed(WHAT, list, None).await {
            Ok((members, _)) => members,
            Err(fault) if shows_nothing(&fault) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        for (path, inlined) in members.into_iter().take(MAX_TELLING) {
            let mut found = Processors::default();
            found.take(&inlined);
            if found.architecture().is_none() {
                match self.core.get(WHAT, &path).await {
                    Ok(reply) => found.take(&reply.value),
                    Err(fault) if shows_nothing(&fault) => {}
                    Err(fault) => return Err(fault.into()),
                }
            }
            if let Some(name) = found.architecture() {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// Takes secrets out of all texts.
    fn hide(&self, hardware: &mut HardwareDetails, devices: &mut Devices) {
        let bios = hardware.firmware.as_mut().and_then(|firmware| firmware.bios.as_mut());
        let mut texts: Vec<&mut Option<String>> = Vec::new();
        texts.extend(bios.map(|bios| [&mut bios.version]).into_iter().flatten());
        texts.extend(hardware.cpu.as_mut().map(|cpu| &mut cpu.model));
        if let Some(vendor) = &mut hardware.system_vendor {
            texts.extend([&mut vendor.manufacturer, &mut vendor.product_name, &mut vendor.serial_number]);
        }
        texts.extend(
            hardware.storage.iter_mut().flat_map(|disk| [&mut disk.model, &mut disk.vendor, &mut disk.serial_number]),
        );
        texts.extend(devices.listed_gpus.iter_mut().flat_map(|gpu| [&mut gpu.manufacturer, &mut gpu.model]));
        for text in texts.into_iter().flatten() {
            *text = self.core.without_secrets(text);
        }
    }
}

/// Maker, model and serial number; the serial number is the one that SMBIOS has.
fn vendor(system: &System) -> Option<SystemVendor> {
    let serial_number = system.evidence().serial_number.filter(|serial| !serial.trim().is_empty());
    let vendor =
        SystemVendor { manufacturer: system.manufacturer.clone(), product_name: system.model.clone(), serial_number };
    (vendor != SystemVendor::default()).then_some(vendor)
}

/// One reading.
struct Reader<'a> {
    client: &'a Client,
    /// Requests of the client before it.
    first: u32,
    /// The system.
    value: &'a Value,
    not_listed: Vec<Part>,
    gpus: Vec<ListedGpu>,
}

impl Reader<'_> {
    fn lacks(&mut self, part: Part) {
        if !self.not_listed.contains(&part) {
            self.not_listed.push(part);
        }
    }

    /// The fact; a part without one is not listed.
    fn known<T>(&mut self, part: Part, fact: Option<T>) -> Option<T> {
        if fact.is_none() {
            self.lacks(part);
        }
        fact
    }

    async fn processors(&mut self) -> Result<Option<inventory::Cpu>, BmcError> {
        let mut all = Processors::default();
        let list = link_at(self.value, "Processors");
        let tells = |value: &Value| value.get("ProcessorType").is_some() || value.get("TotalThreads").is_some();
        let whole = self.each(list, tells, |value| all.take(value)).await?;
        self.gpus = all.gpus();
        let cpu = all.known(self.value);
        if !whole || cpu.as_ref().is_none_or(|cpu| cpu.count.is_none()) {
            self.lacks(Part::Processors);
        }
        Ok(cpu)
    }

    async fn memory(&mut self) -> Result<Option<i64>, BmcError> {
        if let Some(known) = memory_of_system(self.value) {
            return Ok(Some(known));
        }
        let (mut sum, list) = (0_i64, link_at(self.value, "Memory"));
        let tells = |value: &Value| value.get("CapacityMiB").is_some();
        let whole = self.each(list, tells, |value| sum = sum.saturating_add(memory_of_module(value))).await?;
        if !whole || sum == 0 {
            self.lacks(Part::Memory);
        }
        Ok((sum > 0).then_some(sum))
    }

    async fn disks(&mut self) -> Result<Vec<Storage>, BmcError> {
        let mut paths: Vec<String> = Vec::new();
        let mut all_links = true;
        // Controllers that say that they have no drive.
        let mut without = 0_usize;
        let list = link_at(self.value, "Storage");
        let tells = |value: &Value| value.get("Drives").is_some();
        let mut whole = self
            .each(list, tells, |storage| {
                let drives = links(storage.get("Drives"));
                let said = storage.get("Drives@odata.count").and_then(Value::as_u64).unwrap_or(0);
                all_links &= said <= drives.len() as u64;
                without += usize::from(
                    said == 0 && storage.get("Drives").and_then(Value::as_array).is_some_and(Vec::is_empty),
                );
                for path in drives {
                    if !paths.iter().any(|known| same_path(known, &path)) {
                        paths.push(path);
                    }
                }
            })
            .await?;
        whole &= all_links && paths.len() <= MAX_DRIVES;
        // A machine that is off lists less than it has, and an empty list of controllers is no word about drives.
        let is_on = self.value.get("PowerState").and_then(Value::as_str) == Some("On");
        let has_none = whole && paths.is_empty() && without > 0 && is_on;
        let swapped = self.client.core.state().quirks.swaps_eui();
        let mut disks: Vec<Storage> = Vec::new();
        for path in paths.iter().take(MAX_DRIVES) {
            let Some(drive) = self.item(path).await? else {
                whole = false;
                continue;
            };
            match disk(&drive, swapped) {
                Some(disk) => disks.extend(Some(disk).filter(|disk| !is_listed(&disks, disk))),
                None => whole &= crate::hardware_facts::is_absent(&drive),
            }
        }
        if disks.is_empty() {
            let list = link_at(self.value, "SimpleStorage");
            let tells = |value: &Value| value.get("Devices").is_some();
            whole = self
                .each(list, tells, |storage| {
                    let devices = storage.get("Devices").and_then(Value::as_array).map(Vec::as_slice);
                    disks.extend(devices.unwrap_or_default().iter().take(MAX_DRIVES).filter_map(simple_disk));
                })
                .await?;
            whole &= disks.len() <= MAX_DRIVES;
            disks.truncate(MAX_DRIVES);
        }
        let is_certain = if disks.is_empty() { has_none } else { whole };
        if !is_certain {
            self.lacks(Part::Disks);
        }
        Ok(disks)
    }

    async fn interfaces(&mut self) -> Result<Vec<Nic>, BmcError> {
        let mut nics: Vec<Nic> = Vec::new();
        let list = link_at(self.value, "EthernetInterfaces");
        let mut whole = self.each(list, tells_of_macs, |value| add(&mut nics, interface(value))).await?;
        if nics.is_empty() {
            whole = self.functions(&mut nics).await?;
        }
        if !whole || nics.is_empty() {
            self.lacks(Part::Interfaces);
        }
        Ok(nics)
    }

    /// The Ethernet functions of the system's network adapters: of those that it names itself, or else of those in its chassis.
    async fn functions(&mut self, nics: &mut Vec<Nic>) -> Result<bool, BmcError> {
        let mut lists: Vec<String> = Vec::new();
        let list = link_at(self.value, "NetworkInterfaces");
        let tells = |value: &Value| value.get("NetworkDeviceFunctions").is_some();
        let mut whole = self.each(list, tells, |value| lists.extend(link_at(value, "NetworkDeviceFunctions"))).await?;
        if lists.is_empty() {
            let chassis = links(self.value.get("Links").and_then(|links| links.get("Chassis")));
            whole = chassis.len() <= MAX_CHASSIS;
            for path in chassis.iter().take(MAX_CHASSIS) {
                let adapters = self.item(path).await?.and_then(|chassis| link_at(&chassis, "NetworkAdapters"));
                whole &=
                    self.each(adapters, tells, |value| lists.extend(link_at(value, "NetworkDeviceFunctions"))).await?;
            }
        }
        let mut found: Vec<(Nic, Option<String>)> = Vec::new();
        whole &= lists.len() <= MAX_MEMBERS;
        for list in lists.into_iter().take(MAX_MEMBERS) {
            let tells = |value: &Value| value.get("NetDevFuncType").is_some() || value.get("Ethernet").is_some();
            whole &= self.each(Some(list), tells, |value| found.extend(function(value))).await?;
        }
        whole &= found.len() <= MAX_MEMBERS;
        for (mut nic, port) in found.into_iter().take(MAX_MEMBERS) {
            if let Some(port) = port {
                nic.speed_gbps = self.item(&port).await?.as_ref().and_then(speed);
            }
            add(nics, Some(nic));
        }
        Ok(whole)
    }

    /// Looks at each member of a collection, at the one in the collection where that `tells` something. Returns whether all that the BMC lists was
    /// looked at; a collection that is not there, or not shown, lists nothing.
    async fn each(
        &self,
        list: Option<String>,
        tells: impl Fn(&Value) -> bool,
        mut take: impl FnMut(&Value),
    ) -> Result<bool, BmcError> {
        let Some(list) = list.filter(|_| !self.is_spent()) else { return Ok(false) };
        let (members, mut whole) = match self.client.core.listed(WHAT, &list, None).await {
            Ok(listed) => listed,
            Err(fault) if shows_nothing(&fault) => return Ok(false),
            Err(fault) => return Err(fault.into()),
        };
        whole &= members.len() <= MAX_MEMBERS;
        for (path, inlined) in members.into_iter().take(MAX_MEMBERS) {
            if tells(&inlined) {
                take(&inlined);
                continue;
            }
            match self.item(&path).await? {
                Some(value) => take(&value),
                None => whole = false,
            }
        }
        Ok(whole)
    }

    /// One resource; `None` if the BMC does not show it, or has been asked enough.
    async fn item(&self, path: &str) -> Result<Option<Value>, BmcError> {
        if self.is_spent() {
            return Ok(None);
        }
        match self.client.core.get(WHAT, path).await {
            Ok(reply) => Ok(Some(reply.value)),
            Err(fault) if shows_nothing(&fault) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    fn is_spent(&self) -> bool {
        self.client.calls().saturating_sub(self.first) >= MAX_REQUESTS
    }
}

/// Whether the BMC has answered, and shows nothing there: some fail with 500 while the machine is off. One that asks to be asked later has not.
fn shows_nothing(fault: &Fault) -> bool {
    fault.is_nonsense() || fault.status().is_some_and(|status| !matches!(status, 401 | 429 | 503))
}

/// Whether the disk is in the list by another path: drives with two ports are, below both of their controllers.
fn is_listed(disks: &[Storage], disk: &Storage) -> bool {
    let has_number = disk.serial_number.is_some();
    has_number && disks.iter().any(|known| known.serial_number == disk.serial_number && known.model == disk.model)
}

/// Adds an interface; one address is one interface, whatever stands on it.
fn add(nics: &mut Vec<Nic>, nic: Option<Nic>) {
    nics.extend(nic.filter(|nic| !nics.iter().any(|known| known.mac == nic.mac)));
}
