//! From an order of ours to the commands of ironic-python-agent, and from its list of commands to what has become of the order. Pure.
//!
//! An order is a [`Plan`]: commands, one after the other. The first is the one with the effect; as a step it carries the order's id, which its result
//! repeats, so that a later process finds it in the agent's list. While it runs, and when it has failed, the list does not show the id: then it counts
//! as this order's, so that a disk is never written twice for one order; at worst an order is told a failure that was an earlier one's, and is tried
//! again as another.

use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;

use agent_protocol::{
    Action, CommandError, CommandId, ConfigDrive, ErrorCode, Leave, ListedArgument, ListedStep, Outcome, Phase,
    RunStep, WipeDisks, WriteImage, WriteSummary,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disk_image::{ConfigDriveFiles, config_drive_volume};
use inventory::{RootDeviceHints, Storage, absent, choose_root_disk};
use ipa_protocol::{
    CommandFault, CommandList, CommandRequest, CommandResult, CommandStatus, ExecuteStep, ImageInfo, InstallBootloader,
    Inventory, Secret, StepKind, StepsAnswer, names,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use terms::{ChecksumType, DiskFormat};
use url::Url;

use super::facts;
use crate::redaction::without_secrets;

/// Key of the order's id in a step.
const MARKER: &str = "metamorph_order";
/// Largest volume that the agent takes as a config drive (`A:partition_utils.py`).
const MAX_CONFIG_DRIVE: usize = 64 << 20;
/// Longest text of a failure, in characters.
const MAX_TEXT: usize = 1000;
/// Most steps that are taken from an agent's list.
const MAX_STEPS: usize = 512;
/// Most arguments that are taken of a step. With more, what is asked for is not held against them.
const MAX_ARGUMENTS: usize = 64;

/// One command of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// What is sent.
    pub request: CommandRequest,
    /// It is done when its post is answered.
    pub at_once: bool,
    /// Part of the work.
    pub phase: Phase,
}

/// What an order comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Commands in order; the first is the one with the effect.
    pub stages: Vec<Stage>,
    /// The outcome when all have succeeded.
    pub outcome: Outcome,
    /// What the first's result shows, if it is this order's.
    pub marker: String,
}

/// What is to be done next for an order.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Post this stage.
    Post(usize),
    /// It runs.
    Wait(usize),
    /// The order has ended.
    Ended(Outcome),
}

/// The id that a step carries.
fn marker(id: &CommandId) -> String {
    hex::encode(Sha256::digest(format!("{}\0{}\0{}\0{}", id.operation, id.step, id.attempt, id.boot_id)))
}

fn refused(code: ErrorCode, text: impl Into<String>) -> CommandError {
    CommandError { code, message: text.into(), untouched: true }
}

/// The order's commands. `begun`: it may be at work already, or over. It was held against the disks before it was begun, and what there is now may be what it has made of them.
///
/// # Errors
/// Why it is refused; nothing was done to the machine for it then, unless it was begun.
pub fn plan(id: &CommandId, action: &Action, found: &Inventory, begun: bool) -> Result<Plan, CommandError> {
    match action {
        Action::WriteImage(write) => write_image(id, write, found),
        Action::WipeDisks(wipe) => {
            if !begun {
                may_be_wiped(wipe, found)?;
            }
            Ok(wipe_disks(id, found))
        }
        Action::EraseDisks(_) => Err(refused(
            ErrorCode::Refused,
            "erase the disks: this server's machines boot ironic-python-agent, which makes no report of each disk; they are cleaned when the host is deprovisioned",
        )),
        Action::RunStep(run) => {
            if !begun {
                may_be_run(run, found)?;
            }
            Ok(run_step(id, run))
        }
        Action::Inspect | Action::ListSteps | Action::Leave { .. } => {
            Err(refused(ErrorCode::Internal, "an order that needs no command was taken for one that does"))
        }
    }
}

/// The command that leaves the machine.
pub fn leave(how: Leave) -> CommandRequest {
    let name = match how {
        Leave::Reboot => names::RUN_IMAGE,
        Leave::PowerOff => names::POWER_OFF,
    };
    CommandRequest { name: name.to_owned(), params: Map::new() }
}

/// The node that steps are told: the agent takes the disk, and those that it leaves, from it.
fn node(id: &CommandId, properties: Value, instance: Value) -> Value {
    json!({
        "uuid": id.boot_id,
        "properties": properties,
        "instance_info": instance,
        "driver_internal_info": {},
        "extra": {},
        "driver_info": {},
    })
}

