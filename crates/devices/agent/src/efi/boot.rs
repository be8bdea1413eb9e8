//! Our own boot entries: created, moved to the front, and cleaned up.
//!
//! Source: UEFI specification 2.10, 3.1 (boot manager), 3.3 (`BootOrder`, `Boot####`).

use thiserror::Error;

use super::device_path::{self, FilePath};
use super::load_option::{ACTIVE, LoadOption};
use super::variables::{EfiVariables, GLOBAL, VariableError};

/// Prefix of all our labels.
pub const LABEL_PREFIX: &str = "metamorph ";

/// Longest label, in characters: firmware menus cut longer ones.
const MAX_LABEL: usize = 64;

/// Why no boot entry was made.
#[derive(Debug, Error)]
pub enum BootError {
    /// The firmware refused.
    #[error(transparent)]
    Variable(#[from] VariableError),
    /// All 65536 numbers are in use.
    #[error("making a boot entry failed: the firmware has no free number for it")]
    NoNumber,
    /// The loader's path cannot be written.
    #[error("making a boot entry failed: the loader's path {0:?} is too long")]
    Path(String),
}

/// The target of one of our entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Partition and file.
    pub path: FilePath,
    /// Options for the loader; usually empty.
    pub options: String,
}

/// An entry of the firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootEntry {
    /// Number in `Boot####`.
    pub number: u16,
    /// Contents.
    pub option: LoadOption,
}

impl BootEntry {
    /// `Boot0003`.
    #[must_use]
    pub fn name(&self) -> String {
        entry_name(self.number)
    }
}

fn entry_name(number: u16) -> String {
    format!("Boot{number:04X}")
}

fn variable(name: &str) -> String {
    format!("{name}-{GLOBAL}")
}

/// The label for a loader's own name: our prefix, plain text, bounded length.
#[must_use]
pub fn label(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control()).collect();
    let plain = if plain.trim().is_empty() { "system" } else { plain.trim() };
    format!("{LABEL_PREFIX}{plain}").chars().take(MAX_LABEL).collect()
}

/// All entries that can be understood, by number.
///
/// # Errors
/// [`VariableError`] when one cannot be read.
pub fn entries(variables: &EfiVariables) -> Result<Vec<BootEntry>, VariableError> {
    let mut found = Vec::new();
    for name in variables.names() {
        let Some(number) = name.strip_suffix(&format!("-{GLOBAL}")).and_then(number_of) else { continue };
        if let Some(option) = variables.read(&name)?.as_deref().and_then(LoadOption::decode) {
            found.push(BootEntry { number, option });
        }
    }
    Ok(found)
}

/// Number of `Boot0003`; the specification writes it with upper-case digits.
fn number_of(name: &str) -> Option<u16> {
    let digits = name.strip_prefix("Boot").filter(|digits| digits.len() == 4)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte));
    u16::from_str_radix(digits, 16).ok().filter(|_| plain)
}

fn order(variables: &EfiVariables) -> Result<Vec<u16>, VariableError> {
    let value = variables.read(&variable("BootOrder"))?.unwrap_or_default();
    Ok(value.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect())
}

fn set_order(variables: &EfiVariables, order: &[u16]) -> Result<(), VariableError> {
    let value: Vec<u8> = order.iter().flat_map(|number| number.to_le_bytes()).collect();
    variables.write(&variable("BootOrder"), &value)
}

