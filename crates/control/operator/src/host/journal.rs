//! The provisioner's journal, kept in HostOperations.
//!
//! This controller is the only writer of a host's operations, so what it has read once it knows; a conflict makes it read again.
//! Names are `<host>-<number>-<type>`: two processes that both open an operation meet in the name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, annotation, label};
use api::metamorph::{
    AgentBoot, HostOperation, HostOperationSpec, HostOperationStatus, HostReference, OperationError, OperationPhase,
    OperationStep, OperationType, StepPhase,
};
use async_trait::async_trait;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use provisioner::{Failure, Journal, JournalError, MayAct, Newest, Operation, StepProgress};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::HostSettings;
use super::trouble::told;
use crate::Clock;
use crate::metrics::Metrics;

/// Operations kept a host; older ones that have ended are deleted.
const KEEP: usize = 20;
/// Progress is written at most this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Longest message kept in an operation, in characters.
const MAX_MESSAGE: usize = 1024;

type Cache = Arc<Mutex<Known>>;

/// What is known of one host's operations.
#[derive(Default)]
struct Known {
    /// In the order of their numbers.
    operations: Vec<HostOperation>,
    /// When one was last written.
    written: Option<Instant>,
    /// A write went wrong and what it left could not be read: the operations are listed again before they are used.
    void: bool,
    /// Numbers up to this are taken, by operations of an earlier host of the same name that are about to go.
    taken: u64,
}

/// The operations of all hosts that this process has read, by host uid.
pub struct Journals {
    hosts: Mutex<HashMap<String, Cache>>,
    metrics: Arc<Metrics>,
}

