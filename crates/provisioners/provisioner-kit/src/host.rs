//! Hosts, as the kit knows them.

use std::sync::Arc;

use api::metal3::InspectionMode;
use api::metamorph::OperationPhase;
use provisioner::{
    Answer, BmcAccess, Call, Capabilities, Context, History, Host, HostContext, HostFacts, HostKey, HostResource,
    Machine, PowerWish, Provisioner, RegisterRequest,
};

use crate::history::MemoryHistory;
use crate::machine::MemoryMachine;
use crate::process::SECRETS;
use crate::tested::Tested;
use crate::verdict::{Found, Law};

/// What outlives the processes that look after a host: what people see, and which machine it is.
#[derive(Default)]
pub struct HostWorld {
    history: Arc<MemoryHistory>,
    machine: Arc<MemoryMachine>,
}

impl Tested for HostResource {
    type World = HostWorld;
    type Access = BmcAccess;

    fn declared(key: HostKey, address: String) -> (HostFacts, BmcAccess) {
        let access = BmcAccess {
            address: address.clone(),
            username: "check".to_owned(),
            password: String::new().into(),
            disable_certificate_verification: true,
        };
        (HostFacts { key, address, ..HostFacts::default() }, access)
    }

    fn context(world: &HostWorld, mut bmc: BmcAccess, common: Context<Self>) -> HostContext {
        bmc.password = SECRETS[0].to_owned().into();
        HostContext {
            facts: common.facts,
            bmc: Some(bmc),
            record: common.record,
            history: Arc::clone(&world.history) as Arc<dyn History>,
            machine: Arc::clone(&world.machine) as Arc<dyn Machine>,
            now: common.now,
            may_act: common.may_act,
        }
    }

    fn fits(call: &Call, answer: &Answer) -> bool {
        match call {
            Call::Register(_) => matches!(answer, Answer::Registered(found) if !found.id.is_empty()),
            Call::PowerState | Call::SetPower(_) => matches!(answer, Answer::Power(_)),
            Call::Inspect(_) => matches!(answer, Answer::Inspected(_)),
            Call::Deprovision(_) => matches!(answer, Answer::Deprovisioned(_)),
            Call::Erase(_) => matches!(answer, Answer::Erased(erasure) if !erasure.disks.is_empty()),
            // Whatever has become of the steps, each is told of.
            Call::RunSteps(request) => {
                matches!(answer, Answer::Stepped(report)
                    if report.ran.len() == request.steps.len() && (!request.steps.is_empty() || !report.offered.is_empty()))
            }
            Call::AttachedImage => matches!(answer, Answer::Attached(_)),
            Call::Subscribe(_) => matches!(answer, Answer::Subscribed(id) if !id.is_empty()),
            Call::FirmwareFacts { .. } => matches!(answer, Answer::Firmware(_)),
            Call::Health => matches!(answer, Answer::Health(_)),
            Call::LiveFindings => matches!(answer, Answer::Findings(_)),
            // Something was read, and what the host says is not the provisioner's to tell.
            Call::Diagnose(_) => {
                matches!(answer, Answer::Evidence(evidence) if evidence.failure.is_none() && evidence.says_something())
            }
            Call::TestMedium(_) => matches!(answer, Answer::Tested(_)),
            Call::CollectLogs => matches!(answer, Answer::Logs(logs) if !logs.is_empty()),
            // Whoever stands at the rack is told which light to look for.
            Call::Locate(_) => matches!(answer, Answer::Located(which) if !which.is_empty()),
            _ => matches!(answer, Answer::Done),
        }
    }

    fn restart(call: &mut Call) {
        match call {
            Call::Register(request) => request.restart = true,
            Call::Adopt(request) => request.restart = true,
            Call::Inspect(request) => request.restart = true,
            Call::Prepare(request) => request.restart = true,
            Call::Provision(request) => request.attempt += 1,
            Call::Deprovision(request) => request.restart = true,
            Call::Erase(request) => request.restart = true,
            Call::RunSteps(request) => request.restart = true,
            Call::Service(request) => request.restart = true,
            _ => {}
        }
    }

