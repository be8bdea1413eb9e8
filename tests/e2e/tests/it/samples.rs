//! The provisioners in other languages (`examples/provisioners`) pass the kit: `make test-provisioners`, which has them built.

use std::path::PathBuf;

use api::metal3::ProvisioningState;
use e2e::{Options, Running, World, program};
use serde_json::json;
use tokio::process::Command;

/// The samples' programs.
fn built() -> PathBuf {
    let built = std::env::var_os("METAMORPH_PROVISIONERS");
    PathBuf::from(built.expect("METAMORPH_PROVISIONERS names what tests/provisioners/build has built"))
}

/// Starts a sample, and has the kit judge it.
async fn passes(name: &str, scenarios: usize) {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}/sample.sock", folder.path().display());
    let mut command = Command::new(built().join(name));
    command.env("METAMORPH_PROVISIONER_LISTEN", &socket);
    let sample = Running::start(command, &folder.path().join("log")).unwrap();
    sample.wait_logged("listening", 60).await.unwrap();
    let check =
        Command::new(program("metamorph").unwrap()).args(["provisioner", "check", &socket]).output().await.unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("passed")).take(60).collect();
    assert!(check.status.success(), "{wrong:#?}\n{}\n{}", String::from_utf8_lossy(&check.stderr), sample.tail());
    let end = format!("{scenarios} scenarios passed");
    assert!(said.contains(&end) && said.contains(" 0 were left out"), "{end}: {wrong:#?}");
}

#[tokio::test]
async fn the_one_in_go_passes_the_kit() {
    passes("memory-go", 204).await;
}

#[tokio::test]
async fn the_one_in_python_passes_the_kit() {
    passes("memory-python", 204).await;
}

/// It is started by the server, and drives a simulated BMC: a live ISO is booted, and taken out again.
#[tokio::test]
async fn the_one_with_sushy_boots_a_live_iso_and_takes_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("provisioners.yaml");
    let entry = json!({ "name": "redfish-python", "command": [built().join("redfish-python")], "schemes": ["redfish-virtualmedia+http"] });
    std::fs::write(&list, json!({ "provisioners": [entry] }).to_string()).unwrap();
    let world = World::start(Options::one_fake().with(&["--provisioners", list.to_str().unwrap()])).await.unwrap();
    world
        .kubectl(&["annotate", "namespace", "default", "metamorph.metal3.io/provisioner=redfish-python"], "")
        .await
        .unwrap();
    let url = world.images.put("live.iso", vec![0; 1 << 20]);
    world.apply_host("node-0", json!({ "inspectionMode": "fast" })).await.unwrap();
    let host = world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    assert!(host.status.unwrap().provisioning.id.starts_with("redfish-python-"));
    world.patch("node-0", json!({ "spec": { "image": { "url": url, "format": "live-iso" } } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    let system = world.sim.now("node-0").await.unwrap();
    assert!(system.to_string().contains("live.iso"), "{system}");
    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let system = world.sim.now("node-0").await.unwrap();
    assert!(!system.to_string().contains("live.iso"), "{system}");
}
