//! The one writer: group commit, and compaction in small steps between commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::sqlite::{sql, stored_ns, unsql};
use super::watch::Frames;
use super::{Event, Expect, Guard, Key, Op, Shared, Write, WriteError};

/// Writes that share one commit at most.
const GROUP: usize = 512;
/// Body bytes that share one commit at most.
const GROUP_BYTES: usize = 8 << 20;
/// Revisions compacted per step.
const STEP: u64 = 500;
/// Bytes written after which the log is moved into the file.
const CHECKPOINT_BYTES: usize = 4 << 20;
/// What a row costs beside its body, about.
const ROW_BYTES: usize = 8 << 10;

/// What the writer can be asked.
pub(super) enum Command {
    /// Write and answer with the revision.
    Write(Write, oneshot::Sender<Result<u64, WriteError>>),
    /// Compact one step; answers whether it is done.
    Compact(u64, oneshot::Sender<Result<bool, WriteError>>),
    /// Commit what came before, then end.
    Stop(oneshot::Sender<()>),
}

struct Writer<'a> {
    connection: Connection,
    revision: u64,
    shared: &'a Shared,
    /// Bytes written since the log was moved into the file, about.
    logged: usize,
}

type Waiting = (oneshot::Sender<Result<u64, WriteError>>, Result<u64, WriteError>);

