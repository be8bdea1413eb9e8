//! What is counted about hosts, in Prometheus' terms.
//!
//! Names and labels that begin with `metal3_` are baremetal-operator's (`internal/controller/metal3.io/metrics.go`), and mean the same, so
//! that its dashboards and alerts go on; `controller_runtime_` are those of its framework; `metamorph_` are our own. Everything is counted
//! after it has been written to the Kubernetes API. A host's series go when the host does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::{
    BareMetalHost, BareMetalHostStatus, OperationMetric, OperationalStatus, ProvisioningState as State, annotation,
};
use api::metamorph::OperationPhase;
use diagnosis::Code;
use exposition::{Counter, Family, Histogram, gauges};
use host_lifecycle::{
    Action, Change, ERASING_BUDGET, SERVICING_BUDGET, STEPPING_BUDGET, budget, is_being_erased, runs_steps,
};
use jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use provisioner::HistoryEntry;

/// Upstream's `slowOperationBuckets`, seconds.
const SLOW: &[f64] = &[30.0, 90.0, 180.0, 360.0, 720.0, 1440.0];
/// The buckets that Go's client has by default, seconds: upstream's for registrations.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// For how long hosts are held by the brake, seconds.
const DELAYS: &[f64] = &[1.0, 10.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0];
/// The name that upstream's controller of hosts has in the metrics of its framework.
const CONTROLLER: &str = "baremetalhost";

/// The label `state` of a provisioned host whose firmware is changed.
const SERVICING: &str = "servicing";
/// The same of hosts whose disks are being erased.
const ERASING: &str = "erasing";
/// The label `state` while steps of hardware managers are run.
const STEPPING: &str = "stepping";

const HOST: &[&str] = &["namespace", "host"];

/// Why the brake holds a host: the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Too many hosts have begun to be deprovisioned.
    DeprovisioningLimit,
    /// Machines are switched on in steps.
    PowerOnStep,
    /// The namespace is frozen, or whether it is cannot be read.
    Frozen,
}

impl Delay {
    const fn as_str(self) -> &'static str {
        match self {
            Self::DeprovisioningLimit => "deprovisioning-limit",
            Self::PowerOnStep => "power-on-step",
            Self::Frozen => "frozen",
        }
    }
}

/// Everything that is counted about hosts since this process began.
#[derive(Default)]
pub struct Metrics {
    reconciles: Reconciles,
    access: Access,
    work: Work,
    metamorph: Own,
    held: Mutex<HashMap<String, (Delay, Timestamp)>>,
}

const fn plain(name: &'static str, help: &'static str) -> Counter {
    Counter::new(name, help, &[])
}

const fn of_host(name: &'static str, help: &'static str) -> Counter {
    Counter::new(name, help, HOST)
}

const fn seconds(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    bounds: &'static [f64],
) -> Histogram {
    Histogram::new(Family { name, help, labels }, bounds)
}

/// Rounds of the controller.
struct Reconciles {
    all: Counter,
    errors: Counter,
    results: Counter,
    result_errors: Counter,
}

impl Default for Reconciles {
    fn default() -> Self {
        Self {
            all: of_host("metal3_reconcile_total", "Times that hosts have been reconciled."),
            errors: plain("metal3_reconcile_error_total", "Reconciles that could not be completed."),
            results: Counter::new(
                "controller_runtime_reconcile_total",
                "Reconciles by what came of them.",
                &["controller", "result"],
            ),
            result_errors: Counter::new(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that could not be completed, by controller.",
                &["controller"],
            ),
        }
    }
}

