//! Steps of hardware managers: the list, a step that is given once, and agents that lie.

use agent_protocol::RunStep;
use inventory::Storage;
use ipa_protocol::CommandFault;

use super::*;

/// A step of this name, with an argument.
fn run(attempt: u32, name: &str) -> Command {
    let run = RunStep {
        step: name.into(),
        interface: "deploy".into(),
        args: json!({ "level": 3 }).as_object().cloned().unwrap(),
        versions: [("Acme".to_owned(), "1.2".to_owned())].into(),
        ..RunStep::default()
    };
    let mut command = order("run-steps", Action::RunStep(Box::new(run)));
    command.id.attempt = attempt;
    command
}

fn list() -> Command {
    order("list-steps", Action::ListSteps)
}

fn step(name: &str, priority: i64, reboot: bool) -> Value {
    json!({"step": name, "priority": priority, "interface": "deploy", "reboot_requested": reboot, "abortable": true,
           "argsinfo": {"level": {"description": "How\u{1b} much", "required": true}}})
}

fn tells(script: &Arc<Script>, steps: Value) {
    *script.steps.lock().unwrap() = json!({ "clean_steps": steps, "hardware_manager_version": {"Acme": "1.2"} });
}

#[tokio::test(start_paused = true)]
async fn steps_are_listed_and_one_is_run_with_its_arguments_and_the_versions() {
    let (server, script) = (server(), Script::new());
    tells(&script, json!({ "Acme": [step("flash", 0, true)], "Generic": [step("erase_devices", 10, false)] }));
    server.idle(&script).await;
    let Outcome::StepsListed { steps, omitted, versions } = server.outcome(&script, &list()).await else { panic!() };
    let shown: Vec<(&str, &str, bool)> =
        steps.iter().map(|step| (step.manager.as_str(), step.step.as_str(), step.reboot_requested)).collect();
    assert_eq!(shown, [("Acme", "flash", true), ("Generic", "erase_devices", false)]);
    assert_eq!((omitted, versions["Acme"].as_str()), (0, "1.2"));
    let args = steps[0].args.as_ref().unwrap();
    assert_eq!((args[0].name.as_str(), args[0].description.as_str(), args[0].required), ("level", "How much", true));
    assert_eq!(script.posted("execute_clean_step"), 0, "nothing is done for a list");
    server.hub.acknowledge("u", &list().id);
    server.idle(&script).await;

    let flash = run(1, "flash");
    let (outcome, ()) = tokio::join!(server.outcome(&script, &flash), async {
        script.finishes("execute_clean_step").await;
    });
    assert_eq!(outcome, Outcome::StepRan { result: "flashed".into() });
    let params = script.params.lock().unwrap().last().cloned().unwrap();
    assert_eq!(params["step"]["step"], "flash");
    assert_eq!((&params["step"]["args"], &params["clean_version"]), (&json!({"level": 3}), &json!({"Acme": "1.2"})));
    assert_eq!(script.posted("execute_clean_step"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_another_process_has_begun_is_not_begun_again() {
    let script = Script::new();
    {
        let (before, cut) = (server(), Arc::new(AtomicBool::new(false)));
        let line = Line { script: Arc::clone(&script), cut: Arc::clone(&cut) };
        before.ipa.heard_by("u", 1, peer("c"), || Ok(Arc::new(line) as Arc<dyn Commands>)).unwrap();
        before.idle(&script).await;
        let record: Arc<dyn Record> = wished();
        let begun =
            |hub: &Hub| matches!(hub.command("u", run(1, "flash"), &record), CommandState::Running(_)).then_some(());
        before.until(&script, begun).await;
        cut.store(true, Ordering::Relaxed);
        tokio::time::sleep(SILENCE * 3).await;
    }
    let after = server();
    after.idle(&script).await;
    let flash = run(1, "flash");
    let (outcome, ()) = tokio::join!(after.outcome(&script, &flash), async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        script.finishes("execute_clean_step").await;
    });
    assert!(matches!(outcome, Outcome::StepRan { .. }), "{outcome:?}");
    assert_eq!(script.posted("execute_clean_step"), 1);
    // The next order of the same request is another, and is posted.
    after.hub.acknowledge("u", &run(1, "flash").id);
    after.idle(&script).await;
    let flash = run(2, "flash");
    let (outcome, ()) = tokio::join!(after.outcome(&script, &flash), async {
        while script.posted("execute_clean_step") < 2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        script.finishes("execute_clean_step").await;
    });
    assert!(matches!(outcome, Outcome::StepRan { .. }), "{outcome:?}");
    assert_eq!(script.posted("execute_clean_step"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_post_whose_answer_is_lost_is_looked_for() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    script.loses.store(true, Ordering::Relaxed);
    let flash = run(1, "flash");
    let (outcome, ()) = tokio::join!(server.outcome(&script, &flash), async {
        script.finishes("execute_clean_step").await;
    });
    assert!(matches!(outcome, Outcome::StepRan { .. }), "{outcome:?}");
    assert_eq!(script.posted("execute_clean_step"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_in_the_agents_words_and_its_log_is_read() {
    for (status, fault, word) in [
        (
            CommandStatus::VersionMismatch,
            CommandFault::new("VersionMismatch", 409, "m", "Current versions: {'Acme': '2'}"),
            "not those that its steps were listed by",
        ),
        (
            CommandStatus::Failed,
            CommandFault::new("CleaningError", 500, "m", "the\u{1b}[2J flash is locked"),
            "flash is locked",
        ),
    ] {
        let (server, script) = (server(), Script::new());
        server.idle(&script).await;
        let flash = run(1, "flash");
        let (outcome, ()) = tokio::join!(server.outcome(&script, &flash), async {
            while script.posted("execute_clean_step") == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            script.lock().iter_mut().for_each(|one| {
                if one.command_name == "execute_clean_step" {
                    one.command_error = Some(fault.clone());
                }
            });
            script.ends("execute_clean_step", status).await;
        });
        let Outcome::Failed(error) = outcome else { panic!("{outcome:?}") };
        assert!(error.message.contains(word) && !error.message.contains('\u{1b}'), "{error:?}");
        assert!(!error.untouched);
        server.hub.acknowledge("u", &run(1, "flash").id);
        server.idle(&script).await;
        assert_eq!(script.posted("collect_system_logs"), 1);
        assert!(server.hub.said("u").lines().any(|line| line.contains("write error")));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_lists_is_bounded_and_what_is_malformed_is_told() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    let huge: Vec<Value> = (0..10_000).map(|n| step(&format!("{n}{}", "x".repeat(3000)), 0, false)).collect();
    tells(&script, json!({ "Liar": huge }));
    let Outcome::StepsListed { steps, omitted, .. } = server.outcome(&script, &list()).await else { panic!() };
    assert_eq!((steps.len(), omitted), (512, 10_000 - 512));
    assert!(steps.iter().all(|step| step.step.len() <= 200));
    server.hub.acknowledge("u", &list().id);
    server.idle(&script).await;
    for (attempt, lie) in
        [json!({}), json!({"clean_steps": [], "hardware_manager_version": {}}), json!("no")].into_iter().enumerate()
    {
        *script.steps.lock().unwrap() = lie;
        let mut again = list();
        again.id.attempt = 2 + attempt as u32;
        let Outcome::Failed(error) = server.outcome(&script, &again).await else { panic!("{attempt}") };
        assert!(error.untouched && error.message.contains("malformed"), "{error:?}");
        server.hub.acknowledge("u", &again.id);
        server.idle(&script).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_an_agent_at_work_does_not_give_is_told_to_be_missing() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    let begun = CommandRequest { name: "clean.execute_clean_step".into(), params: Map::new() };
    script.post(&begun, false).await.unwrap();
    let Outcome::Failed(error) = server.outcome(&script, &list()).await else { panic!() };
    assert!(error.untouched && error.message.contains("its list of steps cannot be read"), "{error:?}");
}

/// A RAID step makes disks: the next one is judged by what there is after it.
#[tokio::test(start_paused = true)]
async fn a_step_that_changes_the_disks_is_followed_by_the_next() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    for attempt in 1..=2 {
        let command = run(attempt, "create");
        let (outcome, ()) = tokio::join!(server.outcome(&script, &command), async {
            while script.posted("execute_clean_step") < attempt as usize {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            *script.disk.lock().unwrap() = "/dev/md127";
            script.finishes("execute_clean_step").await;
        });
        assert!(matches!(outcome, Outcome::StepRan { .. }), "{outcome:?}");
        server.hub.acknowledge("u", &command.id);
        server.idle(&script).await;
    }
    assert_eq!(script.posted("execute_clean_step"), 2);
}

/// Disks are held against what was told before each step, as before a wipe.
#[tokio::test(start_paused = true)]
async fn a_step_is_not_run_beside_other_disks() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    *script.disk.lock().unwrap() = "/dev/sdb";
    let Outcome::Failed(refusal) = server.outcome(&script, &run(1, "flash")).await else { panic!() };
    assert!(refusal.untouched && script.posted("execute_clean_step") == 0, "{refusal:?}");
}

/// The disks that it was begun on may be gone because of it.
#[tokio::test(start_paused = true)]
async fn a_step_of_another_process_that_has_changed_the_disks_is_told_as_it_has_ended() {
    let gone = Storage { name: Some("/dev/sdz".into()), serial_number: Some("S9".into()), ..Storage::default() };
    for status in [CommandStatus::Succeeded, CommandStatus::Failed] {
        let script = Script::new();
        let mut create = run(1, "create");
        let begun = orders::plan(&create.id, &create.action, &Inventory::default(), false).unwrap();
        script.post(&begun.stages[0].request, false).await.unwrap();
        script.ends("execute_clean_step", status).await;
        if let Action::RunStep(step) = &mut create.action {
            step.expected = Some(vec![gone.clone()]);
        }
        let after = server();
        after.idle(&script).await;
        match after.outcome(&script, &create).await {
            Outcome::StepRan { result } if status == CommandStatus::Succeeded => assert_eq!(result, "flashed"),
            Outcome::Failed(error) if status == CommandStatus::Failed => {
                assert!(!error.untouched && !error.message.contains("not begun"), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
        // One that nobody has begun is held against the disks as ever.
        after.hub.acknowledge("u", &create.id);
        after.idle(&script).await;
        create.id.attempt = 2;
        let Outcome::Failed(refusal) = after.outcome(&script, &create).await else { panic!() };
        assert!(refusal.untouched && refusal.message.contains("this step was not begun"), "{refusal:?}");
        assert_eq!(script.posted("execute_clean_step"), 1);
    }
}

/// An agent at whose step another process has left it.
async fn left_at_work() -> Arc<Script> {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    let begun = CommandRequest { name: "clean.execute_clean_step".into(), params: Map::new() };
    script.post(&begun, false).await.unwrap();
    script
}

/// Who leads next must neither take the agent to be idle nor give it up as soon as an idle one.
#[tokio::test(start_paused = true)]
async fn a_step_of_another_process_is_seen_before_its_agent_is_reported_to_be_idle() {
    let script = left_at_work().await;
    script.hides.store(true, Ordering::Relaxed);
    let (after, began) = (server(), Instant::now());
    for _ in 0..20 {
        after.hears(&script);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(after.hub.any_agent("u").is_none(), "nothing is known of what it is at");
    }
    script.hides.store(false, Ordering::Relaxed);
    after.idle(&script).await;
    assert!(after.hub.any_agent("u").unwrap().is_at_work(Some(began)));
    // Its step may take the network with it: it is waited for as one at work.
    script.hides.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(after.hub.agent("u", 1).is_some(), "it is given up no sooner than one at work");
    script.hides.store(false, Ordering::Relaxed);
    script.finishes("execute_clean_step").await;
    after.until(&script, |hub| hub.any_agent("u").filter(|agent| !agent.is_at_work(Some(began)))).await;
    // What was read before somebody has begun to lead is no answer to whether it is at work now.
    assert!(after.hub.any_agent("u").unwrap().is_at_work(Some(Instant::now() + Duration::from_secs(1))));
}

/// A process that does not lead hears the agent as idle, and the leader gives it a step meanwhile.
#[tokio::test(start_paused = true)]
async fn a_process_that_stands_by_sees_the_step_of_the_one_that_leads() {
    let (stands_by, script) = (server(), Script::new());
    stands_by.idle(&script).await;
    assert!(!stands_by.hub.any_agent("u").unwrap().is_at_work(None));
    let begun = CommandRequest { name: "clean.execute_clean_step".into(), params: Map::new() };
    script.post(&begun, false).await.unwrap();
    stands_by.until(&script, |hub| hub.any_agent("u").filter(|agent| agent.is_at_work(None))).await;
    // One that says so for ever keeps nobody waiting for ever.
    for _ in 0..LONGEST.as_secs() / 60 {
        stands_by.hears(&script);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert!(!stands_by.hub.any_agent("u").unwrap().is_at_work(None));
}