impl Journals {
    /// Journals of which nothing has been read; operations that end are counted.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { hosts: Mutex::default(), metrics }
    }

    /// The host's journal; its operations are listed when this process looks at the host for the first time.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn of(
        &self,
        client: &Client,
        host: &BareMetalHost,
        settings: &HostSettings,
    ) -> Result<KubeJournal, kube::Error> {
        let uid = host.uid().unwrap_or_default();
        let api: Api<HostOperation> = Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
        let known = self.lock().get(&uid).cloned();
        let usable = known.filter(|cache| !lock(cache).void);
        let cache = match usable {
            Some(cache) => cache,
            None => {
                let selector = format!("{}={}", label::HOST, host_label(&host.name_any()));
                let mut found = api.list(&ListParams::default().labels(&selector)).await?.items;
                found.retain(|o| is_ours(o, &uid));
                found.sort_by_key(number);
                let cache: Cache = Arc::new(Mutex::new(Known { operations: found, ..Known::default() }));
                self.lock().insert(uid, Arc::clone(&cache));
                cache
            }
        };
        let hosts = Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
        let (clock, may_act) = (Arc::clone(&settings.clock), Arc::clone(&settings.may_act));
        Ok(KubeJournal {
            api,
            hosts,
            host: Arc::new(host.clone()),
            cache,
            clock,
            may_act,
            metrics: Arc::clone(&self.metrics),
        })
    }

    /// Whether the host's operations have been read.
    pub fn has(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// Forgets what was read of the host.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Cache>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(cache: &Cache) -> MutexGuard<'_, Known> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether two statuses are written alike.
fn same(one: &Option<HostOperationStatus>, other: &Option<HostOperationStatus>) -> bool {
    matches!((serde_json::to_value(one), serde_json::to_value(other)), (Ok(one), Ok(other)) if one == other)
}

/// A label's value for the host: its name, or, where that is too long for a label, the end of it.
fn host_label(name: &str) -> &str {
    let start = name.len().saturating_sub(63);
    name.get(start..).unwrap_or(name).trim_start_matches(['.', '-'])
}

/// Largest number that a name can carry; far more than a host has operations.
const MAX_NUMBER: u64 = 999_999_999;

/// The number in an operation's name; names of people's making count as oldest.
fn number(operation: &HostOperation) -> u64 {
    let number = operation.name_any().rsplit('-').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    if number <= MAX_NUMBER { number } else { 0 }
}

/// Made by this controller for the host of this uid: owned by it and named as the controller names.
fn is_ours(operation: &HostOperation, uid: &str) -> bool {
    number(operation) > 0 && operation.owner_references().iter().any(|o| o.uid == uid && o.controller == Some(true))
}

/// One host's journal.
pub struct KubeJournal {
    api: Api<HostOperation>,
    hosts: Api<BareMetalHost>,
    host: Arc<BareMetalHost>,
    cache: Cache,
    clock: Arc<dyn Clock>,
    may_act: MayAct,
    metrics: Arc<Metrics>,
}

impl KubeJournal {
    fn known(&self) -> Vec<HostOperation> {
        lock(&self.cache).operations.clone()
    }

    fn blank(&self, operation: OperationType, after: u64) -> HostOperation {
        let host = self.host.name_any();
        let number = after + 1;
        let name = format!("{}-{number:03}-{}", &host[..host.len().min(220)], operation.as_str());
        let reference = HostReference { name: host.clone(), uid: self.host.uid() };
        let wish = wish(&self.host, operation);
        let mut new = HostOperation::new(&name, HostOperationSpec { operation, host: reference, wish });
        new.metadata.namespace = self.host.namespace();
        new.metadata.labels = Some([(label::HOST.to_owned(), host_label(&host).to_owned())].into());
        new.metadata.owner_references = self.host.controller_owner_ref(&()).map(|o| vec![o]);
        new
    }

    /// Whether the operation is for what the host wishes now. One of an earlier version, which names no wish, is if it began no sooner.
    fn is_for_present_wish(&self, operation: &HostOperation) -> bool {
        let Some(present) = wish(&self.host, operation.spec.operation) else { return true };
        if let Some(named) = &operation.spec.wish {
            return *named == present;
        }
        let begun =
            operation.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_second());
        begun >= began(&self.host, operation.spec.operation).map(|time| time.0.as_second())
    }

    /// Ends whatever is open: the host goes another way.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn cancel_open(&self, why: &str) -> Result<(), JournalError> {
        for open in self.known().into_iter().filter(|o| !phase(o).is_final()) {
            let mut operation = self.operation(open);
            operation.end(OperationPhase::Cancelled, why);
            operation.write().await?;
            self.metrics.operation_ended(&operation.object);
        }
        Ok(())
    }

    fn operation(&self, object: HostOperation) -> KubeOperation {
        let name = object.name_any();
        KubeOperation {
            api: self.api.clone(),
            hosts: self.hosts.clone(),
            may_act: Arc::clone(&self.may_act),
            host: Arc::clone(&self.host),
            cache: Arc::clone(&self.cache),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            name,
            object: HostOperation { status: Some(object.status.clone().unwrap_or_default()), ..object },
        }
    }

    async fn prune(&self, known: &[HostOperation]) {
        for old in prunable(known) {
            let name = old.name_any();
            match self.api.delete(&name, &DeleteParams::default()).await {
                Ok(_) | Err(kube::Error::Api(_)) => {
                    lock(&self.cache).operations.retain(|o| o.name_any() != name);
                }
                Err(error) => tracing::debug!(%error, name, "an old operation stays"),
            }
        }
    }
}

/// When the host began with its present work of this kind.
fn began(host: &BareMetalHost, operation: OperationType) -> Option<Time> {
    let history = &host.status.as_ref()?.operation_history;
    match operation {
        OperationType::Inspect => history.inspect.start.clone(),
        OperationType::Provision => history.provision.start.clone(),
        OperationType::Deprovision => history.deprovision.start.clone(),
    }
}

/// The identity of what the host wishes: when it began with it and, of a provisioning, what is to be written where. `None` if the host does
/// not say when.
fn wish(host: &BareMetalHost, operation: OperationType) -> Option<String> {
    let began = jiff::Timestamp::from_second(began(host, operation)?.0.as_second()).ok()?;
    if operation != OperationType::Provision {
        return Some(began.to_string());
    }
    let status = host.status.as_ref()?;
    let asked = serde_json::json!([status.last_attempted_image, status.provisioning.root_device_hints]);
    let digest = Sha256::digest(asked.to_string().as_bytes());
    Some(format!("{began} {}", hex::encode(&digest[..8])))
}