fn step(kind: StepKind, id: &CommandId, step: &str, args: Map<String, Value>, node: Value) -> CommandRequest {
    let mut wanted = ExecuteStep::new("deploy", step, args);
    wanted.step.insert(MARKER.to_owned(), json!(marker(id)));
    wanted.node = node;
    CommandRequest { name: kind.execute_command(), params: wanted.to_params(kind) }
}

fn kernel_name(disk: &Storage) -> Option<&str> {
    let names = disk.alternate_names.iter().chain(&disk.name).map(String::as_str);
    names.into_iter().find(|name| name.starts_with("/dev/") && !name.starts_with("/dev/disk/"))
}

/// The disk in the agent's hints: by what it is called now, and by what it is. A text with characters that the agent might read otherwise is left out.
fn root_device(name: &str, disk: &Storage) -> Value {
    let is_plain = |text: &&String| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    let mut hints = json!({ "name": name });
    if let Some(serial) = disk.serial_number.as_ref().filter(is_plain) {
        hints["serial"] = json!(format!("s== {serial}"));
    }
    hints
}

/// Whether a wipe may begin, by the disks that there are.
fn may_be_wiped(wipe: &WipeDisks, found: &Inventory) -> Result<(), CommandError> {
    if wipe.requires_mark {
        let text = "wipe the disks: the machine was accepted in the place of another, and is wiped only if a disk carries this host's mark, which ironic-python-agent cannot read; wipe it by hand, or set spec.automatedCleaningMode to disabled";
        return Err(refused(ErrorCode::NoOwnMark, text));
    }
    if wipe.expected.is_none() && found.disks.is_empty() {
        let text = "wipe the disks: no disk was found, and no inspection says that the machine has none";
        return Err(refused(ErrorCode::NoDisk, text));
    }
    has_expected(("wipe the disks", "nothing was changed"), wipe.expected.as_deref(), &wipe.named, found)?;
    // The agent would leave such a disk where it is told to, and wipe its partitions, which it takes for disks of their own.
    if let Some((disk, why)) = shared(&wipe.named, wipe.expected.as_deref(), found) {
        let text = format!(
            "wipe the disks: {} may be other machines' ({why}), and ironic-python-agent would wipe its partitions; nothing was changed. Take it from the machine, name it in \
             spec.rootDeviceHints if it is this host's alone, or set spec.automatedCleaningMode to disabled",
            disk.describe()
        );
        return Err(refused(ErrorCode::Refused, text));
    }
    Ok(())
}

fn wipe_disks(id: &CommandId, found: &Inventory) -> Plan {
    let disks = found.disks.iter().map(|disk| disk.name.clone()).collect();
    let outcome = Outcome::Wiped { disks, left: Vec::new() };
    let node = node(id, json!({}), json!({}));
    let request = step(StepKind::Clean, id, "erase_devices_metadata", Map::new(), node);
    Plan { stages: vec![Stage { request, at_once: false, phase: Phase::Wiping }], outcome, marker: marker(id) }
}

/// Whether the disks are there that the inspection has found; what is not done otherwise, and how that is told.
fn has_expected(
    (what, undone): (&str, &str),
    expected: Option<&[Storage]>,
    named: &RootDeviceHints,
    found: &Inventory,
) -> Result<(), CommandError> {
    let storage: Vec<Storage> = found.disks.iter().map(facts::storage).collect();
    let expected = expected.unwrap_or_default();
    let absent: Vec<String> = absent(expected, &storage, named).into_iter().take(8).map(Storage::describe).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{what}: of the {} disks that the inspection found are absent: {}; {undone}",
        expected.len(),
        absent.join(", ")
    );
    Err(refused(ErrorCode::NoDisk, text))
}

/// A disk that other machines may use, too, and that no hint names; and why it may be.
fn shared(named: &RootDeviceHints, known: Option<&[Storage]>, found: &Inventory) -> Option<(Storage, &'static str)> {
    let known = known.unwrap_or_default();
    let disks = found.disks.iter().map(|disk| (disk, facts::storage(disk)));
    let mut unnamed = disks.filter(|(_, storage)| !named.names(storage, known));
    unnamed.find_map(|(disk, storage)| Some((storage, facts::shared(disk)?)))
}

