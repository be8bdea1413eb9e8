//! Boot override and Secure Boot.

use bmc::{BmcError, ErrorKind};
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::Fault;
use crate::json::{flag, text, word};
use crate::quirks::Quirks;
use crate::resources::{SecureBoot, System};

/// Most boot options of the firmware that are looked at.
const MAX_OPTIONS: usize = 32;
const SET: &str = "set the boot override";
/// `BootSourceOverrideEnabled` for the next boot alone, and for each.
const ONCE: &str = "Once";
const CONTINUOUS: &str = "Continuous";

/// The source of the next boot.
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
    /// Overrides the boot source for the next boot only: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn set_boot_once(&self, target: BootTarget, mode: BootMode) -> Result<(), BmcError> {
        self.set_boot(target, mode, ONCE).await
    }

    /// Overrides the boot source for each boot: one request, and another that reads it back. For the next boot alone if the BMC does not offer, take or
    /// keep more. Returns whether it is seen to hold for each.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn set_boot_each(&self, target: BootTarget, mode: BootMode) -> Result<bool, BmcError> {
        let what = SET;
        let listed = self.known_system(what).await?.boot.allowed;
        if listed.is_empty() || listed.iter().any(|offered| offered.eq_ignore_ascii_case(CONTINUOUS)) {
            match self.set_boot(target, mode, CONTINUOUS).await {
                Ok(()) => {
                    let boot = self.read_system(what).await?.boot;
                    let (enabled, target) = (boot.enabled.as_deref(), boot.target.as_deref());
                    let is = |text: Option<&str>, word| text.is_some_and(|text| text.eq_ignore_ascii_case(word));
                    let forgotten = is(enabled, "Disabled") || is(target, "None");
                    if !forgotten {
                        return Ok(is(enabled, CONTINUOUS) && target.is_some());
                    }
                }
                Err(error) if error.kind.is_refusal() => {
                    tracing::debug!(%error, "the BMC takes a boot override for one boot alone");
                }
                Err(error) => return Err(error),
            }
        }
        self.set_boot(target, mode, ONCE).await.map(|()| false)
    }

    async fn set_boot(&self, target: BootTarget, mode: BootMode, lasting: &str) -> Result<(), BmcError> {
        let what = SET;
        let system = self.known_system(what).await?;
        let quirks = self.core.state().quirks.clone();
        let mut boot = json!({
            "BootSourceOverrideTarget": target_name(target, &system, &quirks),
            "BootSourceOverrideEnabled": lasting,
        });
        if target == BootTarget::Cd && !is_offered(&system, &boot) {
            self.name_the_medium(what, &system, &mut boot).await?;
        }
        // Where the mode is as wished it is not sent: to some, naming it means a change of BIOS settings. HPE Gen9 has no such property.
        let differs = system.boot.mode.as_deref().is_some_and(|now| !now.eq_ignore_ascii_case(mode.as_str()));
        let with_mode = differs || self.boot_change_is_whole();
        if with_mode {
            boot["BootSourceOverrideMode"] = mode.as_str().into();
        }
        let result = match self.change_boot(what, &system, &boot).await {
            Err(fault) if !with_mode && names(&fault, "BootSourceOverrideMode") => {
                boot["BootSourceOverrideMode"] = mode.as_str().into();
                self.change_boot_whole(what, &system, &boot).await
            }
            Err(fault) if with_mode && !differs && names(&fault, "BootSourceOverrideMode") => {
                if let Some(object) = boot.as_object_mut() {
                    object.remove("BootSourceOverrideMode");
                }
                self.change_boot(what, &system, &boot).await
            }
            other => other,
        };
        result.map_err(|fault| match fault {
            Fault::Refused(mut refusal) if refusal.status == 400 && !is_offered(&system, &boot) => {
                let offered = terms::clean(&system.boot.targets.join(", "), 300);
                refusal.error.found = format!("{}; it offers {offered}", refusal.error.found);
                let advice = "switch virtual media on as a boot source in the BMC's and the firmware's settings, and check the BMC's licence and firmware";
                refusal.error.advise(advice)
            }
            fault => fault.into(),
        })
    }

    /// If neither a CD nor a USB drive is offered, selects the medium among the firmware's boot options, by its device path or by its number (schema
    /// ComputerSystem, `UefiTargetBootSourceOverride` and `BootNext`). Changes nothing if it finds no such option.
    async fn name_the_medium(&self, what: &str, system: &System, boot: &mut Value) -> Result<(), Fault> {
        let offers = |name: &str| system.boot.targets.iter().any(|offered| offered.eq_ignore_ascii_case(name));
        let (by_path, by_number) = (offers("UefiTarget"), offers("UefiBootNext"));
        let Some(options) = system.boot.options.as_ref().filter(|_| by_path || by_number) else { return Ok(()) };
        let paths = match self.core.members(what, options).await {
            Ok(paths) => paths,
            Err(fault) if fault.status().is_some() => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let mut best: Option<(u8, Value)> = None;
        for path in paths.iter().take(MAX_OPTIONS) {
            let option = match self.core.get(what, path).await {
                Ok(reply) => reply.value,
                Err(fault) if fault.status().is_some() => continue,
                Err(fault) => return Err(fault),
            };
            if let Some(rank) = medium_rank(&option)
                && best.as_ref().is_none_or(|(least, _)| rank < *least)
            {
                best = Some((rank, option));
            }
        }
        let Some((_, option)) = best else { return Ok(()) };
        if let Some(device) = text(&option, "UefiDevicePath").filter(|_| by_path) {
            boot["BootSourceOverrideTarget"] = "UefiTarget".into();
            boot["UefiTargetBootSourceOverride"] = device.into();
        } else if let Some(number) = text(&option, "BootOptionReference").filter(|_| by_number) {
            boot["BootSourceOverrideTarget"] = "UefiBootNext".into();
            boot["BootNext"] = number.into();
        }
        Ok(())
    }

    /// Leaves the next boot to the firmware: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn clear_boot_override(&self) -> Result<(), BmcError> {
        let what = "clear the boot override";
        let system = self.known_system(what).await?;
        let mut boot = json!({ "BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled" });
        let present = system.boot.mode.as_deref().unwrap_or("UEFI");
        let with_mode = self.boot_change_is_whole();
        if with_mode {
            boot["BootSourceOverrideMode"] = present.into();
        }
        let result = match self.change_boot(what, &system, &boot).await {
            Err(fault) if !with_mode && names(&fault, "BootSourceOverrideMode") => {
                boot["BootSourceOverrideMode"] = present.into();
                self.change_boot_whole(what, &system, &boot).await
            }
            // Some accept "None" only together with "Once", some not at all: disabling the override is enough.
            Err(fault) if fault.status() == Some(400) => {
                self.change_boot(what, &system, &json!({ "BootSourceOverrideEnabled": "Disabled" })).await
            }
            other => other,
        };
        Ok(result?)
    }

    /// Whether this BMC requires the mode in each boot change: because of its vendor, or because it said so.
    fn boot_change_is_whole(&self) -> bool {
        let state = self.core.state();
        state.whole_boot_change || state.quirks.boot_change_needs_all_fields()
    }

    /// A boot change with the mode that the BMC missed; if that helps, it is sent from now on.
    async fn change_boot_whole(&self, what: &str, system: &System, boot: &Value) -> Result<(), Fault> {
        self.change_boot(what, system, boot).await?;
        self.core.state().whole_boot_change = true;
        Ok(())
    }

    async fn change_boot(&self, what: &str, system: &System, boot: &Value) -> Result<(), Fault> {
        // Some (Lenovo SE450, Nokia, iDRAC 10) accept boot changes only at the settings resource; their system resource then shows no target.
        let path = match &system.settings {
            Some(settings) if system.boot.target.is_none() => settings,
            _ => &system.path,
        };
        self.change(what, path, &json!({ "Boot": boot })).await
    }

    /// Changes a resource; waits, within limits, while the machine's self-test runs.
    async fn change(&self, what: &str, path: &str, body: &Value) -> Result<(), Fault> {
        let reply = self.core.patch_when_ready(what, path, body).await?;
        self.core.finish(what, reply).await
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
        self.change(what, &path, &json!({ "SecureBootEnable": on })).await?;
        Ok(true)
    }

    async fn read_secure_boot(&self, what: &str) -> Result<Option<(String, SecureBoot)>, BmcError> {
        let system = self.known_system(what).await?;
        let Some(path) = system.secure_boot else { return Ok(None) };
        match self.core.get(what, &path).await {
            Ok(reply) => Ok(Some((path, SecureBoot::read(&reply.value)))),
            // Linked, and not to be had: by this account, this licence, this firmware.
            Err(fault) if matches!(fault.status(), Some(403 | 404 | 405 | 410 | 501)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}

fn names(fault: &Fault, property: &str) -> bool {
    fault.status() == Some(400) && fault.body().is_some_and(|body| body.mentions(property))
}

/// Whether the BMC lists this boot source, or lists none.
fn is_offered(system: &System, boot: &Value) -> bool {
    let name = boot["BootSourceOverrideTarget"].as_str().unwrap_or_default();
    let targets = &system.boot.targets;
    targets.is_empty() || targets.iter().any(|offered| offered.eq_ignore_ascii_case(name))
}

/// How likely a boot option of the firmware is the virtual CD, the likeliest first; `None` for others.
fn medium_rank(option: &Value) -> Option<u8> {
    if flag(option, "BootOptionEnabled") == Some(false) {
        return None;
    }
    let named = |field: &str| word(option, field).unwrap_or_default().to_ascii_lowercase();
    if matches!(named("Alias").as_str(), "cd" | "usbcd") {
        return Some(0);
    }
    let names = [named("DisplayName"), named("Name"), named("Description")];
    let says = |words: &[&str]| names.iter().any(|name| words.iter().any(|word| name.contains(word)));
    let (virtual_one, cd) = (says(&["virtual"]), says(&["cd", "dvd", "optical"]));
    match (virtual_one, cd) {
        (true, true) => Some(1),
        (false, true) => Some(2),
        (true, false) => Some(3),
        (false, false) => None,
    }
}

/// The target's name at this BMC.
fn target_name(target: BootTarget, system: &System, quirks: &Quirks) -> String {
    let offered = |name: &str| system.boot.targets.iter().find(|offered| offered.eq_ignore_ascii_case(name)).cloned();
    match target {
        BootTarget::Cd => {
            let usb = if quirks.virtual_cd_is_usb_cd() { offered("UsbCd") } else { None };
            // Supermicro X10 spells it "CD/DVD". A BMC that lists none of these names is sent the standard's name.
            usb.or_else(|| offered("Cd"))
                .or_else(|| offered("CD/DVD"))
                .or_else(|| offered("UsbCd"))
                // Some show their virtual CD as a drive like any at USB.
                .or_else(|| offered("Usb"))
                .unwrap_or_else(|| "Cd".into())
        }
        BootTarget::Hdd => offered("Hdd").unwrap_or_else(|| "Hdd".into()),
        BootTarget::BiosSetup => offered("BiosSetup").unwrap_or_else(|| "BiosSetup".into()),
    }
}