/// What has happened to a host that makes an effect unwanted which was decided on `decided`.
fn changed(decided: &BareMetalHost, now: Option<&BareMetalHost>) -> Option<&'static str> {
    let Some(now) = now.filter(|now| now.uid() == decided.uid()) else { return Some("the host has gone") };
    let has = |host: &BareMetalHost, key: &str| host.annotation(key).is_some();
    if has(now, annotation::PAUSED) {
        return Some("the host has been paused");
    }
    if has(now, annotation::DETACHED) != has(decided, annotation::DETACHED) {
        return Some("the host has been detached or attached");
    }
    if now.is_deleting() != decided.is_deleting() {
        return Some("the host's deletion has been asked for");
    }
    if now.spec.bmc != decided.spec.bmc {
        return Some("spec.bmc has changed");
    }
    (now.spec.image != decided.spec.image).then_some("spec.image has changed")
}

/// Operations that have ended and are too many. What later work is derived from stays: the newest boot's generation. A session that an
/// earlier life of this server left on the BMC stands in a newer one too, or was ended when this one first asked the BMC.
fn prunable(known: &[HostOperation]) -> Vec<&HostOperation> {
    let generation = |o: &HostOperation| o.status.as_ref().and_then(|s| s.boot.as_ref()).map(|b| b.generation);
    let newest_boot = known.iter().filter_map(generation).max();
    let ended: Vec<&HostOperation> = known.iter().filter(|o| phase(o).is_final()).collect();
    let surplus = ended.len().saturating_sub(KEEP);
    let old = ended.into_iter().take(surplus);
    old.filter(|o| newest_boot.is_none() || generation(o) != newest_boot).collect()
}

/// Name and uid.
fn identity(operation: &HostOperation) -> String {
    format!("{}/{}", operation.name_any(), operation.uid().unwrap_or_default())
}

fn phase(operation: &HostOperation) -> OperationPhase {
    operation.status.as_ref().map(|s| s.phase).unwrap_or_default()
}

#[async_trait]
impl Journal for KubeJournal {
    async fn open(&self, operation: OperationType, plan: &[&str]) -> Result<Box<dyn Operation>, JournalError> {
        let known = self.known();
        let open = known.iter().rev().find(|o| !phase(o).is_final() && number(o) > 0).cloned();
        let mut opened = match open {
            Some(open) if open.spec.operation == operation && self.is_for_present_wish(&open) => self.operation(open),
            other => {
                if other.is_some() {
                    self.cancel_open("the host goes another way").await?;
                }
                self.prune(&known).await;
                let last = known.iter().map(number).max().unwrap_or(0).max(lock(&self.cache).taken);
                self.operation(self.blank(operation, last))
            }
        };
        opened.plan(plan);
        Ok(Box::new(opened))
    }

    fn latest_boot(&self) -> Option<AgentBoot> {
        self.known()
            .into_iter()
            .filter_map(|o| o.status?.boot)
            .max_by_key(|b| (b.generation, b.boot_id.is_some(), b.retired))
    }

    fn newest(&self) -> Option<Newest> {
        let newest = self.known().pop()?;
        let is_current = self.is_for_present_wish(&newest);
        Some(Newest { id: identity(&newest), operation: newest.spec.operation, phase: phase(&newest), is_current })
    }

    fn recorded_sessions(&self) -> Vec<String> {
        let mut sessions: Vec<String> = self.known().into_iter().filter_map(|o| o.status?.bmc_session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }
}

/// One operation under way.
struct KubeOperation {
    api: Api<HostOperation>,
    hosts: Api<BareMetalHost>,
    /// The host as it was when this was decided.
    host: Arc<BareMetalHost>,
    cache: Cache,
    clock: Arc<dyn Clock>,
    may_act: MayAct,
    metrics: Arc<Metrics>,
    name: String,
    /// Has a uid once it has been created.
    object: HostOperation,
}

impl KubeOperation {
    fn state(&mut self) -> &mut HostOperationStatus {
        self.object.status.get_or_insert_default()
    }

