//! One host, one reconcile: registration, power, inspection, deployment.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::InspectionMode;
use api::metamorph::OperationPhase;
use async_trait::async_trait;
use inventory::Inspected;
use jiff::Timestamp;
use provisioner::{
    AdoptRequest, Cause, CleaningRequest, CustomDeploy, DataImages, Deploy, Deprovisioned, Diagnose, Erase, Events,
    Failure, Firmware, Health, Host, HostContext, Inspect, InspectRequest, LiveMedia, Locate, Logs, Manage, Method,
    Outcome, Power, PowerRequest, PowerWish, Prepare, ProvisionRequest, Purpose, RecordError, RegisterRequest,
    Registered, ReleaseRequest, Retry, Service, Steps, Verdict, Waiting, Working,
};

use crate::demo::{self, Stage};
use crate::hardware;
use crate::journal::{Journal, Kind, show};
use crate::machines::{Effect, Leaves, Trouble, silent};
use crate::names::{UPSTREAMS_ID, id_prefix};
use crate::shared::Shared;
use crate::work::Plan;

/// How long upstream's fixture takes. Its registration asks to be looked at again after five seconds, and is at once: what the operator writes to the
/// Secret meanwhile wakes the host. Upstream's end-to-end tests count on that.
const REGISTRATION: Duration = Duration::from_millis(200);
const INSPECTION: Duration = Duration::from_secs(2);
const ADOPTION: Duration = Duration::from_secs(3);
const DEPLOYMENT: Duration = Duration::from_secs(10);

/// One host for one reconcile.
pub struct FixtureHost {
    /// What all hosts share.
    pub shared: Arc<Shared>,
    /// What is known of it.
    pub context: HostContext,
    /// What is remembered of it.
    pub journal: Journal,
}

impl Host for FixtureHost {
    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        Some(self)
    }
    fn service(&mut self) -> Option<&mut dyn Service> {
        Some(self)
    }
    fn erase(&mut self) -> Option<&mut dyn Erase> {
        Some(self)
    }
    fn steps(&mut self) -> Option<&mut dyn Steps> {
        Some(self)
    }
    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        Some(self)
    }
    fn custom_deploy(&mut self) -> Option<&mut dyn CustomDeploy> {
        Some(self)
    }
    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        Some(self)
    }
    fn events(&mut self) -> Option<&mut dyn Events> {
        Some(self)
    }
    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        Some(self)
    }
    fn health(&mut self) -> Option<&mut dyn Health> {
        Some(self)
    }
    fn diagnose(&mut self) -> Option<&mut dyn Diagnose> {
        Some(self)
    }
    fn logs(&mut self) -> Option<&mut dyn Logs> {
        Some(self)
    }
    fn locate(&mut self) -> Option<&mut dyn Locate> {
        Some(self)
    }
}

/// Whose mark a host's systems carry.
pub fn owner(context: &HostContext) -> String {
    let id = &context.provisioning_id;
    // Upstream's fixture has one id for all.
    if id.is_empty() || id == UPSTREAMS_ID { context.key.uid.clone() } else { id.clone() }
}

