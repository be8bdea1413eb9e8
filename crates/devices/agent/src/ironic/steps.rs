//! The steps of cleaning and deploying, by the agent's own commands.

use std::sync::{Arc, Mutex, PoisonError};

use agent_protocol::{
    Action, CommandError, DiskMark, DrivePassword, EraseDisks, ErrorCode, Outcome, Progress, WipeDisks, WriteSummary,
};
use disk_image::Flow;
use inventory::{DiskSelector, EraseMethod, EraseResult, ErasedDisk};
use ipa_protocol::{
    CommandFault, ExecuteStep, InstallBootloader, LookupConfig, Parameters, PrepareImage, Step, StepKind, StepsAnswer,
    Versions,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{hints, image, inventory as found, logs};
use crate::commands::Runner;
use crate::facts;
use crate::report::LogRing;

/// How owners of marks begin that were written under Ironic; the node's UUID follows.
const OWNER: &str = "ironic:";

/// What in the node's `extra` names foreign owners whose marks may be overwritten.
const CONSENT: &str = "metamorph-overwrite-owner";

/// Kernel parameter: ranges of local addresses (loopback, link-local) from which an image may be read, separated by commas.
const IMAGE_ADDRESSES: &str = "metamorph-image-addresses";

/// Most disks that a message names.
const MAX_NAMED: usize = 12;

/// What the agent knows of its node.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The node's UUID.
    pub node: String,
    /// What the lookup said.
    pub config: LookupConfig,
    /// What the kernel was told.
    pub parameters: Parameters,
}

/// What steps run with.
pub struct Context {
    runner: Arc<Runner>,
    settings: Settings,
    ring: LogRing,
    /// What was written in this boot.
    written: Mutex<Option<WriteSummary>>,
}

/// Why a step did not do it.
#[derive(Debug)]
pub(super) enum StepError {
    /// It failed.
    Failed(CommandFault),
    /// Ironic's list of steps is of another agent.
    OtherVersion(CommandFault),
}

/// The list of steps; priorities are ironic-python-agent's (`A:hardware.py`, `get_clean_steps`, `get_deploy_steps`).
pub(super) fn answer(kind: StepKind) -> StepsAnswer {
    let step = |name: &str, priority: i64| Step {
        step: name.to_owned(),
        priority,
        interface: "deploy".to_owned(),
        reboot_requested: false,
        abortable: (kind != StepKind::Deploy).then_some(true),
        argsinfo: None,
    };
    let steps = match kind {
        StepKind::Clean => {
            vec![step("erase_devices", 10), step("erase_devices_metadata", 99), step("erase_devices_express", 0)]
        }
        StepKind::Deploy => vec![step("erase_devices_metadata", 0), step("write_image", 0)],
        StepKind::Service => Vec::new(),
    };
    let steps = if steps.is_empty() { [].into() } else { [(super::name::MANAGER.to_owned(), steps)].into() };
    StepsAnswer { steps, versions: versions() }
}

fn versions() -> Versions {
    [("metamorph_agent".to_owned(), super::name::VERSION.to_owned())].into()
}

fn failed(kind: &str, message: &str, details: impl Into<String>) -> StepError {
    StepError::Failed(CommandFault::new(kind, 500, message, details))
}

/// The failure of one of our commands, under the name that ironic-python-agent has for such (`A:errors.py`).
fn of_command(kind: StepKind, error: CommandError) -> StepError {
    let name = match error.code {
        ErrorCode::ImageUnreachable
        | ErrorCode::ImageNotAllowed
        | ErrorCode::ImageNotFound
        | ErrorCode::ImageTruncated => "ImageDownloadError",
        ErrorCode::ChecksumMismatch | ErrorCode::ChecksumUnavailable => "ImageChecksumError",
        ErrorCode::ImageTooLarge | ErrorCode::ImageInvalid | ErrorCode::NoRoomForConfigDrive => "ImageWriteError",
        ErrorCode::NoDisk => "DeviceNotFound",
        _ if kind == StepKind::Clean => "CleaningError",
        _ => "DeploymentError",
    };
    failed(name, if kind == StepKind::Clean { "Clean step failed" } else { "Deploy step failed" }, error.message)
}

