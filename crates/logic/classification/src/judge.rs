//! One class, one host: what is asked for beside what was found.

use std::cmp::Ordering;
use std::fmt;
use std::ops::ControlFlow;

use api::metal3::{
    BiosRule, CpuRule, DiskRule, DiskSelector, HardwareCharacteristics, NicRule, RamRule, SystemVendorRule,
};
use inventory::{HardwareDetails, Nic, Storage};
use terms::clean;

/// Bytes of a GB of disks (baremetal-operator's `GigaByte`).
const DISK_GB: i64 = 1_000_000_000;
/// MiB of a GB of memory, as upstream has it.
const RAM_GB: i64 = 1024;
/// Characters that each part of a version is padded to.
const VERSION_PART: usize = 4;
/// The one SCSI address that selectors and disks may name without `N`.
const FIRST_DISK: &str = "0:0:0:0";
/// What it counts as.
const FIRST_DISK_PATTERN: &str = "0:0:N:0";
/// Most characters of a text that a reason repeats.
const MOST_SHOWN: usize = 64;

/// What a classification asks for, of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// At least so many, with their unit.
    AtLeast(i64, &'static str),
    /// At most so many, with their unit.
    AtMost(i64, &'static str),
    /// This very text.
    Exactly(&'a str),
    /// A text with this in it.
    Containing(&'a str),
    /// A version from the first to the second.
    Versions(&'a str, &'a str),
    /// A disk that the selector finds.
    Disk(&'a DiskSelector),
    /// An interface of this maker.
    Interface(&'a str),
}

/// What inspection has found there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// Nothing.
    Nothing,
    /// So many.
    Count(i64),
    /// A clock in MHz.
    Clock(f64),
    /// A text.
    Text(&'a str),
    /// A disk of that name and size in bytes.
    Disk(&'a str, i64),
    /// Only others than that, so many.
    Others(usize),
}

/// A field that does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mismatch<'a> {
    /// The field of `spec.hardwareCharacteristics`.
    pub field: &'static str,
    /// What it asks for.
    pub wanted: Wanted<'a>,
    /// What was found.
    pub found: Found<'a>,
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| clean(text, MOST_SHOWN);
        match *self {
            Self::AtLeast(number, unit) => write!(f, "at least {number}{unit}"),
            Self::AtMost(number, unit) => write!(f, "at most {number}{unit}"),
            Self::Exactly(text) => write!(f, "«{}»", shown(text)),
            Self::Containing(text) => write!(f, "a text with «{}»", shown(text)),
            Self::Versions(from, to) => write!(f, "a version from {} to {}", shown(from), shown(to)),
            Self::Disk(selector) => {
                let kind = if selector.rotational == Some(true) { "rotates" } else { "does not rotate" };
                match selector.hctl.as_deref().filter(|hctl| !hctl.is_empty()) {
                    Some(hctl) => write!(f, "a disk at {} that {kind}", shown(hctl)),
                    None => write!(f, "a disk without SCSI address that {kind}"),
                }
            }
            Self::Interface(vendor) => write!(f, "an interface of {}", shown(vendor)),
        }
    }
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nothing => f.write_str("nothing"),
            Self::Count(number) => write!(f, "{number}"),
            Self::Clock(clock) => write!(f, "{clock} MHz"),
            Self::Text(text) => write!(f, "«{}»", clean(text, MOST_SHOWN)),
            Self::Disk(name, bytes) => write!(f, "{} of {bytes} bytes", clean(name, MOST_SHOWN)),
            Self::Others(number) => write!(f, "none among {number}"),
        }
    }
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} wanted, {} found", self.field, self.wanted, self.found)
    }
}

type Seen<'a, 'f> = &'f mut dyn FnMut(Mismatch<'a>) -> ControlFlow<()>;

/// Each field that does not hold, in the order in which upstream compares them; none if the host matches.
#[must_use]
pub fn judge<'a>(wanted: &'a HardwareCharacteristics, found: &'a HardwareDetails) -> Vec<Mismatch<'a>> {
    let mut all = Vec::new();
    let _ = compare(wanted, found, &mut |mismatch| {
        all.push(mismatch);
        ControlFlow::Continue(())
    });
    all
}

/// Whether all that is asked for holds. Allocates nothing.
#[must_use]
pub fn matches(wanted: &HardwareCharacteristics, found: &HardwareDetails) -> bool {
    compare(wanted, found, &mut |_| ControlFlow::Break(())).is_continue()
}

