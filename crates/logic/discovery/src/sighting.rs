//! What a machine reports that has booted a HostDiscovery's medium, and what is made of it. Pure.
//!
//! **What is believed.** A report is anybody's word: whoever has the medium can say anything. It never makes a host by itself. It says at which address
//! a BMC may be; where that is one that the HostDiscovery asks, it is asked as in a scan, and what answers there is judged as in a scan. The facts that
//! the machine has told are kept beside a host that waits, as a claim, while one machine alone says that it has that BMC.

use std::net::IpAddr;

use agent_protocol::{MAX_SAID, Sighting};
use api::metamorph::{DiscoveredMachine, DiscoveryPhase, ReportOutcome, ReportedMachine};
use inventory::{HardwareDetails, MachineEvidence};
use machine_identity::{Common, across, normal};
use sha2::{Digest as _, Sha256};
use terms::clean;

use crate::place::Place;
use crate::plan::Plan;
use crate::shown::{Shown, identity};

/// Most places that are asked for one report.
pub const MAX_CLAIMED: usize = 4;
/// Most MAC addresses of a report that are looked at, and most that are listed.
const MAX_MACS: usize = 128;
const LISTED_MACS: usize = 8;
/// Longest text, characters.
const MAX_TEXT: usize = 128;

/// A report, bounded.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighted {
    /// Which machine says so: by its UUID, else its serial number, else the least of its MAC addresses, in normal form.
    pub identity: String,
    /// Digest of what it tells of itself and its parts, as far as that is the same whenever it boots: who repeats its identity alone differs by it.
    pub digest: String,
    /// By what it is told from others.
    pub machine: MachineEvidence,
    /// What it is.
    pub hardware: HardwareDetails,
    /// Where it says that its BMC is.
    pub addresses: Vec<IpAddr>,
    /// The UUID of its BMC's service root, as its firmware says.
    pub service: Option<String>,
    /// Why it does not know more, one line.
    pub said: String,
}

impl Sighted {
    /// Takes a report.
    ///
    /// # Errors
    /// A clause that says why it is none of a machine that could be told from others.
    pub fn of(report: &Sighting) -> Result<Self, String> {
        let text = |text: &Option<String>| text.as_deref().map(|text| clean(text, MAX_TEXT)).filter(|t| !t.is_empty());
        let given = &report.machine;
        let macs = given.macs.iter().take(MAX_MACS).filter(|mac| normal::mac(mac).is_some());
        let machine = MachineEvidence {
            manufacturer: text(&given.manufacturer),
            system_uuid: text(&given.system_uuid),
            serial_number: text(&given.serial_number),
            macs: macs.map(|mac| clean(mac, 32)).collect(),
            disks: Vec::new(),
        };
        let uuid = machine.system_uuid.as_deref().and_then(normal::uuid);
        // Letters that grow in normal form make no name that the status could not hold.
        let is_short = |identity: &String| identity.chars().count() <= MAX_TEXT;
        let serial = || machine.serial_number.as_deref().and_then(normal::serial).filter(is_short);
        let mac = || machine.macs.iter().filter_map(|mac| normal::mac(mac)).min();
        let Some(identity) = uuid.or_else(serial).or_else(mac) else {
            return Err("it shows no UUID, no serial number and no MAC address of its own".to_owned());
        };
        let hardware = report.hardware.bounded();
        hardware.fits("the machine reports")?;
        let said: Vec<String> = report.bmc.said.iter().take(MAX_SAID).map(|said| clean(said, MAX_TEXT)).collect();
        Ok(Self {
            digest: digest(&identity, &machine, &hardware),
            identity,
            machine,
            hardware,
            addresses: report.bmc.addresses(),
            service: report.bmc.redfish.as_ref().and_then(|redfish| identity_of(redfish.service_uuid.as_deref())),
            said: said.join("; "),
        })
    }

    /// Where its BMC is to be asked for; else what has come of the report.
    ///
    /// # Errors
    /// Nothing can be asked: outcome, and why.
    pub fn places(&self, plan: &Plan, before: &[DiscoveredMachine]) -> Result<Vec<Place>, (ReportOutcome, String)> {
        let of_address = |ip: &IpAddr| plan.places.iter().filter(|place| place.ip == *ip).copied().collect::<Vec<_>>();
        let mut places: Vec<Place> = self.addresses.iter().flat_map(of_address).collect();
        // A machine that knows the service alone is looked for where that service has been found.
        if places.is_empty()
            && let Some(service) = &self.service
        {
            let found = before.iter().filter(|one| identity_of(one.uuid.as_deref()).as_ref() == Some(service));
            let found = found.filter_map(|one| Place::parse(&one.address));
            places.extend(found.filter(|place| plan.places.binary_search(place).is_ok()));
        }
        places.truncate(MAX_CLAIMED);
        if !places.is_empty() {
            return Ok(places);
        }
        let addresses: Vec<String> = self.addresses.iter().take(4).map(ToString::to_string).collect();
        if addresses.is_empty() {
            let why = if self.said.is_empty() { String::new() } else { format!(" ({})", self.said) };
            return Err((
                ReportOutcome::NoBmc,
                format!("it does not know where its BMC is{why}: declare it yourself, or scan for its BMC"),
            ));
        }
        Err((
            ReportOutcome::OutOfRange,
            format!(
                "it says that its BMC is at {}, which spec.ranges does not ask: nothing was asked there",
                addresses.join(", ")
            ),
        ))
    }

