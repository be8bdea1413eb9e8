//! One host, one reconcile: the object behind the contract's traits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_protocol::{NetworkData, Outcome as AgentOutcome};
use api::metamorph::OperationPhase;
use bmc::{Bmc, BmcError, Connectors, DataDrive, Drive, ErrorKind};
use boot_media::AgentKind;
use inventory::BmcPin;
use provisioner::{
    BmcAccess, Cause, DataImages, Diagnose, Erase, Events, Failure, Firmware, Health, HealthState, Host, HostContext,
    HostKey, LiveMedia, Locate, Logs, Method, Prepare, Retry, Service, Steps, TestMedia,
};

use crate::ear::Ears;
use crate::hub::Hub;
use crate::journal::{Journal, Operation};
use crate::keys::Key;
use crate::live::{Connected, Live, LiveHost};
use crate::media::{MediaStore, Place};
use crate::networks::{Bases, bases_for};
use crate::places::Places;
use crate::settings::Settings;

/// What all hosts share.
pub struct Shared {
    pub settings: Settings,
    pub hub: Arc<Hub>,
    pub media: MediaStore,
    pub connectors: Connectors,
    pub live: Live,
    pub places: Arc<Places>,
    /// What is heard of BMCs by themselves.
    pub ears: Arc<Ears>,
    pub subjects: Subjects,
}

/// The names by which agents and media know hosts ([`crate::data::Data::subject`]), by the hosts' uids.
#[derive(Default)]
pub struct Subjects(Mutex<Named>);

#[derive(Default)]
struct Named {
    by_uid: HashMap<String, String>,
    /// The reverse: no name is given twice.
    by_name: HashMap<String, String>,
}

impl Subjects {
    fn lock(&self) -> MutexGuard<'_, Named> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host's key with the name under which it is known. A name that another host has is not given again, so a copied record brings none of the
    /// other host's agents.
    pub fn of(&self, key: &HostKey, recorded: &str) -> HostKey {
        let mut all = self.lock();
        let taken = |name: &str| all.by_name.get(name).is_some_and(|uid| *uid != key.uid);
        let mut subject = if taken(recorded) { key.uid.clone() } else { recorded.to_owned() };
        // Another host may even go by this host's uid.
        while taken(&subject) {
            subject.push('+');
        }
        if let Some(before) = all.by_uid.insert(key.uid.clone(), subject.clone()) {
            all.by_name.remove(&before);
        }
        all.by_name.insert(subject.clone(), key.uid.clone());
        HostKey { uid: subject, ..key.clone() }
    }

    /// The same for a host that may not have been looked at yet.
    pub fn known(&self, uid: &str) -> String {
        self.lock().by_uid.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }

    /// Forgets a deleted host and returns its name.
    pub fn forget(&self, uid: &str) -> Option<String> {
        let mut all = self.lock();
        let name = all.by_uid.remove(uid)?;
        all.by_name.remove(&name);
        Some(name)
    }
}

/// One host for one reconcile.
pub struct NativeHost {
    pub shared: Arc<Shared>,
    pub context: HostContext,
    /// What is remembered of its work.
    pub journal: Journal,
    /// The host as agents and media know it.
    key: HostKey,
    /// Network of the agent's system; `None` means DHCP.
    pub agent_network: Option<NetworkData>,
    pub live: Arc<LiveHost>,
    /// Where this host's BMC and machine reach the server.
    pub bases: Bases,
    /// Another boot of the agent is requested.
    pub force_reboot: bool,
    /// How the machine was when it was last looked at.
    pub health: Option<HealthState>,
    /// It is being registered without a status: no machine that may be in use is taken for a new one. With it, the consent that the host gives.
    pub begins: Option<Option<String>>,
}

impl Host for NativeHost {
    fn erase(&mut self) -> Option<&mut dyn Erase> {
        (self.shared.media.images().agent() == AgentKind::Metamorph).then_some(self as &mut dyn Erase)
    }
    fn steps(&mut self) -> Option<&mut dyn Steps> {
        (self.shared.media.images().agent() == AgentKind::IronicPythonAgent).then_some(self as &mut dyn Steps)
    }

    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        Some(self)
    }

    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        Some(self)
    }

    fn events(&mut self) -> Option<&mut dyn Events> {
        Some(self)
    }

    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        Some(self)
    }

    fn service(&mut self) -> Option<&mut dyn Service> {
        Some(self)
    }

    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        Some(self)
    }

    fn health(&mut self) -> Option<&mut dyn Health> {
        Some(self)
    }

    fn diagnose(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }

    fn logs(&mut self) -> Option<&mut dyn Logs> {
        Some(self)
    }

    fn locate(&mut self) -> Option<&mut dyn Locate> {
        Some(self)
    }

    fn test_media(&mut self) -> Option<&mut dyn TestMedia> {
        Some(self)
    }
}