fn compare<'a>(wanted: &'a HardwareCharacteristics, found: &'a HardwareDetails, seen: Seen<'a, '_>) -> ControlFlow<()> {
    if let Some(rule) = &wanted.system_vendor {
        system_vendor(rule, found, seen)?;
    }
    if let Some(rule) = wanted.firmware.as_ref().and_then(|firmware| firmware.bios.as_ref()) {
        bios(rule, found, seen)?;
    }
    if let Some(rule) = &wanted.cpu {
        cpu(rule, found, seen)?;
    }
    if let Some(rule) = &wanted.ram {
        ram(rule, found, seen)?;
    }
    if let Some(rule) = &wanted.nic {
        nics(rule, &found.nics, seen)?;
    }
    if let Some(rule) = &wanted.disk {
        disks(rule, &found.storage, seen)?;
    }
    ControlFlow::Continue(())
}

/// The text, if it asks for or tells anything.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// The end of a range, if it is one.
fn end(number: Option<i64>) -> Option<i64> {
    number.filter(|number| *number > 0)
}

fn text<'a>(found: Option<&'a str>) -> Found<'a> {
    found.map_or(Found::Nothing, Found::Text)
}

fn system_vendor<'a>(rule: &'a SystemVendorRule, found: &'a HardwareDetails, seen: Seen<'a, '_>) -> ControlFlow<()> {
    let vendor = found.system_vendor.as_ref();
    let manufacturer = given(vendor.and_then(|vendor| vendor.manufacturer.as_ref()));
    if let Some(wanted) = given(rule.manufacturer.as_ref())
        && manufacturer != Some(wanted)
    {
        seen(Mismatch {
            field: "systemVendor.manufacturer",
            wanted: Wanted::Exactly(wanted),
            found: text(manufacturer),
        })?;
    }
    let product = given(vendor.and_then(|vendor| vendor.product_name.as_ref()));
    if let Some(wanted) = given(rule.product_name.as_ref())
        && !product.is_some_and(|product| product.contains(wanted))
    {
        seen(Mismatch { field: "systemVendor.productName", wanted: Wanted::Containing(wanted), found: text(product) })?;
    }
    ControlFlow::Continue(())
}

fn bios<'a>(rule: &'a BiosRule, found: &'a HardwareDetails, seen: Seen<'a, '_>) -> ControlFlow<()> {
    let bios = found.firmware.as_ref().and_then(|firmware| firmware.bios.as_ref());
    let vendor = given(bios.and_then(|bios| bios.vendor.as_ref()));
    if let Some(wanted) = given(rule.vendor.as_ref())
        && vendor != Some(wanted)
    {
        seen(Mismatch { field: "firmware.bios.vendor", wanted: Wanted::Exactly(wanted), found: text(vendor) })?;
    }
    let version = given(bios.and_then(|bios| bios.version.as_ref()));
    if let (Some(from), Some(to)) = (given(rule.minor_version.as_ref()), given(rule.major_version.as_ref())) {
        let is = version.unwrap_or_default();
        let below = version_order(is, from) == Ordering::Less;
        if below || version_order(is, to) == Ordering::Greater {
            let field = if below { "firmware.bios.minorVersion" } else { "firmware.bios.majorVersion" };
            seen(Mismatch { field, wanted: Wanted::Versions(from, to), found: text(version) })?;
        }
    }
    ControlFlow::Continue(())
}

/// Versions as upstream orders them: as text, each part padded with zeros to four characters.
pub(crate) fn version_order(a: &str, b: &str) -> Ordering {
    fn padded(version: &str) -> impl Iterator<Item = char> {
        version.split('.').flat_map(|part| {
            let missing = VERSION_PART.saturating_sub(part.chars().take(VERSION_PART).count());
            std::iter::repeat_n('0', missing).chain(part.chars())
        })
    }
    padded(a).cmp(padded(b))
}