    fn now(&self) -> Option<Time> {
        // Kubernetes' times have whole seconds.
        jiff::Timestamp::from_second(self.clock.now().as_second()).ok().map(Time)
    }

    fn plan(&mut self, plan: &[&str]) {
        if self.state().steps.is_empty() {
            self.state().steps = plan
                .iter()
                .map(|name| OperationStep { name: (*name).to_owned(), ..OperationStep::default() })
                .collect();
        }
    }

    fn step(&mut self, name: &str) -> &mut OperationStep {
        let steps = &mut self.state().steps;
        let index = steps.iter().position(|s| s.name == name).unwrap_or_else(|| {
            steps.push(OperationStep { name: name.to_owned(), ..OperationStep::default() });
            steps.len() - 1
        });
        &mut steps[index]
    }

    /// Current step, steps done and message, derived from the steps.
    fn summarise(&mut self) {
        let status = self.state();
        let done = status.steps.iter().filter(|s| s.phase == StepPhase::Done).count();
        let under_way = status.steps.iter().find(|s| s.phase == StepPhase::Running);
        let percent = under_way.and_then(|s| s.percent).map(|p| format!(" ({p}%)")).unwrap_or_default();
        let progress = format!("{done}/{}{percent}", status.steps.len());
        if let Some(step) = under_way {
            let (name, message) = (step.name.clone(), step.message.clone());
            status.current_step = Some(name);
            status.message = message.or_else(|| status.message.clone());
        }
        status.progress = Some(progress);
    }

    fn end(&mut self, phase: OperationPhase, message: &str) {
        let now = self.now();
        let status = self.state();
        status.phase = phase;
        status.end_time = now.clone();
        status.message = Some(message.chars().take(MAX_MESSAGE).collect());
        if phase != OperationPhase::Succeeded {
            for step in status.steps.iter_mut().filter(|s| s.phase == StepPhase::Running) {
                step.phase = StepPhase::Failed;
                step.end_time.clone_from(&now);
            }
        }
        self.summarise();
    }

    async fn write(&mut self) -> Result<(), JournalError> {
        let result = self.try_write().await;
        if result.is_err() {
            // Somebody else wrote, or the answer was lost: what is known is void.
            match self.api.get_opt(&self.name).await {
                Ok(Some(found)) if found.spec.host.uid == self.object.spec.host.uid => {
                    // The answer was lost, and not what was written: it is recorded.
                    let landed =
                        found.metadata.uid == self.object.metadata.uid && same(&found.status, &self.object.status);
                    if landed {
                        self.object.metadata = found.metadata.clone();
                    }
                    self.remember(found);
                    if landed {
                        lock(&self.cache).written = Some(Instant::now());
                        return Ok(());
                    }
                }
                Ok(Some(other)) => {
                    let mut known = lock(&self.cache);
                    known.taken = known.taken.max(number(&other));
                }
                Ok(None) => {
                    let mut known = lock(&self.cache);
                    known.operations.retain(|o| o.name_any() != self.name);
                    // Whoever looks for it finds nothing under its name, not another.
                    known.taken = known.taken.max(number(&self.object));
                }
                Err(_) => lock(&self.cache).void = true,
            }
        }
        result.map_err(|error| JournalError { what: format!("operation {}", self.name), why: told(&error) })
    }

    async fn try_write(&mut self) -> Result<(), kube::Error> {
        if !self.created() {
            let status = self.object.status.take();
            let created = self.api.create(&PostParams::default(), &self.object).await;
            self.object.status = status;
            match created {
                Ok(created) => self.object.metadata = created.metadata,
                // An operation of that name that this process does not know (one that another process made, or one of an earlier
                // host) is not written over: what is recorded there is read, and the work goes on from that.
                Err(error) => return Err(error),
            }
        }
        let written = self.api.replace_status(&self.name, &PostParams::default(), &self.object).await?;
        self.object.metadata = written.metadata;
        lock(&self.cache).written = Some(Instant::now());
        self.remember(self.object.clone());
        Ok(())
    }

