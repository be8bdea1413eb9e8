//! BMCs and machines that fail for a while: what was asked for happens all the same, and once.

use api::metal3::ProvisioningState;
use api::metamorph::{OperationPhase, OperationType};
use e2e::{Behaviour, DiskImage, Options, World};
use serde_json::{Value, json};

async fn fault(world: &World, method: &str, path: &str, count: u32, action: Value) {
    let rule = json!({ "method": method, "path": path, "count": count, "action": action });
    world.sim.post("/machines/node-0/faults", rule).await.unwrap();
}

async fn runs_from_disk(world: &World) {
    world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_stumbles_at_each_step_costs_retries_and_no_second_write() {
    let world = World::start(Options::one_fake()).await.unwrap();
    fault(&world, "GET", "*/Systems/node-0", 2, json!({ "type": "status", "status": 503 })).await;
    fault(&world, "GET", "*/VirtualMedia", 1, json!({ "type": "garbage" })).await;
    fault(&world, "POST", "*InsertMedia", 1, json!({ "type": "drop", "when": "after" })).await;
    fault(&world, "PATCH", "*/Systems/node-0", 1, json!({ "type": "drop", "when": "before" })).await;
    fault(&world, "POST", "*ComputerSystem.Reset", 1, json!({ "type": "drop", "when": "after" })).await;
    fault(&world, "POST", "*EjectMedia", 1, json!({ "type": "delay", "ms": 700 })).await;
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world).await;
    assert_eq!(world.images.requests("disk.raw"), 1, "the image was written more than once");
    let faults = world.sim.get("/machines/node-0/faults").await.unwrap();
    for rule in faults["faults"].as_array().unwrap() {
        assert_eq!(rule["count"], 0, "this fault never struck: {rule}");
    }
}

#[tokio::test]
async fn actions_that_are_tasks_are_waited_for() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.settings("node-0", json!({ "asyncActions": true, "taskDelayMs": 300 })).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world).await;
}

#[tokio::test]
async fn sessions_that_others_hold_are_an_error_that_says_so() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.settings("node-0", json!({ "sessionLimit": 0, "basicAuth": false })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let before = world.expect_error("node-0", "registration error", &["session", "end sessions"]).await.unwrap();
    world.sim.settings("node-0", json!({ "sessionLimit": 16 })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_session_that_the_bmc_forgets_is_opened_anew() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let path = format!("{}/machines/node-0/sessions", world.sim.ready["control"].as_str().unwrap());
    assert!(reqwest::Client::new().delete(path).send().await.unwrap().status().is_success());
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world).await;
}

