//! Erasing: what is recorded before the order, what an agent's report counts for, and that the recorded report is the answer.

use agent_protocol::{Action, Command, CommandError, EraseDisks, ErrorCode, Outcome};
use api::metamorph::{Erasure, OperationPhase, OperationType, StepPhase};
use axum::http::StatusCode;
use inventory::{EraseMethod, EraseResult, ErasedDisk, HardwareDetails, Storage};
use provisioner::{Cause, CleaningRequest, Deployed, Deprovisioned, EraseRequest, Method, RegisterRequest, Verdict};

use crate::common::{Agent, World, pass};

fn request(method: EraseMethod) -> EraseRequest {
    EraseRequest { wish: Some("w".into()), method, ..EraseRequest::default() }
}

async fn ask(world: &World, request: &EraseRequest) -> provisioner::Outcome<Erasure> {
    world.host().erase().expect("it is served").erase(request.clone()).await
}

fn storage(serial: &str) -> Storage {
    Storage { name: Some(format!("/dev/{serial}")), serial_number: Some(serial.into()), ..Storage::default() }
}

fn report(serial: &str, result: EraseResult) -> ErasedDisk {
    ErasedDisk { result, evidence: "SSTAT 0101h".into(), ..ErasedDisk::of(&storage(serial)) }
}

/// A world whose inspection knew these disks.
fn knowing(serials: &[&str]) -> World {
    let mut world = World::new();
    let storage = serials.iter().map(|serial| storage(serial)).collect();
    world.hardware = Some(HardwareDetails { storage, hostname: Some("node-0".into()), ..HardwareDetails::default() });
    world
}

/// The agent with its order.
async fn ordered(world: &World, request: &EraseRequest) -> (Agent, Command) {
    ask(world, request).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    assert_eq!(agent.say(world).await.0, StatusCode::OK);
    ask(world, request).await.unwrap();
    let command = agent.given(world).await;
    (agent, command)
}

fn order(command: &Command) -> &EraseDisks {
    match &command.action {
        Action::EraseDisks(order) => order,
        other => panic!("{other:?}"),
    }
}

