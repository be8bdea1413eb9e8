//! The host goes another way in the middle of something: what was ordered before counts for what it was, and for nothing that comes after.

use std::time::Duration;

use agent_protocol::{Action, AgentState, Directive, Outcome, Progress};
use api::metamorph::{OperationPhase, OperationType};
use axum::http::StatusCode;
use provisioner::{Cause, CleaningRequest, Failure, InspectRequest, PowerWish, Verdict};

use crate::common::{Agent, LEFT, WIPED, World, image, pass};

/// The image is taken back when the agent has been answered with the order to write it, and has not reported since: it may write. It is
/// heard before another intent is recorded, and the disks are wiped in the first attempt by the agent that is booted in its place.
#[tokio::test(start_paused = true)]
async fn an_agent_that_was_given_work_is_heard_before_it_is_given_other_work() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let command = agent.say(&world).await.1.command.expect("it is told to write");
    assert!(matches!(command.action, Action::WriteImage(_)));
    world.calls();

    let request = CleaningRequest { clean: true, ..CleaningRequest::default() };
    assert!(matches!(world.host().deprovision(request.clone()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.journal.last().0, OperationType::Provision, "no intent to wipe is recorded");
    assert_eq!(world.calls(), Vec::<String>::new());

    *agent.state.lock().unwrap() = AgentState::Running { command: command.id, progress: Progress::default() };
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().deprovision(request.clone()).await.unwrap();
    assert!(world.calls().contains(&"Restart".to_owned()), "what it writes can only be ended by a boot");
    let agent = Agent::new(2, "boot-2");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().deprovision(request.clone()).await.unwrap();
    let command = agent.given(&world).await;
    assert_eq!((command.id.step.as_str(), command.id.attempt), ("wipe-disks", 1));
}

/// The answer with the order was lost: the agent says that it has nothing to do, and the way is free.
#[tokio::test(start_paused = true)]
async fn an_agent_that_says_it_has_nothing_to_do_is_believed() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    assert!(agent.say(&world).await.1.command.is_some());
    let request = CleaningRequest { clean: true, ..CleaningRequest::default() };
    world.host().deprovision(request.clone()).await.unwrap();
    assert_eq!(agent.say(&world).await.1.command, None, "what is not wanted any more is not given again");
    world.calls();
    world.host().deprovision(request.clone()).await.unwrap();
    let command = agent.given(&world).await;
    assert_eq!((command.id.step.as_str(), command.id.attempt), ("wipe-disks", 1));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(request).await.unwrap(), WIPED);
    assert_eq!(world.calls(), Vec::<String>::new(), "nothing is booted");
}

/// The machine was told to go off, and is inspected before it was seen to: the boot is the end of that order. The next wish for it to be
/// off is an order of its own, and not a wait for the old one.
#[tokio::test(start_paused = true)]
async fn an_order_to_go_off_ends_with_the_next_boot() {
    for request in [PowerWish::HardOff, PowerWish::SoftOff] {
        let world = World::new();
        assert!(matches!(world.host().set_power(request.into()).await.unwrap(), Verdict::Working(_)));
        assert!(world.calls().iter().any(|call| call.ends_with("Off")));
        world.host().inspect(InspectRequest::default()).await.unwrap();
        assert!(world.calls().contains(&"Restart".to_owned()));
        world.host().set_power(request.into()).await.unwrap();
        let calls = world.calls();
        assert!(calls.iter().any(|call| call.ends_with("Off")), "{request:?}: {calls:?}");
    }
}

/// The same wish, with and without a wipe: the mode has been changed meanwhile.
fn emptied(clean: bool) -> CleaningRequest {
    CleaningRequest { clean, wish: Some("2026-01-01T00:00:00Z".into()), ..CleaningRequest::default() }
}

/// All deprovisionings, and how they ended.
fn deprovisionings(world: &World) -> Vec<OperationPhase> {
    let all = world.journal.all().into_iter().filter(|(kind, _)| *kind == OperationType::Deprovision);
    all.map(|(_, status)| status.phase).collect()
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_is_called_off_before_it_begins_is_not_made() {
    let world = World::new();
    world.host().deprovision(emptied(true)).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.calls();
    for _ in 0..5 {
        if world.host().deprovision(emptied(false)).await.unwrap() == LEFT {
            break;
        }
        assert_eq!(agent.say(&world).await.1.command, None, "nothing is wiped");
        pass(1).await;
    }
    assert_eq!(world.calls(), ["HardOff"]);
    assert_eq!(deprovisionings(&world), [OperationPhase::Cancelled, OperationPhase::Succeeded]);
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_is_wished_before_the_machine_is_let_go_is_made() {
    let world = World::new();
    world.bmc.lock().unwrap().takes = Duration::from_secs(10);
    assert!(matches!(world.host().deprovision(emptied(false)).await.unwrap(), Verdict::Working(_)));
    assert!(matches!(world.host().deprovision(emptied(true)).await.unwrap(), Verdict::Working(_)));
    let agent = Agent::new(world.journal.latest_boot().expect("the agent is booted").generation, "boot-1");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().deprovision(emptied(true)).await.unwrap();
    let command = agent.given(&world).await;
    assert!(matches!(command.action, Action::WipeDisks(_)));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(emptied(true)).await.unwrap(), WIPED);
    assert_eq!(deprovisionings(&world), [OperationPhase::Cancelled, OperationPhase::Succeeded]);
}

/// Half of it is worse than all: what has begun is brought to its end.
#[tokio::test(start_paused = true)]
async fn a_wipe_that_has_begun_is_brought_to_its_end() {
    let world = World::new();
    world.host().deprovision(emptied(true)).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    world.host().deprovision(emptied(true)).await.unwrap();
    let command = agent.given(&world).await;
    world.calls();
    assert!(matches!(world.host().deprovision(emptied(false)).await.unwrap(), Verdict::Working(_)));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(emptied(false)).await.unwrap(), WIPED);
    assert_eq!(world.calls(), Vec::<String>::new());
    assert_eq!(deprovisionings(&world), [OperationPhase::Succeeded]);
}

