//! A BMC that speaks Redfish, as others use it: the capabilities that it has.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bmc::{
    Bios, BiosSchema, BiosSeen, Bmc, BmcError, BmcLog, BootDevice, BootStanding, Capability, DataDrive, Diagnostics,
    Drive, EventDestination, EventStream, Events, EvidenceBudget, FirmwareInventory, FirmwareVersion,
    HardwareInventory, Insertion, JobState, Lacking, Lasting, LocationIndicator, LogEntry, Logs, Posted, Power,
    PowerAction, SecureBoot, SecureBootSeen, Sight, VirtualMedia,
};
use diagnosis::Evidence;
use inventory::{BmcPin, Inspected};

use crate::boot::{BootMode, BootTarget};
use crate::client::Client;
use crate::media::Inserted;
use crate::power::ResetType;
use crate::resources::{PowerState, System};

/// A connected BMC.
pub struct RedfishBmc {
    client: Client,
}

impl RedfishBmc {
    /// Over this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The capability, unless the system as last read shows that it is missing. Before the first read, every capability counts as present.
    fn unless<T>(
        &self,
        has: T,
        capability: Capability,
        missing: impl FnOnce(&System) -> Option<String>,
    ) -> Result<T, Lacking> {
        let looked_for = self.client.core.state().system.as_ref().and_then(missing);
        let lacking = |looked_for: String| Lacking::new(capability, self.client.core.without_secrets(&looked_for));
        looked_for.map_or(Ok(has), |looked_for| Err(lacking(looked_for)))
    }

    /// Whether a manager exists, which may have what the system lacks.
    fn shows_managers(&self) -> impl Fn(&System) -> bool + use<> {
        let listed = self.client.core.state().root.as_ref().is_some_and(|root| root.managers.is_some());
        move |system| listed || !system.managers.is_empty()
    }
}

#[async_trait]
impl Bmc for RedfishBmc {
    async fn begin(&self, stale: &[String]) -> Result<Sight, BmcError> {
        self.client.sweep(stale).await?;
        self.look().await
    }

    async fn look(&self) -> Result<Sight, BmcError> {
        let system = self.client.system().await?;
        let evidence = system.evidence();
        let words = [system.manufacturer, system.model];
        let model = self.client.core.without_secrets(&words.into_iter().flatten().collect::<Vec<_>>().join(" "));
        Ok(Sight { powered_on: system.power_state.is_on(), model, evidence, health: system.health })
    }

    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        self.client.macs().await
    }

    fn pin(&self) -> BmcPin {
        self.client.pin()
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

    fn power(&self) -> &dyn Power {
        self
    }

    fn boot_device(&self) -> Result<&dyn BootDevice, Lacking> {
        self.unless(self as &dyn BootDevice, Capability::BootDevice, |system| {
            (!system.shows_boot && system.settings.is_none())
                .then(|| format!("there is neither Boot nor a settings resource at {}", system.path))
        })
    }

    fn virtual_media(&self) -> Result<&dyn VirtualMedia, Lacking> {
        let managers = self.shows_managers();
        self.unless(self as &dyn VirtualMedia, Capability::VirtualMedia, |system| {
            (system.virtual_media.is_none() && !managers(system)).then(|| {
                format!("there is no VirtualMedia at {}, and the BMC shows no manager that could have it", system.path)
            })
        })
    }

    fn data_drive(&self) -> Result<&dyn DataDrive, Lacking> {
        // It is one of the drives for virtual media.
        let drives = self.virtual_media().map(|_| self as &dyn DataDrive);
        drives.map_err(|lacking| Lacking { capability: Capability::DataDrive, ..lacking })
    }

    fn events(&self) -> Result<&dyn Events, Lacking> {
        let hides = self.client.core.state().root.as_ref().is_some_and(|root| root.events.is_none());
        if hides {
            return Err(Lacking::new(Capability::Events, "there is no EventService at /redfish/v1"));
        }
        Ok(self)
    }

    fn secure_boot(&self) -> Result<&dyn SecureBoot, Lacking> {
        self.unless(self as &dyn SecureBoot, Capability::SecureBoot, |system| {
            system.secure_boot.is_none().then(|| format!("there is no SecureBoot at {}", system.path))
        })
    }

    fn bios(&self) -> Result<&dyn Bios, Lacking> {
        self.unless(self as &dyn Bios, Capability::Bios, |system| {
            system.bios.is_none().then(|| format!("there is no Bios at {}", system.path))
        })
    }

    fn firmware(&self) -> Result<&dyn FirmwareInventory, Lacking> {
        let managers = self.shows_managers();
        let inventory = self.client.core.state().root.as_ref().is_some_and(|root| root.update_service.is_some());
        self.unless(self as &dyn FirmwareInventory, Capability::Firmware, |system| {
            (!inventory && system.bios_version.is_none() && !managers(system)).then(|| {
                format!("there is neither an UpdateService nor a manager, and no BiosVersion at {}", system.path)
            })
        })
    }

    fn hardware(&self) -> Result<&dyn HardwareInventory, Lacking> {
        self.unless(self as &dyn HardwareInventory, Capability::Hardware, |system| {
            let text = || format!("there are neither processors, memory, storage nor interfaces at {}", system.path);
            (!system.lists_hardware).then(text)
        })
    }

    fn logs(&self) -> Result<&dyn Logs, Lacking> {
        let managers = self.shows_managers();
        self.unless(self as &dyn Logs, Capability::Logs, |system| {
            (system.logs.is_none() && !managers(system)).then(|| {
                format!("there is no LogServices at {}, and the BMC shows no manager that could have it", system.path)
            })
        })
    }

    fn diagnostics(&self) -> Result<&dyn Diagnostics, Lacking> {
        Ok(self)
    }

    fn location_indicator(&self) -> Result<&dyn LocationIndicator, Lacking> {
        self.unless(self as &dyn LocationIndicator, Capability::LocationIndicator, |system| {
            (!system.shows_light && system.chassis.is_empty()).then(|| {
                let path = &system.path;
                format!("there is neither LocationIndicatorActive nor IndicatorLED at {path}, and it names no chassis that could have it")
            })
        })
    }
}

