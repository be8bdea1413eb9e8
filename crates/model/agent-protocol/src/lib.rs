//! Messages between the agent and the server: one exchange, always begun by the agent.
//!
//! The agent reports its whole state ([`Report`]) to `POST {agent endpoint}/agent/v1/report`; the server answers with a
//! [`Directive`]. While there is nothing to do the server holds the answer back (long poll, at most [`Report::wait_seconds`]), so
//! that a command reaches an idle agent at once. Because each report says everything, a restarted server knows after one
//! report where the machine stands, and nothing is lost when an answer is.
//!
//! **Identity.** The agent proves itself by `Authorization: Bearer <token>`; the token, which [`HostConfig`] carries on the boot
//! medium, is derived by the server from its secret, the host's uid and the boot generation, and names the latter two, so that a report
//! is judged before its body is read. To the agent it is opaque. Whoever reads the medium learns it: so each boot of the agent makes a key of its own
//! ([`BOOT_KEY_HEADER`]), and the first report binds the generation to it. The agent trusts exactly
//! one server certificate, whose SHA-256 the medium names and which it asks for in the TLS handshake ([`certificate_hint`]), and looks at no clock of its own: the time at which it judges the
//! certificates of image servers is that of the server's last answer (the `Date` field of HTTP).
//!
//! **Fencing.** A command carries operation, attempt and boot id ([`CommandId`]). The agent refuses a command for another boot,
//! runs each id once, keeps its outcome until the server has acknowledged it, and leaves the machine (reboot, power off) only
//! when the server has acknowledged that it may.
//!
//! Sizes are bounded by the `MAX_*` constants, on both sides.

mod command;
mod host_config;
mod network;
mod report;

pub use command::{Action, Command, CommandId, ConfigDrive, DiskMark, ImageSource, Leave, WipeDisks, WriteImage};
pub use host_config::{AgentNetwork, HostConfig, certificate_hint};
pub use network::{
    BondLink, Link, LinkKind, NetworkAddress, NetworkData, NetworkDataError, NetworkPlan, RawLink, RawNetwork,
    RawRoute, RawService, Route, VlanLink,
};
pub use report::{
    AgentState, CommandError, Directive, DiskMarkFound, ErrorCode, FirmwareState, LeftDisk, LogLine, Outcome, Phase,
    Progress, Report, WriteSummary,
};
pub use terms::{ChecksumType, DiskFormat};

/// Version of this protocol. 2 adds the boot's key, disks that a wipe expects and those that it leaves, and what the firmware says of Secure Boot.
pub const PROTOCOL_VERSION: u32 = 2;

/// Oldest version that is served, so that an upgrade of the server orphans no agent. An agent of that version is heard, and brings the work that
/// it has begun to its end; it is given none that it would do otherwise than it is meant.
pub const OLDEST_PROTOCOL: u32 = 1;

/// Header of a report with the key of the agent's boot: 32 random bytes in base64url without padding, made by the agent and never on a medium. The
/// first report of a boot generation binds it to that boot and its key.
pub const BOOT_KEY_HEADER: &str = "metamorph-boot-key";

/// Path of the one endpoint, below the agent base address.
pub const REPORT_PATH: &str = "/agent/v1/report";

/// Where the host's configuration lies in the agent's file system (and inside the host's cpio archive on the medium).
pub const HOST_CONFIG_PATH: &str = "/metamorph/host.json";

/// Largest report the server reads, in bytes.
pub const MAX_REPORT_BYTES: usize = 4 << 20;

/// Largest directive the agent reads, in bytes (a config drive of up to 64 MiB is base64 in it, hence the size).
pub const MAX_DIRECTIVE_BYTES: usize = 96 << 20;

/// Longest time a report may be held back, in seconds.
pub const MAX_WAIT_SECONDS: u64 = 30;

/// Most log lines in one report; more are dropped with a line that says how many.
pub const MAX_LOG_LINES: usize = 500;

/// File name of the EFI variable that is the second witness of the owner, below `/sys/firmware/efi/efivars`.
pub const OWNER_EFI_VARIABLE: &str = "MetamorphOwner-8f5b1c1e-7c0c-4c6e-9a5c-2b1d8a0f4e21";