/// What stands between a host and its BMC or its data.
struct Access {
    missing: Counter,
    invalid: Counter,
    unhandled: Counter,
    updated: Counter,
    refused: Counter,
    host_data: Counter,
    registrations: Counter,
    not_ready: Counter,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            missing: plain("metal3_credentials_missing_total", "Times that a BMC's Secret was not there."),
            invalid: plain("metal3_credentials_invalid_total", "Times that a BMC's Secret was not usable."),
            unhandled: plain(
                "metal3_credentials_unhandled_error_total",
                "Times that a BMC's Secret could not be read.",
            ),
            updated: plain("metal3_credentials_updated_total", "Times that other credentials worked than before."),
            refused: plain(
                "metal3_credentials_no_management_access_total",
                "Times that a host's BMC could not be used when it was registered.",
            ),
            host_data: Counter::new(
                "metal3_host_config_data_error_total",
                "Times that user data, network data or metadata could not be had.",
                &["host_data_type"],
            ),
            registrations: plain("metal3_host_registration_required_total", "Times that a host had to be registered."),
            not_ready: plain(
                "metal3_provisioner_not_ready_total",
                "Times that a provisioner could do nothing because nothing could be recorded.",
            ),
        }
    }
}

/// What hosts go through.
struct Work {
    errors: Counter,
    power_changes: Counter,
    delayed_provisioning: Counter,
    delayed_deprovisioning: Counter,
    durations: [(State, Histogram); 4],
    state_changes: Counter,
    unmanaged: Counter,
    deleted_unwiped: Counter,
    detached_deletions: Counter,
}

impl Default for Work {
    fn default() -> Self {
        let register =
            seconds("metal3_operation_register_duration_seconds", "Time that registrations took.", HOST, DEFAULT);
        let inspect = seconds("metal3_operation_inspect_duration_seconds", "Time that inspections took.", HOST, SLOW);
        let provision =
            seconds("metal3_operation_provision_duration_seconds", "Time that provisionings took.", HOST, SLOW);
        let deprovision =
            seconds("metal3_operation_deprovision_duration_seconds", "Time that deprovisionings took.", HOST, SLOW);
        Self {
            errors: Counter::new("metal3_host_error_total", "Failures of hosts.", &["error_type"]),
            power_changes: Counter::new(
                "metal3_operation_power_change_total",
                "Times that a host was switched on or off.",
                &["namespace", "host", "on_off"],
            ),
            delayed_provisioning: of_host(
                "metal3_delayed__provisioning_total",
                "Times that a host was held before other work than deprovisioning.",
            ),
            delayed_deprovisioning: of_host(
                "metal3_delayed__deprovisioning_total",
                "Times that a host was held before it was deprovisioned.",
            ),
            durations: [
                (State::Registering, register),
                (State::Inspecting, inspect),
                (State::Provisioning, provision),
                (State::Deprovisioning, deprovision),
            ],
            state_changes: Counter::new(
                "metal3_provisioning_state_change_total",
                "Times that hosts went from one state to another.",
                &["prev_state", "new_state"],
            ),
            unmanaged: plain("metal3_host_unmanaged_total", "Times that a host without a BMC was found."),
            deleted_unwiped: plain(
                "metal3_delete_without_deprovisioning_total",
                "Hosts deleted though they could not be deprovisioned.",
            ),
            detached_deletions: plain(
                "metal3_delete_delayed_for_detached_total",
                "Times that a deletion was delayed by the annotation detached.",
            ),
        }
    }
}

/// What upstream has no name for.
struct Own {
    operations: Counter,
    operation_seconds: Histogram,
    failures: Counter,
    delays: Counter,
    delay_seconds: Histogram,
    watch_errors: Counter,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            operations: Counter::new(
                "metamorph_operations_total",
                "HostOperations that have ended, by type, end and cause of failure.",
                &["type", "phase", "cause"],
            ),
            operation_seconds: seconds(
                "metamorph_operation_duration_seconds",
                "Time that HostOperations took, by type and end.",
                &["type", "phase"],
                SLOW,
            ),
            failures: Counter::new(
                "metamorph_host_failures_total",
                "Calls of a provisioner that failed, by what was attempted and cause.",
                &["action", "cause"],
            ),
            delays: Counter::new(
                "metamorph_brake_delays_total",
                "Times that the brake began to hold a host.",
                &["reason"],
            ),
            delay_seconds: seconds(
                "metamorph_brake_delay_seconds",
                "For how long the brake held hosts that went on.",
                &["reason"],
                DELAYS,
            ),
            watch_errors: plain("metamorph_watch_errors_total", "Errors of the watch of BareMetalHosts."),
        }
    }
}

