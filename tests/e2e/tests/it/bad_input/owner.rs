//! Disks that carry another owner's mark.

use api::metal3::{ProvisioningState, annotation};
use e2e::{DiskImage, Options, World, bytes_at};
use serde_json::json;

/// A host was provisioned and deleted without its disk being cleaned; the host of the same machine that comes after it is another
/// owner. Gives the world and the first owner.
async fn another_owner(cleaning: &str) -> (World, String) {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("first.raw", DiskImage::small().unwrap());
    let change = json!({ "image": image, "automatedCleaningMode": "disabled" });
    world.apply_host("node-0", change).await.unwrap();
    let host = world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    world.delete("node-0").await.unwrap();
    let image = world.image("second.raw", DiskImage::small().unwrap());
    let change = json!({ "image": image, "automatedCleaningMode": cleaning });
    world.apply_host("node-0", change).await.unwrap();
    (world, host.status.unwrap().provisioning.id)
}

async fn refused_and_written_after_consent(cleaning: &str) {
    let (world, owner) = another_owner(cleaning).await;
    let before_write = bytes_at(&world.sim.disk("node-0", 0), 0, 1 << 20).unwrap();
    let says = [owner.as_str(), annotation::OVERWRITE_OWNER];
    let before = world.expect_error("node-0", "provisioning error", &says).await.unwrap();
    world.expect_cause("node-0", "Provision", "ForeignOwner").await.unwrap();
    let same = bytes_at(&world.sim.disk("node-0", 0), 0, 1 << 20).unwrap() == before_write;
    assert!(same, "the refused disk was written to");
    assert_eq!(world.images.requests("second.raw"), 0, "nothing is fetched for a disk that is refused");

    world.annotate("node-0", &format!("{}={owner}", annotation::OVERWRITE_OWNER)).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
    let used_up = |host: &serde_json::Value| host["metadata"]["annotations"][annotation::OVERWRITE_OWNER].is_null();
    world.wait_for_state("node-0", "without the consent that it used", used_up).await.unwrap();
}

#[tokio::test]
async fn a_foreign_disk_is_refused_and_written_after_consent() {
    refused_and_written_after_consent("metadata").await;
}

#[tokio::test]
async fn a_foreign_disk_is_refused_and_written_after_consent_where_nothing_is_cleaned() {
    refused_and_written_after_consent("disabled").await;
}

#[tokio::test]
async fn consent_that_names_somebody_else_is_no_consent() {
    let (world, owner) = another_owner("disabled").await;
    world.annotate("node-0", &format!("{}=somebody-else", annotation::OVERWRITE_OWNER)).await.unwrap();
    world.expect_error("node-0", "provisioning error", &[&owner]).await.unwrap();
    let again = |host: &serde_json::Value| {
        let status = &host["status"];
        status["provisioningFailCount"].as_i64() >= Some(2) && !status["errorMessage"].as_str().unwrap_or("").is_empty()
    };
    let host = world.wait_for_state("node-0", "refused again", again).await.unwrap();
    assert!(host["status"]["errorMessage"].as_str().unwrap().contains(&owner), "{}", host["status"]);
    assert_eq!(world.images.requests("second.raw"), 0, "the disk was written");
}
