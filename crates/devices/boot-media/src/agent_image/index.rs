//! The kernel modules on the agent's medium, their dependencies, and the devices that request them.
//!
//! It is stored in the initramfs next to the modules, as one JSON document, and replaces depmod's files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Name of the document in `/lib/modules/<release>/`.
pub const FILE_NAME: &str = "metamorph-modules.json";

/// Longest chain of modules that need each other. Debian's longest have about eight.
const MAX_DEPTH: usize = 32;

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleIndex {
    /// Kernel release that the modules are for, as `uname -r` prints it.
    pub release: String,
    /// Modules by name, with underscores.
    pub modules: BTreeMap<String, ModuleEntry>,
    /// Alias patterns with their modules, sorted.
    pub aliases: Vec<(String, String)>,
    /// Modules that are part of the kernel itself.
    pub builtin: BTreeSet<String>,
}

/// One module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleEntry {
    /// Path below `/lib/modules/<release>/`.
    pub path: String,
    /// Modules that must be loaded before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<String>,
    /// Modules or aliases that should be loaded before where there are such.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub softdeps_pre: Vec<String>,
}

/// Why a module cannot be loaded with this index.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IndexError {
    /// Not there.
    #[error("the module {0} is neither on the medium nor in the kernel")]
    Unknown(String),
    /// A module needs itself, through others.
    #[error("the modules that {0} needs need each other in a chain without end")]
    TooDeep(String),
}

/// Module name from a file's path: underscores, without folder and suffix.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".ko").map_or(file, |(stem, _)| stem).replace('-', "_")
}

impl ModuleIndex {
    /// Path of the document of a kernel release in the agent's root file system.
    pub fn path(release: &str) -> String {
        format!("/lib/modules/{release}/{FILE_NAME}")
    }

    /// Path of a module in the agent's root file system.
    pub fn module_path(&self, entry: &ModuleEntry) -> String {
        format!("/lib/modules/{}/{}", self.release, entry.path)
    }

    /// Names of the modules that match a device's modalias (or any alias), in the index's order, each once.
    pub fn matching(&self, modalias: &str) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for (pattern, name) in &self.aliases {
            if !found.contains(&name.as_str()) && glob(pattern.as_bytes(), modalias.as_bytes()) {
                found.push(name);
            }
        }
        found
    }

    /// The modules to load, in this order, for `name` (a module or an alias); empty when it is built into the kernel. Soft dependencies that are
    /// missing are skipped.
    ///
    /// # Errors
    /// [`IndexError`] when it or a required dependency is missing.
    pub fn load_order(&self, name: &str) -> Result<Vec<(&str, &ModuleEntry)>, IndexError> {
        let mut order = Vec::new();
        self.visit(name, 0, &mut order)?;
        Ok(order)
    }

    fn visit<'a>(
        &'a self,
        name: &str,
        depth: usize,
        order: &mut Vec<(&'a str, &'a ModuleEntry)>,
    ) -> Result<(), IndexError> {
        let name = name.replace('-', "_");
        if depth > MAX_DEPTH {
            return Err(IndexError::TooDeep(name));
        }
        if order.iter().any(|(known, _)| *known == name) || self.builtin.contains(&name) {
            return Ok(());
        }
        let Some((key, entry)) = self.modules.get_key_value(&name) else {
            let by_alias: Vec<&str> = self.matching(&name);
            if by_alias.is_empty() {
                return Err(IndexError::Unknown(name));
            }
            return by_alias.into_iter().try_for_each(|found| self.visit(found, depth + 1, order));
        };
        for soft in &entry.softdeps_pre {
            let before = order.len();
            if let Err(IndexError::Unknown(_)) = self.visit(soft, depth + 1, order) {
                order.truncate(before);
            }
        }
        for hard in &entry.depends {
            self.visit(hard, depth + 1, order)?;
        }
        if !order.iter().any(|(known, _)| known == key) {
            order.push((key, entry));
        }
        Ok(())
    }
}

