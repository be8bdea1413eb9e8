//! The controller of diagnoses: why hosts are in error.
//!
//! It listens to the news of hosts, beside the host controller, which it never delays: it waits for its turn at a host's provisioner as others do, and gives
//! way when that is busy. A host is diagnosed once for each error (its type, message and begin), once when a state takes longer than its budget, and once when its machine has a fault while it is at rest; where
//! detection is switched off ([`Detect`]), nothing is read. What was found goes to the host's HostDiagnosis, to an Event, and in short to the host's own
//! annotation and label, which go when the host has recovered.

mod hearing;
mod report;
mod run;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation, label};
use api::metamorph::HostDiagnosis;
use classification::host_class::detection;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

pub(crate) use run::{Diagnosed, Trigger, diagnose};

use crate::host::failing::error_type;
use crate::host::{Context, HostController, LookError, ReconcileError, capabilities_of};
use crate::news::Novelty;
use crate::shutdown::Shutdown;

/// How often hosts in error are looked at when nothing is new.
const TICK: Duration = Duration::from_secs(60);
/// How often, while it is not known yet what the classifications say of some.
const SOON: Duration = Duration::from_secs(2);
/// A host whose error of one type changes its words is not diagnosed more often than that.
const APART: SignedDuration = SignedDuration::from_mins(10);
/// Name of the native provisioner.
pub(crate) const NATIVE: &str = "metamorph";

/// Of which hosts errors are diagnosed, where neither the label [`label::ERROR_DETECT`] of the host nor that of its namespace says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detect {
    /// Of none: no BMC is called for it.
    #[default]
    Off,
    /// Of those that the native provisioner runs.
    Native,
    /// Of all; without evidence, by what the host itself says.
    All,
}

/// The controller.
pub struct DiagnosisController {
    context: Arc<Context>,
    detect: Detect,
}

/// What its looks share.
struct All {
    context: Arc<Context>,
    detect: Detect,
    /// By uid of the host: which error was diagnosed last, of which type, and when.
    known: Mutex<HashMap<String, Known>>,
    /// Of a host it was not known what its classifications say.
    unjudged: AtomicBool,
    /// Labels of namespaces.
    namespaces: Mutex<hearing::Namespaces>,
    /// By uid of the host: looks that came to nothing.
    failed: Mutex<HashMap<String, Failed>>,
    /// By uid of the host: why it is not known whether its machine is to be heard.
    unheard: Mutex<HashMap<String, String>>,
}

/// Looks at a host that came to nothing, one after another.
struct Failed {
    count: u32,
    /// No look before this.
    until: Timestamp,
    /// What was wrong last.
    why: String,
}

#[derive(Clone)]
struct Known {
    digest: String,
    kind: String,
    at: Option<Timestamp>,
}

type Key = ObjectRef<BareMetalHost>;

impl DiagnosisController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController, detect: Detect) -> Self {
        Self { context: hosts.context(), detect }
    }

    /// Runs until `shutdown` resolves; looks under way are given up: each may be made again.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, mut shutdown: Shutdown) {
        let mut news = self.context.news.listen();
        let all = Arc::new(All {
            context: self.context,
            detect: self.detect,
            known: Mutex::default(),
            unjudged: AtomicBool::new(false),
            namespaces: Mutex::default(),
            failed: Mutex::default(),
            unheard: Mutex::default(),
        });
        let mut hosts: HashMap<Key, Arc<BareMetalHost>> = HashMap::new();
        // Of each host that is looked at, whether it has changed since.
        let mut running: HashMap<Key, bool> = HashMap::new();
        let mut looks: JoinSet<Key> = JoinSet::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut soon = tokio::time::interval(SOON);
        soon.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let keys: Vec<Key> = tokio::select! {
                () = &mut shutdown => break,
                novelty = news.recv() => match novelty {
                    None => break,
                    Some(Novelty::Host(host)) => {
                        let key = ObjectRef::from_obj(host.as_ref());
                        hosts.insert(key.clone(), host);
                        vec![key]
                    }
                    Some(Novelty::HostGone(host)) => {
                        hosts.remove(&ObjectRef::from_obj(host.as_ref()));
                        all.context.listening().remove(&host.uid().unwrap_or_default());
                        all.forget(&host.uid().unwrap_or_default());
                        continue;
                    }
                    Some(Novelty::Secret(..) | Novelty::Facts(..) | Novelty::FactsListed | Novelty::Listed) => continue,
                },
                Some(ended) = looks.join_next() => {
                    // None panics: that is caught in it.
                    let Ok(key) = ended else { continue };
                    if running.remove(&key) == Some(true) { vec![key] } else { continue }
                }
                _ = tick.tick() => hosts.keys().cloned().collect(),
                _ = soon.tick() => match all.unjudged.swap(false, Ordering::Relaxed) {
                    true => hosts.keys().cloned().collect(),
                    false => continue,
                },
            };
            for key in keys {
                let Some(host) = hosts.get(&key) else { continue };
                if let Some(again) = running.get_mut(&key) {
                    *again = true;
                    continue;
                }
                running.insert(key.clone(), false);
                let (all, host) = (Arc::clone(&all), Arc::clone(host));
                looks.spawn(async move {
                    match AssertUnwindSafe(look(&all, &host)).catch_unwind().await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => all.note_failed(&host, &error.to_string()),
                        Err(_) => tracing::error!(host = %key, "the look for the cause of a host's error panicked"),
                    }
                    key
                });
            }
        }
    }
}

