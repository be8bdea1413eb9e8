//! A HardwareClassification as it counts.

use api::metal3::{HardwareCharacteristics, HardwareClassification, classification_error, detection_fault, label};
use inventory::HardwareDetails;
use terms::clean;

use crate::judge::{matches, may_select, version_order};

/// Longest name of a label without its prefix, bytes (Kubernetes).
const MAX_LABEL: usize = 63;
/// Most selectors of disks, and most makers of interfaces.
const MAX_SELECTORS: usize = 64;
/// Longest text that a classification compares with, bytes.
const MAX_TEXT: usize = 256;

/// Most classifications of a namespace by which hosts are judged: each is a label of each host that matches it.
pub const MAX_CLASSES: usize = 128;

/// Why no host is judged by a classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It asks for nothing.
    Empty,
    /// Its name cannot be that of a label.
    LongName,
    /// A list or a text of this field is larger than what is compared with each host.
    TooLarge(&'static str),
    /// Its namespace has [`MAX_CLASSES`] others.
    TooMany,
}

impl Fault {
    /// `status.errorType`.
    #[must_use]
    pub const fn error_type(self) -> &'static str {
        match self {
            Self::Empty => classification_error::EMPTY_PROFILE,
            Self::TooLarge(_) => classification_error::LARGE_PROFILE,
            Self::LongName | Self::TooMany => classification_error::LABEL_UPDATE,
        }
    }

    /// A sentence for people.
    #[must_use]
    pub fn message(self) -> String {
        match self {
            Self::Empty => {
                "spec.hardwareCharacteristics asks for nothing: give it at least one field; until then it matches no host".to_owned()
            }
            Self::LongName => format!(
                "the name has more than {MAX_LABEL} characters, and cannot be that of a label: no host is labelled; create it under a shorter name"
            ),
            Self::TooMany => format!(
                "the namespace has {MAX_CLASSES} other classifications: no host is labelled until one of those is deleted"
            ),
            Self::TooLarge(field) => format!(
                "spec.hardwareCharacteristics.{field} is too large: at most {MAX_SELECTORS} entries and {MAX_TEXT} bytes a text are compared; until then it matches no host"
            ),
        }
    }
}

/// A classification as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Key of the label that its hosts bear.
    pub key: String,
    /// Value of that label: what the classification's own label of the classification's name says, or `matches`.
    pub value: String,
    /// Whether it is being deleted: then it matches no host.
    pub is_deleting: bool,
    /// What it asks for.
    pub wanted: HardwareCharacteristics,
    /// Why it matches no host, if so.
    pub fault: Option<Fault>,
    /// Why what its labels say of the diagnosis of its hosts counts for nothing, if so: a sentence.
    pub detection_fault: Option<String>,
}

impl Class {
    /// The class that the object stands for.
    #[must_use]
    pub fn of(object: &HardwareClassification) -> Self {
        let name = object.metadata.name.clone().unwrap_or_default();
        let value = object.label(&name).filter(|value| !value.is_empty()).unwrap_or(label::CLASS_VALUE).to_owned();
        let wanted = object.spec.hardware_characteristics.clone();
        Self {
            key: format!("{}{name}", label::CLASS_PREFIX),
            fault: fault(&name, &wanted),
            is_deleting: object.is_deleting(),
            detection_fault: detection_fault(object.metadata.labels.as_ref()),
            name,
            value,
            wanted,
        }
    }

    /// Whether a host with this hardware matches.
    #[must_use]
    pub fn takes(&self, found: &HardwareDetails) -> bool {
        !self.is_deleting && self.fault.is_none() && matches(&self.wanted, found)
    }

    /// Whether verdicts by the one are verdicts by the other.
    pub(crate) fn judges_as(&self, other: &Self) -> bool {
        (self.is_deleting, &self.fault, &self.wanted) == (other.is_deleting, &other.fault, &other.wanted)
    }

