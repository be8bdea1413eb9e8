//! The SQLite file: its tables, and the queries of readers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::by_label::{self, ByLabel};
use super::labels::{Labels, Pick};
use super::seal::{self, Keyring, NotReencrypted, Place};
use super::types::{Key, Row, StoreError};
use super::watch::{BATCH, Event, Frames};

/// Version of the tables below, stored in `user_version`. Format 1 had namespaces without the slash, format 2 Secrets
/// in clear text.
pub(super) const FORMAT: i64 = 3;
/// Idle connections kept open for readers.
const KEPT_READERS: usize = 4;
/// Bytes of bodies after which a page of a list, or a batch of events, ends early: each list and watch in delivery
/// has some of them in memory.
const PAGE_BYTES: usize = 128 << 10;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS rows (
    rev INTEGER PRIMARY KEY, resource TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL,
    prev INTEGER NOT NULL, deleted INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS rows_by_key ON rows (resource, ns, name, rev);
CREATE TABLE IF NOT EXISTS current (
    resource TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL, rev INTEGER NOT NULL,
    PRIMARY KEY (resource, ns, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
";

/// The newest revision in the file.
const NEWEST: &str = "SELECT max(coalesce((SELECT max(rev) FROM rows), 0),
                                 coalesce((SELECT value FROM marks WHERE name='compacted'), 0))";

/// The revision up to which history is compacted.
const COMPACTED: &str = "SELECT coalesce((SELECT value FROM marks WHERE name='compacted'), 0)";

/// The result of reading history, or the oldest kept revision if the requested one is compacted.
type OfHistory<T> = Result<T, u64>;

/// The oldest kept revision if `rev` is older. Must run in the reading transaction, to exclude a compaction in
/// between.
fn gone(transaction: &Connection, rev: u64) -> rusqlite::Result<Option<u64>> {
    let oldest = unsql(transaction.prepare_cached(COMPACTED)?.query_row([], |r| r.get(0))?);
    Ok((rev < oldest).then_some(oldest))
}

/// State of the file when it was opened.
pub(super) struct Opened {
    pub(super) revision: u64,
    pub(super) compacted: u64,
    pub(super) keys: Arc<Keyring>,
}

/// The namespace as stored, with a slash: keys then sort as in kube-apiserver, where namespace and name are one text
/// (`x-y/a` comes before `x/a`).
pub(super) fn stored_ns(ns: &str) -> String {
    if ns.is_empty() { String::new() } else { format!("{ns}/") }
}

/// The namespace of a stored row.
fn ns_of(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<String> {
    let mut ns: String = row.get(column)?;
    if ns.ends_with('/') {
        ns.pop();
    }
    Ok(ns)
}

/// SQLite integers are signed; revisions never reach the sign bit.
pub(super) fn sql(rev: u64) -> i64 {
    i64::try_from(rev).unwrap_or(i64::MAX)
}

pub(super) fn unsql(rev: i64) -> u64 {
    u64::try_from(rev).unwrap_or(0)
}

pub(super) fn failed(what: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |source| StoreError::Sqlite { what, source }
}

/// Creates the file with mode 0600 because it holds Secrets. SQLite's helper files inherit it.
fn private(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file).map(drop)
}

/// Reads the newest revision and the compaction mark.
pub(super) fn opened(connection: &Connection, keys: Arc<Keyring>) -> Result<Opened, StoreError> {
    let newest: i64 = connection
        .query_row("SELECT coalesce(max(rev), 0) FROM rows", [], |r| r.get(0))
        .map_err(failed("read of the newest revision"))?;
    let compacted: i64 =
        connection.query_row(COMPACTED, [], |r| r.get(0)).map_err(failed("read of the compaction mark"))?;
    Ok(Opened { revision: unsql(newest.max(compacted)), compacted: unsql(compacted), keys })
}

/// Has a statement planned when it is prepared, and not anew whenever another value is bound: built with `STAT4`, SQLite looks for a better plan then,
/// which costs more than our statements do, and there is one good plan for each.
pub(super) fn planned_once(connection: &Connection) -> Result<(), StoreError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop).map_err(failed("open"))
}

