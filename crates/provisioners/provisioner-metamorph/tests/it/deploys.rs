//! The way from the written image into it when agents and servers die, and what a wipe is told.

use agent_protocol::{Action, AgentState, CommandError, ErrorCode, LeftDisk, Outcome, Progress, WriteSummary};
use api::metamorph::{OperationPhase, StepPhase};
use axum::http::StatusCode;
use bmc::ErrorKind;
use inventory::{HardwareDetails, RootDeviceHints, Storage};
use provisioner::{Cause, CleaningRequest, Deprovisioned, ReleaseRequest, Retry, Verdict};

use crate::common::{Agent, WIPED, World, image, pass};
use crate::fake::unsent;

/// How often the BMC was told to switch, reset or cut the power.
fn power_changes(calls: &[String]) -> Vec<&str> {
    let words = ["On", "HardOff", "SoftOff", "SoftRestart", "Restart"];
    calls.iter().map(String::as_str).filter(|what| words.contains(what)).collect()
}

/// Provisions until it is done; gives what the BMC was told.
async fn to_the_end(world: &World) -> Vec<String> {
    for _ in 0..20 {
        if world.host().provision(image()).await.unwrap() == Verdict::Done(()) {
            return world.calls();
        }
        pass(1).await;
    }
    panic!("it does not come to its end: {:?}", world.calls());
}

#[tokio::test(start_paused = true)]
async fn an_image_at_a_local_address_is_refused_before_anything_is_done() {
    let world = World::new();
    for (url, checksum, field) in [
        ("http://127.0.0.1/disk.raw", None, "spec.image.url"),
        ("http://2130706433/disk.raw", None, "spec.image.url"),
        ("http://0x7f.1/disk.raw", None, "spec.image.url"),
        ("http://[::ffff:169.254.169.254]/disk.raw", None, "spec.image.url"),
        ("https://[fd00:ec2::254]/disk.raw", None, "spec.image.url"),
        ("http://192.0.2.9/disk.raw", Some("http://169.254.169.254/latest"), "spec.image.checksum"),
    ] {
        let mut request = image();
        request.image.url = url.into();
        request.image.checksum = checksum.map(ToOwned::to_owned).or(request.image.checksum);
        let failure = world.host().provision(request).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange), "{url}: {failure:?}");
        let text = failure.text();
        assert!(text.contains(field) && text.contains("--allow-address"), "{text}");
        assert!(text.contains(" is ") && !text.contains("leads to"), "no sentence: {text}");
    }
    assert_eq!(world.calls(), [""; 0], "the BMC was asked");
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_its_agent_is_brought_into_its_disk_once_wherever_the_server_dies() {
    for place in ["switch-off-for-disk", "switch-on-to-disk", "finish"] {
        let mut world = World::new();
        world.written().await;
        world.restart();
        pass(61).await;
        world.host().provision(image()).await.unwrap();
        world.calls();
        pass(61).await;
        world.journal.die_before(place);
        let mut died = false;
        for _ in 0..10 {
            died |= world.host().provision(image()).await.is_err_and(|f| f.cause == Cause::RecordUnavailable);
            if died {
                break;
            }
            pass(1).await;
        }
        assert!(died, "{place}");
        let before = world.calls();
        world.restart();
        world.host().provision(image()).await.unwrap();
        pass(61).await;
        let after = to_the_end(&world).await;
        let all: Vec<String> = [before, after.clone()].concat();
        assert_eq!(power_changes(&all), ["HardOff", "On"], "{place}: {all:?}");
        if place == "finish" {
            assert_eq!(power_changes(&after), Vec::<&str>::new(), "a tenant that boots is left alone: {after:?}");
        }
    }
}

