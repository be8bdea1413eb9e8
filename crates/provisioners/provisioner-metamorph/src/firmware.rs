//! The machine's firmware: what it is, and the settings that are wished of it, made on an empty machine or on one in use.
//!
//! A change is one step of an operation ([`provisioning_plan::firmware_settings`]): its intent stands in the record with the settings themselves, as
//! the host names them once only; then the BMC is given them, the machine starts, and they are read until they are in force.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bmc::{AttributeSchema, BiosSeen, Bmc, BmcError, ErrorKind, FirmwareVersion, JobState, PowerAction, Sight};
use provisioner::{
    Cause, Failure, Firmware, FirmwareFacts, FirmwareTargets, InstalledFirmware, Outcome, Prepare, PrepareRequest,
    Purpose, Service, ServiceRequest, Setting, SettingFact, Verdict, Working,
};
use provisioning_plan::firmware_settings::{self, Decision, Facts, Fault, Shown, Waiting};
use provisioning_plan::steps::{Step, Work};
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{FirmwareWork, Operation, StepProgress};
use crate::live::{FirmwareWait, unconfirmed, untold};
use crate::record::{done, intend, succeed};

/// Seconds between looks at a firmware at work.
const LOOK_AGAIN: u64 = 15;
/// Most settings that a message names.
const MAX_NAMED: usize = 5;
/// Names and values of one change, bytes of JSON: they stand in the host's record.
const MAX_CHANGE: usize = 24 << 10;
/// What is waited for while settings are taken back.
const TAKING_BACK: &str = "taking back";
/// What to do about settings that the BMC keeps pending.
const PENDING_REMAINS: &str = "clear them at the BMC (its pending settings, or its job queue), or they are in force after the next start; it is tried again";

/// What is to be made, and for which wish.
struct Order {
    work: Work,
    wish: Option<String>,
    settings: BTreeMap<String, String>,
    /// It is named with this request, and to be accepted.
    is_new: bool,
    restart: bool,
}

/// One look at the machine and its settings.
struct Look {
    bmc: Arc<dyn Bmc>,
    sight: Sight,
    seen: Option<BiosSeen>,
    /// Why what the BMC was given was not applied, if it says so.
    refusal: Option<String>,
    /// What came back of the order to restart or start the machine, if that does not tell whether it was carried out.
    unanswered: Option<String>,
}

#[async_trait]
impl Firmware for NativeHost {
    async fn facts(&mut self, with_bounds: bool) -> Outcome<FirmwareFacts> {
        let (bmc, _) = self.proven(Effect::Look).await?;
        let settings = match bmc.bios() {
            Ok(bios) => self.shown(bios.seen(false).await)?.flatten(),
            Err(_) => None,
        };
        let settings = match (settings, bmc.bios()) {
            (Some(seen), Ok(bios)) if with_bounds => {
                let schema = self.shown(bios.schema().await)?.flatten();
                Some(facts_of(seen, schema.as_deref()))
            }
            (seen, _) => seen.map(|seen| facts_of(seen, None)),
        };
        let components = match bmc.firmware() {
            Ok(inventory) => self.shown(inventory.versions().await)?,
            Err(_) => None,
        };
        let components = components.map(|found| found.into_iter().map(installed).collect());
        Ok(Verdict::Done(FirmwareFacts { settings, components }))
    }
}

fn facts_of(seen: BiosSeen, schema: Option<&BTreeMap<String, AttributeSchema>>) -> BTreeMap<String, SettingFact> {
    let fact = |name: &String, value: String| {
        let known = schema.and_then(|schema| schema.get(name)).cloned().unwrap_or_default();
        SettingFact {
            value,
            kind: known.kind.map(|kind| kind.as_str().to_owned()),
            allowed: known.allowed,
            lower_bound: known.lower_bound,
            upper_bound: known.upper_bound,
            min_length: known.min_length,
            max_length: known.max_length,
            read_only: known.read_only,
            unique: known.unique,
        }
    };
    seen.current.into_iter().map(|(name, value)| (name.clone(), fact(&name, value))).collect()
}

