//! The agent's API: commands and what has become of them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Names of commands, `extension.command` (`A:extensions`).
pub mod names {
    /// Writes an image: [`crate::PrepareImage`].
    pub const PREPARE_IMAGE: &str = "standby.prepare_image";
    /// Gives the UUIDs of the written partitions: [`crate::PartitionUuids`].
    pub const GET_PARTITION_UUIDS: &str = "standby.get_partition_uuids";
    /// Restarts the machine.
    pub const RUN_IMAGE: &str = "standby.run_image";
    /// Switches the machine off.
    pub const POWER_OFF: &str = "standby.power_off";
    /// Writes buffers to disks.
    pub const SYNC: &str = "standby.sync";
    /// Makes the machine boot what was written: [`crate::InstallBootloader`].
    pub const INSTALL_BOOTLOADER: &str = "image.install_bootloader";
    /// Gives the agent's logs: `{"system_logs": …}`, a tar.gz in base64.
    pub const COLLECT_SYSTEM_LOGS: &str = "log.collect_system_logs";
    /// Ends the agent, and cuts the machine off.
    pub const LOCKDOWN: &str = "system.lockdown";
}

/// Body of `POST /v1/commands/` (`A:api/app.py`, `api_run_command`).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRequest {
    /// `extension.command`.
    pub name: String,
    /// Parameters by name.
    pub params: Map<String, Value>,
}

impl std::fmt::Debug for CommandRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Parameters carry passwords and config drives.
        f.debug_struct("CommandRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CommandRequest {
    /// Extension and command; `None` without a point between them.
    #[must_use]
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.name.split_once('.')
    }
}

/// A command, as the agent tells of it (`A:extensions/base.py`, `BaseCommandResult`).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// UUID.
    pub id: String,
    /// The command without its extension: `execute_clean_step`.
    pub command_name: String,
    /// How it is.
    pub command_status: CommandStatus,
    /// Why it failed.
    #[serde(default)]
    pub command_error: Option<CommandFault>,
    /// What it gave.
    #[serde(default)]
    pub command_result: Option<Value>,
}

impl std::fmt::Debug for CommandResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A result repeats its step, which may carry a config drive.
        f.debug_struct("CommandResult")
            .field("id", &self.id)
            .field("command_name", &self.command_name)
            .field("command_status", &self.command_status)
            .field("command_error", &self.command_error)
            .finish_non_exhaustive()
    }
}

/// How a command is (`A:extensions/base.py`, `AgentCommandStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommandStatus {
    /// It runs.
    #[serde(rename = "RUNNING")]
    Running,
    /// It is done.
    #[serde(rename = "SUCCEEDED")]
    Succeeded,
    /// It failed.
    #[serde(rename = "FAILED")]
    Failed,
    /// The agent's hardware managers are not those that the steps were listed by: cleaning begins anew.
    #[serde(rename = "CLEAN_VERSION_MISMATCH")]
    VersionMismatch,
    /// A word that is not known.
    #[serde(rename = "UNKNOWN", other)]
    Unknown,
}

/// The answer to `GET /v1/commands/`, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandList {
    /// The commands.
    pub commands: Vec<CommandResult>,
}

impl CommandList {
    /// The last command of that name, with its extension or without.
    #[must_use]
    pub fn last_of(&self, name: &str) -> Option<&CommandResult> {
        let name = name.split_once('.').map_or(name, |(_, command)| command);
        self.commands.iter().rev().find(|command| command.command_name == name)
    }
}

/// Why a command failed (`A:errors.py`, `RESTError`). Some commands fail with a text alone, which is then the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandFault {
    /// Name of the error: `ImageChecksumError`.
    #[serde(rename = "type")]
    pub kind: String,
    /// As an HTTP status.
    pub code: u16,
    /// What kind of error that is.
    pub message: String,
    /// What happened.
    pub details: String,
}

impl CommandFault {
    /// The text that Ironic shows (`I:drivers/modules/agent_client.py`, `get_command_error`).
    #[must_use]
    pub fn text(&self) -> &str {
        if self.details.is_empty() { &self.message } else { &self.details }
    }

    /// An error of this type.
    pub fn new(kind: &str, code: u16, message: &str, details: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), code, message: message.to_owned(), details: details.into() }
    }
}

