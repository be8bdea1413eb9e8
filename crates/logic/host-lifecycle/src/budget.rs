//! How long a host may be in a state in which something is done with it, before it says that this takes too long.
//!
//! States in which a host stays for as long as its user wishes have no budget: available, provisioned (while its firmware is not changed), externally
//! provisioned, unmanaged. Neither have those that it only passes. A host that shows an error, or is delayed, says already what it waits for: it is
//! counted ([`spent`]), and says nothing more.

use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, BareMetalHostStatus, OperationalStatus, ProvisioningState as State, annotation};
use jiff::{SignedDuration, Timestamp};

use crate::view::View;

/// How the words begin that say so.
pub(crate) const LATE: &str = "; this takes longer than ";

/// Reason of the Event.
pub const REASON: &str = "TimeBudgetExceeded";

const MINUTE: u64 = 60;

/// The time that a host is given for what is done in this state. `None` for states at rest and those that are passed.
///
/// Within it are the boots, attempts and stalls of one step that the native provisioner waits out by itself.
#[must_use]
pub const fn budget(state: State) -> Option<Duration> {
    let minutes = match state {
        State::Registering | State::PoweringOffBeforeDelete | State::Deleting => 30,
        State::Inspecting => 60,
        State::Preparing | State::Provisioning | State::Deprovisioning => 120,
        State::None
        | State::Unmanaged
        | State::MatchProfile
        | State::Ready
        | State::Available
        | State::Provisioned
        | State::ExternallyProvisioned => return None,
    };
    Some(Duration::from_secs(minutes * MINUTE))
}

/// The time that changing the firmware of a machine in use is given.
pub const SERVICING: Duration = Duration::from_secs(120 * MINUTE);

/// The time that a host is given for steps of hardware managers: as many as one request has, each as long as the native provisioner lets it run, and boots.
pub const STEPPING: Duration = Duration::from_secs(3 * 24 * 60 * MINUTE);

/// The time that erasing a machine's disks is given: a large drive overwrites itself for days (docs/erase.md).
pub const ERASING: Duration = Duration::from_secs(7 * 24 * 60 * MINUTE);

/// Whether the host's disks are being erased on request.
#[must_use]
pub fn is_being_erased(host: &BareMetalHost, state: State) -> bool {
    state == State::Deprovisioning && host.annotation(annotation::ERASE).is_some()
}

/// Whether steps of hardware managers are being listed or run on the host's machine, on request.
#[must_use]
pub fn runs_steps(host: &BareMetalHost, state: State) -> bool {
    state == State::Deprovisioning && host.annotation(annotation::STEPS).is_some()
}

/// Since when a host is in its state, if that has a budget, and this budget. Of a provisioned host, of its service.
#[must_use]
pub fn spent(host: &BareMetalHost) -> Option<(Timestamp, Duration)> {
    spent_of(host, host.status.as_ref()?)
}

/// The same by this status.
pub(crate) fn spent_of(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<(Timestamp, Duration)> {
    let (state, history) = (status.provisioning.state, &status.operation_history);
    let deletion = host.metadata.deletion_timestamp.as_ref();
    let since = match state {
        State::Registering => history.register.start.as_ref(),
        State::Inspecting => history.inspect.start.as_ref(),
        State::Provisioning => history.provision.start.as_ref(),
        State::Deprovisioning => history.deprovision.start.as_ref(),
        // It says not when it came into these: after all of this.
        State::Preparing => latest([
            history.inspect.end.as_ref().or(history.register.end.as_ref()),
            changed(status, "AvailableForProvisioning"),
        ]),
        State::PoweringOffBeforeDelete | State::Deleting => {
            latest([deletion, history.deprovision.end.as_ref().or(history.deprovision.start.as_ref())])
        }
        State::Provisioned | State::ExternallyProvisioned
            if status.operational_status == OperationalStatus::Servicing =>
        {
            return changed(status, "Ready").map(|since| (since.0, SERVICING));
        }
        _ => None,
    };
    let budget = match state {
        state if runs_steps(host, state) => STEPPING,
        state if is_being_erased(host, state) => ERASING,
        state => budget(state)?,
    };
    Some((since?.0, budget))
}

fn latest<'a>(times: impl IntoIterator<Item = Option<&'a Time>>) -> Option<&'a Time> {
    times.into_iter().flatten().max_by_key(|time| time.0)
}

fn changed<'a>(status: &'a BareMetalHostStatus, kind: &str) -> Option<&'a Time> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some(&found.last_transition_time)
}

/// What of the budget is left to a host that simply works; `Err` since when, if nothing is.
fn left(view: &View<'_>, status: &BareMetalHostStatus) -> Option<Result<Duration, (Timestamp, Duration)>> {
    let speaks_already = status.error_type.is_some() || status.operational_status == OperationalStatus::Delayed;
    if speaks_already {
        return None;
    }
    let (since, budget) = spent_of(view.host, status)?;
    // While the host waited for its turn, nothing was late.
    let since = view.heard.waited.map_or(since, |waited| since.max(waited));
    let passed = Duration::try_from(view.now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default();
    Some(budget.checked_sub(passed).filter(|left| !left.is_zero()).ok_or((since, budget)))
}

/// When the budget ends, from now, if that is still to come.
pub(crate) fn ends_in(view: &View<'_>, status: &BareMetalHostStatus) -> Option<Duration> {
    left(view, status)?.ok()
}

/// Says that the budget is spent, since when, and what to do: a clause that begins with [`LATE`].
pub(crate) fn late(view: &View<'_>, status: &BareMetalHostStatus) -> Option<String> {
    let (since, budget) = left(view, status)?.err()?;
    let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
    let minutes = budget.as_secs() / MINUTE;
    Some(format!("{LATE}the {minutes} minutes that are given to it, since {since} — {}", advice(view, status)))
}

fn advice(view: &View<'_>, status: &BareMetalHostStatus) -> &'static str {
    match status.provisioning.state {
        state if is_being_erased(view.host, state) => {
            "see the host's newest HostOperation and the machine's console; a drive that is broken off in its command may stay locked until it is erased again"
        }
        State::Registering => {
            "see whether the BMC answers (https://BMC/redfish/v1), and what was said to it (--log info,redfish=debug)"
        }
        State::Inspecting | State::Provisioning => {
            "see the host's newest HostOperation and the machine's console; an agent that hangs is booted anew by the annotation reboot.metal3.io with \
             {\"force\":true}"
        }
        State::PoweringOffBeforeDelete | State::Deleting => {
            "see whether the BMC answers; the annotation baremetalhost.metal3.io/detached with {\"force\":true} lets the host go and its machine as it is"
        }
        State::Deprovisioning => {
            "see the host's newest HostOperation and the machine's console; the annotation baremetalhost.metal3.io/detached with {\"force\":true} ends it, \
             and leaves the machine as it is"
        }
        _ => "see the host's newest HostOperation and the machine's console",
    }
}
