//! The host goes another way in the middle of something: what was ordered before counts for what it was, and for nothing that comes after.

use agent_protocol::{Action, AgentState, Outcome, Progress};
use api::metamorph::OperationType;
use axum::http::StatusCode;
use provisioner::{CleaningRequest, InspectRequest, PowerWish, Verdict};

use crate::common::{Agent, World, image};

/// The image is taken back when the agent has been answered with the order to write it, and has not reported since: it may write. It is
/// heard before another intent is recorded, and the disks are wiped in the first attempt by the agent that is booted in its place.
#[tokio::test(start_paused = true)]
async fn an_agent_that_was_given_work_is_heard_before_it_is_given_other_work() {
    let world = World::new();
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    let command = agent.say(&world).await.1.command.expect("it is told to write");
    assert!(matches!(command.action, Action::WriteImage(_)));
    world.told();

    let request = CleaningRequest { clean: true, ..CleaningRequest::default() };
    assert!(matches!(world.host().deprovision(request.clone()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.journal.last().0, OperationType::Provision, "no intent to wipe is recorded");
    assert_eq!(world.told(), Vec::<String>::new());

    *agent.state.lock().unwrap() = AgentState::Running { command: command.id, progress: Progress::default() };
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().deprovision(request.clone()).await.unwrap();
    assert!(world.told().contains(&"Restart".to_owned()), "what it writes can only be ended by a boot");
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
    world.told();
    world.host().deprovision(request.clone()).await.unwrap();
    let command = agent.given(&world).await;
    assert_eq!((command.id.step.as_str(), command.id.attempt), ("wipe-disks", 1));
    agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(request).await.unwrap(), Verdict::Done(()));
    assert_eq!(world.told(), Vec::<String>::new(), "nothing is booted");
}

/// The machine was told to go off, and is inspected before it was seen to: the boot is the end of that order. The next wish for it to be
/// off is an order of its own, and not a wait for the old one.
#[tokio::test(start_paused = true)]
async fn an_order_to_go_off_ends_with_the_next_boot() {
    for request in [PowerWish::HardOff, PowerWish::SoftOff] {
        let world = World::new();
        assert!(matches!(world.host().set_power(request.into()).await.unwrap(), Verdict::Working(_)));
        assert!(world.told().iter().any(|told| told.ends_with("Off")));
        world.host().inspect(InspectRequest::default()).await.unwrap();
        assert!(world.told().contains(&"Restart".to_owned()));
        world.host().set_power(request.into()).await.unwrap();
        let told = world.told();
        assert!(told.iter().any(|told| told.ends_with("Off")), "{request:?}: {told:?}");
    }
}