/// Whether `text` matches a pattern with `*`, `?` and `[…]`, as aliases of modules have them (fnmatch(3)).
///
/// Time is bounded by the product of the lengths.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'[') => class(&pattern[p..], text[t]),
            Some(b'?') => Some(1),
            Some(&byte) if byte == text[t] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(len), _) => {
                p += len;
                t += 1;
            }
            (None, Some((after, from))) => {
                p = after;
                t = from + 1;
                star = Some((after, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Length of the character class at the pattern's start, if it contains the byte.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let end = pattern.iter().position(|&byte| byte == b']')?;
    let mut members = &pattern[1..end];
    while let Some((&low, rest)) = members.split_first() {
        if let [b'-', high, after @ ..] = rest {
            if (low..=*high).contains(&byte) {
                return Some(end + 1);
            }
            members = after;
        } else {
            if low == byte {
                return Some(end + 1);
            }
            members = rest;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(modules: &[(&str, &[&str], &[&str])], aliases: &[(&str, &str)], builtin: &[&str]) -> ModuleIndex {
        let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let entry = |(name, depends, soft): &(&str, &[&str], &[&str])| {
            let path = format!("kernel/{name}.ko");
            let entry = ModuleEntry { path, depends: strings(depends), softdeps_pre: strings(soft) };
            ((*name).to_owned(), entry)
        };
        ModuleIndex {
            release: "6".into(),
            modules: modules.iter().map(entry).collect(),
            aliases: aliases.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            builtin: strings(builtin).into_iter().collect(),
        }
    }

    fn names(index: &ModuleIndex, name: &str) -> Result<Vec<String>, IndexError> {
        Ok(index.load_order(name)?.into_iter().map(|(name, _)| name.to_owned()).collect())
    }

    #[test]
    fn what_is_needed_comes_first() {
        let modules: &[(&str, &[&str], &[&str])] = &[
            ("a", &["b", "c", "kernel_part"], &["crc"]),
            ("b", &["c"], &["absent"]),
            ("c", &[], &[]),
            ("crc_fast", &[], &[]),
        ];
        let index = index(modules, &[("crc", "crc_fast")], &["kernel_part"]);
        assert_eq!(names(&index, "a").unwrap(), ["crc_fast", "c", "b", "a"]);
        assert_eq!(names(&index, "kernel-part").unwrap(), [""; 0]);
        assert_eq!(names(&index, "none"), Err(IndexError::Unknown("none".into())));
        assert_eq!(index.module_path(&index.modules["a"]), "/lib/modules/6/kernel/a.ko");
    }

    #[test]
    fn circles_end() {
        let circle = index(&[("a", &["b"], &[]), ("b", &["a"], &[])], &[], &[]);
        assert!(matches!(circle.load_order("a"), Err(IndexError::TooDeep(_))));
        let alias = index(&[], &[("a", "a")], &[]);
        assert!(matches!(alias.load_order("a"), Err(IndexError::TooDeep(_))));
    }

    #[test]
    fn aliases_match_as_the_kernel_means_them() {
        for (pattern, text, expected) in [
            ("pci:v00001AF4d*sv*sd*bc*sc*i*", "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00", true),
            ("pci:v00001AF4d*sv*sd*bc*sc*i*", "pci:v00001AF5d00001000sv00001AF4sd00000001bc02sc00i00", false),
            ("pci:v*d*sv*sd*bc01sc06i01*", "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01", true),
            ("usb:v0BDAp8152d[0-9]*", "usb:v0BDAp8152d3000dc", true),
            ("usb:v0BDAp8152d[0-24-9]*", "usb:v0BDAp8152d3000dc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-", false),
            ("[", "[", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn names_come_from_paths() {
        assert_eq!(module_name("kernel/fs/nls/nls_iso8859-1.ko"), "nls_iso8859_1");
        assert_eq!(module_name("kernel/x.ko.xz"), "x");
    }
}
