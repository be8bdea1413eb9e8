//! One host of a worker: each call of the contract is asked, and its answer is held against what the call gives.

use std::sync::Arc;

use api::metamorph::{CollectedLog, Erasure, StepsReport};
use async_trait::async_trait;
use inventory::Inspected;
use provisioner::{
    AdoptRequest, Answer, Attached, Call, Capabilities, Cause, CleaningRequest, CustomDeploy, DataImages, Deploy,
    Deprovisioned, Diagnose, Erase, EraseRequest, Events, Evidence, EvidenceBudget, Failure, Finding, Firmware,
    FirmwareFacts, Health, HealthState, Host, HostContext, HostResource, Inspect, InspectRequest, LiveMedia, Locate,
    LocateRequest, Logs, Manage, Outcome, Power, PowerRequest, Prepare, PrepareRequest, ProvisionRequest,
    RegisterRequest, Registered, ReleaseRequest, Service, ServiceRequest, Steps, StepsRequest, Subscription, TestMedia,
    TestMedium, TestMediumRequest, Unsubscription, Verdict,
};
use tokio::time::timeout_at;

use crate::shared::Shared;

/// One host for one reconcile.
pub struct ExternalHost {
    /// What all hosts share.
    pub shared: Arc<Shared<HostResource>>,
    /// What is known of it.
    pub context: HostContext,
    /// What the worker can do with it.
    pub capabilities: Capabilities,
}

impl ExternalHost {
    async fn ask<T>(&self, call: Call, expected: impl FnOnce(Answer) -> Option<T> + Send) -> Outcome<T> {
        let name = call.name();
        if goes_on(&call) {
            // Whoever wished to let it go by force has taken that back.
            self.shared.unforced(&self.context.key);
        }
        match self.shared.ask(&self.context, call).await? {
            Verdict::Done(answer) => expected(answer).map(Verdict::Done).ok_or_else(|| {
                let text = format!(
                    "ask the provisioner \"{}\": {name} is answered as if something else had been asked",
                    self.shared.name
                );
                Failure::new(Cause::ProvisionerFailed, text)
                    .advise("report it to whoever makes that program; it is asked again")
            }),
            Verdict::Working(working) => Ok(Verdict::Working(working)),
            Verdict::Waiting(waiting) => Ok(Verdict::Waiting(waiting)),
        }
    }

    async fn done(&self, call: Call) -> Outcome<()> {
        self.ask(call, |answer| matches!(answer, Answer::Done).then_some(())).await
    }
}

/// Whether a call is what a host is asked for that stays.
const fn goes_on(call: &Call) -> bool {
    matches!(
        call,
        Call::Register(_)
            | Call::Adopt(_)
            | Call::PowerState
            | Call::SetPower(_)
            | Call::Inspect(_)
            | Call::Prepare(_)
            | Call::Provision(_)
            | Call::Service(_)
            | Call::Deprovision(_)
            | Call::Erase(_)
            | Call::RunSteps(_)
    )
}

macro_rules! given {
    ($answer:ident) => {
        |answer| match answer {
            Answer::$answer(value) => Some(value),
            _ => None,
        }
    };
}

impl Host for ExternalHost {
    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        self.capabilities.prepares().then_some(self as &mut dyn Prepare)
    }
    fn service(&mut self) -> Option<&mut dyn Service> {
        self.capabilities.service.then_some(self as &mut dyn Service)
    }
    fn erase(&mut self) -> Option<&mut dyn Erase> {
        self.capabilities.erase.then_some(self as &mut dyn Erase)
    }
    fn steps(&mut self) -> Option<&mut dyn Steps> {
        self.capabilities.steps.then_some(self as &mut dyn Steps)
    }
    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        self.capabilities.live_iso.then_some(self as &mut dyn LiveMedia)
    }
    fn custom_deploy(&mut self) -> Option<&mut dyn CustomDeploy> {
        self.capabilities.custom_deploy.then_some(self as &mut dyn CustomDeploy)
    }
    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        self.capabilities.data_images.then_some(self as &mut dyn DataImages)
    }
    fn events(&mut self) -> Option<&mut dyn Events> {
        self.capabilities.events.then_some(self as &mut dyn Events)
    }
    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        (self.capabilities.firmware_settings || self.capabilities.reads_components())
            .then_some(self as &mut dyn Firmware)
    }
    fn health(&mut self) -> Option<&mut dyn Health> {
        self.capabilities.health.then_some(self as &mut dyn Health)
    }
    fn diagnose(&mut self) -> Option<&mut dyn Diagnose> {
        self.capabilities.diagnose.then_some(self as &mut dyn Diagnose)
    }
    fn test_media(&mut self) -> Option<&mut dyn TestMedia> {
        self.capabilities.test_medium.then_some(self as &mut dyn TestMedia)
    }
    fn logs(&mut self) -> Option<&mut dyn Logs> {
        self.capabilities.logs.then_some(self as &mut dyn Logs)
    }
    fn locate(&mut self) -> Option<&mut dyn Locate> {
        self.capabilities.locate.then_some(self as &mut dyn Locate)
    }
}

