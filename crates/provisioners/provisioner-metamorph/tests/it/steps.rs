//! Steps of hardware managers: what is held against the agent's list, that each is given once whatever happens, restarts, and that the recorded report is
//! the answer.

use agent_protocol::{
    Action, AgentState, Command, CommandError, ErrorCode, ListedArgument, ListedStep, Outcome, RunStep,
};
use api::metamorph::{AgentStep, OperationPhase, OperationType, StepPhase, StepResult, StepsReport};
use axum::http::StatusCode;
use inventory::{HardwareDetails, Storage};
use provisioner::{Cause, CleaningRequest, Deprovisioned, StepsRequest, Verdict};

use crate::common::{Agent, World, pass};

fn step(name: &str) -> AgentStep {
    AgentStep { step: name.into(), interface: "deploy".into(), args: None }
}

fn request(steps: &[&str]) -> StepsRequest {
    let steps = steps.iter().map(|name| step(name)).collect();
    StepsRequest { wish: Some("2026-01-01T00:00:00Z ns/r".into()), steps, ..StepsRequest::default() }
}

async fn ask(world: &World, request: &StepsRequest) -> provisioner::Outcome<StepsReport> {
    world.host().steps().expect("it is served").run_steps(request.clone()).await
}

fn listed(name: &str, reboot_requested: bool) -> ListedStep {
    let arg = ListedArgument { name: "level".into(), ..ListedArgument::default() };
    ListedStep {
        manager: "Acme".into(),
        step: name.into(),
        interface: "deploy".into(),
        reboot_requested,
        args: Some(vec![arg]),
        ..ListedStep::default()
    }
}

fn list() -> Outcome {
    let steps = vec![listed("flash", true), listed("tune", false), listed("check", false)];
    Outcome::StepsListed { steps, omitted: 0, versions: [("Acme".to_owned(), "1.2".to_owned())].into() }
}

/// A world whose inspection knew a disk, and whose machines boot ironic-python-agent.
fn world() -> World {
    let mut world = World::with_ironic_python_agent();
    let disk = Storage { name: Some("/dev/sda".into()), serial_number: Some("a".into()), ..Storage::default() };
    world.hardware =
        Some(HardwareDetails { storage: vec![disk], hostname: Some("n".into()), ..HardwareDetails::default() });
    world
}

fn agent(generation: u64, boot: &str) -> Agent {
    Agent { version: "ironic-python-agent", ..Agent::new(generation, boot) }
}

/// The agent, which has listed its steps.
async fn listing(world: &World, request: &StepsRequest) -> Agent {
    ask(world, request).await.unwrap();
    let agent = agent(1, "boot-1");
    assert_eq!(agent.say(world).await.0, StatusCode::OK);
    ask(world, request).await.unwrap();
    let command = agent.given(world).await;
    assert_eq!(command.action, Action::ListSteps);
    agent.finished(&command, list());
    agent.say(world).await;
    agent
}

fn order(command: &Command) -> &RunStep {
    match &command.action {
        Action::RunStep(order) => order,
        other => panic!("{other:?}"),
    }
}

/// The agent is given this step, as this attempt.
async fn given(world: &World, agent: &Agent, request: &StepsRequest, (name, attempt): (&str, u32)) -> Command {
    assert!(matches!(ask(world, request).await.unwrap(), Verdict::Working(_)));
    let command = agent.given(world).await;
    assert_eq!((order(&command).step.as_str(), command.id.attempt), (name, attempt));
    command
}

async fn ends(world: &World, agent: &Agent, command: &Command, result: &str) {
    agent.finished(command, Outcome::StepRan { result: result.into() });
    agent.say(world).await;
}

/// A process that has just begun hears the agent, and looks what it says.
async fn back(world: &World, agent: &Agent, request: &StepsRequest) {
    for _ in 0..2 {
        ask(world, request).await.unwrap();
        agent.say(world).await;
    }
}

fn results(report: &StepsReport) -> Vec<StepResult> {
    report.ran.iter().map(|ran| ran.result).collect()
}