/// A field with the end of a range that it gives.
type End = (&'static str, Option<i64>);

fn count<'a>(
    (least, most): (End, End),
    found: Option<i64>,
    (scale, unit): (i64, &'static str),
    seen: Seen<'a, '_>,
) -> ControlFlow<()> {
    let number = found.unwrap_or(0);
    let shown = found.map_or(Found::Nothing, Found::Count);
    if let Some(least_of) = end(least.1)
        && number < least_of.saturating_mul(scale)
    {
        seen(Mismatch { field: least.0, wanted: Wanted::AtLeast(least_of.saturating_mul(scale), unit), found: shown })?;
    }
    if let Some(most_of) = end(most.1)
        && number > most_of.saturating_mul(scale)
    {
        seen(Mismatch { field: most.0, wanted: Wanted::AtMost(most_of.saturating_mul(scale), unit), found: shown })?;
    }
    ControlFlow::Continue(())
}

#[allow(clippy::cast_precision_loss, reason = "clocks are far below 2^52 MHz")]
fn cpu<'a>(rule: &'a CpuRule, found: &'a HardwareDetails, seen: Seen<'a, '_>) -> ControlFlow<()> {
    let cpu = found.cpu.as_ref();
    let range = (("cpu.minimumCount", rule.minimum_count), ("cpu.maximumCount", rule.maximum_count));
    count(range, cpu.and_then(|cpu| cpu.count), (1, ""), seen)?;
    let clock = cpu.and_then(|cpu| cpu.clock_megahertz);
    let (is, shown) = (clock.unwrap_or(0.0), clock.map_or(Found::Nothing, Found::Clock));
    if let Some(least) = end(rule.minimum_speed_mhz)
        && is < least as f64
    {
        seen(Mismatch { field: "cpu.minimumSpeedMHz", wanted: Wanted::AtLeast(least, " MHz"), found: shown })?;
    }
    if let Some(most) = end(rule.maximum_speed_mhz)
        && is > most as f64
    {
        seen(Mismatch { field: "cpu.maximumSpeedMHz", wanted: Wanted::AtMost(most, " MHz"), found: shown })?;
    }
    let architecture = given(cpu.and_then(|cpu| cpu.arch.as_ref()));
    if let Some(wanted) = given(rule.architecture.as_ref())
        && architecture != Some(wanted)
    {
        seen(Mismatch { field: "cpu.architecture", wanted: Wanted::Exactly(wanted), found: text(architecture) })?;
    }
    ControlFlow::Continue(())
}

fn ram<'a>(rule: &'a RamRule, found: &'a HardwareDetails, seen: Seen<'a, '_>) -> ControlFlow<()> {
    let range = (("ram.minimumSizeGB", rule.minimum_size_gb), ("ram.maximumSizeGB", rule.maximum_size_gb));
    count(range, found.ram_mebibytes, (RAM_GB, " MiB"), seen)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn nics<'a>(rule: &'a NicRule, found: &'a [Nic], seen: Seen<'a, '_>) -> ControlFlow<()> {
    let range = (("nic.minimumCount", rule.minimum_count), ("nic.maximumCount", rule.maximum_count));
    count(range, Some(number(found.len())), (1, ""), seen)?;
    let vendors = rule.nic_selector.iter().flat_map(|selector| &selector.vendor);
    if vendors.clone().count() > found.len() {
        let wanted = Wanted::AtLeast(number(vendors.count()), "");
        return seen(Mismatch { field: "nic.nicSelector.vendor", wanted, found: Found::Count(number(found.len())) });
    }
    for vendor in vendors {
        // `model` begins with the vendor's id.
        let is = |nic: &Nic| nic.model.as_ref().and_then(|model| model.split_whitespace().next()) == Some(vendor);
        if !found.iter().any(is) {
            let (wanted, found) = (Wanted::Interface(vendor), Found::Others(found.len()));
            seen(Mismatch { field: "nic.nicSelector.vendor", wanted, found })?;
        }
    }
    ControlFlow::Continue(())
}

/// Whether the selector means the disk.
fn selects(selector: &DiskSelector, disk: &Storage) -> bool {
    let wanted = match selector.hctl.as_deref().unwrap_or_default() {
        FIRST_DISK => FIRST_DISK_PATTERN,
        wanted => wanted,
    };
    let is = match disk.hctl.as_deref().unwrap_or_default() {
        FIRST_DISK => FIRST_DISK_PATTERN,
        is => is,
    };
    let pattern = is.split(':').map(|part| if is_positive(part) { "N" } else { part });
    pattern.eq(wanted.split(':')) && selector.rotational.unwrap_or(false) == disk.rotational.unwrap_or(false)
}

/// Whether a part of a SCSI address is a number above 0.
fn is_positive(part: &str) -> bool {
    let digits = part.strip_prefix('+').unwrap_or(part);
    digits.bytes().all(|digit| digit.is_ascii_digit()) && digits.bytes().any(|digit| digit != b'0')
}

/// Whether a selector may find any disk: a number above 0 is `N` in what disks are compared by.
pub(crate) fn may_select(selector: &DiskSelector) -> bool {
    let hctl = selector.hctl.as_deref().unwrap_or_default();
    hctl == FIRST_DISK || !hctl.split(':').any(is_positive)
}

