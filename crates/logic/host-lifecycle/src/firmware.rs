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
//! An update counts as made (`status.updates`) when it is done, not when it is accepted: an interrupted update is made again. Upstream records it
//! at once, and forgets all updates after a failure.
//!
//! Upstream makes HostFirmwareComponents only for machines that have some; here an empty one says that there are none. Values of passwords are never
//! written down.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Time;
use api::metal3::{
    ErrorType, FirmwareComponent, FirmwareSchema, FirmwareSchemaSpec, FirmwareUpdate, HostFirmwareComponentsStatus,
    HostFirmwareSettingsStatus, ProvisioningState as State, SchemaReference, SettingSchema, UpdatePolicy,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use terms::Retry;

use crate::children::ChildWrite;
use crate::draft::Draft;
use crate::orders::{FirmwareFacts, FirmwareSetting, SettingsTarget, Targets};
use crate::owned;
use crate::servicing;
use crate::settings_schema::{self, text};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

const CHANGED: &str = "ChangeDetected";
const VALID: &str = "Valid";
/// Reasons of ours: the provisioner has accepted the change; it reports the change as made, which is not verified yet.
const ACCEPTED: &str = "Accepted";
const APPLIED: &str = "Applied";
/// Most settings or components that a machine may have; more is treated as a fault.
const MAX_ITEMS: usize = 4096;
/// Longest name or value that is written down, in bytes.
const MAX_TEXT: usize = 1024;
/// Longest names and values of all settings together, in bytes: they go into one object, of which the API takes no more than 1.5 MiB.
const MAX_BYTES: usize = 768 << 10;
/// How long a host keeps its FirmwareSchema after that was made.
const SCHEMA_KEPT: Duration = Duration::from_hours(24);
/// Longest name of a wish that a message shows, in characters.
const MAX_PRINTED: usize = 64;
/// Findings that a message lists.
const MAX_LISTED: usize = 5;

/// Why no setting can be made on a machine that has never shown any.
const NO_SETTINGS: &str = "the BMC of this host shows no BIOS settings, so that none can be made — remove spec.settings, and make them with the firmware's \
     own menu; some BMCs show them with a newer firmware, another licence, or after the machine's first start";

/// When a host with something on it gets other firmware.
const WAITS: &str =
    "made when the host is prepared again, or at its next reboot if a HostUpdatePolicy of its name has onReboot for it";

/// The same of a host whose machine is never off.
const NEVER_OFF: &str =
    "made when the host is prepared again: spec.disablePowerOff leaves no time at which the machine is off for it";

/// The words for one kind of object.
struct Words {
    fine: &'static str,
    faulty: &'static str,
}

const SETTINGS: Words = Words { fine: "Success", faulty: "ConfigurationError" };
const COMPONENTS: Words = Words { fine: "OK", faulty: "InvalidComponent" };

/// State of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The firmware must be read first: it never was, the wish was edited since, or the provisioner reports it as fulfilled.
    Unread,
    /// The provisioner is at it.
    Taken,
    /// It is to be handed over.
    Differs,
    /// Nothing to do: the wish is fulfilled, or cannot be, which the condition says.
    Complete,
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
        return Standing::Complete;
    }
    if changed.reason == ACCEPTED { Standing::Taken } else { Standing::Differs }
}

fn settings_standing(view: &View<'_>) -> Standing {
    under_way(view, settings_recorded(view))
}

fn updates_standing(view: &View<'_>) -> Standing {
    under_way(view, updates_recorded(view))
}

/// What the object's conditions say.
fn settings_recorded(view: &View<'_>) -> Standing {
    let Some(object) = view.children.firmware_settings else { return Standing::Unread };
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    standing(conditions, object.metadata.generation)
}

/// What a service had accepted is to be handed over again if nobody is at it any more: a frozen namespace or an error has ended the service. On other
/// hosts, the next look at the firmware says so.
fn under_way(view: &View<'_>, standing: Standing) -> Standing {
    let in_use = matches!(view.host.state(), State::Provisioned | State::ExternallyProvisioned);
    if standing == Standing::Taken && in_use && !is_at_it(view) { Standing::Differs } else { standing }
}

