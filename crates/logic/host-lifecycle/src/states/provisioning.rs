//! An image is being written.
//!
//! After a failure, the host waits, is deprovisioned, becomes available, and is provisioned again. Upstream deprovisions after any error; here
//! only a failed provisioning counts: a Secret that was missing for a minute must not undo a write that goes well. An attempt that cannot begin
//! is a preparation error, and is retried without any of this.

use addresses::text_without_secrets;
use api::metal3::{ErrorType, ProvisioningState as State};

use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::wait_left;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;
use crate::wishes;

/// What is done in it.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: Some(State::Deprovisioning), decide, conclude };

fn decide(view: &View<'_>) -> Step {
    let status = view.status();
    let cancelled = wishes::attempt_cancelled(view.host, status);
    if cancelled || status.error_type == Some(ErrorType::Provisioning) {
        if !cancelled && let Some(left) = wait_left(view, ErrorType::Provisioning) {
            return idle(view, Next::After(left));
        }
        let mut draft = Draft::new(view);
        draft.event(
            "DeprovisioningStarted",
            if cancelled { "The image is no longer wished" } else { "Provisioning failed" },
        );
        draft.go(State::Deprovisioning);
        return draft.step(Next::Now);
    }
    if status.last_attempted_image.is_none()
        && let Some(image) = wishes::image(view.host)
    {
        // Begun by baremetal-operator, which writes it at the end only.
        let mut draft = Draft::new(view);
        draft.status.last_attempted_image = Some(image.clone());
        return draft.step(Next::Now);
    }
    Step::Act(Action::Provision)
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    if *action != Action::Provision {
        return draft.seal(Next::Now);
    }
    match outcome {
        Outcome::Done => {
            let attempted = draft.status.last_attempted_image.clone();
            draft.status.provisioning.image =
                attempted.or_else(|| wishes::image(draft.view.host).cloned()).unwrap_or_default();
            draft.status.provisioning.custom_deploy = draft.view.host.spec.custom_deploy.clone();
            draft.status.provisioning_fail_count = 0;
            draft.status.operation_history.provision.end = Some(draft.now());
            // It has been started from what was written; the next look at its power says if that is no longer so.
            draft.status.powered_on = true;
            draft.use_up_consent();
            draft.drop_reboot();
            let image = text_without_secrets(&draft.status.provisioning.image.url);
            let what = format!("Image provisioning completed for {image}");
            draft.event("ProvisioningComplete", &what);
            draft.go(State::Provisioned);
            draft.finish(Next::Now)
        }
        Outcome::Working { .. } | Outcome::Accepted { .. } => {
            if matches!(outcome, Outcome::Accepted { .. }) {
                draft.agent_booted_anew();
            }
            draft.work_succeeded(ErrorType::Preparation);
            draft.not_done(ErrorType::Provisioning, "provisioning", outcome)
        }
        // The attempt has not begun: the host need not be deprovisioned for it.
        Outcome::Blocked { .. } | Outcome::Busy { .. } | Outcome::NeedsRegistration | Outcome::NeedsImage => {
            draft.not_done(ErrorType::Preparation, "provisioning", outcome)
        }
        _ => {
            draft.status.provisioning_fail_count = draft.status.provisioning_fail_count.max(0).saturating_add(1);
            draft.not_done(ErrorType::Provisioning, "provisioning", outcome)
        }
    }
}