/// Its image was withdrawn before the record said that it runs: it is not started after all, and is wiped by an agent that is booted anew.
#[tokio::test(start_paused = true)]
async fn an_agent_that_would_leave_for_a_system_that_was_withdrawn_is_not_let_go() {
    for restarted in [false, true] {
        let mut world = World::new();
        let agent = world.written().await;
        let leave = agent.given(&world).await;
        agent.finished(&leave, Outcome::Leaving);
        if restarted {
            world.restart();
        }
        agent.say(&world).await;
        world.calls();
        let clean = CleaningRequest { clean: true, ..CleaningRequest::default() };
        for _ in 0..4 {
            assert!(matches!(world.host().deprovision(clean.clone()).await.unwrap(), Verdict::Working(_)));
            let (_, directive) = agent.say(&world).await;
            assert_eq!(directive.acknowledged, None, "restarted: {restarted}");
            pass(1).await;
        }
        assert!(world.calls().contains(&"boot once".to_owned()), "restarted: {restarted}");
    }
}

/// A machine whose provisioning is recorded as done, of which the host has not heard; its agent, and the order by which that would leave.
async fn ended_unheard() -> (World, Agent, agent_protocol::CommandId) {
    let world = World::new();
    let agent = world.written().await;
    let leave = agent.given(&world).await;
    agent.finished(&leave, Outcome::Leaving);
    agent.say(&world).await;
    world.journal.record.fail_after(|write| crate::memory::operation(&write.content).status.phase.is_final());
    assert_eq!(world.host().provision(image()).await.unwrap_err().cause, Cause::RecordUnavailable);
    assert_eq!(world.journal.last().1.phase, OperationPhase::Succeeded);
    (world, agent, leave.id)
}

/// The same where it is withdrawn before the host knows that it was provisioned.
#[tokio::test(start_paused = true)]
async fn an_agent_is_not_let_go_for_a_system_that_was_withdrawn_when_its_end_was_recorded() {
    for restarted in [false, true] {
        let (mut world, agent, _) = ended_unheard().await;
        if restarted {
            world.restart();
            world.expect();
            assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        }
        // The BMC is away for a moment, and the agent asks meanwhile.
        world.bmc.lock().unwrap().failing_looks = 1;
        world.calls();
        let clean = CleaningRequest { clean: true, ..CleaningRequest::default() };
        assert_eq!(world.host().deprovision(clean.clone()).await.unwrap_err().cause, Cause::BmcBusy);
        let (status, directive) = agent.say(&world).await;
        assert_eq!((status, directive.acknowledged), (StatusCode::OK, None), "restarted: {restarted}");
        for _ in 0..4 {
            assert!(matches!(world.host().deprovision(clean.clone()).await.unwrap(), Verdict::Working(_)));
            assert_eq!(agent.say(&world).await.1.acknowledged, None, "restarted: {restarted}");
            pass(1).await;
        }
        assert!(world.calls().contains(&"boot once".to_owned()), "restarted: {restarted}");
        // One that is still wished is left for.
        let (mut world, agent, leave) = ended_unheard().await;
        if restarted {
            world.restart();
            world.expect();
            assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        }
        assert_eq!(world.host().provision(image()).await.unwrap(), Verdict::Done(()));
        assert_eq!(agent.say(&world).await.1.acknowledged, Some(leave), "restarted: {restarted}");
    }
}