fn refused(kind: StepKind, why: impl Into<String>) -> StepError {
    of_command(kind, CommandError { code: ErrorCode::Refused, message: why.into(), untouched: true })
}

impl Context {
    /// The steps of this node.
    #[must_use]
    pub fn new(runner: Arc<Runner>, settings: Settings, ring: LogRing) -> Self {
        Self { runner, settings, ring, written: Mutex::default() }
    }

    /// What the agent knows of its node.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The agent's logs.
    pub(super) fn logs(&self) -> String {
        logs::packed(&self.ring, &found::of(self.runner.machine(), &self.settings.parameters))
    }

    /// Runs a step to its end. Blocks.
    pub(super) fn execute(&self, kind: StepKind, order: &ExecuteStep) -> Result<Value, StepError> {
        if order.versions.as_ref().is_some_and(|listed| *listed != versions()) {
            let details = "the steps were listed by another agent than this one";
            let message = "Hardware managers version mismatch";
            return Err(StepError::OtherVersion(CommandFault::new("VersionMismatch", 500, message, details)));
        }
        let name = order.name().unwrap_or_default();
        tracing::info!("Ironic's step {}", crate::text::cut(name, 100));
        // Hints, disks to be kept and consent are the node's.
        if let Some(other) = order.node.get("uuid").filter(|uuid| uuid.as_str() != Some(self.settings.node.as_str())) {
            return Err(refused(
                kind,
                format!("the order is for the node {other}, and this machine is {}", self.settings.node),
            ));
        }
        match (kind, name) {
            (StepKind::Clean | StepKind::Deploy, "erase_devices_metadata") => self.wipe(kind, &order.node),
            (StepKind::Clean, "erase_devices") => self.erase(&order.node),
            (StepKind::Clean, "erase_devices_express") => self.erase_express(&order.node),
            (StepKind::Deploy, "write_image") => {
                let args = order.step.get("args").cloned().unwrap_or_default();
                let image: PrepareImage = serde_json::from_value(args).map_err(|error| {
                    refused(kind, format!("the arguments of write_image cannot be understood: {error}"))
                })?;
                self.write_image(&image, &order.node).map(Value::String)
            }
            _ => Err(failed(
                "HardwareManagerMethodNotFound",
                "No HardwareManager found to handle method",
                format!("Could not find method: {}", crate::text::cut(name, 100)),
            )),
        }
    }