fn done(verdict: provisioner::Outcome<StepsReport>) -> StepsReport {
    match verdict.unwrap() {
        Verdict::Done(report) => report,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn steps_are_listed_where_none_is_asked_for() {
    let mut world = world();
    let nothing = request(&[]);
    let agent = listing(&world, &nothing).await;
    let report = done(ask(&world, &nothing).await);
    let names: Vec<&str> = report.offered.iter().map(|step| step.step.as_str()).collect();
    assert_eq!((names, report.managers[0].version.as_str()), (vec!["flash", "tune", "check"], "1.2"));
    let (kind, status) = world.journal.last();
    assert_eq!((kind, status.phase), (OperationType::Steps, OperationPhase::Succeeded));
    assert!(status.steps.iter().all(|step| step.phase == StepPhase::Done));
    assert!(agent.say(&world).await.1.command.is_none());
    world.restart();
    assert_eq!(done(ask(&world, &nothing).await), report, "another process knows it, too");
}

#[tokio::test(start_paused = true)]
async fn each_step_is_given_once_in_order_whoever_is_killed() {
    let mut world = world();
    let both = StepsRequest {
        steps: vec![AgentStep { args: Some(r#"{"level": 3}"#.into()), ..step("tune") }, step("check")],
        ..request(&[])
    };
    let agent = listing(&world, &both).await;
    // The intent cannot be recorded: no step is given.
    world.journal.die_before("run-steps");
    ask(&world, &both).await.unwrap_err();
    assert!(agent.say(&world).await.1.command.is_none());
    world.restart();
    back(&world, &agent, &both).await;
    let command = given(&world, &agent, &both, ("tune", 1)).await;
    let ordered = order(&command);
    assert_eq!((ordered.args["level"].as_i64(), ordered.versions["Acme"].as_str()), (Some(3), "1.2"));
    assert_eq!(ordered.expected.as_ref().map(Vec::len), Some(1));
    assert!(!format!("{command:?}").contains("level"), "arguments are in no log");
    // Another process finds the agent at work, and its end.
    world.restart();
    back(&world, &agent, &both).await;
    assert!(matches!(ask(&world, &both).await.unwrap(), Verdict::Working(_)));
    assert!(agent.say(&world).await.1.command.is_none_or(|again| again.id == command.id), "it is the same order");
    ends(&world, &agent, &command, "tuned").await;
    world.restart();
    back(&world, &agent, &both).await;
    let command = given(&world, &agent, &both, ("check", 2)).await;
    ends(&world, &agent, &command, "").await;
    let report = done(ask(&world, &both).await);
    assert_eq!((results(&report), report.ran[0].message.as_str()), (vec![StepResult::Done; 2], "tuned"));
    let (_, status) = world.journal.last();
    assert_eq!((status.phase, status.steps_report.as_ref()), (OperationPhase::Succeeded, Some(&report)));
    world.restart();
    assert_eq!(done(ask(&world, &both).await), report);
    agent.say(&world).await;
    assert!(agent.say(&world).await.1.command.is_none(), "nothing is given again");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_in_the_list_is_refused_by_a_sentence_that_names_what_is() {
    let args = |args: &str| StepsRequest {
        steps: vec![AgentStep { args: Some(args.into()), ..step("tune") }],
        ..request(&[])
    };
    let of_another =
        StepsRequest { steps: vec![AgentStep { interface: "bios".into(), ..step("tune") }], ..request(&[]) };
    for (wanted, words) in [
        (request(&["tune", "Flash"]), ["Flash (deploy): the agent has no such step", "flash (deploy), tune (deploy)"]),
        (of_another, ["tune (bios)", "tune (deploy)"]),
        (args(r#"{"deep": 1}"#), ["it has no argument deep", "It has: level"]),
        (request(&["flash", "flash", "flash"]), ["3 steps after which the machine is restarted", "at most 2"]),
    ] {
        let mut world = world();
        let agent = listing(&world, &wanted).await;
        let report = done(ask(&world, &wanted).await);
        let why = report.given_up.clone().unwrap();
        assert!(words.iter().all(|word| why.contains(word)) && why.contains("nothing was run"), "{why}");
        assert!(report.ran.iter().all(|ran| ran.result == StepResult::NotBegun) && report.offered.len() == 3);
        assert_eq!(world.journal.last().1.phase, OperationPhase::Failed);
        assert!(agent.say(&world).await.1.command.is_none());
        world.restart();
        assert_eq!(done(ask(&world, &wanted).await), report);
    }
}

/// The agent compares the versions that it is shown with those of all its hardware managers.
#[tokio::test(start_paused = true)]
async fn versions_that_have_no_room_in_the_record_are_no_step_that_fails_for_ever() {
    let many = (0..33).map(|n| (format!("manager {n}"), "1".to_owned())).collect();
    let long = [("Acme".to_owned(), "1".repeat(129))].into();
    let odd = [("Acme".to_owned(), "1\u{1b}".to_owned())].into();
    for versions in [many, long, odd, Default::default()] {
        for steps in [&["tune"][..], &[]] {
            let world = world();
            let wanted = request(steps);
            ask(&world, &wanted).await.unwrap();
            let agent = agent(1, "boot-1");
            agent.say(&world).await;
            ask(&world, &wanted).await.unwrap();
            let command = agent.given(&world).await;
            let listed = Outcome::StepsListed {
                steps: vec![listed("tune", false)],
                omitted: 0,
                versions: Clone::clone(&versions),
            };
            agent.finished(&command, listed);
            agent.say(&world).await;
            let report = done(ask(&world, &wanted).await);
            let why = report.given_up.as_deref().unwrap_or_default();
            assert_eq!(why.contains("the versions of all its hardware managers"), !steps.is_empty(), "{why}");
            assert!(agent.say(&world).await.1.command.is_none());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_asks_for_it_has_the_machine_restarted_and_another_boot_goes_on() {
    for killed in [false, true] {
        let mut world = world();
        let both = request(&["flash", "check"]);
        let agent_1 = listing(&world, &both).await;
        let command = given(&world, &agent_1, &both, ("flash", 1)).await;
        ends(&world, &agent_1, &command, "flashed").await;
        world.calls();
        assert!(matches!(ask(&world, &both).await.unwrap(), Verdict::Working(_)));
        assert!(world.journal.latest_boot().unwrap().retired, "it is recorded with the step's end");
        if killed {
            world.restart();
            agent_1.say(&world).await;
        }
        // The old boot is given nothing any more.
        for _ in 0..3 {
            ask(&world, &both).await.unwrap();
            assert!(agent_1.say(&world).await.1.command.is_none(), "{killed}");
        }
        assert!(world.calls().iter().any(|call| call.contains("insert")), "{killed}");
        let generation = world.journal.latest_boot().unwrap().generation;
        assert_eq!(generation, 2, "{killed}");
        let agent_2 = agent(generation, "boot-2");
        assert_eq!(agent_2.say(&world).await.0, StatusCode::OK);
        let command = given(&world, &agent_2, &both, ("check", 2)).await;
        assert_eq!(order(&command).versions["Acme"], "1.2", "of before the restart: another version is refused");
        ends(&world, &agent_2, &command, "").await;
        assert_eq!(results(&done(ask(&world, &both).await)), [StepResult::Done; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_is_away_after_a_step_is_waited_for_and_not_for_ever() {
    for (drops, steps) in [(1, &["flash", "check"][..]), (10_000, &["flash"][..])] {
        let world = world();
        let wanted = request(steps);
        let agent = listing(&world, &wanted).await;
        let command = given(&world, &agent, &wanted, ("flash", 1)).await;
        ends(&world, &agent, &command, "").await;
        assert!(matches!(ask(&world, &wanted).await.unwrap(), Verdict::Working(_)));
        world.bmc.lock().unwrap().drops_orders = drops;
        let (mut waits, mut end) = (0, None);
        for _ in 0..60 {
            match ask(&world, &wanted).await.unwrap() {
                Verdict::Done(report) => {
                    end = Some(report);
                    break;
                }
                Verdict::Working(working) => waits += u32::from(working.step.contains("between two steps")),
                other => panic!("{other:?}"),
            }
            if drops == 1 && waits == 1 {
                break;
            }
            pass(30).await;
        }
        assert!(waits > 0, "{drops}");
        assert_eq!(end.is_some(), drops > 1);
        if let Some(report) = end {
            let why = report.given_up.unwrap();
            assert!(why.contains("all steps are done") && report.ran[0].result == StepResult::Done, "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_agent_is_lost_is_never_given_again_and_its_machine_is_not_reset() {
    for restarted in [false, true] {
        let mut world = world();
        let both = request(&["tune", "check"]);
        let agent_1 = listing(&world, &both).await;
        given(&world, &agent_1, &both, ("tune", 1)).await;
        ask(&world, &both).await.unwrap();
        if restarted {
            world.restart();
        }
        world.calls();
        let mut report = None;
        for _ in 0..60 {
            match ask(&world, &both).await.unwrap() {
                Verdict::Done(found) => {
                    report = Some(found);
                    break;
                }
                _ => pass(60).await,
            }
        }
        let report = report.expect("it is no silent hang");
        assert_eq!(results(&report), [StepResult::Begun, StepResult::NotBegun], "{restarted}");
        assert!(report.given_up.as_ref().unwrap().contains("not given again"), "{report:?}");
        assert!(!world.calls().iter().any(|call| call.contains("insert")), "{restarted}");
        assert_eq!(world.journal.last().1.phase, OperationPhase::Failed);
        world.restart();
        assert_eq!(done(ask(&world, &StepsRequest { restart: true, ..both }).await), report);
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_ends_it_and_one_that_was_refused_untouched_is_tried_anew() {
    let world = world();
    let three = request(&["tune", "check", "tune"]);
    let agent = listing(&world, &three).await;
    let command = given(&world, &agent, &three, ("tune", 1)).await;
    ends(&world, &agent, &command, "").await;
    let command = given(&world, &agent, &three, ("check", 2)).await;
    let error = CommandError { code: ErrorCode::Internal, message: "it is too hot".into(), untouched: false };
    agent.finished(&command, Outcome::Failed(error));
    agent.say(&world).await;
    let report = done(ask(&world, &three).await);
    assert_eq!(results(&report), [StepResult::Done, StepResult::Failed, StepResult::NotBegun]);
    assert!(report.ran[1].message.contains("too hot"));

    // Before anything was begun it is a failure like any other, and another attempt is another operation.
    let world = self::world();
    let one = request(&["tune"]);
    let agent = listing(&world, &one).await;
    let command = given(&world, &agent, &one, ("tune", 1)).await;
    let error = CommandError { code: ErrorCode::Refused, message: "other disks".into(), untouched: true };
    agent.finished(&command, Outcome::Failed(error));
    agent.say(&world).await;
    assert!(ask(&world, &one).await.unwrap_err().message.contains("other disks"));
    agent.say(&world).await;
    ask(&world, &StepsRequest { restart: true, ..one }).await.unwrap();
    let next = agent.given(&world).await;
    assert_eq!(next.action, Action::ListSteps);
    assert_ne!(next.id.operation, command.id.operation);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_accepted_and_never_used_gets_no_step() {
    let world = world();
    let one = request(&["tune"]);
    let agent = listing(&world, &one).await;
    world.accepts_machine().await;
    let failure = ask(&world, &one).await.unwrap_err();
    assert!(failure.cause == Cause::AnotherMachine && failure.message.contains("no consent"), "{failure}");
    assert!(agent.say(&world).await.1.command.is_none());
}

#[tokio::test(start_paused = true)]
async fn steps_that_are_withdrawn_wipe_nothing_and_none_follows() {
    let mut world = world();
    let both = request(&["tune", "check"]);
    let agent = listing(&world, &both).await;
    let command = given(&world, &agent, &both, ("tune", 1)).await;
    let end = CleaningRequest { clean: true, wish: Some("2026-01-01T00:00:00Z".into()), ..CleaningRequest::default() };
    let withdrawn = Verdict::Done(Deprovisioned { wiped: false, untouched: true });
    // While the step runs, nobody may switch its machine off or boot it: the host does not become available. Another process knows it, too.
    for restarted in [false, true] {
        if restarted {
            world.restart();
            // The step may have taken its machine's network: it is waited for as long as any agent at work.
            for _ in 0..5 {
                let verdict = world.host().deprovision(end.clone()).await.unwrap();
                assert!(matches!(verdict, Verdict::Working(_)), "its agent is waited for: {verdict:?}");
                pass(60).await;
            }
        }
        assert_eq!(agent.say(&world).await.0, StatusCode::OK, "{restarted}");
        let verdict = world.host().deprovision(end.clone()).await.unwrap();
        assert!(matches!(verdict, Verdict::Working(_)), "{verdict:?}");
    }
    agent.finished(&command, Outcome::StepRan { result: "tuned".into() });
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    assert_eq!(world.host().deprovision(end).await.unwrap(), withdrawn);
    let (_, status) = world.journal.last();
    assert_eq!(status.phase, OperationPhase::Cancelled);
    let report = status.steps_report.unwrap();
    assert_eq!(results(&report), [StepResult::Done, StepResult::NotBegun], "its end is known");
    assert_eq!(report.ran[0].message, "tuned");
    assert_ne!(agent.say(&world).await.0, StatusCode::OK, "it is let go, and no step follows");
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_step_is_not_waited_for_where_its_agent_has_none_or_is_lost() {
    let end = CleaningRequest { clean: true, wish: Some("2026-01-01T00:00:00Z".into()), ..CleaningRequest::default() };
    let withdrawn = Verdict::Done(Deprovisioned { wiped: false, untouched: true });
    // The order is recorded, and the agent has not come for it.
    let world = world();
    let one = request(&["tune"]);
    let agent = listing(&world, &one).await;
    assert!(matches!(ask(&world, &one).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.host().deprovision(end.clone()).await.unwrap(), withdrawn);
    assert_ne!(agent.say(&world).await.0, StatusCode::OK, "it is let go");
    // The agent is silent for good.
    let world = self::world();
    let agent = listing(&world, &one).await;
    given(&world, &agent, &one, ("tune", 1)).await;
    for _ in 0..60 {
        if let Verdict::Done(done) = world.host().deprovision(end.clone()).await.unwrap() {
            assert_eq!(Verdict::Done(done), withdrawn);
            return;
        }
        pass(60).await;
    }
    panic!("it hangs");
}

/// It has the order in hand when it falls silent: nobody knows whether it begins.
#[tokio::test(start_paused = true)]
async fn a_step_that_a_lost_agent_has_in_hand_is_not_begun_when_it_comes_back() {
    let world = world();
    let one = request(&["tune"]);
    let agent = listing(&world, &one).await;
    assert!(matches!(ask(&world, &one).await.unwrap(), Verdict::Working(_)));
    assert!(agent.say(&world).await.1.acknowledged.is_some(), "its list is recorded");
    *agent.state.lock().unwrap() = AgentState::Idle;
    let in_hand = agent.say(&world).await.1.command.expect("it is given the step");
    assert_eq!(order(&in_hand).step, "tune");
    let end = CleaningRequest { clean: true, wish: Some("2026-01-01T00:00:00Z".into()), ..CleaningRequest::default() };
    // It is waited for as one at work, by whoever withdraws the step, too.
    pass(120).await;
    let verdict = world.host().deprovision(end).await.unwrap();
    assert!(matches!(verdict, Verdict::Working(_)), "{verdict:?}");
    let mut report = None;
    for _ in 0..60 {
        if let Verdict::Done(found) = ask(&world, &one).await.unwrap() {
            report = Some(found);
            break;
        }
        pass(60).await;
    }
    let report = report.expect("it is no silent hang");
    assert_eq!(results(&report), [StepResult::Begun]);
    assert!(report.given_up.as_ref().unwrap().contains("not given again"), "{report:?}");
    assert_eq!(agent.say(&world).await.1.command, None, "what was told to be lost is not begun");
}

#[tokio::test(start_paused = true)]
async fn our_own_agent_has_no_steps() {
    assert!(World::new().host().steps().is_none());
    let ipa = world();
    assert!(ipa.host().erase().is_none() && ipa.host().steps().is_some());
}