fn updates_recorded(view: &View<'_>) -> Standing {
    let Some(object) = view.children.firmware_components else { return Standing::Unread };
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    standing(conditions, object.metadata.generation)
}

/// The settings to hand over: `None` if they have to be read first, `Some(None)` if there are none. What was accepted goes with whatever else is handed over
/// now, which ends the work that it is in: updates, if they are (`beside`), and volumes, where they may be made (`anew`).
#[expect(clippy::option_option, reason = "not known yet, and nothing to do, are two things")]
pub(crate) fn settings(view: &View<'_>, beside: bool, anew: bool) -> Option<Option<SettingsTarget>> {
    match settings_standing(view) {
        Standing::Unread => None,
        Standing::Complete => Some(None),
        Standing::Taken if !anew && (!beside || updates_standing(view) != Standing::Differs) => Some(None),
        Standing::Taken | Standing::Differs => {
            let object = view.children.firmware_settings?;
            let status = object.status.clone().unwrap_or_default();
            let since = find(&status.conditions, CHANGED).map(|changed| changed.last_transition_time.0);
            let present = status.settings;
            Some(Some(SettingsTarget { wished: object.spec.settings.clone(), present, since }))
        }
    }
}

/// The updates to hand over; `None` if the components have to be read first. What was accepted goes along as it does in [`settings`].
pub(crate) fn updates(view: &View<'_>, beside: bool, anew: bool) -> Option<Vec<FirmwareUpdate>> {
    match updates_standing(view) {
        Standing::Unread => None,
        Standing::Complete => Some(Vec::new()),
        Standing::Taken if !anew && (!beside || settings_standing(view) != Standing::Differs) => Some(Vec::new()),
        Standing::Taken | Standing::Differs => {
            let object = view.children.firmware_components?;
            let made = object.status.clone().unwrap_or_default().updates;
            Some(missing(&object.spec.updates, &made))
        }
    }
}

/// Whether the provisioner has accepted a change that is not yet made.
#[must_use]
pub fn is_taken(view: &View<'_>) -> bool {
    let served = &view.settings.served;
    served.firmware_settings && settings_standing(view) == Standing::Taken
        || served.firmware_updates && updates_standing(view) == Standing::Taken
}

/// Whether something is reported as made, and has not been seen to be there.
pub(crate) fn is_unseen(view: &View<'_>) -> bool {
    let (served, children) = (&view.settings.served, &view.children);
    let settings = children.firmware_settings.filter(|_| served.firmware_settings).is_some_and(|object| {
        object.status.as_ref().is_some_and(|status| is_applied(&status.conditions, object.metadata.generation))
    });
    let components = children.firmware_components.filter(|_| served.firmware_updates).is_some_and(|object| {
        object.status.as_ref().is_some_and(|status| is_applied(&status.conditions, object.metadata.generation))
    });
    settings || components
}

/// Whether the wish of this generation is reported as made.
fn is_applied(conditions: &[Condition], generation: Option<i64>) -> bool {
    find(conditions, CHANGED)
        .is_some_and(|changed| changed.reason == APPLIED && changed.observed_generation == generation)
}

/// Whether a service has fulfilled its wishes: of what the HostUpdatePolicy allows, something is as wished and nothing differs. One that was deleted since
/// had allowed something: then all that is wished counts.
pub(crate) fn is_as_wished(view: &View<'_>) -> bool {
    let (settings, components) = (view.children.firmware_settings, view.children.firmware_components);
    let there = |conditions: &[Condition]| {
        let is = |kind: &str, value: &str| find(conditions, kind).is_some_and(|condition| condition.status == value);
        is(VALID, "True") && is(CHANGED, "False")
    };
    let wished_settings = settings.filter(|object| !object.spec.settings.is_empty());
    let wished_updates = components.filter(|object| !object.spec.updates.is_empty());
    let settings_there =
        wished_settings.map(|object| object.status.as_ref().is_some_and(|status| there(&status.conditions)));
    let updates_there =
        wished_updates.map(|object| object.status.as_ref().is_some_and(|status| there(&status.conditions)));
    let reboots = |policy: Option<UpdatePolicy>| policy == Some(UpdatePolicy::OnReboot);
    let allowed = view.children.update_policy.map(|policy| &policy.spec);
    let of_settings = allowed.is_none_or(|spec| reboots(spec.firmware_settings));
    let of_updates = allowed.is_none_or(|spec| reboots(spec.firmware_updates));
    // What the provisioner does not serve it has not done either.
    let updates_there = updates_there.filter(|_| view.settings.served.firmware_updates);
    let wishes = [(of_settings, settings_there), (of_updates, updates_there)];
    let any = |value: bool| wishes.iter().any(|(allowed, there)| *allowed && *there == Some(value));
    any(true) && !any(false)
}