    /// The mark of what is written, with consent to overwrite marks that were written under Ironic.
    fn mark(&self, kind: StepKind, node: &Value) -> Result<DiskMark, StepError> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut consent = text(node.get("extra").and_then(|extra| extra.get(CONSENT)));
        consent.truncate(consent.floor_char_boundary(4096));
        let marks = match self.runner.run(Action::Inspect, &|_: Progress| Flow::Continue) {
            Outcome::Inspected { marks, .. } => marks,
            Outcome::Failed(error) => return Err(of_command(kind, error)),
            _ => Vec::new(),
        };
        // An owner that is no node's would be read as several: consent is split at commas.
        let is_node = |owner: &str| {
            owner.strip_prefix(OWNER).is_some_and(|uuid| {
                (1..=64).contains(&uuid.len()) && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
            })
        };
        for mark in marks.into_iter().filter(|mark| is_node(&mark.owner)) {
            consent.push(',');
            consent.push_str(&mark.owner);
        }
        let host = text(node.get("name"));
        let is_name =
            |name: &str| name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        Ok(DiskMark {
            owner: format!("{OWNER}{}", self.settings.node),
            host: if is_name(&host) && !host.is_empty() { host } else { self.settings.node.clone() },
            // Each order is one: what was written before is written again.
            operation: uuid::Uuid::new_v4().to_string(),
            consent: Some(consent).filter(|consent| !consent.is_empty()),
        })
    }

    fn run(&self, kind: StepKind, action: Action) -> Result<Outcome, StepError> {
        match self.runner.run(action, &|_: Progress| Flow::Continue) {
            Outcome::Failed(error) => Err(of_command(kind, error)),
            outcome => Ok(outcome),
        }
    }

    fn wipe(&self, kind: StepKind, node: &Value) -> Result<Value, StepError> {
        nothing_is_kept(kind, node)?;
        let order = WipeDisks { mark: self.mark(kind, node)?, ..WipeDisks::default() };
        match self.run(kind, Action::WipeDisks(Box::new(order)))? {
            Outcome::Wiped { disks, left } => Ok(json!({ "wiped": disks, "left": left })),
            _ => Ok(Value::Null),
        }
    }

    /// By the drives' own commands, and where there are none by overwriting, as ironic-python-agent does it.
    fn erase(&self, node: &Value) -> Result<Value, StepError> {
        let kind = StepKind::Clean;
        nothing_is_kept(kind, node)?;
        let set =
            |name: &str| node.get("driver_internal_info").and_then(|info| info.get(name)).cloned().unwrap_or_default();
        if set("agent_erase_devices_iterations").as_i64().is_some_and(|times| times > 1) {
            return Err(refused(
                kind,
                "[deploy]shred_random_overwrite_iterations is more than 1: this agent overwrites once",
            ));
        }
        let by_drive = ["agent_enable_ata_secure_erase", "agent_enable_nvme_secure_erase"]
            .iter()
            .all(|name| set(name) != json!(false));
        let mark = self.mark(kind, node)?;
        let mut disks = Vec::new();
        if by_drive {
            disks = self.erased(&mark, EraseMethod::Purge, Vec::new())?;
        }
        // Where a drive has begun and not ended well, overwriting would hide that (`[deploy]continue_if_disk_secure_erase_fails`).
        let goes_on = set("agent_continue_if_secure_erase_failed") == json!(true);
        let again = |disk: &ErasedDisk| disk.result == EraseResult::NotDone && (goes_on || disk.method.is_none());
        let left: Vec<DiskSelector> = disks.iter().filter(|disk| again(disk)).filter_map(selector).collect();
        if !by_drive || !left.is_empty() {
            let second = self.erased(&mark, EraseMethod::Overwrite, left)?;
            disks.retain(|disk| !second.iter().any(|other| other.name == disk.name));
            disks.extend(second);
        }
        judged(disks)
    }

    /// NVMe drives by their own command, and the metadata of the others.
    fn erase_express(&self, node: &Value) -> Result<Value, StepError> {
        let kind = StepKind::Clean;
        nothing_is_kept(kind, node)?;
        let mark = self.mark(kind, node)?;
        let nvme =
            facts::disks(self.runner.machine().tree()).into_iter().filter(|disk| disk.device.starts_with("nvme"));
        let nvme: Vec<DiskSelector> = nvme.filter_map(|disk| selector(&ErasedDisk::of(&disk.storage))).collect();
        if !nvme.is_empty() {
            for disk in self.erased(&mark, EraseMethod::Purge, nvme)? {
                tracing::info!("{}", disk.describe());
            }
        }
        self.wipe(kind, node)
    }

    fn erased(
        &self,
        mark: &DiskMark,
        method: EraseMethod,
        disks: Vec<DiskSelector>,
    ) -> Result<Vec<ErasedDisk>, StepError> {
        // The next boot has to know it, for an erase that was broken off leaves the drive locked. It keeps no secret: whoever erases wants nothing of what is there.
        let digest = Sha256::digest(format!("drive password {}", self.settings.node));
        let password = DrivePassword(hex::encode(digest.get(..8).unwrap_or_default()));
        let order = EraseDisks { mark: mark.clone(), method, disks, expected: None, password };
        match self.run(StepKind::Clean, Action::EraseDisks(Box::new(order)))? {
            Outcome::Erased { disks } => Ok(disks),
            _ => Ok(Vec::new()),
        }
    }

    /// Local addresses at which an image may nevertheless be, by the kernel parameter of ours.
    fn allowed(&self) -> Vec<String> {
        let given = self.settings.parameters.get(IMAGE_ADDRESSES).unwrap_or_default();
        given.split(',').filter(|range| !range.is_empty()).take(16).map(str::to_owned).collect()
    }

    /// Writes an image; gives a sentence.
    pub(super) fn write_image(&self, order: &PrepareImage, node: &Value) -> Result<String, StepError> {
        let kind = StepKind::Deploy;
        nothing_is_kept(kind, node)?;
        let drive = order.configdrive.as_ref().or(order.image_info.configdrive.as_ref());
        let volume =
            drive.map(|drive| image::config_volume(drive.reveal())).transpose().map_err(|why| refused(kind, why))?;
        let hints = hints::of_node(node).map_err(|why| refused(kind, why))?;
        // Ironic knows no inspection when it orders this: a name of its hints is that of now, as ironic-python-agent takes it.
        let known = facts::disks(self.runner.machine().tree()).into_iter().map(|disk| disk.storage).collect();
        let write = image::translated(
            &order.image_info,
            (&self.settings.config, self.allowed()),
            (hints, known),
            self.mark(kind, node)?,
        )
        .map_err(|why| refused(kind, why))?;
        match self.runner.write(&write, volume, &|_: Progress| Flow::Continue) {
            Outcome::Written(summary) => {
                let text = format!(
                    "image ({}) written to device {}",
                    crate::text::cut(&order.image_info.id, 200),
                    summary.disk
                );
                *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(summary);
                Ok(text)
            }
            Outcome::Failed(error) => Err(of_command(kind, error)),
            _ => Err(refused(kind, "writing the image gave no result")),
        }
    }

    /// The boot entry was made when the image was written: here it is told whether there is one.
    pub(super) fn boot_loader(&self, order: &InstallBootloader) -> Result<(), StepError> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(summary) = written.as_ref() else {
            return Err(refused(
                StepKind::Deploy,
                "no image was written since this agent was started: nothing is to be booted",
            ));
        };
        let ignored =
            order.ignore_bootloader_failure.unwrap_or_else(|| self.settings.parameters.ignores_bootloader_failure());
        let is_uefi = order.target_boot_mode.as_deref() == Some("uefi");
        match &summary.boot_entry {
            Some(entry) => tracing::info!("the machine's boot entry is {entry}"),
            None if is_uefi && !ignored => {
                let why =
                    format!("the machine has no boot entry for {}: {}", summary.disk, summary.warnings.join("; "));
                return Err(refused(StepKind::Deploy, why));
            }
            // What is booted by BIOS has its boot loader in the image: none is installed from the outside.
            None => tracing::warn!("no boot entry was made for {}", summary.disk),
        }
        Ok(())
    }
}

