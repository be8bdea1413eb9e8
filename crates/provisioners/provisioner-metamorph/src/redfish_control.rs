//! BMCs that speak Redfish.

use std::sync::Arc;

use async_trait::async_trait;
use bmc::{Address, BmcError, BmcRegistry, Credentials, ErrorKind, Totals};
use inventory::BmcPin;
use provisioner::BmcAccess;
use redfish::{BootMode, BootTarget, Client, ClientOptions, Inserted, ResetType, Tls};
use sha2::{Digest, Sha256};

use crate::control::{
    BmcControl, BootSight, Connect, ControlError, ControlErrorKind, Drive, PowerAction, SecureBootSeen, Sight,
};

/// Makes Redfish connections.
pub struct RedfishConnect {
    registry: BmcRegistry,
    server_id: String,
    extra_ca_pem: Option<String>,
}

impl RedfishConnect {
    /// Connections of the server with this secret (a digest of it marks the server's sessions on BMCs); `ca_pem` is trusted
    /// beside the system's certificates, if it is not empty.
    #[must_use]
    pub fn new(secret: &[u8; 32], ca_pem: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"metamorph/server-id/v1");
        hash.update(secret);
        let server_id = hex::encode(&hash.finalize()[..8]);
        let extra_ca_pem = (!ca_pem.trim().is_empty()).then(|| ca_pem.to_owned());
        Self { registry: BmcRegistry::new(), server_id, extra_ca_pem }
    }

    /// What is counted of the calls to all BMCs.
    #[must_use]
    pub fn totals(&self) -> Arc<Totals> {
        self.registry.totals()
    }
}

impl Connect for RedfishConnect {
    fn connect(&self, access: &BmcAccess, pin: &BmcPin) -> Result<Box<dyn BmcControl>, ControlError> {
        let refuse = |kind, message: String, advice: &str| ControlError { kind, message, advice: advice.to_owned() };
        let correct = "correct spec.bmc.address";
        let address =
            Address::parse(&access.address).map_err(|e| refuse(ControlErrorKind::Address, e.to_string(), correct))?;
        let credentials = Credentials::new(&access.username, access.password.clone()).map_err(|e| {
            refuse(
                ControlErrorKind::Credentials,
                e.to_string(),
                "correct the Secret that spec.bmc.credentialsName names",
            )
        })?;
        let tls = Tls {
            accept_any_certificate: access.disable_certificate_verification,
            extra_ca_pem: self.extra_ca_pem.clone(),
        };
        let options = ClientOptions { pin: pin.clone(), ..ClientOptions::new(&self.server_id) };
        let client = Client::connect(address, credentials, &tls, &self.registry, options)
            .map_err(|e| refuse(ControlErrorKind::Certificate, e.to_string(), "correct the file given as --bmc-ca"))?;
        Ok(Box::new(RedfishControl { client }))
    }
}

struct RedfishControl {
    client: Client,
}

impl From<BmcError> for ControlError {
    fn from(error: BmcError) -> Self {
        let kind = match error.kind {
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::NoCommonTls => ControlErrorKind::Unreachable,
            ErrorKind::Unanswered => ControlErrorKind::Unanswered,
            ErrorKind::Busy { .. } => ControlErrorKind::Busy,
            ErrorKind::TlsNotTrusted => ControlErrorKind::Certificate,
            ErrorKind::Unauthorized => ControlErrorKind::Credentials,
            // Whoever holds the client adds what the BMC shows.
            ErrorKind::AnotherBmc => ControlErrorKind::AnotherBmc { pin: BmcPin::default() },
            ErrorKind::NotFound
            | ErrorKind::SessionLimit
            | ErrorKind::Rejected { .. }
            | ErrorKind::Protocol
            | ErrorKind::Unsupported => ControlErrorKind::Refused,
        };
        Self { kind, message: error.to_string(), advice: error.advice.into_owned() }
    }
}

impl RedfishControl {
    /// The error, with what another BMC shows of itself.
    fn told(&self, error: BmcError) -> ControlError {
        let another = error.kind == ErrorKind::AnotherBmc;
        let mut told = ControlError::from(error);
        if another {
            told.kind = ControlErrorKind::AnotherBmc { pin: self.client.pin() };
        }
        told
    }
}

#[async_trait]
impl BmcControl for RedfishControl {
    async fn register(&self, stale: &[String]) -> Result<Sight, ControlError> {
        self.client.sweep(stale).await.map_err(|error| self.told(error))?;
        self.look().await
    }

    async fn look(&self) -> Result<Sight, ControlError> {
        let system = self.client.system().await.map_err(|error| self.told(error))?;
        let evidence = system.evidence();
        let words = [system.manufacturer, system.model];
        let model = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
        Ok(Sight { powered_on: system.power_state.is_on(), model, evidence })
    }