impl Metrics {
    fn held(&self) -> MutexGuard<'_, HashMap<String, (Delay, Timestamp)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reconcile has begun.
    pub(crate) fn reconciling(&self, host: &BareMetalHost) {
        self.reconciles.all.count(&[&host.namespace().unwrap_or_default(), &host.name_any()]);
    }

    /// A reconcile has been completed; `requeued` if the host is looked at again at a known time.
    pub(crate) fn reconciled(&self, requeued: bool) {
        self.reconciles.results.count(&[CONTROLLER, if requeued { "requeue_after" } else { "success" }]);
    }

    /// A reconcile could not be completed.
    pub(crate) fn stumbled(&self) {
        self.reconciles.errors.count(&[]);
        self.reconciles.results.count(&[CONTROLLER, "error"]);
        self.reconciles.result_errors.count(&[CONTROLLER]);
    }

    /// The BMC's Secret was looked at.
    pub(crate) fn credentials(&self, found: &host_lifecycle::Credentials<'_>) {
        match found {
            host_lifecycle::Credentials::Missing { .. } => self.access.missing.count(&[]),
            host_lifecycle::Credentials::Invalid { .. } => self.access.invalid.count(&[]),
            host_lifecycle::Credentials::Forbidden { .. } => self.access.unhandled.count(&[]),
            host_lifecycle::Credentials::NotNeeded | host_lifecycle::Credentials::Present { .. } => {}
        }
    }

    /// A provisioner is about to be asked.
    pub(crate) fn asking(&self, action: &Action) {
        if matches!(action, Action::Register { .. }) {
            self.access.registrations.count(&[]);
        }
    }

    /// A provisioner failed.
    pub(crate) fn failed(&self, action: &Action, cause: provisioner::Cause) {
        self.metamorph.failures.count(&[name_of(action), cause.as_str()]);
        if matches!(action, Action::Register { .. }) {
            self.access.refused.count(&[]);
        }
        if cause == provisioner::Cause::RecordUnavailable {
            self.access.not_ready.count(&[]);
        }
    }

    /// What a field of the host refers to could not be had; `field` is the label's value.
    pub(crate) fn host_data_missing(&self, field: &'static str) {
        self.access.host_data.count(&[field]);
    }

    /// A change of the host has been written.
    pub(crate) fn written(&self, host: &BareMetalHost, change: &Change) {
        let none = BareMetalHostStatus::default();
        let (before, after) = (host.status.as_ref().unwrap_or(&none), &change.status);
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        self.moved(before, after, &[&namespace, &name]);
        if let Some(kind) = after.error_type
            && (after.error_count > before.error_count || before.error_type != Some(kind))
        {
            self.work.errors.count(&[kind.event_reason()]);
        }
        let validated = change.events.iter().any(|event| event.reason == "BMCAccessValidated");
        if validated && before.good_credentials.credentials_version.is_some() {
            self.access.updated.count(&[]);
        }
        if before.provisioning.state == after.provisioning.state && deletion_waits(host) {
            self.work.detached_deletions.count(&[]);
        }
        for event in &change.events {
            match event.reason {
                "PowerOn" => self.work.power_changes.count(&[&namespace, &name, "on"]),
                "PowerOff" => self.work.power_changes.count(&[&namespace, &name, "off"]),
                "DeletionGaveUp" if before.provisioning.state == State::Deprovisioning => {
                    self.work.deleted_unwiped.count(&[]);
                }
                _ => {}
            }
        }
    }

    fn moved(&self, before: &BareMetalHostStatus, after: &BareMetalHostStatus, host: &[&str]) {
        let (from, to) = (before.provisioning.state, after.provisioning.state);
        if from != to {
            self.work.state_changes.count(&[from.as_str(), to.as_str()]);
            if to == State::Unmanaged {
                self.work.unmanaged.count(&[]);
            }
        }
        for (state, seconds) in &self.work.durations {
            let (old, new) = (history(before, *state), history(after, *state));
            if let (Some(start), Some(end)) = (&new.start, &new.end)
                && old.end != new.end
            {
                seconds.observe(host, end.0.duration_since(start.0).as_secs_f64().max(0.0));
            }
        }
    }

