//! What ironic-python-agent and Ironic say to each other, as types for both sides.
//!
//! There are two HTTP APIs. The agent calls Ironic's: it looks for its node ([`LookupAnswer`]), sends what it has found
//! ([`InspectionData`]) and says that it lives ([`Heartbeat`]). Ironic calls the agent's, on port 9999: it orders a command
//! ([`CommandRequest`]), asks how commands are ([`CommandList`]) and gets each of them as a [`CommandResult`]. A command of the
//! extensions `clean`, `deploy` and `service` runs a step ([`ExecuteStep`]); the step `write_image` has an [`ImageInfo`]. What the
//! agent is told when it starts stands on the kernel's command line and in `parameters.txt` of a medium ([`Parameters`]).
//!
//! **Who trusts whom.** The agent's certificate is its own; the heartbeat carries it, and Ironic trusts it alone for that node. The agent
//! knows Ironic's calls by the token, which both have from the medium, or Ironic gives out once, with the first lookup.
//!
//! **Shapes.** Fields are those of ironic-python-agent 12 and 13 and Ironic 38 and 39; each type names the file that it was read in (`A:` for
//! `ironic_python_agent`, `I:` for `ironic`). Fields that are not known are tolerated, as both programs do, and kept where they matter.
//! Everything is read by [`read`], with one of the `MAX_*` lengths. A [`Secret`] is never shown.

mod api;
mod bounded;
mod command;
mod hardware;
mod image;
mod inspection;
mod parameters;
mod secret;
mod steps;

pub use api::{
    ContinueAnswer, Heartbeat, HeartbeatStatus, LookupAnswer, LookupConfig, LookupNode, MASKED_TOKEN, MIN_TOKEN,
    api_error,
};
pub use bounded::{ReadError, read};
pub use command::{
    AgentStatus, ApiFault, CommandFault, CommandList, CommandRequest, CommandResult, CommandStatus, names,
    root_document, version_document,
};
pub use hardware::{BootInfo, Cpu, Disk, Interface, Inventory, LldpRecord, Memory, SystemFirmware, SystemVendor};
pub use image::{ImageInfo, InstallBootloader, PartitionUuids, PrepareImage};
pub use inspection::{Configuration, InspectionData, ManagerVersion, PciDevice};
pub use parameters::{Parameters, ParametersError};
pub use secret::Secret;
pub use steps::{ExecuteStep, GetSteps, Step, StepDone, StepKind, StepsAnswer, Versions};

/// Port of the agent's API (`A:config.py`, `listen_port`).
pub const AGENT_PORT: u16 = 9999;

/// Version of Ironic's API with which an agent that sends its certificate heartbeats (`A:ironic_api_client.py`,
/// `AGENT_VERIFY_CA_IRONIC_VERSION`).
pub const HEARTBEAT_VERSION: &str = "1.68";

/// Version of Ironic's API with which an agent that takes a token looks for its node (`A:ironic_api_client.py`, `AGENT_TOKEN_IRONIC_VERSION`).
pub const LOOKUP_VERSION: &str = "1.62";

/// The header that carries the version of Ironic's API.
pub const VERSION_HEADER: &str = "X-OpenStack-Ironic-API-Version";

/// Path of lookups, below an address of Ironic.
pub const LOOKUP_PATH: &str = "/v1/lookup";

/// Path of heartbeats, below an address of Ironic; the node's UUID follows.
pub const HEARTBEAT_PATH: &str = "/v1/heartbeat/";

/// Path of inspection data, below an address of Ironic.
pub const CONTINUE_PATH: &str = "/v1/continue_inspection";

/// Path of commands, below the agent's address.
pub const COMMANDS_PATH: &str = "/v1/commands/";

/// Largest answer to a lookup, in bytes: it carries the node's `instance_info`, which may have a config drive.
pub const MAX_LOOKUP_BYTES: usize = 96 << 20;

/// Largest heartbeat, in bytes.
pub const MAX_HEARTBEAT_BYTES: usize = 64 << 10;

/// Largest inspection data, in bytes: Ironic's own limit (`I:api/app.py`), logs included.
pub const MAX_INSPECTION_BYTES: usize = 16 << 20;

/// Largest order of a command, in bytes. A config drive is in it up to three times.
pub const MAX_COMMAND_BYTES: usize = 96 << 20;

/// Largest result of a command, or list of results, in bytes: one may carry the agent's logs.
pub const MAX_RESULT_BYTES: usize = 64 << 20;

/// Longest `parameters.txt` or command line, in bytes.
pub const MAX_PARAMETERS_BYTES: usize = 64 << 10;
