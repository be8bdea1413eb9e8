//! What is known of hosts and machines when a scan has ended.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::metal3::{BareMetalHost, REPORTED_BY, annotation};
use discovery::{Declared, Discovered, KnownHost, Recorded, Spot, SpotHost};
use inventory::MachineEvidence;
use kube::ResourceExt as _;

use crate::host::Context;

/// Namespace and name.
pub(super) fn key_of(object: &impl kube::ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The names of hosts' BMCs.
pub(super) fn names(context: &Context) -> BTreeSet<String> {
    let hosts = context.hosts.store().map(|store| store.state()).unwrap_or_default();
    let name = |host: &Arc<BareMetalHost>| match Spot::of(&host.spec.bmc.as_ref()?.address)?.host {
        SpotHost::Name(name) => Some(name),
        SpotHost::Ip(_) => None,
    };
    hosts.iter().filter_map(name).collect()
}

/// The hosts and records of now.
pub(super) struct Known {
    pub hosts: Vec<KnownHost>,
    pub records: Vec<Recorded>,
}

impl Known {
    /// Those that are cached, and those that this process has made.
    pub(super) fn of(context: &Context, made: &[Arc<BareMetalHost>], names: &HashMap<String, Vec<IpAddr>>) -> Self {
        Self { hosts: hosts(context, made, names), records: records(context) }
    }
}

/// Longest list of hosts in a sentence.
const MAX_NAMED: usize = 8;

/// Hosts of which it is not known where their machines are.
#[derive(Default)]
pub(super) struct Unplaced {
    /// Their BMCs have names that are not resolved.
    unresolved: Vec<(String, String)>,
    /// They, or their MachineRecords, cannot be read.
    unreadable: Vec<(String, String)>,
    /// No record tells the machine of one of them by a UUID: then any machine that answers may be that host's.
    pub is_blind: bool,
}

impl Unplaced {
    /// Those of now.
    pub(super) fn of(context: &Context, records: &[Recorded], names: &HashMap<String, Vec<IpAddr>>) -> Self {
        let told = records.iter().filter(|record| record.identity.is_some());
        let told: BTreeSet<(&str, &str)> =
            told.map(|record| (record.namespace.as_str(), record.name.as_str())).collect();
        let hosts = context.hosts.store().map(|store| store.state()).unwrap_or_default();
        let records = context.records.store().map(|store| store.state()).unwrap_or_default();
        let malformed = records.iter().filter(|record| context.records.marks().hold(record.as_ref()));
        let mut all = Self { unreadable: malformed.map(|record| key_of(record.as_ref())).collect(), ..Self::default() };
        all.is_blind = !all.unreadable.is_empty();
        for host in &hosts {
            let spot = host.spec.bmc.as_ref().and_then(|bmc| Spot::of(&bmc.address));
            let is_unresolved = match spot.map(|spot| spot.host) {
                Some(SpotHost::Name(name)) => names.get(&name).is_none_or(Vec::is_empty),
                Some(SpotHost::Ip(_)) | None => false,
            };
            let is_unreadable = context.hosts.marks().hold(host.as_ref());
            let key = key_of(host.as_ref());
            all.is_blind |= (is_unresolved || is_unreadable) && !told.contains(&(key.0.as_str(), key.1.as_str()));
            if is_unreadable {
                all.unreadable.push(key);
            } else if is_unresolved {
                all.unresolved.push(key);
            }
        }
        all
    }

    /// Whose they are, a sentence for readers of this namespace. Those of others are named in the log alone.
    pub(super) fn said(&self, namespace: &str) -> Option<String> {
        let of = |hosts: &[(String, String)]| -> Option<String> {
            let (own, others): (Vec<_>, Vec<_>) = hosts.iter().partition(|(of, _)| of == namespace);
            let named: Vec<&str> = own.iter().take(MAX_NAMED).map(|(_, name)| name.as_str()).collect();
            let more = own.len().saturating_sub(named.len());
            let mut words = Vec::new();
            if !named.is_empty() {
                words.push(named.join(", "));
            }
            if more > 0 {
                words.push(format!("{more} more"));
            }
            if !others.is_empty() {
                words.push(format!("{} of other namespaces, which the server's log names", others.len()));
            }
            (!words.is_empty()).then(|| words.join(" and "))
        };
        let mut said = Vec::new();
        if let Some(whose) = of(&self.unresolved) {
            said.push(format!("the names of BMCs were not resolved of these hosts: {whose}"));
        }
        if let Some(whose) = of(&self.unreadable) {
            said.push(format!("these hosts, or their MachineRecords, cannot be read: {whose}"));
        }
        if said.is_empty() {
            return None;
        }
        let what = if self.is_blind {
            "no rule approves any machine while a MachineRecord does not tell theirs by a UUID"
        } else {
            "a machine that answers may be theirs"
        };
        Some(format!("{}; {what}", said.join("; ")))
    }

    /// Names those of all namespaces in the log.
    pub(super) fn log(&self) {
        let named = |hosts: &[(String, String)]| {
            let names = hosts.iter().take(MAX_NAMED).map(|(namespace, name)| format!("{namespace}/{name}"));
            names.collect::<Vec<_>>().join(", ")
        };
        if !self.unresolved.is_empty() || !self.unreadable.is_empty() {
            let (unresolved, unreadable) = (named(&self.unresolved), named(&self.unreadable));
            tracing::warn!(unresolved, unreadable, "where the machines of these hosts are is not known to discovery");
        }
    }
}

/// The hosts: those of the watch, and those just made that it does not show yet.
pub(super) fn hosts(
    context: &Context,
    made: &[Arc<BareMetalHost>],
    names: &HashMap<String, Vec<IpAddr>>,
) -> Vec<KnownHost> {
    let mut all = context.hosts.store().map(|store| store.state()).unwrap_or_default();
    let shown: BTreeSet<Option<String>> = all.iter().map(|host| host.uid()).collect();
    all.extend(made.iter().filter(|host| !shown.contains(&host.uid())).cloned());
    all.iter().map(|host| known(host, names)).collect()
}

fn known(host: &BareMetalHost, names: &HashMap<String, Vec<IpAddr>>) -> KnownHost {
    let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).filter(|address| !address.is_empty());
    let spots = address.and_then(Spot::of).map(|spot| match &spot.host {
        SpotHost::Ip(_) => vec![spot],
        SpotHost::Name(name) => {
            let found = names.get(name).into_iter().flatten();
            found.map(|ip| Spot { host: SpotHost::Ip(ip.to_canonical()), port: spot.port }).collect()
        }
    });
    KnownHost {
        namespace: host.namespace().unwrap_or_default(),
        name: host.name_any(),
        uid: host.uid().unwrap_or_default(),
        spots: spots.unwrap_or_default(),
        is_managed: host.spec.bmc.is_some(),
        discovered: discovered(host),
    }
}

