//! What the native provisioner remembers of a host's work: the operation under way or the last one, step by step, the newest boot of the agent,
//! and the sessions that may be open on the BMC.
//!
//! It is kept in the host's record ([`provisioner::Record`]): an operation's intent is durable there before its effect. Notes in between (finished
//! steps, progress, the BMC's calls) wait in this process for the next write. The history shows the same to people; it is read only for hosts
//! without a record, which a version before records has worked on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Time;
use api::metamorph::{
    AgentBoot, Erasure, HostOperationStatus, OperationError, OperationImage, OperationPhase, OperationStep,
    OperationType, StepPhase, StepsReport,
};
use jiff::Timestamp;
use provisioner::{
    Cause, Deployed, Failure, History, HistoryEntry, HostContext, HostKey, Method, Now, Purpose, Record, RecordContent,
    RecordError, Recorded, Retry, Tell, operation_name,
};
use provisioning_plan::in_use::began;

use crate::data::{Data, VERSION};
use crate::keys::KeyRing;
use crate::live::{LiveHost, Noted, Restart, Writing};
use crate::name::NAME;
pub use crate::newest::{FirmwareWork, Newest, StepProgress, is_for};
use crate::remembered::{Running, WriteNews, WriteOrders};

/// Longest message kept in an operation, in characters.
const MAX_MESSAGE: usize = 1024;

/// One host's journal, for one reconcile.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    record: Arc<dyn Record>,
    history: Arc<dyn History>,
    now: Now,
    live: Arc<LiveHost>,
    /// The host.
    host: HostKey,
    /// Whose mark its systems get.
    owner: String,
    keys: KeyRing,
    /// Revision of the record, and what it holds with what has been noted since.
    state: Mutex<(u64, Data)>,
    /// What stands in the record.
    stands: Mutex<Option<RecordContent>>,
}

impl Journal {
    /// The journal of the context's host.
    ///
    /// # Errors
    /// When the record is not one that this version may touch.
    pub fn of(context: &HostContext, live: &Arc<LiveHost>, keys: &KeyRing) -> Result<Self, Failure> {
        let recorded = context.record.current();
        let stands = recorded.content.clone();
        let noted = live.noted().clone().filter(|noted| noted.revision == recorded.revision && noted.stands == stands);
        let mut data = match noted {
            Some(noted) => noted.data,
            None => Self::read(context, live, &recorded)?,
        };
        data.subject = data.proved_subject(&context.key, keys);
        data.claim = keys.claim(&context.key.namespace, &context.key.name, &data.subject);
        Ok(Self(Arc::new(Inner {
            record: Arc::clone(&context.record),
            history: Arc::clone(&context.history),
            now: Arc::clone(&context.now),
            live: Arc::clone(live),
            host: context.key.clone(),
            owner: [&context.provisioning_id, &context.key.uid]
                .into_iter()
                .find(|id| !id.is_empty())
                .cloned()
                .unwrap_or_default(),
            keys: keys.clone(),
            state: Mutex::new((recorded.revision, data)),
            stands: Mutex::new(stands),
        })))
    }

    /// The recorded data; if the record was deleted or rolled back during work, what this process recorded before.
    fn read(context: &HostContext, live: &LiveHost, recorded: &Recorded) -> Result<Data, Failure> {
        let mut read = Data::read(recorded)?;
        let mut last = live.recorded();
        if let Some(ours) =
            last.as_ref().filter(|ours| recorded.revision < ours.revision && ours.data.goes_on_from(&read))
        {
            tracing::warn!(
                host = %context.key.name,
                "the record of the work that is under way was deleted, or replaced by an earlier one: it is written anew, and the work goes on"
            );
            return Ok(ours.data.clone());
        }
        // Numbers only grow, whatever happened to the record.
        read.number = last.as_ref().map_or(0, |ours| ours.data.number).max(read.number);
        if last.as_ref().is_some_and(|ours| recorded.revision < ours.revision) {
            // It may be from before a write.
            read.write_orders = None;
        }
        let stands = recorded.content.clone();
        *last = Some(Noted { revision: recorded.revision, stands, data: read.clone() });
        Ok(read)
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Data)> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stands(&self) -> MutexGuard<'_, Option<RecordContent>> {
        self.0.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is recorded, with what has been noted since.
    pub fn data(&self) -> Data {
        self.lock().1.clone()
    }

