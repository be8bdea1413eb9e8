//! Backup while running, and restore.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::sqlite::{FORMAT, sql, unsql};

/// How far a restore advances the revision beyond all that were ever handed out. A server writes less than this
/// between a backup and its restore, so no client sees a revision with two meanings.
const JUMP: u64 = 1_000_000_000;

/// Why a backup or restore failed. The previous files are kept.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// SQLite said no.
    #[error("{what} {} failed", path.display())]
    Sqlite {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A file could not be created, synced or moved.
    #[error("{what} {} failed", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is no backup of a store.
    #[error("{} is no backup of an embedded API: {why}", path.display())]
    NotABackup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The backup was written by a newer program.
    #[error("the backup has format {found}, this program knows up to {known}: use a newer program")]
    Format {
        /// Format in the file.
        found: i64,
        /// Highest known format.
        known: i64,
    },
}

fn sqlite<'a>(what: &'static str, path: &'a Path) -> impl Fn(rusqlite::Error) -> BackupError + 'a {
    move |source| BackupError::Sqlite { what, path: path.to_owned(), source }
}

fn file<'a>(what: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> BackupError + 'a {
    move |source| BackupError::File { what, path: path.to_owned(), source }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Syncs a file and its folder.
fn sync(path: &Path) -> Result<(), BackupError> {
    std::fs::File::open(path).and_then(|f| f.sync_all()).map_err(file("syncing", path))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder).and_then(|f| f.sync_all()).map_err(file("syncing", folder))
}

/// Copies a consistent snapshot of `from` to the new file `to`. Writers of `from` continue meanwhile.
fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // It holds Secrets.
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(file("making", to))?;
    let source =
        Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite("opening", from))?;
    source.busy_timeout(Duration::from_secs(10)).map_err(sqlite("opening", from))?;
    let mut target = Connection::open(to).map_err(sqlite("opening", to))?;
    {
        let copying = Backup::new(&source, &mut target).map_err(sqlite("copying", from))?;
        // All pages in one step, for a consistent snapshot.
        copying.run_to_completion(i32::MAX, Duration::from_millis(50), None).map_err(sqlite("copying", from))?;
    }
    // A single file without a log.
    target.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).map_err(sqlite("closing", to))?;
    target.close().map_err(|(_, e)| sqlite("closing", to)(e))?;
    sync(to)
}

/// Writes a backup of the store `store` to the new file `to`, even while a server uses it.
pub fn backup(store: &Path, to: &Path) -> Result<(), BackupError> {
    let done = copy(store, to);
    if done.as_ref().is_err_and(|e| !matches!(e, BackupError::File { what: "making", .. })) {
        let _ = std::fs::remove_file(to);
    }
    done
}

/// The newest revision that the store has handed out.
fn newest(connection: &Connection) -> rusqlite::Result<u64> {
    let newest: i64 = connection.query_row(
        "SELECT max(coalesce((SELECT max(rev) FROM rows), 0),
                    coalesce((SELECT value FROM marks WHERE name='compacted'), 0))",
        [],
        |r| r.get(0),
    )?;
    Ok(unsql(newest))
}

fn check(path: &Path) -> Result<u64, BackupError> {
    let wrong = |why: String| BackupError::NotABackup { path: path.to_owned(), why };
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite("opening", path))?;
    let format: i64 =
        connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(|e| wrong(e.to_string()))?;
    if format > FORMAT {
        return Err(BackupError::Format { found: format, known: FORMAT });
    }
    let sound: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |r| r.get(0)).map_err(|e| wrong(e.to_string()))?;
    if format < 1 || sound != "ok" {
        return Err(wrong(if format < 1 { "it has no format version".to_owned() } else { sound }));
    }
    newest(&connection).map_err(|e| wrong(e.to_string()))
}

/// Replaces `store` by the backup `from`. No server may use it. The former file is kept beside it as `.old`.
///
/// Revisions continue far beyond all that were ever handed out, and all history counts as compacted, so clients with
/// older watches must list again.
pub fn restore(store: &Path, from: &Path) -> Result<(), BackupError> {
    let mut rev = check(from)?;
    let made = beside(store, ".new");
    let _ = std::fs::remove_file(&made);
    copy(from, &made)?;
    if store.exists() {
        // The checkpoint moves its log into it. An unreadable store does not prevent the restore.
        let present = Connection::open(store).and_then(|present| {
            let found = newest(&present)?;
            present.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(found)
        });
        rev = rev.max(present.unwrap_or(0));
    }
    let mark = rev.saturating_add(JUMP);
    let target = Connection::open(&made).map_err(sqlite("opening", &made))?;
    target
        .execute_batch(&format!(
            "BEGIN IMMEDIATE;
             DELETE FROM rows WHERE deleted=1 OR rev NOT IN (SELECT rev FROM current);
             INSERT INTO marks VALUES ('compacted', {mark}) ON CONFLICT(name) DO UPDATE SET value=excluded.value;
             COMMIT;",
            mark = sql(mark)
        ))
        .map_err(sqlite("marking", &made))?;
    target.close().map_err(|(_, e)| sqlite("closing", &made)(e))?;
    sync(&made)?;
    for suffix in ["-wal", "-shm"] {
        // The log of another file must never be applied to this one.
        let left = beside(store, suffix);
        if left.exists() {
            std::fs::remove_file(&left).map_err(file("removing", &left))?;
        }
    }
    let old = beside(store, ".old");
    let _ = std::fs::remove_file(&old);
    if store.exists() {
        std::fs::hard_link(store, &old).map_err(file("keeping", store))?;
    }
    std::fs::rename(&made, store).map_err(file("putting in place", store))?;
    sync(store)
}