impl FixtureHost {
    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.context.now)()
    }

    /// Where the machine is.
    pub fn address(&self) -> String {
        self.context.address.clone()
    }

    /// Whose mark this host's systems carry.
    pub fn owner(&self) -> String {
        owner(&self.context)
    }

    /// The serial number of the machine that answers.
    pub fn serial(&self) -> String {
        let another = self.look(|machine| machine.has(Trouble::Another));
        format!("fixture:{}{}", self.address(), if another { ":another" } else { "" })
    }

    /// Looks at the machine.
    pub fn look<T>(&self, look: impl FnOnce(&mut crate::machines::Machine) -> T) -> T {
        self.shared.machines.look(&self.address(), self.now(), look)
    }

    /// Asked before each effect, and after each record.
    ///
    /// # Errors
    /// When another process leads.
    pub fn leads(&self) -> Result<(), Failure> {
        if (self.context.may_act)() {
            return Ok(());
        }
        Err(Failure::new(Cause::NotLeading, "use the machine: another process leads"))
    }

    /// The machine answers.
    ///
    /// # Errors
    /// When it does not, or this process may not ask it.
    pub fn reached(&self) -> Result<(), Failure> {
        self.leads()?;
        if self.context.address.is_empty() {
            let mut failure = Failure::new(Cause::BmcAddressInvalid, "reach the BMC: the host has no address");
            failure.retry = Retry::AfterChange;
            return Err(failure.advise("set spec.bmc.address"));
        }
        if self.look(|machine| machine.has(Trouble::Silent)) { Err(silent(&self.address())) } else { Ok(()) }
    }

    /// What has to happen before the machine can be used.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn ready(&self) -> Result<Option<Waiting>, Failure> {
        self.reached()?;
        let forgotten = self.look(|machine| machine.has(Trouble::Forgotten));
        Ok(forgotten.then(|| Waiting::Registration { reason: "the fixture's machine was forgotten".to_owned() }))
    }

    /// Records what is in the journal now.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record(&mut self, purpose: Purpose) -> Result<(), RecordError> {
        self.journal.write(&self.context, &self.shared.memory, purpose).await
    }

    /// Tells the machine something that may be told twice.
    ///
    /// # Errors
    /// When this process may not, or the machine does not do it.
    pub async fn tell<T: Send>(
        &self,
        effect: Effect,
        act: impl FnOnce(&mut crate::machines::Machine) -> Result<(bool, T), Failure> + Send,
    ) -> Result<T, Failure> {
        self.leads()?;
        self.shared.machines.order(&self.address(), (effect, self.now()), act).await
    }

    fn passed(&self, since: Timestamp, time: Duration) -> bool {
        Duration::try_from(self.now().duration_since(since)).is_ok_and(|passed| passed >= time)
    }

    async fn system(&mut self, request: ProvisionRequest, what: String, effect: Effect) -> Outcome<()> {
        self.shared.memory.asks(&self.context.key.uid);
        if let Some(answer) = demo::answer(&self.context.key.name, Stage::Provision) {
            return answer;
        }
        if what.is_empty() {
            let mut failure = Failure::new(Cause::InvalidRequest, "provision the host: it names no image");
            failure.retry = Retry::AfterChange;
            return Err(failure.advise("set spec.image.url"));
        }
        let leaves = Leaves::System(what, self.owner());
        let force_reboot = request.force_reboot;
        let plan = Plan { kind: Kind::Provision, effect, leaves, time: DEPLOYMENT, restart: false, force_reboot };
        self.work(plan, request.wish.as_deref(), request.overwrite_owner.as_deref()).await
    }
}