/// The version that was there first is the host's to remember.
fn installed(found: FirmwareVersion) -> InstalledFirmware {
    let FirmwareVersion { component, version } = found;
    InstalledFirmware { component, initial_version: version.clone(), version, ..InstalledFirmware::default() }
}

#[async_trait]
impl Prepare for NativeHost {
    async fn prepare(&mut self, request: PrepareRequest) -> Outcome<()> {
        if request.raid.is_some() {
            return Err(unserved("make RAID volumes", "remove spec.raid"));
        }
        self.nothing_ends("prepare the machine")?;
        self.change_firmware(Work::Prepare, request.wish, request.firmware, request.restart).await
    }

    async fn abort(&mut self) -> Outcome<()> {
        self.settle_with_journal().await;
        self.journal.abandon(Work::Prepare.operation(), "what was to be set is not wished any more").await?;
        self.take_back().await
    }
}

#[async_trait]
impl Service for NativeHost {
    async fn service(&mut self, request: ServiceRequest) -> Outcome<()> {
        let answer = self.change_firmware(Work::Service, request.wish, request.firmware, request.restart).await;
        answer.map_err(|failure| {
            let waits = failure.cause == Cause::RecordUnavailable && self.journal.is_open(Work::Service.operation());
            if waits { Failure { retry: provisioner::Retry::Waiting, ..failure } } else { failure }
        })
    }

    async fn abort(&mut self) -> Outcome<()> {
        self.settle(self.is_told_to_run()).await;
        self.journal.abandon(Work::Service.operation(), "what was to be set is not wished any more").await?;
        self.take_back().await
    }
}

fn unserved(what: &str, advice: &str) -> Failure {
    let mut failure = Failure::new(Cause::NotServed, format!("{what}: the native provisioner does not serve it"));
    failure.retry = provisioner::Retry::AfterChange;
    failure.advise(advice.to_owned())
}