/// Whether `time` is longer ago than this. True if the clock went back: another read does no harm.
fn is_past(view: &View<'_>, time: Timestamp, than: Duration) -> bool {
    Duration::try_from(view.now.duration_since(time)).map_or(true, |age| age > than)
}

/// Whether the firmware was last read longer ago than this. An unchanged status is not rewritten for its time stamp, so this process's own last
/// read counts too.
pub(crate) fn is_older(view: &View<'_>, than: Duration) -> bool {
    if view.firmware_read.is_some_and(|read| !is_past(view, read, than)) {
        return false;
    }
    let served = &view.settings.served;
    let old = |read: Option<&Time>| read.is_none_or(|read| is_past(view, read.0, than));
    let children = &view.children;
    let settings = || children.firmware_settings.and_then(|object| object.status.as_ref()?.last_updated.as_ref());
    let components = || children.firmware_components.and_then(|object| object.status.as_ref()?.last_updated.as_ref());
    served.firmware_settings && old(settings()) || served.reads_components() && old(components())
}

/// Whether what is wished of the firmware was edited after the failure that the host waits for: nobody has looked at it yet, or its look is younger than that.
pub(crate) fn was_edited(view: &View<'_>) -> bool {
    let Some(failed) = view.status().last_updated.as_ref() else { return false };
    let (served, children) = (&view.settings.served, &view.children);
    let is_new = |generation: Option<i64>, conditions: &[Condition], read: Option<&Time>| {
        let Some(judged) = find(conditions, CHANGED) else { return false };
        if judged.observed_generation == generation {
            read.is_some_and(|read| read.0 > failed.0)
        } else {
            // A look that has failed is work that has failed.
            !view.firmware_tried
        }
    };
    let settings = children.firmware_settings.filter(|_| served.firmware_settings).is_some_and(|object| {
        let status = object.status.as_ref();
        status.is_some_and(|s| is_new(object.metadata.generation, &s.conditions, s.last_updated.as_ref()))
    });
    let components = children.firmware_components.filter(|_| served.firmware_updates).is_some_and(|object| {
        let status = object.status.as_ref();
        status.is_some_and(|s| is_new(object.metadata.generation, &s.conditions, s.last_updated.as_ref()))
    });
    settings || components
}

/// Reads the firmware of a host with something on it, now and then and soon after a new wish, so that the objects show what there is and whether
/// the wish can be fulfilled. It changes nothing; a failure becomes an Event, and is no failure of the host.
pub(crate) fn freshen(view: &View<'_>) -> Option<Step> {
    let served = &view.settings.served;
    if !(served.firmware_settings || served.reads_components()) {
        return None;
    }
    let unread = served.firmware_settings && settings_standing(view) == Standing::Unread
        || served.reads_components() && updates_standing(view) == Standing::Unread;
    let pause = if unread { view.settings.steady_state_poll } else { view.settings.facts_poll };
    let tried = view.firmware_read.is_some_and(|tried| !is_past(view, tried, pause));
    (!tried && (unread || is_older(view, view.settings.facts_poll))).then_some(Step::Act(Action::RefreshFacts))
}

fn texts(settings: &BTreeMap<String, IntOrString>) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// The updates of components of which the last that is wished was not made: the others of a component lead to it.
fn missing(wished: &[FirmwareUpdate], made: &[FirmwareUpdate]) -> Vec<FirmwareUpdate> {
    let last = |component: &str| wished.iter().rev().find(|update| update.component == component);
    let is_made = |component: &str| last(component).is_none_or(|last| made.contains(last));
    wished.iter().filter(|update| !is_made(&update.component)).cloned().collect()
}