    /// A piece of work has ended, and that is recorded.
    pub(crate) fn operation_ended(&self, entry: &HistoryEntry) {
        let status = &entry.status;
        let kind = entry.operation.as_str();
        let phase = match status.phase {
            OperationPhase::Succeeded => "Succeeded",
            OperationPhase::Failed => "Failed",
            OperationPhase::Cancelled => "Cancelled",
            OperationPhase::Pending | OperationPhase::Running => return,
        };
        let cause = status.error.as_ref().map(|error| error.cause.as_str()).unwrap_or_default();
        self.metamorph.operations.count(&[kind, phase, cause]);
        if let (Some(start), Some(end)) = (&status.start_time, &status.end_time) {
            self.metamorph
                .operation_seconds
                .observe(&[kind, phase], end.0.duration_since(start.0).as_secs_f64().max(0.0));
        }
    }

    /// The brake holds the host for this reason, or lets it go on (`None`).
    pub(crate) fn braked(&self, host: &BareMetalHost, why: Option<Delay>, now: Timestamp) {
        let uid = host.uid().unwrap_or_default();
        let mut held = self.held();
        let before = held.get(&uid).copied();
        if before.map(|(delay, _)| delay) == why {
            return;
        }
        if let Some((delay, since)) = before {
            self.metamorph.delay_seconds.observe(&[delay.as_str()], now.duration_since(since).as_secs_f64().max(0.0));
            held.remove(&uid);
        }
        let Some(delay) = why else { return };
        held.insert(uid, (delay, now));
        self.metamorph.delays.count(&[delay.as_str()]);
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        let family = match delay {
            Delay::DeprovisioningLimit => &self.work.delayed_deprovisioning,
            Delay::PowerOnStep | Delay::Frozen => &self.work.delayed_provisioning,
        };
        family.count(&[&namespace, &name]);
    }

    /// The watch of hosts failed.
    pub(crate) fn watch_failed(&self) {
        self.metamorph.watch_errors.count(&[]);
    }

    /// The host is gone.
    pub(crate) fn forget(&self, host: &BareMetalHost) {
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        let labels = [namespace.as_str(), name.as_str()];
        let work = &self.work;
        for family in
            [&self.reconciles.all, &work.power_changes, &work.delayed_provisioning, &work.delayed_deprovisioning]
        {
            family.forget(&labels);
        }
        self.work.durations.iter().for_each(|(_, seconds)| seconds.forget(&labels));
        self.held().remove(&host.uid().unwrap_or_default());
    }

    /// The whole text, with the hosts as they are known now.
    pub(crate) fn text<'a>(&self, hosts: impl Iterator<Item = &'a BareMetalHost>, now: Timestamp) -> String {
        let mut out = String::new();
        let (reconciles, access, work, metamorph) = (&self.reconciles, &self.access, &self.work, &self.metamorph);
        let counters = [
            &reconciles.all,
            &reconciles.errors,
            &reconciles.results,
            &reconciles.result_errors,
            &access.missing,
            &access.invalid,
            &access.unhandled,
            &access.updated,
            &access.refused,
            &access.host_data,
            &access.registrations,
            &access.not_ready,
            &work.errors,
            &work.power_changes,
            &work.delayed_provisioning,
            &work.delayed_deprovisioning,
            &work.state_changes,
            &work.unmanaged,
            &work.deleted_unwiped,
            &work.detached_deletions,
            &metamorph.operations,
            &metamorph.failures,
            &metamorph.delays,
            &metamorph.watch_errors,
        ];
        counters.into_iter().for_each(|family| family.write(&mut out));
        self.work.durations.iter().for_each(|(_, seconds)| seconds.write(&mut out));
        self.metamorph.operation_seconds.write(&mut out);
        self.metamorph.delay_seconds.write(&mut out);
        self.held_text(&mut out);
        hosts_text(&mut out, hosts, now);
        out
    }

    fn held_text(&self, out: &mut String) {
        let all = [Delay::DeprovisioningLimit, Delay::PowerOnStep, Delay::Frozen];
        let held = self.held();
        let count = |wanted: Delay| held.values().filter(|(delay, _)| *delay == wanted).count();
        let samples: Vec<_> = all.map(|delay| (vec![delay.as_str().to_owned()], count(delay) as f64)).into();
        let help = "Hosts that the brake holds now.";
        gauges(out, Family { name: "metamorph_brake_held_hosts", help, labels: &["reason"] }, samples);
    }
}

