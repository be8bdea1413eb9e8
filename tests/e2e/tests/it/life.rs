//! A host's whole life on a fake machine: the real agent as a process, real files as disks, real HTTP and TLS in between.

use api::metal3::{ProvisioningState, annotation};
use e2e::{DiskImage, GPT, Options, UsedDisk, World, bytes_at, machine, partitions, tool};
use serde_json::{Value, json};

/// The image's content lies here on the disk; around it the partition table is made to fit.
const CONTENT: std::ops::Range<usize> = 1 << 20..20 << 20;

fn two_machines() -> Options {
    Options { machines: vec![machine("node-0"), machine("node-1")], ..Options::one_fake() }
}

/// The simulator's number of starts of the machine, from whatever.
async fn boots(world: &World, id: &str) -> u64 {
    world.sim.now(id).await.unwrap()["boots"].as_u64().unwrap()
}

async fn runs_from_disk(world: &World, id: &str) {
    world.sim.wait(id, 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
}

async fn is(world: &World, id: &str, power: &str) {
    let on = power == "On";
    world.sim.wait(id, 30, power, |m| m["power"] == power).await.unwrap();
    let agrees = |h: &Value| h["status"]["poweredOn"] == on && h["status"]["errorMessage"] == "";
    world.wait_for_state(id, power, agrees).await.unwrap();
}

/// Nothing of the host is left: not on the BMC, not in the API.
async fn nothing_is_left(world: &World, id: &str) {
    let machine = world.sim.now(id).await.unwrap();
    assert_eq!(machine["power"], "Off", "{machine}");
    assert_eq!(machine["sessions"], json!(0), "{machine}");
    assert!(machine["medium"].is_null(), "{machine}");
    for kind in ["hostoperation", "hardwaredata"] {
        // Its owner is gone; the API's garbage collection follows.
        world.kubectl(&["wait", "--for=delete", kind, "--all", "--timeout=30s"], "").await.unwrap();
        let left = world.kubectl(&["get", kind, "-o", "name"], "").await.unwrap();
        assert_eq!(left, "");
    }
    let secret = ["get", "secret", &format!("{id}-bmc-secret"), "--ignore-not-found", "-o", "name"];
    assert_eq!(world.kubectl(&secret, "").await.unwrap(), "", "the BMC's Secret is still there");
}

#[tokio::test]
async fn an_applied_host_reaches_provisioned_and_goes_when_deleted() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = DiskImage::small().unwrap();
    let wished = world.image("disk.raw", image);
    world.apply_host("node-0", json!({ "image": wished })).await.unwrap();

    let host = world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    let status = host.status.unwrap();
    assert_eq!(status.provisioning.image.url, wished["url"]);
    assert!(status.hardware.is_some_and(|h| !h.storage.is_empty() && !h.nics.is_empty()));
    let operations = world.operations("node-0").await.unwrap();
    let phases: Vec<String> =
        operations.iter().map(|o| format!("{:?} {:?}", o.spec.operation, o.status.as_ref().unwrap().phase)).collect();
    assert_eq!(phases, ["Inspect Succeeded", "Provision Succeeded"]);
    runs_from_disk(&world, "node-0").await;
    assert_eq!(boots(&world, "node-0").await, 2, "the agent once, the disk once");
    assert!(bytes_at(&world.sim.disk("node-0", 0), 0, 20 << 20).unwrap()[CONTENT] == image.bytes[CONTENT]);

    let table = world.kubectl(&["get", "bmh,hostoperations", "-A"], "").await.unwrap();
    assert!(table.contains("provisioned") && table.contains("3/3"), "{table}");

    world.delete("node-0").await.unwrap();
    nothing_is_left(&world, "node-0").await;
}