/// Nobody knows any more that it has written a system that is wished.
#[tokio::test(start_paused = true)]
async fn an_agent_is_not_let_go_by_a_server_that_has_lost_the_record() {
    let mut world = World::new();
    let agent = world.written().await;
    let leave = agent.given(&world).await;
    agent.finished(&leave, Outcome::Leaving);
    agent.say(&world).await;
    world.journal.record.delete();
    world.restart();
    world.expect();
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().power_state().await.unwrap();
    let (status, directive) = agent.say(&world).await;
    assert_eq!((status, directive.acknowledged), (StatusCode::OK, None));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_could_not_be_recorded_is_recorded_by_the_next_call() {
    let world = World::new();
    let agent = world.written().await;
    let command = agent.given(&world).await;
    agent.finished(&command, Outcome::Leaving);
    agent.say(&world).await;
    pass(600).await;
    agent.say(&world).await;
    world.calls();
    world.journal.die_before("finish");
    let failure = world.host().provision(image()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::RecordUnavailable);
    world.bmc.lock().unwrap().failing_looks = 5;
    assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Done(())), "the agent is still there");
    assert_eq!(world.calls(), [""; 0], "nothing is asked of the BMC for it");
    assert_eq!(agent.say(&world).await.1.acknowledged, Some(command.id));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_once_and_tried_again_after_a_restart_of_the_server() {
    let mut world = World::new();
    let request =
        |restart| CleaningRequest { wish: Some("w".into()), clean: true, restart, ..CleaningRequest::default() };
    world.host().deprovision(request(false)).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    world.host().deprovision(request(false)).await.unwrap();
    let command = agent.given(&world).await;
    let error = CommandError { code: ErrorCode::ForeignOwner, message: "another's".into(), untouched: false };
    agent.finished(&command, Outcome::Failed(error));
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(request(false)).await.unwrap_err().cause, Cause::ForeignOwner);
    // The process dies before or after it is told; the next one hears that it is tried again, waits for the agent, and goes on.
    world.restart();
    assert_eq!(world.host().deprovision(request(false)).await.unwrap_err().cause, Cause::ForeignOwner, "told");
    assert!(matches!(world.host().deprovision(request(true)).await.unwrap(), Verdict::Working(_)));
    for _ in 0..3 {
        pass(1).await;
        assert!(matches!(world.host().deprovision(request(false)).await.unwrap(), Verdict::Working(_)), "tried");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_is_away_for_a_moment_is_no_reason_to_write_the_image_again() {
    let mut world = World::new();
    world.written().await;
    world.restart();
    pass(61).await;
    world.host().provision(image()).await.unwrap();
    world.calls();
    pass(61).await;
    world.bmc.lock().unwrap().failing_looks = 1;
    let failure = world.host().provision(image()).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::BmcBusy, Retry::Waiting), "{failure:?}");
    assert!(failure.message.contains("on which the image is"), "{failure:?}");
    assert!(!world.journal.newest().status.phase.is_final());
    to_the_end(&world).await;
}