impl All {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespaces(&self) -> std::sync::MutexGuard<'_, hearing::Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, uid: &str) {
        self.known().remove(uid);
        self.failed().remove(uid);
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, HashMap<String, Failed>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once why it is not known whether the host's machine is to be heard. It is asked again with the next look, and keeps no diagnosis.
    fn heard(&self, host: &BareMetalHost, noted: Result<(), LookError>) {
        let uid = host.uid().unwrap_or_default();
        let mut unheard = self.unheard.lock().unwrap_or_else(PoisonError::into_inner);
        match noted {
            Ok(()) => drop(unheard.remove(&uid)),
            Err(error) => {
                let why = error.to_string();
                if unheard.get(&uid) != Some(&why) {
                    let (name, namespace) = (host.name_any(), host.namespace().unwrap_or_default());
                    tracing::warn!(%namespace, host = %name, why, "whether its BMC's events are to be heard is not known, and is asked again");
                    unheard.insert(uid, why);
                }
            }
        }
    }

    /// A look came to nothing: the next one waits, twice as long each time. It is said once what is wrong.
    fn note_failed(&self, host: &BareMetalHost, why: &str) {
        let (name, namespace) = (host.name_any(), host.namespace().unwrap_or_default());
        let now = self.context.settings.clock.now();
        let mut failed = self.failed();
        let before = failed.remove(&host.uid().unwrap_or_default());
        let count = before.as_ref().map_or(0, |before| before.count);
        if before.is_some_and(|before| before.why == why) {
            tracing::debug!(%namespace, host = %name, why, "the cause of a host's error is not looked for");
        } else {
            tracing::warn!(%namespace, host = %name, why, "the cause of a host's error is not looked for");
        }
        let next = Failed { count: count + 1, until: now + pause(count), why: why.to_owned() };
        failed.insert(host.uid().unwrap_or_default(), next);
    }

    /// Whether the host is left alone because looks at it came to nothing of late.
    fn waits(&self, host: &BareMetalHost) -> bool {
        let now = self.context.settings.clock.now();
        self.failed().get(&host.uid().unwrap_or_default()).is_some_and(|failed| now < failed.until)
    }
}

/// Pause after so many looks that came to nothing and one more: a minute, two, four, and so on up to an hour.
fn pause(count: u32) -> SignedDuration {
    SignedDuration::from_mins(1_i64 << count.min(6)).min(SignedDuration::from_hours(1))
}

/// Why the host is to be diagnosed, if it is.
fn trigger(host: &BareMetalHost, now: Timestamp) -> Option<Trigger> {
    let status = host.status.as_ref()?;
    if host.is_deleting() || host.annotation(annotation::PAUSED).is_some() {
        return None;
    }
    if status.error_type.is_some() {
        return Some(Trigger::Error);
    }
    let is_late = host_lifecycle::spent(host)
        .is_some_and(|(since, budget)| Duration::try_from(now.duration_since(since)).unwrap_or_default() >= budget);
    if is_late {
        return Some(Trigger::TimeBudget);
    }
    fault(host).map(|_| Trigger::Fault)
}

/// Since when the machine of a host that is at rest has a fault, and how bad it is, as its condition says.
fn fault(host: &BareMetalHost) -> Option<(Timestamp, &str)> {
    let rests = matches!(host.state(), State::Provisioned | State::ExternallyProvisioned | State::Available);
    let healthy = host.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Healthy");
    let healthy = healthy.filter(|condition| rests && condition.status == "False")?;
    Some((healthy.last_transition_time.0, healthy.reason.as_str()))
}

/// Whether the host carries what an error has left.
fn is_marked(host: &BareMetalHost) -> bool {
    host.annotation(annotation::DIAGNOSIS).is_some() || host.labels().contains_key(label::ERROR_TYPE)
}

