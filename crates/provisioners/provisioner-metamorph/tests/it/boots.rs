//! Who may report for a boot generation, until when, and what its token is worth alone.

use std::time::Duration;

use agent_protocol::{Action, AgentState, Outcome, PROTOCOL_VERSION, WriteSummary};
use axum::body::Body;
use axum::http::StatusCode;
use futures::StreamExt;
use provisioner::{Cause, CleaningRequest, InspectRequest, PowerWish, ProvisionRequest, Verdict};

use crate::common::{Agent, WIPED, World, image, pass};

/// Everything that somebody can try who has read the boot medium.
fn thieves(generation: u64, boot_id: &str) -> Vec<Agent> {
    let other_key = Agent { key: Some("x".repeat(43)), ..Agent::new(generation, boot_id) };
    let no_key = Agent { key: None, protocol: 1, ..Agent::new(generation, boot_id) };
    vec![Agent::new(generation, "another-boot"), other_key, no_key]
}

#[tokio::test(start_paused = true)]
async fn a_token_alone_neither_reports_nor_gets_user_data() {
    let world = World::new();
    let agent = world.booted().await;
    for thief in thieves(agent.generation, &agent.boot_id) {
        let (status, directive) = thief.say(&world).await;
        assert_eq!((status, directive.command), (StatusCode::FORBIDDEN, None));
    }
    world.host().provision(image()).await.unwrap();
    for thief in thieves(agent.generation, &agent.boot_id) {
        let (status, directive) = thief.say(&world).await;
        assert_eq!((status, directive.command), (StatusCode::FORBIDDEN, None));
    }
    let command = agent.given(&world).await;
    assert!(matches!(command.action, Action::WriteImage(_)));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_answers_that_it_is_wiped_not_even_after_a_restart() {
    let mut world = World::new();
    let clean = || CleaningRequest { clean: true, ..CleaningRequest::default() };
    world.host().deprovision(clean()).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    agent.say(&world).await;
    world.host().deprovision(clean()).await.unwrap();
    let command = agent.given(&world).await;
    for restarted in [false, true] {
        if restarted {
            world.restart();
        }
        for thief in thieves(1, "boot-1") {
            thief.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
            // After the restart nobody is heard before the journal has been read.
            assert_ne!(thief.say(&world).await.0, StatusCode::OK);
            assert!(matches!(world.host().deprovision(clean()).await.unwrap(), Verdict::Working(_)));
            assert_eq!(thief.say(&world).await.0, StatusCode::FORBIDDEN);
        }
    }
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    assert_eq!(world.host().deprovision(clean()).await.unwrap(), WIPED);
}

#[tokio::test(start_paused = true)]
async fn the_medium_is_withdrawn_when_the_agent_has_reported() {
    let mut world = World::new();
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.medium().await, StatusCode::PARTIAL_CONTENT);
    let agent = Agent::new(1, "boot-1");
    agent.say(&world).await;
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.medium().await, StatusCode::NOT_FOUND);
    world.restart();
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.medium().await, StatusCode::NOT_FOUND, "nor does a restart put it on offer again");
}

