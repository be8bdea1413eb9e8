//! Properties of ELF files: whether a program is static, and a kernel module's metadata (`.modinfo`).
//!
//! Format: System V ABI, ELF-64 object file format. Only little-endian 64-bit files are read.

use terms::Architecture;

/// A module's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModInfo {
    /// Name with underscores.
    pub name: String,
    /// Patterns of device aliases, and plain aliases.
    pub aliases: Vec<String>,
    /// Modules that must be loaded before, by name.
    pub depends: Vec<String>,
    /// Modules that should be loaded before, by name or alias.
    pub softdeps_pre: Vec<String>,
}

const MACHINE_X86_64: u64 = 62;
const MACHINE_AARCH64: u64 = 183;
const PROGRAM_INTERPRETER: u64 = 3;
const MAX_TABLE: u64 = 1024;

fn number(bytes: &[u8], at: u64, len: usize) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let field = bytes.get(start..start.checked_add(len)?)?;
    Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

fn slice(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let (start, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
    bytes.get(start..start.checked_add(len)?)
}

fn is_elf64(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF\x02\x01")
}

/// The architecture of a program, or what prevents it from being process 1 of a system without libraries.
pub(super) fn static_program(bytes: &[u8]) -> Result<Architecture, &'static str> {
    let damaged = "it is damaged";
    if !is_elf64(bytes) {
        return Err("it is no 64-bit ELF program");
    }
    let architecture = match number(bytes, 18, 2) {
        Some(MACHINE_X86_64) => Architecture::X86_64,
        Some(MACHINE_AARCH64) => Architecture::Aarch64,
        _ => return Err("it is neither for x86_64 nor for aarch64"),
    };
    let table = number(bytes, 32, 8).ok_or(damaged)?;
    let (size, count) = (number(bytes, 54, 2).ok_or(damaged)?, number(bytes, 56, 2).ok_or(damaged)?);
    if count == 0 || count > MAX_TABLE {
        return Err(damaged);
    }
    for index in 0..count {
        let at = table.checked_add(index * size).ok_or(damaged)?;
        if number(bytes, at, 4).ok_or(damaged)? == PROGRAM_INTERPRETER {
            return Err("it is not static (it names an interpreter); build it with -C target-feature=+crt-static");
        }
    }
    Ok(architecture)
}

/// Reads a module's `.modinfo` section; `None` for anything but a sound module.
pub(super) fn modinfo(bytes: &[u8]) -> Option<ModInfo> {
    if !is_elf64(bytes) {
        return None;
    }
    let section = section(bytes, b".modinfo")?;
    let mut info = ModInfo::default();
    for entry in section.split(|&byte| byte == 0) {
        let Some((key, value)) = std::str::from_utf8(entry).ok().and_then(|entry| entry.split_once('=')) else {
            continue;
        };
        match key {
            "name" => info.name = value.replace('-', "_"),
            "alias" => info.aliases.push(value.to_owned()),
            "depends" => {
                info.depends
                    .extend(value.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")));
            }
            "softdep" => info.softdeps_pre.extend(softdeps_pre(value)),
            _ => {}
        }
    }
    (!info.name.is_empty()).then_some(info)
}

/// Names after `pre:` up to the next word that ends in a colon (modprobe.d(5)).
fn softdeps_pre(value: &str) -> Vec<String> {
    let mut before = false;
    let mut names = Vec::new();
    for word in value.split_ascii_whitespace() {
        if word.ends_with(':') {
            before = word == "pre:";
        } else if before {
            names.push(word.replace('-', "_"));
        }
    }
    names
}

fn section<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let table = number(bytes, 40, 8)?;
    let (size, count, names) = (number(bytes, 58, 2)?, number(bytes, 60, 2)?, number(bytes, 62, 2)?);
    let header = |index: u64| table.checked_add(index.checked_mul(size)?);
    let contents = |header: u64| {
        slice(bytes, number(bytes, header.checked_add(24)?, 8)?, number(bytes, header.checked_add(32)?, 8)?)
    };
    let names = contents(header(names)?)?;
    for index in 0..count {
        let at = header(index)?;
        let name = names.get(usize::try_from(number(bytes, at, 4)?).ok()?..)?;
        if name.split(|&byte| byte == 0).next() == Some(wanted) {
            return contents(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with a names section and a `.modinfo`.
    fn module(info: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let names = b"\0.names\0.modinfo\0";
        elf.extend_from_slice(names);
        elf.extend_from_slice(info);
        let table = elf.len() as u64;
        for (name, offset, len) in [(1_u32, 64, names.len()), (8, 64 + names.len(), info.len())] {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
            elf.extend_from_slice(&header);
        }
        elf[40..48].copy_from_slice(&table.to_le_bytes());
        elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
        elf[60..62].copy_from_slice(&2_u16.to_le_bytes());
        elf
    }

    const INFO: &[u8] = b"name=sample-x\0alias=pci:v1*\0alias=sample\0\0depends=a-b,c\0softdep=pre: d-e f post: g\0";

    #[test]
    fn modinfo_is_understood() {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = ModInfo {
            name: "sample_x".into(),
            aliases: strings(&["pci:v1*", "sample"]),
            depends: strings(&["a_b", "c"]),
            softdeps_pre: strings(&["d_e", "f"]),
        };
        assert_eq!(modinfo(&module(INFO)), Some(expected));
        assert_eq!(modinfo(b"text"), None);
    }

    #[test]
    fn programs_are_told_apart() {
        assert!(static_program(b"#!/bin/sh").unwrap_err().contains("no 64-bit ELF"));
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert!(static_program(&program).unwrap_err().contains("not static"));
        let mut other = program.clone();
        other[18] = 243; // RISC-V
        assert!(static_program(&other).unwrap_err().contains("neither for x86_64 nor for aarch64"));
        // A header and one segment that is loaded: all that is looked at of a static program.
        let mut plain = module(b"");
        plain[32..40].copy_from_slice(&64_u64.to_le_bytes());
        plain[54..56].copy_from_slice(&56_u16.to_le_bytes());
        plain[56..58].copy_from_slice(&1_u16.to_le_bytes());
        for (machine, architecture) in [(62, Architecture::X86_64), (183, Architecture::Aarch64)] {
            plain[18] = machine;
            assert_eq!(static_program(&plain), Ok(architecture));
        }
        assert!(static_program(&program[..60]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(changes in proptest::collection::vec((0_usize..300, 0_u8..), 1..20), cut in 0_usize..300) {
            let mut elf = module(INFO);
            for (at, value) in changes {
                if let Some(byte) = elf.get_mut(at) {
                    *byte = value;
                }
            }
            let _ = (modinfo(&elf), static_program(&elf));
            elf.truncate(cut);
            let _ = (modinfo(&elf), static_program(&elf));
        }
    }
}