/// Whether a step of a hardware manager may begin. Nobody but that knows whether it touches disks: it is run only where a wipe would be. What the steps before it have
/// changed is told with those.
fn may_be_run(run: &RunStep, found: &Inventory) -> Result<(), CommandError> {
    let what = format!("run the step {}", run.step);
    has_expected((&what, "this step was not begun"), run.expected.as_deref(), &run.named, found)?;
    if let Some((disk, why)) = shared(&run.named, run.expected.as_deref(), found) {
        let text = format!(
            "{what}: {} may be other machines' ({why}), and nobody knows whether the step touches it; this step was not begun. Take it from the machine, or name it in \
             spec.rootDeviceHints if it is this host's alone",
            disk.describe()
        );
        return Err(refused(ErrorCode::Refused, text));
    }
    Ok(())
}

fn run_step(id: &CommandId, run: &RunStep) -> Plan {
    let mut wanted = ExecuteStep::new(&run.interface, &run.step, run.args.clone());
    wanted.step.insert(MARKER.to_owned(), json!(marker(id)));
    wanted.node = node(id, json!({}), json!({}));
    wanted.versions = Some(run.versions.clone());
    let request = CommandRequest { name: StepKind::Clean.execute_command(), params: wanted.to_params(StepKind::Clean) };
    let stages = vec![Stage { request, at_once: false, phase: Phase::Stepping }];
    Plan { stages, outcome: Outcome::StepRan { result: String::new() }, marker: marker(id) }
}

/// The command that lists steps.
pub fn list_steps(id: &CommandId) -> CommandRequest {
    let mut params = Map::new();
    params.insert("node".to_owned(), node(id, json!({}), json!({})));
    params.insert("ports".to_owned(), json!([]));
    CommandRequest { name: StepKind::Clean.list_command(), params }
}

/// The steps that the agent has told.
///
/// # Errors
/// It has told none, or of another shape: a clause that says so.
pub fn listed(told: &CommandResult) -> Result<Outcome, String> {
    let result = told.command_result.as_ref().filter(|_| told.command_status == CommandStatus::Succeeded);
    let Some(result) = result else {
        let why = told.command_error.as_ref().map(CommandFault::text).unwrap_or_default();
        return Err(format!("it lists no steps: {}", told_by_agent(why)));
    };
    let answer = StepsAnswer::from_value(StepKind::Clean, result)
        .map_err(|error| format!("its list of steps is malformed: {}", told_by_agent(&error.to_string())))?;
    let all = answer.steps.iter().flat_map(|(manager, steps)| steps.iter().map(move |step| (manager, step)));
    let count = answer.steps.values().map(Vec::len).fold(0_usize, usize::saturating_add);
    let steps: Vec<ListedStep> = all.take(MAX_STEPS).map(|(manager, step)| step_of(manager, step)).collect();
    let omitted = u32::try_from(count.saturating_sub(steps.len())).unwrap_or(u32::MAX);
    Ok(Outcome::StepsListed { steps, omitted, versions: answer.versions })
}

fn step_of(manager: &str, step: &ipa_protocol::Step) -> ListedStep {
    let arg = |(name, about): (&String, &Value)| ListedArgument {
        name: name.clone(),
        description: about.get("description").and_then(Value::as_str).map(told_by_agent).unwrap_or_default(),
        required: about.get("required").and_then(Value::as_bool).unwrap_or(false),
    };
    let args = step.argsinfo.as_ref().and_then(Value::as_object).filter(|args| args.len() <= MAX_ARGUMENTS);
    ListedStep {
        manager: manager.to_owned(),
        step: step.step.clone(),
        interface: step.interface.clone(),
        priority: step.priority,
        reboot_requested: step.reboot_requested,
        abortable: step.abortable,
        args: args.map(|args| args.iter().map(arg).collect()),
    }
}

/// What a step gave, as text.
fn given(command: &CommandResult) -> String {
    match command.command_result.as_ref().and_then(|result| result.get("clean_result")) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => told_by_agent(text),
        Some(other) => told_by_agent(&other.to_string()),
    }
}

