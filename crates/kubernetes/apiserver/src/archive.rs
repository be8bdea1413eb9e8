//! Backup and restore of a data folder, for the embedding program.

use std::path::Path;

use crate::start::{self, StartError};
use crate::store::{self, BackupError};

/// The store's file in a data folder.
pub const STORE: &str = "store.db";
/// The file with the encryption keys of its Secrets. No backup contains it.
pub const KEYS: &str = "pki/secrets.keys";

/// A restore failed; the folder is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder cannot be locked, most likely because a server uses it.
    #[error("the data folder cannot be restored")]
    Folder(#[from] StartError),
    /// The backup cannot be restored.
    #[error("the backup cannot be restored")]
    Backup(#[from] BackupError),
}

/// Writes a snapshot of all objects in the data folder `data_dir` to the new file `to` (mode 0600), with encrypted
/// Secrets. A server may use the folder meanwhile. Keys and certificates (`pki/`) are not included: without a
/// separate copy of `pki/secrets.keys` no server can start on a restored backup with Secrets.
pub fn backup(data_dir: &Path, to: &Path) -> Result<(), BackupError> {
    store::backup(&data_dir.join(STORE), to)
}

/// Replaces the objects of `data_dir` by those of the backup `from`. No server may use the folder. resourceVersions
/// continue beyond all that were ever handed out, and earlier watches must list again.
pub fn restore(data_dir: &Path, from: &Path) -> Result<(), RestoreError> {
    let _lock = start::take_folder(data_dir)?;
    Ok(store::restore(&data_dir.join(STORE), from)?)
}