/// Notes that the provisioner has accepted these targets: they are not handed over again.
pub(crate) fn accepted(draft: &mut Draft<'_>, targets: &Targets) {
    mark(draft, targets, "True", ACCEPTED);
}

/// Notes that the provisioner reports all as done; true if that is still to be verified.
pub(crate) fn applied(draft: &mut Draft<'_>, targets: &Targets) -> bool {
    mark(draft, targets, "Unknown", APPLIED)
}

/// Marks what was handed over now or before; true if there was anything.
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
        if reason == APPLIED {
            // Handed over with this call, or before and still wished.
            let taken =
                (updates_standing(view) == Standing::Taken).then(|| missing(&object.spec.updates, &status.updates));
            for update in targets.updates.iter().cloned().chain(taken.unwrap_or_default()) {
                status.updates.retain(|made| made.component != update.component);
                status.updates.push(update);
            }
        }
        set(&mut status.conditions, CHANGED, value, reason, view);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
        any = true;
    }
    any
}

/// The work failed, or was ended by somebody else: what was accepted is to be handed over again. None of its updates counts as made.
pub(crate) fn failed(draft: &mut Draft<'_>) {
    let view = draft.view;
    if let Some(object) = view.children.firmware_settings
        && settings_recorded(view) == Standing::Taken
    {
        let mut status = object.status.clone().unwrap_or_default();
        set(&mut status.conditions, CHANGED, "True", SETTINGS.fine, view);
        draft.write_child(ChildWrite::FirmwareSettings(Box::new(status)));
    }
    if let Some(object) = view.children.firmware_components
        && updates_recorded(view) == Standing::Taken
    {
        let mut status = object.status.clone().unwrap_or_default();
        set(&mut status.conditions, CHANGED, "True", COMPONENTS.fine, view);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
    }
}

/// Sets a condition without judging the wish again: observed generation and message stay.
fn set(conditions: &mut Vec<Condition>, kind: &str, value: &str, reason: &str, view: &View<'_>) {
    let (observed, said) = find(conditions, kind)
        .map(|condition| (condition.observed_generation, condition.message.clone()))
        .unwrap_or_default();
    judge(conditions, kind, value, reason, said, observed, view);
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
        message: crate::conditions::cut(message),
        observed_generation,
        reason: reason.to_owned(),
        status: value.to_owned(),
        type_: kind.to_owned(),
    });
}

/// The class of failures to read the firmware, or to find it as it was set.
pub(crate) fn error_type(state: State) -> ErrorType {
    match state {
        State::Provisioned | State::ExternallyProvisioned => ErrorType::Servicing,
        _ => ErrorType::Preparation,
    }
}

