//! Kernel modules: loads those that devices request by their modalias, in the order of the medium's index.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use boot_media::agent_image::LOAD_BY_NAME;
use boot_media::agent_image::index::ModuleIndex;
use rustix::io::Errno;

use super::{has_disk, interfaces};
use crate::text::chain;
use crate::tree::Tree;

/// Largest index.
const MAX_INDEX: u64 = 64 << 20;

/// Deepest folder below `/sys/devices` and most folders looked at.
const MAX_DEPTH: usize = 24;
const MAX_FOLDERS: usize = 200_000;

/// Longest wait for new devices at the start.
const WAIT: Duration = Duration::from_secs(30);
/// Time without new devices before the start goes on.
const QUIET: Duration = Duration::from_millis(1500);
const STEP: Duration = Duration::from_millis(100);

/// Loads modules; remembers the loaded modules and the devices handled.
#[derive(Debug)]
pub struct Loader {
    index: ModuleIndex,
    tree: Tree,
    done: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

impl Loader {
    /// Reads the index of the running kernel. A system without one has its drivers built in: `None`.
    #[must_use]
    pub fn open(tree: &Tree) -> Option<Self> {
        let release = tree.text("proc/sys/kernel/osrelease")?;
        let path = ModuleIndex::path(&release);
        let Some(bytes) = tree.bytes(&path, MAX_INDEX) else {
            tracing::warn!("the medium has no modules for this kernel ({release})");
            return None;
        };
        match serde_json::from_slice(&bytes) {
            Ok(index) => Some(Self { index, tree: tree.clone(), done: BTreeSet::new(), aliases: BTreeSet::new() }),
            Err(error) => {
                tracing::error!("reading {path} failed: {error}");
                None
            }
        }
    }

    /// Loads a module and its dependencies. Logs those that cannot be loaded.
    pub fn load(&mut self, name: &str) {
        let order = match self.index.load_order(name) {
            Ok(order) => order,
            Err(error) => {
                tracing::debug!("{}", chain(&error));
                return;
            }
        };
        for (name, entry) in order {
            if self.done.contains(name) {
                continue;
            }
            let path = self.index.module_path(entry);
            let result = File::open(self.tree.path(&path))
                .map_err(|error| Errno::from_io_error(&error))
                .and_then(|file| rustix::system::finit_module(file, parameters(name), 0).map_err(Some));
            match result {
                Ok(()) | Err(Some(Errno::EXIST)) => tracing::debug!("loaded {name}"),
                // the driver has found no device it likes
                Err(Some(Errno::NODEV)) => tracing::debug!("{name} found no device"),
                Err(Some(error)) => tracing::warn!("loading the kernel module {name} failed: {error}"),
                Err(None) => tracing::warn!("loading the kernel module {name} failed: {path} cannot be read"),
            }
            self.done.insert(name.to_owned());
        }
    }

    /// Loads the modules that no device requests.
    pub fn load_by_name(&mut self) {
        for name in LOAD_BY_NAME {
            self.load(name);
        }
    }

    /// Loads modules for devices not seen before; returns the number of these devices.
    pub fn scan(&mut self) -> usize {
        let mut found = BTreeSet::new();
        let mut folders = 0;
        modaliases(&self.tree.path("sys/devices"), 0, &mut folders, &mut found);
        let new: Vec<String> = found.into_iter().filter(|alias| !self.aliases.contains(alias)).collect();
        for alias in &new {
            let names: Vec<String> = self.index.matching(alias).into_iter().map(str::to_owned).collect();
            names.iter().for_each(|name| self.load(name));
        }
        let count = new.len();
        self.aliases.extend(new);
        count
    }

    /// Scans until nothing new has appeared for a while and a disk and an interface exist, or the time is up. New devices appear as new modaliases (a
    /// bus behind a bus) or as disks and interfaces.
    pub fn wait_until_quiet(&mut self) {
        let start = Instant::now();
        let mut quiet = Instant::now();
        let mut state = (0, 0);
        while start.elapsed() < WAIT {
            let now = (self.tree.names("sys/block").len(), self.tree.names("sys/class/net").len());
            if self.scan() > 0 || now != state {
                quiet = Instant::now();
            }
            state = now;
            if quiet.elapsed() > QUIET && has_disk(&self.tree) && !interfaces(&self.tree).is_empty() {
                break;
            }
            std::thread::sleep(STEP);
        }
        tracing::info!(
            "{} kernel modules loaded for {} devices in {:.1} s",
            self.done.len(),
            self.aliases.len(),
            start.elapsed().as_secs_f64()
        );
    }
}

/// Parameters of a module: without them, bonding would create a bond on its own.
fn parameters(name: &str) -> &'static std::ffi::CStr {
    if name == "bonding" { c"max_bonds=0" } else { c"" }
}

/// Collects the contents of all files `modalias` below a folder; links are not followed.
fn modaliases(folder: &Path, depth: usize, folders: &mut usize, found: &mut BTreeSet<String>) {
    *folders += 1;
    if depth > MAX_DEPTH || *folders > MAX_FOLDERS {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            modaliases(&entry.path(), depth + 1, folders, found);
        } else if entry.file_name() == "modalias"
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            found.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;

    #[test]
    fn all_devices_are_asked_for_their_alias() {
        let folder = tempfile::tempdir().unwrap();
        plant(
            folder.path(),
            &[
                ("a/b/modalias", "pci:v1\n"),
                ("a/modalias", "acpi:X:\n"),
                ("c/modalias", "\n"),
                ("c/uevent", "MODALIAS=x"),
            ],
        );
        std::os::unix::fs::symlink("..", folder.path().join("a/b/up")).unwrap();
        let mut found = BTreeSet::new();
        modaliases(folder.path(), 0, &mut 0, &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["acpi:X:", "pci:v1"]);
    }
}