    /// Kubernetes' times have whole seconds.
    fn time(&self) -> Option<Time> {
        Timestamp::from_second((self.0.now)().as_second()).ok().map(Time)
    }

    /// See [`Data::subject`].
    pub fn subject(&self) -> String {
        self.lock().1.subject.clone()
    }

    /// The newest boot of the agent that is recorded, with the generation that media and token are derived from.
    pub fn latest_boot(&self) -> Option<AgentBoot> {
        self.lock().1.boot.clone()
    }

    /// The newest operation of any kind. If it is of a work's kind, for its wish, and has succeeded, that work is done, even if its process could not
    /// report so.
    pub fn newest(&self) -> Option<Newest> {
        self.data().operation.map(|entry| Newest {
            id: entry.id,
            operation: entry.operation,
            phase: entry.status.phase,
            wish: entry.wish,
            status: entry.status,
        })
    }

    /// The failure that the newest operation ended with, if that was of this kind and for this very wish.
    pub fn failure(&self, operation: OperationType, wish: Option<&str>) -> Option<(String, Failure)> {
        let newest = self.data().operation.filter(|newest| {
            newest.operation == operation
                && newest.status.phase == OperationPhase::Failed
                && newest.wish.is_some()
                && newest.wish.as_deref() == wish
        })?;
        let error = newest.status.error.unwrap_or_default();
        let mut failure = Failure::new(Cause::named(&error.cause), error.message);
        failure.advice = error.advice;
        if failure.cause == Cause::BmcAddressInvalid {
            failure.retry = Retry::AfterChange;
        }
        Some((newest.id, failure))
    }

    /// Addresses of sessions that may be open on the BMC.
    pub fn recorded_sessions(&self) -> Vec<String> {
        self.lock().1.sessions.clone()
    }

    /// The operation of this kind and for this wish that is under way, opened with this plan if there is none. Opening cancels any other that is
    /// still open: a host has one at a time. A new one is recorded with its first [`Operation::intent`].
    pub async fn open(
        &self,
        operation: OperationType,
        wish: Option<&str>,
        plan: &[&str],
    ) -> Result<Operation, RecordError> {
        let open = self.data().operation.filter(|entry| !entry.status.phase.is_final());
        if let Some(entry) = open {
            if entry.operation == operation && is_for(entry.wish.as_deref(), wish) {
                let mut opened = self.operation(entry, true);
                opened.plan(plan);
                return Ok(opened);
            }
            self.cancel_open("the host goes another way").await?;
        }
        let number = self.lock().1.number.saturating_add(1);
        // Unique: no other operation of a host of this name opens at this instant.
        let id =
            format!("{}/{:x}", operation_name(&self.0.host.name, number, operation), (self.0.now)().as_nanosecond());
        let entry = HistoryEntry {
            number,
            id,
            operation,
            wish: wish.map(ToOwned::to_owned),
            status: HostOperationStatus::default(),
        };
        let mut opened = self.operation(entry, false);
        opened.plan(plan);
        Ok(opened)
    }

    /// Cancels the open operation.
    pub async fn cancel_open(&self, why: &str) -> Result<(), RecordError> {
        self.cancel(why, false, None).await
    }

    /// The same for a host that is let go, whose agent may be at work: its boot is retired with that write.
    pub async fn let_go(&self, why: &str, steps: Option<StepsReport>) -> Result<(), RecordError> {
        self.cancel(why, true, steps).await
    }

    async fn cancel(&self, why: &str, retire: bool, steps: Option<StepsReport>) -> Result<(), RecordError> {
        let open = self.data().operation.filter(|entry| !entry.status.phase.is_final());
        let Some(entry) = open else {
            // Another process may have ended it and died before showing that.
            self.show().await;
            return Ok(());
        };
        let mut operation = self.operation(entry, true);
        if let Some(boot) = operation.status().boot.clone().filter(|_| retire) {
            operation.set_boot(AgentBoot { retired: true, ..boot });
        }
        if let Some(steps) = steps {
            operation.set_steps(steps);
        }
        operation.end(OperationPhase::Cancelled, why);
        operation.write(Purpose::Note).await?;
        self.0.history.tell(&operation.entry, Tell::Now).await;
        Ok(())
    }

