//! Hardware facts in the terms of Metal³'s `HardwareDetails`, and the root device hints that choose a disk among them.
//!
//! Shapes follow `metal3.io/v1alpha1` (`spec.hardware` of a HardwareData); field names on the wire are Metal³'s.

mod bounded;
mod details;
mod devices;
mod erasure;
mod evidence;
mod hints;
mod inspected;
pub mod links;
mod presence;

pub use bounded::MAX_HARDWARE_BYTES;
pub use details::{Bios, Cpu, DiskType, Firmware, HardwareDetails, Lldp, Nic, Storage, SystemVendor, Vlan};
pub use devices::{Devices, ListedGpu, NumaNode, PciDevice, Started, Tpm};
pub use erasure::{DiskSelector, EraseMethod, EraseResult, ErasedDisk};
pub use evidence::{BmcPin, MachineEvidence};
pub use hints::{HintMismatch, RootDeviceHints, choose_root_disk};
pub use inspected::{Inspected, Part};
pub use links::{LinkReport, LinkSeen};
pub use presence::{BY_PATH, absent};