/// Its deletion has been asked for, and the annotation `detached` says that it is to be delayed.
fn deletion_waits(host: &BareMetalHost) -> bool {
    let value = host.annotation(annotation::DETACHED).filter(|_| host.meta().deletion_timestamp.is_some());
    let value: Option<serde_json::Value> = value.and_then(|text| serde_json::from_str(text).ok());
    value.is_some_and(|value| value["deleteAction"] == "delay")
}

/// Whether the watch failed because the API does not know the kind.
pub(crate) fn is_not_found(error: &watcher::Error) -> bool {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => source,
        watcher::Error::WatchError(status) => return status.code == 404,
        _ => return false,
    };
    matches!(source, kube::Error::Api(status) if status.code == 404)
}

/// Hosts in states that have a time budget.
#[derive(Default)]
struct Spent {
    longest: f64,
    over: f64,
}

/// How many hosts are in which state, and with which error; and their time in states that have a budget.
fn hosts_text<'a>(out: &mut String, hosts: impl Iterator<Item = &'a BareMetalHost>, now: Timestamp) {
    let mut spent: std::collections::BTreeMap<&str, (f64, Spent)> = State::ALL
        .into_iter()
        .filter_map(|state| Some((state.as_str(), (budget(state)?.as_secs_f64(), Spent::default()))))
        .chain([(SERVICING, (SERVICING_BUDGET.as_secs_f64(), Spent::default()))])
        .chain([(ERASING, (ERASING_BUDGET.as_secs_f64(), Spent::default()))])
        .chain([(STEPPING, (STEPPING_BUDGET.as_secs_f64(), Spent::default()))])
        .collect();
    let mut states: std::collections::BTreeMap<Vec<String>, f64> = std::collections::BTreeMap::new();
    let (mut errors, mut causes) = (states.clone(), states.clone());
    for host in hosts {
        let state = match host.state() {
            State::None => "none",
            other => other.as_str(),
        };
        let status = host.status.as_ref();
        let operational = match status.map(|s| s.operational_status).unwrap_or_default() {
            OperationalStatus::Unknown => "",
            OperationalStatus::Ok => "OK",
            OperationalStatus::Discovered => "discovered",
            OperationalStatus::Error => "error",
            OperationalStatus::Delayed => "delayed",
            OperationalStatus::Detached => "detached",
            OperationalStatus::Servicing => "servicing",
        };
        *states.entry(vec![state.to_owned(), operational.to_owned()]).or_default() += 1.0;
        let named = match state {
            _ if operational == "servicing" => SERVICING,
            _ if runs_steps(host, host.state()) => STEPPING,
            _ if is_being_erased(host, host.state()) => ERASING,
            state => state,
        };
        if let Some((since, _)) = host_lifecycle::spent(host)
            && let Some((budget, in_state)) = spent.get_mut(named)
        {
            let time = now.duration_since(since).as_secs_f64().max(0.0);
            in_state.longest = in_state.longest.max(time);
            in_state.over += if time > *budget { 1.0 } else { 0.0 };
        }
        if let Some(kind) = status.and_then(|s| s.error_type) {
            *errors.entry(vec![kind.event_reason().to_owned()]).or_default() += 1.0;
            if let Some(code) = cause(host) {
                *causes.entry(vec![code.as_str().to_owned(), code.fixer().as_str().to_owned()]).or_default() += 1.0;
            }
        }
    }
    let help = "Hosts by state and operational status.";
    gauges(out, Family { name: "metamorph_hosts", help, labels: &["state", "operational_status"] }, states);
    let help = "Hosts that show an error, by its type.";
    gauges(out, Family { name: "metamorph_hosts_in_error", help, labels: &["error_type"] }, errors);
    let help = "Hosts that show an error, by the first cause that its diagnosis has found, and by who puts that right.";
    gauges(out, Family { name: "metamorph_hosts_by_cause", help, labels: &["code", "fixer"] }, causes);
    let mut each = |name, help, value: fn(&(f64, Spent)) -> f64| {
        let samples = spent.iter().map(|(state, spent)| (vec![(*state).to_owned()], value(spent)));
        gauges(out, Family { name, help, labels: &["state"] }, samples);
    };
    each("metamorph_host_state_budget_seconds", "The time that a host is given for a state.", |(budget, _)| *budget);
    let help = "For how long a host has been in the state by now: the one that has been in it for longest.";
    each("metamorph_host_state_longest_seconds", help, |(_, spent)| spent.longest);
    let help = "Hosts that have been in the state for longer than its budget.";
    each("metamorph_hosts_over_budget", help, |(_, spent)| spent.over);
}