#[async_trait]
impl Manage for FixtureHost {
    async fn register(&mut self, _: RegisterRequest) -> Outcome<Registered> {
        self.reached()?;
        if let Some(answer) = demo::answer(&self.context.key.name, Stage::Register) {
            return answer;
        }
        let (now, serial) = (self.now(), self.serial());
        let is_known = !self.context.provisioning_id.is_empty();
        let since = match self.journal.data.registering {
            Some(since) => since,
            None => {
                self.journal.data.registering = Some(now);
                if !is_known && self.journal.data.number == 0 {
                    self.journal.data.unwritten = Some(self.context.key.uid.clone());
                }
                self.journal.data.machine.get_or_insert(serial);
                self.record(Purpose::Note).await?;
                now
            }
        };
        if !is_known && !self.passed(since, REGISTRATION) {
            let working = Working { step: "registering".to_owned(), look_again: REGISTRATION, ..Working::default() };
            return Ok(Verdict::Working(working));
        }
        self.shared.machines.trouble(&self.address(), Trouble::Forgotten, false);
        let id = &self.context.provisioning_id;
        let id = if is_known {
            id.clone()
        } else {
            format!("{}{}", id_prefix(self.shared.memory.name), self.context.key.uid)
        };
        Ok(Verdict::Done(Registered { id, powered_on: Some(self.look(|machine| machine.on)), recognized: false }))
    }

    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        if let Some(waiting) = self.ready()? {
            return Ok(Verdict::Waiting(waiting));
        }
        // What it has put there itself it need not take over, unless the machine, which exists in memory, has lost it.
        let image = request.deployed.image.map(|image| image.url);
        let lost = image.is_some() && self.look(|machine| machine.system.is_none());
        let is_provisioning = self.journal.data.work.as_ref().is_some_and(|work| work.kind == Kind::Provision);
        if is_provisioning && !lost {
            return Ok(Verdict::Done(()));
        }
        let since = match self.journal.data.adopting {
            Some(since) => since,
            None => {
                let now = self.now();
                self.journal.data.adopting = Some(now);
                self.record(Purpose::Note).await?;
                now
            }
        };
        if !self.passed(since, ADOPTION) {
            return Ok(Verdict::working("taking over what is on the machine", ADOPTION.as_secs()));
        }
        if let Some(image) = image.filter(|_| lost) {
            let owner = self.owner();
            self.shared.machines.put(&self.address(), Some((image, owner)));
        }
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        self.leads()?;
        let last = self.journal.data.work.as_ref().map(|work| work.id.clone());
        let ended = self.journal.end(self.now(), OperationPhase::Cancelled, None);
        let registered = self.journal.data.registering.take().is_some();
        self.journal.data.adopting = None;
        if ended.is_some() || registered {
            match self.record(Purpose::Note).await {
                // A namespace that goes takes no new objects.
                Err(error) if self.context.deleting && !error.not_leading => {
                    tracing::warn!(host = %self.context.key.name, %error, "let go");
                }
                other => other?,
            }
        }
        if let Some(work) = ended {
            show(&self.context, &work, None).await;
        }
        let (now, id) = (self.now(), last.unwrap_or_default());
        let runs = |machine: &mut crate::machines::Machine| {
            matches!(machine.standing(&id, now), crate::machines::Standing::Running { .. })
        };
        if self.look(runs) {
            let stopped = self.tell(Effect::Stop, |machine| Ok((machine.stop(&id), ()))).await;
            match stopped {
                Err(failure) if request.force && failure.cause != Cause::NotLeading => {
                    tracing::warn!(host = %self.context.key.name, "let go by force: {}", failure.message);
                }
                other => other?,
            }
        }
        if !request.force {
            self.reached()?;
        }
        self.shared.memory.forget(&self.context.key.uid);
        Ok(Verdict::Done(()))
    }
}

impl FixtureHost {
    /// Whether an erase is to be ended and nothing to be removed: by the record, the newest work is an erase of this very round; or the host says that it
    /// was here to be erased, and the record does not say that something was being put on the machine, or taken off.
    fn ends_erase(&self, request: &CleaningRequest) -> bool {
        let is_deployed = request.deployed.image.is_some() || request.deployed.method != Method::Disk;
        let Some(work) = self.journal.data.work.as_ref().filter(|_| !is_deployed) else {
            return request.empty && !is_deployed;
        };
        match work.kind {
            Kind::Erase | Kind::Steps => {
                let begun = work.wish.as_ref().and_then(|wish| wish.split(' ').next());
                request.empty || request.wish.is_some() && begun == request.wish.as_deref()
            }
            Kind::Provision => request.empty && self.journal.data.unwritten.as_ref() == Some(&self.context.key.uid),
            Kind::Deprovision => request.empty && work.phase == OperationPhase::Succeeded,
            Kind::Inspect | Kind::Prepare | Kind::Service => request.empty,
        }
    }

