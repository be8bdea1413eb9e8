//! Nobody else runs the machine: asked at a registration, and before everything that switches, boots or changes it.
//!
//! Who cannot be asked now decides nothing on a machine that is this host's already: its work goes on. On one that has never been, nothing is done until
//! it is known.

use std::sync::Arc;

use bmc::{Bmc, Sight};
use provisioner::{Cause, Failure, Retry, Sought};

use crate::host::NativeHost;
use crate::identity::Effect;

/// Where it stands how a machine comes from one to the other.
const MOVE: &str = "docs/provisioners.md";

impl NativeHost {
    /// The connected BMC and what it shows, if nobody else runs the machine behind it and it is this host's ([`NativeHost::same_machine`]).
    pub async fn proven(&self, effect: Effect) -> Result<(Arc<dyn Bmc>, Sight), Failure> {
        if effect != Effect::Look {
            self.no_other_master().await?;
        }
        self.same_machine(effect).await
    }

    /// Checks that nobody else runs the machine.
    pub async fn no_other_master(&self) -> Result<(), Failure> {
        let masters = &self.shared.settings.other_masters;
        if masters.is_empty() {
            return Ok(());
        }
        let is_known = self.has_been_ours().await?;
        let address = self.context.facts.address.clone();
        let sought = Sought { address, boot_mac: self.context.boot_mac.clone(), is_known };
        let mut silent = None;
        for master in masters {
            match master.holds(&sought, (self.context.now)()).await {
                Ok(None) => {}
                Ok(Some(holder)) => return Err(held(&holder)),
                Err(why) => silent = Some(why),
            }
        }
        let Some(why) = silent else { return Ok(()) };
        if is_known {
            tracing::warn!(host = %self.context.key.name, "goes on, though {why}: the machine is this host's already");
            return Ok(());
        }
        Err(unknown(&why))
    }

    /// Whether this provisioner has registered the machine for this host before, at this address.
    async fn has_been_ours(&self) -> Result<bool, Failure> {
        if self.context.provisioning_id.is_empty() {
            return Ok(false);
        }
        let address = self.address();
        let recorded = self.context.machine.recorded().await?;
        Ok(recorded.is_some_and(|record| record.bmc.is_some() && record.bmc_address == address))
    }
}

fn held(holder: &str) -> Failure {
    let text = format!(
        "use the machine: it is run by {holder}. It would switch the power back, and neither knows what the other does"
    );
    let mut failure = Failure::new(Cause::AnotherMachine, text).advise(format!(
        "give this host to the provisioner \"ironic\" (annotation {}), or have it go from there first: delete the host that has it, or else the node ({MOVE}); it is looked \
         at again",
        api::metal3::annotation::PROVISIONER
    ));
    failure.retry = Retry::Held;
    failure
}

fn unknown(why: &str) -> Failure {
    let text = format!("use the machine for the first time: whether somebody else runs it is not known, as {why}");
    let mut failure = Failure::new(Cause::ProvisionerUnavailable, text)
        .advise("see whether that Ironic runs, or take it out of the file of --ironics if it is gone for good; it is looked at again");
    failure.retry = Retry::Held;
    failure
}
