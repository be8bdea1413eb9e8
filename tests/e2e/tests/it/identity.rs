//! Which machine is it: nothing is done to a machine that is not the one the host is known to be, whatever leads to it.

use api::metal3::{ProvisioningState, annotation};
use e2e::{DiskImage, GPT, Options, World, bytes_at, machine};
use serde_json::{Value, json};

/// The start of the small image's content on the disk.
const CONTENT: u64 = 1 << 20;

fn options() -> Options {
    let machines = vec![machine("node-0"), machine("node-1")];
    Options { machines, ..Options::one_fake() }.with(&["--power-poll", "1"])
}

/// `node-0` is provisioned on the machine of its name.
async fn provisioned() -> World {
    let world = World::start(options()).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.apply_host("node-0", json!({ "image": image })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
    world
}

/// From now on the BMC of `node-0` shows another machine.
async fn exchange(world: &World) {
    let fields = json!({ "UUID": "39343550-3330-4d32-3244-324a30304c34", "SerialNumber": "2M2D2J00L4" });
    let rule = json!({ "method": "GET", "path": "*/Systems/node-0", "action": { "type": "edit", "fields": fields } });
    world.sim.post("/machines/node-0/faults", rule).await.unwrap();
}

fn message(host: &Value) -> &str {
    host["status"]["errorMessage"].as_str().unwrap_or_default()
}

/// The fingerprint that the message tells to use as consent.
fn fingerprint(host: &Value) -> String {
    message(host).rsplit(' ').next().unwrap().to_owned()
}

async fn first_mib(world: &World, id: &str) -> Vec<u8> {
    bytes_at(&world.sim.disk(id, 0), CONTENT, 1 << 20).unwrap()
}

/// The host has failed again, after this many failures.
async fn failed_again(world: &World, after: i64) -> Value {
    let again = |host: &Value| host["status"]["errorCount"].as_i64() > Some(after);
    world.wait_for_state("node-0", "failed again", again).await.unwrap()
}

async fn event(world: &World, reason: &str) -> String {
    let all = world.kubectl(&["get", "events.events.k8s.io", "-o", "json"], "").await.unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    let found = all["items"].as_array().unwrap().iter().find(|e| e["reason"] == reason);
    found.unwrap_or_else(|| panic!("no Event {reason}: {all}"))["note"].as_str().unwrap().to_owned()
}

async fn detached_by_status(world: &World, status: &str) {
    let patch = json!({ "status": { "operationalStatus": status } }).to_string();
    let arguments = ["patch", "bmh", "node-0", "--subresource=status", "--type=merge", "-p", &patch];
    world.kubectl(&arguments, "").await.unwrap();
}

/// Edited past the door to another machine's BMC, a provisioned host touches neither that machine nor sends it a password.
#[tokio::test]
async fn a_bmc_address_that_becomes_another_machines_leads_nowhere() {
    let world = provisioned().await;
    let secret = json!({ "username": world.sim.machine("node-1")["username"], "password": world.sim.machine("node-1")["password"] });
    world.apply_secret("node-1-bmc-secret", secret).await.unwrap();
    let elsewhere = json!({ "spec": { "bmc": { "address": world.sim.address("node-1"), "credentialsName": "node-1-bmc-secret" } } });

    let refused = world.patch("node-0", elsewhere.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("only while the host is registering or detached"), "{refused}");
    let mac = json!({ "spec": { "bootMACAddress": "52:54:00:00:00:99" } });
    let refused = world.patch("node-0", mac).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be changed once it is set"), "{refused}");

    // A detached host's address may be changed, and who may write the status says that it is detached.
    world.annotate("node-0", &format!("{}=", annotation::PAUSED)).await.unwrap();
    detached_by_status(&world, "detached").await;
    world.patch("node-0", elsewhere).await.unwrap();
    detached_by_status(&world, "OK").await;
    world.annotate("node-0", &format!("{}-", annotation::PAUSED)).await.unwrap();
    let says = ["another BMC answers there", "it has been sent no credentials", "accept-machine"];
    world.expect_error("node-0", "registration error", &says).await.unwrap();
    // Nor does what is wished of the host from now on.
    world.patch("node-0", json!({ "spec": { "image": null, "online": false } })).await.unwrap();
    let host = failed_again(&world, 1).await;
    assert!(message(&host).contains("another BMC"), "{host}");
    let requests = world.sim.get("/machines/node-1/requests").await.unwrap();
    let seen = requests["requests"].as_array().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|r| r["method"] == "GET"), "{requests}");
    let other = world.sim.now("node-1").await.unwrap();
    assert_eq!((&other["power"], &other["boots"]), (&json!("Off"), &json!(0)), "{other}");

    let back = json!({ "spec": { "bmc": { "address": world.sim.address("node-0"), "credentialsName": "node-0-bmc-secret" } } });
    world.annotate("node-0", &format!("{}=", annotation::PAUSED)).await.unwrap();
    detached_by_status(&world, "detached").await;
    world.patch("node-0", back).await.unwrap();
    detached_by_status(&world, "OK").await;
    world.annotate("node-0", &format!("{}-", annotation::PAUSED)).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let table = bytes_at(&world.sim.disk("node-0", 0), 512, 8).unwrap();
    assert!(table != GPT, "its own machine is cleaned");
}

