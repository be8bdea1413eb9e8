//! When a failed piece of work is tried again.
//!
//! The n-th failure in a row waits 2^min(n, 9) units less up to half of it (baremetal-operator `host_state_machine.go` does so
//! with minutes). The part taken off is derived from the host's uid and n, so that it differs between hosts and is the same
//! whenever it is computed again.

use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, BareMetalHostStatus, ErrorType, ProvisioningState as State, annotation};
use jiff::{SignedDuration, Timestamp};

use crate::annotations;
use crate::view::View;

/// Failures in a row after which a deletion stops insisting (baremetal-operator `host_state_machine.go`).
pub(crate) const GIVE_UP_AFTER: i64 = 3;

/// Failures beyond which the wait grows no more.
const MAX_EXPONENT: u32 = 9;
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The wait after `failures` failures in a row: between half and all of `unit` times 2^min(failures, 9), at most a day.
#[must_use]
pub fn back_off(unit: Duration, uid: &str, failures: u32) -> Duration {
    let exponent = failures.min(MAX_EXPONENT);
    let full = unit.saturating_mul(1 << exponent);
    let off = full / 2 / 65536 * (hash(uid, exponent) & 0xffff);
    full.saturating_sub(off).min(LONGEST)
}

/// FNV-1a over uid and exponent, its halves folded.
fn hash(uid: &str, exponent: u32) -> u32 {
    let mut value: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in uid.bytes().chain(exponent.to_le_bytes()) {
        value = (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    value ^= value >> 32;
    // The mask keeps 32 bits: the conversion cannot fail.
    u32::try_from(value & 0xffff_ffff).unwrap_or_default()
}

/// The wait that `status` asks for: by its count of failures, or by the failed attempts at the same image, whichever is more.
///
/// Consent, to overwrite another owner's disk or to the other machine that the error speaks of, or the wish to detach or to boot the agent anew by force, is most likely what the work was waiting for, and an annotation leaves no trace in
/// the generation: while it is there, the wait is one unit at most.
pub(crate) fn delay(view: &View<'_>, status: &BareMetalHostStatus) -> Duration {
    let trying = status.provisioning.state == State::Provisioning && status.error_type == Some(ErrorType::Provisioning);
    let attempts = if trying { status.provisioning_fail_count } else { 0 };
    let failures = u32::try_from(status.error_count.max(attempts).max(0)).unwrap_or(u32::MAX);
    let unit = view.settings.backoff_unit;
    let wait = back_off(unit, view.host.metadata.uid.as_deref().unwrap_or_default(), failures);
    let may_overwrite = view.host.annotation(annotation::OVERWRITE_OWNER).is_some();
    let consented = may_overwrite && status.error_type == Some(ErrorType::Provisioning)
        || annotations::detached(view.host).is_some()
        || view.host.annotation(annotation::ACCEPT_MACHINE).is_some()
            && status.error_message.contains(annotation::ACCEPT_MACHINE)
        || annotations::is_reboot_forced(view.host)
            && matches!(status.error_type, Some(ErrorType::Inspection | ErrorType::Provisioning));
    if consented { wait.min(unit) } else { wait }
}

/// How long work of the class `kind` must still wait; `None` if it may be done now.
///
/// It need not wait if its last attempt did not fail, if the wait is over, if it failed before the settings' `anew_since`, if the spec was edited
/// after the failure was recorded (the conditions name that generation), or if it is inspection or provisioning and the machine has shown a sign
/// of life.
pub(crate) fn wait_left(view: &View<'_>, kind: ErrorType) -> Option<Duration> {
    let status = view.host.status.as_ref()?;
    if status.error_type != Some(kind) || edited_since(view.host, status) {
        return None;
    }
    if view.news && matches!(kind, ErrorType::Inspection | ErrorType::Provisioning) {
        return None;
    }
    let failed = status.last_updated.as_ref()?;
    if view.settings.anew_since.is_some_and(|since| failed.0 < since) {
        return None;
    }
    left_of(delay(view, status), failed, view.now)
}

/// What is left of a wait that began then.
pub(crate) fn left_of(full: Duration, since: &Time, now: Timestamp) -> Option<Duration> {
    // A clock that went back must not make the wait longer than it is.
    let passed = Duration::try_from(now.duration_since(since.0).max(SignedDuration::ZERO)).unwrap_or_default();
    full.checked_sub(passed).filter(|left| !left.is_zero())
}

/// Whether the spec was edited after the status was written.
pub(crate) fn edited_since(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let seen = status.conditions.iter().filter_map(|c| c.observed_generation).max();
    matches!((seen, host.metadata.generation), (Some(seen), Some(generation)) if seen != generation)
}
