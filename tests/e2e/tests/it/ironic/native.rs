//! The same life without any Ironic: the native provisioner boots ironic-python-agent by Redfish virtual media and drives it itself.

use std::time::Instant;

use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{CallHome, Options, UsedDisk, World, agent_image_ipa, bytes_at, demo_os, free_addresses, partitions, tool};
use serde_json::{Value, json};

use super::{AGENT_PORT, DISK, HOST, MAC, PATIENCE};

const IMAGE: &str = "debian-12.raw";

struct Lab {
    started: Instant,
    world: World,
}

impl Lab {
    fn milestone(&self, what: &str) {
        println!("{:>4} s  {what}", self.started.elapsed().as_secs());
    }

    fn console(&self) -> String {
        let machine = self.world.sim.machine("node-0");
        let printed = machine["serialConsole"].as_str().map(std::fs::read).unwrap().unwrap_or_default();
        String::from_utf8_lossy(&printed[printed.len().saturating_sub(8000)..]).into_owned()
    }

    async fn comes_to(&self, state: ProvisioningState) {
        let message = |host: &BareMetalHost| host.status.clone().unwrap_or_default().error_message;
        let ended = |host: &BareMetalHost| host.state() == state || !message(host).is_empty();
        let failure = match self.world.wait("node-0", PATIENCE, state.as_str(), ended).await {
            Ok(host) if message(&host).is_empty() => return self.milestone(state.as_str()),
            Ok(host) => message(&host),
            Err(error) => format!("{error:#}"),
        };
        panic!("{failure}\n{}\nthe end of the machine's console:\n{}", self.world.server.tail(), self.console());
    }

    async fn declare(&self, call_home: &CallHome) {
        let network = json!({
            "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": MAC, "mtu": 1400 }],
            "networks": [{ "id": "n0", "type": "ipv4", "link": "port0", "ip_address": "10.0.2.77", "netmask": "255.255.255.0",
                "routes": [{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": HOST }] }],
            "services": [{ "type": "dns", "address": "10.0.2.3" }],
        });
        self.world.apply_secret("node-0-network", json!({ "networkData": network.to_string() })).await.unwrap();
        self.world.apply_secret("node-0-user", json!({ "userData": call_home.user_data("node-0") })).await.unwrap();
        let change = json!({
            "bootMode": "UEFI",
            "rootDeviceHints": { "minSizeGigabytes": 2 },
            "networkData": { "name": "node-0-network" },
            "userData": { "name": "node-0-user" },
        });
        self.world.apply_host("node-0", change).await.unwrap();
    }

    async fn is_to_run(&self, image: Value) {
        let patch = json!({ "spec": { "image": image } }).to_string();
        self.world.kubectl(&["patch", "bmh", "node-0", "--type=merge", "-p", &patch], "").await.unwrap();
    }

    fn image(&self) -> Value {
        let sums = std::fs::read_to_string(demo_os().unwrap().join("SHA256SUMS")).unwrap();
        let sha256 = sums.lines().find_map(|line| line.strip_suffix(&format!("  {IMAGE}"))).unwrap();
        let url = format!("http://{HOST}:{}/images/{IMAGE}", self.world.media_port());
        json!({ "url": url, "checksum": sha256, "checksumType": "sha256", "format": "raw" })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_by_ironic_python_agent_without_an_ironic() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, call_home) = (folder.path().join("disk.raw"), CallHome::start().await.unwrap());
    UsedDisk::make(&disk, DISK).unwrap();
    let [port] = free_addresses(std::net::Ipv4Addr::LOCALHOST).unwrap();
    let machine = json!({
        "id": "node-0", "kind": "qemu", "memoryMib": 2560, "disks": [{ "path": disk, "bus": "virtio" }],
        "nics": [{ "mac": MAC, "forwards": [format!("tcp:127.0.0.1:{}-:{AGENT_PORT}", port.port())] }],
    });
    let options = Options { machines: vec![machine], tls: false, arguments: Vec::new() }.with(&[
        &format!("--agent-image={}", agent_image_ipa().unwrap().display()),
        "--agent-host",
        &HOST.to_string(),
        "--images",
        &demo_os().unwrap().display().to_string(),
        "--agent-boot-timeout",
        &PATIENCE.to_string(),
        "--agent-kernel-arguments",
        &format!("no_timer_check ipa-advertise-host=127.0.0.1 ipa-advertise-port={}", port.port()),
    ]);
    let lab = Lab { started: Instant::now(), world: World::start(options).await.unwrap() };
    lab.declare(&call_home).await;
    lab.comes_to(ProvisioningState::Available).await;
    let hardware = lab.world.kubectl(&["get", "hardwaredata", "node-0", "-o", "json"], "").await.unwrap();
    let hardware = serde_json::from_str::<Value>(&hardware).unwrap()["spec"]["hardware"].clone();
    let has_card = hardware["nics"].as_array().unwrap().iter().any(|nic| nic["mac"] == MAC);
    assert!(has_card && hardware["storage"][0]["sizeBytes"] == DISK << 20, "{hardware}");

    lab.is_to_run(lab.image()).await;
    lab.comes_to(ProvisioningState::Provisioned).await;
    let report = match call_home.wait("node-0", 1, PATIENCE).await {
        Ok(report) => report,
        Err(error) => panic!("{error:#}; the end of its console:\n{}", lab.console()),
    };
    lab.milestone("its system has reported in");
    assert_eq!(report["hostname"], "node-0", "{report}");
    assert!(report["addresses"].as_array().unwrap().contains(&json!("10.0.2.77/24")), "{report}");
    // The image's own two, and that of the config drive, to which ironic-python-agent gives no name.
    let table = partitions(&disk).unwrap();
    assert_eq!(table.len(), 3, "{table:?}");
    let checked = tool("sgdisk", &["-v", &disk.display().to_string()]).unwrap();
    assert!(checked.contains("No problems found"), "{checked}");

    lab.is_to_run(Value::Null).await;
    lab.comes_to(ProvisioningState::Available).await;
    assert!(bytes_at(&disk, 0, 34 * 512).unwrap().iter().all(|byte| *byte == 0), "the system was removed");
    lab.world.kubectl(&["delete", "bmh", "node-0", "--wait=false"], "").await.unwrap();
    lab.world.wait_gone("node-0", PATIENCE).await.unwrap();
    let machine = lab.world.sim.now("node-0").await.unwrap();
    assert_eq!((&machine["power"], &machine["medium"]), (&json!("Off"), &Value::Null), "{machine}");
    lab.milestone("gone");
}
