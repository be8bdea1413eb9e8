//! What commands run with: the machine, the runtime, the time.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::FirmwareState;
use tokio::runtime::Handle;

use crate::machine::Machine;
use crate::neighbours::Listener;
use crate::report::tls::ServerClock;

/// Runs commands on a machine.
pub struct Runner {
    pub(super) machine: Arc<dyn Machine>,
    /// Runs downloads; commands themselves run on a thread that may block.
    pub(super) handle: Handle,
    /// More certificate authorities for images, in PEM.
    pub(super) image_ca_pem: String,
    /// The time for verifying certificates of image servers.
    pub(super) clock: Arc<ServerClock>,
    /// How long disks that must be there are waited for.
    pub(super) patience: Duration,
    /// Certificates of image servers are not verified: the checksum alone says what an image is.
    pub(super) trusts_any: bool,
    /// Who listens for LLDP; nobody where no inspection wants it.
    pub(super) listener: Option<Listener>,
}

/// How long disks may take to appear: controllers reset, enclosures spin up, drivers load late.
const LATE_DISKS: Duration = Duration::from_secs(60);

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    /// A runner for this machine. `handle` is the runtime that downloads run on, `clock` the server's time ([`crate::report::Client::clock`]).
    #[must_use]
    pub fn new(
        machine: Arc<dyn Machine>,
        handle: Handle,
        image_ca_pem: impl Into<String>,
        clock: Arc<ServerClock>,
    ) -> Self {
        Self {
            machine,
            handle,
            image_ca_pem: image_ca_pem.into(),
            clock,
            patience: LATE_DISKS,
            trusts_any: false,
            listener: None,
        }
    }

    /// Waits for disks that must be there for this long instead of a minute.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Has inspections tell what this listener hears.
    #[must_use]
    pub fn hearing(self, listener: Listener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Takes any certificate of an image server, as Ironic's `ipa-insecure` says.
    #[must_use]
    pub fn trusting_any(self, trusts_any: bool) -> Self {
        Self { trusts_any, ..self }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &dyn Machine {
        self.machine.as_ref()
    }

    /// The kernel's id of this boot; `unknown` if the kernel has none.
    #[must_use]
    pub fn boot_id(&self) -> String {
        self.machine.tree().text("proc/sys/kernel/random/boot_id").unwrap_or_else(|| "unknown".to_owned())
    }

    /// Current evidence of the machine's identity.
    #[must_use]
    pub fn evidence(&self) -> inventory::MachineEvidence {
        crate::facts::evidence(self.machine.tree())
    }

    /// How the firmware has started the machine.
    #[must_use]
    pub fn firmware(&self) -> FirmwareState {
        let variables = self.machine.variables();
        FirmwareState {
            uefi: crate::facts::is_uefi(self.machine.tree()),
            secure_boot: variables.secure_boot(),
            setup_mode: variables.setup_mode(),
        }
    }
}