fn write_image(id: &CommandId, write: &WriteImage, found: &Inventory) -> Result<Plan, CommandError> {
    if !facts::is_uefi(found) {
        let text = "write the image: the machine was not started by UEFI, or the agent does not say so; its boot entry could not be made";
        return Err(refused(ErrorCode::FirmwareError, text));
    }
    // Disks that other machines may use are chosen only where the hints name that very disk.
    let candidates = found.disks.iter().map(|disk| (disk, facts::storage(disk)));
    let own: Vec<Storage> = candidates
        .filter(|(disk, storage)| facts::shared(disk).is_none() || write.root_device_hints.names(storage, &write.known))
        .map(|(_, storage)| storage)
        .collect();
    let disk = choose_root_disk(&write.root_device_hints, &own)
        .map_err(|error| refused(ErrorCode::NoDisk, format!("write the image: {error}")))?;
    let name = kernel_name(disk)
        .ok_or_else(|| refused(ErrorCode::NoDisk, "write the image: the chosen disk has no kernel name"))?;
    let image = image_info(id, write)?;
    let mut args = Map::new();
    args.insert("image_info".to_owned(), json!(image));
    if let Some(drive) = &write.config_drive {
        args.insert("configdrive".to_owned(), json!(Secret::new(config_drive(drive)?)));
    }
    let node = node(id, json!({}), json!({ "root_device": root_device(name, disk) }));
    let boot_loader = InstallBootloader {
        target_boot_mode: Some("uefi".to_owned()),
        ignore_bootloader_failure: Some(false),
        ..InstallBootloader::default()
    };
    let boot_loader = match json!(boot_loader) {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    let stages = vec![
        Stage { request: step(StepKind::Deploy, id, "write_image", args, node), at_once: false, phase: Phase::Writing },
        Stage {
            request: CommandRequest { name: names::INSTALL_BOOTLOADER.to_owned(), params: boot_loader },
            at_once: false,
            phase: Phase::BootEntry,
        },
        Stage {
            request: CommandRequest { name: names::SYNC.to_owned(), params: Map::new() },
            at_once: true,
            phase: Phase::Finishing,
        },
    ];
    let digest = format!(
        "{}:{}",
        image.os_hash_algo.as_deref().unwrap_or_default(),
        image.os_hash_value.as_deref().unwrap_or_default()
    );
    let summary = WriteSummary {
        disk: name.to_owned(),
        digest,
        warnings: vec!["ironic-python-agent writes no owner's mark: the disk is known by the machine alone".to_owned()],
        ..WriteSummary::default()
    };
    Ok(Plan { stages, outcome: Outcome::Written(summary), marker: marker(id) })
}

/// The image in the agent's terms, or why it cannot be given.
fn image_info(id: &CommandId, write: &WriteImage) -> Result<ImageInfo, CommandError> {
    let image = &write.image;
    let invalid = |text: &str| refused(ErrorCode::ImageInvalid, format!("write the image: {text}"));
    let disk_format = match image.format {
        DiskFormat::Raw => "raw",
        DiskFormat::Qcow2 => "qcow2",
        _ => return Err(invalid("ironic-python-agent is given raw and qcow2 images only")),
    };
    let addresses: Vec<(&str, Option<&str>)> = if image.sources.is_empty() {
        vec![(&image.url, image.authorization.as_ref().map(|given| given.0.as_str()))]
    } else {
        image.sources.iter().map(|s| (s.url.as_str(), s.authorization.as_ref().map(|given| given.0.as_str()))).collect()
    };
    // It shows one value to all addresses: those that are to see another are not given to it.
    let authorization = addresses.first().and_then(|(_, authorization)| *authorization);
    let urls: Vec<String> =
        addresses.iter().filter(|(_, other)| *other == authorization).map(|(url, _)| (*url).to_owned()).collect();
    let compressed = urls.iter().filter_map(|url| Url::parse(url).ok()).any(|url| {
        [".gz", ".xz", ".zst", ".bz2", ".zstd"].iter().any(|end| url.path().to_ascii_lowercase().ends_with(end))
    });
    if image.compression.is_some_and(|how| how != terms::Compression::None) || compressed {
        return Err(invalid("ironic-python-agent writes no compressed images; give it as it is, raw or qcow2"));
    }
    let value = image.checksum_sources.first().unwrap_or(&image.checksum).clone();
    let algorithm = match (image.checksum_type, value.len()) {
        (ChecksumType::Sha256, _) | (ChecksumType::Auto, 64) => "sha256",
        (ChecksumType::Sha512, _) | (ChecksumType::Auto, 128) => "sha512",
        _ => {
            return Err(refused(
                ErrorCode::ChecksumUnavailable,
                "write the image: ironic-python-agent is given SHA-256 and SHA-512 checksums only; set spec.image.checksumType, and checksum to such a digest or the address of a file with it",
            ));
        }
    };
    let mut info = ImageInfo {
        // Agents keep an image of the same id as written before.
        id: marker(id),
        urls,
        disk_format: Some(disk_format.to_owned()),
        container_format: Some("bare".to_owned()),
        stream_raw_images: true,
        os_hash_algo: Some(algorithm.to_owned()),
        os_hash_value: Some(value),
        node_uuid: Some(id.boot_id.clone()),
        image_type: Some("whole-disk".to_owned()),
        image_request_authorization: authorization.map(|value| Secret::new(STANDARD.encode(value))),
        ..ImageInfo::default()
    };
    if let Some(proxy) = &image.proxy {
        if proxy.authorization.is_some() {
            return Err(invalid("ironic-python-agent is given no proxy that wants a password"));
        }
        let by_scheme = ["http", "https"].map(|scheme| (scheme.to_owned(), Secret::new(proxy.url.clone())));
        info.proxies = Some(BTreeMap::from(by_scheme));
        info.no_proxy = (!proxy.no_proxy.is_empty()).then(|| proxy.no_proxy.join(","));
    }
    Ok(info)
}

/// The config drive as the agent takes it: a volume, compressed by gzip, in base64.
fn config_drive(drive: &ConfigDrive) -> Result<String, CommandError> {
    let failed = |what: String| refused(ErrorCode::NoRoomForConfigDrive, format!("make the config drive: {what}"));
    let bytes = |text: &String| STANDARD.decode(text).map_err(|error| failed(error.to_string()));
    let meta_data = bytes(&drive.meta_data)?;
    let network_data = drive.network_data.as_ref().map(bytes).transpose()?;
    let user_data = drive.user_data.as_ref().map(bytes).transpose()?;
    let files = ConfigDriveFiles {
        meta_data: &meta_data,
        user_data: user_data.as_deref(),
        network_data: network_data.as_deref(),
        vendor_data: None,
    };
    let volume = config_drive_volume(&files).map_err(|error| failed(error.to_string()))?;
    if volume.len() > MAX_CONFIG_DRIVE {
        let most = MAX_CONFIG_DRIVE >> 20;
        return Err(failed(format!("its volume has {} MiB, ironic-python-agent takes {most}", volume.len() >> 20)));
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let packed = encoder.write_all(&volume).and_then(|()| encoder.finish());
    packed.map(|packed| STANDARD.encode(packed)).map_err(|error| failed(error.to_string()))
}

/// Where in the agent's list an order's commands begin: at the command that is, or may be, its first; else at the list's end. `known` are the ids of
/// commands that this process has posted for earlier orders.
pub fn begins(id: &CommandId, plan: &Plan, list: &CommandList, known: &HashSet<String>) -> usize {
    let Some(first) = plan.stages.first() else { return list.commands.len() };
    let last = list
        .commands
        .iter()
        .enumerate()
        .rev()
        .find(|(_, command)| is_of(command, &first.request.name) && !known.contains(&command.id));
    match last {
        // It shows its id: of this order, or of another.
        Some((at, command)) => match shown(command) {
            Some(shown) if shown != marker(id) => list.commands.len(),
            _ => at,
        },
        None => list.commands.len(),
    }
}

/// Whether the agent's list has it under this name.
pub fn is_of(command: &CommandResult, name: &str) -> bool {
    command.command_name == name || name.rsplit('.').next() == Some(command.command_name.as_str())
}

/// The order's id in a step's result.
fn shown(command: &CommandResult) -> Option<&str> {
    let result = command.command_result.as_ref()?;
    ["clean_step", "deploy_step", "service_step"].iter().find_map(|key| result.get(*key)?.get(MARKER)?.as_str())
}

/// Whether a command may be of this order: it does not show another's id.
pub fn may_be(command: &CommandResult, id: &CommandId) -> bool {
    shown(command).is_none_or(|shown| shown == marker(id))
}

/// What comes next for the order whose commands begin at `from` in the agent's list.
pub fn next(plan: &Plan, list: &CommandList, from: usize) -> Next {
    let mut seen = list.commands.get(from..).unwrap_or_default();
    let mut outcome = plan.outcome.clone();
    for (number, stage) in plan.stages.iter().enumerate() {
        // A later command of the same name would be another order's; so is one that ran when this order came, and shows another's id since it has ended.
        // What another order has gone on with lies before this one's beginning: a stage is looked for behind the one before it.
        let is_ours = |command: &CommandResult| {
            is_of(command, &stage.request.name)
                && (number > 0 || shown(command).is_none_or(|shown| shown == plan.marker))
        };
        let Some(at) = seen.iter().position(is_ours) else { return Next::Post(number) };
        let (before, behind) = seen.split_at(at + 1);
        seen = behind;
        let Some(command) = before.last() else { return Next::Post(number) };
        match command.command_status {
            CommandStatus::Succeeded if number == 0 && shown(command).is_none() => {
                let text = format!("{} on ironic-python-agent does not say for which order it was", stage.request.name);
                return Next::Ended(Outcome::Failed(CommandError {
                    code: ErrorCode::Internal,
                    message: text,
                    untouched: false,
                }));
            }
            CommandStatus::Succeeded => {
                if let Outcome::StepRan { result } = &mut outcome {
                    *result = given(command);
                }
            }
            CommandStatus::Running => return Next::Wait(number),
            _ => return Next::Ended(failed(command.command_error.as_ref(), stage)),
        }
    }
    Next::Ended(outcome)
}

/// What has become of an order to leave that the agent could not carry out.
pub fn failed_to_leave(request: &CommandRequest, command: &CommandResult) -> Outcome {
    let stage = Stage { request: request.clone(), at_once: false, phase: Phase::Finishing };
    failed(command.command_error.as_ref(), &stage)
}

/// What has become of a command that the agent does not take.
pub fn refused_by_agent(request: &CommandRequest, status: u16, told: &str) -> Outcome {
    let message = format!("{} was refused by ironic-python-agent: {status} {}", request.name, told_by_agent(told));
    Outcome::Failed(CommandError { code: ErrorCode::Refused, message, untouched: false })
}

/// Words of the agent's: bounded, one line, without what may be a secret.
fn told_by_agent(text: &str) -> String {
    without_secrets(text).chars().filter(|c| terms::is_printable(*c)).take(MAX_TEXT).collect()
}

/// The agent's failure in our terms.
fn failed(fault: Option<&CommandFault>, stage: &Stage) -> Outcome {
    let (kind, told) = fault.map(|fault| (fault.kind.as_str(), fault.text())).unwrap_or_default();
    let code = match kind {
        "ImageDownloadError" | "ImageDownloadTimeoutError" | "ImageDownloadOutofSpaceError" => {
            ErrorCode::ImageUnreachable
        }
        "ImageChecksumError" => ErrorCode::ChecksumMismatch,
        "InvalidImage" | "ImageWriteError" | "IncompatibleNumaFormatError" => ErrorCode::ImageInvalid,
        "DeviceNotFound" => ErrorCode::NoDisk,
        "BlockDeviceEraseError" | "BlockDeviceError" | "ProtectedDeviceError" => ErrorCode::DiskError,
        "InvalidCommandParamsError" | "InvalidCommandError" => ErrorCode::Refused,
        _ if stage.phase == Phase::BootEntry => ErrorCode::FirmwareError,
        _ => ErrorCode::Internal,
    };
    let told = told_by_agent(told);
    let told = match kind {
        "VersionMismatch" => format!(
            "its hardware managers are not those that its steps were listed by; ask for the steps anew ({told})"
        ),
        _ if told.is_empty() => "it says nothing of why".to_owned(),
        _ => told,
    };
    let message = format!("{} on ironic-python-agent: {told}", stage.request.name);
    Outcome::Failed(CommandError { code, message, untouched: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_protocol::{DiskMark, ImageSource};
    use inventory::RootDeviceHints;

    fn id(attempt: u32) -> CommandId {
        CommandId { operation: "o/1".into(), step: "write".into(), attempt, boot_id: "b".into() }
    }

    fn machine() -> Inventory {
        serde_json::from_value(json!({
            "disks": [
                {"name": "/dev/sda", "size": 100_u64 << 30, "rotational": true, "serial": "S1", "by_path": "/dev/disk/by-path/a"},
                {"name": "/dev/sdb", "size": 50_u64 << 30, "rotational": true, "serial": "S2", "tran": "iscsi"}
            ],
            "boot": {"current_boot_mode": "uefi"}
        }))
        .unwrap()
    }

    fn write() -> WriteImage {
        WriteImage {
            image: ImageSource {
                url: "http://192.0.2.9/disk.img".into(),
                format: DiskFormat::Raw,
                checksum: "ab".repeat(32),
                checksum_type: ChecksumType::Auto,
                compression: None,
                authorization: None,
                allowed_addresses: vec![],
                sources: vec![],
                checksum_sources: vec![],
                proxy: None,
            },
            root_device_hints: RootDeviceHints::default(),
            mark: DiskMark::default(),
            config_drive: Some(ConfigDrive { meta_data: STANDARD.encode("{}"), network_data: None, user_data: None }),
            known: Vec::new(),
        }
    }

    fn ran(uuid: &str, name: &str, status: &str, result: Value) -> Value {
        json!({"id": uuid, "command_name": name, "command_status": status, "command_result": result, "command_error": null})
    }

    fn list(commands: Vec<Value>) -> CommandList {
        serde_json::from_value(json!({ "commands": commands })).unwrap()
    }

    fn echo(plan: &Plan) -> Value {
        json!({"deploy_result": "ok", "deploy_step": plan.stages[0].request.params["step"]})
    }

    #[test]
    fn a_write_goes_to_the_chosen_disk_and_on_to_the_boot_entry() {
        let plan = plan(&id(1), &Action::WriteImage(Box::new(write())), &machine(), false).unwrap();
        let params = &plan.stages[0].request.params;
        let root = &params["node"]["instance_info"]["root_device"];
        assert_eq!(*root, json!({"name": "/dev/sda", "serial": "s== S1"}), "an iSCSI disk is no choice");
        let args = &params["step"]["args"];
        assert_eq!(args["image_info"]["os_hash_algo"], "sha256");
        let drive = STANDARD.decode(args["configdrive"].as_str().unwrap()).unwrap();
        let mut volume = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&drive[..]), &mut volume).unwrap();
        assert!(volume.windows(8).any(|bytes| bytes == b"config-2"));
        let none = HashSet::new();
        let from = begins(&id(1), &plan, &list(vec![]), &none);
        assert_eq!((from, next(&plan, &list(vec![]), from)), (0, Next::Post(0)));
        let written = ran("1", "execute_deploy_step", "SUCCEEDED", echo(&plan));
        assert_eq!(next(&plan, &list(vec![written.clone()]), 0), Next::Post(1));
        let entry = ran("2", "install_bootloader", "RUNNING", Value::Null);
        assert_eq!(next(&plan, &list(vec![written.clone(), entry]), 0), Next::Wait(1));
        let all = list(vec![
            written,
            ran("2", "install_bootloader", "SUCCEEDED", Value::Null),
            ran("3", "sync", "SUCCEEDED", Value::Null),
        ]);
        assert!(matches!(next(&plan, &all, 0), Next::Ended(Outcome::Written(summary)) if summary.disk == "/dev/sda"));
    }

    #[test]
    fn a_process_that_has_not_posted_it_finds_the_order_and_posts_nothing_twice() {
        let action = Action::WriteImage(Box::new(write()));
        let planned = |attempt| plan(&id(attempt), &action, &machine(), false).unwrap();
        let (one, two) = (planned(1), planned(2));
        let none = HashSet::new();
        let inventory = ran("0", "get_hardware_info", "SUCCEEDED", json!({}));
        for status in ["RUNNING", "FAILED"] {
            let there = list(vec![inventory.clone(), ran("1", "execute_deploy_step", status, Value::Null)]);
            let from = begins(&id(1), &one, &there, &none);
            assert_ne!(next(&one, &there, from), Next::Post(0), "{status}");
        }
        let there = list(vec![inventory, ran("1", "execute_deploy_step", "SUCCEEDED", echo(&one))]);
        assert_eq!(next(&one, &there, begins(&id(1), &one, &there, &none)), Next::Post(1));
        // One that ran, and was another's: it is waited for, and this one's is made then.
        let other = list(vec![ran("1", "execute_deploy_step", "RUNNING", Value::Null)]);
        let from = begins(&id(2), &two, &other, &none);
        assert_eq!(next(&two, &other, from), Next::Wait(0));
        let mute = list(vec![ran("1", "execute_deploy_step", "SUCCEEDED", Value::Null)]);
        assert!(matches!(next(&two, &mute, from), Next::Ended(Outcome::Failed(_))));
        let other = list(vec![ran("1", "execute_deploy_step", "SUCCEEDED", echo(&one))]);
        assert_eq!(next(&two, &other, from), Next::Post(0));
        // Nor is what that one goes on with: this one's boot loader is installed after its own image is written.
        let both = list(vec![
            ran("1", "execute_deploy_step", "SUCCEEDED", echo(&one)),
            ran("2", "install_bootloader", "SUCCEEDED", Value::Null),
            ran("3", "execute_deploy_step", "SUCCEEDED", echo(&two)),
        ]);
        assert_eq!(next(&two, &both, 0), Next::Post(1));
        // Another order's write is none of this one's.
        assert_eq!(next(&two, &there, begins(&id(2), &two, &there, &none)), Next::Post(0));
        // Nor is one that failed for an order that this process has ended.
        let there = list(vec![ran("1", "execute_deploy_step", "FAILED", Value::Null)]);
        let known = HashSet::from(["1".to_owned()]);
        assert_eq!(next(&two, &there, begins(&id(2), &two, &there, &known)), Next::Post(0));
    }

    #[test]
    fn what_the_agent_cannot_do_as_asked_is_refused_before_anything_is_done() {
        let refuses = |change: &dyn Fn(&mut WriteImage)| {
            let mut write = write();
            change(&mut write);
            plan(&id(1), &Action::WriteImage(Box::new(write)), &machine(), false).unwrap_err().code
        };
        assert_eq!(refuses(&|w| w.image.url = "http://x/disk.img.xz".into()), ErrorCode::ImageInvalid);
        assert_eq!(refuses(&|w| w.image.format = DiskFormat::Vmdk), ErrorCode::ImageInvalid);
        assert_eq!(refuses(&|w| w.image.checksum = "ab".repeat(16)), ErrorCode::ChecksumUnavailable);
        assert_eq!(refuses(&|w| w.root_device_hints.serial_number = Some("other".into())), ErrorCode::NoDisk);
        let bios = Inventory { boot: None, ..machine() };
        let refusal = plan(&id(1), &Action::WriteImage(Box::new(write())), &bios, false).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::FirmwareError);
    }

    #[test]
    fn a_wipe_is_refused_beside_shared_disks_and_wants_those_of_the_inspection() {
        let wipe = |wipe: WipeDisks| plan(&id(1), &Action::WipeDisks(Box::new(wipe)), &machine(), false);
        let refusal = wipe(WipeDisks::default()).unwrap_err();
        assert!(refusal.untouched && refusal.message.contains("it is reached by iSCSI"), "{refusal:?}");
        let named = RootDeviceHints { serial_number: Some("S2".into()), ..RootDeviceHints::default() };
        let plan = wipe(WipeDisks { named, ..WipeDisks::default() }).unwrap();
        let Outcome::Wiped { disks, left } = &plan.outcome else { panic!("{plan:?}") };
        assert_eq!((disks.len(), left.len()), (2, 0));
        let gone = Storage { serial_number: Some("S9".into()), name: Some("/dev/sdz".into()), ..Storage::default() };
        let expected = WipeDisks { expected: Some(vec![gone]), ..WipeDisks::default() };
        assert_eq!(wipe(expected).unwrap_err().code, ErrorCode::NoDisk);
        assert_eq!(
            wipe(WipeDisks { requires_mark: true, ..WipeDisks::default() }).unwrap_err().code,
            ErrorCode::NoOwnMark
        );
    }

    #[test]
    fn a_step_is_refused_beside_shared_disks_and_wants_those_of_the_inspection() {
        let run = |run: RunStep| plan(&id(1), &Action::RunStep(Box::new(run)), &machine(), false);
        let flash = RunStep { step: "flash".into(), interface: "bios".into(), ..RunStep::default() };
        let refusal = run(flash.clone()).unwrap_err();
        assert!(refusal.untouched && refusal.message.contains("it is reached by iSCSI"), "{refusal:?}");
        let named = RootDeviceHints { serial_number: Some("S2".into()), ..RootDeviceHints::default() };
        let named = RunStep { named, ..flash };
        let plan = run(named.clone()).unwrap();
        assert_eq!(plan.stages[0].request.name, "clean.execute_clean_step");
        assert_eq!(plan.stages[0].request.params["step"]["interface"], "bios");
        let gone = Storage { serial_number: Some("S9".into()), name: Some("/dev/sdz".into()), ..Storage::default() };
        let refusal = run(RunStep { expected: Some(vec![gone]), ..named }).unwrap_err();
        assert_eq!((refusal.code, refusal.untouched), (ErrorCode::NoDisk, true));
        assert!(refusal.message.contains("not begun") && !refusal.message.contains("nothing"), "{refusal:?}");
        assert!(!format!("{plan:?}").contains("clean_version"), "orders are in no log");
    }

    #[test]
    fn a_failure_is_told_in_our_terms() {
        let plan = plan(&id(1), &Action::WriteImage(Box::new(write())), &machine(), false).unwrap();
        let mut failed = ran("1", "execute_deploy_step", "FAILED", Value::Null);
        failed["command_error"] =
            json!({"type": "ImageChecksumError", "code": 500, "message": "m", "details": "differs\u{1b}"});
        let Next::Ended(Outcome::Failed(error)) = next(&plan, &list(vec![failed]), 0) else { panic!() };
        assert_eq!(error.code, ErrorCode::ChecksumMismatch);
        assert!(error.message.contains("differs") && !error.message.contains('\u{1b}') && !error.untouched);
    }
}