/// Runs until told to stop or until all handles are gone.
pub(super) fn run(connection: Connection, revision: u64, mut commands: mpsc::Receiver<Command>, shared: &Shared) {
    let mut writer = Writer { connection, revision, shared, logged: 0 };
    let mut next = commands.blocking_recv();
    while let Some(command) = next.take() {
        match command {
            Command::Stop(done) => {
                commands.close();
                if !writer.broken() {
                    let _ = writer.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
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
        Op::Put(body) | Op::Delete(body) => body.len(),
    }
}

impl Writer<'_> {
    fn broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Moves the log into the file. After commits are acknowledged, so that nobody waits for it.
    fn checkpoint(&mut self) {
        self.logged = 0;
        let moved = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = moved {
            // The log still holds everything: with a full disk, the next one tries again.
            note(self.shared, &error, true);
        }
    }

    /// Whether the file has room for more objects.
    fn has_room(&self) -> rusqlite::Result<bool> {
        let number = |pragma: &str| self.connection.query_row(pragma, [], |r| r.get::<_, i64>(0)).map(unsql);
        let used = number("PRAGMA page_count")?.saturating_sub(number("PRAGMA freelist_count")?);
        Ok(used.saturating_mul(number("PRAGMA page_size")?) < self.shared.limit)
    }

    fn commit(&mut self, group: Vec<(Write, oneshot::Sender<Result<u64, WriteError>>)>) {
        if self.broken() {
            for (_, reply) in group {
                let _ = reply.send(Err(WriteError::Stopped));
            }
            return;
        }
        let mut waiting: Vec<Waiting> = Vec::with_capacity(group.len());
        let keys: Vec<Key> = group.iter().map(|(write, _)| write.key.clone()).collect();
        keys.iter().for_each(|key| self.shared.recent.begin(key));
        let outcome = self.try_commit(group, &mut waiting);
        self.remember(&keys, outcome.as_deref().unwrap_or_default());
        match outcome {
            Ok(events) => {
                let newest = self.revision;
                let resources: Vec<Arc<str>> = events.iter().map(|event| Arc::clone(&event.resource)).collect();
                self.shared.ring.extend(events);
                if !resources.is_empty() {
                    self.shared.published.send_replace(newest);
                    self.shared.news.tell(newest, resources.iter());
                }
                for (reply, result) in waiting {
                    let _ = reply.send(result);
                }
            }
            Err(error) => {
                for (reply, _) in waiting {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// Puts what was committed where readers look first.
    fn remember(&self, keys: &[Key], events: &[Event]) {
        for key in keys {
            self.shared.recent.end(key, None);
        }
        for event in events {
            let Event { resource, ns, name, .. } = event;
            let key = Key { resource: Arc::clone(resource), ns: ns.clone(), name: name.clone() };
            self.shared.recent.end(&key, (!event.deleted).then(|| (event.rev, event.body.clone())));
        }
    }

    fn try_commit(
        &mut self,
        group: Vec<(Write, oneshot::Sender<Result<u64, WriteError>>)>,
        waiting: &mut Vec<Waiting>,
    ) -> Result<Vec<Event>, WriteError> {
        let mut events = Vec::with_capacity(group.len());
        let mut revision = self.revision;
        let mut failure = None;
        let room = self.has_room().unwrap_or(true);
        let mut cause = None;
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = match begun {
            Ok(transaction) => Some(transaction),
            Err(error) => {
                failure = Some(translate(&error));
                cause = Some(error);
                None
            }
        };
        for (write, reply) in group {
            let result = match (&transaction, &failure) {
                (_, None) if !room && matches!(write.op, Op::Put(_)) => {
                    Err(WriteError::Limit { limit: self.shared.limit })
                }
                (Some(open), None) => match apply(open, write, revision + 1) {
                    Ok(Ok(event)) => {
                        revision += 1;
                        events.push(event);
                        Ok(revision)
                    }
                    Ok(Err(refused)) => Err(refused),
                    Err(error) => {
                        let told = translate(&error);
                        failure = Some(told.clone());
                        cause = Some(error);
                        Err(told)
                    }
                },
                _ => Err(WriteError::Stopped),
            };
            waiting.push((reply, result));
        }
        let committed = match (failure, transaction) {
            (None, Some(open)) if !events.is_empty() => open.commit(),
            (None, _) => return Ok(events),
            (Some(error), transaction) => {
                drop(transaction);
                if let Some(cause) = cause {
                    note(self.shared, &cause, false);
                }
                return Err(error);
            }
        };
        if let Err(error) = committed {
            note(self.shared, &error, true);
            return Err(translate(&error));
        }
        self.logged += events.iter().map(|event| event.body.len() + ROW_BYTES).sum::<usize>();
        self.revision = revision;
        Ok(events)
    }

    fn compact(&mut self, upto: u64) -> Result<bool, WriteError> {
        if self.broken() {
            return Err(WriteError::Stopped);
        }
        // The newest row stays: it carries the revision over a restart.
        let upto = upto.min(self.revision.saturating_sub(1));
        let from = self.shared.compacted.load(Ordering::Acquire);
        if upto <= from {
            return Ok(true);
        }
        let step = upto.min(from + STEP);
        self.compact_step(from, step).map_err(|e| {
            note(self.shared, &e, true);
            translate(&e)
        })?;
        self.logged += ROW_BYTES * usize::try_from(step - from).unwrap_or(usize::MAX);
        self.shared.compacted.store(step, Ordering::Release);
        Ok(step == upto)
    }

    fn compact_step(&mut self, from: u64, step: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
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

fn apply(transaction: &Transaction<'_>, write: Write, rev: u64) -> rusqlite::Result<Result<Event, WriteError>> {
    let Write { key, expect, op, guard } = write;
    let prev = current(transaction, &key)?;
    match (expect, prev) {
        (Expect::Absent, None) => {}
        (Expect::Rev(wanted), Some(found)) if wanted == found => {}
        _ => return Ok(Err(WriteError::Conflict)),
    }
    if let Some(guard) = guard
        && !holds(transaction, &guard)?
    {
        return Ok(Err(WriteError::Guard));
    }
    let ns = stored_ns(&key.ns);
    let (deleted, body) = match op {
        Op::Put(body) => (false, body),
        Op::Delete(body) => (true, body),
    };
    transaction
        .prepare_cached(
            "INSERT INTO rows (rev, resource, ns, name, prev, deleted, body) VALUES (?1,?2,?3,?4,?5,?6,?7)",
        )?
        .execute(params![sql(rev), &*key.resource, ns, key.name, sql(prev.unwrap_or(0)), deleted, &body[..]])?;
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
    let Key { resource, ns, name } = key;
    Ok(Ok(Event { rev, prev: prev.unwrap_or(0), resource, ns, name, deleted, body, frames: Frames::default() }))
}

/// After a failed sync nobody knows what is on the disk: only a new start can read it again.
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