#[tokio::test(start_paused = true)]
async fn where_the_power_may_not_be_cut_the_reset_is_asked_for_at_most_once() {
    for hides_power in [false, true] {
        let mut world = World::new();
        world.disable_power_off = !hides_power;
        world.bmc.lock().unwrap().hides_power = hides_power;
        world.written().await;
        world.restart();
        world.host().provision(image()).await.unwrap();
        world.calls();
        pass(61).await;
        world.journal.die_before("finish");
        let failure = world.host().provision(image()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::RecordUnavailable);
        assert_eq!(power_changes(&world.calls()), ["Restart"]);
        world.restart();
        world.host().provision(image()).await.unwrap();
        pass(61).await;
        assert_eq!(power_changes(&to_the_end(&world).await), Vec::<&str>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn once_the_machine_is_ordered_into_its_disk_trouble_with_the_bmc_is_waited_out() {
    let mut world = World::new();
    world.written().await;
    world.restart();
    world.host().provision(image()).await.unwrap();
    world.calls();
    pass(61).await;
    world.bmc.lock().unwrap().loses_on = true;
    // Each look is a success or a wait that is said: a failure would have the image written again.
    while !world.calls().contains(&"On".to_owned()) {
        waits(world.host().provision(image()).await);
        pass(1).await;
    }
    world.bmc.lock().unwrap().failing_looks = 5;
    for _ in 0..5 {
        assert!(waits(world.host().provision(image()).await), "said on the host");
        pass(10).await;
    }
    // What the machine shows is another's for now; and its power is not told any more: which way was begun stands in the record.
    world.bmc.lock().unwrap().shows_another = true;
    assert!(waits(world.host().provision(image()).await));
    world.bmc.lock().unwrap().shows_another = false;
    world.bmc.lock().unwrap().hides_power = true;
    for _ in 0..200 {
        waits(world.host().provision(image()).await);
        pass(1).await;
    }
    assert_eq!(power_changes(&world.calls()), Vec::<&str>::new(), "a tenant that may be booting is left alone");
    world.bmc.lock().unwrap().hides_power = false;
    assert_eq!(power_changes(&to_the_end(&world).await), Vec::<&str>::new());
}

/// A wait: whether it is one that the host tells of. Anything else is no wait.
fn waits(outcome: Result<Verdict<()>, provisioner::Failure>) -> bool {
    match outcome {
        Ok(Verdict::Working(_)) => false,
        Err(failure) => {
            assert_eq!(failure.retry, provisioner::Retry::Waiting, "{failure:?}");
            true
        }
        Ok(other) => panic!("{other:?}"),
    }
}

/// A reset that the BMC refuses has not happened: it is asked for again, and the host is not called provisioned.
#[tokio::test(start_paused = true)]
async fn a_refused_reset_into_the_disk_is_asked_for_again() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.written().await;
    world.restart();
    world.host().provision(image()).await.unwrap();
    world.calls();
    pass(61).await;
    world.bmc.lock().unwrap().refuses_restart = true;
    for _ in 0..3 {
        assert!(waits(world.host().provision(image()).await));
        pass(10).await;
    }
    world.bmc.lock().unwrap().refuses_restart = false;
    world.calls();
    assert_eq!(power_changes(&to_the_end(&world).await), ["Restart"]);
}

/// Nor has one that was not sent, as what is read before it was not there in time.
#[tokio::test(start_paused = true)]
async fn a_reset_into_the_disk_that_was_not_sent_is_asked_for_again() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.written().await;
    world.restart();
    world.host().provision(image()).await.unwrap();
    world.calls();
    pass(61).await;
    world.bmc.lock().unwrap().fails_restart = Some(unsent);
    for _ in 0..3 {
        assert!(waits(world.host().provision(image()).await));
        pass(10).await;
    }
    world.bmc.lock().unwrap().fails_restart = None;
    world.calls();
    assert_eq!(power_changes(&to_the_end(&world).await), ["Restart"]);
}

/// What a gateway answers in the BMC's place, and what cannot be read, is no refusal: a tenant may be booting.
#[tokio::test(start_paused = true)]
async fn a_reset_into_the_disk_that_a_gateway_answers_for_is_not_asked_for_again() {
    for kind in [ErrorKind::Rejected { status: 504 }, ErrorKind::Protocol] {
        let mut world = World::new();
        world.disable_power_off = true;
        world.written().await;
        world.restart();
        world.host().provision(image()).await.unwrap();
        world.calls();
        pass(61).await;
        world.bmc.lock().unwrap().answers_restart = Some(kind);
        assert!(waits(world.host().provision(image()).await), "{kind:?}");
        world.bmc.lock().unwrap().answers_restart = None;
        pass(10).await;
        assert_eq!(power_changes(&to_the_end(&world).await), ["Restart"], "{kind:?}");
    }
}

/// The same of the boot source, which is reset before.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_taken_the_place_of_the_hosts_is_not_reset_into_its_disk() {
    for may_cut in [true, false] {
        let mut world = World::new();
        world.disable_power_off = !may_cut;
        world.written().await;
        world.restart();
        world.host().provision(image()).await.unwrap();
        world.calls();
        pass(61).await;
        world.bmc.lock().unwrap().another_after = Some("boot normally");
        let failure = world.host().provision(image()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
        let calls = world.calls();
        assert!(calls.contains(&"boot normally".to_owned()) && power_changes(&calls).is_empty(), "{calls:?}");
    }
}

/// An agent that writes, given its command by the server before this one.
async fn writing(world: &World) -> Agent {
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let command = agent.given(world).await;
    assert!(matches!(command.action, Action::WriteImage(_)));
    agent
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_the_middle_of_its_work_is_waited_for_longer_than_an_idle_one() {
    let mut world = World::new();
    let agent = writing(&world).await;
    world.restart();
    world.calls();
    for _ in 0..8 {
        assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
        pass(60).await;
    }
    assert_eq!(world.calls(), Vec::<String>::new(), "nothing is reset after eight minutes");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.calls(), Vec::<String>::new());
    let (_, status) = world.journal.last();
    assert_eq!(status.steps[1].attempt, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_is_not_waited_for_and_one_that_stays_silent_is_booted_at_last() {
    for (off, minutes) in [(true, 2), (false, 10)] {
        let mut world = World::new();
        writing(&world).await;
        world.restart();
        world.calls();
        world.bmc.lock().unwrap().on = !off;
        for _ in 0..minutes {
            world.host().provision(image()).await.unwrap();
            pass(60).await;
        }
        world.host().provision(image()).await.unwrap();
        assert_eq!(power_changes(&world.calls()), ["Restart"], "off: {off}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stood_still_hears_the_agent_before_it_resets_the_machine() {
    let world = World::new();
    let agent = writing(&world).await;
    world.calls();
    // The process stops for two hours, and looks at its host before anything else.
    pass(7200).await;
    world.host().provision(image()).await.unwrap_or(Verdict::working("stalled", 1));
    assert_eq!(world.calls(), Vec::<String>::new());
    let AgentState::Running { command, .. } = agent.state.lock().unwrap().clone() else { panic!() };
    let progress = Progress { percent: 50, ..Progress::default() };
    *agent.state.lock().unwrap() = AgentState::Running { command, progress };
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.calls(), Vec::<String>::new());
}

/// A wipe that has come as far as the agent's command.
async fn wiping(world: &World, request: &CleaningRequest) -> (Agent, agent_protocol::Command) {
    world.host().deprovision(request.clone()).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    agent.say(world).await;
    world.host().deprovision(request.clone()).await.unwrap();
    let command = agent.given(world).await;
    (agent, command)
}

#[tokio::test(start_paused = true)]
async fn a_wipe_is_told_what_the_inspection_knew_and_tells_what_it_left() {
    let disk = Storage { name: Some("/dev/vda".into()), serial_number: Some("DISK-1".into()), ..Storage::default() };
    let hints = RootDeviceHints { serial_number: Some("DISK-1".into()), ..RootDeviceHints::default() };
    let request = CleaningRequest { clean: true, root_device_hints: hints.clone(), ..CleaningRequest::default() };
    let hostname = || Some("node-0".to_owned());
    let known =
        |storage: Vec<Storage>| Some(HardwareDetails { storage, hostname: hostname(), ..HardwareDetails::default() });
    // What a BMC lists are drives, of which a system may see none: they are not waited for, nor is their absence.
    let listed = |storage: Vec<Storage>| Some(HardwareDetails { storage, ..HardwareDetails::default() });
    let drive = Storage { name: None, ..disk.clone() };
    for (hardware, expected) in [
        (None, None),
        (known(vec![]), Some(vec![])),
        (known(vec![disk.clone()]), Some(vec![disk.clone()])),
        (listed(vec![]), None),
        (listed(vec![drive]), None),
    ] {
        let mut world = World::new();
        world.hardware = hardware;
        let (_, command) = wiping(&world, &request).await;
        let Action::WipeDisks(wipe) = command.action else { panic!() };
        assert_eq!((wipe.expected, wipe.named), (expected, hints.clone()));
    }
    // What was left is said; that nothing was there, too.
    let left = LeftDisk { disk: "/dev/sda".into(), why: "it is reached by iSCSI".into() };
    for (disks, left, says) in [
        (
            vec!["/dev/vda".to_owned()],
            vec![left],
            "wiped /dev/vda; left as they are, unless spec.rootDeviceHints name them: /dev/sda (it is reached by iSCSI)",
        ),
        (vec![], vec![], "the machine has none"),
    ] {
        let mut world = World::new();
        world.hardware = known(vec![]);
        let (agent, command) = wiping(&world, &request).await;
        agent.finished(&command, Outcome::Wiped { disks, left });
        agent.say(&world).await;
        assert_eq!(world.host().deprovision(request.clone()).await.unwrap(), WIPED);
        let (_, status) = world.journal.last();
        assert!(status.message.as_ref().unwrap().contains(says), "{:?}", status.message);
        assert_eq!(status.steps[1].phase, StepPhase::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_finds_no_disk_fails_with_what_to_do_even_where_the_agent_thinks_otherwise() {
    let disk = Storage { name: Some("/dev/vda".into()), ..Storage::default() };
    let request = CleaningRequest { clean: true, ..CleaningRequest::default() };
    let error =
        CommandError { code: ErrorCode::NoDisk, message: "1 of the 1 disks are absent".into(), untouched: false };
    let by_bmc = Storage { serial_number: Some("DISK-1".into()), ..Storage::default() };
    let none = || Outcome::Wiped { disks: vec![], left: vec![] };
    for (outcome, disk) in [(none(), &disk), (none(), &by_bmc), (Outcome::Failed(error), &disk)] {
        let mut world = World::new();
        world.hardware = Some(HardwareDetails { storage: vec![disk.clone()], ..HardwareDetails::default() });
        let (agent, command) = wiping(&world, &request).await;
        agent.finished(&command, outcome);
        agent.say(&world).await;
        let failure = world.host().deprovision(request.clone()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::HardwareFailed);
        assert!(failure.advice.unwrap().contains("HardwareData"), "{}", failure.message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_lost_in_the_middle_of_a_write_is_written_anew() {
    let lose: [fn(&World); 3] = [
        |world| world.journal.record.delete(),
        // Put back to one of before the work, and to one from its midst.
        |world| {
            let first = world.journal.record.writes().first().unwrap().content.clone();
            world.journal.record.restore(1, first);
        },
        |world| {
            let writes = world.journal.record.writes();
            world.journal.record.restore(writes.len() as u64 - 1, writes[writes.len() - 2].content.clone());
        },
    ];
    for (case, lose) in lose.into_iter().enumerate() {
        let world = World::new();
        let agent = world.booted().await;
        world.host().provision(image()).await.unwrap();
        let written = agent.given(&world).await;
        let summary = WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() };
        agent.finished(&written, Outcome::Written(summary));
        lose(&world);
        agent.say(&world).await;
        // The record that the step was decided on is gone: it is decided again.
        let _ = world.host().provision(image()).await;
        world.host().provision(image()).await.unwrap();
        let command = agent.given(&world).await;
        assert!(matches!(command.action, Action::Leave { .. }), "case {case}: {command:?}");
        agent.finished(&command, Outcome::Leaving);
        agent.say(&world).await;
        while world.host().provision(image()).await.unwrap() != Verdict::Done(()) {
            pass(61).await;
        }
        let newest = world.journal.newest();
        let step = newest.status.steps.iter().find(|step| step.name == "write-image").unwrap();
        assert_eq!((step.attempt, newest.number, newest.id), (Some(1), 1, written.id.operation.clone()), "case {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_another_process_has_ended_is_shown_as_ended() {
    let mut world = World::new();
    world.booted().await;
    world.host().provision(image()).await.unwrap();
    let mut history = world.journal.history.all();
    world.host().release(ReleaseRequest::default()).await.unwrap();
    // It died before it could show that.
    world.journal.history.put(history.pop().unwrap());
    world.restart();
    assert!(!world.journal.all().last().unwrap().1.phase.is_final());
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert!(world.journal.all().last().unwrap().1.phase.is_final());
}

/// What has begun to be wiped is wiped to the end, and that is told: the consent that was given for it is used up.
#[tokio::test(start_paused = true)]
async fn a_wipe_that_was_completed_is_told_whatever_the_mode_is_by_then() {
    let mut world = World::new();
    let mut request = CleaningRequest { clean: true, wish: Some("w".into()), ..CleaningRequest::default() };
    let (agent, command) = wiping(&world, &request).await;
    request.clean = false;
    assert!(matches!(world.host().deprovision(request.clone()).await.unwrap(), Verdict::Working(_)));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    let verdict = world.host().deprovision(request.clone()).await.unwrap();
    assert_eq!(verdict, Verdict::Done(Deprovisioned { wiped: true, untouched: false }));
    // The process died before the host's status said so.
    world.restart();
    let verdict = world.host().deprovision(request.clone()).await.unwrap();
    assert_eq!(verdict, Verdict::Done(Deprovisioned { wiped: true, untouched: false }));
    let world = World::new();
    let mut verdict = Verdict::working("", 1);
    for _ in 0..10 {
        verdict = world.host().deprovision(request.clone()).await.unwrap();
        pass(10).await;
    }
    assert_eq!(verdict, Verdict::Done(Deprovisioned { wiped: false, untouched: false }));
}

/// Force does not wait for the agent; nor does the agent write on, when its host is no more looked after.
#[tokio::test(start_paused = true)]
async fn an_agent_whose_host_is_let_go_in_mid_write_is_told_to_stop() {
    for (restarts, deleted) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new();
        let agent = world.booted().await;
        world.host().provision(image()).await.unwrap();
        let command = agent.given(&world).await;
        let progress = Progress { bytes: 4096, disk: "/dev/vda".into(), ..Progress::default() };
        *agent.state.lock().unwrap() = AgentState::Running { command: command.id, progress };
        assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        world.host().release(ReleaseRequest { force: true }).await.unwrap();
        let said = world.machine.interruptions();
        assert!(said.len() == 1 && said[0].contains("writing the image to /dev/vda"), "{said:?}");
        let (_, status) = world.journal.all().pop().unwrap();
        assert!(status.message.unwrap().contains("/dev/vda"));
        if restarts {
            world.restart();
            world.expect();
        }
        if deleted {
            world.forget();
        }
        assert_eq!(agent.say(&world).await.0, StatusCode::FORBIDDEN, "restarts: {restarts}, deleted: {deleted}");
        // It is let go once more, as its release could not be noted.
        world.host().release(ReleaseRequest { force: true }).await.unwrap();
        assert_eq!(agent.dismissed(&world).await, Some(agent.generation), "it is told that the boot is over");
        assert_eq!(world.machine.interruptions().len(), 1);
        // Taken back, it is booted anew.
        world.calls();
        world.host().provision(image()).await.unwrap();
        assert_eq!(power_changes(&world.calls()), ["Restart"]);
        assert_eq!(world.journal.latest_boot().unwrap().generation, 2);
    }
}

/// An order that has not been fetched goes with the host.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_let_go_gives_no_more_orders() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    world.host().release(ReleaseRequest { force: true }).await.unwrap();
    let (status, directive) = agent.say(&world).await;
    assert_eq!((status, directive.command), (StatusCode::FORBIDDEN, None));
}

/// A slow disk that is made zero downloads nothing for long: what is written counts as well. One of which nothing moves has hung.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_made_zero_for_long_has_not_hung() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    let mut written = 0;
    let mut says = async |grows: bool| {
        if grows {
            written += 1 << 20;
        }
        let progress = Progress { bytes: 4096, written, ..Progress::default() };
        *agent.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress };
        assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        let answer = world.host().provision(image()).await;
        pass(60).await;
        answer
    };
    for minute in 0..60 {
        assert!(matches!(says(true).await, Ok(Verdict::Working(_))), "after {minute} minutes");
    }
    let mut failed = None;
    for minute in 0..60 {
        if let Err(failure) = says(false).await {
            failed = Some((minute, failure));
            break;
        }
    }
    let (minute, failure) = failed.expect("nothing moves, and nothing is said");
    assert!((14..=16).contains(&minute) && failure.message.contains("nothing has changed for 900 s"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_served_is_shown_without_its_secrets() {
    let world = World::new();
    let mut request = image();
    request.image.url = "gopher://user:secret@192.0.2.9/disk.raw?signature=secret".into();
    let failure = world.host().provision(request).await.unwrap_err();
    assert!(failure.message.contains("gopher://192.0.2.9/disk.raw"), "{}", failure.message);
    assert!(!failure.text().contains("secret"), "{}", failure.text());
    let mut request = image();
    request.image.url = request.image.url.replace("http", "HTTP");
    assert!(matches!(world.host().provision(request).await, Ok(Verdict::Working(_))), "schemes have no case");
}
