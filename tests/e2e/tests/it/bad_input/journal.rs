//! Records of the work that are taken away, are somebody else's, or cannot be written.

use api::metal3::ProvisioningState;
use e2e::{Behaviour, DiskImage, Options, World};
use serde_json::json;

/// The names of the host's operations, oldest first.
async fn names(world: &World) -> Vec<String> {
    let operations = world.operations("node-0").await.unwrap();
    operations.into_iter().filter_map(|o| o.metadata.name).collect()
}

#[tokio::test]
async fn an_operation_that_is_deleted_while_it_runs_changes_nothing() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.images.wait_stalled("disk.raw", 1).await.unwrap();
    let running = names(&world).await.pop().unwrap();
    assert!(running.ends_with("-provision"), "{running}");
    world.kubectl(&["delete", "hostoperation", &running], "").await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    assert!(names(&world).await.contains(&running), "what goes on is shown again");
}

#[tokio::test]
async fn an_operation_of_somebody_else_under_the_next_name_is_left_alone() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let foreign = json!({
        "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation",
        "metadata": { "name": "node-0-001-inspect", "namespace": "default" },
        "spec": { "type": "Inspect", "host": { "name": "node-0", "uid": "another" } },
    });
    world.kubectl(&["create", "-f", "-"], &foreign.to_string()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let left = world.kubectl(&["get", "hostoperation", "node-0-001-inspect", "-o", "json"], "").await.unwrap();
    let left: serde_json::Value = serde_json::from_str(&left).unwrap();
    // It is a request, of a host that is not there, and is answered as one: the host's history is told elsewhere.
    let (phase, cause) = (&left["status"]["phase"], &left["status"]["error"]["cause"]);
    assert_eq!((phase, cause), (&json!("Failed"), &json!("HostNotFound")), "{left}");
    assert_eq!((&left["spec"]["host"]["uid"], &left["status"]["bmcCalls"]), (&json!("another"), &json!(0)), "{left}");
    let names_before = names(&world).await;
    assert!(names_before.iter().any(|name| name == "node-0-002-inspect"), "{names_before:?}");
}

/// Deletes the definition of a kind; gives it, to be put back.
async fn without_kind(world: &World, name: &str) -> serde_json::Value {
    let definition = world.kubectl(&["get", "crd", name, "-o", "json"], "").await.unwrap();
    let mut definition: serde_json::Value = serde_json::from_str(&definition).unwrap();
    definition["metadata"] = json!({ "name": name });
    world.kubectl(&["delete", "crd", name], "").await.unwrap();
    definition
}

#[tokio::test]
async fn without_its_history_a_host_is_provisioned_all_the_same() {
    let world = World::start(Options::one_fake()).await.unwrap();
    without_kind(&world, "hostoperations.metamorph.metal3.io").await;
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    world.server.wait_logged("the HostOperation does not show", 10).await.unwrap();
}

#[tokio::test]
async fn without_a_record_nothing_is_written_to_a_disk_and_no_machine_is_blamed() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let definition = without_kind(&world, "machinerecords.metamorph.metal3.io").await;
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    let provisioning = |host: &serde_json::Value| host["status"]["provisioning"]["state"] == "provisioning";
    world.wait_for_state("node-0", "provisioning", provisioning).await.unwrap();
    world.server.wait_logged("MachineRecord", 60).await.unwrap();
    let host = world.hosts().get("node-0").await.unwrap();
    assert_eq!(host.status.unwrap().error_message, "");
    assert_eq!(world.images.requests("disk.raw"), 0, "the image was read without a record of it");
    world.kubectl(&["create", "-f", "-"], &definition.to_string()).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
}