#[tokio::test]
async fn images_come_and_go() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let disk = world.sim.disk("node-0", 0);
    let first = DiskImage::small().unwrap();
    let mut bytes = first.bytes.clone();
    bytes[14 << 20..18 << 20].fill(0x5A);
    let second = DiskImage::of(bytes);
    let content = || bytes_at(&disk, 0, 20 << 20).unwrap();
    world.apply_host("node-0", json!({ "image": world.image("first.raw", first) })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world, "node-0").await;

    world.patch("node-0", json!({ "spec": { "image": null } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Available).await.unwrap();
    let size = std::fs::metadata(&disk).unwrap().len();
    assert_ne!(&content()[512..520], GPT, "a partition table is left");
    assert_ne!(bytes_at(&disk, size - 512, 8).unwrap(), GPT, "a backup partition table is left");
    assert!(tool("blkid", &["-p", &disk.to_string_lossy()]).is_err(), "a signature is left");
    let resident = world.sim.now("node-0").await.unwrap();
    assert_eq!((&resident["power"], &resident["running"]), (&json!("On"), &json!("medium")), "{resident}");
    let before = boots(&world, "node-0").await;

    world.patch("node-0", json!({ "spec": { "image": world.image("second.raw", &second) } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world, "node-0").await;
    assert_eq!(boots(&world, "node-0").await, before + 1, "the agent was there: only the disk is booted");
    assert!(content()[CONTENT] == second.bytes[CONTENT], "the disk is not as the second image");

    world.patch("node-0", json!({ "spec": { "image": world.image("third.raw", first) } })).await.unwrap();
    let third = world.images.url("third.raw");
    let done = |h: &Value| {
        h["status"]["provisioning"]["image"]["url"] == third && h["status"]["provisioning"]["state"] == "provisioned"
    };
    world.wait_for_state("node-0", "provisioned with the third image", done).await.unwrap();
    runs_from_disk(&world, "node-0").await;
    assert!(content()[CONTENT] == first.bytes[CONTENT], "the disk is not as the third image");

    world.delete("node-0").await.unwrap();
    assert_ne!(&content()[512..520], GPT, "a partition table is left");
    nothing_is_left(&world, "node-0").await;
}

#[tokio::test]
async fn power_is_as_wished_and_reboots_are_done() {
    let world = World::start(two_machines()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.apply_host("node-1", json!({})).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    world.wait_state("node-1", 60, ProvisioningState::Available).await.unwrap();
    runs_from_disk(&world, "node-0").await;

    for id in ["node-0", "node-1"] {
        world.patch(id, json!({ "spec": { "online": false } })).await.unwrap();
        is(&world, id, "Off").await;
        world.patch(id, json!({ "spec": { "online": true } })).await.unwrap();
        is(&world, id, "On").await;
    }
    runs_from_disk(&world, "node-0").await;

    for mode in ["", r#"{"mode":"hard"}"#] {
        let before = boots(&world, "node-0").await;
        world.annotate("node-0", &format!("{}={mode}", annotation::REBOOT)).await.unwrap();
        let done = |h: &Value| h["metadata"]["annotations"][annotation::REBOOT].is_null();
        world.wait_for_state("node-0", "rebooted", done).await.unwrap();
        is(&world, "node-0", "On").await;
        runs_from_disk(&world, "node-0").await;
        assert_eq!(boots(&world, "node-0").await, before + 1);
    }

    let key = format!("{}/maintenance", annotation::REBOOT);
    world.annotate("node-0", &format!("{key}=")).await.unwrap();
    is(&world, "node-0", "Off").await;
    world.annotate("node-0", &format!("{key}-")).await.unwrap();
    is(&world, "node-0", "On").await;
}

/// `ResetType` of all resets that the BMC was asked for.
async fn resets(world: &World, id: &str) -> Vec<String> {
    let log = world.sim.get(&format!("/machines/{id}/requests")).await.unwrap();
    let bodies = log["requests"].as_array().unwrap().iter().map(|r| r["body"]["ResetType"].as_str());
    bodies.flatten().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_host_that_must_not_be_powered_off_is_restarted_and_never_off() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image, "disablePowerOff": true })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world, "node-0").await;
    for mode in ["", r#"{"mode":"hard"}"#] {
        let (before, known) = (boots(&world, "node-0").await, resets(&world, "node-0").await.len());
        world.annotate("node-0", &format!("{}={mode}", annotation::REBOOT)).await.unwrap();
        let done = |h: &Value| h["metadata"]["annotations"][annotation::REBOOT].is_null();
        world.wait_for_state("node-0", "rebooted", done).await.unwrap();
        runs_from_disk(&world, "node-0").await;
        assert_eq!(boots(&world, "node-0").await, before + 1);
        assert_eq!(resets(&world, "node-0").await[known..], ["GracefulRestart"]);
    }
    // Who holds it off does not hold this one off.
    world.annotate("node-0", &format!("{}/maintenance=", annotation::REBOOT)).await.unwrap();
    is(&world, "node-0", "On").await;
    let off =
        |kind: &String| matches!(kind.as_str(), "ForceOff" | "GracefulShutdown" | "PushPowerButton" | "PowerCycle");
    let asked = resets(&world, "node-0").await;
    assert!(!asked.iter().any(off), "{asked:?}");
}

#[tokio::test]
async fn a_host_that_was_off_while_available_is_provisioned_when_it_is_wished_on() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "online": false, "image": image })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    is(&world, "node-0", "Off").await;
    assert_eq!(world.images.requests("disk.raw"), 0, "a host that is to be off is not provisioned");
    world.patch("node-0", json!({ "spec": { "online": true } })).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world, "node-0").await;
}

