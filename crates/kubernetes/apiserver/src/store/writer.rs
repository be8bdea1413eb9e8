//! The single writer: group commit, and compaction in small steps between commits. It runs on its own thread, or on
//! the caller's ([`super::Door`]).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::by_label::About;
use super::reserve::Reserve;
use super::seal::{Keyring, Place};
use super::shared::Shared;
use super::sqlite::{sql, stored_ns, unsql};
use super::types::{Expect, Guard, Key, Op, Write, WriteError};
use super::watch::{Event, Frames};

/// Most writes in one commit.
const GROUP: usize = 512;
/// Most body bytes in one commit.
const GROUP_BYTES: usize = 8 << 20;
/// Revisions compacted per step.
const STEP: u64 = 500;
/// Bytes written before a checkpoint.
const CHECKPOINT_BYTES: usize = 4 << 20;
/// Approximate cost of a row besides its body, in bytes.
const ROW_BYTES: usize = 8 << 10;

/// Commands to the writer.
pub(super) enum Command {
    /// Write, and reply with the revision.
    Write(Write, oneshot::Sender<Result<u64, WriteError>>),
    /// Compact one step; replies whether compaction is done.
    Compact(u64, oneshot::Sender<Result<bool, WriteError>>),
    /// Commit earlier writes, then stop.
    Stop(oneshot::Sender<()>),
}

/// The only access for writing.
pub(super) struct Writer {
    /// The writer's own connection; for tables in memory, the only one.
    connection: Arc<Mutex<Connection>>,
    revision: u64,
    shared: Arc<Shared>,
    /// Approximate bytes written since the last checkpoint.
    logged: usize,
    /// Disk space reserved for deletions; `None` in memory.
    reserve: Option<Reserve>,
}

type Reply = oneshot::Sender<Result<u64, WriteError>>;

/// The events of a committed group, and the result of each of its writes.
type Outcome = (Vec<Event>, Vec<Result<u64, WriteError>>);