/// Opens the file, upgrades it to the present format and encrypts Secrets; the keys are in the file `keys`.
pub(super) fn open_writer(file: &Path, keys: &Path) -> Result<(Connection, Opened), StoreError> {
    private(file).map_err(|e| {
        let cause = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        StoreError::Sqlite { what: "open", source: rusqlite::Error::SqliteFailure(cause, Some(e.to_string())) }
    })?;
    let mut connection = Connection::open(file).map_err(failed("open"))?;
    connection.busy_timeout(Duration::from_secs(10)).map_err(failed("open"))?;
    planned_once(&connection)?;
    // After a failed sync the log must stay as it is: the next start checks each of its frames.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed("open"))?;
    let format: i64 = connection.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(failed("format check"))?;
    if format > FORMAT {
        return Err(StoreError::Format { found: format, known: FORMAT });
    }
    connection
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-4096; PRAGMA temp_store=MEMORY;
             PRAGMA journal_size_limit=16777216; PRAGMA wal_autocheckpoint=0;",
        )
        .map_err(failed("set-up"))?;
    let mut upgrade = format!("BEGIN IMMEDIATE; {TABLES}");
    if format == 1 {
        upgrade.push_str(
            "UPDATE rows SET ns = ns || '/' WHERE ns <> ''; UPDATE current SET ns = ns || '/' WHERE ns <> '';",
        );
    }
    upgrade.push_str(&format!("PRAGMA user_version={FORMAT}; COMMIT;"));
    // Without an upgrade nothing is written, so that a start succeeds on a full disk.
    if format < FORMAT {
        connection.execute_batch(&upgrade).map_err(failed("set-up"))?;
    }
    let keys = open_keys(&mut connection, keys)?;
    let opened = opened(&connection, keys)?;
    Ok((connection, opened))
}

/// Reads the keys, and encrypts all Secrets that are not encrypted with the first one.
fn open_keys(connection: &mut Connection, path: &Path) -> Result<Arc<Keyring>, StoreError> {
    let needed = seal::has_sealed(connection).map_err(failed("look for encrypted Secrets"))?;
    let keys = Keyring::open(path, needed)?;
    let were_clear = seal::reencrypt(connection, &keys).map_err(|error| match error {
        NotReencrypted::Key(error) => error.into(),
        NotReencrypted::Failed(error) => failed("encryption of Secrets")(error),
    })?;
    if were_clear {
        // Removes the clear text from the file and its log.
        connection
            .execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
            .map_err(failed("removal of what was in clear text"))?;
    }
    Ok(Arc::new(keys))
}

/// A position in a list: the last `(namespace, name)` returned.
pub type Cursor = (String, String);

/// What to list.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// Storage name of the resource.
    pub resource: Arc<str>,
    /// Only this namespace.
    pub ns: Option<String>,
    /// Only after this position.
    pub after: Option<Cursor>,
    /// As of this revision; `None` is now.
    pub at: Option<u64>,
    /// At most this many.
    pub limit: usize,
    /// Only objects whose labels match.
    pub pick: Option<Pick>,
}

/// One page of a list.
#[derive(Debug)]
pub struct ListPage {
    /// Revision the page is consistent with.
    pub rev: u64,
    /// Objects by namespace and name.
    pub rows: Vec<Row>,
    /// Whether more objects follow.
    pub more: bool,
}

/// Some events, and the revision up to which they are complete.
pub(super) type Batch = (Vec<Arc<Event>>, u64);

/// Location of the tables.
pub(super) enum Tables {
    /// In a file, with idle connections.
    File(PathBuf, Mutex<Vec<Connection>>),
    /// In memory, with a single connection.
    Memory(Arc<Mutex<Connection>>),
}