    /// Cancels an abandoned operation (an inspection that is no longer wished): the host is at rest, or is to be off.
    pub async fn end_abandoned(&self) -> Result<(), RecordError> {
        if self.data().operation.is_some_and(|entry| !entry.status.phase.is_final()) {
            self.cancel_open("the host goes another way").await?;
        }
        Ok(())
    }

    /// Cancels the open operation if it is of this kind.
    pub async fn abandon(&self, kind: OperationType, why: &str) -> Result<(), RecordError> {
        let open = self.data().operation.is_some_and(|entry| entry.operation == kind && !entry.status.phase.is_final());
        if open { self.cancel_open(why).await } else { Ok(()) }
    }

    /// Whether an operation of this kind is open.
    pub fn is_open(&self, kind: OperationType) -> bool {
        self.data().operation.is_some_and(|entry| entry.operation == kind && !entry.status.phase.is_final())
    }

    /// Nothing of the host has begun to be written to the machine's disks, by the record's word: it knows the host from its beginning or from its last
    /// wipe on, and the intent of each write is in it. The word counts only on an attempt of this very process ([`provisioner::Attempt`]): the record may
    /// have been restored from before another one's write, or a version that does not count may have gone on with it.
    pub fn is_unwritten(&self) -> bool {
        let data = self.data();
        WriteOrders::none_open(data.write_orders.as_ref(), &self.0.host, data.number)
    }

    /// What has been ordered since the last wipe is to boot live ISOs, and no image was to be written, by the record's word.
    pub fn had_live_alone(&self) -> bool {
        let data = self.data();
        data.write_orders
            .is_some_and(|orders| orders.host == self.0.host.uid && orders.number == data.number && orders.live)
    }

    /// Notes that nobody knows what is on the disks until they are wiped: another process may have had a hand in it, or they are another machine's.
    pub fn doubts_disks(&self) {
        if self.data().write_orders.is_some() {
            self.note(|data| data.write_orders = None);
        }
    }

    /// Notes that the host is registered for the first time, before anything is written to its disks. The next write records it; if this process ends
    /// before, nothing is known of the disks.
    pub fn begins(&self) {
        self.note(|data| {
            let anew = data.number == 0 && data.operation.is_none();
            WriteOrders::count_from_here(&mut data.write_orders, &self.0.host, anew);
        });
    }

    /// Notes what the host says its machine runs, if its record does not say so yet, or knows of an earlier system alone; true if that is news.
    pub fn takes_over(&self, deployed: &Deployed) -> bool {
        let data = self.data();
        let is_there = deployed.image.is_some() || deployed.method != Method::Disk || deployed.externally;
        if !is_there || data.operation.as_ref().is_some_and(|entry| !entry.status.phase.is_final()) {
            return false;
        }
        if deployed.externally {
            return self.is_others(Some(self.0.owner.clone()));
        }
        let of = |wish: &Option<String>| wish.as_deref().and_then(began);
        let is_news = data.running().is_none_or(|known| {
            of(&deployed.wish).is_some_and(|told| of(&known.wish).is_none_or(|known| told > known))
        });
        if is_news {
            let running = Running { wish: deployed.wish.clone(), owner: self.0.owner.clone(), number: data.number };
            self.note(|data| data.runs = Some(running));
        }
        is_news
    }

    /// Notes that what somebody else has put on the machine is nothing of this host's any more; true if that is news.
    pub fn leaves_to_others(&self) -> bool {
        self.is_others(None)
    }

    /// Notes that others decide about what is on the machine: on that of `owner`, or of nobody any more. What was provisioned here before is not known to be
    /// there. True if that is news.
    fn is_others(&self, owner: Option<String>) -> bool {
        let data = self.data();
        let number = data.number;
        let runs = owner.map(|owner| Running { wish: None, owner, number });
        let is_news = data.runs != runs || data.left != Some(number);
        if is_news {
            self.note(|data| (data.runs, data.left) = (runs, Some(number)));
        }
        is_news
    }

    /// The machine is off: nobody is waited for any more who has run on it.
    pub async fn retire_boot(&self) -> Result<(), RecordError> {
        let mut data = self.data();
        let Some(boot) = data.boot.as_mut().filter(|boot| !boot.retired) else { return Ok(()) };
        boot.retired = true;
        self.write(data, Purpose::Note).await
    }

