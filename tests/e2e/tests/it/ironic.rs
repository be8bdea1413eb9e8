//! A machine's whole life under a real Ironic, which our provisioner drives: enrolled, inspected, cleaned, provisioned, emptied, let go. Ironic builds
//! the ISO, boots the machine from it by Redfish virtual media (UEFI firmware, shim, GRUB, kernel: emulated, minutes), and tells the agent there what to
//! do; the machine then boots its own system, which reports in. Once with our agent, once with ironic-python-agent.

mod native;

use std::path::{Path, PathBuf};
use std::time::Instant;

use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{
    CallHome, Ironic, Options, Setup, UsedDisk, World, agent_image, agent_image_ipa, bytes_at, demo_os, free_addresses,
    partitions, tool,
};
use serde_json::{Value, json};

/// Longest time from one state to another, in seconds: firmware, GRUB and kernel run in software, and Ironic takes half a second of a processor for
/// each look at the BMC.
const PATIENCE: u64 = 1200;
/// Size of the disk in MiB.
const DISK: u64 = 2 << 10;
/// Where QEMU's guests find this machine.
const HOST: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 2, 2);
/// The machine's card: of a maker, not made up (ironic-python-agent passes over some that are).
const MAC: &str = "00:16:3e:4a:c0:01";
/// What Ironic calls an agent's port when nobody says otherwise (`I:drivers/modules/agent_client.py`).
const AGENT_PORT: u16 = 9999;

/// What machines boot for Ironic.
struct Agent {
    folder: PathBuf,
    memory: u32,
    image: &'static str,
    manager: &'static str,
    /// Name of the config drive's partition: ironic-python-agent gives it none.
    drive: &'static str,
}

struct Lab {
    started: Instant,
    ironic: Ironic,
    world: World,
    disk: PathBuf,
    image: Value,
}

impl Lab {
    async fn start(agent: &Agent, folder: &Path) -> Self {
        let started = Instant::now();
        let [port] = free_addresses(std::net::Ipv4Addr::LOCALHOST).unwrap();
        let port = port.port();
        let ironic = Ironic::start(&Setup {
            agent: agent.folder.clone(),
            loaders: agent_image().unwrap(),
            // Linux counts ticks of the 8254 in its first moments and panics when an emulated machine on a busy host gives none in time.
            parameters: format!("no_timer_check ipa-advertise-host=127.0.0.1 ipa-advertise-port={port}"),
            seen_at: HOST,
        })
        .await
        .unwrap();
        let disk = folder.join("disk.raw");
        UsedDisk::make(&disk, DISK).unwrap();
        let machine = json!({
            "id": "node-0", "kind": "qemu", "memoryMib": agent.memory, "disks": [{ "path": disk, "bus": "virtio" }],
            "nics": [{ "mac": MAC, "forwards": [format!("tcp:127.0.0.1:{port}-:{AGENT_PORT}")] }],
        });
        let list = ironic.list().unwrap().display().to_string();
        let options = Options { machines: vec![machine], tls: false, arguments: Vec::new() };
        let world = World::start(options.with(&["--provisioner", "ironic", "--ironics", &list])).await.unwrap();
        let os = demo_os().unwrap();
        let sums = std::fs::read_to_string(os.join("SHA256SUMS")).unwrap();
        let sha256 = sums.lines().find_map(|line| line.strip_suffix(&format!("  {}", agent.image))).unwrap();
        let url = ironic.publish(&os.join(agent.image)).unwrap();
        let image = json!({ "url": url, "checksum": sha256, "checksumType": "sha256", "format": "raw" });
        let lab = Self { started, ironic, world, disk, image };
        lab.milestone("Ironic and the server run");
        lab
    }

    fn milestone(&self, what: &str) {
        println!("{:>4} s  {what}", self.started.elapsed().as_secs());
    }

    /// The end of what the machine has printed.
    fn console(&self) -> String {
        let machine = self.world.sim.machine("node-0");
        let printed = machine["serialConsole"].as_str().map(std::fs::read).unwrap().unwrap_or_default();
        String::from_utf8_lossy(&printed[printed.len().saturating_sub(8000)..]).into_owned()
    }

    /// Waits for a state; what fails on the way fails the test, with what all that took part have said.
    async fn comes_to(&self, state: ProvisioningState) {
        let message = |host: &BareMetalHost| host.status.clone().unwrap_or_default().error_message;
        let ended = |host: &BareMetalHost| host.state() == state || !message(host).is_empty();
        let failure = match self.world.wait("node-0", PATIENCE, state.as_str(), ended).await {
            Ok(host) if message(&host).is_empty() => return self.milestone(state.as_str()),
            Ok(host) => message(&host),
            Err(error) => format!("{error:#}"),
        };
        let fields = "provision_state,last_error,power_state,clean_step,deploy_step";
        let node = self.ironic.get(&format!("/v1/nodes?fields={fields}")).await;
        panic!("{failure}\n{node:?}\n{}\nthe end of the machine's console:\n{}", self.ironic.tail(), self.console());
    }