#[async_trait]
impl Power for RedfishBmc {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        let reset = match action {
            PowerAction::On => ResetType::On,
            PowerAction::HardOff => ResetType::ForceOff,
            PowerAction::SoftOff => ResetType::GracefulShutdown,
            PowerAction::SoftRestart => return self.client.graceful_restart().await,
            PowerAction::Restart => return self.client.restart().await,
        };
        self.client.reset(reset).await
    }
}

#[async_trait]
impl BootDevice for RedfishBmc {
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        self.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await
    }

    async fn each_from_medium(&self) -> Result<Lasting, BmcError> {
        let each = self.client.set_boot_each(BootTarget::Cd, BootMode::Uefi).await?;
        Ok(if each { Lasting::EachBoot } else { Lasting::NextBoot })
    }

    async fn normally(&self) -> Result<(), BmcError> {
        self.client.clear_boot_override().await
    }

    async fn standing(&self) -> Result<BootStanding, BmcError> {
        let system = self.client.system().await?;
        let boot = &system.boot;
        let override_ahead = match (boot.enabled.as_deref(), boot.target.as_deref()) {
            (Some(enabled), _) if enabled.eq_ignore_ascii_case("Disabled") => Some(false),
            (_, Some(target)) if target.eq_ignore_ascii_case("None") => Some(false),
            (Some(_), Some(_)) => Some(true),
            _ => None,
        };
        let progress = system.boot_progress.map(|progress| self.client.core.without_secrets(&progress));
        // One that is being switched on is neither.
        let powered_on = system.power_state.is_on().filter(|_| system.power_state != PowerState::PoweringOn);
        Ok(BootStanding { powered_on, override_ahead, progress })
    }
}

#[async_trait]
impl VirtualMedia for RedfishBmc {
    async fn find(&self) -> Result<(), BmcError> {
        self.client.find_drive().await
    }

    async fn insert(&self, urls: &[String], certificate: Option<&str>) -> Result<Insertion, BmcError> {
        let inserted = self.client.insert_media_from(urls, certificate).await;
        // Evidence for a diagnosis: the drive itself says nothing of it.
        self.client.core.state().refused_medium = inserted.as_ref().err().map(|error| error.found.clone());
        Ok(match inserted? {
            Inserted::Now | Inserted::Already => Insertion::Done,
            Inserted::Pending => Insertion::Pending,
        })
    }

    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        self.drive_with(&|image| urls.iter().any(|url| is_image_of(image, url))).await
    }

    async fn drive_with(&self, is_it: &(dyn for<'a> Fn(&'a str) -> bool + Sync)) -> Result<Drive, BmcError> {
        let state = self.client.media_state().await?;
        Ok(self.client.content_of(&state, is_it))
    }

    async fn eject(&self) -> Result<(), BmcError> {
        self.client.eject_media().await
    }
}

#[async_trait]
impl DataDrive for RedfishBmc {
    async fn choose(&self, url: &str) -> Result<String, BmcError> {
        self.client.choose_data_drive(url).await
    }

    async fn boot_drive(&self, url: &str) -> Result<String, BmcError> {
        self.client.choose_boot_drive(url).await
    }

