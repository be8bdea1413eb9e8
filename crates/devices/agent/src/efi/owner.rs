//! The owner's mark in firmware: the second witness beside the partition on the disk.

use agent_protocol::{DiskMark, OWNER_EFI_VARIABLE};
use serde::{Deserialize, Serialize};

use super::{EfiVariables, VariableError};

/// Version of the content.
const VERSION: u32 = 1;

/// Owner of a mark that cannot be read; consent may name it.
pub const UNREADABLE: &str = "(unreadable)";

/// Content of the variable, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// Version of this content.
    pub version: u32,
    /// Owner: `status.provisioning.ID`.
    pub owner: String,
    /// `namespace/name` of the host.
    pub host: String,
    /// HostOperation that wrote it.
    pub operation: String,
}

/// Reads the record; `None` if there is none. An unreadable record counts as an unknown owner's.
///
/// # Errors
/// [`VariableError`].
pub fn read(variables: &EfiVariables) -> Result<Option<OwnerRecord>, VariableError> {
    let Some(value) = variables.read(OWNER_EFI_VARIABLE)? else { return Ok(None) };
    Ok(Some(serde_json::from_slice(&value).unwrap_or_else(|_| OwnerRecord {
        version: 0,
        owner: UNREADABLE.to_owned(),
        host: String::new(),
        operation: String::new(),
    })))
}

/// Writes the record.
///
/// # Errors
/// [`VariableError`].
pub fn write(variables: &EfiVariables, mark: &DiskMark) -> Result<(), VariableError> {
    let record = OwnerRecord {
        version: VERSION,
        owner: mark.owner.clone(),
        host: mark.host.clone(),
        operation: mark.operation.clone(),
    };
    let value = serde_json::to_vec(&record).map_err(|error| VariableError {
        action: "encoding",
        name: OWNER_EFI_VARIABLE.to_owned(),
        source: error.into(),
    })?;
    variables.write(OWNER_EFI_VARIABLE, &value)
}

/// Removes the record.
///
/// # Errors
/// [`VariableError`].
pub fn remove(variables: &EfiVariables) -> Result<(), VariableError> {
    variables.remove(OWNER_EFI_VARIABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_outlives_and_an_unreadable_one_is_somebody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let variables = EfiVariables::new(folder.path());
        assert_eq!(read(&variables).unwrap(), None);
        let mark = DiskMark { owner: "o".into(), host: "ns/n".into(), operation: "op".into(), consent: None };
        write(&variables, &mark).unwrap();
        assert_eq!(read(&variables).unwrap().unwrap().owner, "o");
        variables.write(OWNER_EFI_VARIABLE, b"garbage").unwrap();
        assert_eq!(read(&variables).unwrap().unwrap().owner, "(unreadable)");
        remove(&variables).unwrap();
        assert_eq!(read(&variables).unwrap(), None);
    }
}