    /// A restart is about to be ordered that nothing will show. Durable when it returns.
    pub async fn restarts(&self) -> Result<(), RecordError> {
        let mut data = self.data();
        data.restart = true;
        self.write(data, Purpose::Intent).await
    }

    /// The host wishes no restart, or it was not made: the next one that is asked for is another.
    pub async fn restart_is_over(&self) -> Result<(), RecordError> {
        self.0.live.timers().restart = Restart::Over;
        let mut data = self.data();
        if !std::mem::take(&mut data.restart) {
            return Ok(());
        }
        self.write(data, Purpose::Note).await
    }

    /// What people see is brought up to date: an earlier process, or an earlier write, may not have been able to.
    pub async fn show(&self) {
        if let Some(entry) = self.data().operation {
            self.0.history.tell(&entry, Tell::Soon).await;
        }
    }

    fn operation(&self, entry: HistoryEntry, recorded: bool) -> Operation {
        let name = entry.name(&self.0.host.name);
        let firmware = if recorded { self.data().firmware } else { None };
        Operation { journal: self.clone(), name, entry, recorded, firmware, news: None }
    }

    /// Keeps what is noted until the next write.
    pub fn note(&self, edit: impl FnOnce(&mut Data)) {
        let noted = {
            let mut state = self.lock();
            edit(&mut state.1);
            Noted { revision: state.0, stands: self.stands().clone(), data: state.1.clone() }
        };
        *self.0.live.noted() = Some(noted);
    }

    /// Records this in place of what was there. Durable when it returns.
    pub async fn write(&self, mut data: Data, purpose: Purpose) -> Result<(), RecordError> {
        // With the present key, so that the proof lasts as long as that key.
        data.claim = self.0.keys.claim(&self.0.host.namespace, &self.0.host.name, &data.subject);
        let expected = self.lock().0;
        let value = serde_json::to_value(&data).map_err(|e| RecordError::new("the operation", e.to_string()))?;
        let content = RecordContent { provisioner: NAME.to_owned(), version: VERSION, data: value };
        let stands = Some(content.clone());
        let writing = Writing::of(&self.0.live);
        let revision = self.0.record.write(expected, content, purpose).await?;
        writing.done();
        *self.0.live.recorded() = Some(Noted { revision, stands: stands.clone(), data: data.clone() });
        *self.stands() = stands;
        *self.lock() = (revision, data);
        self.note(|_| ());
        Ok(())
    }
}

/// One operation under way.
pub struct Operation {
    journal: Journal,
    name: String,
    entry: HistoryEntry,
    /// It stands in the record.
    recorded: bool,
    /// The settings that it makes.
    firmware: Option<FirmwareWork>,
    /// What its next write says of orders to write an image.
    news: Option<WriteNews>,
}

impl Operation {
    /// Name of the operation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Unique id: part of every agent command's identity.
    pub fn id(&self) -> String {
        self.entry.id.clone()
    }

    /// Which boot of the agent it has recorded.
    pub fn generation(&self) -> Option<u64> {
        self.status().boot.as_ref().map(|boot| boot.generation)
    }

    /// Where it is.
    pub fn status(&self) -> &HostOperationStatus {
        &self.entry.status
    }

    /// Notes the agent's boot; durable with the next [`Self::intent`] or [`Self::finish`].
    pub fn set_boot(&mut self, boot: AgentBoot) {
        self.entry.status.boot = Some(boot);
        self.note();
    }

    /// What the next [`Self::intent`] or [`Self::finish`] says of orders to write an image.
    pub fn tells(&mut self, news: WriteNews) {
        self.news = Some(news);
    }

    /// The settings of the firmware that it makes.
    pub const fn firmware(&self) -> Option<&FirmwareWork> {
        self.firmware.as_ref()
    }

    /// Notes the settings that it makes; durable with the next [`Self::intent`].
    pub fn set_firmware(&mut self, work: FirmwareWork) {
        self.firmware = Some(work);
        self.note();
    }

    /// Notes what the image's reference names; durable with the next [`Self::intent`] or [`Self::finish`].
    pub fn set_image(&mut self, image: OperationImage) {
        self.entry.status.image = Some(image);
        self.note();
    }

    /// Notes what has become of disks that were erased; durable with the next [`Self::finish`].
    pub fn set_erasure(&mut self, erasure: Erasure) {
        self.entry.status.erasure = Some(erasure);
        self.note();
    }