/// Reads the answer to a look at the firmware.
pub(crate) fn conclude(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    let kind = error_type(draft.state());
    // On a host with something on it, only a service waits for this; on one that cannot be prepared, nothing does.
    let changes = draft.view.settings.served.prepares();
    let aside = !changes || kind == ErrorType::Servicing && !servicing::is_due(draft.view);
    let facts = match outcome {
        Outcome::Firmware(facts) => facts,
        Outcome::Failed { message, .. } | Outcome::Blocked { message } if aside => return unread(draft, &message),
        other => return draft.not_done(kind, "reading the firmware", other),
    };
    if let Some(message) = absurd(&facts) {
        if aside {
            return unread(draft, &message);
        }
        let next = draft.fail(kind, &message, Retry::Later);
        return draft.finish(next);
    }
    let served = draft.view.settings.served.clone();
    let mut untrue = Vec::new();
    if served.firmware_settings {
        note_settings(&mut draft, facts.settings, &mut untrue);
    }
    if served.reads_components() {
        note_components(&mut draft, facts.components);
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

fn unread(mut draft: Draft<'_>, message: &str) -> Change {
    draft.warn("FirmwareUnread", &format!("The host's firmware could not be read: {message}"));
    draft.finish(Next::Now)
}

/// Why the facts cannot be those of a machine.
fn absurd(facts: &FirmwareFacts) -> Option<String> {
    let long = |text: &str| text.len() > MAX_TEXT;
    if facts.settings.as_ref().map_or(0, BTreeMap::len) > MAX_ITEMS || facts.components.len() > MAX_ITEMS {
        return Some(format!("The provisioner read more than {MAX_ITEMS} settings or components of the firmware"));
    }
    let mut bytes = 0_usize;
    let settings = facts.settings.iter().flatten().any(|(name, setting)| {
        let texts = [name, &setting.value].into_iter().chain(&setting.schema.allowable_values);
        texts.fold(false, |found, text| {
            bytes = bytes.saturating_add(text.len());
            found || long(text)
        })
    });
    let components = facts.components.iter().any(|c| {
        let versions = [Some(&c.initial_version), c.current_version.as_ref(), c.last_version_flashed.as_ref()];
        long(&c.component) || versions.into_iter().flatten().any(|text| long(text))
    });
    if settings || components {
        return Some(format!(
            "The provisioner read a name or value of the firmware that is longer than {MAX_TEXT} bytes"
        ));
    }
    (bytes > MAX_BYTES).then(|| format!("The provisioner read settings of the firmware of more than {MAX_BYTES} bytes"))
}

/// Records the settings with their schema, and whether the wish can be fulfilled. Writes only what has changed. What a machine has shown before stays
/// while it shows nothing.
fn note_settings(draft: &mut Draft<'_>, all: Option<BTreeMap<String, FirmwareSetting>>, untrue: &mut Vec<String>) {
    let view = draft.view;
    let object = view.children.firmware_settings;
    let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
    let Some(all) = all else { return without_settings(draft, &old, untrue) };
    let (mut read, mut schema) = (BTreeMap::new(), BTreeMap::new());
    for (name, setting) in all {
        read.insert(name.clone(), setting.value);
        schema.insert(name, setting.schema);
    }
    let name = settings_schema::name(&schema);
    let secret = |name: &String, schema: &BTreeMap<String, SettingSchema>| {
        schema.get(name).is_some_and(|setting| settings_schema::is_secret(name, setting))
    };
    read.retain(|name, _| !secret(name, &schema));
    schema.retain(|name, setting| !settings_schema::is_secret(name, setting));
    // A wish is judged by what the machine shows now.
    let faults = faults(view, &read, &schema);
    let (name, schema) = match kept_schema(view, &old, &name) {
        Some(kept) => (kept.metadata.name.clone().unwrap_or_default(), kept.spec.schema.clone()),
        None => (name, schema),
    };
    let mut status = settings_status(view, &old, read, &faults, untrue);
    let namespace = view.host.metadata.namespace.clone().unwrap_or_default();
    status.schema = Some(SchemaReference { name: name.clone(), namespace });
    let known = view.children.firmware_schema.filter(|known| known.metadata.name.as_ref() == Some(&name));
    let owner = object.and_then(|object| object.metadata.uid.as_ref());
    if !known.is_some_and(|known| owner.is_some_and(|owner| owned::has_owner(&known.metadata, owner))) {
        let vendor = view.status().hardware.as_ref().and_then(|hardware| hardware.system_vendor.clone());
        let (hardware_vendor, hardware_model) =
            vendor.map(|vendor| (vendor.manufacturer, vendor.product_name)).unwrap_or_default();
        let spec = Box::new(FirmwareSchemaSpec { hardware_vendor, hardware_model, schema });
        draft.write_child(ChildWrite::FirmwareSchema { name, spec });
    }
    write_settings(draft, &old, status);
}

/// The schema that the host keeps although its firmware shows one of another name: while it is young. A BMC that shows other settings at each read
/// would have one made each time, and they stay as long as the host does.
fn kept_schema<'a>(view: &View<'a>, old: &HostFirmwareSettingsStatus, shown: &str) -> Option<&'a FirmwareSchema> {
    let known = view.children.firmware_schema?;
    let name = known.metadata.name.as_deref()?;
    let made = known.metadata.creation_timestamp.as_ref()?.0;
    let current = old.schema.as_ref().is_some_and(|schema| schema.name == name);
    (current && name != shown && !is_past(view, made, SCHEMA_KEPT)).then_some(known)
}

