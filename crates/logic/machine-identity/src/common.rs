//! Values that tell nothing because more than one machine shows them.

use std::collections::{BTreeMap, BTreeSet};

use inventory::MachineEvidence;

use crate::normal;

/// UUIDs and serials, in normal form, that machines with different MACs have in common: a maker's habit, no evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common(BTreeSet<String>);

impl Common {
    /// What is common among these machines. One that shows no MAC cannot be told from the others, and makes nothing common.
    #[must_use]
    pub fn of<'a>(machines: impl IntoIterator<Item = &'a MachineEvidence>) -> Self {
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut common = BTreeSet::new();
        for machine in machines {
            let macs: BTreeSet<String> = machine.macs.iter().filter_map(|m| normal::mac(m)).collect();
            if macs.is_empty() {
                continue;
            }
            let uuid = machine.system_uuid.as_deref().and_then(normal::uuid);
            let serial = machine.serial_number.as_deref().and_then(normal::serial);
            for value in uuid.into_iter().chain(serial) {
                let earlier = owners.entry(value.clone()).or_default();
                if !earlier.is_empty() && earlier.is_disjoint(&macs) {
                    common.insert(value);
                }
                earlier.extend(macs.iter().cloned());
            }
        }
        Self(common)
    }

    /// Whether the value, in normal form, is one of them.
    #[must_use]
    pub fn contains(&self, value: &str) -> bool {
        self.0.contains(value)
    }
}