    /// Notes what the agent lists of steps of hardware managers, and what has become of those that were asked for; durable with the next write.
    pub fn set_steps(&mut self, report: StepsReport) {
        self.entry.status.steps_report = Some(report);
        self.note();
    }

    /// Records what is noted. Durable when it returns.
    pub async fn record(&mut self) -> Result<(), RecordError> {
        self.write(Purpose::Note).await?;
        self.journal.0.history.tell(&self.entry, Tell::Soon).await;
        Ok(())
    }

    /// Notes calls made to the BMC and the address of its session; durable with the next write.
    pub fn set_bmc(&mut self, calls: u32, session: Option<String>) {
        self.entry.status.bmc_calls = calls;
        if session.is_some() {
            self.entry.status.bmc_session = session;
        }
        self.note();
    }

    /// Records that `step` is about to have its effect (attempt and agent's boot with it). Durable when it returns.
    pub async fn intent(&mut self, step: &str, attempt: u32, boot_id: Option<&str>) -> Result<(), RecordError> {
        let now = self.journal.time();
        let before = self.entry.clone();
        let record = self.step(step);
        record.phase = StepPhase::Running;
        record.attempt = Some(attempt);
        record.boot_id = boot_id.map(ToOwned::to_owned);
        record.start_time.clone_from(&now);
        record.end_time = None;
        record.error = None;
        record.message = None;
        let status = &mut self.entry.status;
        status.phase = OperationPhase::Running;
        if status.start_time.is_none() {
            status.start_time = now;
        }
        status.message = None;
        self.summarise();
        let first = !self.recorded;
        if let Err(error) = self.write(Purpose::Intent).await {
            // The intent was not recorded.
            self.entry = before;
            return Err(error);
        }
        self.journal.0.history.tell(&self.entry, if first { Tell::Now } else { Tell::Soon }).await;
        Ok(())
    }