    fn learn(facts: &mut HostFacts, answer: &Answer) {
        match answer {
            Answer::Registered(registered) => facts.provisioning_id.clone_from(&registered.id),
            Answer::Inspected(found) => facts.hardware = Some(found.hardware.clone()),
            _ => {}
        }
    }

    fn lets_go(call: &Call) -> bool {
        matches!(call, Call::Release(_))
    }

    /// A fast inspection.
    fn only_looks(call: &Call) -> bool {
        matches!(call, Call::Inspect(request) if request.mode == Some(InspectionMode::Fast))
    }

    fn may_do_again(call: &Call) -> bool {
        matches!(call, Call::Inspect(_))
    }

    fn force(call: &mut Call, force: bool) {
        match call {
            Call::Inspect(request) => request.force_reboot = force,
            Call::Provision(request) => request.force_reboot = force,
            _ => {}
        }
    }

    fn registers() -> Option<Call> {
        Some(Call::Register(RegisterRequest::default()))
    }

    /// A service that failed is tried again when its host reboots.
    fn before_retry(call: &Call) -> Option<Call> {
        matches!(call, Call::Service(_)).then(|| Call::SetPower(PowerWish::HardOff.into()))
    }

    /// People see what was done, and nothing secret.
    fn shown(world: &HostWorld, call: &Call) -> Vec<Found> {
        let wish = match call {
            Call::Inspect(request) => request.wish.clone(),
            Call::Provision(request) => request.wish.clone(),
            Call::Deprovision(request) => request.wish.clone(),
            Call::Erase(request) => request.wish.clone(),
            Call::RunSteps(request) if !request.steps.is_empty() => request.wish.clone(),
            _ => return Vec::new(),
        };
        let (all, mut found) = (world.history.all(), Vec::new());
        let is_there =
            |entry: &provisioner::HistoryEntry| entry.wish == wish && entry.status.phase == OperationPhase::Succeeded;
        // Where there is nothing to be removed, nothing is done that could be shown.
        let is_idle = matches!(call, Call::Deprovision(request) if request.empty);
        if !is_idle && !all.iter().any(is_there) {
            found.push((Law::Shown, format!("nothing shows that it is done: {all:?}")));
        }
        let text = serde_json::to_string(&all).unwrap_or_default();
        if SECRETS.iter().any(|secret| text.contains(secret)) {
            found.push((Law::Secrets, "a secret in the history".to_owned()));
        }
        found
    }

    fn lose_history(world: &HostWorld) {
        world.history.delete();
    }

    fn compare(provisioner: &dyn Provisioner, context: HostContext) -> Vec<Found> {
        let caps = provisioner.capabilities(&context.facts);
        match provisioner.host(context) {
            Ok(mut host) => capabilities(host.as_mut(), &caps),
            Err(failure) => vec![(Law::Answer, format!("there is no host: {failure}"))],
        }
    }
}

/// The host has the optional traits that its capabilities name, and no others.
fn capabilities(host: &mut dyn Host, caps: &Capabilities) -> Vec<Found> {
    let all = [
        ("prepare", caps.prepares(), host.prepare().is_some()),
        ("service", caps.service, host.service().is_some()),
        ("erase", caps.erase, host.erase().is_some()),
        ("steps", caps.steps, host.steps().is_some()),
        ("live media", caps.live_iso, host.live_media().is_some()),
        ("custom deploy", caps.custom_deploy, host.custom_deploy().is_some()),
        ("data images", caps.data_images, host.data_images().is_some()),
        ("events", caps.events, host.events().is_some()),
        ("health", caps.health, host.health().is_some()),
        ("diagnose", caps.diagnose, host.diagnose().is_some()),
        ("logs", caps.logs, host.logs().is_some()),
        ("locate", caps.locate, host.locate().is_some()),
        // A host that changes firmware can read it; one that reads it need not change it.
        ("firmware", caps.firmware_settings || caps.reads_components(), host.firmware().is_some()),
    ];
    let differs = |(name, said, has): &(&str, bool, bool)| said != has && !(*name == "firmware" && *has);
    let text = |(name, said, has)| (Law::Capabilities, format!("{name}: said {said}, there {has}"));
    all.into_iter().filter(differs).map(text).collect()
}
