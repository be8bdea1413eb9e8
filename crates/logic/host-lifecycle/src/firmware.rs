//! Firmware: settings and versions as they are, compared with those that are wished.
//!
//! What the machine has is read ([`crate::Action::RefreshFacts`]) into the status of HostFirmwareSettings and HostFirmwareComponents, with upstream's
//! conditions ChangeDetected and Valid (baremetal-operator `hostfirmwaresettings_controller.go`). Two reasons of ChangeDetected are ours, so that a
//! change is handed over once and seen to have come true:
//!
//! ```text
//! Success ──accepted──▶ Accepted ──done──▶ Applied ──read──▶ Success (as wished), or an error (it is not)
//!    ▲                     └──── failed ────┐
//!    └──────────────────────────────────────┘
//! ```
//!
//! Upstream makes HostFirmwareComponents only for machines that have some; here an empty one says that there are none. Values of passwords are never
//! written down.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Time;
use api::metal3::{
    ErrorType, FirmwareComponent, FirmwareUpdate, HostFirmwareComponentsStatus, HostFirmwareSettingsStatus,
    ProvisioningState as State,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use terms::Retry;

use crate::children::ChildWrite;
use crate::draft::Draft;
use crate::orders::{FirmwareFacts, SettingsTarget, Targets};
use crate::step::{Change, Next, Outcome};
use crate::view::View;

const CHANGED: &str = "ChangeDetected";
const VALID: &str = "Valid";
/// Reasons of ours: the provisioner has taken the change; it says that it is made, which nobody has seen yet.
const ACCEPTED: &str = "Accepted";
const APPLIED: &str = "Applied";
/// Settings or components that a machine may have; more is no machine.
const MAX_ITEMS: usize = 4096;
/// Longest name or value that is written down, in bytes.
const MAX_TEXT: usize = 1024;
/// Findings that a message lists.
const MAX_LISTED: usize = 5;

/// The words for one kind of object.
struct Words {
    fine: &'static str,
    faulty: &'static str,
}

const SETTINGS: Words = Words { fine: "Success", faulty: "ConfigurationError" };
const COMPONENTS: Words = Words { fine: "OK", faulty: "InvalidComponent" };

/// How a wish stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// What there is must be read first: nobody has yet, the wish was edited since, or it is said to have come true.
    Unread,
    /// The provisioner is at it.
    Taken,
    /// It is to be handed over.
    Differs,
    /// Nothing is to be done: it is as wished, or the wish cannot be fulfilled, which the condition says.
    Settled,
}

fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn standing(conditions: &[Condition], generation: Option<i64>) -> Standing {
    let Some(changed) = find(conditions, CHANGED) else { return Standing::Unread };
    if changed.observed_generation != generation || changed.reason == APPLIED {
        return Standing::Unread;
    }
    if find(conditions, VALID).is_none_or(|valid| valid.status != "True") || changed.status != "True" {
        return Standing::Settled;
    }
    if changed.reason == ACCEPTED { Standing::Taken } else { Standing::Differs }
}

fn settings_standing(view: &View<'_>) -> Standing {
    let Some(object) = view.children.firmware_settings else { return Standing::Unread };
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    standing(conditions, object.metadata.generation)
}

fn updates_standing(view: &View<'_>) -> Standing {
    let Some(object) = view.children.firmware_components else { return Standing::Unread };
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    standing(conditions, object.metadata.generation)
}

/// The settings to hand over: `None` if they have to be read first, `Some(None)` if there are none.
#[expect(clippy::option_option, reason = "not known yet, and nothing to do, are two things")]
pub(crate) fn settings(view: &View<'_>) -> Option<Option<SettingsTarget>> {
    match settings_standing(view) {
        Standing::Unread => None,
        Standing::Taken | Standing::Settled => Some(None),
        Standing::Differs => {
            let object = view.children.firmware_settings?;
            let present = object.status.clone().unwrap_or_default().settings;
            Some(Some(SettingsTarget { wished: texts(&object.spec.settings), present }))
        }
    }
}

/// The updates to hand over; `None` if the components have to be read first.
pub(crate) fn updates(view: &View<'_>) -> Option<Vec<FirmwareUpdate>> {
    match updates_standing(view) {
        Standing::Unread => None,
        Standing::Taken | Standing::Settled => Some(Vec::new()),
        Standing::Differs => {
            let object = view.children.firmware_components?;
            let made = object.status.clone().unwrap_or_default().updates;
            Some(missing(&object.spec.updates, &made))
        }
    }
}

/// Whether the provisioner has taken a change that has not come true.
pub(crate) fn is_taken(view: &View<'_>) -> bool {
    let served = &view.settings.served;
    served.firmware_settings && settings_standing(view) == Standing::Taken
        || served.firmware_updates && updates_standing(view) == Standing::Taken
}