#[tokio::test]
async fn a_reset_that_does_nothing_is_an_error_until_it_does() {
    let world = World::start(Options::one_fake().with(&["--agent-boot-timeout", "3"])).await.unwrap();
    world.sim.settings("node-0", json!({ "powerStuck": true })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let says = ["a second time", "the machine is off"];
    let before = world.expect_error("node-0", "inspection error", &says).await.unwrap();
    world.expect_cause("node-0", "Inspect", "AgentSilent").await.unwrap();
    world.sim.settings("node-0", json!({ "powerStuck": false })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_medium_that_is_taken_out_before_the_boot_is_put_in_again() {
    let world = World::start(Options::one_fake().with(&["--agent-boot-timeout", "3"])).await.unwrap();
    fault(&world, "POST", "*ComputerSystem.Reset", 1, json!({ "type": "hold" })).await;
    world.apply_host("node-0", json!({})).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    world.sim.post("/machines/node-0/eject", json!({})).await.unwrap();
    world.sim.post("/machines/node-0/resume", json!({})).await.unwrap();
    // The boot is asked for once more before anybody is troubled.
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    assert_eq!(world.operations("node-0").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_machine_that_loses_its_agent_while_it_writes_is_booted_and_written_again() {
    let world = World::start(Options::one_fake().with(&["--agent-silence", "2"])).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.images.wait_stalled("disk.raw", 1).await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);
    world.sim.post("/machines/node-0/power", json!({ "action": "ForceOff" })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world).await;
    let operations = world.operations("node-0").await.unwrap();
    let written = operations.iter().find(|o| o.spec.operation == OperationType::Provision).unwrap();
    let status = written.status.as_ref().unwrap();
    assert_eq!(status.phase, OperationPhase::Succeeded);
    let attempts: Vec<_> = status.steps.iter().map(|s| (s.name.as_str(), s.attempt)).collect();
    assert!(attempts.contains(&("write-image", Some(2))), "{attempts:?}");
}

#[tokio::test]
async fn a_download_that_breaks_off_is_taken_up_again() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.images.wait_stalled("disk.raw", 1).await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    let operations = world.operations("node-0").await.unwrap();
    assert_eq!(operations.len(), 2, "the write went on, it was not begun anew");
}

#[tokio::test]
async fn a_bmc_that_is_gone_when_provisioning_needs_it_is_an_error_until_it_answers() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "online": false, "image": image })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    world.wait_for_state("node-0", "off", |h| h["status"]["poweredOn"] == false).await.unwrap();
    // Its agent went with the power: provisioning boots it again.
    world.sim.settings("node-0", json!({ "refuse": true })).await.unwrap();
    world.patch("node-0", json!({ "spec": { "online": true } })).await.unwrap();
    let before = world.expect_error("node-0", "provisioning error", &["BMC", "no connection"]).await.unwrap();
    world.expect_cause("node-0", "Provision", "BmcUnreachable").await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": false })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world).await;
}

#[tokio::test]
async fn a_reset_whose_answer_is_lost_is_no_error_when_the_agent_reports() {
    // A wait that the test would not outlive.
    let world = World::start(Options::one_fake().with(&["--retry-after", "600"])).await.unwrap();
    fault(&world, "POST", "*ComputerSystem.Reset", 1, json!({ "type": "drop", "when": "after" })).await;
    // Nor does the BMC say when its machine was last reset.
    fault(&world, "GET", "*/Systems/node-0", 1000, json!({ "type": "edit", "fields": { "LastResetTime": null } }))
        .await;
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let operations = world.operations("node-0").await.unwrap();
    assert_eq!(operations.len(), 1, "nothing was begun anew");
    let resets = world.sim.get("/machines/node-0/faults").await.unwrap();
    assert_eq!(resets["faults"][0]["struck"], 1);
}

#[tokio::test]
async fn an_agent_that_reports_ends_the_wait_after_a_failed_boot() {
    let world = World::start(Options::one_fake().with(&["--retry-after", "600"])).await.unwrap();
    // The BMC is gone before it has reset the machine, which then is switched on by hand.
    fault(&world, "POST", "*ComputerSystem.Reset", 1, json!({ "type": "hold", "when": "before" })).await;
    world.apply_host("node-0", json!({})).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": true })).await.unwrap();
    world.expect_error("node-0", "inspection error", &["BMC"]).await.unwrap();
    world.wait_message("node-0-001-inspect", "the reset was not confirmed").await.unwrap();
    world.sim.post("/machines/node-0/power", json!({ "action": "On" })).await.unwrap();
    world.wait_for_state("node-0", "inspected", |h| h["status"]["hardware"].is_object()).await.unwrap();
    world.sim.clear_faults("node-0").await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": false })).await.unwrap();
}

#[tokio::test]
async fn a_machine_whose_power_is_not_told_follows_its_host_all_the_same() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let rule = json!({ "method": "GET", "path": "*/Systems/node-0", "action": { "type": "edit", "fields": { "PowerState": null } } });
    world.sim.post("/machines/node-0/faults", rule).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    for (online, power) in [(false, "Off"), (true, "On")] {
        world.patch("node-0", json!({ "spec": { "online": online } })).await.unwrap();
        world.sim.wait("node-0", 30, power, |m| m["power"] == power).await.unwrap();
        let agrees = |h: &Value| h["status"]["poweredOn"] == online && h["status"]["errorMessage"] == "";
        world.wait_for_state("node-0", power, agrees).await.unwrap();
    }
}