    /// The host is still as it was when the step was decided: read anew, for what this process has seen of it may be old.
    async fn still_wanted(&self) -> Result<(), JournalError> {
        let failed = |why: String| self.unwanted(why);
        let found = self.hosts.get_opt(&self.host.name_any()).await.map_err(|e| failed(told(&e)))?;
        match changed(&self.host, found.as_ref()) {
            None => Ok(()),
            Some(what) => Err(failed(format!("{what} since this was decided: it is decided again"))),
        }
    }

    fn unwanted(&self, why: String) -> JournalError {
        JournalError { what: format!("operation {}", self.name), why }
    }

    fn created(&self) -> bool {
        self.object.metadata.uid.is_some()
    }

    /// Keeps what is noted until the next write.
    fn note(&self) {
        if self.created() {
            self.remember(self.object.clone());
        }
    }

    fn remember(&self, object: HostOperation) {
        let known = &mut lock(&self.cache).operations;
        match known.iter_mut().find(|o| o.name_any() == self.name) {
            Some(old) => *old = object,
            None => known.push(object),
        }
        known.sort_by_key(number);
    }
}

#[async_trait]
impl Operation for KubeOperation {
    fn name(&self) -> &str {
        &self.name
    }

    fn id(&self) -> String {
        identity(&self.object)
    }

    fn status(&self) -> &HostOperationStatus {
        // Set when the object is made.
        static EMPTY: std::sync::LazyLock<HostOperationStatus> = std::sync::LazyLock::new(HostOperationStatus::default);
        self.object.status.as_ref().unwrap_or(&EMPTY)
    }

    fn set_boot(&mut self, boot: AgentBoot) {
        self.state().boot = Some(boot);
        self.note();
    }

    fn set_bmc(&mut self, calls: u32, session: Option<String>) {
        let status = self.state();
        status.bmc_calls = calls;
        if session.is_some() {
            status.bmc_session = session;
        }
        self.note();
    }

    async fn intent(&mut self, step: &str, attempt: u32, boot_id: Option<&str>) -> Result<(), JournalError> {
        self.still_wanted().await?;
        let now = self.now();
        let record = self.step(step);
        record.phase = StepPhase::Running;
        record.attempt = Some(attempt);
        record.boot_id = boot_id.map(ToOwned::to_owned);
        record.start_time.clone_from(&now);
        record.end_time = None;
        record.error = None;
        record.message = None;
        let status = self.state();
        status.phase = OperationPhase::Running;
        if status.start_time.is_none() {
            status.start_time = now;
        }
        status.message = None;
        self.summarise();
        let not_leading = |name: &str| JournalError::not_leading(format!("operation {name}"));
        if !(self.may_act)() {
            return Err(not_leading(&self.name));
        }
        self.write().await?;
        // The call took its time.
        if (self.may_act)() { Ok(()) } else { Err(not_leading(&self.name)) }
    }

    fn done(&mut self, step: &str, message: &str) {
        let now = self.now();
        let record = self.step(step);
        record.phase = StepPhase::Done;
        record.start_time = record.start_time.clone().or_else(|| now.clone());
        record.end_time = now;
        if record.percent.is_some() {
            record.percent = Some(100);
        }
        record.message = Some(message.chars().take(MAX_MESSAGE).collect());
        self.summarise();
        self.note();
    }

    async fn progress(&mut self, step: &str, progress: StepProgress) {
        let record = self.step(step);
        record.percent = progress.percent.or(record.percent);
        record.bytes = progress.bytes.and_then(|b| i64::try_from(b).ok()).or(record.bytes);
        record.total_bytes = progress.total_bytes.and_then(|b| i64::try_from(b).ok()).or(record.total_bytes);
        record.message = Some(progress.message.chars().take(MAX_MESSAGE).collect());
        self.summarise();
        self.note();
        let written = lock(&self.cache).written;
        if self.created()
            && written.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY)
            && let Err(error) = self.write().await
        {
            tracing::debug!(%error, "progress is not shown");
        }
    }