/// Whether what is known of the firmware is older than this.
pub(crate) fn is_older(view: &View<'_>, than: Duration) -> bool {
    let served = &view.settings.served;
    let old = |read: Option<&Time>| {
        read.is_none_or(|read| {
            // A clock that went back reads anew: nothing is lost by it.
            Duration::try_from(view.now.duration_since(read.0)).map_or(true, |age| age > than)
        })
    };
    let children = &view.children;
    let settings = || children.firmware_settings.and_then(|object| object.status.as_ref()?.last_updated.as_ref());
    let components = || children.firmware_components.and_then(|object| object.status.as_ref()?.last_updated.as_ref());
    served.firmware_settings && old(settings()) || served.firmware_updates && old(components())
}

fn texts(settings: &BTreeMap<String, IntOrString>) -> BTreeMap<String, String> {
    let text = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    settings.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

fn missing(wished: &[FirmwareUpdate], made: &[FirmwareUpdate]) -> Vec<FirmwareUpdate> {
    wished.iter().filter(|update| !made.contains(update)).cloned().collect()
}

/// Names that stand for a secret.
fn is_password(name: &str) -> bool {
    name.to_ascii_lowercase().contains("password")
}

/// The provisioner has taken these targets: they are not handed over again.
pub(crate) fn accepted(draft: &mut Draft<'_>, targets: &Targets) {
    mark(draft, targets, "True", ACCEPTED);
}

/// The provisioner says that all is done; true if that is still to be seen.
pub(crate) fn applied(draft: &mut Draft<'_>, targets: &Targets) -> bool {
    mark(draft, targets, "Unknown", APPLIED)
}

/// Marks what was handed over now or before; true if there was any.
fn mark(draft: &mut Draft<'_>, targets: &Targets, value: &str, reason: &str) -> bool {
    let view = draft.view;
    let mut any = false;
    if let Some(object) = view.children.firmware_settings
        && (targets.settings.is_some() || settings_standing(view) == Standing::Taken)
    {
        let mut status = object.status.clone().unwrap_or_default();
        set(&mut status.conditions, CHANGED, value, reason, view);
        draft.write_child(ChildWrite::FirmwareSettings(Box::new(status)));
        any = true;
    }
    if let Some(object) = view.children.firmware_components
        && (!targets.updates.is_empty() || updates_standing(view) == Standing::Taken)
    {
        let mut status = object.status.clone().unwrap_or_default();
        for update in &targets.updates {
            status.updates.retain(|made| made.component != update.component);
            status.updates.push(update.clone());
        }
        set(&mut status.conditions, CHANGED, value, reason, view);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
        any = true;
    }
    any
}

/// The work failed: what was taken is to be handed over again, and no update counts as made (as upstream).
pub(crate) fn failed(draft: &mut Draft<'_>) {
    let view = draft.view;
    if let Some(object) = view.children.firmware_settings
        && settings_standing(view) == Standing::Taken
    {
        let mut status = object.status.clone().unwrap_or_default();
        set(&mut status.conditions, CHANGED, "True", SETTINGS.fine, view);
        draft.write_child(ChildWrite::FirmwareSettings(Box::new(status)));
    }
    if let Some(object) = view.children.firmware_components
        && updates_standing(view) == Standing::Taken
    {
        let mut status = object.status.clone().unwrap_or_default();
        status.updates.clear();
        set(&mut status.conditions, CHANGED, "True", COMPONENTS.fine, view);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
    }
}

/// Sets a condition without judging the wish anew: what was observed stays what it was.
fn set(conditions: &mut Vec<Condition>, kind: &str, value: &str, reason: &str, view: &View<'_>) {
    let observed = find(conditions, kind).and_then(|condition| condition.observed_generation);
    judge(conditions, kind, value, reason, String::new(), observed, view);
}

fn judge(
    conditions: &mut Vec<Condition>,
    kind: &str,
    value: &str,
    reason: &str,
    message: String,
    observed_generation: Option<i64>,
    view: &View<'_>,
) {
    let since = find(conditions, kind).filter(|old| old.status == value).map(|old| old.last_transition_time.clone());
    conditions.retain(|condition| condition.type_ != kind);
    conditions.push(Condition {
        last_transition_time: since.unwrap_or(Time(view.now)),
        message,
        observed_generation,
        reason: reason.to_owned(),
        status: value.to_owned(),
        type_: kind.to_owned(),
    });
}

/// The class of failures to read the firmware, or to see it as it was set.
pub(crate) fn error_type(state: State) -> ErrorType {
    match state {
        State::Provisioned | State::ExternallyProvisioned => ErrorType::Servicing,
        _ => ErrorType::Preparation,
    }
}

/// Reads the answer to a look at the firmware.
pub(crate) fn conclude(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    let kind = error_type(draft.state());
    let facts = match outcome {
        Outcome::Firmware(facts) => facts,
        other => return draft.not_done(kind, "reading the firmware", other),
    };
    if let Some(message) = absurd(&facts) {
        let next = draft.fail(kind, &message, Retry::Later);
        return draft.finish(next);
    }
    let served = draft.view.settings.served.clone();
    let mut untrue = Vec::new();
    if served.firmware_settings {
        let status = settings_status(draft.view, facts.settings, &mut untrue);
        draft.write_child(ChildWrite::FirmwareSettings(Box::new(status)));
    }
    if served.firmware_updates {
        let status = components_status(draft.view, facts.components);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
    }
    if untrue.is_empty() {
        return draft.finish(Next::Now);
    }
    let message = format!(
        "The firmware's settings were set, and the machine does not have them: {} — correct spec.settings of the HostFirmwareSettings, or look at the \
         machine's own log",
        untrue.join("; ")
    );
    let next = draft.fail(kind, &message, Retry::Later);
    draft.finish(next)
}

/// What no machine has.
fn absurd(facts: &FirmwareFacts) -> Option<String> {
    let long = |text: &str| text.len() > MAX_TEXT;
    if facts.settings.len() > MAX_ITEMS || facts.components.len() > MAX_ITEMS {
        return Some(format!("The provisioner read more than {MAX_ITEMS} settings or components of the firmware"));
    }
    let settings = facts.settings.iter().any(|(name, value)| long(name) || long(value));
    let components = facts.components.iter().any(|c| {
        let versions = [Some(&c.initial_version), c.current_version.as_ref(), c.last_version_flashed.as_ref()];
        long(&c.component) || versions.into_iter().flatten().any(|text| long(text))
    });
    (settings || components)
        .then(|| format!("The provisioner read a name or value of the firmware that is longer than {MAX_TEXT} bytes"))
}

fn settings_status(
    view: &View<'_>,
    mut read: BTreeMap<String, String>,
    untrue: &mut Vec<String>,
) -> HostFirmwareSettingsStatus {
    let object = view.children.firmware_settings;
    let generation = object.map_or(Some(1), |object| object.metadata.generation);
    let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
    let wished = object.map(|object| texts(&object.spec.settings)).unwrap_or_default();
    read.retain(|name, _| !is_password(name));
    let faults: Vec<String> = wished
        .iter()
        .filter_map(|(name, value)| {
            if is_password(name) {
                Some(format!("{name} is a password, which is not set here"))
            } else if long_or_empty(name) || long_or_empty(value) {
                Some("a name or value is empty, or longer than a machine's".to_owned())
            } else if !read.contains_key(name) {
                Some(format!("the machine has no setting {name}"))
            } else {
                None
            }
        })
        .collect();
    let differing = || wished.iter().filter(|(name, value)| read.get(*name) != Some(*value));
    let differs = differing().next().is_some();
    let was_applied = find(&old.conditions, CHANGED)
        .is_some_and(|changed| changed.reason == APPLIED && changed.observed_generation == generation);
    if was_applied && faults.is_empty() {
        let found = |(name, value): (&String, &String)| {
            format!("{name} is «{}», not «{value}»", read.get(name).map(String::as_str).unwrap_or_default())
        };
        untrue.extend(differing().take(MAX_LISTED).map(found));
    }
    let mut status = HostFirmwareSettingsStatus { last_updated: Some(Time(view.now)), ..old };
    let taken = settings_standing(view) == Standing::Taken && is_at_it(view);
    write_conditions(&mut status.conditions, &SETTINGS, differs, taken, &faults, generation, view);
    status.settings = read;
    status
}

/// What the provisioner has taken it is still at, unless its work was broken off (a host in service that was deprovisioned).
fn is_at_it(view: &View<'_>) -> bool {
    !matches!(view.host.state(), State::Available | State::Ready)
}

fn long_or_empty(text: &str) -> bool {
    text.is_empty() || text.len() > MAX_TEXT
}

fn components_status(view: &View<'_>, read: Vec<FirmwareComponent>) -> HostFirmwareComponentsStatus {
    let object = view.children.firmware_components;
    let generation = object.map_or(Some(1), |object| object.metadata.generation);
    let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
    let wished = object.map(|object| object.spec.updates.as_slice()).unwrap_or_default();
    let faults: Vec<String> = wished
        .iter()
        .filter(|update| {
            let name = update.component.as_str();
            !(matches!(name, "bios" | "bmc") || name.starts_with("nic:")) || name.len() > MAX_TEXT
        })
        .map(|update| {
            let shown: String = update.component.chars().take(64).collect();
            format!("component {shown:?} is not known; known are bios, bmc and nic:<name>")
        })
        .collect();
    let differs = !missing(wished, &old.updates).is_empty();
    let mut status = HostFirmwareComponentsStatus { last_updated: Some(Time(view.now)), ..old };
    let taken = updates_standing(view) == Standing::Taken && is_at_it(view);
    write_conditions(&mut status.conditions, &COMPONENTS, differs || taken, taken, &faults, generation, view);
    status.components = read;
    status
}

fn write_conditions(
    conditions: &mut Vec<Condition>,
    words: &Words,
    differs: bool,
    taken: bool,
    faults: &[String],
    generation: Option<i64>,
    view: &View<'_>,
) {
    let valid = faults.is_empty();
    let listed = faults.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join("; ");
    let reason = if valid { words.fine } else { words.faulty };
    judge(conditions, VALID, if valid { "True" } else { "False" }, reason, listed, generation, view);
    let reason = if taken && differs { ACCEPTED } else { words.fine };
    judge(conditions, CHANGED, if differs { "True" } else { "False" }, reason, String::new(), generation, view);
}