impl NativeHost {
    /// What was read; `None` if the BMC refuses to show it: no host waits for that.
    fn shown<T>(&self, read: Result<T, BmcError>) -> Result<Option<T>, Failure> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind.is_refusal() => {
                tracing::warn!(host = %self.context.key.name, "the firmware is not shown: {error}");
                Ok(None)
            }
            Err(error) => Err(of_bmc(error)),
        }
    }

    async fn change_firmware(
        &mut self,
        work: Work,
        wish: Option<String>,
        targets: FirmwareTargets,
        restart: bool,
    ) -> Outcome<()> {
        if !targets.updates.is_empty() {
            return Err(unserved("update the firmware", "remove spec.updates of the HostFirmwareComponents"));
        }
        let settings: BTreeMap<String, String> =
            targets.settings.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let order = Order { work, wish, is_new: !settings.is_empty(), settings, restart };
        let kind = work.operation();
        self.settle(work == Work::Service && self.is_told_to_run()).await;
        if self.journal.newest().is_some_and(|newest| newest.is_for(order.wish.as_deref()) && newest.succeeded(kind)) {
            return Ok(Verdict::Done(()));
        }
        self.unheard(kind, order.wish.as_deref(), order.restart)?;
        if !order.is_new && !self.journal.is_open(kind) {
            // What was accepted is not known any more: the host reads what there is, and names it again.
            return self.take_back().await;
        }
        let mut operation = self.open(work, order.wish.as_deref()).await?;
        let result = self.firmware_steps(&mut operation, &order).await;
        self.closing(&mut operation, result).await
    }

    async fn firmware_steps(&self, operation: &mut Operation, order: &Order) -> Outcome<()> {
        let begun = Step::SetFirmware.begun(operation.status());
        let wished = operation.firmware().map_or_else(|| order.settings.clone(), |work| work.settings.clone());
        not_too_many(&wished)?;
        let look = match self.look_at_firmware(operation, begun).await {
            Ok(look) => look,
            // Some BMCs restart with the machine's firmware.
            Err(failure) if begun && self.still_waits(operation) && is_away(&failure) => {
                let text = format!("waiting for the BMC to answer: {}", failure.message);
                return Ok(self.at_work(operation, order, text).await);
            }
            Err(failure) => return Err(failure),
        };
        let waiting = self.live.timers().firmware.clone().filter(|wait| wait.of == operation.id());
        let open = look.seen.as_ref().map(|seen| seen.open(&wished));
        let shown = look.seen.as_ref().zip(open.as_ref());
        let facts = Facts {
            shown: shown.map(|(seen, open)| Shown { open: open.len(), pending: seen.is_pending(open) }),
            powered_on: look.sight.powered_on,
            begun,
            refused: look.refusal.is_some(),
            agent: order.work == Work::Prepare && self.shared.hub.any_agent(self.uid()).is_some(),
            in_use: order.work == Work::Service,
            waiting: waiting.map(|wait| Waiting { age: wait.since.elapsed(), asked: wait.asked }),
            limit: self.shared.settings.timing.firmware_settings,
        };
        let open = open.unwrap_or_default();
        let given = self.journal.data().given;
        let unwished = look.seen.as_ref().map(|seen| seen.unwished(&wished, &given)).unwrap_or_default();
        match firmware_settings::decide(&facts) {
            Decision::Nothing => {
                self.put_back(&look, &unwished, &open).await?;
                self.keep_given(&given).await?;
                Ok(Verdict::Done(()))
            }
            Decision::InForce => {
                self.put_back(&look, &unwished, &open).await?;
                self.live.timers().firmware = None;
                let text = format!("{} settings are in force", wished.len());
                done(operation, Step::SetFirmware, &text)?;
                succeed(operation, &text).await?;
                Ok(Verdict::Done(()))
            }
            Decision::AwaitSight => {
                self.waits_for_firmware(operation);
                Ok(self.at_work(operation, order, "waiting for the BMC to show the BIOS settings".to_owned()).await)
            }
            Decision::AwaitFirmware => {
                self.waits_for_firmware(operation);
                let said = look.unanswered.as_deref().map(unconfirmed).unwrap_or_default();
                let text = format!("waiting for the firmware to apply {}{said}", names(&open));
                Ok(self.at_work(operation, order, text).await)
            }
            // What was begun is not wished any more, and not under way: it is not begun again.
            Decision::Set { .. } if order.work == Work::Service && !order.is_new => {
                self.live.timers().firmware = None;
                self.journal.abandon(order.work.operation(), "what was to be set is not wished any more").await?;
                self.take_back().await
            }
            Decision::Set { write } => {
                if operation.firmware().is_none() {
                    operation.set_firmware(FirmwareWork { settings: wished, job: None });
                }
                if let Some(working) = self.before_a_service(order, &look).await? {
                    return Ok(Verdict::Working(working));
                }
                let write = write || !unwished.is_empty();
                let told = open.iter().chain(&unwished).map(|(name, value)| (name.clone(), value.clone())).collect();
                self.set_firmware(operation, order, &look, &told, write).await?;
                let text = format!("the machine restarts, so that its firmware applies {}", names(&open));
                Ok(self.at_work(operation, order, text).await)
            }
            Decision::Fail(fault) => {
                if fault == Fault::Runs {
                    self.put_back(&look, &unwished, &open).await?;
                }
                self.live.timers().firmware = None;
                Err(self.not_set(order, fault, &open, &look))
            }
        }
    }

    /// What a change that starts the machine has to be sure of: one that runs from a live ISO is told by no agent afterwards.
    fn effect_of_start(&self) -> Effect {
        if self.live_matters() { Effect::Live } else { Effect::Destroy }
    }

    /// The machine, its settings, and what the BMC says of the change.
    async fn look_at_firmware(&self, operation: &Operation, begun: bool) -> Result<Look, Failure> {
        let (bmc, sight) = self.proven(self.effect_of_start()).await?;
        let bios = bmc.bios().map_err(|lacking| {
            of_bmc(lacking.keeps_from("change the BIOS settings"))
                .advise("remove spec.settings of the HostFirmwareSettings, and change them in the firmware's own menu")
        })?;
        let seen = bios.seen(true).await.map_err(of_bmc)?;
        let mut refusal = None;
        if begun
            && let Some(job) = operation.firmware().and_then(|work| work.job.clone())
            && let JobState::Failed(found) = bios.job(&job).await.map_err(of_bmc)?
        {
            refusal = Some(format!("the BMC's job for it has failed: {found}"));
        }
        let wait = self.live.timers().firmware.clone().filter(|wait| wait.of == operation.id() && wait.asked);
        let unanswered = wait.as_ref().and_then(|wait| wait.unanswered.clone());
        if let (None, Some(wait), Some(seen)) = (&refusal, wait, &seen)
            && seen.applied.mark.is_some()
            && seen.applied.mark != wait.mark
            && !seen.applied.refusals.is_empty()
        {
            refusal = Some(seen.applied.refusals.join("; "));
        }
        Ok(Look { bmc, sight, seen, refusal, unanswered })
    }

    /// A live system is started with its medium in the drive: why that is not in yet.
    async fn before_a_service(&self, order: &Order, look: &Look) -> Result<Option<Working>, Failure> {
        self.recall_live(self.context.deployed.as_ref());
        if order.work != Work::Service || !self.live_matters() {
            return Ok(None);
        }
        self.ready_to_start(look.bmc.as_ref()).await
    }

    /// Records the intent, gives the BMC what is to be set, and has the machine start.
    async fn set_firmware(
        &self,
        operation: &mut Operation,
        order: &Order,
        look: &Look,
        told: &BTreeMap<String, String>,
        write: bool,
    ) -> Result<(), Failure> {
        if write {
            // Recorded with the intent: whoever withdraws the wish knows what to look for.
            self.journal.note(|data| {
                data.given.extend(told.clone());
                bound(&mut data.given, told);
            });
        }
        let attempt = Step::SetFirmware.recorded(operation.status()).attempt.unwrap_or(0).saturating_add(1);
        intend(operation, Step::SetFirmware, attempt, None).await?;
        let calls = look.bmc.calls();
        if write {
            let bmc = look.bmc.as_ref();
            let job = bmc.bios().map_err(of_bmc)?.set(told).await.map_err(of_bmc)?;
            if let Some(work) = operation.firmware().cloned().filter(|_| job.is_some()) {
                operation.set_firmware(FirmwareWork { job, ..work });
                // The job is recorded before the restart, so that whoever comes next knows it.
                intend(operation, Step::SetFirmware, attempt, None).await?;
            }
        }
        // A slow BMC has taken minutes for the settings.
        let (bmc, sight) = self.proven(self.effect_of_start()).await?;
        let bmc = bmc.as_ref();
        self.still_wanted().await?;
        let action = match (order.work, sight.powered_on) {
            // It has come on by itself: its firmware applies the settings at the next start.
            (Work::Service, Some(true)) => None,
            (Work::Service, _) => Some(PowerAction::On),
            _ => Some(PowerAction::Restart),
        };
        let changed = match action {
            Some(action) => bmc.power().change(action).await,
            None => Ok(()),
        };
        let unanswered = match changed {
            // What is in force later shows whether it happened.
            Err(error) if error.kind == ErrorKind::Unanswered => {
                tracing::warn!(host = %self.context.key.name, "{error}; waiting for the settings all the same");
                Some(untold(&error))
            }
            other => other.map(|()| None).map_err(of_bmc)?,
        };
        Self::account(operation, bmc, calls);
        self.shared.hub.forget_agent(self.uid());
        {
            let mark = look.seen.as_ref().and_then(|seen| seen.applied.mark.clone());
            let mut timers = self.live.timers();
            timers.firmware =
                Some(FirmwareWait { of: operation.id(), since: Instant::now(), asked: true, mark, unanswered });
            timers.power.restarted();
        }
        // The agent that ran there does not come back.
        self.journal.retire_boot().await.map_err(Failure::from)
    }

    /// Has the next restart bring nothing that was given to the BMC for an earlier wish. Calls no BMC that was given nothing.
    async fn take_back(&self) -> Outcome<()> {
        let given = self.journal.data().given;
        if !self.is_taken_back().await? {
            if self.waits_for(TAKING_BACK) {
                let text = "waiting for the BMC to show whether settings that are not wished any more are pending";
                return Ok(Verdict::working(text, LOOK_AGAIN));
            }
            self.live.timers().firmware = None;
            let text = format!(
                "take back the BIOS settings that are not wished any more ({}): the BMC does not show them",
                names(&given)
            );
            return Err(Failure::new(Cause::BmcRefused, text).advise(PENDING_REMAINS));
        }
        if !given.is_empty() {
            self.live.timers().firmware = None;
        }
        Ok(Verdict::Done(()))
    }

    /// The same, once: false if the BMC does not show what is pending.
    async fn is_taken_back(&self) -> Result<bool, Failure> {
        let given = self.journal.data().given;
        if given.is_empty() {
            return Ok(true);
        }
        let (bmc, sight) = self.proven(Effect::Destroy).await?;
        let seen = match bmc.bios() {
            Ok(bios) => bios.seen(true).await.map_err(of_bmc)?,
            // Nothing of it is left there.
            Err(_) => Some(BiosSeen::default()),
        };
        let Some(seen) = seen else { return Ok(false) };
        let unwished = seen.unwished(&BTreeMap::new(), &given);
        let look = Look { bmc, sight, seen: Some(seen), refusal: None, unanswered: None };
        self.put_back(&look, &unwished, &BTreeMap::new()).await?;
        self.keep_given(&given).await?;
        Ok(true)
    }

    /// Before a start that makes no change: what a change that has failed may have left pending at the BMC is taken back, or it would be in force then. Nobody
    /// waits for that with a machine that is to run. True if the BMC was asked anything.
    pub async fn starts_without_given(&self) -> bool {
        let given = self.journal.data().given;
        if given.is_empty() {
            return false;
        }
        let left = match self.is_taken_back().await {
            Ok(true) => return true,
            Ok(false) => "the BMC does not show them".to_owned(),
            Err(failure) => failure.message,
        };
        tracing::warn!(host = %self.context.key.name, "the machine is started with BIOS settings pending that no change makes ({}): {left}", names(&given));
        true
    }

    /// Gives the BMC the values that are in force, in place of pending ones that nobody wishes, and forgets what it was given, but for what is `open`.
    async fn put_back(
        &self,
        look: &Look,
        unwished: &BTreeMap<String, String>,
        open: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        if !unwished.is_empty() {
            self.still_wanted().await?;
            let bios = look.bmc.bios().map_err(of_bmc)?;
            bios.set(unwished).await.map_err(|error| {
                let mut failure = of_bmc(error);
                let names = names(unwished);
                failure.message =
                    format!("take back the BIOS settings that are not wished any more ({names}): {}", failure.message);
                if is_away(&failure) { failure } else { failure.advise(PENDING_REMAINS) }
            })?;
        }
        if !self.journal.data().given.is_empty() {
            self.journal.note(|data| data.given.retain(|name, _| open.contains_key(name)));
        }
        Ok(())
    }

    /// Records what may be pending at the BMC, if that is not what it was `before`.
    async fn keep_given(&self, before: &BTreeMap<String, String>) -> Result<(), Failure> {
        let data = self.journal.data();
        if data.given == *before {
            return Ok(());
        }
        self.journal.write(data, Purpose::Note).await.map_err(Failure::from)
    }

    /// Notes since when the firmware is waited for.
    fn waits_for_firmware(&self, operation: &Operation) {
        self.begin_wait(&operation.id());
    }

    fn begin_wait(&self, what: &str) {
        let mut timers = self.live.timers();
        if timers.firmware.as_ref().is_none_or(|wait| wait.of != what) {
            let (of, since) = (what.to_owned(), Instant::now());
            timers.firmware = Some(FirmwareWait { of, since, asked: false, mark: None, unanswered: None });
        }
    }

    /// Whether the wait for the firmware is within its limit; it begins now if there was none.
    fn still_waits(&self, operation: &Operation) -> bool {
        self.waits_for(&operation.id())
    }

    /// The same, of what this names.
    fn waits_for(&self, what: &str) -> bool {
        self.begin_wait(what);
        let limit = self.shared.settings.timing.firmware_settings;
        self.live.timers().firmware.as_ref().is_some_and(|wait| wait.since.elapsed() < limit)
    }

    async fn at_work(&self, operation: &mut Operation, order: &Order, text: String) -> Verdict<()> {
        let begun = Step::SetFirmware.begun(operation.status());
        if begun {
            let progress = StepProgress { message: text.clone(), ..StepProgress::default() };
            operation.progress(Step::SetFirmware.name(), progress).await;
        }
        Verdict::Working(Working {
            step: text,
            accepted: begun && order.is_new,
            look_again: Duration::from_secs(LOOK_AGAIN),
            ..Working::default()
        })
    }

    fn not_set(&self, order: &Order, fault: Fault, open: &BTreeMap<String, String>, look: &Look) -> Failure {
        let limit = self.shared.settings.timing.firmware_settings.as_secs();
        let names = names(open);
        match fault {
            Fault::Runs => {
                let text = "change the BIOS settings: the machine is in use and has come on without them; it is restarted only where its host asks for that";
                Failure::new(Cause::BmcRefused, text).advise("reboot the host (annotation reboot.metal3.io)")
            }
            Fault::NotShown if order.work == Work::Service && look.sight.powered_on == Some(false) => {
                let text = "change the BIOS settings: the BMC does not show them while the machine is off; it is switched on without the change";
                Failure::new(Cause::BmcRefused, text)
                    .advise("change them in the firmware's own menu, or before the host is provisioned; the next reboot tries it again")
            }
            Fault::NotShown => {
                let text = format!("change the BIOS settings: for {limit} s the BMC has not shown them");
                Failure::new(Cause::BmcRefused, text)
                    .advise("look at the machine's console, and restart the BMC; it is tried again")
            }
            Fault::NotApplied => {
                let said = look.refusal.as_deref().unwrap_or("it does not say why");
                let text = format!("change the BIOS settings: the BMC took {names}, and did not apply all: {said}");
                Failure::new(Cause::BmcRefused, text)
                    .advise("correct spec.settings of the HostFirmwareSettings; see the BMC's log and jobs")
            }
            Fault::NotInForce => {
                let said = look.seen.as_ref().map(|seen| seen.applied.refusals.join("; ")).unwrap_or_default();
                let said = if said.is_empty() { said } else { format!(" (the BMC says: {said})") };
                let text = match &look.unanswered {
                    None => format!(
                        "change the BIOS settings: {limit} s after the machine's restart, {names} are not in force{said}"
                    ),
                    Some(untold) => format!(
                        "change the BIOS settings: {limit} s after the machine was to restart, {names} are not in force{said}; the restart was not confirmed: {untold}"
                    ),
                };
                Failure::new(Cause::BmcRefused, text).advise(
                    "look at the BMC's jobs and at the machine's console: the firmware may wait there, or refuse the values; it is tried again",
                )
            }
        }
    }
}

