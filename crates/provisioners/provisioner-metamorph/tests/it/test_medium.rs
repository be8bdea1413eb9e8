//! The test of what a BMC can read: into which drive it goes, what it proves, and that it is out again, whoever is killed.

use axum::http::StatusCode;
use diagnosis::{TestEnd, TestMedium};
use provisioner::{Cause, Deployed, Failure, InspectRequest, Outcome, ReleaseRequest, TestMediumRequest, Verdict};

use crate::common::{Agent, World, image, pass};

async fn asks(world: &World, identity: &str, in_use: bool) -> Outcome<Box<TestMedium>> {
    let mut host = world.host();
    let request = TestMediumRequest { identity: identity.into(), in_use };
    host.test_media().expect("the native provisioner has it").test_medium(request).await
}

async fn test(world: &World) -> Outcome<Box<TestMedium>> {
    asks(world, "t-1", false).await
}

fn ended(outcome: Outcome<Box<TestMedium>>) -> TestMedium {
    match outcome.unwrap() {
        Verdict::Done(ended) => *ended,
        other => panic!("{other:?}"),
    }
}

fn works(outcome: &Outcome<Box<TestMedium>>) -> bool {
    matches!(outcome, Ok(Verdict::Working(_)))
}

/// What is in the drive that the machine boots from.
fn drive(world: &World) -> Option<String> {
    world.bmc.lock().unwrap().medium.clone()
}

fn recorded(world: &World) -> bool {
    world.journal.content().is_some_and(|content| content.data.get("testMedium").is_some())
}

