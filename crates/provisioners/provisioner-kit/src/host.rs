//! Hosts, as the kit knows them.

use std::sync::Arc;

use api::metal3::InspectionMode;
use api::metamorph::OperationPhase;
use provisioner::{
    Answer, BmcAccess, Call, Capabilities, Context, History, Host, HostContext, HostFacts, HostKey, HostResource,
    Machine, PowerWish, Provisioner, Purpose, RegisterRequest, TestEnd, TestMedium,
};

use crate::condition::Condition;
use crate::history::MemoryHistory;
use crate::machine::MemoryMachine;
use crate::process::SECRETS;
use crate::scenario::{Interruption, Step};
use crate::tested::Tested;
use crate::trail::{Effect, Entry, What};
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
            // That it was read is shown by who has asked for it.
            Call::TestMedium(_) => {
                matches!(answer, Answer::Tested(told) if match told.end {
                    TestEnd::Read => told.requests > 0 && told.from.is_some(),
                    TestEnd::NotRead => told.requests == 0,
                    TestEnd::Refused | TestEnd::Other => !told.text.is_empty(),
                })
            }
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
            Answer::Inspected(found) => facts.hardware = Some(Arc::new(found.hardware.clone())),
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

    fn is_made_anew(call: &Call) -> bool {
        matches!(call, Call::TestMedium(_))
    }

    fn judged(step: &Step, answer: &Answer, entries: &[Entry], undisturbed: bool) -> Vec<Found> {
        match (&step.call, answer) {
            (Call::TestMedium(_), Answer::Tested(told)) => tested(step, told, entries, undisturbed),
            _ => Vec::new(),
        }
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
        ("test media", caps.test_medium, host.test_media().is_some()),
        ("logs", caps.logs, host.logs().is_some()),
        ("locate", caps.locate, host.locate().is_some()),
        // A host that changes firmware can read it; one that reads it need not change it.
        ("firmware", caps.firmware_settings || caps.reads_components(), host.firmware().is_some()),
    ];
    let differs = |(name, said, has): &(&str, bool, bool)| said != has && !(*name == "firmware" && *has);
    let text = |(name, said, has)| (Law::Capabilities, format!("{name}: said {said}, there {has}"));
    all.into_iter().filter(differs).map(text).collect()
}

/// A test medium is recorded before it goes in, comes out again, and nothing else happens to the machine; what is told is what was seen.
fn tested(step: &Step, told: &TestMedium, entries: &[Entry], undisturbed: bool) -> Vec<Found> {
    let mut found = Vec::new();
    let at = |what: What| entries.iter().position(|entry| entry.what == what);
    let moved = entries.iter().filter(|entry| entry.what == What::Effect(Effect::Media)).count();
    let (first, intended) = (at(What::Effect(Effect::Media)), at(What::Write(Purpose::Intent)));
    if first.is_some_and(|first| intended.is_none_or(|intended| intended > first)) {
        found.push((Law::IntentFirst, "a medium was put in that no record knows of".to_owned()));
    }
    // Of two that both act at once, one may take out what the other has put in without knowing it: the BMC is told no conditions.
    let alone = step.interruption != Interruption::Concurrent;
    if alone && moved % 2 != 0 || undisturbed && moved == 0 {
        found
            .push((Law::OnlyThisWish, format!("a medium went in or came out {moved} times: it goes in and comes out")));
    }
    let beside = |entry: &&Entry| !matches!(entry.what, What::Effect(Effect::Media | Effect::End) | What::Write(_));
    if let Some(other) = entries.iter().find(beside) {
        found.push((
            Law::OnlyThisWish,
            format!("{:?} ({}), for a medium that is only to be read", other.what, other.text),
        ));
    }
    let wanted = if step.machine.contains(&Condition::Unread) { TestEnd::NotRead } else { TestEnd::Read };
    if undisturbed && told.end != wanted {
        found.push((Law::Answer, format!("told to have ended as {:?}, and not as {wanted:?}: {told:?}", told.end)));
    }
    found
}

#[cfg(test)]
mod tests {
    use provisioner::TestMediumRequest;

    use super::*;

    /// The laws that these events break, of a test that was told to have ended so.
    fn broken(unread: bool, end: TestEnd, events: &[What]) -> Vec<Law> {
        let mut step = Step::<HostResource>::of(Call::TestMedium(TestMediumRequest::default()), None);
        step.machine.extend(unread.then_some(Condition::Unread));
        let entry = |what: &What| Entry { part: 1, what: what.clone(), text: String::new() };
        let entries: Vec<Entry> = events.iter().map(entry).collect();
        let (requests, from) = if end == TestEnd::Read { (1, Some("192.0.2.7".to_owned())) } else { (0, None) };
        let told = Answer::Tested(Box::new(TestMedium { end, requests, from, ..TestMedium::default() }));
        let found = HostResource::judged(&step, &told, &entries, true);
        found.into_iter().map(|(law, _)| law).collect()
    }

    #[test]
    fn a_test_medium_that_breaks_a_law_is_seen() {
        let (intent, media) = (What::Write(Purpose::Intent), What::Effect(Effect::Media));
        let (note, end) = (What::Write(Purpose::Note), What::Effect(Effect::End));
        let well = [end, intent.clone(), media.clone(), media.clone(), note.clone()];
        assert_eq!(broken(false, TestEnd::Read, &well), Vec::new());
        assert_eq!(broken(true, TestEnd::NotRead, &well), Vec::new());
        // It says what it has not seen.
        assert_eq!(broken(true, TestEnd::Read, &well), [Law::Answer]);
        assert_eq!(broken(false, TestEnd::NotRead, &well), [Law::Answer]);
        assert_eq!(broken(false, TestEnd::Refused, &well), [Law::Answer]);
        // It was not recorded, or later.
        assert_eq!(broken(false, TestEnd::Read, &[media.clone(), intent.clone(), media.clone()]), [Law::IntentFirst]);
        assert_eq!(broken(false, TestEnd::Read, &[note, media.clone(), media.clone()]), [Law::IntentFirst]);
        // It was left, or never put in.
        assert_eq!(broken(false, TestEnd::Read, &[intent.clone(), media.clone()]), [Law::OnlyThisWish]);
        assert_eq!(broken(false, TestEnd::Read, std::slice::from_ref(&intent)), [Law::OnlyThisWish]);
        // The machine was started for it.
        let started = [intent, media.clone(), What::Effect(Effect::Power), media];
        assert_eq!(broken(false, TestEnd::Read, &started), [Law::OnlyThisWish]);
    }

    #[test]
    fn an_answer_that_contradicts_itself_is_none() {
        let call = Call::TestMedium(TestMediumRequest::default());
        let told = |end, requests, text: &str| {
            let from = (requests > 0).then(|| "192.0.2.7".to_owned());
            Answer::Tested(Box::new(TestMedium { end, requests, from, text: text.into(), ..TestMedium::default() }))
        };
        for (answer, fits) in [
            (told(TestEnd::Read, 2, ""), true),
            (told(TestEnd::Read, 0, ""), false),
            (told(TestEnd::NotRead, 0, ""), true),
            (told(TestEnd::NotRead, 1, ""), false),
            (told(TestEnd::Refused, 0, "it has no licence"), true),
            (told(TestEnd::Other, 0, ""), false),
        ] {
            assert_eq!(HostResource::fits(&call, &answer), fits, "{answer:?}");
        }
    }
}
