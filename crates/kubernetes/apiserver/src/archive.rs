//! Backup and restore of a data folder, for the program that embeds the server.

use std::path::Path;

use crate::start::{self, StartError};
use crate::store::{self, BackupError};

/// The store's file in a data folder.
pub const STORE: &str = "store.db";
/// The file of the keys that its Secrets are encrypted with. It is in no backup.
pub const KEYS: &str = "pki/secrets.keys";

/// A restore did not happen; the folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder cannot be taken, most likely because a server runs on it.
    #[error("the data folder cannot be restored")]
    Folder(#[from] StartError),
    /// The backup cannot be put in place.
    #[error("the backup cannot be restored")]
    Backup(#[from] BackupError),
}

/// Writes all objects of the data folder `data_dir`, as they are at one moment, to the new file `to` (mode 0600). Its
/// Secrets are encrypted. A server may run on the folder meanwhile. Keys and certificates (`pki/`) are not in it: without
/// `pki/secrets.keys`, kept elsewhere, no server starts on what is restored from it.
pub fn backup(data_dir: &Path, to: &Path) -> Result<(), BackupError> {
    store::backup(&data_dir.join(STORE), to)
}

/// Makes the objects of `data_dir` those of the backup `from`. No server may run on the folder. resourceVersions go on
/// beyond all that were ever handed out, and watches from before are told to list anew.
pub fn restore(data_dir: &Path, from: &Path) -> Result<(), RestoreError> {
    let _lock = start::take_folder(data_dir)?;
    Ok(store::restore(&data_dir.join(STORE), from)?)
}