    /// Why what has answered at a place is not this machine's BMC; `None` if nothing speaks against it.
    #[must_use]
    pub fn differs(&self, shown: &Shown) -> Option<String> {
        let service = self.service.as_ref()?;
        let shown = shown.uuid.as_deref().and_then(identity)?;
        (shown != *service).then(|| {
            "its firmware names another Redfish service than answers at the address that it tells: nothing is made of it"
                .to_owned()
        })
    }

    /// The declared machine that it is, by the rule of machine identity.
    #[must_use]
    pub fn known_as<'a>(&self, declared: &'a [Declared]) -> Option<&'a Declared> {
        let common = Common::of(declared.iter().map(|one| &one.machine));
        declared.iter().find(|one| across(&one.machine, &self.machine, &common))
    }

    /// What its machine is told of an outcome, and whether that is all: then it may switch itself off. Whoever has the medium is told, so that it is the same
    /// whether a machine of that identity or service is known or not; what only repeats what the machine itself has said is told to people in front of it.
    #[must_use]
    pub fn told(&self, outcome: ReportOutcome, message: &str) -> (String, bool) {
        let is_its_own = matches!(outcome, ReportOutcome::NoBmc | ReportOutcome::OutOfRange | ReportOutcome::NoAnswer);
        // What may be otherwise at the next report is not the last word: nothing else looks for the machine where nothing is scanned.
        let is_last = !matches!(outcome, ReportOutcome::NotYet | ReportOutcome::NoAnswer);
        let text = match (is_its_own && self.service.is_none(), is_last) {
            (true, _) => message,
            (false, true) => "the report is taken: what becomes of it stands in the status of the HostDiscovery",
            (false, false) => "the report is taken, and nothing is decided yet: the machine is to report again",
        };
        (text.to_owned(), is_last)
    }

    /// A row of the status.
    #[must_use]
    pub fn row(&self, outcome: ReportOutcome, message: &str, now: api::Time) -> ReportedMachine {
        ReportedMachine {
            identity: self.identity.clone(),
            digest: self.digest.clone(),
            uuid: self.machine.system_uuid.clone(),
            serial_number: self.machine.serial_number.clone(),
            mac_addresses: self.machine.macs.iter().take(LISTED_MACS).cloned().collect(),
            bmc_addresses: self.addresses.iter().take(4).map(ToString::to_string).collect(),
            outcome,
            address: None,
            host: None,
            message: clean(message, 500),
            last_seen: Some(now),
        }
    }
}

/// Digest of what a machine tells. What differs from boot to boot is left out: addresses, neighbours, names that the kernel gives.
fn digest(identity: &str, machine: &MachineEvidence, hardware: &HardwareDetails) -> String {
    let mut macs: Vec<Option<String>> = machine.macs.iter().map(|mac| normal::mac(mac)).collect();
    let mut nics: Vec<_> =
        hardware.nics.iter().map(|nic| (nic.mac.as_ref(), nic.model.as_ref(), nic.pci_address.as_ref())).collect();
    let disks = hardware.storage.iter();
    let mut disks: Vec<_> = disks
        .map(|disk| (disk.serial_number.as_ref(), disk.wwn.as_ref(), disk.model.as_ref(), disk.size_bytes))
        .collect();
    macs.sort_unstable();
    nics.sort_unstable();
    nics.dedup();
    disks.sort_unstable();
    let of_itself = (identity, &machine.manufacturer, &machine.system_uuid, &machine.serial_number, macs);
    // The clock may be that of now, and the memory what the kernel has left of it.
    let cpu = hardware.cpu.as_ref().map(|cpu| (&cpu.arch, &cpu.model, cpu.count));
    let gibibytes = hardware.ram_mebibytes.map(|mebibytes| mebibytes.saturating_add(1023) / 1024);
    let parts = (cpu, &hardware.firmware, gibibytes, &hardware.system_vendor, nics, disks);
    hex::encode(Sha256::digest(format!("{of_itself:?}\n{parts:?}")).get(..8).unwrap_or_default())
}

fn identity_of(uuid: Option<&str>) -> Option<String> {
    uuid.and_then(identity)
}

/// A machine that somebody has declared, by what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Its host's namespace.
    pub namespace: String,
    /// Its host's name.
    pub name: String,
    /// What its record, its inspection or its boot MAC address tells.
    pub machine: MachineEvidence,
}

/// What has come of a report whose BMC was asked: by the machines of the verdict at the places that it tells.
#[must_use]
pub fn outcome(machines: &[DiscoveredMachine], places: &[Place]) -> (ReportOutcome, Option<DiscoveredMachine>) {
    let at = |machine: &&DiscoveredMachine| places.iter().any(|place| place.address() == machine.address);
    let rank = |machine: &DiscoveredMachine| match machine.phase {
        DiscoveryPhase::Found => 0,
        DiscoveryPhase::Approved => 1,
        DiscoveryPhase::Known => 2,
        DiscoveryPhase::Contradiction => 3,
        DiscoveryPhase::Dismissed | DiscoveryPhase::Denied => 4,
    };
    let Some(machine) = machines.iter().filter(at).min_by_key(|machine| rank(machine)) else {
        return (ReportOutcome::NoAnswer, None);
    };
    let outcome = match machine.phase {
        DiscoveryPhase::Found if machine.host.is_none() => ReportOutcome::NotYet,
        DiscoveryPhase::Found | DiscoveryPhase::Approved => ReportOutcome::Host,
        DiscoveryPhase::Known => ReportOutcome::Known,
        DiscoveryPhase::Contradiction => ReportOutcome::Contradiction,
        DiscoveryPhase::Denied | DiscoveryPhase::Dismissed => ReportOutcome::Denied,
    };
    (outcome, Some(machine.clone()))
}