#[tokio::test]
async fn a_paused_host_is_left_alone() {
    let world = World::start(two_machines()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    is(&world, "node-0", "On").await;
    world.annotate("node-0", &format!("{}=", annotation::PAUSED)).await.unwrap();
    world.patch("node-0", json!({ "spec": { "online": false } })).await.unwrap();
    // The other host goes all its way meanwhile: there was time enough.
    world.apply_host("node-1", json!({})).await.unwrap();
    world.wait_state("node-1", 60, ProvisioningState::Available).await.unwrap();
    let paused = world.sim.now("node-0").await.unwrap();
    assert_eq!(paused["power"], "On", "{paused}");
    world.annotate("node-0", &format!("{}-", annotation::PAUSED)).await.unwrap();
    is(&world, "node-0", "Off").await;
}

#[tokio::test]
async fn another_inspection_is_done_when_asked_for_without_another_boot() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    world.annotate("node-0", &format!("{}=", annotation::INSPECT)).await.unwrap();
    world.wait_operation("node-0-002-inspect").await.unwrap();
    let done = |h: &Value| {
        h["metadata"]["annotations"][annotation::INSPECT].is_null()
            && h["status"]["provisioning"]["state"] == "available"
    };
    world.wait_for_state("node-0", "inspected again", done).await.unwrap();
    let operations = world.operations("node-0").await.unwrap();
    let phases: Vec<String> =
        operations.iter().map(|o| format!("{:?} {:?}", o.spec.operation, o.status.as_ref().unwrap().phase)).collect();
    assert_eq!(phases, ["Inspect Succeeded", "Inspect Succeeded"]);
    assert_eq!(boots(&world, "node-0").await, 1, "the agent was there");
}

#[tokio::test]
async fn upstreams_example_host_reaches_available() {
    let (user, password) = ("admin", "1f2d1e2e67df");
    let mut machine = machine("node-0");
    machine["username"] = json!(user);
    machine["password"] = json!(password);
    let world = World::start(Options { machines: vec![machine], ..Options::one_fake() }).await.unwrap();
    let upstream = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/example-host.yaml")).unwrap();
    let address = "    address: ipmi://192.168.122.1:6233\n";
    assert!(upstream.contains(address), "{upstream}");
    let hint = "  rootDeviceHints:\n    deviceName: /dev/sda\n";
    let changed = upstream.replace(address, &format!("    address: {}\n", world.sim.address("node-0")));
    world.kubectl(&["apply", "-f", "-"], &format!("{}\n{hint}", changed.trim_end())).await.unwrap();
    world.expect_well("example-baremetalhost", ProvisioningState::Available).await.unwrap();
    let table = world.kubectl(&["get", "bmh"], "").await.unwrap();
    assert!(table.contains("example-baremetalhost") && table.contains("available"), "{table}");
}

