//! Secrets that are missing, empty, or hold what cannot be used.

use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World};
use serde_json::{Value, json};

const REGISTRATION: &str = "registration error";
const SECRET: &str = "node-0-bmc-secret";

fn right(world: &World) -> Value {
    let machine = world.sim.machine("node-0");
    json!({ "username": machine["username"], "password": machine["password"] })
}

#[tokio::test]
async fn a_missing_bmc_secret_is_named_and_taken_when_it_comes() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({ "bmc": { "credentialsName": "not-there-yet" } })).await.unwrap();
    let says = ["not-there-yet", "does not exist", "username and password"];
    let before = world.expect_error("node-0", REGISTRATION, &says).await.unwrap();
    world.apply_secret("not-there-yet", right(&world)).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn an_empty_bmc_secret_is_named_and_taken_when_it_is_filled() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_secret("empty", json!({ "username": "", "password": "" })).await.unwrap();
    world.apply_host("node-0", json!({ "bmc": { "credentialsName": "empty" } })).await.unwrap();
    let before = world.expect_error("node-0", REGISTRATION, &["Secret empty", "username", "password"]).await.unwrap();
    world.apply_secret("empty", right(&world)).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_secret_that_becomes_wrong_later_is_an_error_until_it_is_right_again() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    world.apply_secret(SECRET, json!({ "username": "admin", "password": "of yesterday" })).await.unwrap();
    let before = world.expect_error("node-0", REGISTRATION, &["password", "Secret"]).await.unwrap();
    assert_eq!(before["status"]["provisioning"]["state"], "available");
    world.apply_secret(SECRET, right(&world)).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn missing_user_data_is_waited_for_and_counts_as_no_attempt() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let change = json!({ "image": image, "userData": { "name": "first-words" } });
    world.apply_host("node-0", change).await.unwrap();
    let says = ["userData", "first-words", "create"];
    let before = world.expect_error("node-0", "preparation error", &says).await.unwrap();
    assert_eq!(before["status"]["provisioning"]["state"], "provisioning");
    assert_eq!(world.images.requests("disk.raw"), 0, "the image is not fetched before all is there");
    world.apply_secret("first-words", json!({ "userData": "#cloud-config\n{}" })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
    let operations = world.operations("node-0").await.unwrap();
    let kinds: Vec<String> = operations.iter().map(|o| format!("{:?}", o.spec.operation)).collect();
    assert_eq!(kinds, ["Inspect", "Provision"], "no attempt was wasted");
}

#[tokio::test]
async fn malformed_network_data_is_named_and_taken_when_it_is_mended() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_secret("net", json!({ "networkData": "links: [ { hidden: s3cret" })).await.unwrap();
    let change = json!({ "image": image, "networkData": { "name": "net" } });
    world.apply_host("node-0", change).await.unwrap();
    let before = world.expect_error("node-0", "preparation error", &["networkData", "correct"]).await.unwrap();
    assert!(!before["status"].to_string().contains("s3cret"), "the Secret is quoted: {}", before["status"]);
    assert!(!world.server.logged().contains("s3cret"), "the Secret is in the log");
    world.apply_secret("net", json!({ "networkData": "links: []\nnetworks: []" })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_malformed_network_of_the_agent_is_named_and_taken_when_it_is_mended() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let network = |kind: &str| {
        json!({
            "links": [{ "id": "nic", "type": "phy", "ethernet_mac_address": world.sim.machine("node-0")["mac"] }],
            "networks": [{ "id": "net", "type": kind, "link": "nic", "ip_address": "192.0.2.7/24" }],
        })
    };
    world.apply_secret("agent-net", json!({ "networkData": network("pigeons").to_string() })).await.unwrap();
    world.apply_host("node-0", json!({ "preprovisioningNetworkDataName": "agent-net" })).await.unwrap();
    let says = ["preprovisioningNetworkDataName", "pigeons"];
    let before = world.expect_error("node-0", REGISTRATION, &says).await.unwrap();
    world.apply_secret("agent-net", json!({ "networkData": network("ipv4").to_string() })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}