fn disks<'a>(rule: &'a DiskRule, found: &'a [Storage], seen: Seen<'a, '_>) -> ControlFlow<()> {
    for selector in &rule.disk_selector {
        if !found.iter().any(|disk| selects(selector, disk)) {
            let (wanted, found) = (Wanted::Disk(selector), Found::Others(found.len()));
            seen(Mismatch { field: "disk.diskSelector", wanted, found })?;
        }
    }
    let selectors = &rule.disk_selector;
    let is_meant = |disk: &&Storage| selectors.is_empty() || selectors.iter().any(|selector| selects(selector, disk));
    let meant = found.iter().filter(is_meant);
    let range = (("disk.minimumCount", rule.minimum_count), ("disk.maximumCount", rule.maximum_count));
    count(range, Some(number(meant.clone().count())), (1, ""), seen)?;
    for disk in meant {
        let size = disk.size_bytes.unwrap_or(0);
        let shown = Found::Disk(disk.name.as_deref().unwrap_or("a disk"), size);
        if let Some(least) = end(rule.minimum_individual_size_gb)
            && size < least.saturating_mul(DISK_GB)
        {
            let wanted = Wanted::AtLeast(least, " GB");
            seen(Mismatch { field: "disk.minimumIndividualSizeGB", wanted, found: shown })?;
        }
        if let Some(most) = end(rule.maximum_individual_size_gb)
            && size > most.saturating_mul(DISK_GB)
        {
            let wanted = Wanted::AtMost(most, " GB");
            seen(Mismatch { field: "disk.maximumIndividualSizeGB", wanted, found: shown })?;
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_padded_text() {
        for (a, b, order) in [
            ("1.9", "1.10", Ordering::Less),
            ("1.5.6", "1.5.6", Ordering::Equal),
            ("1.3", "1.4.6", Ordering::Less),
            ("", "0", Ordering::Equal),
            ("10.0", "9.9.9", Ordering::Greater),
            ("12345", "2", Ordering::Greater),
            // A part of more than four characters shifts what follows: as upstream has it.
            ("U32 v2.10", "U30", Ordering::Greater),
        ] {
            assert_eq!(version_order(a, b), order, "{a} {b}");
        }
    }

    #[test]
    fn numbers_above_zero_of_a_scsi_address_are_one_pattern() {
        let disk = |hctl: &str| Storage { hctl: Some(hctl.to_owned()), ..Storage::default() };
        let selector = |hctl: &str| DiskSelector { hctl: Some(hctl.to_owned()), rotational: None };
        for (wanted, is, does) in [
            ("0:0:N:0", "0:0:1:0", true),
            ("0:0:N:0", "0:0:0:0", true),
            ("0:0:0:0", "0:0:31:0", true),
            ("0:N:N:0", "0:2:1:0", true),
            ("N:0:0:0", "12:0:0:0", true),
            ("N:0:0:0", "0:0:1:0", false),
            ("0:0:1:0", "0:0:1:0", false),
            ("0:0:N:0", "1:0:0:0", false),
            ("", "", true),
            ("", "0:0:0:0", false),
        ] {
            assert_eq!(selects(&selector(wanted), &disk(is)), does, "{wanted} {is}");
        }
        assert!(selects(&DiskSelector::default(), &Storage::default()), "NVMe has no SCSI address");
        assert!(
            !may_select(&selector("0:0:1:0")) && may_select(&selector("0:0:N:0")) && may_select(&selector("0:0:0:0"))
        );
    }

    #[test]
    fn a_reason_says_what_was_wanted_and_what_was_found_in_clean_words() {
        let rule = SystemVendorRule { manufacturer: Some("Dell Inc.".into()), product_name: None };
        let wanted = HardwareCharacteristics { system_vendor: Some(rule), ..HardwareCharacteristics::default() };
        let vendor = inventory::SystemVendor { manufacturer: Some("\u{1b}[2JEvil\n".repeat(40)), ..Default::default() };
        let found = HardwareDetails { system_vendor: Some(vendor), ..HardwareDetails::default() };
        let said = judge(&wanted, &found)[0].to_string();
        assert!(said.starts_with("systemVendor.manufacturer: «Dell Inc.» wanted, «[2JEvil"), "{said}");
        assert!(said.len() < 200 && !said.contains('\u{1b}') && !said.contains('\n'), "{said}");
        assert_eq!(
            judge(&wanted, &HardwareDetails::default())[0].to_string(),
            "systemVendor.manufacturer: «Dell Inc.» wanted, nothing found"
        );
    }
}