/// One look at a host.
async fn look(all: &All, host: &BareMetalHost) -> Result<(), LookError> {
    let context = &all.context;
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading.into());
    }
    if host.annotation(annotation::PAUSED).is_none() {
        all.heard(host, hearing::note(all, host).await);
    }
    let Some(trigger) = trigger(host, context.settings.clock.now()) else {
        let recovered = host.status.as_ref().is_some_and(|status| status.error_type.is_none());
        if recovered && is_marked(host) && !host.is_deleting() && host.annotation(annotation::PAUSED).is_none() {
            all.forget(&host.uid().unwrap_or_default());
            run::mark(context, host, &run::Mark { kind: Some(None), summary: Some(None) }).await?;
        }
        return Ok(());
    };
    if all.waits(host) {
        return Ok(());
    }
    let Some(is_detected) = is_detected(all, host, false).await? else { return Ok(()) };
    if !is_detected {
        // What was told while it was on would be of another error soon.
        if is_marked(host) {
            all.forget(&host.uid().unwrap_or_default());
            run::mark(context, host, &run::Mark { kind: Some(None), summary: Some(None) }).await?;
        }
        return Ok(());
    }
    let kind = error_type(host);
    let shown = host.labels().get(label::ERROR_TYPE).map(String::as_str);
    if shown != kind.map(|kind| kind.event_reason()) {
        run::mark(context, host, &run::Mark { kind: Some(kind.map(|kind| kind.event_reason())), summary: None })
            .await?;
    }
    let (uid, digest) = (host.uid().unwrap_or_default(), run::digest(host));
    if !is_new(all, host, &digest).await? {
        return run::tell_again(context, host, &digest).await;
    }
    match diagnose(context, host, trigger, None).await? {
        Diagnosed::Found(_) => {
            all.failed().remove(&uid);
            let kind = kind.map(|kind| kind.as_str().to_owned()).unwrap_or_default();
            all.known().insert(uid, Known { digest, kind, at: Some(context.settings.clock.now()) });
        }
        Diagnosed::Unwritable(why) => all.note_failed(host, &why),
        Diagnosed::Busy(_) | Diagnosed::Gone => {}
    }
    Ok(())
}

/// Whether this error has not been diagnosed yet. What an earlier process has diagnosed stands in the HostDiagnosis.
async fn is_new(all: &All, host: &BareMetalHost, digest: &str) -> Result<bool, LookError> {
    let uid = host.uid().unwrap_or_default();
    let known = all.known().get(&uid).cloned();
    let known = match known {
        Some(known) => Some(known),
        None => {
            let api: Api<HostDiagnosis> =
                Api::namespaced(all.context.client.clone(), &host.namespace().unwrap_or_default());
            let failed = |source| LookError::Api { attempt: "read the HostDiagnosis", source: Box::new(source) };
            let read = api.get_opt(&host.name_any()).await.map_err(failed)?;
            let known =
                read.filter(|read| read.spec.host.uid == host.uid()).and_then(|read| read.status).map(|status| Known {
                    digest: status.error_digest,
                    kind: status.error_type.unwrap_or_default(),
                    at: status.finish_time.map(|time| time.0),
                });
            if let Some(known) = &known {
                all.known().insert(uid, known.clone());
            }
            known
        }
    };
    let Some(known) = known else { return Ok(true) };
    let kind = error_type(host).map(|kind| kind.as_str()).unwrap_or_default();
    let now = all.context.settings.clock.now();
    let recent = known.kind == kind && known.at.is_some_and(|at| now.duration_since(at) < APART);
    Ok(known.digest != digest && !recent)
}

/// Whether errors of this host are diagnosed; `None` where it is not known yet what its classifications say.
/// `lately`: what the namespace said a while ago is good enough.
async fn is_detected(all: &All, host: &BareMetalHost, lately: bool) -> Result<Option<bool>, LookError> {
    if let Some(said) = detection(host.metadata.labels.as_ref()) {
        return Ok(Some(said));
    }
    match of_classes(all, host) {
        Ok(None) => {}
        Ok(said) => return Ok(said),
        Err(NotListed) => return Ok(None),
    }
    if let Some(said) = all.said_by_namespace(host, lately).await? {
        return Ok(Some(said));
    }
    Ok(Some(match all.detect {
        Detect::Off => false,
        Detect::All => true,
        Detect::Native => capabilities_of(&all.context, host).await?.is_some_and(|(name, _)| name == NATIVE),
    }))
}

/// The HardwareClassifications have not been listed yet, or hosts not judged by the HostClasses.
struct NotListed;

/// What the HardwareClassifications and HostClasses say that the host is of; where they contradict each other, no BMC is called.
fn of_classes(all: &All, host: &BareMetalHost) -> Result<Option<bool>, NotListed> {
    let namespace = host.namespace().unwrap_or_default();
    let mut said = Vec::new();
    let by_class = all.context.detecting_classes.lock().unwrap_or_else(PoisonError::into_inner);
    said.extend(by_class.as_ref().ok_or(NotListed)?.get(&(namespace.clone(), host.name_any())).copied());
    drop(by_class);
    let mut keys = host.labels().keys().filter(|key| key.starts_with(label::CLASS_PREFIX)).peekable();
    if keys.peek().is_some() {
        let detecting = all.context.detecting.lock().unwrap_or_else(PoisonError::into_inner);
        let detecting = detecting.as_ref().ok_or(NotListed)?;
        said.extend(keys.filter_map(|key| detecting.get(&(namespace.clone(), key.clone())).copied()));
    }
    Ok((!said.is_empty()).then(|| said.iter().all(|said| *said)))
}
