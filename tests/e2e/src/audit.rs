//! What the embedded API's audit log tells: who wrote what.

use anyhow::Context;
use jiff::Timestamp;
use serde_json::Value;

use crate::World;

/// A request that changes something, as it was answered.
#[derive(Clone, Debug)]
pub struct Written {
    /// When it was answered.
    pub time: Timestamp,
    /// Verb: `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Path, without the query.
    pub path: String,
    /// HTTP status of the answer.
    pub code: u64,
}

impl World {
    /// The writes so far, in order; refused ones are among them, the renewals of the server's Lease are not: they belong to no host.
    ///
    /// # Errors
    /// When the log cannot be read, or a line of it has no time.
    pub fn written(&self) -> anyhow::Result<Vec<Written>> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).context("read the audit log")?;
        let mut found = Vec::new();
        for line in text.lines() {
            // The last line may be half written.
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let field = |name: &str| line[name].as_str().unwrap_or_default();
            let verb = field("verb");
            let is_write = matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection");
            // A dry run writes nothing.
            let uri = field("requestURI");
            if !is_write || uri.contains("/leases") || uri.contains("dryRun=All") {
                continue;
            }
            found.push(Written {
                time: field("stageTimestamp").parse().context("read a time of the audit log")?,
                verb: verb.to_owned(),
                path: field("requestURI").split('?').next().unwrap_or_default().to_owned(),
                code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
            });
        }
        Ok(found)
    }
}