/// Keeps the newest of what was given, if all of it is too much for the record, and of that no more than fits.
fn bound(given: &mut BTreeMap<String, String>, newest: &BTreeMap<String, String>) {
    let size = |(name, value): (&String, &String)| name.len().saturating_add(value.len()).saturating_add(8);
    if given.iter().map(size).sum::<usize>() > MAX_CHANGE {
        given.clone_from(newest);
    }
    let mut room = MAX_CHANGE;
    given.retain(|name, value| {
        let left = room.checked_sub(size((name, value)));
        room = left.unwrap_or(room);
        left.is_some()
    });
}

/// What is larger does not fit the record.
fn not_too_many(wished: &BTreeMap<String, String>) -> Result<(), Failure> {
    if serde_json::to_string(wished).map_or(usize::MAX, |text| text.len()) <= MAX_CHANGE {
        return Ok(());
    }
    let text = format!("change the BIOS settings: their names and values have more than {MAX_CHANGE} bytes");
    Err(Failure::new(Cause::InvalidRequest, text).advise("change fewer at once"))
}

/// A BMC that may come back.
const fn is_away(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::BmcUnreachable | Cause::BmcBusy)
}

fn text(value: &Setting) -> String {
    match value {
        Setting::Number(number) => number.to_string(),
        Setting::Text(text) => text.clone(),
    }
}

/// The settings' names, some of them if there are many.
fn names(settings: &BTreeMap<String, String>) -> String {
    let named: Vec<&str> = settings.keys().take(MAX_NAMED).map(String::as_str).collect();
    let more = settings.len().saturating_sub(MAX_NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", named.join(", "))
}
