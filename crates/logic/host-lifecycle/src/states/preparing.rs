//! Being prepared: RAID volumes and firmware are made as wished, as far as the provisioner serves them; other wishes are an error. The provisioner is
//! called until it is done, but gets each wish once: of firmware alone, the status records what has been accepted; where volumes may be made, the
//! same wish is named until it is done. This state also checks the machine against the spec, and fixes the disk that the image will go to.

use api::metal3::{ErrorType, ProvisioningState as State};
use terms::same_architecture;

use crate::boot_mac;
use crate::draft::{Draft, idle};
use crate::firmware;
use crate::handler::StateHandler;
use crate::host_rules;
use crate::orders::Targets;
use crate::retry::wait_left;
use crate::served;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::targets;
use crate::view::View;
use crate::wishes;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude };

fn decide(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    if let Some(message) = fault(view) {
        draft.fault(ErrorType::Preparation, &message);
        return draft.step(Next::Wait);
    }
    if !view.settings.served.prepares() {
        return Step::Change(Box::new(leave(draft)));
    }
    if let Some(left) = wait_left(view, ErrorType::Preparation).filter(|_| !firmware::was_edited(view)) {
        return idle(view, Next::After(left));
    }
    let Some(targets) = targets::preparing(view) else { return Step::Act(Action::RefreshFacts) };
    Step::Act(Action::Prepare {
        targets: Box::new(targets),
        restart: view.status().error_type == Some(ErrorType::Preparation),
    })
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let Action::Prepare { targets, .. } = action else { return draft.seal(Next::Now) };
    match outcome {
        Outcome::Accepted { look_again } => {
            firmware::accepted(&mut draft, targets);
            if let Some(raid) = &targets.raid {
                let begun = targets::raid_begun(raid, draft.status.provisioning.raid.as_ref());
                draft.status.provisioning.raid = Some(begun);
            }
            save(&mut draft, targets);
            draft.finish(Draft::look(look_again))
        }
        Outcome::Done => {
            if let Some(raid) = &targets.raid {
                draft.status.provisioning.raid = Some(raid.wished.clone());
            }
            let unseen = firmware::applied(&mut draft, targets);
            save(&mut draft, targets);
            if unseen { draft.finish(Next::Now) } else { leave(draft) }
        }
        Outcome::Working { look_again } => {
            // The error stays until the new attempt is accepted: it marks the existing volumes as unknown.
            draft.no_longer_delayed();
            draft.finish(Draft::look(look_again))
        }
        Outcome::Failed { .. } => {
            firmware::failed(&mut draft);
            draft.not_done(ErrorType::Preparation, "preparation", outcome)
        }
        other => draft.not_done(ErrorType::Preparation, "preparation", other),
    }
}

/// Records what the provisioner has accepted.
fn save(draft: &mut Draft<'_>, targets: &Targets) {
    draft.status.provisioning.root_device_hints.clone_from(&targets.root_device_hints);
    if draft.status.error_type == Some(ErrorType::Preparation) {
        draft.clear_error();
    }
    draft.no_longer_delayed();
}

fn leave(mut draft: Draft<'_>) -> Change {
    draft.status.provisioning.root_device_hints = wishes::hints_to_be(draft.view.host, &draft.status);
    draft.go(State::Available);
    draft.finish(Next::Now)
}

/// Why the host cannot be prepared as wished.
pub(super) fn fault(view: &View<'_>) -> Option<String> {
    let kinds = &[ErrorType::Preparation];
    let violation =
        host_rules::first(view.host, kinds).or_else(|| served::first(view.host, &view.settings.served, kinds));
    violation.map(|violation| violation.message).or_else(|| unserved_firmware(view)).or_else(|| another_machine(view))
}

/// Wishes for the firmware that the host's provisioner does not serve.
fn unserved_firmware(view: &View<'_>) -> Option<String> {
    let (served, children) = (&view.settings.served, &view.children);
    if !served.firmware_settings && children.firmware_settings.is_some_and(|object| !object.spec.settings.is_empty()) {
        return Some(
            "The host's HostFirmwareSettings asks for settings, which the provisioner of this host cannot make — remove its spec.settings, and make \
             them with the firmware's own menu if they are needed"
                .to_owned(),
        );
    }
    let updates = children.firmware_components.is_some_and(|object| !object.spec.updates.is_empty());
    (updates && !served.firmware_updates).then(|| {
        "The host's HostFirmwareComponents asks for updates, which the provisioner of this host cannot make — remove its spec.updates, and make them \
         with the vendor's own tools if they are needed"
            .to_owned()
    })
}

/// What the spec says about the machine and the inspection contradicts.
fn another_machine(view: &View<'_>) -> Option<String> {
    let status = view.host.status.as_ref();
    let found = view.hardware_data.or_else(|| status.and_then(|status| status.hardware.as_ref()))?;
    let spec = &view.host.spec;
    let wished = spec.architecture.as_deref().filter(|wished| !wished.is_empty());
    let seen = found.cpu.as_ref().and_then(|cpu| cpu.arch.as_deref()).filter(|seen| !seen.is_empty());
    if let (Some(wished), Some(seen)) = (wished, seen)
        && !same_architecture(wished, seen)
    {
        return Some(format!(
            "spec.architecture is {wished}, and the machine that was inspected is {seen} — correct spec.architecture; if \
             another machine is meant, delete the host and create it anew with the address of the right BMC"
        ));
    }
    boot_mac::without_interface(view.host, found).map(|what| {
        format!(
            "{what} — save what the host asks for, delete it, and create it anew with the right hardware address, or the address of the right BMC: \
             neither can be changed in its place; nothing is wiped by that, as no system is written for this host"
        )
    })
}