/// Connections for readers.
pub(super) struct Readers {
    tables: Tables,
    labels: Labels,
    by_label: ByLabel,
    keys: Arc<Keyring>,
    /// How often the file was read.
    uses: AtomicU64,
}

impl Readers {
    /// `labels` limits the bytes of cached labels, `index` those of the index of a resource by label.
    pub(super) fn new(tables: Tables, labels: usize, index: usize, keys: Arc<Keyring>) -> Self {
        let (labels, by_label) = (Labels::new(labels), ByLabel::new(index));
        Self { tables, labels, by_label, keys, uses: AtomicU64::new(0) }
    }

    /// The index by label, for the writer.
    pub(super) const fn by_label(&self) -> &ByLabel {
        &self.by_label
    }

    /// Whether reads run on the caller's thread, because they wait for no disk.
    pub(super) fn in_memory(&self) -> bool {
        matches!(self.tables, Tables::Memory(_))
    }

    #[cfg(test)]
    pub(super) fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        let (file, idle) = match &self.tables {
            Tables::File(file, idle) => (file, idle),
            Tables::Memory(connection) => return work(&connection.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(file, flags)?;
                connection.busy_timeout(Duration::from_secs(10))?;
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
                connection.execute_batch("PRAGMA cache_size=-1024; PRAGMA query_only=1;")?;
                connection
            }
        };
        let result = work(&connection);
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_ok() && idle.len() < KEPT_READERS {
            idle.push(connection);
        }
        result
    }

    pub(super) fn get(&self, key: &Key) -> rusqlite::Result<Option<Row>> {
        self.with(|c| {
            let mut statement = c.prepare_cached(
                "SELECT r.rev, r.body FROM current k JOIN rows r ON r.rev = k.rev
                 WHERE k.resource=?1 AND k.ns=?2 AND k.name=?3",
            )?;
            statement
                .query_row(params![&*key.resource, stored_ns(&key.ns), key.name], |r| {
                    let (rev, ns) = (unsql(r.get(0)?), stored_ns(&key.ns));
                    let place = Place { resource: &key.resource, ns: &ns, name: &key.name, rev };
                    let body = self.keys.unseal(place, r.get_ref(1)?.as_blob()?)?;
                    Ok(Row { ns: key.ns.clone(), name: key.name.clone(), rev, body })
                })
                .optional()
        })
    }

    pub(super) fn at_revision(&self, rev: u64) -> rusqlite::Result<Option<Bytes>> {
        self.with(|c| self.body_of(c, rev).optional())
    }

    fn body_of(&self, connection: &Connection, rev: u64) -> rusqlite::Result<Bytes> {
        let mut statement = connection.prepare_cached("SELECT resource, ns, name, body FROM rows WHERE rev=?1")?;
        statement.query_row([sql(rev)], |r| {
            let (resource, ns, name): (String, String, String) = (r.get(0)?, r.get(1)?, r.get(2)?);
            let place = Place { resource: &resource, ns: &ns, name: &name, rev };
            self.keys.unseal(place, r.get_ref(3)?.as_blob()?)
        })
    }

    pub(super) fn list(&self, query: &ListQuery) -> rusqlite::Result<OfHistory<ListPage>> {
        let pair = query.pick.as_ref().and_then(|pick| pick.pair.as_ref());
        if pair.is_some() && query.at.is_none() && self.by_label.begin(&query.resource) {
            let added = self.with(|c| self.index(c, &query.resource));
            self.by_label.end(&query.resource, added.is_ok());
            added?;
        }
        self.with(|c| {
            let transaction = c.unchecked_transaction()?;
            if let Some(oldest) = gone(&transaction, query.at.unwrap_or(u64::MAX))? {
                return Ok(Err(oldest));
            }
            let newest: i64 = transaction.prepare_cached(NEWEST)?.query_row([], |r| r.get(0))?;
            let rev = query.at.unwrap_or(unsql(newest));
            let (ns, name) = query.after.clone().unwrap_or_default();
            let now = query.at.is_none_or(|at| at == unsql(newest));
            let only = query.ns.as_deref().map(stored_ns);
            let start = match (&only, &query.after) {
                (Some(only), None) => (only.clone(), String::new()),
                _ => (stored_ns(&ns), name),
            };
            // A selective list reads many keys and few bodies.
            let limit = if query.pick.is_some() { usize::MAX } else { query.limit.saturating_add(1) };
            let limit = i64::try_from(limit).unwrap_or(-1);
            if let (true, Some(pick), Some(places)) =
                (now, &query.pick, pair.and_then(|pair| self.by_label.places(&query.resource, pair)))
            {
                let places = places.into_iter().filter(|(ns, name)| {
                    let is_wanted = only.as_ref().is_none_or(|only| **only == **ns);
                    is_wanted && (&**ns, &**name) > (start.0.as_str(), start.1.as_str())
                });
                return self.listed(&transaction, query, (rev, pick), places).map(Ok);
            }
            let mut statement = transaction.prepare_cached(match (now, &query.pick) {
                (true, None) => {
                    "SELECT k.ns, k.name, k.rev, r.body FROM current k JOIN rows r ON r.rev = k.rev
                     WHERE k.resource=?1 AND (k.ns, k.name) > (?2, ?3) AND (?4 IS NULL OR k.ns=?4) AND ?5 >= 0
                     ORDER BY k.ns, k.name LIMIT ?6"
                }
                (true, Some(_)) => {
                    "SELECT ns, name, rev FROM current
                     WHERE resource=?1 AND (ns, name) > (?2, ?3) AND (?4 IS NULL OR ns=?4) AND ?5 >= 0
                     ORDER BY ns, name LIMIT ?6"
                }
                // As of that revision. SQLite reads the body only if the column is used.
                (false, _) => {
                    "SELECT g.ns, g.name, g.rev, r.body FROM (
                        SELECT ns, name, max(rev) AS rev FROM rows INDEXED BY rows_by_key
                        WHERE resource=?1 AND (ns, name) > (?2, ?3) AND (?4 IS NULL OR ns=?4) AND rev <= ?5
                        GROUP BY ns, name) g
                     JOIN rows r ON r.rev = g.rev WHERE r.deleted=0 ORDER BY g.ns, g.name LIMIT ?6"
                }
            })?;
            let mut found = statement.query(params![&*query.resource, start.0, start.1, only, sql(rev), limit])?;
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while let Some(row) = found.next()? {
                if rows.len() >= query.limit || bytes > PAGE_BYTES {
                    return Ok(Ok(ListPage { rev, rows, more: true }));
                }
                let at = unsql(row.get(2)?);
                let body = match &query.pick {
                    None => {
                        let (ns, name): (String, String) = (row.get(0)?, row.get(1)?);
                        let place = Place { resource: &query.resource, ns: &ns, name: &name, rev: at };
                        Some(self.keys.unseal(place, row.get_ref(3)?.as_blob()?)?)
                    }
                    Some(pick) => self.picked(&transaction, at, pick)?,
                };
                if let Some(body) = body {
                    bytes += body.len();
                    rows.push(Row { ns: ns_of(row, 0)?, name: row.get(1)?, rev: at, body });
                }
            }
            Ok(Ok(ListPage { rev, rows, more: false }))
        })
    }

    /// Adds all objects of a resource to the index by label.
    fn index(&self, connection: &Connection, resource: &Arc<str>) -> rusqlite::Result<()> {
        let transaction = connection.unchecked_transaction()?;
        let mut statement = transaction.prepare_cached(
            "SELECT k.ns, k.name, k.rev, r.body FROM current k JOIN rows r ON r.rev = k.rev WHERE k.resource=?1",
        )?;
        let mut found = statement.query([&**resource])?;
        while let Some(row) = found.next()? {
            let (ns, name): (String, String) = (row.get(0)?, row.get(1)?);
            let place = Place { resource, ns: &ns, name: &name, rev: unsql(row.get(2)?) };
            let body = self.keys.unseal(place, row.get_ref(3)?.as_blob()?)?;
            self.by_label.add(resource, &ns, &name, &body);
        }
        Ok(())
    }

    /// The page of those of these places that match, at the newest revision `rev`.
    fn listed(
        &self,
        transaction: &Connection,
        query: &ListQuery,
        (rev, pick): (u64, &Pick),
        places: impl Iterator<Item = by_label::Place>,
    ) -> rusqlite::Result<ListPage> {
        let mut statement =
            transaction.prepare_cached("SELECT rev FROM current WHERE resource=?1 AND ns=?2 AND name=?3")?;
        let (mut rows, mut bytes, mut vain) = (Vec::<Row>::new(), 0, 0);
        let is_full = |rows: &[Row], bytes: usize| rows.len() >= query.limit || bytes > PAGE_BYTES;
        for (ns, name) in places {
            if is_full(&rows, bytes) {
                break;
            }
            let at = statement.query_row(params![&*query.resource, &*ns, &*name], |r| r.get(0)).optional()?;
            let body = match at {
                Some(at) => self.picked(transaction, unsql(at), pick)?.map(|body| (unsql(at), body)),
                None => None,
            };
            let Some((at, body)) = body else {
                vain += 1;
                continue;
            };
            bytes += body.len();
            let ns = ns.strip_suffix('/').unwrap_or(&ns).to_owned();
            rows.push(Row { ns, name: name.into(), rev: at, body });
        }
        self.by_label.found_in_vain(&query.resource, vain);
        // As with a look at all labels: a full page is followed by another if any object follows, whatever its labels.
        let more = match rows.last().filter(|_| is_full(&rows, bytes)) {
            None => false,
            Some(last) => transaction
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM current
                     WHERE resource=?1 AND (ns, name) > (?2, ?3) AND (?4 IS NULL OR ns=?4))",
                )?
                .query_row(
                    params![&*query.resource, stored_ns(&last.ns), last.name, query.ns.as_deref().map(stored_ns)],
                    |r| r.get(0),
                )?,
        };
        Ok(ListPage { rev, rows, more })
    }

    /// The body of a revision if its labels match. Cached labels that do not match save reading it.
    fn picked(&self, connection: &Connection, rev: u64, pick: &Pick) -> rusqlite::Result<Option<Bytes>> {
        let known = self.labels.wanted(rev, pick);
        if known == Some(false) {
            return Ok(None);
        }
        let body = self.body_of(connection, rev)?;
        let wanted = known.unwrap_or_else(|| self.matches(rev, &body, pick));
        Ok(wanted.then_some(body))
    }

    /// Whether the labels of this revision's body match; they are cached.
    pub(super) fn matches(&self, rev: u64, body: &[u8], pick: &Pick) -> bool {
        // A damaged body has no labels, so it never matches.
        let Some(labels) = crate::object::labels(body) else { return false };
        self.labels.learn(rev, labels);
        pick.wants(labels)
    }

    /// Whether the labels of a revision match, if they are cached.
    pub(super) fn known_to_match(&self, rev: u64, pick: &Pick) -> Option<bool> {
        self.labels.wanted(rev, pick)
    }

    pub(super) fn count(&self, query: &ListQuery) -> rusqlite::Result<OfHistory<u64>> {
        let (ns, name) = query.after.clone().unwrap_or_default();
        self.with(|c| {
            let transaction = c.unchecked_transaction()?;
            if let Some(oldest) = gone(&transaction, query.at.unwrap_or(u64::MAX))? {
                return Ok(Err(oldest));
            }
            let newest: i64 = transaction.prepare_cached(NEWEST)?.query_row([], |r| r.get(0))?;
            let source = if query.at.is_none_or(|at| at == unsql(newest)) {
                "SELECT count(*) FROM current
                 WHERE resource=?1 AND (ns, name) > (?2, ?3) AND (?4 IS NULL OR ns=?4) AND ?5 >= 0"
            } else {
                "SELECT count(*) FROM (
                    SELECT max(rev) AS rev FROM rows INDEXED BY rows_by_key
                    WHERE resource=?1 AND (ns, name) > (?2, ?3) AND (?4 IS NULL OR ns=?4) AND rev <= ?5
                    GROUP BY ns, name) g
                 JOIN rows r ON r.rev = g.rev WHERE r.deleted=0"
            };
            transaction
                .prepare_cached(source)?
                .query_row(
                    params![
                        &*query.resource,
                        stored_ns(&ns),
                        name,
                        query.ns.as_deref().map(stored_ns),
                        sql(query.at.unwrap_or(unsql(newest)))
                    ],
                    |r| r.get::<_, i64>(0),
                )
                .map(|count| Ok(unsql(count)))
        })
    }

    pub(super) fn resources_in_use(&self, ns: Option<&str>) -> rusqlite::Result<Vec<String>> {
        self.with(|c| {
            c.prepare_cached("SELECT DISTINCT resource FROM current WHERE ?1 IS NULL OR ns=?1")?
                .query_map([ns.map(stored_ns)], |r| r.get(0))?
                .collect()
        })
    }

    /// Size of the tables in bytes.
    pub(super) fn bytes(&self) -> rusqlite::Result<u64> {
        self.with(|c| {
            let number = |pragma: &str| c.query_row(pragma, [], |r| r.get::<_, i64>(0)).map(unsql);
            Ok(number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?))
        })
    }

    pub(super) fn object_counts(&self) -> rusqlite::Result<Vec<(String, u64)>> {
        self.with(|c| {
            c.prepare_cached("SELECT resource, count(*) FROM current GROUP BY resource")?
                .query_map([], |r| Ok((r.get(0)?, unsql(r.get(1)?))))?
                .collect()
        })
    }

    pub(super) fn events_after(&self, resource: &Arc<str>, rev: u64) -> rusqlite::Result<OfHistory<Batch>> {
        self.with(|c| {
            let transaction = c.unchecked_transaction()?;
            if let Some(oldest) = gone(&transaction, rev)? {
                return Ok(Err(oldest));
            }
            let newest: i64 = transaction.prepare_cached(NEWEST)?.query_row([], |r| r.get(0))?;
            let mut statement = transaction.prepare_cached(
                "SELECT rev, resource, ns, name, prev, deleted, body FROM rows
                 WHERE rev > ?1 AND (resource=?2 OR ?2='') ORDER BY rev LIMIT ?3",
            )?;
            let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
            let found = statement.query_map(params![sql(rev), &**resource, limit], |r| {
                let (kind, ns, name): (String, String, String) = (r.get(1)?, r.get(2)?, r.get(3)?);
                let place = Place { resource: &kind, ns: &ns, name: &name, rev: unsql(r.get(0)?) };
                let body = self.keys.unseal(place, r.get_ref(6)?.as_blob()?)?;
                Ok(Arc::new(Event {
                    rev: place.rev,
                    resource: if *kind == **resource { Arc::clone(resource) } else { kind.into() },
                    ns: ns_of(r, 2)?,
                    name,
                    prev: unsql(r.get(4)?),
                    deleted: r.get(5)?,
                    body,
                    frames: Frames::default(),
                }))
            })?;
            let (mut events, mut bytes) = (Vec::<Arc<Event>>::new(), 0);
            for event in found {
                let event = event?;
                bytes += event.body.len();
                events.push(event);
                if bytes > PAGE_BYTES {
                    break;
                }
            }
            let upto = match events.last() {
                Some(last) if events.len() == BATCH || bytes > PAGE_BYTES => last.rev,
                _ => unsql(newest).max(rev),
            };
            Ok(Ok((events, upto)))
        })
    }
}
