//! Keys are rotated while machines boot and while their agents are connected: nobody notices.

use std::path::Path;

use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World, program};
use serde_json::json;
use tokio::process::Command;

/// A `metamorph keys` command with this kubeconfig.
pub async fn keys(kubeconfig: &Path, what: &str) -> String {
    let mut command = Command::new(program("metamorph").unwrap());
    let output = command.args(["keys", what, "--kubeconfig"]).arg(kubeconfig).output().await.unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `keys list` says: number, use, boots.
async fn listed(world: &World) -> Vec<String> {
    let text = keys(&world.kubeconfig(), "list").await;
    let line = |line: &str| {
        let [number, _, usage, boots] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        format!("{number} {usage} {boots}")
    };
    text.lines().skip(1).map(line).collect()
}

#[tokio::test]
async fn a_rotation_is_not_noticed_by_a_machine_that_boots_nor_by_an_agent_that_is_connected() {
    let world = World::start(Options::one_fake()).await.unwrap();
    // The medium is in, its boot is recorded, and the machine's reset is held.
    let fault = json!({ "method": "POST", "path": "*ComputerSystem.Reset", "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    keys(&world.kubeconfig(), "rotate").await;
    world.server.wait_logged("boots are derived from another key from now on key=2", 60).await.unwrap();
    world.sim.clear_faults("node-0").await.unwrap();
    world.wait_state("node-0", 150, ProvisioningState::Available).await.unwrap();
    let boots = async || {
        let operations = world.operations("node-0").await.unwrap();
        let boots = operations.into_iter().filter_map(|operation| operation.status?.boot);
        boots.map(|boot| (boot.generation, boot.key)).max().unwrap()
    };
    assert_eq!(boots().await, (1, None), "the boot that began with the first key went on");
    assert_eq!(listed(&world).await, ["2 current 0", "1 earlier 1"]);
    // The agent that is resident now holds its connection, made with the first key's certificate.
    keys(&world.kubeconfig(), "rotate").await;
    world.server.wait_logged("boots are derived from another key from now on key=3", 60).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    assert_eq!(boots().await, (1, None), "it was not booted anew");
    // Its agent may have to be told once more that it may leave: the key stays for an hour. The next boot is derived from the newest.
    keys(&world.kubeconfig(), "rotate").await;
    world.server.wait_logged("boots are derived from another key from now on key=4", 60).await.unwrap();
    assert_eq!(listed(&world).await.last().unwrap(), "1 earlier 1");
    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    assert_eq!(boots().await, (2, Some(4)));
}
