//! A call of a host as data, and the way from it to the trait: what travels between programs, what a controller decides on, and what
//! scenarios of tests are written in.

use api::metamorph::{CollectedLog, Erasure, StepsReport};
use diagnosis::{Evidence, TestMedium};
use inventory::Inspected;
use serde::{Deserialize, Serialize};

use crate::{
    AdoptRequest, Attached, Cause, CleaningRequest, Deprovisioned, EraseRequest, EvidenceBudget, Failure, Finding,
    FirmwareFacts, HealthState, Host, InspectRequest, LocateRequest, Method, Outcome, PowerRequest, PrepareRequest,
    ProvisionRequest, RegisterRequest, Registered, ReleaseRequest, Retry, ServiceRequest, StepsRequest, Subscription,
    TestMediumRequest, Unsubscription,
};

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", content = "request", rename_all = "camelCase")]
pub enum Call {
    /// [`crate::Manage::register`].
    Register(RegisterRequest),
    /// [`crate::Manage::adopt`].
    Adopt(AdoptRequest),
    /// [`crate::Manage::release`].
    Release(ReleaseRequest),
    /// [`crate::Power::power_state`].
    PowerState,
    /// [`crate::Power::set_power`].
    SetPower(PowerRequest),
    /// [`crate::Inspect::inspect`].
    Inspect(InspectRequest),
    /// [`crate::Prepare::prepare`].
    Prepare(Box<PrepareRequest>),
    /// [`crate::Deploy::provision`], [`crate::LiveMedia::boot_live`] or [`crate::CustomDeploy::deploy`], by the request's method.
    Provision(Box<ProvisionRequest>),
    /// [`crate::Deploy::deprovision`].
    Deprovision(Box<CleaningRequest>),
    /// [`crate::Erase::erase`].
    Erase(Box<EraseRequest>),
    /// [`crate::Steps::run_steps`].
    RunSteps(Box<StepsRequest>),
    /// [`crate::Service::service`].
    Service(Box<ServiceRequest>),
    /// [`crate::Service::abort`].
    AbortService,
    /// [`crate::Prepare::abort`].
    AbortPrepare,
    /// [`crate::LiveMedia::findings`].
    LiveFindings,
    /// [`crate::DataImages::check`].
    CheckImage {
        /// Where the medium is.
        url: String,
    },
    /// [`crate::DataImages::attached`].
    AttachedImage,
    /// [`crate::DataImages::attach`].
    AttachImage {
        /// Where the medium is.
        url: String,
    },
    /// [`crate::DataImages::detach`].
    DetachImage,
    /// [`crate::Events::subscribe`].
    Subscribe(Subscription),
    /// [`crate::Events::unsubscribe`].
    Unsubscribe(Unsubscription),
    /// [`crate::Firmware::facts`].
    FirmwareFacts {
        /// With the bounds of settings.
        bounds: bool,
    },
    /// [`crate::Health::state`].
    Health,
    /// [`crate::Diagnose::evidence`].
    Diagnose(EvidenceBudget),
    /// [`crate::Logs::collect`].
    CollectLogs,
    /// [`crate::Locate::switch_light`].
    Locate(LocateRequest),
    /// [`crate::TestMedia::test_medium`].
    TestMedium(TestMediumRequest),
}

impl Call {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Register(_) => "register",
            Self::Adopt(_) => "adopt",
            Self::Release(_) => "release",
            Self::PowerState => "powerState",
            Self::SetPower(_) => "setPower",
            Self::Inspect(_) => "inspect",
            Self::Prepare(_) => "prepare",
            Self::Provision(_) => "provision",
            Self::Deprovision(_) => "deprovision",
            Self::Erase(_) => "erase",
            Self::RunSteps(_) => "runSteps",
            Self::Service(_) => "service",
            Self::AbortService => "abortService",
            Self::AbortPrepare => "abortPrepare",
            Self::LiveFindings => "liveFindings",
            Self::CheckImage { .. } => "checkImage",
            Self::AttachedImage => "attachedImage",
            Self::AttachImage { .. } => "attachImage",
            Self::DetachImage => "detachImage",
            Self::Subscribe(_) => "subscribe",
            Self::Unsubscribe(_) => "unsubscribe",
            Self::FirmwareFacts { .. } => "firmwareFacts",
            Self::Health => "health",
            Self::Diagnose(_) => "diagnose",
            Self::CollectLogs => "collectLogs",
            Self::Locate(_) => "locate",
            Self::TestMedium(_) => "testMedium",
        }
    }
}

