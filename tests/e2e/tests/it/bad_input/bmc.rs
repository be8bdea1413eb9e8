//! BMCs that cannot be reached, are not trusted, refuse, or stop answering in the middle.

use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World};
use serde_json::json;

const REGISTRATION: &str = "registration error";

#[tokio::test]
async fn a_wrong_address_is_named_and_a_corrected_one_is_tried_at_once() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let address = "redfish-virtualmedia+http://127.0.0.1:1/redfish/v1/Systems/node-0";
    world.apply_host("node-0", json!({ "bmc": { "address": address } })).await.unwrap();
    world.expect_error("node-0", REGISTRATION, &["check access", "127.0.0.1:1", "spec.bmc.address"]).await.unwrap();
    world.patch("node-0", json!({ "spec": { "bmc": { "address": world.sim.address("node-0") } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn an_unknown_scheme_is_refused_with_those_that_there_are() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let address = "carrier-pigeon://127.0.0.1:1/redfish/v1/Systems/node-0";
    let refused = world.apply_host("node-0", json!({ "bmc": { "address": address } })).await.unwrap_err().to_string();
    for part in ["carrier-pigeon", "redfish-virtualmedia", "spec.bmc.address"] {
        assert!(refused.contains(part), "{refused}");
    }
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
}

/// Admitted, for upstream knows it, and an error that says what is served in its place.
#[tokio::test]
async fn a_scheme_that_is_not_served_is_named_with_those_that_are() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({ "bmc": { "address": "ipmi://127.0.0.1:1" } })).await.unwrap();
    let says = ["ipmi", "redfish-virtualmedia", "spec.bmc.address"];
    world.expect_error("node-0", REGISTRATION, &says).await.unwrap();
    world.patch("node-0", json!({ "spec": { "bmc": { "address": world.sim.address("node-0") } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_does_not_answer_yet_is_tried_until_it_does() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": true })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let redfish = world.sim.machine("node-0")["redfish"].as_str().unwrap().replace("http://", "");
    let before = world.expect_error("node-0", REGISTRATION, &[&redfish]).await.unwrap();
    let again = |host: &serde_json::Value| host["status"]["errorCount"].as_i64() >= Some(2);
    world.wait_for_state("node-0", "tried again", again).await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": false })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_named_and_never_shown() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.post("/machines/node-0/password", json!({ "password": "the right one" })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let before = world.expect_error("node-0", REGISTRATION, &["password", "Secret"]).await.unwrap();
    let password = world.sim.machine("node-0")["password"].as_str().unwrap().to_owned();
    assert!(!before["status"].to_string().contains(&format!("\"{password}\"")), "{}", before["status"]);
    let right = json!({ "username": world.sim.machine("node-0")["username"], "password": "the right one" });
    world.apply_secret("node-0-bmc-secret", right).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
    assert!(!world.server.logged().contains("the right one"), "the password is in the log");
}

#[tokio::test]
async fn an_untrusted_certificate_is_named_until_its_authority_is_trusted() {
    let mut world = World::start(Options { tls: true, ..Options::one_fake() }).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let says = ["certificate", "--bmc-ca", "disableCertificateVerification"];
    let before = world.expect_error("node-0", REGISTRATION, &says).await.unwrap();
    let authority = world.sim.ready["ca"].as_str().unwrap().to_owned();
    world.restart_with(&["--bmc-ca", &authority]).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn an_untrusted_certificate_is_accepted_where_the_host_says_so() {
    let world = World::start(Options { tls: true, ..Options::one_fake() }).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_error("node-0", REGISTRATION, &["certificate"]).await.unwrap();
    world.patch("node-0", json!({ "spec": { "bmc": { "disableCertificateVerification": true } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
}

/// The BMC takes the request on this path and then nothing any more: connections are cut, and new ones refused.
async fn stops_at(world: &World, path: &str) {
    world.sim.wait_held("node-0", 60).await.unwrap_or_else(|error| panic!("{path}: {error:#}"));
    world.sim.settings("node-0", json!({ "refuse": true })).await.unwrap();
}

async fn answers_again(world: &World) {
    world.sim.clear_faults("node-0").await.unwrap();
    world.sim.settings("node-0", json!({ "refuse": false })).await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_stops_answering_during_inspection_is_waited_for() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let path = "*ComputerSystem.Reset";
    let fault = json!({ "method": "POST", "path": path, "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    stops_at(&world, path).await;
    let before = world.expect_error("node-0", "inspection error", &["BMC"]).await.unwrap();
    // The machine may be on its way: the boot is not given up.
    world.wait_message("node-0-001-inspect", "the reset was not confirmed").await.unwrap();
    answers_again(&world).await;
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_stops_answering_during_provisioning_is_waited_for() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let path = "*VirtualMedia.EjectMedia";
    let fault = json!({ "method": "POST", "path": path, "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    stops_at(&world, path).await;
    // The image is on the disk and verified: that is not undone because the medium cannot be taken out now.
    world.wait_message("node-0-002-provision", "taking the medium out").await.unwrap();
    answers_again(&world).await;
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    assert_eq!(world.images.requests("disk.raw"), 1);
    world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
}

#[tokio::test]
async fn a_second_host_with_the_same_bmc_is_refused_until_the_first_is_gone() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let bmc = world.hosts().get("node-0").await.unwrap().spec.bmc.unwrap();
    let (address, secret) = (format!("{}/", bmc.address), bmc.credentials_name);
    let twin = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "twin", "namespace": "default" },
        "spec": { "online": true, "bmc": { "address": address, "credentialsName": secret } },
    });
    world.kubectl(&["create", "-f", "-"], &twin.to_string()).await.unwrap();
    let before = world.expect_error("twin", REGISTRATION, &["default/node-0", "spec.bmc.address"]).await.unwrap();
    let first = world.hosts().get("node-0").await.unwrap().status.unwrap();
    assert_eq!((first.provisioning.state, first.error_message.as_str()), (ProvisioningState::Available, ""));
    world.delete("node-0").await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}