    async fn patch(&self, spec: Value) {
        let patch = json!({ "spec": spec }).to_string();
        self.world.kubectl(&["patch", "bmh", "node-0", "--type=merge", "-p", &patch], "").await.unwrap();
    }

    async fn nodes(&self) -> Value {
        self.ironic.get("/v1/nodes/detail").await.unwrap()["nodes"].clone()
    }

    /// Declares the machine with a config drive whose static address no DHCP would give.
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

    /// The machine has what was written, and its own system says so.
    async fn has_its_system(&self, call_home: &CallHome, drive: &str) {
        let report = match call_home.wait("node-0", 1, PATIENCE).await {
            Ok(report) => report,
            Err(error) => panic!("{error:#}; the end of its console:\n{}", self.console()),
        };
        self.milestone("its system has reported in");
        assert_eq!(report["hostname"], "node-0", "{report}");
        assert!(report["addresses"].as_array().unwrap().contains(&json!("10.0.2.77/24")), "{report}");
        let table = partitions(&self.disk).unwrap();
        assert!(table.len() == 3 && table[2].3 == drive, "{table:?}");
        let checked = tool("sgdisk", &["-v", &self.disk.display().to_string()]).unwrap();
        assert!(checked.contains("No problems found"), "{checked}");
        let machine = self.world.sim.now("node-0").await.unwrap();
        let line = machine["lastBoot"]["commandLine"].to_string();
        assert!(line.contains("qemu-system") && !line.contains("-kernel") && !line.contains("-initrd"), "{line}");
        assert!(machine["medium"].is_null(), "{machine}");
    }
}

async fn live(agent: &Agent) {
    let folder = tempfile::tempdir().unwrap();
    let call_home = CallHome::start().await.unwrap();
    let lab = Lab::start(agent, folder.path()).await;
    lab.declare(&call_home).await;
    lab.comes_to(ProvisioningState::Available).await;
    let nodes = lab.nodes().await;
    let uuid = nodes[0]["uuid"].as_str().unwrap().to_owned();
    let found = lab.ironic.get(&format!("/v1/nodes/{uuid}/inventory")).await.unwrap();
    let managers = found["plugin_data"]["configuration"]["managers"].as_array().unwrap();
    assert!(managers.iter().any(|manager| manager["name"] == agent.manager), "{found}");
    let hardware = lab.world.kubectl(&["get", "hardwaredata", "node-0", "-o", "json"], "").await.unwrap();
    let hardware = serde_json::from_str::<Value>(&hardware).unwrap()["spec"]["hardware"].clone();
    let has_card = hardware["nics"].as_array().unwrap().iter().any(|nic| nic["mac"] == MAC);
    assert!(has_card && hardware["storage"][0]["sizeBytes"] == DISK << 20, "{hardware}");
    // Nothing is cleaned before the machine is wanted, and an inspection writes nothing.
    let table = partitions(&lab.disk).unwrap();
    assert!(table.iter().any(|(.., name)| name == "old-config"), "{table:?}");

    lab.patch(json!({ "image": lab.image })).await;
    lab.comes_to(ProvisioningState::Provisioned).await;
    lab.has_its_system(&call_home, agent.drive).await;

    lab.patch(json!({ "image": null })).await;
    lab.comes_to(ProvisioningState::Available).await;
    assert!(bytes_at(&lab.disk, 0, 34 * 512).unwrap().iter().all(|byte| *byte == 0), "the system was removed");
    let nodes = lab.nodes().await;
    assert_eq!((&nodes[0]["last_error"], &nodes[0]["maintenance"]), (&Value::Null, &json!(false)), "{nodes}");
    assert!(lab.ironic.agents_logs() >= 1, "Ironic keeps the agent's logs");

    lab.world.kubectl(&["delete", "bmh", "node-0", "--wait=false"], "").await.unwrap();
    lab.world.wait_gone("node-0", PATIENCE).await.unwrap();
    assert_eq!(lab.nodes().await, json!([]));
    let machine = lab.world.sim.now("node-0").await.unwrap();
    println!("{} starts of the machine", machine["lastBoot"]["boot"]);
    // An Ironic with fast track leaves the agent's ISO in the drive, and ends no session.
    assert_eq!(machine["power"], "Off", "{machine}");
    lab.milestone("gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_under_ironic_by_our_agent() {
    let folder = agent_image().unwrap();
    live(&Agent { folder, memory: 512, image: "debian-12.raw.zst", manager: "MetamorphAgent", drive: "config-2" })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_under_ironic_by_ironic_python_agent() {
    let folder = agent_image_ipa().unwrap();
    live(&Agent { folder, memory: 2560, image: "debian-12.raw", manager: "generic_hardware_manager", drive: "" }).await;
}