#[tokio::test(start_paused = true)]
async fn a_generation_is_retired_when_its_machine_leaves_for_its_disk() {
    let mut world = World::new();
    let agent = world.written().await;
    let leave = agent.given(&world).await;
    agent.finished(&leave, Outcome::Leaving);
    agent.say(&world).await;
    assert_eq!(world.host().provision(image()).await.unwrap(), Verdict::Done(()));
    assert!(world.journal.last().1.boot.unwrap().retired);
    for restarted in [false, true] {
        if restarted {
            world.restart();
        }
        world.host().power_state().await.unwrap();
        *agent.state.lock().unwrap() = AgentState::Idle;
        assert_eq!(agent.say(&world).await.0, StatusCode::FORBIDDEN);
        // An agent that has not heard that it may go is told so.
        agent.finished(&leave, Outcome::Leaving);
        world.host().power_state().await.unwrap();
        let (status, _) = agent.say(&world).await;
        assert_eq!(status, StatusCode::OK);
        world.host().power_state().await.unwrap();
        let (_, directive) = agent.say(&world).await;
        assert_eq!(directive.acknowledged.as_ref(), Some(&leave.id), "restarted: {restarted}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_the_version_before_is_heard_but_gets_no_new_work() {
    let mut world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    // An upgrade, as if the agent were of the version before: it made no key, and none is recorded.
    let old = Agent { key: None, protocol: 1, ..Agent::new(1, "boot-0") };
    let mut older = World::new();
    older.host().provision(image()).await.unwrap();
    assert_eq!(old.say(&older).await.0, StatusCode::OK, "it is heard");
    let refused = older.host().provision(image()).await.unwrap_err();
    assert_eq!(refused.cause, Cause::Internal);
    assert!(refused.advice.unwrap().contains("agent-image build"));
    // One that is in the middle of its work brings it to its end.
    older.restart();
    let mut left = world.journal.newest();
    let status = &mut left.status;
    status.boot = status.boot.take().map(|boot| api::metamorph::AgentBoot {
        key_digest: None,
        boot_id: Some("boot-0".into()),
        ..boot
    });
    status.steps.iter_mut().for_each(|step| step.boot_id = step.boot_id.as_ref().map(|_| "boot-0".to_owned()));
    older.journal = crate::memory::Memory::of_history(left);
    let mut command = command;
    command.id.boot_id = "boot-0".into();
    let progress = agent_protocol::Progress::default();
    *old.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress };
    older.host().provision(image()).await.unwrap();
    assert_eq!(old.say(&older).await.0, StatusCode::OK);
    older.calls();
    assert!(matches!(older.host().provision(image()).await.unwrap(), Verdict::Working(_)));
    old.finished(&command, Outcome::Written(agent_protocol::WriteSummary::default()));
    old.say(&older).await;
    older.host().provision(image()).await.unwrap();
    assert_eq!(older.calls(), ["eject"], "it was not booted anew");
    let (_, next) = old.say(&older).await;
    assert!(next.acknowledged.is_some());
    // A version that is not served any more, or not yet, is told so.
    for protocol in [0, PROTOCOL_VERSION + 1] {
        let other = Agent { protocol, ..Agent::new(9, "b") };
        assert_eq!(other.say(&older).await.0, StatusCode::BAD_REQUEST);
    }
    let keyless = Agent { key: None, ..Agent::new(9, "b") };
    assert_eq!(keyless.say(&older).await.0, StatusCode::BAD_REQUEST);
    world.restart();
}

#[tokio::test(start_paused = true)]
async fn one_agent_reports_no_more_often_than_an_agent_does() {
    let world = World::new();
    let agent = world.booted().await;
    let mut refused = 0;
    for _ in 0..200 {
        refused += u32::from(agent.say(&world).await.0 == StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(refused >= 150, "{refused} of 200 at once were refused");
    pass(60).await;
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    // Whoever has the token alone takes nothing of the agent's share.
    for _ in 0..200 {
        assert_eq!(thieves(1, "boot-1")[1].say(&world).await.0, StatusCode::FORBIDDEN);
    }
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    pass(60).await;
    assert_eq!(thieves(1, "boot-1")[1].dismissed(&world).await, None, "it is another boot's generation, which goes on");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_names_another_host_gets_none_of_its_agents() {
    let mut world = World::new();
    let agent = world.booted().await;
    let signed = world.journal.content().unwrap().data["claim"].as_str().unwrap().to_owned();
    for claim in [String::new(), "A".repeat(43), signed] {
        world.journal.record.edit(|content| {
            content.data["subject"] = "the-uid-of-another-host".into();
            content.data["claim"] = claim.clone().into();
        });
        world.restart();
        world.host().provision(image()).await.unwrap();
        // It goes by its own uid, as before, and its own agent is heard.
        assert_eq!(agent.say(&world).await.0, StatusCode::OK, "{claim}");
        let other = boot_media::derive::credential(&[7; 32], "the-uid-of-another-host", agent.generation);
        let mut report = agent.report();
        report.host = "the-uid-of-another-host".into();
        let request = axum::http::Request::post(agent_protocol::REPORT_PATH)
            .header("authorization", format!("Bearer {other}"))
            .header(agent_protocol::BOOT_KEY_HEADER, "k".repeat(43))
            .body(axum::body::Body::from(serde_json::to_vec(&report).unwrap()))
            .unwrap();
        assert_ne!(world.post(request).await.0, StatusCode::OK, "the other's agent is no business of this host");
    }
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_was_lost_opens_no_old_generation() {
    let mut world = World::new();
    let agent = world.written().await;
    while world.host().provision(image()).await.unwrap() != Verdict::Done(()) {
        pass(61).await;
    }
    world.journal = crate::memory::Memory::default();
    world.host().provision(image()).await.unwrap();
    let boot = world.journal.last().1.boot.unwrap();
    assert_eq!(boot.generation, agent.generation + 1);
    assert_eq!(Agent::new(boot.generation, "boot-2").say(&world).await.0, StatusCode::OK);
    assert_eq!(agent.say(&world).await.0, StatusCode::FORBIDDEN);
}

/// A report that begins and never ends: of a boot that is over it is not even read, and of one host few are read at once.
#[tokio::test(start_paused = true)]
async fn who_sends_slowly_takes_no_memory_from_others() {
    let world = World::new();
    let agent = world.booted().await;
    let endless = |agent: &Agent| {
        let body =
            futures::stream::iter([Ok::<_, std::io::Error>(vec![b' '; 1 << 20])]).chain(futures::stream::pending());
        agent.request(Vec::new()).map(|_| Body::from_stream(body))
    };
    let begun = tokio::time::Instant::now();
    let (first, second, third) = tokio::join!(world.post(endless(&agent)), world.post(endless(&agent)), async {
        tokio::task::yield_now().await;
        let answer = world.post(endless(&agent)).await;
        (answer.0, begun.elapsed())
    });
    assert_eq!((first.0, second.0), (StatusCode::REQUEST_TIMEOUT, StatusCode::REQUEST_TIMEOUT));
    assert_eq!(third, (StatusCode::TOO_MANY_REQUESTS, std::time::Duration::ZERO));
    assert_eq!(agent.say(&world).await.0, StatusCode::OK, "the agent is heard when they have gone");

    let stale = Agent { generation: 0, ..Agent::new(0, "boot-0") };
    let begun = tokio::time::Instant::now();
    assert_eq!(world.post(endless(&stale)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
}

/// How often the machine has been restarted from a medium that was put in for that.
fn resets(calls: &[String]) -> usize {
    calls.iter().filter(|line| line.as_str() == "Restart").count()
}

#[tokio::test(start_paused = true)]
async fn a_boot_that_is_asked_for_by_force_gives_up_an_agent_that_hangs() {
    let forced = || ProvisionRequest { force_reboot: true, ..image() };
    let is_accepted = |answer: Verdict<()>| matches!(answer, Verdict::Working(working) if working.accepted);
    let world = World::new();
    // Whoever has nothing under way is booted as ever, and that was asked for.
    assert!(is_accepted(world.host().provision(forced()).await.unwrap()));
    assert_eq!((world.journal.latest_boot().unwrap().generation, resets(&world.calls())), (1, 1));
    // No agent has reported yet.
    assert!(!is_accepted(world.host().provision(image()).await.unwrap()));
    assert!(is_accepted(world.host().provision(forced()).await.unwrap()));
    assert_eq!((world.journal.latest_boot().unwrap().generation, resets(&world.calls())), (2, 1));
    assert_eq!(Agent::new(1, "late").say(&world).await.0, StatusCode::FORBIDDEN, "the one that was given up");
    // It has, and was given its work, of which it says nothing more.
    let agent = Agent::new(2, "boot-2");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().provision(image()).await.unwrap();
    agent.given(&world).await;
    assert!(is_accepted(world.host().provision(forced()).await.unwrap()));
    assert_eq!((world.journal.latest_boot().unwrap().generation, resets(&world.calls())), (3, 1));
    assert_eq!(agent.say(&world).await.0, StatusCode::FORBIDDEN);
    // What has ended is heard, and not begun again.
    let agent = Agent::new(3, "boot-3");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    agent.finished(&command, Outcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() }));
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    assert!(!is_accepted(world.host().provision(forced()).await.unwrap()));
    assert_eq!((world.journal.latest_boot().unwrap().generation, resets(&world.calls())), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn boots_that_are_asked_for_by_force_are_no_failed_attempts() {
    let world = World::new();
    let request = |force_reboot| InspectRequest { force_reboot, ..InspectRequest::default() };
    world.host().inspect(request(false)).await.unwrap();
    // Whether an agent has reported meanwhile or not.
    for generation in 2..12 {
        if generation % 2 == 0 {
            assert_eq!(Agent::new(generation - 1, "an-agent").say(&world).await.0, StatusCode::OK);
        }
        world.host().inspect(request(false)).await.unwrap();
        world.host().inspect(request(true)).await.unwrap();
        assert_eq!(world.journal.latest_boot().unwrap().generation, generation);
    }
    assert_eq!(Agent::new(11, "boot-11").say(&world).await.0, StatusCode::OK);
    world.host().inspect(request(false)).await.unwrap();
    // The first that falls silent by itself is the first failed attempt.
    pass(3600).await;
    world.host().inspect(request(false)).await.unwrap();
    assert_eq!(world.journal.latest_boot().unwrap().generation, 12);
}

/// An API server that refuses the change of the annotation must not make the machine boot without end.
#[tokio::test(start_paused = true)]
async fn a_boot_that_is_asked_for_again_and_again_is_one() {
    let mut world = World::new();
    let forced = || InspectRequest { force_reboot: true, ..InspectRequest::default() };
    for _ in 0..10 {
        let answer = world.host().inspect(forced()).await.unwrap();
        assert!(matches!(answer, Verdict::Working(working) if working.accepted));
        pass(30).await;
    }
    assert_eq!((world.journal.latest_boot().unwrap().generation, resets(&world.calls())), (1, 1));
    let agent = Agent::new(1, "boot-1");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().inspect(forced()).await.unwrap();
    assert_eq!(world.journal.latest_boot().unwrap().generation, 1);
    // The next process gives the agent its time to report before it believes that it hangs.
    world.restart();
    world.host().inspect(forced()).await.unwrap();
    assert_eq!(world.journal.latest_boot().unwrap().generation, 1);
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
}

/// An agent that an earlier operation has left is not called booted anew.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_merely_taken_over_was_not_booted_anew() {
    let world = World::new();
    let wish = |wish: &str, force_reboot| InspectRequest {
        wish: Some(wish.into()),
        force_reboot,
        ..InspectRequest::default()
    };
    world.host().inspect(wish("one", false)).await.unwrap();
    assert_eq!(Agent::new(1, "boot-1").say(&world).await.0, StatusCode::OK);
    world.host().inspect(wish("one", false)).await.unwrap();
    let answer = world.host().inspect(wish("other", true)).await.unwrap();
    let generation = world.journal.latest_boot().unwrap().generation;
    let is_accepted = matches!(answer, Verdict::Working(working) if working.accepted);
    assert_eq!(is_accepted, generation == 2, "what it says is what was done");
}

/// A boot that was noted on the way to a record that was never written is no boot: the machine is not reset for it.
#[tokio::test(start_paused = true)]
async fn what_was_noted_for_a_write_that_was_given_up_is_void() {
    let world = World::new();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let first = world.journal.latest_boot().unwrap().generation;
    let forced = || InspectRequest { force_reboot: true, ..InspectRequest::default() };
    world.journal.record.hangs(true);
    let mut host = world.host();
    assert!(tokio::time::timeout(Duration::from_secs(1200), host.inspect(forced())).await.is_err());
    world.journal.record.hangs(false);
    world.calls();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let recorded = world.journal.latest_boot().unwrap().generation;
    assert!(recorded == first && !world.calls().iter().any(|call| call == "insert"), "a boot that is not recorded");
}

/// Nobody waits for the agent of a boot that was never ordered.
#[tokio::test(start_paused = true)]
async fn a_boot_that_the_bmc_would_not_be_set_for_is_ordered_again() {
    let world = World::new();
    world.bmc.lock().unwrap().refuses_override = true;
    let failure = world.host().provision(image()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused, "{failure:?}");
    world.bmc.lock().unwrap().refuses_override = false;
    assert!(!world.calls().contains(&"Restart".to_owned()));
    assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
    let calls = world.calls();
    assert!(calls.ends_with(&["boot once".to_owned(), "Restart".to_owned()]), "{calls:?}");
}

/// The machine is on its way: a second reset would undo it, and a failure would be none.
#[tokio::test(start_paused = true)]
async fn a_reset_whose_answer_was_lost_is_waited_for_and_not_repeated() {
    let world = World::new();
    world.bmc.lock().unwrap().loses_restart = true;
    assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
    assert!(world.calls().ends_with(&["Restart".to_owned()]));
    let Verdict::Working(working) = world.host().provision(image()).await.unwrap() else { panic!("it is waited for") };
    assert!(working.step.contains("the reset was not confirmed (nothing came of it)"), "{working:?}");
    assert_eq!(world.calls(), Vec::<String>::new());
}

/// A deletion counts what keeps it, and goes on without a wipe in the end: a BMC that is gone while its machine boots is waited for, in words.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_a_bmc_that_is_gone_after_a_reset_whose_answer_was_lost() {
    let mut world = World::new();
    let clean = || CleaningRequest { clean: true, ..CleaningRequest::default() };
    world.deleting = true;
    world.bmc.lock().unwrap().loses_restart = true;
    assert!(matches!(world.host().deprovision(clean()).await.unwrap(), Verdict::Working(_)));
    world.bmc.lock().unwrap().is_gone = true;
    tokio::time::advance(Duration::from_secs(30)).await;
    let Verdict::Working(working) = world.host().deprovision(clean()).await.unwrap() else {
        panic!("it is waited for")
    };
    assert!(working.step.contains("the reset was not confirmed (nothing came of it); ask the BMC"), "{working:?}");
}

/// A server that was started with an image of its own agent, while machines still run the other.
#[tokio::test(start_paused = true)]
async fn an_agent_of_the_other_kind_is_given_no_new_work() {
    let mut world = World::new();
    world.host().provision(image()).await.unwrap();
    world.restart();
    world.host().provision(image()).await.unwrap();
    let other = Agent { version: "ironic-python-agent", ..Agent::new(1, "boot-1") };
    other.say(&world).await;
    world.calls();
    assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.journal.latest_boot().unwrap().generation, 2);
    assert!(world.calls().contains(&"Restart".to_owned()));
    assert_eq!(other.say(&world).await.0, StatusCode::FORBIDDEN);
}

/// The same where the call was given up before the machine was restarted: nothing is on its way that could be waited for.
#[tokio::test(start_paused = true)]
async fn a_boot_whose_call_was_given_up_before_the_restart_is_ordered_again() {
    let world = World::new();
    world.bmc.lock().unwrap().hangs_at_override = true;
    {
        let mut host = world.host();
        let call = host.provision(image());
        assert!(tokio::time::timeout(Duration::from_secs(20), call).await.is_err());
    }
    world.bmc.lock().unwrap().hangs_at_override = false;
    assert!(!world.calls().contains(&"Restart".to_owned()));
    // As after a restart of the server, one that is there may report; not for as long as a boot takes.
    for _ in 0..30 {
        assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
        pass(3).await;
    }
    let calls = world.calls();
    assert!(calls.ends_with(&["boot once".to_owned(), "Restart".to_owned()]), "{calls:?}");
    assert_eq!(world.journal.latest_boot().unwrap().generation, 1);
}

/// A BMC has few places for sessions, and a killed server ends none.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_left_open_is_ended_by_the_next_process() {
    let mut world = World::new();
    world.bmc.lock().unwrap().opens_sessions = true;
    world.host().provision(image()).await.unwrap();
    let open: Vec<String> = (1..=world.bmc.lock().unwrap().connections)
        .map(|number| format!("https://192.0.2.7/redfish/v1/SessionService/Sessions/{number}"))
        .collect();
    assert_eq!(open.len(), 1);
    world.restart();
    assert_eq!(world.bmc.lock().unwrap().left_open, Vec::<String>::new());
    world.host().set_power(PowerWish::HardOff.into()).await.unwrap();
    assert_eq!(world.bmc.lock().unwrap().left_open, open);
}