#[tokio::test]
async fn a_used_disk_becomes_a_sound_one_with_a_config_drive() {
    let folder = tempfile::tempdir().unwrap();
    let root = UsedDisk::make(&folder.path().join("root.raw"), 256).unwrap();
    let other = UsedDisk::make(&folder.path().join("other.raw"), 32).unwrap();
    let old = ["-p", "-O", "4194304", &other.path.to_string_lossy()];
    assert!(tool("blkid", &old).unwrap().contains("config-2"), "the other disk has an old config drive");
    let machine = json!({ "id": "node-0", "kind": "fake", "disks": [root.config(), other.config()] });
    let world = World::start(Options { machines: vec![machine], ..Options::one_fake() }).await.unwrap();
    let image = DiskImage::small().unwrap();
    let network = network_data(&world);
    world.apply_secret("words", json!({ "userData": "#cloud-config\nhostname: seven\n" })).await.unwrap();
    world.apply_secret("net", json!({ "networkData": network.to_string() })).await.unwrap();
    world.apply_secret("more", json!({ "metaData": "rack: r7\n" })).await.unwrap();
    let change = json!({
        "image": world.image("disk.raw", image), "rootDeviceHints": { "deviceName": "/dev/sda" },
        "userData": { "name": "words" }, "networkData": { "name": "net" }, "metaData": { "name": "more" },
    });
    world.apply_host("node-0", change).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    runs_from_disk(&world, "node-0").await;

    let disk = root.path.to_string_lossy().into_owned();
    let verdict = tool("sgdisk", &["-v", &disk]).unwrap();
    assert!(verdict.contains("No problems found"), "{verdict}");
    assert!(tool("blkid", &["-p", &disk]).unwrap().contains(r#"PTTYPE="gpt""#));
    assert!(bytes_at(&root.path, 0, 20 << 20).unwrap()[CONTENT] == image.bytes[CONTENT], "the image's content");
    let found = partitions(&root.path).unwrap();
    let (_, offset, length, _) =
        found.iter().find(|(.., name)| name == "config-2").unwrap_or_else(|| panic!("{found:?}"));
    let probe = tool("blkid", &["-p", "-O", &offset.to_string(), "-S", &length.to_string(), &disk]).unwrap();
    assert!(probe.contains(r#"LABEL="config-2""#) && probe.contains(r#"TYPE="vfat""#), "{probe}");
    let volume = format!("{disk}@@{offset}");
    let read = |file: &str| tool("mtype", &["-i", &volume, &format!("::/openstack/latest/{file}")]).unwrap();
    assert_eq!(read("user_data"), "#cloud-config\nhostname: seven\n");
    assert_eq!(serde_json::from_str::<Value>(&read("network_data.json")).unwrap(), network);
    let meta: Value = serde_json::from_str(&read("meta_data.json")).unwrap();
    assert_eq!(
        (&meta["rack"], &meta["name"], &meta["metal3-name"]),
        (&json!("r7"), &json!("node-0"), &json!("node-0"))
    );
    let left = tool("blkid", &old).unwrap_or_default();
    assert!(!left.contains("config-2"), "the other disk's old config drive is still there: {left}");
}

fn network_data(world: &World) -> Value {
    json!({
        "links": [
            { "id": "nic", "type": "phy", "ethernet_mac_address": world.sim.machine("node-0")["mac"] },
            { "id": "tagged", "type": "vlan", "vlan_link": "nic", "vlan_id": 42,
              "vlan_mac_address": world.sim.machine("node-0")["mac"] },
        ],
        "networks": [{ "id": "net", "type": "ipv4", "link": "tagged", "ip_address": "192.0.2.7", "netmask": "255.255.255.0",
            "routes": [{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1" }] }],
        "services": [{ "type": "dns", "address": "192.0.2.53" }],
    })
}

#[tokio::test]
async fn the_agents_own_network_is_what_the_secret_says() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let network = network_data(&world);
    world.apply_secret("agent-net", json!({ "networkData": network.to_string() })).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let change = json!({ "preprovisioningNetworkDataName": "agent-net", "image": image });
    world.apply_host("node-0", change).await.unwrap();
    world.expect_well("node-0", ProvisioningState::Provisioned).await.unwrap();
    let machine = world.sim.machine("node-0");
    let root = std::path::Path::new(machine["root"].as_str().unwrap());
    let configured = std::fs::read_to_string(root.join("network.json")).unwrap();
    let configured: Value = serde_json::from_str(&configured).unwrap();
    assert_eq!(configured["nameServers"], json!(["192.0.2.53"]), "{configured}");
    let text = configured["operations"].to_string();
    for part in ["192.0.2.7", "192.0.2.1", "42"] {
        assert!(text.contains(part), "no {part} in {configured}");
    }
    // Without network data of its own, the system gets the agent's.
    let disk = world.sim.disk("node-0", 0);
    let found = partitions(&disk).unwrap();
    let (_, offset, ..) = found.iter().find(|(.., name)| name == "config-2").unwrap_or_else(|| panic!("{found:?}"));
    let volume = format!("{}@@{offset}", disk.display());
    let written = tool("mtype", &["-i", &volume, "::/openstack/latest/network_data.json"]).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), network);
}
