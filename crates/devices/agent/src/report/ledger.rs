//! What outlives the agent's process, but not the machine's boot: which commands were begun.
//!
//! Should the agent be started anew on the same boot, it must not run a command a second time; and its reports must not count from
//! 1 again, or the server takes them for old ones.

use std::io;
use std::path::PathBuf;

use agent_protocol::CommandId;
use serde::{Deserialize, Serialize};

/// Most commands remembered: the server has one at a time, and never comes back to an old attempt.
const MAX_STARTED: usize = 1024;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    boot_id: String,
    starts: u64,
    started: Vec<CommandId>,
}

/// A small file below `/run`.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    content: Content,
}

impl Ledger {
    /// Opens the ledger of this boot; that of another boot is begun anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: PathBuf, boot_id: &str) -> io::Result<Self> {
        let old: Option<Content> = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut content = old.filter(|content| content.boot_id == boot_id).unwrap_or_default();
        content.boot_id = boot_id.to_owned();
        content.starts = content.starts.saturating_add(1);
        let ledger = Self { path, content };
        ledger.write()?;
        Ok(ledger)
    }

    /// What the reports of this process are counted from: 0 for the first one of a boot.
    #[must_use]
    pub fn sequence_base(&self) -> u64 {
        (self.content.starts - 1).min(1 << 20) << 32
    }

    /// Whether the command was begun by an earlier process of this boot.
    #[must_use]
    pub fn was_started(&self, id: &CommandId) -> bool {
        self.content.started.contains(id)
    }

    /// Notes that a command begins; written before it does.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(&mut self, id: &CommandId) -> io::Result<()> {
        if self.content.started.len() >= MAX_STARTED {
            self.content.started.remove(0);
        }
        self.content.started.push(id.clone());
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, serde_json::to_vec(&self.content)?)?;
        std::fs::rename(&beside, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_remembers_and_a_new_boot_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/ledger.json");
        let id = CommandId { operation: "o".into(), step: "s".into(), attempt: 1, boot_id: "b".into() };
        let mut first = Ledger::open(path.clone(), "b").unwrap();
        assert_eq!((first.sequence_base(), first.was_started(&id)), (0, false));
        first.start(&id).unwrap();
        let second = Ledger::open(path.clone(), "b").unwrap();
        assert_eq!((second.sequence_base(), second.was_started(&id)), (1 << 32, true));
        let other = Ledger::open(path.clone(), "c").unwrap();
        assert_eq!((other.sequence_base(), other.was_started(&id)), (0, false));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Ledger::open(path, "c").unwrap().sequence_base(), 0);
    }
}
