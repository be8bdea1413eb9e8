//! Tables in memory, which outlive an in-process server and can be given to the next one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::seal::Keyring;
use super::sqlite::{FORMAT, Opened, TABLES, failed, opened, planned_once};
use super::types::StoreError;

/// Cached prepared statements: enough for all of the store.
const STATEMENTS: usize = 64;

/// The tables and the keys of their Secrets. Clones share the same tables.
#[derive(Clone)]
pub struct Memory {
    connection: Arc<Mutex<Connection>>,
    keys: Arc<Keyring>,
}

impl Memory {
    /// Empty tables.
    pub fn new() -> Result<Self, StoreError> {
        let connection = connect()?;
        connection.execute_batch(&format!("{TABLES} PRAGMA user_version={FORMAT};")).map_err(failed("set-up"))?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), keys: Arc::new(Keyring::of_memory()?) })
    }

    /// Copies the present content to new tables.
    pub fn copy(&self) -> Result<Self, StoreError> {
        let mut target = connect()?;
        {
            let source = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let copying = Backup::new(&source, &mut target).map_err(failed("copy"))?;
            // The lock excludes all other users, so there is no need to wait.
            copying.run_to_completion(i32::MAX, Duration::ZERO, None).map_err(failed("copy"))?;
        }
        Ok(Self { connection: Arc::new(Mutex::new(target)), keys: Arc::clone(&self.keys) })
    }

    /// The connection and state that a store needs.
    pub(super) fn open(&self) -> Result<(Arc<Mutex<Connection>>, Opened), StoreError> {
        let opened = {
            let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            opened(&connection, Arc::clone(&self.keys))?
        };
        Ok((Arc::clone(&self.connection), opened))
    }
}

fn connect() -> Result<Connection, StoreError> {
    let connection = Connection::open_in_memory().map_err(failed("open"))?;
    connection.busy_timeout(Duration::ZERO).map_err(failed("open"))?;
    planned_once(&connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