fn write_settings(draft: &mut Draft<'_>, old: &HostFirmwareSettingsStatus, status: HostFirmwareSettingsStatus) {
    if (HostFirmwareSettingsStatus { last_updated: old.last_updated.clone(), ..status.clone() }) != *old {
        refused(draft, "HostFirmwareSettings", &old.conditions, &status.conditions);
        draft.write_child(ChildWrite::FirmwareSettings(Box::new(status)));
    }
}

/// The machine shows no settings. A wish is judged by those that it has shown before, and cannot be fulfilled if it never has.
fn without_settings(draft: &mut Draft<'_>, old: &HostFirmwareSettingsStatus, untrue: &mut Vec<String>) {
    let view = draft.view;
    let wishes = view.children.firmware_settings.is_some_and(|object| !object.spec.settings.is_empty());
    let faults = match (wishes, old.settings.is_empty()) {
        (true, true) => vec![NO_SETTINGS.to_owned()],
        (true, false) => {
            let known = view.children.firmware_schema.map(|schema| schema.spec.schema.clone()).unwrap_or_default();
            faults(view, &old.settings, &known)
        }
        (false, _) => Vec::new(),
    };
    let status = settings_status(view, old, old.settings.clone(), &faults, untrue);
    write_settings(draft, old, status);
}

/// Why the wish cannot be fulfilled.
fn faults(view: &View<'_>, read: &BTreeMap<String, String>, schema: &BTreeMap<String, SettingSchema>) -> Vec<String> {
    let wished = view.children.firmware_settings.map(|object| texts(&object.spec.settings)).unwrap_or_default();
    let fault = |(name, value): (&String, &String)| {
        if settings_schema::is_password(name) {
            let printable: String = name.chars().take(MAX_PRINTED).collect();
            Some(format!("{printable} is a password, which is not set here"))
        } else if long_or_empty(name) || value.len() > MAX_TEXT {
            Some("a name is empty, or a name or value longer than a machine's".to_owned())
        } else if !read.contains_key(name) {
            Some(format!("the machine has no setting {name}"))
        } else {
            settings_schema::fault(name, value, schema.get(name)?)
        }
    };
    wished.iter().filter_map(fault).collect()
}

fn settings_status(
    view: &View<'_>,
    old: &HostFirmwareSettingsStatus,
    read: BTreeMap<String, String>,
    faults: &[String],
    untrue: &mut Vec<String>,
) -> HostFirmwareSettingsStatus {
    let object = view.children.firmware_settings;
    let generation = object.map_or(Some(1), |object| object.metadata.generation);
    let wished = object.map(|object| texts(&object.spec.settings)).unwrap_or_default();
    let found = |(name, value): (&String, &String)| {
        format!("{name} is \"{}\", not \"{value}\"", read.get(name).map(String::as_str).unwrap_or_default())
    };
    let differing: Vec<String> =
        wished.iter().filter(|(name, value)| read.get(*name) != Some(*value)).take(MAX_LISTED).map(found).collect();
    if is_applied(&old.conditions, generation) && faults.is_empty() {
        untrue.extend(differing.clone());
    }
    let mut status = HostFirmwareSettingsStatus { last_updated: Some(Time(view.now)), ..old.clone() };
    let taken = settings_standing(view) == Standing::Taken && is_at_it(view);
    // Values of a wish that cannot be fulfilled may be anything; the condition Valid reports what is wrong.
    let said = if faults.is_empty() { waiting(view, differing.join("; ")) } else { String::new() };
    let judged = Judged { differs: !differing.is_empty(), taken, faults, said };
    write_conditions(&mut status.conditions, &SETTINGS, judged, generation, view);
    status.settings = read;
    status
}

/// What differs, with when it is made if the host keeps it for now.
fn waiting(view: &View<'_>, differs: String) -> String {
    let keeps = matches!(view.host.state(), State::Provisioned | State::ExternallyProvisioned);
    if differs.is_empty() || !keeps || servicing::is_due(view) {
        return differs;
    }
    let when = if view.host.spec.disable_power_off == Some(true) { NEVER_OFF } else { WAITS };
    format!("{differs} — {when}")
}

