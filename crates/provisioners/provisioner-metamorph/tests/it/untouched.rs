//! A deprovisioning of a machine to which nothing has begun to be written: nothing is done to it. Where something has, or may have, it is wiped.

use agent_protocol::{CommandError, ErrorCode, Outcome};
use api::metal3::Image;
use inventory::MachineEvidence;
use provisioner::{
    Cause, CleaningRequest, Deployed, Deprovisioned, Method, Record as _, Recorded, RegisterRequest, ReleaseRequest,
    Retry, Verdict,
};

use crate::common::{Agent, LEFT, WIPED, World, image, pass};
use crate::fake::evidence;

/// Nothing was done.
const UNTOUCHED: Verdict<Deprovisioned> = Verdict::Done(Deprovisioned { wiped: false, untouched: true });

/// A machine whose host has been registered by this server.
async fn registered() -> World {
    let mut world = World::new();
    world.provisioning_id = String::new();
    assert!(matches!(world.host().register(RegisterRequest::default()).await.unwrap(), Verdict::Done(_)));
    world.provisioning_id = "owner-1".into();
    rests(&world).await;
    world
}

/// The host is at rest: its power is looked at.
async fn rests(world: &World) {
    world.host().power_state().await.unwrap();
    world.calls();
}

fn cleaning() -> CleaningRequest {
    CleaningRequest { clean: true, wish: Some("gone".into()), ..CleaningRequest::default() }
}

fn failed(code: ErrorCode, untouched: bool) -> Outcome {
    Outcome::Failed(CommandError { code, message: "it did not work".into(), untouched })
}

/// The agent is given the write, and answers so.
async fn answers(world: &World, agent: &Agent, outcome: Outcome) -> Cause {
    world.host().provision(image()).await.unwrap();
    let command = agent.given(world).await;
    agent.finished(&command, outcome);
    agent.say(world).await;
    let cause = world.host().provision(image()).await.unwrap_err().cause;
    agent.say(world).await;
    cause
}

/// Deprovisions: done at once without a call to the BMC, or with a wipe by the agent.
async fn is_wiped(world: &World) -> bool {
    world.calls();
    let verdict = world.host().deprovision(cleaning()).await.unwrap();
    if verdict == UNTOUCHED {
        assert_eq!(world.calls(), [""; 0], "the BMC was asked");
        assert!(world.journal.all().iter().all(|(_, status)| status.phase.is_final()), "what was under way goes on");
        return false;
    }
    assert!(matches!(verdict, Verdict::Working(_)), "{verdict:?}");
    true
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_the_agent_refused_before_it_wrote_wipes_nothing() {
    for (code, cause) in
        [(ErrorCode::ImageNotFound, Cause::ImageNotFound), (ErrorCode::ForeignOwner, Cause::ForeignOwner)]
    {
        for dies in [false, true] {
            let mut world = registered().await;
            let agent = world.booted().await;
            assert_eq!(answers(&world, &agent, failed(code, true)).await, cause);
            if dies {
                // Another process has only the record, which may be older than a write.
                world.restart();
                assert!(is_wiped(&world).await, "{code:?}");
                continue;
            }
            assert!(!is_wiped(&world).await, "{code:?}");
            assert!(!is_wiped(&world).await, "asked again, {code:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_ended_before_its_agent_was_there_wipes_nothing() {
    // Refused by the provisioner itself.
    let world = registered().await;
    let mut request = image();
    request.image.url = "ftp://192.0.2.9/disk.raw".into();
    let failure = world.host().provision(request).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange));
    assert!(!is_wiped(&world).await);
    // The BMC does not answer.
    let world = registered().await;
    world.bmc.lock().unwrap().failing_looks = 100;
    assert!(world.host().provision(image()).await.is_err());
    assert!(!is_wiped(&world).await);
    // The agent is on its way, and in time for the next image: it is not booted again.
    let world = registered().await;
    world.host().provision(image()).await.unwrap();
    assert!(!is_wiped(&world).await);
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    world.calls();
    world.host().provision(image()).await.unwrap();
    agent.given(&world).await;
    assert!(!world.calls().iter().any(|call| call == "insert"), "it is booted again");
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_written_is_wiped() {
    // The agent does not say that it had changed nothing.
    let world = registered().await;
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ImageNotFound, false)).await;
    assert!(is_wiped(&world).await);
    // The order has been recorded, and was perhaps given.
    for dies in [false, true] {
        let mut world = registered().await;
        let agent = world.booted().await;
        world.host().provision(image()).await.unwrap();
        if dies {
            world.restart();
        } else {
            agent.given(&world).await;
        }
        assert!(is_wiped(&world).await, "dies: {dies}");
    }
    // An earlier order of the same attempt is unanswered, also if that one's operation is over.
    let world = registered().await;
    let agent = world.booted().await;
    world.host().provision(image()).await.unwrap();
    agent.given(&world).await;
    world.host().release(ReleaseRequest { force: true }).await.unwrap();
    for _ in 0..3 {
        world.host().provision(image()).await.unwrap();
        pass(30).await;
    }
    let again = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-2");
    again.say(&world).await;
    answers(&world, &again, failed(ErrorCode::ForeignOwner, true)).await;
    assert!(is_wiped(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_may_be_old_or_missing_counts_as_none() {
    // The record knows nothing of the host's beginning: an earlier version made it, or it was lost.
    let world = World::new();
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ForeignOwner, true)).await;
    assert!(is_wiped(&world).await);
    // The process that noted it ended before anything was recorded.
    let mut world = registered().await;
    world.restart();
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ForeignOwner, true)).await;
    assert!(is_wiped(&world).await);
    // No attempt goes before it: somebody else had the machine, with a host that was provisioned externally.
    let world = registered().await;
    assert!(is_wiped(&world).await);
    let world = registered().await;
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ForeignOwner, true)).await;
    assert!(!is_wiped(&world).await);
    let next = CleaningRequest { wish: Some("next".into()), ..cleaning() };
    assert!(matches!(world.host().deprovision(next).await.unwrap(), Verdict::Working(_)));
    // Another process has begun the provisioning: the record may have been restored from before its write. A wipe that fails does not change that.
    for asked_again in [false, true] {
        let mut world = registered().await;
        world.host().provision(image()).await.unwrap();
        world.restart();
        if asked_again {
            world.host().provision(image()).await.unwrap();
        }
        assert!(is_wiped(&world).await);
        let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-2");
        agent.say(&world).await;
        world.host().deprovision(cleaning()).await.unwrap();
        let command = agent.given(&world).await;
        agent.finished(&command, failed(ErrorCode::DiskError, false));
        agent.say(&world).await;
        world.host().deprovision(cleaning()).await.unwrap_err();
        let again = CleaningRequest { restart: true, ..cleaning() };
        let verdict = world.host().deprovision(again).await.unwrap();
        assert!(matches!(verdict, Verdict::Working(_)), "asked again: {asked_again}, {verdict:?}");
    }
    // The host was declared again, or restored, from a status that somebody kept.
    let mut world = registered().await;
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ForeignOwner, true)).await;
    world.uid = "uid-1";
    assert!(is_wiped(&world).await);
    // The host says that an image, or a method, has come to its end.
    let is = |image: Option<Image>, method| CleaningRequest {
        deployed: Deployed { image, method, ..Deployed::default() },
        ..cleaning()
    };
    for request in [is(Some(image().image), Method::Disk), is(None, Method::Custom("install".into()))] {
        let world = registered().await;
        assert!(matches!(world.host().deprovision(request).await.unwrap(), Verdict::Working(_)));
    }
}