impl NativeHost {
    /// # Errors
    /// When the record, or the network data of the agent's system, cannot be used.
    pub fn new(shared: Arc<Shared>, context: HostContext) -> Result<Self, Failure> {
        let live = shared.live.host(&context.key.uid);
        let journal = Journal::of(&context, &live, &shared.settings.keys)?;
        let key = shared.subjects.of(&context.key, &journal.subject());
        shared.hub.expect(&key, journal.latest_boot().as_ref());
        let agent_network = match &context.agent_network {
            None => None,
            Some(given) => match network(given) {
                Ok(data) => Some(data),
                Err(failure) if context.deleting => {
                    // A deletion goes on without unusable network data.
                    tracing::warn!(host = %context.key.name, "{}; the agent will use DHCP", failure.message);
                    None
                }
                Err(failure) => return Err(failure),
            },
        };
        let (settings, address) = (&shared.settings, context.bmc.as_ref().map(|bmc| bmc.address.as_str()));
        let bases = bases_for(&settings.bases, &settings.networks, &context.key.namespace, address);
        Ok(Self {
            shared,
            context,
            journal,
            key,
            agent_network,
            live,
            bases,
            force_reboot: false,
            health: None,
            begins: None,
        })
    }

    /// Checks that the host still wishes what is about to be ordered. Call this right before each order that switches or resets the machine, or gives
    /// its agent work.
    pub async fn still_wanted(&self) -> Result<(), Failure> {
        self.context.record.still_wanted().await.map_err(Failure::from)
    }

    /// The host, addresses and key that its media are made for.
    pub fn place<'a>(&'a self, root: &'a Key) -> Place<'a> {
        Place { settings: &self.shared.settings, key: &self.key, bases: &self.bases, root }
    }

    /// The media endpoint's addresses for messages.
    pub fn media_bases(&self) -> String {
        self.bases.media.join(" or ")
    }

    /// The name by which agents and media know the host.
    pub fn uid(&self) -> &str {
        &self.key.uid
    }

    /// The host as agents and media know it.
    pub fn key(&self) -> &HostKey {
        &self.key
    }

    pub fn access(&self) -> Result<&BmcAccess, BmcError> {
        self.context.bmc.as_ref().ok_or_else(|| {
            BmcError::new(ErrorKind::Unauthorized, "reach the BMC", "there are no credentials")
                .advise("restore the Secret")
        })
    }

    /// The connected BMC if it matches the pin, with what it shows on first contact. Only for [`Self::proven`]: the machine behind it is not proven
    /// yet.
    pub async fn connected(&self, pin: &BmcPin) -> Result<Connected, BmcError> {
        let stale = self.journal.recorded_sessions();
        self.live.bmc(&self.shared.connectors, self.access()?, pin, &stale).await
    }

    /// Notes the BMC's calls and session in the operation.
    pub fn account(operation: &mut Operation, bmc: &dyn Bmc, calls_before: u32) {
        let calls = operation.status().bmc_calls.saturating_add(bmc.calls().saturating_sub(calls_before));
        operation.set_bmc(calls, bmc.session());
    }

    /// Whether the host's status tells of a system on the machine that was provisioned here, or tells nothing.
    pub fn is_told_to_run(&self) -> bool {
        let told = self.context.deployed.as_ref();
        told.is_none_or(|told| !told.externally && (told.image.is_some() || told.method != Method::Disk))
    }

    /// Acknowledges an outcome of work that is over, for which the agent still waits: of a leave, if this process died between recording and
    /// acknowledging it, or of other work that was given up meanwhile. An agent that would leave for a system that is not wanted any more (`is_wished`), or of which
    /// the record does not tell, is not let go: it is booted anew for what comes next.
    pub fn acknowledge_outcome(&self, newest: Option<(&str, OperationPhase)>, is_wished: bool) {
        let Some((command, outcome)) = self.shared.hub.reported_outcome(self.uid()) else { return };
        let leaves = outcome == AgentOutcome::Leaving;
        let ends = |(name, phase): (&str, OperationPhase)| {
            let is_own = command.operation == name;
            if leaves { is_wished && is_own && phase == OperationPhase::Succeeded } else { !is_own || phase.is_final() }
        };
        // Without a record, the host's status alone tells that its system was provisioned.
        let is_provisioned =
            || self.context.deployed.as_ref().is_some_and(|told| !told.externally && told.image.is_some());
        let over = newest.map_or_else(|| !leaves || is_wished && is_provisioned(), ends);
        if over {
            self.shared.hub.acknowledge(self.uid(), &command);
            if leaves {
                self.shared.media.withdraw(self.uid());
            }
        }
    }
}

/// Content of a drive, compared with the medium at this address; `None` while the BMC does not show the drive. It may have the medium.
pub async fn shown(drives: &dyn DataDrive, drive: &str, address: &str) -> Result<Option<Drive>, BmcError> {
    match drives.content(drive, address).await {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Network data that the agent can use.
fn network(given: &serde_json::Value) -> Result<NetworkData, Failure> {
    let read = NetworkData::from_json(&given.to_string());
    read.map(|(data, _)| data).map_err(|error| {
        let mut failure = Failure::new(Cause::InvalidRequest, format!("spec.preprovisioningNetworkDataName: {error}"))
            .advise("correct that Secret; the host goes on as soon as it is right");
        failure.retry = Retry::Waiting;
        failure
    })
}
