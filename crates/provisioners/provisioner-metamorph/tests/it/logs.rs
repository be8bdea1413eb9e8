//! Logs on request: whose they are, what is not in them, and that nothing is done for them.

use agent_protocol::LogLine;
use api::metamorph::CollectedLog;
use axum::http::StatusCode;
use bmc::LogEntry;
use provisioner::{Cause, InspectRequest, Outcome, RegisterRequest, Verdict};

use crate::common::{Agent, World, pass};

async fn collect(world: &World) -> Outcome<Vec<CollectedLog>> {
    world.host().logs().expect("it is served").collect().await
}

async fn collected(world: &World) -> Vec<CollectedLog> {
    match collect(world).await.unwrap() {
        Verdict::Done(logs) => logs,
        other => panic!("{other:?}"),
    }
}

fn of<'a>(logs: &'a [CollectedLog], source: &str) -> &'a CollectedLog {
    logs.iter().find(|log| log.source == source).unwrap_or_else(|| panic!("no {source} in {logs:?}"))
}

async fn says(world: &World, agent: &Agent, text: &str) {
    let mut report = agent.report();
    report.logs = vec![LogLine { uptime_ms: 5_000, level: "warn".into(), text: text.into() }];
    let (status, _) = world.post(agent.request(serde_json::to_vec(&report).unwrap())).await;
    assert_eq!(status, StatusCode::OK);
}

fn entry(day: u32, message: &str) -> LogEntry {
    LogEntry {
        created: Some(format!("2026-11-{day:02}T00:00:00Z")),
        severity: Some("OK".into()),
        message: message.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_bmc_and_agent_have_written_is_told_without_the_addresses_of_media_and_changes_nothing() {
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.bmc.lock().unwrap().critical = Some(Vec::new());
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let medium = world.bmc.lock().unwrap().medium.clone().unwrap();
    let secret = medium.rsplit('/').next().unwrap().to_owned();
    world.bmc.lock().unwrap().critical = Some(vec![entry(26, &format!("Mounted {medium}")), entry(25, "Powered on")]);
    let agent = Agent::new(1, "boot-1");
    says(&world, &agent, &format!("GET http://u:s3cret@192.0.2.9/a?sig=s3cret of {secret}: 404\u{1b}[2J")).await;
    let (resets, record) = (world.bmc.lock().unwrap().log.clone(), world.journal.content());
    let logs = collected(&world).await;
    let bmc = of(&logs, "bmc/sel");
    let lines: Vec<&str> = bmc.text.lines().collect();
    assert_eq!(lines[0], "2026-11-25T00:00:00Z OK: Powered on", "the newest stands last");
    assert!(lines[1].starts_with("2026-11-26T00:00:00Z OK: Mounted http://192.0.2.1:6180/"), "{lines:?}");
    assert_eq!((lines.len(), bmc.omitted), (2, Some(5)));
    let said = &of(&logs, "agent").text;
    assert!(said.starts_with("boot 1, 5.000 s warn: GET http://[hidden]@192.0.2.9/a?[hidden] of [hidden]"), "{said}");
    assert!(!format!("{logs:?}").contains("s3cret") && !format!("{logs:?}").contains(&secret[..24]), "{logs:?}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let done: Vec<String> = world.bmc.lock().unwrap().log[resets.len()..].to_vec();
    assert!(done.iter().all(|line| line.starts_with("look") || line == "read all logs"), "{done:?}");
    assert_eq!(world.journal.content(), record);
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_has_written_is_there_though_the_bmc_fails_and_lasts_until_the_server_ends() {
    let mut world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let agent = Agent::new(1, "boot-1");
    says(&world, &agent, "no link on eno1").await;
    // The boot's work ends, and its agent with it.
    pass(3600).await;
    world.bmc.lock().unwrap().shows_another = true;
    let logs = collected(&world).await;
    let missing = of(&logs, "bmc").missing.clone().unwrap();
    assert!(missing.contains("another"), "{missing}");
    assert!(of(&logs, "agent").text.contains("no link on eno1"));
    let asked = world.bmc.lock().unwrap().log.iter().filter(|line| *line == "read all logs").count();
    assert_eq!(asked, 0, "the log of another machine is none of the host's");
    // Where there is nothing at all, the failure is told.
    world.restart();
    assert_eq!(collect(&world).await.unwrap_err().cause, Cause::AnotherMachine);
    world.bmc.lock().unwrap().shows_another = false;
    let logs = collected(&world).await;
    assert!(of(&logs, "bmc").missing.as_ref().is_some_and(|why| why.contains("shows no log")), "{logs:?}");
    assert!(of(&logs, "agent").missing.as_ref().is_some_and(|why| why.contains("has heard no agent")), "{logs:?}");
}
