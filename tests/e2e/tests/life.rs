//! A host's whole life on a fake machine: the real agent as a process, real files as disks, real HTTP and TLS in between.

use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World};
use serde_json::json;

#[tokio::test]
async fn an_applied_host_reaches_provisioned_and_goes_when_deleted() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = DiskImage::small().unwrap();
    let url = world.images.put("disk.raw", image.bytes.clone());
    let change =
        json!({ "image": { "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" } });
    world.apply_host("node-0", change).await.unwrap();

    let host = world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    let status = host.status.unwrap();
    assert_eq!(status.provisioning.image.url, url);
    assert!(status.hardware.is_some_and(|h| !h.storage.is_empty() && !h.nics.is_empty()));
    let operations = world.operations("node-0").await.unwrap();
    let phases: Vec<String> =
        operations.iter().map(|o| format!("{:?} {:?}", o.spec.operation, o.status.as_ref().unwrap().phase)).collect();
    assert_eq!(phases, ["Inspect Succeeded", "Provision Succeeded"]);

    let table = world.kubectl(&["get", "bmh,hostoperations", "-A"], "").await.unwrap();
    assert!(table.contains("provisioned") && table.contains("3/3"), "{table}");

    world.kubectl(&["delete", "bmh", "node-0", "--wait=false"], "").await.unwrap();
    world.wait_gone("node-0", 60).await.unwrap();
    let machine = world.sim.get("/machines/node-0").await.unwrap();
    assert_eq!(machine["power"], "Off", "{machine}");
    assert_eq!(machine["sessions"], json!(0), "{machine}");
}