    async fn finish(&mut self, result: Result<&str, &Failure>) -> Result<(), JournalError> {
        match result {
            Ok(message) => self.end(OperationPhase::Succeeded, message),
            Err(failure) => {
                let error = OperationError {
                    cause: failure.cause.as_str().to_owned(),
                    message: failure.message.chars().take(MAX_MESSAGE).collect(),
                    advice: failure.advice.clone(),
                };
                if let Some(step) = self.state().steps.iter_mut().find(|s| s.phase == StepPhase::Running) {
                    step.error = Some(error.clone());
                }
                self.state().error = Some(error);
                self.end(OperationPhase::Failed, &failure.message);
            }
        }
        self.write().await?;
        self.metrics.operation_ended(&self.object);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(number: u64, boot: u64) -> HostOperation {
        let spec =
            HostOperationSpec { operation: OperationType::Provision, host: HostReference::default(), wish: None };
        let mut operation = HostOperation::new(&format!("host-{number:03}-provision"), spec);
        operation.status = Some(HostOperationStatus {
            phase: OperationPhase::Succeeded,
            bmc_session: Some(format!("https://192.0.2.1/redfish/v1/SessionService/Sessions/{number}")),
            boot: Some(AgentBoot { generation: boot, ..AgentBoot::default() }),
            ..HostOperationStatus::default()
        });
        operation
    }

    #[test]
    fn old_operations_go_though_they_had_sessions_but_the_newest_boot_stays() {
        let known: Vec<_> = (1..=30).map(|number| ended(number, if number == 3 { 99 } else { number })).collect();
        let names: Vec<String> = prunable(&known).into_iter().map(ResourceExt::name_any).collect();
        assert_eq!(names.len(), 9, "{names:?}");
        assert!(!names.iter().any(|name| name == "host-003-provision"), "{names:?}");
        assert!(prunable(&known[..KEEP]).is_empty());
    }

    fn host(history: serde_json::Value) -> BareMetalHost {
        let mut host = BareMetalHost::new("h", api::metal3::BareMetalHostSpec::default());
        host.status = Some(serde_json::from_value(serde_json::json!({ "operationHistory": history })).unwrap());
        host
    }

    #[test]
    fn a_wish_is_of_its_time_and_of_what_was_asked_for() {
        let at = |time: &str| host(serde_json::json!({ "provision": { "start": time, "end": null } }));
        let one = at("2026-01-01T00:00:00Z");
        let kind = OperationType::Provision;
        assert_eq!(wish(&one, kind), wish(&at("2026-01-01T00:00:00Z"), kind));
        assert_ne!(wish(&one, kind), wish(&at("2026-01-01T00:00:01Z"), kind));
        assert_eq!(wish(&one, OperationType::Deprovision), None);
        let mut other = one.clone();
        let image = api::metal3::Image { url: "http://images/other".to_owned(), ..Default::default() };
        other.status.as_mut().unwrap().last_attempted_image = Some(image);
        assert_ne!(wish(&one, kind), wish(&other, kind));
    }

    #[test]
    fn an_effect_is_unwanted_when_the_host_has_changed() {
        let mut decided = host(serde_json::json!({}));
        decided.metadata.uid = Some("u".to_owned());
        assert_eq!(changed(&decided, Some(&decided)), None);
        assert!(changed(&decided, None).is_some());
        let edits: [fn(&mut BareMetalHost); 6] = [
            |h| h.metadata.uid = Some("v".to_owned()),
            |h| h.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            |h| h.annotations_mut().insert(annotation::PAUSED.to_owned(), String::new()).map_or((), drop),
            |h| h.annotations_mut().insert(annotation::DETACHED.to_owned(), String::new()).map_or((), drop),
            |h| h.spec.image = Some(api::metal3::Image::default()),
            |h| h.spec.bmc = Some(api::metal3::Bmc { address: "redfish://x".to_owned(), ..Default::default() }),
        ];
        for (index, edit) in edits.into_iter().enumerate() {
            let mut now = decided.clone();
            edit(&mut now);
            assert!(changed(&decided, Some(&now)).is_some(), "edit {index}");
        }
        let mut now = decided.clone();
        now.spec.online = !now.spec.online;
        now.labels_mut().insert("rack".to_owned(), "1".to_owned());
        assert_eq!(changed(&decided, Some(&now)), None, "what does not matter to it");
    }
}