/// Fails where the node wishes disks to be kept: this agent would not.
fn nothing_is_kept(kind: StepKind, node: &Value) -> Result<(), StepError> {
    let kept = node.get("properties").and_then(|properties| properties.get("skip_block_devices"));
    match kept {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(none)) if none.is_empty() => Ok(()),
        Some(_) => Err(refused(
            kind,
            "the node's property skip_block_devices is not served by this agent, which would not keep those disks; nothing was changed",
        )),
    }
}

/// What names the disk; `None` if nothing does.
fn selector(disk: &ErasedDisk) -> Option<DiskSelector> {
    let selector = DiskSelector { serial_number: disk.serial_number.clone(), wwn: disk.wwn.clone() };
    (selector.serial_number.is_some() || selector.wwn.is_some()).then_some(selector)
}

/// A step that erases has succeeded when all disks are erased.
fn judged(disks: Vec<ErasedDisk>) -> Result<Value, StepError> {
    let open: Vec<String> =
        disks.iter().filter(|disk| disk.result == EraseResult::NotDone).map(ErasedDisk::describe).collect();
    if open.is_empty() {
        return Ok(json!({ "disks": disks }));
    }
    let more = open.len().saturating_sub(MAX_NAMED);
    let named = open.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join("; ");
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(failed("BlockDeviceEraseError", "Error erasing block device", format!("not erased: {named}{more}")))
}