/// Orders that the BMC was given, without the names of media.
fn orders(world: &World) -> Vec<String> {
    let calls = world.calls();
    calls.into_iter().map(|line| if line.starts_with("put ") { "put in".to_owned() } else { line }).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_asks_for_it_reaches_this_server() {
    let world = World::new();
    assert!(works(&test(&world).await));
    let url = drive(&world).expect("it is in");
    assert!(url.starts_with("http://192.0.2.1:6180/shard/0/media/") && recorded(&world));
    assert_eq!(orders(&world), ["put in"], "neither power nor boot source is touched");
    pass(2).await;
    assert_eq!(world.medium().await, StatusCode::PARTIAL_CONTENT);
    assert!(works(&test(&world).await), "it may be in the middle of it");
    pass(6).await;
    let told = ended(test(&world).await);
    assert_eq!((told.end, told.from.as_deref(), told.requests), (TestEnd::Read, Some("192.0.2.7"), 1), "{told:?}");
    assert_eq!((told.seconds, told.server.as_str()), (2, "http://192.0.2.1:6180"));
    assert!(
        !told.sentence().contains(url.rsplit('/').next().unwrap()),
        "who may read a diagnosis may not fetch a medium"
    );
    assert_eq!((orders(&world), drive(&world), recorded(&world)), (vec!["empty CD1".to_owned()], None, false));
    // The answer may have been lost.
    assert_eq!(ended(test(&world).await), told);
    assert_eq!(orders(&world).len(), 0);
    // Another test has another address.
    pass(2).await;
    assert!(works(&asks(&world, "t-2", false).await));
    assert_ne!(drive(&world), Some(url));
}

#[tokio::test(start_paused = true)]
async fn a_second_test_waits_for_the_first() {
    let world = World::new();
    assert!(works(&asks(&world, "t-1", false).await));
    orders(&world);
    for _ in 0..4 {
        pass(3).await;
        assert!(works(&asks(&world, "t-2", false).await) && works(&asks(&world, "t-1", false).await));
    }
    assert_eq!(orders(&world).len(), 0, "neither takes the other's out");
    assert_eq!(world.medium().await, StatusCode::PARTIAL_CONTENT);
    pass(6).await;
    assert_eq!(ended(asks(&world, "t-1", false).await).end, TestEnd::Read);
    assert!(works(&asks(&world, "t-2", false).await));
    assert_eq!(orders(&world), ["empty CD1", "put in"]);
}

/// What the record still says of a test is of before the boot: the drive has the agent's medium by now.
#[tokio::test(start_paused = true)]
async fn a_killed_server_takes_no_agents_medium_for_that_of_a_test() {
    let mut world = World::new();
    assert!(works(&test(&world).await));
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let agents = drive(&world);
    assert!(agents.is_some());
    world.bmc.lock().unwrap().hides_media = true;
    world.restart();
    orders(&world);
    is_taken(test(&world).await, "work is under way");
    world.bmc.lock().unwrap().hides_media = false;
    assert_eq!((drive(&world), orders(&world).iter().any(|order| order.starts_with("empty"))), (agents, false));
}

#[tokio::test(start_paused = true)]
async fn silence_is_told_as_silence_after_a_minute() {
    let world = World::new();
    assert!(works(&test(&world).await));
    pass(58).await;
    assert!(works(&test(&world).await));
    pass(3).await;
    let told = ended(test(&world).await);
    assert_eq!((told.end, told.requests, told.from), (TestEnd::NotRead, 0, None));
    assert_eq!((drive(&world), recorded(&world)), (None, false));
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_says_where_it_refuses_it_is_told() {
    let world = World::new();
    world.bmc.lock().unwrap().refuses_medium = true;
    let told = ended(test(&world).await);
    assert_eq!((told.end, told.requests, told.text.as_str()), (TestEnd::Refused, 0, "400 Bad Request"));
    assert_eq!((drive(&world), recorded(&world)), (None, false));
}

fn is_taken(outcome: Outcome<Box<TestMedium>>, words: &str) -> Failure {
    let failure = outcome.unwrap_err();
    assert!(failure.cause == Cause::MachineInUse && failure.message.contains(words), "{words}: {failure:?}");
    failure
}

#[tokio::test(start_paused = true)]
async fn a_drive_that_is_in_use_stays_as_it_is() {
    let world = World::new();
    let theirs = "http://elsewhere/rescue.iso";
    world.bmc.lock().unwrap().medium = Some(theirs.into());
    is_taken(asks(&world, "t", true).await, "that this server has not put there");
    assert_eq!((orders(&world).len(), drive(&world).as_deref(), recorded(&world)), (0, Some(theirs), false));
    // A data image, wherever it is.
    let world = World::new();
    world.bmc.lock().unwrap().second_drive = true;
    world.host().data_images().unwrap().attach("http://192.0.2.9/tools.iso".into()).await.unwrap();
    orders(&world);
    is_taken(asks(&world, "t", true).await, "data image");
    // Work that is under way: the agent is about to be booted.
    let world = World::new();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let agents = drive(&world);
    orders(&world);
    is_taken(asks(&world, "t", true).await, "work is under way");
    assert_eq!((orders(&world).len(), drive(&world)), (0, agents));
}

#[tokio::test(start_paused = true)]
async fn the_agents_medium_of_a_boot_that_is_over_gives_way() {
    let world = World::new();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let command = agent.given(&world).await;
    let outcome = agent_protocol::Outcome::Inspected {
        hardware: Box::default(),
        marks: vec![],
        uefi: true,
        secure_boot: false,
        links: vec![],
        devices: Box::default(),
    };
    agent.finished(&command, outcome);
    agent.say(&world).await;
    assert!(matches!(world.host().inspect(InspectRequest::default()).await.unwrap(), Verdict::Done(_)));
    let agents = drive(&world).expect("it is still in");
    orders(&world);
    assert!(works(&test(&world).await));
    assert_eq!(orders(&world), ["eject", "put in"]);
    assert_ne!(drive(&world), Some(agents));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_a_system_is_tested_with_consent_alone() {
    let mut world = World::new();
    world.deployed = Some(Deployed { image: Some(image().image), ..Deployed::default() });
    let failure = is_taken(test(&world).await, "runs a system");
    assert!(failure.advice.unwrap().contains("allowInUse"));
    assert_eq!((orders(&world).len(), drive(&world), recorded(&world)), (0, None, false));
    assert!(works(&asks(&world, "t-2", true).await));
    assert_eq!(orders(&world), ["put in"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_server_has_put_in_is_found_and_taken_out() {
    // The request is asked about again, or it is gone and the host is looked at.
    let mut world = World::new();
    assert!(works(&test(&world).await));
    let first = drive(&world);
    orders(&world);
    world.restart();
    pass(2).await;
    assert!(works(&test(&world).await));
    assert_eq!(orders(&world), ["empty CD1", "put in"]);
    assert!(drive(&world).is_some() && drive(&world) != first);
    world.restart();
    world.host().power_state().await.unwrap();
    assert_eq!((orders(&world), drive(&world), recorded(&world)), (vec!["empty CD1".to_owned()], None, false));
    // One that lives is left to its test, as long as somebody asks about it.
    assert!(works(&asks(&world, "t-3", false).await));
    world.host().power_state().await.unwrap();
    assert!(drive(&world).is_some());
    pass(181).await;
    world.host().power_state().await.unwrap();
    assert_eq!((drive(&world), recorded(&world)), (None, false));
}

/// What is in may be somebody's, where it is not known that the test medium is.
#[tokio::test(start_paused = true)]
async fn a_drive_that_shows_nothing_is_emptied_where_the_test_medium_is_known_to_be_in_alone() {
    for killed in [false, true] {
        let mut world = World::new();
        assert!(works(&test(&world).await));
        world.bmc.lock().unwrap().hides_media = true;
        orders(&world);
        if killed {
            world.restart();
        }
        for _ in 0..4 {
            pass(600).await;
            world.host().power_state().await.unwrap();
        }
        let emptied = orders(&world).iter().any(|order| order.starts_with("empty"));
        assert_eq!((emptied, recorded(&world)), (!killed, false), "killed: {killed}");
    }
}

/// It would come in when nobody knows of it any more.
#[tokio::test(start_paused = true)]
async fn one_that_may_still_come_in_is_waited_for() {
    let mut world = World::new();
    world.bmc.lock().unwrap().never_reads_data = true;
    assert!(works(&test(&world).await));
    let url = world
        .bmc
        .lock()
        .unwrap()
        .log
        .iter()
        .find_map(|line| line.strip_prefix("put ")?.strip_suffix(" in CD1").map(str::to_owned));
    world.restart();
    world.host().power_state().await.unwrap();
    assert!(recorded(&world), "the BMC has not answered");
    // Nor is it forgotten because another is in the drive, which may be somebody's.
    let rescue = "http://elsewhere/rescue.iso";
    world.bmc.lock().unwrap().medium = Some(rescue.into());
    world.host().power_state().await.unwrap();
    assert!(recorded(&world) && drive(&world).as_deref() == Some(rescue));
    world.bmc.lock().unwrap().medium = url;
    orders(&world);
    world.host().power_state().await.unwrap();
    assert_eq!((orders(&world), drive(&world), recorded(&world)), (vec!["empty CD1".to_owned()], None, false));
    // One that never comes ends after the time that insertions have.
    assert!(works(&asks(&world, "t-2", false).await));
    pass(70).await;
    assert!(works(&asks(&world, "t-2", false).await));
    pass(600).await;
    assert_eq!(ended(asks(&world, "t-2", false).await).end, TestEnd::NotRead);
    assert!(!recorded(&world));
}

#[tokio::test(start_paused = true)]
async fn whatever_needs_the_drive_takes_it_out() {
    let world = World::new();
    assert!(works(&test(&world).await));
    orders(&world);
    world.host().provision(image()).await.unwrap();
    assert_eq!(orders(&world)[..2], ["empty CD1", "insert"]);
    let told = ended(test(&world).await);
    assert!(told.end == TestEnd::Other && told.text.contains("needed the drive"), "{told:?}");
    let world = World::new();
    assert!(works(&test(&world).await));
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert_eq!((drive(&world), recorded(&world)), (None, false));
}

/// The test's medium, which the BMC has been asked for and has not answered.
async fn pending(world: &World) -> String {
    world.bmc.lock().unwrap().never_reads_data = true;
    assert!(works(&test(world).await));
    let lines = world.calls();
    let put = lines.iter().find_map(|line| line.strip_prefix("put ")?.strip_suffix(" in CD1"));
    put.expect("the BMC was asked").to_owned()
}

/// It would come in beside, or in place of, the medium that the machine is to boot from.
#[tokio::test(start_paused = true)]
async fn a_boot_waits_for_one_that_may_still_come_in() {
    for (comes, killed) in [(true, false), (true, true), (false, false)] {
        let mut world = World::new();
        let url = pending(&world).await;
        if killed {
            world.restart();
        }
        let Verdict::Working(waits) = world.host().inspect(InspectRequest::default()).await.unwrap() else { panic!() };
        assert!(waits.step.contains("may still come into the drive") && recorded(&world), "{waits:?}");
        assert!(!orders(&world).contains(&"insert".to_owned()));
        let attach = world.host().data_images().unwrap().attach("http://192.0.2.9/tools.iso".into()).await;
        assert!(matches!(attach, Ok(Verdict::Working(_))), "{attach:?}");
        if comes {
            world.bmc.lock().unwrap().medium = Some(url.clone());
        }
        // An agent that was there before this process would have reported by then, or the BMC have answered.
        pass(if comes { 61 } else { 601 }).await;
        orders(&world);
        world.host().inspect(InspectRequest::default()).await.unwrap();
        let emptied = orders(&world).iter().take_while(|order| *order != "insert").any(|order| order == "empty CD1");
        assert_eq!(emptied, comes);
        assert!(drive(&world).is_some_and(|there| there != url), "the agent's is in");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_let_go_leaves_none_behind() {
    for force in [false, true] {
        let world = World::new();
        let url = pending(&world).await;
        let release = ReleaseRequest { force };
        let released = world.host().release(release).await.unwrap();
        assert_eq!(matches!(released, Verdict::Working(_)), !force, "{released:?}");
        assert_eq!(orders(&world).iter().any(|order| order == "call off CD1"), force);
        world.bmc.lock().unwrap().medium = Some(url);
        if !force {
            assert_eq!(world.medium().await, StatusCode::PARTIAL_CONTENT, "it is waited for");
            assert!(matches!(world.host().release(release).await.unwrap(), Verdict::Done(())));
            assert_eq!((drive(&world), recorded(&world)), (None, false));
            continue;
        }
        assert_eq!(world.medium().await, StatusCode::NOT_FOUND, "nobody is served it any more");
    }
    // A machine that shows itself to be another is left as it is.
    let world = World::new();
    assert!(works(&test(&world).await));
    world.bmc.lock().unwrap().shows_another = true;
    pass(61).await;
    assert!(matches!(world.host().release(ReleaseRequest::default()).await.unwrap(), Verdict::Done(())));
    assert_eq!((drive(&world).is_some(), world.medium().await), (true, StatusCode::NOT_FOUND));
}

#[tokio::test(start_paused = true)]
async fn another_machine_and_who_does_not_lead_get_none() {
    let world = World::new();
    assert!(works(&test(&world).await));
    let url = drive(&world);
    orders(&world);
    world.bmc.lock().unwrap().shows_another = true;
    pass(61).await;
    assert_eq!(test(&world).await.unwrap_err().cause, Cause::AnotherMachine);
    pass(200).await;
    assert_eq!(asks(&world, "t-2", false).await.unwrap_err().cause, Cause::AnotherMachine);
    assert_eq!((orders(&world).len(), drive(&world)), (0, url));
    let world = World::new();
    world.host().power_state().await.unwrap();
    let mut deposed = world.deposed();
    let asked = deposed.test_media().unwrap().test_medium(TestMediumRequest::default()).await;
    assert_eq!((asked.unwrap_err().cause, orders(&world).len()), (Cause::NotLeading, 0));
}

/// It is in the drive that the BMC does not show for a moment, as in the middle of a restart.
#[tokio::test(start_paused = true)]
async fn one_whose_drive_is_hidden_for_a_look_is_not_forgotten() {
    let mut world = World::new();
    assert!(works(&test(&world).await));
    orders(&world);
    world.bmc.lock().unwrap().hides_drives = true;
    pass(61).await;
    assert!(works(&test(&world).await));
    for killed in [false, true] {
        if killed {
            world.restart();
        }
        pass(200).await;
        world.host().power_state().await.unwrap();
        assert!(recorded(&world) && drive(&world).is_some() && orders(&world).is_empty(), "killed: {killed}");
    }
    world.bmc.lock().unwrap().hides_drives = false;
    world.host().power_state().await.unwrap();
    assert_eq!((orders(&world), drive(&world), recorded(&world)), (vec!["empty CD1".to_owned()], None, false));
}
