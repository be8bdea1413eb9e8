//! Evidence for a diagnosis: the BMC's and this server's own, whatever state the host is in; and that nothing is done for it.

use agent_protocol::LogLine;
use axum::http::StatusCode;
use diagnosis::{Contact, Evidence, Media, Part, PartKind, Reading, Slot};
use inventory::{HardwareDetails, Storage};
use provisioner::{Cause, EvidenceBudget, InspectRequest, RegisterRequest, Verdict};

use crate::common::{Agent, World, pass};

async fn look(world: &World) -> Evidence {
    let mut host = world.host();
    let asked = host.diagnose().expect("it is served").evidence(EvidenceBudget::default());
    match asked.await.unwrap() {
        Verdict::Done(evidence) => *evidence,
        other => panic!("{other:?}"),
    }
}

fn done(world: &World, since: usize) -> Vec<String> {
    world.bmc.lock().unwrap().log[since..].iter().filter(|line| !line.starts_with("look")).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn what_bmc_medium_and_agent_say_is_gathered_and_nothing_is_done() {
    let mut world = World::new();
    let disk = |serial: &str| Storage { serial_number: Some(serial.into()), ..Storage::default() };
    world.hardware = Some(HardwareDetails { storage: vec![disk("D-1"), disk("D-2")], ..HardwareDetails::default() });
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let slot = |host: &str| Slot { image_host: Some(host.into()), inserted: Some(true), ..Slot::default() };
    let drive = Part { kind: PartKind::Drive, serial: Some("D-1".into()), ..Part::default() };
    world.bmc.lock().unwrap().evidence = Some(Evidence {
        media: Reading::Read(Media { slots: vec![slot("192.0.2.1:6180"), slot("192.0.2.99:80")] }),
        parts: Reading::Read(vec![drive]),
        whole: vec![PartKind::Drive],
        ..Evidence::default()
    });
    pass(30).await;
    let agent = Agent::new(1, "boot-1");
    let mut report = agent.report();
    let text = "no link on eno1; GET http://u:s3cret@192.0.2.9/a";
    report.logs = vec![LogLine { uptime_ms: 5_000, level: "warn".into(), text: text.into() }];
    let (status, _) = world.post(agent.request(serde_json::to_vec(&report).unwrap())).await;
    assert_eq!(status, StatusCode::OK);
    pass(20).await;
    let (before, record) = (world.bmc.lock().unwrap().log.len(), world.journal.content());
    let evidence = look(&world).await;
    assert_eq!(done(&world, before), ["read evidence"]);
    assert_eq!(world.journal.content(), record);
    let medium = evidence.ours.medium.read().unwrap();
    assert!(medium.inserted.is_some() && medium.first.is_none() && medium.size > Some(5000), "{medium:?}");
    let facts = evidence.ours.agent.read().unwrap();
    let (started, heard) = (facts.started.unwrap(), facts.heard.unwrap());
    assert_eq!((heard.as_second() - started.as_second()) / 10, 3, "{facts:?}");
    assert!(facts.lines[0].contains("no link on eno1") && !facts.lines[0].contains("s3cret"), "{facts:?}");
    let slots = &evidence.media.read().unwrap().slots;
    assert_eq!((slots[0].ours, slots[1].ours), (Some(true), Some(false)));
    let gone = evidence.differences.read().unwrap();
    assert_eq!((gone.len(), gone[0].serial.as_deref()), (1, Some("D-2")));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_lets_nobody_in_is_evidence_and_no_failure() {
    let world = World::new();
    world.bmc.lock().unwrap().failing_looks = u32::MAX;
    world.host().register(RegisterRequest::default()).await.unwrap_err();
    let evidence = look(&world).await;
    let access = evidence.access.read().unwrap();
    assert_eq!(access.connection.read().unwrap().contact, Contact::TimedOut);
    assert!(evidence.power.read().is_none());
    assert!(matches!(evidence.ours.agent, Reading::NotAvailable(_)));
}

#[tokio::test(start_paused = true)]
async fn of_another_machine_nothing_is_told() {
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    let part = Part { kind: PartKind::Memory, serial: Some("THEIRS".into()), ..Part::default() };
    {
        let mut bmc = world.bmc.lock().unwrap();
        bmc.evidence = Some(Evidence { parts: Reading::Read(vec![part]), ..Evidence::default() });
        bmc.shows_another = true;
    }
    let evidence = look(&world).await;
    assert!(matches!(&evidence.parts, Reading::Failed(why) if why.contains("another machine")), "{:?}", evidence.parts);
    assert!(!serde_json::to_string(&evidence).unwrap().contains("THEIRS"));
    assert!(evidence.access.read().is_some(), "the way there is no secret of the other's");
}

#[tokio::test(start_paused = true)]
async fn where_it_cannot_be_read_which_machine_it_is_nothing_is_told_of_it() {
    for (unpinned, told) in [(false, true), (true, false)] {
        let world = World::new();
        if unpinned {
            world.bmc.lock().unwrap().pin = Some(inventory::BmcPin::default());
        }
        world.host().register(RegisterRequest::default()).await.unwrap();
        let part = Part { kind: PartKind::Memory, serial: Some("WHOSE".into()), ..Part::default() };
        {
            let mut bmc = world.bmc.lock().unwrap();
            bmc.evidence = Some(Evidence { parts: Reading::Read(vec![part]), ..Evidence::default() });
            bmc.failing_looks = u32::MAX;
        }
        let evidence = look(&world).await;
        assert_eq!(serde_json::to_string(&evidence).unwrap().contains("WHOSE"), told, "{:?}", evidence.parts);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_has_refused_is_not_tried_again_to_learn_why() {
    let world = World::new();
    world.bmc.lock().unwrap().refuses_password = true;
    world.host().register(RegisterRequest::default()).await.unwrap_err();
    let before = world.bmc.lock().unwrap().connections;
    look(&world).await;
    assert_eq!(world.bmc.lock().unwrap().connections, before, "the connection that was refused tells why");
    pass(3601).await;
    look(&world).await;
    assert_eq!(world.bmc.lock().unwrap().connections, before + 1, "after an hour it is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_protocol_without_diagnostics_says_so() {
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.bmc.lock().unwrap().lacks = Some(bmc::Capability::Diagnostics);
    let evidence = look(&world).await;
    assert!(matches!(&evidence.parts, Reading::Failed(why) if why.contains("no diagnosis")), "{:?}", evidence.parts);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_does_not_look() {
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    let before = world.bmc.lock().unwrap().log.len();
    let mut host = world.deposed();
    let error = host.diagnose().unwrap().evidence(EvidenceBudget::default()).await.unwrap_err();
    assert_eq!((error.cause, done(&world, before).len()), (Cause::NotLeading, 0));
}