/// The first cause of the host's error, as its annotation says: of the codes that there are, whoever has written it.
fn cause(host: &BareMetalHost) -> Option<Code> {
    let summary: serde_json::Value = serde_json::from_str(host.annotation(annotation::DIAGNOSIS)?).ok()?;
    let said = summary.get("code")?.as_str()?;
    Code::ALL.iter().copied().find(|code| code.as_str() == said)
}

fn history(status: &BareMetalHostStatus, state: State) -> OperationMetric {
    let history = &status.operation_history;
    match state {
        State::Inspecting => history.inspect.clone(),
        State::Provisioning => history.provision.clone(),
        State::Deprovisioning => history.deprovision.clone(),
        _ => history.register.clone(),
    }
}

/// The label `action`.
const fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Register { .. } => "register",
        Action::Adopt => "adopt",
        Action::Inspect { .. } => "inspect",
        Action::Prepare { .. } => "prepare",
        Action::Service { .. } => "service",
        Action::AttachMedia { .. } => "attach-media",
        Action::DetachMedia => "detach-media",
        Action::CheckMedia { .. } => "check-media",
        Action::LookAtMedia => "look-at-media",
        Action::RefreshFacts => "refresh-facts",
        Action::Diagnose => "diagnose",
        Action::ReadPower => "read-power",
        Action::SetPower(_) => "set-power",
        Action::Provision => "provision",
        Action::Deprovision { .. } => "deprovision",
        Action::Erase { .. } => "erase",
        Action::RunSteps { .. } => "run-steps",
        Action::Release => "release",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::metal3::{BareMetalHostSpec, ErrorType};
    use host_lifecycle::{HostEvent, Next};
    use serde_json::json;

    /// Metrics of upstream that it registers (metrics.go), all of them.
    const UPSTREAM: [&str; 22] = [
        "metal3_reconcile_total",
        "metal3_reconcile_error_total",
        "metal3_host_error_total",
        "metal3_operation_power_change_total",
        "metal3_delayed__provisioning_total",
        "metal3_delayed__deprovisioning_total",
        "metal3_operation_register_duration_seconds",
        "metal3_operation_inspect_duration_seconds",
        "metal3_operation_provision_duration_seconds",
        "metal3_operation_deprovision_duration_seconds",
        "metal3_credentials_missing_total",
        "metal3_credentials_invalid_total",
        "metal3_credentials_unhandled_error_total",
        "metal3_credentials_updated_total",
        "metal3_credentials_no_management_access_total",
        "metal3_host_config_data_error_total",
        "metal3_provisioning_state_change_total",
        "metal3_host_registration_required_total",
        "metal3_host_unmanaged_total",
        "metal3_delete_without_deprovisioning_total",
        "metal3_provisioner_not_ready_total",
        "metal3_delete_delayed_for_detached_total",
    ];

    fn host(status: serde_json::Value) -> BareMetalHost {
        let mut host = BareMetalHost::new("h", BareMetalHostSpec::default());
        host.metadata.namespace = Some("n".to_owned());
        host.metadata.uid = Some("u".to_owned());
        host.status = Some(serde_json::from_value(status).unwrap());
        host
    }

    fn change(status: serde_json::Value, events: Vec<HostEvent>) -> Change {
        Change {
            status: serde_json::from_value(status).unwrap(),
            add_finalizer: false,
            remove_annotations: Vec::new(),
            answer: None,
            set_architecture: None,
            hardware_data: None,
            erasure: None,
            steps: None,
            children: Vec::new(),
            events,
            next: Next::Now,
        }
    }

    fn has(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text(std::iter::empty(), Timestamp::UNIX_EPOCH);
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn upstreams_metrics_are_all_there() {
        let text = Metrics::default().text(std::iter::empty(), Timestamp::UNIX_EPOCH);
        for name in UPSTREAM {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }

    #[test]
    fn what_is_written_is_counted() {
        let metrics = Metrics::default();
        let times = |end: serde_json::Value| json!({ "inspect": { "start": "2026-01-01T00:00:00Z", "end": end } });
        let before = host(json!({
            "provisioning": { "ID": "x", "state": "inspecting" }, "operationHistory": times(json!(null)),
            "goodCredentials": { "credentialsVersion": "1" },
        }));
        let after = json!({
            "provisioning": { "ID": "x", "state": "preparing" },
            "operationHistory": times(json!("2026-01-01T00:01:40Z")),
            "goodCredentials": { "credentialsVersion": "2" },
        });
        let event = |reason| HostEvent { reason, message: String::new(), warning: false };
        metrics.written(&before, &change(after.clone(), vec![event("PowerOn"), event("BMCAccessValidated")]));
        has(
            &metrics,
            &[
                "metal3_provisioning_state_change_total{prev_state=\"inspecting\",new_state=\"preparing\"} 1",
                "metal3_operation_inspect_duration_seconds_bucket{namespace=\"n\",host=\"h\",le=\"90\"} 0",
                "metal3_operation_inspect_duration_seconds_bucket{namespace=\"n\",host=\"h\",le=\"180\"} 1",
                "metal3_operation_power_change_total{namespace=\"n\",host=\"h\",on_off=\"on\"} 1",
                "metal3_credentials_updated_total 1",
            ],
        );
        // Another version of the same credentials is none that was validated.
        let version = |version: &str| json!({ "goodCredentials": { "credentialsVersion": version } });
        metrics.written(&host(version("2")), &change(version("3"), Vec::new()));
        assert_eq!(metrics.access.updated.value(&[]), 1);
        // Written again with the same end, it is not another inspection.
        metrics.written(&host(after.clone()), &change(after, Vec::new()));
        assert_eq!(metrics.work.durations[1].1.observations(&["n", "h"]), 1);
        metrics.forget(&before);
        assert!(!metrics.text(std::iter::empty(), Timestamp::UNIX_EPOCH).contains("host=\"h\""));
    }

    #[test]
    fn each_failure_in_a_row_is_one_and_its_repetition_none() {
        let metrics = Metrics::default();
        let failed = |count: u32| json!({ "errorType": ErrorType::Inspection.as_str(), "errorCount": count, "errorMessage": "x" });
        metrics.written(&host(json!({})), &change(failed(1), Vec::new()));
        metrics.written(&host(failed(1)), &change(failed(2), Vec::new()));
        metrics.written(&host(failed(2)), &change(failed(2), Vec::new()));
        assert_eq!(metrics.work.errors.value(&["InspectionError"]), 2);
    }

    #[test]
    fn a_delay_is_counted_when_it_begins_and_measured_when_it_ends() {
        let metrics = Metrics::default();
        let host = host(json!({}));
        let at = |second| Timestamp::from_second(second).unwrap();
        metrics.braked(&host, Some(Delay::DeprovisioningLimit), at(0));
        metrics.braked(&host, Some(Delay::DeprovisioningLimit), at(10));
        has(
            &metrics,
            &[
                "metamorph_brake_delays_total{reason=\"deprovisioning-limit\"} 1",
                "metamorph_brake_held_hosts{reason=\"deprovisioning-limit\"} 1",
                "metal3_delayed__deprovisioning_total{namespace=\"n\",host=\"h\"} 1",
            ],
        );
        metrics.braked(&host, None, at(45));
        has(
            &metrics,
            &[
                "metamorph_brake_held_hosts{reason=\"deprovisioning-limit\"} 0",
                "metamorph_brake_delay_seconds_sum{reason=\"deprovisioning-limit\"} 45",
            ],
        );
    }

    #[test]
    fn hosts_are_shown_by_state_and_error() {
        let hosts = [
            host(json!({ "provisioning": { "ID": "", "state": "available" }, "operationalStatus": "OK" })),
            host(json!({ "errorType": "registration error", "operationalStatus": "error" })),
        ];
        let caused = |summary: &str| {
            let mut host = host(json!({ "errorType": "provisioning error", "operationalStatus": "error" }));
            host.metadata.annotations = Some([(annotation::DIAGNOSIS.to_owned(), summary.to_owned())].into());
            host
        };
        let code = Code::ALL[0];
        let known = json!({ "code": code.as_str(), "fixer": "whoever writes annotations" }).to_string();
        let more = [caused(&known), caused(&known), caused(r#"{"code":"made-up"}"#), caused("{")];
        let text = Metrics::default().text(hosts.iter().chain(&more), Timestamp::UNIX_EPOCH);
        let causes: Vec<&str> = text.lines().filter(|line| line.starts_with("metamorph_hosts_by_cause{")).collect();
        let expected =
            format!("metamorph_hosts_by_cause{{code=\"{}\",fixer=\"{}\"}} 2", code.as_str(), code.fixer().as_str());
        assert_eq!(causes, [expected]);
        assert!(text.contains("metamorph_hosts{state=\"available\",operational_status=\"OK\"} 1\n"), "{text}");
        assert!(text.contains("metamorph_hosts_in_error{error_type=\"RegistrationError\"} 1\n"), "{text}");
    }

    #[test]
    fn time_in_a_state_is_shown_against_its_budget() {
        let inspecting = |start: &str| {
            host(json!({ "provisioning": { "ID": "x", "state": "inspecting" },
                "operationHistory": { "inspect": { "start": start, "end": null } } }))
        };
        let since = json!([{ "type": "Ready", "status": "False", "reason": "Servicing", "message": "", "lastTransitionTime": "2026-01-01T01:00:00Z" }]);
        let serviced =
            host(json!({ "provisioning": { "ID": "x", "state": "provisioned" }, "operationalStatus": "servicing",
            "conditions": since }));
        let rests = host(json!({ "provisioning": { "ID": "x", "state": "available" }, "operationalStatus": "OK" }));
        let mut erased = host(json!({ "provisioning": { "ID": "x", "state": "deprovisioning" },
            "operationHistory": { "deprovision": { "start": "2025-12-31T02:30:00Z", "end": null } } }));
        erased.metadata.annotations = Some([(annotation::ERASE.to_owned(), "r/uid".to_owned())].into());
        let mut stepped = erased.clone();
        stepped.metadata.annotations = Some([(annotation::STEPS.to_owned(), "r/uid".to_owned())].into());
        let (early, late) = (inspecting("2026-01-01T00:00:00Z"), inspecting("2026-01-01T02:00:00Z"));
        let hosts = [early, late, serviced, rests, erased, stepped];
        let text = Metrics::default().text(hosts.iter(), "2026-01-01T02:30:00Z".parse().unwrap());
        for line in [
            "metamorph_host_state_budget_seconds{state=\"inspecting\"} 3600",
            "metamorph_host_state_longest_seconds{state=\"inspecting\"} 9000",
            "metamorph_hosts_over_budget{state=\"inspecting\"} 1",
            "metamorph_host_state_longest_seconds{state=\"servicing\"} 5400",
            "metamorph_hosts_over_budget{state=\"servicing\"} 0",
            "metamorph_host_state_longest_seconds{state=\"provisioning\"} 0",
            "metamorph_host_state_longest_seconds{state=\"deprovisioning\"} 0",
            "metamorph_host_state_longest_seconds{state=\"erasing\"} 86400",
            "metamorph_hosts_over_budget{state=\"erasing\"} 0",
            "metamorph_hosts_over_budget{state=\"deprovisioning\"} 0",
            "metamorph_host_state_budget_seconds{state=\"stepping\"} 259200",
            "metamorph_host_state_longest_seconds{state=\"stepping\"} 86400",
            "metamorph_hosts_over_budget{state=\"stepping\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("budget_seconds{state=\"available\"}"), "{text}");
    }
}