/// Behind the same BMC is another machine: cables, a blade, a mainboard. It is let alone until somebody accepts it by name.
#[tokio::test]
async fn another_machine_behind_the_bmc_is_let_alone_until_it_is_accepted() {
    let world = provisioned().await;
    let content = first_mib(&world, "node-0").await;
    exchange(&world).await;
    let says = [
        "the BMC shows another machine",
        "UUID 39343550-3330-4d32-3244-324a30304c34, recorded",
        "serial number 2M2D2J00L4",
        "nothing was written or wiped there",
    ];
    let host = world.expect_error("node-0", "power management error", &says).await.unwrap();
    let consent = fingerprint(&host);
    world.patch("node-0", json!({ "spec": { "image": null, "online": false } })).await.unwrap();
    let failures =
        |host: &Value| host["status"]["errorType"] == "provisioning error" && message(host).contains("another machine");
    let host = world.wait_for_state("node-0", "unable to deprovision", failures).await.unwrap();
    assert_eq!(fingerprint(&host), consent);
    world.annotate("node-0", &format!("{}=0000-0000-0000-0000", annotation::ACCEPT_MACHINE)).await.unwrap();
    let answered = |host: &Value| message(host).contains("names 0000-0000-0000-0000, which is not this machine");
    world.wait_for_state("node-0", "told that the consent is wrong", answered).await.unwrap();
    let now = world.sim.now("node-0").await.unwrap();
    assert_eq!((&now["power"], &now["running"], &now["boots"]), (&json!("On"), &json!("disk"), &json!(2)), "{now}");
    assert!(first_mib(&world, "node-0").await == content);

    world.annotate("node-0", &format!("{}={consent}", annotation::ACCEPT_MACHINE)).await.unwrap();
    // Its disk carries this host's mark: it may be wiped.
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let note = event(&world, "MachineAccepted").await;
    assert!(note.contains(&consent), "{note}");
    let used_up = |host: &Value| host["metadata"]["annotations"][annotation::ACCEPT_MACHINE].is_null();
    world.wait_for_state("node-0", "without the consent that it used", used_up).await.unwrap();
    let record = world.kubectl(&["get", "machinerecord", "node-0", "-o", "json"], "").await.unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["spec"]["bmc"]["serialNumber"], "2M2D2J00L4", "{record}");
    assert_eq!(record["spec"]["accepted"]["fingerprint"], json!(consent), "{record}");
}

/// A host that is deleted does not wait for its machine to come back, and takes no other one along.
#[tokio::test]
async fn a_deletion_leaves_another_machine_running() {
    let world = provisioned().await;
    let content = first_mib(&world, "node-0").await;
    exchange(&world).await;
    world.expect_error("node-0", "power management error", &["another machine"]).await.unwrap();
    world.delete("node-0").await.unwrap();
    let note = event(&world, "LeftRunning").await;
    assert!(note.contains("left running, not wiped"), "{note}");
    let now = world.sim.now("node-0").await.unwrap();
    assert_eq!((&now["power"], &now["running"], &now["boots"]), (&json!("On"), &json!("disk"), &json!(2)), "{now}");
    assert!(first_mib(&world, "node-0").await == content);
    // The record outlives the host: declared again, the machine is still another one.
    world.apply_host("node-0", json!({})).await.unwrap();
    world.expect_error("node-0", "registration error", &["another machine"]).await.unwrap();
}

