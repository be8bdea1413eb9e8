//! Hosts that are deleted, or wished otherwise, at bad moments.

use api::metal3::ProvisioningState;
use api::metamorph::OperationPhase;
use e2e::{Behaviour, DiskImage, GPT, Options, World, bytes_at};
use serde_json::json;

async fn off_and_free(world: &World) {
    let machine = world.sim.now("node-0").await.unwrap();
    assert_eq!(machine["sessions"], 0, "{machine}");
    assert!(machine["medium"].is_null(), "{machine}");
    assert_eq!(machine["power"], "Off", "{machine}");
}

#[tokio::test]
async fn a_host_that_could_never_be_registered_is_deleted_at_once() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.post("/machines/node-0/password", json!({ "password": "another" })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_error("node-0", "registration error", &["password"]).await.unwrap();
    world.delete("node-0").await.unwrap();
    assert_eq!(world.sim.now("node-0").await.unwrap()["sessions"], 0);
}

#[tokio::test]
async fn a_host_without_a_secret_is_deleted_at_once() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({ "bmc": { "credentialsName": "nowhere" } })).await.unwrap();
    world.expect_error("node-0", "registration error", &["nowhere"]).await.unwrap();
    world.delete("node-0").await.unwrap();
}

#[tokio::test]
async fn a_host_that_is_deleted_while_it_is_inspected_is_let_go() {
    let world = World::start(Options::one_fake()).await.unwrap();
    // The agent does not come: the inspection would last for minutes.
    let fault = json!({ "method": "POST", "path": "*ComputerSystem.Reset", "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    world.kubectl(&["delete", "bmh", "node-0", "--wait=false"], "").await.unwrap();
    world.sim.post("/machines/node-0/resume", json!({})).await.unwrap();
    world.wait_gone("node-0", 60).await.unwrap();
    off_and_free(&world).await;
}

#[tokio::test]
async fn a_host_that_is_deleted_while_it_is_written_is_wiped_first() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.images.wait_stalled("disk.raw", 1).await.unwrap();
    world.delete("node-0").await.unwrap();
    off_and_free(&world).await;
    assert_ne!(bytes_at(&world.sim.disk("node-0", 0), 512, 8).unwrap(), GPT, "a partition table is left");
}

#[tokio::test]
async fn an_image_that_is_changed_while_it_is_written_is_given_up_for_the_new_one() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = DiskImage::small().unwrap();
    let (first, second) = (world.image("first.raw", image), world.image("second.raw", image));
    world.images.set("first.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": first })).await.unwrap();
    world.images.wait_stalled("first.raw", 1).await.unwrap();
    world.patch("node-0", json!({ "spec": { "image": second } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    let host = world.hosts().get("node-0").await.unwrap();
    assert_eq!(host.status.unwrap().provisioning.image.url, second["url"]);
    let operations = world.operations("node-0").await.unwrap();
    let phases: Vec<_> = operations.iter().map(|o| o.status.as_ref().unwrap().phase).collect();
    use OperationPhase::{Cancelled, Succeeded};
    assert_eq!(phases, [Succeeded, Cancelled, Succeeded, Succeeded]);
}

#[tokio::test]
async fn a_deletion_gives_up_on_a_bmc_that_is_gone() {
    let world = World::start(Options::one_fake().with(&["--retry-after", "0.1"])).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": true })).await.unwrap();
    world.delete("node-0").await.unwrap();
    let events = world.kubectl(&["get", "events", "-o", "json"], "").await.unwrap();
    assert!(events.contains("DeletionGaveUp"), "{events}");
}
