//! The audit log: one JSON line per request.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use crate::server::CountKey;

/// An open log.
pub struct Audit {
    file: Mutex<File>,
}

impl Audit {
    /// Opens the file to append to; it is made with mode 0600.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one line. Bodies and queries are not logged: they may hold secrets.
    pub fn write(&self, user: &str, what: &CountKey, method: &str, path: &str, code: u16) {
        let line = json!({"time": jiff::Timestamp::now().to_string(), "user": user, "verb": what.0, "resource": what.1,
            "subresource": what.2, "method": method, "path": path, "code": code});
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(file, "{line}") {
            tracing::warn!(%error, "the audit log could not be written");
        }
    }
}