    /// What of it can hold for no host, or has no effect: a sentence.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        self.remark_of_spec().or_else(|| self.detection_fault.clone())
    }

    fn remark_of_spec(&self) -> Option<String> {
        let ranges = ranges(&self.wanted);
        let crossed = ranges.iter().find(|(_, least, _, most)| matches!((least, most), (Some(l), Some(m)) if l > m));
        if let Some((least, _, most, _)) = crossed {
            return Some(format!("{least} is above {most}: no host can match"));
        }
        let bios = self.wanted.firmware.as_ref().and_then(|firmware| firmware.bios.as_ref());
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        match bios.map(|bios| (given(&bios.minor_version), given(&bios.major_version))) {
            Some((Some(least), Some(most))) if version_order(&least, &most).is_gt() => {
                return Some("firmware.bios.minorVersion is above majorVersion: no host can match".to_owned());
            }
            Some((Some(_), None) | (None, Some(_))) => {
                return Some(
                    "of firmware.bios, minorVersion and majorVersion count only together: the version is not compared"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let mut selectors = self.wanted.disk.iter().flat_map(|disk| &disk.disk_selector);
        let hctl = selectors.find(|selector| !may_select(selector))?.hctl.clone().unwrap_or_default();
        Some(format!(
            "disk.diskSelector names {}: write N for each number above 0, or no disk can match",
            clean(&hctl, MAX_LABEL)
        ))
    }
}

type Range = (&'static str, Option<i64>, &'static str, Option<i64>);

fn ranges(wanted: &HardwareCharacteristics) -> Vec<Range> {
    let mut all: Vec<Range> = Vec::new();
    if let Some(cpu) = &wanted.cpu {
        all.push(("cpu.minimumCount", cpu.minimum_count, "maximumCount", cpu.maximum_count));
        all.push(("cpu.minimumSpeedMHz", cpu.minimum_speed_mhz, "maximumSpeedMHz", cpu.maximum_speed_mhz));
    }
    if let Some(disk) = &wanted.disk {
        all.push(("disk.minimumCount", disk.minimum_count, "maximumCount", disk.maximum_count));
        let (least, most) = (disk.minimum_individual_size_gb, disk.maximum_individual_size_gb);
        all.push(("disk.minimumIndividualSizeGB", least, "maximumIndividualSizeGB", most));
    }
    if let Some(nic) = &wanted.nic {
        all.push(("nic.minimumCount", nic.minimum_count, "maximumCount", nic.maximum_count));
    }
    if let Some(ram) = &wanted.ram {
        all.push(("ram.minimumSizeGB", ram.minimum_size_gb, "maximumSizeGB", ram.maximum_size_gb));
    }
    all
}

/// Texts that are compared, with their fields.
fn texts(wanted: &HardwareCharacteristics) -> Vec<(&'static str, &String)> {
    let (cpu, vendor) = (wanted.cpu.as_ref(), wanted.system_vendor.as_ref());
    let bios = wanted.firmware.as_ref().and_then(|firmware| firmware.bios.as_ref());
    let single = [
        ("cpu.architecture", cpu.and_then(|cpu| cpu.architecture.as_ref())),
        ("systemVendor.manufacturer", vendor.and_then(|vendor| vendor.manufacturer.as_ref())),
        ("systemVendor.productName", vendor.and_then(|vendor| vendor.product_name.as_ref())),
        ("firmware.bios.vendor", bios.and_then(|bios| bios.vendor.as_ref())),
        ("firmware.bios.minorVersion", bios.and_then(|bios| bios.minor_version.as_ref())),
        ("firmware.bios.majorVersion", bios.and_then(|bios| bios.major_version.as_ref())),
    ];
    let selectors = wanted.disk.iter().flat_map(|disk| &disk.disk_selector);
    let selectors = selectors.filter_map(|selector| Some(("disk.diskSelector", selector.hctl.as_ref()?)));
    let vendors = wanted.nic.iter().flat_map(|nic| &nic.nic_selector).flat_map(|selector| &selector.vendor);
    let vendors = vendors.map(|vendor| ("nic.nicSelector.vendor", vendor));
    let single = single.into_iter().filter_map(|(field, text)| Some((field, text?)));
    single.chain(selectors).chain(vendors).collect()
}

fn fault(name: &str, wanted: &HardwareCharacteristics) -> Option<Fault> {
    if name.len() > MAX_LABEL {
        return Some(Fault::LongName);
    }
    let selectors = wanted.disk.as_ref().map_or(0, |disk| disk.disk_selector.len());
    let vendors = wanted.nic.iter().flat_map(|nic| &nic.nic_selector).map(|selector| selector.vendor.len()).sum();
    for (field, count) in [("disk.diskSelector", selectors), ("nic.nicSelector.vendor", vendors)] {
        if count > MAX_SELECTORS {
            return Some(Fault::TooLarge(field));
        }
    }
    let texts = texts(wanted);
    if let Some((field, _)) = texts.iter().find(|(_, text)| text.len() > MAX_TEXT) {
        return Some(Fault::TooLarge(field));
    }
    let asks = ranges(wanted).iter().any(|(_, least, _, most)| least.is_some() || most.is_some())
        || texts.iter().any(|(_, text)| !text.is_empty())
        || selectors > 0;
    (!asks).then_some(Fault::Empty)
}