/// What a call that is done gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "camelCase")]
pub enum Answer {
    /// Nothing but that.
    Done,
    /// The machine is registered.
    Registered(Registered),
    /// What was provisioned is removed.
    Deprovisioned(Deprovisioned),
    /// Erasing has come to its end.
    Erased(Box<Erasure>),
    /// Steps of hardware managers have come to their end.
    Stepped(Box<StepsReport>),
    /// The power state seen, if it was.
    Power(Option<bool>),
    /// What inspection found.
    Inspected(Box<Inspected>),
    /// The medium that is in.
    Attached(Attached),
    /// Id of the subscription.
    Subscribed(String),
    /// What the firmware is.
    Firmware(FirmwareFacts),
    /// How the machine is.
    Health(HealthState),
    /// What is wrong with a live system's medium.
    Findings(Vec<Finding>),
    /// What was read about the machine.
    Evidence(Box<Evidence>),
    /// What was written down.
    Logs(Vec<CollectedLog>),
    /// The locating light is as asked for: which light that is, a clause.
    Located(String),
    /// What has become of a medium that the BMC was to read.
    Tested(Box<TestMedium>),
}

/// Why a host that lacks what is asked for does not answer.
fn not_served(call: &'static str) -> Failure {
    let mut failure = Failure::new(Cause::NotServed, format!("{call}: the provisioner of this host does not serve it"));
    failure.retry = Retry::AfterChange;
    failure.advise("take the wish back, or choose another provisioner for this host")
}

/// Asks the host.
///
/// # Errors
/// The failure that the host answers with; [`Cause::NotServed`] if it does not have what is asked for.
pub async fn ask(host: &mut dyn Host, call: Call) -> Outcome<Answer> {
    let name = call.name();
    let missing = || not_served(name);
    let done = |()| Answer::Done;
    Ok(match call {
        Call::Register(request) => host.register(request).await?.map(Answer::Registered),
        Call::Adopt(request) => host.adopt(request).await?.map(done),
        Call::Release(request) => host.release(request).await?.map(done),
        Call::PowerState => host.power_state().await?.map(Answer::Power),
        Call::SetPower(request) => host.set_power(request).await?.map(|on| Answer::Power(Some(on))),
        Call::Inspect(request) => host.inspect(request).await?.map(Answer::Inspected),
        Call::Prepare(request) => host.prepare().ok_or_else(missing)?.prepare(*request).await?.map(done),
        Call::Provision(request) => match request.method {
            Method::Disk => host.provision(*request).await?.map(done),
            Method::LiveIso => host.live_media().ok_or_else(missing)?.boot_live(*request).await?.map(done),
            Method::Custom(_) => host.custom_deploy().ok_or_else(missing)?.deploy(*request).await?.map(done),
        },
        Call::Deprovision(request) => host.deprovision(*request).await?.map(Answer::Deprovisioned),
        Call::Erase(request) => {
            let erased = host.erase().ok_or_else(missing)?.erase(*request).await?;
            erased.map(|erasure| Answer::Erased(Box::new(erasure)))
        }
        Call::RunSteps(request) => {
            let ran = host.steps().ok_or_else(missing)?.run_steps(*request).await?;
            ran.map(|report| Answer::Stepped(Box::new(report)))
        }
        Call::Service(request) => host.service().ok_or_else(missing)?.service(*request).await?.map(done),
        Call::AbortPrepare => host.prepare().ok_or_else(missing)?.abort().await?.map(done),
        Call::AbortService => host.service().ok_or_else(missing)?.abort().await?.map(done),
        Call::LiveFindings => host.live_media().ok_or_else(missing)?.findings().await?.map(Answer::Findings),
        Call::CheckImage { url } => host.data_images().ok_or_else(missing)?.check(url).await?.map(done),
        Call::AttachedImage => host.data_images().ok_or_else(missing)?.attached().await?.map(Answer::Attached),
        Call::AttachImage { url } => host.data_images().ok_or_else(missing)?.attach(url).await?.map(done),
        Call::DetachImage => host.data_images().ok_or_else(missing)?.detach().await?.map(done),
        Call::Subscribe(request) => {
            host.events().ok_or_else(missing)?.subscribe(request).await?.map(Answer::Subscribed)
        }
        Call::Unsubscribe(request) => host.events().ok_or_else(missing)?.unsubscribe(request).await?.map(done),
        Call::FirmwareFacts { bounds } => {
            host.firmware().ok_or_else(missing)?.facts(bounds).await?.map(Answer::Firmware)
        }
        Call::Health => host.health().ok_or_else(missing)?.state().await?.map(Answer::Health),
        Call::Diagnose(budget) => host.diagnose().ok_or_else(missing)?.evidence(budget).await?.map(Answer::Evidence),
        Call::CollectLogs => host.logs().ok_or_else(missing)?.collect().await?.map(Answer::Logs),
        Call::Locate(request) => host.locate().ok_or_else(missing)?.switch_light(request).await?.map(Answer::Located),
        Call::TestMedium(request) => {
            host.test_media().ok_or_else(missing)?.test_medium(request).await?.map(Answer::Tested)
        }
    })
}
