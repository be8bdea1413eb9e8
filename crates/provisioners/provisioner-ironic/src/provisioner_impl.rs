//! The provisioner object, and what it can do with a host.

use std::sync::Arc;

use async_trait::async_trait;
use provisioner::{
    Capabilities, CustomDeploy, DataImages, Events, Failure, Firmware, Health, Host, HostContext, HostFacts, HostKey,
    LiveMedia, Named, OtherMaster, Prepare, Provisioner, Recorded, Service, WakeUps, Waker,
};

use crate::client::Client;
use crate::driver::Address;
use crate::host::{IronicHost, One, Shared};
use crate::journal::{Journal, Memory};
use crate::names::{NAME, is_uuid};
use crate::nodes::Nodes;
use crate::sites::Site;
use crate::transport::Transport;

/// An Ironic to use: what is configured of it, and how it is reached.
pub struct Ironic {
    /// What is configured of it.
    pub site: Site,
    /// The way to it.
    pub transport: Arc<dyn Transport>,
}

/// What it can do with hosts whose BMCs speak Redfish: nearly everything.
#[must_use]
pub fn capabilities() -> Capabilities {
    of_address(&Address::parse("redfish-virtualmedia://bmc.invalid/", false).ok(), false)
}

fn of_address(address: &Option<Address>, fakes: bool) -> Capabilities {
    let redfish = address.as_ref().is_some_and(|address| address.driver.redfish);
    let driver = address.as_ref().map(|address| address.driver);
    Capabilities {
        live_iso: !fakes,
        // Ironic would need a second drive for it, which many machines do not have.
        live_iso_config: false,
        hardware_raid: redfish,
        software_raid: !fakes,
        firmware_settings: redfish || fakes,
        firmware_components: redfish || fakes,
        firmware_updates: redfish || fakes,
        service: redfish || fakes,
        fast_inspection: driver.is_some_and(|driver| driver.fast.is_some()),
        erase: false,
        steps: false,
        custom_deploy: !fakes,
        data_images: redfish,
        events: redfish,
        health: true,
        diagnose: false,
        test_medium: false,
        logs: false,
        // Its indicators are not used: what they are called differs from node to node, and Ironic does not tell whether the machine is the host's.
        locate: false,
        boot_images: Vec::new(),
        legacy_boot: true,
        secure_boot: driver.is_some_and(|driver| driver.secure_boot),
        needs_boot_mac: driver.is_some_and(|driver| driver.needs_mac),
        image_formats: Vec::new(),
        image_schemes: Vec::new(),
        proves_identity: false,
        marks_disks: false,
        architectures: Vec::new(),
    }
}

/// A provisioner of machines that Ironics run.
pub struct IronicProvisioner {
    shared: Arc<Shared>,
    waker: Waker,
}

impl IronicProvisioner {
    /// A provisioner with these Ironics, which knows nothing of hosts.
    #[must_use]
    pub fn new(ironics: Vec<Ironic>) -> Self {
        let ironics =
            ironics.into_iter().map(|ironic| One { site: ironic.site, client: Client::new(ironic.transport) });
        let shared = Shared { ironics: ironics.collect(), memory: Memory::default() };
        Self { shared: Arc::new(shared), waker: Waker::default() }
    }

    /// Who tells other provisioners which machines these Ironics have.
    #[must_use]
    pub fn nodes(&self) -> Arc<dyn OtherMaster> {
        Arc::new(Nodes::new(Arc::clone(&self.shared)))
    }
}

impl Named for IronicProvisioner {
    fn name(&self) -> &'static str {
        NAME
    }
}

#[async_trait]
impl Provisioner for IronicProvisioner {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        let fakes = self.shared.of_namespace(&host.key.namespace).is_some_and(|one| one.site.fakes);
        of_address(&Address::parse(&host.address, fakes).ok(), fakes)
    }

    /// Its ids are those of Ironic's nodes, which baremetal-operator uses, too.
    fn made(&self, id: &str) -> bool {
        is_uuid(id)
    }

    fn machine_key(&self, address: &str) -> Option<String> {
        Address::parse(address, false).ok().map(|address| address.key())
    }

    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        let journal = Journal::read(&context, &self.shared.memory)?;
        let capabilities = self.capabilities(&context.facts);
        Ok(Box::new(IronicHost { shared: Arc::clone(&self.shared), context, journal, capabilities }))
    }

    /// Ironic says nothing by itself: the controller looks again when it is told to.
    fn has_news(&self, _: &HostKey) -> bool {
        false
    }

    fn acknowledge_news(&self, _: &HostKey) {}

    fn restart_is_noted(&self, key: &HostKey) {
        self.shared.memory.of(&key.uid, |live| {
            if live.power.take().is_some() {
                live.restart_is_over = true;
            }
        });
    }

    fn subscribe(&self) -> WakeUps {
        self.waker.subscribe()
    }

    fn expect(&self, _: &HostKey, _: &Recorded) {}

    fn forget(&self, key: &HostKey) {
        self.shared.memory.forget(&key.uid);
    }

    async fn close(&self) {}
}

impl Host for IronicHost {
    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        self.capabilities.prepares().then_some(self as &mut dyn Prepare)
    }
    fn service(&mut self) -> Option<&mut dyn Service> {
        self.capabilities.service.then_some(self as &mut dyn Service)
    }
    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        self.capabilities.live_iso.then_some(self as &mut dyn LiveMedia)
    }
    fn custom_deploy(&mut self) -> Option<&mut dyn CustomDeploy> {
        self.capabilities.custom_deploy.then_some(self as &mut dyn CustomDeploy)
    }
    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        self.capabilities.data_images.then_some(self as &mut dyn DataImages)
    }
    fn events(&mut self) -> Option<&mut dyn Events> {
        self.capabilities.events.then_some(self as &mut dyn Events)
    }
    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        (self.capabilities.firmware_settings || self.capabilities.firmware_components)
            .then_some(self as &mut dyn Firmware)
    }
    fn health(&mut self) -> Option<&mut dyn Health> {
        Some(self)
    }
}