fn password(world: &World) -> String {
    world.journal.content().unwrap().data["drivePassword"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_password_is_recorded_before_the_agent_has_it_and_stays_the_same() {
    let mut world = knowing(&["a"]);
    let purge = request(EraseMethod::Purge);
    ask(&world, &purge).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    agent.say(&world).await;
    // The intent cannot be recorded: no order is given.
    world.journal.die_before("erase-disks");
    ask(&world, &purge).await.unwrap_err();
    assert!(agent.say(&world).await.1.command.is_none() && password(&world).is_empty());
    world.restart();
    for _ in 0..2 {
        ask(&world, &purge).await.unwrap();
        agent.say(&world).await;
    }
    ask(&world, &purge).await.unwrap();
    let command = agent.given(&world).await;
    let recorded = password(&world);
    assert_eq!((order(&command).password.0.as_str(), recorded.len()), (recorded.as_str(), 32));
    assert!(!format!("{command:?}").contains(&recorded), "it is in no log");
    // The machine has lost its power: another boot of the agent gets another attempt, and the same password.
    world.restart();
    world.bmc.lock().unwrap().on = false;
    for _ in 0..40 {
        ask(&world, &purge).await.unwrap();
        pass(60).await;
    }
    let next = Agent::new(2, "boot-2");
    assert_eq!(next.say(&world).await.0, StatusCode::OK);
    ask(&world, &purge).await.unwrap();
    let again = next.given(&world).await;
    assert_eq!((again.id.attempt, order(&again).password.0.as_str()), (2, recorded.as_str()));
}

#[tokio::test(start_paused = true)]
async fn the_recorded_report_is_the_answer_however_often_it_is_asked_for() {
    let mut world = knowing(&["a", "b"]);
    let purge = request(EraseMethod::Purge);
    let (agent, command) = ordered(&world, &purge).await;
    assert_eq!(order(&command).expected.as_ref().unwrap().len(), 2);
    let disks = vec![report("a", EraseResult::Purged), report("b", EraseResult::Purged)];
    agent.finished(&command, Outcome::Erased { disks: disks.clone() });
    agent.say(&world).await;
    let done = Verdict::Done(Erasure { disks, given_up: None });
    assert_eq!(ask(&world, &purge).await.unwrap(), done);
    let (kind, status) = world.journal.last();
    assert_eq!((kind, status.phase), (OperationType::Erase, OperationPhase::Succeeded));
    assert_eq!(status.message.as_deref(), Some("disks: 2 purged"));
    assert!(status.steps.iter().all(|step| step.phase == StepPhase::Done));
    assert!(agent.say(&world).await.1.acknowledged.is_some());
    world.restart();
    assert_eq!(ask(&world, &purge).await.unwrap(), done, "another process knows it, too");
    // Another wish is other work.
    let another = EraseRequest { wish: Some("v".into()), ..purge };
    assert!(matches!(ask(&world, &another).await.unwrap(), Verdict::Working(_)));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_not_done_fails_the_operation_and_is_an_answer_all_the_same() {
    let mut world = knowing(&["a", "b"]);
    let purge = request(EraseMethod::Purge);
    let (agent, command) = ordered(&world, &purge).await;
    // A hostile agent: more than was asked for is capped elsewhere; here it leaves a disk out.
    agent.finished(&command, Outcome::Erased { disks: vec![report("a", EraseResult::Purged)] });
    agent.say(&world).await;
    let Verdict::Done(erasure) = ask(&world, &purge).await.unwrap() else { panic!("it has ended") };
    let results: Vec<EraseResult> = erasure.disks.iter().map(|disk| disk.result).collect();
    assert_eq!(results, [EraseResult::Purged, EraseResult::NotDone]);
    let (_, status) = world.journal.last();
    let error = status.error.clone().unwrap();
    assert_eq!((status.phase, error.cause.as_str()), (OperationPhase::Failed, "NotErased"));
    assert!(error.message.contains("/dev/b: the agent has not reported it"), "{error:?}");
    assert_eq!(status.erasure.as_ref(), Some(&erasure));
    world.restart();
    assert_eq!(ask(&world, &purge).await.unwrap(), Verdict::Done(erasure));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_another_attempt_is_another_operation() {
    let world = knowing(&["a"]);
    let purge = request(EraseMethod::Purge);
    let (agent, command) = ordered(&world, &purge).await;
    let error = CommandError { code: ErrorCode::ForeignOwner, message: "another owner's".into(), untouched: true };
    agent.finished(&command, Outcome::Failed(error));
    agent.say(&world).await;
    let failure = ask(&world, &purge).await.unwrap_err();
    assert_eq!(failure.cause, Cause::ForeignOwner);
    assert_eq!(world.journal.last().1.phase, OperationPhase::Failed);
    agent.say(&world).await;
    let again = EraseRequest { restart: true, overwrite_owner: Some("them".into()), ..purge };
    ask(&world, &again).await.unwrap();
    let next = agent.given(&world).await;
    assert_ne!(next.id.operation, command.id.operation);
    assert_eq!(order(&next).mark.consent.as_deref(), Some("them"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_an_earlier_protocol_gets_no_order_to_erase() {
    let world = knowing(&["a"]);
    let purge = request(EraseMethod::Purge);
    ask(&world, &purge).await.unwrap();
    let old = Agent { protocol: 3, ..Agent::new(1, "boot-1") };
    assert_eq!(old.say(&world).await.0, StatusCode::OK);
    let failure = ask(&world, &purge).await.unwrap_err();
    assert!(failure.message.contains("speaks protocol 3"), "{failure}");
    assert!(failure.advice.unwrap().contains("agent-image build"));
    assert!(old.say(&world).await.1.command.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_accepted_and_never_used_is_not_erased() {
    let world = knowing(&["a"]);
    let purge = request(EraseMethod::Purge);
    ask(&world, &purge).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    agent.say(&world).await;
    world.accepts_machine().await;
    let failure = ask(&world, &purge).await.unwrap_err();
    assert!(failure.cause == Cause::AnotherMachine && failure.message.contains("no consent to change"), "{failure}");
    assert!(agent.say(&world).await.1.command.is_none());
}

/// The end of an erase, without a wipe.
const WITHDRAWN: Verdict<Deprovisioned> = Verdict::Done(Deprovisioned { wiped: false, untouched: true });

#[tokio::test(start_paused = true)]
async fn an_erase_that_is_withdrawn_wipes_nothing_and_its_agent_stops() {
    // By the host's word, and, where the host does not know, by that of the record.
    for (empty, given) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = knowing(&["a", "b"]);
        let erase = EraseRequest { wish: Some("2026-01-01T00:00:00Z ns/r".into()), ..request(EraseMethod::Overwrite) };
        let agent = if given {
            let (agent, command) = ordered(&world, &erase).await;
            agent.finished(&command, Outcome::Erased { disks: vec![] });
            Some(agent)
        } else {
            // Nothing has booted yet.
            ask(&world, &erase).await.unwrap();
            None
        };
        let wish = Some("2026-01-01T00:00:00Z".into());
        let end = CleaningRequest { clean: !empty, empty, wish, ..CleaningRequest::default() };
        for _ in 0..2 {
            assert_eq!(world.host().deprovision(end.clone()).await.unwrap(), WITHDRAWN, "{empty} {given}");
        }
        let (kind, status) = world.journal.last();
        assert_eq!((kind, status.phase), (OperationType::Erase, OperationPhase::Cancelled));
        assert!(world.bmc.lock().unwrap().medium.is_none());
        if let Some(agent) = agent {
            assert_ne!(agent.say(&world).await.0, StatusCode::OK, "it is let go");
        }
        // The next work boots it anew.
        let again = EraseRequest { wish: Some("2026-01-02T00:00:00Z ns/s".into()), ..erase };
        assert!(matches!(ask(&world, &again).await.unwrap(), Verdict::Working(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_provisioned_since_an_erase_is_wiped() {
    let erase = EraseRequest { wish: Some("2026-01-01T00:00:00Z ns/r".into()), ..request(EraseMethod::Overwrite) };
    let deployed = Deployed { method: Method::Disk, image: Some(crate::common::image().image), ..Deployed::default() };
    for (began, deployed) in [("2026-01-02T00:00:00Z", Deployed::default()), ("2026-01-01T00:00:00Z", deployed)] {
        let world = knowing(&["a"]);
        ask(&world, &erase).await.unwrap();
        let clean = CleaningRequest { clean: true, wish: Some(began.into()), deployed, ..CleaningRequest::default() };
        let verdict = world.host().deprovision(clean).await.unwrap();
        assert!(matches!(verdict, Verdict::Working(_)), "{began} {verdict:?}");
    }
}

/// The host's annotation may have been set by hand, after an attempt to provision: what the record says to have been begun is removed.
#[tokio::test(start_paused = true)]
async fn what_was_being_written_is_wiped_whatever_the_host_says_of_an_erase() {
    // Who ends an erase asks for no wipe.
    let withdrawn = |empty| CleaningRequest {
        clean: false,
        empty,
        wish: Some("2026-01-01T00:00:00Z".into()),
        ..CleaningRequest::default()
    };
    // Nothing is recorded, or nothing had begun to be written: the host's word counts.
    let world = knowing(&["a"]);
    assert_eq!(world.host().deprovision(withdrawn(true)).await.unwrap(), WITHDRAWN);
    let mut world = knowing(&["a"]);
    let id = std::mem::take(&mut world.provisioning_id);
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.provisioning_id = id;
    world.host().provision(crate::common::image()).await.unwrap();
    world.restart();
    assert_eq!(world.host().deprovision(withdrawn(true)).await.unwrap(), WITHDRAWN);
    // The agent has been ordered to write.
    let mut world = knowing(&["a"]);
    world.booted().await;
    world.host().provision(crate::common::image()).await.unwrap();
    world.restart();
    for _ in 0..5 {
        let verdict = world.host().deprovision(withdrawn(true)).await.unwrap();
        assert!(matches!(verdict, Verdict::Working(_)), "{verdict:?}");
        // The agent is silent.
        pass(30).await;
    }
    let status = world.journal.newest().status;
    assert!(
        status.steps.iter().any(|step| step.name == "wipe-disks"),
        "it is wiped, and not switched off as it is: {status:?}"
    );
}

/// That nothing was seen to move between two orders says nothing of the second one.
#[tokio::test(start_paused = true)]
async fn an_order_that_is_given_long_after_another_has_not_hung() {
    let world = knowing(&["a"]);
    let purge = request(EraseMethod::Purge);
    let (agent, command) = ordered(&world, &purge).await;
    let error = CommandError { code: ErrorCode::DiskError, message: "it does not answer".into(), untouched: true };
    agent.finished(&command, Outcome::Failed(error));
    agent.say(&world).await;
    assert_eq!(ask(&world, &purge).await.unwrap_err().cause, Cause::HardwareFailed);
    for _ in 0..20 {
        agent.say(&world).await;
        pass(60).await;
    }
    agent.say(&world).await;
    let again = EraseRequest { restart: true, ..purge };
    let asked = ask(&world, &again).await;
    assert!(matches!(asked, Ok(Verdict::Working(_))), "{asked:?}");
    assert_ne!(agent.given(&world).await.id.operation, command.id.operation);
}
