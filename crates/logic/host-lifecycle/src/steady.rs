//! A host with something on it at rest: its power, its medium, its firmware.

use crate::data_image;
use crate::draft::Draft;
use crate::firmware;
use crate::power;
use crate::power_wish;
use crate::servicing;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// What is to be done before the machine is switched on comes first.
pub(crate) fn decide(view: &View<'_>) -> Step {
    // A service boots the machine: what it is to be shown is in before that.
    let booting = power_wish::is_about_to_boot(view) && !servicing::is_in_service(view.status());
    booting
        .then(|| data_image::decide(view, true))
        .flatten()
        .or_else(|| servicing::decide(view))
        .or_else(|| data_image::decide(view, booting))
        .or_else(|| firmware::freshen(view))
        .unwrap_or_else(|| power::steady(view))
}

/// Reads the answers to its own calls.
pub(crate) fn conclude(draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    match action {
        Action::Service { .. } => servicing::conclude(draft, action, outcome),
        Action::AttachMedia { .. } | Action::DetachMedia => data_image::conclude(draft, action, outcome),
        Action::CheckMedia { .. } | Action::LookAtMedia => data_image::conclude_look(draft, action, outcome),
        _ => draft.seal(Next::Now),
    }
}