/// Creates an entry for `target` under `label` and puts it first in the order. Reuses an entry with the same contents; removes older ones with the
/// same label whose partition is gone according to `is_gone`.
///
/// # Errors
/// [`BootError`].
pub fn install(
    variables: &EfiVariables,
    label: &str,
    target: &Target,
    is_gone: &dyn Fn(&[u8; 16]) -> bool,
) -> Result<BootEntry, BootError> {
    let too_long = || BootError::Path(target.path.file.clone());
    let path = device_path::encode(&target.path).ok_or_else(too_long)?;
    // UTF-16 with a terminating zero, as UEFI boot loaders expect their options
    let end = usize::from(!target.options.is_empty());
    let units = target.options.encode_utf16().chain(std::iter::repeat_n(0, end));
    let data = units.flat_map(u16::to_le_bytes).collect();
    let option = LoadOption { attributes: ACTIVE, description: label.to_owned(), path, data };
    let value = option.encode().ok_or_else(too_long)?;
    remove(variables, &|entry| {
        let partition = device_path::partition(&entry.option.path);
        entry.option.description == label && partition.is_some_and(|partition| is_gone(&partition.guid))
    })?;
    let present = entries(variables)?;
    let same = present.iter().find(|entry| entry.option == option).map(|entry| entry.number);
    let taken = |number: &u16| present.iter().any(|entry| entry.number == *number);
    let names = variables.names();
    let unused = |number: &u16| !taken(number) && !names.contains(&variable(&entry_name(*number)));
    let number = same.or_else(|| (0..=u16::MAX).find(unused)).ok_or(BootError::NoNumber)?;
    let entry = BootEntry { number, option };
    variables.write(&variable(&entry.name()), &value)?;
    let mut order = order(variables)?;
    order.retain(|other| *other != number);
    order.insert(0, number);
    set_order(variables, &order)?;
    Ok(entry)
}

/// Removes the entries that `unwanted` names, from the order first; gives their names.
///
/// # Errors
/// [`VariableError`].
pub fn remove(variables: &EfiVariables, unwanted: &dyn Fn(&BootEntry) -> bool) -> Result<Vec<String>, VariableError> {
    let doomed: Vec<BootEntry> = entries(variables)?.into_iter().filter(|entry| unwanted(entry)).collect();
    if doomed.is_empty() {
        return Ok(Vec::new());
    }
    let mut order = order(variables)?;
    order.retain(|number| !doomed.iter().any(|entry| entry.number == *number));
    set_order(variables, &order)?;
    for entry in &doomed {
        variables.remove(&variable(&entry.name()))?;
    }
    Ok(doomed.iter().map(BootEntry::name).collect())
}

#[cfg(test)]
mod tests {
    use super::super::device_path::HardDrive;
    use super::*;

    fn target(byte: u8) -> Target {
        let partition = HardDrive { number: 1, start: 2048, blocks: 100, guid: [byte; 16] };
        Target { path: FilePath { partition, file: "\\EFI\\x\\shimx64.efi".into() }, options: String::new() }
    }

    #[test]
    fn an_entry_goes_first_once_and_older_ones_of_gone_partitions_go() {
        let folder = tempfile::tempdir().unwrap();
        let variables = EfiVariables::new(folder.path());
        let other =
            LoadOption { attributes: 1, description: "UEFI Shell".into(), path: vec![0x7F, 0xFF, 4, 0], data: vec![] };
        variables.write(&variable("Boot0000"), &other.encode().unwrap()).unwrap();
        set_order(&variables, &[0]).unwrap();
        let label = label("Debian\u{7}");
        assert_eq!(label, "metamorph Debian");

        let first = install(&variables, &label, &target(1), &|_| false).unwrap();
        assert_eq!(first.name(), "Boot0001");
        let again = install(&variables, &label, &target(1), &|_| false).unwrap();
        assert_eq!(again, first);
        assert_eq!(order(&variables).unwrap(), [1, 0]);

        let second = install(&variables, &label, &target(2), &|guid| *guid == [1; 16]).unwrap();
        assert_eq!(second.number, 1, "the number of the removed entry is free again");
        assert_eq!(order(&variables).unwrap(), [1, 0]);
        assert_eq!(entries(&variables).unwrap().len(), 2);

        let gone = remove(&variables, &|entry| entry.option.description.starts_with(LABEL_PREFIX)).unwrap();
        assert_eq!(gone, ["Boot0001"]);
        assert_eq!(order(&variables).unwrap(), [0]);
        assert_eq!(device_path::decode(&second.option.path), Some(target(2).path));
    }

    #[test]
    fn a_damaged_entry_keeps_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let variables = EfiVariables::new(folder.path());
        variables.write(&variable("Boot0000"), &[1]).unwrap();
        let entry = install(&variables, "metamorph x", &target(1), &|_| false).unwrap();
        assert_eq!(entry.number, 1);
        assert_eq!(number_of("Boot00a1"), None);
        assert_eq!(number_of("Boot00A1"), Some(0xA1));
    }
}