    /// Notes that `step` is done; durable with the next write.
    pub fn done(&mut self, step: &str, message: &str) {
        let now = self.journal.time();
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

    /// Shows progress.
    pub async fn progress(&mut self, step: &str, progress: StepProgress) {
        let record = self.step(step);
        record.percent = progress.percent.or(record.percent);
        record.bytes = progress.bytes.and_then(|b| i64::try_from(b).ok()).or(record.bytes);
        record.total_bytes = progress.total_bytes.and_then(|b| i64::try_from(b).ok()).or(record.total_bytes);
        record.message = Some(progress.message.chars().take(MAX_MESSAGE).collect());
        self.summarise();
        self.note();
        if self.recorded {
            self.journal.0.history.tell(&self.entry, Tell::Soon).await;
        }
    }

    /// Shows why the operation waits.
    pub async fn waits(&mut self, failure: &Failure) {
        self.entry.status.message = Some(failure.message.chars().take(MAX_MESSAGE).collect());
        self.note();
        if self.recorded {
            self.journal.0.history.tell(&self.entry, Tell::Soon).await;
        }
    }

    /// Closes the operation, successfully or not. Durable when it returns.
    pub async fn finish(&mut self, result: Result<&str, &Failure>) -> Result<(), RecordError> {
        match result {
            Ok(message) => self.end(OperationPhase::Succeeded, message),
            Err(failure) => {
                let error = OperationError {
                    cause: failure.cause.as_str().to_owned(),
                    message: failure.message.chars().take(MAX_MESSAGE).collect(),
                    advice: failure.what_to_do().map(ToOwned::to_owned),
                };
                if let Some(step) = self.entry.status.steps.iter_mut().find(|s| s.phase == StepPhase::Running) {
                    step.error = Some(error.clone());
                }
                self.entry.status.error = Some(error);
                self.end(OperationPhase::Failed, &failure.message);
            }
        }
        self.write(Purpose::Note).await?;
        self.journal.0.history.tell(&self.entry, Tell::Now).await;
        Ok(())
    }

    fn plan(&mut self, plan: &[&str]) {
        let steps = &mut self.entry.status.steps;
        if steps.is_empty() {
            let step = |name: &&str| OperationStep { name: (*name).to_owned(), ..OperationStep::default() };
            *steps = plan.iter().map(step).collect();
        }
    }

    fn step(&mut self, name: &str) -> &mut OperationStep {
        let steps = &mut self.entry.status.steps;
        let index = steps.iter().position(|s| s.name == name).unwrap_or_else(|| {
            steps.push(OperationStep { name: name.to_owned(), ..OperationStep::default() });
            steps.len() - 1
        });
        &mut steps[index]
    }

    /// Current step, steps done and message, derived from the steps.
    fn summarise(&mut self) {
        let status = &mut self.entry.status;
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
        *self.journal.0.live.place() = None;
        let now = self.journal.time();
        let status = &mut self.entry.status;
        status.phase = phase;
        status.end_time.clone_from(&now);
        status.message = Some(message.chars().take(MAX_MESSAGE).collect());
        if phase != OperationPhase::Succeeded {
            for step in status.steps.iter_mut().filter(|s| s.phase == StepPhase::Running) {
                step.phase = StepPhase::Failed;
                step.end_time.clone_from(&now);
            }
        }
        self.summarise();
    }

    /// Into the data of the record: the operation, its boot and its session.
    fn put(&self, data: &mut Data) {
        if let Some(orders) = data.write_orders.as_mut().filter(|orders| orders.number == data.number) {
            orders.number = self.entry.number;
        }
        data.number = self.entry.number;
        if let Some(boot) = &self.entry.status.boot {
            let newest = data.boot.as_ref().is_none_or(|known| known.generation <= boot.generation);
            if newest {
                data.boot = Some(boot.clone());
            }
        }
        if let Some(session) = &self.entry.status.bmc_session {
            data.remember_session(session.clone());
        }
        data.firmware = self.firmware.clone().filter(|_| !self.entry.status.phase.is_final());
        // What was asked for before this work is over.
        data.restart = false;
        data.runs = Running::after(data.running().cloned(), &self.journal.0.owner, &self.entry);
        data.operation = Some(self.entry.clone());
    }

    fn note(&self) {
        if self.recorded {
            self.journal.note(|data| self.put(data));
        }
    }

    async fn write(&mut self, purpose: Purpose) -> Result<(), RecordError> {
        let mut data = self.journal.data();
        self.put(&mut data);
        if let Some(news) = self.news.take() {
            news.count(&mut data.write_orders, &self.journal.0.host, data.number);
        }
        self.journal.write(data, purpose).await.map_err(|mut error| {
            error.what = format!("operation {}", self.name);
            error
        })?;
        self.recorded = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::MAX_SESSIONS;
    use serde_json::json;

    fn entry(number: u64, generation: u64, session: &str) -> HistoryEntry {
        serde_json::from_value(json!({
            "number": number,
            "id": format!("a-{number:03}-provision/uid-{number}"),
            "operation": "Provision",
            "wish": "w",
            "status": { "phase": "Running", "boot": { "generation": generation, "medium": "aa" }, "bmcSession": session },
        }))
        .unwrap()
    }

    #[test]
    fn a_history_of_the_version_before_records_is_gone_on_with() {
        let earlier = vec![
            entry(1, 7, "https://192.0.2.1/1"),
            entry(2, 6, "https://192.0.2.1/2"),
            entry(3, 6, "https://192.0.2.1/1"),
        ];
        let data = Data::read(&Recorded { earlier, ..Recorded::default() }).unwrap();
        assert_eq!((data.number, data.operation.map(|o| o.id)), (3, Some("a-003-provision/uid-3".into())));
        assert_eq!(data.boot.map(|boot| boot.generation), Some(7), "no generation is given out again");
        assert_eq!(data.sessions, ["https://192.0.2.1/2", "https://192.0.2.1/1"]);
    }

    #[test]
    fn what_a_later_version_has_added_is_kept() {
        let written = json!({ "subject": "s", "number": 2, "weather": { "sunny": true } });
        let content = RecordContent { provisioner: NAME.into(), version: VERSION, data: written.clone() };
        let data = Data::read(&Recorded { revision: 1, content: Some(content), earlier: vec![] }).unwrap();
        assert_eq!(serde_json::to_value(&data).unwrap(), written);
    }

    #[test]
    fn a_record_is_bounded_however_long_it_is_used() {
        let mut data = Data::default();
        for number in 0..100 {
            data.remember_session(format!("https://192.0.2.1/{number}"));
        }
        assert_eq!(
            (data.sessions.len(), data.sessions.last().unwrap().as_str()),
            (MAX_SESSIONS, "https://192.0.2.1/99")
        );
    }
}