    async fn trust(&self, drive: &str, url: &str, certificate: &str) {
        self.client.trust_for_drive(drive, url, certificate).await;
    }

    async fn put_in(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.client.insert_data_medium(drive, url).await
    }

    async fn put_into_empty(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.client.insert_beside_nothing(drive, url).await
    }

    async fn content(&self, drive: &str, url: &str) -> Result<Drive, BmcError> {
        self.client.data_medium(drive, url).await
    }

    async fn take_out(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.client.eject_data_medium(drive, url, false).await
    }

    async fn call_off(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.client.eject_data_medium(drive, url, true).await
    }
}

#[async_trait]
impl Events for RedfishBmc {
    async fn like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError> {
        self.client.subscriptions_like(wanted).await
    }

    async fn subscribe(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError> {
        self.client.subscribe_to_events(wanted).await
    }

    async fn has(&self, id: &str, url: &str) -> Result<bool, BmcError> {
        self.client.has_subscription(id, url).await
    }

    async fn unsubscribe(&self, id: &str, url: &str) -> Result<(), BmcError> {
        self.client.end_subscription(id, url).await
    }

    async fn listen(&self) -> Result<Box<dyn EventStream>, BmcError> {
        Ok(Box::new(self.client.event_stream().await?))
    }

    fn posted(&self, body: &[u8]) -> Option<Posted> {
        crate::event_stream::posted(body)
    }
}

#[async_trait]
impl Diagnostics for RedfishBmc {
    async fn evidence(&self, budget: &EvidenceBudget) -> Evidence {
        self.client.evidence(budget).await
    }
}

#[async_trait]
impl LocationIndicator for RedfishBmc {
    async fn switch(&self, lit: bool) -> Result<String, BmcError> {
        self.client.switch_light(lit).await
    }
}

#[async_trait]
impl Logs for RedfishBmc {
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError> {
        self.client.critical_entries(most).await
    }

    async fn all(&self) -> Result<Vec<BmcLog>, BmcError> {
        self.client.collected_logs().await
    }
}

#[async_trait]
impl Bios for RedfishBmc {
    async fn seen(&self, with_pending: bool) -> Result<Option<BiosSeen>, BmcError> {
        self.client.bios(with_pending).await
    }

    async fn schema(&self) -> Result<Option<BiosSchema>, BmcError> {
        self.client.bios_schema().await
    }

    async fn set(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError> {
        self.client.set_bios(wished).await
    }

    async fn job(&self, job: &str) -> Result<JobState, BmcError> {
        self.client.bios_job(job).await
    }
}

#[async_trait]
impl FirmwareInventory for RedfishBmc {
    async fn versions(&self) -> Result<Vec<FirmwareVersion>, BmcError> {
        self.client.firmware_versions().await
    }
}

#[async_trait]
impl HardwareInventory for RedfishBmc {
    async fn list(&self) -> Result<Inspected, BmcError> {
        self.client.hardware().await
    }

    async fn architecture(&self) -> Result<Option<String>, BmcError> {
        self.client.architecture().await
    }
}

#[async_trait]
impl SecureBoot for RedfishBmc {
    async fn seen(&self) -> Result<Option<SecureBootSeen>, BmcError> {
        let found = self.client.secure_boot().await?;
        Ok(found.map(|f| SecureBootSeen { enable: f.enable, current: f.current, setup_mode: f.setup_mode }))
    }

    async fn set(&self, on: bool) -> Result<(), BmcError> {
        self.client.set_secure_boot(on).await?;
        Ok(())
    }
}

/// Whether the image that a BMC reports is the medium at this address. Some report only its last part, or truncate it; that part is unguessable.
fn is_image_of(image: &str, url: &str) -> bool {
    const TELLING: usize = 16;
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let (reported, wanted) = (last(image), last(url));
    reported == wanted || (reported.len() >= TELLING && wanted.starts_with(&reported))
}

#[cfg(test)]
mod tests {
    use super::is_image_of;

    #[test]
    fn a_medium_is_known_by_the_last_part_of_its_address() {
        let url = "http://192.0.2.1:6180/media/Nhpx-UbyTyvLTiEHC9a0qsDCl88aSvwYxDY63WlfCQA.iso";
        for reported in [url, "Nhpx-UbyTyvLTiEHC9a0qsDCl88aSvwYxDY63WlfCQA.iso", "/media/Nhpx-UbyTyvLTiEHC9a0qs"] {
            assert!(is_image_of(reported, url), "{reported}");
        }
        for other in ["", "Nhpx", "http://192.0.2.1:6180/media/fIBazqwgLjoo6QApi1IK6czEm5hyPwjG5PmR0Nl9yC8.iso"] {
            assert!(!is_image_of(other, url), "{other}");
        }
    }
}