#[async_trait]
impl Manage for ExternalHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        self.ask(Call::Register(request), given!(Registered)).await
    }
    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        self.done(Call::Adopt(request)).await
    }
    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        let key = &self.context.key;
        if !request.force {
            self.shared.unforced(key);
            return self.done(Call::Release(request)).await;
        }
        let end = self.shared.forced(key);
        let answer = timeout_at(end, self.done(Call::Release(request))).await;
        self.shared.by_force(key, end, answer.ok())
    }
}

#[async_trait]
impl Power for ExternalHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        self.ask(Call::PowerState, given!(Power)).await
    }
    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.ask(Call::SetPower(request), |answer| if let Answer::Power(on) = answer { on } else { None }).await
    }
}

#[async_trait]
impl Inspect for ExternalHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<Inspected>> {
        self.ask(Call::Inspect(request), given!(Inspected)).await
    }
}

#[async_trait]
impl Deploy for ExternalHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        self.done(Call::Provision(Box::new(request))).await
    }
    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned> {
        self.ask(Call::Deprovision(Box::new(request)), given!(Deprovisioned)).await
    }
}

#[async_trait]
impl Erase for ExternalHost {
    async fn erase(&mut self, request: EraseRequest) -> Outcome<Erasure> {
        self.ask(Call::Erase(Box::new(request)), |answer| {
            if let Answer::Erased(erasure) = answer { Some(*erasure) } else { None }
        })
        .await
    }
}

#[async_trait]
impl Steps for ExternalHost {
    async fn run_steps(&mut self, request: StepsRequest) -> Outcome<StepsReport> {
        self.ask(Call::RunSteps(Box::new(request)), |answer| {
            if let Answer::Stepped(report) = answer { Some(report.bounded()) } else { None }
        })
        .await
    }
}

#[async_trait]
impl LiveMedia for ExternalHost {
    async fn boot_live(&mut self, request: ProvisionRequest) -> Outcome<()> {
        self.done(Call::Provision(Box::new(request))).await
    }
    async fn findings(&mut self) -> Outcome<Vec<Finding>> {
        self.ask(Call::LiveFindings, given!(Findings)).await
    }
}

#[async_trait]
impl CustomDeploy for ExternalHost {
    async fn deploy(&mut self, request: ProvisionRequest) -> Outcome<()> {
        self.done(Call::Provision(Box::new(request))).await
    }
}

#[async_trait]
impl Prepare for ExternalHost {
    async fn prepare(&mut self, request: PrepareRequest) -> Outcome<()> {
        self.done(Call::Prepare(Box::new(request))).await
    }
    async fn abort(&mut self) -> Outcome<()> {
        self.done(Call::AbortPrepare).await
    }
}

#[async_trait]
impl Service for ExternalHost {
    async fn service(&mut self, request: ServiceRequest) -> Outcome<()> {
        self.done(Call::Service(Box::new(request))).await
    }
    async fn abort(&mut self) -> Outcome<()> {
        self.done(Call::AbortService).await
    }
}

#[async_trait]
impl DataImages for ExternalHost {
    async fn check(&mut self, url: String) -> Outcome<()> {
        self.done(Call::CheckImage { url }).await
    }
    async fn attached(&mut self) -> Outcome<Attached> {
        self.ask(Call::AttachedImage, given!(Attached)).await
    }
    async fn attach(&mut self, url: String) -> Outcome<()> {
        self.done(Call::AttachImage { url }).await
    }
    async fn detach(&mut self) -> Outcome<()> {
        self.done(Call::DetachImage).await
    }
}

#[async_trait]
impl Events for ExternalHost {
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String> {
        self.ask(Call::Subscribe(subscription), given!(Subscribed)).await
    }
    async fn unsubscribe(&mut self, subscription: Unsubscription) -> Outcome<()> {
        self.done(Call::Unsubscribe(subscription)).await
    }
}

#[async_trait]
impl Firmware for ExternalHost {
    async fn facts(&mut self, bounds: bool) -> Outcome<FirmwareFacts> {
        self.ask(Call::FirmwareFacts { bounds }, given!(Firmware)).await
    }
}

#[async_trait]
impl Health for ExternalHost {
    async fn state(&mut self) -> Outcome<HealthState> {
        self.ask(Call::Health, given!(Health)).await
    }
}

#[async_trait]
impl Diagnose for ExternalHost {
    async fn evidence(&mut self, budget: EvidenceBudget) -> Outcome<Box<Evidence>> {
        let answer = self.ask(Call::Diagnose(budget), given!(Evidence)).await?;
        // What a worker says is anybody's, as is what a BMC says.
        Ok(answer.map(|evidence| Box::new(evidence.bounded())))
    }
}

#[async_trait]
impl TestMedia for ExternalHost {
    async fn test_medium(&mut self, request: TestMediumRequest) -> Outcome<Box<TestMedium>> {
        let answer = self.ask(Call::TestMedium(request), given!(Tested)).await?;
        Ok(answer.map(|tested| Box::new(tested.bounded())))
    }
}

#[async_trait]
impl Logs for ExternalHost {
    async fn collect(&mut self) -> Outcome<Vec<CollectedLog>> {
        self.ask(Call::CollectLogs, given!(Logs)).await
    }
}

#[async_trait]
impl Locate for ExternalHost {
    async fn switch_light(&mut self, request: LocateRequest) -> Outcome<String> {
        self.ask(Call::Locate(request), given!(Located)).await
    }
}
