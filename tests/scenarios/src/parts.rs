//! What the machines of [`crate::plant`] are made of.

use inventory::{MachineEvidence, Storage};

/// The machine's disk, as its agent sees it.
pub fn disk() -> Storage {
    Storage { name: Some("/dev/vda".into()), serial_number: Some("DISK-1".into()), ..Storage::default() }
}

/// What shows which machine it is: the first of a run, or the second.
pub fn evidence(second: bool) -> MachineEvidence {
    if second {
        return MachineEvidence {
            manufacturer: Some("Maker".into()),
            system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a9999".into()),
            serial_number: Some("S-200".into()),
            macs: vec!["00:1b:21:aa:bb:02".into()],
            disks: vec!["DISK-2".into()],
        };
    }
    MachineEvidence {
        manufacturer: Some("Maker".into()),
        system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a3132".into()),
        serial_number: Some("S-100".into()),
        macs: vec!["00:1b:21:aa:bb:01".into()],
        disks: vec!["DISK-1".into()],
    }
}