/// Runs until stopped, or until all handles are dropped.
pub(super) fn run(mut writer: Writer, mut commands: mpsc::Receiver<Command>) {
    writer.look_for_room();
    let mut next = commands.blocking_recv();
    while let Some(command) = next.take() {
        match command {
            Command::Stop(done) => {
                commands.close();
                if !writer.broken() {
                    let _ = writer.connection().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
                }
                let _ = done.send(());
                return;
            }
            Command::Compact(upto, done) => {
                let _ = done.send(writer.compact(upto));
            }
            Command::Write(write, reply) => {
                let mut bytes = size(&write);
                let mut group = vec![(write, reply)];
                while group.len() < GROUP && bytes < GROUP_BYTES {
                    match commands.try_recv() {
                        Ok(Command::Write(write, reply)) => {
                            bytes += size(&write);
                            group.push((write, reply));
                        }
                        Ok(other) => {
                            next = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                writer.commit(group);
            }
        }
        if writer.logged >= CHECKPOINT_BYTES {
            writer.checkpoint();
        }
        if next.is_none() {
            next = commands.blocking_recv();
        }
    }
}

fn size(write: &Write) -> usize {
    match &write.op {
        Op::Put(body) | Op::Ending(body) | Op::Delete(body) => body.len(),
    }
}

/// Whether the write ends an object, and so frees space.
fn ends(write: &Write) -> bool {
    matches!(write.op, Op::Ending(_) | Op::Delete(_))
}

impl Writer {
    /// Continues after `revision`.
    pub(super) fn new(connection: Arc<Mutex<Connection>>, revision: u64, shared: Arc<Shared>) -> Self {
        let reserve = shared.file.as_deref().map(Reserve::new);
        Self { connection, revision, shared, logged: 0, reserve }
    }

    /// Performs one write synchronously.
    pub(super) fn write(&mut self, write: Write) -> Result<u64, WriteError> {
        let (reply, mut answer) = oneshot::channel();
        self.commit(vec![(write, reply)]);
        answer.try_recv().unwrap_or(Err(WriteError::Stopped))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Checkpoints the log. Called after commits are acknowledged, so that no client waits for it.
    fn checkpoint(&mut self) {
        self.logged = 0;
        let moved = self.connection().query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = moved {
            // The log still has everything: if the disk is full, the next checkpoint tries again.
            note(&self.shared, &error, true);
        }
    }

    /// Whether the file is below its size limit.
    fn has_room(&self) -> rusqlite::Result<bool> {
        let connection = self.connection();
        let number = |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |r| r.get::<_, i64>(0)).map(unsql);
        let used = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
        Ok(used.saturating_mul(number("PRAGMA page_size")?) < self.shared.limit)
    }

    /// Takes the reserve if possible, and records whether the disk has room for more than deletions.
    fn look_for_room(&mut self) -> bool {
        let room = self.reserve.as_mut().is_none_or(Reserve::take);
        if self.shared.tight.swap(!room, Ordering::AcqRel) == room {
            match room {
                true => tracing::info!("the disk of the data folder has room again"),
                false => {
                    tracing::warn!("the disk of the data folder is full: only deletions are stored until it has room")
                }
            }
        }
        room
    }

    fn commit(&mut self, group: Vec<(Write, Reply)>) {
        if self.broken() {
            for (_, reply) in group {
                let _ = reply.send(Err(WriteError::Stopped));
            }
            return;
        }
        let (writes, replies): (Vec<Write>, Vec<Reply>) = group.into_iter().unzip();
        writes.iter().for_each(|write| self.shared.recent.begin(&write.key));
        self.shared.readers.by_label().begin_group(writes.iter().map(|Write { key, op, .. }| About {
            resource: &key.resource,
            ns: stored_ns(&key.ns),
            name: &key.name,
            body: if let Op::Put(body) | Op::Ending(body) = op { Some(body) } else { None },
        }));
        let tight = self.shared.tight.load(Ordering::Acquire) && !self.look_for_room();
        let mut outcome = self.try_commit(&writes, tight);
        if matches!(outcome, Err(WriteError::Full)) {
            self.shared.tight.store(true, Ordering::Release);
            if writes.iter().any(ends) && self.reserve.as_mut().is_some_and(Reserve::release) {
                outcome = self.try_commit(&writes, true);
            }
        }
        self.shared.readers.by_label().end_group();
        self.remember(&writes, outcome.as_ref().map(|(events, _)| &events[..]).unwrap_or_default());
        match outcome {
            Ok((events, results)) => {
                let newest = self.revision;
                let resources: Vec<Arc<str>> = events.iter().map(|event| Arc::clone(&event.resource)).collect();
                self.shared.ring.extend(events);
                if !resources.is_empty() {
                    self.shared.published.send_replace(newest);
                    self.shared.news.notify(newest, resources.iter());
                }
                for (reply, result) in replies.into_iter().zip(results) {
                    let _ = reply.send(result);
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Updates the cache of present bodies after a commit.
    fn remember(&self, writes: &[Write], events: &[Event]) {
        for write in writes {
            self.shared.recent.end(&write.key, None);
        }
        for event in events {
            let Event { resource, ns, name, .. } = event;
            let key = Key { resource: Arc::clone(resource), ns: ns.clone(), name: name.clone() };
            self.shared.recent.end(&key, (!event.deleted).then(|| (event.rev, event.body.clone())));
        }
    }

    /// Commits all acceptable writes; the error applies to all of them. On a `tight` disk only writes that end
    /// objects are tried.
    fn try_commit(&mut self, writes: &[Write], tight: bool) -> Result<Outcome, WriteError> {
        let (mut events, mut results) = (Vec::with_capacity(writes.len()), Vec::with_capacity(writes.len()));
        let mut revision = self.revision;
        let room = self.has_room().unwrap_or(true);
        self.shared.over.store(!room, Ordering::Release);
        let to_error = |error: &rusqlite::Error, committing: bool| {
            note(&self.shared, error, committing);
            translate(error)
        };
        let connection = Arc::clone(&self.connection);
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let open =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| to_error(&e, false))?;
        for write in writes {
            results.push(match ends(write) {
                false if tight => Err(WriteError::Full),
                false if !room => Err(WriteError::Limit { limit: self.shared.limit }),
                _ => match apply(&open, &self.shared.keys, write, revision + 1) {
                    Ok(event) => {
                        revision += 1;
                        events.push(event);
                        Ok(revision)
                    }
                    Err(NotApplied::Refused(why)) => Err(why),
                    Err(NotApplied::Failed(error)) => return Err(to_error(&error, false)),
                },
            });
        }
        if events.is_empty() {
            return Ok((events, results));
        }
        open.commit().map_err(|e| to_error(&e, true))?;
        self.logged += events.iter().map(|event| event.body.len() + ROW_BYTES).sum::<usize>();
        self.revision = revision;
        Ok((events, results))
    }

    /// Compacts one step. True when done.
    pub(super) fn compact(&mut self, upto: u64) -> Result<bool, WriteError> {
        if self.broken() {
            return Err(WriteError::Stopped);
        }
        if self.shared.tight.load(Ordering::Acquire) {
            self.look_for_room();
        }
        // The newest row is kept: it carries the revision across a restart.
        let upto = upto.min(self.revision.saturating_sub(1));
        let from = self.shared.compacted.load(Ordering::Acquire);
        if upto <= from {
            return Ok(true);
        }
        let step = upto.min(from + STEP);
        let mut done = self.compact_step(from, step);
        let full = |e: &rusqlite::Error| e.sqlite_error_code() == Some(ErrorCode::DiskFull);
        if done.as_ref().is_err_and(full) && self.reserve.as_mut().is_some_and(Reserve::release) {
            // Compaction frees space within the file.
            self.shared.tight.store(true, Ordering::Release);
            done = self.compact_step(from, step);
        }
        done.map_err(|e| {
            note(&self.shared, &e, true);
            translate(&e)
        })?;
        self.logged += ROW_BYTES * usize::try_from(step - from).unwrap_or(usize::MAX);
        self.shared.compacted.store(step, Ordering::Release);
        self.shared.over.store(!self.has_room().unwrap_or(true), Ordering::Release);
        Ok(step == upto)
    }

    fn compact_step(&mut self, from: u64, step: u64) -> rusqlite::Result<()> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let range = params![sql(from), sql(step)];
        transaction.execute(
            "DELETE FROM rows WHERE rev IN (SELECT prev FROM rows WHERE rev > ?1 AND rev <= ?2 AND prev > 0)",
            range,
        )?;
        transaction.execute("DELETE FROM rows WHERE rev > ?1 AND rev <= ?2 AND deleted=1", range)?;
        transaction.execute(
            "INSERT INTO marks VALUES ('compacted', ?1) ON CONFLICT(name) DO UPDATE SET value=excluded.value",
            [sql(step)],
        )?;
        transaction.commit()
    }
}

fn current(transaction: &Transaction<'_>, key: &Key) -> rusqlite::Result<Option<u64>> {
    transaction
        .prepare_cached("SELECT rev FROM current WHERE resource=?1 AND ns=?2 AND name=?3")?
        .query_row(params![&*key.resource, stored_ns(&key.ns), key.name], |r| r.get(0))
        .optional()
        .map(|rev| rev.map(unsql))
}

fn holds(transaction: &Transaction<'_>, guard: &Guard) -> rusqlite::Result<bool> {
    match guard {
        Guard::Unchanged(key, rev) => Ok(current(transaction, key)? == Some(*rev)),
        Guard::EmptyNamespace(ns) => transaction
            .prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM current WHERE ns=?1)")?
            .query_row([stored_ns(ns)], |r| r.get(0)),
    }
}

/// Why a write was not applied.
enum NotApplied {
    /// This write is refused; others of the transaction are not affected.
    Refused(WriteError),
    /// The database failed, and the transaction with it.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotApplied {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

fn apply(transaction: &Transaction<'_>, keys: &Keyring, write: &Write, rev: u64) -> Result<Event, NotApplied> {
    let Write { key, expect, op, guard } = write;
    let prev = current(transaction, key)?;
    match (expect, prev) {
        (Expect::Absent, None) => {}
        (Expect::Rev(wanted), Some(found)) if *wanted == found => {}
        _ => return Err(NotApplied::Refused(WriteError::Conflict)),
    }
    if let Some(guard) = guard
        && !holds(transaction, guard)?
    {
        return Err(NotApplied::Refused(WriteError::Guard));
    }
    let ns = stored_ns(&key.ns);
    let (deleted, body) = match op {
        Op::Put(body) | Op::Ending(body) => (false, body.clone()),
        Op::Delete(body) => (true, body.clone()),
    };
    let sealed = keys.seal(Place { resource: &key.resource, ns: &ns, name: &key.name, rev }, &body)?;
    transaction
        .prepare_cached(
            "INSERT INTO rows (rev, resource, ns, name, prev, deleted, body) VALUES (?1,?2,?3,?4,?5,?6,?7)",
        )?
        .execute(params![sql(rev), &*key.resource, ns, key.name, sql(prev.unwrap_or(0)), deleted, &sealed[..]])?;
    if deleted {
        transaction.prepare_cached("DELETE FROM current WHERE resource=?1 AND ns=?2 AND name=?3")?.execute(params![
            &*key.resource,
            ns,
            key.name
        ])?;
    } else {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO current (resource, ns, name, rev) VALUES (?1,?2,?3,?4)")?
            .execute(params![&*key.resource, ns, key.name, sql(rev)])?;
    }
    let Key { resource, ns, name } = key.clone();
    Ok(Event { rev, prev: prev.unwrap_or(0), resource, ns, name, deleted, body, frames: Frames::default() })
}

/// After a failed sync the state of the disk is unknown until the next start reads it again.
fn note(shared: &Shared, error: &rusqlite::Error, committing: bool) {
    let fatal = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => false,
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        _ => committing,
    };
    if fatal && !shared.broken.swap(true, Ordering::AcqRel) {
        tracing::error!(%error, "the store's disk failed: nothing is written any more until the next start");
    }
}

fn translate(error: &rusqlite::Error) -> WriteError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => WriteError::Full,
        _ => WriteError::Failed(error.to_string()),
    }
}
