//! What has been done for one wish is not done for another.

use api::metal3::ProvisioningState;
use e2e::{DiskImage, GPT, Options, World, bytes_at, tool};
use serde_json::{Value, json};

async fn provisioned() -> World {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    world
}

fn has_table(world: &World) -> bool {
    bytes_at(&world.sim.disk("node-0", 0), 512, 8).unwrap() == GPT
}

/// Deprovisioned once, lent to somebody who installs something, and taken back: what is on it now is removed too.
#[tokio::test]
async fn a_host_that_is_taken_back_is_cleaned_of_what_came_meanwhile() {
    let world = provisioned().await;
    let disk = world.sim.disk("node-0", 0);
    let installed = world.folder.path().join("installed");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        tool("cp", &["--sparse=always", from.to_str().unwrap(), to.to_str().unwrap()]).unwrap();
    };
    copy(&disk, &installed);
    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    assert!(!has_table(&world));
    world.patch("node-0", json!({ "spec": { "externallyProvisioned": true, "online": false } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::ExternallyProvisioned).await.unwrap();
    world.sim.wait("node-0", 60, "off", |m| m["power"] == "Off").await.unwrap();
    copy(&installed, &disk);
    assert!(has_table(&world));
    let history = |host: &Value| host["status"]["operationHistory"]["deprovision"]["start"].clone();
    let before = serde_json::to_value(world.hosts().get("node-0").await.unwrap()).unwrap();
    world.patch("node-0", json!({ "spec": { "externallyProvisioned": false } })).await.unwrap();
    let again =
        |host: &Value| history(host) != history(&before) && host["status"]["provisioning"]["state"] == "available";
    world.wait_for_state("node-0", "available again", again).await.unwrap();
    assert!(!has_table(&world), "a foreign system is left on an available host");
}

/// The record of the deprovisioning between two provisionings is deleted: the second is made nonetheless.
#[tokio::test]
async fn a_provisioning_is_not_done_because_an_earlier_one_was() {
    let mut world = provisioned().await;
    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let operations = world.operations("node-0").await.unwrap();
    let last = operations.last().unwrap().metadata.name.clone().unwrap();
    assert!(last.ends_with("-deprovision"), "{last}");
    world.kubectl(&["delete", "hostoperation", &last], "").await.unwrap();
    world.server.kill().await.unwrap();
    world.start_server_again().await.unwrap();
    let image = world.image("again.raw", DiskImage::small().unwrap());
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    assert!(has_table(&world), "provisioned with an empty disk");
}

/// One bad commit removes all images: as many hosts as the limit says are emptied, the others wait and say why.
#[tokio::test]
async fn no_more_hosts_are_emptied_at_once_than_the_limit_says() {
    let options = Options { machines: vec![e2e::machine("node-0"), e2e::machine("node-1")], ..Options::one_fake() };
    let mut world = World::start(options.with(&["--deprovisioning-limit", "1", "--power-poll", "1"])).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    for id in ["node-0", "node-1"] {
        world.apply_host(id, json!({ "image": image })).await.unwrap();
    }
    for id in ["node-0", "node-1"] {
        world.wait_state(id, 60, ProvisioningState::Provisioned).await.unwrap();
    }
    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    world.patch("node-1", json!({ "spec": { "image": null } })).await.unwrap();
    let waits = |host: &Value| {
        let status = &host["status"];
        status["operationalStatus"] == "delayed"
            && status["errorMessage"].as_str().is_some_and(|m| m.contains("--deprovisioning-limit"))
    };
    let host = world.wait_for_state("node-1", "delayed", waits).await.unwrap();
    assert_eq!(host["status"]["provisioning"]["state"], "provisioned");
    // The limit outlives the process: what began before counts.
    world.server.kill().await.unwrap();
    world.start_server_again().await.unwrap();
    let again = world.kubectl(&["get", "bmh", "node-1", "-o", "json"], "").await.unwrap();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["status"]["provisioning"]["state"], "provisioned", "{again}");
    assert_eq!(bytes_at(&world.sim.disk("node-1", 0), 512, 8).unwrap(), GPT);
}

/// A frozen namespace's machines are let alone, whatever is wished of them.
#[tokio::test]
async fn a_frozen_namespace_is_let_alone() {
    let world = provisioned().await;
    let freeze = "metamorph.metal3.io/freeze";
    world.kubectl(&["annotate", "namespace", "default", &format!("{freeze}=storm in rack 7")], "").await.unwrap();
    world.patch("node-0", json!({ "spec": { "image": null, "online": false } })).await.unwrap();
    let waits = |host: &Value| {
        host["status"]["operationalStatus"] == "delayed"
            && host["status"]["errorMessage"].as_str().is_some_and(|m| m.contains("storm in rack 7"))
    };
    world.wait_for_state("node-0", "delayed", waits).await.unwrap();
    let now = world.sim.now("node-0").await.unwrap();
    assert_eq!((&now["power"], &now["running"]), (&json!("On"), &json!("disk")), "{now}");
    assert!(has_table(&world));
    world.kubectl(&["annotate", "namespace", "default", &format!("{freeze}-")], "").await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    assert!(!has_table(&world));
}