/// From what the host was made, as its annotations say it.
pub(super) fn discovered(host: &BareMetalHost) -> Option<Discovered> {
    let text = |key: &str| host.annotation(key).map(ToOwned::to_owned);
    Some(Discovered {
        by: text(annotation::DISCOVERED_BY)?,
        address: text(annotation::DISCOVERED_ADDRESS)?,
        identity: text(annotation::DISCOVERED_UUID).as_deref().and_then(discovery::identity),
        key_sha256: text(annotation::DISCOVERED_KEY),
        is_refused: host.annotation(annotation::APPROVE) == Some("false"),
    })
}

/// By what machines are recorded.
pub(super) fn records(context: &Context) -> Vec<Recorded> {
    let records = context.records.store().map(|store| store.state()).unwrap_or_default();
    let recorded = |record: &Arc<api::metamorph::MachineRecord>| {
        let spec = &record.spec;
        let shown = [&spec.bmc, &spec.agent].into_iter().flatten();
        let others = shown.flat_map(|shown| [&shown.system_uuid, &shown.serial_number]).flatten();
        Recorded {
            namespace: record.namespace().unwrap_or_default(),
            name: record.name_any(),
            identity: spec.pin.service_uuid.as_deref().and_then(discovery::identity),
            others: others.filter_map(|text| discovery::identity(text)).collect(),
            key_sha256: spec.pin.key_sha256.clone(),
        }
    };
    records.iter().map(recorded).collect()
}

/// The machines that somebody has declared, by all that is known of them; what a machine has reported itself, nobody knows.
pub(super) fn declared(context: &Context) -> Vec<Declared> {
    let hosts = context.hosts.store().map(|store| store.state()).unwrap_or_default();
    let facts = context.hardware_data.store().map(|store| store.state()).unwrap_or_default();
    let records = context.records.store().map(|store| store.state()).unwrap_or_default();
    // Whoever waits for approval has been declared by nobody.
    let is_declared = |host: &&Arc<BareMetalHost>| host.spec.bmc.is_some() || discovered(host).is_none();
    let waiting: BTreeSet<(Option<String>, String)> =
        hosts.iter().filter(|host| !is_declared(host)).map(|host| (host.namespace(), host.name_any())).collect();
    let of = |namespace: Option<String>, name: String, machine: MachineEvidence| Declared {
        namespace: namespace.unwrap_or_default(),
        name,
        machine,
    };
    let of_hosts = hosts.iter().filter(is_declared).filter_map(|host| {
        let mac = host.spec.boot_mac_address.clone().filter(|mac| !mac.is_empty())?;
        let machine = MachineEvidence { macs: vec![mac], ..MachineEvidence::default() };
        Some(of(host.namespace(), host.name_any(), machine))
    });
    let of_facts = facts.iter().filter_map(|data| {
        let is_told = data.annotations().contains_key(REPORTED_BY);
        if is_told || waiting.contains(&(data.namespace(), data.name_any())) {
            return None;
        }
        let hardware = data.spec.hardware.as_ref()?;
        let vendor = hardware.system_vendor.clone().unwrap_or_default();
        let machine = MachineEvidence {
            manufacturer: vendor.manufacturer,
            serial_number: vendor.serial_number,
            macs: hardware.nics.iter().filter_map(|nic| nic.mac.clone()).collect(),
            ..MachineEvidence::default()
        };
        Some(of(data.namespace(), data.name_any(), machine))
    });
    let of_records = records.iter().flat_map(|record| {
        let shown = [&record.spec.bmc, &record.spec.agent].into_iter().flatten();
        shown.map(|machine| of(record.namespace(), record.name_any(), machine.clone())).collect::<Vec<_>>()
    });
    of_hosts.chain(of_facts).chain(of_records).collect()
}
