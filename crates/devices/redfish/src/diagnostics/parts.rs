//! Memory, processors, disks and network ports.

use diagnosis::{Part, PartKind};
use serde_json::Value;

use super::facts::{depth, number, percent, rollup};
use super::reader::Reader;
use super::system::summary;
use crate::json::{flag, link_at, links, same_path, word};
use terms::HealthLevel;

/// Most members of one kind that are read one by one.
const MOST: usize = 8;
/// Most disks that are read where all is said to be well.
const FEW_DRIVES: usize = 4;
/// Most disks.
const MAX_DRIVES: usize = 16;
/// Most network adapters whose ports are looked at.
const MAX_ADAPTERS: usize = 4;
/// Calls that are kept for what comes after the parts: drives, tasks, logs, the account.
const KEPT: u32 = 14;

impl Reader<'_> {
    /// All parts of the system.
    pub async fn read_parts(&mut self, system: &Value, parts: &mut Vec<Part>) {
        let memory = summary(system, "MemorySummary");
        for (path, value) in self.those("Memory", link_at(system, "Memory"), depth(memory, MOST)).await {
            let part = self.module(&path, &value).await;
            parts.push(part);
        }
        let processors = summary(system, "ProcessorSummary");
        for (path, value) in self.those("Processors", link_at(system, "Processors"), depth(processors, MOST)).await {
            parts.push(Part { throttled: flag(&value, "Throttled"), ..self.part(PartKind::Processor, &path, &value) });
        }
        self.read_storage(system, parts).await;
        self.read_network(system, parts).await;
        self.read_cards(system, parts).await;
    }

    async fn module(&mut self, path: &str, value: &Value) -> Part {
        let mut part = self.part(PartKind::Memory, path, value);
        let unwell = part.health.is_some_and(|level| level != HealthLevel::OK);
        let metrics = link_at(value, "Metrics").filter(|_| unwell && self.calls_left() > KEPT);
        if let Some(metrics) = metrics
            && let Ok(metrics) = self.get(&metrics).await
        {
            let count = |period: &str, field: &str| metrics.get(period).and_then(|period| number(period, field));
            let either = |field: &str| count("CurrentPeriod", field).or_else(|| count("LifeTime", field));
            part.correctable_errors = either("CorrectableECCErrorCount");
            part.uncorrectable_errors = either("UncorrectableECCErrorCount");
        }
        part
    }

    async fn read_storage(&mut self, system: &Value, parts: &mut Vec<Part>) {
        let whole = rollup(system);
        let list = link_at(system, "Storage");
        let mut drives: Vec<(String, bool)> = Vec::new();
        let storages = self.those("Storage", list, depth(whole, MOST).max(2)).await;
        let mut all = self.whole;
        for (path, storage) in storages {
            all &= storage.get("Drives").is_some_and(Value::is_array) && storage.get("Drives@odata.nextLink").is_none();
            let state = rollup(&storage);
            let unwell = state.is_none_or(|level| level != HealthLevel::OK);
            for drive in links(storage.get("Drives")) {
                if !drives.iter().any(|(known, _)| same_path(known, &drive)) {
                    drives.push((drive, unwell));
                }
            }
            self.read_controllers(&path, &storage, unwell, parts).await;
            let volumes = link_at(&storage, "Volumes").filter(|_| unwell);
            for (path, value) in self.those("Volumes", volumes, 2).await {
                let raid_state = self.text(&value, "RAIDType");
                parts.push(Part { raid_state, ..self.part(PartKind::Volume, &path, &value) });
            }
        }
        // Those below something that is not well come first.
        drives.sort_by_key(|(_, unwell)| !unwell);
        let mut well = 0;
        let mut left = 0_usize;
        for (at, (path, unwell)) in drives.iter().enumerate() {
            well += usize::from(!unwell);
            if at >= MAX_DRIVES || well > FEW_DRIVES || self.calls_left() <= KEPT {
                left += 1;
                continue;
            }
            match self.get(path).await {
                Ok(value) => parts.push(self.drive(path, &value)),
                Err(miss) => {
                    all = false;
                    self.missed(&terms::clean(path, 200), &miss);
                }
            }
        }
        if all && left == 0 {
            self.whole_kinds.push(PartKind::Drive);
        }
        if left > 0 {
            self.skip("Drives", format!("{left} more were not read one by one"));
        }
    }

    /// Controllers as resources of their own, or within the storage as older services have them.
    async fn read_controllers(&mut self, path: &str, storage: &Value, unwell: bool, parts: &mut Vec<Part>) {
        let within = storage.get("StorageControllers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if !within.is_empty() {
            parts.extend(within.iter().take(MOST).map(|value| self.part(PartKind::StorageController, path, value)));
            return;
        }
        let list = link_at(storage, "Controllers").filter(|_| unwell && self.calls_left() > KEPT);
        if list.is_none() {
            let name = self.part(PartKind::StorageController, path, storage);
            parts.push(Part { serial: None, ..name });
        }
        for (path, value) in self.those("Controllers", list, 2).await {
            parts.push(self.part(PartKind::StorageController, &path, &value));
        }
    }

    fn drive(&self, path: &str, value: &Value) -> Part {
        let raid_state = raid_state(value).map(|word| self.clean(word));
        let life_left_percent = percent(value, "PredictedMediaLifeLeftPercent");
        Part { raid_state, life_left_percent, ..self.part(PartKind::Drive, path, value) }
    }

    async fn read_network(&mut self, system: &Value, parts: &mut Vec<Part>) {
        let mut found = false;
        let lists = std::mem::take(&mut self.adapters);
        let mut all = lists.len() <= 2;
        for list in lists.into_iter().take(2) {
            let adapters = self.those("NetworkAdapters", Some(list), MAX_ADAPTERS).await;
            all &= self.whole && adapters.len() <= MAX_ADAPTERS;
            for (path, adapter) in adapters.into_iter().take(MAX_ADAPTERS) {
                parts.push(self.part(PartKind::PcieDevice, &path, &adapter));
                if self.calls_left() <= KEPT {
                    all = false;
                    self.skip("Ports of network adapters", "the calls that are left are kept for logs");
                    break;
                }
                let ports = link_at(&adapter, "Ports").or_else(|| link_at(&adapter, "NetworkPorts"));
                let name = self.text(&adapter, "Id").unwrap_or_default();
                let ports = self.those("Ports", ports, 2).await;
                all &= self.whole;
                for (path, port) in ports {
                    found = true;
                    all &= addresses(&port).is_none_or(|list| list.len() == 1);
                    parts.push(self.port(&name, &path, &port));
                }
            }
        }
        if found && all {
            self.whole_kinds.push(PartKind::NetworkPort);
        }
        if found || self.calls_left() <= KEPT {
            return;
        }
        let list = link_at(system, "EthernetInterfaces");
        let interfaces = self.those("EthernetInterfaces", list, 4).await;
        if self.whole {
            self.whole_kinds.push(PartKind::NetworkPort);
        }
        for (path, value) in interfaces {
            if crate::resources::permanent_mac(&value).is_some() {
                parts.push(self.port("", &path, &value));
            }
        }
    }

    fn port(&self, adapter: &str, path: &str, port: &Value) -> Part {
        let mut part = self.part(PartKind::NetworkPort, path, port);
        if !adapter.is_empty() {
            part.slot = format!("{adapter} port {}", part.slot);
        }
        let listed = addresses(port).and_then(|list| list.first());
        let mac = listed.and_then(Value::as_str).map(ToOwned::to_owned);
        let mac = mac.or_else(|| self.text(port, "PermanentMACAddress")).or_else(|| self.text(port, "MACAddress"));
        part.mac = mac.map(|mac| self.clean(&mac).to_ascii_lowercase());
        part.link = match word(port, "LinkStatus") {
            Some("LinkUp" | "Up") => Some("Up".to_owned()),
            Some("LinkDown" | "Down" | "NoLink") => Some("Down".to_owned()),
            Some(other) => Some(self.clean(other)),
            None => None,
        };
        part
    }

    /// PCIe cards that are not well, or have fewer lanes than they could.
    async fn read_cards(&mut self, system: &Value, parts: &mut Vec<Part>) {
        let cards = links(system.get("PCIeDevices"));
        let unwell = rollup(system).is_some_and(|level| level != HealthLevel::OK);
        if cards.is_empty() {
            return;
        }
        if !unwell {
            self.skip(
                "PCIeDevices",
                "the BMC says that all is well there, and would have to be asked for each by itself",
            );
            return;
        }
        for path in cards.iter().take(MOST) {
            if self.calls_left() <= KEPT {
                self.skip("PCIeDevices", "the calls that are left are kept for logs");
                return;
            }
            let Ok(card) = self.get(path).await else { continue };
            let interface = card.get("PCIeInterface").unwrap_or(&Value::Null);
            let lanes = number(interface, "LanesInUse").zip(number(interface, "MaxLanes"));
            let degraded = lanes.filter(|(used, most)| used < most && *used > 0);
            let degraded_link = degraded.map(|(used, most)| format!("x{used} of x{most}"));
            parts.push(Part { degraded_link, ..self.part(PartKind::PcieDevice, path, &card) });
        }
    }
}

/// The MAC addresses of a port (schemas Port and NetworkPort).
fn addresses(port: &Value) -> Option<&Vec<Value>> {
    let ethernet = port.get("Ethernet").and_then(|ethernet| ethernet.get("AssociatedMACAddresses"));
    ethernet.or_else(|| port.get("AssociatedNetworkAddresses"))?.as_array()
}

/// Whether an array has taken the disk in, in the vendor's word (Dell: `Oem.Dell.DellPhysicalDisk.RaidStatus`).
fn raid_state(drive: &Value) -> Option<&str> {
    drive.get("Oem")?.get("Dell")?.get("DellPhysicalDisk")?.get("RaidStatus")?.as_str()
}