fn stopped(failure: &Failure) {
    assert_eq!(failure.cause, Cause::RecordUnavailable, "{failure:?}");
    assert!(failure.message.contains("the host has been paused"), "{failure:?}");
}

/// Something stops the host while its medium is put in: what has been begun is not gone on with, and the same boot is when nothing stops it any more.
#[tokio::test(start_paused = true)]
async fn what_stops_a_host_while_its_medium_is_put_in_holds_the_reset() {
    let world = World::new();
    world.bmc.lock().unwrap().insertion = Duration::from_secs(30);
    let mut host = world.host();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.journal.record.unwanted(Some("the host has been paused"));
    };
    let (result, ()) = tokio::join!(host.inspect(InspectRequest::default()), stop);
    stopped(&result.unwrap_err());
    assert_eq!(world.calls(), ["insert"]);
    world.journal.record.unwanted(None);
    assert!(matches!(world.host().inspect(InspectRequest::default()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.calls(), ["boot once", "Restart"]);
    assert_eq!(world.journal.latest_boot().unwrap().generation, 1);
}

/// Power is switched without an intent, and an order to the agent may wait for a server that was away.
#[tokio::test(start_paused = true)]
async fn a_host_that_has_changed_is_not_switched_and_its_agent_is_given_nothing() {
    let mut world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    world.restart();
    world.host().provision(image()).await.unwrap();
    agent.say(&world).await;
    world.calls();
    world.journal.record.unwanted(Some("the host has been paused"));
    stopped(&world.host().provision(image()).await.unwrap_err());
    assert_eq!(agent.say(&world).await.1.command, None);
    stopped(&world.host().set_power(PowerWish::HardOff.into()).await.unwrap_err());
    assert_eq!(world.calls(), Vec::<String>::new());
}

/// An order lies with the server while its agent is away. What stops the host meanwhile makes no call that takes it back: the host is asked again when the
/// agent comes for the order.
#[tokio::test(start_paused = true)]
async fn an_order_that_has_been_waiting_is_given_only_if_it_is_still_wished() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    pass(60).await;
    world.journal.record.unwanted(Some("the host has been paused"));
    assert_eq!(agent.say(&world).await, (StatusCode::OK, Directive::default()));
    pass(600).await;
    assert_eq!(agent.say(&world).await.1, Directive::default());
    world.journal.record.unwanted(None);
    assert_eq!(agent.say(&world).await.1, Directive::default(), "it is ordered anew by who decides, or not at all");
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    assert!(matches!(command.action, Action::WriteImage(_)));
    assert_eq!(command.id.attempt, 1);
}

/// Where nothing stops the host, an order that has been waiting is given at once.
#[tokio::test(start_paused = true)]
async fn an_order_that_is_still_wished_is_given_whenever_its_agent_comes() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    pass(60).await;
    assert!(agent.say(&world).await.1.command.is_some());
}

/// The machine was let go unwiped, and the process died before the host could say so. Meanwhile a wipe is wished.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_let_go_unwiped_does_not_count_as_wiped() {
    let mut world = World::new();
    while world.host().deprovision(emptied(false)).await.unwrap() != LEFT {
        pass(1).await;
    }
    world.restart();
    assert!(matches!(world.host().deprovision(emptied(true)).await.unwrap(), Verdict::Working(_)));
    let agent = Agent::new(world.journal.latest_boot().expect("the agent is booted").generation, "boot-1");
    agent.say(&world).await;
    world.host().deprovision(emptied(true)).await.unwrap();
    let command = agent.given(&world).await;
    assert!(matches!(command.action, Action::WipeDisks(_)));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(emptied(true)).await.unwrap(), WIPED);
    assert_eq!(world.host().deprovision(emptied(false)).await.unwrap(), WIPED, "a wipe is enough");
    assert_eq!(deprovisionings(&world), [OperationPhase::Succeeded, OperationPhase::Succeeded]);
}

/// An order may hold megabytes, and whoever never reads the answers with it could have them pile up.
#[tokio::test(start_paused = true)]
async fn an_order_is_sent_some_times_at_once_and_no_more() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let ask = async || world.ask(agent.request(serde_json::to_vec(&agent.report()).unwrap())).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let response = ask().await;
        assert_eq!(response.status(), StatusCode::OK);
        unread.push(response);
    }
    assert_eq!(ask().await.status(), StatusCode::TOO_MANY_REQUESTS);
    unread.pop();
    let (status, directive) = agent.say(&world).await;
    assert_eq!(status, StatusCode::OK);
    assert!(directive.command.is_some(), "it is whole");
}
