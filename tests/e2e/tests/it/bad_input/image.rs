//! Images that are not there, not what they should be, or do not fit.

use std::path::Path;

use api::metal3::ProvisioningState;
use e2e::{Behaviour, DiskImage, GPT, Options, UsedDisk, World, bytes_at, tool};
use serde_json::{Value, json};

const PROVISIONING: &str = "provisioning error";
const MIB: u64 = 1 << 20;

/// A world with one machine whose disk of so many MiB is not new.
async fn world_with_used_disk(mib: u64) -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let disk = UsedDisk::make(&folder.path().join("disk.raw"), mib).unwrap();
    let machine = json!({ "id": "node-0", "kind": "fake", "disks": [disk.config()] });
    (World::start(Options { machines: vec![machine], ..Options::one_fake() }).await.unwrap(), folder)
}

fn sda(image: &Value) -> Value {
    json!({ "image": image, "rootDeviceHints": { "deviceName": "/dev/sda" } })
}

/// Neither end of the disk holds anything that a system would take for a partition table.
fn has_no_partition_table(disk: &Path) {
    let size = std::fs::metadata(disk).unwrap().len();
    let (first, last) = (bytes_at(disk, 0, 1 << 20).unwrap(), bytes_at(disk, size - MIB, 1 << 20).unwrap());
    let holds = |bytes: &[u8]| bytes.windows(GPT.len()).any(|w| w == GPT);
    assert!(!holds(&first), "a GPT is at the disk's begin");
    assert!(!holds(&last), "a GPT is at the disk's end");
    assert_ne!(first[510..512], [0x55, 0xAA], "a boot sector is at the disk's begin");
    let probe = std::process::Command::new("blkid").arg("-p").arg(disk).output().unwrap();
    let found = String::from_utf8_lossy(&probe.stdout);
    assert!(!found.contains("PTTYPE"), "{found}");
}

#[tokio::test]
async fn an_image_that_is_not_there_is_fetched_once_it_is() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Missing);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    let says = ["404", "disk.raw", "spec.image.url"];
    let before = world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    world.expect_cause("node-0", "Provision", "ImageNotFound").await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_server_of_images_that_is_not_there_is_an_error_within_twenty_seconds() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let good = DiskImage::small().unwrap();
    let mut image = world.image("disk.raw", good);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    image["url"] = json!(format!("http://{closed}/disk.raw"));
    let asked = std::time::Instant::now();
    world.patch("node-0", json!({ "spec": { "image": image } })).await.unwrap();
    world.expect_error("node-0", PROVISIONING, &[&closed.to_string(), "image's server runs"]).await.unwrap();
    let elapsed = asked.elapsed();
    assert!(elapsed < std::time::Duration::from_secs(20), "the error was to be seen after {elapsed:?}");
    world.expect_cause("node-0", "Provision", "ImageUnavailable").await.unwrap();
}

#[tokio::test]
async fn a_wrong_image_is_found_by_its_checksum_and_leaves_no_partition_table() {
    let (world, _folder) = world_with_used_disk(64).await;
    let good = DiskImage::small().unwrap();
    let image = world.image("disk.raw", good);
    let mut bad = good.bytes.clone();
    bad[20 << 20] ^= 1;
    world.images.put("disk.raw", bad);
    world.apply_host("node-0", sda(&image)).await.unwrap();
    let says = ["checksum", &good.sha256, "spec.image.checksum", "without a partition table"];
    let before = world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    has_no_partition_table(&world.sim.disk("node-0", 0));
    world.expect_cause("node-0", "Provision", "ImageInvalid").await.unwrap();
    world.images.put("disk.raw", good.bytes.clone());
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
    tool("sgdisk", &["-v", &world.sim.disk("node-0", 0).to_string_lossy()]).unwrap();
}

