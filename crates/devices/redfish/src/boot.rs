//! Boot override and Secure Boot.

use bmc::{BmcError, ErrorKind};
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::exchange::Fault;
use crate::quirks::Quirks;
use crate::resources::{SecureBoot, System};

/// What the next boot is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootTarget {
    /// The virtual CD.
    Cd,
    /// The disk.
    Hdd,
    /// The firmware's setup.
    BiosSetup,
}

/// Firmware mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootMode {
    /// UEFI, with or without Secure Boot.
    Uefi,
    /// Legacy BIOS.
    Legacy,
}

impl BootMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Uefi => "UEFI",
            Self::Legacy => "Legacy",
        }
    }
}

impl Client {
    /// Makes the next boot, and only that one, go to this target: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn set_boot_once(&self, target: BootTarget, mode: BootMode) -> Result<(), BmcError> {
        let what = "set the boot override";
        let system = self.known_system(what).await?;
        let quirks = self.core.state().quirks.clone();
        let mut boot = json!({
            "BootSourceOverrideTarget": target_name(target, &system, &quirks),
            "BootSourceOverrideEnabled": "Once",
        });
        // Where the mode is as wished it is not sent: to some, naming it means a change of BIOS settings. HPE Gen9 has no such property.
        let differs = system.boot.mode.as_deref().is_some_and(|now| !now.eq_ignore_ascii_case(mode.as_str()));
        let with_mode = differs || quirks.boot_change_needs_all_fields();
        if with_mode {
            boot["BootSourceOverrideMode"] = mode.as_str().into();
        }
        let result = match self.change_boot(what, &system, &boot).await {
            Err(fault) if with_mode && !differs && names(&fault, "BootSourceOverrideMode") => {
                if let Some(object) = boot.as_object_mut() {
                    object.remove("BootSourceOverrideMode");
                }
                self.change_boot(what, &system, &boot).await
            }
            other => other,
        };
        Ok(result?)
    }

    /// Leaves the next boot to the firmware: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn clear_boot_override(&self) -> Result<(), BmcError> {
        let what = "clear the boot override";
        let system = self.known_system(what).await?;
        let mut boot = json!({ "BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled" });
        if self.core.state().quirks.boot_change_needs_all_fields() {
            boot["BootSourceOverrideMode"] = system.boot.mode.as_deref().unwrap_or("UEFI").into();
        }
        let result = match self.change_boot(what, &system, &boot).await {
            // Some take «None» only together with «Once», some not at all: switched off is enough.
            Err(fault) if fault.status() == Some(400) => {
                self.change_boot(what, &system, &json!({ "BootSourceOverrideEnabled": "Disabled" })).await
            }
            other => other,
        };
        Ok(result?)
    }

    async fn change_boot(&self, what: &str, system: &System, boot: &Value) -> Result<(), Fault> {
        // Some (Lenovo SE450, Nokia, iDRAC 10) take boot changes only at the settings resource; their system then shows no target.
        let path = match &system.settings {
            Some(settings) if system.boot.target.is_none() => settings,
            _ => &system.path,
        };
        let body = json!({ "Boot": boot });
        let mut attempt = 0;
        loop {
            match self.core.patch(what, path, &body).await {
                Err(Fault::Refused(refusal)) if Quirks::busy_with_self_test(&refusal.body) => {
                    let wait = self.core.options.ready.wait(attempt);
                    let Some(wait) = wait else { return Err(Fault::Refused(refusal)) };
                    self.core.options.pacer.wait(wait).await;
                    attempt += 1;
                }
                other => return self.core.finish(what, other?).await,
            }
        }
    }

    /// Secure Boot; `None` when the BMC does not show it.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn secure_boot(&self) -> Result<Option<SecureBoot>, BmcError> {
        Ok(self.read_secure_boot("read Secure Boot").await?.map(|(_, found)| found))
    }

    /// Switches Secure Boot on or off from the next boot on, where it is not so already. Returns whether something was changed.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when the BMC does not show Secure Boot and it is to be on.
    pub async fn set_secure_boot(&self, on: bool) -> Result<bool, BmcError> {
        let what = if on { "switch Secure Boot on" } else { "switch Secure Boot off" };
        let Some((path, found)) = self.read_secure_boot(what).await? else {
            if on {
                return Err(self.core.error(ErrorKind::Unsupported, what, "the BMC does not show Secure Boot"));
            }
            return Ok(false);
        };
        if found.enable == Some(on) {
            return Ok(false);
        }
        let reply: Reply = self.core.patch(what, &path, &json!({ "SecureBootEnable": on })).await?;
        self.core.finish(what, reply).await?;
        Ok(true)
    }

    async fn read_secure_boot(&self, what: &str) -> Result<Option<(String, SecureBoot)>, BmcError> {
        let system = self.known_system(what).await?;
        let Some(path) = system.secure_boot else { return Ok(None) };
        let reply = self.core.get(what, &path).await?;
        Ok(Some((path, SecureBoot::read(&reply.value))))
    }
}

fn names(fault: &Fault, property: &str) -> bool {
    fault.status() == Some(400) && fault.body().is_some_and(|body| body.mentions(property))
}

/// The target's name at this BMC.
fn target_name(target: BootTarget, system: &System, quirks: &Quirks) -> String {
    let offered = |name: &str| system.boot.targets.iter().find(|offered| offered.eq_ignore_ascii_case(name)).cloned();
    match target {
        BootTarget::Cd => {
            let usb = if quirks.virtual_cd_is_usb_cd() { offered("UsbCd") } else { None };
            // Supermicro X10 writes «CD/DVD». A BMC whose list lacks every one of them is still asked for the standard's own name.
            usb.or_else(|| offered("Cd"))
                .or_else(|| offered("CD/DVD"))
                .or_else(|| offered("UsbCd"))
                .unwrap_or_else(|| "Cd".into())
        }
        BootTarget::Hdd => offered("Hdd").unwrap_or_else(|| "Hdd".into()),
        BootTarget::BiosSetup => offered("BiosSetup").unwrap_or_else(|| "BiosSetup".into()),
    }
}