impl<'de> Deserialize<'de> for CommandFault {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |map: &Map<String, Value>, key: &str| match map.get(key) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        Ok(match Value::deserialize(deserializer)? {
            Value::Object(map) => {
                let message = if map.contains_key("message") { "message" } else { "error" };
                Self {
                    kind: text(&map, "type"),
                    code: map
                        .get("code")
                        .and_then(Value::as_u64)
                        .and_then(|code| u16::try_from(code).ok())
                        .unwrap_or(0),
                    message: text(&map, message),
                    details: text(&map, "details"),
                }
            }
            Value::String(message) => Self { message, ..Self::default() },
            other => Self { message: other.to_string(), ..Self::default() },
        })
    }
}

/// An error of the agent's API (`A:api/app.py`, `format_exception`). Ironic takes a fault whose text has `agent is busy` for one that passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiFault {
    /// `Client` or `Server`.
    #[serde(default)]
    pub faultcode: String,
    /// In words.
    #[serde(default)]
    pub faultstring: String,
}

impl ApiFault {
    /// The fault of an HTTP status.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        let faultcode = if status >= 500 { "Server" } else { "Client" };
        Self { faultcode: faultcode.to_owned(), faultstring: text.into() }
    }
}

/// The answer to `GET /v1/status` (`A:agent.py`, `IronicPythonAgentStatus`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// When it was started: seconds since 1970.
    #[serde(default)]
    pub started_at: Option<f64>,
    /// Its version.
    pub version: String,
}

fn link(url: &str, rel: &str, rest: &str) -> Value {
    json!({ "href": format!("{url}/{rest}"), "rel": rel })
}

fn version(url: &str) -> Map<String, Value> {
    let mut version = Map::new();
    version.insert("id".to_owned(), json!("v1"));
    version.insert("links".to_owned(), json!([link(url, "self", "v1/")]));
    version
}

/// The answer to `GET /`, of an agent at this address (without a slash at its end).
#[must_use]
pub fn root_document(url: &str, name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "versions": [version(url)], "default_version": version(url) })
}

/// The answer to `GET /v1/`.
#[must_use]
pub fn version_document(url: &str) -> Value {
    let mut document = version(url);
    document.insert("commands".to_owned(), json!([link(url, "self", "v1/commands/")]));
    document.insert("status".to_owned(), json!([link(url, "self", "v1/status")]));
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_in_each_of_its_shapes() {
        let fault = |json: &str| serde_json::from_str::<CommandFault>(json).unwrap();
        let whole = fault(r#"{"type": "ImageWriteError", "code": 500, "message": "m", "details": "d", "more": 1}"#);
        assert_eq!((whole.kind.as_str(), whole.code, whole.text()), ("ImageWriteError", 500, "d"));
        assert_eq!(fault(r#"{"error": "e"}"#).text(), "e");
        assert_eq!(fault(r#""just text""#).text(), "just text");
        assert_eq!(fault(r#"{"message": "m", "details": null, "code": "x"}"#).text(), "m");
        assert_eq!(fault("[1]").text(), "[1]");
    }

    #[test]
    fn an_order_and_its_result_show_no_secrets() {
        let params = serde_json::from_str(r#"{"configdrive": "hidden"}"#).unwrap();
        let order = CommandRequest { name: "standby.prepare_image".into(), params };
        assert_eq!(order.parts(), Some(("standby", "prepare_image")));
        assert!(!format!("{order:?}").contains("hidden"));
        let status: CommandStatus = serde_json::from_str(r#""PAUSED""#).unwrap();
        assert_eq!(status, CommandStatus::Unknown);
        let result = CommandResult {
            id: "1".into(),
            command_name: "prepare_image".into(),
            command_status: CommandStatus::Succeeded,
            command_error: None,
            command_result: Some(json!("hidden")),
        };
        assert!(!format!("{result:?}").contains("hidden"));
        let list = CommandList { commands: vec![result.clone(), CommandResult { id: "2".into(), ..result }] };
        assert_eq!(list.last_of("standby.prepare_image").map(|found| found.id.as_str()), Some("2"));
        assert!(list.last_of("sync").is_none());
    }
}
