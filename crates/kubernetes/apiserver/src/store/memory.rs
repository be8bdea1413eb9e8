//! Tables in memory: what a server in process leaves behind when it ends, and the next one begins with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::seal::Keyring;
use super::sqlite::{FORMAT, Opened, TABLES, failed, opened};
use super::types::StoreError;

/// Statements kept ready: all that the store has.
const STATEMENTS: usize = 64;

/// The tables with the keys of their Secrets. Clones are of the same tables.
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

    /// Tables of their own with what these hold at this moment.
    pub fn copy(&self) -> Result<Self, StoreError> {
        let mut target = connect()?;
        {
            let source = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
            let copying = Backup::new(&source, &mut target).map_err(failed("copy"))?;
            // The lock keeps all others out: there is nobody to wait for.
            copying.run_to_completion(i32::MAX, Duration::ZERO, None).map_err(failed("copy"))?;
        }
        Ok(Self { connection: Arc::new(Mutex::new(target)), keys: Arc::clone(&self.keys) })
    }

    /// What a store needs to work on them.
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
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}
