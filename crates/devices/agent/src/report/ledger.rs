//! State that outlives the agent's process, but not the machine's boot: the commands begun, and the boot's key.
//!
//! An agent that is restarted within a boot must not run a command a second time, nor number its reports from 1 again: the server would ignore them
//! as old.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use agent_protocol::CommandId;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Most commands remembered: the server sends one at a time, and never returns to an old attempt.
const MAX_STARTED: usize = 1024;

#[derive(Default, Serialize, Deserialize)]
struct Content {
    boot_id: String,
    starts: u64,
    started: Vec<CommandId>,
    /// Proves to the server that this is still the same boot: no other client has it.
    #[serde(default)]
    key: String,
}

/// A small file below `/run`.
pub struct Ledger {
    path: PathBuf,
    content: Content,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens the ledger of this boot; discards that of another boot.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: PathBuf, boot_id: &str) -> io::Result<Self> {
        let old: Option<Content> = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut content = old.filter(|content| content.boot_id == boot_id).unwrap_or_default();
        content.boot_id = boot_id.to_owned();
        content.starts = content.starts.saturating_add(1);
        if content.key.is_empty() {
            content.key = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        }
        let ledger = Self { path, content };
        ledger.write()?;
        Ok(ledger)
    }

    /// Offset of this process's report numbers: 0 for the first process of a boot.
    #[must_use]
    pub fn sequence_base(&self) -> u64 {
        (self.content.starts - 1).min(1 << 20) << 32
    }

    /// The key of this boot: 32 random bytes, in base64url.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.content.key
    }

    /// Whether the command was begun by an earlier process of this boot.
    #[must_use]
    pub fn was_started(&self, id: &CommandId) -> bool {
        self.content.started.contains(id)
    }

    /// Records that a command begins; called before it does.
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
        // Readable by the agent alone. A half-written file of an earlier process is recreated, not reopened.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec(&self.content)?)?;
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
        assert_eq!((second.key(), second.key().len()), (first.key(), 43));
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "nobody else reads it");
        let other = Ledger::open(path.clone(), "c").unwrap();
        assert_eq!((other.sequence_base(), other.was_started(&id)), (0, false));
        assert_ne!(other.key(), first.key());
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Ledger::open(path, "c").unwrap().sequence_base(), 0);
    }
}