#[tokio::test]
async fn a_wrong_checksum_in_the_host_is_corrected_there() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let good = DiskImage::small().unwrap();
    let mut image = world.image("disk.raw", good);
    image["checksum"] = json!("0".repeat(64));
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_error("node-0", PROVISIONING, &["checksum", &good.sha256, &"0".repeat(64)]).await.unwrap();
    world.patch("node-0", json!({ "spec": { "image": { "checksum": good.sha256 } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn an_image_larger_than_the_disk_is_refused_with_both_sizes() {
    let (world, _folder) = world_with_used_disk(32).await;
    let small = DiskImage::small().unwrap();
    let large = DiskImage::of([small.bytes.as_slice(), &[0; 16 << 20]].concat());
    let image = world.image("disk.raw", &large);
    let sums = |image: &DiskImage| world.images.put("SHA256SUMS", format!("{}  disk.raw\n", image.sha256).into_bytes());
    let mut image = image;
    image["checksum"] = json!(sums(&large));
    world.apply_host("node-0", sda(&image)).await.unwrap();
    let says = [&(40 * MIB).to_string(), &(32 * MIB).to_string(), "rootDeviceHints"].map(ToString::to_string);
    let says: Vec<&str> = says.iter().map(String::as_str).collect();
    let before = world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    world.expect_cause("node-0", "Provision", "NoSuitableDisk").await.unwrap();
    world.images.put("disk.raw", small.bytes.clone());
    sums(small);
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_truncated_raw_image_is_found_by_its_checksum() {
    let (world, _folder) = world_with_used_disk(64).await;
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Truncated);
    world.apply_host("node-0", sda(&image)).await.unwrap();
    let says = ["checksum", &(12 * MIB).to_string()].map(ToString::to_string);
    let says: Vec<&str> = says.iter().map(String::as_str).collect();
    let before = world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    has_no_partition_table(&world.sim.disk("node-0", 0));
    world.images.set("disk.raw", Behaviour::Good);
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_truncated_qcow2_image_is_found_by_its_tables() {
    let (world, folder) = world_with_used_disk(64).await;
    let (raw, qcow2) = (folder.path().join("image.raw"), folder.path().join("image.qcow2"));
    std::fs::write(&raw, &DiskImage::small().unwrap().bytes).unwrap();
    let names = [&raw, &qcow2].map(|p| p.to_string_lossy().into_owned());
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &names[0], &names[1]]).unwrap();
    let mut image = world.image("disk.qcow2", &DiskImage::of(std::fs::read(&qcow2).unwrap()));
    image["format"] = json!("qcow2");
    world.images.set("disk.qcow2", Behaviour::Truncated);
    world.apply_host("node-0", sda(&image)).await.unwrap();
    let before = world.expect_error("node-0", PROVISIONING, &["truncated", "upload the image again"]).await.unwrap();
    world.expect_cause("node-0", "Provision", "ImageInvalid").await.unwrap();
    world.images.set("disk.qcow2", Behaviour::Good);
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn hints_that_no_disk_fits_are_named_beside_the_disks_that_there_are() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let change = json!({ "image": image, "rootDeviceHints": { "serialNumber": "no-such-disk" } });
    world.apply_host("node-0", change).await.unwrap();
    let serial = world.sim.machine("node-0")["diskSerials"][0].as_str().unwrap().to_owned();
    let says = ["no-such-disk", &serial, "spec.rootDeviceHints"];
    world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    world.expect_cause("node-0", "Provision", "NoSuitableDisk").await.unwrap();
    world.patch("node-0", json!({ "spec": { "rootDeviceHints": { "serialNumber": serial } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_format_that_is_not_served_is_named_with_those_that_are() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let mut image = world.image("disk.raw", DiskImage::small().unwrap());
    image["format"] = json!("vmdk");
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.expect_error("node-0", PROVISIONING, &["vmdk", "qcow2 and raw", "spec.image.format"]).await.unwrap();
    assert_eq!(world.images.requests("disk.raw"), 0);
    world.patch("node-0", json!({ "spec": { "image": { "format": "raw" } } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_checksum_file_that_does_not_name_the_image_is_an_error_until_it_does() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let good = DiskImage::small().unwrap();
    let mut image = world.image("disk.raw", good);
    let sums = |name: &str| world.images.put("SHA256SUMS", format!("{}  {name}\n", good.sha256).into_bytes());
    image["checksum"] = json!(sums("another.raw"));
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    let before =
        world.expect_error("node-0", PROVISIONING, &["checksum", "disk.raw", "spec.image.checksum"]).await.unwrap();
    world.expect_cause("node-0", "Provision", "ImageNotFound").await.unwrap();
    sums("disk.raw");
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}

#[tokio::test]
async fn a_download_that_stands_still_is_given_up_and_tried_again() {
    let arguments = ["--agent-stall-timeout", "3", "--retry-after", "1"];
    let world = World::start(Options::one_fake().with(&arguments)).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.images.set("disk.raw", Behaviour::Stalled);
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    let says = ["write-image", "nothing has changed for 3 s", "image's server"];
    let before = world.expect_error("node-0", PROVISIONING, &says).await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);
    world.expect_recovery(&before, ProvisioningState::Provisioned).await.unwrap();
}
