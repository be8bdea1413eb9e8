//! The provisioner object.

use std::sync::Arc;

use async_trait::async_trait;
use provisioner::{
    Capabilities, Failure, Host, HostContext, HostFacts, HostKey, Named, Provisioner, Recorded, WakeUps, Waker,
};

use crate::host::{FixtureHost, owner};
use crate::journal::{Journal, Memory};
use crate::machines::Machines;
use crate::names::{NAME, UPSTREAMS_ID, id_prefix};
use crate::shared::Shared;

/// What it can do: everything but what takes a BMC that reads.
#[must_use]
pub const fn capabilities() -> Capabilities {
    Capabilities {
        live_iso: true,
        live_iso_config: true,
        hardware_raid: true,
        software_raid: true,
        firmware_settings: true,
        firmware_components: true,
        firmware_updates: true,
        service: true,
        fast_inspection: true,
        erase: true,
        steps: true,
        custom_deploy: true,
        data_images: true,
        events: true,
        health: true,
        diagnose: true,
        test_medium: false,
        logs: true,
        locate: true,
        boot_images: Vec::new(),
        legacy_boot: true,
        secure_boot: true,
        needs_boot_mac: false,
        image_formats: Vec::new(),
        image_schemes: Vec::new(),
        proves_identity: true,
        marks_disks: true,
        architectures: Vec::new(),
    }
}

/// A provisioner of machines that exist in memory.
pub struct FixtureProvisioner {
    shared: Arc<Shared>,
    waker: Waker,
}

impl FixtureProvisioner {
    /// A provisioner of these machines, which knows nothing.
    #[must_use]
    pub fn new(machines: Machines) -> Self {
        Self::named(NAME, machines)
    }

    /// The same under another name, by which its ids begin as well: beside one that has its own.
    #[must_use]
    pub fn named(name: &'static str, machines: Machines) -> Self {
        Self { shared: Arc::new(Shared { machines, memory: Memory::of(name) }), waker: Waker::default() }
    }

    /// Has the controller look at the host, as a machine does that says something.
    pub fn wake(&self, host: &HostKey) {
        self.waker.wake(host);
    }
}

impl Named for FixtureProvisioner {
    fn name(&self) -> &'static str {
        self.shared.memory.name
    }
}

#[async_trait]
impl Provisioner for FixtureProvisioner {
    fn capabilities(&self, _: &HostFacts) -> Capabilities {
        capabilities()
    }

    fn made(&self, id: &str) -> bool {
        id.starts_with(&id_prefix(self.name())) || id == UPSTREAMS_ID && self.name() == NAME
    }

    fn machine_key(&self, address: &str) -> Option<String> {
        (!address.is_empty()).then(|| address.to_owned())
    }

    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        let journal = Journal::read(&context, &self.shared.memory)?;
        // Machines are in memory, and a server's start must not switch them off.
        if let Some(deployed) = context.deployed.as_ref().filter(|_| !context.provisioning_id.is_empty()) {
            self.shared.machines.take_over(&context.address, deployed, owner(&context));
        }
        Ok(Box::new(FixtureHost { shared: Arc::clone(&self.shared), context, journal }))
    }

    /// Its machines say nothing by themselves: the controller looks again when it is told to.
    fn has_news(&self, _: &HostKey) -> bool {
        false
    }

    fn acknowledge_news(&self, _: &HostKey) {}

    fn subscribe(&self) -> WakeUps {
        self.waker.subscribe()
    }

    fn expect(&self, _: &HostKey, _: &Recorded) {}

    fn forget(&self, key: &HostKey) {
        self.shared.memory.forget(&key.uid);
    }

    async fn close(&self) {}
}
