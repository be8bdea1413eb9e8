//! Which architecture a machine is of, and so which agent image it is booted with.
//!
//! `spec.architecture` is the host's word, which an inspection fills in; then comes the HardwareData, then the BMC. An architecture without an agent image is
//! told before anything is done to the machine. If nobody tells, it is booted with the image that the server was given first.

use bmc::Bmc;
use boot_media::Architecture;
use provisioner::{Cause, Failure};

use crate::host::NativeHost;

/// Whose word an architecture is.
const SPEC: &str = "spec.architecture is";
const DATA: &str = "the host's HardwareData says";
const BMC: &str = "the BMC says that its processors are";

impl NativeHost {
    /// What the host's objects say, and where; as it is written there.
    fn told_architecture(&self) -> Option<(&'static str, &str)> {
        let facts = &self.context;
        let found = || facts.hardware.as_ref()?.cpu.as_ref()?.arch.as_deref();
        let spec = facts.architecture.as_deref().map(|name| (SPEC, name));
        spec.or_else(|| found().map(|name| (DATA, name))).filter(|(_, name)| !name.is_empty())
    }

    /// The architecture of the machine for which an image in a registry is chosen.
    ///
    /// # Errors
    /// When nobody says it, and this server boots machines of several.
    pub fn architecture(&self) -> Result<Architecture, Failure> {
        let images = self.shared.media.images();
        if let Some(told) = self.told_architecture().and_then(|(_, name)| Architecture::named(name)) {
            return Ok(told);
        }
        if images.architectures().len() > 1 {
            let text = "provision the image: neither the host nor its HardwareData names the architecture for which it is chosen in the registry";
            return Err(Failure::new(Cause::NotServed, text).advise("set spec.architecture"));
        }
        Ok(images.otherwise())
    }

    /// The architecture of the image for a new boot.
    ///
    /// # Errors
    /// When there is no agent image for this machine.
    pub async fn architecture_to_boot(&self, bmc: &dyn Bmc) -> Result<Architecture, Failure> {
        self.live.timers().guessed = None;
        if let Some((who, name)) = self.told_architecture() {
            return self.with_image(who, name);
        }
        if let Some(name) = self.architecture_by(bmc).await {
            return self.with_image(BMC, &name);
        }
        let guessed = self.shared.media.images().otherwise();
        self.live.timers().guessed = Some(guessed);
        Ok(guessed)
    }

    /// What the BMC says, if it does.
    async fn architecture_by(&self, bmc: &dyn Bmc) -> Option<String> {
        match bmc.hardware().ok()?.architecture().await {
            Ok(found) => found,
            Err(error) => {
                tracing::info!(host = %self.context.key.name, %error, "the machine's architecture cannot be read");
                None
            }
        }
    }

    fn with_image(&self, who: &str, name: &str) -> Result<Architecture, Failure> {
        let images = self.shared.media.images();
        if let Some(architecture) = Architecture::named(name).filter(|known| images.of(*known).is_some()) {
            return Ok(architecture);
        }
        let there: Vec<&str> = images.architectures().into_iter().map(Architecture::as_str).collect();
        let text =
            format!("boot the agent: {who} {name}, and this server has agent images for {} only", there.join(", "));
        let advice = match Architecture::named(name) {
            Some(known) => format!(
                "build one with an agent for {known} (`metamorph agent-image build`), and start the server with it beside the others (--agent-image); or correct spec.architecture; it is tried again"
            ),
            None => {
                let known: Vec<&str> = Architecture::ALL.into_iter().map(Architecture::as_str).collect();
                format!("correct spec.architecture; agents are built for {}", known.join(" and "))
            }
        };
        Err(Failure::new(Cause::NotServed, text).advise(advice))
    }

    /// What to think of where the agent is silent: the architecture was a guess.
    pub fn guess(&self) -> Option<String> {
        let guessed = self.live.timers().guessed?;
        Some(format!(
            "neither the host nor its BMC names the architecture: if it is not {guessed}, set spec.architecture"
        ))
    }
}
