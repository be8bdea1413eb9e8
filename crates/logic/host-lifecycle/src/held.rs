//! Blocks that last until the operator corrects something: the host's provisioner is refused or unknown, or its record cannot be read. The work
//! has not failed: the host stays in its state, no failure is counted, and a deletion waits too. To delete the host anyway, detach it by force.

use api::metal3::{BareMetalHost, ErrorType, ProvisioningState as State, annotation};

use crate::annotations::{detached, detached_by_force, detached_fault};
use crate::detach;
use crate::draft::Draft;
use crate::step::{Action, Change, Next, Outcome};

/// Reads the answer to any call that was not made because of such a block.
pub(crate) fn conclude(mut draft: Draft<'_>, action: &Action, message: &str) -> Change {
    let host = draft.view.host;
    let forced = detached_by_force(host);
    if *action == Action::Release && draft.state() == State::Deleting {
        // Never registered: there is nothing to release.
        if forced || !draft.view.is_registered() {
            draft.warn("DeletionGaveUp", &format!("The host is deleted without being released: {message}"));
            return draft.finish(Next::Gone);
        }
    } else if *action == Action::Release && forced {
        draft.warn("DetachedByForce", &format!("The host is let go without its provisioner's word: {message}"));
        return detach::conclude(draft, Outcome::Done);
    }
    let way_out = if host.is_deleting() { way_out(host, draft.state()) } else { String::new() };
    draft.fault(ErrorType::Registration, &format!("{message}{way_out}"));
    // Nothing was attempted: neither this nor earlier failures count towards a deletion's giving up.
    draft.status.error_count = 1;
    let poll = draft.view.settings.steady_state_poll;
    draft.finish(Next::After(poll))
}

/// What the deletion waits for.
fn way_out(host: &BareMetalHost, state: State) -> String {
    let key = annotation::DETACHED;
    let goes = format!("; the deletion waits for that, or for the annotation {key}={{\"force\":true}}");
    match detached(host) {
        _ if detached_fault(host).is_some() => {
            format!("{goes} in place of the one that is there, which cannot be read")
        }
        Some(wish) if wish.delay_deletion && state != State::Deleting => format!(
            "; the deletion waits for that. With the annotation {key}={{\"force\":true,\"deleteAction\":\"delay\"}} the host is let go without it, and the \
             deletion waits on; with {{\"force\":true}} it does not"
        ),
        _ => goes,
    }
}
