//! One host, one reconcile: the object behind the contract's traits.

use std::sync::Arc;

use agent_protocol::Outcome as AgentOutcome;
use api::metamorph::OperationPhase;
use inventory::BmcPin;
use provisioner::{BmcAccess, HostContext, Operation};

use crate::control::{BmcControl, Connect, ControlError, ControlErrorKind};
use crate::hub::Hub;
use crate::live::{Connected, Live, LiveHost};
use crate::media::{MediaStore, Place};
use crate::networks::{Bases, bases_for};
use crate::settings::Settings;

/// What all hosts share.
pub struct Shared {
    pub settings: Settings,
    pub hub: Arc<Hub>,
    pub media: MediaStore,
    pub connect: Box<dyn Connect>,
    pub live: Live,
}

/// One host for one reconcile.
pub struct NativeHost {
    pub shared: Arc<Shared>,
    pub context: HostContext,
    pub live: Arc<LiveHost>,
    /// Where this host's BMC and machine reach the server.
    pub bases: Bases,
}

impl NativeHost {
    pub fn new(shared: Arc<Shared>, context: HostContext) -> Self {
        let live = shared.live.host(&context.key.uid);
        shared.hub.expect(&context.key, context.journal.latest_boot().as_ref());
        let (settings, address) = (&shared.settings, context.bmc.as_ref().map(|bmc| bmc.address.as_str()));
        let bases = bases_for(&settings.bases, &settings.networks, &context.key.namespace, address);
        Self { shared, context, live, bases }
    }

    /// For whom media are made, and where they are offered.
    pub fn place(&self) -> Place<'_> {
        Place { settings: &self.shared.settings, key: &self.context.key, bases: &self.bases }
    }

    /// The media endpoint's addresses for messages.
    pub fn media_bases(&self) -> String {
        self.bases.media.join(" or ")
    }

    pub fn uid(&self) -> &str {
        &self.context.key.uid
    }

    fn access(&self) -> Result<&BmcAccess, ControlError> {
        self.context.bmc.as_ref().ok_or_else(|| ControlError {
            kind: ControlErrorKind::Credentials,
            message: "reach the BMC: there are no credentials".to_owned(),
            advice: "restore the Secret".to_owned(),
        })
    }

    /// The connected BMC if it is the one that the pin says, with what it shows if this is the first contact. For [`Self::proven`] alone:
    /// the machine behind it has proved nothing.
    pub async fn connected(&self, pin: &BmcPin) -> Result<Connected, ControlError> {
        let stale = self.context.journal.recorded_sessions();
        self.live.bmc(self.shared.connect.as_ref(), self.access()?, pin, &stale).await
    }

    /// Notes the BMC's calls and session in the operation.
    pub fn account(operation: &mut dyn Operation, bmc: &dyn BmcControl, calls_before: u32) {
        let calls = operation.status().bmc_calls.saturating_add(bmc.calls().saturating_sub(calls_before));
        operation.set_bmc(calls, bmc.session());
    }

    /// What the agent has to say about work that is over is of no use any more, and it waits to be told so: an agent that has said
    /// that it leaves, when this process died between recording that and telling it; one whose work was given up meanwhile.
    pub fn settle(&self, newest: Option<(&str, OperationPhase)>) {
        let Some((command, outcome)) = self.shared.hub.told(self.uid()) else { return };
        let over = newest.is_none_or(|(name, phase)| command.operation != name || phase.is_final());
        if over {
            self.shared.hub.acknowledge(self.uid(), &command);
            if outcome == AgentOutcome::Leaving {
                self.shared.media.withdraw(self.uid());
            }
        }
    }
}