/// An Event for a wish that is seen to be wrong.
fn refused(draft: &mut Draft<'_>, kind: &str, old: &[Condition], new: &[Condition]) {
    let Some(valid) = find(new, VALID).filter(|valid| valid.status == "False") else { return };
    if find(old, VALID).is_none_or(|old| old.status != valid.status || old.message != valid.message) {
        draft.warn("ValidationFailed", &format!("The host's {kind} cannot be fulfilled: {}", valid.message));
    }
}

/// Whether the provisioner still works on what it accepted: not after an abort (a host in service that was deprovisioned).
fn is_at_it(view: &View<'_>) -> bool {
    match view.host.state() {
        State::Available | State::Ready => false,
        State::Provisioned | State::ExternallyProvisioned => servicing::is_in_service(view.status()),
        _ => true,
    }
}

fn long_or_empty(text: &str) -> bool {
    text.is_empty() || text.len() > MAX_TEXT
}

fn note_components(draft: &mut Draft<'_>, read: Vec<FirmwareComponent>) {
    let object = draft.view.children.firmware_components;
    let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
    let status = components_status(draft.view, read);
    if (HostFirmwareComponentsStatus { last_updated: old.last_updated.clone(), ..status.clone() }) != old {
        refused(draft, "HostFirmwareComponents", &old.conditions, &status.conditions);
        draft.write_child(ChildWrite::FirmwareComponents(Box::new(status)));
    }
}

/// The version that was shown first stays known, whoever made updates since.
fn components_status(view: &View<'_>, mut read: Vec<FirmwareComponent>) -> HostFirmwareComponentsStatus {
    let object = view.children.firmware_components;
    let generation = object.map_or(Some(1), |object| object.metadata.generation);
    let old = object.and_then(|object| object.status.clone()).unwrap_or_default();
    for found in &mut read {
        if let Some(before) = old.components.iter().find(|before| before.component == found.component) {
            found.initial_version.clone_from(&before.initial_version);
        }
    }
    let wished = object.map(|object| object.spec.updates.as_slice()).unwrap_or_default();
    let faults: Vec<String> = wished
        .iter()
        .filter(|update| {
            let name = update.component.as_str();
            !(matches!(name, "bios" | "bmc") || name.starts_with("nic:")) || name.len() > MAX_TEXT
        })
        .map(|update| {
            let printable: String = update.component.chars().take(64).collect();
            format!("component {printable:?} is not known; known are bios, bmc and nic:<name>")
        })
        .chain((!wished.is_empty() && !view.settings.served.firmware_updates).then(|| {
            "the provisioner of this host reads versions of the firmware and makes no updates: remove spec.updates, and make them with the vendor's own tools"
                .to_owned()
        }))
        .collect();
    let open = missing(wished, &old.updates);
    let mut status = HostFirmwareComponentsStatus { last_updated: Some(Time(view.now)), ..old };
    let taken = updates_standing(view) == Standing::Taken && is_at_it(view);
    let names: Vec<String> = open.iter().take(MAX_LISTED).map(|update| update.component.clone()).collect();
    let said = match (faults.is_empty(), names.is_empty()) {
        (true, false) => waiting(view, format!("to be updated: {}", names.join(", "))),
        _ => String::new(),
    };
    let judged = Judged { differs: !open.is_empty() || taken, taken, faults: &faults, said };
    write_conditions(&mut status.conditions, &COMPONENTS, judged, generation, view);
    status.components = read;
    status
}

/// What was found of a wish.
struct Judged<'a> {
    /// It is not as wished.
    differs: bool,
    /// The provisioner is at it.
    taken: bool,
    /// Why it cannot be fulfilled.
    faults: &'a [String],
    /// How what there is differs from the wish.
    said: String,
}

fn write_conditions(
    conditions: &mut Vec<Condition>,
    words: &Words,
    judged: Judged<'_>,
    generation: Option<i64>,
    view: &View<'_>,
) {
    let Judged { differs, taken, faults, said } = judged;
    let valid = faults.is_empty();
    let listed = faults.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join("; ");
    let reason = if valid { words.fine } else { words.faulty };
    judge(conditions, VALID, if valid { "True" } else { "False" }, reason, listed, generation, view);
    let reason = if taken && differs { ACCEPTED } else { words.fine };
    judge(conditions, CHANGED, if differs { "True" } else { "False" }, reason, said, generation, view);
}