    async fn macs(&self) -> Result<Vec<String>, ControlError> {
        Ok(self.client.macs().await?)
    }

    fn pin(&self) -> BmcPin {
        self.client.pin()
    }

    async fn insert(&self, urls: &[String], certificate: Option<&str>) -> Result<(), ControlError> {
        if self.client.insert_media_from(urls, certificate).await? == Inserted::Pending {
            return Err(ControlError {
                kind: ControlErrorKind::TimedOut,
                message: "insert the medium: the BMC has not answered in time, and may still be at it".to_owned(),
                advice: "it is looked at".to_owned(),
            });
        }
        Ok(())
    }

    async fn drive(&self, urls: &[String]) -> Result<Drive, ControlError> {
        let state = self.client.media_state().await?;
        Ok(match (state.is_occupied(), state.image.as_deref()) {
            (true, Some(image)) if urls.iter().any(|url| is_image_of(image, url)) => Drive::Medium,
            (true, Some(_)) => Drive::Another,
            (false, _) if state.inserted.is_some() => Drive::Empty,
            _ => Drive::Unknown,
        })
    }

    async fn boot_sight(&self, urls: &[String]) -> Result<BootSight, ControlError> {
        let system = self.client.system().await.map_err(|error| self.told(error))?;
        let drive = self.drive(urls).await?;
        let boot = &system.boot;
        let override_ahead = match (boot.enabled.as_deref(), boot.target.as_deref()) {
            (Some(enabled), _) if enabled.eq_ignore_ascii_case("Disabled") => Some(false),
            (_, Some(target)) if target.eq_ignore_ascii_case("None") => Some(false),
            (Some(_), Some(_)) => Some(true),
            _ => None,
        };
        Ok(BootSight { powered_on: system.power_state.is_on(), override_ahead, progress: system.boot_progress, drive })
    }

    async fn eject(&self) -> Result<(), ControlError> {
        Ok(self.client.eject_media().await?)
    }

    async fn boot_once_from_medium(&self) -> Result<(), ControlError> {
        Ok(self.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await?)
    }

    async fn boot_normally(&self) -> Result<(), ControlError> {
        Ok(self.client.clear_boot_override().await?)
    }

    async fn secure_boot(&self) -> Result<Option<SecureBootSeen>, ControlError> {
        let found = self.client.secure_boot().await?;
        Ok(found.map(|f| SecureBootSeen { enable: f.enable, current: f.current, setup_mode: f.setup_mode }))
    }

    async fn set_secure_boot(&self, on: bool) -> Result<(), ControlError> {
        self.client.set_secure_boot(on).await?;
        Ok(())
    }

    async fn power(&self, action: PowerAction) -> Result<(), ControlError> {
        let reset = match action {
            PowerAction::On => ResetType::On,
            PowerAction::HardOff => ResetType::ForceOff,
            PowerAction::SoftOff => ResetType::GracefulShutdown,
            PowerAction::SoftRestart => return Ok(self.client.graceful_restart().await?),
            PowerAction::Restart => return Ok(self.client.restart().await?),
        };
        Ok(self.client.reset(reset).await?)
    }

    fn calls(&self) -> u32 {
        self.client.calls()
    }

    fn session(&self) -> Option<String> {
        self.client.session_address()
    }

    async fn close(&self) {
        if let Err(error) = self.client.close().await {
            tracing::warn!(%error, "the session on the BMC stays open");
        }
    }
}

/// Whether what a BMC shows as the image is the medium at this address. Some show its last part alone, or cut it; it is unguessable.
fn is_image_of(image: &str, url: &str) -> bool {
    const TELLING: usize = 16;
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let (shown, own) = (last(image), last(url));
    shown == own || (shown.len() >= TELLING && own.starts_with(&shown))
}

#[cfg(test)]
mod tests {
    use super::is_image_of;

    #[test]
    fn a_medium_is_known_by_the_last_part_of_its_address() {
        let url = "http://192.0.2.1:6180/media/Nhpx-UbyTyvLTiEHC9a0qsDCl88aSvwYxDY63WlfCQA.iso";
        for shown in [url, "Nhpx-UbyTyvLTiEHC9a0qsDCl88aSvwYxDY63WlfCQA.iso", "/media/Nhpx-UbyTyvLTiEHC9a0qs"] {
            assert!(is_image_of(shown, url), "{shown}");
        }
        for other in ["", "Nhpx", "http://192.0.2.1:6180/media/fIBazqwgLjoo6QApi1IK6czEm5hyPwjG5PmR0Nl9yC8.iso"] {
            assert!(!is_image_of(other, url), "{other}");
        }
    }
}