    /// Ends the work under way, and what the machine does of it.
    async fn work_ends(&mut self) -> Result<(), Failure> {
        let last = self.journal.data.work.as_ref().map(|work| work.id.clone());
        if let Some(work) = self.journal.end(self.now(), OperationPhase::Cancelled, None) {
            self.record(Purpose::Note).await?;
            show(&self.context, &work, None).await;
        }
        let (now, id) = (self.now(), last.unwrap_or_default());
        let runs = |machine: &mut crate::machines::Machine| {
            matches!(machine.standing(&id, now), crate::machines::Standing::Running { .. })
        };
        if self.look(runs) {
            self.tell(Effect::Stop, |machine| Ok((machine.stop(&id), ()))).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Power for FixtureHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        self.shared.machines.power_is_read();
        self.shared.memory.rests(&self.context.key.uid);
        match self.ready()? {
            Some(waiting) => Ok(Verdict::Waiting(waiting)),
            None => Ok(Verdict::Done(Some(self.look(|machine| machine.on)))),
        }
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.shared.memory.rests(&self.context.key.uid);
        if let Some(waiting) = self.ready()? {
            return Ok(Verdict::Waiting(waiting));
        }
        let on = self.look(|machine| machine.on);
        let (effect, wished) = match request.power {
            PowerWish::On => (Effect::On, true),
            // Its power must never be cut: it is started anew instead.
            PowerWish::SoftOff | PowerWish::HardOff if self.context.disable_power_off => (Effect::Restart, true),
            PowerWish::SoftOff | PowerWish::HardOff => (Effect::Off, false),
        };
        if on != wished || effect == Effect::Restart {
            self.tell(effect, |machine| {
                machine.on = wished;
                Ok((true, ()))
            })
            .await?;
        }
        Ok(Verdict::Done(wished))
    }
}

#[async_trait]
impl Inspect for FixtureHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<Inspected>> {
        self.reached()?;
        self.shared.memory.rests(&self.context.key.uid);
        if let Some(answer) = demo::answer(&self.context.key.name, Stage::Inspect) {
            return answer;
        }
        let (effect, leaves) = (Effect::Inspect, Leaves::Nothing);
        let is_fast = request.mode == Some(InspectionMode::Fast);
        let InspectRequest { restart, force_reboot, .. } = request;
        let plan = Plan { kind: Kind::Inspect, effect, leaves, time: INSPECTION, restart, force_reboot };
        let verdict = self.work(plan, request.wish.as_deref(), None).await?;
        let (serial, boot_mac) = (self.serial(), self.context.boot_mac.clone());
        let found = hardware::details(&serial, boot_mac.as_deref());
        let found = if is_fast { hardware::listed(found) } else { found };
        Ok(verdict.map(|()| Box::new(Inspected::from(found))))
    }
}

#[async_trait]
impl Deploy for FixtureHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        let what = request.image.url.clone();
        self.system(request, what, Effect::Provision).await
    }

    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned> {
        if self.ends_erase(&request) {
            self.leads()?;
            self.work_ends().await?;
            return Ok(Verdict::Done(Deprovisioned { wiped: false, untouched: true }));
        }
        let is_deployed = request.deployed.image.is_some() || request.deployed.method != Method::Disk;
        let uid = &self.context.key.uid;
        let ends_attempt = self.shared.memory.ends_attempt(uid, request.wish.as_deref());
        if !is_deployed && ends_attempt && self.journal.data.unwritten.as_ref() == Some(uid) {
            self.leads()?;
            return Ok(Verdict::Done(Deprovisioned { wiped: false, untouched: true }));
        }
        let (effect, leaves) = match (request.clean, self.context.disable_power_off) {
            (true, _) => (Effect::Deprovision, Leaves::Emptiness),
            (false, true) => (Effect::Vacate, Leaves::Nothing),
            (false, false) => (Effect::Vacate, Leaves::Darkness),
        };
        let restart = request.restart;
        let plan = Plan { kind: Kind::Deprovision, effect, leaves, time: DEPLOYMENT, restart, force_reboot: false };
        let verdict = self.work(plan, request.wish.as_deref(), request.overwrite_owner.as_deref()).await?;
        Ok(verdict.map(|()| Deprovisioned { wiped: request.clean, untouched: false }))
    }
}

#[async_trait]
impl LiveMedia for FixtureHost {
    async fn boot_live(&mut self, request: ProvisionRequest) -> Outcome<()> {
        let what = request.image.url.clone();
        self.system(request, what, Effect::BootLive).await
    }
}

#[async_trait]
impl CustomDeploy for FixtureHost {
    async fn deploy(&mut self, request: ProvisionRequest) -> Outcome<()> {
        let what = match &request.method {
            Method::Custom(method) => method.clone(),
            Method::Disk | Method::LiveIso => String::new(),
        };
        self.system(request, what, Effect::Deploy).await
    }
}