/// The agent runs on another machine than the one that was inspected: nothing is written there.
#[tokio::test]
async fn an_agent_on_another_machine_writes_nothing() {
    let world = World::start(options()).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let root = world.sim.machine("node-0")["root"].as_str().unwrap().to_owned();
    for (name, value) in [("product_uuid", "39343550-3330-4d32-3244-324a30304c34"), ("product_serial", "2M2D2J00L4")] {
        std::fs::write(format!("{root}/sys/devices/virtual/dmi/id/{name}"), format!("{value}\n")).unwrap();
    }
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    // The resident agent leaves first: one that sits on the machine has shown what it is.
    world.patch("node-0", json!({ "spec": { "online": false } })).await.unwrap();
    world.sim.wait("node-0", 60, "off", |m| m["power"] == "Off").await.unwrap();
    world.patch("node-0", json!({ "spec": { "online": true, "image": image } })).await.unwrap();
    let says = [
        "the agent runs on another machine",
        "serial number 2M2D2J00L4",
        "2 of 2 serial numbers and WWNs of disks recorded are there",
        "nothing was written or wiped there",
    ];
    let host = world.expect_error("node-0", "provisioning error", &says).await.unwrap();
    assert_eq!(world.images.requests("disk.raw"), 0, "nothing is fetched for it");
    assert!(first_mib(&world, "node-0").await == vec![0; 1 << 20], "nothing is written");
    world.annotate("node-0", &format!("{}={}", annotation::ACCEPT_MACHINE, fingerprint(&host))).await.unwrap();
    world.wait_state("node-0", 120, ProvisioningState::Provisioned).await.unwrap();
}

/// Another BMC has taken the address while this server's connection was open: it is sent nothing, until it is accepted by name.
#[tokio::test]
async fn another_bmc_at_the_same_address_is_sent_nothing_until_it_is_accepted() {
    let world = provisioned().await;
    let rule = |method: &str, path: &str, action: Value| json!({ "method": method, "path": path, "action": action });
    let root = json!({ "type": "edit", "fields": { "UUID": "39343550-3330-4d32-3244-324a30304c34" } });
    world.sim.post("/machines/node-0/faults", rule("GET", "/redfish/v1", root)).await.unwrap();
    let mut lost = rule("GET", "*/Systems/node-0", json!({ "type": "status", "status": 401 }));
    lost["count"] = json!(1);
    world.sim.post("/machines/node-0/faults", lost).await.unwrap();
    let says = ["another BMC answers there", "it has been sent no credentials"];
    let host = world.expect_error("node-0", "power management error", &says).await.unwrap();
    let sessions = world.sim.now("node-0").await.unwrap()["sessions"].clone();
    let host = failed_again(&world, host["status"]["errorCount"].as_i64().unwrap()).await;
    assert!(message(&host).contains("another BMC answers there"), "{host}");
    assert_eq!(world.sim.now("node-0").await.unwrap()["sessions"], sessions, "nobody has signed in");
    world.annotate("node-0", &format!("{}={}", annotation::ACCEPT_MACHINE, fingerprint(&host))).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Provisioned).await.unwrap();
    event(&world, "MachineAccepted").await;
}

/// Two hosts are deleted and declared again with each other's BMCs: each is a new wish, and neither is in the other's way.
#[tokio::test]
async fn hosts_that_exchange_their_names_are_new_wishes() {
    let world = World::start(options()).await.unwrap();
    for id in ["node-0", "node-1"] {
        world.apply_host(id, json!({ "online": false })).await.unwrap();
    }
    for id in ["node-0", "node-1"] {
        world.wait_state(id, 60, ProvisioningState::Available).await.unwrap();
    }
    for id in ["node-0", "node-1"] {
        world.delete(id).await.unwrap();
    }
    for (id, other) in [("node-0", "node-1"), ("node-1", "node-0")] {
        let bmc = json!({ "address": world.sim.address(other), "credentialsName": format!("{id}-bmc-secret") });
        let mac = world.sim.machine(other)["mac"].clone();
        world.apply_host(id, json!({ "online": false, "bmc": bmc, "bootMACAddress": mac })).await.unwrap();
    }
    for id in ["node-0", "node-1"] {
        world.wait_state(id, 60, ProvisioningState::Available).await.unwrap();
    }
}

/// Two hosts cannot be one machine, though their BMC's addresses differ.
#[tokio::test]
async fn a_machine_that_another_host_holds_is_refused() {
    let world = World::start(options()).await.unwrap();
    world.apply_host("node-0", json!({ "online": false })).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let machine = world.sim.get("/machines/node-0").await.unwrap();
    let (uuid, serial) = (machine["uuid"].clone(), machine["serial"].clone());
    assert!(uuid.is_string() && serial.is_string(), "{machine}");
    let fields = json!({ "UUID": uuid, "SerialNumber": serial });
    let rule = json!({ "method": "GET", "path": "*/Systems/node-1", "action": { "type": "edit", "fields": fields } });
    world.sim.post("/machines/node-1/faults", rule).await.unwrap();
    world.apply_host("node-1", json!({})).await.unwrap();
    world
        .expect_error("node-1", "registration error", &["it is the machine of the host default/node-0"])
        .await
        .unwrap();
    assert_eq!(world.sim.now("node-1").await.unwrap()["boots"], json!(0));
}
