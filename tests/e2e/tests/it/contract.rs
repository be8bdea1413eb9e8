//! What a host costs, counted by those who pay: the BMC's request log and the API's audit log; and that a server that is told to
//! stop leaves nothing open.

mod commands;
mod external;
mod monitoring;
mod newcomer;
mod provision;
mod seen;

use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World, machine};
use serde_json::json;

/// Requests to the BMC from enrolment to provisioned, five of them for settings and versions of the firmware (Ironic: about 116, without those).
const MOST_BMC_REQUESTS: u64 = 22;
/// Writes to the API from enrolment to provisioned, beside those below: of the host, its Secret, its HardwareData and its record (baremetal-operator:
/// 21.6, without a record).
const MOST_API_WRITES: usize = 16;
/// Writes of the objects of its firmware: two are created and get a status, and the first host of its kind creates the schema.
const MOST_OF_FIRMWARE: usize = 5;
/// Writes of HostOperations: two are begun and ended, and progress is written every 5 s.
const MAX_HISTORY_WRITES: usize = 10;

/// Requests so far that change something, by verb and path.
fn writes(world: &World) -> Vec<String> {
    let written = world.written().unwrap();
    written.iter().map(|w| format!("{} {} {}", w.verb, w.path, w.code)).collect()
}

#[tokio::test]
async fn a_host_costs_few_bmc_requests_and_few_api_writes() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let before = writes(&world).len();
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    // Requests go on: the log's length lies between what the counter says before and after.
    let counted = world.sim.now("node-0").await.unwrap()["counters"]["requests"].as_u64();
    let log = world.sim.get("/machines/node-0/requests").await.unwrap();
    let counted =
        [counted, log["total"].as_u64(), world.sim.now("node-0").await.unwrap()["counters"]["requests"].as_u64()];
    let requests: Vec<String> = log["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| format!("{} {} {}", r["method"], r["path"], r["status"]).replace('"', ""))
        .collect();
    seen::metrics_tell_of_a_provisioned_host(&world, log["total"].as_u64().unwrap()).await;
    println!("{} BMC requests:\n  {}", requests.len(), requests.join("\n  "));
    assert!(counted.is_sorted() && counted[0].is_some(), "{counted:?}");
    // What follows the last change is the first look at a settled host, which may come before this one at the log.
    let spent = requests.iter().rposition(|request| !request.starts_with("GET ")).map_or(0, |last| last as u64 + 1);
    assert!((1..=MOST_BMC_REQUESTS).contains(&spent), "{spent}");

    let all = writes(&world).split_off(before);
    let of = |kind: &str| all.iter().filter(|write| write.contains(kind)).count();
    // The two objects that a person applied are not the server's.
    let (history, events) = (of("/hostoperations"), of("/events"));
    let firmware = of("/hostfirmware") + of("/firmwareschemas");
    let others = all.len().checked_sub(2 + history + events + firmware).unwrap();
    println!(
        "{others} API writes, {firmware} of firmware, {history} of HostOperations, {events} Events:\n  {}",
        all.join("\n  ")
    );
    assert!(others <= MOST_API_WRITES, "{others} writes");
    assert!(firmware <= MOST_OF_FIRMWARE, "{firmware} writes of firmware");
    assert!(history <= MAX_HISTORY_WRITES, "{history} writes of HostOperations");
    let sessions = world.sim.get("/events?machine=node-0").await.unwrap();
    let opened = sessions["events"].as_array().unwrap().iter().filter(|e| !e["data"]["opened"].is_null()).count();
    assert_eq!(opened, 1, "one session serves the host's whole life");
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_leaves_no_session_and_goes_on_where_it_was() {
    let mut world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let open = world.sim.now("node-0").await.unwrap();
    assert_eq!(open["sessions"], 1, "{open}");
    world.server.stop().await.unwrap();
    let left = world.sim.now("node-0").await.unwrap();
    assert_eq!(left["sessions"], 0, "{left}");
    assert_eq!((&left["power"], &left["running"]), (&json!("On"), &json!("medium")), "the agent lives on: {left}");

    world.start_server_again().await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    let machine = world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
    assert_eq!(machine["boots"], 2, "the agent that was there was used: {machine}");
    world.server.stop().await.unwrap();
    let left = world.sim.now("node-0").await.unwrap();
    assert_eq!(left["sessions"], 0, "{left}");
}

#[tokio::test]
async fn a_bmc_that_hangs_does_not_keep_the_server_from_stopping() {
    let machines = vec![machine("node-0"), machine("node-1")];
    let mut world = World::start(Options { machines, ..Options::one_fake() }).await.unwrap();
    let fault = json!({ "method": "POST", "path": "*ComputerSystem.Reset", "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.apply_host("node-1", json!({})).await.unwrap();
    world.expect_well("node-1", ProvisioningState::Available).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    world.server.stop().await.unwrap();
    for id in ["node-0", "node-1"] {
        let machine = world.sim.now(id).await.unwrap();
        assert_eq!(machine["sessions"], 0, "{machine}");
    }
}