/// An order to write is recorded, in a record that told before that nothing had been written; that one, and the revision it had.
async fn ordered() -> (World, Recorded, impl AsyncFn(&World)) {
    let world = registered().await;
    let agent = world.booted().await;
    answers(&world, &agent, failed(ErrorCode::ForeignOwner, true)).await;
    assert!(!is_wiped(&world).await);
    let before = world.journal.record.current();
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    let fails = async move |world: &World| {
        agent.finished(&command, failed(ErrorCode::DiskError, false));
        agent.say(world).await;
        world.host().provision(image()).await.unwrap_err();
    };
    (world, before, fails)
}

#[tokio::test(start_paused = true)]
async fn a_record_from_before_a_write_is_not_believed() {
    // Put back while the server works, which has the order in memory; and after the work has failed.
    for fails in [false, true] {
        let (world, before, write_fails) = ordered().await;
        if fails {
            write_fails(&world).await;
        }
        world.journal.record.restore(before.revision, before.content.unwrap());
        assert!(is_wiped(&world).await, "fails: {fails}");
    }
    // Put back while no server runs: the next one is asked to go on with a provisioning that the record does not know.
    let (mut world, before, _) = ordered().await;
    world.journal.record.restore(before.revision, before.content.unwrap());
    world.restart();
    world.host().provision(image()).await.unwrap();
    assert!(is_wiped(&world).await);
}

#[tokio::test(start_paused = true)]
async fn another_machine_that_is_consented_to_is_wiped() {
    for consented in [false, true] {
        let mut world = registered().await;
        if consented {
            let another = MachineEvidence {
                system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a9999".into()),
                serial_number: Some("S-999".into()),
                ..evidence()
            };
            world.bmc.lock().unwrap().shows_another = true;
            world.accept_machine = Some(machine_identity::fingerprint(&another));
        }
        // One process has known both machines: of the first it knows that nothing has been written to its disks.
        rests(&world).await;
        world.accept_machine = None;
        let mut refused = image();
        refused.image.url = "ftp://192.0.2.9/disk.raw".into();
        world.host().provision(refused).await.unwrap_err();
        assert_eq!(is_wiped(&world).await, consented);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wipe_begins_the_count_anew_and_a_machine_that_was_let_go_unwiped_does_not() {
    for (clean, attempted) in [(true, true), (true, false), (false, true)] {
        let world = World::new();
        let mut refused = image();
        refused.image.url = "ftp://192.0.2.9/disk.raw".into();
        world.host().provision(refused.clone()).await.unwrap_err();
        let mut request = CleaningRequest { clean, ..cleaning() };
        request.deployed.image = Some(image().image);
        let mut verdict = world.host().deprovision(request.clone()).await.unwrap();
        if clean {
            let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
            agent.say(&world).await;
            world.host().deprovision(request.clone()).await.unwrap();
            let command = agent.given(&world).await;
            agent.finished(&command, Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
            agent.say(&world).await;
        }
        for _ in 0..10 {
            if matches!(verdict, Verdict::Working(_)) {
                pass(10).await;
                verdict = world.host().deprovision(request.clone()).await.unwrap();
            }
        }
        assert_eq!(verdict, if clean { WIPED } else { LEFT });
        rests(&world).await;
        if attempted {
            world.host().provision(refused).await.unwrap_err();
        }
        // Without an attempt since, somebody else has had the machine.
        let next = CleaningRequest { wish: Some("next".into()), ..cleaning() };
        let verdict = world.host().deprovision(next).await.unwrap();
        assert_eq!(verdict == UNTOUCHED, clean && attempted, "{verdict:?}");
    }
}
