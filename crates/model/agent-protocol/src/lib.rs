//! Messages between the agent and the server: one exchange, always begun by the agent.
//!
//! The agent reports its whole state ([`Report`]) to `POST {agent endpoint}/agent/v1/report`; the server answers with a
//! [`Directive`]. While the server has no work it delays the answer (long poll, at most [`Report::wait_seconds`]), so
//! that a command reaches an idle agent at once. Because each report is complete, a restarted server knows the machine's state after one
//! report, and a lost answer loses nothing.
//!
//! **Identity.** The agent authenticates with `Authorization: Bearer <token>`. The token, which [`HostConfig`] carries on the boot medium, is opaque
//! to the agent. The server derives it from its secret, the host's uid and the boot generation, and it contains the latter two, so that the server
//! can check a report before it reads the body. Anyone who can read the medium learns the token: therefore each boot of the agent makes its own key
//! ([`BOOT_KEY_HEADER`]), and the first report binds the generation to it. The agent trusts exactly one server certificate: the medium has its
//! SHA-256, and the agent requests it in the TLS handshake ([`certificate_hint`]). The agent does not use its own clock: it verifies the certificates
//! of image servers at the time of the server's last answer (HTTP's `Date` field).
//!
//! **Fencing.** A command carries operation, attempt and boot id ([`CommandId`]). The agent refuses a command for another boot,
//! runs each id once, keeps its outcome until the server has acknowledged it, and leaves the machine (reboot, power off) only
//! when the server has acknowledged that it may.
//!
//! Both sides bound all sizes by the `MAX_*` constants.

mod commands;
mod discovery;
mod host_config;
mod network;
mod report;

pub use commands::{
    Action, Authorization, Command, CommandId, ConfigDrive, DiskMark, DrivePassword, EraseDisks, ImageProxy,
    ImageSource, Leave, RunStep, SourceAddress, WipeDisks, WriteImage,
};
pub use discovery::{
    AddressSource, Afterwards, BmcClaim, DISCOVERY_CONFIG_PATH, DISCOVERY_PATH, DISCOVERY_PROTOCOL, DiscoveryConfig,
    Heard, LanChannel, MAX_CHANNELS, MAX_HEARD_BYTES, MAX_IPV6, MAX_SAID, MAX_SIGHTING_BYTES, RedfishInterface,
    Sighting,
};
pub use host_config::{AgentNetwork, HostConfig, certificate_hint};
pub use network::{
    BondLink, Link, LinkKind, NetworkAddress, NetworkData, NetworkDataError, NetworkPlan, RawLink, RawNetwork,
    RawRoute, RawService, Route, VlanLink,
};
pub use report::{
    AgentState, CommandError, Directive, DiskMarkFound, ErrorCode, FirmwareState, LeftDisk, ListedArgument, ListedStep,
    LogLine, Outcome, Phase, Progress, Report, WriteSummary,
};
pub use terms::{ChecksumType, Compression, DiskFormat};

/// Version of this protocol. Version 2 adds the boot's key, the disks that a wipe expects and those that it leaves, and the firmware's Secure Boot
/// state. Version 3 adds images' compression and authorization: an agent without them would write a compressed image as it is. Version 4 adds mirrors
/// and proxies of images, and erasing: an agent without them would read an image where it is not to be read, and understands no order to erase.
pub const PROTOCOL_VERSION: u32 = 4;

/// Oldest version that the server supports, so that an upgrade of the server orphans no agent. An agent of that version can report and finish the
/// work that it has begun; it gets no new work that it would execute differently.
pub const OLDEST_PROTOCOL: u32 = 1;

/// Header of a report with the key of the agent's boot: 32 random bytes in base64url without padding, made by the agent and never on a medium. The
/// first report of a boot generation binds it to that boot and its key.
pub const BOOT_KEY_HEADER: &str = "metamorph-boot-key";

/// Header of an answer with status 403 that dismisses the agent: the boot generation that the server has no work for any more. A proxy's own 403 has
/// none.
pub const DISMISSED_HEADER: &str = "metamorph-dismissed";

/// Path of the one endpoint, below the agent base address.
pub const REPORT_PATH: &str = "/agent/v1/report";

/// Where the host's configuration lies in the agent's file system (and inside the host's cpio archive on the medium).
pub const HOST_CONFIG_PATH: &str = "/metamorph/host.json";

/// Largest report the server reads, in bytes.
pub const MAX_REPORT_BYTES: usize = 4 << 20;

/// Largest directive the agent reads, in bytes (a config drive of up to 64 MiB is base64 in it, hence the size).
pub const MAX_DIRECTIVE_BYTES: usize = 96 << 20;

/// Longest delay of an answer (long poll), in seconds.
pub const MAX_WAIT_SECONDS: u64 = 30;

/// Most log lines in one report; more are dropped with a line that says how many.
pub const MAX_LOG_LINES: usize = 500;

/// File name of the EFI variable that is the second witness of the owner, below `/sys/firmware/efi/efivars`.
pub const OWNER_EFI_VARIABLE: &str = "MetamorphOwner-8f5b1c1e-7c0c-4c6e-9a5c-2b1d8a0f4e21";
